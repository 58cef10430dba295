/* AVX2 with VNNI: Alder Lake, Zen 5 and later.
 *
 * VNNI_OF_AVX512 takes AVX-512's instruction for vectors of 256 bits, which computes the same: for tests on processors that have
 * only that.
 */
#if defined(__x86_64__)
#if defined(VNNI_OF_AVX512)
#pragma GCC target("avx2,fma,f16c,avx512vl,avx512vnni")
#define DPBUSD _mm256_dpbusd_epi32
#else
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c,avxvnni"))), apply_to = function)
#else
#pragma GCC target("avx2,fma,f16c,avxvnni")
#endif
#define DPBUSD _mm256_dpbusd_avx_epi32
#endif
#define SIMD_AVX2
#define SIMD_VNNI
#include "kernels.h"
const struct kernels kernels_avxvnni = {"AVX-VNNI", "avxvnni", run_row, run_strips, run_item};
#if defined(__clang__) && !defined(VNNI_OF_AVX512)
#pragma clang attribute pop
#endif
#endif
