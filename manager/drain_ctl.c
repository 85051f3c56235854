/* Draining: what fpctl asks (MSG_CTL_DRAIN).
 *
 * A request that can't be carried out is answered with lines that say why, not with a failure: only here is it known which path or target it was.
 * fpctl has no slots: START of what an active job does already names that job, so that a request may be sent twice. */
#include "manager/drain.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "fp/drainopt.h"
#include "fp/err.h"

#define PATHS_MAX MGR_DRAIN_PATHS_MAX
#define JOBS_SHOWN 64u
#define LAST_MAX   16384u
#define ASKED_MS   5000u /* how often a target that stalls is tried while somebody waits */
#define STUCK_NS   (5 * INT64_C(1000000000)) /* a job is that old before it is called stuck: its first task makes benefactors look anew */

#define refuse(c, r, ...) mgr_drain_refuse(c, &(r)->why, &(r)->n_why, __VA_ARGS__)

int mgr_drain_refuse(struct mgr_core *c, char ***why, size_t *n, const char *fmt, ...)
{
    char line[FP_DRAIN_WHY_MAX + 600];
    va_list ap;

    if (!*why && !(*why = mgr_arena_alloc(&c->arena, (PATHS_MAX + 1) * sizeof **why)))
        return mgr_doom(c, -ENOMEM);
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    if (*n <= PATHS_MAX)
        (*why)[(*n)++] = mgr_arena_text(&c->arena, line);
    return 0;
}

/* ---------------------------------------------------------------- begin */

/* Where to, and how. */
struct where {
    const char *root; /* in memory of the group */
    uint32_t target;
    bool verify, overwrite;
};

static int add_where(struct mgr_core *c, const struct fp_drain_policy *p, struct where *list, size_t *n)
{
    size_t i = 0;

    while (i < *n && strcmp(list[i].root, p->to) != 0)
        i++;
    if (i == *n) {
        list[i] = (struct where){.root = mgr_arena_text(&c->arena, p->to)};
        if (!list[i].root)
            return mgr_doom(c, -ENOMEM);
        ++*n;
    }
    list[i].verify |= p->verify;
    list[i].overwrite |= p->overwrite;
    return 0;
}

/* As told, else where the policies drain to, each target once. *n 0: nowhere, and r says why. */
static int choose_where(struct mgr_core *c, const Fp__CtlDrain *m, Fp__CtlDrainReply *r, struct where **list, size_t *n)
{
    const enum mgr_stmt st = MGR_ST_POLICY_LIST;
    struct fp_drain_policy *p = mgr_arena_zalloc(&c->arena, sizeof *p);
    char why[FP_DRAIN_WHY_MAX];
    int rc = 0, one;

    *n = 0;
    *list = mgr_arena_alloc(&c->arena, (m->dest[0] ? 1 : MGR_POLICIES_MAX) * sizeof **list);
    if (!p || !*list)
        return mgr_doom(c, -ENOMEM);
    if (m->dest[0])
        return mgr_target_parse(m->dest, p, why) ? add_where(c, p, *list, n) : refuse(c, r, "%s", why);
    for (one = mgr_db_one(&c->db, POLICY_LIST); one > 0 && !rc && *n < MGR_POLICIES_MAX; one = mgr_db_step(&c->db, st))
        if (fp_drain_parse(mgr_col_text(&c->db, st, 1), p, why) == 0)
            rc = add_where(c, p, *list, n);
    mgr_db_reset(&c->db, st);
    rc = one < 0 ? one : rc;
    return rc || *n ? rc : refuse(c, r, "there is no target: say it with --to DIRECTORY, or for all that follows with fpctl drain set to=DIRECTORY");
}

struct start {
    struct mgr_inode in[PATHS_MAX];
    ProtobufCBinaryData path[PATHS_MAX];
    size_t n;
};

