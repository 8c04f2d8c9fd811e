/* Products in the tile registers of AMX, which have 16 lines of 64 bytes. A tile of x has a line for each row. A tile
 * of w has a line for each 4 bytes of a row of x, with 4 bytes for each of 16 columns. */

#ifndef PELTIER_AMX_TILES_H
#define PELTIER_AMX_TILES_H

#include "lanes.h"

#define TILE_LINES 16
#define LINE_BYTES 64
#define TILE_BYTES (TILE_LINES * LINE_BYTES)
/* Rows whose sums are in registers at the same time. */
#define GROUP_ROWS (2 * TILE_LINES)

/* The tile instructions do not tell the compiler that they read and write memory. */
#define MEMORY_IS_CURRENT __asm__ volatile("" ::: "memory")

/* The layout that `ldtilecfg` reads. */
typedef struct {
    uint8_t palette, start, unused[14];
    uint16_t line_bytes[16];
    uint8_t lines[16];
} tile_config;

/* Tiles for a group of `rows` rows: x in 4 and 5, w in 6 and 7, sums in 0 to 3. Fewer lines take less time. Each thread
 * configures its tiles before it uses them, and releases them afterwards. */
static inline void configure_tiles(int rows) {
    const int first = rows < TILE_LINES ? rows : TILE_LINES, second = rows - first;
    const int lines[] = {first, first, second, second, first, second, TILE_LINES, TILE_LINES};
    tile_config config = {.palette = 1};
    for (int k = 0; k < 8; k++) config.line_bytes[k] = LINE_BYTES, config.lines[k] = lines[k] ? (uint8_t)lines[k] : 1;
    MEMORY_IS_CURRENT;
    _tile_loadconfig(&config);
}

/* Rows of x and columns of w. `x_stride` and `w_stride` are the bytes from one row of x, or line of w, to the next; w
 * has `lines` lines. */
typedef struct {
    const char *x, *w;
    int64_t x_stride, w_stride, lines;
    int rows;
} tile_product;

/* The lines after the last whole tile, padded with zeros. */
typedef struct {
    char x[GROUP_ROWS * LINE_BYTES], w[TILE_LINES * 2 * LINE_BYTES];
} last_lines;

INLINE tile_product pad_lines(const tile_product *p, int64_t done, int columns, last_lines *padded) {
    const int64_t left = p->lines - done;
    memset(padded, 0, sizeof *padded);
    for (int row = 0; row < p->rows; row++)
        memcpy(padded->x + row * LINE_BYTES, p->x + row * p->x_stride + 4 * done, (size_t)(4 * left));
    for (int64_t k = 0; k < left; k++)
        memcpy(padded->w + k * 2 * LINE_BYTES, p->w + (done + k) * p->w_stride, (size_t)(columns * LINE_BYTES));
    return (tile_product){padded->x, padded->w, LINE_BYTES, 2 * LINE_BYTES, TILE_LINES, p->rows};
}

#define ADD_TILES(multiply, p, columns)                                              \
    do {                                                                             \
        _tile_loadd(4, (p).x, (p).x_stride);                                         \
        _tile_loadd(6, (p).w, (p).w_stride);                                         \
        multiply(0, 4, 6);                                                           \
        if ((columns) > 1) {                                                         \
            _tile_loadd(7, (p).w + LINE_BYTES, (p).w_stride);                        \
            multiply(1, 4, 7);                                                       \
        }                                                                            \
        if ((p).rows > TILE_LINES) {                                                 \
            _tile_loadd(5, (p).x + TILE_LINES * (p).x_stride, (p).x_stride);         \
            multiply(2, 5, 6);                                                       \
            if ((columns) > 1) multiply(3, 5, 7);                                    \
        }                                                                            \
    } while (0)

/* Writes the sums of at most 32 rows and 16 or 32 columns to `to`, whose rows are `stride` bytes apart. `multiply` is
 * the instruction. */
#define SUM_TILES(name, multiply)                                                                             \
    NOINLINE void name(tile_product p, int columns, char *to, int64_t stride) {                               \
        const tile_product whole = p;                                                                         \
        int64_t line = 0;                                                                                     \
        _tile_zero(0);                                                                                        \
        _tile_zero(1);                                                                                        \
        _tile_zero(2);                                                                                        \
        _tile_zero(3);                                                                                        \
        for (; line + TILE_LINES <= whole.lines; line += TILE_LINES) {                                        \
            ADD_TILES(multiply, p, columns);                                                                  \
            p.x += LINE_BYTES, p.w += TILE_LINES * p.w_stride;                                                \
        }                                                                                                     \
        if (line < whole.lines) {                                                                             \
            last_lines padded;                                                                                \
            const tile_product rest = pad_lines(&whole, line, columns, &padded);                              \
            MEMORY_IS_CURRENT;                                                                                \
            ADD_TILES(multiply, rest, columns);                                                               \
        }                                                                                                     \
        _tile_stored(0, to, stride);                                                                          \
        if (columns > 1) _tile_stored(1, to + LINE_BYTES, stride);                                            \
        if (whole.rows > TILE_LINES) _tile_stored(2, to + TILE_LINES * stride, stride);                       \
        if (whole.rows > TILE_LINES && columns > 1) _tile_stored(3, to + TILE_LINES * stride + LINE_BYTES, stride); \
        MEMORY_IS_CURRENT;                                                                                    \
    }

#endif
