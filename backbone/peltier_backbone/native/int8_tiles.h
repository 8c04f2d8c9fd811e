/* Exact sums of products of unsigned 8-bit values and signed 8-bit weights, in registers.
 *
 * Four adjacent elements are multiplied at once. The sum of two adjacent products always fits signed 16 bits
 * (`quantized_linear.py`), so every level computes the same sums. */

#ifndef PELTIER_INT8_TILES_H
#define PELTIER_INT8_TILES_H

#include "lanes.h"

/* Rows of values, `stride` bytes apart, in `groups` groups of four. An element is about
 * (value + VALUE_OFFSET - zero) * scale. */
typedef struct {
    uint8_t *values;
    float *scales;
    int32_t *zeros;
    int64_t stride, groups;
} quantized_rows;

/* Rows, and columns in vectors, of the largest tile. */
#if defined(__AVX512F__) || defined(__ARM_FEATURE_DOTPROD)
#define TILE_ROWS 6
#define TILE_VECTORS 4
#elif defined(__AVXVNNI__) || defined(__aarch64__)
#define TILE_ROWS 6
#define TILE_VECTORS 2
#elif defined(__AVX2__) /* products of pairs and ones need two of the sixteen registers */
#define TILE_ROWS 5
#define TILE_VECTORS 2
#else
#define TILE_ROWS 4
#define TILE_VECTORS 2
#endif

/* The number of groups by which a weight is prefetched ahead. */
#define GROUPS_AHEAD 24

/* Columns of a panel. AMX has tiles of 32 columns. */
#define QUANTIZED_PANEL (LANES * TILE_VECTORS)

/* NEON without i8mm instructions multiplies only signed values. */
#if defined(__aarch64__) && !defined(__ARM_FEATURE_MATMUL_INT8)
#define VALUE_OFFSET 128
#else
#define VALUE_OFFSET 0
#endif

/* Adds to each sum the products of four values and four weights. */
INLINE ints add_products(ints sums, ints values, ints weights) {
#if defined(__AVX512VNNI__)
    return (ints)_mm512_dpbusd_epi32((__m512i)sums, (__m512i)values, (__m512i)weights);
#elif defined(__AVX512F__)
    const __m512i pairs = _mm512_maddubs_epi16((__m512i)values, (__m512i)weights);
    return sums + (ints)_mm512_madd_epi16(pairs, _mm512_set1_epi16(1));
#elif defined(__AVXVNNI__)
    return (ints)_mm256_dpbusd_avx_epi32((__m256i)sums, (__m256i)values, (__m256i)weights);
#elif defined(__AVX2__)
    const __m256i pairs = _mm256_maddubs_epi16((__m256i)values, (__m256i)weights);
    return sums + (ints)_mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
#elif defined(__ARM_FEATURE_MATMUL_INT8)
    return (ints)vusdotq_s32((int32x4_t)sums, (uint8x16_t)values, (int8x16_t)weights);
#elif defined(__ARM_FEATURE_DOTPROD)
    return (ints)vdotq_s32((int32x4_t)sums, (int8x16_t)values, (int8x16_t)weights);
#elif defined(__aarch64__)
    const int16x8_t first = vmull_s8(vget_low_s8((int8x16_t)values), vget_low_s8((int8x16_t)weights));
    const int16x8_t second = vmull_high_s8((int8x16_t)values, (int8x16_t)weights);
    return (ints)vpadalq_s16((int32x4_t)sums, vpaddq_s16(first, second));
#else
    typedef int16_t pairs __attribute__((vector_size(4 * LANES)));
    const ints even = (ints)((pairs)weights << 8 >> 8), odd = (ints)((pairs)weights >> 8);
    const ints first = values & 0x00ff00ff, second = (ints)((bits)values >> 8) & 0x00ff00ff;
#if defined(__x86_64__)
    return sums + (ints)_mm_madd_epi16((__m128i)even, (__m128i)first) + (ints)_mm_madd_epi16((__m128i)odd, (__m128i)second);
#else
    sums += (even << 16 >> 16) * (first & 0xffff) + (even >> 16) * (first >> 16);
    return sums + (odd << 16 >> 16) * (second & 0xffff) + (odd >> 16) * (second >> 16);
#endif
#endif
}

