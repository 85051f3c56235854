/* Levels of durability: what is true of the present data of a file, or of all files of a checkpoint set.
 *
 *     none      some of it is lost or damaged (bad_chunk), or was lost before it was published (lostclose.c)
 *     pool      somebody has it open for writing, or a mount that may have closed it behind is gone, or some of it is not synced, or may be damaged, or is on a benefactor that is away
 *     local     each chunk is of a round that its benefactor has synced (rounds.c), and that benefactor is vouched for
 *     drained, verified    drained.c
 *
 * For each benefactor the map is reduced to the highest round of the chunks on it; that says all, since rounds that are found lost later are always the highest ones. It is
 * kept for a data_version of a file, or a generation of a complete set, so that who asks again and again costs nothing. Maps are read in pieces: one request looks
 * at MGR_LEVEL_LOOK slices at most, and the rest is looked at in the groups that follow (mgr_levels_step); until then it is `pool`, which is never too much.
 *
 * A level above pool is told only when the database is synced (rq->durable): what a power failure of the manager's node takes back was not shown.
 *
 * Rejected: a level in the row of each file, which every commit, sync and loss of a benefactor would have to keep right. */
#include "manager/level.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/stat.h>

#include "manager/drain.h"
#include "manager/idmap.h"
#include "manager/sets.h"

#define KNOWN_MAX 65536u  /* files and sets */
#define PLACES_MAX 1000000u /* of all of them */
#define PAGE      1024u
#define STEP      4096u   /* slices of one group */

struct place {
    uint32_t bnf;
    int64_t round; /* the highest */
};

struct known {
    TAILQ_ENTRY(known) next; /* to be looked at */
    bool queued, set;
    uint64_t id, version;    /* inode and data_version; or set and gen */
    bool done, bad, elsewhere; /* elsewhere: a chunk is on no benefactor */
    uint32_t doubt;          /* a benefactor of which a chunk may be damaged; 0: none */
    uint64_t changes;         /* levels.changes when it was begun */
    uint64_t ino, win;       /* how far it was looked at */
    int64_t off;
    struct place *place;
    uint32_t nplaces, cap;
    uint64_t drains, drained, verified, drained_bytes; /* levels.drains when these three were counted; 0: never */
};

struct mgr_levels {
    struct mgr_idmap files, sets; /* -> struct known * */
    TAILQ_HEAD(, known) queue;
    uint64_t count, places;
    uint64_t changes, drains; /* one more with each change */
    bool any_drained;
};

struct mgr_levels *mgr_levels_new(void)
{
    struct mgr_levels *t = calloc(1, sizeof *t);

    if (t) {
        TAILQ_INIT(&t->queue);
        t->drains = 1;
    }
    return t;
}

static void known_free(struct mgr_levels *t, struct known *k)
{
    if (k->queued)
        TAILQ_REMOVE(&t->queue, k, next);
    t->count--;
    t->places -= k->cap;
    free(k->place);
    free(k);
}

static void drop_map(struct mgr_levels *t, struct mgr_idmap *m)
{
    uint64_t id, val;

    for (size_t pos = 0; mgr_idmap_next(m, &pos, &id, &val);)
        known_free(t, (struct known *)(uintptr_t)val);
    mgr_idmap_fini(m);
}

void mgr_levels_free(struct mgr_levels *t)
{
    if (!t)
        return;
    drop_map(t, &t->files);
    drop_map(t, &t->sets);
    free(t);
}

int mgr_levels_load(struct mgr_core *c)
{
    struct mgr_levels *t = c->levels;
    int rc = mgr_db_one(&c->db, LEVEL_ANY_DRAINED);

    mgr_db_reset(&c->db, MGR_ST_LEVEL_ANY_DRAINED);
    drop_map(t, &t->files);
    drop_map(t, &t->sets);
    t->any_drained = rc > 0;
    t->drains++;
    return rc < 0 ? rc : 0;
}

void mgr_level_chunks(struct mgr_core *c)
{
    c->levels->changes++;
}

void mgr_level_drained(struct mgr_core *c)
{
    c->levels->any_drained = true;
    c->levels->drains++;
}

static struct known *find(const struct mgr_levels *t, bool set, uint64_t id)
{
    uint64_t val;

