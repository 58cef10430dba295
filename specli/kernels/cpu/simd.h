/* Sixteen float lanes and sixteen int32 lanes, one meaning on every instruction set.
 *
 * A kernel file defines SIMD_AVX512, SIMD_AVX2, SIMD_NEON or nothing (portable C), switches the compiler to that target
 * and includes this header. Every function is a fixed sequence of IEEE operations on lanes, and sums over lanes are taken
 * in one fixed tree, so the instruction sets that have a fused multiply-add compute identical bits.
 */
#ifndef SPECLI_SIMD_H
#define SPECLI_SIMD_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#define LANES 16

/* Small loops over rows become straight code, so that their accumulators stay in registers. Portable C has no such registers to fill, and
 * sanitizers (NO_UNROLLING) take minutes to compile straight code. */
#define PRAGMA(text) _Pragma(#text)
#if (defined(SIMD_AVX512) || defined(SIMD_AVX2) || defined(SIMD_NEON)) && !defined(NO_UNROLLING)
#define UNROLLED 1
#define UNROLL(n) PRAGMA(GCC unroll n)
#else
#define UNROLLED 0
#define UNROLL(n) PRAGMA(GCC unroll 1)
#endif
/* Kernels are specialised by being inlined with a constant type. */
#define INLINE static inline __attribute__((always_inline, unused))

#if defined(SIMD_AVX512)

#include <immintrin.h>

typedef __m512 vf;  /* 16 x float32 */
typedef __m512i vi; /* 16 x int32, or 64 bytes */

INLINE vf vf_set(float x) { return _mm512_set1_ps(x); }
INLINE vf vf_load(const float *p) { return _mm512_loadu_ps(p); }
INLINE void vf_store(float *p, vf a) { _mm512_storeu_ps(p, a); }
INLINE vf vf_load_n(const float *p, int n) { return _mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), p); }
INLINE void vf_store_n(float *p, vf a, int n) { _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1), a); }
INLINE vf vf_add(vf a, vf b) { return _mm512_add_ps(a, b); }
INLINE vf vf_sub(vf a, vf b) { return _mm512_sub_ps(a, b); }
INLINE vf vf_mul(vf a, vf b) { return _mm512_mul_ps(a, b); }
INLINE vf vf_div(vf a, vf b) { return _mm512_div_ps(a, b); }
INLINE vf vf_fma(vf a, vf b, vf c) { return _mm512_fmadd_ps(a, b, c); }
INLINE vf vf_max(vf a, vf b) { return _mm512_max_ps(a, b); }
INLINE vf vf_min(vf a, vf b) { return _mm512_min_ps(a, b); }
INLINE vf vf_abs(vf a) { return _mm512_abs_ps(a); }
/* a < b ? x : y */
INLINE vf vf_pick_less(vf a, vf b, vf x, vf y) { return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), y, x); }
/* Lanes first … last-1 of a, y elsewhere. */
INLINE vf vf_keep_lanes(vf a, vf y, int first, int last) {
    uint32_t mask = ((1u << last) - 1) & ~((1u << first) - 1);
    return _mm512_mask_blend_ps((__mmask16)mask, y, a);
}
INLINE vf vf_f16(const uint16_t *p) { return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p)); }
INLINE void vf_store_f16(uint16_t *p, vf a) { _mm256_storeu_si256((__m256i *)p, _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT)); }
INLINE vf vf_bf16(const uint16_t *p) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p)), 16));
}
INLINE vf vf_i8(const int8_t *p) { return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p))); }
INLINE vf vf_u8(const uint8_t *p) { return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p))); }
/* Rounds to nearest even and saturates to int8. */
INLINE void vf_store_i8(int8_t *p, vf a) { _mm_storeu_si128((__m128i *)p, _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(a))); }
INLINE vf vf_from_int(vi a) { return _mm512_cvtepi32_ps(a); }
INLINE vf vf_pow2(vf n) { return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127)), 23)); }
INLINE vf vf_round(vf a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
/* Eight values, each twice: a0 a0 a1 a1 … */
INLINE vf vf_twice(const float *p) {
    const __m512i index = _mm512_set_epi32(7, 7, 6, 6, 5, 5, 4, 4, 3, 3, 2, 2, 1, 1, 0, 0);
    return _mm512_permutexvar_ps(index, _mm512_castps256_ps512(_mm256_loadu_ps(p)));
}
INLINE vf vf_swap_pairs(vf a) { return _mm512_permute_ps(a, 0xb1); }
INLINE vf vf_negate_even(vf a) {
    return _mm512_castsi512_ps(_mm512_xor_si512(_mm512_castps_si512(a), _mm512_set1_epi64(0x80000000)));
}
INLINE float vf_sum(vf a) {
    __m256 x = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    __m128 y = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    y = _mm_add_ps(y, _mm_movehl_ps(y, y));
    return _mm_cvtss_f32(_mm_add_ss(y, _mm_movehdup_ps(y)));
}
INLINE float vf_max_lane(vf a) { return _mm512_reduce_max_ps(a); }

INLINE void vf_transpose(vf r[LANES]) {
    vf t[LANES];
    for (int i = 0; i < LANES; i += 2) {
        t[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
    }
    for (int i = 0; i < LANES; i += 4) {
        for (int half = 0; half < 2; half++) {
            __m512d a = _mm512_castps_pd(t[i + half]), b = _mm512_castps_pd(t[i + 2 + half]);
            r[i + 2 * half] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, b));
            r[i + 2 * half + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, b));
        }
    }
    for (int i = 0; i < 4; i++) {
        vf a = _mm512_shuffle_f32x4(r[i], r[i + 4], 0x88), b = _mm512_shuffle_f32x4(r[i], r[i + 4], 0xdd);
        vf c = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0x88), d = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0xdd);
        t[i] = _mm512_shuffle_f32x4(a, c, 0x88);
        t[i + 8] = _mm512_shuffle_f32x4(a, c, 0xdd);
        t[i + 4] = _mm512_shuffle_f32x4(b, d, 0x88);
        t[i + 12] = _mm512_shuffle_f32x4(b, d, 0xdd);
    }
    memcpy(r, t, sizeof t);
}

