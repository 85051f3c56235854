/* Staging in what others have put into a target: jobs, listing, names.
 *
 * A job has a row for each file, directory and symbolic link that it has found; the first ones are the paths that it was given. Each is listed when it is its
 * turn (TASK_LIST), which says what it is now:
 *
 *     wait -> prepare (listed) -> directory: made in the store, page by page its entries become rows of the job -> done
 *                              -> symbolic link: made -> done
 *                              -> file: an inode without a name -> parts (foreign_part.c) -> its name -> done
 *
 * So nothing is kept of a file for longer than it is worked on, and one that has changed is listed anew. Until all of its data is here a file is an inode that
 * nobody can find, of which the row knows; it goes with the attempt.
 *
 * What has a name in the store already stays: a directory gets the entries that it lacks, a file of the same size and time (or a link of the same text) counts as
 * done, and anything else fails. A directory that the job has made keeps the times that it has in the target.
 *
 * Names are made when no mount answers for names by itself (session.c): while there is such a job no mount is alone.
 *
 * Rejected: names that are made by fpctl through a mount (the job would end with the command); temporary names (every list would show them). */
#include "manager/ext.h"
#include "manager/foreign.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "fp/drainopt.h"
#include "fp/err.h"
#include "fp/log.h"
#include "manager/version.h"

#define PATHS_MAX MGR_DRAIN_PATHS_MAX
#define PAGE      1024u                   /* entries of one listing */
#define QUIET_NS  (2 * INT64_C(1000000000)) /* since a file was changed: its time does not tell changes apart that come at once */
#define HELD_MS   200u

bool mgr_foreign_any(const struct mgr_core *c)
{
    for (size_t i = 0; i < c->drain->njobs; i++)
        if (mgr_djob_foreign(&c->drain->jobs[i]))
            return true;
    return false;
}

/* ---------------------------------------------------------------- rows */

static int row_new(struct mgr_core *c, struct mgr_djob *j, const ProtobufCBinaryData *path, uint64_t size, enum mgr_dkind kind, uint64_t parent)
{
    int rc = mgr_db_exec(&c->db, FOREIGN_NEW, DBI(j->id), DBB(path->len ? path->data : (const uint8_t *)"", path->len), DBI(size), DBI(kind), DBI(parent));

    if (!rc && (uint64_t)sqlite3_last_insert_rowid(c->db.sq) > MGR_TASK_FILE_MAX)
        rc = mgr_doom(c, -EOVERFLOW);
    j->files += kind != MGR_K_DIR;
    j->bytes += size;
    c->drain->dirty = true;
    return rc;
}

/* Its kind and its inode, as they are found to be. */
static int row_is(struct mgr_core *c, struct mgr_dfile *f, enum mgr_dkind kind, uint64_t ino)
{
    struct mgr_djob *j = mgr_djob_find(c, f->job);
    bool was = f->kind != MGR_K_DIR, is = kind != MGR_K_DIR;
    int rc = mgr_db_exec(&c->db, FOREIGN_IS, DBI(f->id), DBI(kind), DBI(ino));

    f->kind = kind;
    f->ino = ino;
    if (was == is)
        return rc;
    j->files += is;
    j->files -= was && j->files > 0;
    return rc ? rc : mgr_djob_put(c, j);
}

int mgr_dfile_after(struct mgr_core *c, const struct mgr_dfile *f, ProtobufCBinaryData *after)
{
    const void *p;
    int rc = mgr_db_one(&c->db, FOREIGN_AFTER, DBI(f->id));

    if (rc <= 0)
        return rc ? rc : -ENOENT;
    p = mgr_col_blob(&c->db, MGR_ST_FOREIGN_AFTER, 0, &after->len);
    after->data = mgr_arena_copy(&c->arena, after->len ? p : "", after->len ? after->len : 1);
    mgr_db_reset(&c->db, MGR_ST_FOREIGN_AFTER);
    return after->data ? 0 : mgr_doom(c, -ENOMEM);
}

