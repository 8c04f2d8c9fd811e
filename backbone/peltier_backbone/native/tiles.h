/* Products of a few rows with a matrix in registers.
 *
 * Every tile sums over the inner dimension in the same order, so the result of a row does not depend on the other
 * rows. */

#ifndef PELTIER_TILES_H
#define PELTIER_TILES_H

#include "lanes.h"

/* Rows, and columns in vectors, of the largest tile. Its sums, a line of the weight and an element of x fit the registers:
 * 32 with AVX-512 and NEON, 16 with AVX2 and SSE. */
#if defined(__AVX512F__)
#define ROWS 8
#define COLUMNS 3
#elif defined(__aarch64__)
#define ROWS 6
#define COLUMNS 4
#else
#define ROWS 6
#define COLUMNS 2
#endif

/* The number of lines of a weight that a tile takes at a time. With SSE two would take more registers than there are. */
#if defined(__AVX2__) || defined(__aarch64__)
#define LINES 2
#else
#define LINES 1
#endif

/* The number of lines by which a weight is prefetched ahead. With few rows, a product waits for memory. */
#define AHEAD 32

/* The number of elements between two products that are computed at a time, so that they stay in the cache. */
#define CHUNK 16384

/* y = act(x w + bias) * scale, with a scale for each row; if `add`, the result is added to y. All but y are floats. */
typedef struct {
    matrix y, x, w;
    const float *bias, *scale;
    int64_t inner, outer;
    int add, activation;
} product;

INLINE lanes sigmoid(lanes x) {
    return 1.0f / (1.0f + exp_lanes(-x));
}

/* The cumulative distribution function of the normal distribution, within 2e-7: 1/2 + x p(x^2) / q(x^2), fitted in float64
 * for the smallest maximum error up to 5.54; 1 beyond it, and 0 below -5.54. */
INLINE lanes probability_below(lanes x) {
    const lanes zero = {0}, near = smaller_lanes(zero + 5.54f, x), u = near * near;
    lanes p = 2.248077276e-08f * u + 6.352377800e-06f;
    p = p * u + 1.709537764e-04f;
    p = p * u + 4.689904918e-03f;
    p = p * u + 3.407588564e-02f;
    p = p * u + 3.989422291e-01f;
    lanes q = 1.189699121e-06f * u + 7.425570656e-05f;
    q = q * u + 1.896516059e-03f;
    q = q * u + 2.877096725e-02f;
    q = q * u + 2.520814121e-01f;
    return select_lanes(x > -5.54f, near * p / (q * u + 1.0f) + 0.5f, zero);
}

INLINE lanes activate(lanes x, int activation) {
    const lanes zero = {0};
    switch (activation) {
        case ACTIVATION_RELU: return select_lanes(x < 0.0f, zero, x);
        case ACTIVATION_SWISH: return x * sigmoid(x);
        case ACTIVATION_GELU_NEW: return x * sigmoid(1.5957691216f * (x + 0.044715f * x * x * x));
        case ACTIVATION_GELU: return x * probability_below(x);
        case ACTIVATION_TANH: return 2.0f * sigmoid(2.0f * x) - 1.0f;
        default: return x;
    }
}

/* Writes a tile from its sums. */
NOINLINE void finish(const product *p, int64_t row, int64_t column, int rows, int columns, lanes sums[ROWS][COLUMNS]) {
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < columns; c++) {
            const int64_t first = column + c * LANES, count = p->outer - first;
            void *y = (void *)at(p->y, row + r, first);
            lanes v = sums[r][c];
            if (p->bias) v += load(p->bias + first, 0, count);
            /* Round as if the activation were applied to a stored result. */
            if (p->activation && p->y.half && !p->add) v = widen(narrow(v));
            if (p->activation) v = activate(v, p->activation);
            if (p->scale) v *= p->scale[row + r];
            if (p->add) v += load(y, p->y.half, count);
            store(y, p->y.half, count, v);
        }
}

#define EACH_COLUMN _Pragma("unroll") for (int c = 0; c < columns; c++)
#define EACH_LINE _Pragma("unroll") for (int i = 0; i < columns * LANES; i += LINE_FLOATS)
#define EACH_ROW _Pragma("unroll") for (int r = 0; r < rows; r++)

