/* Norms over the last dimension. Each group of adjacent rows can have its own weights. */

#include "kernels.h"
#include "norms.h"
#include "threads.h"

/* A weight or a bias, [width]. */
typedef struct {
    const void *data;
    int half;
} norm_vector;

/* A call of `peltier_norm`. */
typedef struct {
    norm norm;
    norm_vector weight, bias;
    table table;
    int64_t index;
} norm_call;

static void normalise_rows(const norm *n, share rows, const float *weight, const float *bias, float *lines) {
    const int half = n->y.half;
    int64_t row = rows.first;
    for (; row + NORM_ROWS <= rows.last; row += NORM_ROWS)
        if (half) normalise(n, row, NORM_ROWS, weight, bias, 1, 1, lines);
        else normalise(n, row, NORM_ROWS, weight, bias, 0, 0, lines);
    for (; row < rows.last; row++)
        if (half) normalise(n, row, 1, weight, bias, 1, 1, lines);
        else normalise(n, row, 1, weight, bias, 0, 0, lines);
}

/* The elements as floats: the vector itself, or a copy in `line`. */
static const float *floats_of(norm_vector v, int64_t width, float *line) {
    if (!v.half || !v.data) return v.data;
    for (int64_t k = 0; k < width; k += LANES) store(line + k, 0, LANES, of_row(v.data, 1, k, width - k));
    return line;
}

static const float *own_or(vector own, const float *base, const float *other) {
    const float *found = find(own, base);
    return found ? found : other;
}

static int normalise_share(const void *call, share own) {
    const norm_call *c = call;
    const int64_t stride = line_stride(c->norm.width);
    float *lines = new_floats((NORM_ROWS + 2) * stride);
    if (!lines) return 1;
    const float *weight = floats_of(c->weight, c->norm.width, lines + NORM_ROWS * stride);
    const float *bias = floats_of(c->bias, c->norm.width, lines + (NORM_ROWS + 1) * stride);
    if (!c->table.groups) normalise_rows(&c->norm, own, weight, bias, lines);
    for (const group *g = c->table.groups; g < c->table.groups + c->table.count; g++) {
        const share rows = common(own, c->table.starts[g->first], c->table.starts[g->last]);
        const norm_weights none = {{NULL, -1}, {NULL, -1}};
        const norm_weights w = g->program ? g->program->norms[c->index] : none;
        normalise_rows(
            &c->norm, rows, own_or(w.weight, g->base, weight), own_or(w.bias, g->base, bias), lines);
    }
    free(lines);
    return 0;
}

/* Computes norm number `index` of all `tokens`. `weight` and `bias` are the backbone's, for groups without weights of
 * their own, and for all rows if there are no groups. y, x and the residual are bfloat16 if `half`. Returns 0, or 1
 * without memory. */
EXPORT int peltier_norm(
    void *y, const void *x, const void *residual, int64_t y_stride, int64_t x_stride, int64_t residual_stride, int half,
    const void *weight, const void *bias, int weights_half, int64_t tokens, int64_t width, float eps, int centered,
    const group *groups, int64_t count, const int64_t *starts, int64_t index) {
    const norm_call c = {
        .norm = {{y, y_stride, half}, {x, x_stride, half}, {residual, residual_stride, half}, width, eps, centered},
        .weight = {weight, weights_half}, .bias = {bias, weights_half}, .table = {groups, count, starts}, .index = index};
    return share_out(normalise_share, &c, tokens, tokens * width >= ELEMENTS_WORTH_THREADS);
}
