/* Runs every kernel table of the library on the same operations and compares the results bit by bit with the first one's.
 *
 * For processors that the tests do not run on: linked with the library's sources by a cross compiler and run by an emulator
 * (test_cross.py). Prints the tables and a line per difference; the exit status is the number of differences.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "native.h"

const struct kernels *kernels_at(int i, int *usable);
const char *kernels_name(const struct kernels *kernels);
int64_t strip_bytes(int type, int n_in);
void weight_repack(struct pool *pool, int n_threads, const struct weight *weight, const uint8_t *source, int release);
void program_run(const struct kernels *kernels, struct pool *pool, const struct program *program, int tokens, int outputs, int sequences, int steps, int n_threads);

enum { N_IN = 512, N_OUT = 72, ROWS = 21, CELLS = 300, HEADS = 6, KV_HEADS = 2, HEAD_SIZE = 64 };

static struct pool *pool;
static const struct kernels *tables[8];
static int n_tables, n_different;
static uint8_t shared[1 << 20];

static uint32_t random_word(void) {
    static uint64_t state = 88172645463325252u;
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state >> 32);
}
static float random_float(void) { return (float)(int32_t)random_word() / 2147483648.0f; }

static void *filled(size_t n_floats) {
    float *p = aligned_alloc(64, (n_floats * sizeof *p + 127) / 64 * 64);
    for (size_t i = 0; i < n_floats; i++) p[i] = 2 * random_float();
    return p;
}

static void put_scale(uint8_t *p) { /* float16 between 2^-6 and 2^-3 */
    const uint16_t half = (uint16_t)(0x2400 + random_word() % 0xc00);
    memcpy(p, &half, 2);
}

/* Blocks of any bits with sane scales. */
static uint8_t *random_rows(int type) {
    const struct format f = formats[type];
    const int n_blocks = N_OUT * N_IN / f.block;
    uint8_t *rows = malloc((size_t)n_blocks * (size_t)f.gguf_bytes);
    for (int i = 0; i < n_blocks; i++) {
        uint8_t *block = rows + (size_t)i * (size_t)f.gguf_bytes;
        const float x = random_float();
        for (int j = 0; j < f.gguf_bytes; j++) block[j] = (uint8_t)random_word();
        switch (type) {
            case F32: memcpy(block, &x, 4); break;
            case BF16: memcpy(block, (const uint8_t *)&x + 2, 2); break;
            case MXFP4: block[0] = (uint8_t)(120 + random_word() % 6); break;
            case Q6_K: put_scale(block + 208); break;
            case Q3_K: put_scale(block + 108); break;
            case Q2_K: put_scale(block + 80), put_scale(block + 82); break;
            case Q4_1:
            case Q5_1:
            case Q4_K:
            case Q5_K: put_scale(block), put_scale(block + 2); break;
            default: put_scale(block); break;
        }
    }
    return rows;
}

/* Runs the operations with every table for several row counts; `out` is what they write, started from the same contents. */
static void compare(const char *what, const struct op *ops, int n_ops, void *out, size_t n_bytes) {
    static const int row_counts[] = {1, 2, 3, 4, 5, 6, 7, 8, ROWS};
    void *start = malloc(n_bytes), *expected = malloc(n_bytes);
    memcpy(start, out, n_bytes);
    for (size_t r = 0; r < sizeof row_counts / sizeof *row_counts; r++) {
        for (int i = 0; i < n_tables; i++) {
            memcpy(out, start, n_bytes);
            program_run(tables[i], pool, &(struct program){ops, n_ops, 0, 0, 0, shared}, row_counts[r], row_counts[r], 0, 0, 1 + i % 2);
            if (i == 0) memcpy(expected, out, n_bytes);
            if (memcmp(expected, out, n_bytes) == 0) continue;
            printf("%s, %d rows: %s differs from %s\n", what, row_counts[r], kernels_name(tables[i]), kernels_name(tables[0]));
            n_different++;
        }
    }
    free(start);
    free(expected);
}

static void compare_products(int type) {
    char what[64];
    const int n_strips = (N_OUT + 15) / 16;
    const int64_t bytes = strip_bytes(type, N_IN);
    struct weight weight = {.strip_bytes = bytes, .type = type, .n_out = N_OUT, .n_in = N_IN, .n_experts = 1, .n_strips = n_strips};
    weight.data = aligned_alloc(64, (size_t)(n_strips * bytes + 8192) / 64 * 64);
    weight_repack(pool, 2, &weight, random_rows(type), 0);
    const struct view x = {filled(ROWS * N_IN), N_IN, N_IN}, out = {filled(ROWS * N_OUT), N_OUT, N_OUT};
    uint8_t *image = aligned_alloc(64, 24 * (N_IN / 32) * 64);
    for (int exact = 0; exact < 2; exact++) {
        struct op ops[] = {
            {.code = OP_QUANTISE, .step = 1, .x = x, .image = image},
            {.code = OP_LINEAR, .step = 1, .out = out, .x = x, .image = exact ? NULL : image, .weight = {&weight}},
            {.code = OP_GATED, .step = 1, .out = out, .x = x, .image = exact ? NULL : image, .weight = {&weight, &weight}, .n = {exact}},
        };
        snprintf(what, sizeof what, "type %d%s", type, exact ? " exact" : "");
        compare(what, ops, 2, out.data, sizeof(float) * ROWS * N_OUT);
        compare(what, ops, 3, out.data, sizeof(float) * ROWS * N_OUT);
    }
    int32_t ids[ROWS];
    for (int i = 0; i < ROWS; i++) ids[i] = i * 7 % N_OUT;
    const struct op embed = {.code = OP_EMBED, .step = 1, .out = x, .x = {ids, 1, 1}, .weight = {&weight}, .f = {0.5f}};
    compare("embed", &embed, 1, x.data, sizeof(float) * ROWS * N_IN);
}

