/*
 * Chunks that have come from a target and are here, until the manager has heard of it (drain.h).
 *
 * Loop's thread. They are told with results of tasks (tasklink.c), one request at a time, again on each new connection. Only what is still here is told: the manager may have
 * had a chunk deleted since, and what it hears on one connection comes before our answer to that. What is lost with this program is found by the manager's inventory.
 */
#include <stdlib.h>

#include "benefactor/drain_impl.h"
#include "fp/err.h"

#define STAGED_MAX 65536u /* more are found by the inventory */

struct dstaged {
    uint64_t chunk;
    uint32_t stored_bytes;
    bool telling;
    Fp__Staged m;
};

void dstaged_add(struct bnf_drain *d, uint64_t chunk, uint32_t stored_bytes)
{
    if (!d) /* it ends */
        return;
    if (d->nstaged == d->staged_cap) {
        size_t cap = d->staged_cap ? 2 * d->staged_cap : 256;
        struct dstaged *more = d->staged_cap < STAGED_MAX ? realloc(d->staged, cap * sizeof(*more)) : NULL;

        if (!more)
            return;
        d->staged = more;
        d->staged_cap = cap;
    }
    d->staged[d->nstaged++] = (struct dstaged){ .chunk = chunk, .stored_bytes = stored_bytes };
    d->config.results(d->config.arg);
}

static void drop_what_is_gone(struct bnf_drain *d)
{
    const struct bnf_store *store = bnf_service_store(d->config.service);
    struct bnf_place at;
    size_t kept = 0;

    for (size_t i = 0; i < d->nstaged; i++)
        if (d->staged[i].telling || bnf_store_find(store, d->staged[i].chunk, &at) == 0)
            d->staged[kept++] = d->staged[i];
    d->nstaged = kept;
}

size_t bnf_drain_staged(struct bnf_drain *d, Fp__Staged **out, size_t max)
{
    size_t n = 0;

    drop_what_is_gone(d);
    for (size_t i = 0; i < d->nstaged && n < max; i++) {
        struct dstaged *s = &d->staged[i];

        if (s->telling)
            continue;
        s->telling = true;
        fp__staged__init(&s->m);
        s->m.chunk = s->chunk;
        s->m.stored_bytes = s->stored_bytes;
        out[n++] = &s->m;
    }
    return n;
}

void dstaged_told(struct bnf_drain *d, bool taken)
{
    size_t kept = 0;

    for (size_t i = 0; i < d->nstaged; i++) {
        struct dstaged s = d->staged[i];

        if (s.telling && taken)
            continue;
        s.telling = false;
        d->staged[kept++] = s;
    }
    d->nstaged = kept;
}
