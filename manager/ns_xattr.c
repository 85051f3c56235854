/* Extended attributes.
 *
 * Some are ours and virtual: user.fp.chunk_size and user.fp.stripe, columns of the inode. Every file and
 * directory has them (from its directory at creation), so they are not listed: a copy to another file system
 * should not take them along. Set on a directory they hold for what is made in it from then on; on a file
 * only while it is empty. Taken away, they are the store's defaults again.
 *
 * A third, user.fp.strict, is kept and inherited in the same way. A file can be given it or lose it while nobody has it open: a mount
 * that has it open would go on as before, with what it keeps of the file.
 *
 * ACLs (system.*) are refused: the kernel's permission check would not obey them. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include "fp/record.h"
#include "fp/units.h"
#include "manager/core_int.h"
#include "manager/sets.h"

#define NAME_MAX_BYTES  255u
#define VALUE_MAX_BYTES 65536u
#define LIST_MAX_BYTES  65536u
#define STRIPE_MAX      64
#define CONVERTED       "user.fp.converted"

enum own { OWN_NONE, OWN_CHUNK_SIZE, OWN_STRIPE, OWN_STRICT, OWN_UNKNOWN };

static bool has_prefix(const ProtobufCBinaryData *n, const char *prefix)
{
    size_t len = strlen(prefix);

    return n->len >= len && memcmp(n->data, prefix, len) == 0;
}

static bool is_name(const ProtobufCBinaryData *n, const char *name)
{
    return n->len == strlen(name) && has_prefix(n, name);
}

static enum own own_of(const ProtobufCBinaryData *n)
{
    /* These are kept as any other: what the aux-app of this name found, what a user says of a checkpoint, how a conversion is, and of what result a file is. */
    static const char *const kept[] = {"user.fp.checksum", "user.fp.checkpoint", "user.fp.convert", "user.fp.convert_node", "user.fp.convert_of", CONVERTED};

    if (!has_prefix(n, "user.fp."))
        return OWN_NONE;
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        if (is_name(n, kept[i]))
            return OWN_NONE;
    if (is_name(n, "user.fp.chunk_size"))
        return OWN_CHUNK_SIZE;
    if (is_name(n, "user.fp.strict"))
        return OWN_STRICT;
    return is_name(n, "user.fp.stripe") ? OWN_STRIPE : OWN_UNKNOWN;
}

static bool is_cap(const ProtobufCBinaryData *n)
{
    return is_name(n, "security.capability");
}

static int check_name(const ProtobufCBinaryData *n)
{
    if (n->len == 0 || n->len > NAME_MAX_BYTES || memchr(n->data, 0, n->len))
        return -ERANGE;
    return has_prefix(n, "system.") ? -EOPNOTSUPP : 0;
}

/* ---------------------------------------------------------------- our own */

static int parse(enum own which, const ProtobufCBinaryData *v, uint32_t *out)
{
    char text[32];
    uint64_t size;
    int64_t n;

    if (v->len == 0 || v->len >= sizeof text || memchr(v->data, 0, v->len))
        return -EINVAL;
    memcpy(text, v->data, v->len);
    text[v->len] = 0;
    if (which == OWN_CHUNK_SIZE) {
        if (fp_parse_size(text, &size, NULL) || size < FP_CHUNK_MIN_BYTES || size > FP_CHUNK_MAX_BYTES ||
            size & (size - 1))
            return -EINVAL;
        *out = (uint32_t)size;
        return 0;
    }
    if (fp_parse_int(text, &n, NULL) || n < (which == OWN_STRIPE) || n > (which == OWN_STRIPE ? STRIPE_MAX : 1))
        return -EINVAL;
    *out = (uint32_t)n;
    return 0;
}

/* Sessions that are not back after a restart of the manager may have it open. */
static bool may_be_open(struct mgr_core *c, const struct mgr_inode *in)
{
    return mgr_map_get(&c->holders, in->ino) || mgr_unsettled(c);
}

