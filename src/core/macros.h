// The one host/device macro: core/ is plain C++ for a host compiler and for nvcc.
#pragma once

#ifdef __CUDACC__
#define CATAMOUNT_HD __host__ __device__
#else
#define CATAMOUNT_HD
#endif
