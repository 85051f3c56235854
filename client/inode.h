/*
 * The inode table of a mount: what the kernel holds (lookup counts) and what programs have open.
 *
 * The FUSE node id is the manager's inode number (root: 1), so the table is a hash from number to struct cl_inode. An inode lives while
 * the kernel has it looked up, a handle is open, or the data path holds a reference (unwritten data).
 */
#ifndef CL_INODE_H
#define CL_INODE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "fp.pb-c.h"

struct cl_mount;
struct cl_file;

struct cl_attr {               /* attributes as the manager last told them */
	uint64_t ino, size_bytes, blocks, rdev, data_version, generation;
	uint32_t mode, nlink, uid, gid, chunk_size_bytes, stripe;
	int64_t atime_ns, mtime_ns, ctime_ns, btime_ns;
};

struct cl_inode {
	uint64_t ino;
	uint64_t nlookup;          /* table lock */
	uint32_t refs;             /* table lock: handles, data path, requests under way */
	struct cl_inode *next;     /* table lock: hash chain */
	pthread_mutex_t lock;      /* protects attr and file */
	struct cl_attr attr;
	struct cl_file *file;      /* data.h: NULL until data is read or written */
};

/* Find or make the inode of a, take over the attributes, add nlookup to the kernel's count and refs to ours. NULL: out of memory. */
struct cl_inode *cl_inode_intern(struct cl_mount *m, const Fp__Attr *a, unsigned nlookup, unsigned refs);
/* The inode of this number with one more ref, or NULL if the kernel does not hold it. */
struct cl_inode *cl_inode_get(struct cl_mount *m, uint64_t ino);
void cl_inode_ref(struct cl_mount *m, struct cl_inode *inode);
void cl_inode_put(struct cl_mount *m, struct cl_inode *inode);
void cl_inode_forget(struct cl_mount *m, uint64_t ino, uint64_t nlookup);

/* Take over attributes of the manager; inode->lock held. Older news (data_version smaller than known) do not replace size, blocks, mtime. */
void cl_inode_attr_update(struct cl_inode *inode, const Fp__Attr *a);
/* What stat() shall see: manager's attributes overlaid with unpublished size, mtime, blocks (cl_data_overlay). Takes inode->lock. */
void cl_inode_stat(struct cl_mount *m, struct cl_inode *inode, struct stat *st);

#endif
