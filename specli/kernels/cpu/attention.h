/* Softmax attention over one cache layer.
 *
 * Cells are handled in tiles of 16 and chunks of ATTENTION_CHUNK, both aligned to absolute positions. A chunk gives each query
 * a maximum, a sum of exponentials and a weighted sum of values; chunks are merged in order of position. Which queries share a
 * loaded tile, and which thread computes which chunk, changes no bit.
 */
#include "native.h"
#include "simd.h"

#define TILE 16
#if defined(SIMD_AVX512)
#define WEIGHED_TOGETHER 4 /* queries: 32 registers hold four sums of each */
#else
#define WEIGHED_TOGETHER 1
#endif

INLINE int padded(int n) { return (n + LANES - 1) / LANES * LANES; }

/* ---- reading cells --------------------------------------------------------------------------------------------------- */

INLINE float half_at(const uint8_t *p) {
    uint16_t h[LANES] = {0};
    float out[LANES];
    memcpy(h, p, 2);
    vf_store(out, vf_f16(h));
    return out[0];
}

/* 32 codes of a four- or five-bit block: nibbles at `nibbles`, fifth bits in `high` (0 when there are none). */
INLINE void unpack_codes(const uint8_t *nibbles, uint32_t high, uint8_t codes[32]) {
    for (int i = 0; i < 16; i++) {
        codes[i] = (uint8_t)((nibbles[i] & 15) | (high >> i & 1) << 4);
        codes[i + 16] = (uint8_t)(nibbles[i] >> 4 | (high >> (i + 16) & 1) << 4);
    }
}

