/* Norms over the last dimension, each group of neighbouring rows with weights of its own. */

#include "kernels.h"
#include "norms.h"
#include "threads.h"

/* A call of `peltier_norm`. */
typedef struct {
    norm norm;
    norm_vector weight, bias;
    table table;
    int64_t index;
} norm_call;

static void normalise_rows(const norm *n, share rows, norm_vector weight, norm_vector bias, float *line) {
    for (int64_t row = rows.first; row < rows.last; row++)
        if (n->y.half) normalise(n, row, weight, bias, 1, 1, line);
        else normalise(n, row, weight, bias, 0, 0, line);
}

static norm_vector own_or(vector own, const float *base, norm_vector other) {
    const float *found = find(own, base);
    return found ? (norm_vector){found, 0} : other;
}

/* The rows of `own`. Returns 0, or 1 without memory. */
NOINLINE int normalise_share(const norm_call *c, share own) {
    float *line = new_floats(c->norm.width + LANES);
    if (!line) return 1;
    if (!c->table.groups) normalise_rows(&c->norm, own, c->weight, c->bias, line);
    for (const group *g = c->table.groups; g < c->table.groups + c->table.count; g++) {
        const share rows = common(own, c->table.starts[g->first], c->table.starts[g->last]);
        const norm_weights none = {{NULL, -1}, {NULL, -1}};
        const norm_weights w = g->program ? g->program->norms[c->index] : none;
        normalise_rows(
            &c->norm, rows, own_or(w.weight, g->base, c->weight), own_or(w.bias, g->base, c->bias), line);
    }
    free(line);
    return 0;
}

/* Norm number `index` of all `tokens`; `weight` and `bias` are the backbone's, for groups that have none of their own, and
 * for all where there are no groups. y, x and the residual are of `half`'s kind. Returns 0, or 1 without memory. */
EXPORT int peltier_norm(
    void *y, const void *x, const void *residual, int64_t y_stride, int64_t x_stride, int64_t residual_stride, int half,
    const void *weight, const void *bias, int weights_half, int64_t tokens, int64_t width, float eps, int centered,
    const group *groups, int64_t count, const int64_t *starts, int64_t index) {
    const norm_call c = {
        .norm = {{y, y_stride, half}, {x, x_stride, half}, {residual, residual_stride, half}, width, eps, centered},
        .weight = {weight, weights_half}, .bias = {bias, weights_half}, .table = {groups, count, starts}, .index = index};
    int failed = 0;
#pragma omp parallel if (tokens * width >= ELEMENTS_WORTH_THREADS) reduction(| : failed)
    failed |= normalise_share(&c, own_share(tokens));
    return failed;
}
