// delta executor: marks functions that both a CPU and a GPU compile. Internal to the kernels.
#pragma once

// Functors for the GPU are plain C++: g++ sees no mark and runs them in tests. Under nvcc nothing
// on the host calls them, so no host code is made for them.
#if defined(__CUDACC__)
#define DELTA_GPU __device__
#define DELTA_GPU_ROLLED _Pragma("unroll 1")  // the loop behind it is not unrolled
#else
#define DELTA_GPU
#define DELTA_GPU_ROLLED
#endif
