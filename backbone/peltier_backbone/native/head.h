/* The attention of one head of one row: by products of floats, of pairs of bfloat16, or of a single query. */

#ifndef PELTIER_HEAD_H
#define PELTIER_HEAD_H

#include <math.h>

#include "softmax.h"
#include "tiles.h"

/* The numbers of queries and of keys that are computed at a time, so that their logits stay in the cache (Dao et al.
 * 2022). */
#define QUERIES 96
#define KEYS 512

/* One head of one row. It has `prefix` keys, which are multiplied by `gate`, then `seen` keys of the row; its values
 * likewise. Query q stands at the key q + `offset` of the row. A bias has a row for each query and an element for each of
 * the `seen` keys; its data are NULL if there is none. If `window` is not 0, a query sees the whole prefix and the other
 * keys that are at most `window` from its own. Queries and keys of distances are columns, that of distance 0 at the
 * address; their data are NULL if there are none. */
typedef struct {
    matrix distance_queries, distance_keys, query, key, value, prefix_key, prefix_value, context, bias;
    int64_t tokens, seen, prefix, size, window, offset;
    float gate;
} head;

/* The buffers for one head, in one allocation that begins with `keys`: its keys, in blocks, and values, then of QUERIES
 * queries themselves, logits, the softmax in bfloat16 (`shares`), and results of the blocks of keys so far, their largest
 * logits and their sums. With distances, `tokens` has QUERIES queries or keys, and `near` their products with distances. */
typedef struct {
    float *keys, *values, *queries, *logits, *shares, *context, *scales, *largest, *sums, *tokens, *near;
} scratch;

INLINE matrix moved(matrix m, int64_t row, int64_t column) {
    return (matrix){at(m, row, column), m.stride, m.half};
}

static int64_t padded(int64_t count) {
    return (count + LANES - 1) / LANES * LANES;
}

/* The elements from one line of a block of `keys` keys, or less, to the next: an odd number of lines of the cache. Lines at
 * even distances would share few places in it. */
static int64_t stride_of(int64_t keys) {
    const int64_t count = keys < KEYS ? keys : KEYS;
    return ((count + LINE_FLOATS - 1) / LINE_FLOATS | 1) * LINE_FLOATS;
}

/* The buffers for heads of `size` elements with at most `keys` keys. Without memory, `keys` of the result is NULL. */
static scratch new_scratch(int64_t keys, int64_t size, int distances) {
    const int64_t stride = stride_of(keys), wide = padded(size + LANES), blocks = (keys + KEYS - 1) / KEYS;
    const int64_t near = distances ? padded(stride + QUERIES) + LANES : 0;
    scratch s = {0};
    const struct {
        float **buffer;
        int64_t count;
    } parts[] = {
        {&s.keys, blocks * padded(size) * stride}, {&s.values, padded(keys + LINE_FLOATS) * wide},
        {&s.queries, QUERIES * wide}, {&s.logits, QUERIES * stride}, {&s.shares, QUERIES * stride / 2},
        {&s.context, QUERIES * wide}, {&s.scales, QUERIES}, {&s.largest, QUERIES}, {&s.sums, QUERIES},
        {&s.tokens, near ? QUERIES * wide : 0}, {&s.near, QUERIES * near}};
    const int64_t count = sizeof parts / sizeof *parts;
    int64_t total = 0;
    for (int64_t i = 0; i < count; i++) total += parts[i].count;
    float *next = new_floats(total);
    for (int64_t i = 0; next && i < count; next += parts[i++].count) *parts[i].buffer = next;
    return s;
}

/* Loads elements of a token of one head, and prefetches those of the next head, which follow them. Tokens are too far
 * apart for the processor's own prefetching; without this, waiting took a third of the time of attention. */
INLINE lanes load_ahead(matrix m, int64_t token, int64_t d, int64_t size) {
    __builtin_prefetch(at(m, token, d + size));
    return load(at(m, token, d), m.half, size - d);
}

