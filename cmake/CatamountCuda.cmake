# The CUDA language, for Hopper's sm_90a alone. Needs a toolkit, but no GPU.
if(NOT CMAKE_CUDA_COMPILER)
  find_program(CMAKE_CUDA_COMPILER nvcc HINTS ENV CUDA_HOME PATHS /usr/local/cuda
               PATH_SUFFIXES bin REQUIRED)
endif()
set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
set(CMAKE_CUDA_ARCHITECTURES OFF)
enable_language(CUDA)
if(CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 13)
  message(FATAL_ERROR "CATAMOUNT_CUDA needs nvcc 13 or newer, "
                      "got ${CMAKE_CUDA_COMPILER_VERSION} (${CMAKE_CUDA_COMPILER})")
endif()
find_package(CUDAToolkit REQUIRED)

# As plain flags: CMake 3.25 has no names for C++20 under nvcc, nor 3.22 for sm_90a.
foreach(flag -std=c++20 -gencode=arch=compute_90a,code=sm_90a -lineinfo)
  add_compile_options("$<$<COMPILE_LANGUAGE:CUDA>:${flag}>")
endforeach()
