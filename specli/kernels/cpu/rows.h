/* Operations that treat each row by itself. */
#include "native.h"
#include "simd.h"

#define EACH_VECTOR(width) for (int64_t i = 0, n; n = (width) - i < LANES ? (width) - i : LANES, i < (width); i += LANES)

INLINE vf load_some(const float *p, int64_t n) { return n == LANES ? vf_load(p) : vf_load_n(p, (int)n); }
INLINE void store_some(float *p, vf a, int64_t n) {
    if (n == LANES) {
        vf_store(p, a);
    } else {
        vf_store_n(p, a, (int)n);
    }
}

/* Inputs k … k+31 of output row `id`, as far as there are any; returns their number. k is a multiple of 32. */
static int read_weights(const struct weight *table, int id, int k, float *out) {
    const uint8_t *strip = table->data + id / LANES * table->strip_bytes;
    const int n = table->n_in - k < 32 ? table->n_in - k : 32;
    vf block[32];
    float lanes[LANES];
    if (!is_float_type(table->type)) dequantise_functions[table->type](table, strip, k / 32, block);
    for (int j = 0; j < n; j++) {
        vf_store(lanes, is_float_type(table->type) ? float_weights(table->type, strip, k + j) : block[j]);
        out[j] = lanes[id % LANES];
    }
    return n;
}

static void embed_row(const struct op *op, int row) {
    const struct weight *table = op->weight[0];
    float *out = (float *)op->out.data + row * op->out.stride, values[32];
    for (int k = 0; k < table->n_in; k += 32) {
        const int n = read_weights(table, row_int(&op->x, row), k, values);
        for (int j = 0; j < n; j++) out[k + j] = values[j] * op->f[0];
    }
}

static void linear_rows_row(const struct op *op, int row) {
    const struct weight *table = op->weight[0];
    const float *x = (const float *)op->x.data + row * op->x.stride;
    const int32_t *ids = (const int32_t *)op->y.data + row * op->y.stride;
    float *out = (float *)op->out.data + row * op->out.stride, values[32];
    for (int64_t i = 0; i < op->out.width; i++) {
        float sum = 0;
        for (int k = 0; k < table->n_in; k += 32) {
            const int n = read_weights(table, ids[i], k, values);
            for (int j = 0; j < n; j++) sum += x[k + j] * values[j];
        }
        out[i] += sum;
    }
}

static void convolve_row(const struct op *op, int row) {
    const int64_t width = op->out.width, n_taps = op->n[0], group = op->n[1], n_groups = width / group, in_block = row % op->n[2];
    const float *kernel = op->p[0], *weights = (const float *)op->y.data + row * op->y.stride;
    float *out = (float *)op->out.data + row * op->out.stride;
    memset(out, 0, (size_t)width * sizeof *out);
    for (int64_t tap = 0; tap < n_taps && tap <= in_block; tap++, kernel += width, weights += n_groups) {
        const float *x = (const float *)op->x.data + (row - tap) * op->x.stride;
        for (int64_t c = 0; c < width; c++) out[c] += (kernel[c] + weights[c / group]) * x[c];
    }
}

static void rms_norm_row(const struct op *op, int row) {
    float *out = (float *)op->out.data + row * op->out.stride;
    const float *x = (const float *)op->x.data + row * op->x.stride, *weight = op->p[0];
    const int64_t length = op->n[0];
    for (int64_t start = 0; start < op->out.width; start += length, x += length, out += length) {
        vf squares = vf_set(0);
        EACH_VECTOR(length) {
            const vf v = load_some(x + i, n);
            squares = vf_fma(v, v, squares);
        }
        const vf factor = vf_set(1.0f / sqrtf(vf_sum(squares) / (float)length + op->f[0]));
        EACH_VECTOR(length) {
            const vf v = vf_mul(load_some(x + i, n), factor);
            store_some(out + i, weight ? vf_mul(v, load_some(weight + i, n)) : v, n);
        }
    }
}

static void centre_row(const struct op *op, int row) {
    float *out = (float *)op->out.data + row * op->out.stride;
    const int64_t width = op->out.width;
    vf sum = vf_set(0);
    EACH_VECTOR(width) sum = vf_add(sum, load_some(out + i, n));
    const vf mean = vf_set(vf_sum(sum) / (float)width);
    EACH_VECTOR(width) store_some(out + i, vf_sub(load_some(out + i, n), mean), n);
}

static void quantise_row(const struct op *op, const struct run *run, int row) {
    const int64_t n_blocks = op->x.width / 32;
    const int rows = run->counts[op->extent] == 1 ? 1 : IMAGE_GROUP;
    uint8_t *image = op->image + row / rows * n_blocks * 64 * rows;
    quantise_values((const float *)op->x.data + row * op->x.stride, n_blocks, image, rows, row % rows);
}

