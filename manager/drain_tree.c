/* Draining: what there is beside the data of files. Directories, symbolic links, attributes.
 *
 * The rows of a job are files, links and directories. A link is made as a file is (a temporary one, then its name), without parts. A directory becomes rows
 * of its entries, is made in the target, also when it has none, and waits (MGR_D_DIR) until all else of the job is done: only then nobody makes
 * anything in it any more, and its times stay as they are set. It counts as no file of the job, and what is above the paths that were asked for is
 * made and left alone.
 *
 * A file with several names (hard links) is a file of its own under each of them there: to make a link to one that somebody may have replaced in the target
 * would join what does not belong together.
 *
 * Called by the core's thread: in a group, but mgr_drain_attr after it, too. */
#include "manager/foreign.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "fp/log.h"

#define DIR_STEP   1024u /* entries that one step lists */
#define DIRS_STEP  64u   /* directories that one step finishes */
#define XATTRS_MAX (128u << 10)

/* ---------------------------------------------------------------- what is drained */

int mgr_drain_entry(struct mgr_core *c, struct mgr_djob *j, const struct mgr_inode *in, const void *path, size_t len)
{
    bool file = mgr_is(in, S_IFREG), dir = mgr_is(in, S_IFDIR);

    if (!file && !dir && mgr_djob_stages(j))
        return 0;
    if (!file && !dir && !mgr_is(in, S_IFLNK))
        return mgr_foreign_left(c, j->id, (ProtobufCBinaryData){len, (uint8_t *)(uintptr_t)path}, MGR_LEFT_SPECIAL);
    j->files += !dir;
    j->bytes += file ? in->size : 0;
    return mgr_dfile_new(c, j, in->ino, file ? in->size : 0, dir ? MGR_K_DIR : file ? MGR_K_FILE : MGR_K_LINK, path, len);
}

/* Its row keeps in `size` how far that is. The top of a target has no name of its own, and of what is evicted nothing is made: then there is no more to do. */
int mgr_drain_expand(struct mgr_core *c, struct mgr_djob *j, struct mgr_dfile *f)
{
    const enum mgr_stmt st = MGR_ST_DIRENT_LIST_PLUS;
    ProtobufCBinaryData dir;
    uint32_t n = 0;
    int rc = mgr_dfile_path(c, f->id, &dir), row;
    uint8_t *path = mgr_arena_alloc(&c->arena, dir.len + MGR_NAME_MAX + 2);

    if (rc || !path)
        return rc ? rc : mgr_doom(c, -ENOMEM);
    memcpy(path, dir.data, dir.len);
    path[dir.len] = '/';
    for (row = mgr_db_one(&c->db, DIRENT_LIST_PLUS, DBI(f->ino), DBI(f->size), DBI(DIR_STEP)); row > 0; row = mgr_db_step(&c->db, st)) {
        size_t at = dir.len ? dir.len + 1 : 0, len;
        const void *name = mgr_col_blob(&c->db, st, 1, &len);
        struct mgr_inode in;

        memcpy(path + at, name, len);
        mgr_inode_row(c, st, 2, &in);
        f->size = (uint64_t)mgr_col(&c->db, st, 0);
        n++;
        rc = mgr_drain_entry(c, j, &in, path, at + len);
        if (rc)
            break;
    }
    mgr_db_reset(&c->db, st);
    if (row < 0 || rc)
        return rc ? rc : row;
    if (n < DIR_STEP) {
        f->version = 2;
        f->state = (dir.len || *j->dest) && !mgr_djob_stages(j) ? MGR_D_WAIT : MGR_D_DONE;
    }
    rc = mgr_dfile_put(c, f, 0, NULL);
    return rc ? rc : mgr_djob_put(c, j);
}

/* ---------------------------------------------------------------- directories at the end */

static int finish_dir(struct mgr_core *c, struct mgr_dfile *f)
{
    struct mgr_inode in;
    int rc = mgr_inode_get_live(c, f->ino, &in);

    if (rc == -ENOENT || (!rc && !in.nlink)) {
        f->state = MGR_D_DONE; /* removed meanwhile: what was drained of it is there */
        rc = mgr_dfile_put(c, f, 0, NULL);
        return rc ? rc : 1;
    }
    f->version = rc ? 0 : in.data_version;
    return rc ? rc : mgr_drain_begin(c, f, 0, MGR_D_FINISH);
}

