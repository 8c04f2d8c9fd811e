/* Products by AMX: of floats in the precision of float32, and of bfloat16. */

#ifndef PELTIER_AMX_H
#define PELTIER_AMX_H

#include "tiles.h"

/* Whether the system lets this process use AMX. */
int may_use_amx(void);

/* As `peltier_multiply`, for floats; w has panels of `panel` columns. */
int multiply_by_amx(const product *p, int64_t rows, int64_t panel);

/* As `multiply_by_amx`, for bfloat16 and one panel; the inner dimension is even, and w has lines of `w.stride` pairs. */
void multiply_pairs_by_amx(const product *p, int64_t rows);

#endif