static ProtobufCBinaryData name_of(ProtobufCBinaryData path)
{
    for (size_t i = path.len; i > 0; i--)
        if (path.data[i - 1] == '/')
            return (ProtobufCBinaryData){path.len - i, path.data + i};
    return path;
}

/* Another look, after a while. */
static int look_again(struct mgr_core *c, struct mgr_dfile *f, uint64_t ms)
{
    int rc = mgr_drain_gen(c, &f->gen);

    f->at_ms = c->now.ms + ms;
    mgr_tasker(c, f->lead)->look = true;
    return rc ? rc : mgr_dfile_put(c, f, 0, NULL);
}

void mgr_foreign_may_name(struct mgr_core *c)
{
    for (size_t i = 0; i < c->drain->nfiles; i++) {
        struct mgr_dfile *f = &c->drain->files[i];

        if (!f->held)
            continue;
        f->at_ms = 0;
        mgr_tasker(c, f->lead)->look = true;
    }
    c->drain->dirty |= mgr_foreign_any(c);
}

static int done(struct mgr_core *c, struct mgr_dfile *f)
{
    int rc;

    f->version = f->kind != MGR_K_DIR; /* counts */
    rc = mgr_drain_done(c, f);
    mgr_dfile_remove(c, f);
    return rc;
}

int mgr_foreign_begin(struct mgr_core *c, struct mgr_dfile *f)
{
    struct mgr_dfile *at;
    int rc = mgr_drain_take(c, f, &at);

    if (rc || !at)
        return rc;
    at->at_ms = at->full_ms = 0;
    return mgr_drain_prepare(c, at);
}

int mgr_foreign_over(struct mgr_core *c, struct mgr_dfile *f)
{
    uint64_t ino = f->ino;
    int rc = 0;

    if (f->kind != MGR_K_FILE || !ino)
        return 0;
    rc = row_is(c, f, f->kind, 0);
    return rc ? rc : mgr_shadow_remove(c, ino);
}

/* ---------------------------------------------------------------- names in the store */

static int dir_of(struct mgr_core *c, struct mgr_dfile *f, struct mgr_inode *dir)
{
    int rc = mgr_dir_get(c, f->parent, dir);

    if (rc != -ENOENT && rc != -ENOTDIR)
        return rc;
    rc = mgr_drain_fail(c, f, -ENOENT, "the directory of the store that it was to be in was removed");
    return rc ? rc : 1;
}

static int link_is(struct mgr_core *c, uint64_t ino, ProtobufCBinaryData text)
{
    const void *p;
    size_t len = 0;
    int rc = mgr_db_one(&c->db, INODE_TARGET, DBI(ino));

    if (rc <= 0)
        return rc;
    p = mgr_col_blob(&c->db, MGR_ST_INODE_TARGET, 1, &len);
    rc = len == text.len && memcmp(p, text.data, len) == 0;
    mgr_db_reset(&c->db, MGR_ST_INODE_TARGET);
    return rc;
}

/* Is what has the name already what is to be there? 1, 0, or a failure. */
static int is_same(struct mgr_core *c, uint64_t ino, const struct mgr_inode *is, ProtobufCBinaryData link)
{
    struct mgr_inode old;
    int rc = mgr_inode_get(c, ino, &old);

    if (rc || (old.mode ^ is->mode) & S_IFMT)
        return rc;
    if (mgr_is(is, S_IFDIR))
        return 1;
    if (mgr_is(is, S_IFLNK))
        return link_is(c, ino, link);
    return old.size == is->size && old.mtime == is->mtime && !mgr_map_get(&c->writers, ino);
}

