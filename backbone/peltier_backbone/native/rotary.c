/* Rotary positions (Su et al. 2021): pairs of elements of a query or a key are rotated by angles that grow with its position. */

#include "kernels.h"
#include "lanes.h"
#include "threads.h"

/* One head. Elements d and d + size / 2 are a pair. */
static void rotate(matrix x, int64_t row, int64_t column, const float *turns, int64_t size) {
    const int64_t pairs = size / 2;
    for (int64_t d = 0; d < pairs; d += LANES) {
        const int64_t left = pairs - d;
        void *first = (void *)at(x, row, column + d), *second = (void *)at(x, row, column + pairs + d);
        const lanes cosine = load(turns + d, 0, left), sine = load(turns + pairs + d, 0, left);
        const lanes a = load(first, x.half, left), b = load(second, x.half, left);
        store(first, x.half, left, a * cosine - b * sine);
        store(second, x.half, left, b * cosine + a * sine);
    }
}

static int rotate_share(const void *call, share tokens) {
    const rotate_call *c = call;
    for (int64_t token = tokens.first; token < tokens.last; token++)
        for (int64_t number = 0; number < c->heads; number++)
            rotate(c->x, token, number * c->size, c->turns + c->positions[token] * c->size, c->size);
    return 0;
}

EXPORT void peltier_rotate(const rotate_call *c) {
    share_out(rotate_share, c, c->tokens, c->tokens * c->heads * c->size >= ELEMENTS_WORTH_THREADS);
}
