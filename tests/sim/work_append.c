/*
 * The workload's logs: programs of all mounts append records to the same files. At the end each record that was surely kept is there, whole and once, and behind those that
 * had been written when its own began. A record says which it is, and each of its bytes is its own.
 *
 *   surely kept: the write was told to be whole, and it was synced; or closed (not behind), or the mount is strict, and no node has lost its power since; or its mount lives, and no node …
 *
 * A mount that may have lost its session has lost the right to append, too, and what it appends and does not publish by then; what others append stays. A manager that
 * has lost its power has forgotten who had it. Nothing is asked then. What is not surely kept may be there, in part, or be a hole.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/app.h"

#define LOGS       2
#define HEAD       8 /* bytes: what it is, and which */
#define RECORD_MAX 20000
#define LOG_MAX    (8u << 20)

struct record {
    struct record *next;
    const struct sim_proc *mount;
    unsigned start, id;
    size_t len;
    uint64_t from_ns, end_ns, at;
    bool ended, published, durable, lost, found;
};

struct log {
    char path[8];
    struct record *records; /* newest first */
    uint64_t overtaken;     /* mounts of which records may be lost, until an fsync or a close says that they are there */
    bool doubt;             /* nothing can be said of it any more */
};

static struct log logs[LOGS] = {{.path = "a/log"}, {.path = "b/log"}};
static bool power_lost, damaged;
static unsigned ids;

static uint8_t byte_of(unsigned id, size_t k)
{
    uint64_t x = (id * UINT64_C(0x9E3779B97F4A7C15)) ^ (k * UINT64_C(0xC2B2AE3D27D4EB4F));

    if (k < HEAD)
        return k < 4 ? (uint8_t)(0xC0 + k) : (uint8_t)(1 + (id >> 7 * (k - 4) & 127));
    return (uint8_t)(1 + (x >> 40) % 255);
}

/* ------------------------------------------------------------------ what is known */

static void end_record(const struct log *l, struct record *r, ssize_t rc)
{
    bool overtaken = model_is_cut_off(r->mount) || l->overtaken >> r->mount->id & 1;

    r->ended = true;
    r->end_ns = sim.now_ns;
    r->published = r->mount->strict;
    r->lost = rc != (ssize_t)r->len || (overtaken && !r->mount->strict) || r->start != r->mount->starts || !r->mount->up;
}

/* close or fsync of a log: what was written by this mount before. An error may be of any of it. */
static void published(struct log *l, const struct sim_proc *m, uint64_t from, int rc, bool durable)
{
    for (struct record *r = l->records; r; r = r->next) {
        if (r->mount != m || r->start != m->starts || r->durable)
            continue;
        if (rc)
            r->lost = true;
        else if (r->ended && r->end_ns <= from && !r->lost) {
            r->published |= durable || !m->behind;
            r->durable = durable;
        }
    }
    if (!rc && (durable || !m->behind) && !model_is_cut_off(m))
        l->overtaken &= ~(UINT64_C(1) << m->id);
}

void appends_mount_died(const struct sim_proc *m)
{
    for (unsigned i = 0; i < LOGS; i++)
        for (struct record *r = logs[i].records; r; r = r->next)
            if (r->mount == m && r->start == m->starts && !r->published)
                r->lost = true;
}

void appends_cut_off(const struct sim_proc *m)
{
    for (unsigned i = 0; i < LOGS; i++) {
        logs[i].overtaken |= UINT64_C(1) << m->id;
        for (struct record *r = logs[i].records; r; r = r->next)
            r->lost |= r->mount == m && r->start == m->starts && !r->published;
    }
}

void appends_power_lost(const struct sim_node *n)
{
    power_lost = true;
    for (unsigned i = 0; i < LOGS; i++)
        for (struct record *r = logs[i].records; r; r = r->next) {
            logs[i].doubt |= !r->durable && n == sim.procs[0].node;
            r->lost |= !r->durable;
        }
}

void appends_damaged(void)
{
    damaged = true;
}

/* ------------------------------------------------------------------ what programs do */

static void close_log(struct app *a)
{
    struct log *l = &logs[a->log_at];
    uint64_t from = sim.now_ns;
    int rc = vfs_close(a->log);

    a->log = NULL;
    sim_trace("close %s: %d", l->path, rc);
    if (a->log_start != a->mount->starts)
        return;
    published(l, a->mount, from, rc, false);
    if ((rc != -EIO && rc != -ENOSPC) || sim.quiet) /* else what went wrong long before is told now */
        app_error(a, "close", "", rc);
}

static bool open_log(struct app *a)
{
    int rc;

    a->log_at = (unsigned)app_pick(LOGS);
    a->log_start = a->mount->starts;
    rc = vfs_open(a->mount, logs[a->log_at].path, O_WRONLY | O_APPEND, &a->log);
    sim_trace("open %s to append: %d", logs[a->log_at].path, rc);
    if (rc)
        app_error(a, "open", logs[a->log_at].path, rc);
    else
        a->log->process = a->id;
    return rc == 0;
}

