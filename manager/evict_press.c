/* Space for writers: what is drained gives way by itself (docs/CHECKPOINTS.md, "Evict").
 *
 * When less of the store is free than low= of a policy, or a mount says that a program has no space (StatFs.press), a job is made that evicts some files:
 * those that were drained first, to a target that a policy names. One job at a time, of as much as is short. What may go is for evict.c to say: never what is
 * open, or of the newest sets, or of a set that is being written. Where there is no policy nothing goes by itself: somebody who copies a file to a place
 * by hand may remove that copy again.
 *
 * A writer that finds the store full waits for as long as this goes on (mgr_giving_way): draining makes files that may be evicted, evicting makes garbage, and
 * benefactors free that. So programs write as fast as the target takes what they write, as the paper's Figure 7 has it.
 *
 * Files are looked at in the order in which they were drained, each once; from the beginning again when all have been looked at, for those that were open or
 * have been read back since. Rejected: to keep a list of what may go, which every open, write and read would have to change.
 *
 * Called by the core's thread, in a group. */
#include "manager/ext.h"

#include <errno.h>
#include <string.h>

#include "fp/log.h"

#define PRESS_MS  200u                     /* between two looks */
#define AGAIN_MS  2000u                    /* from the beginning */
#define ASKED_MS  3000u                    /* a writer asks again while it waits */
#define LOOKS     256u                     /* files of one look */
#define FILES_MAX 256u                     /* of one job */
#define DRY_MS    60000u                   /* what stays may go when others that share it do */
#define DRY_MAX   65536u                   /* files that are remembered */
#define LEAST     (UINT64_C(64) << 20)     /* bytes of one job, if there are as many */

/* How much is to be freed; 0: there is enough. */
static uint64_t wanted(const struct mgr_core *c)
{
    const struct mgr_drain *d = c->drain;
    struct mgr_space sp;
    uint64_t low = 0, keep, coming;

    for (size_t i = 0; i < d->npolicies; i++)
        if (d->policies[i].p.layout == FP_DRAIN_FILE)
            low = d->policies[i].p.low > low ? d->policies[i].p.low : low;
    if (!d->nfrees)
        return 0;
    mgr_space(c, &sp);
    keep = sp.total / 100 * low;
    coming = sp.free + sp.garbage_bytes;
    if (coming < keep)
        return keep - coming < LEAST ? LEAST : keep - coming;
    return c->now.ms < d->asked_until_ms && !sp.garbage_bytes ? LEAST : 0;
}

/* Does a job go on, or can it? One whose target is well nowhere does not count: what is in others may go meanwhile. */
static bool goes_on(struct mgr_core *c, uint64_t job)
{
    bool any = false;

    for (size_t i = 0; i < c->drain->nfiles; i++)
        if (c->drain->files[i].job == job) {
            any = true;
            if (mgr_drain_is_well(c, c->drain->files[i].target))
                return true;
        }
    return !any;
}

static bool is_evicting(struct mgr_core *c)
{
    for (size_t i = 0; i < c->drain->njobs; i++)
        if (c->drain->jobs[i].kind == FP__JOB_KIND__JOB_EVICT && goes_on(c, c->drain->jobs[i].id))
            return true;
    return false;
}

void mgr_evict_dry(struct mgr_core *c, uint64_t ino)
{
    struct mgr_map *dry = &c->drain->dry;

    if (c->now.ms >= c->drain->dry_ms || dry->used >= DRY_MAX) {
        mgr_map_fini(dry);
        c->drain->dry_ms = c->now.ms + DRY_MS;
    }
    if (!mgr_map_get(dry, ino) && mgr_map_reserve(dry) == 0)
        mgr_map_add(dry, ino);
}

static bool is_dry(const struct mgr_core *c, uint64_t ino)
{
    return c->now.ms < c->drain->dry_ms && mgr_map_get(&c->drain->dry, ino);
}

static int has_chunks(struct mgr_core *c, uint64_t ino)
{
    int rc = mgr_db_one(&c->db, PRESS_HERE, DBI(ino));

    mgr_db_reset(&c->db, MGR_ST_PRESS_HERE);
    return rc;
}

