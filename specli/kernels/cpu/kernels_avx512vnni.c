/* AVX-512 with VNNI: Ice Lake, Zen 4 and later. */
#if defined(__x86_64__)
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")
#endif
#define SIMD_AVX512
#define SIMD_VNNI
#include "kernels.h"
const struct kernels kernels_avx512vnni = {"AVX-512 VNNI", "avx512vnni", run_row, run_strips, run_item};
#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
