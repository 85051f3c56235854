/*
 * Checkpoint sets: numbers that grow.
 *
 * Names like 00100/ and out_100.dat say nothing by themselves. They are steps when numbers that only grow have come in one directory, one after the other (stepname.c:
 * mgr_trail_add): then a series is made of them, with sets of what came before too, and whatever comes later in that series is known by its row. Words and patterns go before
 * it: what has a step by one of these is left alone, also in a directory that is a set by growth.
 *
 * What was seen of a directory and a template is in memory (a trail), TRAILS of them; what is pushed out begins anew. After a restart, and when a directory has not been seen for
 * long, its last LOOK_BACK names are read once, with the times of their inodes; so a file that is made costs no look at its directory, however many names that has.
 *
 * No step: what is in a directory with a bare number (the ranks of a step, the days of a month), the clock's numbers (years, dates, times of the day it is made), what was
 * staged in, and a series of which the last set was forgotten by a user.
 *
 * Called by setdirs.c, in the core's thread, in a group. Rejected: a row for each trail (a write more for each file that has a number in its name); to count names in a listing (they
 * do not say what came when, and it costs the length of the directory).
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "fp/log.h"
#include "manager/sets_int.h"

#define TRAILS      2048u
#define DIRS_MAX    65536u
#define LOOK_BACK   64u
#define LOOK_IN     16u    /* newest entries of a directory that say whether it is being written, */
#define LOOK_DEPTH  3u     /* … and of so many directories in it */
#define LOOK_ALL    64u    /* … of all together */
#define PAGE        256u
#define NAMES_MAX   65536u /* newest names of a directory among which the sets before are found */
#define STEPS_MAX   4096u  /* … and so many of them */
#define ADOPT_STOP  65536u /* files; no other step before is taken then */

enum known { ASK, NONE, SERIES, NEVER };
enum { GROWS = 1, BARE };

struct trail {
    uint64_t dir, gen;
    enum known known; /* is there a series? As of gen */
    struct mgr_trail t;
    uint32_t template_len, name_len;
    char template[MGR_STEP_TEMPLATE_MAX];
    char name[MGR_NAME_MAX]; /* of the last one */
};

struct mgr_growth {
    struct trail *trails;
    struct mgr_idmap dirs, dirs_before; /* directory -> may numbers grow in it? Two generations */
    uint64_t gen;
};

struct mgr_growth *mgr_growth_new(void)
{
    struct mgr_growth *g = calloc(1, sizeof *g);

    if (g)
        g->trails = calloc(TRAILS, sizeof *g->trails);
    if (g && g->trails)
        return g;
    free(g);
    return NULL;
}

void mgr_growth_free(struct mgr_growth *g)
{
    if (!g)
        return;
    mgr_idmap_fini(&g->dirs);
    mgr_idmap_fini(&g->dirs_before);
    free(g->trails);
    free(g);
}

void mgr_growth_forget(struct mgr_growth *g)
{
    mgr_idmap_fini(&g->dirs);
    mgr_idmap_fini(&g->dirs_before);
    for (size_t i = 0; i < TRAILS; i++)
        g->trails[i].dir = 0;
}

void mgr_growth_doubt(struct mgr_growth *g)
{
    g->gen++;
}

void mgr_growth_renamed(struct mgr_growth *g, uint64_t dir)
{
    mgr_idmap_del(&g->dirs, dir);
    mgr_idmap_del(&g->dirs_before, dir);
}

/* -------------------------------------------------------------- is it being written? */

struct entry {
    uint64_t cookie, ino;
    uint32_t type, len;
    char name[MGR_NAME_MAX];
};