static int look_up(struct mgr_core *c, const Fp__CtlDrain *m, Fp__CtlDrainReply *r, struct start *s)
{
    int rc = 0;

    for (size_t i = 0; i < m->n_paths && rc == 0; i++) {
        ProtobufCBinaryData path = m->paths[i];
        uint64_t ino;

        while (path.len && path.data[0] == '/')
            path.data++, path.len--;
        while (path.len && path.data[path.len - 1] == '/')
            path.len--;
        rc = mgr_resolve(c, path, &ino);
        rc = rc ? rc : mgr_inode_get(c, ino, &s->in[s->n]);
        if (rc == -ENOENT || rc == -ENOTDIR)
            rc = refuse(c, r, "%.*s: %s", (int)path.len, (char *)path.data, fp_strerror(rc));
        else if (!rc && !mgr_is(&s->in[s->n], S_IFREG) && !mgr_is(&s->in[s->n], S_IFDIR))
            rc = refuse(c, r, "%.*s: not a file or directory", (int)path.len, (char *)path.data);
        else if (!rc)
            s->path[s->n++] = path;
    }
    return rc;
}

/* The active job that has begun with the same; 0: none. */
static int same_job(struct mgr_core *c, const Fp__CtlDrain *m, const struct start *s, enum _Fp__JobKind kind, const struct where *to, uint64_t *id)
{
    const enum mgr_stmt st = MGR_ST_DFILE_FIRST;
    const struct mgr_drain *d = c->drain;
    int rc = 0;

    *id = 0;
    for (size_t i = 0; i < d->njobs && !*id && rc >= 0; i++) {
        const struct mgr_djob *j = &d->jobs[i];
        size_t n = 0;

        if (j->kind != kind || j->target != to->target || j->verify != to->verify || j->layout != m->layout || j->overwrite != to->overwrite || j->again != m->again ||
            j->gen != s->n)
            continue;
        for (rc = mgr_db_one(&c->db, DFILE_FIRST, DBI(j->first), DBI(s->n)); rc > 0; rc = mgr_db_step(&c->db, st))
            for (size_t k = 0; k < s->n; k++)
                n += (uint64_t)mgr_col(&c->db, st, 0) == s->in[k].ino;
        *id = n == s->n ? j->id : 0;
    }
    return rc < 0 ? rc : 0;
}

static int new_job(struct mgr_core *c, const Fp__CtlDrain *m, const struct start *s, enum _Fp__JobKind kind, const struct where *to, uint64_t *id)
{
    struct mgr_djob j = {.kind = kind,
                         .state = FP__DRAIN_STATE__DRAIN_RUNS,
                         .target = to->target,
                         .gen = s->n,
                         .dest = strdup(""),
                         .why = strdup(""),
                         .urgent = m->urgent,
                         .verify = to->verify,
                         .layout = m->layout,
                         .overwrite = to->overwrite,
                         .again = m->again};
    struct mgr_djob *at;
    int rc = mgr_djob_new(c, &j);

    *id = j.id;
    at = rc ? NULL : mgr_djob_find(c, j.id);
    for (size_t i = 0; i < s->n && !rc; i++)
        rc = mgr_drain_entry(c, at, &s->in[i], s->path[i].data, s->path[i].len);
    if (!rc)
        at->first = (uint64_t)sqlite3_last_insert_rowid(c->db.sq) - (s->n - 1); /* the row of the first path; gen: how many follow it */
    return rc ? rc : mgr_djob_put(c, at);
}

/* The newest complete set of each series below these directories. */
static int start_last(struct mgr_core *c, const Fp__CtlDrain *m, Fp__CtlDrainReply *r, const struct start *s, const struct where *to)
{
    struct mgr_auto_last l = {.target = to->target, .verify = to->verify, .urgent = m->urgent, .overwrite = to->overwrite, .again = m->again, .layout = m->layout};
    int rc = 0;

    for (size_t i = 0; i < s->n && !rc; i++) {
        size_t n;

        l.below = s->in[i].ino;
        rc = mgr_auto_last(c, &l, r->ids + r->n_ids, LAST_MAX - r->n_ids, &n);
        r->n_ids += rc ? 0 : n;
    }
    if (rc == -E2BIG)
        return refuse(c, r, "there are more than %u series of checkpoints: only so many have been begun; give directories of fewer, or --all", LAST_MAX);
    return rc || r->n_ids ? rc : refuse(c, r, "there is no complete checkpoint set: see fpctl checkpoints");
}

