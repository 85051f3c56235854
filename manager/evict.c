/* Evicting: files of which a copy is in a target give their space back, chunk by chunk.
 *
 * A job of kind JOB_EVICT has files like one that drains, and the same steps (drain_job.c). A file is looked at in the target first (TASK_STAT): what the
 * copy's size, time and inode were when it was made, they must be now. Then its chunks go, some in each group, and whatever could have changed is looked at
 * again in each: an attempt ends when the file is written, opened, or its drained copy is not the one that was looked at. Nothing goes while somebody may
 * rename late in that target (drain_task.c): he could take the place of the copy. A chunk goes by three rows in one
 * transaction: where its bytes are in the target (ext), that no benefactor has it, and that it is garbage on the one that had it. The benefactor is told to
 * delete it when that is synced (bnf.c), so there is no moment at which a power failure leaves it nowhere.
 *
 * A chunk that is coded, or of which the file does not name all bytes side by side, is not to be found together in the target. There its window goes as a whole,
 * if all of it is written and its sum was told when it was drained (extwin.c). What is shared with a file that stays does so, too: nothing would be free, and an old step that could be read here would be fetched. So do
 * the newest sets of a series, a set that is being written, and files that are open: who reads a file that is being evicted would fetch it again.
 *
 * Rejected: to evict files at once when they are drained (every restart would read from the target); a state of each file "evicted" (a file that is half
 * here would be neither). */
#include "manager/ext.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "fp/log.h"
#include "fp/units.h"
#include "manager/foreign.h"
#include "manager/level.h"

#define STEP      1024u  /* chunks that one group evicts */
#define LOOKED_MS 5000u  /* for which a look at the target is good */
#define OTHERS    32u    /* files that share chunks of a window, and are looked at */
#define KEEP      2u     /* complete sets of a series, if no policy says else */

/* ---------------------------------------------------------------- what may go */

enum mgr_evict_no mgr_evict_chunk(const struct mgr_evict_fact *f)
{
    if (!f->bnf)
        return MGR_EVICT_GONE;
    if (f->data)
        return MGR_EVICT_CODED;
    if (f->chunk_off || f->slice_len != f->len)
        return MGR_EVICT_PART; /* the rest may be the same file's */
    return f->refs == 1 ? MGR_EVICT_OK : MGR_EVICT_SHARED;
}

const char *mgr_evict_file(const struct mgr_evict_file *f, bool *wait)
{
    *wait = false;
    if (f->level < FP__LEVEL__LEVEL_DRAINED)
        return "its present data is not in a target: fpctl drain it before";
    if (f->set_state == FP__CKPT_STATE__CKPT_OPEN)
        return "its checkpoint set is not complete";
    if (f->set_state == FP__CKPT_STATE__CKPT_COMPLETE && f->newer < f->keep)
        return "it is one of the newest complete sets of its series, which stay (keep= of a policy, else 2)";
    *wait = f->opens || f->unsettled;
    return f->opens ? "it is open" : f->unsettled ? "a mount may have it open that has not come back since the manager was started" : NULL;
}

/* ---------------------------------------------------------------- of this file */

/* Complete sets of a series that stay: the most that a policy asks for. */
static uint64_t keep_of(const struct mgr_core *c)
{
    const struct mgr_drain *d = c->drain;
    uint64_t keep = d->npolicies ? 0 : KEEP;

    for (size_t i = 0; i < d->npolicies; i++)
        keep = d->policies[i].p.keep > keep ? d->policies[i].p.keep : keep;
    return keep;
}

static int look_at(struct mgr_core *c, const struct mgr_inode *in, struct mgr_evict_file *f)
{
    int rc = 0;

    *f = (struct mgr_evict_file){.level = mgr_drained_level(c, in), .opens = mgr_map_get(&c->holders, in->ino), .unsettled = mgr_unsettled(c)};
    if (!in->ckpt || f->level < FP__LEVEL__LEVEL_DRAINED)
        return 0;
    f->keep = keep_of(c);
    rc = mgr_db_one(&c->db, EVICT_SET, DBI(in->ckpt), DBI(f->keep)); /* counts no more than that */
    if (rc > 0) {
        f->set_state = (uint32_t)mgr_col(&c->db, MGR_ST_EVICT_SET, 0);
        f->newer = (uint64_t)mgr_col(&c->db, MGR_ST_EVICT_SET, 1);
    }
    mgr_db_reset(&c->db, MGR_ST_EVICT_SET);
    return rc < 0 ? rc : 0;
}

int mgr_evict_may(struct mgr_core *c, const struct mgr_inode *in, struct mgr_dfile *f, const char **why, bool *wait)
{
    struct mgr_evict_file facts;
    uint64_t avoid;
    Fp__ExtFile *x;
    bool gone;
    int rc = look_at(c, in, &facts);

    if (rc)
        return rc;
    *why = mgr_evict_file(&facts, wait);
    if (*why)
        return 0;
    avoid = f->state == MGR_D_WAIT ? f->tfile : 0; /* an attempt before found it not to be there */
    rc = mgr_drained_copy(c, in, avoid ? 0 : f->tfile, avoid, &f->tfile);
    rc = rc ? rc : mgr_tfile_get(c, f->tfile, &x, &gone);
    if (!rc)
        f->target = x->target;
    return rc;
}

