/* Softmax attention in float32, row by row and head by head: no pads, no masks and no neighbours. */

#include "threads.h"
#include "tiles.h"

/* So many queries at a time, so that their logits stay in the cache. */
#define QUERIES 64

/* One head of one row; keys and values are `prefix` vectors of the one kind, then `seen` of the other. */
typedef struct {
    matrix query, key, value, prefix_key, prefix_value, context;
    int64_t tokens, seen, prefix, size;
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
                if (key < h->prefix) square[i] = load_ahead(h->prefix_key, key, d, h->size) * scale;
                else if (key < keys) square[i] = load_ahead(h->key, key - h->prefix, d, h->size) * scale;
                else square[i] = (lanes){0};
            }
            exchange(square, 1), exchange(square, 2), exchange(square, 4), exchange(square, 8);
            for (int64_t i = 0; i < LANES; i++) store(to + (d + i) * stride + first, 0, LANES, square[i]);
        }
}

/* Rows of a head are far apart, at distances that share few lines of the cache: side by side they multiply faster. */
static void copy_rows(float *to, matrix from, int64_t rows, int64_t size) {
    for (int64_t row = 0; row < rows; row++)
        for (int64_t d = 0; d < size; d += LANES)
            store(to + row * size + d, 0, size - d, load_ahead(from, row, d, size));
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

static void attend(const head *h, scratch s, float scale) {
    const int64_t keys = h->prefix + h->seen, stride = padded(keys);
    transpose(s.keys, h, scale);
    copy_rows(s.values, h->prefix_value, h->prefix, h->size);
    copy_rows(s.values + h->prefix * h->size, h->value, h->seen, h->size);
    const matrix columns = {s.keys, stride, 0}, values = {s.values, h->size, 0};
    const matrix queries = {s.queries, h->size, 0}, logits = {s.logits, stride, 0};
    for (int64_t first = 0; first < h->tokens; first += QUERIES) {
        const int64_t count = h->tokens - first < QUERIES ? h->tokens - first : QUERIES;
        copy_rows(s.queries, (matrix){at(h->query, first, 0), h->query.stride, h->query.half}, count, h->size);
        multiply(&(product){.y = logits, .x = queries, .w = columns, .inner = h->size, .outer = stride}, count);
        for (int64_t row = 0; row < count; row++) s.scales[row] = exponentiate(s.logits + row * stride, keys);
        const matrix context = {at(h->context, first, 0), h->context.stride, h->context.half};
        multiply(
            &(product){.y = context, .x = logits, .w = values, .scale = s.scales, .inner = keys, .outer = h->size}, count);
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

/* Rows of `heads` heads; row r is tokens starts[r] to starts[r + 1], which see the first seen[r] of them. A head's prefix
 * lies behind the one before it. */
typedef struct {
    matrix qkv, prefix_keys, prefix_values, context;
    const int64_t *starts, *seen;
    int64_t heads, prefix, size, most;
} batch;

/* The heads of `own`, of which each row has so many. Returns 0, or 1 without memory. */
NOINLINE int attend_share(batch b, share own) {
    const scratch s = new_scratch(padded(b.most + b.prefix), padded(b.size));
    if (!s.keys) return 1;
    const float scale = 1.0f / __builtin_sqrtf((float)b.size);
    const int64_t width = b.heads * b.size;
    for (int64_t one = own.first; one < own.last; one++) {
        const int64_t row = one / b.heads, column = one % b.heads * b.size, first = one * b.prefix;
        const head h = {
            .query = moved(b.qkv, b.starts[row], column), .key = moved(b.qkv, b.starts[row], width + column),
            .value = moved(b.qkv, b.starts[row], 2 * width + column), .prefix_key = moved(b.prefix_keys, first, 0),
            .prefix_value = moved(b.prefix_values, first, 0), .context = moved(b.context, b.starts[row], column),
            .tokens = b.starts[row + 1] - b.starts[row], .seen = b.seen[row], .prefix = b.prefix, .size = b.size};
        attend(&h, s, scale);
    }
    free(s.keys);
    return 0;
}

/* context [tokens, heads * size] of `qkv` [tokens, 3 * heads * size], of one kind; prefixes are [rows, heads, prefix,
 * size] without gaps. Returns 0, or 1 without memory. */
EXPORT int peltier_attend(
    void *context, int64_t context_stride, const void *qkv, int64_t qkv_stride, int half, const void *prefix_keys,
    const void *prefix_values, int64_t prefix, int prefix_half, const int64_t *starts, const int64_t *seen,
    int64_t rows, int64_t heads, int64_t size) {
    int64_t most = 0, products = 0;
    for (int64_t row = 0; row < rows; row++) {
        most = seen[row] > most ? seen[row] : most;
        products += 2 * heads * size * (starts[row + 1] - starts[row]) * (seen[row] + prefix);
    }
    const batch b = {
        .qkv = {qkv, qkv_stride, half}, .prefix_keys = {prefix_keys, size, prefix_half},
        .prefix_values = {prefix_values, size, prefix_half}, .context = {context, context_stride, half},
        .starts = starts, .seen = seen, .heads = heads, .prefix = prefix, .size = size, .most = most};
    int failed = 0;
#pragma omp parallel if (products >= WORTH_THREADS) reduction(| : failed)
    failed |= attend_share(b, own_share(rows * heads));
    return failed;
}
