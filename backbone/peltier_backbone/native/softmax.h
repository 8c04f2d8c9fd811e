/* The softmax of rows of logits. */

#ifndef PELTIER_SOFTMAX_H
#define PELTIER_SOFTMAX_H

#include "lanes.h"

/* The softmax of a row waits for its largest logit and for its sum, so this many rows are computed together. */
#define SIDE_BY_SIDE 4
#define EACH_SIDE _Pragma("unroll") for (int r = 0; r < rows; r++)

/* Rows of logits and of their results, both `stride` elements apart and padded to whole vectors. A row that is computed
 * in blocks of keys has its largest logit and its sum of the blocks so far; otherwise both are NULL. */
typedef struct {
    const float *logits;
    matrix to;
    int64_t stride, keys;
    float *largest, *sums;
} softmax;

/* The largest logit of a row before its first block. It is finite, because a block may have logits of -infinity alone. */
#define LOWEST -1e30f

/* Adds a block whose largest logit and sum are given to those of a row. Returns what results of earlier blocks are
 * multiplied by (Milakov and Gimelshein 2018, algorithm 3). */
INLINE float add_block(const softmax *s, int64_t row, float largest, float sum) {
    const float factor = exp_lanes((lanes){0} + (s->largest[row] - largest))[0];
    s->largest[row] = largest;
    s->sums[row] = s->sums[row] * factor + sum;
    return factor;
}

/* e^(logit - largest), zeros beyond the last key. `scales` becomes one over each row's sum, or with blocks the factor of
 * the results of earlier blocks. */
INLINE void exponentiate(const softmax *s, int64_t row, float *scales, const int rows, const int half) {
    const float *logits = s->logits + row * s->stride;
    char *to = (char *)at(s->to, row, 0);
    const int64_t stride = s->stride, keys = s->keys, whole = keys / LANES * LANES;
    const lanes none = (lanes){0} - __builtin_inff();
    lanes found[SIDE_BY_SIDE], totals[SIDE_BY_SIDE];
    EACH_SIDE found[r] = whole < keys ? keep(load(logits + r * stride + whole, 0, LANES), keys - whole, none) : none;
    for (int64_t key = 0; key < whole; key += LANES)
        EACH_SIDE found[r] = larger_lanes(found[r], load(logits + r * stride + key, 0, LANES));
    for (int r = 0; s->largest && r < rows; r++) found[r] = larger_lanes(found[r], (lanes){0} + s->largest[row + r]);
    EACH_SIDE found[r] = (lanes){0} + largest_of(found[r]), totals[r] = (lanes){0};
    for (int64_t key = 0; key < whole; key += LANES) EACH_SIDE {
            const lanes v = exp_lanes(load(logits + r * stride + key, 0, LANES) - found[r]);
            totals[r] += v;
            store(to + (r * stride + key) * (half ? 2 : 4), half, LANES, v);
        }
    if (whole < keys) EACH_SIDE {
            const lanes below = load(logits + r * stride + whole, 0, LANES) - found[r];
            const lanes v = keep(exp_lanes(below), keys - whole, (lanes){0});
            totals[r] += v;
            store(to + (r * stride + whole) * (half ? 2 : 4), half, LANES, v);
        }
    for (int r = 0; r < rows; r++)
        scales[r] = s->largest ? add_block(s, row + r, found[r][0], sum_of(totals[r])) : 1.0f / sum_of(totals[r]);
}

INLINE void exponentiate_some(const softmax *s, float *scales, int64_t rows, const int half) {
    int64_t row = 0;
    for (; row + SIDE_BY_SIDE <= rows; row += SIDE_BY_SIDE) exponentiate(s, row, scales + row, SIDE_BY_SIDE, half);
    for (; row < rows; row++) exponentiate(s, row, scales + row, 1, half);
}

static void exponentiate_rows(const softmax *s, float *scales, int64_t rows) {
    if (s->to.half) exponentiate_some(s, scales, rows, 1);
    else exponentiate_some(s, scales, rows, 0);
}

#endif
