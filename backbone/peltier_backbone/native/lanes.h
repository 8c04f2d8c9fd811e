/* Sixteen floats at a time, in float32 or bfloat16 memory. Sums are always float32. */

#ifndef PELTIER_LANES_H
#define PELTIER_LANES_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#ifdef __x86_64__
#include <immintrin.h>
#endif

#define LANES 16
#define INLINE static inline __attribute__((always_inline))
#define NOINLINE static __attribute__((noinline))
#define EXPORT __attribute__((visibility("default")))

typedef float lanes __attribute__((vector_size(4 * LANES)));
typedef int32_t ints __attribute__((vector_size(4 * LANES)));
typedef uint32_t bits __attribute__((vector_size(4 * LANES)));
typedef uint16_t halves __attribute__((vector_size(2 * LANES)));

/* A matrix of floats, or of bfloat16 if `half`; rows are `stride` elements apart, what a row holds lies side by side. */
typedef struct {
    const void *data;
    int64_t stride;
    int half;
} matrix;

INLINE const void *at(matrix m, int64_t row, int64_t column) {
    return (const char *)m.data + (row * m.stride + column) * (m.half ? 2 : 4);
}

/* Memory for `count` floats, to be freed, or NULL. Where it does not begin with a line of the cache, every sixteen floats
 * lie in two of them, and what was just stored is not yet there to be loaded. */
INLINE float *new_floats(int64_t count) {
    const size_t line = LANES * sizeof(float);
    return aligned_alloc(line, ((size_t)count * sizeof(float) + line - 1) / line * line);
}

INLINE lanes select_lanes(ints mask, lanes yes, lanes no) {
    return (lanes)(((ints)yes & mask) | ((ints)no & ~mask));
}

/* smaller_lanes and larger_lanes: of a number and what is not one they take the second. */
#if defined(__AVX512F__)
#define EXTREME(name, wide, narrow, relation)       \
    INLINE lanes name##_lanes(lanes a, lanes b) {   \
        return (lanes)wide((__m512)a, (__m512)b);   \
    }
#elif defined(__x86_64__) /* GCC 12 compares vectors that are wider than the processor's element by element */
#define EXTREME(name, wide, narrow, relation)       \
    INLINE lanes name##_lanes(lanes a, lanes b) {   \
        __m128 first[LANES / 4], second[LANES / 4]; \
        memcpy(first, &a, sizeof a), memcpy(second, &b, sizeof b); \
        for (int i = 0; i < LANES / 4; i++) first[i] = narrow(first[i], second[i]); \
        memcpy(&a, first, sizeof a);                \
        return a;                                   \
    }
#else
#define EXTREME(name, wide, narrow, relation)       \
    INLINE lanes name##_lanes(lanes a, lanes b) {   \
        return select_lanes(a relation b, a, b);    \
    }
#endif
EXTREME(smaller, _mm512_min_ps, _mm_min_ps, <)
EXTREME(larger, _mm512_max_ps, _mm_max_ps, >)

INLINE lanes widen(halves v) {
    return (lanes)(__builtin_convertvector(v, bits) << 16);
}

/* To the nearest bfloat16, ties to even; what is not a number stays so. */
INLINE halves narrow(lanes v) {
#ifdef __AVX512BF16__
    return (halves)_mm512_cvtneps_pbh((__m512)v);
#endif
    bits b = (bits)v;
    bits rounded = (b + 0x7fff + ((b >> 16) & 1)) >> 16;
    bits is_nan = (bits)(v != v);
    return __builtin_convertvector((is_nan & 0x7fc0) | (~is_nan & rounded), halves);
}

/* The first `count` elements at p, and zeros. */
INLINE lanes load(const void *p, int half, int64_t count) {
    if (count >= LANES) {
        lanes v;
        halves h;
        if (!half) return memcpy(&v, p, sizeof v), v;
        return memcpy(&h, p, sizeof h), widen(h);
    }
    const size_t kept = count > 0 ? (size_t)count : 0;
    lanes v = {0};
    halves h = {0};
    if (!half) return memcpy(&v, p, 4 * kept), v;
    return memcpy(&h, p, 2 * kept), widen(h);
}

INLINE void store(void *p, int half, int64_t count, lanes v) {
    const size_t kept = count < LANES ? (size_t)count : LANES;
    if (half) {
        const halves h = narrow(v);
        if (kept == LANES) memcpy(p, &h, sizeof h);
        else memcpy(p, &h, 2 * kept);
    } else if (kept == LANES) memcpy(p, &v, sizeof v);
    else memcpy(p, &v, 4 * kept);
}

#define LANE_NUMBERS ((ints){0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15})
/* Of the lanes of `first` and, from number LANES on, of `second` those of these numbers. */
INLINE lanes pick(lanes first, lanes second, ints numbers) {
#ifdef __clang__
    lanes v;
    for (int i = 0; i < LANES; i++) v[i] = numbers[i] < LANES ? first[numbers[i]] : second[numbers[i] - LANES];
    return v;
#else
    return __builtin_shuffle(first, second, numbers);
#endif
}

#define EACH_HALVING _Pragma("GCC unroll 4") for (int width = LANES / 2; width; width /= 2)

INLINE float sum_of(lanes v) {
    EACH_HALVING v += pick(v, v, LANE_NUMBERS ^ width);
    return v[0];
}

INLINE float largest_of(lanes v) {
    EACH_HALVING {
        v = larger_lanes(pick(v, v, LANE_NUMBERS ^ width), v);
    }
    return v[0];
}

/* The first `count` of v, and `rest` in the place of the others. */
INLINE lanes keep(lanes v, int64_t count, lanes rest) {
    return count >= LANES ? v : select_lanes(LANE_NUMBERS < (ints){0} + (int32_t)count, v, rest);
}

/* e^x to two units in the last place, as Cephes' expf: 2^n e^r with |r| <= ln(2) / 2. */
INLINE lanes exp_lanes(lanes x) {
    const lanes zero = {0};
    x = smaller_lanes(zero + 88.0f, larger_lanes(zero - 87.0f, x));
#ifdef __AVX512F__
    const lanes n = (lanes)_mm512_roundscale_ps((__m512)(x * 1.44269504f), 0);
#else
    lanes shifted = x * 1.44269504f + 12582912.0f; /* the sum's last bits are n */
    lanes n = shifted - 12582912.0f;
#endif
    lanes r = x - n * 0.693359375f;
    r = r + n * 2.12194440e-4f;
    lanes p = zero + 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * (r * r) + r + 1.0f;
#ifdef __AVX512F__
    return (lanes)_mm512_scalef_ps((__m512)p, (__m512)n);
#else
    const lanes power = (lanes)((ints)p + (((ints)shifted - (ints)(zero + 12582912.0f)) << 23));
    return select_lanes(x == x, power, x); /* not a number stays so */
#endif
}

#endif