static int start_one(struct mgr_core *c, const Fp__CtlDrain *m, const struct start *s, enum _Fp__JobKind kind, Fp__CtlDrainReply *r, const struct where *to)
{
    uint64_t id = 0;
    int rc = same_job(c, m, s, kind, to, &id);

    if (!rc && !id)
        rc = new_job(c, m, s, kind, to, &id);
    r->ids[r->n_ids++] = id;
    return rc;
}

/* None of them is begun before all can be. */
static int find_targets(struct mgr_core *c, const Fp__CtlDrain *m, Fp__CtlDrainReply *r, struct where *to, size_t n)
{
    int rc = 0;

    for (size_t i = 0; i < n && !rc; i++) {
        const char *clash = mgr_target_clash(c, to[i].root);

        if (clash)
            return refuse(c, r, "%s and %s, which is a target already, lie one in the other: drain to %s, or to a directory beside it", to[i].root, clash, clash);
        to[i].verify = m->layout != FP_DRAIN_LOG && (m->verify || to[i].verify);
        to[i].overwrite |= m->overwrite;
        rc = mgr_target_get(c, to[i].root, &to[i].target);
    }
    return rc;
}

/* What policies have chosen and what could not be drained; it may be nothing. */
static int start_failed(struct mgr_core *c, Fp__CtlDrainReply *r)
{
    int rc = mgr_auto_failed(c, r->ids, LAST_MAX, &r->n_ids);

    return rc == -E2BIG ? refuse(c, r, "more than %u sets could not be drained: give their directories", LAST_MAX) : rc;
}

int mgr_djob_start(struct mgr_core *c, const Fp__CtlDrain *m, enum _Fp__JobKind kind, Fp__CtlDrainReply *r)
{
    struct start *s = mgr_arena_zalloc(&c->arena, sizeof *s);
    struct where nowhere = {0}, *to = &nowhere;
    size_t n = 1;
    int rc = 0;

    if (!s || !(r->ids = mgr_arena_alloc(&c->arena, LAST_MAX * sizeof *r->ids)))
        return mgr_doom(c, -ENOMEM);
    if (m->all && (m->n_paths != 1 || m->paths[0].len))
        return refuse(c, r, "all is the root alone");
    if (!m->n_paths || m->n_paths > PATHS_MAX)
        return refuse(c, r, "give from 1 to %u paths", PATHS_MAX);
    if (m->layout > FP_DRAIN_LOG || (m->layout && m->verify))
        return refuse(c, r, m->verify ? "--verify is not for --layout=log: fpctl merge compares every byte" : "this release knows the layouts file and log");
    if (m->failed)
        return start_failed(c, r);
    if (kind == FP__JOB_KIND__JOB_FILES)
        rc = choose_where(c, m, r, &to, &n);
    rc = rc ? rc : look_up(c, m, r, s);
    if (!rc && !r->n_why && to != &nowhere)
        rc = find_targets(c, m, r, to, n);
    for (size_t i = 0; i < n && !rc && !r->n_why; i++)
        rc = m->last ? start_last(c, m, r, s, &to[i]) : start_one(c, m, s, kind, r, &to[i]);
    for (size_t i = 0; i < r->n_ids && !rc; i++)
        if (mgr_djob_find(c, r->ids[i]))
            mgr_djob_asked(c, mgr_djob_find(c, r->ids[i]), 0);
    return rc;
}

