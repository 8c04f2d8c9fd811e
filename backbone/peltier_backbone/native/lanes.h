/* Vectors of floats as wide as the registers of this level, in float32 or bfloat16 memory. Sums are always float32. */

#ifndef PELTIER_LANES_H
#define PELTIER_LANES_H

#include <stdlib.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#include "types.h"

#if defined(__AVX512F__)
#define LANES 16
#elif defined(__AVX2__)
#define LANES 8
#else
#define LANES 4
#endif

#define INLINE static inline __attribute__((always_inline))
#define NOINLINE static __attribute__((noinline))
#define EXPORT __attribute__((visibility("default")))

/* Bytes and floats of a line of the cache. */
#define CACHE_LINE 64
#define LINE_FLOATS 16

typedef float lanes __attribute__((vector_size(4 * LANES)));
typedef int32_t ints __attribute__((vector_size(4 * LANES)));
typedef uint32_t bits __attribute__((vector_size(4 * LANES)));
typedef uint16_t halves __attribute__((vector_size(2 * LANES)));

INLINE const void *at(matrix m, int64_t row, int64_t column) {
    return (const char *)m.data + (row * m.stride + column) * (m.half ? 2 : 4);
}

/* Memory for `count` floats, to be freed, or NULL. It is aligned to a cache line: a vector that crosses two lines is slow
 * to load, most of all just after it was stored. */
INLINE float *new_floats(int64_t count) {
    return aligned_alloc(CACHE_LINE, ((size_t)count * sizeof(float) + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE);
}

/* The rows of a tile, `stride` bytes apart. x86 adds one or two strides to an address without an instruction, so every
 * third row has a pointer. Compilers would keep a pointer for each row, and the registers do not suffice for that. */
typedef struct {
    const char *third[3];
    int64_t stride;
} tile_rows;

#define EACH_THIRD(rows) _Pragma("unroll") for (int i = 0; i < (rows + 2) / 3; i++)

INLINE tile_rows rows_from(const void *first, int64_t stride, const int rows) {
    tile_rows t = {.stride = stride};
    EACH_THIRD(rows) t.third[i] = (const char *)first + 3 * i * stride;
    return t;
}

/* The place `byte` of a row. */
INLINE const void *in_row(const tile_rows *t, int row, int64_t byte) {
    return t->third[row / 3] + row % 3 * t->stride + byte;
}

/* Every row begins `bytes` later. The empty instruction hides from the compiler how the pointers are related. */
INLINE void advance(tile_rows *t, int64_t bytes, const int rows) {
    EACH_THIRD(rows) {
        t->third[i] += bytes;
        __asm__("" : "+r"(t->third[i]));
    }
}

/* The number of rows or vectors in the next tile: `left` remain, and a tile has room for `most`. If less than two full
 * tiles remain, two tiles share them evenly, because small tiles leave registers unused. */
INLINE int next_part(int64_t left, int most) {
    if (left <= most) return (int)left;
    return left < 2 * most ? (int)(left + 1) / 2 : most;
}

INLINE lanes select_lanes(ints mask, lanes yes, lanes no) {
    return (lanes)(((ints)yes & mask) | ((ints)no & ~mask));
}

/* The smaller and the larger element of each pair. If one operand is NaN, the result is the second. */
#if defined(__AVX512F__)
#define EXTREME(name, intrinsic, relation)        \
    INLINE lanes name##_lanes(lanes a, lanes b) { \
        return (lanes)_mm512_##intrinsic##_ps((__m512)a, (__m512)b); \
    }
#elif defined(__AVX2__)
#define EXTREME(name, intrinsic, relation)        \
    INLINE lanes name##_lanes(lanes a, lanes b) { \
        return (lanes)_mm256_##intrinsic##_ps((__m256)a, (__m256)b); \
    }
#else
#define EXTREME(name, intrinsic, relation)        \
    INLINE lanes name##_lanes(lanes a, lanes b) { \
        return select_lanes(a relation b, a, b);  \
    }
#endif
EXTREME(smaller, min, <)
EXTREME(larger, max, >)

INLINE lanes widen(halves v) {
    return (lanes)(__builtin_convertvector(v, bits) << 16);
}

/* Rounds to the nearest bfloat16, ties to even; NaN stays NaN. */
INLINE halves narrow(lanes v) {
#ifdef __AVX512BF16__
    return (halves)_mm512_cvtneps_pbh((__m512)v);
#else
    bits b = (bits)v;
    bits rounded = (b + 0x7fff + ((b >> 16) & 1)) >> 16;
    bits is_nan = (bits)(v != v);
    return __builtin_convertvector((is_nan & 0x7fc0) | (~is_nan & rounded), halves);
#endif
}

#if LANES == 16
#define LANE_NUMBERS ((ints){0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15})
#elif LANES == 8
#define LANE_NUMBERS ((ints){0, 1, 2, 3, 4, 5, 6, 7})
#else
#define LANE_NUMBERS ((ints){0, 1, 2, 3})
#endif

