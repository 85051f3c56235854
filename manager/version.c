/* What a file was before it is rewritten: its guard, a reverse delta under an inode of its own (a shadow), which has no name and is no orphan.
 *
 *     file    |a|b|c|d|      before window 1 changes      file    |a|x|c|d|
 *     guard                                               guard     |b|        version_win: 1
 *
 * Before a window of the file changes for the first time in an epoch (epoch.c), its slices are copied to the shadow, each chunk having one reference more; or, if
 * all of the window is replaced, they are moved, which touches no chunk. So what rewriting costs is a row or two for each window, and no byte of data. Windows that
 * lie beyond the end that the file had are not kept. A cut to 0 moves all that is left, and then the shadow is the version by itself (MGR_FULL).
 *
 * A window of the version is that of the shadow if it is noted in version_win (or the shadow is full), else that of the file. Since the shadow has slices like any file,
 * whatever goes by inode (references, damage, dedup's counts) needs to know nothing of it.
 *
 * The file may have one more version, `remains`: what was given up when a guard was put back (return.c). It is relative to the file, too, so it goes before a
 * guard of a newer epoch does. And one that `waits` for what came after it to be safe (versionwait.c), which is relative to the file, too: so what changes is kept for both. The
 * guard can go or be put back without a look at it, since it has each window that the guard has.
 *
 * Rejected: to clone the whole file when it is opened (seconds for a large one that gets one write); versions as numbers between an inode and its slices (each statement and tool
 * that reads the map would have to know); to keep the old data in the mount (it dies with it).
 *
 * Called by the core's thread, in a group. What is in memory is rebuilt from the tables when a group fails. */
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "fp/bug.h"
#include "manager/drain.h"
#include "manager/version.h"

#define BUCKETS_MIN 256u
#define SUMMED_MAX  65536u

/* ---------------------------------------------------------------- files that have some */

struct mgr_versions *mgr_versions_new(void)
{
    struct mgr_versions *t = calloc(1, sizeof *t);

    if (t) {
        t->buckets = BUCKETS_MIN;
        t->bucket = calloc(t->buckets, sizeof(struct mgr_vfile *));
    }
    if (t && !t->bucket) {
        free(t);
        return NULL;
    }
    return t;
}

static void forget_all(struct mgr_versions *t)
{
    for (size_t i = 0; i < t->buckets; i++)
        while (t->bucket[i]) {
            struct mgr_vfile *v = t->bucket[i];

            t->bucket[i] = v->next;
            free(v->synced);
            free(v);
        }
    mgr_map_fini(&t->shadows);
    t->count = t->returning = t->overtaken = 0;
}

void mgr_versions_free(struct mgr_versions *t)
{
    if (!t)
        return;
    forget_all(t);
    free(t->bucket);
    free(t);
}

static struct mgr_vfile **place_of(const struct mgr_versions *t, uint64_t ino)
{
    struct mgr_vfile **p = &t->bucket[(size_t)((ino * UINT64_C(0x9E3779B97F4A7C15)) >> 20) & (t->buckets - 1)];

    while (*p && (*p)->ino != ino)
        p = &(*p)->next;
    return p;
}

/* A table that can't grow is slower. */
static void grow(struct mgr_versions *t)
{
    struct mgr_versions bigger = {.buckets = t->buckets * 2};

    bigger.bucket = calloc(bigger.buckets, sizeof(struct mgr_vfile *));
    if (!bigger.bucket)
        return;
    for (size_t i = 0; i < t->buckets; i++)
        while (t->bucket[i]) {
            struct mgr_vfile *v = t->bucket[i];

            t->bucket[i] = v->next;
            v->next = NULL;
            *place_of(&bigger, v->ino) = v;
        }
    free(t->bucket);
    t->bucket = bigger.bucket;
    t->buckets = bigger.buckets;
}

struct mgr_vfile *mgr_vfile_find(const struct mgr_core *c, uint64_t ino)
{
    return c->versions->count ? *place_of(c->versions, ino) : NULL;
}

