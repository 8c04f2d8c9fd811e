#include "amx.h"

#ifdef __AMX_BF16__
#include <sys/syscall.h>
#include <unistd.h>

#include "amx_sums.h"
#include "amx_tiles.h"
#include "threads.h"

/* Bytes of the second-level cache that the parts of a block of rows may use, the most rows of a block, and the lines of
 * w whose parts stay in the cache for all groups of a block. */
#define BLOCK_BYTES (1 << 20)
#define MOST_BLOCK_ROWS 512
#define PIECE 768

/* The arguments of arch_prctl: Linux grants a process the registers of tiles when it asks for them. */
enum { REQUEST_STATE = 0x1023, TILES = 18 };

int may_use_amx(void) {
    return !syscall(SYS_arch_prctl, REQUEST_STATE, TILES);
}

/* A call. It multiplies the parts `x` of `block` rows by the parts `w` of a stripe of `columns` columns, in pieces of
 * the inner dimension. `sums` keeps the sums of each stripe from one piece to the next. */
typedef struct {
    const product *p;
    int64_t rows, block, piece, columns, panel;
    char *x, *w;
    lanes (*sums)[COLUMNS];
} amx_call;

/* Computes one element again, as floats. If x or w has an infinity, the sum of the parts can be NaN where the float
 * product is not: an infinity times a part that is zero is NaN. */
static void multiply_as_floats(const amx_call *c, int64_t row, int64_t column) {
    const int64_t panel = column / c->panel * c->panel;
    product p = *c->p;
    p.y.data = at(p.y, 0, panel);
    p.w.data = (const float *)p.w.data + panel * p.inner;
    if (p.bias) p.bias += panel;
    p.outer -= panel;
    tile(&p, row, column - panel, 1, 1);
}

INLINE int is_finite(lanes v) {
    const ints off = (v - v) != (lanes){0};
    return !_mm512_test_epi32_mask((__m512i)off, (__m512i)off);
}

static void finish_sums(const amx_call *c, int64_t row, int64_t column, int64_t count, lanes found[GROUP_ROWS][COLUMNS]) {
    const product *p = c->p;
    const int64_t width = p->outer - column < c->columns ? p->outer - column : c->columns;
    const int columns = (int)((width + LANES - 1) / LANES);
    lanes zeros = {0};
    for (int64_t r = 0; r < count; r++)
        for (int k = 0; k < columns; k++) zeros += found[r][k] * 0.0f;
    if (p->activation || width % LANES)
        for (int64_t r = 0; r < count; r += ROWS)
            finish(p, row + r, column, count - r < ROWS ? (int)(count - r) : ROWS, columns, found + r);
    else
        for (int64_t r = 0; r < count; r++)
            for (int k = 0; k < columns; k++) {
                const lanes bias = p->bias ? load(p->bias + column + k * LANES, 0, LANES) : (lanes){0};
                store((void *)at(p->y, row + r, column + k * LANES), 0, LANES, found[r][k] + bias);
            }
    if (is_finite(zeros)) return;
    for (int64_t r = 0; r < count; r++)
        for (int k = 0; k < columns; k++)
            if (!is_finite(found[r][k])) multiply_as_floats(c, row + r, column + k * LANES);
}

NOINLINE void sum_few(const group_product *g, lanes found[GROUP_ROWS][COLUMNS]) {
    sum_products(g, found, 1);
}

NOINLINE void sum_many(const group_product *g, lanes found[GROUP_ROWS][COLUMNS]) {
    sum_products(g, found, 2);
}

static int64_t num_stripes(const amx_call *c) {
    return (c->p->outer + c->columns - 1) / c->columns;
}

static int64_t num_groups(int64_t rows) {
    return (rows + GROUP_ROWS - 1) / GROUP_ROWS;
}

/* The stripe that begins at `column`, for the piece of the inner dimension that begins at `line`. If the last stripe
 * has fewer vectors of columns, its first vector is computed again. */
static stripe stripe_at(const amx_call *c, int64_t line, int64_t column, int64_t kept) {
    const product *p = c->p;
    const int64_t left = p->inner - line;
    stripe found = {
        .from.stride = c->panel, .inner = left < c->piece ? left : c->piece, .tiles = c->w, .kept = kept,
        .apart = kept * STEP_BYTES};
    for (int k = 0; k < c->columns / LANES; k++) {
        const int64_t own = column + k * LANES < p->outer ? column + k * LANES : column;
        const int64_t panel = own / c->panel, within = own % c->panel;
        found.from.columns[k] = (const float *)p->w.data + (panel * p->inner + line) * c->panel + within;
    }
    return found;
}

/* Multiplies one piece of the inner dimension, for one stripe and the block of `count` rows that begins at `first`. The
 * first group of rows splits w into parts. */
static void multiply_piece(
    const amx_call *c, int64_t first, int64_t count, int64_t line, int64_t column, lanes (*sums)[COLUMNS]) {
    const int few = c->columns == 3 * LANES, whole = c->piece >= c->p->inner;
    const int64_t groups = num_groups(count);
    const stripe w = stripe_at(c, line, column, groups > 1 ? num_steps(c->piece) : 2);
    const int64_t tiles_bytes = num_steps(w.inner) * STEP_BYTES;
    split_first_step(&w, few ? 3 : 2);
    for (int64_t k = 0; k < groups; k++) {
        const int64_t row = k * GROUP_ROWS, left = count - row < GROUP_ROWS ? count - row : GROUP_ROWS;
        const group_product g = {
            .x = c->x + 2 * k * tiles_bytes, .x_apart = tiles_bytes, .w = &w, .fresh = !k, .resumed = line > 0};
        lanes (*found)[COLUMNS] = sums + (whole ? 0 : row);
        if (few) sum_few(&g, found);
        else sum_many(&g, found);
        if (line + c->piece >= c->p->inner) finish_sums(c, first + row, column, left, found);
    }
}

