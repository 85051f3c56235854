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

#include "tests/sim/check_db.h"
#include "tests/sim/fuse.h"
#include "tests/sim/model.h"

#define HANDLES   3
#define FILE_MAX  (300u << 10)
#define WRITE_MAX (100u << 10)
#define APPS      2
#define READ_ROOM (400u << 10)

struct handle {
    struct sim_open *f;
    struct model_file *model;
    uint64_t opened_ns;
    unsigned start;
    bool writable;
    struct name *made; /* by this open; NULL: not, or it was told that it is there */
    uint64_t version;  /* of that name then */
};

struct app {
    struct sim_proc *mount;
    struct handle h[HANDLES];
    unsigned ops;
    bool done;
    uint8_t *buf;
};

struct work_counts work_counts;

static struct app apps[SIM_PROCS_MAX * APPS];
static unsigned napps;
static unsigned fault_level;

static uint64_t pick(uint64_t n)
{
    return sim_below(SIM_RNG_WORK, n);
}

/* An error that no fault explains ends the run. */
static void check_error(const struct app *a, const char *what, const char *path, int rc)
{
    if (rc >= 0)
        return;
    work_counts.errors++;
    sim_trace("%s %s: %s", what, path, strerror(-rc));
    if (!model_error_ok(-rc, !path[0]) || (fault_level == 0 && a->ops))
        sim_fail("%s: %s %s fails: %s", a->mount->name, what, path, strerror(-rc));
}

static struct name *any_name(bool dir)
{
    struct name *n;

    do
        n = name_of((unsigned)pick(names_count()));
    while (name_is_dir(n) != dir);
    return n;
}

/* ------------------------------------------------------------------ files */

/* What close and fsync tell long after the fault. ENOSPC: what was accepted, or made before the manager had heard of it, found no room. */
static bool may_tell_loss(const struct model_file *f, int rc)
{
    return (rc == -EIO && model_may_have_lost(f)) || (rc == -ENOSPC && (f->unsure || model_has_unpublished(f)));
}

static void close_handle(struct app *a, struct handle *h)
{
    uint64_t from = sim.now_ns;
    int rc;

    if (!h->f)
        return;
    rc = vfs_close(h->f);
    h->f = NULL;
    sim_trace("close inode %llu: %d", (unsigned long long)h->model->ino, rc);
    work_counts.closes++;
    if (h->start != a->mount->starts)
        return;
    if (h->writable)
        model_published(h->model, a->mount, from, rc, false);
    if (rc == 0 && h->made) {
        name_confirmed(h->made, h->model, h->version);
        h->model->unsure = false;
        sim_fault_strike(SIM_AFTER_CREATION, a->mount);
    }
    if (rc == 0 && h->writable)
        sim_fault_strike(SIM_AFTER_CHANGE, a->mount);
    if (!may_tell_loss(h->model, rc))
        check_error(a, "close", "", rc);
}

static struct handle *any_handle(struct app *a)
{
    struct handle *h = &a->h[pick(HANDLES)];

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
        check_error(a, "open", name_path(n), rc);
    }
}

