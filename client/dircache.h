/*
 * Attributes of directories that this mount has changed a moment ago.
 *
 * After each create and unlink the kernel asks for the attributes of the directory, to check permissions for
 * the next one. The manager has just sent them with its answer, so for CL_DIRCACHE_MS the question is
 * answered from here: a third of the messages of a create.
 *
 * Everything of this node that changes a directory's attributes passes through the core loop, in the order of
 * the manager's transactions, and puts, drops or clears before it is answered; so programs of this node see
 * no old attributes. Changes by other mounts are seen CL_DIRCACHE_MS later at most, as with the kernel's own
 * attribute timeout (ops.h).
 */
#ifndef CL_DIRCACHE_H
#define CL_DIRCACHE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "fp.pb-c.h"

#define CL_DIRCACHE_MS 2u

struct cl_mount;

/* All: any thread; never block. The table is one per process and needs no start. */
void cl_dircache_put(struct cl_mount *m, const Fp__Attr *a); /* NULL: nothing */
void cl_dircache_drop(uint64_t ino);                         /* 0: nothing */
void cl_dircache_clear(void);
bool cl_dircache_get(uint64_t ino, struct stat *st);

#endif
