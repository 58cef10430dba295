/* Products with repacked weights: quantised activations (integer dot products) and float activations.
 *
 * Each (row, output) pair has one fixed order of float operations: blocks in order, per block one rounding of scale × scale
 * and one fused multiply-add of the exact integer sum (and one for the minimum). Row counts only choose how many rows share
 * an unpacked block, so every row count gives the same bits.
 */
#include "native.h"
#include "simd.h"

/* maddubs saturates at 2·w·127: so many of its results may be added in 16 bits before they are widened. */
INLINE int words_together(int bound) { return bound <= 31 ? 4 : bound <= 63 ? 2 : 1; }

/* ---- bytes: 64 unsigned bytes per vector --------------------------------------------------------------------------- */

#if defined(SIMD_AVX512)

typedef __m512i vb;
INLINE vb vb_load(const uint8_t *p) { return _mm512_loadu_si512(p); }
/* In a register: compilers load it again for every row, and then loading takes longer than multiplying. */
INLINE vb vb_keep(vb a) {
    __asm__("" : "+v"(a));
    return a;
}
INLINE vb vb_and(vb a, int mask) { return _mm512_and_si512(a, _mm512_set1_epi8((char)mask)); }
INLINE vb vb_or(vb a, vb b) { return _mm512_or_si512(a, b); }
/* Moves the bits left (n > 0) or right; bits that cross a byte are the caller's to mask. */
INLINE vb vb_shift(vb a, int n) { return n >= 0 ? _mm512_slli_epi16(a, (unsigned)n) : _mm512_srli_epi16(a, (unsigned)-n); }
INLINE vb vb_lookup(const uint8_t table[16], vb a) {
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)table)), a);
}
/* Byte c of every group of four, as sixteen numbers. */
INLINE vf vb_float(vb a, int c) { return vf_from_int(_mm512_and_si512(_mm512_srli_epi32(a, (unsigned)(8 * c)), _mm512_set1_epi32(255))); }
/* acc += Σ over four vectors of w (unsigned, ≤ bound) times 16 activations. */
#if defined(SIMD_VNNI)
INLINE vi vi_dot(vi acc, const vb w[4], const int8_t *x, int bound) {
    (void)bound;
    /* Compilers broadcast by an instruction of its own, which costs an eighth of the time of 8 rows. */
    for (int i = 0; i < 4; i++) __asm__("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(acc) : "v"(w[i]), "m"(*(const int32_t *)(const void *)(x + 4 * i)));
    return acc;
}
#define DOT_OF_SIGNED 0
#else
/* As with AVX2, below. */
INLINE vi vi_dot(vi acc, const vb w[4], const int8_t *x, int bound) {
    const __m512i ones = _mm512_set1_epi16(1);
    const int together = words_together(bound);
    __m512i words = _mm512_setzero_si512();
    for (int i = 0; i < 4; i++) {
        int32_t four;
        memcpy(&four, x + 4 * i, 4);
        __m512i a = _mm512_set1_epi32(four), product;
        if (bound > 63) {
            const __m512i value = _mm512_xor_si512(w[i], _mm512_set1_epi8((char)128));
            a = _mm512_mask_sub_epi8(a, _mm512_movepi8_mask(value), _mm512_setzero_si512(), a);
            product = _mm512_maddubs_epi16(_mm512_abs_epi8(value), a);
        } else {
            product = _mm512_maddubs_epi16(w[i], a);
        }
        words = i % together ? _mm512_add_epi16(words, product) : product;
        if (i % together == together - 1) acc = _mm512_add_epi32(acc, _mm512_madd_epi16(words, ones));
    }
    return acc;
}
#define DOT_OF_SIGNED 1
#endif
INLINE vi vi_shift(vi a, int n) { return _mm512_slli_epi32(a, (unsigned)n); }

#elif defined(SIMD_AVX2)

typedef vi vb;
INLINE vb vb_load(const uint8_t *p) { return (vb){_mm256_loadu_si256((const __m256i *)p), _mm256_loadu_si256((const __m256i *)(p + 32))}; }
INLINE vb vb_keep(vb v) { return v; }
INLINE vb vb_and(vb v, int mask) {
    __m256i m = _mm256_set1_epi8((char)mask);
    return (vb){_mm256_and_si256(v.a, m), _mm256_and_si256(v.b, m)};
}
INLINE vb vb_or(vb u, vb v) { return (vb){_mm256_or_si256(u.a, v.a), _mm256_or_si256(u.b, v.b)}; }
INLINE vb vb_shift(vb v, int n) {
    return n >= 0 ? (vb){_mm256_slli_epi16(v.a, n), _mm256_slli_epi16(v.b, n)} : (vb){_mm256_srli_epi16(v.a, -n), _mm256_srli_epi16(v.b, -n)};
}
INLINE vb vb_lookup(const uint8_t table[16], vb v) {
    __m256i t = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)table));
    return (vb){_mm256_shuffle_epi8(t, v.a), _mm256_shuffle_epi8(t, v.b)};
}
INLINE vf vb_float(vb v, int c) {
    __m256i m = _mm256_set1_epi32(255);
    return vf_from_int((vi){_mm256_and_si256(_mm256_srli_epi32(v.a, 8 * c), m), _mm256_and_si256(_mm256_srli_epi32(v.b, 8 * c), m)});
}
#if defined(SIMD_VNNI)
INLINE __m256i dot_half(__m256i acc, const __m256i w[4], const int8_t *x, int bound) {
    (void)bound;
    for (int i = 0; i < 4; i++) {
        int32_t four;
        memcpy(&four, x + 4 * i, 4);
        acc = DPBUSD(acc, w[i], _mm256_set1_epi32(four));
    }
    return acc;
}
#define DOT_OF_SIGNED 0
#else
/* Bytes up to 255 stand for value + 128; they go in as |value| with the sign moved to the activation. */
INLINE __m256i dot_half(__m256i acc, const __m256i w[4], const int8_t *x, int bound) {
    const __m256i ones = _mm256_set1_epi16(1);
    const int together = words_together(bound);
    __m256i words = _mm256_setzero_si256();
    for (int i = 0; i < 4; i++) {
        int32_t four;
        memcpy(&four, x + 4 * i, 4);
        __m256i a = _mm256_set1_epi32(four), product;
        if (bound > 63) {
            __m256i value = _mm256_xor_si256(w[i], _mm256_set1_epi8((char)128));
            product = _mm256_maddubs_epi16(_mm256_abs_epi8(value), _mm256_sign_epi8(a, value));
        } else {
            product = _mm256_maddubs_epi16(w[i], a);
        }
        words = i % together ? _mm256_add_epi16(words, product) : product;
        if (i % together == together - 1) acc = _mm256_add_epi32(acc, _mm256_madd_epi16(words, ones));
    }
    return acc;
}
#define DOT_OF_SIGNED 1
#endif
INLINE vi vi_dot(vi acc, const vb w[4], const int8_t *x, int bound) {
    __m256i a[4] = {w[0].a, w[1].a, w[2].a, w[3].a}, b[4] = {w[0].b, w[1].b, w[2].b, w[3].b};
    return (vi){dot_half(acc.a, a, x, bound), dot_half(acc.b, b, x, bound)};
}
INLINE vi vi_shift(vi v, int n) { return (vi){_mm256_slli_epi32(v.a, n), _mm256_slli_epi32(v.b, n)}; }