/* The newest entries before a cookie. */
static int newest(struct mgr_core *c, uint64_t dir, uint64_t before, struct entry *e, size_t max, size_t *n)
{
    const enum mgr_stmt st = MGR_ST_DIR_NEWEST;
    size_t len;
    int rc;

    *n = 0;
    for (rc = mgr_db_one(&c->db, DIR_NEWEST, DBI(dir), DBI(before), DBI(max)); rc > 0 && *n < max; rc = mgr_db_step(&c->db, st)) {
        const void *name = mgr_col_blob(&c->db, st, 3, &len);
        struct entry *at = &e[(*n)++];

        at->cookie = (uint64_t)mgr_col(&c->db, st, 0);
        at->ino = (uint64_t)mgr_col(&c->db, st, 1);
        at->type = (uint32_t)mgr_col(&c->db, st, 2);
        at->len = (uint32_t)(len < sizeof at->name ? len : sizeof at->name);
        memcpy(at->name, name, at->len);
    }
    mgr_db_reset(&c->db, st);
    return rc < 0 ? rc : 0;
}

struct activity {
    uint32_t left; /* entries that may be looked at */
    int64_t last_ns;
    bool open;
};

/* When it was changed last, and whether somebody has it open for writing; of a directory: as its newest entries say. */
static int look_at(struct mgr_core *c, uint64_t ino, unsigned depth, struct activity *a)
{
    struct entry e[LOOK_IN];
    struct mgr_inode in;
    size_t n = 0;
    int rc = mgr_inode_get(c, ino, &in);

    if (rc)
        return rc == -ENOENT ? 0 : rc;
    a->last_ns = in.ctime > a->last_ns ? in.ctime : a->last_ns;
    a->last_ns = in.btime > a->last_ns ? in.btime : a->last_ns;
    a->open |= mgr_map_get(&c->writers, ino) > 0;
    if (mgr_is(&in, S_IFDIR) && depth < LOOK_DEPTH)
        rc = newest(c, ino, INT64_MAX, e, a->left < LOOK_IN ? a->left : LOOK_IN, &n);
    for (size_t i = 0; i < n && !rc && !a->open && a->left > 0; i++, a->left -= a->left > 0)
        rc = look_at(c, e[i].ino, depth + 1, a);
    return rc;
}

/* 0: it is not closed. What is gone says nothing but when it began. */
static int closed(struct mgr_core *c, const struct trail *t, int64_t *ns)
{
    const ProtobufCBinaryData name = {.data = (uint8_t *)(uintptr_t)t->name, .len = t->name_len};
    struct activity a = {.left = LOOK_ALL, .last_ns = t->t.began_ns};
    struct mgr_dirent d;
    int rc = mgr_dirent_get(c, t->dir, &name, &d);

    rc = rc ? rc : look_at(c, d.ino, 0, &a);
    *ns = a.open ? 0 : a.last_ns;
    return rc == -ENOENT ? 0 : rc;
}

/* -------------------------------------------------------------- the sets that came before */

struct before {
    uint64_t step, ino, id;
    int64_t last_ns;
    bool directory, temporary;
};

static int by_step(const void *a, const void *b)
{
    const struct before *x = a, *y = b;

    return x->step != y->step ? (x->step < y->step ? -1 : 1) : (x->ino > y->ino) - (x->ino < y->ino);
}

static bool is_of(const struct mgr_step *s, const struct mgr_step *series)
{
    return s->template_len == series->template_len && memcmp(s->template, series->template, s->template_len) == 0;
}

/* The number of this name that stands where that of the series does. */
static bool step_in(const char *name, size_t len, const struct mgr_step *series, struct mgr_step *out)
{
    bool directory = series->template[series->template_len - 1] == '/';

    for (unsigned nth = 0; nth < MGR_STEP_NUMBERS && mgr_step_growth(name, len, directory, nth, out); nth++)
        if (is_of(out, series))
            return true;
    return false;
}

