/* The norm of one row. */

#ifndef PELTIER_NORMS_H
#define PELTIER_NORMS_H

#include <math.h>

#include "kernels.h"
#include "lanes.h"

/* The number of rows that are computed together, because each row waits for its two sums. */
#define NORM_ROWS 4
#define EACH_NORM_ROW for (int r = 0; r < rows; r++)

/* Elements between two rows of the memory of `normalise`. */
INLINE int64_t line_stride(int64_t width) {
    return (width + LANES - 1) / LANES * LANES;
}

/* The first `count` elements from element k on. */
INLINE lanes of_row(const void *row, int half, int64_t k, int64_t count) {
    return load((const char *)row + k * (half ? 2 : 4), half, count);
}

/* Stores the sum of a row and its residual in `line`, padded with zeros. Returns the sum of its elements. */
INLINE float add_row(const norm *n, int64_t row, int half, float *line) {
    const void *x = at(n->x, row, 0), *residual = n->residual.data ? at(n->residual, row, 0) : NULL;
    const int64_t width = n->width, whole = width / LANES * LANES;
    lanes total = {0};
    for (int64_t k = 0; residual && k < whole; k += LANES) {
        const lanes v = of_row(x, half, k, LANES) + of_row(residual, half, k, LANES);
        total += v;
        store(line + k, 0, LANES, v);
    }
    for (int64_t k = 0; !residual && k < whole; k += LANES) {
        const lanes v = of_row(x, half, k, LANES);
        total += v;
        store(line + k, 0, LANES, v);
    }
    if (whole < width) {
        lanes v = of_row(x, half, whole, width - whole);
        if (residual) v += of_row(residual, half, whole, width - whole);
        total += v;
        store(line + whole, 0, LANES, v);
    }
    return sum_of(total);
}

/* The sum of (line - mean)^2 over the width of a row; with a mean of 0, the sum of squares. */
INLINE float squares(const float *line, float mean, int64_t width) {
    const int64_t whole = width / LANES * LANES;
    lanes total = {0};
    for (int64_t k = 0; k < whole; k += LANES) {
        const lanes v = load(line + k, 0, LANES) - mean;
        total += v * v;
    }
    if (whole < width) {
        const lanes v = keep(load(line + whole, 0, LANES) - mean, width - whole, (lanes){0});
        total += v * v;
    }
    return sum_of(total);
}

INLINE void scale_row(
    char *y, int half, const float *line, float mean, float scale, const float *weight, const float *bias, int64_t width) {
    const int64_t whole = width / LANES * LANES, bytes = half ? 2 : 4;
    for (int64_t k = 0; bias && k < whole; k += LANES) {
        const lanes v = (load(line + k, 0, LANES) - mean) * scale * load(weight + k, 0, LANES);
        store(y + k * bytes, half, LANES, v + load(bias + k, 0, LANES));
    }
    for (int64_t k = 0; !bias && k < whole; k += LANES)
        store(y + k * bytes, half, LANES, (load(line + k, 0, LANES) - mean) * scale * load(weight + k, 0, LANES));
    if (whole < width) {
        const int64_t left = width - whole;
        lanes v = (load(line + whole, 0, left) - mean) * scale * load(weight + whole, 0, left);
        if (bias) v += load(bias + whole, 0, left);
        store(y + whole * bytes, half, left, v);
    }
}

/* Normalises `rows` rows; `lines` has memory for as many. `from` and `to` say whether x and y are bfloat16. `bias` is
 * NULL if there is none. */
INLINE void normalise(
    const norm *n, int64_t row, const int rows, const float *weight, const float *bias, int from, int to, float *lines) {
    const int64_t width = n->width, stride = line_stride(width);
    float means[NORM_ROWS], scales[NORM_ROWS];
    EACH_NORM_ROW means[r] = add_row(n, row + r, from, lines + r * stride) / (float)width;
    EACH_NORM_ROW {
        if (!n->centered) means[r] = 0;
        scales[r] = 1.0f / sqrtf(squares(lines + r * stride, means[r], width) / (float)width + n->eps);
    }
    EACH_NORM_ROW {
        char *y = (char *)at(n->y, row + r, 0);
        scale_row(y, to, lines + r * stride, means[r], scales[r], weight, bias, width);
    }
}

#endif
