/* Shared declarations of the native CPU library: weight layouts, operation records, kernel tables, threads.
 *
 * library.py mirrors the structs; exports.c tells it where their fields lie, and the names and limits below.
 */
#ifndef SPECLI_NATIVE_H
#define SPECLI_NATIVE_H

#include <stddef.h>
#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))

/* GGML type ids (docs/quant-types.md §1) of the types that are multiplied as stored. */
enum {
    F32 = 0,
    F16 = 1,
    Q4_0 = 2,
    Q4_1 = 3,
    Q5_0 = 6,
    Q5_1 = 7,
    Q8_0 = 8,
    Q2_K = 10,
    Q3_K = 11,
    Q4_K = 12,
    Q5_K = 13,
    Q6_K = 14,
    IQ4_NL = 20,
    IQ4_XS = 23,
    BF16 = 30,
    MXFP4 = 39,
    N_TYPES = 40,
};

/* Repacked weights.
 *
 * A strip holds 16 output rows. A quantised strip is cut into blocks of 32 inputs; its three regions follow each other:
 *   planes  n_blocks × plane_bytes   the quants, see below
 *   scales  n_blocks × scale_bytes   one value per output row for each block (f16 d, then f16 m; or 6-bit scales)
 *   heads   n_in/256 × head_bytes    f16 d, then f16 dmin, per output row (K types)
 * Planes: vector j (0…7) of a block is 64 bytes, byte 4·l + c belonging to output row l and input 4·j + c. Four-bit planes
 * hold vectors 0-3 in the low and 4-7 in the high nibbles of four vectors; a bit plane is one vector with bit j for vector j;
 * a two-bit plane is two vectors (h = 0, 1) with field f for vector 4·h + f. So one dot-product instruction multiplies 4
 * inputs of 16 output rows with a broadcast of 4 activations.
 * A strip of F32, F16 or BF16 is n_in × 16 values.
 */
struct format {
    int32_t block;      /* inputs per GGUF block: 1, 32 or 256; 0 = type not known */
    int32_t gguf_bytes; /* bytes of a GGUF block */
    int32_t plane_bytes, scale_bytes, head_bytes;
};

/* In every file, so that the kernels of a type are compiled with its numbers. */
static const struct format formats[N_TYPES] = {
    [F32] = {1, 4, 0, 0, 0},           [F16] = {1, 2, 0, 0, 0},          [BF16] = {1, 2, 0, 0, 0},
    [Q4_0] = {32, 18, 256, 32, 0},     [Q4_1] = {32, 20, 256, 64, 0},    [Q5_0] = {32, 22, 320, 32, 0},
    [Q5_1] = {32, 24, 320, 64, 0},     [Q8_0] = {32, 34, 512, 32, 0},    [Q2_K] = {256, 84, 128, 64, 64},
    [Q3_K] = {256, 110, 192, 32, 32},  [Q4_K] = {256, 144, 256, 32, 64}, [Q5_K] = {256, 176, 320, 32, 64},
    [Q6_K] = {256, 210, 384, 32, 32},  [IQ4_NL] = {32, 18, 256, 32, 0},  [IQ4_XS] = {256, 136, 256, 16, 32},
    [MXFP4] = {32, 17, 256, 32, 0},
};

struct weight {
    uint8_t *data; /* strips, 64-byte aligned; an expert's strips follow the previous expert's */
    int64_t strip_bytes;
    int32_t type, n_out, n_in, n_experts, n_strips; /* n_strips of one expert */
    /* Stacks of experts are repacked strip by strip when they are first needed; NULL, NULL and 0 once and for all repacked. */
    int32_t is_mapped;     /* source is a read-only file mapping: pages of a finished expert are given back */
    const uint8_t *source; /* GGUF rows */
    uint8_t *is_ready;     /* [expert][strip] */
    int32_t *n_ready;      /* [expert] */
};