/* 0: the name is free; 1: something has it, and *ino is that if it will do, else f has failed and is not valid any more; or a failure. */
static int is_taken(struct mgr_core *c, struct mgr_dfile *f, const struct mgr_inode *dir, const ProtobufCBinaryData *name, const struct mgr_inode *is,
                    ProtobufCBinaryData link, uint64_t *ino)
{
    const char *why = NULL;
    struct mgr_dirent d;
    int rc = mgr_dirent_get(c, dir->ino, name, &d);

    *ino = 0;
    if (rc)
        return rc == -ENOENT ? 0 : rc;
    rc = is_same(c, d.ino, is, link);
    if (rc > 0 && mgr_is(is, S_IFREG)) {
        int more = mgr_rescue_file(c, d.ino, &why);

        if (more < 0)
            return more;
        if (more == MGR_RESCUE_MORE || why) {
            rc = why ? mgr_drain_fail(c, f, -EEXIST, "the store has it, but some of that is lost or damaged, or on a benefactor that is away: remove it, then it can be staged in")
                     : look_again(c, f, 0);
            return rc < 0 ? rc : 1;
        }
    }
    if (rc > 0)
        *ino = d.ino;
    else if (!rc)
        rc = mgr_drain_fail(c, f, -EEXIST, "the store has another one of this name: it stays; remove it, or say another directory with --to");
    return rc < 0 ? rc : 1;
}

static int add_name(struct mgr_core *c, const struct mgr_djob *j, struct mgr_inode *dir, const ProtobufCBinaryData *name, const struct mgr_inode *in)
{
    int rc = mgr_dirent_add(c, dir->ino, name, in);

    dir->size++;
    dir->nlink += mgr_is(in, S_IFDIR);
    dir->ctime = c->now.ns;
    if (dir->btime < j->made_ns)
        dir->mtime = c->now.ns;
    return rc ? rc : mgr_inode_put(c, dir);
}

/* What it is in the target, as an inode of ours in dir. */
static void fill(const struct mgr_core *c, struct mgr_inode *in, const Fp__Attr *a, const struct mgr_inode *dir)
{
    *in = (struct mgr_inode){.mode = a->mode & (S_IFMT | 07777),
                             .uid = a->uid,
                             .gid = a->gid,
                             .size = S_ISREG(a->mode) ? a->size_bytes : 0,
                             .atime = a->atime_ns,
                             .mtime = a->mtime_ns,
                             .ctime = c->now.ns,
                             .btime = c->now.ns,
                             .chunk_size = dir->chunk_size,
                             .stripe = dir->stripe,
                             .flags = (dir->flags & MGR_STRICT) | MGR_STAGED,
                             .data_version = 1,
                             .parent = dir->ino};
}

static bool is_full(const struct mgr_core *c)
{
    return c->n.inodes - c->versions->shadows.used >= c->o.inodes_max;
}

static int no_inodes(struct mgr_core *c, struct mgr_dfile *f)
{
    int rc = mgr_drain_fail(c, f, -ENOSPC, "the store has as many files as it may have");

    return rc ? rc : 1;
}

int mgr_foreign_publish(struct mgr_core *c, struct mgr_dfile *f)
{
    const ProtobufCBinaryData no_link = {0, NULL};
    ProtobufCBinaryData path, name;
    struct mgr_inode dir, in;
    uint64_t same;
    int rc;

    if (mgr_names_held(c))
        return 0; /* at the next tick */
    rc = dir_of(c, f, &dir);
    if (rc)
        return rc < 0 ? rc : 0;
    rc = mgr_inode_get(c, f->ino, &in);
    rc = rc ? rc : mgr_dfile_path(c, f->id, &path);
    if (rc)
        return rc;
    name = name_of(path);
    rc = is_taken(c, f, &dir, &name, &in, no_link, &same);
    if (rc > 0 && same)
        rc = mgr_foreign_over(c, f);
    else if (rc > 0)
        return 0;
    if (!rc && !same) {
        in.nlink = 1;
        in.parent = dir.ino;
        in.ctime = c->now.ns;
        rc = mgr_inode_put(c, &in);
        rc = rc ? rc : add_name(c, mgr_djob_find(c, f->job), &dir, &name, &in);
    }
    return rc ? rc : done(c, f);
}

/* ---------------------------------------------------------------- what the listing says */

