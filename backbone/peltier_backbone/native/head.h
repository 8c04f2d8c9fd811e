/* The attention of one head of one row: by products of floats, of pairs of bfloat16, or of a single query. */

#ifndef PELTIER_HEAD_H
#define PELTIER_HEAD_H

#include <math.h>

#include "softmax.h"
#include "tiles.h"

/* The number of queries that are computed at a time, so that their logits stay in the cache. */
#define QUERIES 64

/* One head of one row. It has `prefix` keys, which are multiplied by `gate`, then `seen` keys of the row; its values
 * likewise. A bias has a row for each query and an element for each of the `seen` keys; its data are NULL if there is
 * none. If `window` is not 0, query q sees the whole prefix and the other keys whose numbers differ from q + `offset`
 * by at most `window`. Queries and keys of distances are columns, that of distance 0 at the address; their data are NULL if
 * there are none. */
typedef struct {
    matrix distance_queries, distance_keys, query, key, value, prefix_key, prefix_value, context, bias;
    int64_t tokens, seen, prefix, size, window, offset;
    float gate;
} head;

/* The buffers for one head, in one allocation that begins with `keys`. `shares` has the softmax in bfloat16. With
 * distances, `tokens` has QUERIES queries or keys, and `near` their products with distances. */
typedef struct {
    float *keys, *values, *queries, *logits, *scales;
    void *shares;
    float *tokens, *near;
} scratch;

static int64_t padded(int64_t count) {
    return (count + LANES - 1) / LANES * LANES;
}