/* A step of a transposition: exchanges elements between all pairs of vectors whose numbers differ by `width`. */
INLINE void exchange(lanes v[LANES], const int width) {
    const ints far = LANE_NUMBERS & width, from = (LANE_NUMBERS ^ far) | far * (LANES / width);
    _Pragma("unroll") for (int i = 0; i < LANES; i++)
        if (!(i & width)) {
            const lanes first = v[i], second = v[i | width];
            v[i] = pick(first, second, from);
            v[i | width] = pick(first, second, from | width);
        }
}

/* Elements of one key or value: of the prefix, of the row, or zeros after the last. */
INLINE lanes load_key(const head *h, matrix prefix, matrix own, int64_t key, int64_t d) {
    if (key < h->prefix) return load_ahead(prefix, key, d, h->size) * h->gate;
    return key < h->prefix + h->seen ? load_ahead(own, key - h->prefix, d, h->size) : (lanes){0};
}

INLINE void store_square(float *to, int64_t stride, lanes square[LANES]) {
    _Pragma("unroll") for (int width = 1; width < LANES; width *= 2) exchange(square, width);
    for (int64_t i = 0; i < LANES; i++) store(to + i * stride, 0, LANES, square[i]);
}

/* The place of a key's column: blocks of KEYS columns follow each other. */
INLINE float *column_of(float *to, const head *h, int64_t key, int64_t stride) {
    return to + key / KEYS * padded(h->size) * stride + key % KEYS;
}

/* Writes the keys as columns, [blocks, padded size, stride], with zeros after the last key. */
static void transpose(float *to, const head *h) {
    const int64_t keys = h->prefix + h->seen, stride = stride_of(keys);
    for (int64_t first = 0; first < keys; first += LANES)
        for (int64_t d = 0; d < h->size; d += LANES) {
            lanes square[LANES];
            for (int64_t i = 0; i < LANES; i++) square[i] = load_key(h, h->prefix_key, h->key, first + i, d);
            store_square(column_of(to, h, first, stride) + d * stride, stride, square);
        }
}

/* Copies rows, multiplied by `factor`. In the batch the rows of a head are far apart, at distances that map to few
 * lines of the cache; contiguous rows multiply faster. */
INLINE void copy_rows(matrix to, matrix from, int64_t rows, int64_t size, float factor) {
    for (int64_t row = 0; row < rows; row++)
        for (int64_t d = 0; d < size; d += LANES)
            store((void *)at(to, row, d), to.half, to.stride - d, load_ahead(from, row, d, size) * factor);
}

INLINE void add_line(float *to, const float *line, int64_t count) {
    for (int64_t k = 0; k < count; k += LANES)
        store(to + k, 0, count - k, load(to + k, 0, count - k) + load(line + k, 0, count - k));
}

static void add_bias(float *logits, const head *h, int64_t query) {
    add_line(logits + h->prefix, at(h->bias, query, 0), h->seen);
}

/* The products of queries or keys x with `count` columns of distances from number `first` on, from the middle. */
static matrix multiply_distances(const head *h, scratch s, matrix x, int64_t rows, matrix columns, int64_t first, int64_t count) {
    const matrix near = {s.near, padded(count) + LANES, 0};
    const product p = {
        .y = near, .x = x, .w = {(const float *)columns.data + first, columns.stride, 0}, .inner = h->size, .outer = count};
    multiply(&p, rows);
    return near;
}

static matrix copy_tokens(const head *h, scratch s, matrix from, int64_t count, float scale) {
    const matrix tokens = {s.tokens, h->size, 0};
    copy_rows(tokens, from, count, h->size, scale);
    return tokens;
}

/* Adds the products of the queries with the keys of distances to `logits`. */
static void add_distance_keys(const head *h, scratch s, matrix logits, float scale) {
    const matrix queries = copy_tokens(h, s, h->query, h->tokens, scale);
    const int64_t nearest = 1 - h->offset - h->tokens, count = h->seen + h->tokens - 1;
    const matrix near = multiply_distances(h, s, queries, h->tokens, h->distance_keys, nearest, count);
    for (int64_t q = 0; q < h->tokens; q++)
        add_line((float *)at(logits, q, h->prefix), at(near, q, h->tokens - 1 - q), h->seen);
}