/* Of a directory or link. 1: f has failed. */
static int make(struct mgr_core *c, struct mgr_dfile *f, const Fp__ListEntry *e, ProtobufCBinaryData path, uint64_t *ino)
{
    const ProtobufCBinaryData name = name_of(path);
    struct mgr_inode dir, in;
    bool is_dir = S_ISDIR(e->attr->mode);
    int rc = dir_of(c, f, &dir);

    if (rc)
        return rc;
    *ino = dir.ino;
    if (!path.len) /* the target's root: what is in it */
        return 0;
    fill(c, &in, e->attr, &dir);
    rc = is_taken(c, f, &dir, &name, &in, e->link, ino);
    if (rc)
        return rc < 0 || !*ino ? rc : 0;
    if (is_full(c))
        return no_inodes(c, f);
    in.nlink = is_dir ? 2 : 1;
    in.size = is_dir ? 0 : e->link.len;
    rc = mgr_inode_insert(c, &in, e->link.data, is_dir ? 0 : e->link.len);
    *ino = in.ino;
    rc = rc || !is_dir ? rc : mgr_foreign_attrs(c, f, in.ino, e, path);
    return rc ? rc : add_name(c, mgr_djob_find(c, f->job), &dir, &name, &in);
}

static int is_link(struct mgr_core *c, struct mgr_dfile *f, const Fp__ListEntry *e, ProtobufCBinaryData path)
{
    uint64_t ino;
    int rc = e->link.len ? make(c, f, e, path, &ino) : -EINVAL;

    if (rc == -EINVAL)
        return mgr_drain_fail(c, f, rc, "a symbolic link without a text");
    rc = rc ? rc : mgr_drain_set_size(c, f, 0);
    rc = rc ? rc : row_is(c, f, MGR_K_LINK, ino);
    return rc ? (rc < 0 ? rc : 0) : done(c, f);
}

static int is_file(struct mgr_core *c, struct mgr_dfile *f, const Fp__ListEntry *e, ProtobufCBinaryData path)
{
    const ProtobufCBinaryData name = name_of(path);
    int64_t age = c->now.ns - e->attr->mtime_ns;
    struct mgr_inode dir, in;
    uint64_t same;
    int rc = dir_of(c, f, &dir);

    rc = rc ? rc : row_is(c, f, MGR_K_FILE, 0);
    rc = rc ? rc : mgr_drain_set_size(c, f, e->attr->size_bytes);
    if (rc)
        return rc < 0 ? rc : 0;
    fill(c, &in, e->attr, &dir);
    rc = is_taken(c, f, &dir, &name, &in, e->link, &same);
    if (rc)
        return rc < 0 || !same ? (rc < 0 ? rc : 0) : done(c, f);
    if (age >= 0 && age < QUIET_NS) {
        if (++f->tries >= MGR_FOREIGN_TRIES)
            return mgr_drain_fail(c, f, -EBUSY, "somebody writes it");
        return look_again(c, f, (uint64_t)(QUIET_NS - age) / 1000000 + 1);
    }
    if (in.size > INT64_MAX || (in.size + in.chunk_size - 1) / in.chunk_size >= MGR_TASK_WINDOWS)
        return mgr_drain_fail(c, f, -EFBIG, NULL);
    if (is_full(c))
        return (rc = no_inodes(c, f)) < 0 ? rc : 0;
    rc = mgr_inode_insert(c, &in, NULL, 0);
    rc = rc ? rc : mgr_foreign_attrs(c, f, in.ino, e, path);
    if (!rc && e->attr->nlink > 1)
        rc = mgr_foreign_left(c, f->job, path, MGR_LEFT_NAMES);
    rc = rc ? rc : row_is(c, f, MGR_K_FILE, in.ino);
    f->tino = e->attr->ino;
    f->state = MGR_D_PARTS;
    c->drain->dirty = true;
    return rc ? rc : mgr_dfile_put(c, f, 0, NULL);
}

