/* What is asked about levels of durability: MSG_LEVEL. Loop thread.
 *
 * An answer comes at once and has what is true now. Who waits asks again, and says the level that is waited for, so that it is begun: a round of syncs, or a job of
 * draining. The job's number goes to and fro: so a job that has failed is told from one that nobody has begun yet, also after a restart of the manager, and
 * whoever waits anew, when the target has been mended, has another one begun.
 *
 * Who waits for a level that rests on copies in a target is told it when somebody has looked at them there (survey.c), and until then what is true without them. Who only asks is told
 * what is known. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "fp/drainopt.h"
#include "fp/err.h"
#include "manager/drain.h"
#include "manager/level.h"

#define FILES_MAX 256u /* of one job */

struct ask {
    const Fp__LevelAsk *m;
    Fp__LevelReply *r;
    bool is_set;
    struct mgr_inode in; /* the file, or the directory that is the set */
    struct mgr_set set;
    uint32_t target;     /* whose copies are meant; 0: there is none as yet, or m->to is empty, and it may be any */
};

static int set_of_dir(struct mgr_core *c, struct ask *a)
{
    int rc = mgr_db_one(&c->db, SET_TOP, DBI(a->in.ino));
    uint64_t id = rc > 0 ? (uint64_t)mgr_col(&c->db, MGR_ST_SET_TOP, 0) : 0;

    mgr_db_reset(&c->db, MGR_ST_SET_TOP);
    if (rc < 0)
        return rc;
    a->is_set = true;
    rc = id ? mgr_set_get(c, id, &a->set) : -ENODATA;
    return rc == -ENOENT || (!rc && a->set.state == MGR_SET_FORGOTTEN && !a->m->only_set) ? -ENODATA : rc;
}

/* -ENOENT; -ENODATA: neither a regular file nor a set. */
static int find(struct mgr_core *c, struct ask *a)
{
    uint64_t ino = a->m->ino;
    int rc = 0;

    if (a->m->set) {
        a->is_set = true;
        rc = mgr_set_get(c, a->m->set, &a->set);
        if (rc || !a->set.top)
            return rc == -ENOENT ? -ENODATA : rc; /* there is a path, but it is no set any more */
        ino = a->set.top;
    }
    if (!ino)
        rc = mgr_resolve(c, a->m->path, &ino);
    rc = rc ? rc : mgr_inode_get(c, ino, &a->in);
    rc = rc ? rc : mgr_inode_usable(c, &a->in);
    if (rc || a->is_set)
        return rc;
    if (mgr_is(&a->in, S_IFDIR))
        return set_of_dir(c, a);
    return mgr_is(&a->in, S_IFREG) ? 0 : -ENODATA;
}

/* "SERIES STEP" of the set that it is or belongs to. */
static int name_set(struct mgr_core *c, const struct ask *a)
{
    struct mgr_set s = a->set;
    char line[64];
    int rc = 0;

    if (!a->is_set && a->in.ckpt)
        rc = mgr_set_get(c, a->in.ckpt, &s);
    if (rc || (!a->is_set && !a->in.ckpt) || (s.state == MGR_SET_FORGOTTEN && !a->m->only_set))
        return rc == -ENOENT ? 0 : rc;
    snprintf(line, sizeof line, "%" PRIu64 " %" PRIu64, s.series, s.step);
    a->r->state = (Fp__CkptState)s.state;
    a->r->set = mgr_arena_text(&c->arena, line);
    return a->r->set ? 0 : mgr_doom(c, -ENOMEM);
}

static int level_of(struct mgr_core *c, struct ask *a, struct mgr_level *l)
{
    bool want = a->m->wait >= FP__LEVEL__LEVEL_LOCAL;
    uint32_t look = MGR_LEVEL_LOOK;

    return a->is_set ? mgr_level_set(c, &a->set, want, &look, l) : mgr_level_file(c, &a->in, want, &look, l);
}

