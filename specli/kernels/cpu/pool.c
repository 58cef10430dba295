/* A persistent team of threads for many very short steps.
 *
 * A job is a series of steps, each a number of items. Every thread has its own range of items and helps itself to others' ranges when
 * its own is empty; whoever delivers a step's last item moves on to the next step. Nobody waits for a thread that holds no item: one
 * that is asleep, or whose processor another process has, joins in when it comes.
 *
 * Waiting is a bounded spin, then sleep on a condition variable: at --poll 50, 4000 pauses for the next job, so that workers are
 * awake when the caller comes back, and inside a job 50 to 800. There the sleeps decide: a short one would have been better spun away
 * (40 of them in a step of a mixture of experts cost a twentieth of it); a long one says that another process has somebody's
 * processor, and then a processor that is free for them is worth more than a quick look. (SmolLM2 step with 2 threads on 2 processors,
 * one of them shared with a busy process: 9.9 ms with 500 pauses, 6.8 ms with 50. A yield gives away a whole slice.)
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "native.h"

#define MAX_THREADS 512 /* threads.py has the same number */
#define MAX_CPUS 1024
#define MAX_GRAIN 16 /* strips of one weight: some microseconds of imbalance at the end of a step */
#define JOB_SPINS_PER_POLL 80
#define STEP_SPINS_PER_POLL 16 /* at most, and at least 1 */
#define SHORT_SLEEP_NS 100000 /* more than it takes to be woken */

struct share {
    _Alignas(64) atomic_uint_fast64_t left; /* step number << 32 | items not yet taken: a late thread never takes another step's items */
    int end;
};

