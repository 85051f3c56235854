/* What this store needs in targets, said there so that other stores replace none of it (drain/needed.c).
 *
 * A target gets a number (target.needs) before anything is evicted in favour of a file in it. Whoever looks at such a file for us (TASK_STAT) is told the name that
 * goes with it, makes the entry of that name, and marks the file; nothing is evicted before that has been answered. When no chunk is kept by a file of the target any
 * more, the number is given up, and the entry with it. The next one is another: what a benefactor does late for the one before harms nothing, and the sweep for
 * temporary files finds it.
 *
 * A file stays marked as long as the store has a row of ext for it: a chunk that was fetched again is safe by its copy in the target, too.
 *
 * Rejected: to take marks off single files when they are not needed any more (a task for each file that a program deletes); a number for all targets (one that hangs
 * would keep the others).
 *
 * Called by the core's thread, in a group. */
#include "manager/ext.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "fp/drainwire.h"
#include "fp/log.h"

#define LOOK_MS 5000u

int mgr_needs(struct mgr_core *c, uint32_t target)
{
    struct mgr_target *t = mgr_target_find(c, target);
    int rc;

    if (!t || t->needs)
        return 0;
    rc = mgr_drain_gen(c, &t->needs);
    t->needs_ms = c->now.ms + LOOK_MS;
    return rc ? rc : mgr_db_exec(&c->db, TARGET_NEEDS, DBI(t->id), DBI(t->needs));
}

static void clean(struct mgr_core *c, const struct mgr_target *t, uint64_t number)
{
    const struct mgr_dfile f = {.id = number, .target = t->id};

    mgr_task_clean(c, &f, false);
}

bool mgr_needs_swept(struct mgr_core *c, const struct mgr_target *t, const char *name)
{
    unsigned long long number;
    int end = 0;

    if (sscanf(name, "%*8[0-9a-f]-needs-%llx%n", &number, &end) != 1 || (name[end] && strcmp(name + end, "-all") != 0))
        return false;
    if (number != t->needs)
        clean(c, t, number);
    return true;
}

/* The name of its entry; -ESTALE: nothing of it is needed. */
static int entry_of(struct mgr_core *c, uint32_t target, ProtobufCBinaryData *out)
{
    const struct mgr_target *t = mgr_target_find(c, target);
    char name[MGR_TMP_NAME];

    if (!t || !t->needs)
        return -ESTALE;
    mgr_task_tmp(c, t->needs, 0, name);
    out->len = strlen(name);
    out->data = mgr_arena_copy(&c->arena, name, out->len);
    return out->data ? 0 : -ENOMEM;
}

int mgr_needs_mark(struct mgr_core *c, Fp__Task *k, uint32_t target)
{
    return entry_of(c, target, &k->mark);
}

/* What is kept by the file that it takes the place of is kept by it from then on (mgr_ext_replaced): so it has the mark before it has the name. */
static int fill_finish(struct mgr_core *c, Fp__Task *k, const struct mgr_dfile *f)
{
    Fp__XattrEntry *x;
    int rc = c->exts ? mgr_db_one(&c->db, EXT_AT_PATH, DBI(f->target), DBB(k->dest->path.data, k->dest->path.len)) : 0;

    mgr_db_reset(&c->db, MGR_ST_EXT_AT_PATH);
    if (rc <= 0)
        return rc;
    x = MGR_NEW(c, Fp__XattrEntry, fp__xattr_entry__init);
    k->xattrs = mgr_arena_alloc(&c->arena, MGR_TASK_XATTRS_MAX * sizeof *k->xattrs);
    if (!x || !k->xattrs)
        return -ENOMEM;
    x->name.len = sizeof FP_DW_NEED_XATTR - 1;
    x->name.data = mgr_arena_copy(&c->arena, FP_DW_NEED_XATTR, x->name.len);
    k->xattrs[k->n_xattrs++] = x;
    rc = x->name.data ? entry_of(c, f->target, &x->value) : -ENOMEM;
    return rc;
}

