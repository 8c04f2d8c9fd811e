/* Products in 8 bits with a frozen weight. The weight is packed once, in panels of QUANTIZED_PANEL columns. A panel has
 * a group for each four elements of the inner dimension; a group has four adjacent weights of each column. Zeros fill
 * the columns and elements that the weight does not have.
 *
 * A row of x becomes values from 0 to 255, a scale and a zero point: an element is about (value - zero) * scale. Sums
 * of products of values and weights are exact in 32 bits; all later steps compute in float32. */

#include <math.h>

#include "activations.h"
#include "int8_tiles.h"
#include "kernels.h"
#include "threads.h"

/* The number of rows whose values stay in the cache for all panels. */
#define QUANTIZED_BLOCK 96
/* The number of rows of a feed-forward layer whose expansions, in float32, stay in the cache. */
#define EXPANDED_BLOCK 48
#define MAX_VALUE 255
/* A row with a smaller range is treated as zeros, because 1 / scale may not be finite. */
#define LEAST_SPAN 1e-30f

/* Stores the integers nearest to v, ties to even, plus `zero` - VALUE_OFFSET, as bytes. */
INLINE void store_values(uint8_t *to, lanes v, int32_t zero) {
#if defined(__AVX512F__)
    const __m512i found = _mm512_add_epi32(_mm512_cvtps_epi32((__m512)v), _mm512_set1_epi32(zero));
    _mm_storeu_si128((__m128i *)to, _mm512_cvtusepi32_epi8(_mm512_max_epi32(found, _mm512_setzero_si512())));
#elif defined(__AVX2__)
    const __m256i found = _mm256_add_epi32(_mm256_cvtps_epi32((__m256)v), _mm256_set1_epi32(zero));
    const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(found), _mm256_extracti128_si256(found, 1));
    _mm_storel_epi64((__m128i *)to, _mm_packus_epi16(words, words));
#elif defined(__x86_64__)
    const __m128i found = _mm_add_epi32(_mm_cvtps_epi32((__m128)v), _mm_set1_epi32(zero));
    const __m128i words = _mm_packs_epi32(found, found);
    const int32_t values = _mm_cvtsi128_si32(_mm_packus_epi16(words, words));
    memcpy(to, &values, sizeof values);
#elif defined(__aarch64__)
    const int32x4_t found = vaddq_s32(vcvtnq_s32_f32((float32x4_t)v), vdupq_n_s32(zero));
    const uint16x4_t words = vqmovun_s32(found);
    const uint8x8_t bytes = veor_u8(vqmovn_u16(vcombine_u16(words, words)), vdup_n_u8(VALUE_OFFSET));
    const uint32_t values = vget_lane_u32((uint32x2_t)bytes, 0);
    memcpy(to, &values, sizeof values);
#else
    for (int i = 0; i < LANES; i++) {
        const long found = __builtin_lrintf(v[i]) + zero;
        to[i] = (uint8_t)(found < 0 ? 0 : found > MAX_VALUE ? MAX_VALUE : found);
    }
#endif
}

/* `low` has the smallest of some floats and 0, `high` the negated largest. `unordered` is NaN if one of them is not
 * finite. */
typedef struct {
    lanes low, high, unordered;
} range;

INLINE void widen_range(range *r, lanes v) {
    r->low = smaller_lanes(v, r->low);
    r->high = smaller_lanes(-v, r->high);
    r->unordered += v * 0.0f;
}

INLINE range range_of(const float *x, int64_t inner) {
    range found = {{0}, {0}, {0}};
    int64_t k = 0;
    for (; k + LANES <= inner; k += LANES) widen_range(&found, load(x + k, 0, LANES));
    if (k < inner) widen_range(&found, load(x + k, 0, inner - k));
    return found;
}

NOINLINE void quantize_row(const float *x, int64_t inner, const quantized_rows *to, int64_t row) {
    const range r = range_of(x, inner);
    const float least = -largest_of(-r.low), span = largest_of(-r.high) - least + sum_of(r.unordered);
    const float inverse = span > LEAST_SPAN ? MAX_VALUE / span : 0.0f;
    const int32_t zero = span > LEAST_SPAN ? -(int32_t)__builtin_lrintf(least * inverse) : 0;
    to->scales[row] = span / MAX_VALUE;
    to->zeros[row] = zero - VALUE_OFFSET;
    uint8_t *values = to->values + row * to->stride;
    int64_t k = 0;
    for (; k + LANES <= inner; k += LANES) store_values(values + k, load(x + k, 0, LANES) * inverse, zero);
    if (k < inner) store_values(values + k, load(x + k, 0, inner - k) * inverse, zero);
}