/* ---------------------------------------------------------------- chunks go */

/* A chunk, or a window as a whole. */
struct going {
    uint64_t chunk, off; /* of a window: 0 */
    uint64_t win, sum;   /* of a window */
    uint32_t len;
};

static int evict_chunk(struct mgr_core *c, const struct mgr_dfile *f, const struct going *g)
{
    struct mgr_chunk ch;
    int rc = mgr_chunk_get(c, g->chunk, &ch);

    rc = rc ? rc : mgr_ext_put(c, g->chunk, f->tfile, g->off);
    rc = rc ? rc : mgr_chunk_place(c, &ch, 0, 0);
    rc = rc ? rc : mgr_garbage_put(c, ch.id, ch.bnf, ch.stored);
    if (!rc)
        mgr_grace_freed(c, f->ino, ch.id);
    return rc ? rc : mgr_damage_drop(c, ch.id); /* its copy in the target is well */
}

/* What was seen of one window. */
struct window {
    uint64_t win, covered, gone_bytes, stay_bytes;
    uint32_t stays[MGR_STAYS];
    size_t before; /* in the list, when it began */
};

/* A file that shares chunks with the one that goes. */
struct other {
    uint64_t ino;
    bool may; /* go, too */
};

/* What goes now. */
struct batch {
    struct other others[OTHERS];
    size_t nothers;
    struct going *list;
    size_t n;
    struct mgr_extwin_sums sums;
};

static void count(struct window *w, enum mgr_evict_no no, uint32_t len)
{
    static const enum mgr_stay why[] = {[MGR_EVICT_SHARED] = MGR_STAY_SHARED, [MGR_EVICT_CODED] = MGR_STAY_CODED, [MGR_EVICT_PART] = MGR_STAY_PART};

    w->covered += len;
    if (no == MGR_EVICT_OK || no == MGR_EVICT_GONE) {
        w->gone_bytes += len;
        return;
    }
    w->stay_bytes += len;
    w->stays[why[no]]++;
}

/* May this file, which shares a chunk, be evicted, too? */
static int other_may(struct mgr_core *c, struct batch *b, uint64_t ino, bool *may)
{
    struct mgr_evict_file facts;
    struct mgr_inode in;
    bool wait;
    int rc;

    for (size_t i = 0; i < b->nothers; i++)
        if (b->others[i].ino == ino) {
            *may = b->others[i].may;
            return 0;
        }
    rc = mgr_inode_get_live(c, ino, &in);
    *may = false;
    if (!rc && !(rc = look_at(c, &in, &facts)))
        *may = !mgr_evict_file(&facts, &wait);
    if (b->nothers < OTHERS)
        b->others[b->nothers++] = (struct other){ino, *may};
    return rc == -ENOENT ? 0 : rc; /* that of a version, which has no copy of its own */
}

/* Is no chunk of the window kept by a file that stays, by a version or by a program that writes? */
static int nobody_else(struct mgr_core *c, struct batch *b, uint64_t ino, uint64_t win, bool *may)
{
    const enum mgr_stmt st = MGR_ST_EVICT_OTHERS;
    uint64_t list[OTHERS + 1];
    size_t n = 0;
    int rc = mgr_db_one(&c->db, EVICT_HELD, DBI(ino), DBI(win));

    mgr_db_reset(&c->db, MGR_ST_EVICT_HELD);
    *may = rc == 0;
    if (rc)
        return rc < 0 ? rc : 0;
    for (rc = mgr_db_one(&c->db, EVICT_OTHERS, DBI(ino), DBI(win), DBI(OTHERS + 1)); rc > 0 && n <= OTHERS; rc = mgr_db_step(&c->db, st))
        list[n++] = (uint64_t)mgr_col(&c->db, st, 0);
    mgr_db_reset(&c->db, st);
    *may = n <= OTHERS;
    for (size_t i = 0; i < n && *may && rc >= 0; i++)
        rc = other_may(c, b, list[i], may);
    return rc < 0 ? rc : 0;
}

/* Some of it can't go by itself: does all of it go at once? Then that is in the list, and nothing of it stays. */
static int as_a_whole(struct mgr_core *c, const struct mgr_dfile *f, const struct mgr_inode *in, struct batch *b, struct window *w)
{
    uint32_t len = mgr_extwin_len(in, w->win);
    uint64_t sum;
    bool may = true;
    int rc;

    if (!len || w->covered != len)
        return 0;
    rc = mgr_extwin_sum(c, f->ino, f->tfile, w->win, &b->sums, &sum);
    if (!rc && sum && w->stays[MGR_STAY_SHARED])
        rc = nobody_else(c, b, f->ino, w->win, &may);
    if (rc || !sum || !may)
        return rc;
    b->n = w->before;
    b->list[b->n++] = (struct going){.win = w->win, .sum = sum, .len = len};
    w->gone_bytes += w->stay_bytes;
    w->stay_bytes = 0;
    memset(w->stays, 0, sizeof w->stays);
    return 0;
}

