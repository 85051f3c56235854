/*
 * What the files of client/data/ share: the state of the data path and of one file in it.
 *
 * Locks, in this order: inode->lock (windows, buffers, map of one file) -> space_lock (leases) -> bnf->lock (links, table) -> pool,
 * job queue, read cache (leaves). No lock is held over I/O, a remote call or a wait for the pool.
 */
#ifndef CL_DATA_INTERNAL_H
#define CL_DATA_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "client/client.h"
#include "client/core.h"
#include "client/data.h"
#include "client/data/admit.h"
#include "client/data/bnf.h"
#include "client/data/gone.h"
#include "client/data/jobs.h"
#include "client/data/pool.h"
#include "client/data/rcache.h"
#include "client/data/scratch.h"
#include "client/data/space.h"
#include "client/data/wbuf.h"
#include "fp/clock.h"
#include "fp/err.h"
#include "fp/log.h"
#include "fp/record.h"

/* Stored chunks of one file that may wait for publishing; then a writer commits them early: bounded memory. */
#define CL_UNCOMMITTED_MAX 4096u
/* … and bytes of aux-apps' notes about them. */
#define CL_UNCOMMITTED_NOTES_MAX_BYTES (16u << 20)
/* Windows known of one file before clean ones are dropped. */
#define CL_WINS_MAX 65536u
/* A partly filled window is written out when it is this old. */
#define CL_WINDOW_AGE_MS 5000u

struct cl_data {
    struct cl_mount *m;
    struct cl_pool *pool;
    struct cl_jobs *jobs;
    struct cl_rcache *rcache;
    struct cl_ext *ext;                /* ext.h */
    struct cl_admit readers;           /* pages that reads may hold */
    pthread_mutex_t bnf_lock;
    struct cl_bnf *bnfs;               /* bnf_lock */
    struct cl_bnf **bnf_ids;           /* the same by number; NULL: not known. bnf_lock */
    size_t bnf_ids_cap;
    uint32_t nbnfs;                    /* bnf_lock */
    pthread_mutex_t space_lock;
    pthread_cond_t space_cond;         /* a lease came or failed, or the table changed */
    pthread_mutex_t age_lock;          /* open buffers, oldest first */
    struct cl_wbuf *oldest, *newest;
    atomic_ullong losses;              /* how often a benefactor lost what it had not synced */
    atomic_ullong losses_told;         /* … with lives, when a sync of everything last told of it */
    atomic_ullong changes;             /* of files, confirmed by the manager (life.c) … */
    atomic_ullong changes_synced;      /* … and durable there, up to this one */
    atomic_ullong lives;               /* how often the manager lost what it had not synced */
    struct cl_forgotten *forgotten;    /* closed files with data that is not synced */
    atomic_ullong chunk_counter;
    atomic_ullong dirty_bytes, uncommitted_bytes, read_bytes, written_bytes, errors, lost_bytes;
    atomic_bool lost;                  /* something written was given up since the start */
    atomic_ullong moved_ms;            /* when the aux-apps last answered for a chunk, or one was stored */
    atomic_ullong end_ms;              /* the mount ends: nobody waits for longer than this. 0: it does not */
    struct cl_late *late;              /* late.c */
    pthread_mutex_t strict_lock;       /* a leaf */
    struct cl_strict *strict_left;     /* strict_lock: strict.c */
    struct cl_behind *behind;          /* behind.c */
    atomic_uint late_commits;          /* under way without anybody who waits (commit.c) */
    pthread_mutex_t end_lock;          /* lost.c: above the inodes' */
    bool given_up;                     /* end_lock: the closing line was said, or there was nothing to say */
    atomic_ullong end_bytes, end_files; /* lost since the mount ends */
    atomic_ullong short_until_ms;      /* reservations are for what is written (reserve.c) */
    struct cl_fold *fold;              /* fold.c */
    pthread_mutex_t error_lock;
    bool closed;                       /* error_lock: the closing line was said */
    char last_error[256];              /* error_lock */
    int64_t last_error_ns;             /* error_lock: since 1970 */
    char last_error_copy[256];         /* core loop */
    struct cl_scratch scratch;         /* for chunks being packed or decoded */
    pthread_mutex_t coded_lock;        /* leaf */
    pthread_cond_t coded_cond;         /* one less is being decoded */
    unsigned coded_now;                /* coded_lock: chunks being decoded (coded.h) */
    atomic_bool stopping;
};

