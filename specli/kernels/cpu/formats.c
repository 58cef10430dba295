/* GGUF blocks → strips (native.h describes both ends; docs/quant-types.md the source). */
#define _GNU_SOURCE
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "native.h"

#define ROWS 16

static int64_t row_bytes(int type, int n_in) { return (int64_t)(n_in / formats[type].block) * formats[type].gguf_bytes; }

EXPORT int64_t strip_bytes(int type, int n_in) {
    const struct format *f = &formats[type];
    const int64_t bytes = f->block == 1 ? (int64_t)n_in * ROWS * f->gguf_bytes
                                        : n_in / 32 * (int64_t)(f->plane_bytes + f->scale_bytes) + n_in / f->block * (int64_t)f->head_bytes;
    return (bytes + 63) / 64 * 64;
}

/* Destination of one block of 32 inputs of one output row. */
struct place {
    uint8_t *planes, *scales, *head;
    int lane;
};

static void put_bytes(uint8_t *region, int lane, const uint8_t *bytes, int size) { memcpy(region + lane * size, bytes, (size_t)size); }

/* Four-bit quants given as 16 bytes with element j low and j + 16 high. */
static void put_nibbles(const struct place *to, const uint8_t nibbles[16]) {
    for (int i = 0; i < 4; i++) memcpy(to->planes + 64 * i + 4 * to->lane, nibbles + 4 * i, 4);
}

/* High bits, bit i of `bits` belonging to element i, into the bit plane at `plane`. */
static void put_bits(uint8_t *plane, int lane, uint32_t bits) {
    for (int c = 0; c < 4; c++) {
        uint8_t byte = 0;
        for (int j = 0; j < 8; j++) byte |= (uint8_t)((bits >> (4 * j + c) & 1) << j);
        plane[4 * lane + c] = byte;
    }
}

/* 32 two-bit fields into the two-bit plane at `plane`. */
static void put_fields(uint8_t *plane, int lane, const uint8_t fields[32]) {
    for (int half = 0; half < 2; half++) {
        for (int c = 0; c < 4; c++) {
            const uint8_t *f = fields + 16 * half + c;
            plane[64 * half + 4 * lane + c] = (uint8_t)(f[0] | f[4] << 2 | f[8] << 4 | f[12] << 6);
        }
    }
}

static void repack_32(int type, const uint8_t *block, const struct place *to) {
    uint32_t high;
    switch (type) {
        case Q8_0:
            put_bytes(to->scales, to->lane, block, 2);
            for (int i = 0; i < 32; i++) to->planes[64 * (i / 4) + 4 * to->lane + i % 4] = block[2 + i] ^ 128;
            return;
        case MXFP4: {
            /* 2^(e-128) as bfloat16, exact: e = 0 and 1 give the subnormals 2^-128 and 2^-127. */
            const uint16_t scale = (uint16_t)(block[0] >= 2 ? (block[0] - 1) << 7 : 0x20 << block[0]);
            put_bytes(to->scales, to->lane, (const uint8_t *)&scale, 2);
            put_nibbles(to, block + 1);
            return;
        }
        case Q5_0:
        case Q5_1:
            memcpy(&high, block + (type == Q5_0 ? 2 : 4), 4);
            put_bits(to->planes + 256, to->lane, high);
            break;
        default: break;
    }
    put_bytes(to->scales, to->lane, block, 2);
    if (type == Q4_1 || type == Q5_1) put_bytes(to->scales + 32, to->lane, block + 2, 2);
    put_nibbles(to, block + formats[type].gguf_bytes - 16);
}

/* The six-bit scale and minimum of sub-block j of Q4_K and Q5_K. */
static void k_scale(const uint8_t b[12], int j, uint8_t *scale, uint8_t *minimum) {
    if (j < 4) {
        *scale = b[j] & 63;
        *minimum = b[j + 4] & 63;
    } else {
        *scale = (uint8_t)((b[j + 4] & 15) | b[j - 4] >> 6 << 4);
        *minimum = (uint8_t)(b[j + 4] >> 4 | b[j] >> 6 << 4);
    }
}

