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

/* A call of `peltier_rotate`. */
typedef struct {
    matrix x;
    const float *turns;
    const int64_t *positions;
    int64_t heads, size;
} rotation;

static int rotate_share(const void *call, share tokens) {
    const rotation *r = call;
    for (int64_t token = tokens.first; token < tokens.last; token++)
        for (int64_t number = 0; number < r->heads; number++)
            rotate(r->x, token, number * r->size, r->turns + r->positions[token] * r->size, r->size);
    return 0;
}

/* Rotates the first `heads` heads of each token of x in place. Row p of `turns`, [positions, size], has the cosines of the
 * angles of position p, then their sines. */
EXPORT void peltier_rotate(
    void *x, int64_t stride, int half, const float *turns, const int64_t *positions, int64_t tokens, int64_t heads,
    int64_t size) {
    const rotation r = {{x, stride, half}, turns, positions, heads, size};
    share_out(rotate_share, &r, tokens, tokens * heads * size >= ELEMENTS_WORTH_THREADS);
}
