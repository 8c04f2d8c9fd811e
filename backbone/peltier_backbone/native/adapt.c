/* The adapters of a batch at one place of a model: one call computes all rows, with ops of any shapes. The intermediate
 * results of an op stay in the cache. */

#include "kernels.h"
#include "norms.h"
#include "threads.h"
#include "tiles.h"

/* Four buffers of `size` floats: the input, two that alternate as results of products, and scales. */
typedef struct {
    float *input, *between[2], *scales;
} scratch;

static float dot(const float *x, const float *w, int64_t inner) {
    lanes sums[4] = {{0}, {0}, {0}, {0}};
    int64_t k = 0;
    for (; k + 4 * LANES <= inner; k += 4 * LANES)
        for (int i = 0; i < 4; i++) sums[i] += load(x + k + i * LANES, 0, LANES) * load(w + k + i * LANES, 0, LANES);
    for (; k < inner; k += LANES) sums[0] += load(x + k, 0, inner - k) * load(w + k, 0, inner - k);
    return sum_of((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

/* The two outputs of x w, where w is [inner, 2]. */
static void dot_pair(const float *x, const float *w, int64_t inner, float found[2]) {
    found[0] = found[1] = 0;
    for (int64_t k = 0; k < inner; k++) found[0] += x[k] * w[2 * k], found[1] += x[k] * w[2 * k + 1];
}

static int copies_input(const adapt_call *c, const op *o) {
    return c->x.half || o->reads != READS_X || (o->count && o->steps[0].fold > 1 && c->x.stride != c->width);
}

/* The `rows` rows of an op's input that begin at `first`, as floats: x itself, or a copy in the scratch. */
static matrix read_input(const adapt_call *c, const op *o, const float *base, int64_t first, int64_t rows, scratch s) {
    const matrix x = {at(c->x, first, 0), c->x.stride, c->x.half}, made = {s.input, c->width, 0};
    if (!copies_input(c, o)) return x;
    const matrix residual = {at(c->residual, first, 0), c->residual.stride, c->residual.half};
    if (o->reads == READS_NORM) {
        const norm n = {made, x, residual, c->width, (float)o->eps, (int)o->centered};
        const float *weight = find(o->norm_weight, base), *bias = find(o->norm_bias, base);
        for (int64_t row = 0; row < rows; row++) normalise(&n, row, 1, weight, bias, x.half, 0, s.between[0]);
        return made;
    }
    for (int64_t row = 0; row < rows; row++)
        for (int64_t k = 0; k < c->width; k += LANES) {
            const int64_t count = c->width - k < LANES ? c->width - k : LANES;
            lanes v = load(at(x, row, k), x.half, count);
            if (o->reads == READS_SUM) v += load(at(residual, row, k), residual.half, count);
            store(s.input + row * c->width + k, 0, count, v);
        }
    return made;
}

/* Elements of the widest row that is neither x nor y. */
static int64_t widest(const adapt_call *c, const op *o) {
    int64_t most = copies_input(c, o) ? c->width : 1;
    if (o->count && o->steps[o->count - 1].fold > most) most = o->steps[o->count - 1].fold;
    for (int64_t k = 0; k < o->count - 1; k++)
        if (o->steps[k].fold * o->steps[k].outer > most) most = o->steps[k].fold * o->steps[k].outer;
    return most;
}

/* The number of rows that are computed at a time. */
static int64_t rows_at_once(int64_t width) {
    const int64_t most = CHUNK / width / ROWS * ROWS;
    return most < ROWS ? ROWS : most;
}

static matrix folded(matrix m, int64_t fold, int64_t width) {
    return (matrix){m.data, fold == 1 ? m.stride : width, m.half};
}

/* y += scale * steps(x), with a scale for each row. */
static void run_steps(const op *o, const float *base, matrix y, matrix x, int64_t rows, const float *scale, scratch s) {
    for (int64_t k = 0; k < o->count; k++) {
        const step *own = o->steps + k;
        const int last = k == o->count - 1;
        const product p = {
            .y = last ? folded(y, own->fold, own->outer) : (matrix){s.between[k % 2], own->outer, 0},
            .x = folded(x, own->fold, own->inner), .w = {find(own->w, base), own->w_stride, 0},
            .bias = find(own->bias, base), .scale = last ? scale : NULL, .inner = own->inner, .outer = own->outer,
            .add = last, .activation = (int)own->activation};
        multiply(&p, rows * own->fold);
        x = (matrix){p.y.data, own->fold * own->outer, 0};
    }
}

/* Gain times gate for each row of the last product of `rows` tokens that begin at `first`. `row` is the text of the
 * first token. */
static const float *scales_of(
    const adapt_call *c, const op *o, int64_t number, int64_t row, int64_t first, int64_t rows, scratch s) {
    if (o->gain == 1 && !o->gate.outputs) return NULL;
    const int64_t fold = o->steps[o->count - 1].fold;
    const float *gates = o->gate.outputs ? c->gates + number * num_rows(c->table) : NULL;
    for (int64_t token = 0; token < rows; token++) {
        while (c->table.starts[row + 1] <= first + token) row++;
        for (int64_t i = 0; i < fold; i++) s.scales[token * fold + i] = (float)o->gain * (gates ? gates[row] : 1);
    }
    return s.scales;
}

static void add_bias(const op *o, const float *base, matrix y, int64_t rows) {
    const float *added = find(o->added, base), *replaced = find(o->replaced, base);
    for (int64_t row = 0; row < rows; row++)
        for (int64_t k = 0; k < o->width; k += LANES) {
            const int64_t count = o->width - k;
            void *place = (void *)at(y, row, k);
            lanes v = load(added + k, 0, count);
            if (replaced) v -= load(replaced + k, 0, count);
            store(place, y.half, count, load(place, y.half, count) + v);
        }
}

static void scale_columns(const op *o, const float *factor, matrix y, int64_t rows) {
    for (int64_t row = 0; row < rows; row++)
        for (int64_t k = 0; k < o->width; k += LANES) {
            const int64_t count = o->width - k;
            void *place = (void *)at(y, row, k);
            store(place, y.half, count, load(place, y.half, count) * load(factor + k, 0, count));
        }
}

static scratch cut(float *memory, int64_t size) {
    return (scratch){memory, {memory + size, memory + 2 * size}, memory + 3 * size};
}

/* Computes an op of a group for the group's tokens that are in `own`. */
static void run_op(const adapt_call *c, const group *g, int64_t number, share own, float *memory) {
    const op *o = g->program->ops + g->program->places[c->place] + number;
    const int64_t width = widest(c, o), most = rows_at_once(width);
    const scratch s = cut(memory, most * width);
    const share rows = common(own, c->table.starts[g->first], c->table.starts[g->last]);
    int64_t row = g->first;
    for (int64_t first = rows.first; first < rows.last; first += most) {
        const int64_t count = rows.last - first < most ? rows.last - first : most;
        const matrix y = {at(c->y, first, o->column), c->y.stride, c->y.half};
        while (c->table.starts[row + 1] <= first) row++;
        if (o->count) {
            const matrix x = read_input(c, o, g->base, first, count, s);
            run_steps(o, g->base, y, x, count, scales_of(c, o, number, row, first, count, s), s);
        } else if (find(o->factor, g->base)) scale_columns(o, find(o->factor, g->base), y, count);
        else if (o->width) add_bias(o, g->base, y, count);
    }
}

/* One row's gate. */
static float gate_of(const adapt_call *c, const op *o, const float *base, int64_t row, float *memory) {
    const int64_t end = c->table.starts[row + 1], width = widest(c, o), most = rows_at_once(width);
    const scratch s = cut(memory, most * width);
    const float *w = find(o->gate.w, base), *bias = find(o->gate.bias, base);
    float totals[2] = {0, 0};
    for (int64_t first = c->table.starts[row]; first < end; first += most) {
        const int64_t count = end - first < most ? end - first : most;
        const matrix x = read_input(c, o, base, first, count, s);
        for (int64_t token = 0; token < count; token++)
            if (o->gate.outputs == 1) {
                const lanes score = {dot(at(x, token, 0), w, c->width) + bias[0]};
                totals[0] += sigmoid(score)[0];
            } else {
                float scores[2];
                dot_pair(at(x, token, 0), w, c->width, scores);
                for (int i = 0; i < 2; i++) totals[i] += scores[i] + bias[i] < 0 ? 0 : scores[i] + bias[i];
            }
    }
    const float tokens = (float)(end - c->table.starts[row]);
    if (o->gate.outputs == 1) return totals[0] / tokens;
    const lanes ahead = {(totals[o->gate.column] - totals[1 - o->gate.column]) / tokens};
    return sigmoid(ahead)[0];
}

/* Computes the gates of the rows in `own`. */
static void run_gates(const adapt_call *c, share own, float *memory) {
    for (const group *g = c->table.groups; g < c->table.groups + c->table.count; g++) {
        if (!g->program) continue;
        const share rows = common(own, g->first, g->last);
        const int64_t first = g->program->places[c->place], last = g->program->places[c->place + 1];
        for (int64_t k = first; k < last; k++) {
            const op *o = g->program->ops + k;
            if (!o->gate.outputs) continue;
            for (int64_t row = rows.first; row < rows.last; row++)
                c->gates[(k - first) * num_rows(c->table) + row] = gate_of(c, o, g->base, row, memory);
        }
    }
}

static void run_ops(const adapt_call *c, share own, float *memory) {
    for (const group *g = c->table.groups; g < c->table.groups + c->table.count; g++) {
        if (!g->program) continue;
        const int64_t count = g->program->places[c->place + 1] - g->program->places[c->place];
        for (int64_t k = 0; k < count; k++) run_op(c, g, k, own, memory);
    }
}

/* A call, and the floats of memory that a thread needs. */
typedef struct {
    const adapt_call *call;
    int64_t floats;
} job;

static int gate_share(const void *adapt_job, share rows) {
    const job *j = adapt_job;
    float *memory = new_floats(j->floats + LINE_FLOATS);
    if (!memory) return 1;
    run_gates(j->call, rows, memory);
    free(memory);
    return 0;
}

static int op_share(const void *adapt_job, share tokens) {
    const job *j = adapt_job;
    float *memory = new_floats(j->floats + LINE_FLOATS);
    if (!memory) return 1;
    run_ops(j->call, tokens, memory);
    free(memory);
    return 0;
}

/* The cost of a call: products, floats of memory for each thread, and whether any op has a gate. */
typedef struct {
    int64_t products, floats;
    int gated;
} cost;

static cost cost_of(const adapt_call *c) {
    cost found = {0, 4 * CHUNK, 0};
    for (const group *g = c->table.groups; g < c->table.groups + c->table.count; g++) {
        if (!g->program) continue;
        const int64_t tokens = c->table.starts[g->last] - c->table.starts[g->first];
        for (int64_t k = g->program->places[c->place]; k < g->program->places[c->place + 1]; k++) {
            const op *o = g->program->ops + k;
            const int64_t floats = 4 * ROWS * widest(c, o);
            for (int64_t i = 0; i < o->count; i++)
                found.products += tokens * o->steps[i].fold * o->steps[i].inner * o->steps[i].outer;
            if (o->gate.outputs) found.products += tokens * c->width * o->gate.outputs, found.gated = 1;
            if (floats > found.floats) found.floats = floats;
        }
    }
    return found;
}

EXPORT int peltier_adapt(const adapt_call *c) {
    const cost whole = cost_of(c);
    const job j = {c, whole.floats};
    const int worth = whole.products >= WORTH_THREADS;
    const int64_t rows = num_rows(c->table);
    /* All gates come first: ops change the rows from which other threads compute gates. */
    const int failed = whole.gated && share_out(gate_share, &j, rows, worth);
    return failed | share_out(op_share, &j, c->table.starts[rows], worth);
}

EXPORT const char *peltier_sources(void) {
    return PELTIER_SOURCES;
}