static int find(struct mgr_core *c, uint64_t dir, const struct mgr_step *series, struct before *found, size_t *n)
{
    bool directories = series->template[series->template_len - 1] == '/';
    const uint32_t type = (directories ? S_IFDIR : S_IFREG) >> 12;
    struct entry *e = malloc(PAGE * sizeof *e);
    uint64_t at = INT64_MAX;
    size_t page = PAGE;
    int rc = e ? 0 : mgr_doom(c, -ENOMEM);

    *n = 0;
    for (size_t names = 0; !rc && page == PAGE && names < NAMES_MAX; names += page) {
        rc = newest(c, dir, at, e, PAGE, &page);
        for (size_t i = 0; i < page && !rc; i++) {
            struct mgr_step s;

            at = e[i].cookie;
            if (e[i].type != type || *n == STEPS_MAX || !step_in(e[i].name, e[i].len, series, &s))
                continue;
            found[(*n)++] = (struct before){.step = s.step, .ino = e[i].ino, .directory = directories, .temporary = s.temporary};
        }
    }
    free(e);
    return rc;
}

static int take_file(struct mgr_core *c, uint64_t dir, struct mgr_step *series, struct before *b, uint32_t *taken)
{
    struct mgr_inode in;
    int rc = mgr_inode_get(c, b->ino, &in);

    if (rc || in.ckpt || in.flags & (MGR_STAGED | MGR_CONVERTED))
        return rc == -ENOENT ? 0 : rc;
    rc = mgr_set_make(c, dir, series, 0, &b->id);
    if (rc || !b->id)
        return rc;
    ++*taken;
    b->last_ns = in.ctime;
    rc = mgr_set_move(c, &in, b->id, b->temporary, b->temporary);
    return rc ? rc : mgr_inode_put(c, &in);
}

static int take_dir(struct mgr_core *c, uint64_t dir, struct mgr_step *series, struct before *b, uint32_t *taken)
{
    struct mgr_inode in;
    uint64_t other;
    int rc = mgr_inode_get(c, b->ino, &in);

    if (rc || in.flags & MGR_STAGED)
        return rc == -ENOENT ? 0 : rc;
    rc = mgr_set_with_top(c, b->ino, &other);
    if (rc || other)
        return rc; /* a pattern or a user has made it one */
    rc = mgr_set_make(c, dir, series, b->ino, &b->id);
    return rc || !b->id ? rc : mgr_set_adopt_free(c, b->ino, b->id, taken, &b->last_ns);
}

/* The newest first, as long as it is not too much at once; then they become complete one after the other, as they would have been. */
static int take(struct mgr_core *c, uint64_t dir, const struct mgr_step *series, struct before *b, size_t n)
{
    struct mgr_step s = *series;
    uint32_t taken = 0;
    int rc = 0;

    qsort(b, n, sizeof *b, by_step);
    for (size_t i = n; i-- > 0 && !rc && (taken < ADOPT_STOP || b[i].step == s.step);) {
        s.step = b[i].step;
        s.temporary = b[i].temporary;
        rc = b[i].directory ? take_dir(c, dir, &s, &b[i], &taken) : take_file(c, dir, &s, &b[i], &taken);
    }
    for (size_t i = 0; i < n && !rc; i++)
        if (b[i].id && (i + 1 == n || b[i + 1].id != b[i].id))
            rc = mgr_set_settle(c, b[i].id, b[i].last_ns);
    return rc;
}

static int recognise(struct mgr_core *c, uint64_t dir, const struct mgr_step *series)
{
    struct before *b = malloc(STEPS_MAX * sizeof *b);
    size_t n = 0;
    int rc = b ? find(c, dir, series, b, &n) : mgr_doom(c, -ENOMEM);

    mgr_set_names_drop(c->sets);
    rc = rc ? rc : take(c, dir, series, b, n);
    free(b);
    if (!rc)
        FP_INFO("in directory %llu the numbers of %.*s grow: they are checkpoint sets, %zu names so far", (unsigned long long)dir, (int)series->template_len, series->template, n);
    return rc;
}

/* -------------------------------------------------------------- trails */

static struct trail *trail_of(struct mgr_core *c, uint64_t dir, const struct mgr_step *s)
{
    struct mgr_growth *g = c->sets->growth;
    uint64_t h = dir * 0x9E3779B97F4A7C15u;
    struct trail *t;

