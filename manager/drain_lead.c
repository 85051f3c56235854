/* Draining: who leads the work at a file, and whether somebody is at its name already.
 *
 * The lead is the benefactor that has the beginning of the file, if the target is well there, so that a small file is the matter of one of them. If the target is
 * well nowhere somebody has to have the task all the same, since that is what the target is tried with. Called by the core's thread, in a group. */
#include "manager/drain.h"

#include <errno.h>
#include <string.h>

#define DROP_STEP    4096u /* parts at a time */
#define LEAD_AWAY_MS 10000u

static uint32_t whose_target_is_well(struct mgr_core *c, const struct mgr_dfile *f)
{
    for (size_t i = 0; i < c->bnf_count; i++) {
        const struct mgr_bnf *b = c->bnfs[(f->id + i) % c->bnf_count];

        if (mgr_task_can(c, b, f->target))
            return b->id;
    }
    return 0;
}

int mgr_drain_choose_lead(struct mgr_core *c, const struct mgr_dfile *f, uint32_t *lead, bool *lost)
{
    struct mgr_bnf *b;
    int rc = mgr_db_one(&c->db, DPART_SLICES, DBI(f->ino), DBI(0));

    *lead = rc > 0 ? (uint32_t)mgr_col(&c->db, MGR_ST_DPART_SLICES, 2) : 0;
    *lost = rc > 0 && !*lead;
    mgr_db_reset(&c->db, MGR_ST_DPART_SLICES);
    b = mgr_bnf_find(c, *lead);
    if (rc < 0 || (b && mgr_task_can(c, b, f->target)))
        return rc < 0 ? rc : 0;
    *lead = whose_target_is_well(c, f);
    return 0;
}

uint32_t mgr_drain_any_lead(struct mgr_core *c, const struct mgr_dfile *f)
{
    uint32_t lead = whose_target_is_well(c, f);

    if (lead)
        return lead;
    for (size_t i = 0; i < c->bnf_count; i++)
        if (mgr_task_reaches(c, c->bnfs[i]))
            return c->bnfs[i]->id;
    return 0;
}

void mgr_drain_check_lead(struct mgr_core *c, struct mgr_dfile *f)
{
    const struct mgr_bnf *b = mgr_bnf_find(c, f->lead);
    uint32_t lead;
    bool lost;

    if ((f->state != MGR_D_PREPARE || f->tino) && f->state != MGR_D_FINISH)
        return;
    if (b && mgr_task_can(c, b, f->target)) {
        f->away_ms = 0;
        return;
    }
    f->away_ms = f->away_ms ? f->away_ms : c->now.ms;
    if (c->now.ms - f->away_ms < LEAD_AWAY_MS)
        return;
    if (mgr_drain_choose_lead(c, f, &lead, &lost) || !lead || lead == f->lead)
        return;
    if (f->state == MGR_D_PREPARE) {
        f->stale = true; /* it may have made the file: another name */
        return;
    }
    f->lead = lead;
    f->away_ms = 0;
    mgr_dfile_put(c, f, 0, NULL);
    mgr_tasker(c, lead)->look = true;
}

int mgr_drain_take(struct mgr_core *c, struct mgr_dfile *f, struct mgr_dfile **at)
{
    *at = NULL;
    f->lead = mgr_drain_any_lead(c, f);
    if (!f->lead)
        return 0;
    *at = mgr_dfile_add(c, f);
    return *at ? 0 : -ENOMEM;
}

int mgr_drain_prepare(struct mgr_core *c, struct mgr_dfile *at)
{
    int rc = mgr_drain_gen(c, &at->gen);

    at->state = MGR_D_PREPARE;
    at->tino = at->dev = at->low = 0;
    rc = rc ? rc : mgr_dfile_put(c, at, 0, NULL);
    mgr_tasker(c, at->lead)->look = true;
    return rc ? rc : 1;
}

static int find_where(struct mgr_core *c, struct mgr_dfile *f)
{
    ProtobufCBinaryData path;
    uint64_t sum = 0xcbf29ce484222325u;
    int rc = f->where ? 0 : mgr_drained_path(c, f, &path);

    if (rc || f->where)
        return rc;
    for (size_t i = 0; i < path.len; i++)
        sum = (sum ^ path.data[i]) * 0x100000001b3u;
    f->where = sum ? sum : 1;
    return 0;
}

int mgr_drain_is_worked_on(struct mgr_core *c, struct mgr_dfile *f)
{
    bool stages = mgr_djob_stages(mgr_djob_find(c, f->job));
    int rc = find_where(c, f);

    for (size_t i = 0; i < c->drain->nfiles && !rc; i++) {
        struct mgr_dfile *o = &c->drain->files[i];

        if (f->ino && o->ino == f->ino && stages != mgr_djob_stages(mgr_djob_find(c, o->job)))
            return 1; /* of whichever target: one evicts what the other copies */
        if (o->target != f->target)
            continue;
        rc = find_where(c, o);
        rc = rc ? rc : (f->ino && o->ino == f->ino) || o->where == f->where;
    }
    return rc;
}

int mgr_drain_is_free(struct mgr_core *c, struct mgr_dfile *f)
{
    bool left;
    int rc = mgr_drain_is_worked_on(c, f);

    if (rc)
        return rc < 0 ? rc : 0;
    rc = mgr_dparts_drop(c, f->id, DROP_STEP, &left);
    c->busy |= rc || left;
    return rc ? rc : !left;
}

/* Parts of these files were cut by who had which chunk. */
static void over_for(struct mgr_core *c, uint64_t ino)
{
    for (size_t i = 0; i < c->drain->nfiles; i++) {
        struct mgr_dfile *o = &c->drain->files[i];

        if (o->ino == ino && o->state != MGR_D_FINISH && !mgr_djob_stages(mgr_djob_find(c, o->job)))
            o->stale = c->drain->dirty = true;
    }
}

int mgr_drain_chunk_left(struct mgr_core *c, uint64_t chunk)
{
    const enum mgr_stmt st = MGR_ST_CHUNK_INOS;
    int rc;

    if (!c->drain->nfiles)
        return 0;
    for (rc = mgr_db_one(&c->db, CHUNK_INOS, DBI(chunk)); rc > 0; rc = mgr_db_step(&c->db, st))
        over_for(c, (uint64_t)mgr_col(&c->db, st, 0));
    mgr_db_reset(&c->db, st);
    return rc < 0 ? rc : 0;
}

bool mgr_drain_renames_over(struct mgr_core *c, const Fp__ExtFile *x)
{
    ProtobufCBinaryData path;

    for (size_t i = 0; i < c->drain->nfiles; i++) {
        const struct mgr_dfile *o = &c->drain->files[i];

        if (o->state != MGR_D_FINISH || o->target != x->target || mgr_drained_path(c, o, &path))
            continue;
        if (path.len == x->path.len && memcmp(path.data, x->path.data, path.len) == 0)
            return true;
    }
    return false;
}

bool mgr_drain_is_well(struct mgr_core *c, uint32_t target)
{
    const struct mgr_dfile f = {.target = target};

    return whose_target_is_well(c, &f) != 0;
}
