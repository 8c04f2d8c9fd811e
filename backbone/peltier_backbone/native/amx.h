/* Products of floats by AMX, in the precision of float32. */

#ifndef PELTIER_AMX_H
#define PELTIER_AMX_H

#include "tiles.h"

/* Whether this processor has AMX and the system lets this process use it. */
int may_use_amx(void);

/* As `peltier_multiply`, of floats; w has panels of `panel` columns. */
int multiply_by_amx(const product *p, int64_t rows, int64_t panel);

#endif
