/*
 * Computed extended attributes: see xattr_virtual.h. Called by ops/xattr.c on FUSE threads.
 *
 * user.fp.at_risk of a file that nobody has open here is "0 0": what is at risk is in this mount's pool or
 * nowhere. The attributes of the root are for everybody to read; the path of the key file is no secret, the
 * file's mode keeps the key.
 */
#include "client/xattr_virtual.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "client/client.h"
#include "client/data.h"
#include "client/inode.h"
#include "fp/uuid.h"

#define ROOT_INO 1u

bool cl_xattr_is_level(const char *name)
{
    return strcmp(name, "user.fp.level") == 0;
}

const char *cl_xattr_level(uint32_t level)
{
    static const char *const names[] = {"none", "pool", "local", "redundant", "drained", "verified"};
    return level < sizeof names / sizeof *names ? names[level] : "none";
}

bool cl_xattr_is_set(const char *name)
{
    return strcmp(name, "user.fp.set") == 0;
}

ssize_t cl_xattr_set(uint32_t state, const char *set, char buf[CL_XATTR_VALUE_MAX])
{
    static const char *const names[] = {NULL, "open", "complete", "torn", "forgotten"};

    if (state >= sizeof names / sizeof *names || !names[state] || !*set)
        return -ENODATA;
    return snprintf(buf, CL_XATTR_VALUE_MAX, "%s %.64s", names[state], set);
}

bool cl_xattr_is_virtual(const char *name)
{
    return strcmp(name, "user.fp.manager") == 0 || strcmp(name, "user.fp.key_file") == 0 ||
           strcmp(name, "user.fp.store") == 0 || strcmp(name, "user.fp.at_risk") == 0 || cl_xattr_is_level(name) || cl_xattr_is_set(name);
}

static ssize_t at_risk(struct cl_mount *m, uint64_t ino, char *buf)
{
    uint64_t dirty_bytes = 0, uncommitted_bytes = 0;
    struct cl_inode *inode = cl_inode_get(m, ino);
    if (inode) {
        cl_data_at_risk(inode, &dirty_bytes, &uncommitted_bytes);
        cl_inode_put(m, inode);
    }
    return snprintf(buf, CL_XATTR_VALUE_MAX, "%llu %llu", (unsigned long long)dirty_bytes,
                    (unsigned long long)uncommitted_bytes);
}

static ssize_t store_of(const struct cl_mount *m, char *buf)
{
    struct fp_uuid uuid;
    char text[FP_UUID_BUF];
    memcpy(uuid.b, m->store_uuid, sizeof uuid.b);
    return fp_uuid_is_nil(&uuid) ? -ENODATA : snprintf(buf, CL_XATTR_VALUE_MAX, "%s", fp_uuid_format(text, &uuid));
}

ssize_t cl_xattr_virtual_get(struct cl_mount *m, uint64_t ino, const char *name, char buf[CL_XATTR_VALUE_MAX])
{
    if (strcmp(name, "user.fp.at_risk") == 0)
        return ino == ROOT_INO ? -ENODATA : at_risk(m, ino, buf);
    if (ino != ROOT_INO)
        return -ENODATA;
    if (strcmp(name, "user.fp.store") == 0)
        return store_of(m, buf);
    const char *value = strcmp(name, "user.fp.manager") == 0 ? m->opt.manager_text : m->opt.key;
    return snprintf(buf, CL_XATTR_VALUE_MAX, "%s", value);
}
