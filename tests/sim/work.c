/*
 * The workload. Two applications on each mount do at random what programs do with files, all in the same two directories. Each tells the model what it did and
 * saw. When they are through, all faults end, everything that was down comes back, and other mounts read every byte; at last all is removed, and nothing may be left in the manager's tables.
 */
#include "tests/sim/work.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <linux/fs.h>

#include "tests/sim/app.h"
#include "tests/sim/check_db.h"

#define APPS   2
#define HOT_NS (100 * SIM_MS)

struct work_counts work_counts;

static struct app apps[SIM_PROCS_MAX * APPS];
static unsigned napps;
static unsigned fault_level;
static struct name *hot; /* what was written was closed by this name a moment ago: others should look */
static uint64_t hot_ns;
static bool with_locks; /* programs use them, in half of the seeds */

static uint64_t pick(uint64_t n)
{
    return sim_below(SIM_RNG_WORK, n);
}

uint64_t app_pick(uint64_t n)
{
    return pick(n);
}

unsigned apps_waiting(const struct app *but, struct lock_want *out, unsigned max)
{
    unsigned n = 0;

    for (unsigned i = 0; i < napps && n < max; i++)
        if (&apps[i] != but && apps[i].waits)
            out[n++] = *apps[i].waits;
    return n;
}

void app_error(const struct app *a, const char *what, const char *path, int rc)
{
    if (rc >= 0)
        return;
    work_counts.errors++;
    sim_trace("%s %s: %s", what, path, strerror(-rc));
    if (!model_error_ok(-rc, !path[0]) || (fault_level == 0 && a->ops))
        sim_fail("%s: %s %s fails: %s", a->mount->name, what, path, strerror(-rc));
}

struct name *app_name(enum name_kind kind)
{
    struct name *n;

    do
        n = name_of((unsigned)pick(names_count()));
    while (name_kind(n) != kind);
    return n;
}

static struct name *look_at(void)
{
    return hot && sim.now_ns < hot_ns + HOT_NS && pick(2) ? hot : NULL;
}

static struct name *hot_name(void)
{
    struct name *n = look_at();

    return n ? n : app_name(NAME_FILE);
}

/* ------------------------------------------------------------------ files */

/* What close and fsync tell long after the fault. ENOSPC: what was accepted, or made before the manager had heard of it, found no room. */
static bool may_tell_loss(const struct model_file *f, int rc)
{
    return (rc == -EIO && model_may_have_lost(f)) || (rc == -ENOSPC && (f->unsure || model_has_unpublished(f)));
}

void app_close(struct app *a, struct handle *h)
{
    uint64_t from = sim.now_ns;
    int rc;

    if (!h->f)
        return;
    if (h->writable && a->mount->behind)
        sim_fault_strike(SIM_AFTER_BEHIND, a->mount);
    lock_closed(a->mount, h->model->ino, a->id, h->f->id);
    rc = vfs_close(h->f);
    h->f = NULL;
    sim_trace("close inode %llu: %d", (unsigned long long)h->model->ino, rc);
    work_counts.closes++;
    if (h->start != a->mount->starts)
        return;
    if (h->writable) {
        model_published(h->model, a->mount, from, rc, false);
        model_closed(h->model, a->mount, rc);
    }
    if (rc == 0 && h->made) {
        name_confirmed(h->made, h->model, h->version);
        h->model->unsure = false;
        sim_fault_strike(SIM_AFTER_CREATION, a->mount);
    }
    if (h->writable) {
        hot = h->name;
        hot_ns = sim.now_ns;
    }
    if (rc == 0 && h->writable)
        sim_fault_strike(SIM_AFTER_CHANGE, a->mount);
    if (!may_tell_loss(h->model, rc))
        app_error(a, "close", "", rc);
}

struct handle *app_handle(struct app *a)
{
    const struct name *n = look_at();
    unsigned k = (unsigned)pick(HANDLES);
    struct handle *h;

