/* Draining by itself: what the policies choose becomes jobs.
 *
 * A set that becomes complete is counted in its series, and each so many-th is chosen. Its job is made in the transaction that makes it complete: so there is
 * one for each time that it is, whenever the manager dies. A set that is opened again keeps its number while files are only added; then its job goes on, and
 * when it is complete once more another job takes its place, for which what was copied before counts. One in which data is replaced is the next checkpoint
 * under an old name (programs that write two names in turn): it gets another number, and its job ends at once.
 *
 * Single files (results=, all=) are noted in a row when their data or name changes, in the same transaction, and looked at when they have been closed for a moment:
 * so none is forgotten by a manager that dies, and none is drained whose name is not yet the last one.
 *
 * Called by sets.c and policy.c, on the core's thread, in a group. Rejected: to look for complete sets without a job (a restart, or a policy that is made, would
 * drain what nobody has chosen), and to wait with the job until the set has been left alone for long (the target would be idle meanwhile). */
#include "manager/drain.h"

#include <errno.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "fp/log.h"
#include "manager/sets_int.h"

#define STEP         1024u  /* files that one group lists, or finds due */
#define FILES_OF_JOB 10000u /* single files of one job */
#define QUIET_MS     2000u  /* single files: since their last change */
#define TICK_MS      400u
#define KEPT_NS      (600 * INT64_C(1000000000)) /* of a job: who waits for many asks for one after the other */

/* ---------------------------------------------------------------- policies in memory */

static int due_load(struct mgr_core *c)
{
    const enum mgr_stmt st = MGR_ST_DUE_LIST;
    int rc;

    mgr_idmap_fini(&c->drain->due);
    for (rc = mgr_db_one(&c->db, DUE_LIST); rc > 0; rc = mgr_db_step(&c->db, st)) {
        if (!mgr_idmap_put(&c->drain->due, (uint64_t)mgr_col(&c->db, st, 0), c->now.ms))
            continue;
        mgr_db_reset(&c->db, st);
        return mgr_doom(c, -ENOMEM);
    }
    return rc;
}

void mgr_policies_forget(struct mgr_drain *d)
{
    d->catches = d->marks = false;
    free(d->policies);
    d->policies = NULL;
    d->npolicies = d->nfrees = 0;
    mgr_patterns_forget(d);
}

/* False: it is not understood (an older release has made it). */
static bool policy_row(struct mgr_core *c, enum mgr_stmt st, struct mgr_dpolicy *p)
{
    char why[FP_DRAIN_WHY_MAX];

    p->id = (uint64_t)mgr_col(&c->db, st, 0);
    p->seen = (uint64_t)mgr_col(&c->db, st, 3);
    p->taken = (uint64_t)mgr_col(&c->db, st, 4);
    p->mount = mgr_col(&c->db, st, 5) != 0;
    p->every = (uint32_t)mgr_col(&c->db, st, 6);
    p->filling = false;
    p->load = (struct mgr_load){.ms = (uint64_t)mgr_col(&c->db, st, 7), .bytes = (uint64_t)mgr_col(&c->db, st, 8), .weight = (uint64_t)mgr_col(&c->db, st, 9),
                                .last_ns = mgr_col(&c->db, st, 10)};
    if (!fp_drain_parse(mgr_col_text(&c->db, st, 1), &p->p, why))
        return true;
    FP_WARN("drain policy %llu is not followed: %s", (unsigned long long)p->id, why);
    return false;
}

bool mgr_target_has_policy(const struct mgr_core *c, uint32_t target)
{
    const struct mgr_drain *d = c->drain;

    for (size_t i = 0; i < d->ntargets; i++)
        for (size_t k = 0; k < d->npolicies && d->targets[i].id == target; k++)
            if (strcmp(d->policies[k].p.to, d->targets[i].root) == 0 && d->policies[k].p.layout == FP_DRAIN_FILE)
                return true;
    return false;
}

