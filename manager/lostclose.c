/*
 * Files of which what was closed is lost: with --close behind a mount answers close(2) before all of it is published, and then that mount is gone, or it can't be published.
 *
 * Programs have been told that it is well, so somebody has to be told that it is not: the log when the session ends, the file's level (none), fpctl status. Such a file
 * keeps a mark in its row (MGR_LOST_CLOSE), with that of a file whose writer is gone (settorn.c), so that a set of it is torn, and loses both in the same way. This one goes, too,
 * when the mount comes back after all and publishes what it had.
 *
 * What a session has closed and not published is known from its leases, which are in memory only: of a mount that ends while the manager is away as well, nothing is known. A close
 * counts until a commit says that it is covered (Commit.closed_upto), in the group of that commit: so a mount that dies before it has heard the answer has lost nothing. A close in its
 * last milliseconds it may not have told at all: files that it had open for writing are not called safe (MGR_UNSURE, level pool) until they are written again. Rejected: a row for each
 * close, which is what closing behind is there to spare.
 *
 * A death is seen once, and a mount that goes on says once what it could not store; its group may fail: what is to be marked is kept until a group with it is sure, and said only then.
 * So is what settorn.c marks: who was writing is forgotten with the death, whatever becomes of the group. That is tried again with ticks alone: a disk may be full for long, and who only
 * reads is not to be refused with it.
 *
 * Called by the core's thread, in a group but for mgr_lost_done.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "fp/ctlwire.h"
#include "fp/grown.h"
#include "fp/log.h"
#include "manager/sets_int.h"

_Static_assert(MGR_LOST_CLOSE == 512u, "stmt_sets.h and the index inode_lost of schema.sql have it as a number");

#define SAID_MAX  8u
#define SHOWN_MAX 64u /* of fpctl status */

struct lost {
    uint64_t ino, size; /* size: as who closed it had it, in bytes; UINT64_MAX: not known */
    uint32_t torn;      /* marks of a file whose writer is gone; 0: it was closed, and that is lost */
    bool set;           /* ino is a set, of which nobody knows which files were being written */
};

struct death {
    STAILQ_ENTRY(death) next;
    char *who;
    uint64_t living; /* the session that could not store it, and goes on; 0: it is gone */
    bool final;      /* it does not come back */
    bool writers;    /* of any: files that they were writing, of which nothing is said here */
    struct lost *file;
    size_t n, cap;
    uint64_t marked; /* of them, in this group: the others are removed */
    char names[2048];
    bool here;       /* it was marked in this group */
    bool oom;
};

STAILQ_HEAD(mgr_deaths, death);

/* ---------------------------------------------------------------- marks */

/* 1: it is marked, and to be said. 0: it is removed, and nobody wants it; or a writer is gone. Negative errno. */
static int mark(struct mgr_core *c, const struct lost *f)
{
    struct mgr_inode in;
    int rc;

    if (f->set)
        return mgr_torn_set(c, f->ino);
    if (f->torn)
        return mgr_db_exec(&c->db, FILE_TEAR, DBI(f->ino), DBI(f->torn));
    rc = mgr_inode_get(c, f->ino, &in);
    if (rc || !in.nlink)
        return rc == -ENOENT ? 0 : rc;
    rc = mgr_torn_lost(c, &in, f->size);
    return rc ? rc : 1;
}

int mgr_lost_found(struct mgr_core *c, uint64_t ino)
{
    return mgr_db_exec(&c->db, FILE_FOUND, DBI(ino), DBI(MGR_LOST_CLOSE | MGR_UNSURE));
}

/* ---------------------------------------------------------------- deaths of mounts */

static bool add(struct death *d, struct lost what)
{
    struct lost *p = fp_grown(d->file, d->n, &d->cap, sizeof *p);

    if (!p)
        return false;
    d->file = p;
    d->file[d->n++] = what;
    return true;
}

static void take(void *arg, uint64_t ino, uint64_t size)
{
    struct death *d = arg;

    d->oom |= !add(d, (struct lost){.ino = ino, .size = size});
}

static void death_free(struct death *d)
{
    free(d->who);
    free(d->file);
    free(d);
}

static void add_name(struct mgr_core *c, struct death *d, uint64_t ino)
{
    size_t at = strlen(d->names);
    ProtobufCBinaryData path = mgr_path(c, ino);

    if (path.len)
        snprintf(d->names + at, sizeof d->names - at, "%s%.*s", at ? ", " : "", (int)path.len, (const char *)path.data);
    else
        snprintf(d->names + at, sizeof d->names - at, "%sinode %" PRIu64, at ? ", " : "", ino);
}

