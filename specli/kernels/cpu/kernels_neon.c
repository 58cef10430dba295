/* ARMv8.2 with the dot-product extension: Apple M1, Graviton 2 and later. */
#if defined(__aarch64__)
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("dotprod"))), apply_to = function)
#else
#pragma GCC target("arch=armv8.2-a+dotprod")
#endif
#include <arm_neon.h>
#define SIMD_NEON
#include "kernels.h"
const struct kernels kernels_neon = {"NEON dot product", "neon", run_row, run_strips, run_item};
#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
