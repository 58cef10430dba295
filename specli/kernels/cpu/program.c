/* Replays a recorded list of operations: the library's entry points besides loading. */
#include "native.h"

/* The operations of a step run without waiting for each other: row-wise operations of one row range are done row by row, one after
 * the other for the same row; products of the same input are one range of strips. */
enum kind { ROW_WISE, STRIPS, ITEMS };

static enum kind kind_of(const struct op *op) {
    switch (op->code) {
        case OP_LINEAR:
        case OP_GATED: return STRIPS;
        case OP_ATTENTION:
        case OP_QUANTISE_PAIRS:
        case OP_EXPERT_GATED:
        case OP_EXPERT_LINEAR:
        case OP_CAUSAL_CONVOLVE:
        case OP_DELTA_SCAN: return ITEMS;
        default: return ROW_WISE;
    }
}

void attention_plan(const struct op *op, const struct run *run, struct attention_plan *plan) {
    const int rows = run->counts[op->extent], group = (int)(op->n[0] / op->n[1]);
    plan->heads = group < ATTENTION_QUERIES ? group : ATTENTION_QUERIES;
    plan->head_parts = (group + plan->heads - 1) / plan->heads;
    const int across = (int)op->n[1] * plan->head_parts, most = ATTENTION_QUERIES / plan->heads, enough = 4 * run->n_threads;
    int parts = (rows + most - 1) / most; /* of the rows; more where few units would not come out even for the threads */
    while (parts < rows && across * parts < enough && across * parts % run->n_threads) parts++;
    plan->rows = parts ? (rows + parts - 1) / parts : 1;
    plan->units = (rows + plan->rows - 1) / plan->rows * across;
    plan->chunks = 1;
    plan->first_chunk = 0;
    plan->done = (int32_t *)(void *)run->shared;
    plan->partials = (float *)(void *)(run->shared + op->n[3]);
    if (rows > ATTENTION_SPLIT_ROWS || run->n_threads == 1 || plan->units >= enough) return;
    int lowest = INT32_MAX, highest = 0;
    for (int row = 0; row < rows; row++) {
        int first, last;
        visible_cells(op, row, &first, &last);
        lowest = first < lowest ? first : lowest;
        highest = last > highest ? last : highest;
    }
    if (highest <= lowest) return;
    plan->first_chunk = lowest / ATTENTION_CHUNK;
    plan->chunks = (highest + ATTENTION_CHUNK - 1) / ATTENTION_CHUNK - plan->first_chunk;
}

struct replay {
    const struct kernels *kernels;
    struct pool *pool;
    const struct program *program;
    const struct op *step, *next, *end; /* the present step, the one after it, the end of the operations */
    int repeats;                        /* times that the repeated part is still to run, the present time included */
    struct run run;
};

static int n_items(const struct replay *replay, const struct op *step) {
    const int rows = replay->run.counts[step->extent];
    const int64_t head_size = step->k.head_size;
    struct attention_plan plan;
    int strips = 0;
    switch (rows == 0 ? N_CODES : step->code) {
        case OP_LINEAR:
        case OP_GATED:
            for (int i = 0; i < step->step; i++) strips += step[i].weight[0]->n_strips;
            return strips;
        case OP_ATTENTION: attention_plan(step, &replay->run, &plan); return plan.units * plan.chunks;
        case OP_QUANTISE_PAIRS: return shares_image(step, &replay->run) ? 1 : step->table[TABLE_PLACES] / IMAGE_GROUP;
        case OP_EXPERT_GATED:
        case OP_EXPERT_LINEAR: return step->table[TABLE_ACTIVE] * step->weight[0]->n_strips;
        case OP_CAUSAL_CONVOLVE: return (int)((step->out.width + CONVOLVE_CHANNELS - 1) / CONVOLVE_CHANNELS);
        case OP_DELTA_SCAN: return (int)(step->out.width / head_size * ((head_size + SCAN_COLUMNS - 1) / SCAN_COLUMNS));
        default: return rows;
    }
}

/* ---- how much work ------------------------------------------------------------------------------------------------------------ */

/* Rough time of a step in bytes of weights that one thread reads of its cache meanwhile: some 24000 in a microsecond. Sharing a step with
 * another thread costs two microseconds of it: half a microsecond to hand it over and hear of its end, and the rows that one thread
 * wrote and another reads. Threads that sleep are woken for half a millisecond of work: waking one takes ten, of which the caller pays
 * half, and a shorter program gains little from it (plain steps of the demo models 6 %, rounds with drafts are 6 to 10 % slower). */
#define DEAL_WORK 90000
#define WAKE_WORK 12000000

static int64_t work_of(const struct replay *replay, const struct op *step) {
    const int64_t rows = replay->run.counts[step->extent];
    int64_t work = 0;
    int first, last;
    if (rows == 0) return 0;
    switch (step->code) {
        case OP_LINEAR:
        case OP_GATED:
            for (int i = 0; i < step->step; i++) {
                for (int j = 0; j < 2 && step[i].weight[j]; j++) work += step[i].weight[j]->n_strips * step[i].weight[j]->strip_bytes;
            }
            return work * (7 + rows) / 8;
        case OP_ATTENTION:
            visible_cells(step, (int)rows - 1, &first, &last);
            return (last - first) * (step->k.head_size + step->v.head_size) * (4 * step->n[1] + rows * step->n[0]);
        case OP_QUANTISE_PAIRS:
        case OP_EXPERT_GATED:
        case OP_EXPERT_LINEAR:
        case OP_CAUSAL_CONVOLVE:
        case OP_DELTA_SCAN: return WAKE_WORK;
        default:
            for (int i = 0; i < step->step; i++) work += 16 * (step[i].out.width > step[i].x.width ? step[i].out.width : step[i].x.width);
            return work * rows;
    }
}

