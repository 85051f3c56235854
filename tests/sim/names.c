/*
 * Names, as the contract has them: seen by all nodes at once, durable with any fsync that comes after. Of each name it is known what it may be: one thing, or several after an
 * operation whose end nobody has seen, or after a loss. What an operation finds must be one of them, and from then on it is that one.
 *
 * Operations on one name exclude each other here, so that the outcome of each is known; those on different names run at the same time.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/model.h"

#define NAMES     22
#define STATES    12
#define NEW       ((struct model_file *)(uintptr_t)2) /* something that nobody has seen */
#define EARLY_NS  (10 * SIM_S)                        /* what a mount answered before the manager had heard of it */

struct name {
    char path[32];
    enum name_kind kind;
    bool locked;
    bool shaken; /* a loss came while an operation was on it, which may have looked before and changed after, or the other way round */
    struct model_file *may[STATES], *was[STATES]; /* was: since the last time that it was durable */
    unsigned n, nwas;
    uint64_t changed_ns, version;
    const struct sim_proc *by;
};

static struct name names[NAMES];

void names_init(void)
{
    unsigned k = 0;

    for (unsigned d = 0; d < 2; d++) {
        for (unsigned i = 0; i < 7; i++)
            snprintf(names[k++].path, 32, "%s/f%u", d ? "b" : "a", i);
        for (unsigned i = 0; i < 2; i++) {
            names[k].kind = NAME_DIR;
            snprintf(names[k++].path, 32, "%s/s%u", d ? "b" : "a", i);
        }
        for (unsigned i = 0; i < 2; i++) {
            names[k].kind = NAME_LINK;
            snprintf(names[k++].path, 32, "%s/l%u", d ? "b" : "a", i);
        }
    }
    for (unsigned i = 0; i < NAMES; i++)
        names[i].n = 1;
}

unsigned names_count(void)
{
    return NAMES;
}

struct name *name_of(unsigned i)
{
    return &names[i];
}

const char *name_path(const struct name *n)
{
    return n->path;
}

enum name_kind name_kind(const struct name *n)
{
    return n->kind;
}

/* A mount that is alone in the store answers creates and unlinks before the manager has heard of them; if that fails, close tells. */
static bool may_be_early(void)
{
    for (unsigned i = 0; i < sim.nprocs; i++)
        if (sim.procs[i].kind == SIM_MOUNT && (!sim.procs[i].ready || sim.procs[i].starts > 1))
            return true;
    return false;
}

static void lock_one(struct name *n)
{
    while (n->locked)
        sim_block(n, SIM_NEVER);
    n->locked = true;
    n->shaken = false;
}

void name_lock(struct name *n, struct name *n2)
{
    struct name *low = n2 && n2 < n ? n2 : n;

    lock_one(low);
    if (n2 && n2 != n)
        lock_one(low == n ? n2 : n);
}

static void may_be_as_it_was(struct name *n);

static void unlock_one(struct name *n, const struct sim_proc *m, bool changed)
{
    n->locked = false;
    if (n->shaken)
        may_be_as_it_was(n);
    if (changed) {
        n->version++;
        n->changed_ns = sim.now_ns;
        n->by = m;
    }
    sim_wake_all(n);
}

void name_unlock(struct name *n, struct name *n2, const struct sim_proc *m, bool changed)
{
    unlock_one(n, m, changed);
    if (n2 && n2 != n)
        unlock_one(n2, m, changed);
}

/* ------------------------------------------------------------------ sets */

static void put(struct model_file **set, unsigned *n, struct model_file *f)
{
    for (unsigned i = 0; i < *n; i++)
        if (set[i] == f)
            return;
    if (*n < STATES) {
        set[(*n)++] = f;
        return;
    }
    memmove(set, set + 1, (STATES - 1) * sizeof *set); /* the oldest is the least likely */
    set[STATES - 1] = f;
}

static bool has(const struct name *n, const struct model_file *f)
{
    for (unsigned i = 0; i < n->n; i++)
        if (n->may[i] == f)
            return true;
    return false;
}