    return mgr_idmap_get(set ? &t->sets : &t->files, id, &val) ? (struct known *)(uintptr_t)val : NULL;
}

static void restart(struct known *k, uint64_t version, uint64_t changes)
{
    k->version = version;
    k->done = k->bad = k->elsewhere = false;
    k->doubt = k->nplaces = 0;
    k->changes = changes;
    k->ino = k->set ? 0 : k->id;
    k->win = 0;
    k->off = -1;
    k->drains = 0;
}

static struct known *get(struct mgr_core *c, bool set, uint64_t id, uint64_t version)
{
    struct mgr_levels *t = c->levels;
    struct known *k = find(t, set, id);

    if (!k) {
        if (t->count >= KNOWN_MAX || t->places >= PLACES_MAX) {
            drop_map(t, &t->files);
            drop_map(t, &t->sets);
        }
        k = calloc(1, sizeof *k);
        if (!k || mgr_idmap_put(set ? &t->sets : &t->files, id, (uintptr_t)k)) {
            free(k);
            mgr_doom(c, -ENOMEM);
            return NULL;
        }
        t->count++;
        k->set = set;
        k->id = id;
        k->version = UINT64_MAX;
    }
    if (k->version != version || k->changes != t->changes)
        restart(k, version, t->changes);
    return k;
}

void mgr_level_set_gone(struct mgr_core *c, uint64_t set)
{
    struct known *k = find(c->levels, true, set);

    if (!k)
        return;
    mgr_idmap_del(&c->levels->sets, set);
    known_free(c->levels, k);
}

/* -------------------------------------------------------------- looking at maps */

static int add_place(struct mgr_core *c, struct known *k, uint32_t bnf, int64_t round)
{
    for (uint32_t i = 0; i < k->nplaces; i++) {
        if (k->place[i].bnf != bnf)
            continue;
        if (round > k->place[i].round)
            k->place[i].round = round;
        return 0;
    }
    if (k->nplaces == k->cap) {
        uint32_t cap = k->cap ? 2 * k->cap : 2;
        struct place *p = realloc(k->place, cap * sizeof *p);

        if (!p)
            return mgr_doom(c, -ENOMEM);
        c->levels->places += cap - k->cap;
        k->place = p;
        k->cap = cap;
    }
    k->place[k->nplaces++] = (struct place){bnf, round};
    return 0;
}

static int add_slice(struct mgr_core *c, struct known *k)
{
    const enum mgr_stmt st = MGR_ST_LEVEL_SLICES;
    uint32_t bnf = (uint32_t)mgr_col(&c->db, st, 2);
    int64_t round = mgr_col(&c->db, st, 3);
    const struct mgr_bnf *b = mgr_bnf_find(c, bnf);

    k->win = (uint64_t)mgr_col(&c->db, st, 0);
    k->off = mgr_col(&c->db, st, 1);
    k->bad |= mgr_col(&c->db, st, 4) != 0;
    if (!b) {
        k->elsewhere = true;
        return 0;
    }
    if (mgr_round_kept(b, round) == MGR_KEPT_DOUBT)
        k->doubt = bnf;
    return add_place(c, k, bnf, round);
}

/* The next file of a set; *more: there is one. */
static int next_member(struct mgr_core *c, struct known *k, bool *more)
{
    struct mgr_inode in = {.ino = k->ino};
    int rc = mgr_set_member(c, k->id, k->ino, &in);

    *more = !rc;
    k->ino = in.ino;
    k->win = 0;
    k->off = -1;
    return rc == -ENOENT ? 0 : rc;
}

/* A page of the map of one file, or the step to the next one, which counts as a slice. */
static int look_on(struct mgr_core *c, struct known *k, uint32_t *look)
{
    uint32_t max = *look < PAGE ? *look : PAGE, n = 0;
    bool more = false;
    int rc = 0;

    if (k->ino)
        for (rc = mgr_db_one(&c->db, LEVEL_SLICES, DBI(k->ino), DBI(k->win), DBI(k->off), DBI(max)); rc > 0; rc = mgr_db_step(&c->db, MGR_ST_LEVEL_SLICES)) {
            n++;
            if (add_slice(c, k)) {
                mgr_db_reset(&c->db, MGR_ST_LEVEL_SLICES);
                return -ENOMEM;
            }
        }
    *look -= n;
    if (rc || n == max)
        return rc;
    if (k->set)
        rc = next_member(c, k, &more);
    k->done = !rc && !more;
    *look -= *look > 0;
    return rc;
}

