/* Chunks that somebody may still be reading, though no slice names them any more.
 *
 * A strict read is told what its windows consist of, then reads these chunks; if one of them is gone by then, it begins anew. Beside a node that overwrites
 * the same bytes without a pause it would do so for ever. So what a file loses that was read strictly in the last READ_MS (MSG_SLICEMAP with `whole`) is deleted
 * GRACE_MS later than else: long enough for a read that is under way.
 *
 * Only while there is room: on a benefactor with less than a quarter free, or an eighth waiting to be deleted, nothing waits. In memory only, and bounded: what
 * does not fit, and all after a restart, is deleted at once, and then a read begins anew, as ever.
 *
 * Rejected: that the reader has them held (MSG_HOLD): rows and a transaction for each read, and a hold of the same chunk by the mount's aux-apps would end with
 * it. A grace for all chunks: space that is freed would come back late for everybody.
 *
 * Called by the core's thread, in a group. One that is undone leaves a chunk here that is no garbage, which is of no matter. */
#include <stdlib.h>

#include "manager/core_int.h"

#define GRACE_MS    2000u
#define READ_MS     10000u
#define READERS_MAX 4096u
#define KEPT_MAX    65536u

struct kept {
    uint64_t chunk, until_ms;
};

struct mgr_grace {
    struct mgr_map now, before; /* files that were read strictly since turn_ms, and in the READ_MS before it */
    uint64_t turn_ms;
    struct mgr_map chunks;
    struct kept *ring; /* in the order of coming */
    size_t first, n;
};

struct mgr_grace *mgr_grace_new(void)
{
    return calloc(1, sizeof(struct mgr_grace));
}

void mgr_grace_free(struct mgr_grace *g)
{
    if (!g)
        return;
    mgr_map_fini(&g->now);
    mgr_map_fini(&g->before);
    mgr_map_fini(&g->chunks);
    free(g->ring);
    free(g);
}

static void turn(struct mgr_grace *g, uint64_t now_ms)
{
    if (now_ms - g->turn_ms < READ_MS)
        return;
    mgr_map_fini(&g->before);
    if (now_ms - g->turn_ms < 2 * READ_MS)
        g->before = g->now;
    else
        mgr_map_fini(&g->now);
    g->now = (struct mgr_map){0};
    g->turn_ms = now_ms;
}

void mgr_grace_read(struct mgr_core *c, uint64_t ino)
{
    struct mgr_grace *g = c->grace;

    turn(g, c->now.ms);
    if (!mgr_map_get(&g->now, ino) && g->now.used < READERS_MAX && mgr_map_reserve(&g->now) == 0)
        mgr_map_add(&g->now, ino);
}

void mgr_grace_freed(struct mgr_core *c, uint64_t ino, uint64_t chunk)
{
    struct mgr_grace *g = c->grace;

    if (!g->now.used && !g->before.used)
        return;
    turn(g, c->now.ms);
    if (!mgr_map_get(&g->now, ino) && !mgr_map_get(&g->before, ino))
        return;
    if (!g->ring)
        g->ring = calloc(KEPT_MAX, sizeof *g->ring);
    if (!g->ring || g->n == KEPT_MAX || mgr_map_reserve(&g->chunks))
        return;
    g->ring[(g->first + g->n++) % KEPT_MAX] = (struct kept){chunk, c->now.ms + GRACE_MS};
    mgr_map_add(&g->chunks, chunk);
}

static void expire(struct mgr_grace *g, uint64_t now_ms)
{
    for (; g->n && g->ring[g->first].until_ms <= now_ms; g->n--) {
        mgr_map_sub(&g->chunks, g->ring[g->first].chunk);
        g->first = (g->first + 1) % KEPT_MAX;
    }
}

bool mgr_grace_any(struct mgr_core *c, const struct mgr_bnf *b)
{
    uint64_t used = b->stored + b->garbage_bytes;

    expire(c->grace, c->now.ms);
    return c->grace->n && used < b->capacity - b->capacity / 4 && b->garbage_bytes < b->capacity / 8;
}

bool mgr_grace_has(const struct mgr_core *c, uint64_t chunk)
{
    return mgr_map_get(&c->grace->chunks, chunk) > 0;
}