/* Adds the products `near` of LANES keys or less from number `key` on to the logits of LANES queries or less. */
INLINE void add_square(matrix logits, matrix near, int64_t queries, int64_t keys, int64_t query, int64_t key) {
    lanes square[LANES];
    for (int64_t i = 0; i < LANES; i++)
        square[i] = key + i < keys ? load(at(near, key + i, keys - 1 - key - i + query), 0, LANES) : (lanes){0};
    _Pragma("unroll") for (int width = 1; width < LANES; width *= 2) exchange(square, width);
    for (int64_t i = 0; i < LANES && query + i < queries; i++) {
        float *to = (float *)at(logits, query + i, key);
        store(to, 0, keys - key, load(to, 0, keys - key) + square[i]);
    }
}

/* Adds the products of keys with the queries of distances to the logits of the queries. */
static void add_distance_queries(const head *h, scratch s, matrix logits, float scale) {
    for (int64_t start = 0; start < h->seen; start += QUERIES) {
        const int64_t keys = h->seen - start < QUERIES ? h->seen - start : QUERIES;
        const matrix tokens = copy_tokens(h, s, moved(h->key, start, 0), keys, scale);
        const int64_t nearest = h->offset - start - keys + 1, count = h->tokens + keys - 1;
        const matrix near = multiply_distances(h, s, tokens, keys, h->distance_queries, nearest, count);
        const matrix own = moved(logits, 0, h->prefix + start);
        for (int64_t key = 0; key < keys; key += LANES)
            for (int64_t query = 0; query < h->tokens; query += LANES) add_square(own, near, h->tokens, keys, query, key);
    }
}

/* The logits of keys outside the window of a query become -infinity. */
static void hide_far(float *logits, const head *h, int64_t query) {
    const int64_t low = query + h->offset - h->window, high = query + h->offset + h->window + 1;
    for (int64_t key = 0; key < low && key < h->seen; key++) logits[h->prefix + key] = -INFINITY;
    for (int64_t key = high; key < h->seen; key++) logits[h->prefix + key] = -INFINITY;
}

/* The two products of a head, and the softmax between them: `find` computes logits from queries and keys, `mix` the
 * context from the softmax and values. Both have the weight of the first block of keys. */
typedef struct {
    void (*multiply)(const product *p, int64_t rows);
    product find, mix;
    softmax soft;
    float scale;
} head_products;

/* The queries of h from number `first` on, at most `most`. */
static head queries_from(const head *h, int64_t first, int64_t most) {
    head own = *h;
    own.tokens = h->tokens - first < most ? h->tokens - first : most;
    own.query = moved(h->query, first, 0), own.context = moved(h->context, first, 0), own.offset = h->offset + first;
    if (h->bias.data) own.bias = moved(h->bias, first, 0);
    return own;
}

/* The keys of h from number `first` on, at most KEYS. Those of the prefix come first. */
static head keys_from(const head *h, int64_t first) {
    const int64_t left = h->prefix + h->seen - first, count = left < KEYS ? left : KEYS;
    const int64_t prefix = h->prefix < first ? 0 : h->prefix - first, skipped = h->prefix < first ? first - h->prefix : 0;
    head own = *h;
    own.prefix = prefix < count ? prefix : count, own.seen = count - own.prefix;
    own.key = moved(h->key, skipped, 0), own.offset = h->offset - skipped;
    if (h->bias.data) own.bias = moved(h->bias, 0, skipped);
    return own;
}