/* Sub-block j (32 inputs) of a 256-element block. */
static void repack_256(int type, const uint8_t *block, int j, const struct place *to) {
    uint8_t nibbles[16], fields[32], scale[2], minimum;
    const int half = j / 4, quarter = j % 4;
    switch (type) {
        case Q4_K:
        case Q5_K: {
            const uint8_t *q = block + (type == Q5_K ? 48 : 16) + 32 * (j / 2);
            const int shift = 4 * (j % 2);
            for (int i = 0; i < 16; i++) nibbles[i] = (uint8_t)((q[i] >> shift & 15) | (q[i + 16] >> shift & 15) << 4);
            put_nibbles(to, nibbles);
            if (type == Q5_K) {
                uint32_t high = 0;
                for (int i = 0; i < 32; i++) high |= (uint32_t)(block[16 + i] >> j & 1) << i;
                put_bits(to->planes + 256, to->lane, high);
            }
            k_scale(block + 4, j, scale, &minimum);
            put_bytes(to->scales, to->lane, scale, 1);
            put_bytes(to->scales + 16, to->lane, &minimum, 1);
            put_bytes(to->head, to->lane, block, 2);
            put_bytes(to->head + 32, to->lane, block + 2, 2);
            return;
        }
        case Q6_K: {
            const uint8_t *low = block + 64 * half + 32 * (quarter % 2), *high = block + 128 + 32 * half;
            const int shift = 4 * (quarter / 2);
            for (int i = 0; i < 16; i++) nibbles[i] = (uint8_t)((low[i] >> shift & 15) | (low[i + 16] >> shift & 15) << 4);
            for (int i = 0; i < 32; i++) fields[i] = high[i] >> (2 * quarter) & 3;
            put_nibbles(to, nibbles);
            put_fields(to->planes + 256, to->lane, fields);
            put_bytes(to->scales, to->lane, block + 192 + 2 * j, 1);
            put_bytes(to->scales + 16, to->lane, block + 193 + 2 * j, 1);
            put_bytes(to->head, to->lane, block + 208, 2);
            return;
        }
        case Q2_K:
        case Q3_K: {
            const uint8_t *q = block + (type == Q2_K ? 16 : 32) + 32 * half;
            for (int i = 0; i < 32; i++) fields[i] = q[i] >> (2 * quarter) & 3;
            put_fields(to->planes, to->lane, fields);
            for (int part = 0; part < 2; part++) {
                const int group = 2 * j + part;
                if (type == Q2_K) {
                    scale[part] = block[group] & 15;
                    minimum = block[group] >> 4;
                    put_bytes(to->scales + 32 + 16 * part, to->lane, &minimum, 1);
                } else {
                    const uint8_t *packed = block + 96;
                    const int low = packed[group % 8] >> (4 * (group / 8)) & 15, top = packed[8 + group % 4] >> (2 * (group / 4)) & 3;
                    scale[part] = (uint8_t)(int8_t)((low | top << 4) - 32);
                }
                put_bytes(to->scales + 16 * part, to->lane, scale + part, 1);
            }
            if (type == Q2_K) {
                put_bytes(to->head, to->lane, block + 80, 2);
                put_bytes(to->head + 32, to->lane, block + 82, 2);
                return;
            }
            uint32_t bits = 0;
            for (int i = 0; i < 32; i++) bits |= (uint32_t)(block[i] >> j & 1) << i;
            put_bits(to->planes + 128, to->lane, bits);
            put_bytes(to->head, to->lane, block + 108, 2);
            return;
        }
        default: { /* IQ4_XS */
            uint16_t high;
            memcpy(&high, block + 2, 2);
            const int value = (block[4 + j / 2] >> (4 * (j % 2)) & 15) | (high >> (2 * j) & 3) << 4;
            scale[0] = (uint8_t)(int8_t)(value - 32);
            put_nibbles(to, block + 8 + 16 * j);
            put_bytes(to->scales, to->lane, scale, 1);
            put_bytes(to->head, to->lane, block, 2);
            return;
        }
    }
}

/* Gives back whole pages of a read-only file mapping; they are read again if anyone asks for them. */
static void release_pages(const uint8_t *start, int64_t n) {
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    const uintptr_t from = ((uintptr_t)start + page - 1) / page * page, to = (uintptr_t)(start + n) / page * page;
    if (to > from) madvise((void *)from, to - from, MADV_DONTNEED);
}