static void compare_rows(void) {
    const float *constant = filled(N_IN);
    const struct view x = {filled(ROWS * N_IN), N_IN, N_IN - 3}, out = {filled(ROWS * N_IN), N_IN, N_IN - 3};
    int32_t ids[ROWS];
    for (int i = 0; i < ROWS; i++) ids[i] = i;
    const struct op ops[] = {
        {.code = OP_RMS_NORM, .step = 1, .out = out, .x = x, .p = {constant}, .n = {N_IN - 3}, .f = {1e-5f}},
        {.code = OP_ROPE, .step = 1, .out = {out.data, N_IN, N_IN}, .x = {ids, 1, 1}, .p = {filled(ROWS * 32), filled(ROWS * 32)}, .n = {64, 32, 0}},
        {.code = OP_ROPE, .step = 1, .out = {out.data, N_IN, N_IN}, .x = {ids, 1, 1}, .p = {filled(ROWS * 20), filled(ROWS * 20)}, .n = {64, 20, 1}},
        {.code = OP_ROTATE, .step = 1, .out = {out.data, N_IN, N_IN}, .n = {64}},
        {.code = OP_ADD, .step = 1, .out = out, .x = x},
        {.code = OP_ADD_ROW, .step = 1, .out = out, .p = {constant}},
        {.code = OP_MULTIPLY, .step = 1, .out = out, .x = x},
        {.code = OP_SCALE, .step = 1, .out = out, .f = {3}},
        {.code = OP_SOFTCAP, .step = 1, .out = out, .f = {2}},
        {.code = OP_SIGMOID, .step = 1, .out = out},
        {.code = OP_JOIN, .step = 1, .out = out, .x = x, .n = {1}},
        {.code = OP_JOIN, .step = 1, .out = out, .x = x, .n = {2}},
    };
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        char what[32];
        snprintf(what, sizeof what, "operation %d", ops[i].code);
        compare(what, ops + i, 1, out.data, sizeof(float) * ROWS * N_IN);
    }
}

static void compare_attention(int type) {
    const struct format f = formats[type];
    const int64_t row = (int64_t)HEAD_SIZE / f.block * f.gguf_bytes, head = CELLS * row;
    const struct kv_cache k = {calloc(KV_HEADS, (size_t)head), KV_HEADS * head, head, row, type, HEAD_SIZE};
    const struct kv_cache v = {calloc(KV_HEADS, (size_t)head), KV_HEADS * head, head, row, type, HEAD_SIZE};
    const struct view new_k = {filled(CELLS * KV_HEADS * HEAD_SIZE), KV_HEADS * HEAD_SIZE, KV_HEADS * HEAD_SIZE};
    const struct view q = {filled(ROWS * HEADS * HEAD_SIZE), HEADS * HEAD_SIZE, HEADS * HEAD_SIZE};
    const struct view out = {filled(ROWS * HEADS * HEAD_SIZE), HEADS * HEAD_SIZE, HEADS * HEAD_SIZE};
    int32_t cells[CELLS], slots[CELLS] = {0}, positions[ROWS];
    for (int i = 0; i < CELLS; i++) cells[i] = i;
    for (int i = 0; i < ROWS; i++) positions[i] = CELLS - ROWS + i;
    const struct op store = {.code = OP_STORE, .step = 1, .out = new_k, .x = new_k, .y = {cells, 1, 1}, .z = {slots, 1, 1}, .k = k, .v = v, .n = {0, KV_HEADS}};
    compare("store", &store, 1, k.data, (size_t)(KV_HEADS * head));
    program_run(tables[0], pool, &(struct program){&store, 1, 0, 0, 0, shared}, CELLS, 0, 0, 0, 1);
    for (int window = 0; window < 200; window += 150) {
        const struct op attention = {.code = OP_ATTENTION, .step = 1, .out = out, .x = q, .y = {positions, 1, 1}, .z = {slots, 1, 1},
                                     .k = k, .v = v, .n = {HEADS, KV_HEADS, window, 1024}, .f = {0.125f, window ? 30.0f : 0.0f}};
        compare("attention", &attention, 1, out.data, sizeof(float) * ROWS * HEADS * HEAD_SIZE);
    }
}

int main(void) {
    const int types[] = {F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL, IQ4_XS, MXFP4};
    const int cache_types[] = {F32, F16, BF16, Q8_0, Q4_0, Q4_1, IQ4_NL, Q5_0, Q5_1};
    int usable;
    const struct kernels *table;
    for (int i = 0; (table = kernels_at(i, &usable)); i++) {
        printf("%s%s\n", kernels_name(table), usable ? "" : " (not on this processor)");
        if (usable) tables[n_tables++] = table;
    }
    pool = pool_new(2, NULL, 0, 0, 50, 0);
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) compare_products(types[i]);
    compare_rows();
    for (size_t i = 0; i < sizeof cache_types / sizeof *cache_types; i++) compare_attention(cache_types[i]);
    return n_different > 254 ? 254 : n_different;
}