struct pool {
    _Alignas(64) atomic_uint_fast64_t step; /* step number << 32 | threads that it is dealt to, 0 between jobs */
    _Alignas(64) atomic_int undone;         /* items of the step */
    _Alignas(64) atomic_int sleepers;       /* threads that wait for a change of `step` */
    atomic_int grain, n_active;             /* workers n_active and up sleep until it grows */
    atomic_int step_spins;                  /* per poll */
    struct share shares[MAX_THREADS];
    struct job job;
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

static int64_t nanoseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static unsigned threads_of(uint64_t step) { return (unsigned)(step & UINT32_MAX); }

/* Waits until `step` is no longer `seen`; returns what it is then. */
static uint64_t wait_for_change(struct pool *pool, uint64_t seen) {
    const int step_spins = atomic_load_explicit(&pool->step_spins, memory_order_relaxed);
    const int spins = pool->poll * (threads_of(seen) ? step_spins : JOB_SPINS_PER_POLL);
    uint64_t now;
    for (int i = 0; i < spins; i++) {
        if ((now = atomic_load_explicit(&pool->step, memory_order_acquire)) != seen) return now;
        pause_briefly();
    }
    const int64_t start = nanoseconds();
    pthread_mutex_lock(&pool->sleep);
    atomic_fetch_add(&pool->sleepers, 1); /* before the last look: whoever changes the step then sees a sleeper */
    while ((now = atomic_load(&pool->step)) == seen) pthread_cond_wait(&pool->wake, &pool->sleep);
    atomic_fetch_sub(&pool->sleepers, 1);
    pthread_mutex_unlock(&pool->sleep);
    if (threads_of(seen)) {
        const int is_short = nanoseconds() - start < SHORT_SLEEP_NS;
        const int next = is_short ? (step_spins < STEP_SPINS_PER_POLL ? 2 * step_spins : step_spins) : (step_spins + 1) / 2;
        atomic_store_explicit(&pool->step_spins, next, memory_order_relaxed);
    }
    return now;
}

static void wake_sleepers(struct pool *pool) {
    pthread_mutex_lock(&pool->sleep);
    pthread_cond_broadcast(&pool->wake);
    pthread_mutex_unlock(&pool->sleep);
}

/* Thread t of a strict pool gets the t-th allowed CPU, otherwise every thread may use all of them. Best effort, as llama.cpp. */
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

/* The next items of a step, as far as it has any; 0: nothing left to take. */
static int take(struct pool *pool, uint64_t step, unsigned thread, int *first, int *last) {
    const unsigned n_threads = threads_of(step);
    const uint64_t number = step >> 32;
    for (unsigned i = 0; i < n_threads; i++) {
        struct share *share = &pool->shares[(thread + i) % n_threads];
        uint64_t now = atomic_load_explicit(&share->left, memory_order_acquire);
        while (now >> 32 == number && (now & UINT32_MAX)) {
            const int left = (int)(now & UINT32_MAX), grain = atomic_load_explicit(&pool->grain, memory_order_relaxed);
            const int most = (left + 3) / 4, n = most < grain ? most : grain; /* ever fewer, so that all come to the end together */
            if (atomic_compare_exchange_weak(&share->left, &now, now - (uint64_t)n)) {
                *first = share->end - left; /* the step cannot end before these items are done */
                *last = *first + n;
                return 1;
            }
        }
    }
    return 0;
}

static uint64_t deal(struct pool *pool, uint64_t number, int n_threads, int n_items) {
    const int grain = n_items / (n_threads * 16);
    number &= UINT32_MAX;
    atomic_store_explicit(&pool->grain, grain < 1 ? 1 : grain > MAX_GRAIN ? MAX_GRAIN : grain, memory_order_relaxed);
    atomic_store_explicit(&pool->undone, n_items, memory_order_relaxed);
    for (int i = 0, start = 0; i < n_threads; i++) {
        const int end = (int)((int64_t)n_items * (i + 1) / n_threads);
        pool->shares[i].end = end;
        atomic_store_explicit(&pool->shares[i].left, number << 32 | (uint64_t)(end - start), memory_order_release);
        start = end;
    }
    const uint64_t step = number << 32 | (uint64_t)n_threads;
    atomic_store(&pool->step, step);
    if (atomic_load(&pool->sleepers)) wake_sleepers(pool);
    return step;
}

/* Works on the job as long as there is something to do; returns the step that is waited for, or that ended the job. */
static uint64_t help(struct pool *pool, uint64_t step, unsigned thread) {
    for (;;) {
        int first, last, done = 0;
        while (take(pool, step, thread, &first, &last)) {
            pool->job.run(pool->job.argument, (int)thread, first, last);
            done += last - first;
        }
        if (!done || atomic_fetch_sub(&pool->undone, done) != done) return step;
        const int n_items = pool->job.next(pool->job.argument, (int)thread);
        if (n_items) {
            step = deal(pool, (step >> 32) + 1, (int)threads_of(step), n_items);
            continue;
        }
        step = ((step >> 32) + 1) << 32;
        atomic_store(&pool->step, step);
        if (thread && atomic_load(&pool->sleepers)) wake_sleepers(pool); /* the caller may be among them */
        return step;
    }
}

static void *work_forever(void *argument) {
    struct start *start = argument;
    struct pool *pool = start->pool;
    const unsigned thread = (unsigned)start->thread;
    free(start);
    place(pool, (int)thread);
    for (uint64_t seen = 0; !atomic_load(&pool->stop);) {
        if (thread >= (unsigned)atomic_load(&pool->n_active)) {
            pthread_mutex_lock(&pool->sleep);
            while (thread >= (unsigned)atomic_load(&pool->n_active)) pthread_cond_wait(&pool->wake, &pool->sleep);
            pthread_mutex_unlock(&pool->sleep);
        }
        if (threads_of(seen) > thread) seen = help(pool, seen, thread);
        seen = wait_for_change(pool, seen);
    }
    return NULL;
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
    atomic_store(&pool->n_active, n_threads);
    atomic_store(&pool->step_spins, STEP_SPINS_PER_POLL);
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
    atomic_store(&pool->n_active, pool->n_threads);
    atomic_fetch_add(&pool->step, UINT64_C(1) << 32);
    wake_sleepers(pool);
    for (int i = 1; i < pool->n_threads; i++) pthread_join(pool->threads[i], NULL);
    free(pool->scratch);
    free(pool);
}

EXPORT int pool_size(const struct pool *pool) { return pool->n_threads; }

float *pool_scratch(struct pool *pool, int thread) { return pool->scratch + (size_t)thread * (SCRATCH_BYTES / sizeof(float)); }

int pool_sleeps(const struct pool *pool) { return atomic_load_explicit(&pool->sleepers, memory_order_relaxed) > 0; }

void pool_run(struct pool *pool, int n_threads, const struct job *job) {
    pthread_mutex_lock(&pool->caller);
    pool->job = *job;
    const int n_items = job->next(job->argument, 0);
    if (n_items) {
        const int n_active = atomic_load(&pool->n_active);
        atomic_store(&pool->n_active, n_threads);
        if (n_threads > n_active) wake_sleepers(pool);
        uint64_t step = help(pool, deal(pool, (atomic_load(&pool->step) >> 32) + 1, n_threads, n_items), 0);
        while (threads_of(step)) step = help(pool, wait_for_change(pool, step), 0);
    }
    pthread_mutex_unlock(&pool->caller);
}
