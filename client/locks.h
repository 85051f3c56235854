/*
 * Locks of this mount's programs, kept by the manager (docs/PROTOCOL.md, Locks): what it was told that it holds, and requests that
 * wait. Without FUSE in it: ops/lock.c is what the kernel sees.
 *
 * With --locks local there is no m->locks, and every function here does nothing.
 */
#ifndef CL_LOCKS_H
#define CL_LOCKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "fp.pb-c.h"

struct cl_mount;
struct cl_handle;

/* A request for a range (MSG_LOCK, SET), from cl_locks_ask to its end. malloced; locks.c frees it, after done. */
struct cl_lock_op {
    TAILQ_ENTRY(cl_lock_op) link;
    struct cl_mount *m;
    const struct cl_handle *h; /* whose close gives it back; NULL: of no handle */
    Fp__Lock msg;              /* all but op and ticket is the caller's */
    /* Once, on the core loop: 0 and what the file is now, or why it is not held. -EINTR when interrupted(op), -ETIMEDOUT when a manager
     * that is away is not waited for any longer (only where msg.wait is not set). */
    void (*done)(struct cl_lock_op *op, int status, const Fp__Attr *a);
    bool (*interrupted)(struct cl_lock_op *op); /* NULL: never */
    void *arg;
    /* locks.c */
    uint64_t born_ms, cancelled_ms;
    enum { CL_LOCK_ASKED, CL_LOCK_QUEUED, CL_LOCK_CANCELLED, CL_LOCK_LOST } state;
    bool told;
};

int cl_locks_new(struct cl_mount *m);
/* End all requests with err, and wait until that is done; then m->lockwork. Any thread but the core loop. */
void cl_locks_stop(struct cl_mount *m, int err);
void cl_locks_free(struct cl_mount *m);

/* Send it. A FUSE thread. */
void cl_locks_ask(struct cl_lock_op *op);
/* Does this owner hold something of this file, as far as this mount was told? Any thread. */
bool cl_locks_owns(struct cl_mount *m, uint64_t ino, Fp__LockKind kind, uint64_t owner);
/* Would a close of h by the process `owner` give a lock back, or perhaps? Any thread. */
bool cl_locks_close_drops(struct cl_mount *m, const struct cl_handle *h, uint64_t owner);
/* The manager says that this owner holds nothing of this file any more. Any thread. */
void cl_locks_forget(struct cl_mount *m, uint64_t ino, Fp__LockKind kind, uint64_t owner);

/* Send an UNSET of all that this owner has of the file, which is not in the table any more: again until the manager has taken it, unless the owner asks
 * for something before. Any thread; does not wait. */
void cl_locks_unlock(struct cl_mount *m, Fp__Lock *msg);

/* A descriptor of h was closed by the process `owner`: what it holds of the file by fcntl is free when this returns. A FUSE thread. */
void cl_locks_close(struct cl_mount *m, const struct cl_handle *h, uint64_t owner);
/* The last descriptor of h is gone: all that was locked with it goes. Any thread; does not wait. */
void cl_locks_release(struct cl_mount *m, const struct cl_handle *h);

/* Core loop. Names of all that is held, for Hello (malloced, with one more pointer each; NULL: nothing), and its answer. Or -ENOMEM: no hello must go then. */
int cl_locks_hello(struct cl_mount *m, Fp__LockId ***out, size_t *n);
void cl_locks_lost(struct cl_mount *m, Fp__LockId *const *ids, size_t n);
void cl_locks_down(struct cl_mount *m);
void cl_locks_up(struct cl_mount *m);
void cl_locks_granted(struct cl_mount *m, const Fp__LockGrant *g);
void cl_locks_tick(struct cl_mount *m, uint64_t now_ms);

#endif