/* A mask of the first `count` lanes. */
INLINE ints first_lanes(int64_t count) {
    return LANE_NUMBERS < (ints){0} + (int32_t)count;
}

/* The first `count` (0 to LANES) floats at p, then zeros. Memory after them is not read. */
INLINE lanes load_floats(const float *p, int64_t count) {
#if defined(__AVX512F__)
    return (lanes)_mm512_maskz_loadu_ps((__mmask16)((1u << count) - 1), p);
#elif defined(__AVX2__)
    return (lanes)_mm256_maskload_ps(p, (__m256i)first_lanes(count));
#else
    /* A call of memcpy would move all sums of a tile to memory. */
    lanes v = {0};
    if (count == LANES) return memcpy(&v, p, sizeof v), v;
    if (count & 2) memcpy(&v, p, 2 * sizeof *p);
    if (count == 1) v[0] = p[0];
    if (count == 3) v[2] = p[2];
    return v;
#endif
}

INLINE void store_floats(float *p, int64_t count, lanes v) {
#if defined(__AVX512F__)
    _mm512_mask_storeu_ps(p, (__mmask16)((1u << count) - 1), (__m512)v);
#elif defined(__AVX2__)
    _mm256_maskstore_ps(p, (__m256i)first_lanes(count), (__m256)v);
#else
    memcpy(p, &v, 4 * (size_t)count);
#endif
}

/* The first `count` elements at p, then zeros. */
INLINE lanes load(const void *p, int half, int64_t count) {
    lanes v;
    halves h = {0};
    if (count >= LANES) {
        if (!half) return memcpy(&v, p, sizeof v), v;
        return memcpy(&h, p, sizeof h), widen(h);
    }
    const int64_t kept = count > 0 ? count : 0;
    if (!half) return load_floats(p, kept);
    return memcpy(&h, p, 2 * (size_t)kept), widen(h);
}

INLINE void store(void *p, int half, int64_t count, lanes v) {
    const int64_t kept = count < 0 ? 0 : count;
    if (half) {
        const halves h = narrow(v);
        if (kept >= LANES) memcpy(p, &h, sizeof h);
        else memcpy(p, &h, 2 * (size_t)kept);
    } else if (kept >= LANES) memcpy(p, &v, sizeof v);
    else store_floats(p, kept, v);
}

/* Element i of the result is element numbers[i] of `first`, or element numbers[i] - LANES of `second`. The numbers are
 * constants. */
INLINE lanes pick(lanes first, lanes second, ints numbers) {
    lanes v;
    _Pragma("clang loop unroll(full)") for (int i = 0; i < LANES; i++)
        v[i] = numbers[i] < LANES ? first[numbers[i]] : second[numbers[i] - LANES];
    return v;
}

#define EACH_HALVING _Pragma("clang loop unroll(full)") for (int width = LANES / 2; width; width /= 2)

INLINE float sum_of(lanes v) {
    EACH_HALVING v += pick(v, v, LANE_NUMBERS ^ width);
    return v[0];
}

INLINE float largest_of(lanes v) {
    EACH_HALVING v = larger_lanes(pick(v, v, LANE_NUMBERS ^ width), v);
    return v[0];
}

/* The first `count` lanes of v, and `rest` in the others. */
INLINE lanes keep(lanes v, int64_t count, lanes rest) {
    return count >= LANES ? v : select_lanes(first_lanes(count), v, rest);
}

/* e^x within two units in the last place, by the polynomial of Cephes' expf: 2^n e^r with |r| <= ln(2) / 2. NaN stays
 * NaN. The coefficients are summed in pairs, because in Horner's order each sum waits for the one before (Estrin 1960). */
INLINE lanes exp_lanes(lanes x) {
    const lanes zero = {0};
    x = smaller_lanes(zero + 88.0f, larger_lanes(zero - 87.0f, x));
#ifdef __AVX512F__
    const lanes n = (lanes)_mm512_roundscale_ps((__m512)(x * 1.44269504f), 0);
#else
    const lanes shifted = x * 1.44269504f + 12583039.0f; /* its last bits are n + 127, the exponent of 2^n */
    const lanes n = shifted - 12583039.0f;
#endif
    lanes r = x - n * 0.693359375f;
    r = r + n * 2.12194440e-4f;
    const lanes r2 = r * r;
    const lanes high = r * 1.9875691500e-4f + 1.3981999507e-3f;
    const lanes middle = r * 8.3334519073e-3f + 4.1665795894e-2f;
    const lanes low = r * 1.6666665459e-1f + 5.0000001201e-1f;
    const lanes p = ((high * r2 + middle) * r2 + low) * r2 + (r + 1.0f);
#ifdef __AVX512F__
    return (lanes)_mm512_scalef_ps((__m512)p, (__m512)n);
#else
    return p * (lanes)((bits)shifted << 23);
#endif
}

#endif
