/* Ragged products one after the other: what lies between two of them never leaves the cache. */

#include "threads.h"
#include "tiles.h"

/* gain act(x w + bias), where a row of x counts as `fold` rows of `inner`; only the last of a chain has a gain. Group g's w
 * [inner, outer] and bias [outer] begin `_groups[g]` elements after the first group's, a layer's `_layer` after those of
 * the layer before. */
typedef struct {
    const float *w, *bias;
    const int64_t *w_groups, *bias_groups;
    int64_t w_stride, w_layer, bias_layer, fold, inner, outer, activation;
    double gain;
} step;

/* Elements of the widest row that is neither x nor y, unless x must be made floats. */
static int64_t widest(const step *steps, int64_t count, int x_half) {
    int64_t most = steps[count - 1].fold;
    if (x_half && steps[0].fold * steps[0].inner > most) most = steps[0].fold * steps[0].inner;
    for (int64_t k = 0; k < count - 1; k++)
        if (steps[k].fold * steps[k].outer > most) most = steps[k].fold * steps[k].outer;
    return most;
}

static matrix folded(matrix m, int64_t fold, int64_t width) {
    return (matrix){m.data, fold == 1 ? m.stride : width, m.half};
}

/* y += all steps of x, of one group. `scratch` has room for four times `size` floats. */
static void run(
    const step *steps, int64_t count, int64_t layer, int64_t group, matrix y, matrix x, const float *scale, int64_t rows,
    float *scratch, int64_t size) {
    if (x.half) {
        const int64_t width = steps[0].fold * steps[0].inner;
        widen_rows(scratch, x, rows, width);
        x = (matrix){scratch, width, 0};
    }
    for (int64_t k = 0; k < count; k++) {
        const step *own = steps + k;
        const int last = k == count - 1;
        product p = {
            .y = last ? folded(y, own->fold, own->outer) : (matrix){scratch + (1 + k % 2) * size, own->outer, 0},
            .x = folded(x, own->fold, own->inner),
            .w = {own->w + own->w_groups[group] + layer * own->w_layer, own->w_stride, 0},
            .bias = own->bias ? own->bias + own->bias_groups[group] + layer * own->bias_layer : NULL,
            .inner = own->inner, .outer = own->outer, .add = last, .activation = (int)own->activation};
        if (last && (scale || own->gain != 1)) {
            float *scales = scratch + 3 * size;
            for (int64_t i = 0; i < rows * own->fold; i++) scales[i] = (float)own->gain * (scale ? scale[i / own->fold] : 1);
            p.scale = scales;
        }
        multiply(&p, rows * own->fold);
        x = (matrix){p.y.data, own->fold * own->outer, 0};
    }
}

/* A call of `peltier_chain`. */
typedef struct {
    const step *steps;
    int64_t count, layer;
    matrix y, x;
    const float *scale;
    const int64_t *starts;
    int64_t groups;
} chain;

/* The rows of `own`. Returns 0, or 1 without memory. */
NOINLINE int run_share(chain c, share own) {
    const int64_t width = widest(c.steps, c.count, c.x.half), most = CHUNK / width / ROWS * ROWS;
    const int64_t chunk = most < ROWS ? ROWS : most;
    float *scratch = new_floats(4 * chunk * width);
    if (!scratch) return 1;
    for (int64_t group = 0; group < c.groups; group++) {
        const share rows = common(own, c.starts[group], c.starts[group + 1]);
        for (int64_t row = rows.first; row < rows.last; row += chunk) {
            const int64_t left = rows.last - row;
            run(c.steps, c.count, c.layer, group, (matrix){at(c.y, row, 0), c.y.stride, c.y.half},
                (matrix){at(c.x, row, 0), c.x.stride, c.x.half}, c.scale ? c.scale + row : NULL,
                left < chunk ? left : chunk, scratch, chunk * width);
        }
    }
    free(scratch);
    return 0;
}

static int64_t products_a_row(const step *steps, int64_t count) {
    int64_t products = 0;
    for (int64_t k = 0; k < count; k++) products += steps[k].fold * steps[k].inner * steps[k].outer;
    return products;
}

/* y += steps of x, the last one scaled row by row; rows starts[g] to starts[g + 1] belong to group g. What is folded
 * has no gaps; y may be x. Returns 0, or 1 without memory. */
EXPORT int peltier_chain(
    void *y, int64_t y_stride, int y_half, const void *x, int64_t x_stride, int x_half, const step *steps,
    int64_t count, int64_t layer, const float *scale, const int64_t *starts, int64_t groups) {
    const chain c = {
        .steps = steps, .count = count, .layer = layer, .y = {y, y_stride, y_half}, .x = {x, x_stride, x_half},
        .scale = scale, .starts = starts, .groups = groups};
    int failed = 0;
#pragma omp parallel if (starts[groups] * products_a_row(steps, count) >= WORTH_THREADS) reduction(| : failed)
    failed |= run_share(c, own_share(starts[groups]));
    return failed;
}
