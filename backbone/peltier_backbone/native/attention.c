/* Softmax attention, one head of one row at a time, without padding or masks. */

#include "head.h"
#include "kernels.h"
#include "threads.h"

/* The number of queries with a window that are computed at a time: with more, each would have more keys outside its own. */
#define NEAR 48

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

/* A call, the kernel of one head, and the most keys that a block of queries sees. */
typedef struct {
    const attend_call *call;
    attention *attend;
    int64_t most;
} job;

static attention *choose_attention(int once, int rounded) {
    if (once) return attend_once;
#ifdef MULTIPLIES_PAIRS
    if (rounded) return attend_pairs;
#endif
    return (void)rounded, attend;
}

static head head_of(const attend_call *c, const group *g, int64_t number, int64_t row) {
    const placed_row *r = c->rows + row;
    const placed_keys *k = &c->keys;
    const int64_t column = number * c->size, offset = r->offset * k->stride + number * k->head_stride;
    const matrix keys = {k->keys, k->stride, (int)k->half}, values = {k->values, k->stride, (int)k->half};
    head h = {
        .query = moved(c->query, r->first, column), .key = moved(keys, 0, offset), .value = moved(values, 0, offset),
        .context = moved(c->context, r->first, column), .tokens = r->tokens, .seen = r->keys, .size = c->size, .gate = 1};
    const int64_t first = number * c->size * c->distances + c->distances / 2;
    if (c->distance_queries) h.distance_queries = (matrix){c->distance_queries + first, c->distances, 0};
    if (c->distance_keys) h.distance_keys = (matrix){c->distance_keys + first, c->distances, 0};
    if (r->bias) h.bias = (matrix){r->bias + number * r->bias_head, r->bias_query, 0};
    if (g) place_prefix(&h, prefix_of(c->place, g), g, number, c->gates, row);
    return h;
}

/* The queries of h from number `first` on, at most NEAR, and the keys that any of them sees. */
static head near_from(const head *h, int64_t first, int64_t window) {
    head own = queries_from(h, first, NEAR);
    const int64_t last = first + own.tokens, low = first > window ? first - window : 0;
    own.seen = (last + window < h->seen ? last + window : h->seen) - low;
    own.key = moved(h->key, low, 0), own.value = moved(h->value, low, 0), own.offset -= low, own.window = window;
    return own;
}

/* Attends in blocks of queries, unless every token is in the window of every other. */
static void attend_near(const job *j, const head *h, scratch s) {
    const int64_t window = j->call->window;
    const float scale = (float)j->call->scale;
    if (!window || h->tokens <= window + 1) {
        j->attend(h, s, scale);
        return;
    }
    for (int64_t first = 0; first < h->tokens; first += NEAR) {
        const head own = near_from(h, first, window);
        j->attend(&own, s, scale);
    }
}

/* The largest number of keys, without those of a prefix, that a block of queries sees. */
static int64_t num_seen(int64_t keys, int64_t window) {
    return window && keys > 2 * window + NEAR ? 2 * window + NEAR : keys;
}

/* The items are the heads of all rows. */
static int attend_share(const void *attend_job, share own) {
    const job *j = attend_job;
    const attend_call *c = j->call;
    const scratch s = new_scratch(j->most, c->size, c->distances > 0);
    if (!s.keys) return 1;
    const group *g = c->table.groups;
    for (int64_t k = own.first; k < own.last; k++) {
        while (g && g->last <= k / c->heads) g++;
        const head h = head_of(c, g, k % c->heads, k / c->heads);
        attend_near(j, &h, s);
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

EXPORT int peltier_attend(const attend_call *c) {
    job j = {c, choose_attention(c->once != 0, c->rounded || c->query.half), 0};
    int64_t products = 0;
    for (const placed_row *r = c->rows; r < c->rows + c->num_rows; r++) {
        const int64_t seen = num_seen(r->keys, c->window);
        j.most = seen > j.most ? seen : j.most;
        products += 2 * c->heads * c->size * r->tokens * seen;
    }
    if (c->table.groups) j.most += longest_prefix(c->table, c->place);
    return share_out(attend_share, &j, c->num_rows * c->heads, products >= WORTH_THREADS);
}