#ifdef __AMX_INT8__
#include "amx_tiles.h"
#define MOST_ROWS GROUP_ROWS

SUM_TILES(sum_bytes, _tile_dpbusd)

/* Computes the sums of a panel for the next rows, of which `left` remain. Returns the number of rows. */
static int some_rows(const quantized_rows *x, int64_t row, int64_t left, const int8_t *w, int32_t *found) {
    const int rows = left < GROUP_ROWS ? (int)left : GROUP_ROWS;
    const char *values = (const char *)x->values + row * x->stride;
    configure_tiles(rows);
    for (int column = 0; column < QUANTIZED_PANEL; column += 2 * LANES) {
        const tile_product p = {values, (const char *)w + 4 * column, x->stride, 4 * QUANTIZED_PANEL, x->groups, rows};
        sum_bytes(p, 2, (char *)(found + column), 4 * QUANTIZED_PANEL);
    }
    return rows;
}
#else
#define MOST_ROWS TILE_ROWS

#define EACH_TILE_ROW _Pragma("unroll") for (int r = 0; r < rows; r++)
#define EACH_TILE_VECTOR _Pragma("unroll") for (int c = 0; c < TILE_VECTORS; c++)

/* Computes found[row][column] for `rows` rows and one panel. */
INLINE void tile_int8(const quantized_rows *x, int64_t row, const int8_t *w, const int rows, int32_t *found) {
    ints sums[TILE_ROWS][TILE_VECTORS], weights[TILE_VECTORS];
    EACH_TILE_ROW EACH_TILE_VECTOR sums[r][c] = (ints){0};
    tile_rows values = rows_from(x->values + row * x->stride, x->stride, rows);
    for (int64_t group = 0; group < x->groups; group++, w += 4 * QUANTIZED_PANEL, advance(&values, 4, rows)) {
        _Pragma("unroll") for (int i = 0; i < 4 * QUANTIZED_PANEL; i += CACHE_LINE)
            __builtin_prefetch(w + 4 * QUANTIZED_PANEL * GROUPS_AHEAD + i);
        EACH_TILE_VECTOR memcpy(&weights[c], w + 4 * LANES * c, sizeof weights[c]);
        EACH_TILE_ROW {
            int32_t own;
            memcpy(&own, in_row(&values, r, 0), sizeof own);
            const ints spread = (ints){0} + own;
            EACH_TILE_VECTOR sums[r][c] = add_products(sums[r][c], spread, weights[c]);
        }
    }
    EACH_TILE_ROW EACH_TILE_VECTOR memcpy(found + r * QUANTIZED_PANEL + LANES * c, &sums[r][c], sizeof sums[r][c]);
}

#define PANEL_OF(rows)                                                                                     \
    NOINLINE void panel_of_##rows(const quantized_rows *x, int64_t row, const int8_t *w, int32_t *found) { \
        tile_int8(x, row, w, rows, found);                                                                 \
    }

PANEL_OF(1)
PANEL_OF(2)
PANEL_OF(3)
PANEL_OF(4)
#if TILE_ROWS > 4
PANEL_OF(5)
#endif
#if TILE_ROWS > 5
PANEL_OF(6)
#endif

/* Computes the sums of a panel for the next rows, of which `left` remain. Returns the number of rows. */
static int some_rows(const quantized_rows *x, int64_t row, int64_t left, const int8_t *w, int32_t *found) {
    const int rows = next_part(left, TILE_ROWS);
    switch (rows) {
#if TILE_ROWS > 5
        case 6: panel_of_6(x, row, w, found); break;
#endif
#if TILE_ROWS > 4
        case 5: panel_of_5(x, row, w, found); break;
#endif
        case 4: panel_of_4(x, row, w, found); break;
        case 3: panel_of_3(x, row, w, found); break;
        case 2: panel_of_2(x, row, w, found); break;
        default: panel_of_1(x, row, w, found);
    }
    return rows;
}

#endif

#endif