#else

typedef struct {
    uint8_t v[64];
} vb;
#define EACH_BYTE(expression)      \
    vb r;                          \
    for (int i = 0; i < 64; i++) { \
        r.v[i] = (expression);     \
    }                              \
    return r
INLINE vb vb_load(const uint8_t *p) { EACH_BYTE(p[i]); }
INLINE vb vb_keep(vb a) { return a; }
INLINE vb vb_and(vb a, int mask) { EACH_BYTE((uint8_t)(a.v[i] & mask)); }
INLINE vb vb_or(vb a, vb b) { EACH_BYTE((uint8_t)(a.v[i] | b.v[i])); }
INLINE vb vb_shift(vb a, int n) { EACH_BYTE((uint8_t)(n >= 0 ? a.v[i] << n : a.v[i] >> -n)); }
INLINE vb vb_lookup(const uint8_t table[16], vb a) { EACH_BYTE(table[a.v[i] & 15]); }
INLINE vf vb_float(vb a, int c) { EACH((float)a.v[4 * i + c]); }
#if defined(SIMD_NEON)
INLINE vi vi_dot(vi acc, const vb w[4], const int8_t *x, int bound) {
    int8x16_t activations = vld1q_s8(x);
    for (int part = 0; part < 4; part++) {
        int32x4_t sum = vld1q_s32(acc.v + 4 * part);
#define ONE_VECTOR(i)                                                                          \
    {                                                                                          \
        uint8x16_t u = vld1q_u8(w[i].v + 16 * part);                                           \
        if (bound > 63) u = veorq_u8(u, vdupq_n_u8(128));                                      \
        sum = vdotq_laneq_s32(sum, vreinterpretq_s8_u8(u), activations, i);                    \
    }
        ONE_VECTOR(0) ONE_VECTOR(1) ONE_VECTOR(2) ONE_VECTOR(3)
#undef ONE_VECTOR
        vst1q_s32(acc.v + 4 * part, sum);
    }
    return acc;
}
#define DOT_OF_SIGNED 1
#else
INLINE vi vi_dot(vi acc, const vb w[4], const int8_t *x, int bound) {
    (void)bound;
    for (int i = 0; i < 4; i++) {
        for (int l = 0; l < LANES; l++) {
            const uint8_t *u = w[i].v + 4 * l;
            acc.v[l] += u[0] * x[4 * i] + u[1] * x[4 * i + 1] + u[2] * x[4 * i + 2] + u[3] * x[4 * i + 3];
        }
    }
    return acc;
}
#define DOT_OF_SIGNED 0
#endif
INLINE vi vi_shift(vi a, int n) {
    for (int i = 0; i < LANES; i++) a.v[i] = (int32_t)((uint32_t)a.v[i] << n);
    return a;
}