/* The buffers for heads of `size` elements with at most `keys` keys. Without memory, `keys` of the result is NULL. */
static scratch new_scratch(int64_t keys, int64_t size, int distances) {
    const int64_t most = padded(keys), wide = padded(size + LANES), near = most + QUERIES + 2 * LANES;
    const int64_t plain = 2 * most * wide + QUERIES * (2 * most + wide + 1);
    float *memory = new_floats(plain + (distances ? QUERIES * (wide + near) : 0));
    if (!memory) return (scratch){0};
    float *queries = memory + 2 * most * wide, *logits = queries + QUERIES * wide, *scales = logits + QUERIES * most;
    float *tokens = memory + plain;
    return (scratch){memory, memory + most * wide, queries, logits, scales, scales + QUERIES, tokens, tokens + QUERIES * wide};
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

/* Writes the keys as columns, [padded size, padded keys], with zeros after the last key. */
static void transpose(float *to, const head *h) {
    const int64_t keys = h->prefix + h->seen, stride = padded(keys);
    for (int64_t first = 0; first < keys; first += LANES)
        for (int64_t d = 0; d < h->size; d += LANES) {
            lanes square[LANES];
            for (int64_t i = 0; i < LANES; i++) square[i] = load_key(h, h->prefix_key, h->key, first + i, d);
            store_square(to + d * stride + first, stride, square);
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

static matrix copy_tokens(const head *h, scratch s, matrix from, int64_t first, int64_t count, float scale) {
    const matrix tokens = {s.tokens, h->size, 0};
    copy_rows(tokens, (matrix){at(from, first, 0), from.stride, from.half}, count, h->size, scale);
    return tokens;
}

/* Adds the products of `count` queries with the keys of distances to `logits`. */
static void add_distance_keys(const head *h, scratch s, matrix logits, int64_t first, int64_t count, float scale) {
    const matrix queries = copy_tokens(h, s, h->query, first, count, scale);
    const matrix near =
        multiply_distances(h, s, queries, count, h->distance_keys, 1 - first - count, h->seen + count - 1);
    for (int64_t q = 0; q < count; q++)
        add_line((float *)at(logits, q, h->prefix), at(near, q, count - 1 - q), h->seen);
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

/* Adds the products of keys with the queries of distances to the logits of `count` queries. */
static void add_distance_queries(const head *h, scratch s, matrix logits, int64_t first, int64_t count, float scale) {
    for (int64_t start = 0; start < h->seen; start += QUERIES) {
        const int64_t keys = h->seen - start < QUERIES ? h->seen - start : QUERIES;
        const matrix tokens = copy_tokens(h, s, h->key, start, keys, scale);
        const matrix near =
            multiply_distances(h, s, tokens, keys, h->distance_queries, first - start - keys + 1, count + keys - 1);
        const matrix own = {at(logits, 0, h->prefix + start), logits.stride, 0};
        for (int64_t key = 0; key < keys; key += LANES)
            for (int64_t query = 0; query < count; query += LANES) add_square(own, near, count, keys, query, key);
    }
}

/* The logits of keys outside the window of a query become -infinity. */
static void hide_far(float *logits, const head *h, int64_t query) {
    const int64_t low = query + h->offset - h->window, high = query + h->offset + h->window + 1;
    for (int64_t key = 0; key < low && key < h->seen; key++) logits[h->prefix + key] = -INFINITY;
    for (int64_t key = high; key < h->seen; key++) logits[h->prefix + key] = -INFINITY;
}

/* The two products of a head, and the softmax between them: `find` computes logits from queries and keys, `mix` the
 * context from the softmax and values. */
typedef struct {
    void (*multiply)(const product *p, int64_t rows);
    product find, mix;
    softmax soft;
    float scale;
} head_products;

static void attend_by(const head *h, scratch s, head_products w) {
    for (int64_t first = 0; first < h->tokens; first += QUERIES) {
        const int64_t count = h->tokens - first < QUERIES ? h->tokens - first : QUERIES;
        const matrix from = {at(h->query, first, 0), h->query.stride, h->query.half};
        copy_rows(w.find.x, from, count, h->size, w.scale);
        w.multiply(&w.find, count);
        if (h->distance_keys.data) add_distance_keys(h, s, w.find.y, first, count, w.scale);
        if (h->distance_queries.data) add_distance_queries(h, s, w.find.y, first, count, w.scale);
        for (int64_t row = 0; h->bias.data && row < count; row++)
            add_bias((float *)at(w.find.y, row, 0), h, first + row);
        for (int64_t row = 0; h->window && row < count; row++)
            hide_far((float *)at(w.find.y, row, 0), h, first + row);
        exponentiate_rows(&w.soft, (float *)w.mix.scale, count);
        w.mix.y = (matrix){at(h->context, first, 0), h->context.stride, h->context.half};
        w.multiply(&w.mix, count);
    }
}

static void attend(const head *h, scratch s, float scale) {
    const int64_t keys = h->prefix + h->seen, stride = padded(keys);
    transpose(s.keys, h);
    for (int64_t key = 0; key < keys; key++)
        for (int64_t d = 0; d < h->size; d += LANES)
            store(s.values + key * h->size + d, 0, h->size - d, load_key(h, h->prefix_value, h->value, key, d));
    const matrix logits = {s.logits, stride, 0}, queries = {s.queries, h->size, 0};
    attend_by(h, s, (head_products){
        .multiply = multiply, .scale = scale, .soft = {s.logits, logits, stride, keys},
        .find = {.y = logits, .x = queries, .w = {s.keys, stride, 0}, .inner = h->size, .outer = stride},
        .mix = {.x = logits, .w = {s.values, h->size, 0}, .scale = s.scales, .inner = keys, .outer = h->size}});
}

#ifdef MULTIPLIES_PAIRS
/* As `transpose`, with a pair of adjacent elements in place of each float. */
static void transpose_pairs(float *to, const head *h) {
    const int64_t keys = h->prefix + h->seen, stride = padded(keys);
    for (int64_t first = 0; first < keys; first += LANES)
        for (int64_t d = 0; d < h->size; d += 2 * LANES) {
            lanes square[LANES];
            for (int64_t i = 0; i < LANES; i++) {
                const halves pairs[] = {
                    narrow(load_key(h, h->prefix_key, h->key, first + i, d)),
                    narrow(load_key(h, h->prefix_key, h->key, first + i, d + LANES))};
                memcpy(&square[i], pairs, sizeof pairs);
            }
            store_square(to + d / 2 * stride + first, stride, square);
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
    const int64_t keys = h->prefix + h->seen, stride = padded(keys), inner = padded(h->size), even = (keys + 1) / 2 * 2;
    transpose_pairs(s.keys, h);
    pair_values(s.values, h);
    const matrix logits = {s.logits, stride, 0}, shares = {s.shares, stride, 1}, queries = {s.queries, inner, 1};
    attend_by(h, s, (head_products){
        .multiply = multiply_pairs, .scale = scale, .soft = {s.logits, shares, stride, keys},
        .find = {.y = logits, .x = queries, .w = {s.keys, 2 * stride, 1}, .inner = inner, .outer = stride},
        .mix = {.x = shares, .w = {s.values, 2 * inner, 1}, .scale = s.scales, .inner = even, .outer = h->size}});
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

/* As `attend`, for a single query. It reads keys and values in place. */
static void attend_once(const head *h, scratch s, float scale) {
    const int64_t keys = h->prefix + h->seen;
    for (int64_t first = 0; first < keys; first += LANES) {
        lanes parts[LANES];
        for (int64_t i = 0; i < LANES; i++) parts[i] = first + i < keys ? partial_logit(h, first + i) : (lanes){0};
        store(s.logits + first, 0, LANES, sums_of(parts) * scale);
    }
    if (h->bias.data) add_bias(s.logits, h, 0);
    float share;
    exponentiate_rows(&(softmax){s.logits, {s.logits, 0, 0}, 0, keys}, &share, 1);
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

#endif
