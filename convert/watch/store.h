/* What the coordinator asks the mounted store, and writes into it. One thread; blocks as the mount does. */
#ifndef CW_STORE_H
#define CW_STORE_H

#include <limits.h>

#include "convert/watch/breath.h"
#include "convert/watch/group.h"

#define CW_MARK "user.fp.convert"       /* how far the conversion is: of the directory that is a set, else of each file */
#define CW_NODE "user.fp.convert_node"  /* of a dump: "NODE TIME", whose mount has closed it last, and when it was written then */
#define CW_OF   "user.fp.convert_of"    /* beside the mark: stamp of the files that the result was made of */
#define CW_MARK_MAX 1024u

struct cw_store {
    const char *mount;
    struct cw_breath *breath; /* NULL: it needs none */
};

/* An errno that may be another one later, as when the manager is away. False: a person can do something about it, or it is data that will not change. */
bool cw_err_passes(int err);

/* As the mount has it. False: too long. */
bool cw_store_path(const struct cw_store *s, const char *path, char out[PATH_MAX]);
/* Is it mounted by now? */
bool cw_store_is_there(const struct cw_store *s);
/* The set of a file or directory: its state, and "SERIES STEP" in key; CW_SET_NONE. Negative: it can't be told now (-ENOENT: the file is not there any more). */
int cw_store_set(const struct cw_store *s, const char *path, char *key, size_t size);
/* The directory that is the set of this key, of those above path; "": there is none. Negative: it can't be told now, and nothing is to be done that depends on it. */
int cw_store_set_dir(const struct cw_store *s, const char *path, const char *key, char *dir, size_t size);
/* Value of an attribute; "" if there is none, or it can't be told (negative errno, but for files that have none: 0). */
int cw_store_get(const struct cw_store *s, const char *path, const char *name, char *value, size_t size);
/* 0 or negative errno. */
int cw_store_put(const struct cw_store *s, const char *path, const char *name, const char *value);
/* It has it no more. */
void cw_store_take_off(const struct cw_store *s, const char *path, const char *name);
/* Whose the file is that was written then: who has said so first. "": nobody has. */
void cw_store_owner(const struct cw_store *s, const char *path, int64_t mtime_ns, char *node, size_t size);
/* Says that it is this node's, unless somebody has said so before: then it is told whose it is. */
void cw_store_own(const struct cw_store *s, const char *path, int64_t mtime_ns, const char *me, char *node, size_t size);
/* Files that the pattern names (near not NULL: those alone that lie in this directory, or below it), each with its time; each() nonzero ends it. -EAGAIN: there may be more, which could not be told now. */
int cw_store_scan(const struct cw_store *s, const char *pattern, const char *near, int (*each)(void *arg, const char *path, int64_t mtime_ns), void *arg);
/* -ENOENT, or 0 with its time and size. */
int cw_store_stat(const struct cw_store *s, const char *path, int64_t *mtime_ns, uint64_t *size_bytes);
/* A lock that holds between all mounts, on a file opened read-only. A descriptor, -EWOULDBLOCK, or another errno. */
int cw_store_lock(const struct cw_store *s, const char *path);
/* Temporary files of conversions that are over, in the directory of this path: those that were to get this name (the caller has the lock without which nobody makes it), or its XDMF file, and old ones. True: none is left. */
bool cw_store_sweep(const struct cw_store *s, const char *path);
/*
 * Parts of this result of which nothing is in it any more: those of none of the group's nodes, which wrote an earlier dump of this name; whole: of any, for it was made in one piece. Parts of results of other
 * dumps, of which source is not what they were made of (results.h), stay.
 */
void cw_store_sweep_parts(const struct cw_store *s, const struct cw_group *g, const char *result, const char *source, bool whole);
/* With those above it, where they are missing. */
void cw_store_make_dir(const struct cw_store *s, const char *path);
/* A dump is removed: its files, the last one first, up to one that was written since (-ESTALE: it stays, with those before it), and then the directory, if that is empty and was the set. */
int cw_store_remove(const struct cw_store *s, const struct cw_group *g, const char *set_dir);

#endif
