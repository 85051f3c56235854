/*
 * Contents of files, as the contract has them. Each write has bytes of its own, so that a read tells which write it saw; of each byte that was read it is asked
 * whether the reader could have seen that write. A write is out of question when a later one surely hides it.
 *
 *   surely seen by a read:  ended before it, and of the reader's own mount, or published before the reader opened the file;
 *                           and not lost, or possibly lost: by a failed call, the death of its mount before it was published, a power loss before it was durable
 *   later than another:     by the same mount, after it; or begun after the other was published
 *
 * With --close behind, close says that it is seen elsewhere, but it is published later: until it surely is ("solid"), it goes with its mount, or with a session that may have expired.
 * By that the manager's frames to the mount are told: who has not heard of it for long may have been given up.
 *
 * While a file is rewritten, what it was is kept (docs/ARCHITECTURE.md, Versions of files). If a mount that has it open for writing dies, or may be taken for dead, or a program was told
 * an error, the file may be what it was, now or when that mount ends: then only what was written before all had closed it the last time ("kept"), what all programs of another mount had
 * closed before, and what was synced, is surely there.
 *
 * When the manager says that it has put a file back, and nobody has closed or synced it since it was whole, it is that, byte by byte: what was written since is not to be seen, also
 * if its mount comes back with it.
 *
 * What was never whole when it was renamed over another file may be what that one was.
 *
 * In strict files each write is published when it returns, and each read is an open.
 *
 * Truncation is a write of nothing from a place on, a punched hole one of zeros, fallocate moves the end alone. A copy (copy_file_range) is a write of what a reader of the source could
 * have seen while it was made: it names the writes. The manager does all of these itself, so they are published when they return; but fallocate within what this node
 * has written asks nobody.
 * Errors are always better than wrong bytes; whether they may be is asked separately.
 */
#include "tests/sim/model.h"

#include "tests/sim/locks.h"
#include "tests/sim/work.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define STRAY_NS   (40 * SIM_S) /* what a dead mount had under way may still arrive so long */
#define NEWS_NS    (40 * SIM_S) /* until all mounts have heard that a benefactor lost something, when directions are blocked */
#define COVERS_MAX 512
#define OVER_DEPTH 4 /* a file that was renamed over one that was, too, … */
#define WINDOW     65536u /* --chunk-size of sim_store.c */
#define CUT_NS     (12 * SIM_S) /* --session-timeout of sim_store.c, less what a mount may keep silent */

struct model_write {
    struct model_write *next;
    const struct model_file *file;
    uint32_t id;
    const struct sim_proc *mount;
    unsigned start; /* of the mount */
    uint64_t off, end;
    enum model_kind kind;
    bool keeps_size; /* of zeros */
    struct copied *copied; /* what a copy may have: NULL: anything (it has not ended, or failed) */
    bool ended, durable, dead;
    bool kept;   /* since it was written all have closed the file */
    uint64_t undone_ns; /* then the manager put back what was there before it, as a whole: who opens the file after that does not see it. 0: it did not */
    bool solid;  /* the manager has it; not so what was closed behind */
    bool failed; /* its application was told of a loss, or has died */
    bool shaken; /* by a power loss; an fsync that says 0 afterwards says that it is there */
    bool lossy;  /* has been either: reading it may fail */
    bool copies_a_loss; /* what it was copied from was so */
    uint64_t from_ns, end_ns, published_ns, given_ns, dead_ns;
};

/* A part of a copy, of whose source the same writes could be seen everywhere. */
struct copied {
    struct copied *next;
    uint64_t off, end, from; /* from: of the source, what is at off */
    bool nothing;
    unsigned n;
    const struct model_write *w[];
};

struct reader {
    const struct sim_proc *mount;
    uint64_t opened_ns, given_ns, from_ns;
};

static struct model_file *files;
static uint32_t write_ids;
static bool damaged, manager_forgot;
static uint64_t heard_ns[SIM_PROCS_MAX];
static bool cut_off[SIM_PROCS_MAX];

static int byte_of(uint32_t id, uint64_t at)
{
    uint64_t x = (id * UINT64_C(0x9E3779B97F4A7C15)) ^ (at * UINT64_C(0xC2B2AE3D27D4EB4F));

    return 1 + (int)((x >> 40) % 255);
}