/* The rows of a stripe that `sums` has room for. With a single piece, the sums of a group are finished before the next
 * group. */
static int64_t kept_rows(const amx_call *c) {
    return c->piece < c->p->inner ? num_groups(c->block) * GROUP_ROWS : GROUP_ROWS;
}

/* Computes the stripes in `own` for the block of rows that begins at `first`. */
static void multiply_block(const amx_call *c, int64_t first, share own) {
    const int64_t count = c->rows - first < c->block ? c->rows - first : c->block;
    const int whole = c->piece >= c->p->inner;
    for (int64_t line = 0; line < c->p->inner; line += c->piece) {
        const int64_t left = c->p->inner - line;
        split_rows((matrix){at(c->p->x, first, line), c->p->x.stride, 0}, count, left < c->piece ? left : c->piece, c->x);
        MEMORY_IS_CURRENT;
        for (int64_t k = own.first; k < own.last; k++)
            multiply_piece(
                c, first, count, line, k * c->columns, c->sums + (whole ? 0 : (k - own.first) * kept_rows(c)));
    }
}

/* Allocates the memory of a thread for `stripes` stripes. Returns 0, or 1 without memory. */
static int take_memory(amx_call *c, int64_t stripes) {
    const int64_t steps = num_steps(c->piece) > 2 ? num_steps(c->piece) : 2;
    const int64_t x_bytes = num_groups(c->block) * 2 * steps * STEP_BYTES, w_bytes = 3 * steps * STEP_BYTES;
    const int64_t sums_bytes = (c->piece < c->p->inner ? stripes : 1) * kept_rows(c) * (int64_t)sizeof *c->sums;
    c->x = (char *)new_floats((x_bytes + w_bytes + sums_bytes) / (int64_t)sizeof(float));
    if (!c->x) return 1;
    c->w = c->x + x_bytes;
    c->sums = (lanes (*)[COLUMNS])(c->w + w_bytes);
    return 0;
}

/* The items are pairs of a block of rows and a stripe. */
static int multiply_share(const void *call, share own) {
    amx_call c = *(const amx_call *)call;
    const int64_t stripes = num_stripes(&c), count = own.last - own.first;
    if (!count) return 0;
    if (take_memory(&c, count < stripes ? count : stripes)) return 1;
    configure_tiles(GROUP_ROWS);
    for (int64_t number = own.first; number < own.last;) {
        const int64_t block = number / stripes, start = block * stripes;
        const share part = common(own, start, start + stripes);
        multiply_block(&c, block * c.block, (share){part.first - start, part.last - start});
        number = part.last;
    }
    _tile_release();
    free(c.x);
    return 0;
}

/* The rows of a block: as many as fit in the cache, but few enough that every thread gets some. */
static int64_t block_rows(int64_t rows, int64_t piece, int64_t threads) {
    int64_t block = BLOCK_BYTES / (num_steps(piece) * STEP_BYTES / LANES);
    const int64_t each = (rows + threads - 1) / threads;
    if (block > MOST_BLOCK_ROWS) block = MOST_BLOCK_ROWS;
    if (block > each) block = each + GROUP_ROWS - 1;
    block = block / GROUP_ROWS * GROUP_ROWS;
    if (!block) block = GROUP_ROWS;
    return block < rows ? block : rows;
}

int multiply_by_amx(const product *p, int64_t rows, int64_t panel) {
    const int worth_threads = rows * p->inner * p->outer >= WORTH_THREADS;
    if (!rows || !p->outer) return 0;
    amx_call c = {.p = p, .rows = rows, .columns = rows > LANES ? 2 * LANES : 3 * LANES, .panel = panel};
    /* The parts of w are not kept for a single group. */
    c.piece = rows > GROUP_ROWS && p->inner > PIECE ? PIECE : p->inner;
    c.block = block_rows(rows, c.piece, worth_threads ? most_threads() : 1);
    const int64_t pairs = (rows + c.block - 1) / c.block * num_stripes(&c);
    return share_out(multiply_share, &c, pairs, worth_threads);
}

SUM_TILES(sum_pairs, _tile_dpbf16ps)

void multiply_pairs_by_amx(const product *p, int64_t rows) {
    lanes found[GROUP_ROWS][COLUMNS];
    const int columns = (int)((p->outer + LANES - 1) / LANES);
    for (int64_t row = 0; row < rows; row += GROUP_ROWS) {
        const int count = rows - row < GROUP_ROWS ? (int)(rows - row) : GROUP_ROWS;
        tile_product t = {at(p->x, row, 0), p->w.data, 2 * p->x.stride, 4 * p->w.stride, p->inner / 2, count};
        if (!row || count < GROUP_ROWS) configure_tiles(count);
        for (int c = 0; c < columns; c += 2, t.w += 2 * LINE_BYTES)
            sum_pairs(t, columns - c < 2 ? 1 : 2, (char *)&found[0][c], sizeof found[0]);
        for (int r = 0; r < count; r += ROWS)
            finish(p, row + r, 0, count - r < ROWS ? count - r : ROWS, columns, found + r);
    }
    _tile_release();
}
#endif
