/* What adapters are made of, as `program.py` lays it out: each has a program, which many share, and weights of its own. */

#ifndef PELTIER_PROGRAM_H
#define PELTIER_PROGRAM_H

#include <stddef.h>
#include <stdint.h>

/* Weights: `fixed` ones that all adapters of a program share; or those that begin `place` elements after an adapter's
 * first; or none, where `place` is negative. */
typedef struct {
    const float *fixed;
    int64_t place;
} vector;

static inline const float *find(vector v, const float *base) {
    if (v.fixed) return v.fixed;
    return v.place < 0 ? NULL : base + v.place;
}

/* act(x w + bias): w [inner, outer], bias [outer]; a row of x counts as `fold` rows of `inner`. */
typedef struct {
    vector w, bias;
    int64_t w_stride, fold, inner, outer, activation;
} step;

/* One number a row of a text. With one output the mean over its tokens of sigmoid(x w + bias); with two the softmax
 * over their means of relu(x w + bias), of which output `column`; with none there is no gate. w is [inner, outputs]. */
typedef struct {
    vector w, bias;
    int64_t outputs, column;
} gate;

/* What an op reads: x, x + residual, or the norm of that. */
enum { READS_X, READS_SUM, READS_NORM };

/* Adds gain * gate * steps(input) to the columns of y from `column` on; without steps `added` - `replaced`, [width].
 * An attention multiplies `prefix` more keys and values with the gate: key k of head h begins at keys +
 * h * head_stride + k * key_stride, its value at the same distance from `values`. */
typedef struct {
    const step *steps;
    int64_t count, column, width, reads;
    double gain;
    gate gate;
    vector added, replaced, norm_weight, norm_bias;
    double eps;
    int64_t centered;
    vector keys, values;
    int64_t prefix, head_stride, key_stride;
} op;

/* The weights of a norm; none where the backbone's own serve. */
typedef struct {
    vector weight, bias;
} norm_weights;

/* The ops of place p are places[p] to places[p + 1]. */
typedef struct {
    const op *ops;
    const int64_t *places;
    const norm_weights *norms;
} program;

/* Rows `first` to `last` of a batch share an adapter, whose weights begin at `base`; without a program they have none. */
typedef struct {
    const program *program;
    const float *base;
    int64_t first, last;
} group;

/* All rows of a batch: row r is tokens starts[r] to starts[r + 1]. */
typedef struct {
    const group *groups;
    int64_t count;
    const int64_t *starts;
} table;

static inline int64_t num_rows(table t) {
    return t.groups[t.count - 1].last;
}

#endif
