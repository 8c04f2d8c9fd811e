/* Softmax attention in float32, row by row and head by head: no pads, no masks and no neighbours. */

#include "kernels.h"
#include "threads.h"
#include "tiles.h"

/* So many queries at a time, so that their logits stay in the cache. */
#define QUERIES 64

/* One head of one row. Its keys are `prefix` ones times `gate`, then `seen` ones; its values likewise. A bias, if there is
 * data, has a row for each query and an element for each of the seen keys. */
typedef struct {
    matrix query, key, value, prefix_key, prefix_value, context, bias;
    int64_t tokens, seen, prefix, size;
    float gate;
} head;

/* What a head's turn needs, in one piece of memory that begins with `keys`. */
typedef struct {
    float *keys, *values, *queries, *logits, *scales;
} scratch;

static int64_t padded(int64_t keys) {
    return (keys + LANES - 1) / LANES * LANES;
}

/* Elements of a token of one head, while those of the next head, which lie behind them, are on their way to the cache:
 * tokens are so far apart that the processor does not foresee them, and waiting took a third of all attention. */
INLINE lanes load_ahead(matrix m, int64_t token, int64_t d, int64_t size) {
    __builtin_prefetch(at(m, token, d + size));
    return load(at(m, token, d), m.half, size - d);
}

/* Of each pair of lines `width` apart, the lanes that stand on the wrong side for a transposition change places. */
INLINE void exchange(lanes v[LANES], const int width) {
    const ints far = LANE_NUMBERS & width, from = (LANE_NUMBERS ^ far) | far * (LANES / width);
    _Pragma("GCC unroll 16") for (int i = 0; i < LANES; i++)
        if (!(i & width)) {
            const lanes first = v[i], second = v[i | width];
            v[i] = pick(first, second, from);
            v[i | width] = pick(first, second, from | width);
        }
}

/* Keys times `scale` as columns, [padded size, padded keys], zeros in the columns beyond the last. */
static void transpose(float *to, const head *h, float scale) {
    const int64_t keys = h->prefix + h->seen, stride = padded(keys);
    for (int64_t first = 0; first < keys; first += LANES)
        for (int64_t d = 0; d < h->size; d += LANES) {
            lanes square[LANES];
            for (int64_t i = 0; i < LANES; i++) {
                const int64_t key = first + i;
                if (key < h->prefix) square[i] = load_ahead(h->prefix_key, key, d, h->size) * h->gate * scale;
                else if (key < keys) square[i] = load_ahead(h->key, key - h->prefix, d, h->size) * scale;
                else square[i] = (lanes){0};
            }
            exchange(square, 1), exchange(square, 2), exchange(square, 4), exchange(square, 8);
            for (int64_t i = 0; i < LANES; i++) store(to + (d + i) * stride + first, 0, LANES, square[i]);
        }
}

/* Rows times `factor`. In the batch the rows of a head are far apart, at distances that share few lines of the cache:
 * contiguous rows multiply faster. */
INLINE void copy_rows(float *to, matrix from, int64_t rows, int64_t size, float factor) {
    for (int64_t row = 0; row < rows; row++)
        for (int64_t d = 0; d < size; d += LANES)
            store(to + row * size + d, 0, size - d, load_ahead(from, row, d, size) * factor);
}

/* e^(logit - largest) in place, zeros beyond the last key; returns one over their sum. */
static float exponentiate(float *logits, int64_t keys) {
    const lanes none = (lanes){0} - __builtin_inff();
    lanes largest = none, total = {0};
    for (int64_t key = 0; key < keys; key += LANES) {
        const lanes v = keep(load(logits + key, 0, LANES), keys - key, none);
        largest = select_lanes(v > largest, v, largest);
    }
    const float top = largest_of(largest);
    for (int64_t key = 0; key < keys; key += LANES) {
        const lanes v = keep(exp_lanes(load(logits + key, 0, LANES) - top), keys - key, (lanes){0});
        total += v;
        store(logits + key, 0, LANES, v);
    }
    return 1.0f / sum_of(total);
}

static void add_bias(float *logits, const head *h, int64_t query) {
    for (int64_t key = 0; key < h->seen; key += LANES) {
        const int64_t left = h->seen - key;
        float *to = logits + h->prefix + key;
        store(to, 0, left, load(to, 0, left) + load(at(h->bias, query, key), 0, left));
    }
}