/* 1: it goes into the list. */
static int choose(struct mgr_core *c, uint64_t ino, struct mgr_inode *in)
{
    struct mgr_dfile f = {.ino = ino};
    const char *why = NULL;
    bool wait;
    int rc = mgr_inode_get(c, ino, in);

    if (rc)
        return rc == -ENOENT ? 0 : rc;
    rc = mgr_evict_may(c, in, &f, &why, &wait);
    if (rc || why || !mgr_target_has_policy(c, f.target) || !mgr_drain_is_well(c, f.target))
        return rc;
    return has_chunks(c, ino);
}

static int make_job(struct mgr_core *c, const struct mgr_inode *list, size_t n)
{
    struct mgr_djob j = {.kind = FP__JOB_KIND__JOB_EVICT, .state = FP__DRAIN_STATE__DRAIN_RUNS, .gen = n, .dest = strdup(""), .why = strdup("")};
    struct mgr_djob *at;
    int rc = mgr_djob_new(c, &j);

    at = rc ? NULL : mgr_djob_find(c, j.id);
    for (size_t i = 0; i < n && !rc; i++) {
        ProtobufCBinaryData path = mgr_path(c, list[i].ino);

        while (path.len && path.data[0] == '/')
            path.data++, path.len--;
        rc = mgr_drain_entry(c, at, &list[i], path.data, path.len);
        if (!rc && i == 0)
            at->first = (uint64_t)sqlite3_last_insert_rowid(c->db.sq);
    }
    c->drain->dirty = c->busy = true;
    return rc ? rc : mgr_djob_put(c, at);
}

static bool has(const struct mgr_inode *list, size_t n, uint64_t ino)
{
    while (n > 0 && list[n - 1].ino != ino)
        n--;
    return n > 0;
}

/* In the order in which they were drained, from where the last look has ended. */
static int look(struct mgr_core *c, uint64_t want)
{
    const enum mgr_stmt st = MGR_ST_PRESS_NEXT;
    struct mgr_drain *d = c->drain;
    struct mgr_inode *list = mgr_arena_alloc(&c->arena, FILES_MAX * sizeof *list);
    uint64_t *ino = mgr_arena_alloc(&c->arena, LOOKS * sizeof *ino), bytes = 0;
    int64_t *at = mgr_arena_alloc(&c->arena, LOOKS * sizeof *at);
    size_t seen = 0, n = 0;
    int rc;

    if (!list || !ino || !at)
        return mgr_doom(c, -ENOMEM);
    for (rc = mgr_db_one(&c->db, PRESS_NEXT, DBI(d->press_ns), DBI(d->press_ino), DBI(LOOKS)); rc > 0; rc = mgr_db_step(&c->db, st)) {
        at[seen] = mgr_col(&c->db, st, 0);
        ino[seen++] = (uint64_t)mgr_col(&c->db, st, 1);
    }
    mgr_db_reset(&c->db, st);
    for (size_t i = 0; i < seen && n < FILES_MAX && bytes < want && rc >= 0; i++) {
        d->press_ns = at[i];
        d->press_ino = ino[i];
        if (has(list, n, ino[i]) || is_dry(c, ino[i]))
            continue; /* it is in several targets; or what it has here stays */
        rc = choose(c, ino[i], &list[n]);
        if (rc > 0)
            bytes += list[n++].size;
    }
    if (rc >= 0 && seen < LOOKS && bytes < want) { /* that was all */
        d->press_ns = 0;
        d->press_ino = 0;
        d->press_ms = c->now.ms + AGAIN_MS;
    }
    return rc < 0 ? rc : n ? make_job(c, list, n) : 0;
}

bool mgr_evict_presses(struct mgr_core *c)
{
    return c->drain->nfrees && c->now.ms >= c->drain->press_ms && !is_evicting(c) && wanted(c) > 0;
}

int mgr_evict_press(struct mgr_core *c)
{
    if (!mgr_evict_presses(c) || mgr_unsettled(c))
        return 0;
    c->drain->press_ms = c->now.ms + PRESS_MS;
    return look(c, wanted(c));
}

uint64_t mgr_giving_way(struct mgr_core *c)
{
    if (!c->drain->nfrees)
        return 0;
    c->drain->asked_until_ms = c->now.ms + ASKED_MS;
    c->drain->dirty = true;
    return 1 + c->drain->moved;
}