static void count(struct mgr_core *c, struct death *d, uint64_t ino)
{
    if (++d->marked <= SAID_MAX)
        add_name(c, d, ino);
}

static int mark_all(struct mgr_core *c, struct death *d)
{
    d->marked = 0;
    d->names[0] = '\0';
    for (size_t i = 0; i < d->n; i++) {
        int rc = mark(c, &d->file[i]);

        if (rc < 0)
            return rc;
        if (rc > 0)
            count(c, d, d->file[i].ino);
    }
    d->here = true;
    return 0;
}

/* Of this group: what is left of another one is marked with the next tick. */
static struct death *of_writers(struct mgr_core *c)
{
    struct death *d;

    STAILQ_FOREACH(d, c->deaths, next)
        if (d->writers && d->here)
            return d;
    d = calloc(1, sizeof *d);
    if (!d)
        return NULL;
    d->writers = d->here = true;
    STAILQ_INSERT_TAIL(c->deaths, d, next);
    return d;
}

static int add_writer(struct mgr_core *c, struct lost what)
{
    struct death *d;

    if (!c->in_group) /* the core comes to its end, or a session whose hello failed does */
        return 0;
    d = of_writers(c);
    if (!d || !add(d, what))
        return mgr_doom(c, -ENOMEM);
    (void)mark(c, &what); /* a failure dooms the group */
    return 0;
}

int mgr_lost_torn(struct mgr_core *c, uint64_t ino, uint32_t marks)
{
    return add_writer(c, (struct lost){.ino = ino, .torn = marks});
}

int mgr_lost_torn_set(struct mgr_core *c, uint64_t set)
{
    return add_writer(c, (struct lost){.ino = set, .set = true});
}

struct unsure {
    struct mgr_core *c;
    int rc;
};

static void doubt(void *arg, uint64_t ino)
{
    struct unsure *u = arg;

    u->rc = u->rc ? u->rc : mgr_lost_torn(u->c, ino, MGR_TORN_FILE | MGR_UNSURE);
}

int mgr_lost_doubt(struct mgr_core *c, const struct mgr_session *s)
{
    struct unsure u = {.c = c};

    mgr_leases_each_written(s, doubt, &u);
    return u.rc;
}

static struct death *add_death(struct mgr_core *c, const struct mgr_session *s)
{
    struct death *d = calloc(1, sizeof *d);
    char who[600];

    if (!d)
        return NULL;
    snprintf(who, sizeof who, "session %" PRIu64 ": %.200s:%.300s", s->id, s->node, s->mountpoint);
    d->who = strdup(who);
    STAILQ_INSERT_TAIL(c->deaths, d, next);
    return d;
}

int mgr_lost_closes(struct mgr_core *c, struct mgr_session *s, bool final)
{
    struct death *d;

    if (!mgr_leases_any_closed(s))
        return 0;
    d = add_death(c, s);
    if (!d)
        return mgr_doom(c, -ENOMEM);
    d->final = final;
    mgr_leases_take_closed(s, take, d);
    if (d->oom || !d->who)
        return mgr_doom(c, -ENOMEM);
    return mark_all(c, d);
}

/* What it says in one group is said in one line. */
static struct death *of_living(struct mgr_core *c, const struct mgr_session *s)
{
    struct death *d;

    STAILQ_FOREACH(d, c->deaths, next)
        if (d->living == s->id)
            return d;
    d = add_death(c, s);
    if (d)
        d->living = s->id;
    return d;
}

static bool has(const struct death *d, uint64_t ino)
{
    size_t i = 0;

    while (i < d->n && d->file[i].ino != ino)
        i++;
    return i < d->n;
}

int mgr_lost_close(struct mgr_core *c, const struct mgr_session *s, uint64_t ino, uint64_t size)
{
    struct death *d = of_living(c, s);
    bool again = d && has(d, ino);
    int rc;

    if (d && !again)
        take(d, ino, size);
    if (!d || d->oom || !d->who)
        return mgr_doom(c, -ENOMEM);
    d->here = true;
    rc = mark(c, &(struct lost){.ino = ino, .size = size});
    if (rc > 0 && !again)
        count(c, d, ino);
    return rc < 0 ? rc : 0;
}

int mgr_lost_again(struct mgr_core *c)
{
    struct death *d;
    int rc = 0;

    STAILQ_FOREACH(d, c->deaths, next)
        rc = rc || d->writers ? rc : mark_all(c, d);
    return rc;
}

