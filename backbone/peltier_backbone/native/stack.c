/* All layers of an encoder or a decoder in one call: the kernels in the order in which the modules in Python call them
 * (`bert.py`, `modernbert.py`, `sublayers.py`), so results are the same to the last bit. For few rows Python takes as long as the kernels. */

#include "kernels.h"
#include "lanes.h"
#include "threads.h"

/* A frozen map: `quantized`, or else `packed` in the dtype of the rows, with its `bias` or NULL. */
typedef struct {
    const int8_weight *quantized;
    const void *packed;
    const float *bias;
    int64_t inner, outer;
} frozen_map;

/* A norm's weight [hidden], its bias or NULL, and its number in the model; without a weight a sub-layer reads the sum. */
typedef struct {
    const void *weight, *bias;
    int64_t index;
} stack_norm;

/* An encoder's layer has no cross-attention: its `query` has no outputs. With `turns`, queries and keys turn by their
 * positions as in `peltier_rotate`. A `window` is as for `peltier_attend`. */
typedef struct {
    stack_norm own_norm, cross_norm, feed_norm;
    frozen_map query_key_value, output, query, cross_output, expand, contract;
    int64_t block, attention, cross;
    const float *turns;
    int64_t window;
} layer;

/* The layers, and what they share. Without `post` (T5), a sub-layer reads a norm of the sum so far, and the `final`
 * norm, if it has a weight, follows the last layer. With `post` (BERT), a sub-layer reads the sum itself, and a norm
 * replaces the sum after it. Attention is `rounded` as for `peltier_attend`. With `block_biases` each layer has its own
 * biases, which follow those of the layer before. */
typedef struct {
    const layer *layers;
    int64_t count;
    stack_norm final;
    int64_t norms_half, hidden, heads, size, activation, gated, post, centered, rounded, block_biases;
    double eps, scale;
} stack;

/* Where a layer's keys and values lie. */
typedef struct {
    const void *keys, *values;
    int64_t stride, head_stride, half;
} placed_keys;

/* Sites of adapters, each with its first place in a program (`PlacedOps`). */
enum { QUERY_KEY_VALUE, QUERY, ATTENTION_OUTPUT, INTERMEDIATE, OUTPUT, ATTENTION, FFN, PREFIX };

/* One call: `rows` and `cross_rows` say which keys each row's queries see. Without `own` keys they are those of the rows
 * themselves; with them each row is one token, whose keys go to number places[row] before it attends. `positions` are
 * those of tokens in layers with turns. The gates of the ops at place p begin at gates + p * gate_stride: all places share
 * the memory if that is 0. */
typedef struct {
    const void *x;
    void *y;
    int64_t tokens, half;
    const placed_row *rows, *cross_rows;
    int64_t num_rows, num_cross_rows;
    const placed_keys *own, *cross;
    const int64_t *places, *positions;
    int64_t once, prefixed;
    const group *groups;
    int64_t num_groups;
    const int64_t *starts, *sites;
    float *gates;
    int64_t gate_stride;
} stack_call;

/* A call with its memory: the sum so far, what a sub-layer reads, what an attention gives, what is added to the sum,
 * room for what a map gives, and the rows of a layer with its biases. */
typedef struct {
    const stack *s;
    const stack_call *c;
    matrix x, input, context, y, room;
    placed_row *rows;
} run;

/* The rows with the biases of layer `number`. */
static const placed_row *rows_of(const run *r, int64_t number) {
    const stack_call *c = r->c;
    if (!r->s->block_biases) return c->rows;
    for (int64_t k = 0; k < c->num_rows; k++) {
        r->rows[k] = c->rows[k];
        r->rows[k].bias += number * r->s->heads * c->rows[k].bias_head;
    }
    return r->rows;
}

/* Room for what `w` gives. */
static matrix room_for(const run *r, const frozen_map *w) {
    return (matrix){r->room.data, w->outer, r->room.half};
}

static int normalise(const run *r, const stack_norm *n, matrix y, matrix residual) {
    const stack *s = r->s;
    const stack_call *c = r->c;
    return peltier_norm(
        (void *)y.data, r->x.data, residual.data, y.stride, r->x.stride, residual.stride, y.half, n->weight, n->bias,
        (int)s->norms_half, c->tokens, s->hidden, (float)s->eps, (int)s->centered, c->groups, c->num_groups, c->starts,
        n->index);
}

static int apply(const run *r, const frozen_map *w, matrix y, matrix x, int activation) {
    const int64_t tokens = r->c->tokens;
    if (w->quantized)
        return peltier_multiply_int8((float *)y.data, y.stride, x.data, x.stride, tokens, w->quantized, activation);
    return peltier_multiply(
        (void *)y.data, y.stride, x.data, x.stride, x.half, w->packed, w->bias, tokens, w->inner, w->outer, activation);
}

