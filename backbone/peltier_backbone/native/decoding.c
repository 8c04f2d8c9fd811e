/* Parts of a decoding step: it stores keys and values, and finds the most probable tokens. */

#include <math.h>

#include "kernels.h"
#include "lanes.h"
#include "threads.h"

/* Stores row r of `from`, [2, heads, size], as key number places[r] of `keys` and of `values`. Their heads are
 * `head_stride` elements apart. */
EXPORT void peltier_keep_keys(
    void *keys, void *values, int kept_half, int64_t head_stride, const void *from, int64_t stride, int half,
    const int64_t *places, int64_t rows, int64_t heads, int64_t size) {
    const matrix x = {from, stride, half}, key = {keys, size, kept_half}, value = {values, size, kept_half};
    for (int64_t row = 0; row < rows; row++)
        for (int64_t head = 0; head < heads; head++)
            for (int64_t d = 0; d < size; d += LANES) {
                const int64_t to = head * head_stride + d, column = head * size + d, left = size - d;
                store((void *)at(key, places[row], to), kept_half, left, load(at(x, row, column), half, left));
                const lanes v = load(at(x, row, heads * size + column), half, left);
                store((void *)at(value, places[row], to), kept_half, left, v);
            }
}

/* The number of the largest of `width` logits; of equal ones, the first. */
static int64_t largest_number(const float *logits, int64_t width) {
    lanes best = (lanes){0} - __builtin_inff();
    ints found = {0};
    for (int64_t k = 0; k < width; k += LANES) {
        const lanes v = keep(load(logits + k, 0, width - k), width - k, (lanes){0} - __builtin_inff());
        const ints better = (ints)(v > best), number = LANE_NUMBERS + (int32_t)k;
        best = select_lanes(better, v, best);
        found = (number & better) | (found & ~better);
    }
    int64_t number = found[0];
    for (int lane = 1; lane < LANES; lane++)
        if (best[lane] > logits[number] || (best[lane] == logits[number] && found[lane] < number)) number = found[lane];
    return number;
}

static void find_likeliest(const float *logits, int64_t width, int64_t *token, float *log_probability) {
    *token = largest_number(logits, width);
    const float top = logits[*token];
    lanes total = {0};
    for (int64_t k = 0; k < width; k += LANES)
        total += keep(exp_lanes(load(logits + k, 0, width - k) - top), width - k, (lanes){0});
    *log_probability = -logf(sum_of(total));
}

/* A call of `peltier_likeliest`. */
typedef struct {
    const float *logits;
    int64_t stride, width;
    int64_t *tokens;
    float *log_probabilities;
} search;

static int search_share(const void *call, share rows) {
    const search *s = call;
    for (int64_t row = rows.first; row < rows.last; row++)
        find_likeliest(s->logits + row * s->stride, s->width, s->tokens + row, s->log_probabilities + row);
    return 0;
}

/* The most probable token of each row of logits, and the logarithm of its probability, which is NaN if a logit is NaN. */
EXPORT void peltier_likeliest(
    const float *logits, int64_t stride, int64_t rows, int64_t width, int64_t *tokens, float *log_probabilities) {
    const search s = {logits, stride, width, tokens, log_probabilities};
    share_out(search_share, &s, rows, rows * width >= ELEMENTS_WORTH_THREADS);
}