struct mgr_vfile *mgr_vfile_get(struct mgr_core *c, uint64_t ino)
{
    struct mgr_versions *t = c->versions;
    struct mgr_vfile *v = mgr_vfile_find(c, ino);

    if (v)
        return v;
    if (t->count >= t->buckets)
        grow(t);
    v = calloc(1, sizeof *v);
    if (!v) {
        mgr_doom(c, -ENOMEM);
        return NULL;
    }
    v->ino = ino;
    *place_of(t, ino) = v;
    t->count++;
    return v;
}

void mgr_vfile_done(struct mgr_core *c, struct mgr_vfile *v)
{
    struct mgr_versions *t = c->versions;

    if (v->guard.shadow || v->remains.shadow || v->waits.shadow || v->open)
        return;
    *place_of(t, v->ino) = v->next;
    t->count--;
    free(v->synced);
    free(v);
}

static int load_row(struct mgr_core *c)
{
    const enum mgr_stmt st = MGR_ST_VERSION_ALL;
    const struct mgr_db *db = &c->db;
    struct mgr_vfile *v = mgr_vfile_get(c, (uint64_t)mgr_col(db, st, 0));
    struct mgr_version ver = {.n = (uint64_t)mgr_col(db, st, 1),
                              .shadow = (uint64_t)mgr_col(db, st, 2),
                              .kind = (enum mgr_version_kind)mgr_col(db, st, 3),
                              .state = (enum mgr_version_state)mgr_col(db, st, 4),
                              .writer = (uint64_t)mgr_col(db, st, 5),
                              .torn_session = (uint64_t)mgr_col(db, st, 6),
                              .cursor = (uint64_t)mgr_col(db, st, 7),
                              .wins = (uint64_t)mgr_col(db, st, 8)};

    if (!v || mgr_map_reserve(&c->versions->shadows))
        return mgr_doom(c, -ENOMEM);
    mgr_map_add(&c->versions->shadows, ver.shadow);
    if (ver.state == MGR_REMAINS) {
        v->remains = ver;
        return 0;
    }
    if (ver.state == MGR_WAITS || ver.state == MGR_NEXT) {
        v->waits = ver;
        v->waits_ms = c->now.ms;
        c->versions->returning += ver.state == MGR_NEXT;
        return 0;
    }
    v->guard = ver;
    v->open = v->old = ver.state == MGR_GUARD || ver.state == MGR_SYNCED || ver.state == MGR_HURT;
    v->died = v->open && ver.torn_session;
    c->versions->returning += ver.state == MGR_RETURNING;
    return 0;
}

/* Whose death was seen in a group that was taken back: what they have open is forgotten all the same, and they die no second time. */
static int keep_deaths(struct mgr_core *c, uint64_t **list, size_t *n)
{
    const struct mgr_versions *t = c->versions;

    *n = 0;
    *list = mgr_arena_alloc(&c->arena, (t->count + 1) * sizeof(**list));
    for (size_t i = 0; i < t->buckets && *list; i++)
        for (const struct mgr_vfile *v = t->bucket[i]; v; v = v->next)
            if (v->died)
                (*list)[(*n)++] = v->ino;
    return *list ? 0 : mgr_doom(c, -ENOMEM);
}

int mgr_versions_load(struct mgr_core *c)
{
    uint64_t *dead;
    size_t n;
    int rc = keep_deaths(c, &dead, &n), one = 0;

    if (rc)
        return rc;
    forget_all(c->versions);
    for (rc = mgr_db_one(&c->db, VERSION_ALL); rc > 0 && !one; rc = mgr_db_step(&c->db, MGR_ST_VERSION_ALL))
        one = load_row(c);
    mgr_db_reset(&c->db, MGR_ST_VERSION_ALL);
    rc = rc < 0 ? rc : one;
    for (size_t i = 0; i < n; i++) {
        struct mgr_vfile *v = mgr_vfile_find(c, dead[i]);

        if (v)
            v->died = v->open;
    }
    rc = rc ? rc : mgr_given_up_load(c);
    rc = rc ? rc : mgr_db_one(&c->db, OVERTAKEN_COUNT);
    if (rc <= 0)
        return rc;
    c->versions->overtaken = (uint64_t)mgr_col(&c->db, MGR_ST_OVERTAKEN_COUNT, 0);
    mgr_db_reset(&c->db, MGR_ST_OVERTAKEN_COUNT);
    return 0;
}