/* The target that is meant. -EINVAL: its name makes no sense, and r says why. */
static int find_target(struct mgr_core *c, struct ask *a)
{
    char text[FP_DRAIN_TEXT_MAX], why[FP_DRAIN_WHY_MAX];
    struct fp_drain_policy *p;

    if (!a->m->to[0])
        return 0;
    if (!(p = mgr_arena_zalloc(&c->arena, sizeof *p)))
        return mgr_doom(c, -ENOMEM);
    if (snprintf(text, sizeof text, "to=\"%s\"", a->m->to) >= (int)sizeof text || fp_drain_parse(text, p, why))
        return -EINVAL;
    for (size_t i = 0; i < c->drain->ntargets; i++)
        if (strcmp(c->drain->targets[i].root, p->to) == 0)
            a->target = c->drain->targets[i].id;
    return 0;
}

/* As if there were no copies but those. */
static int only_there(struct mgr_core *c, const struct ask *a, struct mgr_level *l)
{
    Fp__Level at = FP__LEVEL__LEVEL_NONE;
    int rc = 0;

    if (l->level == FP__LEVEL__LEVEL_NONE || !l->copies)
        return 0;
    l->level = l->here;
    if (a->target && !a->is_set) {
        at = mgr_drained_level_at(c, &a->in, a->target);
    } else if (a->target && a->set.files) {
        rc = mgr_db_one(&c->db, LEVEL_DRAINED_AT, DBI(a->set.id), DBI(a->target));
        if (rc > 0 && (uint64_t)mgr_col(&c->db, MGR_ST_LEVEL_DRAINED_AT, 1) >= a->set.files)
            at = FP__LEVEL__LEVEL_VERIFIED;
        else if (rc > 0 && (uint64_t)mgr_col(&c->db, MGR_ST_LEVEL_DRAINED_AT, 0) >= a->set.files)
            at = FP__LEVEL__LEVEL_DRAINED;
        mgr_db_reset(&c->db, MGR_ST_LEVEL_DRAINED_AT);
    }
    l->level = at > l->level ? at : l->level;
    return rc < 0 ? rc : 0;
}

static int fails(struct mgr_core *c, Fp__LevelReply *r, const char *why)
{
    r->failed = true;
    r->why = mgr_arena_text(&c->arena, why);
    return r->why ? 0 : mgr_doom(c, -ENOMEM);
}

/* -------------------------------------------------------------- drained, verified */

static int drain_call(struct mgr_core *c, const struct mgr_req *rq, const Fp__CtlDrain *q, Fp__CtlDrainReply **out)
{
    struct mgr_req inner = {.conn = rq->conn};
    int rc = mgr_ctl_drain(c, &inner, q);

    *out = (Fp__CtlDrainReply *)inner.reply;
    return rc;
}

static int add_path(struct mgr_core *c, Fp__CtlDrain *q, uint64_t ino)
{
    ProtobufCBinaryData path = mgr_path(c, ino);

    if (path.len)
        q->paths[q->n_paths++] = path;
    return 0;
}

/* Those members of a set of files side by side that have not the level yet: some of them, if there are many. */
static int add_members(struct mgr_core *c, const struct ask *a, Fp__CtlDrain *q)
{
    uint64_t ino = 0, batch[FILES_MAX];
    struct mgr_inode in;
    size_t n = FILES_MAX;
    int rc = 0;

    while (n == FILES_MAX && q->n_paths < FILES_MAX && rc >= 0) {
        n = 0;
        for (rc = mgr_db_one(&c->db, MEMBER_LIST, DBI(a->set.id), DBI(ino), DBI(FILES_MAX)); rc > 0; rc = mgr_db_step(&c->db, MGR_ST_MEMBER_LIST))
            batch[n++] = ino = (uint64_t)mgr_col(&c->db, MGR_ST_MEMBER_LIST, 0);
        for (size_t i = 0; i < n && q->n_paths < FILES_MAX && rc >= 0; i++) {
            rc = mgr_inode_get(c, batch[i], &in);
            if (!rc && (a->m->to[0] ? mgr_drained_level_at(c, &in, a->target) : mgr_drained_level(c, &in)) < a->m->wait)
                rc = add_path(c, q, in.ino);
        }
    }
    return rc < 0 ? rc : 0;
}