static int set_own(struct mgr_core *c, struct mgr_inode *in, enum own which, uint32_t value)
{
    if (!mgr_is(in, S_IFREG) && !mgr_is(in, S_IFDIR))
        return -EPERM;
    if (mgr_is(in, S_IFREG) && (which == OWN_STRICT ? may_be_open(c, in) : in->size || in->mapped))
        return -EBUSY;
    if (which == OWN_CHUNK_SIZE)
        in->chunk_size = value;
    else if (which == OWN_STRIPE)
        in->stripe = value;
    else
        in->flags = value ? in->flags | MGR_STRICT : in->flags & ~MGR_STRICT;
    in->data_version++;
    in->ctime = c->now.ns;
    return mgr_inode_put(c, in);
}

static uint32_t own_value(enum own which, const struct mgr_inode *in)
{
    return which == OWN_CHUNK_SIZE ? in->chunk_size : which == OWN_STRIPE ? in->stripe : in->flags & MGR_STRICT;
}

static int get_own(struct mgr_core *c, Fp__XattrReply *r, enum own which, const struct mgr_inode *in)
{
    char *text = mgr_arena_alloc(&c->arena, 16);

    if (!mgr_is(in, S_IFREG) && !mgr_is(in, S_IFDIR))
        return -ENODATA;
    if (!text)
        return mgr_doom(c, -ENOMEM);
    r->value.len = (size_t)snprintf(text, 16, "%u", own_value(which, in));
    r->value.data = (uint8_t *)text;
    return 0;
}

/* ---------------------------------------------------------------- handlers */

/* Room for another name, and the flags: 0 or why not. */
static int check_set(struct mgr_core *c, const Fp__SetXattr *m)
{
    size_t sum = 0, len;
    bool have = false;
    int rc;

    for (rc = mgr_db_one(&c->db, XATTR_LIST, DBI(m->ino)); rc > 0;
         rc = mgr_db_step(&c->db, MGR_ST_XATTR_LIST)) {
        const void *p = mgr_col_blob(&c->db, MGR_ST_XATTR_LIST, 0, &len);

        sum += len + 1;
        have = have || (len == m->name.len && memcmp(p, m->name.data, len) == 0);
    }
    if (rc)
        return rc;
    if (have && m->flags & XATTR_CREATE)
        return -EEXIST;
    if (!have && m->flags & XATTR_REPLACE)
        return -ENODATA;
    return !have && sum + m->name.len + 1 > LIST_MAX_BYTES ? -ENOSPC : 0;
}

static bool says_complete(const ProtobufCBinaryData *v)
{
    return v->len == 8 && memcmp(v->data, "complete", 8) == 0;
}

/* Of names that are kept, those that say something to us. */
static int check_value(const ProtobufCBinaryData *name, const ProtobufCBinaryData *v, const struct mgr_inode *in)
{
    if (v->len > VALUE_MAX_BYTES)
        return -E2BIG;
    if (is_name(name, "user.fp.checkpoint"))
        return says_complete(v) ? 0 : -EINVAL; /* misspelt, it would be kept and do nothing */
    if (is_name(name, CONVERTED)) /* the name of a file beside it */
        return mgr_is(in, S_IFREG) && v->len > 0 && v->len <= NAME_MAX_BYTES && !memchr(v->data, '/', v->len) && !memchr(v->data, 0, v->len) ? 0 : -EINVAL;
    return 0;
}

MGR_HANDLER(setxattr)
{
    const Fp__SetXattr *m = msg;
    enum own which = own_of(&m->name);
    struct mgr_inode in;
    uint32_t value;
    int rc = check_name(&m->name);

    rc = rc ? rc : mgr_inode_get(c, m->ino, &in);
    if (rc)
        return rc;
    if (which == OWN_UNKNOWN)
        return -EINVAL;
    if (which != OWN_NONE) {
        rc = m->flags & XATTR_CREATE ? -EEXIST : parse(which, &m->value, &value);
        return rc ? rc : set_own(c, &in, which, value);
    }
    rc = check_value(&m->name, &m->value, &in);
    rc = rc ? rc : check_set(c, m);
    if (!rc && is_cap(&m->name)) /* what was closed before takes it away when it is published: as set-id bits (ns_setattr.c) */
        rc = mgr_lease_check(c, rq->sess, m->ino);
    if (!rc && is_name(&m->name, "user.fp.checkpoint")) { /* before it is kept: it may be refused */
        rc = mgr_sets_told(c, m->ino, false);
        rc = rc == -ENXIO || rc == -ESTALE ? -ENODATA : rc;
        rc = rc ? rc : mgr_inode_get(c, m->ino, &in);
    }
    rc = rc ? rc
            : mgr_db_exec(&c->db, XATTR_PUT, DBI(m->ino), DBB(m->name.data, m->name.len),
                          DBB(m->value.data, m->value.len));
    in.ctime = c->now.ns;
    if (!rc && is_name(&m->name, CONVERTED))
        rc = mgr_sets_converted(c, &in);
    return rc ? rc : mgr_inode_put(c, &in);
}

