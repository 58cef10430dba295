/* Mixtures of experts: choosing, sorting rows by expert, products with the chosen matrices.
 *
 * A (row, choice) pair is row · n_used + choice. `group` sorts the pairs by expert into *places*: an expert's first place is a
 * multiple of 8, so its pairs fill groups of an image like consecutive rows do. One pair alone is kept as a group of one row.
 * Which pairs share a group changes no bit of their products (matmul.h).
 */
#include "native.h"
#include "simd.h"

INLINE const int32_t *table_pairs(const struct op *op) { return op->table + TABLE_EXPERTS + 3 * op->n_experts; }

/* ---- choosing ------------------------------------------------------------------------------------------------------------- */

enum { GATE_SOFTMAX = 1, GATE_SIGMOID, GATE_SOFTMAX_CHOSEN, GATE_SQRT_SOFTPLUS };

static float softplus(float x) { return x > 20.0f ? x : log1pf(expf(x)); }

static void softmax_in_place(float *p, int n) {
    float most = p[0], sum = 0;
    for (int i = 1; i < n; i++) most = p[i] > most ? p[i] : most;
    for (int i = 0; i < n; i += LANES) vf_store(p + i, vf_exp(vf_sub(vf_load(p + i), vf_set(most)))); /* p is padded */
    for (int i = 0; i < n; i++) sum += p[i];
    for (int i = 0; i < n; i++) p[i] /= sum;
}

/* The largest score, lowest number first; it is taken out. */
static int take_best(float *scores, int n) {
    int best = 0;
    for (int i = 1; i < n; i++) best = scores[i] > scores[best] ? i : best;
    scores[best] = -INFINITY;
    return best;
}

/* Leaves only the best groups of experts in the choice. */
static void keep_groups(float *scores, int n, int n_groups, int n_kept) {
    float group_scores[MAX_EXPERTS];
    uint8_t is_kept[MAX_EXPERTS] = {0};
    const int size = n / n_groups;
    for (int g = 0; g < n_groups; g++) {
        float first = -INFINITY, second = -INFINITY;
        for (int i = g * size; i < (g + 1) * size; i++) {
            if (scores[i] > first) {
                second = first;
                first = scores[i];
            } else if (scores[i] > second) {
                second = scores[i];
            }
        }
        group_scores[g] = first + second;
    }
    for (int i = 0; i < n_kept; i++) is_kept[take_best(group_scores, n_groups)] = 1;
    for (int i = 0; i < n; i++) {
        if (!is_kept[i / size]) scores[i] = -INFINITY;
    }
}

static void route_row(const struct op *op, int row) {
    const int n = (int)op->x.width, n_used = (int)op->y.width, gating = (int)op->n[0];
    const float *logits = (const float *)op->x.data + row * op->x.stride, *bias = op->p[0], *scales = op->p[1];
    float *weights = (float *)op->out.data + row * op->out.stride, sum = 0;
    int32_t *experts = (int32_t *)op->y.data + row * op->y.stride;
    float p[MAX_EXPERTS + LANES], scores[MAX_EXPERTS], chosen[MAX_EXPERTS + LANES];
    memset(chosen, 0, sizeof chosen);
    memcpy(p, logits, (size_t)n * sizeof *p);
    for (int i = n; i < n + LANES; i++) p[i] = 0;
    switch (gating) {
        case GATE_SOFTMAX: softmax_in_place(p, n); break;
        case GATE_SIGMOID:
            for (int i = 0; i < n; i += LANES) vf_store(p + i, vf_sigmoid(vf_load(p + i)));
            break;
        case GATE_SQRT_SOFTPLUS:
            for (int i = 0; i < n; i++) p[i] = sqrtf(softplus(p[i]));
            break;
        default: break;
    }
    for (int i = 0; i < n; i++) {
        const float score = bias ? p[i] + bias[i] : p[i];
        scores[i] = score == score ? score : -INFINITY;
    }
    if (op->n[2] > 1) keep_groups(scores, n, (int)op->n[2], (int)op->n[3]);
    for (int i = 0; i < n_used; i++) {
        experts[i] = take_best(scores, n);
        chosen[i] = p[experts[i]];
    }
    if (gating == GATE_SOFTMAX_CHOSEN) softmax_in_place(chosen, n_used);
    for (int i = 0; i < n_used; i++) sum += chosen[i];
    sum = sum > op->f[1] ? sum : op->f[1];
    for (int i = 0; i < n_used; i++) {
        const float weight = (op->n[1] ? chosen[i] / sum : chosen[i]) * op->f[0];
        weights[i] = scales ? weight * scales[experts[i]] : weight;
    }
}