/* A policy may have begun it. 0: no. */
static uint64_t job_of_set(const struct mgr_core *c, const struct ask *a)
{
    for (size_t i = 0; i < c->drain->njobs && a->is_set; i++) {
        const struct mgr_djob *j = &c->drain->jobs[i];

        if (j->kind == FP__JOB_KIND__JOB_SET && j->ckpt == a->set.id && j->gen == a->set.gen && j->layout == FP_DRAIN_FILE &&
            (j->verify || a->m->wait < FP__LEVEL__LEVEL_VERIFIED) &&
            (!a->m->to[0] || j->target == a->target))
            return j->id;
    }
    return 0;
}

/* It can't be copied; if it was before, that copy is not there any more, which is what is to be known. */
static int fails_to_drain(struct mgr_core *c, struct ask *a, const char *why)
{
    enum mgr_stmt st = a->is_set ? MGR_ST_SET_GONE : MGR_ST_DRAINED_GONE;
    int rc = a->is_set ? mgr_db_one(&c->db, SET_GONE, DBI(a->set.id)) : mgr_db_one(&c->db, DRAINED_GONE, DBI(a->in.ino), DBI(a->in.data_version));
    const struct mgr_target *t = rc > 0 ? mgr_target_find(c, (uint32_t)mgr_col(&c->db, st, 0)) : NULL;
    char line[1024];

    mgr_db_reset(&c->db, st);
    if (rc < 0)
        return rc;
    snprintf(line, sizeof line, "%s%.300s%s%s", t ? "a copy in " : "", t ? t->root : "", t ? " is not what was drained there any more, or has gone; " : "", why);
    return fails(c, a->r, line);
}

static int begin_job(struct mgr_core *c, struct mgr_req *rq, struct ask *a)
{
    Fp__CtlDrain q = FP__CTL_DRAIN__INIT;
    Fp__CtlDrainReply *d = NULL;
    int rc;

    a->r->job = job_of_set(c, a);
    if (a->r->job)
        return 0;
    q.op = FP__DRAIN_OP__DRAIN_OP_START;
    q.verify = a->m->wait == FP__LEVEL__LEVEL_VERIFIED;
    q.dest = a->m->to;
    if (!(q.paths = mgr_arena_alloc(&c->arena, FILES_MAX * sizeof *q.paths)))
        return mgr_doom(c, -ENOMEM);
    rc = a->is_set && !a->set.top ? add_members(c, a, &q) : add_path(c, &q, a->in.ino);
    if (!rc && !q.n_paths)
        return fails(c, a->r, "it has no name: nothing can be copied");
    rc = rc ? rc : drain_call(c, rq, &q, &d);
    if (rc)
        return rc;
    if (d->n_why)
        return fails_to_drain(c, a, d->why[0]);
    a->r->job = d->n_ids ? d->ids[0] : 0;
    rq->durable = true; /* it goes on without whoever asked */
    return 0;
}

/* The job that whoever asks has been told of. *again: it is done, or not known; another is to be begun. */
static int look_at_job(struct mgr_core *c, struct mgr_req *rq, struct ask *a, bool *again)
{
    Fp__CtlDrain q = FP__CTL_DRAIN__INIT;
    Fp__CtlDrainReply *d = NULL;
    const Fp__DrainJob *j;
    int rc;

    q.op = FP__DRAIN_OP__DRAIN_OP_SHOW;
    q.id = a->m->job;
    q.dest = (char *)"";
    rc = drain_call(c, rq, &q, &d);
    *again = !rc && !d->n_jobs;
    if (rc || *again)
        return rc;
    j = d->jobs[0];
    *again = j->state == FP__DRAIN_STATE__DRAIN_DONE; /* and it has not the level: what was drained has changed */
    a->r->job = j->id;
    a->r->bytes = j->bytes;
    a->r->bytes_done = j->bytes_done;
    a->r->rate = j->rate;
    a->r->to = j->to;
    a->r->why = j->why;
    if (j->stuck)
        return fails(c, a->r, j->why);
    if (j->state == FP__DRAIN_STATE__DRAIN_FAILED || j->state == FP__DRAIN_STATE__DRAIN_CANCELLED)
        return fails(c, a->r, j->why[0] ? j->why : "its job of draining has ended without it");
    return 0;
}