INLINE void read_block(int type, const uint8_t *block, float *out) {
    const float d = half_at(block);
    uint8_t codes[32];
    uint32_t high = 0;
    float minimum = 0;
    switch (type) {
        case Q8_0:
            for (int i = 0; i < 32; i += LANES) vf_store(out + i, vf_mul(vf_set(d), vf_i8((const int8_t *)block + 2 + i)));
            return;
        case IQ4_NL: {
            static const int8_t table[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
            int8_t values[32];
            unpack_codes(block + 2, 0, codes);
            for (int i = 0; i < 32; i++) values[i] = table[codes[i]];
            for (int i = 0; i < 32; i += LANES) vf_store(out + i, vf_mul(vf_set(d), vf_i8(values + i)));
            return;
        }
        case Q4_0:
        case Q5_0: {
            if (type == Q5_0) memcpy(&high, block + 2, 4);
            unpack_codes(block + (type == Q5_0 ? 6 : 2), high, codes);
            const vf offset = vf_set(type == Q5_0 ? 16.0f : 8.0f);
            for (int i = 0; i < 32; i += LANES) vf_store(out + i, vf_mul(vf_set(d), vf_sub(vf_u8(codes + i), offset)));
            return;
        }
        default: /* Q4_1, Q5_1 */
            minimum = half_at(block + 2);
            if (type == Q5_1) memcpy(&high, block + 4, 4);
            unpack_codes(block + (type == Q5_1 ? 8 : 4), high, codes);
            for (int i = 0; i < 32; i += LANES) vf_store(out + i, vf_add(vf_mul(vf_set(d), vf_u8(codes + i)), vf_set(minimum)));
            return;
    }
}

/* One cell's row as padded(n) floats, zero beyond n. */
INLINE void read_row(int type, const uint8_t *row, int n, float *out) {
    if (!is_float_type(type)) {
        for (int i = 0; i < n; i += 32) read_block(type, row + i / 32 * formats[type].gguf_bytes, out + i);
        return;
    }
    const int size = type == F32 ? 4 : 2;
    for (int i = 0; i < n; i += LANES) {
        uint8_t tail[4 * LANES] = {0};
        const uint8_t *p = row + i * size;
        if (n - i < LANES) p = memcpy(tail, p, (size_t)((n - i) * size));
        const uint16_t *halves = (const uint16_t *)(const void *)p;
        vf_store(out + i, type == F32 ? vf_load((const float *)(const void *)p) : type == F16 ? vf_f16(halves) : vf_bf16(halves));
    }
}

typedef void read_function(const uint8_t *row, int n, float *out);
#define CACHE_TYPES(X) X(F32) X(F16) X(BF16) X(Q8_0) X(Q4_0) X(Q4_1) X(IQ4_NL) X(Q5_0) X(Q5_1)
#define READ_FUNCTION(T) \
    static void read_##T(const uint8_t *row, int n, float *out) { read_row(T, row, n, out); }
CACHE_TYPES(READ_FUNCTION)
#define READ_ENTRY(T) [T] = read_##T,
static read_function *const read_functions[N_TYPES] = {CACHE_TYPES(READ_ENTRY)};

/* ---- one chunk --------------------------------------------------------------------------------------------------------- */

/* The queries of an item that read the same slot and key/value head, and where their intermediate results lie. */
struct queries {
    int n, size_k, size_v; /* head sizes padded to whole vectors */
    int first[ATTENTION_QUERIES], last[ATTENTION_QUERIES]; /* visible cells first … last-1 */
    int lowest, highest;                                   /* of all queries */
    int in_order;                                          /* positions from here on are in the cells of `path` */
    const int32_t *path;
    float *q;                                              /* [n][size_k] */
    float *tile;                                           /* [16][size] cells as read */
    float *keys;                                           /* [size_k][16] the tile turned round */
    float *scores;                                         /* [n][ATTENTION_CHUNK] */
    float *partial;                                        /* [n][size_v + 2]: values, maximum, sum */
};

_Static_assert(sizeof(float) * ((2 * TILE + 3 * ATTENTION_QUERIES) * MAX_HEAD_SIZE + ATTENTION_QUERIES * ATTENTION_CHUNK) + 1024 <= SCRATCH_BYTES,
               "the intermediate results of the largest heads fit into a thread's scratch");

/* scores[0 … Q-1][tile] for Q queries. */
INLINE void score_queries(const struct op *op, const struct queries *s, const int Q, int query, int base, int column) {
    vf even[4], odd[4];
    const float *q[4], *keys = s->keys;
    const int64_t size = s->size_k;
UNROLL(4)
    for (int i = 0; i < Q; i++) {
        q[i] = s->q + (query + i) * size;
        even[i] = odd[i] = vf_set(0);
    }
UNROLL(1)
    for (int64_t d = 0; d < size; d += 2) {
        const vf k0 = vf_load(keys + d * TILE), k1 = vf_load(keys + (d + 1) * TILE);
UNROLL(4)
        for (int i = 0; i < Q; i++) {
            even[i] = vf_fma(k0, vf_set(q[i][d]), even[i]);
            odd[i] = vf_fma(k1, vf_set(q[i][d + 1]), odd[i]);
        }
    }
UNROLL(4)
    for (int i = 0; i < Q; i++) {
        vf score = vf_mul(vf_add(even[i], odd[i]), vf_set(op->f[0]));
        if (op->f[1] > 0) score = vf_mul(vf_set(op->f[1]), vf_tanh(vf_div(score, vf_set(op->f[1]))));
        int first = s->first[query + i] - base, last = s->last[query + i] - base;
        first = first < 0 ? 0 : first > TILE ? TILE : first;
        last = last < first ? first : last > TILE ? TILE : last;
        vf_store(s->scores + (query + i) * ATTENTION_CHUNK + column, vf_keep_lanes(score, vf_set(-INFINITY), first, last));
    }
}

/* acc[q][0 … 16·V-1] += Σ_j p[q][j] · values[j] for Q queries, V vectors of it; a query's acc lies size + 2 floats behind the one
 * before it. Each value is loaded once for all of them, and Q·V sums keep both multipliers busy. */
INLINE void weigh_vectors(const int Q, const int V, float *acc, const float *p, const float *values, int size, int first, int last) {
    vf sum[4][8];
UNROLL(4)
    for (int q = 0; q < Q; q++) {
UNROLL(8)
        for (int v = 0; v < V; v++) sum[q][v] = vf_load(acc + (int64_t)q * (size + 2) + v * LANES);
    }
UNROLL(1)
    for (int j = first; j < last; j++) {
        vf weight[4];
UNROLL(4)
        for (int q = 0; q < Q; q++) weight[q] = vf_set(p[q * ATTENTION_CHUNK + j]);
UNROLL(8)
        for (int v = 0; v < V; v++) {
            const vf value = vf_load(values + (int64_t)j * size + v * LANES);
UNROLL(4)
            for (int q = 0; q < Q; q++) sum[q][v] = vf_fma(weight[q], value, sum[q][v]);
        }
    }
UNROLL(4)
    for (int q = 0; q < Q; q++) {
UNROLL(8)
        for (int v = 0; v < V; v++) vf_store(acc + (int64_t)q * (size + 2) + v * LANES, sum[q][v]);
    }
}

/* The same over the whole width. */
INLINE void weigh_values(const int Q, float *acc, const float *p, const float *values, int size, int first, int last) {
    int d = 0;
    if (Q == 1) {
        for (; d + 8 * LANES <= size; d += 8 * LANES) weigh_vectors(Q, 8, acc + d, p, values + d, size, first, last);
    }
    for (; d + 4 * LANES <= size; d += 4 * LANES) weigh_vectors(Q, 4, acc + d, p, values + d, size, first, last);
    for (; d < size; d += LANES) weigh_vectors(Q, 1, acc + d, p, values + d, size, first, last);
}

/* Which of the n cells from `base` on a query sees: first … last-1 of them. */
INLINE void visible_of_tile(const struct queries *s, int query, int base, int n, int *first, int *last) {
    *first = s->first[query] > base ? s->first[query] - base : 0;
    *last = s->last[query] - base < n ? s->last[query] - base : n;
}

/* The cell that belongs to a position. */
INLINE int64_t cell_of(const struct queries *s, int position) {
    return position < s->in_order ? position : s->path[position - s->in_order];
}

static void attend_chunk(const struct op *op, struct queries *s, const uint8_t *k, const uint8_t *v, int chunk) {
    const int start = chunk * ATTENTION_CHUNK;
    const int from = s->lowest > start ? s->lowest : start;
    const int to = s->highest < start + ATTENTION_CHUNK ? s->highest : start + ATTENTION_CHUNK;
    const int first_tile = (from - start) / TILE, last_tile = to > from ? (to - start + TILE - 1) / TILE : first_tile;

    /* By itself the processor looks no further than a page, and values are read long after keys. */
    prefetch(k + from * op->k.row_bytes, (to - from) * op->k.row_bytes);
    prefetch(v + from * op->v.row_bytes, (to - from) * op->v.row_bytes);

    for (int t = first_tile; t < last_tile; t++) {
        const int base = start + t * TILE, n = to - base < TILE ? to - base : TILE;
        for (int j = 0; j < n; j++) {
            read_functions[op->k.type](k + cell_of(s, base + j) * op->k.row_bytes, op->k.head_size, s->tile + (int64_t)j * s->size_k);
        }
        for (int d = 0; d < s->size_k; d += LANES) {
            vf r[LANES];
            for (int j = 0; j < TILE; j++) r[j] = j < n ? vf_load(s->tile + (int64_t)j * s->size_k + d) : vf_set(0);
            vf_transpose(r);
            for (int j = 0; j < LANES; j++) vf_store(s->keys + (d + j) * TILE, r[j]);
        }
        int query = 0;
        for (; query + 4 <= s->n; query += 4) score_queries(op, s, 4, query, base, t * TILE);
        if (s->n - query == 3) {
            score_queries(op, s, 3, query, base, t * TILE);
        } else {
            for (; query < s->n; query++) score_queries(op, s, 1, query, base, t * TILE);
        }
    }
    for (int query = 0; query < s->n; query++) {
        float *p = s->scores + query * ATTENTION_CHUNK, *partial = s->partial + (int64_t)query * (s->size_v + 2);
        vf most = vf_set(-INFINITY), sum = vf_set(0);
        for (int t = first_tile; t < last_tile; t++) most = vf_max(most, vf_load(p + t * TILE));
        const float maximum = vf_max_lane(most);
        memset(partial, 0, (size_t)(s->size_v + 2) * sizeof *partial);
        if (maximum == -INFINITY) continue;
        for (int t = first_tile; t < last_tile; t++) {
            const vf e = vf_exp(vf_sub(vf_load(p + t * TILE), vf_set(maximum)));
            vf_store(p + t * TILE, e);
            sum = vf_add(sum, e);
        }
        partial[s->size_v] = maximum;
        partial[s->size_v + 1] = vf_sum(sum);
    }
    for (int t = first_tile; t < last_tile; t++) {
        const int base = start + t * TILE, n = to - base < TILE ? to - base : TILE;
        for (int j = 0; j < n; j++) {
            read_functions[op->v.type](v + cell_of(s, base + j) * op->v.row_bytes, op->v.head_size, s->tile + (int64_t)j * s->size_v);
        }
        for (int query = 0, together; query < s->n; query += together) {
            float *acc = s->partial + (int64_t)query * (s->size_v + 2);
            const float *p = s->scores + query * ATTENTION_CHUNK + t * TILE;
            int first, last;
            visible_of_tile(s, query, base, n, &first, &last);
            for (together = 1; together < WEIGHED_TOGETHER && query + together < s->n; together++) {
                int other_first, other_last;
                visible_of_tile(s, query + together, base, n, &other_first, &other_last);
                if (other_first != first || other_last != last) break;
            }
            switch (together) {
                case 4: weigh_values(4, acc, p, s->tile, s->size_v, first, last); break;
                case 3: weigh_values(3, acc, p, s->tile, s->size_v, first, last); break;
                case 2: weigh_values(2, acc, p, s->tile, s->size_v, first, last); break;
                default: weigh_values(1, acc, p, s->tile, s->size_v, first, last);
            }
        }
    }
}

/* total ← total merged with the next chunk; both [size_v + 2] (values, maximum, sum). */
static void merge(float *total, const float *next, int size_v) {
    if (next[size_v + 1] == 0) return;
    if (total[size_v + 1] == 0) {
        memcpy(total, next, (size_t)(size_v + 2) * sizeof *total);
        return;
    }
    const float most = total[size_v] > next[size_v] ? total[size_v] : next[size_v];
    const float a = exp_one(total[size_v] - most), b = exp_one(next[size_v] - most);
    for (int d = 0; d < size_v; d += LANES) {
        vf_store(total + d, vf_fma(vf_load(total + d), vf_set(a), vf_mul(vf_load(next + d), vf_set(b))));
    }
    total[size_v] = most;
    total[size_v + 1] = total[size_v + 1] * a + next[size_v + 1] * b;
}

/* out = values / sum, the sink having joined the sum. A row that sees no cell gives zeros. */
static void finish(const struct op *op, float *total, int row, int head, int size_v) {
    float *out = (float *)op->out.data + row * op->out.stride + (int64_t)head * op->v.head_size;
    float factor = 1, sum = total[size_v + 1];
    if (op->p[0]) {
        const float sink = ((const float *)op->p[0])[head];
        const float most = sum > 0 && total[size_v] > sink ? total[size_v] : sink;
        factor = sum > 0 ? exp_one(total[size_v] - most) : 0;
        sum = sum * factor + exp_one(sink - most);
    }
    const vf scale = vf_set(sum > 0 ? factor / sum : 0);
    for (int d = 0; d < op->v.head_size; d += LANES) {
        const int n = op->v.head_size - d;
        const vf value = vf_mul(vf_load(total + d), scale);
        if (n >= LANES) {
            vf_store(out + d, value);
        } else {
            vf_store_n(out + d, value, n);
        }
    }
}

/* ---- items --------------------------------------------------------------------------------------------------------------- */

static void run_attention(const struct op *op, const struct run *run, int item, float *scratch) {
    struct attention_plan plan;
    attention_plan(op, run, &plan);
    const int chunk = item % plan.chunks, unit = item / plan.chunks;
    const int head_part = unit % plan.head_parts, kv_head = unit / plan.head_parts % (int)op->n[1];
    const int first_row = unit / plan.head_parts / (int)op->n[1] * plan.rows;
    const int last_row = first_row + plan.rows < run->counts[op->extent] ? first_row + plan.rows : run->counts[op->extent];
    const int group = (int)(op->n[0] / op->n[1]);
    const int first_head = kv_head * group + head_part * plan.heads;
    const int last_head = first_head + plan.heads < (kv_head + 1) * group ? first_head + plan.heads : (kv_head + 1) * group;

    struct queries s = {.size_k = padded(op->k.head_size), .size_v = padded(op->v.head_size)};
    const int size = s.size_k > s.size_v ? s.size_k : s.size_v, partial_size = s.size_v + 2;
    s.keys = scratch; /* first: tiles are read by whole vectors */
    s.tile = s.keys + (int64_t)s.size_k * TILE;
    s.scores = s.tile + (int64_t)size * TILE;
    s.q = s.scores + ATTENTION_QUERIES * ATTENTION_CHUNK;
    s.partial = s.q + (int64_t)ATTENTION_QUERIES * s.size_k;
    float *total = s.partial + (int64_t)ATTENTION_QUERIES * partial_size;

    for (int row = first_row, next; row < last_row; row = next) {
        const int slot = row_int(&op->z, row);
        s.n = 0;
        s.in_order = INT32_MAX;
        for (next = row; next < last_row && row_int(&op->z, next) == slot && s.in_order == INT32_MAX; next++) {
            int first, last;
            visible_cells(op, next, &first, &last);
            if (op->a.data && row_int(&op->a, next) < last) { /* the branch of a tree: by itself */
                if (next > row) break;
                s.in_order = row_int(&op->a, next);
                s.path = (const int32_t *)op->a.data + next * op->a.stride + 1;
            }
            s.lowest = s.n == 0 || first < s.lowest ? first : s.lowest;
            s.highest = s.n == 0 || last > s.highest ? last : s.highest;
            for (int head = first_head; head < last_head; head++, s.n++) {
                const float *q = (const float *)op->x.data + next * op->x.stride + (int64_t)head * op->k.head_size;
                float *copy = s.q + (int64_t)s.n * s.size_k;
                memcpy(copy, q, (size_t)op->k.head_size * sizeof *q);
                memset(copy + op->k.head_size, 0, (size_t)(s.size_k - op->k.head_size) * sizeof *q);
                s.first[s.n] = first;
                s.last[s.n] = last;
            }
        }
        const uint8_t *k = op->k.data + slot * op->k.slot_bytes + kv_head * op->k.head_bytes;
        const uint8_t *v = op->v.data + slot * op->v.slot_bytes + kv_head * op->v.head_bytes;
        const int heads = last_head - first_head;
        if (plan.chunks == 1) {
            memset(total, 0, (size_t)s.n * (size_t)partial_size * sizeof *total);
            for (int c = s.lowest / ATTENTION_CHUNK; c * ATTENTION_CHUNK < s.highest; c++) {
                attend_chunk(op, &s, k, v, c);
                for (int i = 0; i < s.n; i++) merge(total + (int64_t)i * partial_size, s.partial + (int64_t)i * partial_size, s.size_v);
            }
            for (int i = 0; i < s.n; i++) finish(op, total + (int64_t)i * partial_size, row + i / heads, first_head + i % heads, s.size_v);
            continue;
        }
        attend_chunk(op, &s, k, v, plan.first_chunk + chunk);
        for (int i = 0; i < s.n; i++) {
            const int64_t index = ((int64_t)(row + i / heads) * op->n[0] + first_head + i % heads) * plan.chunks + chunk;
            memcpy(plan.partials + index * partial_size, s.partial + (int64_t)i * partial_size, (size_t)partial_size * sizeof(float));
        }
    }
    /* Split over chunks: whoever delivers a unit's last chunk merges them all, in order. */
    if (plan.chunks > 1 && __atomic_add_fetch(&plan.done[unit], 1, __ATOMIC_ACQ_REL) == plan.chunks) {
        plan.done[unit] = 0;
        for (int row = first_row; row < last_row; row++) {
            for (int head = first_head; head < last_head; head++) {
                float *partials = plan.partials + ((int64_t)row * op->n[0] + head) * plan.chunks * partial_size;
                for (int c = 1; c < plan.chunks; c++) merge(partials, partials + (int64_t)c * partial_size, s.size_v);
                finish(op, partials, row, head, s.size_v);
            }
        }
    }
}
