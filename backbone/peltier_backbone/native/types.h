/* The types that all kernels and their callers share. `interface.py` reads this header, as it reads program.h, kernels.h
 * and stack.h: Python has no other description of their structs, functions and codes. It reads fields of the types int,
 * int64_t, float and double, of structs declared before, and pointers. */

#ifndef PELTIER_TYPES_H
#define PELTIER_TYPES_H

#include <stddef.h>
#include <stdint.h>

/* A matrix of floats, or of bfloat16 if `half`. Rows are `stride` elements apart; the elements of a row are adjacent. Kernels
 * also write through `data`. */
typedef struct {
    const void *data;
    int64_t stride;
    int half;
} matrix;

/* The functions that a product or a feed-forward layer applies to its elements. GELU_NEW is GELU by tanh. */
enum activation {
    ACTIVATION_NONE,
    ACTIVATION_RELU,
    ACTIVATION_SWISH,
    ACTIVATION_GELU_NEW,
    ACTIVATION_GELU,
    ACTIVATION_TANH
};

#endif
