/*
 * Checkpoint sets: how much of the store a set takes alone, which is what would be free if it was removed. Loop thread, for setmsg.c.
 *
 * A chunk is a set's own if all slices that refer to it are of files of the set; it counts with the bytes that are stored of it, once. What is shared with another set, another
 * file or a version of one (dedup, clones, a file that is rewritten in part) is nobody's own, and what is in a target only takes nothing. References beyond SHARERS are not
 * looked through: such a chunk counts as shared.
 *
 * It is counted when somebody asks, of sets that are complete or torn, in pieces of at most STEP references a group, and kept for a generation. What is not of the set can
 * change it, too (another one comes to share its chunks, or goes): any change of what is shared makes it void, but as one that dedups does so all the time, it is counted
 * anew not before AGAIN_MS, and until that is done it is told as it was.
 *
 * Rejected: refs of the chunk row, which counts each piece of a chunk that was overwritten in part, and holds of sessions; a sum in the row of the set, which each
 * reference to a chunk anywhere would have to keep right.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "manager/sets_int.h"

#define KNOWN_MAX 65536u
#define PAGE      512u
#define STEP      4096u  /* slices and references of one group */
#define SHARERS   64u
#define AGAIN_MS  10000u

struct known {
    TAILQ_ENTRY(known) next; /* being counted */
    uint64_t set, gen;
    bool queued, known;
    uint64_t bytes;          /* as counted last */
    uint64_t at_ms, shares;  /* when that was begun, and mgr_uniques.shares then */
    uint64_t ino, win;       /* how far it is */
    int64_t off;
    double sum;
};

struct mgr_uniques {
    struct mgr_idmap sets; /* -> struct known * */
    TAILQ_HEAD(, known) queue;
    uint64_t shares;       /* one more whenever references to chunks, or where these are, change */
};

struct mgr_uniques *mgr_uniques_new(void)
{
    struct mgr_uniques *t = calloc(1, sizeof *t);

    if (t)
        TAILQ_INIT(&t->queue);
    return t;
}

void mgr_uniques_forget(struct mgr_uniques *t)
{
    uint64_t id, val;
    size_t pos = 0;

    while (mgr_idmap_next(&t->sets, &pos, &id, &val))
        free((struct known *)(uintptr_t)val);
    mgr_idmap_fini(&t->sets);
    TAILQ_INIT(&t->queue);
}

void mgr_uniques_free(struct mgr_uniques *t)
{
    if (t)
        mgr_uniques_forget(t);
    free(t);
}

void mgr_chunks_shared(struct mgr_core *c)
{
    if (c->sets)
        c->sets->uniques->shares++;
}

void mgr_unique_set_gone(struct mgr_core *c, uint64_t set)
{
    struct mgr_uniques *t = c->sets->uniques;
    struct known *k;
    uint64_t val;

    if (!mgr_idmap_get(&t->sets, set, &val))
        return;
    k = (struct known *)(uintptr_t)val;
    if (k->queued)
        TAILQ_REMOVE(&t->queue, k, next);
    mgr_idmap_del(&t->sets, set);
    free(k);
}

/* -------------------------------------------------------------- counting */

static void begin(struct mgr_core *c, struct known *k)
{
    k->at_ms = c->now.ms;
    k->shares = c->sets->uniques->shares;
    k->ino = k->win = 0;
    k->off = -1;
    k->sum = 0;
    if (!k->queued)
        TAILQ_INSERT_TAIL(&c->sets->uniques->queue, k, next);
    k->queued = true;
}

static void end(struct mgr_core *c, struct known *k)
{
    TAILQ_REMOVE(&c->sets->uniques->queue, k, next);
    k->queued = false;
}

static int next_member(struct mgr_core *c, struct known *k, bool *more)
{
    struct mgr_inode in = {.ino = k->ino};
    int rc = mgr_set_member(c, k->set, k->ino, &in);

    *more = !rc;
    k->ino = in.ino;
    k->win = 0;
    k->off = -1;
    return rc == -ENOENT ? 0 : rc;
}