#endif

/* ---- formats ------------------------------------------------------------------------------------------------------- */

static const uint8_t iq4_table[16] = {1, 24, 45, 63, 79, 93, 106, 118, 129, 141, 153, 166, 181, 197, 217, 241}; /* value + 128 */
static const uint8_t mxfp4_table[16] = {16, 17, 18, 19, 20, 22, 24, 28, 16, 15, 14, 13, 12, 10, 8, 4};         /* value + 16 */

/* Types whose scale covers 16 inputs. */
INLINE int has_halves(int type) { return type == Q2_K || type == Q3_K || type == Q6_K; }
INLINE int has_minimum(int type) { return type == Q4_1 || type == Q5_1 || type == Q4_K || type == Q5_K || type == Q2_K; }
/* log2 of what unpacked bytes exceed the quants by; -1 for nothing. */
INLINE int offset_bits(int type) {
    switch (type) {
        case Q3_K: return 2;
        case Q4_0: return 3;
        case Q5_0:
        case MXFP4: return 4;
        case Q6_K: return 5;
        case Q8_0:
        case IQ4_NL:
        case IQ4_XS: return 7;
        default: return -1;
    }
}
/* Largest unpacked byte. */
INLINE int largest(int type) {
    switch (type) {
        case Q2_K: return 3;
        case Q3_K: return 7;
        case Q4_0:
        case Q4_1:
        case Q4_K: return 15;
        case Q5_0:
        case Q5_1:
        case Q5_K:
        case MXFP4: return 31;
        case Q6_K: return 63;
        default: return 255;
    }
}

/* Vectors 4·half … 4·half+3 of a block as bytes (quant + offset). */
INLINE void unpack(int type, const uint8_t *plane, int half, vb w[4]) {
UNROLL(4)
    for (int i = 0; i < 4; i++) {
        switch (type) {
            case Q8_0: w[i] = vb_keep(vb_load(plane + 64 * (4 * half + i))); break;
            case Q2_K:
            case Q3_K: w[i] = vb_and(vb_shift(vb_load(plane + 64 * half), -2 * i), 3); break;
            default: w[i] = vb_and(vb_shift(vb_load(plane + 64 * i), -4 * half), 15); break;
        }
        switch (type) {
            case Q3_K: w[i] = vb_or(w[i], vb_and(vb_shift(vb_load(plane + 128), 2 - 4 * half - i), 4)); break;
            case Q5_0:
            case Q5_1:
            case Q5_K: w[i] = vb_or(w[i], vb_and(vb_shift(vb_load(plane + 256), 4 - 4 * half - i), 16)); break;
            case Q6_K: w[i] = vb_or(w[i], vb_and(vb_shift(vb_load(plane + 256 + 64 * half), 4 - 2 * i), 48)); break;
            case IQ4_NL:
            case IQ4_XS: w[i] = vb_lookup(iq4_table, w[i]); break;
            case MXFP4: w[i] = vb_lookup(mxfp4_table, w[i]); break;
            default: break;
        }
    }
}

