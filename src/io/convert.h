// From the formats that checkpoints use to FP32 and BF16.
//
//   F64 F32 F16 BF16     value by value, to nearest even
//   FP8 blocks           E4M3 codes, and one FP32 scale for each tile of 128 x 128 (DeepSeek-V3)
//   MXFP4                two E2M1 codes a byte, low half first, and one E8M0 scale for 32 (gpt-oss)
//
// `name` serves the messages: what does not fit is an Error(io).
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "core/dtype.h"
#include "io/file_tensor.h"

namespace catamount::io {

float f16_to_float(std::uint16_t bits) noexcept;
float e2m1_to_float(std::uint8_t code) noexcept;  // the low four bits

// Whether tensor_to_f32 and tensor_to_bf16 take it.
bool is_plain_float(FileDType dtype) noexcept;

void tensor_to_f32(const FileTensor& tensor, const std::string& name, std::span<float> out);
void tensor_to_bf16(const FileTensor& tensor, const std::string& name, std::span<Bf16> out);

struct BlockSize {
  std::int64_t rows = 128;
  std::int64_t cols = 128;
};

// `codes` F8_E4M3 [M, N], `scales` F32 [ceil(M / rows), ceil(N / cols)]: value = code * scale.
void fp8_blocks_to_bf16(const FileTensor& codes, const FileTensor& scales, BlockSize block,
                        const std::string& name, std::span<Bf16> out);

// `blocks` U8 [..., G, 16], `scales` U8 [..., G] -> [..., 32 G].
void mxfp4_to_bf16(const FileTensor& blocks, const FileTensor& scales, const std::string& name,
                   std::span<Bf16> out);

}  // namespace catamount::io