/* Strip number `strip` of an expert, repacked. One thread at a time asks for a strip. */
const uint8_t *weight_strip(const struct weight *weight, int expert, int strip);

static inline int is_float_type(int type) { return formats[type].block == 1; }

/* Image: activations quantised to int8 per 32 values, x ≈ d·q with d = max|x|/127.
 *
 * Rows are kept in groups of 8 (a single-row call uses groups of 1); a group has 64·rows bytes per block: int8 [rows][32], then
 * the words below as [word][rows].
 */
enum { IMAGE_D, IMAGE_SUM, IMAGE_SUM_LO, IMAGE_SUM_HI, IMAGE_MINUS, IMAGE_MINUS_LO, IMAGE_MINUS_HI };
/*     float d  d·Σq       d·Σ first 16  d·Σ last 16   int32 -Σq    -Σ first 16     -Σ last 16 */
#define IMAGE_GROUP 8

enum extent { TOKENS, OUTPUTS, SEQUENCES, ONCE, N_EXTENTS }; /* ONCE: always exactly one row */

struct view {
    void *data;
    int64_t stride; /* in 4-byte elements */
    int64_t width;
};

struct kv_cache {
    uint8_t *data; /* [slot][kv head][cell][row] */
    int64_t slot_bytes, head_bytes, row_bytes;
    int32_t type, head_size;
};

/* The operations of ops.py; exports.c hands out their names. Fields that an operation does not name are zero. */
#define OPERATIONS(X) \
    X(EMBED) /* out, x = ids, weight[0], f[0] scale */                                                                        \
    X(RMS_NORM) /* out, x, p[0] weight or NULL, n[0] run length, f[0] eps */                                                  \
    X(QUANTISE) /* x, image */                                                                                                \
    X(LINEAR) /* out, x, image or NULL, weight[0], p[0] bias or NULL, n[0] accumulate */                                      \
    X(GATED) /* out, x, image or NULL, weight[0] gate, weight[1] up, p[0] and p[1] biases or NULL, n[0] activation */         \
    X(ROPE) /* out, x = positions, p[0] cos, p[1] sin, n[0] head size, n[1] pairs, n[2] interleaved */                        \
    X(ROTATE) /* out, n[0] block */                                                                                           \
    X(STORE) /* out = k, x = v or NULL, y = positions, z = slots, k, v, n[1] kv heads */                                      \
    X(ATTENTION) /* out, x = q, y = positions, z = slots, e = ends or NULL, a = paths or NULL, k, v, n[0] heads, n[1] kv      \
      heads, n[2] window, or a chunk's length with a minus sign, n[3] scratch offset, f[0] scale, f[1] soft cap or 0, p[0] sinks or NULL */       \
    X(ADD) /* out, x */                                                                                                       \
    X(ADD_ROW) /* out, p[0] */                                                                                                \
    X(MULTIPLY) /* out, x */                                                                                                  \
    X(SCALE) /* out, f[0] */                                                                                                  \
    X(SIGMOID) /* out */                                                                                                      \
    X(CENTRE) /* out */                                                                                                       \
    X(GELU) /* out */                                                                                                         \
    X(SOFTCAP) /* out, f[0] */                                                                                                \
    X(COPY) /* out, x */                                                                                                      \
    X(GATHER) /* out, x, y = rows */                                                                                          \
    X(TOP_K) /* out = values, x, y = ids */                                                                                   \
    X(LOG_SOFTMAX) /* out = values, the first of them the largest of x, x */                                                  \
    X(MAP_IDS) /* out, x = ids, p[0] table */                                                                                 \
    X(LINEAR_ROWS) /* out, x, y = ids, weight[0] */                                                                           \
    X(CONVOLVE) /* out, x, y = weights, p[0] kernel, n[0] taps, n[1] channels of a group, n[2] rows of a block */             \
    X(JOIN) /* out, x, n[0] activation */                                                                                     \
    X(DECAY) /* out, p[0] rates */                                                                                            \
    X(ROUTE) /* out = weights, x = logits, y = experts, p[0] bias or NULL, p[1] expert scales or NULL, n[0] gating,           \
      n[1] normalised, n[2] groups, n[3] groups used, f[0] scale, f[1] least sum */                                           \
    X(GROUP) /* x = experts, table, n_experts, n[0] extent of x */                                                            \
    X(QUANTISE_PAIRS) /* x, image, table, n_experts, n[0] experts per row, n[1] inputs of a choice or 0 */                    \
    X(EXPERT_GATED) /* out, x, image or NULL, table, n_experts, weight[0] gate, weight[1] up or NULL, p[0] and p[1] biases or \
      NULL, n[0] experts per row, n[1] inputs of a choice or 0, n[2] activation */                                            \
    X(EXPERT_LINEAR) /* the same with one weight and bias */                                                                  \
    X(WEIGHTED_SUM) /* out, x, y = weights, n[0] accumulate */                                                                \
    X(CAUSAL_CONVOLVE) /* out, x, a = positions, b = slots, k inputs, p[0] kernel, n[0] taps, n[1] inputs kept */             \
    X(DELTA_SCAN) /* out, x = q, y = k, z = v, e = beta, c = decay, a = positions, b = slots, k states (head_bytes: a head's, \
      row_bytes: a state's), n[0] states kept, n[1] key heads, n[2] neighbouring value heads that share one, or 0 */          \
    X(SCATTER) /* out, x, y = rows */                                                                                         \
    X(INCREMENT) /* out, int32 */                                                                                             \
    X(TAKE) /* out, x, y = places; int32 */                                                                                   \
    X(JOIN_HEADS) /* out, x, y, n[0] heads */