/* Can this directory be a target? Nothing is begun. */
static int try_target(struct mgr_core *c, const Fp__CtlDrain *m, Fp__CtlDrainReply *r)
{
    char line[MGR_WAITS_MAX];
    struct mgr_target *t;
    struct where *to;
    uint32_t id;
    size_t n;
    int rc = choose_where(c, m, r, &to, &n);

    if (rc || r->n_why)
        return rc;
    r->tried = FP__DRAIN_TRIED__DRAIN_TRIED_UNKNOWN;
    if (mgr_target_clash(c, to->root))
        return 0; /* whoever uses it is told */
    rc = mgr_target_get(c, to->root, &id);
    t = rc ? NULL : mgr_target_find(c, id);
    if (!t)
        return rc;
    if (t->made && !t->unmarked) {
        r->tried = FP__DRAIN_TRIED__DRAIN_TRIED_WELL;
        return 0;
    }
    mgr_target_try(c, t);
    if (t->left) {
        r->tried = FP__DRAIN_TRIED__DRAIN_TRIED_SOON;
        return 0;
    }
    t->tried_ms = 0; /* that was it: who asks again wants to know anew */
    if (!mgr_target_refused(c, id, line))
        return 0;
    r->tried = FP__DRAIN_TRIED__DRAIN_TRIED_REFUSED;
    return refuse(c, r, "%s", line);
}

/* ---------------------------------------------------------------- show */

static Fp__DrainJob *job_shown(struct mgr_core *c, const struct mgr_djob *j)
{
    Fp__DrainJob *s = MGR_NEW(c, Fp__DrainJob, fp__drain_job__init);
    const struct mgr_target *t = mgr_target_find(c, j->target);
    const struct mgr_djob *at = j->state < FP__DRAIN_STATE__DRAIN_DONE ? mgr_djob_find(c, j->id) : NULL;
    struct mgr_waits waits = {.line = ""};
    char line[MGR_WAITS_MAX];

    if (!s)
        return NULL;
    if (at)
        mgr_djob_waits(c, at, &waits);
    s->id = j->id;
    s->kind = j->kind;
    s->state = j->state;
    s->to = mgr_arena_text(&c->arena, t ? t->root : "");
    s->files = j->files;
    s->files_done = j->files_done;
    s->replaced = j->replaced;
    s->bytes = j->bytes;
    s->bytes_done = j->bytes_done;
    s->rate = at && (!waits.line[0] || waits.goes_on) ? at->rate : 0;
    s->made_ns = j->made_ns;
    s->done_ns = j->done_ns;
    s->error = j->error;
    s->stuck = at && j->target && c->now.ns - j->made_ns >= STUCK_NS && mgr_target_refused(c, j->target, line);
    s->why = mgr_arena_text(&c->arena, s->stuck ? line : waits.line[0] ? waits.line : j->why);
    s->stalled = s->stuck || (waits.line[0] && !waits.goes_on && !waits.other);
    s->again_s = s->stuck ? 0 : waits.again_s;
    return s;
}

static int shown_more(struct mgr_core *c, Fp__DrainJob *s, uint64_t first)
{
    const enum mgr_stmt st = MGR_ST_DFILE_FIRST;
    const void *p;
    int rc = mgr_db_one(&c->db, DFILE_COUNT, DBI(s->id), DBI(MGR_D_FAILED));

    if (rc > 0)
        s->files_failed = (uint64_t)mgr_col(&c->db, MGR_ST_DFILE_COUNT, 0);
    mgr_db_reset(&c->db, MGR_ST_DFILE_COUNT);
    rc = rc < 0 ? rc : mgr_db_one(&c->db, DFILE_FIRST, DBI(first), DBI(1));
    if (rc > 0) {
        p = mgr_col_blob(&c->db, st, 1, &s->what.len);
        s->what.data = mgr_arena_copy(&c->arena, s->what.len ? p : "", s->what.len ? s->what.len : 1);
    }
    mgr_db_reset(&c->db, st);
    return rc < 0 ? rc : 0;
}