/* Could this write have left this byte there? */
static bool may_be(const struct model_write *w, uint64_t at, int got)
{
    if (w->kind == MODEL_WRITE)
        return got == byte_of(w->id, at);
    if (w->kind != MODEL_COPY)
        return got == 0;
    for (const struct copied *c = w->copied; c; c = c->next) {
        bool found = c->off <= at && at < c->end && c->nothing && got == 0;

        for (unsigned i = 0; i < c->n && !found && c->off <= at && at < c->end; i++)
            found = may_be(c->w[i], at - c->off + c->from, got);
        if (found)
            return true;
    }
    return !w->copied;
}

/* Where a file that has it, and nothing later, ends at least. */
static uint64_t ends_at(const struct model_write *w)
{
    return w->kind == MODEL_CUT ? w->off : w->keeps_size || w->off == w->end ? 0 : w->end;
}

/* A node has lost its power, and mounts may hear of it only now: they can't tell whether a file was there before. */
static bool loss_is_news(void)
{
    for (unsigned i = 0; i < sim.nprocs; i++) {
        const struct sim_proc *p = &sim.procs[i];

        if (p->kind == SIM_BENEFACTOR && (p->node->boots > 1 || !p->node->up) && (!p->up || !p->ready || sim.now_ns < p->ready_ns + NEWS_NS))
            return true;
    }
    return false;
}

struct model_file *model_file(uint64_t ino)
{
    struct model_file *f = files;

    while (f && f->ino != ino)
        f = f->next;
    if (!f) {
        f = calloc(1, sizeof *f);
        f->ino = ino;
        f->in_doubt = loss_is_news();
        f->next = files;
        files = f;
    }
    return f;
}

bool model_knows(uint64_t ino)
{
    for (struct model_file *f = files; f; f = f->next)
        if (f->ino == ino)
            return true;
    return false;
}

static uint64_t size_of(const struct model_file *f, unsigned depth)
{
    uint64_t size = 0;

    for (const struct model_write *w = f->writes; w; w = w->next)
        size = ends_at(w) > size ? ends_at(w) : size;
    for (unsigned i = 0; i < f->nover && depth < OVER_DEPTH; i++) {
        uint64_t its = size_of(f->over[i], depth + 1);

        size = its > size ? its : size;
    }
    return size;
}

uint64_t model_size(const struct model_file *f)
{
    return size_of(f, 0);
}

/* ------------------------------------------------------------------ writes */

struct model_write *model_change_begin(struct model_file *f, const struct sim_proc *m, enum model_kind kind, uint64_t off, uint64_t len, bool keeps_size)
{
    struct model_write *w = calloc(1, sizeof *w);

    *w = (struct model_write){.next = f->writes, .file = f, .id = ++write_ids, .mount = m, .start = m->starts, .kind = kind, .keeps_size = keeps_size, .off = off,
                              .end = kind == MODEL_CUT ? UINT64_MAX : off + len, .from_ns = sim.now_ns};
    f->writes = w;
    return w;
}

struct model_write *model_write_begin(struct model_file *f, const struct sim_proc *m, uint64_t off, uint64_t len, uint8_t *buf)
{
    struct model_write *w = model_change_begin(f, m, MODEL_WRITE, off, len, false);

    for (uint64_t i = 0; i < len; i++)
        buf[i] = (uint8_t)byte_of(w->id, off + i);
    return w;
}

static void fail_write(struct model_write *w)
{
    w->failed = w->lossy = true;
}

static void doom(struct model_file *f, const struct sim_proc *m)
{
    bool behind = false;

    for (const struct model_write *w = f->writes; w && !behind; w = w->next)
        behind = m->behind && w->mount == m && w->start == m->starts && !w->solid;
    if (sim.versions && (f->writers[m->id] || behind) && !f->doomed) {
        sim_trace("may be what it was: inode %llu", (unsigned long long)f->ino);
        f->doomed = true;
    }
}