/* Scale and minimum of half `half` of a block: value = d·quant + m. For types with halves d still lacks the head's d. */
struct scale {
    vf d, m;
};
INLINE vf half_vector(const uint8_t *p) { return vf_f16((const uint16_t *)(const void *)p); }
INLINE struct scale block_scale(int type, const uint8_t *scales, const uint8_t *head, int half) {
    struct scale s = {vf_set(0), vf_set(0)};
    switch (type) {
        case Q4_1:
        case Q5_1:
            s.d = half_vector(scales);
            s.m = half_vector(scales + 32);
            break;
        case Q4_K:
        case Q5_K:
            s.d = vf_mul(half_vector(head), vf_u8(scales));
            s.m = vf_sub(vf_set(0), vf_mul(half_vector(head + 32), vf_u8(scales + 16)));
            break;
        case Q2_K:
            s.d = vf_u8(scales + 16 * half);
            s.m = vf_sub(vf_set(0), vf_mul(half_vector(head + 32), vf_u8(scales + 32 + 16 * half)));
            break;
        case Q3_K:
        case Q6_K: s.d = vf_i8((const int8_t *)scales + 16 * half); break;
        case IQ4_XS: s.d = vf_mul(half_vector(head), vf_i8((const int8_t *)scales)); break;
        case MXFP4: s.d = vf_bf16((const uint16_t *)(const void *)scales); break;
        default: s.d = half_vector(scales); break;
    }
    return s;
}

/* ---- quantised activations ------------------------------------------------------------------------------------------ */

/* While a strip is multiplied, as many bytes from `ahead` on are fetched: what the thread reads after it (NULL: nothing). The processor's
 * own prefetching stops at page ends and falls behind when eight rows share a block: on Sapphire Rapids this is worth a quarter at 1 row
 * and at 8. Into the second-level cache: the first has room for few lines on their way. */
#define PREFETCH_AHEAD 16384
INLINE void prefetch(const uint8_t *ahead, int64_t n_bytes) {
    for (int64_t line = 0; line < n_bytes; line += 64) __builtin_prefetch(ahead + line, 0, 2);
}

/* Row r of an image group of `rows` rows. */
static void quantise_values(const float *x, int64_t n_blocks, uint8_t *image, int rows, int r) {
    for (int64_t b = 0; b < n_blocks; b++, x += 32, image += 64 * rows) {
        const vf lo = vf_load(x), hi = vf_load(x + LANES);
        const float most = vf_max_lane(vf_max(vf_abs(lo), vf_abs(hi)));
        const float d = most / 127.0f, inverse = most > 1e-30f ? 127.0f / most : 0.0f;
        const vf q_lo = vf_round(vf_mul(lo, vf_set(inverse))), q_hi = vf_round(vf_mul(hi, vf_set(inverse)));
        const float sum_lo = vf_sum(q_lo), sum_hi = vf_sum(q_hi); /* small integers: exact */
        int8_t *q = (int8_t *)image + 32 * r;
        float *floats = (float *)(void *)(image + 32 * rows) + r;
        int32_t *ints = (int32_t *)(void *)(image + 32 * rows) + r;
        vf_store_i8(q, q_lo);
        vf_store_i8(q + LANES, q_hi);
        floats[IMAGE_D * rows] = d;
        floats[IMAGE_SUM * rows] = d * (sum_lo + sum_hi);
        floats[IMAGE_SUM_LO * rows] = d * sum_lo;
        floats[IMAGE_SUM_HI * rows] = d * sum_hi;
        ints[IMAGE_MINUS * rows] = (int32_t)-(sum_lo + sum_hi); /* negated first: of NaN rows the integer is the smallest one */
        ints[IMAGE_MINUS_LO * rows] = (int32_t)-sum_lo;
        ints[IMAGE_MINUS_HI * rows] = (int32_t)-sum_hi;
    }
}