int mgr_policies_load(struct mgr_core *c)
{
    const enum mgr_stmt st = MGR_ST_POLICY_LIST;
    struct mgr_drain *d = c->drain;
    int rc;

    mgr_policies_forget(d);
    d->policies_gen++;
    for (rc = mgr_db_one(&c->db, POLICY_LIST); rc > 0; rc = mgr_db_step(&c->db, st)) {
        struct mgr_dpolicy *list = realloc(d->policies, (d->npolicies + 1) * sizeof *list);

        if (!list) {
            mgr_db_reset(&c->db, st);
            return mgr_doom(c, -ENOMEM);
        }
        d->policies = list;
        if (!policy_row(c, st, &list[d->npolicies]))
            continue;
        d->nfrees += list[d->npolicies].p.layout == FP_DRAIN_FILE;
        d->catches |= list[d->npolicies].p.all || list[d->npolicies].p.results[0];
        d->marks |= list[d->npolicies].p.told || list[d->npolicies].p.marker[0];
        d->npolicies++;
    }
    rc = rc < 0 ? rc : mgr_patterns_load(c);
    return rc ? rc : due_load(c);
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
    return rc ? rc : mgr_dfile_new(c, j, 0, 0, MGR_K_DIR, path.data, path.len);
}

static int new_job(struct mgr_core *c, struct mgr_djob *j, struct mgr_djob **at)
{
    int rc;

    j->state = FP__DRAIN_STATE__DRAIN_RUNS;
    j->dest = strdup("");
    j->why = strdup("");
    rc = mgr_djob_new(c, j);
    *at = rc ? NULL : mgr_djob_find(c, j->id);
    return rc;
}

static int job_of_set(struct mgr_core *c, struct mgr_djob *j, const struct mgr_set *s)
{
    struct mgr_djob *at;
    int rc;

    j->kind = FP__JOB_KIND__JOB_SET;
    j->ckpt = s->id;
    j->gen = s->gen;
    rc = new_job(c, j, &at);
    rc = rc ? rc : put_set(c, at, s);
    if (rc)
        return rc;
    at->first = (uint64_t)sqlite3_last_insert_rowid(c->db.sq);
    FP_INFO("drain job %llu: checkpoint set %llu (step %llu), the %llu. of its series, by policy %llu", (unsigned long long)j->id, (unsigned long long)s->id,
            (unsigned long long)s->step, (unsigned long long)s->seq, (unsigned long long)j->policy);
    return mgr_djob_put(c, at);
}

static int by_policy(struct mgr_core *c, const struct mgr_dpolicy *p, const struct mgr_set *s)
{
    struct mgr_djob j = {.policy = p->id, .verify = p->p.verify, .overwrite = p->p.overwrite, .layout = p->p.layout};
    int rc = mgr_target_get(c, p->p.to, &j.target);

    return rc ? rc : job_of_set(c, &j, s);
}

static int chooses(struct mgr_core *c, struct mgr_dpolicy *p, const struct mgr_set *s, bool again, bool *yes)
{
    *yes = false;
    if (p->p.all || p->p.every == FP_DRAIN_EVERY_NONE)
        return 0;
    if (p->p.every == FP_DRAIN_EVERY_AUTO)
        return mgr_every_chooses(c, p, s, again, yes);
    *yes = s->seq % p->p.every == 0;
    return 0;
}

static int count(struct mgr_core *c, const struct mgr_dpolicy *p)
{
    const struct mgr_load *l = &p->load;

    return mgr_db_exec(&c->db, POLICY_COUNT, DBI(p->id), DBI(p->seen), DBI(p->taken), DBI(p->every), DBI(l->ms), DBI(l->bytes), DBI(l->weight), DBI(l->last_ns));
}

static int end_jobs(struct mgr_core *c, uint64_t set, bool of_policies, const char *why)
{
    int rc = 0;

    for (size_t i = c->drain->njobs; i-- > 0 && !rc;) {
        struct mgr_djob *j = &c->drain->jobs[i];

        if (j->kind == FP__JOB_KIND__JOB_SET && j->ckpt == set && (j->policy || !of_policies))
            rc = mgr_drain_cancel(c, j, -ESTALE, why);
    }
    return rc;
}

