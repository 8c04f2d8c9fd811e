/* The kernels: each takes one struct. Those that return int return 0, or 1 if they lack memory, unless they say
 * otherwise. */

#ifndef PELTIER_KERNELS_H
#define PELTIER_KERNELS_H

#include "program.h"
#include "types.h"

/* The digest of the files that this library was compiled from. */
const char *peltier_sources(void);

/* Whether the system lets this process use all instructions of this level; the processor has them. */
int peltier_runs(void);

/* Whether the kernels have found torch's OpenMP library. Without it each call runs in one thread. */
int peltier_has_threads(void);

/* The columns of a panel of a packed weight, and of one in 8 bits. */
int64_t peltier_panel(void);
int64_t peltier_panel_int8(void);

/* y = act(x w + bias) for `rows` rows; x, w and y are bfloat16 or floats, all of one type. w is packed and has `outer`
 * columns; `bias` is NULL if there is none. */
typedef struct {
    matrix y, x;
    const void *w;
    const float *bias;
    int64_t rows, inner, outer, activation;
} multiply_call;
int peltier_multiply(const multiply_call *call);

/* A weight [inner, outer] in 8 bits: each column's `values` times its scale. `sums` has the sum of each column's
 * values. All arrays are padded to whole panels. `bias` is NULL if there is none. */
typedef struct {
    const int8_t *values;
    const int32_t *sums;
    const float *scales, *bias;
    int64_t inner, outer;
} int8_weight;

/* y = act(x w + bias) for `rows` rows of floats. */
typedef struct {
    matrix y, x;
    const int8_weight *w;
    int64_t rows, activation;
} multiply_int8_call;
int peltier_multiply_int8(const multiply_int8_call *call);

/* Looks up rows of an embedding by their numbers: y is [rows, inner] in float32. The function returns 1 if a row does not
 * exist. */
typedef struct {
    float *y;
    const int64_t *numbers;
    int64_t rows;
    const int8_weight *w;
} rows_int8_call;
int peltier_rows_int8(const rows_int8_call *call);

/* y = contract(act(expand(x))) for `rows` rows of floats; if `gated`, the first half of the expansion's columns is
 * activated and multiplied by the second half. The expansion stays in the cache. */
typedef struct {
    matrix y, x;
    const int8_weight *expand, *contract;
    int64_t rows, activation, gated;
} feed_forward_int8_call;
int peltier_feed_forward_int8(const feed_forward_int8_call *call);

/* Activates the first `width` columns of y in place; if `gated`, the next `width` columns multiply them. */
typedef struct {
    matrix y;
    int64_t rows, width, activation, gated;
} activate_call;
void peltier_activate(const activate_call *call);

/* y = (x + residual - mean) / sqrt(variance + eps) * weight + bias; without `centered` the mean is taken as 0 and the
 * variance as that of squares. The residual's data are NULL if there is none. */
typedef struct {
    matrix y, x, residual;
    int64_t width;
    float eps;
    int centered;
} norm;

/* Norm number `index` of all `tokens`. `weight` and `bias` are the backbone's, in bfloat16 if `weights_half`, for groups
 * without weights of their own, and for all rows if there are no groups. y, x and the residual have one type. */
typedef struct {
    norm norm;
    const void *weight, *bias;
    int64_t weights_half, tokens, index;
    table table;
} norm_call;
int peltier_norm(const norm_call *call);

/* y += all ops of each row's adapter at `place`. Rows are float32 or bfloat16; x and the residual have one type and
 * `width` columns. y may be x. If the last step of an op is folded, a row of y has the columns of that op only. `gates`
 * is [most ops of a program at the place, rows]: the gate of op k for row r is gates[k * rows + r]. */
typedef struct {
    matrix y, x, residual;
    int64_t width, place;
    table table;
    float *gates;
} adapt_call;
int peltier_adapt(const adapt_call *call);

/* Keys and values: key number k of head h begins k * stride + h * head_stride elements after `keys`, its value as many
 * after `values`. They are bfloat16 if `half`. */
typedef struct {
    const void *keys, *values;
    int64_t stride, head_stride, half;
} placed_keys;

/* The queries `first` to `first` + `tokens` - 1 of a batch. They attend to `keys` keys, beginning with key number
 * `offset`. The biases of query q of head h begin at bias + h * bias_head + q * bias_query; `bias` is NULL if there are
 * none. Triton kernels read the same words. */
typedef struct {
    int64_t first, tokens, offset, keys;
    const float *bias;
    int64_t bias_head, bias_query;
} placed_row;

/* The context of `query`, both [tokens, heads * size], in one type. Products of queries and keys are multiplied by
 * `scale`. `once` is for rows of one query each; it sums in another order. Queries and keys in bfloat16, or `rounded` to
 * it, are multiplied as bfloat16 if the processor has the instructions. With groups, row r of the table is row r here. It
 * also attends to the prefix of its group's program at `place`, multiplied by gates[r] if the prefix has a gate; the bias
 * of a prefix is 0. If `window` is not 0, query q of a row sees the prefix and the keys whose numbers differ from q by at
 * most `window`; such a row has as many keys as queries.
 *
 * Distances have queries and keys too, or NULL: [heads, size, distances], an odd number of columns. The middle one is that
 * of distance 0; those of keys go by key - query, those of queries by query - key. Scores add a query times the key of the
 * distance, and the query of the distance times a key, both multiplied by `scale`; a prefix has no distances, and `once`
 * neither. */
typedef struct {
    matrix context, query;
    placed_keys keys;
    const placed_row *rows;
    int64_t num_rows, heads, size, once, rounded, window;
    double scale;
    table table;
    int64_t place;
    const float *gates;
    const float *distance_queries, *distance_keys;
    int64_t distances;
} attend_call;
int peltier_attend(const attend_call *call);

/* Rotates the first `heads` heads of each token of x in place. Row p of `turns`, [positions, size], has the cosines of
 * the angles of position p, then their sines. */
typedef struct {
    matrix x;
    const float *turns;
    const int64_t *positions;
    int64_t tokens, heads, size;
} rotate_call;
void peltier_rotate(const rotate_call *call);

/* Stores row r of x, [2, heads, size], as key and value number places[r] of `to`. */
typedef struct {
    placed_keys to;
    matrix x;
    const int64_t *places;
    int64_t rows, heads, size;
} keep_keys_call;
void peltier_keep_keys(const keep_keys_call *call);

/* The most probable token of each row of logits, and the logarithm of its probability, which is NaN if a logit is NaN. */
typedef struct {
    const float *logits;
    int64_t stride, rows, width;
    int64_t *tokens;
    float *log_probabilities;
} likeliest_call;
void peltier_likeliest(const likeliest_call *call);

#endif
