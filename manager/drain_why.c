/* Draining: whom or what a job waits for, in a line for people. Who waits for a job, lists jobs, or looks at the checkpoint sets is told it.
 *
 * Nothing is kept of it: it is what benefactors have said of their targets, and of themselves, in the last keep-alive, and what the job's files are at. Of many reasons
 * the first is told; of a job with many files, that of some of those that are worked on. What only may be a reason (a call of a target that takes long, programs for
 * which draining holds back) does not say that the job stands still.
 *
 * Called by the core's thread, in a group. */
#include "manager/foreign.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define FILES_MAX 16u /* that are looked at */
#define PATH_SHOWN 120

static bool say(struct mgr_waits *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static bool say(struct mgr_waits *w, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(w->line, sizeof w->line, fmt, ap);
    va_end(ap);
    return true;
}

/* ---------------------------------------------------------------- targets */

static bool stalls(const struct mgr_core *c, const struct mgr_bnf *b, const struct mgr_target_seen *seen, struct mgr_waits *w)
{
    if (seen && seen->code > FP__TARGET_CODE__TARGET_OK) {
        w->again_s = seen->again_ms > c->now.ms ? (uint32_t)((seen->again_ms - c->now.ms + 999) / 1000) : 0;
        return say(w, "the target stalls on node %s: %s", b->node, seen->why);
    }
    w->goes_on = seen && seen->slow;
    return w->goes_on && say(w, "the target is slow on node %s: %s", b->node, seen->why);
}

/* Unless somebody gets on well with it: one that was never used before is tried by whoever has time. */
bool mgr_target_stalls(struct mgr_core *c, uint32_t target, struct mgr_waits *w)
{
    const struct mgr_target *t = mgr_target_find(c, target);

    *w = (struct mgr_waits){.line = ""};
    for (size_t i = 0; i < c->bnf_count && target; i++) {
        const struct mgr_target_seen *seen = mgr_task_seen(c, c->bnfs[i], target);

        if (seen && (seen->slow || !t || !t->made || !mgr_drain_is_well(c, target)) && stalls(c, c->bnfs[i], seen, w))
            return true;
    }
    return false;
}

/* ---------------------------------------------------------------- benefactors */

static bool is_there(const struct mgr_bnf *b)
{
    return b->conn && !b->conn->closing && !b->silent;
}

static bool waits_for(const struct mgr_bnf *b, struct mgr_waits *w)
{
    return say(w, "waits for benefactor %u of node %s, which is %s", b->id, b->node, is_there(b) ? "not draining: drain=off" : "away");
}

/* Has it been told something of the file? */
static bool is_at(const struct mgr_tasker *t, const struct mgr_dfile *f)
{
    for (size_t i = 0; i < t->count; i++)
        if (t->open[i].id >> 30 == f->id)
            return true;
    return false;
}

/* Is a part of the file its to write? */
static bool has_part(struct mgr_core *c, const struct mgr_bnf *b, const struct mgr_dfile *f)
{
    bool yes = mgr_db_one(&c->db, DPART_TODO, DBI(b->id), DBI(f->id), DBI(-1), DBI(1)) > 0 && (uint64_t)mgr_col(&c->db, MGR_ST_DPART_TODO, 0) == f->id;

    mgr_db_reset(&c->db, MGR_ST_DPART_TODO);
    return yes;
}

static bool holds(const struct mgr_bnf *b, const struct mgr_tasker *t, const struct mgr_target_seen *seen, struct mgr_waits *w)
{
    if (t->hold)
        return say(w, "benefactor %u of node %s holds back: hold=on", b->id, b->node);
    w->goes_on = seen && seen->holds;
    return w->goes_on && say(w, "benefactor %u of node %s holds back, as long as programs write or read there", b->id, b->node);
}

static bool benefactor(struct mgr_core *c, const struct mgr_bnf *b, const struct mgr_dfile *f, struct mgr_waits *w)
{
    const struct mgr_tasker *t = mgr_tasker(c, b->id);
    const struct mgr_target_seen *seen = mgr_task_seen(c, b, f->target);

    if (!t || !mgr_task_reaches(c, b))
        return (f->lead == b->id || (f->state == MGR_D_PARTS && has_part(c, b, f))) && waits_for(b, w);
    return (f->lead == b->id || is_at(t, f)) && (stalls(c, b, seen, w) || (is_at(t, f) && holds(b, t, seen, w)));
}

static bool nobody(struct mgr_core *c, struct mgr_waits *w)
{
    bool any = false;

    for (size_t i = 0; i < c->bnf_count; i++) {
        if (mgr_task_reaches(c, c->bnfs[i]))
            return false;
        any |= is_there(c->bnfs[i]);
    }
    return say(w, any ? "no benefactor drains: they have drain=off" : "no benefactor is there");
}

/* ---------------------------------------------------------------- files */

static bool says_file(struct mgr_core *c, uint64_t file, const char *what, struct mgr_waits *w)
{
    ProtobufCBinaryData path;

    return mgr_dfile_path(c, file, &path) == 0 && say(w, "%.*s %s", path.len < PATH_SHOWN ? (int)path.len : PATH_SHOWN, (const char *)path.data, what);
}

/* Since less than it is to be left alone for? */
static bool has_changed(const struct mgr_core *c, const struct mgr_inode *in)
{
    int64_t age = c->now.ns - in->mtime;

    return age >= 0 && age < MGR_QUIET_NS;
}

static bool is_blocked(struct mgr_core *c, const struct mgr_dfile *f, struct mgr_waits *w)
{
    char what[256];
    const struct mgr_bnf *b;
    uint64_t bnf;

    b = mgr_idmap_get(&c->drain->blocked, f->id, &bnf) ? mgr_bnf_find(c, (uint32_t)bnf) : NULL;
    if (!b || mgr_bnf_vouched(b))
        return false;
    snprintf(what, sizeof what, "would replace what was evicted, and brought back to benefactor %u of node %s, which %s: it waits for that", b->id, b->node,
             !is_there(b) ? "is away" : b->unchecked ? "has not said yet what it has" : "is failing");
    return says_file(c, f->id, what, w);
}

static bool active(struct mgr_core *c, const struct mgr_dfile *f, struct mgr_waits *w)
{
    struct mgr_inode in;

    if (is_blocked(c, f, w))
        return true;
    for (size_t i = 0; i < c->bnf_count; i++)
        if (benefactor(c, c->bnfs[i], f, w))
            return true;
    if (f->full_ms)
        return say(w, "waits for room: what is drained gives way");
    if (f->kind != MGR_K_FILE || !f->ino || !mgr_map_get(&c->writers, f->ino) || mgr_inode_get(c, f->ino, &in) || !has_changed(c, &in))
        return false;
    w->goes_on = true;
    return says_file(c, f->id, "is being written: it is copied as it is when nothing of it has changed for two seconds", w);
}

/* The first one that is not taken up. */
static bool waiting(struct mgr_core *c, const struct mgr_djob *j, struct mgr_waits *w)
{
    const enum mgr_stmt st = MGR_ST_DFILE_NEXT;
    struct mgr_dfile f = {0};
    struct mgr_inode in;
    int rc = mgr_db_one(&c->db, DFILE_NEXT, DBI(j->id), DBI(0), DBI(1));

    if (rc > 0)
        mgr_dfile_row(c, st, j, &f);
    mgr_db_reset(&c->db, st);
    if (rc > 0 && is_blocked(c, &f, w))
        return true;
    if (rc <= 0 || !f.ino || f.kind != MGR_K_FILE || mgr_djob_foreign(j) || mgr_djob_merges(j) || mgr_inode_get(c, f.ino, &in))
        return false;
    if (!mgr_djob_stages(j) && f.gen && has_changed(c, &in))
        return says_file(c, f.id, "is being changed: it is copied when nothing of it has changed for two seconds", w);
    w->other = mgr_drain_is_worked_on(c, &f) > 0;
    return w->other && says_file(c, f.id, "waits until another job has done with it", w);
}

void mgr_djob_waits(struct mgr_core *c, const struct mgr_djob *j, struct mgr_waits *w)
{
    const struct mgr_djob *in = mgr_drain_in_job(c, j->id);
    const struct mgr_target *t = mgr_target_find(c, j->target);
    unsigned n = 0;

    *w = (struct mgr_waits){.line = ""};
    if (in) {
        say(w, "what was evicted of it is brought back first, by job %llu", (unsigned long long)in->id);
        w->other = true;
        return;
    }
    if (t && t->unmarked && j->kind != FP__JOB_KIND__JOB_FOREIGN) {
        say(w, "nothing can be written to the target: it is read-only, or not the benefactor's to write to");
        return;
    }
    for (size_t i = 0; i < c->drain->nfiles && n < FILES_MAX; i++) {
        const struct mgr_dfile *f = &c->drain->files[i];

        if (f->job != j->id)
            continue;
        n++;
        if (active(c, f, w))
            return;
    }
    if (!mgr_target_stalls(c, j->target, w) && !nobody(c, w) && !n)
        waiting(c, j, w);
}