#define OPERATION_CODE(name) OP_##name,
enum code { OPERATIONS(OPERATION_CODE) N_CODES };

struct op {
    int32_t code, extent;
    int32_t step; /* operations of the step that starts here, 0 inside a step */
    int32_t reserved;
    struct view out, x, y, z, e, a, b, c;
    const struct weight *weight[2];
    uint8_t *image;
    const void *p[2];
    struct kv_cache k, v;
    int64_t n[4];
    float f[2];
    int32_t *table; /* of OP_GROUP (experts.h) */
    int64_t n_experts;
};

/* A recorded list of operations. Those from number repeat_from up to, not including, repeat_to run as often as a run says. */
struct program {
    const struct op *ops;
    int32_t n_ops, repeat_from, repeat_to, reserved;
    uint8_t *shared; /* scratch: attention partials and their counters */
};

/* Samplers that shorten or scale a sorted list (candidates.c). */
#define LINKS(X) X(TOP_K) X(TOP_P) X(MIN_P) X(TEMPERATURE)
#define LINK_CODE(name) LINK_##name,
enum { LINKS(LINK_CODE) };

struct link {
    int32_t code;
    int32_t n;   /* LINK_TOP_K: how many; LINK_TOP_P, LINK_MIN_P: least to keep */
    float value; /* LINK_TOP_P: p; LINK_MIN_P: ln p; LINK_TEMPERATURE: divisor */
};

struct chain {
    int32_t n_links, n_changed;
    const struct link *links; /* the first is LINK_TOP_K */
    /* Places of the row that count with another logit: distinct, no more than fit beside the first link's k. */
    const int32_t *changed;
    const float *changes;
    int32_t *places; /* results, descending by logit; MAX_CANDIDATES of each */
    float *logits, *probabilities;
    int32_t n; /* candidates left */
};

/* What is known only when a program runs. */
struct run {
    int counts[N_EXTENTS]; /* live rows per extent */
    int n_threads;
    uint8_t *shared; /* the program's scratch: attention partials and their counters */
};

