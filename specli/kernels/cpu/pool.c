/* A persistent team of threads for many very short steps.
 *
 * Waiting is a bounded spin, then sleep on a condition variable: at --poll 50, 4000 pauses for the next job, so that workers are
 * awake when the caller comes back, but 500 for the others inside a job: they are never that far behind unless another process
 * has their processor, and then spinning only uses up the time slice that the rest of the job needs. (SmolLM2 step with 2 threads
 * on 2 processors shared with 5 busy processes: 58 ms with 4000 pauses and yields, 36 ms without yields, 21 ms with 500 pauses;
 * a yield gives away a whole slice.)
 *
 * Handing out work: each thread has its own range of items and helps itself to others' ranges when its own is empty.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "native.h"

#define MAX_THREADS 255
#define MAX_CPUS 1024
#define MAX_GRAIN 16 /* strips of one weight: some microseconds of imbalance at the end of a step */
#define JOB_SPINS_PER_POLL 80
#define STEP_SPINS_PER_POLL 10

struct share {
    _Alignas(64) atomic_int next;
    int end;
};

struct pool {
    _Alignas(64) atomic_uint job; /* sequence number · 256 + threads of the job */
    _Alignas(64) atomic_uint arrived, generation;
    _Alignas(64) atomic_int sleepers;
    int grain;
    struct share shares[MAX_THREADS];
    void (*work)(void *argument, int thread);
    void *argument;
    pthread_mutex_t caller, sleep; /* caller: one job at a time; sleep guards the condition */
    pthread_cond_t wake;
    int n_threads, poll, strict, priority, n_cpus;
    atomic_int stop;
    uint8_t cpu_mask[MAX_CPUS];
    float *scratch;
    pthread_t threads[MAX_THREADS];
};

struct start {
    struct pool *pool;
    int thread;
};

static inline void pause_briefly(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb");
#endif
}

static unsigned wait_for_change(struct pool *pool, atomic_uint *word, unsigned seen, int spins) {
    unsigned now;
    for (int i = 0; i < spins; i++) {
        if ((now = atomic_load_explicit(word, memory_order_acquire)) != seen) return now;
        pause_briefly();
    }
    pthread_mutex_lock(&pool->sleep);
    atomic_fetch_add(&pool->sleepers, 1); /* before the last look: whoever changes the word then sees a sleeper */
    while ((now = atomic_load(word)) == seen) pthread_cond_wait(&pool->wake, &pool->sleep);
    atomic_fetch_sub(&pool->sleepers, 1);
    pthread_mutex_unlock(&pool->sleep);
    return now;
}

static void change(struct pool *pool, atomic_uint *word, unsigned value) {
    atomic_store(word, value);
    if (atomic_load(&pool->sleepers)) {
        pthread_mutex_lock(&pool->sleep);
        pthread_cond_broadcast(&pool->wake);
        pthread_mutex_unlock(&pool->sleep);
    }
}

/* Thread t of a strict pool gets the t-th allowed CPU, otherwise every thread may use all of them. Best effort, as upstream. */
static void place(const struct pool *pool, int thread) {
#if defined(__linux__)
    cpu_set_t set;
    CPU_ZERO(&set);
    int allowed = 0;
    for (int cpu = 0; cpu < pool->n_cpus; cpu++) allowed += pool->cpu_mask[cpu];
    for (int cpu = 0, seen = 0; cpu < pool->n_cpus; cpu++) {
        if (pool->cpu_mask[cpu] && (!pool->strict || seen++ == thread % allowed)) CPU_SET(cpu, &set);
    }
    if (allowed) pthread_setaffinity_np(pthread_self(), sizeof set, &set);
    if (pool->priority) {
        static const int levels[] = {0, 0, 40, 80, 90}; /* priority -1 … 3 */
        struct sched_param param = {.sched_priority = levels[pool->priority + 1]};
        pthread_setschedparam(pthread_self(), pool->priority < 0 ? SCHED_BATCH : SCHED_FIFO, &param);
    }
#else
    (void)pool;
    (void)thread;
#endif
}

static void *work_forever(void *argument) {
    struct start *start = argument;
    struct pool *pool = start->pool;
    const unsigned thread = (unsigned)start->thread;
    free(start);
    place(pool, (int)thread);
    for (unsigned seen = 0;;) {
        seen = wait_for_change(pool, &pool->job, seen, pool->poll * JOB_SPINS_PER_POLL);
        if (atomic_load(&pool->stop)) return NULL;
        const unsigned n_threads = seen % 256;
        if (thread >= n_threads) continue;
        pool->work(pool->argument, (int)thread);
        pool_barrier(pool, (int)n_threads, NULL, NULL);
    }
}

