/* How far draining is, for people: how fast a job goes, and what is done of a checkpoint set.
 *
 * A job's rate is of what it has counted since it was looked at last, smoothed over some seconds, since parts of up to 64 MiB end at once; it is of this manager's life
 * and nothing is kept of it. What is done of a set are the numbers of its job, where that is of nothing else; of a job of more, those of the files of the set that the job
 * has found up to now, so they may grow. Jobs that have ended are not shown: what has come of them is the level.
 *
 * Rejected: counters of each set in its row, which every part that is done would have to change; the rate that benefactors measure, which is of
 * the target, not of the job, and stays when nothing is written. Of a job that waits for somebody no rate is told: what it was says nothing of what is left.
 *
 * Core's thread, in a group. */
#include "manager/drain.h"

#include <errno.h>
#include <string.h>

#include "manager/level.h"

#define RATE_MS   1000u
#define SMOOTH    4u    /* so many times the old rate, once the new one */
#define PATHS_MAX 16u   /* of a job, that are compared with a set one by one */
#define DEPTH_MAX 64u

static void measure(struct mgr_djob *j, uint64_t now_ms)
{
    uint64_t ms = now_ms - j->rate_ms, bytes = j->bytes_done > j->rate_bytes ? j->bytes_done - j->rate_bytes : 0, rate;

    if (j->rate_ms && ms < RATE_MS)
        return;
    if (j->rate_ms) {
        rate = (uint64_t)((double)bytes * 1000 / (double)ms);
        j->rate = j->rate ? (SMOOTH * j->rate + rate) / (SMOOTH + 1) : rate;
    }
    j->rate_ms = now_ms;
    j->rate_bytes = j->bytes_done;
}

void mgr_progress_tick(struct mgr_core *c)
{
    for (size_t i = 0; i < c->drain->njobs; i++)
        measure(&c->drain->jobs[i], c->now.ms);
}

/* ---------------------------------------------------------------- of a set */

/* The directory that a set is, or in which its files lie; 0: it has none. */
static int dir_of(struct mgr_core *c, const struct mgr_set *s, uint64_t *dir)
{
    struct mgr_inode in = {0};
    int rc = s->top ? 0 : mgr_set_member(c, s->id, 0, &in);

    *dir = s->top ? s->top : in.parent;
    return rc == -ENOENT ? 0 : rc;
}

/* Does this path of a job lead to it? *whole: it is its directory. */
static int leads_to(struct mgr_core *c, const struct mgr_set *s, uint64_t ino, bool *yes, bool *whole)
{
    struct mgr_inode in;
    uint64_t dir;
    int rc;

    *yes = *whole = s->top && ino == s->top;
    if (*yes)
        return 0;
    rc = mgr_inode_get(c, ino, &in);
    if (rc)
        return rc == -ENOENT ? 0 : rc;
    *yes = in.ckpt == s->id;
    rc = *yes ? 0 : dir_of(c, s, &dir);
    return rc || *yes || !dir ? rc : mgr_set_is_below(c, dir, ino, yes);
}

/* Has the job begun with this directory? */
static int has_begun_with(struct mgr_core *c, const struct mgr_djob *j, uint64_t ino, bool *yes)
{
    int rc = mgr_db_one(&c->db, DFILE_BEGUN, DBI(ino), DBI(j->id), DBI(j->first), DBI(j->first + j->gen));

    *yes = rc > 0;
    mgr_db_reset(&c->db, MGR_ST_DFILE_BEGUN);
    return rc < 0 ? rc : 0;
}

/* One with many paths: they are looked up by what is above the set, then by its files, if there are not too many of them for this answer. */
static int is_of_many(struct mgr_core *c, const struct mgr_djob *j, const struct mgr_set *s, uint32_t look, bool *yes)
{
    struct mgr_inode in;
    uint64_t dir;
    int rc = dir_of(c, s, &dir);

    for (unsigned depth = 0; !rc && dir && !*yes && depth < DEPTH_MAX; depth++) {
        rc = has_begun_with(c, j, dir, yes);
        rc = rc || dir == MGR_ROOT_INO ? rc : mgr_inode_get(c, dir, &in);
        dir = rc || dir == MGR_ROOT_INO ? 0 : in.parent;
    }
    if ((rc && rc != -ENOENT) || *yes || s->files > look)
        return rc == -ENOENT ? 0 : rc;
    rc = mgr_db_one(&c->db, DFILE_MEMBER, DBI(s->id), DBI(j->id));
    *yes = rc > 0;
    mgr_db_reset(&c->db, MGR_ST_DFILE_MEMBER);
    return rc < 0 ? rc : 0;
}

