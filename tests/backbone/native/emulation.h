/* Instructions that the processor of a test may lack, in plain C. They take the place of the intrinsics of the header that
 * declares them. */

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#ifdef EMULATE_AVX_VNNI
#define __AVXVNNI__ 1

static inline __m256i emulated_dpbusd(__m256i sums, __m256i values, __m256i weights) {
    int32_t s[8];
    uint8_t v[32];
    int8_t w[32];
    memcpy(s, &sums, sizeof s);
    memcpy(v, &values, sizeof v);
    memcpy(w, &weights, sizeof w);
    for (int k = 0; k < 32; k++) s[k / 4] += v[k] * w[k];
    memcpy(&sums, s, sizeof s);
    return sums;
}

#undef _mm256_dpbusd_avx_epi32
#define _mm256_dpbusd_avx_epi32 emulated_dpbusd
#endif

#ifdef EMULATE_AMX
#include <sys/syscall.h>
#include <unistd.h>

#define __AMX_TILE__ 1
#define __AMX_BF16__ 1
#define __AMX_INT8__ 1
/* The system always permits what is emulated. */
#define syscall(...) 0

/* The tile registers of a thread: lines of 64 bytes, and the number of lines and bytes that are configured. */
static __thread struct {
    uint16_t bytes[8];
    uint8_t lines[8];
    unsigned char data[8][16][64];
} tiles;

static inline void emulated_loadconfig(const void *from) {
    memset(&tiles, 0, sizeof tiles);
    memcpy(tiles.bytes, (const char *)from + 16, sizeof tiles.bytes);
    memcpy(tiles.lines, (const char *)from + 48, sizeof tiles.lines);
}

static inline void emulated_zero(int tile) {
    memset(tiles.data[tile], 0, sizeof tiles.data[tile]);
}

static inline void emulated_loadd(int tile, const void *from, int64_t stride) {
    emulated_zero(tile);
    for (int k = 0; k < tiles.lines[tile]; k++)
        memcpy(tiles.data[tile][k], (const char *)from + k * stride, tiles.bytes[tile]);
}

static inline void emulated_stored(int tile, void *to, int64_t stride) {
    for (int k = 0; k < tiles.lines[tile]; k++)
        memcpy((char *)to + k * stride, tiles.data[tile][k], tiles.bytes[tile]);
}

static inline void emulated_tile_dpbusd(int to, int x, int w) {
    for (int row = 0; row < tiles.lines[to]; row++)
        for (int column = 0; column < tiles.bytes[to] / 4; column++) {
            int32_t sum;
            memcpy(&sum, tiles.data[to][row] + 4 * column, sizeof sum);
            for (int k = 0; k < tiles.bytes[x]; k++)
                sum += tiles.data[x][row][k] * (int8_t)tiles.data[w][k / 4][4 * column + k % 4];
            memcpy(tiles.data[to][row] + 4 * column, &sum, sizeof sum);
        }
}

static inline float emulated_bfloat16(const unsigned char *at) {
    uint16_t half;
    memcpy(&half, at, sizeof half);
    const uint32_t bits = (uint32_t)half << 16;
    float found;
    memcpy(&found, &bits, sizeof found);
    return found;
}

static inline void emulated_dpbf16ps(int to, int x, int w) {
    for (int row = 0; row < tiles.lines[to]; row++)
        for (int column = 0; column < tiles.bytes[to] / 4; column++) {
            float even = 0, odd = 0, sum;
            for (int k = 0; k < tiles.bytes[x] / 4; k++) {
                const unsigned char *a = tiles.data[x][row] + 4 * k, *b = tiles.data[w][k] + 4 * column;
                even += emulated_bfloat16(a) * emulated_bfloat16(b);
                odd += emulated_bfloat16(a + 2) * emulated_bfloat16(b + 2);
            }
            memcpy(&sum, tiles.data[to][row] + 4 * column, sizeof sum);
            sum += even + odd;
            memcpy(tiles.data[to][row] + 4 * column, &sum, sizeof sum);
        }
}

#undef _tile_loadconfig
#undef _tile_release
#undef _tile_zero
#undef _tile_loadd
#undef _tile_stored
#undef _tile_dpbusd
#undef _tile_dpbf16ps
#define _tile_loadconfig emulated_loadconfig
#define _tile_release() (void)0
#define _tile_zero emulated_zero
#define _tile_loadd emulated_loadd
#define _tile_stored emulated_stored
#define _tile_dpbusd emulated_tile_dpbusd
#define _tile_dpbf16ps emulated_dpbf16ps
#endif
