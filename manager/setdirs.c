/*
 * Which set a name belongs to. Loop thread, called by sets.c.
 *
 * A file belongs to the set that a pattern of a policy says (setpattern.c); else to that of its directory, if one of the MGR_STEP_ABOVE directories above it is a set (the nearest
 * that a pattern has made one, else the one nearest to the root); else to the one that its own name says; else to the one of a number that grows (setgrowth.c), of a directory or its own. What is asked for with every file that is made is kept: for a directory, its set or that it has none, in two generations of DIRS_MAX (as grace.c does); for files
 * side by side, the sets asked for last. Both are dropped when a directory gets another name, and when a set goes.
 *
 * Rejected: the set of a directory in its row (an inheritance that mv would break).
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "fp/log.h"
#include "fp/tmpname.h"
#include "manager/drain.h"
#include "manager/sets_int.h"

#define DIRS_MAX  65536u
#define NAMES     256u
#define ADOPT_MAX 262144u /* files that become members at once, when their directory becomes a set */
#define DEPTH_MAX 16u
#define PAGE      256u

struct mgr_setname {
    uint64_t dir, step, id;
    uint32_t len;
    char template[MGR_STEP_TEMPLATE_MAX];
};

struct mgr_setname *mgr_setnames_new(void)
{
    return calloc(NAMES, sizeof(struct mgr_setname));
}

void mgr_set_names_drop(struct mgr_sets *t)
{
    mgr_idmap_fini(&t->dirs);
    mgr_idmap_fini(&t->dirs_before);
    if (t->names)
        memset(t->names, 0, NAMES * sizeof *t->names);
    mgr_dirpaths_drop(t);
}

void mgr_set_caches_drop(struct mgr_sets *t)
{
    mgr_set_names_drop(t);
    if (t->growth)
        mgr_growth_doubt(t->growth);
}

bool mgr_set_is_temporary(const void *name, size_t len)
{
    size_t off;

    return fp_tmpname_body(name, len, &off) < len;
}

/* -------------------------------------------------------------- of a directory */

struct up {
    uint64_t ino, parent;
    char name[MGR_NAME_MAX];
    size_t len;
};

/* The directory and those above it, with their names; *n may be less than MGR_STEP_ABOVE. */
static int climb(struct mgr_core *c, uint64_t dir, struct up *up, size_t *n)
{
    struct mgr_inode in;

    for (*n = 0; *n < MGR_STEP_ABOVE && dir != MGR_ROOT_INO; ++*n) {
        struct up *u = &up[*n];
        const void *name;
        int rc = mgr_inode_get(c, dir, &in);

        if (rc)
            return rc == -ENOENT ? 0 : rc;
        rc = mgr_db_one(&c->db, DIR_NAME, DBI(in.parent), DBI(dir));
        if (rc <= 0)
            return rc; /* it has no name any more */
        name = mgr_col_blob(&c->db, MGR_ST_DIR_NAME, 0, &u->len);
        u->len = u->len < sizeof u->name ? u->len : sizeof u->name;
        memcpy(u->name, name, u->len);
        mgr_db_reset(&c->db, MGR_ST_DIR_NAME);
        u->ino = dir;
        u->parent = dir = in.parent;
    }
    return 0;
}

int mgr_set_with_top(struct mgr_core *c, uint64_t top, uint64_t *id)
{
    int rc = mgr_db_one(&c->db, SET_TOP, DBI(top));

    *id = rc > 0 ? (uint64_t)mgr_col(&c->db, MGR_ST_SET_TOP, 0) : 0;
    mgr_db_reset(&c->db, MGR_ST_SET_TOP);
    return rc < 0 ? rc : 0;
}

/* The nearest one that a pattern has made a set. */
static int by_pattern(struct mgr_core *c, const struct up *up, size_t n, uint64_t *id)
{
    struct mgr_set s;
    int rc = 0;

    for (size_t i = 0; i < n && !rc && !*id && c->drain->npatterns; i++) {
        rc = mgr_set_with_top(c, up[i].ino, id);
        rc = rc || !*id ? rc : mgr_set_get(c, *id, &s);
        if (!rc && *id && s.how != MGR_STEP_PATTERN)
            *id = 0;
    }
    return rc;
}

/* Growth alone has made it a set: whatever says more goes before it. */
static int is_grown(struct mgr_core *c, uint64_t id, bool *yes)
{
    struct mgr_set s;
    int rc = mgr_set_get(c, id, &s);

    *yes = !rc && s.how == MGR_STEP_GROWTH;
    return rc == -ENOENT ? 0 : rc;
}