/* Mounts that may have lost their sessions: what they have closed behind may be overtaken, and so may what they write to the same files until an fsync says that it is there. */
static void look_for_cuts(void)
{
    for (unsigned i = 0; i < sim.nprocs; i++) {
        const struct sim_proc *m = &sim.procs[i];

        if (m->kind != SIM_MOUNT || !m->up || cut_off[i] || sim.now_ns < heard_ns[i] + CUT_NS)
            continue;
        cut_off[i] = true;
        sim_trace("may have lost its session: %s", m->name);
        locks_mount_lost(m);
        appends_cut_off(m);
        for (struct model_file *f = files; f; f = f->next)
            doom(f, m);
        if (!m->behind)
            continue;
        for (struct model_file *f = files; f; f = f->next)
            for (struct model_write *w = f->writes; w; w = w->next)
                if (w->mount == m && w->start == m->starts && !w->solid) {
                    fail_write(w);
                    f->overtaken |= UINT64_C(1) << i;
                }
    }
}

bool model_is_cut_off(const struct sim_proc *m)
{
    look_for_cuts();
    return cut_off[m->id];
}

void model_heard(const struct sim_proc *m)
{
    look_for_cuts();
    heard_ns[m->id] = sim.now_ns;
    cut_off[m->id] = false;
}

/* An error of any call on a file may be the news of what was lost before. */
static void fail_own(struct model_file *f, const struct sim_proc *m, bool published_too)
{
    for (struct model_write *w = f->writes; w; w = w->next)
        if (w->mount == m && w->start == m->starts && !w->durable && (published_too || !w->published_ns))
            fail_write(w);
}

void model_write_end(struct model_file *f, struct model_write *w, ssize_t rc)
{
    look_for_cuts();
    w->ended = true;
    w->end_ns = sim.now_ns;
    if (rc >= 0 && (w->kind == MODEL_WRITE || w->kind == MODEL_COPY))
        w->end = w->off + (uint64_t)rc; /* less than was given: something failed behind it */
    if (rc < 0) {
        fail_write(w);
        fail_own(f, w->mount, true);
    } else if (w->kind != MODEL_WRITE && w->kind != MODEL_GROWTH) {
        w->published_ns = sim.now_ns; /* by the manager itself */
        w->solid = true;
    } else if (w->mount->strict) {
        w->published_ns = sim.now_ns;
        w->solid = true;
    } else if ((w->mount->behind && cut_off[w->mount->id]) || f->overtaken >> w->mount->id & 1) {
        fail_write(w);
        f->overtaken |= UINT64_C(1) << w->mount->id;
    }
    if (w->start != w->mount->starts || !w->mount->up) {
        fail_write(w);
        w->dead = true;
        w->dead_ns = sim.now_ns;
    }
}

void model_published(struct model_file *f, const struct sim_proc *m, uint64_t from_ns, int rc, bool durable)
{
    look_for_cuts();
    if (rc)
        fail_own(f, m, true);
    else if (durable && !cut_off[m->id])
        f->overtaken &= ~(UINT64_C(1) << m->id);
    for (struct model_write *w = f->writes; w && !rc; w = w->next) {
        bool own = w->mount == m && w->start == m->starts;

        if (!w->ended || w->end_ns > from_ns || w->failed)
            continue;
        if (own && !w->published_ns)
            w->published_ns = sim.now_ns;
        if (own && (durable || !m->behind))
            w->solid = true;
        if (durable && own)
            w->shaken = w->lossy = false;
        if (durable && !f->doomed && !w->shaken && w->published_ns && (own || w->published_ns <= from_ns)) /* it may have been taken back before */
            w->durable = true;
    }
}

/* Closed by all, or synced, with something in it: it may be taken back no more. Of an empty file nobody knows whether it was closed. */
static bool was_whole(const struct model_file *f)
{
    bool whole = false;

    for (const struct model_write *w = f->writes; w; w = w->next) {
        if (w->kind == MODEL_CUT && w->off == 0)
            return whole;
        whole |= (w->kept || w->durable) && ends_at(w) > 0;
    }
    return whole;
}

void model_replaced(struct model_file *f, struct model_file *over)
{
    if (!sim.versions || was_whole(f) || f == over)
        return;
    if (f->nover == MODEL_OVER_MAX)
        sim_fail("inode %llu was renamed over too many files before it was whole", (unsigned long long)f->ino);
    sim_trace("inode %llu may become what %llu was", (unsigned long long)f->ino, (unsigned long long)over->ino);
    f->over[f->nover++] = over;
    f->over_empty |= !f->writes;
}

