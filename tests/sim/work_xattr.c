/*
 * Extended attributes, mode and owner of files that are open, on all nodes: what a call finds is what the calls before it have left (rule A2). As with names, one call at a time on a file, and of each
 * attribute it is known what it may be: one value, or several after a call whose end nobody has seen, or when the manager's node has lost its power before anything was synced.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/app.h"

#define XATTRS    2
#define OWNER     2 /* a number as well */
#define MODE      3
#define ATTRS     4
#define MODE_NONE 0644u /* as it was made: NONE */
#define STATES    6
#define NONE      0u /* it is not there */

struct values {
    unsigned v[STATES], n;
};

struct attrs {
    struct attrs *next;
    uint64_t ino;
    struct values may[ATTRS], was[ATTRS]; /* was: since the last time that it was durable */
    uint64_t changed_ns;
    bool busy, shaken; /* shaken: a loss while a call was under way */
};

static struct attrs *all;
static unsigned last_value;

static void put(struct values *s, unsigned v)
{
    for (unsigned i = 0; i < s->n; i++)
        if (s->v[i] == v)
            return;
    if (s->n == STATES)
        memmove(s->v, s->v + 1, --s->n * sizeof *s->v);
    s->v[s->n++] = v;
}

static bool has(const struct values *s, unsigned v)
{
    for (unsigned i = 0; i < s->n; i++)
        if (s->v[i] == v)
            return true;
    return false;
}

static struct attrs *attrs_of(uint64_t ino)
{
    struct attrs *x = all;

    while (x && x->ino != ino)
        x = x->next;
    if (!x) {
        x = calloc(1, sizeof *x);
        *x = (struct attrs){.next = all, .ino = ino};
        for (unsigned k = 0; k < ATTRS; k++)
            put(&x->may[k], NONE);
        all = x;
    }
    return x;
}

static void as_it_was(struct attrs *x)
{
    for (unsigned k = 0; k < ATTRS; k++)
        for (unsigned i = 0; i < x->was[k].n; i++)
            put(&x->may[k], x->was[k].v[i]);
    x->shaken = x->busy;
}

void xattrs_power_lost(void)
{
    for (struct attrs *x = all; x; x = x->next)
        as_it_was(x);
}

void xattrs_durable(uint64_t from_ns)
{
    for (struct attrs *x = all; x; x = x->next)
        for (unsigned k = 0; k < ATTRS && !x->busy && x->changed_ns < from_ns; k++)
            x->was[k].n = 0;
}

/* ------------------------------------------------------------------ calls */

static void becomes(struct attrs *x, unsigned k, unsigned v, bool surely)
{
    for (unsigned i = 0; i < x->may[k].n; i++)
        put(&x->was[k], x->may[k].v[i]);
    if (surely)
        x->may[k].n = 0;
    put(&x->may[k], v);
    x->changed_ns = sim.now_ns;
}

static void found(struct attrs *x, unsigned k, unsigned v)
{
    if (!has(&x->may[k], v) && !(x->shaken && has(&x->was[k], v)))
        sim_fail("inode %llu: attribute %u is value %u (0: none); it can only be value %u%s", (unsigned long long)x->ino, k, v, x->may[k].v[0], x->may[k].n > 1 ? " or others" : "");
    if (!x->shaken) {
        x->may[k].n = 0;
        put(&x->may[k], v);
    }
}

static void change(struct app *a, struct handle *h, struct attrs *x, unsigned k)
{
    char name[8], value[16];
    bool remove = app_pick(3) == 0;
    unsigned v = remove ? NONE : ++last_value;
    int rc;

    snprintf(name, sizeof name, "user.%u", k);
    snprintf(value, sizeof value, "%u", v);
    rc = remove ? vfs_removexattr(h->f, name) : vfs_setxattr(h->f, name, value, strlen(value));
    sim_trace("attribute %u of inode %llu becomes %u: %d", k, (unsigned long long)x->ino, v, rc);
    if (remove && rc == -ENODATA) {
        found(x, k, NONE);
        return;
    }
    if (remove && rc == 0 && has(&x->may[k], NONE) && x->may[k].n == 1 && !x->shaken)
        sim_fail("inode %llu: attribute %u is removed, which was not there", (unsigned long long)x->ino, k);
    becomes(x, k, v, rc == 0);
    app_error(a, "change of an attribute", "of a file", rc);
}

