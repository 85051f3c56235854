/*
 * Extended attributes that are computed, not stored: how fpctl and people ask a mount about itself and about
 * a file.
 *
 *   user.fp.manager   ADDR:PORT of the manager                          on the root
 *   user.fp.key_file  path of the key file                              on the root
 *   user.fp.store     UUID of the store: of two mounts, whether they are of one    on the root
 *   user.fp.at_risk   "DIRTY UNCOMMITTED": bytes not yet on a benefactor, and bytes there that the manager
 * does not know
 *   user.fp.level     level of durability of a file, or of the checkpoint set that a directory is: asked of the manager, which is why ops/xattr.c does it
 *   user.fp.set       "STATE SERIES STEP" of the checkpoint set that a file is a member of, or that a directory is; STATE is open, complete, torn or forgotten, SERIES a number
 * of the manager's, the same for all steps of a series. ENODATA: of none. Asked of the manager, likewise
 *
 * They are read-only and not listed, so that cp -a and rsync -X do not try to copy them. (user.fp.chunk_size
 * and user.fp.stripe are the manager's, stored and inherited.)
 */
#ifndef CL_XATTR_VIRTUAL_H
#define CL_XATTR_VIRTUAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct cl_mount;

#define CL_XATTR_VALUE_MAX 4200u

bool cl_xattr_is_virtual(const char *name);
/* Is it user.fp.level? And the text of a level (enum Level of life.proto). */
bool cl_xattr_is_level(const char *name);
const char *cl_xattr_level(uint32_t level);
/* Is it user.fp.set? And its value (state: enum CkptState; set: as in LevelReply): its length, put into buf without NUL, or -ENODATA. */
bool cl_xattr_is_set(const char *name);
ssize_t cl_xattr_set(uint32_t state, const char *set, char buf[CL_XATTR_VALUE_MAX]);
/* Length of the value, put into buf without NUL; -ENODATA: this inode has it not. Any thread; never blocks
 * for long. */
ssize_t cl_xattr_virtual_get(struct cl_mount *m, uint64_t ino, const char *name,
                             char buf[CL_XATTR_VALUE_MAX]);

#endif
