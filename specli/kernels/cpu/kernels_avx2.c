/* AVX2 with FMA and F16C: Haswell, Zen and later. */
#if defined(__x86_64__)
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC target("avx2,fma,f16c")
#endif
#define SIMD_AVX2
#include "kernels.h"
const struct kernels kernels_avx2 = {"AVX2", "avx2", run_row, run_strips, run_item};
#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
