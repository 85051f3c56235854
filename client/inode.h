/*
 * The inode table of a mount: the inodes that programs have open or that the data path works on.
 *
 * The FUSE node id is the manager's inode number (root: 1), which is never given twice. So what the kernel merely has looked up
 * needs no memory here, and its FORGET no count: a mount that has seen a million files is as small as one that has seen none.
 * The table is a hash from number to struct cl_inode. An inode lives while it has references: open handles, unwritten data,
 * requests under way; after that, if it has a cl_file, until the kernel forgets it or some thousand others were closed after it.
 */
#ifndef CL_INODE_H
#define CL_INODE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "fp.pb-c.h"

struct cl_mount;
struct cl_file;
struct cl_itable;

#define CL_BLKSIZE_BYTES (1u << 20) /* st_blksize of files: programs write in pieces of this size */

/* The place of a number in a table of 2^bits. */
static inline size_t cl_ino_slot(uint64_t ino, unsigned bits)
{
    return (size_t)((ino * 0x9e3779b97f4a7c15u) >> (64 - bits));
}

struct cl_attr {               /* attributes as the manager last told them */
    uint64_t ino, size_bytes, blocks, rdev, data_version, generation;
    uint32_t mode, nlink, uid, gid, chunk_size_bytes, stripe;
    bool strict;
    int64_t atime_ns, mtime_ns, ctime_ns, btime_ns;
};

struct cl_inode {
    uint64_t ino;
    uint32_t refs;             /* table lock: handles, data path, requests under way */
    uint32_t held;             /* table lock: how often the manager holds it open for us (Hello.open_ino) */
    uint32_t held_write;       /* table lock: ... for writing */
    struct cl_inode *next;     /* table lock: hash chain */
    struct cl_inode *newer, *older; /* table lock: closed ones, by time of closing */
    bool closed;               /* table lock: is in that list */
    bool gone;                 /* atomic: the manager lost it while it was open: -EIO */
    struct cl_creating *creating; /* early.c: its manager has not answered yet that it exists */
    int create_error;          /* early.c: it never will */
    pthread_mutex_t lock;      /* protects what follows */
    uint32_t handles;          /* cl_data_open minus cl_data_release */
    uint32_t unclosed;         /* … of which for writing, and not CL_CLOSED */
    bool hurt;                 /* one of them that was released since there was none had not ended well */
    _Atomic bool positional;   /* since there was none, somebody has written without O_APPEND */
    bool unended;              /* the manager has changes of this mount, and has not heard since that all who made them have closed it */
    uint64_t aux_serial;       /* aux/aux.h: of this time of being open; 0 without aux-apps */
    struct cl_attr attr;
    struct cl_file *file;      /* data.h: NULL until data is read or written */
    struct cl_append *append;  /* append.h: NULL until this mount appends */
    bool lease;                /* close may return before it is published. Changed on the core loop only, with the lock */
    uint64_t based_on;         /* … of which lease: the file's data_version, as of the last answer of the manager while it lasted */
    bool taken;                /* the lease was taken away with something behind: others may have written the file */
    bool behind;               /* … and has (data/behind.c) */
    bool behind_again;         /* … once more since that is being published */
    bool untold;               /* … so that errors may be there that no close has told */
    uint64_t closed_upto;      /* … all that was written before the last such close was sealed by then (seal_seq) */
    uint64_t closes;           /* … number of the last one; and of the last that the manager knows to be published (Commit.closed_upto) */
    uint64_t closes_published;
    uint64_t closed_size;      /* … and had made the file so large */
    int64_t closed_mtime_ns;   /* … at that time; 0: it was set by hand */
    bool recalled;             /* another mount waits for what is behind */
    uint64_t recall_serial;    /* MSG_RECALL to be answered when all that was closed is published; 0: none */
};

/* First in what fi->fh points to, for files and directories: what is open when the mount goes gets no release. */
struct cl_open {
    LIST_ENTRY(cl_open) link;  /* table lock */
    atomic_bool closed;        /* of a struct cl_handle: a close has ended well since the last write of a program, and the release is still to come */
};

