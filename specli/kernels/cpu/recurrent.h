/* Layers with memory: the short convolution and the gated delta rule (docs/targets.md §3.8).
 *
 * Work is cut across channels; within an item rows are taken in order, as a slot's tokens follow each other. What a row does depends
 * on its inputs and the state before it alone.
 */
#include "native.h"
#include "simd.h"

INLINE int memory_slot(const struct op *op, int row) { return row_int(&op->b, row); }
INLINE int memory_position(const struct op *op, int row) { return row_int(&op->a, row); }

static void convolve_channels(const struct op *op, const struct run *run, int item) {
    const int64_t n_taps = op->n[0], n_inputs = op->n[1], width = op->out.width, first = (int64_t)item * CONVOLVE_CHANNELS;
    const int64_t last = first + CONVOLVE_CHANNELS < width ? first + CONVOLVE_CHANNELS : width;
    const float *kernel = op->p[0]; /* [tap][channel] */
    for (int row = 0; row < run->counts[op->extent]; row++) {
        const int64_t position = memory_position(op, row);
        uint8_t *ring = op->k.data + memory_slot(op, row) * op->k.slot_bytes;
        const float *x = (const float *)op->x.data + row * op->x.stride;
        float *out = (float *)op->out.data + row * op->out.stride, *kept = (float *)(void *)(ring + position % n_inputs * op->k.row_bytes);
        for (int64_t c = first; c < last; c += LANES) {
            const int n = last - c < LANES ? (int)(last - c) : LANES;
            const vf now = vf_load_n(x + c, n);
            vf_store_n(kept + c, now, n);
            vf sum = vf_mul(vf_load_n(kernel + (n_taps - 1) * width + c, n), now);
            for (int64_t back = 1; back < n_taps && back <= position; back++) {
                const float *before = (const float *)(const void *)(ring + (position - back) % n_inputs * op->k.row_bytes);
                sum = vf_fma(vf_load_n(kernel + (n_taps - 1 - back) * width + c, n), vf_load_n(before + c, n), sum);
            }
            vf_store_n(out + c, vf_mul(sum, vf_sigmoid(sum)), n);
        }
    }
}

/* Rows from `row` on that continue one sequence without a gap. */
static int run_end(const struct op *op, const struct run *run, int row) {
    int end = row + 1;
    while (end < run->counts[op->extent] && memory_slot(op, end) == memory_slot(op, row) &&
           memory_position(op, end) == memory_position(op, end - 1) + 1) {
        end++;
    }
    return end;
}

/* Sixteen value columns of one head. The state of a run of rows stays in scratch; only what may be gone back to is written. */
static void scan_columns(const struct op *op, const struct run *run, int item, float *state) {
    const int size = op->k.head_size, n_blocks = (size + LANES - 1) / LANES, head = item / n_blocks, column = item % n_blocks * LANES;
    const int n = size - column < LANES ? size - column : LANES;
    const int64_t n_states = op->n[0], key_at = (op->n[2] ? head / op->n[2] : head % op->n[1]) * size;
    for (int row = 0, end; row < run->counts[op->extent]; row = end) {
        end = run_end(op, run, row);
        uint8_t *ring = op->k.data + memory_slot(op, row) * op->k.slot_bytes + head * op->k.head_bytes + column * (int64_t)sizeof(float);
        const int64_t start = memory_position(op, row);
        const float *before = (const float *)(const void *)(ring + start % n_states * op->k.row_bytes);
        for (int i = 0; i < size; i++) vf_store(state + i * LANES, start ? vf_load_n(before + (int64_t)i * size, n) : vf_set(0));
        for (int r = row; r < end; r++) {
            const float *q = (const float *)op->x.data + r * op->x.stride + key_at, *k = (const float *)op->y.data + r * op->y.stride + key_at;
            const float *v = (const float *)op->z.data + r * op->z.stride + (int64_t)head * size + column;
            const vf beta = vf_set(((const float *)op->e.data)[r * op->e.stride + head]);
            const vf decay = vf_set(((const float *)op->c.data)[r * op->c.stride + head]);
            vf even = vf_set(0), odd = vf_set(0);
            for (int i = 0; i < size; i += 2) {
                const vf m0 = vf_mul(vf_load(state + i * LANES), decay), m1 = vf_mul(vf_load(state + (i + 1) * LANES), decay);
                vf_store(state + i * LANES, m0);
                vf_store(state + (i + 1) * LANES, m1);
                even = vf_fma(m0, vf_set(k[i]), even);
                odd = vf_fma(m1, vf_set(k[i + 1]), odd);
            }
            const vf error = vf_mul(beta, vf_sub(vf_load_n(v, n), vf_add(even, odd)));
            even = odd = vf_set(0);
            for (int i = 0; i < size; i += 2) {
                const vf m0 = vf_fma(error, vf_set(k[i]), vf_load(state + i * LANES));
                const vf m1 = vf_fma(error, vf_set(k[i + 1]), vf_load(state + (i + 1) * LANES));
                vf_store(state + i * LANES, m0);
                vf_store(state + (i + 1) * LANES, m1);
                even = vf_fma(m0, vf_set(q[i]), even);
                odd = vf_fma(m1, vf_set(q[i + 1]), odd);
            }
            vf_store_n((float *)op->out.data + r * op->out.stride + (int64_t)head * size + column, vf_add(even, odd), n);
            if (end - r > n_states) continue;
            float *after = (float *)(void *)(ring + (start + r - row + 1) % n_states * op->k.row_bytes);
            for (int i = 0; i < size; i++) vf_store_n(after + (int64_t)i * size, vf_load(state + i * LANES), n);
        }
    }
}

/* What a state keeps: e^(rate · ln(1 + e^x)). */
static void decay_row(const struct op *op, int row) {
    float *out = (float *)op->out.data + row * op->out.stride;
    const float *rates = op->p[0];
    for (int64_t i = 0; i < op->out.width; i++) out[i] = expf(rates[i] * softplus(out[i]));
}