/* A window is done with: it counts. */
static int end_window(struct mgr_core *c, struct mgr_dfile *f, const struct mgr_inode *in, struct batch *b, struct window *w)
{
    int rc = w->stay_bytes ? as_a_whole(c, f, in, b, w) : 0;

    f->gone_bytes += w->gone_bytes;
    f->stay_bytes += w->stay_bytes;
    for (unsigned i = 0; i < MGR_STAYS; i++)
        f->stays[i] += w->stays[i];
    return rc;
}

/* Whole windows from f->low on, until there are STEP of them. */
static int collect(struct mgr_core *c, struct mgr_dfile *f, const struct mgr_inode *in, struct batch *b, bool *done)
{
    const enum mgr_stmt st = MGR_ST_EVICT_NEXT;
    struct window w = {.win = f->low};
    uint64_t seen = 0;
    int rc, failed = 0;

    for (rc = mgr_db_one(&c->db, EVICT_NEXT, DBI(f->ino), DBI(f->low)); rc > 0 && !failed; rc = mgr_db_step(&c->db, st), seen++) {
        uint64_t win = (uint64_t)mgr_col(&c->db, st, 0);
        struct mgr_evict_fact a = {.off = (uint32_t)mgr_col(&c->db, st, 1),
                                   .slice_len = (uint32_t)mgr_col(&c->db, st, 2),
                                   .chunk_off = (uint32_t)mgr_col(&c->db, st, 3),
                                   .len = (uint32_t)mgr_col(&c->db, st, 5),
                                   .refs = (uint32_t)mgr_col(&c->db, st, 6),
                                   .bnf = (uint32_t)mgr_col(&c->db, st, 7),
                                   .data = (uint32_t)mgr_col(&c->db, st, 8)};

        if (win != w.win) {
            failed = end_window(c, f, in, b, &w);
            w = (struct window){.win = win, .before = b->n};
        }
        if (failed || b->n == STEP || (seen >= 16 * STEP && !w.covered))
            break;
        count(&w, mgr_evict_chunk(&a), a.slice_len);
        if (mgr_evict_chunk(&a) == MGR_EVICT_OK)
            b->list[b->n++] = (struct going){.chunk = (uint64_t)mgr_col(&c->db, st, 4), .off = win * in->chunk_size + a.off, .len = a.len};
    }
    mgr_db_reset(&c->db, st);
    *done = rc == 0;
    if (*done && !failed)
        failed = end_window(c, f, in, b, &w);
    f->low = w.win; /* it is looked at again: what has gone is passed over */
    return rc < 0 ? rc : failed;
}

void mgr_evict_stays(const struct mgr_dfile *f, char line[MGR_EVICT_LINE])
{
    static const char *const words[MGR_STAYS] = {[MGR_STAY_SHARED] = "that other files or versions share", [MGR_STAY_CODED] = "that an aux-app has coded",
                                                 [MGR_STAY_PART] = "of which the file has a part only"};
    char bytes[FP_UNITS_BUF];
    int n = snprintf(line, MGR_EVICT_LINE, "%s of it stays here, in chunks", fp_format_size(bytes, f->stay_bytes));
    bool more = false;

    for (unsigned i = 0; i < MGR_STAYS; i++)
        if (f->stays[i]) {
            n += snprintf(line + n, MGR_EVICT_LINE - (size_t)n, "%s %s (%u)", more ? "," : "", words[i], f->stays[i]);
            more = true;
        }
}

int mgr_evict_step(struct mgr_core *c, struct mgr_dfile *f, bool *done, const char **why)
{
    struct batch b = {.list = mgr_arena_alloc(&c->arena, (STEP + 1) * sizeof *b.list)};
    const struct mgr_target *t;
    uint64_t tfile = f->tfile;
    struct mgr_inode in;
    bool wait;
    int rc = mgr_inode_get_live(c, f->ino, &in);

    *done = false;
    *why = NULL;
    if (!b.list)
        return mgr_doom(c, -ENOMEM);
    if (rc == -ENOENT) {
        *done = true; /* all of it has gone */
        return 0;
    }
    rc = rc ? rc : mgr_evict_may(c, &in, f, why, &wait);
    if (!rc && !*why && f->tfile != tfile)
        *why = "its copy in the target is another one since";
    if (rc || *why)
        return rc;
    t = mgr_target_find(c, f->target);
    if (!t || !mgr_task_may_rename(c, t) || c->now.ms - f->looked_ms > LOOKED_MS) {
        f->looked_ms = 0; /* the target is looked at again */
        return 0;
    }
    rc = collect(c, f, &in, &b, done);
    for (size_t i = 0; i < b.n && !rc; i++) {
        rc = b.list[i].chunk ? evict_chunk(c, f, &b.list[i]) : mgr_extwin_put(c, &in, b.list[i].win, b.list[i].sum, f->tfile);
        c->drain->moved += b.list[i].len;
    }
    return rc;
}