/* Those of a page, from `from` on, become rows. */
static int add_entries(struct mgr_core *c, struct mgr_dfile *f, const Fp__TaskResult *r, size_t from, ProtobufCBinaryData dir)
{
    struct mgr_djob *j = mgr_djob_find(c, f->job);
    uint8_t *path = mgr_arena_alloc(&c->arena, dir.len + MGR_NAME_MAX + 2);
    size_t at = dir.len ? dir.len + 1 : 0;
    int rc = 0;

    if (!path)
        return mgr_doom(c, -ENOMEM);
    memcpy(path, dir.data, dir.len);
    path[dir.len] = '/';
    for (size_t i = from; i < r->n_list && !rc; i++) {
        const Fp__ListEntry *e = r->list[i];
        uint32_t mode = e->attr ? e->attr->mode : 0;
        ProtobufCBinaryData whole = {at + e->path.len, path};

        if (mgr_name_check(&e->path))
            continue;
        memcpy(path + at, e->path.data, e->path.len);
        if (!S_ISREG(mode) && !S_ISDIR(mode) && !S_ISLNK(mode)) {
            rc = mgr_foreign_left(c, j->id, whole, MGR_LEFT_SPECIAL);
            continue;
        }
        rc = row_new(c, j, &whole, S_ISREG(mode) ? e->attr->size_bytes : 0, S_ISDIR(mode) ? MGR_K_DIR : S_ISREG(mode) ? MGR_K_FILE : MGR_K_LINK, f->ino);
    }
    return rc ? rc : mgr_djob_put(c, j);
}

static int is_dir(struct mgr_core *c, struct mgr_dfile *f, const Fp__TaskResult *r, bool first, ProtobufCBinaryData path)
{
    uint64_t ino = f->ino;
    int rc = first ? make(c, f, r->list[0], path, &ino) : 0;

    rc = rc || !first ? rc : mgr_drain_set_size(c, f, 0);
    rc = rc || !first ? rc : row_is(c, f, MGR_K_DIR, ino);
    rc = rc ? rc : add_entries(c, f, r, first, path);
    if (rc)
        return rc < 0 ? rc : 0;
    if (r->n_list > (size_t)first)
        rc = mgr_db_exec(&c->db, FOREIGN_UP_TO, DBI(f->id), DBB(r->list[r->n_list - 1]->path.data, r->list[r->n_list - 1]->path.len));
    if (rc || !r->eof)
        return rc ? rc : look_again(c, f, 0);
    return done(c, f);
}

int mgr_foreign_listed(struct mgr_core *c, struct mgr_dfile *f, const Fp__TaskResult *r)
{
    ProtobufCBinaryData path, after;
    const Fp__ListEntry *self = r->n_list && !r->list[0]->path.len ? r->list[0] : NULL;
    int rc;

    if (f->state != MGR_D_PREPARE || r->status == FP_ECANCELLED)
        return 0;
    if (r->status == -ENOENT)
        return mgr_drain_fail(c, f, r->status, "it is not in the target, or was removed meanwhile");
    if (r->status)
        return mgr_drain_fail(c, f, r->status, r->why);
    f->held = mgr_names_held(c) && !(self && self->attr && S_ISREG(self->attr->mode)); /* the data of a file may come before */
    if (r->tainted || f->held)
        return look_again(c, f, HELD_MS);
    rc = mgr_dfile_path(c, f->id, &path);
    rc = rc ? rc : mgr_dfile_after(c, f, &after);
    if (rc)
        return rc;
    if (after.len ? self != NULL : !self || !self->attr)
        return mgr_drain_fail(c, f, -ESTALE, "it was replaced while it was listed");
    if (after.len || S_ISDIR(self->attr->mode))
        return is_dir(c, f, r, !after.len, path);
    if (S_ISREG(self->attr->mode))
        return is_file(c, f, self, path);
    return S_ISLNK(self->attr->mode) ? is_link(c, f, self, path) : mgr_drain_fail(c, f, -EINVAL, "not a file, directory or symbolic link");
}

bool mgr_foreign_lists(const struct mgr_core *c, const struct mgr_dfile *f)
{
    return f->state == MGR_D_PREPARE && c->now.ms >= f->at_ms;
}