int mgr_needs_fill(struct mgr_core *c, Fp__Task *k, const struct mgr_dfile *f)
{
    const struct mgr_djob *j = mgr_djob_find(c, f->job);

    if (k->kind == FP__TASK_KIND__TASK_STAT)
        return j && j->kind == FP__JOB_KIND__JOB_EVICT ? mgr_needs_mark(c, k, f->target) : 0;
    if (k->kind != FP__TASK_KIND__TASK_PREPARE && k->kind != FP__TASK_KIND__TASK_FINISH)
        return 0;
    k->force = j && j->overwrite;
    if (mgr_db_one(&c->db, TFILE_OWN, DBI(f->target), DBB(k->dest->path.data, k->dest->path.len)) > 0)
        k->own_ino = (uint64_t)mgr_col(&c->db, MGR_ST_TFILE_OWN, 0);
    mgr_db_reset(&c->db, MGR_ST_TFILE_OWN);
    return k->kind == FP__TASK_KIND__TASK_FINISH && f->kind == MGR_K_FILE ? fill_finish(c, k, f) : 0;
}

bool mgr_needs_due(const struct mgr_core *c)
{
    for (size_t i = 0; i < c->drain->ntargets; i++)
        if (c->drain->targets[i].needs && c->now.ms >= c->drain->targets[i].needs_ms)
            return true;
    return false;
}

static bool is_evicting(struct mgr_core *c, uint32_t target)
{
    for (size_t i = 0; i < c->drain->nfiles; i++) {
        const struct mgr_djob *j = mgr_djob_find(c, c->drain->files[i].job);

        if (c->drain->files[i].target == target && j && j->kind == FP__JOB_KIND__JOB_EVICT)
            return true;
    }
    return false;
}

/* Or later, when its entry can be removed: a store that is about to go makes no sweep that would find it. */
static int give_up(struct mgr_core *c, struct mgr_target *t)
{
    uint64_t number = t->needs;
    int rc;

    if (!mgr_task_clean_has_room(c))
        return 0;
    t->needs = 0;
    rc = mgr_db_exec(&c->db, TARGET_NEEDS, DBI(t->id), DBI(0));
    clean(c, t, number);
    return rc;
}

static int give_up_unused(struct mgr_core *c, struct mgr_target *t)
{
    int rc = mgr_db_one(&c->db, EXT_AT, DBI(t->id));

    mgr_db_reset(&c->db, MGR_ST_EXT_AT);
    if (rc)
        return rc < 0 ? rc : 0;
    rc = give_up(c, t);
    if (!t->needs)
        FP_INFO("target %s: nothing that was evicted is only there any more", t->root);
    return rc;
}

/* Nothing is being evicted to it, or to be had from it, that has no row of ext yet. */
static bool is_settled(struct mgr_core *c, uint32_t target)
{
    return !is_evicting(c, target) && !mgr_rescue_due(c);
}

int mgr_needs_step(struct mgr_core *c)
{
    int rc = 0;

    for (size_t i = 0; i < c->drain->ntargets && !rc; i++) {
        struct mgr_target *t = &c->drain->targets[i];

        if (!t->needs || c->now.ms < t->needs_ms)
            continue;
        t->needs_ms = c->now.ms + LOOK_MS;
        if (is_settled(c, t->id))
            rc = give_up_unused(c, t);
    }
    return rc;
}

/* Benefactors have not removed its entry yet. */
static bool is_cleaned(const struct mgr_core *c, uint32_t target)
{
    for (size_t i = 0; i < c->drain->nclean; i++)
        if (!c->drain->clean[i].gen && c->drain->clean[i].target == target)
            return false;
    return true;
}

/* The store is about to be removed: what it relies on in targets may be replaced by others from now on. Asked again until no target is left. */
MGR_HANDLER(ctl_release)
{
    Fp__CtlReleaseReply *r = MGR_NEW(c, Fp__CtlReleaseReply, fp__ctl_release_reply__init);
    int rc = 0;

    (void)msg;
    if (!r)
        return mgr_doom(c, -ENOMEM);
    rq->reply = &r->base;
    r->targets = mgr_arena_alloc(&c->arena, (c->drain->ntargets + 1) * sizeof *r->targets);
    for (size_t i = 0; r->targets && i < c->drain->ntargets && !rc; i++) {
        struct mgr_target *t = &c->drain->targets[i];

        if (t->needs && is_settled(c, t->id)) {
            rc = give_up(c, t);
            if (!t->needs)
                FP_INFO("target %s: this store relies on nothing there any more, as it was told", t->root);
        }
        if (t->needs || !is_cleaned(c, t->id))
            r->targets[r->n_targets++] = mgr_arena_text(&c->arena, t->root);
    }
    return rc || !r->targets ? mgr_doom(c, rc ? rc : -ENOMEM) : 0;
}