static int newer(const void *a, const void *b)
{
    const Fp__DrainJob *const *x = a, *const *y = b;

    return ((*x)->id < (*y)->id) - ((*x)->id > (*y)->id);
}

/* That one, or those of which somebody may wait for something: the first that are not over, and if there are few of them the newest of the others. */
static int jobs(struct mgr_core *c, uint64_t id, Fp__CtlDrainReply *r)
{
    const enum mgr_stmt st = MGR_ST_DJOB_LIST;
    uint64_t first[JOBS_SHOWN];
    int rc;

    r->jobs = mgr_arena_alloc(&c->arena, JOBS_SHOWN * sizeof *r->jobs);
    if (!r->jobs)
        return mgr_doom(c, -ENOMEM);
    for (rc = mgr_db_one(&c->db, DJOB_LIST, DBI(id), DBI(id ? (int64_t)id + 1 : INT64_MAX), DBI(JOBS_SHOWN)); rc > 0; rc = mgr_db_step(&c->db, st)) {
        struct mgr_djob j;
        Fp__DrainJob *s = mgr_djob_row(c, st, &j) ? NULL : job_shown(c, &j);

        if (s)
            mgr_djob_fini(&j);
        if (!s || (id && s->id != id))
            break;
        first[r->n_jobs] = j.first;
        r->jobs[r->n_jobs++] = s;
    }
    mgr_db_reset(&c->db, st);
    for (size_t i = 0; i < r->n_jobs && rc >= 0; i++)
        rc = shown_more(c, r->jobs[i], first[i]);
    qsort(r->jobs, r->n_jobs, sizeof *r->jobs, newer);
    return rc < 0 ? rc : 0;
}

/* Those that copy to a target, however many jobs have begun since. */
static uint64_t under_way(const struct mgr_core *c)
{
    uint64_t n = 0;

    for (size_t i = 0; i < c->drain->njobs; i++)
        n += c->drain->jobs[i].kind == FP__JOB_KIND__JOB_SET || c->drain->jobs[i].kind == FP__JOB_KIND__JOB_FILES;
    return n;
}

static Fp__TargetState *state_shown(struct mgr_core *c, const struct mgr_bnf *b, const struct mgr_target_seen *s)
{
    Fp__TargetState *k = MGR_NEW(c, Fp__TargetState, fp__target_state__init);
    char line[400], again[64] = "";

    if (!k)
        return NULL;
    if (s->again_ms > c->now.ms)
        snprintf(again, sizeof again, "; looked at again in %llu s", (unsigned long long)(s->again_ms - c->now.ms + 999) / 1000);
    snprintf(line, sizeof line, "benefactor %u of node %s%s%s%s", b->id, b->node, s->why[0] ? ": " : "", s->why, again);
    k->slow = s->slow;
    k->target = s->target;
    k->code = s->code;
    k->rate = s->rate;
    k->queued_bytes = s->queued;
    k->left_behind = s->left_behind;
    k->why = mgr_arena_text(&c->arena, line);
    return k;
}

static int targets(struct mgr_core *c, Fp__CtlDrainReply *r)
{
    const struct mgr_drain *d = c->drain;

    r->targets = mgr_arena_alloc(&c->arena, (d->ntargets + 1) * sizeof *r->targets);
    if (!r->targets)
        return mgr_doom(c, -ENOMEM);
    for (size_t i = 0; i < d->ntargets; i++) {
        if (!mgr_target_used(c, &d->targets[i]))
            continue;
        Fp__TargetInfo *t = MGR_NEW(c, Fp__TargetInfo, fp__target_info__init);

        if (!t || !(t->states = mgr_arena_alloc(&c->arena, (c->bnf_count + 1) * sizeof *t->states)))
            return mgr_doom(c, -ENOMEM);
        t->id = d->targets[i].id;
        t->root = mgr_arena_text(&c->arena, d->targets[i].root);
        for (size_t k = 0; k < c->bnf_count; k++) {
            const struct mgr_target_seen *s = c->bnfs[k]->conn ? mgr_task_seen(c, c->bnfs[k], t->id) : NULL;

            if (!s)
                continue;
            t->rate += s->rate;
            t->queued_bytes += s->queued;
            if ((t->states[t->n_states] = state_shown(c, c->bnfs[k], s)))
                t->n_states++;
        }
        r->targets[r->n_targets++] = t;
    }
    return 0;
}