    for (uint32_t i = 0; i < s->template_len; i++)
        h = (h ^ (uint8_t)s->template[i]) * 0x100000001b3u;
    t = &g->trails[(h >> 32) % TRAILS];
    if (t->dir != dir || t->template_len != s->template_len || memcmp(t->template, s->template, s->template_len) != 0) {
        *t = (struct trail){.dir = dir, .template_len = s->template_len};
        memcpy(t->template, s->template, s->template_len);
    }
    if (t->gen != g->gen) {
        t->gen = g->gen;
        t->known = ASK;
    }
    return t;
}

/* Is there a series of this template that growth has made? */
static int ask(struct mgr_core *c, struct trail *t)
{
    int rc = t->known == ASK ? mgr_db_one(&c->db, SET_GROWN, DBI(t->dir), DBB(t->template, t->template_len), DBI(MGR_STEP_GROWTH)) : 0;

    if (t->known != ASK)
        return 0;
    t->known = rc > 0 ? (mgr_col(&c->db, MGR_ST_SET_GROWN, 0) == MGR_SET_FORGOTTEN ? NEVER : SERIES) : NONE;
    mgr_db_reset(&c->db, MGR_ST_SET_GROWN);
    return rc < 0 ? rc : 0;
}

struct made {
    const char *name;
    size_t len;
    bool directory;
    int64_t began_ns;
};

/* Of numbers with decimals: it has none. The series of such is made by one that has. */
static bool is_whole(const struct made *m, const struct mgr_step *s)
{
    return mgr_step_is_decimal(s) && !memchr(m->name, '.', m->len);
}

/* One more of its template. *yes: it is a step. */
static int follow(struct mgr_core *c, uint64_t dir, const struct made *m, const struct mgr_step *s, bool *yes)
{
    const int64_t quiet_ns = (int64_t)c->o.ckpt_quiet_ms * 1000000;
    struct trail *t = trail_of(c, dir, s);
    int64_t closed_ns = 0;
    int rc = ask(c, t);

    *yes = !rc && t->known == SERIES;
    if (rc || t->known != NONE || (!mgr_step_is_decimal(s) && mgr_step_is_clock(s, m->began_ns)))
        return rc;
    if (mgr_trail_may_grow(&t->t, s->step, m->began_ns, quiet_ns))
        rc = closed(c, t, &closed_ns);
    if (rc)
        return rc;
    *yes = mgr_trail_add(&t->t, s->step, m->began_ns, closed_ns, quiet_ns) && !is_whole(m, s);
    memcpy(t->name, m->name, m->len);
    t->name_len = (uint32_t)m->len;
    if (*yes)
        t->known = SERIES;
    return *yes ? recognise(c, dir, s) : 0;
}

/* By the first of its numbers that grows. */
static int follow_all(struct mgr_core *c, uint64_t dir, const struct made *m, struct mgr_step *out, bool *yes)
{
    int rc = 0;

    *yes = false;
    for (unsigned nth = MGR_STEP_NUMBERS; nth-- > 0 && !rc && !*yes;)
        if (mgr_step_growth(m->name, m->len, m->directory, nth, out))
            rc = follow(c, dir, m, out, yes);
    return rc;
}

/* -------------------------------------------------------------- directories */

/* What came in it before, as far as it can be told: once. */
static int look_back(struct mgr_core *c, uint64_t dir)
{
    struct entry *e = malloc(LOOK_BACK * sizeof *e);
    struct mgr_step s;
    struct mgr_inode in;
    size_t n = 0;
    bool yes;
    int rc = e ? newest(c, dir, INT64_MAX, e, LOOK_BACK, &n) : mgr_doom(c, -ENOMEM);

    for (size_t i = n; i-- > 0 && !rc;) {
        struct made m = {e[i].name, e[i].len, e[i].type == S_IFDIR >> 12, 0};

        if ((!m.directory && e[i].type != S_IFREG >> 12) || !mgr_step_growth(m.name, m.len, m.directory, 0, &s) || mgr_step_word(m.name, m.len, m.directory, &s))
            continue;
        rc = mgr_inode_get(c, e[i].ino, &in);
        m.began_ns = in.btime;
        if (!rc && !in.ckpt && !(in.flags & (MGR_STAGED | MGR_CONVERTED)))
            rc = follow_all(c, dir, &m, &s, &yes);
        rc = rc == -ENOENT ? 0 : rc;
    }
    free(e);
    return rc;
}