static void attend(const head *h, scratch s, float scale) {
    const int64_t keys = h->prefix + h->seen, stride = padded(keys);
    transpose(s.keys, h, scale);
    copy_rows(s.values, h->prefix_value, h->prefix, h->size, h->gate);
    copy_rows(s.values + h->prefix * h->size, h->value, h->seen, h->size, 1);
    const matrix columns = {s.keys, stride, 0}, values = {s.values, h->size, 0};
    const matrix queries = {s.queries, h->size, 0}, logits = {s.logits, stride, 0};
    for (int64_t first = 0; first < h->tokens; first += QUERIES) {
        const int64_t count = h->tokens - first < QUERIES ? h->tokens - first : QUERIES;
        copy_rows(s.queries, (matrix){at(h->query, first, 0), h->query.stride, h->query.half}, count, h->size, 1);
        multiply(&(product){.y = logits, .x = queries, .w = columns, .inner = h->size, .outer = stride}, count);
        for (int64_t row = 0; h->bias.data && row < count; row++) add_bias(s.logits + row * stride, h, first + row);
        for (int64_t row = 0; row < count; row++) s.scales[row] = exponentiate(s.logits + row * stride, keys);
        const matrix context = {at(h->context, first, 0), h->context.stride, h->context.half};
        multiply(
            &(product){.y = context, .x = logits, .w = values, .scale = s.scales, .inner = keys, .outer = h->size}, count);
    }
}

/* Of sixteen vectors the sum of each. */
INLINE lanes sums_of(lanes v[LANES]) {
    EACH_HALVING {
        const ints own = LANE_NUMBERS & width, from = own * (LANES / width);
        for (int i = 0; i < width; i++)
            v[i] = pick(v[i], v[i + width], (LANE_NUMBERS ^ own) | from) + pick(v[i], v[i + width], LANE_NUMBERS | width | from);
    }
    return v[0];
}

/* A part of sum of query * key, of one query. */
INLINE lanes partial_logit(const head *h, int64_t number) {
    const int own = number >= h->prefix;
    const matrix key = own ? h->key : h->prefix_key;
    lanes total = {0};
    for (int64_t d = 0; d < h->size; d += LANES) {
        const int64_t left = h->size - d;
        total += load(at(h->query, 0, d), h->query.half, left) * load(at(key, own ? number - h->prefix : number, d), key.half, left);
    }
    return own ? total : total * h->gate;
}

/* As `attend`, of a single query: it reads keys and values where they lie. */
static void attend_once(const head *h, scratch s, float scale) {
    const int64_t keys = h->prefix + h->seen;
    for (int64_t first = 0; first < keys; first += LANES) {
        lanes parts[LANES];
        for (int64_t i = 0; i < LANES; i++) parts[i] = first + i < keys ? partial_logit(h, first + i) : (lanes){0};
        store(s.logits + first, 0, LANES, sums_of(parts) * scale);
    }
    if (h->bias.data) add_bias(s.logits, h, 0);
    const float share = exponentiate(s.logits, keys);
    for (int64_t d = 0; d < h->size; d += LANES) {
        const int64_t left = h->size - d;
        lanes total = {0};
        for (int64_t key = 0; key < h->prefix; key++) total += s.logits[key] * load(at(h->prefix_value, key, d), 0, left);
        total *= h->gate;
        for (int64_t key = 0; key < h->seen; key++)
            total += s.logits[h->prefix + key] * load(at(h->value, key, d), h->value.half, left);
        store((void *)at(h->context, 0, d), h->context.half, left, total * share);
    }
}

/* Of heads of at most so many keys and so wide; without memory `keys` is NULL. */
static scratch new_scratch(int64_t most, int64_t wide) {
    float *memory = new_floats(2 * most * wide + QUERIES * (most + wide + 1));
    if (!memory) return (scratch){NULL};
    float *queries = memory + 2 * most * wide, *logits = queries + QUERIES * wide;
    return (scratch){memory, memory + most * wide, queries, logits, logits + QUERIES * most};
}

static matrix moved(matrix m, int64_t row, int64_t column) {
    return (matrix){at(m, row, column), m.stride, m.half};
}