/* fchmod(2), fchown(2). */
static void set(struct app *a, struct handle *h, struct attrs *x, unsigned k)
{
    unsigned v = k == OWNER ? ++last_value : 1 + (unsigned)app_pick(0777);
    struct stat st = {.st_mode = S_IFREG | v, .st_uid = v};
    int rc;

    if (k == MODE && v == MODE_NONE)
        v = NONE;
    rc = vfs_fsetattr(h->f, k == OWNER ? FUSE_SET_ATTR_UID : FUSE_SET_ATTR_MODE, &st);
    sim_trace("%s of inode %llu becomes %#o: %d", k == OWNER ? "owner" : "mode", (unsigned long long)x->ino, v, rc);
    becomes(x, k, v, rc == 0);
    app_error(a, "change of an attribute", "of a file", rc);
}

static void look_at_both(struct app *a, struct handle *h, struct attrs *x)
{
    struct stat st;
    int rc = vfs_fstat(h->f, &st);

    sim_trace("inode %llu is of %u, mode %#o: %d", (unsigned long long)x->ino, st.st_uid, st.st_mode, rc);
    if (rc == 0) {
        found(x, OWNER, st.st_uid);
        found(x, MODE, (st.st_mode & 07777) == MODE_NONE ? NONE : st.st_mode & 07777);
    }
    app_error(a, "fstat", "of a file", rc);
}

static void look(struct app *a, struct handle *h, struct attrs *x, unsigned k)
{
    char name[8], value[16];
    ssize_t rc;

    snprintf(name, sizeof name, "user.%u", k);
    rc = vfs_getxattr(h->f, name, value, sizeof value - 1);
    value[rc > 0 ? rc : 0] = '\0';
    sim_trace("attribute %u of inode %llu is %s: %zd", k, (unsigned long long)x->ino, value, rc);
    if (rc >= 0 || rc == -ENODATA)
        found(x, k, rc > 0 ? (unsigned)strtoul(value, NULL, 10) : NONE);
    else
        app_error(a, "reading an attribute", "of a file", (int)rc);
}

static void list(struct app *a, struct handle *h, struct attrs *x)
{
    char names[4096], name[8];
    ssize_t rc = vfs_listxattr(h->f, names, sizeof names);

    sim_trace("attributes of inode %llu: %zd", (unsigned long long)x->ino, rc);
    for (unsigned k = 0; rc >= 0 && k < XATTRS && !x->shaken; k++) {
        bool seen = false, none = has(&x->may[k], NONE);

        snprintf(name, sizeof name, "user.%u", k);
        for (ssize_t at = 0; at < rc; at += (ssize_t)strlen(names + at) + 1)
            seen |= strcmp(names + at, name) == 0;
        if (seen ? none && x->may[k].n == 1 : !none)
            sim_fail("inode %llu: attribute %u is %s", (unsigned long long)x->ino, k, seen ? "listed, and it is not there" : "not listed, and it is there");
    }
    app_error(a, "listing attributes", "of a file", rc < 0 ? (int)rc : 0);
}

void app_xattr(struct app *a)
{
    struct handle *h = app_handle(a);
    struct attrs *x = h ? attrs_of(h->model->ino) : NULL;
    uint64_t what = app_pick(8);
    unsigned k = (unsigned)app_pick(ATTRS);

    if (!h || (what < 4 && !h->writable))
        return;
    while (x->busy)
        sim_block(x, SIM_NEVER);
    x->busy = true;
    x->shaken = false;
    if (h->start != a->mount->starts || !h->f)
        sim_trace("its mount has died meanwhile");
    else if (what < 4 && k < XATTRS)
        change(a, h, x, k);
    else if (what < 4)
        set(a, h, x, k);
    else if (what < 7 && k < XATTRS)
        look(a, h, x, k);
    else if (what < 7)
        look_at_both(a, h, x);
    else
        list(a, h, x);
    x->busy = false;
    if (x->shaken)
        as_it_was(x);
    sim_wake_all(x);
    work_counts.xattrs++;
}