void model_opened(struct model_file *f, const struct sim_proc *m)
{
    f->writers[m->id]++;
}

static bool is_whole(const struct model_file *f)
{
    for (const struct model_write *w = f->writes; w; w = w->next)
        if (!w->kept && !w->undone_ns)
            return false;
    return !f->doomed && f->writes;
}

void model_asked(uint64_t ino)
{
    for (struct model_file *f = files; f; f = f->next)
        f->asked |= !ino || f->ino == ino;
}

void model_closes(uint64_t ino, const struct sim_proc *m)
{
    if (model_knows(ino) && (m->syncs || model_file(ino)->writers[m->id] <= 1))
        model_asked(ino);
}

void model_returned(uint64_t ino)
{
    struct model_file *f = model_knows(ino) ? model_file(ino) : NULL;

    if (f && f->whole_ns && !f->asked && !manager_forgot)
        for (struct model_write *w = f->writes; w; w = w->next)
            if (w->from_ns >= f->whole_ns && !w->undone_ns) {
                sim_trace("undone: write %u of inode %llu", w->id, (unsigned long long)ino);
                w->undone_ns = sim.now_ns;
            }
    if (f)
        f->whole_ns = 0;
}

void model_closed(struct model_file *f, const struct sim_proc *m, int rc)
{
    bool all = true;

    if (rc)
        doom(f, m);
    f->writers[m->id] -= f->writers[m->id] > 0;
    for (unsigned i = 0; i < SIM_PROCS_MAX && all; i++)
        all = !f->writers[i];
    for (const struct model_write *w = f->writes; w && all; w = w->next)
        all = w->ended && (w->solid || w->failed);
    for (struct model_write *w = f->writes; w && all && !f->doomed; w = w->next)
        w->kept |= w->solid && !w->failed;
    if (all && !f->doomed && !f->over_empty && was_whole(f))
        f->nover = 0;
    if (all && is_whole(f)) {
        f->whole_ns = sim.now_ns;
        f->asked = false;
    }
    if (rc || f->doomed || f->writers[m->id] || m->behind || cut_off[m->id])
        return;
    for (struct model_write *w = f->writes; w; w = w->next)
        w->kept |= w->mount == m && w->start == m->starts && w->kind == MODEL_WRITE && w->ended && w->solid && !w->failed;
}

void model_given_back(struct model_file *f, const struct sim_proc *m, uint64_t from_ns)
{
    for (struct model_write *w = f->writes; w; w = w->next)
        if (w->mount == m && w->start == m->starts && w->ended && w->end_ns <= from_ns && !w->given_ns)
            w->given_ns = from_ns;
}

void model_taken(struct model_file *f, const struct sim_proc *m, uint64_t from_ns)
{
    look_for_cuts();
    for (struct model_write *w = f->writes; w; w = w->next)
        if (w->mount != m && w->published_ns && w->published_ns < from_ns && !w->failed)
            w->solid = true;
}

void model_mount_died(const struct sim_proc *m)
{
    locks_mount_lost(m);
    appends_mount_died(m);
    for (struct model_file *f = files; f; f = f->next) {
        doom(f, m);
        f->writers[m->id] = 0;
    }
    for (struct model_file *f = files; f; f = f->next)
        for (struct model_write *w = f->writes; w; w = w->next)
            if (w->mount == m && w->start == m->starts && !w->dead) {
                w->dead = true;
                w->dead_ns = sim.now_ns;
                if (!w->solid)
                    fail_write(w);
            }
}

void model_power_lost(const struct sim_node *n)
{
    manager_forgot |= n == sim.procs[0].node;
    if (n == sim.procs[0].node) {
        locks_power_lost();
        xattrs_power_lost();
    }
    appends_power_lost(n);
    /* Any node may have had any chunk; but the manager's has none, and what it forgets is as if it had never been. */
    for (struct model_file *f = files; f; f = f->next) {
        f->in_doubt = true; /* of one that was empty, too: who has it open does not know what others write to it and sync afterwards */
        for (struct model_write *w = f->writes; w; w = w->next)
            if (!w->durable) {
                w->shaken = true;
                w->lossy |= n != sim.procs[0].node;
            }
    }
}