/* One strip from up to 16 GGUF rows; missing rows stay zero. */
static void repack_strip(const struct weight *weight, const uint8_t *rows, int n_rows, uint8_t *strip) {
    const struct format *f = &formats[weight->type];
    const int64_t source = row_bytes(weight->type, weight->n_in);
    if (n_rows < ROWS) memset(strip, 0, (size_t)weight->strip_bytes);
    if (f->block == 1) {
        for (int k = 0; k < weight->n_in; k++) {
            for (int lane = 0; lane < n_rows; lane++) {
                memcpy(strip + ((int64_t)k * ROWS + lane) * f->gguf_bytes, rows + lane * source + (int64_t)k * f->gguf_bytes, (size_t)f->gguf_bytes);
            }
        }
        return;
    }
    const int n_blocks = weight->n_in / 32, per_block = f->block / 32;
    uint8_t *scales = strip + (int64_t)n_blocks * f->plane_bytes, *heads = scales + (int64_t)n_blocks * f->scale_bytes;
    for (int b = 0; b < n_blocks; b++) {
        for (int lane = 0; lane < n_rows; lane++) {
            const uint8_t *block = rows + lane * source + (int64_t)(b / per_block) * f->gguf_bytes;
            const struct place to = {strip + (int64_t)b * f->plane_bytes, scales + (int64_t)b * f->scale_bytes, heads + (int64_t)(b / 8) * f->head_bytes, lane};
            if (per_block == 1) {
                repack_32(weight->type, block, &to);
            } else {
                repack_256(weight->type, block, b % per_block, &to);
            }
        }
    }
}

const uint8_t *weight_strip(const struct weight *weight, int expert, int strip) {
    const int64_t index = (int64_t)expert * weight->n_strips + strip, source = row_bytes(weight->type, weight->n_in);
    uint8_t *data = weight->data + index * weight->strip_bytes;
    if (!weight->is_ready || weight->is_ready[index]) return data;
    const int row = strip * ROWS, left = weight->n_out - row;
    const uint8_t *rows = weight->source + (int64_t)expert * weight->n_out * source;
    repack_strip(weight, rows + row * source, left < ROWS ? left : ROWS, data);
    weight->is_ready[index] = 1;
    if (__atomic_add_fetch(&weight->n_ready[expert], 1, __ATOMIC_ACQ_REL) == weight->n_strips && weight->is_mapped) {
        release_pages(rows, weight->n_out * source);
    }
    return data;
}

struct repack {
    const struct weight *weight;
    const uint8_t *source;
    int first_strip, n_strips; /* of the piece, all experts in a row */
};

static int repack_next(void *argument, int thread) {
    (void)thread;
    struct repack *piece = argument;
    const int n = piece->n_strips;
    piece->n_strips = 0;
    return n;
}

static void repack_strips(void *argument, int thread, int first, int last) {
    (void)thread;
    const struct repack *piece = argument;
    const struct weight *weight = piece->weight;
    const int64_t source = row_bytes(weight->type, weight->n_in);
    for (int i = piece->first_strip + first; i < piece->first_strip + last; i++) {
        const int expert = i / weight->n_strips, row = i % weight->n_strips * ROWS, left = weight->n_out - row;
        const uint8_t *rows = piece->source + ((int64_t)expert * weight->n_out + row) * source;
        repack_strip(weight, rows, left < ROWS ? left : ROWS, weight->data + i * weight->strip_bytes);
    }
}

/* Fills weight->data from GGUF rows. With `release`, source lies in a read-only file mapping whose pages are given back piece by
 * piece, so that the file and the copy are never both resident. */
EXPORT void weight_repack(struct pool *pool, int n_threads, const struct weight *weight, const uint8_t *source, int release) {
    const int total = weight->n_strips * weight->n_experts, most = (int)((32 << 20) / weight->strip_bytes) + 1;
    const int64_t source_strip = ROWS * row_bytes(weight->type, weight->n_in);
    const int64_t source_bytes = (int64_t)weight->n_experts * weight->n_out * row_bytes(weight->type, weight->n_in);
    for (int first = 0; first < total; first += most) {
        const int n = total - first < most ? total - first : most;
        struct repack piece = {weight, source, first, n};
        pool_run(pool, n_threads, &(struct job){repack_next, repack_strips, &piece});
        const int64_t end = (first + n) * source_strip < source_bytes ? (first + n) * source_strip : source_bytes;
        if (release) release_pages(source, end);
    }
}
