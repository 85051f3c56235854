/* Draining of what was evicted: its bytes are nowhere but in another target, so it is brought back first, by a job that stages in (drain_stage.c).
 *
 * Each job that drains has at most one such job at a time (drain_job.ckpt is its number). A file that is taken up and has external chunks asks for it, and waits; at the end of
 * the step what was asked for is made, since a new job moves the table of those that are being looked through. Both are rows, so a restart changes nothing: the file
 * asks again, and finds what has been made. What can't be brought back fails the file, with the reason.
 *
 * Rejected: benefactors that drain from one target to another without a copy here; every task of draining would have another source then, for a case that is rare.
 *
 * Core's thread, in a group. */
#include "manager/ext.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fp/err.h"

#define WHY_MAX 400u

/* What came of it when it was asked for last. */
struct asked {
    uint32_t file, job; /* states; 0: it was not */
    int error;
    char why[WHY_MAX];
};

static int look_up(struct mgr_core *c, const struct mgr_dfile *f, struct asked *a)
{
    const enum mgr_stmt st = MGR_ST_DFILE_IN;
    int rc = mgr_db_one(&c->db, DFILE_IN, DBI(f->ino), DBI(f->job));

    *a = (struct asked){0};
    if (rc > 0) {
        a->file = (uint32_t)mgr_col(&c->db, st, 0);
        a->error = (int)mgr_col(&c->db, st, 1);
        snprintf(a->why, sizeof a->why, "%s", mgr_col_text(&c->db, st, 2));
        a->job = (uint32_t)mgr_col(&c->db, st, 3);
    }
    mgr_db_reset(&c->db, st);
    return rc < 0 ? rc : 0;
}

static int fail(struct mgr_core *c, struct mgr_dfile *f, int error, const char *why)
{
    struct mgr_dfile *at = mgr_dfile_add(c, f);
    char line[WHY_MAX + 100];
    int rc;

    if (!at)
        return -ENOMEM;
    snprintf(line, sizeof line, "it was evicted, and could not be brought back to be copied: %s", why);
    rc = mgr_drain_fail(c, at, error ? error : -EIO, line);
    return rc ? rc : 1;
}

static void want(struct mgr_drain *d, const struct mgr_dfile *f)
{
    if (d->nwanted == sizeof d->wanted / sizeof *d->wanted)
        return; /* at the next tick */
    d->wanted[d->nwanted].job = f->job;
    d->wanted[d->nwanted++].ino = f->ino;
}

int mgr_drain_in(struct mgr_core *c, struct mgr_dfile *f, bool *wait)
{
    struct asked a;
    int rc = mgr_ext_any(c, f->ino);

    *wait = rc > 0;
    if (rc <= 0)
        return rc;
    rc = look_up(c, f, &a);
    if (rc)
        return rc;
    if (a.file == MGR_D_FAILED || a.file == MGR_D_CANCELLED || (a.file && a.file < MGR_D_DONE && a.job >= FP__DRAIN_STATE__DRAIN_DONE)) {
        *wait = false;
        return fail(c, f, a.error, a.why[0] ? a.why : "the job that was to do so was cancelled");
    }
    if (a.file && a.file != MGR_D_DONE)
        return 0; /* it is on its way */
    if (a.file == MGR_D_DONE && ++f->tries >= MGR_TRIES_MAX) {
        *wait = false;
        return fail(c, f, -EBUSY, "it is evicted again and again: there is too little space");
    }
    want(c->drain, f);
    return a.file == MGR_D_DONE ? mgr_dfile_put(c, f, 0, NULL) : 0;
}

struct mgr_djob *mgr_drain_in_job(struct mgr_core *c, uint64_t of)
{
    for (size_t i = 0; i < c->drain->njobs; i++)
        if (c->drain->jobs[i].kind == FP__JOB_KIND__JOB_STAGE_IN && c->drain->jobs[i].ckpt == of)
            return &c->drain->jobs[i];
    return NULL;
}

static int bring(struct mgr_core *c, uint64_t of, uint64_t ino)
{
    struct mgr_djob j = {.kind = FP__JOB_KIND__JOB_STAGE_IN, .state = FP__DRAIN_STATE__DRAIN_RUNS, .ckpt = of, .gen = 1}, *at;
    const struct mgr_djob *drains = mgr_djob_find(c, of);
    ProtobufCBinaryData path = mgr_path(c, ino);
    struct mgr_inode in;
    int rc = mgr_inode_get(c, ino, &in);

    while (path.len && path.data[0] == '/')
        path.data++, path.len--;
    if (rc || !drains || !path.len)
        return rc == -ENOENT ? 0 : rc;
    at = mgr_drain_in_job(c, of);
    if (!at) {
        j.urgent = drains->urgent;
        j.dest = strdup("");
        j.why = strdup("");
        rc = mgr_djob_new(c, &j);
        at = rc ? NULL : mgr_djob_find(c, j.id);
    }
    rc = rc ? rc : mgr_drain_entry(c, at, &in, path.data, path.len);
    if (!rc && !at->first)
        at->first = (uint64_t)sqlite3_last_insert_rowid(c->db.sq);
    return rc ? rc : mgr_djob_put(c, at);
}

int mgr_drain_in_step(struct mgr_core *c)
{
    struct mgr_drain *d = c->drain;
    int rc = 0;

    for (size_t i = 0; i < d->nwanted && !rc; i++)
        rc = bring(c, d->wanted[i].job, d->wanted[i].ino);
    if (d->nwanted)
        d->dirty = c->busy = true;
    d->nwanted = 0;
    return rc;
}