/* What a group's program has at the place of the prefixes; NULL without a prefix. */
static const op *prefix_of(int64_t place, const group *g) {
    if (!g->program || g->program->places[place] == g->program->places[place + 1]) return NULL;
    return g->program->ops + g->program->places[place];
}

static void place_prefix(head *h, const op *o, const group *g, int64_t number, const float *gates, int64_t row) {
    if (!o) return;
    h->prefix = o->prefix;
    h->prefix_key = (matrix){find(o->keys, g->base) + number * o->head_stride, o->key_stride, 0};
    h->prefix_value = (matrix){find(o->values, g->base) + number * o->head_stride, o->key_stride, 0};
    if (o->gate.outputs) h->gate = gates[row];
}

/* A call of `peltier_attend`. */
typedef struct {
    matrix query, key, value, context;
    const placed_row *rows;
    int64_t heads, size, head_stride, most, place;
    float scale;
    int once;
    table table;
    const float *gates;
} batch;

static head head_of(const batch *b, const group *g, int64_t number, int64_t row) {
    const placed_row *r = b->rows + row;
    const int64_t column = number * b->size, offset = r->offset * b->key.stride + number * b->head_stride;
    head h = {
        .query = moved(b->query, r->first, column), .key = moved(b->key, 0, offset), .value = moved(b->value, 0, offset),
        .context = moved(b->context, r->first, column), .tokens = r->tokens, .seen = r->keys, .size = b->size, .gate = 1};
    if (r->bias) h.bias = (matrix){r->bias + number * r->bias_head, r->bias_query, 0};
    if (g) place_prefix(&h, prefix_of(b->place, g), g, number, b->gates, row);
    return h;
}

/* The heads of `own`, of which each row has so many. Returns 0, or 1 without memory. */
NOINLINE int attend_share(const batch *b, share own) {
    const scratch s = new_scratch(padded(b->most), padded(b->size));
    if (!s.keys) return 1;
    const group *g = b->table.groups;
    for (int64_t k = own.first; k < own.last; k++) {
        while (g && g->last <= k / b->heads) g++;
        const head h = head_of(b, g, k % b->heads, k / b->heads);
        if (b->once) attend_once(&h, s, b->scale);
        else attend(&h, s, b->scale);
    }
    free(s.keys);
    return 0;
}

static int64_t longest_prefix(table t, int64_t place) {
    int64_t longest = 0;
    for (const group *g = t.groups; g < t.groups + t.count; g++) {
        const op *o = prefix_of(place, g);
        if (o && o->prefix > longest) longest = o->prefix;
    }
    return longest;
}

/* context of `query`, both [tokens, heads * size], for rows whose keys and values lie anywhere; products of queries and keys
 * are times `scale`. `once` is for rows of one query each, whose sums run in another order. With groups, row r of the table
 * is row r here, and attends to the prefix of its group's program at `place`, times gates[r] if it has a gate; the bias of a
 * prefix is 0. Returns 0, or 1 without memory. */
EXPORT int peltier_attend(
    void *context, int64_t context_stride, const void *query, int64_t query_stride, int half, const void *key,
    const void *value, int64_t key_stride, int key_half, int64_t head_stride, const placed_row *rows, int64_t num_rows,
    int64_t heads, int64_t size, float scale, int once, const group *groups, int64_t count, const int64_t *starts,
    int64_t place, const float *gates) {
    batch b = {
        .query = {query, query_stride, half}, .key = {key, key_stride, key_half}, .value = {value, key_stride, key_half},
        .context = {context, context_stride, half}, .rows = rows, .heads = heads, .size = size,
        .head_stride = head_stride, .scale = scale, .once = once, .place = place, .table = {groups, count, starts},
        .gates = gates};
    int64_t products = 0;
    for (const placed_row *r = rows; r < rows + num_rows; r++) {
        b.most = r->keys > b.most ? r->keys : b.most;
        products += 2 * heads * size * r->tokens * r->keys;
    }
    if (groups) b.most += longest_prefix(b.table, place);
    int failed = 0;
#pragma omp parallel if (products >= WORTH_THREADS) reduction(| : failed)
    failed |= attend_share(&b, own_share(num_rows * heads));
    return failed;
}