/* Does this job drain it? *whole: all that it counts is of it. */
static int is_of(struct mgr_core *c, const struct mgr_djob *j, const struct mgr_set *s, uint32_t look, bool *yes, bool *whole)
{
    const enum mgr_stmt st = MGR_ST_DFILE_FIRST;
    uint64_t inos[PATHS_MAX];
    size_t got = 0;
    int rc = 0;

    *yes = *whole = false;
    if (j->kind == FP__JOB_KIND__JOB_SET) {
        *yes = *whole = j->ckpt == s->id && j->gen == s->gen;
        return 0;
    }
    if (j->kind != FP__JOB_KIND__JOB_FILES)
        return 0;
    if (j->gen > PATHS_MAX)
        return is_of_many(c, j, s, look, yes);
    for (rc = mgr_db_one(&c->db, DFILE_FIRST, DBI(j->first), DBI(j->gen)); rc > 0; rc = mgr_db_step(&c->db, st))
        inos[got++] = (uint64_t)mgr_col(&c->db, st, 0);
    for (size_t i = 0; i < got && !*yes && rc >= 0; i++)
        rc = leads_to(c, s, inos[i], yes, whole);
    *whole = *whole && j->gen == 1;
    return rc < 0 ? rc : 0;
}

/* Of a job of more than this set. */
static int count(struct mgr_core *c, const struct mgr_djob *j, const struct mgr_set *s, Fp__CkptSet *m)
{
    const enum mgr_stmt st = MGR_ST_DFILE_OF_SET;
    struct mgr_inode in;
    int rc = mgr_db_one(&c->db, DFILE_OF_SET, DBI(s->id), DBI(j->id));

    m->drain_bytes = rc > 0 ? (uint64_t)mgr_col(&c->db, st, 0) : 0;
    m->drain_bytes_done = rc > 0 ? (uint64_t)mgr_col(&c->db, st, 1) : 0;
    mgr_db_reset(&c->db, st);
    for (size_t i = 0; i < c->drain->nfiles && rc >= 0; i++) { /* and parts of those that are worked on */
        const struct mgr_dfile *f = &c->drain->files[i];

        if (f->job != j->id || f->kind != MGR_K_FILE || mgr_inode_get(c, f->ino, &in) || in.ckpt != s->id)
            continue;
        rc = mgr_db_one(&c->db, DPART_DONE, DBI(f->id));
        m->drain_bytes_done += rc > 0 ? (uint64_t)mgr_col(&c->db, MGR_ST_DPART_DONE, 0) : 0;
        mgr_db_reset(&c->db, MGR_ST_DPART_DONE);
    }
    return rc < 0 ? rc : 0;
}

static int tell(struct mgr_core *c, const struct mgr_djob *j, const struct mgr_set *s, bool whole, uint32_t *look, Fp__CkptSet *m)
{
    const struct mgr_target *t = mgr_target_find(c, j->target);
    struct mgr_waits waits;
    int rc = 0;

    mgr_djob_waits(c, j, &waits);

    if (whole) {
        m->drain_bytes = j->bytes;
        m->drain_bytes_done = j->bytes_done;
    } else if (s->files <= *look) {
        *look -= (uint32_t)s->files;
        rc = count(c, j, s, m);
    }
    if (m->drain_bytes_done > m->drain_bytes) /* of a file that is copied anew the parts may be of both */
        m->drain_bytes_done = m->drain_bytes;
    m->drain_rate = !waits.line[0] || waits.goes_on ? j->rate : 0;
    m->drain_job = j->id;
    m->to = mgr_arena_text(&c->arena, t ? t->root : "");
    m->drain_why = mgr_arena_text(&c->arena, waits.line[0] ? waits.line : j->why);
    m->drain_again_s = waits.again_s;
    return rc ? rc : m->to && m->drain_why ? 0 : mgr_doom(c, -ENOMEM);
}

int mgr_progress_set(struct mgr_core *c, const struct mgr_set *s, uint32_t *look, Fp__CkptSet *m)
{
    int rc = 0;

    for (size_t i = 0; i < c->drain->njobs && !m->drain_job && !rc; i++) { /* the first that works on it: they are served in their order */
        const struct mgr_djob *j = &c->drain->jobs[i];
        bool yes, whole;

        rc = is_of(c, j, s, *look, &yes, &whole);
        if (!rc && yes)
            rc = tell(c, j, s, whole, look, m);
    }
    return rc;
}
