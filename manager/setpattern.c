/*
 * Checkpoint sets: patterns of policies (pattern=). Loop thread, called by setdirs.c, sets.c, drain_auto.c and policy.c.
 *
 * A file whose path a pattern matches is of the set of the step that stands at {step}: the directory whose name it is in, else the files beside each other that have it. So
 * names that say nothing by themselves (out/00100/, state_100.dat) make sets, and where names say something else the pattern goes before them. Without a policy that has one
 * none of this costs anything; with one, a file that is made costs the comparison of its path. Paths of directories are kept until one is renamed.
 *
 * Which policies a set concerns is asked of the names that its files have at that time, when it is complete, or may be: so it is the same for files that were there before the
 * policy, after a restart of the manager, and when a policy is replaced by another one.
 *
 * Rejected: rows that say which policy has matched which set (void when mounts of the next job replace the policy, and no set would be drained by it of which the files
 * are only rewritten); to look for files of no set when a policy is made (a walk through all of the store: `fpctl checkpoint commit` says it of a directory).
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "manager/drain.h"
#include "manager/sets_int.h"

#define PATHS     64u
#define PATH_BYTES 4096u
#define DIRS_MAX  256u    /* directories of one set that are looked at, */
#define NAMES_MAX 131072u /* … and names: a set that has more is taken for one that matches */

struct mgr_dirpath {
    uint64_t dir;
    size_t len;
    char *text; /* malloc'd; from the root, without a slash before it, with one behind it if it is not the root */
};

struct mgr_pattern {
    uint64_t policy;
    char file[FP_DRAIN_LIST_MAX];
    char dir[FP_DRAIN_LIST_MAX + 1]; /* of the directory that is the set, if {step} is in the name of one: up to that */
};

void mgr_dirpaths_drop(struct mgr_sets *t)
{
    for (size_t i = 0; t->paths && i < PATHS; i++) {
        free(t->paths[i].text);
        t->paths[i] = (struct mgr_dirpath){0};
    }
}

void mgr_dirpaths_free(struct mgr_sets *t)
{
    mgr_dirpaths_drop(t);
    free(t->paths);
    t->paths = NULL;
}

/* -------------------------------------------------------------- of the policies */

/* Up to the end of the component with {step}. A slash in front keeps it from being taken for a name anywhere. */
static void cut(const char *file, char *dir)
{
    const char *step = strstr(file, "{step}"), *slash = step ? strchr(step, '/') : NULL, *any = strchr(file, '/');
    size_t len = slash ? (size_t)(slash - file) : strlen(file), at = 0;

    if (any && any[1] != '\0' && *file != '/')
        dir[at++] = '/';
    memcpy(dir + at, file, len);
    dir[at + len] = '\0';
}

size_t mgr_patterns_in(const struct fp_drain_policy *p)
{
    const char *list = p->pattern, *item;
    size_t n = 0, len;

    while (fp_drain_next(&list, &item, &len))
        n++;
    return n;
}

int mgr_patterns_load(struct mgr_core *c)
{
    struct mgr_drain *d = c->drain;
    size_t n = 0, len;

    mgr_patterns_forget(d);
    for (size_t i = 0; i < d->npolicies; i++)
        n += mgr_patterns_in(&d->policies[i].p);
    if (c->sets)
        mgr_set_caches_drop(c->sets);
    if (!n)
        return 0;
    d->patterns = calloc(n, sizeof *d->patterns);
    if (!d->patterns)
        return mgr_doom(c, -ENOMEM);
    for (size_t i = 0; i < d->npolicies; i++) {
        const char *list = d->policies[i].p.pattern, *item;

        while (fp_drain_next(&list, &item, &len)) {
            struct mgr_pattern *p = &d->patterns[d->npatterns++];

            p->policy = d->policies[i].id;
            memcpy(p->file, item, len);
            p->file[len] = '\0';
            cut(p->file, p->dir);
        }
    }
    return 0;
}

void mgr_patterns_forget(struct mgr_drain *d)
{
    free(d->patterns);
    d->patterns = NULL;
    d->npatterns = 0;
}

/* -------------------------------------------------------------- paths */

/* Into the end of buf, each with a slash behind it. *at: where it begins; PATH_BYTES + 1: it is longer, or has no name any more. */
static int climb(struct mgr_core *c, uint64_t dir, char buf[PATH_BYTES], size_t *at)
{
    struct mgr_inode in;

    for (*at = PATH_BYTES; dir != MGR_ROOT_INO; dir = in.parent) {
        const void *name;
        size_t len = 0;
        int rc = mgr_inode_get(c, dir, &in);

        rc = rc ? rc : mgr_db_one(&c->db, DIR_NAME, DBI(in.parent), DBI(dir));
        if (rc > 0) {
            name = mgr_col_blob(&c->db, MGR_ST_DIR_NAME, 0, &len);
            if (len + 1 <= *at) {
                *at -= len + 1;
                memcpy(buf + *at, name, len);
                buf[*at + len] = '/';
            } else {
                rc = 0;
            }
        }
        mgr_db_reset(&c->db, MGR_ST_DIR_NAME);
        if (rc <= 0) {
            *at = PATH_BYTES + 1;
            return rc == -ENOENT ? 0 : rc;
        }
    }
    return 0;
}