/* y[r] = strip · row r of one image group, R rows of a group of G. */
INLINE void quantised_rows(int type, const int G, const int R, const struct weight *weight, const uint8_t *strip, const uint8_t *ahead,
                           const uint8_t *image, vf *y) {
    const struct format f = formats[type];
    const int block_bytes = f.plane_bytes + f.scale_bytes + f.head_bytes / 8;
    const int n_blocks = weight->n_in / 32;
    const uint8_t *planes = strip, *scales = planes + (int64_t)n_blocks * f.plane_bytes;
    const uint8_t *heads = scales + (int64_t)n_blocks * f.scale_bytes;
    const int shift = DOT_OF_SIGNED && largest(type) == 255 ? -1 : offset_bits(type);
    vf total[IMAGE_GROUP];
UNROLL(8)
    for (int r = 0; r < R; r++) total[r] = vf_set(0);
UNROLL(1)
    for (int b = 0; b < n_blocks; b++) {
        const int32_t *ints = (const int32_t *)(const void *)(image + 32 * G);
        const float *floats = (const float *)(const void *)(image + 32 * G);
        const uint8_t *head = heads + (b / 8) * f.head_bytes;
        const struct scale s = block_scale(type, scales, head, 0);
        vi sum[IMAGE_GROUP];
        vf part[IMAGE_GROUP];
        vb w[4];
        if (ahead) prefetch(ahead + (int64_t)b * block_bytes, block_bytes);
        unpack(type, planes, 0, w);
        if (has_halves(type)) {
            const struct scale s1 = block_scale(type, scales, head, 1);
UNROLL(8)
            for (int r = 0; r < R; r++) {
                sum[r] = shift < 0 ? vi_zero() : vi_shift(vi_set(ints[IMAGE_MINUS_LO * G + r]), shift);
                part[r] = vf_mul(vf_from_int(vi_dot(sum[r], w, (const int8_t *)image + 32 * r, largest(type))), s.d);
            }
            unpack(type, planes, 1, w);
            const vf d = half_vector(head);
UNROLL(8)
            for (int r = 0; r < R; r++) {
                sum[r] = shift < 0 ? vi_zero() : vi_shift(vi_set(ints[IMAGE_MINUS_HI * G + r]), shift);
                part[r] = vf_fma(vf_from_int(vi_dot(sum[r], w, (const int8_t *)image + 32 * r + 16, largest(type))), s1.d, part[r]);
                total[r] = vf_fma(part[r], vf_mul(d, vf_set(floats[IMAGE_D * G + r])), total[r]);
                if (has_minimum(type)) {
                    total[r] = vf_fma(s.m, vf_set(floats[IMAGE_SUM_LO * G + r]), total[r]);
                    total[r] = vf_fma(s1.m, vf_set(floats[IMAGE_SUM_HI * G + r]), total[r]);
                }
            }
        } else {
UNROLL(8)
            for (int r = 0; r < R; r++) {
                sum[r] = shift < 0 ? vi_zero() : vi_shift(vi_set(ints[IMAGE_MINUS * G + r]), shift);
                sum[r] = vi_dot(sum[r], w, (const int8_t *)image + 32 * r, largest(type));
            }
            unpack(type, planes, 1, w);
UNROLL(8)
            for (int r = 0; r < R; r++) {
                sum[r] = vi_dot(sum[r], w, (const int8_t *)image + 32 * r + 16, largest(type));
                total[r] = vf_fma(vf_from_int(sum[r]), vf_mul(s.d, vf_set(floats[IMAGE_D * G + r])), total[r]);
                if (has_minimum(type)) total[r] = vf_fma(s.m, vf_set(floats[IMAGE_SUM * G + r]), total[r]);
            }
        }
        planes += f.plane_bytes;
        scales += f.scale_bytes;
        image += 64 * G;
    }
UNROLL(8)
    for (int r = 0; r < R; r++) y[r] = total[r];
}

/* For a group of one row [0] and n rows of a group of 8 [n]; where there is no function for n rows, the next larger one runs. Where rows
 * are not unrolled, one function takes their number. */