static int look_at(struct mgr_core *c, struct known *k, uint32_t *look)
{
    int rc = 0;

    while (!k->done && *look && !rc)
        rc = look_on(c, k, look);
    if (!k->done && !k->queued) {
        TAILQ_INSERT_TAIL(&c->levels->queue, k, next);
        k->queued = true;
    }
    return rc;
}

int mgr_levels_step(struct mgr_core *c)
{
    struct mgr_levels *t = c->levels;
    uint32_t look = STEP;
    int rc = 0;

    while (look && !rc && !TAILQ_EMPTY(&t->queue)) {
        struct known *k = TAILQ_FIRST(&t->queue);

        rc = look_at(c, k, &look);
        if (k->done) {
            TAILQ_REMOVE(&t->queue, k, next);
            k->queued = false;
        }
    }
    c->busy |= !TAILQ_EMPTY(&t->queue);
    return rc;
}

/* -------------------------------------------------------------- what it comes to */

static int because(struct mgr_core *c, struct mgr_level *out, bool never, const struct mgr_bnf *b, const char *what)
{
    char line[400];

    if (b)
        snprintf(line, sizeof line, "benefactor %u of node %s %s", b->id, b->node, what);
    else
        snprintf(line, sizeof line, "%s", what);
    if (out->why[0] && (out->never || !never)) /* the first, but for one that lasts */
        return 0;
    out->never = never;
    out->why = mgr_arena_text(&c->arena, line);
    return out->why ? 0 : mgr_doom(c, -ENOMEM);
}

static int place_counts(struct mgr_core *c, const struct place *p, bool want, struct mgr_level *out)
{
    struct mgr_bnf *b = mgr_bnf_find(c, p->bnf);

    switch (mgr_round_kept(b, p->round)) {
    case MGR_KEPT_MEMORY:
        return because(c, out, true, b, "keeps data in memory: drain it");
    case MGR_KEPT_DOUBT:
        return because(c, out, true, b, "lost what it had not synced, which may be of this: write it again, or drain it with --verify");
    case MGR_KEPT_NOT_YET:
        if (want)
            mgr_round_want(c, b);
        out->syncing |= want && b->conn;
        return because(c, out, false, b, b->conn ? "has not synced it yet" : "has not synced it, and is away");
    default:
        return mgr_bnf_vouched(b) ? 0 : because(c, out, false, b, "is away, or not known yet to have what it had");
    }
}

static int come_to(struct mgr_core *c, struct known *k, bool want, struct mgr_level *out)
{
    int rc = 0;

    if (k->bad) {
        out->level = FP__LEVEL__LEVEL_NONE;
        return because(c, out, true, NULL, "data of it is lost or damaged: see fpctl status");
    }
    out->level = FP__LEVEL__LEVEL_POOL;
    for (uint32_t i = 0; i < k->nplaces && !rc; i++)
        rc = place_counts(c, &k->place[i], want, out);
    if (k->doubt && !rc)
        rc = because(c, out, true, mgr_bnf_find(c, k->doubt), "lost what it had not synced, which may be of this: write it again, or drain it with --verify");
    if (k->elsewhere && !rc)
        rc = because(c, out, false, NULL, "some of it is on no benefactor");
    if (!k->done && !rc)
        rc = because(c, out, false, NULL, "its map is being looked at");
    if (!rc && !out->why[0])
        out->level = FP__LEVEL__LEVEL_LOCAL;
    return rc;
}

