/* Norms over the last dimension, each group of neighbouring rows with weights of its own. */

#include <math.h>

#include "lanes.h"
#include "threads.h"

typedef struct {
    const void *data;
    int64_t group;
    int half;
} vectors;

INLINE lanes of_group(vectors v, int64_t group, int64_t k, int64_t count) {
    return load((const char *)v.data + (group * v.group + k) * (v.half ? 2 : 4), v.half, count);
}

/* sum of (line - mean)^2 over the row's width; with a mean of 0 that of squares. */
static float squares(const float *line, float mean, int64_t width) {
    lanes total = {0};
    for (int64_t k = 0; k < width; k += LANES) {
        const lanes v = keep(load(line + k, 0, LANES) - mean, width - k, (lanes){0});
        total += v * v;
    }
    return sum_of(total);
}

/* y = (x + residual - mean) / sqrt(variance + eps) * weight + bias; without `centered` the mean is taken as 0 and the
 * variance as that of squares. */
typedef struct {
    matrix y, x, residual;
    vectors weight, bias;
    int64_t width;
    float eps;
    int centered;
} norm;

/* One row, by way of `line`; `half` says what y, x and the residual are. */
INLINE void normalise(norm n, int64_t row, int64_t group, int half, float *line) {
    lanes total = {0};
    for (int64_t k = 0; k < n.width; k += LANES) {
        lanes v = load(at(n.x, row, k), half, n.width - k);
        if (n.residual.data) v += load(at(n.residual, row, k), half, n.width - k);
        total += v;
        store(line + k, 0, LANES, v);
    }
    const float mean = n.centered ? sum_of(total) / (float)n.width : 0.0f;
    const float scale = 1.0f / sqrtf(squares(line, mean, n.width) / (float)n.width + n.eps);
    for (int64_t k = 0; k < n.width; k += LANES) {
        const int64_t count = n.width - k;
        lanes v = (load(line + k, 0, LANES) - mean) * scale * of_group(n.weight, group, k, count);
        if (n.bias.data) v += of_group(n.bias, group, k, count);
        store((void *)at(n.y, row, k), half, count, v);
    }
}

/* The rows of `own`. Returns 0, or 1 without memory. */
NOINLINE int normalise_share(norm n, const int64_t *starts, int64_t groups, share own) {
    float *line = new_floats(n.width + LANES);
    if (!line) return 1;
    for (int64_t group = 0; group < groups; group++) {
        const share rows = common(own, starts[group], starts[group + 1]);
        for (int64_t row = rows.first; row < rows.last; row++)
            if (n.y.half) normalise(n, row, group, 1, line);
            else normalise(n, row, group, 0, line);
    }
    free(line);
    return 0;
}

/* All rows; y, x and the residual are of `half`'s kind. Returns 0, or 1 without memory. */
EXPORT int peltier_norm(
    void *y, const void *x, const void *residual, int64_t y_stride, int64_t x_stride, int64_t residual_stride, int half,
    const void *weight, int64_t weight_group, const void *bias, int64_t bias_group, int weights_half,
    const int64_t *starts, int64_t groups, int64_t width, float eps, int centered) {
    const norm n = {
        .y = {y, y_stride, half}, .x = {x, x_stride, half}, .residual = {residual, residual_stride, half},
        .weight = {weight, weight_group, weights_half}, .bias = {bias, bias_group, weights_half},
        .width = width, .eps = eps, .centered = centered};
    int failed = 0;
#pragma omp parallel if (starts[groups] * width >= ELEMENTS_WORTH_THREADS) reduction(| : failed)
    failed |= normalise_share(n, starts, groups, own_share(starts[groups]));
    return failed;
}