typedef void rows_function(const struct weight *weight, const uint8_t *strip, const uint8_t *ahead, const uint8_t *image, int n, vf *y);

#define QUANT_TYPES(X) X(Q4_0) X(Q4_1) X(Q5_0) X(Q5_1) X(Q8_0) X(Q2_K) X(Q3_K) X(Q4_K) X(Q5_K) X(Q6_K) X(IQ4_NL) X(IQ4_XS) X(MXFP4)
#define ROWS_FUNCTION(T, G, R)                                                                                                                \
    static void rows_##T##_##R(const struct weight *weight, const uint8_t *strip, const uint8_t *ahead, const uint8_t *image, int n, vf *y) { \
        quantised_rows(T, G, UNROLLED || G == 1 ? R : n, weight, strip, ahead, image, y);                                                     \
        (void)n;                                                                                                                              \
    }
#if UNROLLED
#define ROWS_FUNCTIONS(T)                                                                       \
    ROWS_FUNCTION(T, 1, 1) ROWS_FUNCTION(T, 8, 2) ROWS_FUNCTION(T, 8, 3) ROWS_FUNCTION(T, 8, 4) \
    ROWS_FUNCTION(T, 8, 5) ROWS_FUNCTION(T, 8, 6) ROWS_FUNCTION(T, 8, 8)
#define ROWS_ENTRY(T) [T] = {rows_##T##_1, rows_##T##_2, rows_##T##_2, rows_##T##_3, rows_##T##_4, rows_##T##_5, rows_##T##_6, rows_##T##_8, rows_##T##_8},
#else
#define ROWS_FUNCTIONS(T) ROWS_FUNCTION(T, 1, 1) ROWS_FUNCTION(T, 8, 8)
#define ROWS_ENTRY(T) [T] = {rows_##T##_1, [1 ... IMAGE_GROUP] = rows_##T##_8},
#endif
QUANT_TYPES(ROWS_FUNCTIONS)
static rows_function *const rows_functions[N_TYPES][IMAGE_GROUP + 1] = {QUANT_TYPES(ROWS_ENTRY)};

/* ---- float activations ------------------------------------------------------------------------------------------------ */

/* Inputs 32·b … 32·b+31 of a strip as floats [input][output row], exactly the dequantised values. */
INLINE void dequantise_block(int type, const struct weight *weight, const uint8_t *strip, int b, vf out[32]) {
    const struct format f = formats[type];
    const int n_blocks = weight->n_in / 32;
    const uint8_t *plane = strip + (int64_t)b * f.plane_bytes;
    const uint8_t *scales = strip + (int64_t)n_blocks * f.plane_bytes + (int64_t)b * f.scale_bytes;
    const uint8_t *head = strip + (int64_t)n_blocks * (f.plane_bytes + f.scale_bytes) + (b / 8) * f.head_bytes;
    const vf offset = vf_set(offset_bits(type) < 0 ? 0.0f : (float)(1 << offset_bits(type)));
    for (int half = 0; half < 2; half++) {
        struct scale s = block_scale(type, scales, head, half);
        if (has_halves(type)) s.d = vf_mul(s.d, half_vector(head));
        vb w[4];
        unpack(type, plane, half, w);
        for (int i = 0; i < 4; i++) {
UNROLL(4)
            for (int c = 0; c < 4; c++) {
                vf value = vf_mul(s.d, vf_sub(vb_float(w[i], c), offset));
                out[16 * half + 4 * i + c] = has_minimum(type) ? vf_add(value, s.m) : value;
            }
        }
    }
}
typedef void dequantise_function(const struct weight *weight, const uint8_t *strip, int b, vf out[32]);
#define DEQUANTISE_FUNCTION(T)                                                                               \
    static void dequantise_##T(const struct weight *weight, const uint8_t *strip, int b, vf out[32]) { \
        dequantise_block(T, weight, strip, b, out);                                                          \
    }
QUANT_TYPES(DEQUANTISE_FUNCTION)
#define DEQUANTISE_ENTRY(T) [T] = dequantise_##T,
static dequantise_function *const dequantise_functions[N_TYPES] = {QUANT_TYPES(DEQUANTISE_ENTRY)};