/* ---------------------------------------------------------------- making one */

static uint64_t windows(const struct mgr_inode *in)
{
    return in->size / in->chunk_size + (in->size % in->chunk_size != 0);
}

/* The file's data_version, which a change is going to raise. Who waits since a rename may have that number. */
uint64_t mgr_version_number(const struct mgr_vfile *v, const struct mgr_inode *in)
{
    uint64_t n = in->data_version;

    n = n > v->guard.n ? n : v->guard.n + 1;
    n = n > v->remains.n ? n : v->remains.n + 1;
    return n > v->waits.n ? n : v->waits.n + 1;
}

static int put(struct mgr_core *c, struct mgr_vfile *v, struct mgr_version *as, const struct mgr_version *ver)
{
    int rc = mgr_db_exec(&c->db, VERSION_PUT, DBI(v->ino), DBI(ver->n), DBI(ver->shadow), DBI(ver->kind), DBI(ver->state), DBI(ver->writer));

    if (rc)
        return rc;
    mgr_map_add(&c->versions->shadows, ver->shadow);
    *as = *ver;
    return 0;
}

int mgr_version_make(struct mgr_core *c, struct mgr_vfile *v, const struct mgr_inode *in, uint64_t session)
{
    struct mgr_inode sh = *in;
    struct mgr_version ver = {.n = mgr_version_number(v, in),
                              .wins = windows(in),
                              .writer = session,
                              .kind = in->mapped ? MGR_DELTA : MGR_FULL,
                              .state = MGR_GUARD};
    int rc;

    if (mgr_map_reserve(&c->versions->shadows))
        return mgr_doom(c, -ENOMEM);
    sh.ino = sh.nlink = 0;
    sh.mapped = 0;
    sh.ckpt = 0;
    sh.flags = MGR_SHADOW | (in->flags & MGR_TORN_MARKS); /* which come back with it */
    sh.parent = in->ino; /* readers of that one may still want the chunks: mgr_grace_freed */
    rc = mgr_inode_insert(c, &sh, NULL, 0);
    ver.shadow = sh.ino;
    return rc ? rc : put(c, v, &v->guard, &ver);
}

int mgr_version_adopt(struct mgr_core *c, struct mgr_vfile *v, struct mgr_version *as, const struct mgr_inode *in, struct mgr_inode *old, uint64_t session)
{
    struct mgr_version ver = {.n = mgr_version_number(v, in),
                              .shadow = old->ino,
                              .wins = windows(old),
                              .writer = session,
                              .kind = MGR_REPLACED,
                              .state = as == &v->waits ? MGR_WAITS : MGR_GUARD};
    int rc = old->flags & MGR_DRAINS ? mgr_drained_drop(c, old->ino) : 0;

    if (mgr_map_reserve(&c->versions->shadows))
        return mgr_doom(c, -ENOMEM);
    old->ckpt = 0;
    old->flags = MGR_SHADOW | (old->flags & MGR_TORN_MARKS);
    old->parent = in->ino;
    rc = rc ? rc : mgr_inode_put(c, old);
    return rc ? rc : put(c, v, as, &ver);
}

int mgr_version_detach(struct mgr_core *c, struct mgr_vfile *v, struct mgr_version *ver, struct mgr_inode *old)
{
    int rc = mgr_inode_get(c, ver->shadow, old);

    rc = rc ? rc : mgr_db_exec(&c->db, VERSION_DELETE, DBI(v->ino), DBI(ver->n));
    mgr_map_sub(&c->versions->shadows, ver->shadow);
    *ver = (struct mgr_version){0};
    return rc;
}

int mgr_version_save(struct mgr_core *c, const struct mgr_vfile *v, const struct mgr_version *ver)
{
    return mgr_db_exec(&c->db, VERSION_SET, DBI(v->ino), DBI(ver->n), DBI(ver->kind), DBI(ver->state), DBI(ver->writer), DBI(ver->torn_session),
                       DBI(ver->cursor));
}

