/* The usual sampler chain on one row of logits: the k largest, then cuts of that short list, and a draw.
 *
 * Arithmetic as in specli/sampling/candidates.py, which is the definition: float32 in list order, one rounding per step; exponentials
 * in double, rounded once.
 */
#include <math.h>

#include "native.h"

#define BLOCK 64 /* compared at once, and, if anything is found, in parts */
#define PART 16

enum { NOT_NUMBERS = -1 };

struct candidate {
    int32_t place;
    float logit;
};

/* The order of lists: descending, equal logits by place. */
static int precedes(struct candidate a, struct candidate b) { return a.logit > b.logit || (a.logit == b.logit && a.place < b.place); }

/* Inserts into an ordered list of at most k; what is not among the k first falls off. */
static void insert(struct candidate *list, int *n, int k, struct candidate new) {
    if (*n == k && !precedes(new, list[k - 1])) return;
    int at = *n < k ? (*n)++ : k - 1;
    for (; at > 0 && precedes(new, list[at - 1]); at--) list[at] = list[at - 1];
    list[at] = new;
}

/* Moves what stands at the root of a heap, whose last one by order is its root, to where it belongs. */
static void sink(struct candidate *heap, int n, int at) {
    for (int child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && precedes(heap[child], heap[child + 1])) child++;
        if (!precedes(heap[at], heap[child])) return;
        const struct candidate up = heap[child];
        heap[child] = heap[at];
        heap[at] = up;
    }
}

/* Whether any of n values is above `least`, or not a number. */
static inline __attribute__((always_inline)) int any_above(const float *values, int n, float least) {
    int found = 0;
    for (int i = 0; i < n; i++) found |= !(values[i] <= least);
    return found;
}

/* The k largest of a row, in order. Blocks without anything above the least of the best so far, nearly all, are only compared. */
static int find_largest(const float *row, int n_row, int k, struct candidate *list) {
    struct candidate heap[MAX_CANDIDATES];
    for (int i = 0; i < k; i++) {
        if (row[i] != row[i]) return NOT_NUMBERS;
        heap[i] = (struct candidate){i, row[i]};
    }
    for (int i = k / 2 - 1; i >= 0; i--) sink(heap, k, i);
    for (int start = k, size; start < n_row; start += size) {
        size = n_row - start < BLOCK ? n_row - start : BLOCK;
        if (size == BLOCK && !any_above(row + start, BLOCK, heap[0].logit)) continue;
        for (int part = start; part < start + size; part += PART) {
            if (part + PART <= n_row && !any_above(row + part, PART, heap[0].logit)) continue;
            for (int i = part; i < part + PART && i < n_row; i++) {
                if (row[i] != row[i]) return NOT_NUMBERS;
                if (row[i] <= heap[0].logit) continue; /* equals come behind those before them */
                heap[0] = (struct candidate){i, row[i]};
                sink(heap, k, 0);
            }
        }
    }
    for (int i = 0, n = 0; i < k; i++) insert(list, &n, k, heap[i]);
    return 0;
}

/* Of a row with changes: the best without them, so many that those changed may drop out, then these with their new logits. */
static int find_changed(const float *row, int n_row, int k, const struct chain *chain, struct candidate *list) {
    const int most = k + chain->n_changed < n_row ? k + chain->n_changed : n_row;
    if (find_largest(row, n_row, most, list)) return NOT_NUMBERS;
    int n = 0;
    for (int i = 0; i < most && n < k; i++) {
        int is_changed = 0;
        for (int j = 0; j < chain->n_changed; j++) is_changed |= chain->changed[j] == list[i].place;
        list[n] = list[i];
        n += !is_changed;
    }
    for (int j = 0; j < chain->n_changed; j++) {
        if (chain->changes[j] != chain->changes[j]) return NOT_NUMBERS;
        insert(list, &n, k, (struct candidate){chain->changed[j], chain->changes[j]});
    }
    return 0;
}

static float exponential(float x) { return (float)exp((double)x); }

static int cut_top_p(const float *logits, int n, float p, int least) {
    float weights[MAX_CANDIDATES], total = 0, sum = 0;
    for (int i = 0; i < n; i++) total += weights[i] = exponential(logits[i] - logits[0]);
    int reached = 0;
    while (reached < n && (sum += weights[reached] / total) < p) reached++;
    reached = reached + 1 > least ? reached + 1 : least;
    return reached < n ? reached : n;
}

static int cut_min_p(const float *logits, int n, float log_p, int least) {
    int kept = 0;
    while (kept < n && logits[kept] >= logits[0] + log_p) kept++;
    least = least < n ? least : n;
    kept = kept > least ? kept : least;
    return kept > 1 ? kept : 1;
}

/* The place of the candidate drawn with `random`, uniform in [0, 1), in the list left; negative: an error. */
EXPORT int chain_sample(struct chain *chain, const float *row, int n_row, double random) {
    struct candidate list[MAX_CANDIDATES];
    int n = chain->links[0].n < n_row ? chain->links[0].n : n_row;
    if (chain->n_changed ? find_changed(row, n_row, n, chain, list) : find_largest(row, n_row, n, list)) return NOT_NUMBERS;
    float *logits = chain->logits;
    for (int i = 0; i < n; i++) {
        chain->places[i] = list[i].place;
        logits[i] = list[i].logit;
    }
    for (int i = 1; i < chain->n_links; i++) {
        const struct link *link = chain->links + i;
        switch (link->code) {
            case LINK_TOP_K: n = link->n < n ? link->n : n; break;
            case LINK_TOP_P: n = cut_top_p(logits, n, link->value, link->n); break;
            case LINK_MIN_P: n = cut_min_p(logits, n, link->value, link->n); break;
            default:
                for (int j = 0; j < n; j++) logits[j] /= link->value;
                break;
        }
    }
    chain->n = n;
    if (n == 1) {
        chain->probabilities[0] = 1;
        return 0;
    }
    double cumulative[MAX_CANDIDATES], total = 0;
    for (int i = 0; i < n; i++) {
        chain->probabilities[i] = exponential(logits[i] - logits[0]);
        total = cumulative[i] = total + (double)chain->probabilities[i];
    }
    int place = 0;
    while (place < n - 1 && cumulative[place] < total * random) place++;
    for (int i = 0; i < n; i++) chain->probabilities[i] = (float)((double)chain->probabilities[i] / total);
    return place;
}
