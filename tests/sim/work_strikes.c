/*
 * Sequences of calls after which a certain fault does harm that a random one does in a run of a thousand: what was answered must be there after it. Each is a program that does
 * something usual, and a strike (fault.c) at the moment that matters; in runs in which the strike is not planned, it is just that program.
 */
#include <fcntl.h>

#include "tests/sim/app.h"

/* A new version of a file, as programs write it that fear a crash, but for the fsync. Nothing can be stored meanwhile, so that what close has not waited for is still on its way. */
static void strike_replace(struct app *a)
{
    struct handle *h = &a->h[app_pick(HANDLES)];
    struct name *n = app_name(NAME_FILE);
    bool strikes;

    if (!a->mount->behind || a->mount->strict)
        return;
    app_open(a, h, n, O_RDWR | O_CREAT);
    if (!h->f || h->start != a->mount->starts)
        return;
    strikes = sim_fault_strike(SIM_BEFORE_REPLACING, a->mount);
    app_write(a, h);
    app_close(a, h);
    sim_sleep_ns(1); /* the rename begins later */
    app_rename(a, n, app_name(NAME_FILE), 0);
    if (strikes)
        sim_fault_strike(SIM_AFTER_REPLACING, a->mount);
}

/* What was closed, and then a node that may have it loses its power: the next fsync tells. */
static void strike_lose(struct app *a)
{
    struct handle *h = &a->h[app_pick(HANDLES)];
    struct name *n = app_name(NAME_FILE);

    app_open(a, h, n, O_RDWR | O_CREAT);
    if (!h->f || h->start != a->mount->starts)
        return;
    for (unsigned i = 0; i < 4; i++)
        app_write(a, h);
    app_close(a, h);
    if (!sim_fault_strike(SIM_AFTER_CLOSING, a->mount))
        return;
    sim_sleep_ns(2 * SIM_S + app_pick(6 * SIM_S));
    if (!a->mount->up || !a->mount->ready)
        return;
    app_open(a, h, n, O_RDWR);
    if (!h->f || h->start != a->mount->starts)
        return;
    app_sync(a, h);
    app_read(a, h, 0, READ_ROOM);
}

static struct sim_proc *other_mount(const struct sim_proc *m)
{
    for (unsigned i = 0, k = (unsigned)app_pick(sim.nprocs); i < sim.nprocs; i++) {
        struct sim_proc *p = &sim.procs[(i + k) % sim.nprocs];

        if (p != m && p->kind == SIM_MOUNT && p->up && p->ready)
            return p;
    }
    return NULL;
}

/* What one mount has closed is synced by another one; then the writer's node loses its power. */
static void strike_sync(struct app *a)
{
    struct handle *h = &a->h[app_pick(HANDLES)], there = {.f = NULL};
    struct name *n = app_name(NAME_FILE);
    struct app b = {.mount = other_mount(a->mount), .id = 1000 + a->id, .buf = a->buf};

    app_open(a, h, n, O_RDWR | O_CREAT);
    for (unsigned i = 0; i < 3 && h->f && h->start == a->mount->starts; i++)
        app_write(a, h);
    app_close(a, h);
    if (!b.mount || !b.mount->up || !b.mount->ready)
        return;
    sim_sleep_ns(1);
    app_open(&b, &there, n, O_RDWR);
    if (there.f && there.start == b.mount->starts)
        app_sync(&b, &there);
    if (there.f && sim_fault_strike(SIM_AFTER_SYNC_OF_OTHERS, a->mount)) {
        sim_sleep_ns(2 * SIM_S + app_pick(6 * SIM_S));
        if (there.start == b.mount->starts)
            app_read(&b, &there, 0, READ_ROOM);
    }
    app_close(&b, &there);
}

