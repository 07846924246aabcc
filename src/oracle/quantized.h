// Gives the oracle a precision's roundings: the values that a backend of that precision multiplies.
#pragma once

#include "oracle/oracle.h"

namespace catamount::oracle {

// BF16: nothing (the oracle is exact). FP8: weights quantized along both axes, and the rounding of
// activation rows; pre-activations are kept as BF16 (docs/numerics.md).
void apply_precision(Precision precision, Problem* problem);

}  // namespace catamount::oracle