    for (unsigned i = 0; n && i < HANDLES; i++)
        k = a->h[i].f && a->h[i].name == n ? i : k;
    h = &a->h[k];
    return h->f && h->start == a->mount->starts ? h : NULL;
}

static void open_failed(struct app *a, struct name *n, int flags, int rc, bool *changed)
{
    if (rc == -ENOENT && !(flags & O_CREAT)) {
        name_is(n, NULL);
    } else if (rc == -EEXIST && (flags & O_EXCL)) {
        name_exists(n);
    } else {
        if (flags & O_CREAT) {
            name_maybe_new(n);
            *changed = true;
        }
        app_error(a, "open", name_path(n), rc);
    }
}

void app_open(struct app *a, struct handle *h, struct name *n, int flags)
{
    int rc;
    struct sim_open *f = NULL;
    bool changed = false, known;

    app_close(a, h);
    h->made = NULL;
    h->given_ns = 0;
    name_lock(n, NULL);
    h->opened_ns = sim.now_ns;
    h->start = a->mount->starts;
    rc = vfs_open(a->mount, name_path(n), flags, &f);
    work_counts.opens++;
    sim_trace("open %s %#o: %d, inode %llu", name_path(n), flags, rc, rc ? 0 : (unsigned long long)f->ino);
    if (rc == 0) {
        known = model_knows(f->ino) && !(name_may_be(n, false) && !name_may_be(n, true));
        h->model = model_file(f->ino);
        if (known || !(flags & O_CREAT)) {
            name_is(n, h->model);
        } else {
            name_is_new(n, h->model);
            work_counts.creates++;
            changed = true;
        }
        model_taken(h->model, a->mount, h->opened_ns);
        h->f = f;
        f->process = a->id;
        h->name = n;
        h->writable = (flags & O_ACCMODE) != O_RDONLY;
        if (h->writable && h->start == a->mount->starts)
            model_opened(h->model, a->mount);
    } else {
        open_failed(a, n, flags, rc, &changed);
    }
    name_unlock(n, NULL, a->mount, changed);
    if (rc == 0 && changed) {
        h->made = n;
        h->model->unsure = true;
        h->version = name_version(n);
    }
}

/* Some sync at once what others have just written. */
static void do_open(struct app *a)
{
    static const int choices[] = {O_RDONLY, O_RDWR, O_RDWR | O_CREAT, O_WRONLY | O_CREAT, O_RDWR | O_CREAT | O_EXCL, O_RDWR | O_CREAT};
    struct handle *h = &a->h[pick(HANDLES)];
    struct name *n = hot_name();

    app_open(a, h, n, choices[pick(sizeof choices / sizeof *choices)]);
    if (h->f && n == hot && pick(3) == 0)
        app_sync(a, h);
}

void app_write(struct app *a, struct handle *h)
{
    struct model_write *w;
    uint64_t off, len;
    ssize_t rc;

    if (!h->f || !h->writable)
        return;
    off = pick(4) ? pick(FILE_MAX) : pick(5) * (64u << 10);
    len = pick(3) ? 1 + pick(3000) : 1 + pick(WRITE_MAX);
    w = model_write_begin(h->model, a->mount, off, len, a->buf);
    rc = vfs_pwrite(h->f, a->buf, len, (off_t)off);
    sim_trace("write inode %llu %llu+%llu: %zd", (unsigned long long)h->model->ino, (unsigned long long)off, (unsigned long long)len, rc);
    if (rc == 0 || rc > (ssize_t)len || (rc > 0 && (size_t)rc < len && sim.healed))
        sim_fail("%s: a write of %llu bytes takes %zd", a->mount->name, (unsigned long long)len, rc);
    model_write_end(h->model, w, rc);
    if (a->mount->strict) {
        hot = h->name;
        hot_ns = sim.now_ns;
        sim_fault_strike(SIM_AFTER_STRICT, a->mount);
    }
    work_counts.writes++;
    app_error(a, "write", "", rc < 0 ? (int)rc : 0);
}

