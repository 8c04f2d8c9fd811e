/* The programs of adapters. An adapter has a program, which others may share, and
 * weights of its own. */

#ifndef PELTIER_PROGRAM_H
#define PELTIER_PROGRAM_H

#include "types.h"

/* Weights: `fixed` ones, which all adapters of a program share; otherwise those that begin `place` elements after an
 * adapter's first weight; none if `place` is negative. */
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

/* One number for each row. With one output, the mean over the row's tokens of sigmoid(x w + bias). With two, output
 * `column` of the softmax over the means of relu(x w + bias). With none, there is no gate. w is [inner, outputs]. */
typedef struct {
    vector w, bias;
    int64_t outputs, column;
} gate;

/* What an op reads: x, x + residual, or the norm of that. */
enum reads { READS_X, READS_SUM, READS_NORM };

/* Adds gain * gate * steps(input) to the columns of y that begin at `column`; without steps, multiplies them by
 * `factor`, or adds `added` - `replaced`, each [width]. In an attention, an op has `prefix` more keys and values, which
 * are multiplied by the gate: key k of head h begins at keys + h * head_stride + k * key_stride, its value at the same
 * distance from `values`. */
typedef struct {
    const step *steps;
    int64_t count, column, width, reads;
    double gain;
    gate gate;
    vector added, replaced, factor, norm_weight, norm_bias;
    double eps;
    int64_t centered;
    vector keys, values;
    int64_t prefix, head_stride, key_stride;
} op;

/* The weights of a norm; none if the backbone's are used. */
typedef struct {
    vector weight, bias;
} norm_weights;

/* The ops of place p are places[p] to places[p + 1] - 1. */
typedef struct {
    const op *ops;
    const int64_t *places;
    const norm_weights *norms;
} program;

/* Rows `first` to `last` - 1 of a batch, which have the same adapter. Its weights begin at `base`. Without a program,
 * the rows have no adapter. */
typedef struct {
    const program *program;
    const float *base;
    int64_t first, last;
} group;

/* All rows of a batch: row r has the tokens starts[r] to starts[r + 1] - 1. */
typedef struct {
    const group *groups;
    int64_t count;
    const int64_t *starts;
} table;

static inline int64_t num_rows(table t) {
    return t.groups[t.count - 1].last;
}

#endif