Fp__Task *mgr_foreign_list_task(struct mgr_core *c, const struct mgr_dfile *f)
{
    const struct mgr_target *t = mgr_target_find(c, f->target);
    Fp__Task *k = t ? mgr_task_new(c, FP__TASK_KIND__TASK_LIST, mgr_task_id(f->id, MGR_TASK_LIST, false), f->gen, t) : NULL;

    if (!k || mgr_dfile_path(c, f->id, &k->dest->path) || mgr_dfile_after(c, f, &k->text))
        return NULL;
    k->count = PAGE;
    k->urgent = f->urgent;
    return k;
}

/* ---------------------------------------------------------------- what fpctl asks */

#define refuse(c, r, ...) mgr_drain_refuse(c, &(r)->why, &(r)->n_why, __VA_ARGS__)

/* Without doubled slashes, and one at its end; false: it has "." or "..", or does not begin with a slash. */
static bool cleaned(ProtobufCBinaryData in, ProtobufCBinaryData *out, uint8_t *room)
{
    size_t n = 0;

    if (!in.len || in.data[0] != '/' || memchr(in.data, 0, in.len))
        return false;
    for (size_t i = 0, end; i < in.len; i = end) {
        while (i < in.len && in.data[i] == '/')
            i++;
        for (end = i; end < in.len && in.data[end] != '/'; end++)
            ;
        if (end == i)
            break;
        if (in.data[i] == '.' && (end - i == 1 || (end - i == 2 && in.data[i + 1] == '.')))
            return false;
        room[n++] = '/';
        memcpy(room + n, in.data + i, end - i);
        n += end - i;
    }
    *out = (ProtobufCBinaryData){n, room};
    return true;
}

int mgr_stage_path(struct mgr_core *c, Fp__CtlStageReply *r, ProtobufCBinaryData in, ProtobufCBinaryData *out)
{
    uint8_t *room = mgr_arena_alloc(&c->arena, in.len + 2);

    if (!room)
        return mgr_doom(c, -ENOMEM);
    return cleaned(in, out, room) ? 0 : refuse(c, r, "%.*s: write it from / on, and without . and ..", (int)in.len, (char *)in.data);
}

const struct mgr_target *mgr_target_of(const struct mgr_core *c, ProtobufCBinaryData *path)
{
    for (size_t i = 0; i < c->drain->ntargets; i++) {
        const struct mgr_target *t = &c->drain->targets[i];
        size_t len = strlen(t->root);

        if (!mgr_target_wanted(c, t) || path->len < len || memcmp(path->data, t->root, len) != 0 || (path->len > len && path->data[len] != '/'))
            continue;
        len += path->len > len;
        path->data += len;
        path->len -= len;
        return t;
    }
    return NULL;
}

/* One that was not used before; 0 and r says why if that can't be. */
static int named_target(struct mgr_core *c, const char *root, Fp__CtlStageReply *r)
{
    struct fp_drain_policy *p = mgr_arena_zalloc(&c->arena, sizeof *p);
    char why[FP_DRAIN_WHY_MAX];
    struct mgr_target *t;
    uint32_t id;
    int rc;

    if (!p)
        return mgr_doom(c, -ENOMEM);
    if (!mgr_target_parse(root, p, why))
        return refuse(c, r, "%s", why);
    if (mgr_target_clash(c, p->to))
        return refuse(c, r, "%s and %s, which is a target already, lie one in the other", p->to, mgr_target_clash(c, p->to));
    rc = mgr_target_get(c, p->to, &id);
    t = rc ? NULL : mgr_target_find(c, id);
    if (t && !t->unmarked) /* that one is only read: whether it could be written to is of no account */
        mgr_target_try(c, t);
    return rc;
}

struct start {
    ProtobufCBinaryData path[PATHS_MAX];
    uint32_t target;
    uint64_t dir;
};

