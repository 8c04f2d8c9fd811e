/* Softmax attention, one head of one row at a time, without padding or masks. */

#include "head.h"
#include "kernels.h"
#include "threads.h"

static matrix moved(matrix m, int64_t row, int64_t column) {
    return (matrix){at(m, row, column), m.stride, m.half};
}

/* The op of a group's program at the place of prefixes, or NULL if it has no prefix. */
static const op *prefix_of(int64_t place, const group *g) {
    if (!g->program || g->program->places[place] == g->program->places[place + 1]) return NULL;
    return g->program->ops + g->program->places[place];
}

static void place_prefix(head *h, const op *o, const group *g, int64_t number, const float *gates, int64_t row) {
    if (!o) return;
    h->prefix = o->prefix;
    h->prefix_key = (matrix){find(o->keys, g->base) + number * o->head_stride, o->key_stride, 0};
    h->prefix_value = (matrix){find(o->values, g->base) + number * o->head_stride, o->key_stride, 0};
    if (o->gate.outputs) h->gate = gates[row];
}

/* Computes the attention of one head. */
typedef void attention(const head *h, scratch s, float scale);

/* A call of `peltier_attend`. */
typedef struct {
    matrix query, key, value, context;
    const placed_row *rows;
    int64_t heads, size, head_stride, window, most, place;
    float scale;
    attention *attend;
    table table;
    const float *gates;
} batch;

static attention *choose_attention(int once, int rounded) {
    if (once) return attend_once;
#ifdef MULTIPLIES_PAIRS
    if (rounded) return attend_pairs;
#endif
    return (void)rounded, attend;
}

static head head_of(const batch *b, const group *g, int64_t number, int64_t row) {
    const placed_row *r = b->rows + row;
    const int64_t column = number * b->size, offset = r->offset * b->key.stride + number * b->head_stride;
    head h = {
        .query = moved(b->query, r->first, column), .key = moved(b->key, 0, offset), .value = moved(b->value, 0, offset),
        .context = moved(b->context, r->first, column), .tokens = r->tokens, .seen = r->keys, .size = b->size, .gate = 1};
    if (r->bias) h.bias = (matrix){r->bias + number * r->bias_head, r->bias_query, 0};
    if (g) place_prefix(&h, prefix_of(b->place, g), g, number, b->gates, row);
    return h;
}

/* The block of queries of h that begins at `first`, and the keys that any of these queries sees. */
static head block_of(const head *h, int64_t first, int64_t window) {
    const int64_t last = first + QUERIES < h->tokens ? first + QUERIES : h->tokens;
    const int64_t low = first > window ? first - window : 0, high = last + window < h->seen ? last + window : h->seen;
    head own = *h;
    own.query = moved(h->query, first, 0), own.context = moved(h->context, first, 0);
    own.key = moved(h->key, low, 0), own.value = moved(h->value, low, 0);
    own.tokens = last - first, own.seen = high - low, own.window = window, own.offset = first - low;
    return own;
}

/* Attends in blocks of queries, unless every token is in the window of every other. */
static void attend_near(const batch *b, const head *h, scratch s) {
    if (!b->window || h->tokens <= b->window + 1) {
        b->attend(h, s, b->scale);
        return;
    }
    for (int64_t first = 0; first < h->tokens; first += QUERIES) {
        const head own = block_of(h, first, b->window);
        b->attend(&own, s, b->scale);
    }
}

/* The largest number of keys, without those of a prefix, that a block of queries sees. */
static int64_t num_seen(int64_t keys, int64_t window) {
    return window && keys > 2 * window + QUERIES ? 2 * window + QUERIES : keys;
}

/* The items are the heads of all rows. */
static int attend_share(const void *call, share own) {
    const batch *b = call;
    const scratch s = new_scratch(b->most, b->size);
    if (!s.keys) return 1;
    const group *g = b->table.groups;
    for (int64_t k = own.first; k < own.last; k++) {
        while (g && g->last <= k / b->heads) g++;
        const head h = head_of(b, g, k % b->heads, k / b->heads);
        attend_near(b, &h, s);
    }
    free(s.keys);
    return 0;
}

static int64_t longest_prefix(table t, int64_t place) {
    int64_t longest = 0;
    for (const group *g = t.groups; g < t.groups + t.count; g++) {
        const op *o = prefix_of(place, g);
        if (o && o->prefix > longest) longest = o->prefix;
    }
    return longest;
}

/* Computes the context of `query`, both [tokens, heads * size]. The keys and values of a row may be anywhere in memory.
 * Products of queries and keys are multiplied by `scale`. `once` is for rows of one query each; it sums in another
 * order. Queries and keys in bfloat16, or `rounded` to it, are multiplied as bfloat16 if the processor has the
 * instructions. With groups, row r of the table is row r here. It also attends to the prefix of its group's program at
 * `place`, multiplied by gates[r] if the prefix has a gate; the bias of a prefix is 0. If `window` is not 0, query q of
 * a row sees the prefix and the keys whose numbers differ from q by at most `window`; such a row has as many keys as
 * queries. Returns 0, or 1 without memory. */
EXPORT int peltier_attend(
    void *context, int64_t context_stride, const void *query, int64_t query_stride, int half, const void *key,
    const void *value, int64_t key_stride, int key_half, int64_t head_stride, const placed_row *rows, int64_t num_rows,
    int64_t heads, int64_t size, float scale, int once, int rounded, int64_t window, const group *groups, int64_t count, const int64_t *starts,
    int64_t place, const float *gates) {
    batch b = {
        .query = {query, query_stride, half}, .key = {key, key_stride, key_half}, .value = {value, key_stride, key_half},
        .context = {context, context_stride, half}, .rows = rows, .heads = heads, .size = size,
        .head_stride = head_stride, .window = window, .scale = scale, .attend = choose_attention(once, rounded || half), .place = place,
        .table = {groups, count, starts}, .gates = gates};
    int64_t products = 0;
    for (const placed_row *r = rows; r < rows + num_rows; r++) {
        const int64_t seen = num_seen(r->keys, window);
        b.most = seen > b.most ? seen : b.most;
        products += 2 * heads * size * r->tokens * seen;
    }
    if (groups) b.most += longest_prefix(b.table, place);
    return share_out(attend_share, &b, num_rows * heads, products >= WORTH_THREADS);
}