/* What was synced is cut off, and its data is deleted; then the manager's node loses its power, and perhaps the news of that. */
static void strike_delete(struct app *a)
{
    struct handle *h = &a->h[app_pick(HANDLES)];
    struct name *n = app_name(NAME_FILE);

    app_open(a, h, n, O_RDWR | O_CREAT);
    for (unsigned i = 0; i < 2 && h->f && h->start == a->mount->starts; i++)
        app_write(a, h);
    if (h->f && h->start == a->mount->starts)
        app_sync(a, h);
    if (!h->f || h->start != a->mount->starts || !sim_fault_strike(SIM_BEFORE_DELETION, a->mount))
        return;
    app_truncate(a, h, 0);
    app_close(a, h);
    sim_sleep_ns(5 * SIM_S + app_pick(4 * SIM_S));
    if (!a->mount->up || !a->mount->ready)
        return;
    app_open(a, h, n, O_RDWR);
    if (h->f && h->start == a->mount->starts)
        app_read(a, h, 0, READ_ROOM);
}

static bool is_alone(const struct sim_proc *m)
{
    for (unsigned i = 0; i < sim.nprocs; i++)
        if (&sim.procs[i] != m && sim.procs[i].kind == SIM_MOUNT && sim.procs[i].starts)
            return false;
    return true;
}

/* A file that is made and closed while the manager can't hear of it; then its mount dies. Who is alone in the store may make it without the manager, but not close it. */
static void strike_touch(struct app *a)
{
    struct handle *h = &a->h[app_pick(HANDLES)];
    bool strikes;

    app_open(a, h, app_name(NAME_FILE), O_RDWR | O_CREAT);
    if (!h->f)
        return;
    strikes = h->made && is_alone(a->mount) && sim_fault_strike(SIM_AFTER_MAKING, a->mount);
    app_close(a, h);
    if (strikes)
        sim_fault_strike(SIM_AFTER_TOUCH, a->mount);
}

static bool is_open(const struct app *a, const struct handle *h)
{
    return h->f && h->start == a->mount->starts;
}

static void write_some(struct app *a, struct handle *h, unsigned n)
{
    for (unsigned i = 0; i < n && is_open(a, h); i++)
        app_write(a, h);
}

static void read_there(struct app *a, struct name *n)
{
    struct handle h = {.f = NULL};

    if (!a->mount->up || !a->mount->ready)
        return;
    app_open(a, &h, n, O_RDONLY);
    if (is_open(a, &h))
        app_read(a, &h, 0, READ_ROOM);
    app_close(a, &h);
}

/* A file of several windows is rewritten, and half of it is published; then its mount dies, or is cut off for so long that it is taken for dead, and comes back with more of it: the file is,
 * as a whole, what it was before. */
static void strike_rewrite(struct app *a)
{
    struct handle *h = &a->h[app_pick(HANDLES)], second = {.f = NULL};
    struct name *n = app_name(NAME_FILE);
    struct app b = {.mount = other_mount(a->mount), .id = 2000 + a->id, .buf = a->buf};

    if (!sim.versions || a->mount->strict || !b.mount)
        return;
    app_open(a, h, n, O_RDWR | O_CREAT);
    write_some(a, h, 6);
    app_close(a, h);
    app_open(a, h, n, O_RDWR);
    if (is_open(a, h) && app_pick(3) == 0)
        app_truncate(a, h, app_pick(300u << 10));
    write_some(a, h, 3);
    if (is_open(a, h))
        app_open(a, &second, n, O_WRONLY);
    app_close(a, &second); /* publishes what there is */
    if (is_open(a, h) && sim_fault_strike(SIM_AFTER_REWRITING, a->mount)) {
        sim_sleep_ns((4 + app_pick(6)) * SIM_S);
        read_there(&b, n);
    } else if (is_open(a, h) && sim_fault_strike(SIM_WHILE_REWRITING, a->mount)) {
        write_some(a, h, 2);
        sim_sleep_ns(32 * SIM_S);
        app_close(a, h);
        read_there(&b, n);
    }
}

void app_strike(struct app *a)
{
    static void (*const all[])(struct app *) = {strike_replace, strike_replace, strike_touch, strike_touch, strike_lose, strike_sync, strike_delete, strike_rewrite, strike_rewrite};

    all[app_pick(sizeof all / sizeof *all)](a);
}