/* ---- sorting -------------------------------------------------------------------------------------------------------------- */

static void group_pairs(const struct op *op, const struct run *run) {
    const int n_used = (int)op->x.width, n_rows = run->counts[op->n[0]];
    int32_t *table = op->table, *entries = table + TABLE_EXPERTS, *pairs = entries + 3 * op->n_experts;
    int32_t place_of[MAX_EXPERTS], counts[MAX_EXPERTS] = {0};
    int n_active = 0, n_places = 0;
    for (int row = 0; row < n_rows; row++) {
        const int32_t *experts = (const int32_t *)op->x.data + row * op->x.stride;
        for (int i = 0; i < n_used; i++) counts[experts[i]]++;
    }
    for (int e = 0; e < op->n_experts; e++) {
        if (!counts[e]) continue;
        int32_t *entry = entries + 3 * n_active++;
        entry[0] = e;
        entry[1] = place_of[e] = n_places;
        entry[2] = counts[e];
        n_places += (counts[e] + IMAGE_GROUP - 1) / IMAGE_GROUP * IMAGE_GROUP;
    }
    for (int i = 0; i < n_places; i++) pairs[i] = -1;
    for (int row = 0; row < n_rows; row++) {
        const int32_t *experts = (const int32_t *)op->x.data + row * op->x.stride;
        for (int i = 0; i < n_used; i++) pairs[place_of[experts[i]]++] = row * n_used + i;
    }
    table[TABLE_ACTIVE] = n_active;
    table[TABLE_PLACES] = n_places;
}

/* Pairs in the group that starts at a place. */
INLINE int group_size(const int32_t *pairs) {
    int n = 0;
    while (n < IMAGE_GROUP && pairs[n] >= 0) n++;
    return n;
}

/* What a pair multiplies: its row of x, or the part of it that belongs to its choice (n[1] elements each; 0: the whole row). */
INLINE const float *pair_input(const struct op *op, int32_t pair, int n_used) {
    return (const float *)op->x.data + pair / n_used * op->x.stride + pair % n_used * op->n[1];
}

/* The image of one group of places. */
static void quantise_pairs(const struct op *op, int group) {
    const int32_t *pairs = table_pairs(op) + group * IMAGE_GROUP;
    const int n = group_size(pairs), n_used = (int)op->n[0];
    const int64_t width = op->n[1] ? op->n[1] : op->x.width;
    uint8_t *image = op->image + (int64_t)group * IMAGE_GROUP * (width / 32) * 64;
    for (int r = 0; r < n; r++) quantise_values(pair_input(op, pairs[r], n_used), width / 32, image, n == 1 ? 1 : IMAGE_GROUP, r);
}

/* ---- products ------------------------------------------------------------------------------------------------------------- */

/* The strip of matrix i that an item reads; NULL beyond the last item. */
INLINE const uint8_t *strip_ahead(const struct op *op, int item, int i) {
    const struct weight *first = op->weight[0];
    if (item >= op->table[TABLE_ACTIVE] * first->n_strips) return NULL;
    const int expert = op->table[TABLE_EXPERTS + 3 * (item / first->n_strips)], strip = item % first->n_strips;
    const int joined = op->code == OP_EXPERT_GATED && !op->weight[1];
    const struct weight *weight = i && !joined ? op->weight[1] : first;
    return weight->data + ((int64_t)(joined ? 2 * expert + i : expert) * weight->n_strips + strip) * weight->strip_bytes;
}