bool model_may_have_lost(const struct model_file *f)
{
    for (const struct model_write *w = f->writes; w; w = w->next)
        if (w->lossy || w->shaken || w->failed || w->copies_a_loss)
            return true;
    return damaged || f->doomed || f->in_doubt || manager_forgot; /* that it was made, too */
}

bool model_has_unpublished(const struct model_file *f)
{
    for (const struct model_write *w = f->writes; w; w = w->next)
        if (!w->published_ns)
            return true;
    return false;
}

void model_damaged(void)
{
    damaged = true;
    appends_damaged();
    lives_damaged();
}

bool model_error_ok(int err, bool open)
{
    if (err == ENOENT && !open && manager_forgot) /* what was found by its name, and lost then */
        return true;
    if (err == ENOTCONN || err == EIO || err == ENOSPC || err == EINTR)
        return !sim.healed;
    return false;
}

/* ------------------------------------------------------------------ reads */

static bool surely_seen(const struct model_write *w, const struct reader *r)
{
    if (w->undone_ns || w->failed || w->shaken || !w->ended || w->end_ns >= r->from_ns || (w->file->doomed && !w->kept && !w->durable))
        return false;
    if (r->mount->strict)
        return w->published_ns != 0;
    if (w->mount == r->mount && w->start == r->mount->starts)
        return true;
    return (w->published_ns && w->published_ns < r->opened_ns) || (w->given_ns && w->given_ns <= r->given_ns);
}

static bool later(const struct model_write *w, const struct model_write *than)
{
    if (!than->ended)
        return false;
    if (w->mount == than->mount && w->start == than->start)
        return than->end_ns < w->from_ns;
    if (than->published_ns)
        return than->published_ns < w->from_ns;
    return than->dead && than->dead_ns + STRAY_NS < w->from_ns;
}

/* Its own mount shows what it has not told the manager until that refuses it. */
static bool is_undone(const struct model_write *w, const struct reader *r)
{
    return w->undone_ns && r->opened_ns > w->undone_ns && !(w->mount == r->mount && w->start == r->mount->starts);
}

static bool covers(const struct model_write *w, uint64_t at)
{
    return w->off <= at && at < w->end && w->kind != MODEL_GROWTH;
}

static bool may_be_another(const struct model_file *f, unsigned depth)
{
    return f->nover && depth < OVER_DEPTH && (f->doomed || f->over_empty);
}

/* All writes at this byte, of what it may have become, too. */
static unsigned covering(const struct model_file *f, const struct reader *r, uint64_t at, const struct model_write **all, unsigned n, unsigned depth)
{
    for (const struct model_write *w = f->writes; w; w = w->next)
        if (covers(w, at) && !is_undone(w, r)) {
            if (n == COVERS_MAX)
                sim_fail("more than %d writes of one byte", COVERS_MAX);
            all[n++] = w;
        }
    for (unsigned i = 0; i < f->nover && may_be_another(f, depth); i++)
        n = covering(f->over[i], r, at, all, n, depth + 1);
    return n;
}

/* Writes that the reader may see at this byte; true in *nothing if it may see none. */
static unsigned candidates(const struct model_file *f, const struct reader *r, uint64_t at, const struct model_write **out, bool *nothing)
{
    const struct model_write *all[COVERS_MAX];
    unsigned n = covering(f, r, at, all, 0, 0), count = 0;

    *nothing = true;
    for (unsigned i = 0; i < n; i++) {
        bool hidden = false;

        *nothing = *nothing && (may_be_another(f, 0) || !surely_seen(all[i], r));
        for (unsigned k = 0; k < n && !hidden; k++)
            hidden = k != i && all[k]->file == all[i]->file && surely_seen(all[k], r) && later(all[k], all[i]);
        if (!hidden)
            out[count++] = all[i];
    }
    return count;
}

/* A growth that was none for its node: it had not heard of this cut. */
static bool was_within(const struct model_write *w, const struct model_write *cut)
{
    return w->kind == MODEL_GROWTH && !w->mount->strict && (cut->mount != w->mount || cut->start != w->start);
}