/* A change, or one that may have been: a loss brings back what was there before it, also when somebody has seen since what came of it. */
static void was_so_far(struct name *n)
{
    for (unsigned i = 0; i < n->n; i++)
        put(n->was, &n->nwas, n->may[i]);
}

static void becomes(struct name *n, struct model_file *f)
{
    was_so_far(n);
    n->n = 1;
    n->may[0] = f;
}

static void settles(struct name *n, struct model_file *f)
{
    if (n->shaken)
        return;
    n->n = 1;
    n->may[0] = f;
}

bool name_may_be(const struct name *n, bool there)
{
    for (unsigned i = 0; i < n->n; i++)
        if ((n->may[i] != NULL) == there)
            return true;
    return false;
}

bool name_is_surely(const struct name *n, bool there)
{
    return !name_may_be(n, !there);
}

static _Noreturn void impossible(const struct name *n, const char *found)
{
    char list[200] = "";
    size_t len = 0;

    for (unsigned i = 0; i < n->n && len < sizeof list - 24; i++)
        len += (size_t)snprintf(list + len, sizeof list - len, n->may[i] > NEW ? " inode %llu" : n->may[i] == NEW ? " something new" : n->may[i] ? " a directory" : " nothing",
                                n->may[i] > NEW ? (unsigned long long)n->may[i]->ino : 0);
    sim_fail("name %s: %s was found; it can only be:%s", n->path, found, list);
}

/* ------------------------------------------------------------------ what operations found */

void name_is(struct name *n, struct model_file *f)
{
    char text[64] = "nothing";

    if (f > NEW)
        snprintf(text, sizeof text, "inode %llu", (unsigned long long)f->ino);
    else if (f)
        snprintf(text, sizeof text, "a directory");
    if (!has(n, f) && !(f > NEW && has(n, NEW)))
        impossible(n, text);
    settles(n, f);
}

void name_is_new(struct name *n, struct model_file *f)
{
    if (!has(n, NULL) && !has(n, NEW))
        impossible(n, "nothing, and a new file was made");
    becomes(n, f);
    if (f > NEW && may_be_early())
        put(n->may, &n->n, NULL);
}

struct model_file *name_file(const struct name *n)
{
    return n->n == 1 && n->may[0] > NEW ? n->may[0] : NULL;
}

uint64_t name_version(const struct name *n)
{
    return n->version;
}

void name_confirmed(struct name *n, struct model_file *f, uint64_t version)
{
    if (n->locked || n->version != version)
        return; /* others have been there since */
    settles(n, f);
    n->by = NULL; /* no death of its mount takes it back */
}

void name_exists(struct name *n)
{
    unsigned k = 0;

    if (!name_may_be(n, true))
        impossible(n, "something");
    for (unsigned i = 0; i < n->n; i++)
        if (n->may[i])
            n->may[k++] = n->may[i];
    n->n = k;
}

void name_gone(struct name *n)
{
    struct model_file *was[STATES];
    unsigned nwas = n->n;

    memcpy(was, n->may, sizeof was);
    becomes(n, NULL);
    for (unsigned i = 0; may_be_early() && i < nwas; i++)
        put(n->may, &n->n, was[i]);
}

void name_maybe(struct name *n, struct model_file *f)
{
    was_so_far(n);
    put(n->may, &n->n, f);
}

void name_maybe_new(struct name *n)
{
    name_maybe(n, NEW);
}

/* Two names of one file? One whose file nobody has seen may have been linked to any. */
static bool may_be_one(const struct model_file *a, const struct model_file *b)
{
    return a && b && (a == b || a == NEW || b == NEW);
}

/* Each file that may be at one name, and each at the other. */
static void replaced(const struct name *from, const struct name *to)
{
    for (unsigned i = 0; i < from->n; i++)
        for (unsigned k = 0; k < to->n; k++)
            if (from->may[i] > NEW && to->may[k] > NEW && from->may[i] != to->may[k])
                model_replaced(from->may[i], to->may[k]);
}