EXPORT struct pool *pool_new(int n_threads, const uint8_t *cpu_mask, int n_cpus, int strict, int poll, int priority) {
    struct pool *pool = aligned_alloc(64, sizeof(struct pool));
    if (!pool) return NULL;
    memset(pool, 0, sizeof *pool);
    pool->poll = poll;
    pool->strict = strict;
    pool->priority = priority;
    pool->n_cpus = n_cpus < MAX_CPUS ? n_cpus : MAX_CPUS;
    memcpy(pool->cpu_mask, cpu_mask, (size_t)pool->n_cpus);
    pthread_mutex_init(&pool->caller, NULL);
    pthread_mutex_init(&pool->sleep, NULL);
    pthread_cond_init(&pool->wake, NULL);
    n_threads = n_threads < 1 ? 1 : n_threads > MAX_THREADS ? MAX_THREADS : n_threads;
    pool->scratch = aligned_alloc(64, (size_t)n_threads * SCRATCH_BYTES);
    pool->n_threads = 1;
    place(pool, 0);
    while (pool->scratch && pool->n_threads < n_threads) {
        struct start *start = malloc(sizeof *start);
        if (!start) break;
        *start = (struct start){pool, pool->n_threads};
        if (pthread_create(&pool->threads[pool->n_threads], NULL, work_forever, start)) {
            free(start);
            break;
        }
        pool->n_threads++;
    }
    return pool;
}

EXPORT void pool_free(struct pool *pool) {
    atomic_store(&pool->stop, 1);
    change(pool, &pool->job, atomic_load(&pool->job) + 256);
    for (int i = 1; i < pool->n_threads; i++) pthread_join(pool->threads[i], NULL);
    free(pool->scratch);
    free(pool);
}

EXPORT int pool_size(const struct pool *pool) { return pool->n_threads; }

float *pool_scratch(struct pool *pool, int thread) { return pool->scratch + (size_t)thread * (SCRATCH_BYTES / sizeof(float)); }

void pool_run(struct pool *pool, int n_threads, int n_items, void (*work)(void *argument, int thread), void *argument) {
    pthread_mutex_lock(&pool->caller);
    pool_deal(pool, n_threads, n_items);
    pool->work = work;
    pool->argument = argument;
    const unsigned sequence = atomic_load(&pool->job) / 256 + 1;
    if (n_threads > 1) change(pool, &pool->job, sequence * 256 + (unsigned)n_threads);
    work(argument, 0);
    pool_barrier(pool, n_threads, NULL, NULL);
    pthread_mutex_unlock(&pool->caller);
}

void pool_barrier(struct pool *pool, int n_threads, void (*last)(void *argument), void *argument) {
    const unsigned generation = atomic_load_explicit(&pool->generation, memory_order_relaxed);
    if (atomic_fetch_add(&pool->arrived, 1) + 1 < (unsigned)n_threads) {
        wait_for_change(pool, &pool->generation, generation, pool->poll * STEP_SPINS_PER_POLL);
        return;
    }
    atomic_store_explicit(&pool->arrived, 0, memory_order_relaxed);
    if (last) last(argument);
    change(pool, &pool->generation, generation + 1);
}

void pool_deal(struct pool *pool, int n_threads, int n_items) {
    const int grain = n_items / (n_threads * 16);
    pool->grain = grain < 1 ? 1 : grain > MAX_GRAIN ? MAX_GRAIN : grain;
    for (int i = 0; i < n_threads; i++) {
        pool->shares[i].end = (int)((int64_t)n_items * (i + 1) / n_threads);
        atomic_store_explicit(&pool->shares[i].next, (int)((int64_t)n_items * i / n_threads), memory_order_relaxed);
    }
}

int pool_take(struct pool *pool, int n_threads, int thread, int *first, int *last) {
    for (int i = 0; i < n_threads; i++) {
        struct share *share = &pool->shares[(thread + i) % n_threads];
        if (atomic_load_explicit(&share->next, memory_order_relaxed) >= share->end) continue;
        *first = atomic_fetch_add_explicit(&share->next, pool->grain, memory_order_relaxed);
        if (*first >= share->end) continue;
        *last = *first + pool->grain < share->end ? *first + pool->grain : share->end;
        return 1;
    }
    return 0;
}
