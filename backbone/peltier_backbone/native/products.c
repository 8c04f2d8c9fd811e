/* Ragged products: each group of neighbouring rows with a matrix of its own, all groups in one call. */

#include "threads.h"
#include "tiles.h"

INLINE float dot(const void *x, int half, const float *w, int64_t inner) {
    lanes sums[4] = {{0}, {0}, {0}, {0}};
    int64_t k = 0;
    for (; k + 4 * LANES <= inner; k += 4 * LANES)
        for (int i = 0; i < 4; i++)
            sums[i] += load((const char *)x + (k + i * LANES) * (half ? 2 : 4), half, LANES) *
                       load(w + k + i * LANES, 0, LANES);
    for (; k < inner; k += LANES)
        sums[0] += load((const char *)x + k * (half ? 2 : 4), half, inner - k) * load(w + k, 0, inner - k);
    return sum_of((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

static float dot_row(matrix x, int64_t row, const float *w, int64_t inner) {
    return x.half ? dot(at(x, row, 0), 1, w, inner) : dot(at(x, row, 0), 0, w, inner);
}

/* A map to one column. */
static void score(const product *p, int64_t rows) {
    const float *w = p->w.data;
    for (int64_t row = 0; row < rows; row++) {
        lanes v = {dot_row(p->x, row, w, p->inner)};
        void *y = (void *)at(p->y, row, 0);
        if (p->bias) v += p->bias[0];
        if (p->activation) v = activate(v, p->activation);
        if (p->scale) v *= p->scale[row];
        if (p->add) v += load(y, p->y.half, 1);
        store(y, p->y.half, 1, v);
    }
}

static product from_row(const product *p, int64_t row) {
    product rest = *p;
    rest.y.data = at(p->y, row, 0);
    rest.x.data = at(p->x, row, 0);
    if (p->scale) rest.scale = p->scale + row;
    return rest;
}

static void multiply_group(const product *p, int64_t rows, float *scratch, int64_t chunk) {
    if (p->outer == 1 && p->w.stride == 1) {
        score(p, rows);
        return;
    }
    for (int64_t row = 0; row < rows; row += chunk) {
        const int64_t count = rows - row < chunk ? rows - row : chunk;
        product part = from_row(p, row);
        if (p->x.half) {
            widen_rows(scratch, part.x, count, p->inner);
            part.x = (matrix){scratch, p->inner, 0};
        }
        multiply(&part, count);
    }
}

/* A call of `peltier_linear`. */
typedef struct {
    product whole;
    const int64_t *starts;
    int64_t groups, w_group, bias_group, fold;
} ragged;

/* The rows of `own`. Returns 0, or 1 without memory. */
NOINLINE int multiply_share(ragged r, share own) {
    int64_t chunk = CHUNK / r.whole.inner / ROWS * ROWS;
    if (chunk < ROWS) chunk = ROWS;
    float *scratch = NULL;
    if (r.whole.x.half && !(scratch = new_floats(chunk * r.whole.inner))) return 1;
    for (int64_t group = 0; group < r.groups; group++) {
        const share rows = common(own, r.starts[group], r.starts[group + 1]);
        if (rows.first >= rows.last) continue;
        product part = from_row(&r.whole, rows.first * r.fold);
        part.w.data = (const float *)r.whole.w.data + group * r.w_group;
        part.bias = r.whole.bias ? r.whole.bias + group * r.bias_group : NULL;
        multiply_group(&part, (rows.last - rows.first) * r.fold, scratch, scratch ? chunk : INT64_MAX / 2);
    }
    free(scratch);
    return 0;
}

/* Rows starts[g] * fold to starts[g + 1] * fold of y and x belong to group g, whose w [inner, outer] and bias [outer]
 * begin `w_group` and `bias_group` elements after those of the group before. Returns 0, or 1 without memory. */
EXPORT int peltier_linear(
    void *y, int64_t y_stride, int y_half, const void *x, int64_t x_stride, int x_half,
    const float *w, int64_t w_stride, int64_t w_group, const float *bias, int64_t bias_group, const float *scale,
    const int64_t *starts, int64_t groups, int64_t fold, int64_t inner, int64_t outer, int activation, int add) {
    const product whole = {
        .y = {y, y_stride, y_half}, .x = {x, x_stride, x_half}, .w = {w, w_stride, 0}, .bias = bias,
        .scale = scale, .inner = inner, .outer = outer, .add = add, .activation = activation};
    const ragged r = {
        .whole = whole, .starts = starts, .groups = groups, .w_group = w_group, .bias_group = bias_group, .fold = fold};
    int failed = 0;
#pragma omp parallel if (starts[groups] * fold * inner * outer >= WORTH_THREADS) reduction(| : failed)
    failed |= multiply_share(r, own_share(starts[groups]));
    return failed;
}

/* y of each group += its bias. */
EXPORT void peltier_add(
    void *y, int64_t y_stride, int y_half, const float *bias, int64_t bias_group, const int64_t *starts,
    int64_t groups, int64_t width) {
    const matrix rows = {y, y_stride, y_half};
    for (int64_t group = 0; group < groups; group++)
        for (int64_t row = starts[group]; row < starts[group + 1]; row++)
            for (int64_t k = 0; k < width; k += LANES) {
                const int64_t count = width - k;
                void *place = (void *)at(rows, row, k);
                store(place, y_half, count, load(place, y_half, count) + load(bias + group * bias_group + k, 0, count));
            }
}

/* gates[r] = the mean over row r's tokens, starts[r] to starts[r + 1], of sigmoid(x w + bias), with the weights of group
 * row_groups[r]. */
EXPORT void peltier_gate(
    float *gates, const void *x, int64_t x_stride, int x_half, const float *w, int64_t w_group, const float *bias,
    int64_t bias_group, const int64_t *starts, int64_t rows, const int64_t *row_groups, int64_t inner) {
    const matrix tokens = {x, x_stride, x_half};
    for (int64_t row = 0; row < rows; row++) {
        const int64_t group = row_groups[row];
        float total = 0;
        for (int64_t token = starts[row]; token < starts[row + 1]; token++) {
            const lanes score = {dot_row(tokens, token, w + group * w_group, inner) + bias[group * bias_group]};
            total += sigmoid(score)[0];
        }
        gates[row] = total / (float)(starts[row + 1] - starts[row]);
    }
}

/* The digest of the files that this library was compiled from. */
EXPORT const char *peltier_sources(void) {
    return PELTIER_SOURCES;
}
