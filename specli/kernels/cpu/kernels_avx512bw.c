/* AVX-512 without VNNI: Skylake-X and its relatives. */
#if defined(__x86_64__)
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")
#endif
#define SIMD_AVX512
#include "kernels.h"
const struct kernels kernels_avx512bw = {"AVX-512", "avx512bw", run_row, run_strips, run_item};
#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
