/* Products of a few rows with a matrix in registers.
 *
 * An element's sum runs over the inner dimension in one order, whatever tile it falls into, so a row's result never
 * depends on where it stands.
 */

#ifndef PELTIER_TILES_H
#define PELTIER_TILES_H

#include "lanes.h"

#ifdef __AVX512F__
#define ROWS 8
#define COLUMNS 3
#else
#define ROWS 4
#define COLUMNS 1
#endif

/* What lies between two products is made so many elements at a time, which stay in the cache. */
#define CHUNK 16384

/* y = act(x w + bias), scaled row by row; or that added to y. Floats but for y. */
typedef struct {
    matrix y, x, w;
    const float *bias, *scale;
    int64_t inner, outer;
    int add, activation;
} product;

INLINE lanes sigmoid(lanes x) {
    return 1.0f / (1.0f + exp_lanes(-x));
}

/* The normal distribution's probability of less than x, to 2e-7: 1/2 + x p(x^2) / q(x^2), fitted in float64 to the least
 * largest error up to 5.54; 1 beyond, and 0 below -5.54. */
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

/* The numbers of `ACTIVATIONS` in program.py. */
INLINE lanes activate(lanes x, int activation) {
    const lanes zero = {0};
    switch (activation) {
        case 1: return select_lanes(x < 0.0f, zero, x);
        case 2: return x * sigmoid(x);
        case 3: return x * sigmoid(1.5957691216f * (x + 0.044715f * x * x * x)); /* GELU by tanh */
        case 4: return x * probability_below(x);
        case 5: return 2.0f * sigmoid(2.0f * x) - 1.0f; /* tanh */
        default: return x;
    }
}

/* What follows the sums of a tile. */
NOINLINE void finish(const product *p, int64_t row, int64_t column, int rows, int columns, lanes sums[ROWS][COLUMNS]) {
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < columns; c++) {
            const int64_t first = column + c * LANES, count = p->outer - first;
            void *y = (void *)at(p->y, row + r, first);
            lanes v = sums[r][c];
            if (p->bias) v += load(p->bias + first, 0, count);
            /* Rounded as where the activation is applied to a stored result. */
            if (p->activation && p->y.half && !p->add) v = widen(narrow(v));
            if (p->activation) v = activate(v, p->activation);
            if (p->scale) v *= p->scale[row + r];
            if (p->add) v += load(y, p->y.half, count);
            store(y, p->y.half, count, v);
        }
}

#define EACH_COLUMN _Pragma("GCC unroll 3") for (int c = 0; c < columns; c++)
#define EACH_ROW _Pragma("GCC unroll 8") for (int r = 0; r < rows; r++)

INLINE void tile(const product *p, int64_t row, int64_t column, const int rows, const int columns) {
    lanes sums[ROWS][COLUMNS], line[COLUMNS];
    EACH_ROW EACH_COLUMN sums[r][c] = (lanes){0};
    const float *x = at(p->x, row, 0), *w = at(p->w, 0, column);
    const int64_t x_stride = p->x.stride, w_stride = p->w.stride, left = p->outer - column;
    /* Columns beyond the last are read from the next rows of w and dropped; at its end there are none to read. */
    const int64_t beyond = columns * LANES - left;
    const int64_t whole = beyond <= 0 ? p->inner : p->inner - (beyond + w_stride - 1) / w_stride;
    int64_t k = 0;
    for (; k < whole; k++, w += w_stride) {
        EACH_COLUMN memcpy(&line[c], w + c * LANES, sizeof line[c]);
        EACH_ROW EACH_COLUMN sums[r][c] += x[r * x_stride + k] * line[c];
    }
    for (; k < p->inner; k++, w += w_stride) {
        EACH_COLUMN line[c] = load(w + c * LANES, 0, left - c * LANES);
        EACH_ROW EACH_COLUMN sums[r][c] += x[r * x_stride + k] * line[c];
    }
    if (!p->y.half && !p->activation && beyond <= 0) { /* sums, which need no memory of their own */
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
    lanes found[ROWS][COLUMNS]; /* apart from the sums, which so stay in registers */
    EACH_ROW EACH_COLUMN found[r][c] = sums[r][c];
    finish(p, row, column, rows, columns, found);
}

/* So many columns of LANES are next, of so many elements that are left: three, but two and two of four. */
INLINE int next_columns(int64_t left) {
    if (COLUMNS < 3 || left <= LANES) return 1;
    return left <= 2 * LANES || (left > 3 * LANES && left <= 4 * LANES) ? 2 : 3;
}

#define STRIPE(columns)                                                  \
    static void stripe_##columns(const product *p, int64_t rows, int64_t column) { \
        int64_t row = 0;                                                 \
        for (; row + ROWS <= rows; row += ROWS) tile(p, row, column, ROWS, columns); \
        if (ROWS > 4 && row + 4 <= rows) tile(p, row, column, 4, columns), row += 4; \
        if (row + 2 <= rows) tile(p, row, column, 2, columns), row += 2; \
        if (row < rows) tile(p, row, column, 1, columns);                \
    }

