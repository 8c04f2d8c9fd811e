/* Norms over the last dimension, each group of neighbouring rows with weights of its own. */

#include <math.h>

#include "lanes.h"

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

/* y = (x + residual - mean) / sqrt(variance + eps) * weight + bias, all of `half`'s kind but for weights; without
 * `centered` the mean is taken as 0 and the variance as that of squares. Returns 0, or 1 without memory. */
EXPORT int peltier_norm(
    void *y, const void *x, const void *residual, int64_t y_stride, int64_t x_stride, int64_t residual_stride, int half,
    const void *weight, int64_t weight_group, const void *bias, int64_t bias_group, int weights_half,
    const int64_t *starts, int64_t groups, int64_t width, float eps, int centered) {
    const matrix out = {y, y_stride, half}, in = {x, x_stride, half}, more = {residual, residual_stride, half};
    const vectors weights = {weight, weight_group, weights_half}, biases = {bias, bias_group, weights_half};
    float *line = new_floats(width + LANES);
    if (!line) return 1;
    for (int64_t group = 0; group < groups; group++)
        for (int64_t row = starts[group]; row < starts[group + 1]; row++) {
            lanes total = {0};
            for (int64_t k = 0; k < width; k += LANES) {
                lanes v = load(at(in, row, k), half, width - k);
                if (residual) v += load(at(more, row, k), half, width - k);
                total += v;
                store(line + k, 0, LANES, v);
            }
            const float mean = centered ? sum_of(total) / (float)width : 0.0f;
            const float scale = 1.0f / sqrtf(squares(line, mean, width) / (float)width + eps);
            for (int64_t k = 0; k < width; k += LANES) {
                const int64_t count = width - k;
                lanes v = (load(line + k, 0, LANES) - mean) * scale * of_group(weights, group, k, count);
                if (bias) v += of_group(biases, group, k, count);
                store((void *)at(out, row, k), half, count, v);
            }
        }
    free(line);
    return 0;
}
