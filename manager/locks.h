/* Locks of files, for all mounts: fcntl's byte ranges, flock's whole files, and the right to append.
 *
 * A state machine: it knows no message, database, clock or thread. Who calls it (lockmsg.c) takes what it has to say
 * after each call: rows that changed, waits that ended, and holders who should give something back. One thread.
 *
 * Kinds do not see each other, as on Linux: a lock by flock(2) is none to fcntl(2). */
#ifndef MGR_LOCKS_H
#define MGR_LOCKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MGR_LOCK_EOF         INT64_MAX /* the last byte of a range without end */
#define MGR_LOCK_QUEUED      1         /* it waits: the end comes by mgr_locks_done_next */
#define MGR_LOCK_FAIR_MS     1000u /* who waits longer behind others that wait, and behind no holder, is let through */
#define MGR_LOCK_CLOSING_MS  200u  /* how long a lock may be expected to go after a descriptor of its file was closed */
#define MGR_LOCK_SESSION_MAX 65536u /* ranges held and requests waiting, of one session */
#define MGR_LOCK_INODE_MAX   65536u /* the same, of one file: held, of a kind, and waiting */

enum mgr_lock_kind { MGR_LOCK_RECORD, MGR_LOCK_FLOCK, MGR_LOCK_APPEND, MGR_LOCK_KINDS };

/* A range, held or asked for. Owners are numbers that mean something in their session only. */
struct mgr_lock {
    uint64_t session, owner;
    uint64_t start, end; /* both are in it */
    uint32_t pid;        /* for F_GETLK */
    uint8_t kind;
    bool exclusive;
    bool kept;                 /* by mgr_locks_keep */
    uint64_t closing_until_ms; /* mgr_locks_closing */
    uint64_t since_ms;         /* it is held, or asked for; 0: not known, for it was loaded */
};

struct mgr_lock_change { /* of the set of ranges that are held */
    bool add;
    uint64_t ino;
    struct mgr_lock l;
};
struct mgr_lock_done { /* a wait has ended: 0, -EDEADLK, -EAGAIN, -EINTR, -ENOLCK */
    uint64_t ino, session, ticket;
    int status;
};
struct mgr_lock_recall { /* this session holds what others wait for, and can give it back */
    uint64_t ino, session;
};
struct mgr_lock_id { /* all that an owner holds of a file */
    uint64_t ino, session, owner;
    uint8_t kind;
};

struct mgr_locks;
struct mgr_locks *mgr_locks_new(void); /* NULL: out of memory */
void mgr_locks_free(struct mgr_locks *t);
/* Others than MGR_LOCK_SESSION_MAX and MGR_LOCK_INODE_MAX. */
void mgr_locks_limit(struct mgr_locks *t, uint32_t session_max, uint32_t inode_max);

/* A range that the database knows: at start, or after mgr_locks_clear, which forgets all that is held. 0, -ENOMEM. */
void mgr_locks_clear(struct mgr_locks *t);
int mgr_locks_load(struct mgr_locks *t, uint64_t ino, const struct mgr_lock *l);

/* Asks for l, under a number that its session uses for one request only.
 * 0: it is held; MGR_LOCK_QUEUED; -EAGAIN: others hold it (!wait); -EDEADLK; -ENOLCK: too many; -ENOMEM. Without `wait` it is
 * queued all the same, for MGR_LOCK_CLOSING_MS at most, if all that stands in its way is about to go. */
int mgr_locks_set(struct mgr_locks *t, uint64_t ino, const struct mgr_lock *l, uint64_t ticket, bool wait,
                  uint64_t now_ms);
/* Gives back what its owner holds in its range. 0, -ENOLCK, -ENOMEM. */
int mgr_locks_unset(struct mgr_locks *t, uint64_t ino, const struct mgr_lock *l, uint64_t now_ms);
/* Does the owner of l hold anything of the file, of l's kind? */
bool mgr_locks_owns(const struct mgr_locks *t, uint64_t ino, const struct mgr_lock *l);
/* What stands in the way of l (the first by its start); false: nothing. */
bool mgr_locks_test(const struct mgr_locks *t, uint64_t ino, const struct mgr_lock *l, struct mgr_lock *out);
/* Ends a wait with -EINTR; false: there is none of this number (any more). */
bool mgr_locks_cancel(struct mgr_locks *t, uint64_t session, uint64_t ticket, uint64_t now_ms);
/* A descriptor of the file was closed, perhaps the last one of what owns these locks. */
void mgr_locks_closing(struct mgr_locks *t, const struct mgr_lock_id *id, uint64_t now_ms);

/* Its connection is gone: it will ask again for what it waits for. */
void mgr_locks_lost(struct mgr_locks *t, uint64_t session, uint64_t now_ms);
/* The session is over. 0, -ENOMEM. */
int mgr_locks_end(struct mgr_locks *t, uint64_t session, uint64_t now_ms);
/* The session is back and says what it holds; all else of it goes. missing[i]: of ids[i] there is nothing here. */
int mgr_locks_keep(struct mgr_locks *t, uint64_t session, const struct mgr_lock_id *ids, size_t n, bool *missing,
                   uint64_t now_ms);
/* Every 100 ms or so. */
void mgr_locks_tick(struct mgr_locks *t, uint64_t now_ms);

/* What there is to say: each takes one out; false: no more. Changes before anything else is asked of it. */
bool mgr_locks_change_next(struct mgr_locks *t, struct mgr_lock_change *out);
bool mgr_locks_done_next(struct mgr_locks *t, struct mgr_lock_done *out); /* after mgr_locks_commit */
bool mgr_locks_recall_next(struct mgr_locks *t, struct mgr_lock_recall *out);
/* What was asked since the last commit is sure; or has not been: waits are as they were, and what is held is to be loaded. */
void mgr_locks_commit(struct mgr_locks *t);
void mgr_locks_undo(struct mgr_locks *t);

/* fn for what is held of a file, then for who waits for it, by age; ino 0: of all files. fn is false: no more. Nothing else is asked of t meanwhile. */
void mgr_locks_each(const struct mgr_locks *t, uint64_t ino, bool (*fn)(void *arg, uint64_t ino, const struct mgr_lock *l, bool waits), void *arg);
/* Ranges held, and requests that wait. */
size_t mgr_locks_held(const struct mgr_locks *t);
size_t mgr_locks_waiting(const struct mgr_locks *t);

#endif