STRIPE(1)
#if COLUMNS == 3
STRIPE(2)
STRIPE(3)
#endif

/* All of `rows` rows; a stripe of w's columns stays in the cache for all of them. */
static void multiply(const product *p, int64_t rows) {
    for (int64_t column = 0; column < p->outer;) {
        const int columns = next_columns(p->outer - column);
        switch (columns) {
#if COLUMNS == 3
            case 3: stripe_3(p, rows, column); break;
            case 2: stripe_2(p, rows, column); break;
#endif
            default: stripe_1(p, rows, column);
        }
        column += columns * LANES;
    }
}

#ifdef __AVX512BF16__
/* As `tile`, of pairs of bfloat16; the inner dimension is even. A row of w has a pair for each column, and whole vectors. */
INLINE void tile_pairs(const product *p, int64_t row, int64_t column, const int rows, const int columns) {
    __m512 sums[ROWS][COLUMNS];
    __m512bh line[COLUMNS];
    EACH_ROW EACH_COLUMN sums[r][c] = _mm512_setzero_ps();
    const uint16_t *x = at(p->x, row, 0), *w = (const uint16_t *)p->w.data + 2 * column;
    const int64_t x_stride = p->x.stride, w_stride = p->w.stride;
    for (int64_t k = 0; k < p->inner; k += 2, w += w_stride) {
        EACH_COLUMN line[c] = (__m512bh)_mm512_loadu_si512(w + 2 * LANES * c);
        EACH_ROW {
            int32_t pair;
            memcpy(&pair, x + r * x_stride + k, sizeof pair);
            const __m512bh spread = (__m512bh)_mm512_set1_epi32(pair);
            EACH_COLUMN sums[r][c] = _mm512_dpbf16_ps(sums[r][c], spread, line[c]);
        }
    }
    if (!p->y.half && !p->activation && !p->bias && !p->add && p->outer - column >= columns * LANES) {
        EACH_ROW EACH_COLUMN {
            const lanes v = (lanes)sums[r][c];
            store((float *)at(p->y, row + r, column + c * LANES), 0, LANES, p->scale ? v * p->scale[row + r] : v);
        }
        return;
    }
    lanes found[ROWS][COLUMNS];
    EACH_ROW EACH_COLUMN found[r][c] = (lanes)sums[r][c];
    const int64_t whole = (p->outer - column + LANES - 1) / LANES;
    finish(p, row, column, rows, whole < columns ? (int)whole : columns, found);
}

#define PAIR_STRIPE(columns)                                                  \
    static void pair_stripe_##columns(const product *p, int64_t rows, int64_t column) { \
        int64_t row = 0;                                                      \
        for (; row + ROWS <= rows; row += ROWS) tile_pairs(p, row, column, ROWS, columns); \
        if (row + 4 <= rows) tile_pairs(p, row, column, 4, columns), row += 4; \
        if (row + 2 <= rows) tile_pairs(p, row, column, 2, columns), row += 2; \
        if (row < rows) tile_pairs(p, row, column, 1, columns);               \
    }

PAIR_STRIPE(1)
PAIR_STRIPE(2)
PAIR_STRIPE(3)

static void multiply_pairs(const product *p, int64_t rows) {
    for (int64_t column = 0; column < p->outer;) {
        const int columns = next_columns(p->outer - column);
        if (columns == 3) pair_stripe_3(p, rows, column);
        else if (columns == 2) pair_stripe_2(p, rows, column);
        else pair_stripe_1(p, rows, column);
        column += columns * LANES;
    }
}
#endif

#endif