static void do_write(struct app *a)
{
    struct handle *h = app_handle(a);

    if (h)
        app_write(a, h);
}

void app_read(struct app *a, struct handle *h, uint64_t off, size_t len)
{
    ssize_t rc;

    do { /* as programs do: a read that ends before an error gives what it has */
        uint64_t from = sim.now_ns;

        rc = vfs_pread(h->f, a->buf, len, (off_t)off);
        sim_trace("read inode %llu %llu+%zu: %zd", (unsigned long long)h->model->ino, (unsigned long long)off, len, rc);
        model_read(h->model, a->mount, h->opened_ns, h->given_ns, from, off, len, a->buf, rc);
        work_counts.reads++;
        work_counts.bytes_checked += rc > 0 ? (uint64_t)rc : 0;
        work_counts.errors += rc < 0;
        off += rc > 0 ? (uint64_t)rc : 0;
        len -= rc > 0 ? (size_t)rc : 0;
    } while (rc > 0 && len > 0);
}

static void do_read(struct app *a)
{
    struct handle *h = app_handle(a);

    if (h && (h->f->flags & O_ACCMODE) != O_WRONLY)
        app_read(a, h, pick(2) ? 0 : pick(FILE_MAX), pick(2) ? READ_ROOM : 1 + pick(WRITE_MAX));
}

void app_truncate(struct app *a, struct handle *h, uint64_t size)
{
    struct model_write *w;
    int rc;

    w = model_change_begin(h->model, a->mount, MODEL_CUT, size, 0, false);
    rc = vfs_ftruncate(h->f, (off_t)size);
    sim_trace("truncate inode %llu to %llu: %d", (unsigned long long)h->model->ino, (unsigned long long)size, rc);
    model_write_end(h->model, w, rc);
    if (rc == 0)
        sim_fault_strike(SIM_AFTER_CHANGE, a->mount);
    work_counts.truncates++;
    app_error(a, "truncate", "", rc);
}

static void do_truncate(struct app *a)
{
    struct handle *h = app_handle(a);

    if (h && h->writable)
        app_truncate(a, h, pick(3) ? pick(FILE_MAX) : 0);
}

static void all_durable(uint64_t from)
{
    names_durable(from);
    locks_durable(from);
    xattrs_durable(from);
}

void app_sync(struct app *a, struct handle *h)
{
    uint64_t from = sim.now_ns;
    int rc;

    if (!h->writable)
        return;
    rc = vfs_fsync(h->f);
    sim_trace("fsync inode %llu: %d", (unsigned long long)h->model->ino, rc);
    if (h->start == a->mount->starts)
        model_published(h->model, a->mount, from, rc, true);
    if (rc == 0)
        all_durable(from);
    if (rc == 0)
        sim_fault_strike(SIM_AFTER_FSYNC, a->mount);
    work_counts.fsyncs++;
    if (!may_tell_loss(h->model, rc))
        app_error(a, "fsync", "", rc);
}

static void do_fsync(struct app *a)
{
    struct handle *h = app_handle(a);

    if (h)
        app_sync(a, h);
}

/* ------------------------------------------------------------------ names */

static void do_unlink(struct app *a)
{
    bool dir = pick(5) == 0;
    struct name *n = app_name(dir ? NAME_DIR : app_pick(6) ? NAME_FILE : NAME_LINK);
    int rc;

    name_lock(n, NULL);
    rc = dir ? vfs_rmdir(a->mount, name_path(n)) : vfs_unlink(a->mount, name_path(n));
    sim_trace("remove %s: %d", name_path(n), rc);
    if (rc == 0) {
        name_exists(n);
        name_gone(n);
        sim_fault_strike(SIM_AFTER_CHANGE, a->mount);
    } else if (rc == -ENOENT) {
        name_is(n, NULL);
    } else {
        name_maybe(n, NULL);
        app_error(a, "remove", name_path(n), rc);
    }
    name_unlock(n, NULL, a->mount, true);
    work_counts.unlinks++;
}