static const char *chosen_by(struct mgr_core *c, uint64_t policy, char line[MGR_EVERY_TEXT])
{
    for (size_t i = 0; i < c->drain->npolicies; i++)
        if (c->drain->policies[i].id == policy && c->drain->policies[i].p.every == FP_DRAIN_EVERY_AUTO)
            return mgr_every_text(c, &c->drain->policies[i], line);
    return "";
}

static int policies(struct mgr_core *c, Fp__CtlDrainReply *r)
{
    char line[MGR_EVERY_TEXT];
    const enum mgr_stmt st = MGR_ST_POLICY_LIST;
    int rc;

    r->policies = mgr_arena_alloc(&c->arena, MGR_POLICIES_MAX * sizeof *r->policies);
    if (!r->policies)
        return mgr_doom(c, -ENOMEM);
    for (rc = mgr_db_one(&c->db, POLICY_LIST); rc > 0 && r->n_policies < MGR_POLICIES_MAX; rc = mgr_db_step(&c->db, st)) {
        Fp__PolicyInfo *p = MGR_NEW(c, Fp__PolicyInfo, fp__policy_info__init);

        if (!p)
            break;
        p->id = (uint64_t)mgr_col(&c->db, st, 0);
        p->text = mgr_arena_text(&c->arena, mgr_col_text(&c->db, st, 1));
        p->seen = (uint64_t)mgr_col(&c->db, st, 3);
        p->taken = (uint64_t)mgr_col(&c->db, st, 4);
        p->chosen = mgr_arena_text(&c->arena, chosen_by(c, p->id, line));
        r->policies[r->n_policies++] = p;
    }
    mgr_db_reset(&c->db, st);
    return rc < 0 ? rc : 0;
}

static int cancel(struct mgr_core *c, struct mgr_djob *j)
{
    uint64_t id = j->id;
    int rc = mgr_drain_cancel(c, j, FP_ECANCELLED, "cancelled by hand");

    j = mgr_drain_in_job(c, id);
    return rc || !j ? rc : mgr_drain_cancel(c, j, FP_ECANCELLED, "what it was for was cancelled by hand");
}

MGR_HANDLER(ctl_drain)
{
    const Fp__CtlDrain *m = msg;
    Fp__CtlDrainReply *r = MGR_NEW(c, Fp__CtlDrainReply, fp__ctl_drain_reply__init);
    struct mgr_djob *j;
    int rc;

    if (!r)
        return mgr_doom(c, -ENOMEM);
    rq->reply = &r->base;
    switch (m->op) {
    case FP__DRAIN_OP__DRAIN_OP_SHOW:
        j = m->id ? mgr_djob_find(c, m->id) : NULL;
        if (j)
            mgr_djob_asked(c, j, ASKED_MS);
        r->under_way = under_way(c);
        rc = jobs(c, m->id, r);
        rc = rc || m->id ? rc : targets(c, r);
        return rc || m->id ? rc : policies(c, r);
    case FP__DRAIN_OP__DRAIN_OP_START:
        rq->durable = true; /* it goes on without whoever asked */
        return mgr_djob_start(c, m, FP__JOB_KIND__JOB_FILES, r);
    case FP__DRAIN_OP__DRAIN_OP_CANCEL:
        j = mgr_djob_find(c, m->id);
        return j ? cancel(c, j) : refuse(c, r, "there is no job %llu that runs", (unsigned long long)m->id);
    case FP__DRAIN_OP__DRAIN_OP_TRY:
        return try_target(c, m, r);
    default:
        return -EOPNOTSUPP;
    }
}