INLINE void tile(const product *p, int64_t row, int64_t column, const int rows, const int columns) {
    lanes sums[ROWS][COLUMNS], line[COLUMNS];
    EACH_ROW EACH_COLUMN sums[r][c] = (lanes){0};
    const float *x = at(p->x, row, 0), *w = at(p->w, 0, column);
    const int64_t x_stride = p->x.stride, w_stride = p->w.stride, left = p->outer - column;
    /* Columns after the last are read from the next row of w and dropped. The last rows of w have no such row after
     * them, so the second loop loads only their own columns. */
    const int64_t beyond = columns * LANES - left;
    const int64_t whole = beyond <= 0 ? p->inner : p->inner - (beyond + w_stride - 1) / w_stride;
    /* Prefetches the next lines of a packed weight. The lines of another weight are farther apart: there it prefetches
     * the next columns. */
    const int64_t ahead = w_stride > columns * LANES ? columns * LANES : AHEAD * w_stride;
    tile_rows own = rows_from(x, x_stride * (int64_t)sizeof *x, rows);
    int64_t k = 0;
    for (; k + LINES <= whole; k += LINES, advance(&own, LINES * sizeof *x, rows))
        _Pragma("unroll") for (int next = 0; next < LINES; next++, w += w_stride) {
            EACH_LINE __builtin_prefetch(w + ahead + i);
            EACH_COLUMN memcpy(&line[c], w + c * LANES, sizeof line[c]);
            EACH_ROW {
                const float element = *(const float *)in_row(&own, r, next * (int64_t)sizeof *x);
                EACH_COLUMN sums[r][c] += element * line[c];
            }
        }
    for (; k < p->inner; k++, w += w_stride) {
        EACH_COLUMN line[c] = load(w + c * LANES, 0, left - c * LANES);
        EACH_ROW EACH_COLUMN sums[r][c] += x[r * x_stride + k] * line[c];
    }
    const int direct = !p->y.half && !p->activation && beyond <= 0; /* from registers */
    if (direct && !p->bias && !p->scale && !p->add) {
        EACH_ROW EACH_COLUMN store((void *)at(p->y, row + r, column + c * LANES), 0, LANES, sums[r][c]);
        return;
    }
    if (direct) {
        EACH_ROW EACH_COLUMN {
            float *y = (float *)at(p->y, row + r, column + c * LANES);
            lanes v = sums[r][c];
            if (p->bias) v += load(p->bias + column + c * LANES, 0, LANES);
            if (p->scale) v *= p->scale[row + r];
            if (p->add) v += load(y, 0, LANES);
            store(y, 0, LANES, v);
        }
        return;
    }
    lanes found[ROWS][COLUMNS]; /* a copy in memory: the sums themselves stay in registers */
    EACH_ROW EACH_COLUMN found[r][c] = sums[r][c];
    finish(p, row, column, rows, columns, found);
}

/* Number of vectors of columns in the next tile, for `left` columns. */
INLINE int next_columns(int64_t left) {
    return next_part((left + LANES - 1) / LANES, COLUMNS);
}

/* Multiplies all rows with a stripe: the `columns` vectors of columns that begin at `column`. */
INLINE void multiply_columns(const product *p, int64_t rows, int64_t column, const int columns) {
    for (int64_t row = 0; row < rows;) {
        const int count = next_part(rows - row, ROWS);
        switch (count) {
#if ROWS > 6
            case 8: tile(p, row, column, 8, columns); break;
            case 7: tile(p, row, column, 7, columns); break;
#endif
            case 6: tile(p, row, column, 6, columns); break;
            case 5: tile(p, row, column, 5, columns); break;
            case 4: tile(p, row, column, 4, columns); break;
            case 3: tile(p, row, column, 3, columns); break;
            case 2: tile(p, row, column, 2, columns); break;
            default: tile(p, row, column, 1, columns);
        }
        row += count;
    }
}

#define STRIPE(columns)                                                            \
    NOINLINE void stripe_##columns(const product *p, int64_t rows, int64_t column) { \
        multiply_columns(p, rows, column, columns);                                \
    }

STRIPE(1)
STRIPE(2)
#if COLUMNS > 2
STRIPE(3)
#endif
#if COLUMNS > 3
STRIPE(4)
#endif

static void multiply_stripe(const product *p, int64_t rows, int64_t column, int columns) {
    switch (columns) {
#if COLUMNS > 3
        case 4: stripe_4(p, rows, column); break;
#endif
#if COLUMNS > 2
        case 3: stripe_3(p, rows, column); break;
#endif
        case 2: stripe_2(p, rows, column); break;
        default: stripe_1(p, rows, column);
    }
}

/* Multiplies `rows` rows. A stripe of the weight stays in the cache for all of them. */
static void multiply(const product *p, int64_t rows) {
    for (int64_t column = 0; column < p->outer;) {
        const int columns = next_columns(p->outer - column);
        multiply_stripe(p, rows, column, columns);
        column += columns * LANES;
    }
}