INLINE vf float_weights(int type, const uint8_t *strip, int64_t k) {
    switch (type) {
        case F32: return vf_load((const float *)(const void *)strip + LANES * k);
        case F16: return vf_f16((const uint16_t *)(const void *)strip + LANES * k);
        default: return vf_bf16((const uint16_t *)(const void *)strip + LANES * k);
    }
}

/* y[r] = strip · x[r], even and odd inputs summed apart: the shorter chain of dependent additions doubles the speed of one row. */
INLINE void float_rows(int type, const int R, const struct weight *weight, const uint8_t *strip, const float *const *x, vf *y) {
    vf even[IMAGE_GROUP], odd[IMAGE_GROUP];
UNROLL(8)
    for (int r = 0; r < R; r++) even[r] = odd[r] = vf_set(0);
    int k = 0;
UNROLL(1)
    for (; k + 1 < weight->n_in; k += 2) {
        const vf w0 = float_weights(type, strip, k), w1 = float_weights(type, strip, k + 1);
UNROLL(8)
        for (int r = 0; r < R; r++) {
            even[r] = vf_fma(w0, vf_set(x[r][k]), even[r]);
            odd[r] = vf_fma(w1, vf_set(x[r][k + 1]), odd[r]);
        }
    }
    if (k < weight->n_in) {
        const vf w0 = float_weights(type, strip, k);
UNROLL(8)
        for (int r = 0; r < R; r++) even[r] = vf_fma(w0, vf_set(x[r][k]), even[r]);
    }
UNROLL(8)
    for (int r = 0; r < R; r++) y[r] = vf_add(even[r], odd[r]);
}

/* The same over dequantised blocks. */
INLINE void exact_rows(const int R, const struct weight *weight, const uint8_t *strip, const float *const *x, vf *y) {
    vf even[IMAGE_GROUP], odd[IMAGE_GROUP], w[32];
UNROLL(8)
    for (int r = 0; r < R; r++) even[r] = odd[r] = vf_set(0);
    for (int b = 0; b < weight->n_in / 32; b++) {
        dequantise_functions[weight->type](weight, strip, b, w);
        for (int k = 0; k < 32; k += 2) {
UNROLL(8)
            for (int r = 0; r < R; r++) {
                even[r] = vf_fma(w[k], vf_set(x[r][32 * b + k]), even[r]);
                odd[r] = vf_fma(w[k + 1], vf_set(x[r][32 * b + k + 1]), odd[r]);
            }
        }
    }
UNROLL(8)
    for (int r = 0; r < R; r++) y[r] = vf_add(even[r], odd[r]);
}

typedef void float_function(const struct weight *weight, const uint8_t *strip, const float *const *x, vf *y);
#define FLOAT_FUNCTION(T, R)                                                                                            \
    static void float_##T##_##R(const struct weight *weight, const uint8_t *strip, const float *const *x, vf *y) { \
        float_rows(T, R, weight, strip, x, y);                                                                          \
    }
#define EXACT_FUNCTION(R)                                                                                           \
    static void exact_##R(const struct weight *weight, const uint8_t *strip, const float *const *x, vf *y) { \
        exact_rows(R, weight, strip, x, y);                                                                         \
    }
#define FLOAT_FUNCTIONS(T)                                                              \
    FLOAT_FUNCTION(T, 1) FLOAT_FUNCTION(T, 2) FLOAT_FUNCTION(T, 3) FLOAT_FUNCTION(T, 4) \
    FLOAT_FUNCTION(T, 5) FLOAT_FUNCTION(T, 6) FLOAT_FUNCTION(T, 8)
