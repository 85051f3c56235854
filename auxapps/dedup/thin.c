/*
 * Thin chunks (see thin.h). Called by dedup when it has loaded an earlier version, and for each duplicate that it finds.
 *
 * By itself a chunk is thin when less than `share` of it (a half) is in use. Where changes are spread evenly, chunks are then in use to 72 % on
 * average, and the store takes 1.4 times the file. Chunks of a first version become thin at about the same time, so it can be 1.5 or 1.6 for a while.
 *
 * When less is free than the size of the files that are being written, their next versions might not fit: then chunks are thin that are in use to less than halfway
 * between `share` and all of it. But what is stored anew takes space now, and gives it back later: so never more than one FREE_PART of what is free is by one file,
 * the thinnest chunks first, and when nothing is free, everything is referred to. What is free is what the manager says, which gives each mount its part, less
 * what other files of this mount may store anew: ranks that write a step together ask at the same moment, before anything of it is taken.
 *
 * In a simulation with 5 to 40 % changed in each version, one version kept, and stores of 2 to 4 times the file (2 is what it takes without dedup), all of
 * 60 versions fitted, and the most that was in use, with both versions, was 1.4 to 2.1 times the file. With `share` alone they did not at 40 % and a store of
 * 2.1; without any such rule versions 4 to 40 were the last in stores of up to 2.5. A higher share for all stores would write more: 24 % of the file and not 15 % for 10 % changed.
 */
#include "thin.h"

#include <stdlib.h>

#define FREE_PART 3u

void thin_init(struct thin *t, double share)
{
    *t = (struct thin){ .share = share, .free_bytes = UINT64_MAX };
}

static double tight_share(const struct thin *t)
{
    return t->share > 0 ? (1 + t->share) / 2 : 0;
}

bool thin_may_be(const struct thin *t, uint32_t data_bytes, uint32_t unused_bytes)
{
    return unused_bytes > 0 && data_bytes - unused_bytes < tight_share(t) * data_bytes;
}

void thin_tell(struct thin *t, uint64_t chunk, uint32_t data_bytes, uint32_t unused_bytes, uint64_t free_bytes)
{
    t->used_bytes += data_bytes - unused_bytes;
    if (free_bytes < t->free_bytes)
        t->free_bytes = free_bytes;
    if (!thin_may_be(t, data_bytes, unused_bytes))
        return;
    if (t->n == t->cap) {
        uint32_t cap = t->cap ? t->cap * 2 : 64;
        struct thin_chunk *more = realloc(t->list, cap * sizeof(*more));

        if (!more)
            return;
        t->list = more;
        t->cap = cap;
    }
    t->list[t->n++] = (struct thin_chunk){ .chunk = chunk, .data_bytes = data_bytes, .used_bytes = data_bytes - unused_bytes };
}

static double share_of(const struct thin_chunk *c)
{
    return (double)c->used_bytes / c->data_bytes;
}

static int by_share(const void *a, const void *b)
{
    double x = share_of(a), y = share_of(b);

    return x < y ? -1 : x > y;
}

static int by_chunk(const void *a, const void *b)
{
    uint64_t x = ((const struct thin_chunk *)a)->chunk, y = ((const struct thin_chunk *)b)->chunk;

    return x < y ? -1 : x > y;
}

/* A chunk at the seam of two answers of the manager was told twice. */
static void drop_doubles(struct thin *t)
{
    uint32_t n = 1;

    qsort(t->list, t->n, sizeof(*t->list), by_chunk);
    for (uint32_t i = 1; i < t->n; i++)
        if (t->list[i].chunk == t->list[n - 1].chunk)
            t->used_bytes -= t->list[i].used_bytes;
        else
            t->list[n++] = t->list[i];
    t->n = n;
}

uint64_t thin_most(uint64_t free_bytes, const struct thin_others *others)
{
    return free_bytes > others->anew_bytes ? (free_bytes - others->anew_bytes) / FREE_PART : 0;
}

uint64_t thin_decide(struct thin *t, uint64_t most, const struct thin_others *others)
{
    uint64_t anew = 0;
    double limit;
    uint32_t n = 0;

    t->decided = true;
    if (t->n == 0)
        return 0;
    drop_doubles(t);
    limit = t->free_bytes < t->used_bytes + others->used_bytes ? tight_share(t) : t->share;
    qsort(t->list, t->n, sizeof(*t->list), by_share);
    while (n < t->n && share_of(&t->list[n]) < limit && anew + t->list[n].used_bytes <= most)
        anew += t->list[n++].used_bytes;
    t->n = n;
    qsort(t->list, t->n, sizeof(*t->list), by_chunk);
    return anew;
}

bool thin_is(const struct thin *t, uint64_t chunk)
{
    struct thin_chunk key = { .chunk = chunk };

    return t->n > 0 && t->decided && bsearch(&key, t->list, t->n, sizeof(key), by_chunk) != NULL;
}

void thin_clear(struct thin *t)
{
    free(t->list);
    thin_init(t, t->share);
}