static int get_row(struct mgr_core *c, const Fp__GetXattr *m, ProtobufCBinaryData *value)
{
    const void *p;
    int rc = mgr_db_one(&c->db, XATTR_GET, DBI(m->ino), DBB(m->name.data, m->name.len));

    if (rc <= 0)
        return rc ? rc : -ENODATA;
    p = mgr_col_blob(&c->db, MGR_ST_XATTR_GET, 0, &value->len);
    value->data = mgr_arena_copy(&c->arena, p, value->len);
    mgr_db_reset(&c->db, MGR_ST_XATTR_GET);
    return value->data ? 0 : mgr_doom(c, -ENOMEM);
}

MGR_HANDLER(getxattr)
{
    const Fp__GetXattr *m = msg;
    Fp__XattrReply *r = MGR_NEW(c, Fp__XattrReply, fp__xattr_reply__init);
    enum own which = own_of(&m->name);
    struct mgr_inode in;
    int rc = check_name(&m->name);

    if (!r)
        return mgr_doom(c, -ENOMEM);
    rc = rc ? rc : mgr_inode_get(c, m->ino, &in);
    if (!rc && which == OWN_UNKNOWN)
        rc = -ENODATA;
    if (!rc)
        rc = which == OWN_NONE ? get_row(c, m, &r->value) : get_own(c, r, which, &in);
    rq->reply = &r->base;
    return rc;
}

MGR_HANDLER(listxattr)
{
    const Fp__InodeReq *m = msg;
    Fp__XattrReply *r = MGR_NEW(c, Fp__XattrReply, fp__xattr_reply__init);
    struct mgr_inode in;
    size_t len;
    int rc = mgr_inode_get(c, m->ino, &in);

    if (rc)
        return rc;
    if (!r || !(r->value.data = mgr_arena_alloc(&c->arena, LIST_MAX_BYTES)))
        return mgr_doom(c, -ENOMEM);
    for (rc = mgr_db_one(&c->db, XATTR_LIST, DBI(m->ino)); rc > 0;
         rc = mgr_db_step(&c->db, MGR_ST_XATTR_LIST)) {
        const void *p = mgr_col_blob(&c->db, MGR_ST_XATTR_LIST, 0, &len);

        if (r->value.len + len + 1 > LIST_MAX_BYTES)
            continue;
        memcpy(r->value.data + r->value.len, p, len);
        r->value.data[r->value.len + len] = 0;
        r->value.len += len + 1;
    }
    rq->reply = &r->base;
    return rc;
}

MGR_HANDLER(removexattr)
{
    const Fp__RemoveXattr *m = msg;
    enum own which = own_of(&m->name);
    struct mgr_inode in;
    int rc = check_name(&m->name);

    (void)rq;
    rc = rc ? rc : mgr_inode_get(c, m->ino, &in);
    if (rc)
        return rc;
    if (which == OWN_UNKNOWN)
        return -ENODATA;
    if (which != OWN_NONE)
        return set_own(c, &in, which, which == OWN_CHUNK_SIZE ? c->chunk_size : which == OWN_STRIPE ? c->stripe : 0);
    rc = mgr_db_one(&c->db, XATTR_GET, DBI(m->ino), DBB(m->name.data, m->name.len));
    if (rc <= 0)
        return rc ? rc : -ENODATA;
    mgr_db_reset(&c->db, MGR_ST_XATTR_GET);
    rc = mgr_db_exec(&c->db, XATTR_DELETE, DBI(m->ino), DBB(m->name.data, m->name.len));
    in.ctime = c->now.ns;
    return rc ? rc : mgr_inode_put(c, &in);
}
