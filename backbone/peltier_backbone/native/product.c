/* Products with a frozen weight. It is packed once (`packed.py`) in panels of PANEL columns. In float32 a panel has a line
 * of PANEL floats for each element of the inner dimension, in bfloat16 a line of PANEL pairs for each two elements. Zeros
 * fill the columns and elements that the weight does not have. */

#include "amx.h"
#include "kernels.h"
#include "threads.h"
#include "tiles.h"

#define PANEL (COLUMNS * LANES)
/* The number of rows that stay in the cache for all panels. */
#define BLOCK (128 / ROWS * ROWS)

EXPORT int64_t peltier_panel(void) {
    return PANEL;
}

EXPORT int peltier_runs(void) {
#ifdef __AMX_BF16__
    return may_use_amx();
#else
    return 1;
#endif
}

EXPORT int peltier_has_threads(void) {
    return has_threads();
}

static int64_t num_pairs(int64_t inner) {
    return (inner + 1) / 2;
}

/* A panel is one stripe; the last one may have fewer columns. */
static void multiply_panel(const product *p, int64_t rows) {
    if (p->outer == PANEL) multiply_stripe(p, rows, 0, COLUMNS);
    else multiply(p, rows);
}

/* Multiplies pairs of bfloat16 if this level can and the inner dimension is even. Returns whether it has done so. */
static int multiply_half(const product *p, int64_t rows) {
#ifdef MULTIPLIES_PAIRS
    if (p->inner % 2 == 0) {
#ifdef __AMX_BF16__
        multiply_pairs_by_amx(p, rows);
#else
        product pairs = *p;
        pairs.w.stride = 2 * PANEL;
        pair_stripe(&pairs, rows, 0, COLUMNS);
#endif
        return 1;
    }
#endif
    return (void)p, (void)rows, 0;
}

static void widen_rows(matrix x, int64_t rows, int64_t inner, float *to) {
    for (int64_t row = 0; row < rows; row++, to += inner)
        for (int64_t k = 0; k < inner; k += LANES) store(to + k, 0, inner - k, load(at(x, row, k), 1, inner - k));
}

static void widen_panel(const uint16_t *w, int64_t inner, float *to) {
    for (int64_t k = 0; k < num_pairs(inner); k++, to += 2 * PANEL)
        for (int c = 0; c < COLUMNS; c++, w += 2 * LANES) {
            bits pairs;
            memcpy(&pairs, w, sizeof pairs);
            store(to + c * LANES, 0, LANES, (lanes)(pairs << 16));
            store(to + PANEL + c * LANES, 0, LANES, (lanes)(pairs & 0xffff0000));
        }
}

/* A product of bfloat16, computed in float32. Returns 0, or 1 without memory. */
static int multiply_widened(const product *p, int64_t rows) {
    float *memory = new_floats((rows * p->inner + LINE_FLOATS) + 2 * num_pairs(p->inner) * PANEL);
    if (!memory) return 1;
    float *panel = memory + (rows * p->inner + LINE_FLOATS - 1) / LINE_FLOATS * LINE_FLOATS;
    product wide = *p;
    wide.x = (matrix){memory, p->inner, 0};
    wide.w = (matrix){panel, PANEL, 0};
    widen_rows(p->x, rows, p->inner, memory);
    widen_panel(p->w.data, p->inner, panel);
    multiply_panel(&wide, rows);
    free(memory);
    return 0;
}

/* A call: `panels` panels for each block of rows. */
typedef struct {
    product whole;
    int64_t rows, panels;
} product_call;

/* The items are pairs of a block of rows and a panel. */
static int multiply_share(const void *call, share own) {
    const product_call *c = call;
    const product *whole = &c->whole;
    const int half = whole->x.half;
    const int64_t lines = half ? num_pairs(whole->inner) * 2 : whole->inner;
    int failed = 0;
    for (int64_t number = own.first; number < own.last; number++) {
        const int64_t row = number / c->panels * BLOCK, column = number % c->panels * PANEL;
        const int64_t count = c->rows - row < BLOCK ? c->rows - row : BLOCK;
        product p = *whole;
        p.y.data = at(p.y, row, column);
        p.x.data = at(p.x, row, 0);
        p.w.data = (const char *)p.w.data + column * lines * (half ? 2 : 4);
        if (p.bias) p.bias += column;
        p.outer = p.outer - column < PANEL ? p.outer - column : PANEL;
        if (!half) multiply_panel(&p, count);
        else if (!multiply_half(&p, count)) failed |= multiply_widened(&p, count);
    }
    return failed;
}

EXPORT int peltier_multiply(const multiply_call *call) {
    const int half = call->x.half;
    const product_call c = {
        .whole = {
            .y = call->y, .x = call->x, .w = {call->w, PANEL, half}, .bias = call->bias, .inner = call->inner,
            .outer = call->outer, .activation = (int)call->activation},
        .rows = call->rows, .panels = (call->outer + PANEL - 1) / PANEL};
#ifdef __AMX_BF16__
    if (!half) return multiply_by_amx(&c.whole, c.rows, PANEL);
#endif
    const int64_t blocks = (c.rows + BLOCK - 1) / BLOCK;
    return share_out(
        multiply_share, &c, blocks * c.panels, c.rows * call->inner * call->outer >= WORTH_THREADS);
}
