/*
 * The data path of fp-mount, as the FUSE operations see it: windows in the chunk pool, write-behind to benefactors, publishing,
 * reading with read-ahead. Implementation in client/data/.
 *
 * All calls are for FUSE threads unless said otherwise and may block for a bounded time (pool full, a benefactor or manager that does not
 * answer): at most opt.io_timeout_ms, then -EIO or what the cause says. Waiting for what is being stored goes on for as long as anything of the mount
 * goes forward within that time (aux-apps may be slow). Return 0 / byte count or negative errno.
 */
#ifndef CL_DATA_H
#define CL_DATA_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "client/inode.h"
#include "fp.pb-c.h"

struct cl_mount;

/* State of one open file description; fi->fh points to it. Made by open/create/tmpfile, freed by release. */
struct cl_handle {
    struct cl_open open;           /* first */
    struct cl_inode *inode;        /* holds a ref */
    struct cl_mount *m;            /* set only where a handle is all that is passed on */
    int flags;                     /* open flags */
    bool quiet;                    /* opened for reading only: a close publishes nothing, and no aux-app is told */
    bool strict;                   /* constant after the open: data/strict.c */
    bool writes;                   /* the manager counts it as open for writing: constant */
    _Atomic uint8_t closing;       /* enum cl_closing; changed with inode->lock */
    _Atomic int32_t user;          /* thread that opened it, or wrote with it last; 0: not known */
    bool fresh;                    /* constant: it made the file, so nothing was there before */
    bool torn;                     /* who closed it last did not end well (killed, or told an error), or what it closed is lost */
    bool close_told;               /* the last close of one of its descriptors has told an error of the file; inode->lock */
    uint64_t next_off;             /* read-ahead: where a sequential reader comes next; inode->lock */
    uint32_t sequential;           /* read-ahead: how many reads in a row */
    uint64_t ahead_win;            /* read-ahead: first window not yet asked for */
    uint64_t aux_serial;           /* aux/aux.h: constant after the open; 0 without aux-apps */
    struct cl_handle *late_next;   /* data/late.c: it was released, and waits for its end */
    void (*late_end)(struct cl_mount *m, struct cl_handle *h);
    uint64_t late_again_ms;        /* data/release.c: the next try … */
    uint64_t late_by_ms;           /* … and the time of the last; 0: none has failed */
    bool late_anyway;              /* … which was it */
};

/* Of a handle for writing: has a close come since it was written with? */
enum cl_closing { CL_UNUSED, CL_WRITTEN, CL_CLOSED };

/* Makes m->data: before cl_core_start, whose hello brings the table of benefactors. */
int cl_data_new(struct cl_mount *m);
/* After cl_core_start, before mounting. Allocates and pre-faults the pool, starts the store threads. */
int cl_data_start(struct cl_mount *m);
/* Write out and publish everything, bounded by deadline_ms (0: for each file as fsync is); 0 or the first error (then what is lost has been logged). */
int cl_data_sync_all(struct cl_mount *m, bool durable, uint64_t deadline_ms);
/* The same when the mount ends, durable: whether everything that was left could be written out. What was lost before has been told (cl_data_has_lost). */
int cl_data_sync_at_end(struct cl_mount *m, uint64_t deadline_ms);
/* After unmounting, before cl_core_stop: store threads end, leases go back. */
void cl_data_stop(struct cl_mount *m);
/* Something that an application had written was given up since the start, and told. Until cl_data_free. */
bool cl_data_has_lost(struct cl_mount *m);
/* After cl_core_stop and cl_itable_free. */
void cl_data_free(struct cl_mount *m);

/* Core loop: the manager's table of benefactors arrived. */
void cl_data_bnf_table(struct cl_mount *m, const Fp__BnfTable *t);
/* Core loop: the connection to the manager is back, maybe to one that lost its last commits with the power of its node. Then versions of files begin again at
 * less than what was seen: none is compared with what is known from before. */
void cl_data_manager_back(struct cl_mount *m);
/* Core loop, before that: it has. What it had confirmed and nobody had synced may be gone; the next fsync of each file concerned says so. */
void cl_data_manager_lost(struct cl_mount *m);
/* Core loop: the manager forgot our session; what was stored and not committed is stored again under the new one. */
void cl_data_session_new(struct cl_mount *m);
/* Fill pool_*, dirty_bytes, uncommitted_bytes, read_bytes, written_bytes, errors, last_error (pointer valid until the next call). Core loop. */
void cl_data_stats(struct cl_mount *m, Fp__ClientStats *out);