void name_moved(struct name *from, struct name *to, bool sure)
{
    struct name was = *from;

    replaced(from, to);

    if (sure && from->n == 1 && to->n == 1 && from->may[0] == to->may[0] && from->may[0] > NEW)
        return; /* two names of one file: rename does nothing */
    if (sure) {
        bool same = false;

        for (unsigned i = 0; i < to->n; i++)
            for (unsigned k = 0; k < from->n; k++)
                same |= may_be_one(to->may[i], from->may[k]);
        name_exists(from);
        was = *from;
        becomes(from, NULL);
        if (same)
            for (unsigned i = 0; i < was.n; i++)
                put(from->may, &from->n, was.may[i]);
        was_so_far(to);
        memcpy(to->may, was.may, sizeof to->may);
        to->n = was.n;
        return;
    }
    name_maybe(from, NULL);
    was_so_far(to);
    for (unsigned i = 0; i < was.n; i++)
        if (was.may[i])
            put(to->may, &to->n, was.may[i]);
}

void name_swapped(struct name *a, struct name *b)
{
    struct name was = *a;

    name_exists(a);
    name_exists(b);
    was_so_far(a);
    was_so_far(b);
    was = *a;
    memcpy(a->may, b->may, sizeof a->may);
    a->n = b->n;
    memcpy(b->may, was.may, sizeof b->may);
    b->n = was.n;
}

void name_was_free(const struct name *n)
{
    if (!has(n, NULL) && !has(n, NEW))
        impossible(n, "nothing, where something was put");
}

void name_linked(struct name *from, struct name *to, bool sure)
{
    if (sure) {
        name_exists(from);
        if (!has(to, NULL) && !has(to, NEW))
            impossible(to, "nothing, and a link was made");
    }
    was_so_far(to);
    if (sure)
        to->n = 0;
    for (unsigned i = 0; i < from->n; i++)
        if (from->may[i])
            put(to->may, &to->n, from->may[i]);
}

/* ------------------------------------------------------------------ losses */

void names_durable(uint64_t from_ns)
{
    for (unsigned i = 0; i < NAMES; i++)
        if (!names[i].locked && names[i].changed_ns < from_ns)
            names[i].nwas = 0;
}

static void may_be_as_it_was(struct name *n)
{
    for (unsigned i = 0; i < n->nwas; i++)
        put(n->may, &n->n, n->was[i]);
    n->shaken = n->locked;
    n->version++;
}

void names_mount_died(const struct sim_proc *m)
{
    for (unsigned i = 0; i < NAMES; i++)
        if (names[i].by == m && names[i].changed_ns + EARLY_NS > sim.now_ns)
            may_be_as_it_was(&names[i]);
}

void names_power_lost(void)
{
    for (unsigned i = 0; i < NAMES; i++)
        may_be_as_it_was(&names[i]);
}

/* ------------------------------------------------------------------ directories */

void names_snapshot(uint64_t *versions)
{
    for (unsigned i = 0; i < NAMES; i++)
        versions[i] = names[i].locked ? UINT64_MAX : names[i].version;
}

void names_listed(const char *dir, const char *list, int count, const uint64_t *versions)
{
    size_t len = strlen(dir);

    for (unsigned i = 0; i < NAMES; i++) {
        const struct name *n = &names[i];
        const char *at = list;
        int seen = 0;

        if (strncmp(n->path, dir, len) || n->path[len] != '/')
            continue;
        for (int k = 0; k < count; k++, at += strlen(at) + 1)
            seen += strcmp(at, n->path + len + 1) == 0;
        if (n->locked || n->version != versions[i])
            continue; /* removed and made again, it may be listed twice */
        if (seen > 1)
            sim_fail("%s is listed %d times", n->path, seen);
        if (seen && name_is_surely(n, false))
            impossible(n, "an entry of its directory");
        if (!seen && name_is_surely(n, true))
            impossible(n, "no entry of its directory");
    }
}