static void append(struct app *a)
{
    struct log *l = &logs[a->log_at];
    struct record *r = calloc(1, sizeof *r);
    ssize_t rc;

    *r = (struct record){.next = l->records, .mount = a->mount, .start = a->mount->starts, .id = ++ids, .from_ns = sim.now_ns};
    r->len = HEAD + app_pick(app_pick(5) ? 400 : RECORD_MAX);
    l->records = r;
    for (size_t k = 0; k < r->len; k++)
        a->buf[k] = byte_of(r->id, k);
    rc = vfs_append(a->log, a->buf, r->len);
    sim_trace("append %u to %s, %zu bytes: %zd", r->id, l->path, r->len, rc);
    end_record(l, r, rc);
    work_counts.appends++;
    if (rc < 0 && a->log_start == a->mount->starts)
        published(l, a->mount, sim.now_ns, (int)rc, false);
    app_error(a, "append", "", rc < 0 ? (int)rc : 0);
}

static void sync_log(struct app *a)
{
    uint64_t from = sim.now_ns;
    int rc = vfs_fsync(a->log);

    sim_trace("fsync %s: %d", logs[a->log_at].path, rc);
    if (a->log_start == a->mount->starts)
        published(&logs[a->log_at], a->mount, from, rc, true);
    if (rc != -EIO || !power_lost)
        app_error(a, "fsync", "", rc);
}

void app_append(struct app *a)
{
    if (a->log && (a->log_start != a->mount->starts || app_pick(6) == 0))
        close_log(a);
    else if (a->log && app_pick(8) == 0)
        sync_log(a);
    else if (a->log || open_log(a))
        for (unsigned n = 1 + (unsigned)app_pick(4); n && a->log_start == a->mount->starts; n--)
            append(a);
}

void app_append_end(struct app *a)
{
    if (a->log)
        close_log(a);
}

void appends_start(struct sim_proc *m)
{
    struct sim_open *f;

    for (unsigned i = 0; i < LOGS; i++) {
        if (vfs_open(m, logs[i].path, O_WRONLY | O_CREAT | O_EXCL, &f) || vfs_fsync(f))
            sim_fail("%s can't be made", logs[i].path);
        vfs_close(f);
    }
}

/* ------------------------------------------------------------------ what is there */

static struct record *record_at(const struct log *l, const uint8_t *buf, size_t len, size_t *there)
{
    for (struct record *r = l->records; r && len >= HEAD; r = r->next) {
        size_t k = 0;

        while (k < r->len && k < len && buf[k] == byte_of(r->id, k))
            k++;
        *there = k;
        if (k >= HEAD && (k == r->len || r->lost))
            return r;
    }
    return NULL;
}

static void parse(const struct log *l, const uint8_t *buf, size_t size)
{
    bool any_lost = false;
    size_t there;

    for (struct record *r = l->records; r; r = r->next) {
        r->found = false;
        any_lost |= r->lost;
    }
    for (size_t at = 0; at < size;) {
        struct record *r = record_at(l, buf + at, size - at, &there);

        if (!r && !any_lost)
            sim_fail("%s at %zu: no record begins here", l->path, at);
        if (r && r->found)
            sim_fail("%s: record %u is there twice, at %llu and %zu", l->path, r->id, (unsigned long long)r->at, at);
        if (r) {
            r->found = true;
            r->at = at;
        }
        at += r ? there : 1;
    }
}

static void check(const struct log *l, const uint8_t *buf, size_t size)
{
    parse(l, buf, size);
    for (const struct record *r = l->records; r; r = r->next) {
        if (!r->found && !r->lost)
            sim_fail("%s: record %u (%zu bytes, by %s/%u at %.6f s) is lost", l->path, r->id, r->len, r->mount->name, r->start, (double)(r->from_ns - SIM_S) / 1e9);
        for (const struct record *o = r->next; o; o = o->next)
            if (r->found && o->found && !r->lost && !o->lost && o->end_ns < r->from_ns && o->at > r->at)
                sim_fail("%s: record %u is before %u, which had been written when it began", l->path, r->id, o->id);
    }
}

void appends_verify(struct sim_proc *m)
{
    uint8_t *buf = malloc(LOG_MAX);

    for (unsigned i = 0; i < LOGS; i++) {
        struct log *l = &logs[i];
        struct sim_open *f;
        size_t size = 0;
        ssize_t n = vfs_open(m, l->path, O_RDONLY, &f);

        if (n == -EIO)
            n = vfs_open(m, l->path, O_RDONLY, &f); /* what no close could tell, once */
        if (n)
            sim_fail("%s: %s is there, but: %s", m->name, l->path, strerror((int)-n));
        while ((n = vfs_pread(f, buf + size, 1 << 20, (off_t)size)) > 0 && size < LOG_MAX - (2u << 20))
            size += (size_t)n;
        sim_trace("read %s: %zu bytes, %zd", l->path, size, n);
        if (n < 0 && !power_lost && !damaged && !l->doubt)
            sim_fail("%s reads %s at %zu: %s", m->name, l->path, size, strerror((int)-n));
        if (n == 0 && !damaged && !l->doubt)
            check(l, buf, size);
        vfs_close(f);
    }
    free(buf);
}

void appends_remove(struct sim_proc *m)
{
    for (unsigned i = 0; i < LOGS; i++) {
        int rc = vfs_unlink(m, logs[i].path);

        if (rc)
            sim_fail("%s can't be removed: %s", logs[i].path, strerror(-rc));
    }
}