static void do_open(struct app *a)
{
    static const int choices[] = {O_RDONLY, O_RDWR, O_RDWR | O_CREAT, O_WRONLY | O_CREAT, O_RDWR | O_CREAT | O_EXCL, O_RDWR | O_CREAT};
    struct handle *h = &a->h[pick(HANDLES)];
    struct name *n = any_name(false);
    int flags = choices[pick(sizeof choices / sizeof *choices)], rc;
    struct sim_open *f = NULL;
    bool changed = false, known;

    close_handle(a, h);
    h->made = NULL;
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
        h->f = f;
        h->writable = (flags & O_ACCMODE) != O_RDONLY;
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

static void do_write(struct app *a)
{
    struct handle *h = any_handle(a);
    struct model_write *w;
    uint64_t off, len;
    ssize_t rc;

    if (!h || !h->writable)
        return;
    off = pick(4) ? pick(FILE_MAX) : pick(5) * (64u << 10);
    len = pick(3) ? 1 + pick(3000) : 1 + pick(WRITE_MAX);
    w = model_write_begin(h->model, a->mount, off, len, a->buf);
    rc = vfs_pwrite(h->f, a->buf, len, (off_t)off);
    sim_trace("write inode %llu %llu+%llu: %zd", (unsigned long long)h->model->ino, (unsigned long long)off, (unsigned long long)len, rc);
    if (rc == 0 || rc > (ssize_t)len || (rc > 0 && (size_t)rc < len && sim.healed))
        sim_fail("%s: a write of %llu bytes takes %zd", a->mount->name, (unsigned long long)len, rc);
    model_write_end(h->model, w, rc);
    work_counts.writes++;
    check_error(a, "write", "", rc < 0 ? (int)rc : 0);
}

static void read_handle(struct app *a, struct handle *h, uint64_t off, size_t len)
{
    ssize_t rc;

    do { /* as programs do: a read that ends before an error gives what it has */
        uint64_t from = sim.now_ns;

        rc = vfs_pread(h->f, a->buf, len, (off_t)off);
        sim_trace("read inode %llu %llu+%zu: %zd", (unsigned long long)h->model->ino, (unsigned long long)off, len, rc);
        model_read(h->model, a->mount, h->opened_ns, from, off, len, a->buf, rc);
        work_counts.reads++;
        work_counts.bytes_checked += rc > 0 ? (uint64_t)rc : 0;
        work_counts.errors += rc < 0;
        off += rc > 0 ? (uint64_t)rc : 0;
        len -= rc > 0 ? (size_t)rc : 0;
    } while (rc > 0 && len > 0);
}

static void do_read(struct app *a)
{
    struct handle *h = any_handle(a);

    if (h && (h->f->flags & O_ACCMODE) != O_WRONLY)
        read_handle(a, h, pick(2) ? 0 : pick(FILE_MAX), pick(2) ? READ_ROOM : 1 + pick(WRITE_MAX));
}

static void do_truncate(struct app *a)
{
    struct handle *h = any_handle(a);
    struct model_write *w;
    uint64_t size = pick(3) ? pick(FILE_MAX) : 0;
    int rc;

    if (!h || !h->writable)
        return;
    w = model_write_begin(h->model, a->mount, size, 0, NULL);
    rc = vfs_ftruncate(h->f, (off_t)size);
    sim_trace("truncate inode %llu to %llu: %d", (unsigned long long)h->model->ino, (unsigned long long)size, rc);
    model_write_end(h->model, w, rc);
    if (rc == 0)
        sim_fault_strike(SIM_AFTER_CHANGE, a->mount);
    work_counts.truncates++;
    check_error(a, "truncate", "", rc);
}

static void do_fsync(struct app *a)
{
    struct handle *h = any_handle(a);
    uint64_t from = sim.now_ns;
    int rc;

    if (!h || !h->writable)
        return;
    rc = vfs_fsync(h->f);
    sim_trace("fsync inode %llu: %d", (unsigned long long)h->model->ino, rc);
    if (h->start == a->mount->starts)
        model_published(h->model, a->mount, from, rc, true);
    if (rc == 0)
        names_durable(from);
    if (rc == 0)
        sim_fault_strike(SIM_AFTER_FSYNC, a->mount);
    work_counts.fsyncs++;
    if (!may_tell_loss(h->model, rc))
        check_error(a, "fsync", "", rc);
}

static void do_close(struct app *a)
{
    close_handle(a, &a->h[pick(HANDLES)]);
}

/* ------------------------------------------------------------------ names */

static void do_unlink(struct app *a)
{
    bool dir = pick(5) == 0;
    struct name *n = any_name(dir);
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
        check_error(a, "remove", name_path(n), rc);
    }
    name_unlock(n, NULL, a->mount, true);
    work_counts.unlinks++;
}

static void do_mkdir(struct app *a)
{
    struct name *n = any_name(true);
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
        check_error(a, "mkdir", name_path(n), rc);
    name_unlock(n, NULL, a->mount, rc != -EEXIST);
    work_counts.dirs++;
}

static void do_rename(struct app *a)
{
    struct name *n = any_name(false), *to = any_name(false);
    int rc;

    if (n == to)
        return;
    name_lock(n, to);
    rc = vfs_rename(a->mount, name_path(n), name_path(to));
    sim_trace("rename %s to %s: %d", name_path(n), name_path(to), rc);
    if (rc == 0)
        name_moved(n, to, true);
    else if (rc == -ENOENT)
        name_is(n, NULL);
    else
        name_moved(n, to, false);
    if (rc && rc != -ENOENT)
        check_error(a, "rename", name_path(n), rc);
    name_unlock(n, to, a->mount, rc != -ENOENT);
    work_counts.renames++;
}

static void do_link(struct app *a)
{
    struct name *n = any_name(false), *to = any_name(false);
    int rc;

    if (n == to)
        return;
    name_lock(n, to);
    rc = vfs_link(a->mount, name_path(n), name_path(to));
    sim_trace("link %s to %s: %d", name_path(n), name_path(to), rc);
    if (rc == 0)
        name_linked(n, to, true);
    else if (rc == -ENOENT)
        name_is(n, NULL);
    else if (rc == -EEXIST)
        name_exists(to);
    else
        name_linked(n, to, false);
    if (rc && rc != -ENOENT && rc != -EEXIST)
        check_error(a, "link", name_path(n), rc);
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
            names_durable(from);
    } else {
        names_snapshot(versions);
        rc = vfs_readdir(a->mount, dir, list, sizeof list);
        sim_trace("list %s: %d", dir, rc);
        if (rc >= 0)
            names_listed(dir, list, rc, versions);
    }
    check_error(a, "list", dir, rc);
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
            close_handle(a, &a->h[i]);
}

static void one_op(struct app *a)
{
    static const struct {
        unsigned weight;
        void (*fn)(struct app *);
    } ops[] = {{18, do_open}, {30, do_write}, {18, do_read}, {5, do_truncate}, {8, do_fsync}, {10, do_close}, {5, do_unlink}, {2, do_mkdir}, {5, do_rename}, {3, do_link}, {4, do_list}};
    uint64_t k = pick(108);

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
    for (unsigned i = 0; i < HANDLES; i++)
        if (pick(2))
            close_handle(a, &a->h[i]);
    a->done = true;
    return NULL;
}

