/* Exact sums of products of values (8 bits, no sign) and weights (8 bits with a sign), in registers. A file includes this
 * one once for each way to compute them, and defines before
 *   WAY(name)                a name of this way,
 *   TARGET                   the attributes of functions that use its instructions,
 *   SUMS                     how many 32-bit sums a vector has,
 *   TILE_ROWS, TILE_VECTORS  how many rows and vectors a tile has,
 *   WAY(dot)                 sums plus products: of four values with four weights each, or if `PAIRED` is defined of two
 *                            values with two weights each, all four in 16 bits with a sign.
 * Sums are exact, so all ways give the same. */

#define EACH_TILE_ROW _Pragma("GCC unroll 8") for (int r = 0; r < rows; r++)
#define EACH_TILE_VECTOR _Pragma("GCC unroll 4") for (int c = 0; c < TILE_VECTORS; c++)

#ifdef PAIRED
#define VALUE_BYTES 2
#define PAIRS 2
#else
#define VALUE_BYTES 1
#define PAIRS 1
#endif

/* Four neighbouring weights of each column; paired, the first and the third, then the second and the fourth. */
TARGET INLINE void WAY(read)(const int8_t *w, WAY(vector) found[PAIRS]) {
    memcpy(&found[0], w, sizeof found[0]);
#ifdef PAIRED
    typedef int16_t halfwords __attribute__((vector_size(4 * SUMS)));
    const halfwords pairs = (halfwords)found[0];
    found[0] = (WAY(vector))((pairs << 8) >> 8);
    found[1] = (WAY(vector))(pairs >> 8);
#endif
}

/* found[row][column] of `rows` rows and of the vectors that begin at the column of `w`. */
TARGET INLINE void WAY(tile)(const quantized_rows *x, int64_t row, const int8_t *w, const int rows, int32_t *found) {
    WAY(vector) sums[TILE_ROWS][TILE_VECTORS], weights[TILE_VECTORS][PAIRS];
    EACH_TILE_ROW EACH_TILE_VECTOR sums[r][c] = (WAY(vector)){0};
    const int64_t stride = x->stride;
    const uint8_t *values = x->values + row * stride;
    for (int64_t group = 0; group < x->groups; group++, w += 4 * QUANTIZED_PANEL, values += 4 * VALUE_BYTES) {
        EACH_TILE_VECTOR WAY(read)(w + 4 * SUMS * c, weights[c]);
        EACH_TILE_ROW _Pragma("GCC unroll 2") for (int pair = 0; pair < PAIRS; pair++) {
            int32_t own;
            memcpy(&own, values + r * stride + 4 * pair, sizeof own);
            const WAY(vector) spread = (WAY(vector)){0} + own;
            EACH_TILE_VECTOR sums[r][c] = WAY(dot)(sums[r][c], spread, weights[c][pair]);
        }
    }
    EACH_TILE_ROW EACH_TILE_VECTOR memcpy(found + r * QUANTIZED_PANEL + SUMS * c, &sums[r][c], sizeof sums[r][c]);
}

/* The sums of `rows` rows, at most TILE_ROWS, and of a whole panel. */
#define PANEL_OF(number)                                                                                     \
    TARGET NOINLINE void WAY(panel_##number)(const quantized_rows *x, int64_t row, const int8_t *w, int32_t *found) { \
        for (int column = 0; column < QUANTIZED_PANEL; column += SUMS * TILE_VECTORS)                        \
            WAY(tile)(x, row, w + 4 * column, number, found + column);                                       \
    }

PANEL_OF(1)
PANEL_OF(2)
PANEL_OF(4)
#if TILE_ROWS > 4
PANEL_OF(6)
#endif

/* The sums of the rows from `row` on, as many as a tile has or are left; returns how many. */
static int WAY(some)(const quantized_rows *x, int64_t row, int64_t left, const int8_t *w, int32_t *found) {
#if TILE_ROWS > 4
    if (left >= 6) return WAY(panel_6)(x, row, w, found), 6;
#endif
    if (left >= 4) return WAY(panel_4)(x, row, w, found), 4;
    if (left >= 2) return WAY(panel_2)(x, row, w, found), 2;
    return WAY(panel_1)(x, row, w, found), 1;
}

#undef EACH_TILE_ROW
#undef EACH_TILE_VECTOR
#undef VALUE_BYTES
#undef PAIRS
#undef PAIRED
#undef PANEL_OF
#undef WAY
#undef TARGET
#undef SUMS
#undef TILE_ROWS
#undef TILE_VECTORS