static void do_mkdir(struct app *a)
{
    struct name *n = app_name(NAME_DIR);
    int rc;

    name_lock(n, NULL);
    rc = vfs_mkdir(a->mount, name_path(n));
    sim_trace("mkdir %s: %d", name_path(n), rc);
    if (rc == 0)
        name_is_new(n, MODEL_DIR);
    else if (rc == -EEXIST)
        name_exists(n);
    else
        name_maybe(n, MODEL_DIR);
    if (rc && rc != -EEXIST)
        app_error(a, "mkdir", name_path(n), rc);
    name_unlock(n, NULL, a->mount, rc != -EEXIST);
    work_counts.dirs++;
}

/* What a rename that has failed tells, or that has not been heard of. */
static void rename_failed(const struct app *a, struct name *n, struct name *to, unsigned flags, int rc)
{
    if (rc == -EEXIST && flags == RENAME_NOREPLACE) {
        name_exists(to);
    } else if (rc == -ENOENT && flags != RENAME_EXCHANGE) {
        name_is(n, NULL);
    } else if (rc == -ENOENT && name_may_be(n, false)) {
        sim_trace("either may be missing");
    } else if (rc == -ENOENT) {
        name_is(to, NULL);
    } else {
        name_moved(n, to, false);
        if (flags == RENAME_EXCHANGE)
            name_moved(to, n, false);
        app_error(a, "rename", name_path(n), rc);
    }
}

static void renamed(struct name *n, struct name *to, unsigned flags)
{
    if (flags == RENAME_NOREPLACE)
        name_was_free(to);
    if (flags == RENAME_EXCHANGE)
        name_swapped(n, to);
    else
        name_moved(n, to, true);
}

void app_rename(struct app *a, struct name *n, struct name *to, unsigned flags)
{
    struct model_file *f, *f2;
    uint64_t from;
    int rc;

    if (n == to)
        return;
    name_lock(n, to);
    f = name_file(n);
    f2 = name_file(to);
    from = sim.now_ns;
    rc = vfs_rename(a->mount, name_path(n), name_path(to), flags);
    sim_trace("rename %s to %s, flags %u: %d", name_path(n), name_path(to), flags, rc);
    if (rc == 0 && f && f != f2)
        model_taken(f, NULL, from);
    if (rc == 0 && f2 && f != f2 && flags == RENAME_EXCHANGE)
        model_taken(f2, NULL, from);
    if (rc == 0)
        sim_fault_strike(SIM_AFTER_RENAME, a->mount);
    if (rc == 0)
        renamed(n, to, flags);
    else
        rename_failed(a, n, to, flags, rc);
    name_unlock(n, to, a->mount, rc != -ENOENT && rc != -EEXIST);
    work_counts.renames++;
}

static void do_rename(struct app *a)
{
    bool link = app_pick(8) == 0;
    struct name *n = link ? app_name(NAME_LINK) : hot_name(), *to = app_name(link ? NAME_LINK : NAME_FILE);

    app_rename(a, n, to, app_pick(4) ? 0 : app_pick(2) ? RENAME_NOREPLACE : RENAME_EXCHANGE);
}

/* Some programs give what they have written its name at once. */
static void do_close(struct app *a)
{
    uint64_t closes = work_counts.closes;

    app_close(a, &a->h[pick(HANDLES)]);
    if (work_counts.closes == closes || hot_ns != sim.now_ns || pick(2))
        return;
    sim_sleep_ns(1 + pick(SIM_MS / 10));
    do_rename(a);
}

