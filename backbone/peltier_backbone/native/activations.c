/* Activations in place, as products apply them to their sums. */

#include "threads.h"
#include "tiles.h"

/* A call of `peltier_activate`. */
typedef struct {
    matrix y;
    int64_t width;
    int activation, gated;
} activations;

NOINLINE void activate_rows(const activations *a, share rows) {
    const int half = a->y.half;
    for (int64_t row = rows.first; row < rows.last; row++)
        for (int64_t k = 0; k < a->width; k += LANES) {
            const int64_t count = a->width - k;
            lanes v = activate(load(at(a->y, row, k), half, count), a->activation);
            if (a->gated) v *= load(at(a->y, row, a->width + k), half, count);
            store((void *)at(a->y, row, k), half, count, v);
        }
}

/* The first `width` columns of y, activated; if `gated`, times the next `width` columns. */
EXPORT void peltier_activate(
    void *y, int64_t stride, int half, int64_t rows, int64_t width, int activation, int gated) {
    const activations a = {.y = {y, stride, half}, .width = width, .activation = activation, .gated = gated};
#pragma omp parallel if (rows * width >= ELEMENTS_WORTH_THREADS)
    activate_rows(&a, own_share(rows));
}