int cl_itable_new(struct cl_itable **out);
/* Nothing of the data path may be left. Calls cl_data_forget for what was closed, and frees handles that the kernel still had. */
void cl_itable_free(struct cl_mount *m);

/* Find or make the inode of a, take over the attributes; one more ref. NULL: out of memory. */
struct cl_inode *cl_inode_intern(struct cl_mount *m, const Fp__Attr *a);
/* The inode of this number with one more ref, or NULL if it is not in the table. */
struct cl_inode *cl_inode_get(struct cl_mount *m, uint64_t ino);
/* The same; if it is not in the table, asks the manager (blocks: FUSE threads only). 0 or negative errno. */
int cl_inode_fetch(struct cl_mount *m, uint64_t ino, struct cl_inode **out);
void cl_inode_ref(struct cl_mount *m, struct cl_inode *inode);
void cl_inode_put(struct cl_mount *m, struct cl_inode *inode);
/* The kernel forgot it: a closed one leaves. */
void cl_inode_forget(struct cl_mount *m, uint64_t ino);

/* A handle (malloced) goes to the kernel; it is back, and the caller frees it. */
void cl_open_add(struct cl_mount *m, struct cl_open *o);
void cl_open_remove(struct cl_mount *m, struct cl_open *o);
/* Handles of files that were closed and not released: *out is an array of the caller's. Their number, or -ENOMEM. */
ssize_t cl_open_left(struct cl_mount *m, struct cl_open ***out);

/* The manager answered an open; write: one that it counts as for writing (Open.write, each MSG_MKNOD). */
void cl_inode_hold(struct cl_mount *m, struct cl_inode *inode, bool write);
/* A handle is released; under_lock(arg) runs with the table locked. Called by cl_mgr_release. */
void cl_inode_unhold(struct cl_mount *m, struct cl_inode *inode, bool write, void (*under_lock)(void *arg), void *arg);
/* malloced, NULL if there is none. */
struct cl_held {
    uint64_t *ino, *write_ino;
    size_t n, nwrite;
};
/* Every held number, as often as it is held, for Hello. under_lock(arg) runs with the table locked. Or -ENOMEM: no
 * hello must go then, for what it does not name the manager takes as given back. */
int cl_inode_held_list(struct cl_mount *m, struct cl_held *out, void (*under_lock)(void *arg), void *arg);
/* Every number that has something behind close, or may have (likewise). Core loop. */
int cl_inode_leased_list(struct cl_mount *m, uint64_t **out, size_t *n);
/* Handles that are open, over all inodes. */
uint64_t cl_inode_held_count(struct cl_mount *m);
/* The manager does not know this inode any more. */
/* What is known of it, if it is in use here. */
void cl_inode_set_nlink(struct cl_mount *m, uint64_t ino, uint32_t nlink);
void cl_inode_mark_gone(struct cl_mount *m, uint64_t ino);
static inline bool cl_inode_is_gone(const struct cl_inode *inode)
{
    return __atomic_load_n(&inode->gone, __ATOMIC_RELAXED);
}

/* Calls fn for every inode in the table, one after the other, each referenced, without a lock held. */
void cl_inode_each(struct cl_mount *m, void (*fn)(struct cl_inode *inode, void *arg), void *arg);

/* Take over attributes of the manager; inode->lock held. Older news (data_version smaller than known) do not replace size, blocks, mtime. */
void cl_inode_attr_update(struct cl_inode *inode, const Fp__Attr *a);
/* What stat() shall see: manager's attributes overlaid with unpublished size, mtime, blocks (cl_data_overlay). Takes inode->lock. */
void cl_inode_stat(struct cl_mount *m, struct cl_inode *inode, struct stat *st);
/* The same from an answer of the manager: overlaid if the inode is in the table, else as it is. */
void cl_attr_stat(struct cl_mount *m, const Fp__Attr *a, struct stat *st);

#endif