/* One strip of one active expert (OP_EXPERT_GATED, OP_EXPERT_LINEAR) for all its pairs. Item = active expert · strips + strip. */
static void run_expert_strip(const struct op *op, const struct run *run, int item) {
    const struct weight *first = op->weight[0], *second = op->weight[1];
    const int gated = op->code == OP_EXPERT_GATED, joined = gated && !second, strip = item % first->n_strips;
    const int32_t *entry = op->table + TABLE_EXPERTS + 3 * (item / first->n_strips);
    const int expert = entry[0], n_used = (int)op->n[0], column = strip * LANES;
    const int n_columns = first->n_out - column < LANES ? first->n_out - column : LANES;
    const uint8_t *a = weight_strip(first, joined ? 2 * expert : expert, strip), *b = NULL;
    if (gated) b = weight_strip(joined ? first : second, joined ? 2 * expert + 1 : expert, strip);
    /* The next expert's strips lie elsewhere, so what is read ahead are the strips of a later item, not the bytes that follow. */
    const int item_bytes = (int)first->strip_bytes * (1 + gated), later = item + (PREFETCH_AHEAD + item_bytes - 1) / item_bytes;
    const uint8_t *a_ahead = strip_ahead(op, later, 0), *b_ahead = gated ? strip_ahead(op, later, 1) : NULL;
    const int is_shared = shares_image(op, run);
    const int reads_floats = !op->image || is_float_type(first->type) || (second && is_float_type(second->type));
    vf bias[2] = {vf_set(0), vf_set(0)};
    for (int i = 0; i < 2; i++) {
        if (op->p[i]) bias[i] = vf_load_n((const float *)op->p[i] + (int64_t)expert * first->n_out + column, n_columns);
    }
    for (int done = 0; done < entry[2]; done += IMAGE_GROUP) {
        const int place = entry[1] + done, n = entry[2] - done < IMAGE_GROUP ? entry[2] - done : IMAGE_GROUP;
        const int32_t *pairs = table_pairs(op) + place;
        const uint8_t *image = op->image ? op->image + (int64_t)(is_shared ? 0 : place) * (first->n_in / 32) * 64 : NULL;
        const float *x[IMAGE_GROUP] = {NULL};
        for (int r = 0; r < IMAGE_GROUP && reads_floats; r++) x[r] = pair_input(op, pairs[r < n ? r : n - 1], n_used);
        vf y[IMAGE_GROUP], up[IMAGE_GROUP];
        multiply_rows(first, a, done ? NULL : a_ahead, image, x, n, n == 1, y);
        if (gated) multiply_rows(joined ? first : second, b, done ? NULL : b_ahead, image, x, n, n == 1, up);
        for (int r = 0; r < n; r++) {
            float *out = (float *)op->out.data + pairs[r] / n_used * op->out.stride + pairs[r] % n_used * first->n_out + column;
            vf value = vf_add(y[r], bias[0]);
            if (gated) value = activate((int)op->n[2], value, vf_add(up[r], bias[1]));
            if (n_columns == LANES) {
                vf_store(out, value);
            } else {
                vf_store_n(out, value, n_columns);
            }
        }
    }
}

static void weighted_sum_row(const struct op *op, int row) {
    const int64_t n_parts = op->y.width, width = op->out.width;
    const float *x = (const float *)op->x.data + row * op->x.stride, *weights = (const float *)op->y.data + row * op->y.stride;
    float *out = (float *)op->out.data + row * op->out.stride;
    for (int64_t i = 0; i < width; i += LANES) {
        const int n = width - i < LANES ? (int)(width - i) : LANES;
        vf sum = vf_mul(vf_set(weights[0]), vf_load_n(x + i, n));
        for (int64_t part = 1; part < n_parts; part++) sum = vf_fma(vf_set(weights[part]), vf_load_n(x + part * width + i, n), sum);
        vf_store_n(out + i, op->n[0] ? vf_add(vf_load_n(out + i, n), sum) : sum, n);
    }
}