static void do_link(struct app *a)
{
    bool link = app_pick(8) == 0;
    struct name *n = link ? app_name(NAME_LINK) : hot_name(), *to = app_name(link ? NAME_LINK : NAME_FILE);
    struct model_file *f;
    uint64_t from;
    int rc;

    if (n == to)
        return;
    name_lock(n, to);
    f = name_file(n);
    from = sim.now_ns;
    rc = vfs_link(a->mount, name_path(n), name_path(to));
    sim_trace("link %s to %s: %d", name_path(n), name_path(to), rc);
    if (rc == 0 && f)
        model_taken(f, NULL, from);
    if (rc == 0)
        name_linked(n, to, true);
    else if (rc == -ENOENT)
        name_is(n, NULL);
    else if (rc == -EEXIST)
        name_exists(to);
    else
        name_linked(n, to, false);
    if (rc && rc != -ENOENT && rc != -EEXIST)
        app_error(a, "link", name_path(n), rc);
    name_unlock(n, to, a->mount, rc != -ENOENT && rc != -EEXIST);
    work_counts.links++;
}

static void do_list(struct app *a)
{
    const char *dir = pick(2) ? "a" : "b";
    uint64_t versions[64], from = sim.now_ns;
    char list[2048];
    int rc;

    if (pick(4) == 0) {
        rc = vfs_fsyncdir(a->mount, dir);
        sim_trace("fsync of directory %s: %d", dir, rc);
        if (rc == 0)
            all_durable(from);
    } else {
        names_snapshot(versions);
        rc = vfs_readdir(a->mount, dir, list, sizeof list);
        sim_trace("list %s: %d", dir, rc);
        if (rc >= 0)
            names_listed(dir, list, rc, versions);
    }
    app_error(a, "list", dir, rc);
    work_counts.lists++;
}

/* ------------------------------------------------------------------ applications */

static bool wait_ready(struct sim_proc *m, uint64_t most_ns)
{
    uint64_t until = sim.now_ns + most_ns;

    while (!(m->up && m->ready) && sim.now_ns < until)
        sim_sleep_ns(20 * SIM_MS);
    return m->up && m->ready;
}

static void forget_handles(struct app *a)
{
    for (unsigned i = 0; i < HANDLES; i++)
        if (a->h[i].f && a->h[i].start != a->mount->starts)
            app_close(a, &a->h[i]);
}

static void one_op(struct app *a)
{
    static const struct {
        unsigned weight;
        void (*fn)(struct app *);
    } ops[] = {{18, do_open}, {30, do_write}, {18, do_read}, {5, do_truncate}, {8, do_fsync}, {10, do_close}, {5, do_unlink}, {2, do_mkdir}, {5, do_rename}, {3, do_link}, {4, do_list}, {5, app_append}, {5, app_xattr}, {4, app_link},
             {12, app_strike}, {4, app_allocate}, {5, app_copy}, {2, app_seek}, {3, app_store}, {12, app_lock}};
    uint64_t k;

    if (sim.drains && sim_below(SIM_RNG_DRAIN, 6) == 0) {
        app_life(a);
        return;
    }
    k = pick(with_locks ? 160 : 148);

    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        if (k < ops[i].weight) {
            ops[i].fn(a);
            return;
        }
        k -= ops[i].weight;
    }
}

static void *app_main(void *arg)
{
    struct app *a = arg;

    a->buf = malloc(READ_ROOM);
    while (a->ops) {
        if (!wait_ready(a->mount, 60 * SIM_S))
            break;
        forget_handles(a);
        one_op(a);
        a->ops--;
        if (pick(3) == 0)
            sim_sleep_ns(pick(pick(10) ? 100 * SIM_MS : 3 * SIM_S));
    }
    sim_trace("through");
    if (pick(2))
        app_append_end(a);
    for (unsigned i = 0; i < HANDLES; i++)
        if (pick(2))
            app_close(a, &a->h[i]);
    a->done = true;
    return NULL;
}

/* ------------------------------------------------------------------ the end */

