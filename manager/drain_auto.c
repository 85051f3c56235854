/* Draining by itself: what the policies choose becomes jobs.
 *
 * A set that becomes complete is counted in its series, and each so many-th is chosen. Its job is made in the transaction that makes it complete: so there is
 * one for each time that it is, whenever the manager dies. A set that is opened again keeps its number while files are only added; then its job goes on, and
 * when it is complete once more another job takes its place, for which what was copied before counts. One in which data is replaced is the next checkpoint
 * under an old name (programs that write two names in turn): it gets another number, and its job ends at once.
 *
 * Called by sets.c and policy.c, on the core's thread, in a group. Rejected: to look for complete sets without a job (a restart, or a policy that is made, would
 * drain what nobody has chosen), and to wait with the job until the set has been left alone for long (the target would be idle meanwhile). */
#include "manager/drain.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fp/log.h"
#include "manager/sets.h"

#define STEP 1024u /* members that one group lists */

/* ---------------------------------------------------------------- policies in memory */

void mgr_policies_forget(struct mgr_drain *d)
{
    free(d->policies);
    d->policies = NULL;
    d->npolicies = 0;
}

static int policy_row(struct mgr_core *c, enum mgr_stmt st, struct mgr_dpolicy *p)
{
    char why[FP_DRAIN_WHY_MAX];

    p->id = (uint64_t)mgr_col(&c->db, st, 0);
    p->seen = (uint64_t)mgr_col(&c->db, st, 3);
    p->taken = (uint64_t)mgr_col(&c->db, st, 4);
    p->mount = mgr_col(&c->db, st, 5) != 0;
    if (!fp_drain_parse(mgr_col_text(&c->db, st, 1), &p->p, why))
        return 1;
    FP_WARN("drain policy %llu is not followed: %s", (unsigned long long)p->id, why);
    return 0;
}

int mgr_policies_load(struct mgr_core *c)
{
    const enum mgr_stmt st = MGR_ST_POLICY_LIST;
    struct mgr_drain *d = c->drain;
    int rc;

    mgr_policies_forget(d);
    for (rc = mgr_db_one(&c->db, POLICY_LIST); rc > 0; rc = mgr_db_step(&c->db, st)) {
        struct mgr_dpolicy *list = realloc(d->policies, (d->npolicies + 1) * sizeof *list);

        if (!list) {
            mgr_db_reset(&c->db, st);
            return mgr_doom(c, -ENOMEM);
        }
        d->policies = list;
        d->npolicies += (size_t)policy_row(c, st, &list[d->npolicies]);
    }
    return rc;
}

/* ---------------------------------------------------------------- sets */

/* As names in a target are: from the root, without a slash before it. */
static ProtobufCBinaryData path_of(struct mgr_core *c, uint64_t ino)
{
    ProtobufCBinaryData path = mgr_path(c, ino);

    if (path.len && path.data[0] == '/')
        path.data++, path.len--;
    return path;
}

/* Its directory, or a row that stands for its files, which lie beside others. */
static int put_set(struct mgr_core *c, struct mgr_djob *j, const struct mgr_set *s)
{
    ProtobufCBinaryData path = {0, NULL};
    struct mgr_inode top;
    int rc;

    if (s->top) {
        rc = mgr_inode_get(c, s->top, &top);
        path = path_of(c, s->top);
        return rc ? rc : mgr_drain_entry(c, j, &top, path.data, path.len);
    }
    rc = mgr_set_path(c, s, &path);
    if (path.len && path.data[0] == '/')
        path.data++, path.len--;
    return rc ? rc : mgr_dfile_new(c, j, 0, 0, true, path.data, path.len);
}