static int bring(struct mgr_core *c, struct mgr_req *rq, struct ask *a)
{
    bool again = true;
    int rc = a->m->job ? look_at_job(c, rq, a, &again) : 0;

    return rc || !again ? rc : begin_job(c, rq, a);
}

/* -------------------------------------------------------------- the answer */

/* Does what was asked for rest on copies? Then they are looked at; until they were, the level is what is here. */
static int survey(struct mgr_core *c, const struct ask *a, struct mgr_level *l)
{
    struct mgr_survey s = {.n = a->m->survey, .set = a->is_set, .verified = a->m->wait == FP__LEVEL__LEVEL_VERIFIED, .target = a->target};
    const char *why = NULL;
    int rc;

    if (!l->copies || a->m->wait == FP__LEVEL__LEVEL_NONE || l->level < a->m->wait || l->here >= a->m->wait)
        return 0;
    s.id = a->is_set ? a->set.id : a->in.ino;
    s.version = a->is_set ? a->set.gen : a->in.data_version;
    rc = mgr_survey(c, &s, &a->r->survey, &why);
    if (rc == 1 || (rc < 0 && rc != -ESTALE))
        return rc < 0 ? rc : 0;
    a->r->job = a->m->job;
    l->level = l->here;
    l->why = mgr_arena_text(&c->arena, why ? why : "a copy of it is not in the target any more, or another file is");
    return l->why ? 1 : mgr_doom(c, -ENOMEM);
}

static bool is_idle(const struct mgr_core *c, const struct ask *a)
{
    return a->is_set ? a->set.state == MGR_SET_COMPLETE : !mgr_map_get(&c->writers, a->in.ino) && !mgr_unsettled(c);
}

MGR_HANDLER(level)
{
    Fp__LevelReply *r = MGR_NEW(c, Fp__LevelReply, fp__level_reply__init);
    struct ask a = {.m = msg, .r = r};
    struct mgr_level l;
    int rc, looks;

    if (!r)
        return mgr_doom(c, -ENOMEM);
    rq->reply = &r->base;
    rc = find(c, &a);
    if (rc || a.m->only_set) {
        r->is_set = a.is_set;
        return rc ? rc : name_set(c, &a);
    }
    rc = find_target(c, &a);
    rc = rc ? rc : level_of(c, &a, &l);
    if (!rc && a.m->to[0])
        rc = only_there(c, &a, &l);
    rc = rc ? rc : name_set(c, &a);
    if (rc)
        return rc;
    looks = survey(c, &a, &l);
    if (looks < 0)
        return looks;
    r->is_set = a.is_set;
    r->level = l.level;
    r->data_version = a.is_set ? a.set.gen : a.in.data_version;
    r->why = l.why;
    r->syncing = l.syncing;
    rq->durable = l.level > FP__LEVEL__LEVEL_POOL;
    if (looks || l.level >= a.m->wait || a.m->wait == FP__LEVEL__LEVEL_NONE)
        return 0;
    if (l.level == FP__LEVEL__LEVEL_NONE || (l.never && !is_idle(c, &a)))
        return fails(c, r, l.why);
    if (a.m->only_look)
        return fails(c, r, "it is not so any more");
    if (a.m->wait >= FP__LEVEL__LEVEL_DRAINED)
        return is_idle(c, &a) ? bring(c, rq, &a) : 0;
    r->failed = l.never;
    return 0;
}