/* ---------------------------------------------------------------- keeping windows */

static int move(struct mgr_core *c, struct mgr_version *ver, struct mgr_inode *in, uint64_t win)
{
    const enum mgr_stmt st = MGR_ST_SLICE_MOVE;
    int rc;

    for (rc = mgr_db_one(&c->db, SLICE_MOVE, DBI(in->ino), DBI(ver->shadow), DBI(win)); rc > 0; rc = mgr_db_step(&c->db, st)) {
        in->mapped -= (uint64_t)mgr_col(&c->db, st, 0);
        ver->moved += (uint64_t)mgr_col(&c->db, st, 0);
    }
    return rc;
}

/* All rows are there when the first is told, so others may be changed meanwhile. */
static int copied(struct mgr_core *c, struct mgr_version *ver, enum mgr_stmt st, int rc)
{
    int one = 0;

    for (; rc > 0 && !one; rc = mgr_db_step(&c->db, st)) {
        ver->moved += (uint64_t)mgr_col(&c->db, st, 0);
        c->n.slices++;
        c->n.dirty = true;
        one = mgr_chunk_ref(c, (uint64_t)mgr_col(&c->db, st, 1), 1);
    }
    mgr_db_reset(&c->db, st);
    return rc < 0 ? rc : one;
}

static int take_window(struct mgr_core *c, struct mgr_version *ver, struct mgr_inode *in, uint64_t win, bool whole)
{
    int rc;

    if (FP_BUG("mgr-misses-a-window-of-the-guard") && win % 5 == 3)
        return 0;
    rc = mgr_db_exec(&c->db, VERSION_WIN_PUT, DBI(ver->shadow), DBI(win));
    if (rc || !sqlite3_changes(c->db.sq) || !in->mapped)
        return rc;
    return whole ? move(c, ver, in, win) : copied(c, ver, MGR_ST_SLICE_COPY, mgr_db_one(&c->db, SLICE_COPY, DBI(in->ino), DBI(ver->shadow), DBI(win)));
}

static bool takes(const struct mgr_version *ver)
{
    return ver->shadow && ver->kind == MGR_DELTA;
}

static int take(struct mgr_core *c, struct mgr_version *ver, struct mgr_inode *in, uint64_t from, uint64_t to, bool may_move)
{
    uint64_t size = in->chunk_size, win = from / size;
    int rc = 0;

    for (; !rc && win * size < to && win < ver->wins; win++)
        rc = take_window(c, ver, in, win, may_move && from <= win * size && (to / size > win || to >= in->size));
    return rc;
}

/* The guard comes last: what it takes away, the other can't copy any more. */
int mgr_version_take(struct mgr_core *c, struct mgr_vfile *v, struct mgr_inode *in, uint64_t from, uint64_t to)
{
    int rc = takes(&v->waits) ? take(c, &v->waits, in, from, to, !takes(&v->guard)) : 0;

    return rc || !takes(&v->guard) ? rc : take(c, &v->guard, in, from, to, true);
}

/* Windows from `first` on. */
static int take_rest(struct mgr_core *c, struct mgr_version *ver, struct mgr_inode *in, uint64_t first, bool may_move)
{
    uint64_t bytes;
    int rc;

    if (!may_move)
        return copied(c, ver, MGR_ST_SLICE_REST_COPY, mgr_db_one(&c->db, SLICE_REST_COPY, DBI(in->ino), DBI(ver->shadow), DBI(first), DBI(ver->wins)));
    rc = mgr_db_one(&c->db, SLICE_REST_BYTES, DBI(in->ino), DBI(ver->shadow), DBI(first), DBI(ver->wins));
    if (rc <= 0)
        return rc;
    bytes = (uint64_t)mgr_col(&c->db, MGR_ST_SLICE_REST_BYTES, 0);
    mgr_db_reset(&c->db, MGR_ST_SLICE_REST_BYTES);
    rc = bytes ? mgr_db_exec(&c->db, SLICE_REST_MOVE, DBI(in->ino), DBI(ver->shadow), DBI(first), DBI(ver->wins)) : 0;
    in->mapped -= bytes;
    ver->moved += bytes;
    return rc;
}