INLINE vi vi_zero(void) { return _mm512_setzero_si512(); }
INLINE vi vi_set(int32_t x) { return _mm512_set1_epi32(x); }

#elif defined(SIMD_AVX2)

#include <immintrin.h>

typedef struct {
    __m256 a, b; /* lanes 0-7, 8-15 */
} vf;
typedef struct {
    __m256i a, b;
} vi;

#define BOTH(expression_a, expression_b) ((vf){(expression_a), (expression_b)})

INLINE vf vf_set(float x) { return BOTH(_mm256_set1_ps(x), _mm256_set1_ps(x)); }
INLINE vf vf_load(const float *p) { return BOTH(_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)); }
INLINE void vf_store(float *p, vf v) {
    _mm256_storeu_ps(p, v.a);
    _mm256_storeu_ps(p + 8, v.b);
}
INLINE vf vf_load_n(const float *p, int n) {
    float t[LANES] = {0};
    memcpy(t, p, (size_t)n * sizeof *t);
    return vf_load(t);
}
INLINE void vf_store_n(float *p, vf v, int n) {
    float t[LANES];
    vf_store(t, v);
    memcpy(p, t, (size_t)n * sizeof *t);
}
INLINE vf vf_add(vf x, vf y) { return BOTH(_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)); }
INLINE vf vf_sub(vf x, vf y) { return BOTH(_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)); }
INLINE vf vf_mul(vf x, vf y) { return BOTH(_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)); }
INLINE vf vf_div(vf x, vf y) { return BOTH(_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)); }
INLINE vf vf_fma(vf x, vf y, vf z) { return BOTH(_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)); }
INLINE vf vf_max(vf x, vf y) { return BOTH(_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)); }
INLINE vf vf_min(vf x, vf y) { return BOTH(_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)); }
INLINE vf vf_abs(vf x) {
    __m256 sign = _mm256_set1_ps(-0.0f);
    return BOTH(_mm256_andnot_ps(sign, x.a), _mm256_andnot_ps(sign, x.b));
}
INLINE vf vf_pick_less(vf p, vf q, vf x, vf y) {
    return BOTH(_mm256_blendv_ps(y.a, x.a, _mm256_cmp_ps(p.a, q.a, _CMP_LT_OQ)),
                _mm256_blendv_ps(y.b, x.b, _mm256_cmp_ps(p.b, q.b, _CMP_LT_OQ)));
}
INLINE vf vf_keep_lanes(vf x, vf y, int first, int last) {
    __m256i low = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), high = _mm256_add_epi32(low, _mm256_set1_epi32(8));
    __m256i from = _mm256_set1_epi32(first - 1), to = _mm256_set1_epi32(last);
    __m256i keep_a = _mm256_and_si256(_mm256_cmpgt_epi32(low, from), _mm256_cmpgt_epi32(to, low));
    __m256i keep_b = _mm256_and_si256(_mm256_cmpgt_epi32(high, from), _mm256_cmpgt_epi32(to, high));
    return BOTH(_mm256_blendv_ps(y.a, x.a, _mm256_castsi256_ps(keep_a)), _mm256_blendv_ps(y.b, x.b, _mm256_castsi256_ps(keep_b)));
}
INLINE vf vf_f16(const uint16_t *p) {
    return BOTH(_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)), _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(p + 8))));
}
INLINE void vf_store_f16(uint16_t *p, vf x) {
    _mm_storeu_si128((__m128i *)p, _mm256_cvtps_ph(x.a, _MM_FROUND_TO_NEAREST_INT));
    _mm_storeu_si128((__m128i *)(p + 8), _mm256_cvtps_ph(x.b, _MM_FROUND_TO_NEAREST_INT));
}
INLINE __m256 bf16_half(const uint16_t *p) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p)), 16));
}
INLINE vf vf_bf16(const uint16_t *p) { return BOTH(bf16_half(p), bf16_half(p + 8)); }
INLINE vf vf_i8(const int8_t *p) {
    return BOTH(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p))),
                _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(p + 8)))));
}
INLINE vf vf_u8(const uint8_t *p) {
    return BOTH(_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p))),
                _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(p + 8)))));
}
INLINE void vf_store_i8(int8_t *p, vf x) {
    __m256i words = _mm256_packs_epi32(_mm256_cvtps_epi32(x.a), _mm256_cvtps_epi32(x.b)); /* a0-3 b0-3 a4-7 b4-7 */
    words = _mm256_permute4x64_epi64(words, 0xd8);
    _mm_storeu_si128((__m128i *)p, _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1)));
}
INLINE vf vf_from_int(vi x) { return BOTH(_mm256_cvtepi32_ps(x.a), _mm256_cvtepi32_ps(x.b)); }
INLINE __m256 pow2_half(__m256 n) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23));
}
INLINE vf vf_pow2(vf n) { return BOTH(pow2_half(n.a), pow2_half(n.b)); }
INLINE vf vf_round(vf x) {
    return BOTH(_mm256_round_ps(x.a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC),
                _mm256_round_ps(x.b, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
INLINE __m256 twice_half(const float *p) {
    return _mm256_permutevar8x32_ps(_mm256_castps128_ps256(_mm_loadu_ps(p)), _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3));
}
INLINE vf vf_twice(const float *p) { return BOTH(twice_half(p), twice_half(p + 4)); }
INLINE vf vf_swap_pairs(vf x) { return BOTH(_mm256_permute_ps(x.a, 0xb1), _mm256_permute_ps(x.b, 0xb1)); }
INLINE vf vf_negate_even(vf x) {
    __m256 sign = _mm256_castsi256_ps(_mm256_set1_epi64x(0x80000000));
    return BOTH(_mm256_xor_ps(x.a, sign), _mm256_xor_ps(x.b, sign));
}
INLINE float vf_sum(vf v) {
    __m256 x = _mm256_add_ps(v.a, v.b);
    __m128 y = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    y = _mm_add_ps(y, _mm_movehl_ps(y, y));
    return _mm_cvtss_f32(_mm_add_ss(y, _mm_movehdup_ps(y)));
}
INLINE float vf_max_lane(vf v) {
    __m256 x = _mm256_max_ps(v.a, v.b);
    __m128 y = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    y = _mm_max_ps(y, _mm_movehl_ps(y, y));
    return _mm_cvtss_f32(_mm_max_ss(y, _mm_movehdup_ps(y)));
}
INLINE void transpose_8(__m256 *r0, __m256 *r1, __m256 *r2, __m256 *r3, __m256 *r4, __m256 *r5, __m256 *r6, __m256 *r7) {
    __m256 t0 = _mm256_unpacklo_ps(*r0, *r1), t1 = _mm256_unpackhi_ps(*r0, *r1);
    __m256 t2 = _mm256_unpacklo_ps(*r2, *r3), t3 = _mm256_unpackhi_ps(*r2, *r3);
    __m256 t4 = _mm256_unpacklo_ps(*r4, *r5), t5 = _mm256_unpackhi_ps(*r4, *r5);
    __m256 t6 = _mm256_unpacklo_ps(*r6, *r7), t7 = _mm256_unpackhi_ps(*r6, *r7);
    __m256 u0 = _mm256_shuffle_ps(t0, t2, 0x44), u1 = _mm256_shuffle_ps(t0, t2, 0xee);
    __m256 u2 = _mm256_shuffle_ps(t1, t3, 0x44), u3 = _mm256_shuffle_ps(t1, t3, 0xee);
    __m256 u4 = _mm256_shuffle_ps(t4, t6, 0x44), u5 = _mm256_shuffle_ps(t4, t6, 0xee);
    __m256 u6 = _mm256_shuffle_ps(t5, t7, 0x44), u7 = _mm256_shuffle_ps(t5, t7, 0xee);
    *r0 = _mm256_permute2f128_ps(u0, u4, 0x20), *r4 = _mm256_permute2f128_ps(u0, u4, 0x31);
    *r1 = _mm256_permute2f128_ps(u1, u5, 0x20), *r5 = _mm256_permute2f128_ps(u1, u5, 0x31);
    *r2 = _mm256_permute2f128_ps(u2, u6, 0x20), *r6 = _mm256_permute2f128_ps(u2, u6, 0x31);
    *r3 = _mm256_permute2f128_ps(u3, u7, 0x20), *r7 = _mm256_permute2f128_ps(u3, u7, 0x31);
}
INLINE void vf_transpose(vf r[LANES]) {
#define EIGHT(base, part) \
    &r[base].part, &r[base + 1].part, &r[base + 2].part, &r[base + 3].part, &r[base + 4].part, &r[base + 5].part, \
        &r[base + 6].part, &r[base + 7].part
    transpose_8(EIGHT(0, a));
    transpose_8(EIGHT(0, b));
    transpose_8(EIGHT(8, a));
    transpose_8(EIGHT(8, b));
#undef EIGHT
    for (int i = 0; i < 8; i++) {
        __m256 t = r[i].b;
        r[i].b = r[i + 8].a;
        r[i + 8].a = t;
    }
}

INLINE vi vi_set(int32_t x) { return (vi){_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
INLINE vi vi_zero(void) { return vi_set(0); }

#else /* portable C, and NEON through the compiler's vectoriser for everything but the integer dot product */

typedef struct {
    float v[LANES];
} vf;
typedef struct {
    int32_t v[LANES];
} vi;

#define EACH(expression)              \
    vf r;                             \
    for (int i = 0; i < LANES; i++) { \
        r.v[i] = (expression);        \
    }                                 \
    return r

INLINE float half_to_float(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, rest = h & 0x7fff;
    uint32_t bits;
    if (rest >= 0x7c00) {
        bits = 0x7f800000 | (rest & 0x3ff) << 13;
    } else if (rest >= 0x400) {
        bits = (rest + (112u << 10)) << 13;
    } else {
        float f = (float)rest * 0x1p-24f; /* zero or subnormal: exact */
        memcpy(&bits, &f, 4);
    }
    bits |= sign;
    float out;
    memcpy(&out, &bits, 4);
    return out;
}
/* Round to nearest even, as the F16C instruction does. */
INLINE uint16_t float_to_half(float f) {
    uint32_t bits;
    memcpy(&bits, &f, 4);
    uint32_t sign = bits >> 16 & 0x8000, rest = bits & 0x7fffffff;
    if (rest > 0x7f800000) return (uint16_t)(sign | 0x7e00 | (rest >> 13 & 0x3ff));
    if (rest >= 0x477ff000) return (uint16_t)(sign | 0x7c00); /* rounds to 65536 or more */
    if (rest < 0x38800000) {                                  /* below 2^-14: add a constant that aligns the last bit */
        float magic, tiny;
        uint32_t half = 0x3f000000;
        memcpy(&magic, &half, 4);
        memcpy(&tiny, &rest, 4);
        tiny += magic;
        memcpy(&bits, &tiny, 4);
        return (uint16_t)(sign | (bits - half));
    }
    return (uint16_t)(sign | ((rest - (112u << 23) + 0xfff + (rest >> 13 & 1)) >> 13));
}
INLINE float bits_to_float(uint32_t bits) {
    float f;
    memcpy(&f, &bits, 4);
    return f;
}
INLINE float multiply_add(float a, float b, float c) {
#ifdef __FP_FAST_FMAF
    return __builtin_fmaf(a, b, c);
#else
    return a * b + c; /* no fused instruction here: a library call per lane would be ten times slower */
#endif
}

INLINE vf vf_set(float x) { EACH(x); }
INLINE vf vf_load(const float *p) { EACH(p[i]); }
INLINE void vf_store(float *p, vf a) { memcpy(p, a.v, sizeof a.v); }
INLINE vf vf_load_n(const float *p, int n) { EACH(i < n ? p[i] : 0.0f); }
INLINE void vf_store_n(float *p, vf a, int n) { memcpy(p, a.v, (size_t)n * sizeof *p); }
INLINE vf vf_add(vf a, vf b) { EACH(a.v[i] + b.v[i]); }
INLINE vf vf_sub(vf a, vf b) { EACH(a.v[i] - b.v[i]); }
INLINE vf vf_mul(vf a, vf b) { EACH(a.v[i] * b.v[i]); }
INLINE vf vf_div(vf a, vf b) { EACH(a.v[i] / b.v[i]); }
INLINE vf vf_fma(vf a, vf b, vf c) { EACH(multiply_add(a.v[i], b.v[i], c.v[i])); }
INLINE vf vf_max(vf a, vf b) { EACH(a.v[i] > b.v[i] ? a.v[i] : b.v[i]); }
INLINE vf vf_min(vf a, vf b) { EACH(a.v[i] < b.v[i] ? a.v[i] : b.v[i]); }
INLINE vf vf_abs(vf a) { EACH(fabsf(a.v[i])); }
INLINE vf vf_pick_less(vf a, vf b, vf x, vf y) { EACH(a.v[i] < b.v[i] ? x.v[i] : y.v[i]); }
INLINE vf vf_keep_lanes(vf a, vf y, int first, int last) { EACH(i >= first && i < last ? a.v[i] : y.v[i]); }
INLINE vf vf_f16(const uint16_t *p) { EACH(half_to_float(p[i])); }
INLINE void vf_store_f16(uint16_t *p, vf a) {
    for (int i = 0; i < LANES; i++) p[i] = float_to_half(a.v[i]);
}
INLINE vf vf_bf16(const uint16_t *p) { EACH(bits_to_float((uint32_t)p[i] << 16)); }
INLINE vf vf_i8(const int8_t *p) { EACH((float)p[i]); }
INLINE vf vf_u8(const uint8_t *p) { EACH((float)p[i]); }
INLINE void vf_store_i8(int8_t *p, vf a) {
    for (int i = 0; i < LANES; i++) {
        float x = nearbyintf(a.v[i]);
        p[i] = (int8_t)(x > 127 ? 127 : x >= -128 ? x : -128);
    }
}
INLINE vf vf_from_int(vi a) { EACH((float)a.v[i]); }
INLINE vf vf_pow2(vf n) { EACH(bits_to_float((uint32_t)((int32_t)n.v[i] + 127) << 23)); }
INLINE vf vf_round(vf a) { EACH(nearbyintf(a.v[i])); }
INLINE vf vf_twice(const float *p) { EACH(p[i / 2]); }
INLINE vf vf_swap_pairs(vf a) { EACH(a.v[i ^ 1]); }
INLINE vf vf_negate_even(vf a) { EACH(i % 2 ? a.v[i] : -a.v[i]); }
INLINE float vf_sum(vf a) {
    for (int width = LANES / 2; width; width /= 2) {
        for (int i = 0; i < width; i++) a.v[i] += a.v[i + width];
    }
    return a.v[0];
}
INLINE float vf_max_lane(vf a) {
    float most = a.v[0];
    for (int i = 1; i < LANES; i++) most = a.v[i] > most ? a.v[i] : most;
    return most;
}
INLINE void vf_transpose(vf r[LANES]) {
    for (int i = 0; i < LANES; i++) {
        for (int j = 0; j < i; j++) {
            float t = r[i].v[j];
            r[i].v[j] = r[j].v[i];
            r[j].v[i] = t;
        }
    }
}

INLINE vi vi_set(int32_t x) {
    vi r;
    for (int i = 0; i < LANES; i++) r.v[i] = x;
    return r;
}
INLINE vi vi_zero(void) { return vi_set(0); }

#endif

/* Round to nearest even; NaN stays NaN. */
INLINE uint16_t float_to_bf16(float f) {
    uint32_t bits;
    memcpy(&bits, &f, 4);
    if ((bits & 0x7fffffff) > 0x7f800000) return (uint16_t)(bits >> 16 | 64);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* e^x with a relative error below 2^-22: x = n·ln 2 + r, |r| ≤ ln 2 / 2, Taylor polynomial of degree 7 in r.
 * Below -87 the result is 0, above 88 it is e^88. */
INLINE vf vf_exp(vf x) {
    vf clamped = vf_min(vf_max(x, vf_set(-87.0f)), vf_set(88.0f));
    vf n = vf_round(vf_mul(clamped, vf_set(1.44269504f)));
    vf r = vf_fma(n, vf_set(-0.693145752f), clamped); /* ln 2 in two parts: the first has 9 trailing zero bits */
    r = vf_fma(n, vf_set(-1.42860677e-6f), r);
    vf p = vf_set(1.0f / 5040);
    p = vf_fma(p, r, vf_set(1.0f / 720));
    p = vf_fma(p, r, vf_set(1.0f / 120));
    p = vf_fma(p, r, vf_set(1.0f / 24));
    p = vf_fma(p, r, vf_set(1.0f / 6));
    p = vf_fma(p, r, vf_set(0.5f));
    p = vf_fma(p, r, vf_set(1.0f));
    p = vf_fma(p, r, vf_set(1.0f));
    return vf_pick_less(x, vf_set(-87.0f), vf_set(0.0f), vf_mul(p, vf_pow2(n)));
}
INLINE vf vf_sigmoid(vf x) { return vf_div(vf_set(1.0f), vf_add(vf_set(1.0f), vf_exp(vf_sub(vf_set(0.0f), x)))); }
/* 2σ(2x) - 1; absolute error below 2^-22. */
INLINE vf vf_tanh(vf x) { return vf_sub(vf_mul(vf_set(2.0f), vf_sigmoid(vf_add(x, x))), vf_set(1.0f)); }
INLINE float exp_one(float x) {
    float t[LANES];
    vf_store(t, vf_exp(vf_set(x)));
    return t[0];
}

#endif
