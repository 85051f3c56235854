/* One MSG_COMMIT being made: which stored buffers of a file it names, and its memory. */
#ifndef CL_DATA_BATCH_H
#define CL_DATA_BATCH_H

#include <stdbool.h>
#include <stddef.h>

#include "client/data/internal.h"

/* Buffers in one MSG_COMMIT. */
#define CL_COMMIT_BUFS_MAX 512u

struct cl_batch {
    Fp__Commit msg;
    Fp__Chunk chunk[CL_COMMIT_BUFS_MAX], *chunks[CL_COMMIT_BUFS_MAX];
    Fp__Slice *slice, **slices;
    size_t slices_cap;
    size_t note_bytes;
    struct cl_file *file;
    uint64_t upto;                 /* only what was sealed by then (seal_seq) */
    bool one_window;               /* in each request: the manager has refused one of several */
    bool whole;                    /* all that is stored in this one: strict.c */
    bool anyway;                   /* chunks that slices name may be away */
    bool refers;                   /* slices name chunks that others may have stored */
    int rc;                        /* inode->lock, these four: how it ended (commit.c) */
    bool done;
    bool late;                     /* --manager-timeout is over */
    bool left;                     /* nobody waits: the answer frees the batch */
    bool unwaited;                 /* … from the beginning: constant */
    size_t nbufs;
    struct cl_wbuf *buf[CL_COMMIT_BUFS_MAX];
    struct cl_win *win[CL_COMMIT_BUFS_MAX];
};

struct cl_batch *cl_batch_new(void);       /* NULL: no memory */
void cl_batch_free(struct cl_batch *t);

/*
 * inode->lock held: fill t with stored buffers of f, in the order of writing within each window; they are marked as `committing`, and must stay
 * until the request was answered, for it points into them. 1; 0: there are none; -ENOMEM: nothing is marked.
 */
int cl_batch_collect(struct cl_batch *t, struct cl_file *f);
/* inode->lock held: nothing is left to be committed, but that is to be said (Commit.closes). */
bool cl_batch_says_end(const struct cl_file *f);

#endif