/* Computes the logits of all queries and keys of h, at most QUERIES and KEYS. */
static void find_logits(const head *h, scratch s, const head_products *w) {
    const matrix logits = w->find.y;
    w->multiply(&w->find, h->tokens);
    if (h->distance_keys.data) add_distance_keys(h, s, logits, w->scale);
    if (h->distance_queries.data) add_distance_queries(h, s, logits, w->scale);
    for (int64_t row = 0; h->bias.data && row < h->tokens; row++) add_bias((float *)at(logits, row, 0), h, row);
    for (int64_t row = 0; h->window && row < h->tokens; row++) hide_far((float *)at(logits, row, 0), h, row);
}

static void scale_rows(matrix to, matrix from, const float *scales, int64_t rows, int64_t size) {
    for (int64_t row = 0; row < rows; row++)
        for (int64_t d = 0; d < size; d += LANES)
            store((void *)at(to, row, d), to.half, size - d, load(at(from, row, d), from.half, size - d) * scales[row]);
}

/* Attends to one block of keys after the other. */
static void attend_blocks(const head *h, scratch s, head_products w) {
    const matrix context = {s.context, h->size, 0};
    for (int64_t q = 0; q < h->tokens; q++) s.largest[q] = LOWEST, s.sums[q] = 0.0f;
    w.soft.largest = s.largest, w.soft.sums = s.sums;
    w.mix.y = context, w.mix.scale = NULL;
    const int64_t keys = h->prefix + h->seen, even = w.mix.inner;
    for (int64_t first = 0; first < keys; first += KEYS) {
        const head own = keys_from(h, first);
        w.soft.keys = own.prefix + own.seen;
        w.find.outer = padded(w.soft.keys), w.mix.inner = even - first < KEYS ? even - first : KEYS;
        find_logits(&own, s, &w);
        exponentiate_rows(&w.soft, s.scales, h->tokens);
        if (first) scale_rows(context, context, s.scales, h->tokens, h->size);
        w.mix.add = first > 0;
        w.multiply(&w.mix, h->tokens);
        w.find.w = moved(w.find.w, padded(h->size), 0);
        w.mix.w = moved(w.mix.w, KEYS / (w.mix.w.half ? 2 : 1), 0);
    }
    for (int64_t q = 0; q < h->tokens; q++) s.scales[q] = 1.0f / s.sums[q];
    scale_rows(h->context, context, s.scales, h->tokens, h->size);
}

static void attend_by(const head *h, scratch s, head_products w) {
    for (int64_t first = 0; first < h->tokens; first += QUERIES) {
        const head own = queries_from(h, first, QUERIES);
        copy_rows(w.find.x, own.query, own.tokens, h->size, w.scale);
        if (h->prefix + h->seen > KEYS) {
            attend_blocks(&own, s, w);
            continue;
        }
        find_logits(&own, s, &w);
        exponentiate_rows(&w.soft, s.scales, own.tokens);
        w.mix.y = own.context, w.mix.scale = s.scales;
        w.multiply(&w.mix, own.tokens);
    }
}

static void attend(const head *h, scratch s, float scale) {
    const int64_t keys = h->prefix + h->seen, stride = stride_of(keys);
    transpose(s.keys, h);
    for (int64_t key = 0; key < keys; key++)
        for (int64_t d = 0; d < h->size; d += LANES)
            store(s.values + key * h->size + d, 0, h->size - d, load_key(h, h->prefix_value, h->value, key, d));
    const matrix logits = {s.logits, stride, 0}, queries = {s.queries, h->size, 0};
    attend_by(h, s, (head_products){
        .multiply = multiply, .scale = scale, .soft = {.logits = s.logits, .to = logits, .stride = stride, .keys = keys},
        .find = {.y = logits, .x = queries, .w = {s.keys, stride, 0}, .inner = h->size, .outer = padded(keys)},
        .mix = {.x = logits, .w = {s.values, h->size, 0}, .inner = keys, .outer = h->size}});
}