/* The name of a directory with a bare number is a step itself, or a date: what is numbered in it are its parts. */
static int is_bare(struct mgr_core *c, uint64_t dir, bool *yes)
{
    struct mgr_inode in;
    const void *name;
    size_t len;
    int rc = dir == MGR_ROOT_INO ? -ENOENT : mgr_inode_get(c, dir, &in);

    *yes = false;
    rc = rc ? rc : mgr_db_one(&c->db, DIR_NAME, DBI(in.parent), DBI(dir));
    if (rc > 0) {
        name = mgr_col_blob(&c->db, MGR_ST_DIR_NAME, 0, &len);
        *yes = mgr_step_is_bare(name, len);
    }
    mgr_db_reset(&c->db, MGR_ST_DIR_NAME);
    return rc < 0 && rc != -ENOENT ? rc : 0;
}

static int may_grow(struct mgr_core *c, uint64_t dir, bool *yes)
{
    struct mgr_growth *g = c->sets->growth;
    uint64_t kept = 0;
    bool bare = false;
    int rc = 0;

    if (!mgr_idmap_get(&g->dirs, dir, &kept)) {
        if (!mgr_idmap_get(&g->dirs_before, dir, &kept)) {
            rc = is_bare(c, dir, &bare);
            kept = bare ? BARE : GROWS;
            rc = rc || bare ? rc : look_back(c, dir);
        }
        if (g->dirs.used >= DIRS_MAX) {
            mgr_idmap_fini(&g->dirs_before);
            g->dirs_before = g->dirs;
            g->dirs = (struct mgr_idmap){0};
        }
        if (!rc && mgr_idmap_put(&g->dirs, dir, kept))
            rc = mgr_doom(c, -ENOMEM);
    }
    *yes = kept == GROWS;
    return rc;
}

/* -------------------------------------------------------------- of a name */

int mgr_growth_made(struct mgr_core *c, uint64_t dir, const ProtobufCBinaryData *name, bool directory, int64_t began_ns, struct mgr_step *out, bool *yes)
{
    const struct made m = {(const char *)name->data, name->len, directory, began_ns};
    bool may;
    int rc;

    *yes = false;
    if (!mgr_step_growth(m.name, m.len, directory, 0, out))
        return 0;
    rc = may_grow(c, dir, &may);
    return rc || !may ? rc : follow_all(c, dir, &m, out, yes);
}

int mgr_growth_known(struct mgr_core *c, uint64_t parent, const char *name, size_t len, bool directory, struct mgr_step *out, bool *yes)
{
    int rc = 0;

    *yes = false;
    for (unsigned nth = MGR_STEP_NUMBERS; nth-- > 0 && !rc && !*yes;) {
        struct trail *t = mgr_step_growth(name, len, directory, nth, out) ? trail_of(c, parent, out) : NULL;

        rc = t ? ask(c, t) : 0;
        *yes = t && !rc && t->known == SERIES;
    }
    return rc;
}

int mgr_growth_step(struct mgr_core *c, uint64_t dir, const ProtobufCBinaryData *name, uint64_t series, struct mgr_step *out, bool *yes)
{
    int rc = 0;

    *yes = false;
    for (unsigned nth = 0; nth < MGR_STEP_NUMBERS && !rc && !*yes && mgr_step_growth((const char *)name->data, name->len, false, nth, out); nth++) {
        rc = mgr_db_one(&c->db, SERIES_GET, DBI(dir), DBB(out->template, out->template_len));
        *yes = rc > 0 && (uint64_t)mgr_col(&c->db, MGR_ST_SERIES_GET, 0) == series;
        mgr_db_reset(&c->db, MGR_ST_SERIES_GET);
        rc = rc < 0 ? rc : 0;
    }
    return rc;
}