static void quantize_block(matrix x, int64_t rows, int64_t inner, const quantized_rows *to) {
    for (int64_t row = 0; row < rows; row++) quantize_row(at(x, row, 0), inner, to, row);
}

/* Writes `rows` rows from their sums, for the LANES columns that begin at `column`, of which y has `count`. */
INLINE void finish_column(
    const int8_weight *w, matrix y, const int activation, const quantized_rows *x, int64_t row, int64_t column, int rows,
    const int32_t *found, int64_t count) {
    ints own;
    memcpy(&own, w->sums + column, sizeof own);
    const lanes scales = load(w->scales + column, 0, LANES);
    const lanes bias = w->bias ? load(w->bias + column, 0, LANES) : (lanes){0};
    float *to = (float *)at(y, row, column);
    for (int r = 0; r < rows; r++, found += QUANTIZED_PANEL, to += y.stride) {
        ints sums;
        memcpy(&sums, found, sizeof sums);
        const lanes v = __builtin_convertvector(sums - x->zeros[row + r] * own, lanes) * (x->scales[row + r] * scales) + bias;
        store(to, 0, count, activate(v, activation));
    }
}

/* Writes `rows` rows from their sums, for the panel that begins at `column`. */
INLINE void finish_with(
    const int8_weight *w, matrix y, const int activation, const quantized_rows *x, int64_t row, int64_t column, int rows,
    const int32_t *found) {
    const int64_t columns = w->outer - column < QUANTIZED_PANEL ? w->outer - column : QUANTIZED_PANEL;
    int64_t c = 0;
    for (; c + LANES <= columns; c += LANES)
        finish_column(w, y, activation, x, row, column + c, rows, found + c, LANES);
    if (c < columns) finish_column(w, y, activation, x, row, column + c, rows, found + c, columns - c);
}

/* The usual activations get code of their own. */
NOINLINE void finish_sums(
    const int8_weight *w, matrix y, int activation, const quantized_rows *x, int64_t row, int64_t column, int rows,
    const int32_t *found) {
    switch (activation) {
        case ACTIVATION_NONE: finish_with(w, y, ACTIVATION_NONE, x, row, column, rows, found); return;
        case ACTIVATION_GELU: finish_with(w, y, ACTIVATION_GELU, x, row, column, rows, found); return;
        default: finish_with(w, y, activation, x, row, column, rows, found);
    }
}

static int64_t num_panels(const int8_weight *w) {
    return (w->outer + QUANTIZED_PANEL - 1) / QUANTIZED_PANEL;
}

/* Prefetches the lines of y that a tile will write, while its sums are computed. */
INLINE void expect_tile(matrix y, int64_t row, int64_t rows, int64_t column) {
    for (int64_t r = row; r < row + MOST_ROWS && r < rows; r++)
        for (int64_t c = 0; c < QUANTIZED_PANEL; c += LANES) __builtin_prefetch(at(y, r, column + c), 1);
}

/* Computes y = act(x w + bias) for `rows` rows and the columns of `panels`. */
static void multiply_block(
    const int8_weight *w, matrix y, int activation, const quantized_rows *x, int64_t rows, share panels) {
    int32_t found[MOST_ROWS * QUANTIZED_PANEL];
    for (int64_t panel = panels.first; panel < panels.last; panel++)
        for (int64_t row = 0; row < rows;) {
            const int8_t *values = w->values + panel * QUANTIZED_PANEL * 4 * x->groups;
            expect_tile(y, row, rows, panel * QUANTIZED_PANEL);
            const int done = some_rows(x, row, rows - row, values, found);
            finish_sums(w, y, activation, x, row, panel * QUANTIZED_PANEL, done, found);
            row += done;
        }
#ifdef __AMX_INT8__
    _tile_release();
#endif
}

static matrix from_row(matrix m, int64_t row) {
    return (matrix){at(m, row, 0), m.stride, m.half};
}