struct cl_slice {                  /* bytes of a window in a stored chunk, as the manager told */
    uint32_t off, len, chunk_off;
    struct cl_chunk_ref chunk;
};

struct cl_win {
    uint64_t win;
    bool known;                        /* slices are the manager's at file->map_version */
    uint32_t nslices;
    struct cl_slice *slices;           /* disjoint, by off */
    struct cl_wbuf *bufs;              /* oldest first */
};

struct cl_file {                   /* everything under inode->lock */
    struct cl_inode *inode;
    struct cl_data *data;
    uint32_t window_bytes;
    pthread_cond_t cond;               /* a buffer changed state, a commit ended */
    struct cl_win **wins;              /* by win */
    uint32_t nwins;
    size_t wins_cap;
    uint64_t map_version;
    uint64_t own_version;              /* after the last change that this mount has made: what is older lacks something that it has told as done */
    uint32_t nopen, ninflight, nstored; /* buffers OPEN, SEALED, STORED */
    struct cl_wbuf *fl_head, *fl_tail; /* SEALED buffers in the order of sealing */
    uint64_t seal_seq;
    bool unsynced;                     /* data was stored since the last fsync */
    uint64_t losses_seen;              /* data->losses when unsynced became true, or at the last fsync */
    uint64_t last_change;              /* life.c: number of the last change that the manager has confirmed; 0: none */
    bool forgotten_by_manager;         /* … it, or one before it, may be lost there, which the next fsync tells */
    uint64_t others_version;           /* what other sessions stored up to this data_version is on the devices; 0 = not known */
    uint64_t others_losses;            /* data->losses when that was so, or when the file became known here */
    uint64_t end_written;              /* end of the furthest unpublished byte, 0 = none */
    int64_t mtime_ns;                  /* of the last unpublished write, 0 = none or set by hand since */
    bool kill_suidgid;
    uint64_t dirty_bytes, uncommitted_bytes;
    uint64_t note_bytes;               /* of STORED buffers */
    bool lost_at_end, closed;          /* counted among end_files; counted in the closing line */
    bool own;                          /* constant: of one strict write, which says itself what becomes of it */
    int error;                         /* what a store or commit failed with; told by each write, until fsync or close has told it */
    uint64_t append_base;              /* some of it was appended with a right that this mount has lost: the data_version that it goes with, below; 0: none was */
    struct cl_gone gone;               /* what that has cost: read as EIO, and still part of the size, for as long */
    bool committing;                   /* a thread talks to the manager about this file's map */
    bool commit_late;                  /* … or did, and gave up waiting: the turn is free when the answer comes */
    bool fold;                         /* not the inode's own file, but one that fold.c stores with: nothing of it is an application's */
    int late_rc;                       /* the last such answer: an error for which it is to be tried again; 0: nothing is in the way */
    bool late_one_window;              /* … window by window */
    uint32_t strict_late;              /* strict.c: its commits that the manager has not answered in time */
};

/* inode->lock held: something of it is not published. */
static inline bool cl_file_is_dirty(const struct cl_file *f)
{
    return f && f->nopen + f->ninflight + f->nstored > 0;
}