/* Whether an adapter acts at a site. */
static int acts(const run *r, int site, int64_t number) {
    const stack_call *c = r->c;
    for (const group *g = c->groups; g < c->groups + c->num_groups; g++) {
        const int64_t *place = g->program ? g->program->places + c->sites[site] + number : NULL;
        if (place && place[0] != place[1]) return 1;
    }
    return 0;
}

/* Where the gates of a site lie. */
static float *gates_at(const run *r, int site, int64_t number) {
    return r->c->gates + (r->c->sites[site] + number) * r->c->gate_stride;
}

/* What adapters add to y at a site, where x is `width` wide. */
static int adapt(const run *r, int site, int64_t number, matrix y, matrix x, matrix residual, int64_t width) {
    const stack_call *c = r->c;
    if (!acts(r, site, number)) return 0;
    return peltier_adapt(
        (void *)y.data, y.stride, y.half, x.data, x.stride, x.half, residual.data, residual.stride, width, c->groups,
        c->num_groups, c->starts, c->sites[site] + number, gates_at(r, site, number));
}

/* A frozen map and what adapters add to it. */
static int project(const run *r, int site, int64_t number, const frozen_map *w, matrix y, matrix x) {
    return apply(r, w, y, x, 0) | adapt(r, site, number, y, x, (matrix){0}, w->inner);
}

static int attend(
    const run *r, int64_t number, matrix query, const placed_keys *k, const placed_row *rows, int64_t num_rows,
    int64_t window) {
    const stack_call *c = r->c;
    const stack *s = r->s;
    /* A prefix adds nothing to y; its gates are found. */
    const int failed = c->prefixed && adapt(r, PREFIX, number, r->input, r->input, (matrix){0}, s->hidden);
    return failed | peltier_attend(
        (void *)r->context.data, r->context.stride, query.data, query.stride, query.half, k->keys, k->values, k->stride,
        (int)k->half, k->head_stride, rows, num_rows, s->heads, s->size, (float)s->scale, (int)c->once,
        (int)s->rounded, window, c->prefixed ? c->groups : NULL, c->prefixed ? c->num_groups : 0, c->starts,
        c->sites[PREFIX] + number, c->prefixed ? gates_at(r, PREFIX, number) : NULL);
}

static int add_share(const void *call, share rows) {
    const run *r = call;
    const matrix x = r->x, y = r->y;
    const int64_t width = r->s->hidden;
    for (int64_t row = rows.first; row < rows.last; row++)
        for (int64_t k = 0; k < width; k += LANES) {
            const lanes sum = load(at(x, row, k), x.half, width - k) + load(at(y, row, k), x.half, width - k);
            store((void *)at(x, row, k), x.half, width - k, sum);
        }
    return 0;
}

static void add_to_sum(const run *r) {
    share_out(add_share, r, r->c->tokens, r->c->tokens * r->s->hidden >= ELEMENTS_WORTH_THREADS);
}

/* Prepares the input of a sub-layer with the norm `n`. */
static int begin(const run *r, const stack_norm *n) {
    if (r->s->post) return 0;
    if (n->weight) return normalise(r, n, r->input, (matrix){0});
    memcpy((void *)r->input.data, r->x.data, (size_t)(r->c->tokens * r->s->hidden * (r->x.half ? 2 : 4)));
    return 0;
}

/* Adds the result of the sub-layer to the sum, or normalises both. */
static int end(const run *r, const stack_norm *n) {
    if (r->s->post) return normalise(r, n, r->x, r->y);
    add_to_sum(r);
    return 0;
}

static int own_attention(const run *r, const layer *l, int64_t number) {
    const stack_call *c = r->c;
    const int64_t size = r->s->heads * r->s->size;
    const matrix query = room_for(r, &l->query_key_value), keys = {at(query, 0, size), query.stride, query.half};
    const placed_keys beside = {keys.data, at(keys, 0, size), keys.stride, r->s->size, keys.half};
    int failed = begin(r, &l->own_norm);
    failed |= project(r, QUERY_KEY_VALUE, l->attention, &l->query_key_value, query, r->input);
    if (l->turns)
        peltier_rotate(
            (void *)query.data, query.stride, query.half, l->turns, c->positions, c->tokens, 2 * r->s->heads, r->s->size);
    const placed_keys *own = c->own ? c->own + number : &beside;
    if (c->own)
        peltier_keep_keys(
            (void *)own->keys, (void *)own->values, (int)own->half, own->head_stride, keys.data, keys.stride, keys.half,
            c->places, c->tokens, r->s->heads, r->s->size);
    failed |= attend(r, l->attention, query, own, rows_of(r, number), c->num_rows, l->window);
    failed |= project(r, ATTENTION_OUTPUT, l->attention, &l->output, r->y, r->context);
    failed |= adapt(r, ATTENTION, l->block, r->y, r->y, r->x, r->s->hidden);
    return failed | end(r, &l->own_norm);
}