static void rope_row(const struct op *op, int row) {
    const int64_t position = row_int(&op->x, row), pairs = op->n[1];
    const float *cos = (const float *)op->p[0] + position * pairs, *sin = (const float *)op->p[1] + position * pairs;
    float *x = (float *)op->out.data + row * op->out.stride;
    for (int64_t head = 0; head < op->out.width; head += op->n[0], x += op->n[0]) {
        int64_t i = 0;
        if (op->n[2]) {
            for (; i + LANES / 2 <= pairs; i += LANES / 2) {
                const vf v = vf_load(x + 2 * i);
                vf_store(x + 2 * i, vf_add(vf_mul(v, vf_twice(cos + i)), vf_mul(vf_negate_even(vf_swap_pairs(v)), vf_twice(sin + i))));
                /* even lanes: a·cos + (-b)·sin, odd lanes: b·cos + a·sin */
            }
        } else {
            for (; i + LANES <= pairs; i += LANES) {
                const vf a = vf_load(x + i), b = vf_load(x + pairs + i), c = vf_load(cos + i), s = vf_load(sin + i);
                vf_store(x + i, vf_sub(vf_mul(a, c), vf_mul(b, s)));
                vf_store(x + pairs + i, vf_add(vf_mul(a, s), vf_mul(b, c)));
            }
        }
        for (; i < pairs; i++) {
            float *p = x + (op->n[2] ? 2 * i : i), *q = x + (op->n[2] ? 2 * i + 1 : pairs + i);
            const float a = *p, b = *q;
            *p = a * cos[i] - b * sin[i];
            *q = a * sin[i] + b * cos[i];
        }
    }
}

/* Fast Walsh-Hadamard transform: Sylvester order, as repeated sums and differences. */
static void rotate_row(const struct op *op, int row) {
    const int64_t block = op->n[0];
    const float norm = 1.0f / sqrtf((float)block);
    float *x = (float *)op->out.data + row * op->out.stride;
    for (int64_t start = 0; start < op->out.width; start += block, x += block) {
        for (int64_t half = 1; half < block; half *= 2) {
            for (int64_t i = 0; i < block; i += 2 * half) {
                for (int64_t j = i; j < i + half; j++) {
                    const float a = x[j], b = x[j + half];
                    x[j] = a + b;
                    x[j + half] = a - b;
                }
            }
        }
        for (int64_t i = 0; i < block; i++) x[i] *= norm;
    }
}

/* ---- cache writing (docs/quant-types.md §4) ------------------------------------------------------------------------------------- */

INLINE void put_half(uint8_t *p, float x) {
    uint16_t h[LANES];
    vf_store_f16(h, vf_set(x));
    memcpy(p, h, 2);
}
INLINE int code_of(float x, int most) { /* truncates toward zero */
    const int q = (int)x;
    return q > most ? most : q;
}

