/* Activations in place, equal to those that products apply to their sums. */

#ifndef PELTIER_ACTIVATIONS_H
#define PELTIER_ACTIVATIONS_H

#include "kernels.h"
#include "tiles.h"

static void activate_row(const activate_call *c, int64_t row) {
    const int half = c->y.half, activation = (int)c->activation;
    for (int64_t k = 0; k < c->width; k += LANES) {
        const int64_t count = c->width - k;
        lanes v = activate(load(at(c->y, row, k), half, count), activation);
        if (c->gated) v *= load(at(c->y, row, c->width + k), half, count);
        store((void *)at(c->y, row, k), half, count, v);
    }
}

#endif