static int find_out(struct mgr_core *c, uint64_t dir, uint64_t *id)
{
    struct up up[MGR_STEP_ABOVE];
    struct mgr_step step;
    uint64_t grown = 0;
    bool yes;
    size_t n;
    int rc = climb(c, dir, up, &n);

    *id = 0;
    rc = rc ? rc : by_pattern(c, up, n, id);
    for (size_t i = n; i-- > 0 && !rc && !*id;) {
        rc = mgr_set_with_top(c, up[i].ino, id);
        if (!rc && *id && (rc = is_grown(c, *id, &yes)) == 0 && yes) {
            grown = grown ? grown : *id;
            *id = 0;
        }
        if (!rc && !*id && mgr_step_word(up[i].name, up[i].len, true, &step))
            rc = mgr_set_make(c, up[i].parent, &step, up[i].ino, id);
    }
    if (rc || *id)
        return rc;
    *id = grown;
    for (size_t i = n; i-- > 0 && !rc && !*id;) {
        rc = mgr_growth_known(c, up[i].parent, up[i].name, up[i].len, true, &step, &yes);
        if (!rc && yes)
            rc = mgr_set_make(c, up[i].parent, &step, up[i].ino, id);
    }
    return rc;
}

int mgr_set_of_dir(struct mgr_core *c, uint64_t dir, uint64_t *id)
{
    struct mgr_sets *t = c->sets;
    int rc;

    *id = 0;
    if (dir == MGR_ROOT_INO || mgr_idmap_get(&t->dirs, dir, id))
        return 0;
    if (!mgr_idmap_get(&t->dirs_before, dir, id)) {
        rc = find_out(c, dir, id);
        if (rc)
            return rc;
    }
    if (t->dirs.used >= DIRS_MAX) {
        mgr_idmap_fini(&t->dirs_before);
        t->dirs_before = t->dirs;
        t->dirs = (struct mgr_idmap){0};
    }
    return mgr_idmap_put(&t->dirs, dir, *id) ? mgr_doom(c, -ENOMEM) : 0;
}

/* -------------------------------------------------------------- of a file */

static struct mgr_setname *place_of(struct mgr_sets *t, uint64_t dir, const struct mgr_step *s)
{
    uint64_t h = dir * 0x9E3779B97F4A7C15u ^ s->step * 0xC2B2AE3D27D4EB4Fu;

    for (uint32_t i = 0; i < s->template_len; i++)
        h = (h ^ (uint8_t)s->template[i]) * 0x100000001b3u;
    return &t->names[(h >> 32) % NAMES];
}

static int beside_others(struct mgr_core *c, uint64_t dir, const struct mgr_step *s, uint64_t *id)
{
    struct mgr_setname *kept = place_of(c->sets, dir, s);
    int rc;

    if (kept->id && kept->dir == dir && kept->step == s->step && kept->len == s->template_len && memcmp(kept->template, s->template, s->template_len) == 0) {
        *id = kept->id;
        return 0;
    }
    rc = mgr_set_make(c, dir, s, 0, id);
    if (!rc && *id) {
        *kept = (struct mgr_setname){.dir = dir, .step = s->step, .id = *id, .len = s->template_len};
        memcpy(kept->template, s->template, s->template_len);
    }
    return rc;
}

/* The directory so many above the file, which is in dir, is its set. What was in it before is of the set, too: it is one from now on. */
static int of_above(struct mgr_core *c, uint64_t dir, const struct mgr_step *s, uint64_t *id)
{
    uint64_t count = c->sets->count;
    struct mgr_inode top;
    int rc = mgr_inode_get(c, dir, &top);

    for (uint32_t i = 1; i < s->above && !rc; i++)
        rc = mgr_inode_get(c, top.parent, &top);
    rc = rc ? rc : mgr_set_with_top(c, top.ino, id);
    if (rc || *id)
        return rc;
    rc = mgr_set_make(c, top.parent, s, top.ino, id);
    if (rc || c->sets->count == count)
        return rc;
    mgr_set_caches_drop(c->sets);
    return mgr_set_adopt(c, top.ino, *id);
}

int mgr_set_of(struct mgr_core *c, uint64_t dir, const ProtobufCBinaryData *name, int64_t began_ns, uint64_t *id, bool *temporary)
{
    struct mgr_step s;
    bool yes, grown = true;
    int rc;

    *id = 0;
    *temporary = false;
    if (mgr_step_is_lock((const char *)name->data, name->len) || mgr_step_is_convert((const char *)name->data, name->len))
        return 0;
    rc = mgr_pattern_of(c, dir, name, &s, &yes);
    *temporary = mgr_set_is_temporary(name->data, name->len);
    if (rc || yes)
        return rc ? rc : s.above ? of_above(c, dir, &s, id) : beside_others(c, dir, &s, id);
    rc = mgr_set_of_dir(c, dir, id);
    yes = !rc && mgr_step_word((const char *)name->data, name->len, false, &s);
    if (!rc && *id && yes)
        rc = is_grown(c, *id, &grown);
    if (rc || (*id && !(yes && grown)))
        return rc;
    if (!yes)
        rc = mgr_growth_made(c, dir, name, false, began_ns, &s, &yes);
    *temporary = yes && s.temporary;
    return yes && !rc ? beside_others(c, dir, &s, id) : rc;
}

