/* Rotary positions (Su et al. 2021): the pairs of elements of a query or a key turn by angles that grow with its position. */

#include "kernels.h"
#include "lanes.h"
#include "threads.h"

/* One head: elements d and d + size / 2 are a pair. */
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

/* Turns the first `heads` heads of each token of x in place. The angles of position p have their cosines, then their sines,
 * in row p of `turns`, [positions, size]. */
EXPORT void peltier_rotate(
    void *x, int64_t stride, int half, const float *turns, const int64_t *positions, int64_t tokens, int64_t heads,
    int64_t size) {
    const matrix m = {x, stride, half};
#pragma omp parallel for if (tokens * heads * size >= ELEMENTS_WORTH_THREADS)
    for (int64_t token = 0; token < tokens; token++)
        for (int64_t number = 0; number < heads; number++)
            rotate(m, token, number * size, turns + positions[token] * size, size);
}