/* The file may end at or before this byte. */
static bool its_may_end(const struct model_file *f, const struct reader *r, uint64_t at)
{
    for (const struct model_write *w = f->writes; w; w = w->next) {
        bool cut_after = false;

        if (!surely_seen(w, r) || ends_at(w) <= at)
            continue;
        for (const struct model_write *t = f->writes; t && !cut_after; t = t->next)
            cut_after = t->kind == MODEL_CUT && !is_undone(t, r) && t->off <= at && (!later(w, t) || was_within(w, t));
        if (!cut_after)
            return false;
    }
    return true;
}

static bool may_end(const struct model_file *f, const struct reader *r, uint64_t at)
{
    bool may = its_may_end(f, r, at);

    for (unsigned i = 0; i < f->nover && may_be_another(f, 0) && !may; i++)
        may = f->over[i]->nover || its_may_end(f->over[i], r, at);
    return may;
}

static const char *tell(const struct model_write *w, char buf[160])
{
    static const char *const kinds[] = {"write", "cut", "zeros", "growth", "copy"};

    snprintf(buf, 160, "%s %u by %s/%u at %llu..%lld, %.6f-%.6f s%s%s%s", kinds[w->kind], w->id, w->mount->name, w->start, (unsigned long long)w->off,
             w->kind == MODEL_CUT ? -1LL : (long long)w->end, (double)(w->from_ns - SIM_S) / 1e9, w->ended ? (double)(w->end_ns - SIM_S) / 1e9 : 0.0, w->published_ns ? ", published" : "",
             w->durable ? ", durable" : "", w->failed ? ", failed" : w->shaken ? ", shaken" : "");
    return buf;
}

static _Noreturn void wrong(const struct model_file *f, const struct reader *r, uint64_t at, int got, const struct model_write **c, unsigned n, bool nothing)
{
    char line[160], first[160] = "none", *saw = "of no write";

    for (unsigned i = 0; i < n; i++) {
        sim_trace("  could be: %s", tell(c[i], line));
        if (i == 0)
            snprintf(first, sizeof first, "%s", line);
    }
    sim_trace("  could be nothing: %s", nothing ? "yes" : "no");
    for (const struct model_write *w = f->writes; w; w = w->next)
        if (covers(w, at)) {
            sim_trace("  covers it: %s", tell(w, line));
            if (w->kind == MODEL_WRITE && got == byte_of(w->id, at)) {
                saw = "of a write that is out of question";
                sim_trace("  looks like this one");
            }
        }
    if (got == 0)
        saw = "a hole";
    else if (got == MODEL_ABSENT)
        saw = "the end of the file";
    sim_fail("wrong data: %s reads inode %llu at %llu: %s (%d); %u writes could be there, the latest: %s", r->mount->name, (unsigned long long)f->ino, (unsigned long long)at, saw, got, n, first);
}

static bool matches(const struct model_write **c, unsigned n, bool nothing, uint64_t at, int got)
{
    if (got == 0 && nothing)
        return true;
    for (unsigned i = 0; i < n; i++)
        if (may_be(c[i], at, got))
            return true;
    return false;
}

static uint64_t border_of(const struct model_file *f, uint64_t at, uint64_t end, unsigned depth)
{
    for (const struct model_write *w = f->writes; w; w = w->next) {
        if (w->off > at && w->off < end)
            end = w->off;
        if (w->end > at && w->end < end)
            end = w->end;
    }
    for (unsigned i = 0; i < f->nover && may_be_another(f, depth); i++)
        end = border_of(f->over[i], at, end, depth + 1);
    return end;
}

/* From here to the next place where another set of writes lies. */
static uint64_t next_border(const struct model_file *f, uint64_t at, uint64_t end)
{
    return border_of(f, at, end, 0);
}

/* Programs read on behind what a read gave (work.c), so an error is of the window where it begins: may that have lost something, which nothing durable has replaced? */
static bool lossy_window(const struct model_file *f, const struct reader *r, uint64_t off, uint64_t end)
{
    const struct model_write *c[COVERS_MAX];
    uint64_t window_end = (off / WINDOW + 1) * WINDOW;
    bool nothing;

    end = end < window_end ? end : window_end;
    for (uint64_t at = off; at < end; at = next_border(f, at, end)) {
        unsigned n = candidates(f, r, at, c, &nothing);

        for (unsigned i = 0; i < n; i++)
            if (c[i]->lossy || c[i]->copies_a_loss)
                return true;
    }
    return false;
}