/* What was said or made of its set meanwhile did not see the mark. */
static int tear_set(struct mgr_core *c, const struct lost *f)
{
    struct mgr_inode in = {.ckpt = f->ino};
    struct mgr_set *s = NULL;
    int rc = f->set ? 0 : mgr_inode_get(c, f->ino, &in);

    rc = rc || !in.ckpt ? rc : mgr_set_touch(c, in.ckpt, &s);
    if (!rc && s)
        s->torn = true;
    return rc == -ENOENT ? 0 : rc;
}

int mgr_lost_tick(struct mgr_core *c)
{
    struct death *d;
    int rc = 0;

    STAILQ_FOREACH(d, c->deaths, next) {
        if (!d->writers)
            continue;
        rc = rc ? rc : mark_all(c, d);
        for (size_t i = 0; i < d->n && !rc; i++)
            rc = tear_set(c, &d->file[i]);
    }
    return rc;
}

static void say(const struct death *d)
{
    const char *more = d->marked > SAID_MAX ? ", ..." : "", *them = d->marked == 1 ? "it" : "them";

    if (d->living)
        FP_ERROR("%s could not store what programs had closed (--close behind) of %" PRIu64 " file%s: %s%s. That is lost; fpctl status shows %s until written again",
                 d->who ? d->who : "a mount", d->marked, d->marked == 1 ? "" : "s", d->names, more, them);
    else
        FP_ERROR("%s is gone, and had not stored what programs had closed (--close behind) of %" PRIu64 " file%s: %s%s. That is lost%s; fpctl status shows %s until written again",
                 d->who ? d->who : "a mount", d->marked, d->marked == 1 ? "" : "s", d->names, more, d->final ? "" : ", unless it comes back", them);
}

void mgr_lost_done(struct mgr_core *c, bool committed)
{
    struct death *d, *next;

    for (d = STAILQ_FIRST(c->deaths); d; d = next) {
        next = STAILQ_NEXT(d, next);
        if (!committed || !d->here) {
            d->here = false;
            continue;
        }
        if (d->marked)
            say(d);
        STAILQ_REMOVE(c->deaths, d, death, next);
        death_free(d);
    }
}

struct mgr_deaths *mgr_deaths_new(void)
{
    struct mgr_deaths *t = calloc(1, sizeof *t);

    if (t)
        STAILQ_INIT(t);
    return t;
}

void mgr_deaths_free(struct mgr_deaths *t)
{
    struct death *d;

    while (t && (d = STAILQ_FIRST(t))) {
        STAILQ_REMOVE_HEAD(t, next);
        death_free(d);
    }
    free(t);
}

/* ---------------------------------------------------------------- for fpctl status */

static int put_path(struct mgr_core *c, uint64_t ino, ProtobufCBinaryData *to)
{
    char text[32];

    *to = mgr_path(c, ino);
    if (to->len)
        return 0;
    to->len = (size_t)snprintf(text, sizeof text, "inode %" PRIu64, ino);
    to->data = mgr_arena_copy(&c->arena, text, to->len);
    return to->data ? 0 : mgr_doom(c, -ENOMEM);
}

int mgr_lost_list(struct mgr_core *c, Fp__CtlStatusReply *r)
{
    uint64_t ino[SHOWN_MAX];
    size_t n = 0;
    int rc = mgr_db_one(&c->db, LOST_COUNT, DBI(FP_LOST_COUNTED_MAX));

    r->lost_files = rc > 0 ? (uint64_t)mgr_col(&c->db, MGR_ST_LOST_COUNT, 0) : 0;
    mgr_db_reset(&c->db, MGR_ST_LOST_COUNT);
    if (rc < 0)
        return rc;
    for (rc = mgr_db_one(&c->db, LOST_LIST, DBI(SHOWN_MAX)); rc > 0; rc = mgr_db_step(&c->db, MGR_ST_LOST_LIST))
        ino[n++] = (uint64_t)mgr_col(&c->db, MGR_ST_LOST_LIST, 0);
    if (rc || !n)
        return rc;
    r->lost = mgr_arena_alloc(&c->arena, n * sizeof *r->lost);
    if (!r->lost)
        return mgr_doom(c, -ENOMEM);
    for (size_t i = 0; i < n && !rc; i++)
        rc = put_path(c, ino[i], &r->lost[r->n_lost++]);
    return rc;
}