static int is_worth_waking(const struct replay *replay) {
    const struct op *from = replay->program->ops + replay->program->repeat_from, *to = replay->program->ops + replay->program->repeat_to;
    int64_t work = 0;
    for (const struct op *step = replay->next; step < replay->end && work < WAKE_WORK; step += step->step) {
        work += work_of(replay, step) * (step >= from && step < to ? replay->repeats : 1);
    }
    return work >= WAKE_WORK;
}

/* ---- running ------------------------------------------------------------------------------------------------------------------- */

static void run_items(void *argument, int thread, int first, int last) {
    const struct replay *replay = argument;
    const struct kernels *kernels = replay->kernels;
    const struct op *step = replay->step;
    if (kind_of(step) == ROW_WISE) {
        for (int row = first; row < last; row++) {
            for (int i = 0; i < step->step; i++) kernels->row(step + i, &replay->run, row);
        }
    } else if (kind_of(step) == ITEMS) {
        for (int item = first; item < last; item++) kernels->item(step, &replay->run, item, pool_scratch(replay->pool, thread));
    } else {
        for (int i = 0, base = 0; i < step->step && base < last; base += step[i].weight[0]->n_strips, i++) {
            const int from = first > base ? first - base : 0, to = last - base, n = step[i].weight[0]->n_strips;
            if (from < n) kernels->strips(step + i, &replay->run, from, to < n ? to : n);
        }
    }
}

/* Moves `next` to where the program goes on at `op`: back at the end of the repeated part while it is to run again, past it when it is
 * not to run at all. */
static void go_on(struct replay *replay, const struct op *op) {
    const struct program *program = replay->program;
    const struct op *from = program->ops + program->repeat_from, *to = program->ops + program->repeat_to;
    if (op == to && replay->repeats > 0 && --replay->repeats > 0) op = from;
    replay->next = op == from && replay->repeats == 0 ? to : op;
}

/* Runs the steps that are too small to be shared, up to one that is not. */
static int next_step(void *argument, int thread) {
    struct replay *replay = argument;
    for (replay->step = replay->next; replay->step < replay->end; replay->step = replay->next) {
        const int n = n_items(replay, replay->step);
        go_on(replay, replay->step + replay->step->step);
        if (n > 1 && replay->run.n_threads > 1 && work_of(replay, replay->step) >= DEAL_WORK) return n;
        run_items(replay, thread, 0, n);
    }
    return 0;
}

EXPORT void program_run(const struct kernels *kernels, struct pool *pool, const struct program *program, int tokens, int outputs, int sequences, int steps, int n_threads) {
    const struct op *ops = program->ops;
    struct replay replay = {kernels, pool, program, ops, ops, ops + program->n_ops, steps, {{tokens, outputs, sequences, 1}, n_threads, program->shared}};
    go_on(&replay, ops);
    if (replay.run.n_threads > 1 && pool_sleeps(pool) && !is_worth_waking(&replay)) replay.run.n_threads = 1;
    pool_run(pool, replay.run.n_threads, &(struct job){next_step, run_items, &replay});
}

#if defined(__aarch64__)
#if defined(__linux__)
#include <sys/auxv.h>
static int has_dot_product(void) { return getauxval(AT_HWCAP) >> 20 & 1; /* HWCAP_ASIMDDP */ }
#else
static int has_dot_product(void) { return 1; /* every Apple processor that runs this */ }
#endif
#endif

#if defined(__x86_64__)
#include <cpuid.h>
/* Compilers of some years ago do not know it by name. */
static int has_avx_vnni(void) {
#if defined(VNNI_OF_AVX512)
    return __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni");
#else
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 1, &a, &b, &c, &d) && a >> 4 & 1;
#endif
}
#endif

/* ---- instruction sets ------------------------------------------------------------------------------------------------------- */

/* Kernel table number i, best first, or NULL at the end; *usable says whether this processor runs it. */
EXPORT const struct kernels *kernels_at(int i, int *usable) {
#if defined(__x86_64__)
    static const struct kernels *const all[] = {&kernels_avx512vnni, &kernels_avxvnni, &kernels_avx512bw, &kernels_avx2, &kernels_portable};
    __builtin_cpu_init();
    const int avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
    const int avx512 = avx2 && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    const int ok[] = {avx512 && __builtin_cpu_supports("avx512vnni"), avx2 && has_avx_vnni(), avx512, avx2, 1};
#elif defined(__aarch64__)
    static const struct kernels *const all[] = {&kernels_neon, &kernels_portable};
    const int ok[] = {has_dot_product(), 1};
#else
    static const struct kernels *const all[] = {&kernels_portable};
    const int ok[] = {1};
#endif
    if (i >= (int)(sizeof all / sizeof *all)) return NULL;
    *usable = ok[i];
    return all[i];
}

EXPORT const char *kernels_name(const struct kernels *kernels) { return kernels->name; }
EXPORT const char *kernels_key(const struct kernels *kernels) { return kernels->key; }