#ifdef MULTIPLIES_PAIRS
/* As `transpose`, with a pair of adjacent elements in place of each float. */
static void transpose_pairs(float *to, const head *h) {
    const int64_t keys = h->prefix + h->seen, stride = stride_of(keys);
    for (int64_t first = 0; first < keys; first += LANES)
        for (int64_t d = 0; d < h->size; d += 2 * LANES) {
            lanes square[LANES];
            for (int64_t i = 0; i < LANES; i++) {
                const halves pairs[] = {
                    narrow(load_key(h, h->prefix_key, h->key, first + i, d)),
                    narrow(load_key(h, h->prefix_key, h->key, first + i, d + LANES))};
                memcpy(&square[i], pairs, sizeof pairs);
            }
            store_square(column_of(to, h, first, stride) + d / 2 * stride, stride, square);
        }
}

/* Writes the elements of each two adjacent values as pairs. */
static void pair_values(float *to, const head *h) {
    const int64_t keys = h->prefix + h->seen, stride = padded(h->size);
    for (int64_t key = 0; key < keys; key += 2)
        for (int64_t d = 0; d < h->size; d += LANES) {
            const halves low = narrow(load_key(h, h->prefix_value, h->value, key, d));
            const halves high = narrow(load_key(h, h->prefix_value, h->value, key + 1, d));
            const bits pairs = __builtin_convertvector(low, bits) | __builtin_convertvector(high, bits) << 16;
            store(to + key / 2 * stride + d, 0, LANES, (lanes)pairs);
        }
}

/* As `attend`, by products of bfloat16. */
static void attend_pairs(const head *h, scratch s, float scale) {
    const int64_t keys = h->prefix + h->seen, stride = stride_of(keys), inner = padded(h->size), even = (keys + 1) / 2 * 2;
    transpose_pairs(s.keys, h);
    pair_values(s.values, h);
    const matrix logits = {s.logits, stride, 0}, shares = {s.shares, stride, 1}, queries = {s.queries, inner, 1};
    attend_by(h, s, (head_products){
        .multiply = multiply_pairs, .scale = scale,
        .soft = {.logits = s.logits, .to = shares, .stride = stride, .keys = keys},
        .find = {.y = logits, .x = queries, .w = {s.keys, 2 * stride, 1}, .inner = inner, .outer = padded(keys)},
        .mix = {.x = shares, .w = {s.values, 2 * inner, 1}, .inner = even, .outer = h->size}});
}
#endif

/* The sum of each of LANES vectors. */
INLINE lanes sums_of(lanes v[LANES]) {
    EACH_HALVING {
        const ints own = LANE_NUMBERS & width, from = own * (LANES / width);
        _Pragma("unroll") for (int i = 0; i < width; i++)
            v[i] = pick(v[i], v[i + width], (LANE_NUMBERS ^ own) | from) + pick(v[i], v[i + width], LANE_NUMBERS | width | from);
    }
    return v[0];
}

/* A vector whose elements add up to the product of the query and one key. */
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

/* As `attend`, for a single query. It reads keys and values in place; the buffer for keys has room for
 * all logits. */
static void attend_once(const head *h, scratch s, float scale) {
    const int64_t keys = h->prefix + h->seen;
    float *logits = s.keys;
    for (int64_t first = 0; first < keys; first += LANES) {
        lanes parts[LANES];
        for (int64_t i = 0; i < LANES; i++) parts[i] = first + i < keys ? partial_logit(h, first + i) : (lanes){0};
        store(logits + first, 0, LANES, sums_of(parts) * scale);
    }
    if (h->bias.data) add_bias(logits, h, 0);
    float share;
    exponentiate_rows(&(softmax){.logits = logits, .to = {logits, 0, 0}, .keys = keys}, &share, 1);
    for (int64_t d = 0; d < h->size; d += LANES) {
        const int64_t left = h->size - d;
        lanes total = {0};
        for (int64_t key = 0; key < h->prefix; key++) total += logits[key] * load(at(h->prefix_value, key, d), 0, left);
        total *= h->gate;
        for (int64_t key = 0; key < h->seen; key++)
            total += logits[h->prefix + key] * load(at(h->value, key, d), h->value.half, left);
        store((void *)at(h->context, 0, d), h->context.half, left, total * share);
    }
}

#endif