/* file.c: windows and buffers; all with inode->lock held */
struct cl_file *cl_file_get(struct cl_data *d, struct cl_inode *inode);   /* makes it; NULL: no memory */
struct cl_file *cl_file_new(struct cl_data *d, struct cl_inode *inode);   /* one that the inode does not know of (strict.c); inode->lock held; NULL: no memory */
void cl_file_free(struct cl_file *f);
struct cl_win *cl_file_win(struct cl_file *f, uint64_t win, bool make);
uint32_t cl_file_first_win(const struct cl_file *f, uint64_t win);         /* index of the first window >= win */
void cl_file_forget_map(struct cl_file *f);                                /* slices are not known any more */
struct cl_wbuf *cl_win_open_buf(struct cl_win *w);                         /* the buffer that takes writes, or NULL */
uint64_t cl_file_size_bytes(const struct cl_file *f);                      /* as this node sees it */
int cl_file_take_error(struct cl_file *f);
/* Ask for sealing: at once if nobody copies into it now, else by the last that does. May free an empty buffer. */
void cl_file_seal(struct cl_file *f, struct cl_win *w, struct cl_wbuf *b);
void cl_file_seal_all(struct cl_file *f);
/* b was SEALED and is not any more: out of the list and the accounts of dirty bytes. */
void cl_file_landed(struct cl_file *f, struct cl_wbuf *b);
/* What b has is lost, and the file has an error that says so, or is about to get it. Before b is dropped. */
void cl_file_gone(struct cl_file *f, const struct cl_wbuf *b);
/* b is STORED, and what it has is known to be lost: it is not at risk any more. */
void cl_file_uncount(struct cl_file *f, struct cl_wbuf *b);
/* Wait on f->cond up to deadline_ms; false when it is over. */
bool cl_file_wait(struct cl_file *f, uint64_t deadline_ms);
/* The same for less than a second, to see whether the mount ends. */
void cl_file_wait_a_while(struct cl_file *f, uint64_t deadline_ms);
/* Remove b from its window and free it; pages and reservation are given back. The inode's reference is dropped by cl_file_unref later. */
void cl_file_drop_buf(struct cl_file *f, struct cl_win *w, struct cl_wbuf *b);

/* release.c; without lock: what is next for a handle that was released. */
enum cl_release {
    CL_RELEASE_DONE,               /* it counts no more: to be ended */
    CL_RELEASE_WAITS,              /* for what is on its way */
    CL_RELEASE_TURN,               /* for may_commit */
};
enum cl_release cl_release_step(struct cl_data *d, struct cl_handle *h, bool may_commit);
bool cl_file_is_lost(const struct cl_file *f); /* what was closed of it is, and nobody has been told; inode->lock held, f may be NULL */

/* late.c: handles that were released and wait */
#define CL_COMMITS_MAX 64u /* late_commits: what they take of memory, and of the manager's turn */
int cl_late_new(struct cl_data *d);
void cl_late_free(struct cl_data *d);
int cl_late_start(struct cl_mount *m);
/* Time until the next look at files that others wait for, after the last such time; moved: something has gone forward since. */
uint32_t cl_late_next_ms(uint32_t last_ms, bool moved);
/* cl_release_step, until it is done, and then end. */
void cl_late_add(struct cl_mount *m, struct cl_handle *h, void (*end)(struct cl_mount *m, struct cl_handle *h));
/* Now, not at the next tick. With an inode's lock or without. */
void cl_late_look(struct cl_data *d);
/* One of late_commits has ended. */
void cl_late_answered(struct cl_data *d);

/* behind.c: files that were closed and are still to be published */
int cl_behind_new(struct cl_data *d);
void cl_behind_free(struct cl_data *d);
void cl_behind_steps(struct cl_data *d);           /* on late.c's thread: does what can be done now */
bool cl_behind_any(const struct cl_data *d);       /* is there something to be done? */
bool cl_behind_wanted(const struct cl_data *d);    /* … for which another mount waits? */
void cl_behind_tell_lost(struct cl_data *d, const struct cl_inode *inode); /* to the manager, before the release; inode->lock held */
void cl_behind_tell_again(struct cl_data *d);      /* the manager may not know any more what was closed */
void cl_behind_stop(struct cl_data *d);            /* that thread has ended */
/* inode->lock held: the last handle ends with the file's error, which nobody was told of. Taken from the file. */
void cl_behind_keep_error(struct cl_data *d, struct cl_inode *inode);
void cl_behind_base(const struct cl_file *f, Fp__Commit *msg); /* what it is based on, if it was closed behind; inode->lock held */
int cl_behind_take_error(struct cl_data *d, uint64_t ino);

/* age.c: the list of open buffers */
void cl_age_add(struct cl_data *d, struct cl_wbuf *b);
void cl_age_remove(struct cl_data *d, struct cl_wbuf *b);
void cl_age_pressure(void *data);                                          /* pool.h: seal the oldest */
void cl_age_tick(struct cl_data *d, uint64_t now_ms);
void cl_age_trim(struct cl_data *d);                                       /* reservations of all that are in the list now: to what they have */

