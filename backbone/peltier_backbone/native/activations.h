/* Activations in place, equal to those that products apply to their sums. */

#ifndef PELTIER_ACTIVATIONS_H
#define PELTIER_ACTIVATIONS_H

#include "tiles.h"

/* Activates the first `width` columns of y; if `gated`, multiplies them by the next `width` columns. */
typedef struct {
    matrix y;
    int64_t width;
    int activation, gated;
} activations;

static void activate_row(const activations *a, int64_t row) {
    const int half = a->y.half;
    for (int64_t k = 0; k < a->width; k += LANES) {
        const int64_t count = a->width - k;
        lanes v = activate(load(at(a->y, row, k), half, count), a->activation);
        if (a->gated) v *= load(at(a->y, row, a->width + k), half, count);
        store((void *)at(a->y, row, k), half, count, v);
    }
}

#endif