/* One instruction set's kernels. */
struct kernels {
    const char *name, *key; /* for people; for SPECLI_CPU */
    /* Row-wise operations: everything `op` does to one row. scratch is private to the thread. */
    void (*row)(const struct op *op, const struct run *run, int row);
    /* Strips first … last-1 of OP_LINEAR or OP_GATED for all live rows. */
    void (*strips)(const struct op *op, const struct run *run, int first, int last);
    /* One of the items that an operation of another kind is cut into (program.c). */
    void (*item)(const struct op *op, const struct run *run, int item, float *scratch);
};

/* Attention work is cut into chunks of 128 cells that are merged in order, so every split gives the same bits. */
#define ATTENTION_CHUNK 128
#define ATTENTION_QUERIES 32 /* most (row, head) pairs of an item */
#define ATTENTION_SPLIT_ROWS 8 /* calls of more rows are not split over chunks */

/* Table of OP_GROUP: 32-bit words [active experts, places, then per active expert: number, first place, pairs; then, after room for
 * n_experts of them, the pair at each place or -1]. */
enum { TABLE_ACTIVE, TABLE_PLACES, TABLE_EXPERTS };

/* Whether an operation on pairs has a single row that all its choices read whole: their images are alike, that of the first is made. */
static inline int shares_image(const struct op *op, const struct run *run) {
    return run->counts[op->extent] == 1 && op->n[1] == 0 && op->table[TABLE_ACTIVE] == op->n[0];
}

#define CONVOLVE_CHANNELS 64 /* of an item of OP_CAUSAL_CONVOLVE */
#define SCAN_COLUMNS 16      /* of an item of OP_DELTA_SCAN */

struct attention_plan {
    int rows, heads;         /* rows and query heads of a unit */
    int head_parts;          /* units per key/value head and row range */
    int units;               /* rows × key/value heads × head parts */
    int chunks, first_chunk; /* 1: a unit is one item; more: as many items per unit, starting with chunk first_chunk */
    float *partials;         /* [row][head][chunk][padded head size + 2] */
    int32_t *done;           /* [unit] finished chunks, zero between steps */
};
void attention_plan(const struct op *op, const struct run *run, struct attention_plan *plan);

/* The integer a `[rows, 1]` view holds for a row. */
static inline int32_t row_int(const struct view *view, int64_t row) { return ((const int32_t *)view->data)[row * view->stride]; }

/* Cells first … last-1 that a query row sees. */
static inline void visible_cells(const struct op *op, int row, int *first, int *last) {
    const int position = row_int(&op->y, row), window = (int)op->n[2];
    *first = window < 0 ? position - position % -window : window > 0 && position - window + 1 > 0 ? position - window + 1 : 0;
    *last = op->e.data ? row_int(&op->e, row) : position + 1;
    if (*last < *first) *last = *first;
}

extern const struct kernels kernels_avx512vnni, kernels_avxvnni, kernels_avx512bw, kernels_avx2, kernels_neon, kernels_portable;

/* Threads. */
struct pool;
struct pool *pool_new(int n_threads, const uint8_t *cpu_mask, int n_cpus, int strict, int poll, int priority);
void pool_free(struct pool *pool);
int pool_size(const struct pool *pool);
float *pool_scratch(struct pool *pool, int thread);
/* A series of steps. */
struct job {
    /* Everything so far is done: moves on to the next step that is worth dealing; its number of items, 0 at the end. What comes before
     * it is done on the way, by `thread`. */
    int (*next)(void *argument, int thread);
    void (*run)(void *argument, int thread, int first, int last); /* items first … last-1 of the step */
    void *argument;
};
/* Callers take turns. The caller is thread 0. */
void pool_run(struct pool *pool, int n_threads, const struct job *job);
/* Whether threads would have to be woken. */
int pool_sleeps(const struct pool *pool);

#define SCRATCH_BYTES (1 << 20) /* per thread */

/* What arrays have room for. */
#define MAX_CANDIDATES 512 /* of a sampled row */
#define MAX_EXPERTS 1024   /* of a layer */
#define MAX_HEAD_SIZE 1024 /* of keys, values and recurrent states */

#endif
