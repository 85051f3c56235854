/*
 * Names and paths, for services: which file is an earlier version of which, what a file is called, where a path leads. Service threads; they ask the manager.
 */
#ifndef CL_AUX_EARLIER_H
#define CL_AUX_EARLIER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fp.pb-c.h"

struct cl_aux;

/* In which numbers of theirs two names differ. */
struct aux_digits {
    uint32_t differ;               /* how many */
    uint32_t group;                /* the last of them, counted from 0 */
    bool later;                    /* y's is the larger */
};

/* Are these names of two steps of the same file: equal but for numbers, and an ending such as .tmp? Pure. */
bool cl_aux_same_but_for_digits(const char *x, size_t xlen, const char *y, size_t ylen, struct aux_digits *d);
/* One path of an inode, relative to the mount, without a leading slash. */
int cl_aux_path_of(struct cl_aux *a, uint64_t ino, char *path, size_t size);
/* What is at this path (relative, symbolic links not followed). *out is the caller's to free. */
int cl_aux_walk(struct cl_aux *a, const char *path, Fp__AttrReply **out);

#endif