/* life.c */
/* inode->lock held: the manager has confirmed a change that was asked for when there had been so many lives. */
void cl_file_changed(struct cl_file *f, uint64_t lives);
/* A sync that was sent when there had been so many changes has succeeded. */
void cl_changes_synced(struct cl_data *d, uint64_t upto);
/* inode->lock held; true, once: the manager may have forgotten a change of this file. */
bool cl_file_tell_forgotten(struct cl_file *f);

/* forgotten.c: files that are not known any more, but for what an fsync of them must know */
struct cl_left {
    bool unsynced, forgotten_by_manager; /* these four as in cl_file */
    uint64_t losses_seen, last_change;
};
struct cl_forgotten *cl_forgotten_new(void);                               /* NULL: no memory */
void cl_forgotten_free(struct cl_forgotten *t);
void cl_forgotten_add(struct cl_forgotten *t, uint64_t ino, const struct cl_left *left);
bool cl_forgotten_has(struct cl_forgotten *t, uint64_t ino);
bool cl_forgotten_take(struct cl_forgotten *t, uint64_t ino, struct cl_left *left);  /* true: it is one, and is known from here on */
uint64_t cl_forgotten_serial(struct cl_forgotten *t);                      /* before a sync of all segments … */
void cl_forgotten_synced(struct cl_forgotten *t, uint64_t serial, uint64_t losses, uint64_t changes_synced); /* … which succeeded */
void cl_forgotten_by_manager(struct cl_forgotten *t, uint64_t changes_synced); /* all later changes may be lost */
bool cl_forgotten_lost(struct cl_forgotten *t, uint64_t losses);           /* has one of them lost data? */

/* sync.c */
/* Without lock, after make_durable and the commit: the manager's transactions, and what other sessions stored of this file, are durable. */
int cl_sync_others(struct cl_data *d, struct cl_inode *inode);
/* Has the file, as the manager knows it, a chunk on one of these? Without an answer, yes. */
bool cl_sync_concerns(struct cl_data *d, struct cl_inode *inode, const struct cl_unsynced *failed);

/* store.c */
void cl_store_post(struct cl_data *d, struct cl_wbuf *b);                  /* b is SEALED; takes over */
void cl_store_sealed(struct cl_data *d, struct cl_wbuf *b);                /* the same with inode->lock held: by way of the aux-apps, if there are any */

/* map.c: the manager's slices; without lock; asks for windows [win, …) unless known. */
/* inode->lock held: the manager's answer to a change that this mount made. */
void cl_map_changed(struct cl_file *f, const Fp__CommitReply *r);
/* What is done with an answer that is not kept, at once. */
struct cl_map_use {
    int (*fn)(void *arg, struct cl_win *w); /* inode->lock held; w has its slices */
    void *arg;
    bool used;                     /* it was called, and cl_map_fetch returns what it returned */
    uint64_t size_bytes;           /* … of the file at that version */
};
/* Without lock. 0: the windows are known; -EAGAIN: not yet, ask again. */
int cl_map_fetch(struct cl_data *d, struct cl_inode *inode, uint64_t win, uint64_t count, struct cl_map_use *use);
/* Is r an answer to that request? */
bool cl_map_makes_sense(const struct cl_file *f, uint64_t win, uint64_t count, const Fp__SliceMapReply *r);
/* inode->lock held: what r says of windows from win on is known from now on. -EAGAIN: it is older than what is known. */
int cl_map_take_over(struct cl_file *f, uint64_t win, const Fp__SliceMapReply *r);
/* One slice as it is kept here. */
struct cl_slice cl_slice_of(struct cl_data *d, const Fp__SliceMapReply *r, const Fp__Slice *s);

/* write.c; without lock: one window's part of a write goes into f, which is the inode's file or one of cl_file_new. */
int cl_write_window(struct cl_data *d, struct cl_file *f, uint64_t win, uint32_t off, const char *buf, uint32_t len);

