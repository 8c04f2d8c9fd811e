/* All layers of an encoder or a decoder, and one call that computes them. */

#ifndef PELTIER_STACK_H
#define PELTIER_STACK_H

#include "kernels.h"

/* A frozen map: `quantized`, or else `packed` in the dtype of the rows, with its `bias` or NULL. */
typedef struct {
    const int8_weight *quantized;
    const void *packed;
    const float *bias;
    int64_t inner, outer;
} frozen_map;

/* A norm's weight [hidden], its bias or NULL, and its number in the model; without a weight a sub-layer reads the sum. */
typedef struct {
    const void *weight, *bias;
    int64_t index;
} stack_norm;

/* An encoder's layer has no cross-attention: its `query` has no outputs. `query_key_value` gives the queries of all heads,
 * then the keys, then the values: those of each head, or of fewer heads, of which neighbours share each. With `turns`,
 * queries and keys turn by their positions as in `peltier_rotate`. A `window` is as for `peltier_attend`, and so are the
 * queries and keys of distances. */
typedef struct {
    stack_norm own_norm, cross_norm, feed_norm;
    frozen_map query_key_value, output, query, cross_output, expand, contract;
    int64_t block, attention, cross;
    const float *turns;
    int64_t window;
    const float *distance_queries, *distance_keys;
} layer;

/* The layers, and what they share. Without `post` (T5), a sub-layer reads a norm of the sum so far, and the `final`
 * norm, if it has a weight, follows the last layer. With `post` (BERT), a sub-layer reads the sum itself, and a norm
 * replaces the sum after it. Attention is `rounded` as for `peltier_attend`. With `block_biases` each layer has its own
 * biases, which follow those of the layer before. */
typedef struct {
    const layer *layers;
    int64_t count;
    stack_norm final;
    int64_t norms_half, hidden, heads, size, activation, gated, post, centered, rounded, block_biases, distances;
    double eps, scale;
} stack;

/* The sites of a layer at which adapters act, and that of prefixes. */
enum site {
    SITE_QUERY_KEY_VALUE,
    SITE_QUERY,
    SITE_ATTENTION_OUTPUT,
    SITE_INTERMEDIATE,
    SITE_ACTIVATED,
    SITE_OUTPUT,
    SITE_ATTENTION,
    SITE_FFN,
    SITE_PREFIX
};

/* One call: y is all layers, and the final norm if there is one, of x, both [tokens, hidden] and bfloat16 if `half`.
 * `rows` and `cross_rows` say which keys each row's queries see. Without `own` keys they are those of the rows themselves;
 * with them each row is one token, whose keys go to number places[row] before it attends. `positions` are those of tokens
 * in layers with turns. At site s and number n, programs have what stands at their place sites[s] + n. The gates of the
 * ops at place p begin at gates + p * gate_stride: all places share the memory if that is 0. */
typedef struct {
    const void *x;
    void *y;
    int64_t tokens, half;
    const placed_row *rows, *cross_rows;
    int64_t num_rows, num_cross_rows;
    const placed_keys *own, *cross;
    const int64_t *places, *positions;
    int64_t once, prefixed;
    table table;
    const int64_t *sites;
    float *gates;
    int64_t gate_stride;
} stack_call;
int peltier_stack(const stack *stack, const stack_call *call);

#endif