/* A file was opened or created (once per handle): a is what the manager answered. Drops cached data that another mount has made old. */
int cl_data_open(struct cl_mount *m, struct cl_handle *h, const Fp__Attr *a);
/* The manager says that the file is at this version: what is cached of an older one is dropped. inode->lock held. */
void cl_data_news(struct cl_inode *inode, uint64_t data_version);
/* Single-copy consistency (data/strict.c): by user.fp.strict, or --strict. It can't change while the file is open. inode->lock not held. */
bool cl_data_is_strict(struct cl_mount *m, struct cl_inode *inode);
/* write(2) with O_APPEND to a strict file: to the end, wherever the manager finds it. Whole, or not at all. */
ssize_t cl_data_append(struct cl_mount *m, struct cl_handle *h, const char *buf, size_t len, bool kill_suidgid);
ssize_t cl_data_write(struct cl_mount *m, struct cl_handle *h, const char *buf, size_t len, uint64_t off, bool kill_suidgid);
/* The same, not to a strict file, with the bytes in pages of the pool that are lent to the caller (pool.h), from byte at of the first on: some are others afterwards. */
ssize_t cl_data_write_pages(struct cl_mount *m, struct cl_handle *h, uint8_t **pages, uint32_t at, size_t len, uint64_t off, bool kill_suidgid);

/*
 * Reads up to len bytes at off. The bytes are in *iov (at most *niov pieces, in pool buffers held by *pin, or static zeros); give the pin
 * back with cl_data_read_done after the reply was sent. Short at end of file. -EIO (and a log line) where a checksum is wrong.
 */
struct iovec;
struct cl_read_pin;
ssize_t cl_data_read(struct cl_mount *m, struct cl_handle *h, size_t len, uint64_t off, struct iovec *iov, int *niov, struct cl_read_pin **pin);
void cl_data_read_done(struct cl_mount *m, struct cl_read_pin *pin);

/* It is written with, or was closed by a program that has not been killed: for Commit.closes. */
void cl_data_wrote(struct cl_mount *m, struct cl_handle *h);
void cl_data_closes(struct cl_handle *h);
/* The manager has changed it for h by itself (ftruncate, fallocate, a clone): that ends with a close, too. Not O_TRUNC, behind which the writing is still to come. */
void cl_data_changed(struct cl_mount *m, struct cl_handle *h);
/* close(2) was called on one descriptor: everything written so far is stored and published (close-to-open). */
int cl_data_flush(struct cl_mount *m, struct cl_inode *inode);
/*
 * As cl_data_flush, for close(2) of a descriptor of h: an error is told, and is still there for an fsync of the others. A child that executes another program
 * closes what it has inherited, and nobody looks at what that says. The release of h takes the error away.
 */
int cl_data_close(struct cl_mount *m, struct cl_handle *h);
/*
 * The same, if this mount has the lease of the file (--close behind): returns at once, and it is published soon after, or before the lease goes back. *rc: 0, or
 * an error of an earlier time, which is told as cl_data_close does. False: it can't be had, and nothing was done.
 */
bool cl_data_close_behind(struct cl_mount *m, struct cl_handle *h, int *rc);
/* A file gets a name: what was closed of it is published before. Is there anything of any file? Of one; of all. 0, or why a name must not be given. May block. */
bool cl_data_any_behind(struct cl_mount *m);
int cl_data_publish_closed(struct cl_mount *m, uint64_t ino);
int cl_data_publish_all_closed(struct cl_mount *m);
/* Its last name was removed: an error that no close could tell is nobody's any more. */
void cl_data_unlinked(struct cl_mount *m, uint64_t ino);
/* The version that what was closed and is not published is based on; 0: there is no such thing. */
uint64_t cl_data_behind_base(struct cl_mount *m, uint64_t ino);
/* Core loop: the manager's answer to an open says whether this mount has the lease. */
void cl_data_lease(struct cl_inode *inode, bool lease, uint64_t data_version);
/* Core loop: all leases are lost, since the session had expired. What is behind is published if nobody else has written the file since. */
void cl_data_leases_lost(struct cl_mount *m);
/* Core loop: the manager wants it back, by this number. */
void cl_data_recalled(struct cl_mount *m, uint64_t ino, uint64_t serial);
/* As close, where nobody is to be told of an error now: for locks that go. Nothing to write out costs nothing. */
int cl_data_publish_written(struct cl_mount *m, struct cl_inode *inode);
/* The same by who must not wait. Zeroed before the first step; 1: something is on its way, to be called again; 0: what was written before the first step is
 * published; else it can't be. Any thread. */