FLOAT_FUNCTIONS(F32)
FLOAT_FUNCTIONS(F16)
FLOAT_FUNCTIONS(BF16)
EXACT_FUNCTION(1)
EXACT_FUNCTION(2)
EXACT_FUNCTION(4)
EXACT_FUNCTION(8)
#define FLOAT_ENTRY(T) \
    [T] = {float_##T##_1, float_##T##_2, float_##T##_3, float_##T##_4, float_##T##_5, float_##T##_6, float_##T##_8, float_##T##_8},
static float_function *const float_functions[N_TYPES][IMAGE_GROUP] = {FLOAT_ENTRY(F32) FLOAT_ENTRY(F16) FLOAT_ENTRY(BF16)};
/* For debugging: few row counts. */
static float_function *const exact_functions[IMAGE_GROUP] = {exact_1, exact_2, exact_4, exact_4, exact_8, exact_8, exact_8, exact_8};

/* ---- operations -------------------------------------------------------------------------------------------------------- */

/* y[0 … n-1] = n ≤ 8 rows times a strip. The rows are a group of an image (`single`: a group of one row), or x where there is no image
 * or the weights are floats; x has 8 pointers. */
static void multiply_rows(const struct weight *weight, const uint8_t *strip, const uint8_t *ahead, const uint8_t *image, const float *const *x,
                          int n, int single, vf *y) {
    if (image && !is_float_type(weight->type)) {
        rows_functions[weight->type][single ? 0 : n](weight, strip, ahead, image, n, y);
    } else {
        (is_float_type(weight->type) ? float_functions[weight->type] : exact_functions)[n - 1](weight, strip, x, y);
    }
}

/* y[0 … n-1] = rows first … first+n-1 of x times a strip; float rows beyond the last repeat it. */
static void multiply_strip(const struct op *op, const struct weight *weight, int strip, int first, int n, int single, vf *y) {
    const uint8_t *image = op->image ? op->image + (int64_t)first * (weight->n_in / 32) * 64 : NULL;
    const float *x[IMAGE_GROUP];
    for (int r = 0; r < IMAGE_GROUP; r++) x[r] = (const float *)op->x.data + (first + (r < n ? r : n - 1)) * op->x.stride;
    const uint8_t *data = weight->data + strip * weight->strip_bytes;
    /* The first group has fetched for the others too. */
    multiply_rows(weight, data, first ? NULL : data + PREFETCH_AHEAD, image, x, n, single, y);
}

enum { SILU, GELU, SWIGLU_OAI };

INLINE vf activate(int activation, vf g, vf u) {
    switch (activation) {
        case SILU: return vf_mul(vf_mul(g, vf_sigmoid(g)), u);
        case GELU: { /* 0.5·(1 + tanh(y)) = σ(2y), y = √(2/π)·(g + 0.044715·g³) */
            const vf cubic = vf_fma(vf_mul(vf_mul(g, g), g), vf_set(0.044715f), g);
            return vf_mul(vf_mul(g, vf_sigmoid(vf_mul(vf_set(1.5957691216f), cubic))), u);
        }
        default:
            g = vf_min(g, vf_set(7.0f));
            u = vf_max(vf_min(u, vf_set(7.0f)), vf_set(-7.0f));
            return vf_mul(vf_mul(g, vf_sigmoid(vf_mul(vf_set(1.702f), g))), vf_add(u, vf_set(1.0f)));
    }
}

static void run_strips(const struct op *op, const struct run *run, int first, int last) {
    const int rows = run->counts[op->extent], gated = op->code == OP_GATED, width = op->weight[0]->n_out;
    for (int strip = first; strip < last; strip++) {
        const int column = strip * LANES, n = width - column < LANES ? width - column : LANES;
        vf bias[2] = {vf_set(0), vf_set(0)};
        for (int i = 0; i <= gated; i++) {
            if (op->p[i]) bias[i] = vf_load_n((const float *)op->p[i] + column, n);
        }
        for (int row = 0; row < rows; row += IMAGE_GROUP) {
            const int group = rows - row < IMAGE_GROUP ? rows - row : IMAGE_GROUP;
            vf y[IMAGE_GROUP], up[IMAGE_GROUP];
            multiply_strip(op, op->weight[0], strip, row, group, rows == 1, y);
            if (gated) multiply_strip(op, op->weight[1], strip, row, group, rows == 1, up);
            for (int r = 0; r < group; r++) {
                float *out = (float *)op->out.data + (row + r) * op->out.stride + column;
                vf value = vf_add(y[r], bias[0]);
                if (gated) {
                    value = activate((int)op->n[0], value, vf_add(up[r], bias[1]));
                } else if (op->n[0]) {
                    value = vf_add(n == LANES ? vf_load(out) : vf_load_n(out, n), value);
                }
                if (n == LANES) {
                    vf_store(out, value);
                } else {
                    vf_store_n(out, value, n);
                }
            }
        }
    }
}