static int job_of_set(struct mgr_core *c, struct mgr_dpolicy *p, const struct mgr_set *s)
{
    struct mgr_djob j = {.kind = FP__JOB_KIND__JOB_SET,
                         .state = FP__DRAIN_STATE__DRAIN_RUNS,
                         .policy = p->id,
                         .ckpt = s->id,
                         .gen = s->gen,
                         .dest = strdup(""),
                         .why = strdup(""),
                         .verify = p->p.verify};
    struct mgr_djob *at;
    int rc = mgr_target_get(c, p->p.to, &j.target);

    if (rc) {
        mgr_djob_fini(&j);
        return rc;
    }
    rc = mgr_djob_new(c, &j);
    at = rc ? NULL : mgr_djob_find(c, j.id);
    rc = rc ? rc : put_set(c, at, s);
    if (rc)
        return rc;
    at->first = (uint64_t)sqlite3_last_insert_rowid(c->db.sq);
    FP_INFO("drain job %llu: checkpoint set %llu (step %llu), the %llu. of its series, by policy %llu", (unsigned long long)j.id, (unsigned long long)s->id,
            (unsigned long long)s->step, (unsigned long long)s->seq, (unsigned long long)p->id);
    return mgr_djob_put(c, at);
}

static bool chooses(const struct mgr_dpolicy *p, const struct mgr_set *s)
{
    return p->p.every != FP_DRAIN_EVERY_NONE && p->p.every != FP_DRAIN_EVERY_AUTO && s->seq % p->p.every == 0;
}

int mgr_auto_complete(struct mgr_core *c, const struct mgr_set *s, bool again)
{
    int rc = c->drain->njobs ? mgr_auto_over(c, s->id, "its set was opened again: another job goes on") : 0;

    for (size_t i = 0; i < c->drain->npolicies && !rc; i++) {
        struct mgr_dpolicy *p = &c->drain->policies[i];
        bool yes = chooses(p, s);

        p->seen += !again;
        p->taken += yes && !again;
        rc = yes ? job_of_set(c, p, s) : 0;
        rc = rc || again ? rc : mgr_db_exec(&c->db, POLICY_COUNT, DBI(p->id), DBI(p->seen), DBI(p->taken));
    }
    return rc;
}

int mgr_auto_over(struct mgr_core *c, uint64_t set, const char *why)
{
    int rc = 0;

    for (size_t i = c->drain->njobs; i-- > 0 && !rc;)
        if (c->drain->jobs[i].kind == FP__JOB_KIND__JOB_SET && c->drain->jobs[i].ckpt == set)
            rc = mgr_drain_cancel(c, &c->drain->jobs[i], -ESTALE, why);
    return rc;
}

int mgr_auto_members(struct mgr_core *c, struct mgr_djob *j, struct mgr_dfile *f)
{
    const enum mgr_stmt st = MGR_ST_MEMBER_LIST;
    struct mgr_inode *in = mgr_arena_alloc(&c->arena, STEP * sizeof *in);
    uint32_t n = 0;
    int rc;

    if (!in)
        return mgr_doom(c, -ENOMEM);
    for (rc = mgr_db_one(&c->db, MEMBER_LIST, DBI(j->ckpt), DBI(f->size), DBI(STEP)); rc > 0; rc = mgr_db_step(&c->db, st))
        mgr_inode_row(c, st, 0, &in[n++]);
    for (uint32_t i = 0; i < n && !rc; i++) {
        ProtobufCBinaryData path = path_of(c, in[i].ino);

        f->size = in[i].ino;
        rc = path.len ? mgr_drain_entry(c, j, &in[i], path.data, path.len) : 0;
    }
    if (rc)
        return rc;
    f->state = n == STEP ? MGR_D_WAIT : MGR_D_DONE;
    rc = mgr_dfile_put(c, f, 0, NULL);
    return rc ? rc : mgr_djob_put(c, j);
}

/* ---------------------------------------------------------------- jobs that are long over */

int mgr_auto_prune(struct mgr_core *c)
{
    uint64_t job = 0;
    int rc = mgr_db_one(&c->db, DJOB_OLD, DBI(MGR_JOBS_KEPT));

    if (rc > 0)
        job = (uint64_t)mgr_col(&c->db, MGR_ST_DJOB_OLD, 0);
    mgr_db_reset(&c->db, MGR_ST_DJOB_OLD);
    if (rc <= 0) {
        c->drain->prune = false;
        return rc;
    }
    rc = mgr_db_exec(&c->db, DFILE_PRUNE, DBI(job), DBI(4 * STEP));
    if (!rc && sqlite3_changes(c->db.sq) < (int)(4 * STEP))
        rc = mgr_db_exec(&c->db, DJOB_DELETE, DBI(job));
    c->drain->dirty = c->busy = true;
    return rc;
}
