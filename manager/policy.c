/* Policies of draining: MSG_POLICY, of mounts whose aux-app `drain` declares one, and of fpctl.
 *
 * A policy is kept by its canonical text (common/drainopt.c), so that 10,000 mounts that declare the same make one row, and so that it
 * stays when they end: what was to be drained is drained all the same. Called by the core's thread, in a group. */
#include "manager/drain.h"

#include <errno.h>
#include <string.h>

#include "fp/drainopt.h"
#include "fp/log.h"

static int count(struct mgr_core *c, uint32_t *n)
{
    int rc;

    *n = 0;
    for (rc = mgr_db_one(&c->db, POLICY_LIST); rc > 0; rc = mgr_db_step(&c->db, MGR_ST_POLICY_LIST))
        ++*n;
    return rc;
}

static int find(struct mgr_core *c, const char *text, uint64_t *id)
{
    int rc = mgr_db_one(&c->db, POLICY_OF, DBT(text));

    *id = rc > 0 ? (uint64_t)mgr_col(&c->db, MGR_ST_POLICY_OF, 0) : 0;
    mgr_db_reset(&c->db, MGR_ST_POLICY_OF);
    return rc < 0 ? rc : 0;
}

/* Mounts of the next job say something else of the same target: what those before have said is over. */
static int replace(struct mgr_core *c, const struct fp_drain_policy *p, const char *canon)
{
    int rc = 0;

    for (size_t i = 0; i < c->drain->npolicies && !rc; i++) {
        const struct mgr_dpolicy *o = &c->drain->policies[i];

        if (!o->mount || strcmp(o->p.to, p->to) != 0)
            continue;
        FP_WARN("drain policy %llu, which mounts had made, gives way to: %s", (unsigned long long)o->id, canon);
        rc = mgr_db_exec(&c->db, POLICY_DELETE, DBI(o->id));
        rc = rc ? rc : mgr_db_exec(&c->db, TAKEN_FORGET, DBI(o->id));
    }
    return rc;
}

static bool too_many_patterns(const struct mgr_core *c, const struct fp_drain_policy *p)
{
    return c->drain->npatterns + mgr_patterns_in(p) > MGR_PATTERNS_MAX;
}

/* Somebody has given it by hand what mounts had made: it is his from now. */
static int is_there(struct mgr_core *c, uint64_t id, bool mount)
{
    int rc = mount ? 0 : mgr_db_exec(&c->db, POLICY_HAND, DBI(id));

    return rc || mount ? rc : mgr_policies_load(c);
}

static int add(struct mgr_core *c, const char *text, bool mount, Fp__PolicyReply *r)
{
    struct fp_drain_policy p;
    char why[FP_DRAIN_WHY_MAX], canon[FP_DRAIN_TEXT_MAX];
    uint32_t n, target;
    int rc;

    if (fp_drain_parse(text, &p, why)) {
        r->why = mgr_arena_text(&c->arena, why);
        return 0;
    }
    fp_drain_text(&p, canon);
    rc = find(c, canon, &r->id);
    if (rc || r->id)
        return rc ? rc : is_there(c, r->id, mount);
    if (mgr_target_clash(c, p.to)) {
        r->why = mgr_arena_text(&c->arena, "its directory lies in, or above, that of a target that is there already (fpctl drain show): drain to that one, or to a directory beside it");
        return 0;
    }
    rc = mount ? replace(c, &p, canon) : 0;
    rc = rc ? rc : count(c, &n);
    if (!rc && n >= MGR_POLICIES_MAX) {
        r->why = mgr_arena_text(&c->arena, "there are too many policies: fpctl drain remove");
        return 0;
    }
    if (!rc && mgr_patterns_in(&p) && too_many_patterns(c, &p)) {
        r->why = mgr_arena_text(&c->arena, "its patterns and those of the policies that are there are more than 64: each name that is made is compared with all of them (fpctl drain remove)");
        return 0;
    }
    rc = rc ? rc : mgr_target_get(c, p.to, &target);
    rc = rc ? rc : mgr_db_exec(&c->db, POLICY_PUT, DBT(canon), DBI(c->now.ns), DBI(mount));
    r->id = (uint64_t)sqlite3_last_insert_rowid(c->db.sq);
    if (!rc)
        FP_INFO("drain policy %llu: %s", (unsigned long long)r->id, canon);
    return rc ? rc : mgr_policies_load(c);
}

MGR_HANDLER(policy)
{
    const Fp__Policy *m = msg;
    Fp__PolicyReply *r = MGR_NEW(c, Fp__PolicyReply, fp__policy_reply__init);

    if (!r)
        return mgr_doom(c, -ENOMEM);
    rq->reply = &r->base;
    rq->durable = true; /* a user who was told that it is set must not find it gone */
    if (!m->remove)
        return add(c, m->text, rq->sess != NULL, r);
    if (rq->sess)
        return -EPERM; /* mounts come and go: what is drained is not theirs to end */
    r->id = m->remove;
    if (mgr_db_exec(&c->db, POLICY_DELETE, DBI(m->remove)))
        return c->db.err;
    if (!sqlite3_changes(c->db.sq))
        r->why = mgr_arena_text(&c->arena, "there is no such policy");
    if (mgr_db_exec(&c->db, TAKEN_FORGET, DBI(m->remove)))
        return c->db.err;
    return mgr_policies_load(c);
}