#if defined(__AVX512BF16__)
#define MULTIPLIES_PAIRS
/* Adds the products of pairs of bfloat16 to each sum. */
INLINE lanes add_pairs(lanes sums, bits x, bits w) {
    return (lanes)_mm512_dpbf16_ps((__m512)sums, (__m512bh)x, (__m512bh)w);
}
#elif defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
#define MULTIPLIES_PAIRS
INLINE lanes add_pairs(lanes sums, bits x, bits w) {
    return (lanes)vbfdotq_f32((float32x4_t)sums, (bfloat16x8_t)x, (bfloat16x8_t)w);
}
#endif

#ifdef MULTIPLIES_PAIRS
/* As `tile`, for pairs of bfloat16. The inner dimension is even. A row of w has a pair for each column, in whole vectors. */
INLINE void tile_pairs(const product *p, int64_t row, int64_t column, const int rows, const int columns) {
    lanes sums[ROWS][COLUMNS];
    bits line[COLUMNS];
    EACH_ROW EACH_COLUMN sums[r][c] = (lanes){0};
    const uint16_t *w = (const uint16_t *)p->w.data + 2 * column;
    const int64_t w_stride = p->w.stride;
    tile_rows own = rows_from(at(p->x, row, 0), p->x.stride * 2, rows);
    for (int64_t k = 0; k < p->inner; k += 2, w += w_stride, advance(&own, 4, rows)) {
        EACH_LINE __builtin_prefetch(w + AHEAD * w_stride + 2 * i);
        EACH_COLUMN memcpy(&line[c], w + 2 * LANES * c, sizeof line[c]);
        EACH_ROW {
            uint32_t pair;
            memcpy(&pair, in_row(&own, r, 0), sizeof pair);
            EACH_COLUMN sums[r][c] = add_pairs(sums[r][c], (bits){0} + pair, line[c]);
        }
    }
    if (!p->y.half && !p->activation && !p->bias && !p->add && p->outer - column >= columns * LANES) {
        EACH_ROW EACH_COLUMN {
            const lanes v = sums[r][c];
            store((float *)at(p->y, row + r, column + c * LANES), 0, LANES, p->scale ? v * p->scale[row + r] : v);
        }
        return;
    }
    lanes found[ROWS][COLUMNS];
    EACH_ROW EACH_COLUMN found[r][c] = sums[r][c];
    const int64_t whole = (p->outer - column + LANES - 1) / LANES;
    finish(p, row, column, rows, whole < columns ? (int)whole : columns, found);
}

INLINE void multiply_pair_columns(const product *p, int64_t rows, int64_t column, const int columns) {
    for (int64_t row = 0; row < rows;) {
        const int count = next_part(rows - row, ROWS);
        switch (count) {
#if ROWS > 6
            case 8: tile_pairs(p, row, column, 8, columns); break;
            case 7: tile_pairs(p, row, column, 7, columns); break;
#endif
            case 6: tile_pairs(p, row, column, 6, columns); break;
            case 5: tile_pairs(p, row, column, 5, columns); break;
            case 4: tile_pairs(p, row, column, 4, columns); break;
            case 3: tile_pairs(p, row, column, 3, columns); break;
            case 2: tile_pairs(p, row, column, 2, columns); break;
            default: tile_pairs(p, row, column, 1, columns);
        }
        row += count;
    }
}

#define PAIR_STRIPE(columns)                                                            \
    NOINLINE void pair_stripe_##columns(const product *p, int64_t rows, int64_t column) { \
        multiply_pair_columns(p, rows, column, columns);                                \
    }

PAIR_STRIPE(1)
PAIR_STRIPE(2)
PAIR_STRIPE(3)
#if COLUMNS > 3
PAIR_STRIPE(4)
#endif

static void pair_stripe(const product *p, int64_t rows, int64_t column, int columns) {
    switch (columns) {
#if COLUMNS > 3
        case 4: pair_stripe_4(p, rows, column); break;
#endif
        case 3: pair_stripe_3(p, rows, column); break;
        case 2: pair_stripe_2(p, rows, column); break;
        default: pair_stripe_1(p, rows, column);
    }
}

static void multiply_pairs(const product *p, int64_t rows) {
    for (int64_t column = 0; column < p->outer;) {
        const int columns = next_columns(p->outer - column);
        pair_stripe(p, rows, column, columns);
        column += columns * LANES;
    }
}
#endif

#endif
