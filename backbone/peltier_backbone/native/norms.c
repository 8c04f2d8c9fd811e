/* Norms over the last dimension. Each group of adjacent rows can have its own weights. */

#include "norms.h"
#include "threads.h"

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

/* A weight or a bias [width] as floats: itself, or a copy in `line` if it is bfloat16. */
static const float *floats_of(const void *vector, int64_t half, int64_t width, float *line) {
    if (!half || !vector) return vector;
    for (int64_t k = 0; k < width; k += LANES) store(line + k, 0, LANES, of_row(vector, 1, k, width - k));
    return line;
}

static const float *own_or(vector own, const float *base, const float *other) {
    const float *found = find(own, base);
    return found ? found : other;
}

static int normalise_share(const void *call, share own) {
    const norm_call *c = call;
    const int64_t width = c->norm.width, stride = line_stride(width);
    float *lines = new_floats((NORM_ROWS + 2) * stride);
    if (!lines) return 1;
    const float *weight = floats_of(c->weight, c->weights_half, width, lines + NORM_ROWS * stride);
    const float *bias = floats_of(c->bias, c->weights_half, width, lines + (NORM_ROWS + 1) * stride);
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

EXPORT int peltier_norm(const norm_call *c) {
    return share_out(normalise_share, c, c->tokens, c->tokens * c->norm.width >= ELEMENTS_WORTH_THREADS);
}
