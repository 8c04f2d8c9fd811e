/* Activations of whole batches. */

#include "activations.h"
#include "kernels.h"
#include "threads.h"

NOINLINE void activate_rows(const activations *a, share rows) {
    for (int64_t row = rows.first; row < rows.last; row++) activate_row(a, row);
}

/* The first `width` columns of y, activated in place; if `gated`, times the next `width` columns. */
EXPORT void peltier_activate(
    void *y, int64_t stride, int half, int64_t rows, int64_t width, int activation, int gated) {
    const activations a = {.y = {y, stride, half}, .width = width, .activation = activation, .gated = gated};
#pragma omp parallel if (rows * width >= ELEMENTS_WORTH_THREADS)
    activate_rows(&a, own_share(rows));
}