int mgr_auto_complete(struct mgr_core *c, const struct mgr_set *s, bool again)
{
    int rc = again ? end_jobs(c, s->id, true, "its set was opened again: another job goes on") : 0;

    for (size_t i = 0; i < c->drain->npolicies && !rc; i++) {
        struct mgr_dpolicy *p = &c->drain->policies[i];
        bool yes, concerns;

        rc = mgr_pattern_has(c, s, p, &concerns);
        rc = rc || !concerns ? rc : chooses(c, p, s, again, &yes);
        if (rc)
            break;
        if (!concerns)
            continue;
        p->seen += !again;
        p->taken += yes && !again;
        rc = yes ? by_policy(c, p, s) : 0;
        rc = rc || again ? rc : count(c, p);
    }
    return rc;
}

int mgr_auto_over(struct mgr_core *c, uint64_t set, const char *why)
{
    return end_jobs(c, set, false, why);
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

/* Is it being drained there already, as it is now? */
static uint64_t job_under_way(const struct mgr_core *c, const struct mgr_auto_last *l, const struct mgr_set *s)
{
    for (size_t i = 0; i < c->drain->njobs; i++) {
        const struct mgr_djob *j = &c->drain->jobs[i];

        if (j->kind == FP__JOB_KIND__JOB_SET && j->ckpt == s->id && j->gen == s->gen && j->target == l->target && j->verify >= l->verify &&
            j->urgent >= l->urgent && j->layout == l->layout && j->overwrite >= l->overwrite && j->again >= l->again)
            return j->id;
    }
    return 0;
}

struct newest {
    struct mgr_set set;
    uint64_t parent; /* directory of its series */
};

/* The newest complete sets of the STEP series that follow. */
static int newest_sets(struct mgr_core *c, uint64_t after, struct newest list[STEP], size_t *n)
{
    const enum mgr_stmt st = MGR_ST_SET_NEWEST;
    int rc;

    *n = 0;
    for (rc = mgr_db_one(&c->db, SET_NEWEST, DBI(after), DBI(STEP)); rc > 0; rc = mgr_db_step(&c->db, st)) {
        mgr_set_row(c, st, &list[*n].set);
        list[(*n)++].parent = (uint64_t)mgr_col(&c->db, st, 14);
    }
    return rc;
}

static int drain_newest(struct mgr_core *c, const struct mgr_auto_last *l, const struct mgr_set *s, uint64_t *id)
{
    struct mgr_djob j = {.target = l->target, .policy = l->policy, .verify = l->verify, .urgent = l->urgent, .overwrite = l->overwrite, .again = l->again, .layout = l->layout};
    int rc;

    *id = job_under_way(c, l, s);
    if (*id)
        return 0;
    rc = job_of_set(c, &j, s);
    *id = j.id;
    return rc;
}

int mgr_auto_last(struct mgr_core *c, const struct mgr_auto_last *l, uint64_t *ids, size_t max, size_t *n)
{
    struct newest *list = mgr_arena_alloc(&c->arena, STEP * sizeof *list);
    size_t found = STEP;
    uint64_t after = 0;
    int rc = 0;

    *n = 0;
    if (!list)
        return mgr_doom(c, -ENOMEM);
    while (!rc && found == STEP) {
        rc = newest_sets(c, after, list, &found);
        after = found ? list[found - 1].set.series : after;
        for (size_t i = 0; i < found && !rc; i++) {
            bool yes;

            rc = mgr_set_is_below(c, list[i].parent, l->below, &yes);
            if (rc || !yes)
                continue;
            rc = *n == max ? -E2BIG : drain_newest(c, l, &list[i].set, &ids[*n]);
            *n += !rc;
        }
    }
    return rc;
}

struct again {
    uint64_t set, policy;
    uint32_t target;
};

static int begin_again(struct mgr_core *c, const struct again *a, uint64_t *id)
{
    struct mgr_set s;
    int rc = mgr_set_get(c, a->set, &s);

    *id = 0;
    for (size_t i = 0; i < c->drain->npolicies && !rc && !*id; i++) {
        const struct mgr_dpolicy *p = &c->drain->policies[i];
        struct mgr_djob j = {.policy = p->id, .target = a->target, .verify = p->p.verify, .overwrite = p->p.overwrite, .layout = p->p.layout};

        if (p->id != a->policy)
            continue;
        rc = job_of_set(c, &j, &s);
        *id = j.id;
    }
    return rc;
}

int mgr_auto_failed(struct mgr_core *c, uint64_t *ids, size_t max, size_t *n)
{
    const enum mgr_stmt st = MGR_ST_DJOB_FAILED;
    struct again *list = mgr_arena_alloc(&c->arena, (max + 1) * sizeof *list);
    size_t found = 0;
    int rc;

    *n = 0;
    if (!list)
        return mgr_doom(c, -ENOMEM);
    for (rc = mgr_db_one(&c->db, DJOB_FAILED, DBI(max + 1)); rc > 0; rc = mgr_db_step(&c->db, st))
        list[found++] = (struct again){.set = (uint64_t)mgr_col(&c->db, st, 1), .target = (uint32_t)mgr_col(&c->db, st, 2), .policy = (uint64_t)mgr_col(&c->db, st, 3)};
    if (!rc && found > max)
        return -E2BIG;
    for (size_t i = 0; i < found && !rc; i++) {
        rc = begin_again(c, &list[i], &ids[*n]);
        *n += !rc && ids[*n];
    }
    return rc;
}

/* ---------------------------------------------------------------- single files */

int mgr_auto_touched(struct mgr_core *c, const struct mgr_inode *in)
{
    struct mgr_drain *d = c->drain;
    bool known;
    int rc;

    if (!d->catches || !mgr_is(in, S_IFREG) || in->flags & MGR_SHADOW)
        return 0;
    known = mgr_idmap_get(&d->due, in->ino, NULL);
    if (mgr_idmap_put(&d->due, in->ino, c->now.ms))
        return mgr_doom(c, -ENOMEM);
    rc = known ? 0 : mgr_db_exec(&c->db, DUE_PUT, DBI(in->ino));
    return rc;
}

static bool wants(const struct mgr_dpolicy *p, const char *path)
{
    const char *list = p->p.results, *item;
    char glob[FP_DRAIN_LIST_MAX];
    size_t len;

    if (p->p.all)
        return true;
    while (fp_drain_next(&list, &item, &len)) {
        memcpy(glob, item, len);
        glob[len] = '\0';
        if (fnmatch(glob, path, FNM_PATHNAME) == 0)
            return true;
    }
    return false;
}

/* The job of this policy to which single files are added; another one when it is long, so that its rows go some time. */
static int collecting(struct mgr_core *c, const struct mgr_dpolicy *p, struct mgr_djob **at)
{
    struct mgr_djob j = {.kind = FP__JOB_KIND__JOB_FILES, .policy = p->id, .verify = p->p.verify, .overwrite = p->p.overwrite, .layout = p->p.layout};
    int rc;

    for (size_t i = c->drain->njobs; i-- > 0;) {
        *at = &c->drain->jobs[i];
        if ((*at)->kind == FP__JOB_KIND__JOB_FILES && (*at)->policy == p->id && (*at)->files < FILES_OF_JOB)
            return 0;
    }
    rc = mgr_target_get(c, p->p.to, &j.target);
    return rc ? rc : new_job(c, &j, at);
}

static int put_file(struct mgr_core *c, const struct mgr_dpolicy *p, const struct mgr_inode *in, const ProtobufCBinaryData *path)
{
    struct mgr_djob *at;
    int rc = collecting(c, p, &at);

    if (rc)
        return rc;
    rc = mgr_db_one(&c->db, DFILE_WAITS, DBI(in->ino), DBI(at->id));
    mgr_db_reset(&c->db, MGR_ST_DFILE_WAITS);
    if (rc)
        return rc < 0 ? rc : 0;
    rc = mgr_drain_entry(c, at, in, path->data, path->len);
    if (!rc && !at->first)
        at->first = (uint64_t)sqlite3_last_insert_rowid(c->db.sq);
    return rc ? rc : mgr_djob_put(c, at);
}

static char *text_of(struct mgr_core *c, const ProtobufCBinaryData *path)
{
    char *text = mgr_arena_zalloc(&c->arena, path->len + 1);

    if (!text)
        mgr_doom(c, -ENOMEM);
    else if (path->len)
        memcpy(text, path->data, path->len);
    return text;
}

/* Is it going to be drained by that policy, some time? */
static int is_of(struct mgr_core *c, const struct mgr_dpolicy *p, const struct mgr_inode *in, bool *yes)
{
    struct mgr_set s = {0};
    ProtobufCBinaryData path;
    char *text;
    int rc = in->ckpt && p->p.every != FP_DRAIN_EVERY_NONE ? mgr_set_get(c, in->ckpt, &s) : -ENOENT;

    *yes = !rc && s.state != MGR_SET_FORGOTTEN;
    if (*yes || (rc && rc != -ENOENT) || (!p->p.all && !p->p.results[0]))
        return rc == -ENOENT ? 0 : rc;
    path = path_of(c, in->ino);
    text = text_of(c, &path);
    *yes = text && wants(p, text);
    return text ? 0 : -ENOMEM;
}

int mgr_policies_level(struct mgr_core *c, const struct mgr_inode *in, Fp__Level *level)
{
    static const Fp__Level levels[] = {[FP_DRAIN_LOCAL] = FP__LEVEL__LEVEL_LOCAL, [FP_DRAIN_DRAINED] = FP__LEVEL__LEVEL_DRAINED, [FP_DRAIN_VERIFIED] = FP__LEVEL__LEVEL_VERIFIED};
    int rc = 0;

    *level = c->drain->npolicies ? FP__LEVEL__LEVEL_LOCAL : FP__LEVEL__LEVEL_NONE;
    for (size_t i = 0; i < c->drain->npolicies && !rc; i++) {
        const struct mgr_dpolicy *p = &c->drain->policies[i];
        bool yes = false;

        if (levels[p->p.level] > *level)
            rc = is_of(c, p, in, &yes);
        *level = yes ? levels[p->p.level] : *level;
    }
    return rc;
}

/* It has been left alone for a moment. */
static int is_due(struct mgr_core *c, uint64_t ino)
{
    ProtobufCBinaryData path = {0, NULL};
    struct mgr_inode in;
    const char *name;
    char *text;
    int rc = mgr_db_exec(&c->db, DUE_DELETE, DBI(ino));

    mgr_idmap_del(&c->drain->due, ino);
    rc = rc ? rc : mgr_inode_get(c, ino, &in);
    if (rc == -ENOENT || (!rc && !in.nlink))
        return 0;
    if (!rc)
        path = path_of(c, ino);
    if (rc || !path.len)
        return rc;
    text = text_of(c, &path);
    if (!text)
        return -ENOMEM;
    name = strrchr(text, '/');
    name = name ? name + 1 : text;
    if (mgr_set_is_temporary(name, strlen(name)))
        return 0; /* it gets another one */
    for (size_t i = 0; i < c->drain->npolicies && !rc; i++)
        if (wants(&c->drain->policies[i], text))
            rc = put_file(c, &c->drain->policies[i], &in, &path);
    return rc;
}

int mgr_auto_tick(struct mgr_core *c)
{
    struct mgr_drain *d = c->drain;
    uint64_t ino, at_ms, list[STEP];
    size_t pos = 0, n = 0;
    int rc = 0;

    if (!d->due.used || c->now.ms < d->due_ms || mgr_unsettled(c))
        return 0;
    if (!d->catches) { /* the policy that wanted them is gone */
        mgr_idmap_fini(&d->due);
        return mgr_db_exec(&c->db, DUE_CLEAR);
    }
    while (n < STEP && mgr_idmap_next(&d->due, &pos, &ino, &at_ms))
        if (c->now.ms - at_ms >= QUIET_MS && !mgr_map_get(&c->writers, ino))
            list[n++] = ino;
    d->due_ms = c->now.ms + (n == STEP ? 0 : TICK_MS);
    for (size_t i = 0; i < n && !rc; i++)
        rc = is_due(c, list[i]);
    return rc;
}

/* ---------------------------------------------------------------- jobs that are long over */

int mgr_auto_prune(struct mgr_core *c)
{
    uint64_t job = 0;
    int rc = mgr_db_one(&c->db, DJOB_OLD, DBI(MGR_JOBS_KEPT), DBI(c->now.ns - KEPT_NS));

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
