/* The norm of one row. */

#ifndef PELTIER_NORMS_H
#define PELTIER_NORMS_H

#include <math.h>

#include "lanes.h"

/* A weight or a bias, [width]. */
typedef struct {
    const void *data;
    int half;
} norm_vector;

/* y = (x + residual - mean) / sqrt(variance + eps) * weight + bias; without `centered` the mean is taken as 0 and the
 * variance as that of squares. */
typedef struct {
    matrix y, x, residual;
    int64_t width;
    float eps;
    int centered;
} norm;

/* sum of (line - mean)^2 over the row's width; with a mean of 0 that of squares. */
static float squares(const float *line, float mean, int64_t width) {
    lanes total = {0};
    for (int64_t k = 0; k < width; k += LANES) {
        const lanes v = keep(load(line + k, 0, LANES) - mean, width - k, (lanes){0});
        total += v * v;
    }
    return sum_of(total);
}

INLINE lanes of_vector(norm_vector v, int64_t k, int64_t count) {
    return load((const char *)v.data + k * (v.half ? 2 : 4), v.half, count);
}

/* One row, by way of `line`, which has room for LANES more; `from` and `to` say whether x and y are bfloat16. */
INLINE void normalise(const norm *n, int64_t row, norm_vector weight, norm_vector bias, int from, int to, float *line) {
    lanes total = {0};
    for (int64_t k = 0; k < n->width; k += LANES) {
        lanes v = load(at(n->x, row, k), from, n->width - k);
        if (n->residual.data) v += load(at(n->residual, row, k), from, n->width - k);
        total += v;
        store(line + k, 0, LANES, v);
    }
    const float mean = n->centered ? sum_of(total) / (float)n->width : 0.0f;
    const float scale = 1.0f / sqrtf(squares(line, mean, n->width) / (float)n->width + n->eps);
    for (int64_t k = 0; k < n->width; k += LANES) {
        const int64_t count = n->width - k;
        lanes v = (load(line + k, 0, LANES) - mean) * scale * of_vector(weight, k, count);
        if (bias.data) v += of_vector(bias, k, count);
        store((void *)at(n->y, row, k), to, count, v);
    }
}

#endif
