/* The workload's locks: fcntl's ranges and flock, waited for with a signal after some time, or not. See locks.c for what is checked. */
#include <errno.h>
#include <string.h>

#include "tests/sim/app.h"

#define UNIT 8 /* bytes */

static void ask(struct app *a, const struct handle *h, struct lock_want *w)
{
    bool whole = app_pick(3) == 0;

    *w = (struct lock_want){.mount = a->mount, .ino = h->model->ino, .kind = app_pick(3) ? LOCK_FCNTL : LOCK_FLOCKED};
    w->owner = w->kind == LOCK_FCNTL ? a->id : h->f->id;
    w->mode = app_pick(3) == 0 ? LOCK_FREE : app_pick(3) && h->writable ? LOCK_ALONE : LOCK_SHARED;
    if (w->mode == LOCK_SHARED && w->kind == LOCK_FCNTL && (h->f->flags & O_ACCMODE) == O_WRONLY)
        w->mode = LOCK_ALONE; /* as the kernel wants it */
    if (w->kind == LOCK_FCNTL) {
        w->first = whole ? 0 : (unsigned)app_pick(LOCK_UNITS);
        w->last = whole ? LOCK_UNITS - 1 : w->first + (unsigned)app_pick(LOCK_UNITS - w->first);
    }
}

static int call(struct handle *h, const struct lock_want *w, uint64_t wait_ns)
{
    int type = w->mode == LOCK_FREE ? F_UNLCK : w->mode == LOCK_SHARED ? F_RDLCK : F_WRLCK;

    if (w->kind == LOCK_FLOCKED)
        return vfs_flock(h->f, type, wait_ns);
    return vfs_lock(h->f, type, w->first * UNIT, (w->last - w->first + 1) * UNIT, wait_ns);
}

/* A circle of waits is told to one of them at once, when nothing is wrong. */
static void check_patience(const struct app *a, const struct lock_want *w)
{
    struct lock_want waiting[32];
    unsigned n = apps_waiting(a, waiting, 32);

    if (sim.quiet && w->kind == LOCK_FCNTL && lock_in_circle(w, waiting, n))
        sim_fail("inode %llu: %s waits in a circle, and nobody is told", (unsigned long long)w->ino, w->mount->name);
}

static void got(struct handle *h, struct lock_want *w, uint64_t from)
{
    uint64_t gave_ns = lock_granted(w);

    if (w->mode == LOCK_FREE) {
        if (sim.quiet)
            model_given_back(h->model, w->mount, from);
        return;
    }
    h->opened_ns = from > h->opened_ns ? from : h->opened_ns; /* it sees what is published by then */
    h->given_ns = gave_ns > h->given_ns ? gave_ns : h->given_ns;
}

void app_lock(struct app *a)
{
    struct handle *h = app_handle(a);
    uint64_t from = sim.now_ns, wait_ns = 0;
    struct lock_want w, waiting[32];
    int rc;

    if (!h)
        return;
    ask(a, h, &w);
    if (w.mode != LOCK_FREE && app_pick(2))
        wait_ns = 1 + app_pick(app_pick(3) ? 400 * SIM_MS : 5 * SIM_S);
    lock_begins(&w);
    a->waits = wait_ns && w.kind == LOCK_FCNTL ? &w : NULL;
    rc = call(h, &w, wait_ns);
    a->waits = NULL;
    sim_trace("lock inode %llu, %s, mode %u, %u-%u, %s: %d", (unsigned long long)w.ino, w.kind == LOCK_FCNTL ? "fcntl" : "flock", w.mode, w.first, w.last, wait_ns ? "waits" : "does not wait", rc);
    work_counts.locks++;
    if (h->start != a->mount->starts)
        return;
    if (rc == 0)
        got(h, &w, from);
    else if (rc == -EDEADLK && wait_ns && w.kind == LOCK_FCNTL)
        lock_circle(&w, waiting, apps_waiting(a, waiting, 32));
    else if (rc == -EINTR && wait_ns && sim.now_ns >= from + wait_ns)
        check_patience(a, &w);
    else if (rc != -EAGAIN || wait_ns || w.mode == LOCK_FREE)
        app_error(a, "lock", "", rc);
}