struct cl_publishing {
    uint64_t since_ms, again_ms, upto;
    int state;
    bool sent, anyway;
    bool closed_only;              /* set by the caller: no more than was written before the last close (cl_inode.closed_upto) */
};
int cl_data_publish_step(struct cl_mount *m, struct cl_inode *inode, struct cl_publishing *p);
/* The end of the file as this node sees it; inode->lock held. */
uint64_t cl_data_size_bytes(const struct cl_inode *inode);
/* A lock was granted: a is what the file is now. True: others have changed it since it was last looked at here. Any thread; does not block. */
bool cl_data_locked(struct cl_mount *m, struct cl_inode *inode, const Fp__Attr *a);
/* Stored, on the device, and the manager's transaction durable. */
int cl_data_fsync(struct cl_mount *m, struct cl_inode *inode);
/*
 * h is released, then end(m, h) called, which frees it. What the last handle leaves unpublished is published before; of an unlinked file (nlink 0) it is dropped.
 * Nobody waits for that: the handle stays, and end is called later, on a thread of data/; or never, if the mount ends before: h is then one that was left open.
 * Any thread but the core loop.
 */
void cl_data_release(struct cl_mount *m, struct cl_handle *h, void (*end)(struct cl_mount *m, struct cl_handle *h));
/* The mount ends: from deadline_ms on nobody waits for what is being stored. Any thread. */
void cl_data_end_by(struct cl_mount *m, uint64_t deadline_ms);
/* After cl_data_sync_at_end, before cl_aux_stop. */
void cl_data_late_stop(struct cl_mount *m);
/* … then: what is not published by now is lost. A line says how much of how many files the end of the mount has lost; once. False: nothing. Any thread. */
bool cl_data_give_up(struct cl_mount *m);
/* The chunk pool: from cl_data_start to cl_data_free. */
struct cl_pool *cl_data_pool(struct cl_mount *m);
/* Run fn(arg) on a store thread: for what may block, from the core loop. -ENOMEM: it will not run. */
int cl_data_run(struct cl_mount *m, void (*fn)(void *arg), void *arg);
/* The inode leaves the table; no handle, nothing unpublished. Frees inode->file. */
void cl_data_forget(struct cl_mount *m, struct cl_inode *inode);

/* The right to append is lost, which was had when the file was at this version: what is not published is, if nobody has written the file since; else it is
 * lost, which is told as any other loss. inode->lock held. */
void cl_data_append_lost(struct cl_inode *inode, uint64_t version);
/* inode->lock held: there is something of that. */
bool cl_data_append_is_lost(const struct cl_inode *inode);

/* SETATTR with SET_SIZE in valid, with all its other changes: asks the manager, then cuts local data, which an error leaves as it is. -ETIMEDOUT: it may still be done. */
int cl_data_truncate(struct cl_mount *m, struct cl_inode *inode, Fp__SetAttr *req);
int cl_data_fallocate(struct cl_mount *m, struct cl_handle *h, int mode, uint64_t off, uint64_t len);
int cl_data_lseek(struct cl_mount *m, struct cl_handle *h, uint64_t off, int whence, uint64_t *out_off);
ssize_t cl_data_copy_range(struct cl_mount *m, struct cl_handle *in, uint64_t off_in, struct cl_handle *out, uint64_t off_out, uint64_t len);

/* A failure that no program is told of: in the log and in fpctl status. Any thread. */
void cl_data_tell_error(struct cl_mount *m, const char *line);
/* A program's lock of this file was lost, and others may have it. What is written and not published goes over what they write, so the next write, fsync or close
 * gives EIO, once. Any thread. */
void cl_data_lock_lost(struct cl_mount *m, uint64_t ino);

/* Overlay unpublished size, mtime, blocks; inode->lock held. */
void cl_data_overlay(struct cl_inode *inode, struct stat *st);
/* utimens on a file with unpublished writes: the set mtime wins over that of earlier writes; inode->lock held. */
void cl_data_mtime_was_set(struct cl_inode *inode);
/* Bytes of this inode not yet on a benefactor, and on one but not committed. For the xattr user.fp.at_risk; takes inode->lock. */
void cl_data_at_risk(struct cl_inode *inode, uint64_t *dirty_bytes, uint64_t *uncommitted_bytes);

#endif
