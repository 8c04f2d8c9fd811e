/* Activations of whole batches. */

#include "activations.h"
#include "kernels.h"
#include "threads.h"

static int activate_share(const void *call, share rows) {
    for (int64_t row = rows.first; row < rows.last; row++) activate_row(call, row);
    return 0;
}

/* Activates the first `width` columns of y in place; if `gated`, the next `width` columns multiply them. */
EXPORT void peltier_activate(
    void *y, int64_t stride, int half, int64_t rows, int64_t width, int activation, int gated) {
    const activations a = {.y = {y, stride, half}, .width = width, .activation = activation, .gated = gated};
    share_out(activate_share, &a, rows, rows * width >= ELEMENTS_WORTH_THREADS);
}