static int look_up(struct mgr_core *c, const Fp__CtlStage *m, Fp__CtlStageReply *r, struct start *s)
{
    ProtobufCBinaryData dest = m->dest;
    struct mgr_inode dir;
    int rc;

    while (dest.len && dest.data[0] == '/')
        dest.data++, dest.len--;
    while (dest.len && dest.data[dest.len - 1] == '/')
        dest.len--;
    rc = mgr_resolve(c, dest, &s->dir);
    rc = rc ? rc : mgr_dir_get(c, s->dir, &dir);
    if (rc == -ENOENT || rc == -ENOTDIR)
        return refuse(c, r, "--to %.*s: %s", (int)dest.len, dest.len ? (char *)dest.data : "", fp_strerror(rc));
    for (size_t i = 0; i < m->n_paths && !rc; i++) {
        const struct mgr_target *t;
        int len = (int)m->paths[i].len;

        rc = mgr_stage_path(c, r, m->paths[i], &s->path[i]);
        if (rc || !s->path[i].data)
            continue;
        t = mgr_target_of(c, &s->path[i]);
        if (!t && m->root[0])
            rc = refuse(c, r, "%.*s does not lie below --target %s: give the directory above it", len, (char *)m->paths[i].data, m->root);
        else if (!t)
            rc = refuse(c, r, "%.*s is in no target that this store knows (fpctl drain show): say with --target which directory above it is one; a file .fp-target is made there, if it can be written to", len,
                        (char *)m->paths[i].data);
        else if (i && s->target && t->id != s->target)
            rc = refuse(c, r, "%.*s: in another target than what is before it", len, (char *)m->paths[i].data);
        else
            s->target = t->id;
    }
    return rc;
}

/* The active job that has begun with the same; 0: none. */
static int same_job(struct mgr_core *c, const struct start *s, size_t n, uint64_t *id)
{
    const enum mgr_stmt st = MGR_ST_FOREIGN_FIRST;
    int rc = 0;

    *id = 0;
    for (size_t i = 0; i < c->drain->njobs && !*id && rc >= 0; i++) {
        const struct mgr_djob *j = &c->drain->jobs[i];
        size_t k = 0, same = 0;

        if (!mgr_djob_foreign(j) || j->target != s->target || j->gen != n)
            continue;
        for (rc = mgr_db_one(&c->db, FOREIGN_FIRST, DBI(j->first), DBI(n)); rc > 0; rc = mgr_db_step(&c->db, st), k++) {
            size_t len;
            const void *p = mgr_col_blob(&c->db, st, 0, &len);

            same += len == s->path[k].len && (!len || memcmp(p, s->path[k].data, len) == 0) && (uint64_t)mgr_col(&c->db, st, 1) == s->dir;
        }
        *id = same == n ? j->id : 0;
    }
    return rc < 0 ? rc : 0;
}

static int new_job(struct mgr_core *c, const struct start *s, size_t n, uint64_t *id)
{
    struct mgr_djob j = {.kind = FP__JOB_KIND__JOB_FOREIGN, .state = FP__DRAIN_STATE__DRAIN_RUNS, .target = s->target, .gen = n, .dest = strdup(""), .why = strdup("")};
    struct mgr_djob *at;
    int rc = mgr_djob_new(c, &j);

    *id = j.id;
    at = rc ? NULL : mgr_djob_find(c, j.id);
    for (size_t i = 0; i < n && !rc; i++)
        rc = row_new(c, at, &s->path[i], 0, MGR_K_DIR, s->dir); /* what it is the listing tells */
    if (!rc)
        at->first = (uint64_t)sqlite3_last_insert_rowid(c->db.sq) - (n - 1);
    c->stirred = true; /* who was alone is so no more */
    return rc ? rc : mgr_djob_put(c, at);
}

int mgr_foreign_start(struct mgr_core *c, const Fp__CtlStage *m, Fp__CtlStageReply *r)
{
    struct start *s = mgr_arena_zalloc(&c->arena, sizeof *s);
    int rc;

    if (!s)
        return mgr_doom(c, -ENOMEM);
    if (!m->n_paths || m->n_paths > PATHS_MAX)
        return refuse(c, r, "give from 1 to %u paths", PATHS_MAX);
    rc = m->root[0] ? named_target(c, m->root, r) : 0;
    rc = rc || r->n_why ? rc : look_up(c, m, r, s);
    if (rc || r->n_why)
        return rc;
    rc = same_job(c, s, m->n_paths, &r->job);
    return rc || r->job ? rc : new_job(c, s, m->n_paths, &r->job);
}