/* All programs have closed it, and what sessions that have ended held is free. (A manager that can't write can't free what a close gives back: it goes with the session.) */
static void verify_locks(const struct app *a, const struct name *n, struct sim_open *f)
{
    int rc;

    f->process = a->id;
    rc = vfs_lock(f, F_WRLCK, 0, 0, 60 * SIM_S);
    rc = rc ? rc : vfs_flock(f, F_WRLCK, 60 * SIM_S);
    if (rc)
        sim_fail("%s: a lock of %s, which nobody else has open: %s", a->mount->name, name_path(n), strerror(-rc));
}

static void verify_name(struct app *a, struct name *n)
{
    struct handle h = {.start = a->mount->starts};
    struct stat st;
    int rc;

    if (name_kind(n) == NAME_LINK) {
        link_look(a, n);
        return;
    }
    if (name_kind(n) == NAME_DIR) {
        rc = vfs_stat(a->mount, name_path(n), &st);
        if (rc && rc != -ENOENT)
            app_error(a, "stat", name_path(n), rc);
        name_is(n, rc ? NULL : MODEL_DIR);
        return;
    }
    h.opened_ns = sim.now_ns;
    rc = vfs_open(a->mount, name_path(n), O_RDONLY, &h.f);
    if (rc == -EIO && a->mount->behind && (with_locks || (name_file(n) && model_may_have_lost(name_file(n))))) { /* what no close could tell, once: a lock that was lost, too */
        if (name_file(n))
            model_published(name_file(n), a->mount, h.opened_ns, rc, false);
        h.opened_ns = sim.now_ns;
        rc = vfs_open(a->mount, name_path(n), O_RDONLY, &h.f);
    }
    if (rc == -ENOENT) {
        name_is(n, NULL);
        return;
    }
    app_error(a, "open", name_path(n), rc);
    h.model = model_file(h.f->ino);
    name_is(n, h.model);
    app_read(a, &h, 0, READ_ROOM);
    if (with_locks)
        verify_locks(a, n, h.f);
    app_close(a, &h);
}

static void remove_all(struct app *a)
{
    for (unsigned i = 0; i < names_count(); i++) {
        const struct name *n = name_of(i);
        int rc = name_kind(n) == NAME_DIR ? vfs_rmdir(a->mount, name_path(n)) : vfs_unlink(a->mount, name_path(n));

        if (rc && rc != -ENOENT)
            app_error(a, "remove", name_path(n), rc);
        if ((rc == -ENOENT) != name_is_surely(n, false))
            sim_fail("removing %s, which was seen a moment ago or not: %d", name_path(n), rc);
    }
}

/* Both directories; the first mount makes them, and all see them. */
static void make_dirs(void)
{
    for (unsigned i = 0; i < sim.nprocs; i++)
        if (sim.procs[i].kind <= SIM_MOUNT && (sim.procs[i].kind != SIM_MOUNT || &sim.procs[i] == apps[0].mount) && !wait_ready(&sim.procs[i], 100 * SIM_S))
            sim_fail("%s does not start", sim.procs[i].name);
    for (const char *const *dir = (const char *const[]){"a", "b", NULL}; *dir; dir++) {
        int rc = vfs_mkdir(apps[0].mount, *dir);

        if (rc)
            sim_fail("mkdir %s: %s", *dir, strerror(-rc));
    }
    if (vfs_fsyncdir(apps[0].mount, ""))
        sim_fail("the first fsync fails");
    appends_start(apps[0].mount);
}

static void wait_apps(void)
{
    uint64_t until = sim.now_ns + 900 * SIM_S;

    for (unsigned i = 0; i < napps; i++)
        while (!apps[i].done) {
            sim_sleep_ns(100 * SIM_MS);
            if (sim.now_ns > until)
                sim_fail("%s: a call hangs", apps[i].mount->name);
        }
}

