/* The threads of torch: the kernels use the OpenMP library that torch has loaded, with as many threads as
 * `torch.set_num_threads` has set for the calling thread. Without that library a call runs in one thread. As with torch, a
 * process that was forked after a parallel call must not make one. */

#ifndef PELTIER_THREADS_H
#define PELTIER_THREADS_H

#include <stdint.h>

/* The numbers of products, and of elements of a norm, that take some hundred microseconds. Less work ends before a
 * second thread wakes up. */
#define WORTH_THREADS (1 << 22)
#define ELEMENTS_WORTH_THREADS (1 << 18)

#ifdef __linux__
extern void GOMP_parallel(void (*run)(void *), void *data, unsigned num_threads, unsigned flags) __attribute__((weak));
extern int omp_get_max_threads(void) __attribute__((weak));
extern int omp_get_num_threads(void) __attribute__((weak));
extern int omp_get_thread_num(void) __attribute__((weak));
#endif

/* Items `first` to `last` - 1. */
typedef struct {
    int64_t first, last;
} share;

/* Computes the items `own` of a call. Returns 0, or 1 without memory. */
typedef int work(const void *call, share own);

static inline int has_threads(void) {
#ifdef __linux__
    return GOMP_parallel && omp_get_max_threads && omp_get_num_threads && omp_get_thread_num;
#else
    return 0;
#endif
}

/* The largest number of threads of a parallel call. */
static inline int64_t most_threads(void) {
#ifdef __linux__
    if (has_threads()) return omp_get_max_threads();
#endif
    return 1;
}

#ifdef __linux__
typedef struct {
    work *run;
    const void *call;
    int64_t count;
    int failed;
} team;

static inline void run_own_share(void *data) {
    team *t = data;
    const int64_t number = omp_get_thread_num(), threads = omp_get_num_threads();
    const share own = {t->count * number / threads, t->count * (number + 1) / threads};
    if (own.first < own.last && t->run(t->call, own)) __atomic_store_n(&t->failed, 1, __ATOMIC_RELAXED);
}
#endif

/* Computes `count` items, in parallel if that is `worth` it: each thread takes a contiguous range. Results do not depend on
 * the number of threads. Returns 0, or 1 without memory. */
static inline int share_out(work *run, const void *call, int64_t count, int worth) {
#ifdef __linux__
    if (worth && most_threads() > 1) {
        team t = {run, call, count, 0};
        GOMP_parallel(run_own_share, &t, 0, 0);
        return t.failed;
    }
#endif
    (void)worth;
    return run(call, (share){0, count});
}

/* The items from `first` to `last` - 1 that are in this share. */
static inline share common(share own, int64_t first, int64_t last) {
    return (share){own.first > first ? own.first : first, own.last < last ? own.last : last};
}

#endif
