/* The threads of torch, whose OpenMP these kernels share: as many as `torch.set_num_threads` has said in the thread that
 * calls them. As with torch's own, a process that is forked afterwards must not call them. */

#ifndef PELTIER_THREADS_H
#define PELTIER_THREADS_H

#include <stdint.h>

#ifdef _OPENMP
#include <omp.h>
#endif

/* Products, or elements of a norm, that take some hundred microseconds: less is done before a second thread is awake. */
#define WORTH_THREADS (1 << 22)
#define ELEMENTS_WORTH_THREADS (1 << 18)

typedef struct {
    int64_t first, last;
} share;

/* How many threads a parallel piece of work gets at most. */
static inline int64_t most_threads(void) {
#ifdef _OPENMP
    return omp_get_max_threads();
#else
    return 1;
#endif
}

/* Of `count` things those of this thread, neighbours. What becomes of one never depends on whose it is. */
static inline share own_share(int64_t count) {
#ifdef _OPENMP
    const int64_t number = omp_get_thread_num(), threads = omp_get_num_threads();
    return (share){count * number / threads, count * (number + 1) / threads};
#else
    return (share){0, count};
#endif
}

/* Those of the things from `first` to `last` that are this share's. */
static inline share common(share own, int64_t first, int64_t last) {
    return (share){own.first > first ? own.first : first, own.last < last ? own.last : last};
}

#endif