int mgr_level_data(struct mgr_core *c, const struct mgr_inode *in, bool want, uint32_t *look, struct mgr_level *out)
{
    Fp__Level drained;
    struct known *k;
    int rc;

    *out = (struct mgr_level){.level = FP__LEVEL__LEVEL_POOL, .why = (char *)""};
    k = get(c, false, in->ino, in->data_version);
    rc = k ? look_at(c, k, look) : -ENOMEM;
    rc = rc ? rc : come_to(c, k, want, out);
    if (rc || out->level == FP__LEVEL__LEVEL_NONE)
        return rc;
    if (mgr_unsettled(c)) {
        out->level = FP__LEVEL__LEVEL_POOL;
        return because(c, out, false, NULL, "a mount that may write it is not back since the manager was started");
    }
    out->here = out->level;
    out->copies = true;
    drained = mgr_drained_level(c, in);
    if (drained > out->level)
        out->level = drained;
    return 0;
}

static int closed_is_lost(struct mgr_core *c, struct mgr_level *out)
{
    *out = (struct mgr_level){.level = FP__LEVEL__LEVEL_NONE, .why = (char *)""};
    return because(c, out, true, NULL, "what was closed of it was lost before it was stored (--close behind): replace it, or cut it to nothing and write it again");
}

int mgr_level_file(struct mgr_core *c, const struct mgr_inode *in, bool want, uint32_t *look, struct mgr_level *out)
{
    int rc = in->flags & MGR_LOST_CLOSE ? closed_is_lost(c, out) : mgr_level_data(c, in, want, look, out);

    if (rc || out->level == FP__LEVEL__LEVEL_NONE || (!mgr_map_get(&c->writers, in->ino) && !(in->flags & MGR_UNSURE)))
        return rc;
    out->level = FP__LEVEL__LEVEL_POOL;
    out->here = FP__LEVEL__LEVEL_NONE;
    out->copies = false;
    if (mgr_map_get(&c->writers, in->ino))
        return because(c, out, false, NULL, "it is open for writing");
    return because(c, out, true, NULL, "its mount is gone, and what was closed of it last may be (--close behind): write it again");
}

static int count_drained(struct mgr_core *c, struct known *k)
{
    int rc = c->levels->any_drained ? mgr_db_one(&c->db, LEVEL_DRAINED, DBI(k->id)) : 0;

    k->drained = rc > 0 ? (uint64_t)mgr_col(&c->db, MGR_ST_LEVEL_DRAINED, 0) : 0;
    k->verified = rc > 0 ? (uint64_t)mgr_col(&c->db, MGR_ST_LEVEL_DRAINED, 1) : 0;
    k->drained_bytes = rc > 0 ? (uint64_t)mgr_col(&c->db, MGR_ST_LEVEL_DRAINED, 2) : 0;
    mgr_db_reset(&c->db, MGR_ST_LEVEL_DRAINED);
    k->drains = c->levels->drains;
    return rc < 0 ? rc : 0;
}

int mgr_level_set(struct mgr_core *c, const struct mgr_set *s, bool want, uint32_t *look, struct mgr_level *out)
{
    struct known *k;
    int rc;

    *out = (struct mgr_level){.level = FP__LEVEL__LEVEL_POOL, .why = (char *)""};
    if (s->state == MGR_SET_TORN)
        out->level = FP__LEVEL__LEVEL_NONE; /* however safe its files are: there is no such checkpoint */
    if (s->state != MGR_SET_COMPLETE)
        return because(c, out, s->state != MGR_SET_OPEN, NULL, s->state == MGR_SET_TORN ? "the set is torn: a mount or a program that was writing a file of it is gone, or could not store it" : "the set is not complete");
    if (mgr_unsettled(c))
        return because(c, out, false, NULL, "a mount that may write it is not back since the manager was started");
    k = get(c, true, s->id, s->gen);
    rc = k ? look_at(c, k, look) : -ENOMEM;
    rc = rc ? rc : come_to(c, k, want, out);
    if (!rc && k->drains != c->levels->drains)
        rc = count_drained(c, k);
    if (rc || out->level == FP__LEVEL__LEVEL_NONE)
        return rc;
    out->here = out->level;
    out->copies = true;
    out->drained = k->drained;
    out->verified = k->verified;
    out->drained_bytes = k->drained_bytes;
    if (s->files && k->verified >= s->files)
        out->level = FP__LEVEL__LEVEL_VERIFIED;
    else if (s->files && k->drained >= s->files)
        out->level = FP__LEVEL__LEVEL_DRAINED;
    return 0;
}
