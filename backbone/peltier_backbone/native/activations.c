/* Activations of whole batches. */

#include "activations.h"
#include "threads.h"

static int activate_share(const void *call, share rows) {
    for (int64_t row = rows.first; row < rows.last; row++) activate_row(call, row);
    return 0;
}

EXPORT void peltier_activate(const activate_call *c) {
    share_out(activate_share, c, c->rows, c->rows * c->width >= ELEMENTS_WORTH_THREADS);
}
