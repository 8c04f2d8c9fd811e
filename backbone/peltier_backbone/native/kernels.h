/* The kernels that other files call. */

#ifndef PELTIER_KERNELS_H
#define PELTIER_KERNELS_H

#include <stdint.h>

#include "program.h"

/* A weight [inner, outer] in 8 bits: each column's `values` times its scale. `sums` has the sum of each column's
 * values. All arrays are padded to whole panels. `bias` is NULL if there is none. */
typedef struct {
    const int8_t *values;
    const int32_t *sums;
    const float *scales, *bias;
    int64_t inner, outer;
} int8_weight;

/* The queries `first` to `first` + `tokens` - 1 of a batch. They attend to `keys` keys, beginning with key number
 * `offset`; the keys of head h begin h * head_stride elements after those of head 0. The biases of query q of head h
 * begin at bias + h * bias_head + q * bias_query; `bias` is NULL if there are none. */
typedef struct {
    int64_t first, tokens, offset, keys;
    const float *bias;
    int64_t bias_head, bias_query;
} placed_row;

int peltier_multiply(
    void *y, int64_t y_stride, const void *x, int64_t x_stride, int half, const void *w, const float *bias,
    int64_t rows, int64_t inner, int64_t outer, int activation);
int peltier_multiply_int8(
    float *y, int64_t y_stride, const float *x, int64_t x_stride, int64_t rows, const int8_weight *w, int activation);
int peltier_feed_forward_int8(
    float *y, int64_t y_stride, const float *x, int64_t x_stride, int64_t rows, const int8_weight *expand,
    const int8_weight *contract, int activation, int gated);
void peltier_activate(void *y, int64_t stride, int half, int64_t rows, int64_t width, int activation, int gated);
int peltier_norm(
    void *y, const void *x, const void *residual, int64_t y_stride, int64_t x_stride, int64_t residual_stride, int half,
    const void *weight, const void *bias, int weights_half, int64_t tokens, int64_t width, float eps, int centered,
    const group *groups, int64_t count, const int64_t *starts, int64_t index);
int peltier_adapt(
    void *y, int64_t y_stride, int y_half, const void *x, int64_t x_stride, int x_half, const void *residual,
    int64_t residual_stride, int64_t width, const group *groups, int64_t count, const int64_t *starts, int64_t place,
    float *gates);
int peltier_attend(
    void *context, int64_t context_stride, const void *query, int64_t query_stride, int half, const void *key,
    const void *value, int64_t key_stride, int key_half, int64_t head_stride, const placed_row *rows, int64_t num_rows,
    int64_t heads, int64_t size, float scale, int once, int rounded, int64_t window, const group *groups, int64_t count, const int64_t *starts,
    int64_t place, const float *gates);
void peltier_rotate(
    void *x, int64_t stride, int half, const float *turns, const int64_t *positions, int64_t tokens, int64_t heads,
    int64_t size);
void peltier_keep_keys(
    void *keys, void *values, int kept_half, int64_t head_stride, const void *from, int64_t stride, int half,
    const int64_t *places, int64_t rows, int64_t heads, int64_t size);

#endif
