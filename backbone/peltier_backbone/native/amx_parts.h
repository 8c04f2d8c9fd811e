/* Splits floats into sums of three bfloat16, in the tiles that AMX multiplies.
 *
 * The top 16 bits of a float are a bfloat16 with 8 significant bits. The remainder is split in the same way, twice, so
 * all 24 bits are kept. Henry, Tang and Heinecke describe such products ("Leveraging the bfloat16 Artificial
 * Intelligence Datatype For Higher-Precision Computations", 2019).
 *
 * A tile has 16 lines of 64 bytes. A line of x has the 32 elements of one row in a step. A line of w has a pair of
 * elements for each of 16 columns. The tiles of 16 rows or columns are [steps][PARTS]. */

#ifndef PELTIER_AMX_PARTS_H
#define PELTIER_AMX_PARTS_H

#include "amx_tiles.h"
#include "lanes.h"

#define STEP (2 * LANES)
#define PARTS 3
#define STEP_BYTES (PARTS * TILE_BYTES)

static inline int64_t num_steps(int64_t inner) {
    return (inner + STEP - 1) / STEP;
}

/* x without its first part, which is exact. If x is not finite, the result is NaN. */
INLINE lanes less_part(lanes x) {
    return x - (lanes)((bits)x & 0xffff0000);
}

/* Writes the parts of 32 elements of a row. */
INLINE void split_elements(lanes first, lanes second, char *to) {
    const __m512i tops = _mm512_set_epi16(
        63, 61, 59, 57, 55, 53, 51, 49, 47, 45, 43, 41, 39, 37, 35, 33, 31, 29, 27, 25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5,
        3, 1);
    for (int part = 0; part < PARTS; part++, first = less_part(first), second = less_part(second)) {
        const __m512i line = _mm512_permutex2var_epi16((__m512i)first, tops, (__m512i)second);
        memcpy(to + part * TILE_BYTES, &line, sizeof line);
    }
}

/* Splits the rows of x into tiles, [tiles of rows][steps][PARTS], with zeros after the last element and the last
 * row. */
static void split_rows(matrix x, int64_t rows, int64_t inner, char *to) {
    for (int64_t first = 0; first < rows; first += LANES)
        for (int64_t k = 0; k < inner; k += STEP, to += STEP_BYTES)
            for (int64_t row = 0; row < LANES; row++) {
                lanes start = {0}, rest = {0};
                if (first + row < rows) {
                    const float *from = at(x, first + row, k);
                    start = load(from, 0, inner - k), rest = load(from + LANES, 0, inner - k - LANES);
                }
                split_elements(start, rest, to + row * (TILE_BYTES / LANES));
            }
}

/* The first line of each vector of 16 columns of a stripe, and the distance from one line to the next. */
typedef struct {
    const float *columns[3];
    int64_t stride;
} lines;

/* Splits pair of lines `number` of a step for all columns. The tiles of the next 16 columns begin `apart` bytes
 * later. */
INLINE void split_pair(const lines *w, int number, char *to, int64_t apart, const int columns) {
    _Pragma("unroll") for (int c = 0; c < columns; c++) {
        const float *from = w->columns[c] + 2 * number * w->stride;
        lanes even, odd;
        memcpy(&even, from, sizeof even);
        memcpy(&odd, from + w->stride, sizeof odd);
        char *line = to + c * apart + number * (TILE_BYTES / LANES);
        for (int part = 0; part < PARTS; part++, even = less_part(even), odd = less_part(odd)) {
            const __m512i low = (__m512i)((bits)even >> 16), pair = _mm512_mask_blend_epi16(0xaaaaaaaa, low, (__m512i)odd);
            memcpy(line + part * TILE_BYTES, &pair, sizeof pair);
        }
    }
}

#endif