int mgr_set_dir_made(struct mgr_core *c, uint64_t parent, const ProtobufCBinaryData *name, int64_t began_ns)
{
    struct mgr_step s;
    uint64_t id;
    bool yes;
    int rc = mgr_set_of_dir(c, parent, &id);

    if (rc || id || mgr_step_word((const char *)name->data, name->len, true, &s))
        return rc;
    return mgr_growth_made(c, parent, name, true, began_ns, &s, &yes);
}

/* -------------------------------------------------------------- directories that become sets, or cease to be */

struct adopt {
    uint64_t to;
    uint32_t left; /* files that may still come */
    bool free;     /* those of no set alone */
    int64_t last_ns; /* the last change of one of them */
};

static int adopt_file(struct mgr_core *c, struct adopt *a, uint64_t ino, bool temporary)
{
    struct mgr_inode in;
    int rc = mgr_inode_get(c, ino, &in);

    if (rc || in.ckpt == a->to || in.flags & MGR_CONVERTED || (a->free && (in.ckpt || in.flags & MGR_STAGED)))
        return rc == -ENOENT ? 0 : rc;
    a->last_ns = in.ctime > a->last_ns ? in.ctime : a->last_ns;
    if (a->left == 0)
        return -EFBIG;
    a->left--;
    rc = mgr_set_move(c, &in, a->to, temporary, temporary);
    return rc ? rc : mgr_inode_put(c, &in);
}

static int adopt(struct mgr_core *c, struct adopt *a, uint64_t dir, unsigned depth)
{
    struct entry { uint64_t ino; uint32_t type; bool temporary; } page[PAGE];
    uint64_t after = 0;
    size_t n = PAGE, len;
    int rc = 0;

    while (n == PAGE && !rc) {
        n = 0;
        for (rc = mgr_db_one(&c->db, DIR_LIST, DBI(dir), DBI(after), DBI(PAGE)); rc > 0; rc = mgr_db_step(&c->db, MGR_ST_DIR_LIST)) {
            const void *name = mgr_col_blob(&c->db, MGR_ST_DIR_LIST, 3, &len);

            after = (uint64_t)mgr_col(&c->db, MGR_ST_DIR_LIST, 0);
            page[n] = (struct entry){(uint64_t)mgr_col(&c->db, MGR_ST_DIR_LIST, 1), (uint32_t)mgr_col(&c->db, MGR_ST_DIR_LIST, 2), mgr_set_is_temporary(name, len)};
            page[n++].type *= !mgr_step_is_convert(name, len); /* is passed over */
        }
        for (size_t i = 0; i < n && !rc; i++) {
            if (page[i].type == S_IFREG >> 12)
                rc = adopt_file(c, a, page[i].ino, page[i].temporary);
            else if (page[i].type == S_IFDIR >> 12 && depth < DEPTH_MAX)
                rc = adopt(c, a, page[i].ino, depth + 1);
        }
    }
    return rc;
}

static int adopt_all(struct mgr_core *c, struct adopt *a, uint64_t dir)
{
    int rc = adopt(c, a, dir, 0);

    if (rc == -EFBIG)
        FP_WARN("directory %llu has become a checkpoint set, but only its first %u files: it has more", (unsigned long long)dir, ADOPT_MAX);
    return rc == -EFBIG ? 0 : rc;
}

int mgr_set_adopt(struct mgr_core *c, uint64_t dir, uint64_t to)
{
    return adopt_all(c, &(struct adopt){.to = to, .left = ADOPT_MAX}, dir);
}

int mgr_set_adopt_free(struct mgr_core *c, uint64_t dir, uint64_t to, uint32_t *taken, int64_t *last_ns)
{
    struct adopt a = {.to = to, .left = ADOPT_MAX, .free = true};
    int rc = adopt_all(c, &a, dir);

    *taken += ADOPT_MAX - a.left;
    *last_ns = a.last_ns;
    return rc;
}