static void *director_main(void *arg)
{
    (void)arg;
    make_dirs();
    sim_fault_plan(fault_level);
    if (sim.drains)
        sim_target_plan(fault_level);
    for (unsigned i = 0; i < napps; i++) {
        char name[32];

        snprintf(name, sizeof name, "%s.app%u", apps[i].mount->name, i % APPS + 1);
        sim_task_new(NULL, NULL, name, app_main, &apps[i]);
    }
    wait_apps();
    sim_fault_heal();
    for (unsigned i = 0; i < sim.nprocs; i++)
        if (sim.procs[i].kind <= SIM_MOUNT && !wait_ready(&sim.procs[i], 300 * SIM_S))
            sim_fail("%s does not come back", sim.procs[i].name);
    sim_sleep_ns(15 * SIM_S);
    for (unsigned i = 0; i < napps; i++)
        for (unsigned k = 0; k < HANDLES; k++)
            app_close(&apps[i], &apps[i].h[k]);
    for (unsigned i = 0; i < napps; i++)
        app_append_end(&apps[i]);
    for (unsigned i = 0; i < napps; i += APPS)
        appends_verify(apps[i].mount);
    if (sim.drains)
        lives_verify(&apps[pick(napps)]);
    for (unsigned i = 0; i < names_count(); i++) {
        unsigned k = (unsigned)pick(napps);

        verify_name(&apps[k], name_of(i));
        verify_name(&apps[(k + APPS) % napps], name_of(i));
    }
    if (sim.drains)
        lives_lose_a_disk(&apps[pick(napps)], &apps[pick(napps)]);
    remove_all(&apps[pick(napps)]);
    appends_remove(apps[0].mount);
    if (sim.drains)
        lives_remove(apps[0].mount);
    for (unsigned i = 0; i < 12 && !check_db(&sim.nodes[0], i == 11); i++)
        sim_sleep_ns(5 * SIM_S);
    sim_end();
}

void work_start(unsigned level)
{
    unsigned ops = 20 + (unsigned)pick(120);

    fault_level = level;
    with_locks = pick(2);
    names_init();
    for (unsigned i = 0; i < sim.nprocs; i++)
        for (unsigned k = 0; k < APPS && sim.procs[i].kind == SIM_MOUNT; k++)
            apps[napps] = (struct app){.mount = &sim.procs[i], .id = 1 + napps, .ops = ops}, napps++;
    sim_task_new(NULL, NULL, "director", director_main, NULL);
}

void work_counts_print(const struct work_counts *c)
{
    printf("  %llu opens (%llu creates), %llu reads, %llu writes, %llu truncates, %llu fsyncs, %llu closes, %llu unlinks, %llu renames, %llu links, %llu mkdirs, %llu lists, %llu locks, %llu appends, %llu attributes, %llu ranges, %llu symlinks; %llu errors; %.1f MiB compared; "
           "%llu kills, %llu power losses\n",
           (unsigned long long)c->opens, (unsigned long long)c->creates, (unsigned long long)c->reads, (unsigned long long)c->writes, (unsigned long long)c->truncates,
           (unsigned long long)c->fsyncs, (unsigned long long)c->closes, (unsigned long long)c->unlinks, (unsigned long long)c->renames, (unsigned long long)c->links,
           (unsigned long long)c->dirs, (unsigned long long)c->lists, (unsigned long long)c->locks, (unsigned long long)c->appends, (unsigned long long)c->xattrs, (unsigned long long)c->ranges, (unsigned long long)c->symlinks,
           (unsigned long long)c->errors, (double)c->bytes_checked / 1048576.0, (unsigned long long)c->kills,
           (unsigned long long)c->powers);
    if (c->lives)
        printf("  of drained files: %llu calls, %llu evictions, %llu comparisons with the target, %llu of them for a level; %llu disks lost\n", (unsigned long long)c->lives,
               (unsigned long long)c->evicts, (unsigned long long)c->targets, (unsigned long long)c->levels, (unsigned long long)c->disks);
}
