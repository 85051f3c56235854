/*
 * Checkpoint sets: results of conversions.
 *
 * A converter makes of a complete set another file (dump_0007.h5 of dump_0007/ or dump_0007.*), or several: the file, one beside it that describes it, parts of nodes. Their names, or
 * the directory, would make them members of the set that they were made of, which would be open again, and be drained with them. So a converter says what it makes: the attribute
 * user.fp.converted has the name of the main file, and the inode a flag (MGR_CONVERTED) that outlives the manager. Such a file is of the set of its result: its series is made of
 * the whole main name (stepname.c: mgr_step_result), the step is that of the name, by a pattern, a word, or a number that is known to grow in the files or directories beside it. One
 * that has no step is of no set. It is so for all files of one result, whatever they are called themselves.
 *
 * A pattern of a policy says here which number is the step, and which policy drains it; it makes no result a member of another set.
 *
 * Rejected: sets by the names of the results alone (dump_0007.xmf is of dump_0007.h5, or of the dump: no name tells); a set for all results of one dump in the row of its set (a result
 * may be made anew, of part of it, and elsewhere).
 *
 * Called by sets.c, setdirs.c, setmsg.c and ns_xattr.c, in the core's thread.
 */
#include <errno.h>
#include <string.h>

#include "manager/sets_int.h"

#define ATTRIBUTE "user.fp.converted"

/* The name of the main file, in memory of the group. Empty: the attribute is gone. */
static int main_name(struct mgr_core *c, uint64_t ino, ProtobufCBinaryData *name)
{
    int rc = mgr_db_one(&c->db, XATTR_GET, DBI(ino), DBB(ATTRIBUTE, sizeof ATTRIBUTE - 1));
    const void *p;

    name->len = 0;
    if (rc <= 0)
        return rc;
    p = mgr_col_blob(&c->db, MGR_ST_XATTR_GET, 0, &name->len);
    name->data = mgr_arena_copy(&c->arena, p, name->len);
    mgr_db_reset(&c->db, MGR_ST_XATTR_GET);
    return name->data ? 0 : mgr_doom(c, -ENOMEM);
}

/* The files, or directories (00700.h5 of 00700/), beside it are of a series by a number that grows, and it has that number. */
static int by_growth(struct mgr_core *c, uint64_t dir, const char *name, size_t len, struct mgr_step *s, bool *yes)
{
    const char *dot = memrchr(name, '.', len);
    int rc = mgr_growth_known(c, dir, name, len, false, s, yes);

    if (rc || *yes)
        return rc;
    len = dot ? (size_t)(dot - name) : len;
    rc = mgr_growth_known(c, dir, name, len, true, s, yes);
    s->off = 0;
    s->len = (uint32_t)len; /* a directory's template has all of its name */
    return rc;
}

static int step_of(struct mgr_core *c, uint64_t dir, const ProtobufCBinaryData *main, struct mgr_step *s, bool *yes)
{
    const char *name = (const char *)main->data;
    int rc = mgr_pattern_of_result(c, dir, main, s, yes);

    if (rc || *yes)
        return rc;
    *yes = mgr_step_word(name, main->len, false, s);
    if (!*yes)
        rc = by_growth(c, dir, name, main->len, s, yes);
    *yes = !rc && *yes && mgr_step_result(s, name + s->off + s->len, main->len - s->off - s->len);
    return rc;
}

/* The directory of its series. */
static int parent_of(struct mgr_core *c, uint64_t dir, uint32_t above, uint64_t *parent)
{
    struct mgr_inode in;

    for (*parent = dir; above > 0; above--, *parent = in.parent) {
        int rc = mgr_inode_get(c, *parent, &in);

        if (rc)
            return rc;
    }
    return 0;
}

int mgr_result_set(struct mgr_core *c, const struct mgr_inode *in, uint64_t dir, const ProtobufCBinaryData *name, uint64_t *id)
{
    ProtobufCBinaryData main;
    struct mgr_step s;
    uint64_t parent;
    bool yes = false;
    int rc;

    *id = 0;
    if (mgr_step_is_convert((const char *)name->data, name->len) || mgr_step_is_lock((const char *)name->data, name->len))
        return 0;
    rc = main_name(c, in->ino, &main);
    if (!rc && main.len)
        rc = step_of(c, dir, &main, &s, &yes);
    if (rc || !yes)
        return rc;
    rc = parent_of(c, dir, s.above, &parent);
    return rc ? rc : mgr_set_make(c, parent, &s, 0, id);
}

/* The name that it was seen under last, in memory of the group. Empty: it has none there. */
static int own_name(struct mgr_core *c, const struct mgr_inode *in, ProtobufCBinaryData *name)
{
    int rc = mgr_db_one(&c->db, DIR_NAME, DBI(in->parent), DBI(in->ino));
    const void *p;

    name->len = 0;
    if (rc <= 0)
        return rc;
    p = mgr_col_blob(&c->db, MGR_ST_DIR_NAME, 0, &name->len);
    name->data = mgr_arena_copy(&c->arena, p, name->len);
    mgr_db_reset(&c->db, MGR_ST_DIR_NAME);
    return name->data ? 0 : mgr_doom(c, -ENOMEM);
}

int mgr_sets_converted(struct mgr_core *c, struct mgr_inode *in)
{
    bool was = in->flags & MGR_CONVERTED, temporary;
    ProtobufCBinaryData name;
    uint64_t id;
    int rc = own_name(c, in, &name);

    in->flags |= MGR_CONVERTED;
    if (rc || !name.len || c->o.checkpoints_off)
        return rc;
    temporary = mgr_set_is_temporary(name.data, name.len);
    rc = mgr_result_set(c, in, in->parent, &name, &id);
    if (!rc && in->ckpt && !was)
        rc = mgr_set_yield(c, in, temporary);
    if (rc || in->ckpt == id)
        return rc;
    return mgr_set_move(c, in, id, temporary, temporary);
}

int mgr_result_told(struct mgr_core *c, const struct mgr_inode *in, uint64_t *id)
{
    struct mgr_step s = {.how = MGR_STEP_CONVERTED};
    struct mgr_inode file = *in;
    ProtobufCBinaryData main;
    size_t behind = 0;
    int rc = main_name(c, in->ino, &main);

    *id = 0;
    if (rc || !main.len)
        return rc;
    if (mgr_step_growth((const char *)main.data, main.len, false, 0, &s))
        behind = s.off + s.len;
    if (!mgr_step_result(&s, (const char *)main.data + behind, main.len - behind))
        return 0;
    rc = mgr_set_make(c, in->parent, &s, 0, id);
    rc = rc || !*id ? rc : mgr_set_move(c, &file, *id, false, false);
    return rc ? rc : mgr_inode_put(c, &file);
}

int mgr_result_path(struct mgr_core *c, const struct mgr_inode *in, ProtobufCBinaryData *path)
{
    ProtobufCBinaryData dir = mgr_path(c, in->parent), main;
    size_t slash = dir.len > 1;
    int rc = main_name(c, in->ino, &main);

    *path = (ProtobufCBinaryData){0};
    if (rc || !main.len || !dir.len) {
        *path = mgr_path(c, in->ino);
        return rc;
    }
    path->data = mgr_arena_alloc(&c->arena, dir.len + slash + main.len);
    if (!path->data)
        return mgr_doom(c, -ENOMEM);
    memcpy(path->data, dir.data, dir.len);
    path->data[dir.len] = '/'; /* is overwritten, if the directory is the root */
    memcpy(path->data + dir.len + slash, main.data, main.len);
    path->len = dir.len + slash + main.len;
    return 0;
}