/* strict.c; without lock. append: off counts from the end of the file. */
ssize_t cl_strict_write(struct cl_data *d, struct cl_handle *h, const char *buf, size_t len, uint64_t off, bool append, bool kill_suidgid);
/* What the manager says of the size: known here afterwards. */
int cl_strict_attr(struct cl_data *d, struct cl_inode *inode);
/* Writes that nobody waits for any more have been stored, and go. end: all of them, since the store threads end: waits for them. */
void cl_strict_tick(struct cl_data *d, bool end);

/* snapshot.c: the slices of some windows at one version of a file */
struct cl_snapshot {
    uint64_t version, size_bytes;
    uint64_t win, win_end;             /* it covers [win, win_end) */
    size_t n;
    struct cl_snap_slice {
        uint64_t win;
        struct cl_slice slice;
    } *slices;                         /* by (win, off) */
};
/* Without lock: of the windows from win on, up to win_end, as the manager has them now. They may be fewer: at least one, unless it fails. */
int cl_snapshot_get(struct cl_data *d, struct cl_inode *inode, uint64_t win, uint64_t win_end, struct cl_snapshot *s);
void cl_snapshot_free(struct cl_snapshot *s);
/* Lay one window's slices into o. 0, -E2BIG. */
int cl_snapshot_plan(const struct cl_snapshot *s, uint64_t win, struct cl_overlay *o);

/* readahead.c; without lock: the reader of h has come to end_off */
void cl_readahead(struct cl_data *d, struct cl_handle *h, uint64_t off, uint64_t end_off);

/* publish.c. deadline_ms CL_BY_PROGRESS: wait for what is being stored as long as anything of this mount goes forward within io_timeout. */
#define CL_BY_PROGRESS 0u
int cl_publish(struct cl_data *d, struct cl_inode *inode, bool durable, uint64_t deadline_ms);
/* For a sync of everything: an error is returned, but stays the file's, whose user has to be told of it. */
int cl_publish_for_others(struct cl_data *d, struct cl_inode *inode, uint64_t deadline_ms);
int cl_publish_at_end(struct cl_data *d, struct cl_inode *inode, uint64_t deadline_ms); /* likewise; an error that the file had before is none */
int cl_publish_stored(struct cl_data *d, struct cl_inode *inode, bool durable, uint64_t deadline_ms);
/* When a wait for storing that began at from_ms is over, as things are now. */
uint64_t cl_patience_ends(struct cl_data *d, uint64_t from_ms);
/* It is: says so (inode->lock held). -EIO. */
int cl_stands_still(struct cl_file *f);
/* commit.c; inode->lock held, released meanwhile: tell the manager what is stored. */
int cl_commit_stored(struct cl_file *f, bool durable, uint64_t deadline_ms);
/*
 * The same for one batch, while nobody else has the map; nobody waits for the answer, after which f->late_rc says how it went. anyway: also what refers to
 * chunks of a benefactor that is away. upto: only what was sealed by then (seal_seq). 1: sent; 0: nothing is stored; -ENOMEM.
 */
int cl_commit_send(struct cl_file *f, bool anyway, uint64_t upto);
/* map.c; inode->lock held: wait until no other thread talks to the manager about the map, then be that thread. -EIO after the deadline. */
int cl_map_begin(struct cl_file *f, uint64_t deadline_ms);
void cl_map_end(struct cl_file *f);

/* lost.c */
void cl_data_note_error(struct cl_data *d, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* inode->lock held: the same, and these bytes that an application has written are gone. */
void cl_file_lost(struct cl_file *f, uint64_t bytes, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* inode->lock held: … and the file's user is to be told. -ENOENT: they are not missed. */
void cl_file_set_error(struct cl_file *f, int err, uint64_t bytes, const char *what);
static inline uint64_t cl_deadline(struct cl_data *d) { return fp_now_ms() + d->m->opt.io_timeout_ms; }
/* deadline_ms, or the end of the mount if that comes first. */
static inline uint64_t cl_by_end(struct cl_data *d, uint64_t deadline_ms)
{
    uint64_t end_ms = atomic_load(&d->end_ms);

    return end_ms && end_ms < deadline_ms ? end_ms : deadline_ms;
}
/* Something of this mount has gone forward on its way to the store. */
static inline void cl_moved(struct cl_data *d) { atomic_store_explicit(&d->moved_ms, fp_now_ms(), memory_order_relaxed); }

#endif