int mgr_drain_dirs(struct mgr_core *c, struct mgr_djob *j)
{
    const enum mgr_stmt st = MGR_ST_DFILE_DIRS;
    struct mgr_dfile list[DIRS_STEP];
    size_t n = 0;
    int rc;

    for (rc = mgr_db_one(&c->db, DFILE_DIRS, DBI(j->id), DBI(DIRS_STEP)); rc > 0; rc = mgr_db_step(&c->db, st))
        mgr_dfile_row(c, st, j, &list[n++]);
    for (size_t i = 0; i < n && rc >= 0; i++)
        rc = finish_dir(c, &list[i]);
    return rc < 0 ? rc : n > 0;
}

/* ---------------------------------------------------------------- attributes */

static Fp__XattrEntry *xattr_entry(struct mgr_core *c, uint64_t ino, const void *name, size_t len)
{
    Fp__XattrEntry *x = MGR_NEW(c, Fp__XattrEntry, fp__xattr_entry__init);
    const void *value;
    size_t n;

    if (!x || mgr_db_one(&c->db, XATTR_GET, DBI(ino), DBB(name, len)) <= 0)
        return NULL;
    value = mgr_col_blob(&c->db, MGR_ST_XATTR_GET, 0, &n);
    x->name.data = mgr_arena_copy(&c->arena, name, len);
    x->name.len = x->name.data ? len : 0;
    x->value.data = mgr_arena_copy(&c->arena, n ? value : "", n ? n : 1);
    x->value.len = x->value.data ? n : 0;
    mgr_db_reset(&c->db, MGR_ST_XATTR_GET);
    return x;
}

/* The user's; what is more than a task takes is left out, and said. */
static void add_xattrs(struct mgr_core *c, Fp__Task *k, uint64_t ino)
{
    const enum mgr_stmt st = MGR_ST_XATTR_LIST;
    size_t bytes = 0;

    if (!k->xattrs) /* else the first one is there (needs.c) */
        k->xattrs = mgr_arena_alloc(&c->arena, MGR_TASK_XATTRS_MAX * sizeof *k->xattrs);
    for (int rc = mgr_db_one(&c->db, XATTR_LIST, DBI(ino)); rc > 0; rc = mgr_db_step(&c->db, st)) {
        size_t len;
        const char *name = mgr_col_blob(&c->db, st, 0, &len);
        Fp__XattrEntry *x;

        if (len < 5 || memcmp(name, "user.", 5) != 0 || !k->xattrs)
            continue;
        x = xattr_entry(c, ino, name, len);
        if (!x || k->n_xattrs == MGR_TASK_XATTRS_MAX || bytes + x->name.len + x->value.len > XATTRS_MAX) {
            FP_LOG_EVERY(10000, FP_LOG_WARN, "a drained file has more extended attributes than can be taken along");
            continue;
        }
        bytes += x->name.len + x->value.len + 16;
        k->xattrs[k->n_xattrs++] = x;
    }
    mgr_db_reset(&c->db, st);
}

/* Where a symbolic link leads. */
static bool add_target(struct mgr_core *c, Fp__Task *k, uint64_t ino)
{
    const void *p;

    if (mgr_db_one(&c->db, INODE_TARGET, DBI(ino)) > 0) {
        p = mgr_col_blob(&c->db, MGR_ST_INODE_TARGET, 1, &k->text.len);
        k->text.data = mgr_arena_copy(&c->arena, p, k->text.len);
    }
    mgr_db_reset(&c->db, MGR_ST_INODE_TARGET);
    return k->text.data && k->text.len;
}

bool mgr_drain_attr(struct mgr_core *c, Fp__Task *k, const struct mgr_dfile *f, const struct mgr_inode *in)
{
    k->attr = mgr_attr(c, in);
    if (k->kind == FP__TASK_KIND__TASK_FINISH)
        add_xattrs(c, k, in->ino);
    return k->attr && (f->kind != MGR_K_LINK || add_target(c, k, in->ino));
}