/* Bytes of a row of values, padded to whole vectors. The padding is multiplied by weights that are zero. */
static int64_t value_bytes(int64_t inner) {
    return (inner + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE;
}

static int64_t floats_of(int64_t rows, int64_t inner) {
    return rows * (value_bytes(inner) / 4 + 2) + LINE_FLOATS;
}

/* Places `rows` rows in `floats_of(rows, inner)` floats of memory. */
static quantized_rows place_rows(float *memory, int64_t rows, int64_t inner) {
    const int64_t stride = value_bytes(inner);
    float *scales = memory + rows * stride / 4;
    return (quantized_rows){(uint8_t *)memory, scales, (int32_t *)(scales + rows), stride, (inner + 3) / 4};
}

/* The items are pairs of a block of rows and a panel. */
static int multiply_share_int8(const void *call, share own) {
    const multiply_int8_call *p = call;
    const int64_t panels = num_panels(p->w), most = p->rows < QUANTIZED_BLOCK ? p->rows : QUANTIZED_BLOCK;
    float *memory = new_floats(floats_of(most, p->w->inner));
    if (!memory) return 1;
    const quantized_rows x = place_rows(memory, most, p->w->inner);
    while (own.first < own.last) {
        const int64_t block = own.first / panels, first = block * QUANTIZED_BLOCK;
        const int64_t rows = p->rows - first < QUANTIZED_BLOCK ? p->rows - first : QUANTIZED_BLOCK;
        const share now = common(own, block * panels, (block + 1) * panels);
        quantize_block(from_row(p->x, first), rows, p->w->inner, &x);
        const share columns = {now.first - block * panels, now.last - block * panels};
        multiply_block(p->w, from_row(p->y, first), (int)p->activation, &x, rows, columns);
        own.first = now.last;
    }
    free(memory);
    return 0;
}

EXPORT int64_t peltier_panel_int8(void) {
    return QUANTIZED_PANEL;
}

EXPORT int peltier_multiply_int8(const multiply_int8_call *c) {
    const int64_t pairs = (c->rows + QUANTIZED_BLOCK - 1) / QUANTIZED_BLOCK * num_panels(c->w);
    return share_out(multiply_share_int8, c, pairs, c->rows * c->w->inner * c->w->outer >= WORTH_THREADS);
}

EXPORT int peltier_rows_int8(const rows_int8_call *c) {
    const int8_weight *w = c->w;
    const int64_t groups = (w->inner + 3) / 4;
    float *y = c->y;
    for (int64_t row = 0; row < c->rows; row++, y += w->inner) {
        const int64_t number = c->numbers[row];
        if (number < 0 || number >= w->outer) return 1;
        const int64_t panel = number / QUANTIZED_PANEL, column = number % QUANTIZED_PANEL;
        const int8_t *values = w->values + (panel * groups * QUANTIZED_PANEL + column) * 4;
        for (int64_t k = 0; k < w->inner; k++)
            y[k] = (float)values[k / 4 * QUANTIZED_PANEL * 4 + k % 4] * w->scales[number];
    }
    return 0;
}

/* A call, whose rows are computed in blocks of `block`. */
typedef struct {
    const feed_forward_int8_call *call;
    int64_t block;
} feed_job;

static void feed_block(const feed_job *j, int64_t first, int64_t rows, float *memory) {
    const feed_forward_int8_call *c = j->call;
    const int64_t hidden = c->expand->inner, wide = c->expand->outer, inner = c->contract->inner;
    const int activation = c->gated ? ACTIVATION_NONE : (int)c->activation;
    const matrix expanded = {memory, wide, 0}, y = from_row(c->y, first);
    float *rest = memory + j->block * wide;
    const quantized_rows x = place_rows(rest, j->block, hidden);
    quantize_block(from_row(c->x, first), rows, hidden, &x);
    multiply_block(c->expand, expanded, activation, &x, rows, (share){0, num_panels(c->expand)});
    const activate_call gate = {expanded, rows, inner, c->activation, 1};
    for (int64_t row = 0; c->gated && row < rows; row++) activate_row(&gate, row);
    const quantized_rows z = place_rows(rest + floats_of(j->block, hidden), j->block, inner);
    quantize_block(expanded, rows, inner, &z);
    multiply_block(c->contract, y, ACTIVATION_NONE, &z, rows, (share){0, num_panels(c->contract)});
}

/* The items are blocks of rows. */
static int feed_share(const void *call_of_blocks, share own) {
    const feed_job *j = call_of_blocks;
    const int8_weight *expand = j->call->expand, *contract = j->call->contract;
    const int64_t wide = j->block * expand->outer;
    float *memory = new_floats(wide + floats_of(j->block, expand->inner) + floats_of(j->block, contract->inner));
    if (!memory) return 1;
    for (int64_t block = own.first; block < own.last; block++) {
        const int64_t first = block * j->block, left = j->call->rows - first;
        feed_block(j, first, left < j->block ? left : j->block, memory);
    }
    free(memory);
    return 0;
}

EXPORT int peltier_feed_forward_int8(const feed_forward_int8_call *c) {
    const int worth_threads = c->rows * c->expand->inner * c->expand->outer >= WORTH_THREADS;
    const int64_t threads = worth_threads ? most_threads() : 1, each = (c->rows + threads - 1) / threads;
    const int64_t block = each < 1 ? 1 : each < EXPANDED_BLOCK ? each : EXPANDED_BLOCK;
    const feed_job j = {c, block};
    return share_out(feed_share, &j, (c->rows + block - 1) / block, worth_threads);
}