/* The set moves with its directory: chk_0007.tmp becomes chk_0007. If there is one of the new name already, its members come to that one. */
static int move_set(struct mgr_core *c, uint64_t id, uint64_t dir, uint64_t parent, const struct mgr_step *step)
{
    struct mgr_set *s, *to_set;
    uint64_t to;
    int rc = mgr_set_make(c, parent, step, dir, &to);

    if (rc || to == id || !to)
        return rc;
    rc = mgr_set_touch(c, id, &s);
    rc = rc ? rc : mgr_set_touch(c, to, &to_set);
    if (rc || !s || !to_set)
        return rc;
    s->top = 0;
    rc = mgr_set_put(c, s);
    return rc ? rc : mgr_set_adopt(c, dir, to);
}

/* It is a set no more: its files are what their names say, which is nothing as far as a directory has told. */
static int dissolve(struct mgr_core *c, uint64_t id)
{
    struct mgr_set *s;
    int rc = mgr_set_touch(c, id, &s);

    if (rc || !s)
        return rc == -ENOENT ? 0 : rc;
    rc = mgr_db_exec(&c->db, MEMBER_MOVE, DBI(id), DBI(0));
    s->files = s->bytes = s->temps = 0;
    return rc;
}

int mgr_set_dir_renamed(struct mgr_core *c, const struct mgr_inode *dir, uint64_t parent, const ProtobufCBinaryData *name)
{
    struct mgr_step step;
    bool is_step, matches = false;
    uint64_t id = 0, outer = 0;
    int rc = mgr_set_with_top(c, dir->ino, &id);

    mgr_set_caches_drop(c->sets);
    mgr_growth_renamed(c->sets->growth, dir->ino);
    rc = rc ? rc : mgr_pattern_of_dir(c, parent, name, &step, &matches);
    rc = rc || matches ? rc : mgr_set_of_dir(c, parent, &outer);
    if (rc)
        return rc;
    is_step = matches || mgr_step_word((const char *)name->data, name->len, true, &step);
    if (outer)
        return mgr_set_adopt(c, dir->ino, outer);
    if (!is_step)
        rc = mgr_growth_made(c, parent, name, true, dir->btime, &step, &is_step);
    if (rc)
        return rc;
    if (id)
        return is_step ? move_set(c, id, dir->ino, parent, &step) : dissolve(c, id);
    if (!is_step)
        return 0;
    rc = mgr_set_make(c, parent, &step, dir->ino, &id);
    return rc || !id ? rc : mgr_set_adopt(c, dir->ino, id);
}

/* Of one that is a series' directory: are there sets in it? */
static int has_sets(struct mgr_core *c, uint64_t dir)
{
    int rc = mgr_db_one(&c->db, SET_IN_DIR, DBI(dir));

    mgr_db_reset(&c->db, MGR_ST_SET_IN_DIR);
    return rc;
}

int mgr_set_by_telling(struct mgr_core *c, const struct mgr_inode *in, uint64_t *id)
{
    bool directory = mgr_is(in, S_IFDIR);
    struct mgr_inode file = *in;
    struct mgr_step step = {0};
    struct up up = {.len = 0};
    const void *name;
    int rc = mgr_db_one(&c->db, DIR_NAME, DBI(in->parent), DBI(in->ino));

    *id = 0;
    if (rc <= 0 || in->ino == MGR_ROOT_INO) {
        mgr_db_reset(&c->db, MGR_ST_DIR_NAME);
        return rc < 0 ? rc : 0; /* no name, nothing to tell it by */
    }
    name = mgr_col_blob(&c->db, MGR_ST_DIR_NAME, 0, &up.len);
    up.len = up.len < sizeof up.name ? up.len : sizeof up.name;
    memcpy(up.name, name, up.len);
    mgr_db_reset(&c->db, MGR_ST_DIR_NAME);
    if (in->flags & MGR_CONVERTED)
        return mgr_result_told(c, in, id);
    if (!mgr_step_growth(up.name, up.len, directory, 0, &step)) {
        memcpy(step.template, up.name, up.len);
        step.template_len = (uint32_t)up.len;
        if (directory && step.template_len < MGR_STEP_TEMPLATE_MAX)
            step.template[step.template_len++] = '/';
    }
    rc = directory ? has_sets(c, in->ino) : 0;
    if (rc)
        return rc < 0 ? rc : -ENOTEMPTY; /* one of them is meant: as one set they could not be told apart any more */
    step.how = MGR_STEP_TOLD;
    rc = mgr_set_make(c, in->parent, &step, directory ? in->ino : 0, id);
    if (rc || !*id)
        return rc;
    mgr_set_caches_drop(c->sets);
    if (directory)
        return mgr_set_adopt(c, in->ino, *id);
    rc = mgr_set_move(c, &file, *id, false, mgr_set_is_temporary(up.name, up.len));
    return rc ? rc : mgr_inode_put(c, &file);
}