void model_read(struct model_file *f, const struct sim_proc *m, uint64_t opened_ns, uint64_t given_ns, uint64_t from_ns, uint64_t off, size_t want, const uint8_t *buf, ssize_t rc)
{
    struct reader r = {.mount = m, .opened_ns = opened_ns, .given_ns = given_ns, .from_ns = from_ns};
    const struct model_write *c[COVERS_MAX];
    uint64_t end = off + (rc > 0 ? (uint64_t)rc : 0), next;
    bool nothing;

    look_for_cuts();
    if (rc < 0) {
        if (!model_error_ok((int)-rc, true) && !(rc == -EIO && (damaged || lossy_window(f, &r, off, off + want))))
            sim_fail("%s reads inode %llu at %llu, %zu bytes: %s, and nothing of it may be lost", m->name, (unsigned long long)f->ino, (unsigned long long)off, want, strerror((int)-rc));
        return;
    }
    if ((size_t)rc > want)
        sim_fail("a read of %zu bytes gives %zd", want, rc);
    for (uint64_t at = off; at < end; at = next) {
        unsigned n = candidates(f, &r, at, c, &nothing);

        next = next_border(f, at, end);
        for (uint64_t k = at; k < next; k++)
            if ((n == 0 || c[0]->kind != MODEL_WRITE || buf[k - off] != byte_of(c[0]->id, k)) && !matches(c, n, nothing, k, buf[k - off]))
                wrong(f, &r, k, buf[k - off], c, n, nothing);
    }
    if (rc == 0 && !may_end(f, &r, end)) { /* less than was wanted is no end of the file, which 0 is */
        unsigned n = candidates(f, &r, end, c, &nothing);

        wrong(f, &r, end, MODEL_ABSENT, c, n, nothing);
    }
}

/* ------------------------------------------------------------------ copies and holes */

void model_copied(struct model_file *f, struct model_write *w, struct model_file *from, uint64_t from_off, uint64_t opened_ns, uint64_t given_ns, ssize_t rc)
{
    struct reader r = {.mount = w->mount, .opened_ns = opened_ns, .given_ns = given_ns, .from_ns = w->from_ns};
    const struct model_write *c[COVERS_MAX];
    uint64_t end = from_off + (rc > 0 ? (uint64_t)rc : 0), next;

    model_write_end(f, w, rc);
    if (rc < 0)
        fail_own(from, w->mount, true);
    if (rc == 0 && !may_end(from, &r, from_off))
        sim_fail("%s copies nothing of inode %llu at %llu, which does not end there", w->mount->name, (unsigned long long)from->ino, (unsigned long long)from_off);
    f->in_doubt |= from->in_doubt;
    for (uint64_t at = from_off; at < end; at = next) {
        bool nothing;
        unsigned n = candidates(from, &r, at, c, &nothing);
        struct copied *part = calloc(1, sizeof *part + n * sizeof *c);

        next = next_border(from, at, end);
        *part = (struct copied){.next = w->copied, .off = w->off + (at - from_off), .end = w->off + (next - from_off), .from = at, .nothing = nothing, .n = n};
        memcpy(part->w, c, n * sizeof *c);
        for (unsigned i = 0; i < n; i++)
            w->copies_a_loss |= c[i]->lossy || c[i]->copies_a_loss;
        w->copied = part;
    }
}

void model_no_data(struct model_file *f, const struct sim_proc *m, uint64_t opened_ns, uint64_t given_ns, uint64_t from_ns, uint64_t off, uint64_t end)
{
    struct reader r = {.mount = m, .opened_ns = opened_ns, .given_ns = given_ns, .from_ns = from_ns};
    const struct model_write *c[COVERS_MAX];
    bool nothing;

    look_for_cuts();
    end = end < model_size(f) ? end : model_size(f);
    for (uint64_t at = off; at < end; at = next_border(f, at, end)) {
        unsigned n = candidates(f, &r, at, c, &nothing);

        if (!matches(c, n, nothing, at, 0) && !may_end(f, &r, at))
            wrong(f, &r, at, 0, c, n, nothing);
    }
}