static int cut(struct mgr_core *c, struct mgr_vfile *v, struct mgr_version *ver, struct mgr_inode *in, uint64_t size, bool may_move)
{
    uint64_t first = size / in->chunk_size + (size % in->chunk_size != 0);
    int rc = take(c, ver, in, size, first * in->chunk_size, may_move);

    if (rc || first >= ver->wins)
        return rc;
    rc = take_rest(c, ver, in, first, may_move);
    if (rc || first)
        return rc ? rc : mgr_db_exec(&c->db, VERSION_WIN_ALL, DBI(ver->shadow));
    ver->kind = MGR_FULL;
    return mgr_version_save(c, v, ver);
}

int mgr_version_cut(struct mgr_core *c, struct mgr_vfile *v, struct mgr_inode *in, uint64_t size)
{
    int rc;

    if (FP_BUG("mgr-guards-nothing-at-truncate"))
        return 0;
    rc = takes(&v->waits) ? cut(c, v, &v->waits, in, size, !takes(&v->guard)) : 0;
    return rc || !takes(&v->guard) ? rc : cut(c, v, &v->guard, in, size, true);
}

static int count(struct mgr_core *c, struct mgr_version *ver)
{
    uint64_t moved = ver->moved;

    ver->moved = 0;
    return moved ? mgr_db_exec(&c->db, INODE_MAPPED, DBI(ver->shadow), DBI(moved)) : 0;
}

int mgr_version_count(struct mgr_core *c, struct mgr_vfile *v)
{
    int rc = count(c, &v->waits);

    return rc ? rc : count(c, &v->guard);
}

int mgr_version_fill(struct mgr_core *c, struct mgr_vfile *v, struct mgr_version *ver, struct mgr_inode *in, bool move_all)
{
    int rc = takes(ver) ? take_rest(c, ver, in, 0, move_all) : 0;

    rc = rc ? rc : count(c, ver);
    if (rc || !takes(ver))
        return rc;
    ver->kind = MGR_FULL;
    return mgr_version_save(c, v, ver);
}

/* ---------------------------------------------------------------- ends */

int mgr_version_drop(struct mgr_core *c, struct mgr_vfile *v, struct mgr_version *ver)
{
    uint64_t shadow = ver->shadow;
    int rc;

    if (!shadow)
        return 0;
    rc = mgr_db_exec(&c->db, VERSION_DELETE, DBI(v->ino), DBI(ver->n));
    c->versions->returning -= ver->state == MGR_RETURNING || ver->state == MGR_NEXT;
    mgr_map_sub(&c->versions->shadows, shadow);
    *ver = (struct mgr_version){0};
    return rc ? rc : mgr_shadow_remove(c, shadow);
}

int mgr_versions_sum(struct mgr_core *c, uint64_t *count, uint64_t *bytes)
{
    int rc;

    *count = c->versions->shadows.used;
    *bytes = 0;
    if (!*count)
        return 0;
    rc = mgr_db_one(&c->db, VERSION_SUMS, DBI(SUMMED_MAX));
    if (rc <= 0)
        return rc;
    *bytes = (uint64_t)mgr_col(&c->db, MGR_ST_VERSION_SUMS, 0);
    mgr_db_reset(&c->db, MGR_ST_VERSION_SUMS);
    return 0;
}

int mgr_versions_gone(struct mgr_core *c, uint64_t ino)
{
    struct mgr_vfile *v = mgr_vfile_find(c, ino);
    int rc = mgr_given_up_over(c, ino);

    if (rc || !v)
        return rc;
    rc = mgr_version_drop(c, v, &v->remains);
    rc = rc ? rc : mgr_version_drop(c, v, &v->guard);
    rc = rc ? rc : mgr_version_drop(c, v, &v->waits);
    v->open = false;
    if (!rc)
        mgr_vfile_done(c, v);
    return rc;
}