static int cross_attention(const run *r, const layer *l, int64_t number) {
    const stack_call *c = r->c;
    const matrix query = room_for(r, &l->query);
    int failed = begin(r, &l->cross_norm);
    failed |= project(r, QUERY, l->cross, &l->query, query, r->input);
    failed |= attend(r, l->cross, query, c->cross + number, c->cross_rows, c->num_cross_rows, 0);
    failed |= project(r, ATTENTION_OUTPUT, l->cross, &l->cross_output, r->y, r->context);
    return failed | end(r, &l->cross_norm);
}

static int feed_forward(const run *r, const layer *l) {
    const stack *s = r->s;
    const int activation = (int)s->activation, gated = (int)s->gated, adapted = acts(r, INTERMEDIATE, l->block);
    const int64_t tokens = r->c->tokens;
    const matrix inner = room_for(r, &l->expand);
    int failed = begin(r, &l->feed_norm);
    if (l->expand.quantized && !adapted && !acts(r, OUTPUT, l->block))
        failed |= peltier_feed_forward_int8(
            (float *)r->y.data, r->y.stride, r->input.data, r->input.stride, tokens, l->expand.quantized,
            l->contract.quantized, activation, gated);
    else {
        const int apart = adapted || gated;
        failed |= apply(r, &l->expand, inner, r->input, apart ? 0 : activation);
        failed |= adapt(r, INTERMEDIATE, l->block, inner, r->input, (matrix){0}, s->hidden);
        if (apart)
            peltier_activate((void *)inner.data, inner.stride, inner.half, tokens, l->contract.inner, activation, gated);
        failed |= project(r, OUTPUT, l->block, &l->contract, r->y, inner);
    }
    failed |= adapt(r, FFN, l->block, r->y, r->y, r->x, s->hidden);
    return failed | end(r, &l->feed_norm);
}

static int64_t widest(const stack *s) {
    int64_t most = 3 * s->heads * s->size;
    for (const layer *l = s->layers; l < s->layers + s->count; l++) most = l->expand.outer > most ? l->expand.outer : most;
    return most;
}

/* The next matrix of `memory`. It begins at a cache line. */
static matrix cut(float **memory, int64_t rows, int64_t width, int64_t half) {
    const matrix found = {*memory, width, (int)half};
    *memory += (rows * width + LINE_FLOATS - 1) / LINE_FLOATS * LINE_FLOATS;
    return found;
}

/* y = all layers, and the final norm if there is one, of x, both [tokens, hidden]. Returns 0, or 1 without memory. */
EXPORT int peltier_stack(const stack *s, const stack_call *c) {
    const int64_t hidden = s->hidden, context = s->heads * s->size, wide = widest(s), half = c->half;
    float *memory = new_floats(c->tokens * (3 * hidden + context + wide) + 5 * LINE_FLOATS);
    if (!memory) return 1;
    float *rest = memory;
    run r = {.s = s, .c = c, .rows = s->block_biases ? malloc((size_t)c->num_rows * sizeof *c->rows) : NULL};
    if (s->block_biases && !r.rows) {
        free(memory);
        return 1;
    }
    matrix *made[] = {&r.x, &r.input, &r.y, &r.context, &r.room};
    const int64_t widths[] = {hidden, hidden, hidden, context, wide};
    for (int i = 0; i < 5; i++) *made[i] = cut(&rest, c->tokens, widths[i], half);
    if (s->post || !s->final.weight) r.x.data = c->y;
    if (s->post) r.input = r.x;
    memcpy((void *)r.x.data, c->x, (size_t)(c->tokens * hidden * (half ? 2 : 4)));
    int failed = 0;
    for (int64_t number = 0; number < s->count; number++) {
        const layer *l = s->layers + number;
        failed |= own_attention(&r, l, number);
        if (l->query.outer) failed |= cross_attention(&r, l, number);
        failed |= feed_forward(&r, l);
    }
    if (!s->post && s->final.weight) failed |= normalise(&r, &s->final, (matrix){c->y, hidden, (int)half}, (matrix){0});
    free(r.rows);
    free(memory);
    return failed;
}
