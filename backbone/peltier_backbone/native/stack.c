/* All layers of an encoder or a decoder in one call: in the order of the modules in Python (`bert/layer.py`,
 * `modernbert/modernbert.py`, `t5/sublayers.py`), which compute the same by torch. It is one call because for few rows
 * the calls from Python would take as long as the kernels. */

#include "lanes.h"
#include "stack.h"
#include "threads.h"

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
    const norm_call call = {
        .norm = {y, r->x, residual, s->hidden, (float)s->eps, (int)s->centered}, .weight = n->weight, .bias = n->bias,
        .weights_half = s->norms_half, .tokens = r->c->tokens, .index = n->index, .table = r->c->table};
    return peltier_norm(&call);
}

static int apply(const run *r, const frozen_map *w, matrix y, matrix x, int64_t activation) {
    const int64_t tokens = r->c->tokens;
    if (w->quantized) {
        const multiply_int8_call call = {y, x, w->quantized, tokens, activation};
        return peltier_multiply_int8(&call);
    }
    const multiply_call call = {y, x, w->packed, w->bias, tokens, w->inner, w->outer, activation};
    return peltier_multiply(&call);
}

/* Whether an adapter acts at a site. */
static int acts(const run *r, int site, int64_t number) {
    const stack_call *c = r->c;
    for (const group *g = c->table.groups; g < c->table.groups + c->table.count; g++) {
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
    if (!acts(r, site, number)) return 0;
    const adapt_call call = {
        .y = y, .x = x, .residual = residual, .width = width, .place = r->c->sites[site] + number, .table = r->c->table,
        .gates = gates_at(r, site, number)};
    return peltier_adapt(&call);
}

/* A frozen map and what adapters add to it. */
static int project(const run *r, int site, int64_t number, const frozen_map *w, matrix y, matrix x) {
    const int failed = apply(r, w, y, x, ACTIVATION_NONE);
    return failed | adapt(r, site, number, y, x, (matrix){0}, w->inner);
}

static int attend(
    const run *r, int64_t number, matrix query, const placed_keys *k, const placed_row *rows, int64_t num_rows,
    const layer *own) {
    const stack_call *c = r->c;
    const stack *s = r->s;
    attend_call call = {
        .context = r->context, .query = query, .keys = *k, .rows = rows, .num_rows = num_rows, .heads = s->heads,
        .size = s->size, .once = c->once, .rounded = s->rounded, .scale = s->scale};
    if (own) {
        call.window = own->window, call.distances = s->distances;
        call.distance_queries = own->distance_queries, call.distance_keys = own->distance_keys;
    }
    if (!c->prefixed) return peltier_attend(&call);
    call.table = c->table;
    call.place = c->sites[SITE_PREFIX] + number;
    call.gates = gates_at(r, SITE_PREFIX, number);
    /* The ops of a prefix only compute its gates: they add nothing to y. */
    const int failed = adapt(r, SITE_PREFIX, number, r->input, r->input, (matrix){0}, s->hidden);
    return failed | peltier_attend(&call);
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

/* Rows of queries of `heads` heads, and then of the keys and values of one in `group` heads. */
typedef struct {
    matrix x;
    int64_t heads, size, group;
} shared_heads;

/* Head h of 2 * heads copies that of number h / group, which no earlier copy has replaced: the last head comes first. */
static int repeat_share(const void *call, share rows) {
    const shared_heads *c = call;
    const size_t bytes = (size_t)c->size * (c->x.half ? 2 : 4);
    for (int64_t row = rows.first; row < rows.last; row++)
        for (int64_t h = 2 * c->heads - 1; h > 0; h--)
            memcpy((void *)at(c->x, row, (c->heads + h) * c->size),
                   at(c->x, row, (c->heads + h / c->group) * c->size), bytes);
    return 0;
}

/* Queries, keys and values of each head, before adapters. Heads that share a key and a value get copies, as an adapter may
 * change those of one head. */
static int own_heads(const run *r, const layer *l, matrix query) {
    const frozen_map *w = &l->query_key_value;
    const int64_t heads = r->s->heads, size = r->s->size, outer = 3 * heads * size;
    const int failed = apply(r, w, query, r->input, ACTIVATION_NONE);
    if (w->outer == outer) return failed;
    const shared_heads call = {query, heads, size, 2 * heads / (w->outer / size - heads)};
    return failed | share_out(repeat_share, &call, r->c->tokens, r->c->tokens * outer >= ELEMENTS_WORTH_THREADS);
}

static int own_attention(const run *r, const layer *l, int64_t number) {
    const stack_call *c = r->c;
    const int64_t size = r->s->heads * r->s->size;
    const matrix query = {r->room.data, 3 * size, r->room.half}, keys = {at(query, 0, size), query.stride, query.half};
    const placed_keys beside = {keys.data, at(keys, 0, size), keys.stride, r->s->size, keys.half};
    int failed = begin(r, &l->own_norm);
    failed |= own_heads(r, l, query);
    failed |= adapt(
        r, SITE_QUERY_KEY_VALUE, l->attention, query, r->input, (matrix){0}, l->query_key_value.inner);
    if (l->turns) {
        const rotate_call call = {query, l->turns, c->positions, c->tokens, 2 * r->s->heads, r->s->size};
        peltier_rotate(&call);
    }
    const placed_keys *own = c->own ? c->own + number : &beside;
    if (c->own) {
        const keep_keys_call call = {*own, keys, c->places, c->tokens, r->s->heads, r->s->size};
        peltier_keep_keys(&call);
    }
    failed |= attend(r, l->attention, query, own, rows_of(r, number), c->num_rows, l);
    failed |= project(r, SITE_ATTENTION_OUTPUT, l->attention, &l->output, r->y, r->context);
    failed |= adapt(r, SITE_ATTENTION, l->block, r->y, r->y, r->x, r->s->hidden);
    return failed | end(r, &l->own_norm);
}

static int cross_attention(const run *r, const layer *l, int64_t number) {
    const stack_call *c = r->c;
    const matrix query = room_for(r, &l->query);
    int failed = begin(r, &l->cross_norm);
    failed |= project(r, SITE_QUERY, l->cross, &l->query, query, r->input);
    failed |= attend(r, l->cross, query, c->cross + number, c->cross_rows, c->num_cross_rows, NULL);
    failed |= project(r, SITE_ATTENTION_OUTPUT, l->cross, &l->cross_output, r->y, r->context);
    return failed | end(r, &l->cross_norm);
}

static int feed_forward(const run *r, const layer *l) {
    const stack *s = r->s;
    const int adapted = acts(r, SITE_INTERMEDIATE, l->block), apart = adapted || s->gated;
    const int64_t tokens = r->c->tokens;
    const matrix inner = room_for(r, &l->expand);
    int failed = begin(r, &l->feed_norm);
    if (l->expand.quantized && l->contract.quantized && !adapted && !acts(r, SITE_ACTIVATED, l->block) &&
        !acts(r, SITE_OUTPUT, l->block)) {
        const feed_forward_int8_call call = {
            r->y, r->input, l->expand.quantized, l->contract.quantized, tokens, s->activation, s->gated};
        failed |= peltier_feed_forward_int8(&call);
    } else {
        failed |= apply(r, &l->expand, inner, r->input, apart ? ACTIVATION_NONE : s->activation);
        failed |= adapt(r, SITE_INTERMEDIATE, l->block, inner, r->input, (matrix){0}, s->hidden);
        if (apart) {
            const activate_call call = {inner, tokens, l->contract.inner, s->activation, s->gated};
            peltier_activate(&call);
        }
        failed |= adapt(r, SITE_ACTIVATED, l->block, inner, inner, (matrix){0}, l->contract.inner);
        failed |= project(r, SITE_OUTPUT, l->block, &l->contract, r->y, inner);
    }
    failed |= adapt(r, SITE_FFN, l->block, r->y, r->y, r->x, s->hidden);
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