/* ------------------------------------------------------------------ the end */

static void verify_name(struct app *a, struct name *n)
{
    struct handle h = {.start = a->mount->starts};
    struct stat st;
    int rc;

    if (name_is_dir(n)) {
        rc = vfs_stat(a->mount, name_path(n), &st);
        if (rc && rc != -ENOENT)
            check_error(a, "stat", name_path(n), rc);
        name_is(n, rc ? NULL : MODEL_DIR);
        return;
    }
    h.opened_ns = sim.now_ns;
    rc = vfs_open(a->mount, name_path(n), O_RDONLY, &h.f);
    if (rc == -ENOENT) {
        name_is(n, NULL);
        return;
    }
    check_error(a, "open", name_path(n), rc);
    h.model = model_file(h.f->ino);
    name_is(n, h.model);
    read_handle(a, &h, 0, READ_ROOM);
    close_handle(a, &h);
}

static void remove_all(struct app *a)
{
    for (unsigned i = 0; i < names_count(); i++) {
        const struct name *n = name_of(i);
        int rc = name_is_dir(n) ? vfs_rmdir(a->mount, name_path(n)) : vfs_unlink(a->mount, name_path(n));

        if (rc && rc != -ENOENT)
            check_error(a, "remove", name_path(n), rc);
        if ((rc == -ENOENT) != name_is_surely(n, false))
            sim_fail("removing %s, which was seen a moment ago or not: %d", name_path(n), rc);
    }
}

/* Both directories; the first mount makes them, and all see them. */
static void make_dirs(void)
{
    for (unsigned i = 0; i < sim.nprocs; i++)
        if ((sim.procs[i].kind != SIM_MOUNT || &sim.procs[i] == apps[0].mount) && !wait_ready(&sim.procs[i], 100 * SIM_S))
            sim_fail("%s does not start", sim.procs[i].name);
    for (const char *const *dir = (const char *const[]){"a", "b", NULL}; *dir; dir++) {
        int rc = vfs_mkdir(apps[0].mount, *dir);

        if (rc)
            sim_fail("mkdir %s: %s", *dir, strerror(-rc));
    }
    if (vfs_fsyncdir(apps[0].mount, ""))
        sim_fail("the first fsync fails");
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
    for (unsigned i = 0; i < napps; i++) {
        char name[32];

        snprintf(name, sizeof name, "%s.app%u", apps[i].mount->name, i % APPS + 1);
        sim_task_new(NULL, NULL, name, app_main, &apps[i]);
    }
    wait_apps();
    sim_fault_heal();
    for (unsigned i = 0; i < sim.nprocs; i++)
        if (!wait_ready(&sim.procs[i], 300 * SIM_S))
            sim_fail("%s does not come back", sim.procs[i].name);
    sim_sleep_ns(15 * SIM_S);
    for (unsigned i = 0; i < napps; i++)
        for (unsigned k = 0; k < HANDLES; k++)
            close_handle(&apps[i], &apps[i].h[k]);
    for (unsigned i = 0; i < names_count(); i++) {
        unsigned k = (unsigned)pick(napps);

        verify_name(&apps[k], name_of(i));
        verify_name(&apps[(k + APPS) % napps], name_of(i));
    }
    remove_all(&apps[pick(napps)]);
    for (unsigned i = 0; i < 12 && !check_db(&sim.nodes[0], i == 11); i++)
        sim_sleep_ns(5 * SIM_S);
    sim_end();
}

void work_start(unsigned level)
{
    unsigned ops = 20 + (unsigned)pick(120);

    fault_level = level;
    names_init();
    for (unsigned i = 0; i < sim.nprocs; i++)
        for (unsigned k = 0; k < APPS && sim.procs[i].kind == SIM_MOUNT; k++)
            apps[napps++] = (struct app){.mount = &sim.procs[i], .ops = ops};
    sim_task_new(NULL, NULL, "director", director_main, NULL);
}

void work_counts_print(const struct work_counts *c)
{
    printf("  %llu opens (%llu creates), %llu reads, %llu writes, %llu truncates, %llu fsyncs, %llu closes, %llu unlinks, %llu renames, %llu links, %llu mkdirs, %llu lists; %llu errors; %.1f MiB compared; "
           "%llu kills, %llu power losses\n",
           (unsigned long long)c->opens, (unsigned long long)c->creates, (unsigned long long)c->reads, (unsigned long long)c->writes, (unsigned long long)c->truncates,
           (unsigned long long)c->fsyncs, (unsigned long long)c->closes, (unsigned long long)c->unlinks, (unsigned long long)c->renames, (unsigned long long)c->links,
           (unsigned long long)c->dirs, (unsigned long long)c->lists, (unsigned long long)c->errors, (double)c->bytes_checked / 1048576.0, (unsigned long long)c->kills,
           (unsigned long long)c->powers);
}