INLINE void write_block(int type, uint8_t *block, const float *x) {
    float extreme = 0, lowest = x[0], highest = x[0]; /* extreme: the first value of largest magnitude, signed */
    int codes[32];
    for (int i = 0; i < 32; i++) {
        if (fabsf(x[i]) > fabsf(extreme)) extreme = x[i];
        lowest = x[i] < lowest ? x[i] : lowest;
        highest = x[i] > highest ? x[i] : highest;
    }
    uint8_t *nibbles = block + 2;
    switch (type) {
        case Q8_0: {
            const float d = fabsf(extreme) / 127.0f, inverse = d > 0 ? 1.0f / d : 0.0f;
            put_half(block, d);
            for (int i = 0; i < 32; i++) block[2 + i] = (uint8_t)(int8_t)roundf(x[i] * inverse);
            return;
        }
        case IQ4_NL: {
            static const float table[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
            const float d = extreme / -127.0f, inverse = d != 0 ? 1.0f / d : 0.0f;
            float product = 0, square = 0;
            for (int i = 0; i < 32; i++) {
                const float y = x[i] * inverse;
                int q = 0;
                while (q < 15 && y - table[q] >= table[q + 1] - y) q++; /* a tie takes the upper entry */
                const float w = x[i] * x[i];
                product += w * table[q] * x[i];
                square += w * table[q] * table[q];
                codes[i] = q;
            }
            put_half(block, square > 0 ? product / square : d);
            break;
        }
        case Q4_0:
        case Q5_0: {
            const int half = type == Q5_0 ? 16 : 8;
            const float d = extreme / (float)-half, inverse = d != 0 ? 1.0f / d : 0.0f;
            put_half(block, d);
            for (int i = 0; i < 32; i++) codes[i] = code_of(x[i] * inverse + (float)half + 0.5f, 2 * half - 1);
            break;
        }
        default: { /* Q4_1, Q5_1 */
            const int most = type == Q5_1 ? 31 : 15;
            const float d = (highest - lowest) / (float)most, inverse = d != 0 ? 1.0f / d : 0.0f;
            put_half(block, d);
            put_half(block + 2, lowest);
            for (int i = 0; i < 32; i++) codes[i] = code_of((x[i] - lowest) * inverse + 0.5f, most);
            nibbles += 2;
            break;
        }
    }
    if (type == Q5_0 || type == Q5_1) {
        uint32_t high = 0;
        for (int i = 0; i < 32; i++) high |= (uint32_t)(codes[i] >> 4 & 1) << i;
        memcpy(nibbles, &high, 4);
        nibbles += 4;
    }
    for (int i = 0; i < 16; i++) nibbles[i] = (uint8_t)((codes[i] & 15) | (codes[i + 16] & 15) << 4);
}

static void write_row(int type, uint8_t *out, const float *x, int n) {
    if (type == F32) {
        memcpy(out, x, (size_t)n * sizeof *x);
        return;
    }
    if (!is_float_type(type)) {
        for (int i = 0; i < n; i += 32) write_block(type, out + i / 32 * formats[type].gguf_bytes, x + i);
        return;
    }
    for (int i = 0; i < n; i += LANES) {
        const int some = n - i < LANES ? n - i : LANES;
        uint16_t halves[LANES];
        if (type == F16) {
            vf_store_f16(halves, load_some(x + i, some));
        } else {
            for (int j = 0; j < some; j++) halves[j] = float_to_bf16(x[i + j]);
        }
        memcpy(out + 2 * i, halves, 2 * (size_t)some);
    }
}

static void store_row(const struct op *op, int row) {
    const int64_t position = row_int(&op->y, row), slot = row_int(&op->z, row);
    for (int i = 0; i < (op->x.data ? 2 : 1); i++) {
        const struct kv_cache *cache = i ? &op->v : &op->k;
        const struct view *view = i ? &op->x : &op->out;
        const float *values = (const float *)view->data + row * view->stride;
        uint8_t *out = cache->data + slot * cache->slot_bytes + position * cache->row_bytes;
        for (int64_t head = 0; head < op->n[1]; head++, out += cache->head_bytes, values += cache->head_size) {
            write_row(cache->type, out, values, cache->head_size);
        }
    }
}

static void join_heads_row(const struct op *op, int row) {
    const size_t n_heads = (size_t)op->n[0], n_x = (size_t)op->x.width / n_heads, n_y = (size_t)op->y.width / n_heads;
    const float *x = (const float *)op->x.data + row * op->x.stride, *y = (const float *)op->y.data + row * op->y.stride;
    float *out = (float *)op->out.data + row * op->out.stride;
    for (size_t head = 0; head < n_heads; head++, out += n_x + n_y, x += n_x, y += n_y) {
        memcpy(out, x, n_x * sizeof *out);
        memcpy(out + n_x, y, n_y * sizeof *out);
    }
}

/* ---- choosing --------------------------------------------------------------------------------------------------------------------- */

/* Keeps the best so far in order; a value enters behind its equals, so the lowest id comes first. */
static void top_k_row(const struct op *op, int row) {
    const float *x = (const float *)op->x.data + row * op->x.stride;
    float *values = (float *)op->out.data + row * op->out.stride;
    int32_t *ids = (int32_t *)op->y.data + row * op->y.stride;
    const int64_t k = op->y.width, width = op->x.width;
    int64_t kept = 0;
    for (int64_t start = 0; start < width; start += 4 * LANES) {
        const int64_t stop = start + 4 * LANES < width ? start + 4 * LANES : width;
        if (kept == k && stop - start == 4 * LANES) {
            const vf a = vf_max(vf_load(x + start), vf_load(x + start + LANES));
            const vf b = vf_max(vf_load(x + start + 2 * LANES), vf_load(x + start + 3 * LANES));
            if (!(vf_max_lane(vf_max(a, b)) > values[k - 1])) continue;
        }
        for (int64_t i = start; i < stop; i++) {
            const float value = x[i] == x[i] ? x[i] : -INFINITY;
            if (kept == k && !(value > values[k - 1])) continue;
            int64_t at = kept < k ? kept++ : k - 1;
            for (; at > 0 && value > values[at - 1]; at--) {
                values[at] = values[at - 1];
                ids[at] = ids[at - 1];
            }
            values[at] = value;
            ids[at] = (int32_t)i;
        }
    }
}

/* The values start with the largest of x, so no exponential overflows. */
static void log_softmax_row(const struct op *op, int row) {
    const float *x = (const float *)op->x.data + row * op->x.stride;
    float *values = (float *)op->out.data + row * op->out.stride;
    const float most = values[0];
    const int64_t width = op->x.width, whole = width - width % LANES;
    vf sums = vf_set(0.0f);
    for (int64_t i = 0; i < whole; i += LANES) sums = vf_add(sums, vf_exp(vf_sub(vf_load(x + i), vf_set(most))));
    float sum = vf_sum(sums);
    for (int64_t i = whole; i < width; i++) sum += expf(x[i] - most);
    const float norm = most + logf(sum);
    for (int64_t i = 0; i < op->out.width; i++) values[i] -= norm;
}

/* ---- all of them ---------------------------------------------------------------------------------------------------------------------- */

static void run_row(const struct op *op, const struct run *run, int row) {
    float *out = (float *)op->out.data + row * op->out.stride;
    const float *x = (const float *)op->x.data + row * op->x.stride, *constant = op->p[0];
    const int64_t width = op->out.width;
    switch (op->code) {
        case OP_EMBED: embed_row(op, row); break;
        case OP_RMS_NORM: rms_norm_row(op, row); break;
        case OP_QUANTISE: quantise_row(op, run, row); break;
        case OP_ROPE: rope_row(op, row); break;
        case OP_ROTATE: rotate_row(op, row); break;
        case OP_STORE: store_row(op, row); break;
        case OP_JOIN_HEADS: join_heads_row(op, row); break;
        case OP_TOP_K: top_k_row(op, row); break;
        case OP_LOG_SOFTMAX: log_softmax_row(op, row); break;
        case OP_LINEAR_ROWS: linear_rows_row(op, row); break;
        case OP_CONVOLVE: convolve_row(op, row); break;
        case OP_ADD: EACH_VECTOR(width) store_some(out + i, vf_add(load_some(out + i, n), load_some(x + i, n)), n); break;
        case OP_ADD_ROW: EACH_VECTOR(width) store_some(out + i, vf_add(load_some(out + i, n), load_some(constant + i, n)), n); break;
        case OP_MULTIPLY: EACH_VECTOR(width) store_some(out + i, vf_mul(load_some(out + i, n), load_some(x + i, n)), n); break;
        case OP_SCALE: EACH_VECTOR(width) store_some(out + i, vf_mul(load_some(out + i, n), vf_set(op->f[0])), n); break;
        case OP_SIGMOID: EACH_VECTOR(width) store_some(out + i, vf_sigmoid(load_some(out + i, n)), n); break;
        case OP_CENTRE: centre_row(op, row); break;
        case OP_GELU: EACH_VECTOR(width) store_some(out + i, activate(GELU, load_some(out + i, n), vf_set(1)), n); break;
        case OP_SOFTCAP:
            EACH_VECTOR(width) {
                store_some(out + i, vf_mul(vf_set(op->f[0]), vf_tanh(vf_div(load_some(out + i, n), vf_set(op->f[0])))), n);
            }
            break;
        case OP_COPY: memmove(out, x, (size_t)width * 4); break;
        case OP_GATHER: memcpy(out, (const float *)op->x.data + row_int(&op->y, row) * op->x.stride, (size_t)width * 4); break;
        case OP_SCATTER: memcpy((float *)op->out.data + row_int(&op->y, row) * op->out.stride, x, (size_t)width * 4); break;
        case OP_INCREMENT:
            for (int64_t i = 0; i < width; i++) ((int32_t *)(void *)out)[i]++;
            break;
        case OP_TAKE:
            for (int64_t i = 0; i < width; i++) {
                ((int32_t *)(void *)out)[i] = ((const int32_t *)(const void *)x)[((const int32_t *)op->y.data)[row * op->y.stride + i]];
            }
            break;
        case OP_JOIN: EACH_VECTOR(width) store_some(out + i, activate((int)op->n[0], load_some(out + i, n), load_some(x + i, n)), n); break;
        case OP_DECAY: decay_row(op, row); break;
        case OP_ROUTE: route_row(op, row); break;
        case OP_GROUP: group_pairs(op, run); break;
        case OP_WEIGHTED_SUM: weighted_sum_row(op, row); break;
        case OP_MAP_IDS:
            for (int64_t i = 0; i < width; i++) ((int32_t *)(void *)out)[i] = ((const int32_t *)op->p[0])[((const int32_t *)(const void *)x)[i]];
            break;
        default: break;
    }
}
