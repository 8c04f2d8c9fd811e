/* Parts of a decoding step: it stores keys and values, and finds the most probable tokens. */

#include <math.h>

#include "kernels.h"
#include "lanes.h"
#include "threads.h"

EXPORT void peltier_keep_keys(const keep_keys_call *c) {
    const placed_keys *to = &c->to;
    const matrix keys = {to->keys, to->stride, (int)to->half}, values = {to->values, to->stride, (int)to->half};
    const int half = c->x.half;
    for (int64_t row = 0; row < c->rows; row++)
        for (int64_t head = 0; head < c->heads; head++)
            for (int64_t d = 0; d < c->size; d += LANES) {
                const int64_t place = head * to->head_stride + d, column = head * c->size + d, left = c->size - d;
                const lanes key = load(at(c->x, row, column), half, left);
                store((void *)at(keys, c->places[row], place), keys.half, left, key);
                const lanes value = load(at(c->x, row, c->heads * c->size + column), half, left);
                store((void *)at(values, c->places[row], place), values.half, left, value);
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

static int search_share(const void *likeliest, share rows) {
    const likeliest_call *c = likeliest;
    for (int64_t row = rows.first; row < rows.last; row++)
        find_likeliest(c->logits + row * c->stride, c->width, c->tokens + row, c->log_probabilities + row);
    return 0;
}

EXPORT void peltier_likeliest(const likeliest_call *c) {
    share_out(search_share, c, c->rows, c->rows * c->width >= ELEMENTS_WORTH_THREADS);
}