/* Each of its references has its share of it, so that all of them together are the chunk once. */
static int add_chunk(struct mgr_core *c, struct known *k, uint64_t chunk, uint64_t len, uint32_t *look)
{
    uint64_t refs = 0, others = 0;
    int rc = mgr_db_one(&c->db, UNIQUE_REFS, DBI(chunk), DBI(k->set), DBI(SHARERS + 1));

    if (rc > 0) {
        refs = (uint64_t)mgr_col(&c->db, MGR_ST_UNIQUE_REFS, 0);
        others = (uint64_t)mgr_col(&c->db, MGR_ST_UNIQUE_REFS, 1);
    }
    mgr_db_reset(&c->db, MGR_ST_UNIQUE_REFS);
    *look -= refs < *look ? (uint32_t)refs : *look;
    if (rc > 0 && refs && refs <= SHARERS && !others)
        k->sum += (double)len / (double)refs;
    return rc < 0 ? rc : 0;
}

/* A page of the map of one file. *end: that was all of it. */
static int add_page(struct mgr_core *c, struct known *k, uint32_t *look, bool *end)
{
    const enum mgr_stmt st = MGR_ST_UNIQUE_SLICES;
    struct { uint64_t chunk, len; } several[PAGE]; /* that more than one reference has */
    uint32_t max = *look < PAGE ? *look : PAGE, n = 0;
    size_t nseveral = 0;
    int rc;

    for (rc = mgr_db_one(&c->db, UNIQUE_SLICES, DBI(k->ino), DBI(k->win), DBI(k->off), DBI(max)); rc > 0; rc = mgr_db_step(&c->db, st), n++) {
        uint64_t len = mgr_col(&c->db, st, 4) ? (uint64_t)mgr_col(&c->db, st, 3) : 0; /* of no benefactor: it takes nothing */

        k->win = (uint64_t)mgr_col(&c->db, st, 0);
        k->off = mgr_col(&c->db, st, 1);
        if (mgr_col(&c->db, st, 5) == 1) {
            k->sum += (double)len;
        } else if (len) {
            several[nseveral].chunk = (uint64_t)mgr_col(&c->db, st, 2);
            several[nseveral++].len = len;
        }
    }
    *end = n < max;
    *look -= n;
    for (size_t i = 0; i < nseveral && !rc; i++)
        rc = add_chunk(c, k, several[i].chunk, several[i].len, look);
    return rc;
}

static int count_on(struct mgr_core *c, struct known *k, uint32_t *look)
{
    bool more = true, at_end = true;
    int rc = 0;

    while (*look && !rc && more) {
        rc = k->ino ? add_page(c, k, look, &at_end) : 0;
        if (rc || !at_end)
            continue;
        rc = next_member(c, k, &more);
        *look -= *look > 0;
    }
    if (rc || more)
        return rc;
    k->bytes = (uint64_t)(k->sum + 0.5);
    k->known = true;
    end(c, k);
    return 0;
}

int mgr_uniques_step(struct mgr_core *c)
{
    struct mgr_uniques *t = c->sets->uniques;
    uint32_t look = STEP;
    int rc = 0;

    while (look && !rc && !TAILQ_EMPTY(&t->queue))
        rc = count_on(c, TAILQ_FIRST(&t->queue), &look);
    c->busy |= !TAILQ_EMPTY(&t->queue);
    return rc;
}

/* -------------------------------------------------------------- asking */

static struct known *get(struct mgr_core *c, const struct mgr_set *s)
{
    struct mgr_uniques *t = c->sets->uniques;
    struct known *k;
    uint64_t val;

    if (mgr_idmap_get(&t->sets, s->id, &val))
        return (struct known *)(uintptr_t)val;
    if (t->sets.used >= KNOWN_MAX)
        mgr_uniques_forget(t);
    k = calloc(1, sizeof *k);
    if (!k || mgr_idmap_put(&t->sets, s->id, (uintptr_t)k)) {
        free(k);
        mgr_doom(c, -ENOMEM);
        return NULL;
    }
    k->set = s->id;
    return k;
}

int mgr_set_unique(struct mgr_core *c, const struct mgr_set *s, uint32_t *look, uint64_t *bytes, bool *known)
{
    struct known *k;
    int rc = 0;

    *known = false;
    if (s->state != MGR_SET_COMPLETE && s->state != MGR_SET_TORN)
        return 0;
    k = get(c, s);
    if (!k)
        return -ENOMEM;
    if (k->gen != s->gen) { /* 0: a new one */
        k->gen = s->gen;
        k->known = false;
        begin(c, k);
    } else if (k->known && !k->queued && k->shares != c->sets->uniques->shares && c->now.ms - k->at_ms >= AGAIN_MS) {
        begin(c, k);
    }
    if (k->queued)
        rc = count_on(c, k, look);
    *known = k->known;
    *bytes = k->bytes;
    return rc;
}
