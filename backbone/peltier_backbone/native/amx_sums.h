/* Sums of products of floats by AMX, for 32 rows and 32 columns or 16 rows and 48 columns.
 *
 * Six of the nine products of parts are summed, in float32. The other three are at most 2^-21 of the whole, less than
 * the rounding error of most sums. The sum of each element adds the steps and the six products in one order, so it does
 * not depend on the position of its row. */

#ifndef PELTIER_AMX_SUMS_H
#define PELTIER_AMX_SUMS_H

#include "amx_parts.h"
#include "tiles.h"

/* Vectors of 16 columns of a weight with `inner` lines. Their parts go to `tiles`, a ring buffer of `kept` steps; the
 * tiles of the next vector begin `apart` bytes later. */
typedef struct {
    lines from;
    int64_t inner;
    char *tiles;
    int64_t kept, apart;
} stripe;

/* The tiles of a group of rows, and a stripe. If `fresh`, all steps of the stripe but the first are not split yet; if
 * `resumed`, the sums continue those of the previous piece. */
typedef struct {
    const char *x;
    int64_t x_apart;
    const stripe *w;
    int fresh, resumed;
} group_product;

enum { HIGH, MIDDLE, LOW };

static char *step_of(const stripe *w, int64_t number) {
    return w->tiles + number % w->kept * STEP_BYTES;
}

#define LOAD_X(part)                                                     \
    _tile_loadd(4, x + (part) * TILE_BYTES, 64);                         \
    if (rows == 2) _tile_loadd(5, x + x_apart + (part) * TILE_BYTES, 64)
#define LOAD_W(part)                                                     \
    _tile_loadd(6, w + (part) * TILE_BYTES, 64);                         \
    _tile_loadd(7, w + w_apart + (part) * TILE_BYTES, 64);               \
    if (rows == 1) _tile_loadd(5, w + 2 * w_apart + (part) * TILE_BYTES, 64)
#define ADD_PRODUCTS                        \
    _tile_dpbf16ps(0, 4, 6);                \
    if (rows == 2) _tile_dpbf16ps(2, 5, 6); \
    _tile_dpbf16ps(1, 4, 7);                \
    if (rows == 2) _tile_dpbf16ps(3, 5, 7); \
    else _tile_dpbf16ps(2, 4, 5)
#define SPLIT(first, last)                                               \
    _Pragma("unroll") for (int k = first; ahead && k < last; k++)  \
        split_pair(next, k, ahead, w_apart, 4 - rows)

/* Adds one step, for 32 rows and 32 columns or for 16 rows and 48 columns. Meanwhile it splits the lines `next` into
 * the tiles `ahead`, unless these are NULL. */
INLINE void add_step(
    const char *x, int64_t x_apart, const char *w, int64_t w_apart, const lines *next, char *ahead, const int rows) {
    LOAD_X(HIGH); LOAD_W(LOW); ADD_PRODUCTS; SPLIT(0, 3);
    LOAD_W(MIDDLE); ADD_PRODUCTS; SPLIT(3, 6);
    LOAD_W(HIGH); ADD_PRODUCTS; SPLIT(6, 9);
    LOAD_X(LOW); ADD_PRODUCTS; SPLIT(9, 12);
    LOAD_X(MIDDLE); ADD_PRODUCTS; SPLIT(12, 14);
    LOAD_W(MIDDLE); ADD_PRODUCTS; SPLIT(14, 16);
    MEMORY_IS_CURRENT;
}

/* A copy of an incomplete last step of the inner dimension, padded with zeros. */
typedef struct {
    float lines[3 * STEP * LANES];
} padded_step;

INLINE lines lines_of(const stripe *w, int64_t number, padded_step *padded, const int columns) {
    const int64_t left = w->inner - number * STEP;
    lines found = w->from;
    for (int c = 0; c < columns; c++) found.columns[c] += number * STEP * found.stride;
    if (left >= STEP) return found;
    memset(padded, 0, sizeof *padded);
    for (int c = 0; c < columns; c++) {
        float *to = padded->lines + c * STEP * LANES;
        for (int64_t k = 0; k < left; k++) memcpy(to + k * LANES, found.columns[c] + k * found.stride, LANES * sizeof *to);
        found.columns[c] = to;
    }
    found.stride = LANES;
    return found;
}

INLINE void split_first_step(const stripe *w, const int columns) {
    padded_step padded;
    const lines first = lines_of(w, 0, &padded, columns);
    for (int k = 0; k < LANES; k++) split_pair(&first, k, step_of(w, 0), w->apart, columns);
    MEMORY_IS_CURRENT;
}

INLINE void add_steps(const group_product *g, const int rows) {
    const stripe *w = g->w;
    const int64_t steps = num_steps(w->inner);
    const char *x = g->x;
    padded_step padded;
    int64_t step = 0;
    for (; g->fresh && step + 1 < steps; step++, x += STEP_BYTES) {
        const lines next = lines_of(w, step + 1, &padded, 4 - rows);
        add_step(x, g->x_apart, step_of(w, step), w->apart, &next, step_of(w, step + 1), rows);
    }
    for (; step < steps; step++, x += STEP_BYTES)
        add_step(x, g->x_apart, step_of(w, step), w->apart, NULL, NULL, rows);
}

/* The sums of a group and a stripe: [32, 32] or [16, 48]. */
INLINE void sum_products(const group_product *g, lanes found[GROUP_ROWS][COLUMNS], const int rows) {
    const int64_t stride = sizeof found[0];
    if (g->resumed) {
        _tile_loadd(0, &found[0][0], stride);
        _tile_loadd(1, &found[0][1], stride);
        _tile_loadd(2, rows == 1 ? &found[0][2] : &found[LANES][0], stride);
        if (rows == 2) _tile_loadd(3, &found[LANES][1], stride);
    } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        if (rows == 2) _tile_zero(3);
    }
    add_steps(g, rows);
    _tile_stored(0, &found[0][0], stride);
    _tile_stored(1, &found[0][1], stride);
    _tile_stored(2, rows == 1 ? &found[0][2] : &found[LANES][0], stride);
    if (rows == 2) _tile_stored(3, &found[LANES][1], stride);
    MEMORY_IS_CURRENT;
}

#endif