/* The path of a file, without a slash before it. *len 0: it has none that could match. */
static int file_path(struct mgr_core *c, uint64_t dir, const void *name, size_t name_len, char path[PATH_BYTES], size_t *len)
{
    struct mgr_sets *t = c->sets;
    struct mgr_dirpath *p;
    size_t at;
    int rc;

    *len = 0;
    if (!t->paths && !(t->paths = calloc(PATHS, sizeof *t->paths)))
        return mgr_doom(c, -ENOMEM);
    p = &t->paths[dir % PATHS];
    if (p->dir != dir) {
        char buf[PATH_BYTES], *text;

        rc = climb(c, dir, buf, &at);
        if (rc || at > PATH_BYTES)
            return rc;
        text = malloc(PATH_BYTES - at + 1);
        if (!text)
            return mgr_doom(c, -ENOMEM);
        memcpy(text, buf + at, PATH_BYTES - at);
        free(p->text);
        *p = (struct mgr_dirpath){.dir = dir, .len = PATH_BYTES - at, .text = text};
    }
    if (p->len + name_len > PATH_BYTES)
        return 0;
    memcpy(path, p->text, p->len);
    memcpy(path + p->len, name, name_len);
    *len = p->len + name_len;
    return 0;
}

/* -------------------------------------------------------------- of a name */

int mgr_pattern_of(struct mgr_core *c, uint64_t dir, const ProtobufCBinaryData *name, struct mgr_step *out, bool *yes)
{
    const struct mgr_drain *d = c->drain;
    char path[PATH_BYTES];
    size_t len = 0;
    int rc = d->npatterns ? file_path(c, dir, name->data, name->len, path, &len) : 0;

    *yes = false;
    for (size_t i = 0; i < d->npatterns && !rc && len && !*yes; i++)
        *yes = mgr_step_pattern(path, len, d->patterns[i].file, out) == 1;
    return rc;
}

int mgr_pattern_of_result(struct mgr_core *c, uint64_t dir, const ProtobufCBinaryData *name, struct mgr_step *out, bool *yes)
{
    const struct mgr_drain *d = c->drain;
    char path[PATH_BYTES];
    uint32_t slashes = 0;
    size_t len = 0, at;
    int rc = d->npatterns ? file_path(c, dir, name->data, name->len, path, &len) : 0;

    *yes = false;
    for (size_t i = 0; i < d->npatterns && !rc && len && !*yes; i++)
        *yes = mgr_step_pattern(path, len, d->patterns[i].file, out) == 1;
    if (rc || !*yes)
        return rc;
    for (at = len; at > 0; at--) {
        slashes += path[at - 1] == '/';
        if (slashes == (out->above ? out->above : 1))
            break;
    }
    at += out->above ? 0 : out->off + out->len; /* behind the step, or the directory in whose name it is */
    *yes = mgr_step_result(out, path + at, len - at);
    return 0;
}

int mgr_pattern_of_dir(struct mgr_core *c, uint64_t parent, const ProtobufCBinaryData *name, struct mgr_step *out, bool *yes)
{
    const struct mgr_drain *d = c->drain;
    char path[PATH_BYTES];
    size_t len = 0;
    int rc = d->npatterns ? file_path(c, parent, name->data, name->len, path, &len) : 0;

    *yes = false;
    if (rc || !len || len == PATH_BYTES)
        return rc;
    path[len++] = '/'; /* as the paths of all in it have */
    for (size_t i = 0; i < d->npatterns && !*yes; i++)
        *yes = mgr_step_pattern(path, len, d->patterns[i].dir, out) == 1 && out->above == 1;
    return 0;
}

/* -------------------------------------------------------------- of a set */

struct look {
    uint64_t policy;
    size_t names;
    bool yes;
};

static bool matches(const struct mgr_drain *d, uint64_t policy, const char *path, size_t len)
{
    struct mgr_step step;

    for (size_t i = 0; i < d->npatterns; i++)
        if (d->patterns[i].policy == policy && mgr_step_pattern(path, len, d->patterns[i].file, &step) == 1)
            return true;
    return false;
}

static int look_in(struct mgr_core *c, uint64_t dir, uint64_t set, struct look *l)
{
    const enum mgr_stmt st = MGR_ST_MEMBER_NAMES;
    char path[PATH_BYTES];
    size_t base, len;
    int rc = file_path(c, dir, "", 0, path, &base);

    if (rc || (!base && dir != MGR_ROOT_INO))
        return rc;
    for (rc = mgr_db_one(&c->db, MEMBER_NAMES, DBI(dir), DBI(set)); rc > 0 && !l->yes; rc = l->yes ? 0 : mgr_db_step(&c->db, st)) {
        const void *name = mgr_col_blob(&c->db, st, 0, &len);

        if (base + len <= PATH_BYTES) {
            memcpy(path + base, name, len);
            l->yes = matches(c->drain, l->policy, path, base + len);
        }
        l->yes |= ++l->names >= NAMES_MAX;
    }
    mgr_db_reset(&c->db, st);
    return rc < 0 ? rc : 0;
}

int mgr_pattern_has(struct mgr_core *c, const struct mgr_set *s, const struct mgr_dpolicy *p, bool *yes)
{
    const enum mgr_stmt st = MGR_ST_MEMBER_DIRS;
    struct look l = {.policy = p->id, .yes = !p->p.pattern[0]};
    uint64_t dirs[DIRS_MAX];
    size_t n = 0;
    int rc = 0;

    for (rc = l.yes ? 0 : mgr_db_one(&c->db, MEMBER_DIRS, DBI(s->id)); rc > 0 && n < DIRS_MAX; rc = mgr_db_step(&c->db, st))
        dirs[n++] = (uint64_t)mgr_col(&c->db, st, 0);
    mgr_db_reset(&c->db, st);
    for (size_t i = 0; i < n && rc >= 0 && !l.yes; i++)
        rc = look_in(c, dirs[i], s->id, &l);
    *yes = l.yes || n == DIRS_MAX;
    return rc < 0 ? rc : 0;
}
