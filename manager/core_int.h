/* What the parts of the core share. Included by manager/ alone; the outside has core.h.
 *
 * State is in the database; in memory are only what is lost by nature (connections, keep-alives), what is
 * rebuilt at start (sessions, benefactors, counters, orphans), and who holds what open. When a transaction
 * fails, mgr_reload brings the rebuilt part back to what the database says. */
#ifndef MGR_CORE_INT_H
#define MGR_CORE_INT_H

#include <sys/queue.h>

#include "fp.pb-c.h"
#include "manager/arena.h"
#include "manager/core.h"
#include "manager/map.h"
#include "manager/rounds.h"

#define MGR_NAME_MAX       255u
#define MGR_LINK_MAX       65000u
#define MGR_SESSION_MAX    0x7ffffeffu /* chunk ids are signed in the database; numbers above are of external chunks */
#define MGR_BNF_MAX        65536u
#define MGR_DELETE_BATCH   1024u
#define MGR_INVENTORY_PAGE 8192u
#define MGR_DAMAGE_MAX     10000u /* rows of damage; bad_chunk has no bound */
#define MGR_HELLO_MS       2000u /* from a connection to its hello */
#define MGR_CACHE_MS       1000u /* the 500 ms for which a client that is alone may cache, and as much for its node to wake up */
#define MGR_LOST_END       (UINT64_C(1) << 32) /* chunks below stand for lost ones; those of session 1 begin there */
#define MGR_WINDOW_MAX     65536u /* slices of one window: more could not be told in one answer to MSG_SLICEMAP */
#define MGR_RECLAIM_STEP   2048u /* slices removed per group, so that others get their turn */

struct mgr_deaths;
struct mgr_levels;
struct mgr_sets;

struct mgr_counters {
    uint64_t next_ino, next_cookie, next_session, next_bnf;
    uint64_t inodes, chunks, slices;
    bool dirty;
};

/* mgr_inode.flags */
#define MGR_STRICT   1u  /* of a directory: for what is made in it */
#define MGR_DRAINS   4u  /* rows of drain_file want to hear of changes of data */
#define MGR_TORN_FILE 32u /* a mount or a program that was writing it is gone (settorn.c; the index inode_torn) */
#define MGR_LINKABLE 64u /* made with O_TMPFILE and never named: link(2) may give it its first name */
#define MGR_STAGED   128u /* a job has brought it from a target: it is of no checkpoint set unless somebody says so */
#define MGR_CONVERTED 256u /* a conversion has made it: it is of the set of its result, and of no other (convert.c) */
#define MGR_LOST_CLOSE 512u /* what was closed of it was never published: its mount is gone (lostclose.c; the index inode_lost) */
#define MGR_UNSURE   1024u /* a mount that may have closed it behind, unheard, is gone (lostclose.c) */
#define MGR_TORN_MARKS (MGR_TORN_FILE | MGR_LOST_CLOSE | MGR_UNSURE) /* a set of a file that has one of them is torn */
#define MGR_SHADOW   16u /* the inode of a version: no name, no orphan, not counted as a file */

struct mgr_inode {
    uint64_t ino;
    uint32_t mode, nlink, uid, gid;
    uint64_t rdev, size, mapped;
    int64_t atime, mtime, ctime, btime;
    uint32_t chunk_size, stripe;
    uint64_t data_version, parent;
    uint32_t flags; /* MGR_STRICT ... */
    uint64_t ckpt;  /* the checkpoint set that it is a member of; 0: none */
};

/* Where a mount's process runs: as in Hello. */
struct mgr_place {
    uint64_t machine, boot, mount_ns;
};

struct mgr_session {
    uint64_t id;
    char *node, *mountpoint, *software;
    struct mgr_place place;
    uint32_t pid;
    int64_t started_ns;
    struct mgr_conn *conn; /* NULL: not connected */
    uint64_t seen_ms;      /* last frame */
    uint64_t settled_ms;   /* what it holds is known from then on; 0: known; UINT64_MAX: when it comes back */
    bool known;            /* what it held was known once since the manager was started */
    bool expired;          /* silent for too long: its open files are forgotten */
    bool fresh;            /* made in this group */
    bool ended;            /* in this group: gone if it is committed */
    bool may_cache;        /* was told that it is alone, and has not told that it has ended what it may do then */
    bool asked;            /* MSG_ALONE is under way to it */
    bool asked_alone;      /* what that says */
    bool waits;            /* was told to wait for MSG_READY */
    uint64_t acked_ms;     /* when it ended being alone; 0: never was */
    bool forgot;           /* and its kernel finds no name that it kept until then */
    struct mgr_map opens;  /* inode -> how often */
    struct mgr_map writes; /* inode -> how often of these for writing */
    struct mgr_map wrote;  /* those of them that programs have written, and not all closed since */
    Fp__ClientStats *stats; /* last report; malloc'd by protobuf-c */
    uint64_t aux_dropped;   /* messages of aux-apps that it was too slow for */
    uint64_t recall_until_ms; /* asked for its holds, and waited for until then; 0: not */
    uint64_t recalled_ms;     /* when it answered */
    bool behind;              /* it asks for leases: until it has come back to a new manager, it may have some */
    uint64_t lease_time;      /* of a session that does: another each time that it expires, and for each session */
    LIST_HEAD(, mgr_lease) leases;
};

enum mgr_news { MGR_NEWS_NONE, MGR_NEWS_SPACE, MGR_NEWS_STATE };

struct mgr_bnf {
    uint32_t id;
    uint8_t uuid[16];
    char *node, *addr, *local_path, *backend, *error;
    uint32_t pid; /* of the connection */
    uint64_t capacity, used, free, reported_chunks;
    uint64_t life; /* BnfInfo.unsynced_life; 0: not heard of since our start */
    Fp__BnfState reported;
    struct mgr_conn *conn;
    Fp__BufferState *buffers; /* as it says, in one piece */
    size_t nbuffers;
    bool silent; /* connected, but no keep-alive in time */
    uint64_t seen_ms;
    int64_t seen_ns;
    uint64_t chunks, stored, garbage, garbage_bytes; /* as in its row */
    bool dirty;
    enum mgr_news news;           /* not yet told in a table */
    bool touched;                 /* in the list of the core */
    struct mgr_bnf *next_touched;
    /* deletes: one batch under way at a time */
    bool del_out;
    uint64_t del_after, del_at_ms, del_sent;
    /* inventory: one page under way at a time */
    bool inv_wanted, inv_again, inv_out;
    uint64_t inv_after, inv_at_ms, inv_orphans, inv_missing, inv_rescued;
    bool unchecked; /* no inventory since it said hello: it may lack chunks that it had */
    uint64_t *inv_new; /* chunks committed since the page was asked for */
    size_t inv_new_count, inv_new_cap;
    bool inv_new_lost;
    struct mgr_rounds rounds;
};

struct mgr_conn {
    struct mgr_conn *next, *prev;
    void *user;
    Fp__Role role; /* ROLE_UNSET before hello */
    struct mgr_session *sess;
    struct mgr_bnf *bnf;
    uint64_t born_ms;
    bool closing, close_sent, stop_sent, table_sent;
};

/* A frame to be sent if the group is committed. */
struct mgr_post {
    struct mgr_conn *conn; /* NULL: gone */
    uint16_t type;
    const ProtobufCMessage *msg; /* memory of the group */
};

struct mgr_undo { /* a hold of this group */
    uint64_t session, ino;
    bool write;
};

struct mgr_core {
    struct mgr_db db;
    struct mgr_core_opts o;
    struct mgr_now now, start;
    uint8_t uuid[16];
    uint32_t chunk_size, stripe;
    char addr[300];
    struct mgr_counters n;
    struct mgr_arena arena;
    struct mgr_conn *conns;
    struct mgr_session **sessions;
    size_t session_count, session_cap;
    struct mgr_bnf **bnfs; /* index = id - 1 */
    size_t bnf_count, bnf_cap;
    struct mgr_map holders; /* inode -> open references of all sessions */
    struct mgr_map writers; /* ... that are for writing */
    struct mgr_map orphans; /* rows of orphan: 1 = may be had back, 2 = going */
    struct mgr_undo *undo;
    size_t undo_count, undo_cap;
    struct mgr_post *posts;
    size_t post_count, post_cap;
    struct mgr_out *outs;
    size_t out_count, out_cap, out_pos;
    uint64_t bad_chunks; /* rows of bad_chunk: 0 spares the look-ups */
    uint64_t damages;    /* rows of damage */
    bool exts;           /* there may be rows of ext: false spares the look-ups */
    uint64_t keys_dropped; /* rows of note_key so far: what makes removing slices slow */
    uint64_t unsettled; /* sessions with settled_ms != 0 */
    uint64_t unheard;   /* those of them that are not known: what they did is what the manager before was told */
    uint64_t life;          /* life.c */
    uint64_t early_session; /* may have told its programs of names that we have not heard of; 0: none. Row of meta */
    bool durable, busy, reload, in_group;
    uint64_t hold_sessions, hold_sessions_ms; /* hold.c: how many, and when that was counted */
    bool holds_dead; /* there may be holds of sessions that are gone */
    bool sessions_ended; /* in this group */
    bool new_number; /* this group gives out a number that chunk ids, maps or tasks will name */
    uint64_t doubt; /* BnfTable.doubt */
    struct mgr_locks *locks;
    struct mgr_leases *leases;
    struct mgr_deaths *deaths; /* of which what was lost is to be marked (lostclose.c) */
    struct mgr_grace *grace;
    struct mgr_versions *versions;
    struct mgr_drain *drain;
    struct mgr_sets *sets;
    struct mgr_levels *levels;
    uint32_t behind_away; /* sessions that mgr_lease_is_away is true of */
    uint32_t behind_expired; /* sessions with behind that have expired, and may come back */
    uint64_t loaded_ms;   /* when the sessions of the manager before were read */
    bool table_dirty, space_dirty; /* benefactors: tell the clients now, or some time */
    bool table_owed;               /* some client has not been told the table */
    size_t news_next;              /* where to go on telling */
    uint64_t table_at_ms, space_at_ms, sweep_at_ms, tick_ms;
    struct mgr_bnf *touched; /* benefactors that the end of the group looks at */
    bool touch_all;
    bool closing;          /* some connection is to be closed */
    bool stirred;          /* sessions: who is alone, who waits may be another one */
    uint64_t stop_ms; /* 0: not stopping */
    bool stop_bnfs;
};

/* One request under way. */
struct mgr_req {
    struct mgr_conn *conn;
    struct mgr_session *sess; /* NULL unless a client */
    const ProtobufCMessage *reply;
    const ProtobufCMessage *kept; /* what is kept for a replay instead of the reply; NULL: the reply */
    bool close, durable;
    bool forget; /* nothing is kept: executed again, it does no harm */
};

/* ---------------------------------------------------------------- core.c */

/* The connection is to be closed, after this group. */
static inline void mgr_conn_close(struct mgr_core *c, struct mgr_conn *conn)
{
    conn->closing = true;
    c->closing = true;
}
/* Column 0 of all rows of a statement of which rc is what mgr_db_one has said, in memory of the group. 0, or its failure. (core.c) */
int mgr_ids(struct mgr_core *c, enum mgr_stmt st, int rc, uint64_t **out, size_t *count);

/* A message in memory of the group; NULL: out of memory. init is the generated init function. */
#define MGR_NEW(core, type, init)                                                                            \
    __extension__({                                                                                          \
        type *new_ = mgr_arena_alloc(&(core)->arena, sizeof(type));                                          \
        if (new_)                                                                                            \
            init(new_);                                                                                      \
        new_;                                                                                                \
    })
/* Dooms the group after a failure that is not the database's own. Returns err. */
int mgr_doom(struct mgr_core *c, int err);
/* Queues a frame; the message is of the group's memory. Only from mgr_pump_* (after the COMMIT). */
void mgr_out(struct mgr_core *c, enum mgr_out_kind kind, struct mgr_conn *conn, uint16_t type,
             const ProtobufCMessage *msg);
/* After a rollback, and at start: counters, sessions, benefactors' totals, orphans as the database has them.
 */
int mgr_reload(struct mgr_core *c);
/* Writes the counters if they changed. */
int mgr_counters_store(struct mgr_core *c);

/* ---------------------------------------------------------------- inode.c */

/* 0, -ENOENT, or a failure. */
int mgr_inode_get(struct mgr_core *c, uint64_t ino, struct mgr_inode *in);
/* The same of what programs know: a version of a file is none, -ENOENT. */
int mgr_inode_get_live(struct mgr_core *c, uint64_t ino, struct mgr_inode *in);
int mgr_inode_put(struct mgr_core *c, const struct mgr_inode *in);
/* Gives it a row, a number unless it has one, and the time now unless it has a ctime. target is of a symbolic
 * link. -ENOSPC: inode limit. */
int mgr_inode_new(struct mgr_core *c, struct mgr_inode *in, const void *target, size_t target_len);
/* The same with the times that it has, and whatever the limit. */
int mgr_inode_insert(struct mgr_core *c, struct mgr_inode *in, const void *target, size_t target_len);
/* A directory that can get entries: -ENOENT, -ENOTDIR. */
int mgr_dir_get(struct mgr_core *c, uint64_t ino, struct mgr_inode *in);
/* The kernel of a client is to take a name of this directory away from `found` (0: whatever it is), but the name is of `ino` (0: of none). -ESTALE: let it look again. */
int mgr_check_found(struct mgr_core *c, const struct mgr_inode *dir, uint64_t found, uint64_t ino);
/* Fills columns col.. of a row made with MGR_INODE_COLS. */
void mgr_inode_row(const struct mgr_core *c, enum mgr_stmt st, int col, struct mgr_inode *in);
Fp__Attr *mgr_attr(struct mgr_core *c, const struct mgr_inode *in);
struct mgr_open {
    bool write;
    bool behind;       /* wants the lease */
    uint64_t based_on; /* as in Open */
};
/* The session opens it. Reply AttrReply. */
int mgr_reply_open(struct mgr_core *c, struct mgr_req *rq, const struct mgr_inode *in, const struct mgr_open *o);
/* Reply AttrReply. */
int mgr_reply_attr(struct mgr_core *c, struct mgr_req *rq, const struct mgr_inode *in, bool created);
/* Drops setuid, setgid (where the group may execute) and capabilities, as a write does. */
int mgr_kill_suidgid(struct mgr_core *c, struct mgr_inode *in);
static inline bool mgr_is(const struct mgr_inode *in, uint32_t type)
{
    return (in->mode & 0170000) == type;
}
/* How an inode is had: for MSG_OPEN and sessions. -ENOENT when it is going. */
int mgr_inode_usable(struct mgr_core *c, const struct mgr_inode *in);

struct mgr_dirent {
    uint64_t ino, cookie;
    uint32_t type; /* mode >> 12 */
};
/* -EINVAL, -ENAMETOOLONG for what cannot be a name. */
int mgr_name_check(const ProtobufCBinaryData *name);
int mgr_dirent_get(struct mgr_core *c, uint64_t parent, const ProtobufCBinaryData *name,
                   struct mgr_dirent *d);
int mgr_dirent_add(struct mgr_core *c, uint64_t parent, const ProtobufCBinaryData *name,
                   const struct mgr_inode *in);
/* Path of an inode from the root, for people, in memory of the group; "" when it has no name. */
ProtobufCBinaryData mgr_path(struct mgr_core *c, uint64_t ino);
/* What a path from the root names (ctl.c). Symbolic links are not followed: what is asked for is an object of the store. -ENOENT, -ENOTDIR. */
int mgr_resolve(struct mgr_core *c, ProtobufCBinaryData path, uint64_t *ino);

/* ---------------------------------------------------------------- grace.c */

struct mgr_grace *mgr_grace_new(void); /* NULL: out of memory */
void mgr_grace_free(struct mgr_grace *g);
/* A strict read has been told what this file consists of. */
void mgr_grace_read(struct mgr_core *c, uint64_t ino);
/* A slice of this file named the chunk, and does not any more. */
void mgr_grace_freed(struct mgr_core *c, uint64_t ino, uint64_t chunk);
/* Does anything that may be on this benefactor wait to be deleted? Then: this one? */
bool mgr_grace_any(struct mgr_core *c, const struct mgr_bnf *b);
bool mgr_grace_has(const struct mgr_core *c, uint64_t chunk);

/* ---------------------------------------------------------------- orphan.c */

/* in->nlink has just become 0: removes the inode, or keeps it while someone may hold it. Writes the row. */
int mgr_inode_unlinked(struct mgr_core *c, struct mgr_inode *in);
/* The last holder is gone. */
int mgr_orphan_released(struct mgr_core *c, uint64_t ino);
/* An inode that was a version's, which nobody holds: removed, as much of it as fits into this group. */
int mgr_shadow_remove(struct mgr_core *c, uint64_t ino);
int mgr_orphan_sweep(struct mgr_core *c);
int mgr_orphan_load(struct mgr_core *c);
int mgr_orphan_keep(struct mgr_core *c, uint64_t ino);   /* a row for an inode born without a name */
int mgr_orphan_forget(struct mgr_core *c, uint64_t ino); /* it got a name */

/* ---------------------------------------------------------------- slices.c, chunk.c */

/* Makes [from, to) of the file read as zeros. Changes in->mapped; the caller writes the inode. */
int mgr_slices_cut(struct mgr_core *c, struct mgr_inode *in, uint64_t from, uint64_t to);
/* The row that SLICE_MAP is at. NULL: out of memory. */
Fp__Slice *mgr_slice_row(struct mgr_core *c);
/* Removes up to max slices of a file; *left: there are more. */
int mgr_slices_drop(struct mgr_core *c, struct mgr_inode *in, uint32_t max, bool *left);
/* Puts slices over what is there, in this order; one of chunk 0 only cuts. The references of the chunks have been
 * counted by the caller. */
int mgr_slices_put(struct mgr_core *c, struct mgr_inode *in, Fp__Slice *const *s, size_t n);

/* Before slices are put: 0, or -EFBIG if a window might get more than MGR_WINDOW_MAX. */
int mgr_slices_fit(struct mgr_core *c, const struct mgr_inode *in, Fp__Slice *const *s, size_t n);
/* The same for `more` slices in one window. */
int mgr_window_fits(struct mgr_core *c, const struct mgr_inode *in, uint64_t win, uint64_t more);

/* ---------------------------------------------------------------- fold.c */

#define MGR_FOLD_RANGES   31u   /* of a window, that one new chunk takes (client/data/fold.c) */
#define MGR_FOLD_GAIN_MIN 8192u /* bytes on a benefactor for which nobody is told of a window */
#define MGR_FOLD_SLICES   1024u /* … unless it is of so many slices */

struct mgr_fold_row;
struct mgr_fold {
    uint64_t win, sum;       /* of its map */
    uint64_t bytes, gain;    /* that a new chunk takes; by which that is less than what the old ones do */
    uint32_t slices, ranges; /* that would go, and come */
    size_t nrows;
    struct mgr_fold_row *row; /* the arena's */
    bool more;                /* it has more than max slices: nothing else is set */
};

int mgr_fold_look(struct mgr_core *c, uint64_t ino, uint64_t win, uint32_t max, struct mgr_fold *w);
/* Worth telling a mount of; whether and when it is done, the mount decides. */
bool mgr_fold_pays(const struct mgr_fold *w);
Fp__Fold *mgr_fold_tell(struct mgr_core *c, const struct mgr_fold *w);
/* MSG_SLICEMAP with fold: r has the window's slices. */
int mgr_fold_map(struct mgr_core *c, uint64_t ino, uint64_t win, Fp__SliceMapReply *r);
/* After slices were put: r->folds. */
int mgr_fold_hints(struct mgr_core *c, const struct mgr_inode *in, Fp__Slice *const *s, size_t n, Fp__CommitReply *r);
/* Is the window's map still the one that was folded? -EINVAL: the message makes no sense. */
int mgr_fold_check(struct mgr_core *c, const Fp__Commit *m, bool *same);

struct mgr_chunk {
    uint64_t id, sum;
    uint32_t len, stored, refs, bnf;
    uint32_t data; /* coded: bytes of data; 0: not coded */
    bool noted;    /* has a note */
    int64_t round; /* mgr_round_of; of a new one */
};
/* What offsets in a chunk count in. */
static inline uint32_t mgr_chunk_data(const struct mgr_chunk *ch)
{
    return ch->data ? ch->data : ch->len;
}
int mgr_chunk_get(struct mgr_core *c, uint64_t id, struct mgr_chunk *ch); /* 0, -ENOENT */
/* 1: it may be referred to anew; 0: it is damaged, or its benefactor away or failing; or a failure. */
int mgr_chunk_vouched(struct mgr_core *c, const struct mgr_chunk *ch);
int mgr_chunk_insert(struct mgr_core *c, const struct mgr_chunk *ch);
/* Is on another benefactor from now on, or on none (0). */
int mgr_chunk_place(struct mgr_core *c, const struct mgr_chunk *ch, uint32_t bnf, uint32_t stored);
/* An inventory has it again: nobody knows when it was stored. */
int mgr_chunk_found(struct mgr_core *c, const struct mgr_chunk *ch, struct mgr_bnf *b, uint32_t stored);
int mgr_chunk_ref(struct mgr_core *c, uint64_t id, int64_t add);
/* One reference less; at 0 the chunk becomes garbage. */
int mgr_chunk_unref(struct mgr_core *c, uint64_t id);
int mgr_garbage_put(struct mgr_core *c, uint64_t id, uint32_t bnf, uint32_t stored);

/* ---------------------------------------------------------------- hold.c, note.c */

/* 0; -ENOENT: there is no such chunk. Held already: 0, and not counted again. */
int mgr_chunk_hold(struct mgr_core *c, uint64_t session, uint64_t chunk);
/* After a session has ended: c->holds_dead has its holds dropped, step by step. */
int mgr_holds_sweep(struct mgr_core *c);
/* Is a session waited for that was asked for what it holds? */
bool mgr_holds_recalling(const struct mgr_core *c);
/* Sessions that hold chunks, as it was a second ago; at least 1. */
uint64_t mgr_holders(struct mgr_core *c);

struct mgr_note_key {
    uint64_t key, chunk;
};
bool mgr_note_fits(const Fp__Chunk *m);
/* The note of a new chunk. Its keys come by mgr_notes_put_keys, for all chunks of a commit together: in order, they
 * cost less. */
int mgr_note_put(struct mgr_core *c, const Fp__Chunk *m);
int mgr_notes_put_keys(struct mgr_core *c, struct mgr_note_key *list, size_t n);
/* The chunk is going. */
int mgr_note_drop(struct mgr_core *c, uint64_t chunk);
/* Of the chunk's data, the bytes that no file with a name refers to; adds to *rows what it has looked at. 0, or a failure. */
int mgr_chunk_unused(struct mgr_core *c, uint64_t chunk, uint32_t data, uint32_t *rows, uint32_t *unused);
/* A kept answer that has chunks only. */
int mgr_notes_replay(struct mgr_core *c, Fp__NotesReply *r);

/* ---------------------------------------------------------------- auxtable.c, auxmsg.c */

bool mgr_app_name_ok(const char *app);
/* A one-way message after this group; msg lives as long as that. */
int mgr_post(struct mgr_core *c, struct mgr_conn *to, uint16_t type, const ProtobufCMessage *msg);
/* This connection is going: nothing is sent to it. */
void mgr_posts_forget(struct mgr_core *c, const struct mgr_conn *conn);
/* The end of the group: sends what it has to pass on, or forgets it. */
void mgr_posts_pump(struct mgr_core *c, bool send);
/* Is a report of this packed length one that a mount of ours could make? */
bool mgr_stats_fit(const Fp__ClientStats *m, size_t len);
/* A copy of the report that lasts as long as the group, without its aux-apps, or NULL, if it is longer than *room, which it makes smaller. */
Fp__ClientStats *mgr_stats_within(struct mgr_core *c, const Fp__ClientStats *m, size_t *room);

/* ---------------------------------------------------------------- session.c */

struct mgr_session *mgr_session_find(struct mgr_core *c, uint64_t id);
int mgr_session_load(struct mgr_core *c);
/* Hello of a client. */
int mgr_session_hello(struct mgr_core *c, struct mgr_req *rq, const Fp__Hello *h, Fp__HelloReply *r);
void mgr_session_lost(struct mgr_core *c, struct mgr_session *s);
int mgr_session_tick(struct mgr_core *c);
/* May a mount still show, or have made, names that we have not heard of? Then we make none. */
bool mgr_names_held(const struct mgr_core *c);
/* After the COMMIT: tells clients whether they are alone, and those that wait that they need not any more. */
void mgr_session_pump(struct mgr_core *c);
/* Its answer to MSG_ALONE; forgot: as in Alone. */
void mgr_session_answered(struct mgr_core *c, struct mgr_session *s, int status, bool forgot);
int mgr_early_load(struct mgr_core *c);
int mgr_life_load(struct mgr_core *c);
/* s is not found any more, and freed when the group is committed. */
int mgr_session_end(struct mgr_core *c, struct mgr_session *s);
void mgr_session_free(struct mgr_core *c, struct mgr_session *s);
/* write: it counts as open for writing (c->writers). */
int mgr_hold(struct mgr_core *c, struct mgr_session *s, uint64_t ino, bool write);
/* Programs of it have begun to write the file, if it has it open for writing; have all closed it. */
int mgr_session_wrote(struct mgr_core *c, struct mgr_session *s, uint64_t ino);
void mgr_session_closed(struct mgr_session *s, uint64_t ino);
/* It can't change the file any more (mgr_overtake), so it counts as one that has it open for reading. */
int mgr_session_overtake(struct mgr_core *c, struct mgr_session *s, uint64_t ino);
/* Nobody is told when this fails, so it stays done when its group fails. */
void mgr_unhold(struct mgr_core *c, struct mgr_session *s, uint64_t ino, bool write);
/* The group failed: holds and sessions made in it are taken back. */
void mgr_session_undo(struct mgr_core *c);
/* The group is committed. */
void mgr_session_done(struct mgr_core *c);
/* Some session may hold files that we do not know of. */
static inline bool mgr_unsettled(const struct mgr_core *c)
{
    return c->unsettled != 0;
}
/* Likewise, and may have synced or closed some that this manager has not heard of. */
static inline bool mgr_unheard(const struct mgr_core *c)
{
    return c->unheard != 0;
}
/* The last answer of this slot: 1 = *body is it, 0 = a new request, or -EINVAL. */
int mgr_replay_get(struct mgr_core *c, struct mgr_session *s, uint32_t slot, uint64_t seq, uint16_t type,
                   ProtobufCBinaryData *body);
int mgr_replay_put(struct mgr_core *c, struct mgr_session *s, uint32_t slot, uint64_t seq, uint16_t type,
                   const ProtobufCMessage *reply);

/* ---------------------------------------------------------------- lockmsg.c */

int mgr_locks_read(struct mgr_core *c); /* as the database has them */
/* Its waits end: it asks again. */
void mgr_locks_conn_lost(struct mgr_core *c, uint64_t session);
int mgr_locks_session_end(struct mgr_core *c, uint64_t session);
/* All that it does not say it holds goes. */
int mgr_locks_hello(struct mgr_core *c, uint64_t session, const Fp__Hello *h, Fp__HelloReply *r);
void mgr_locks_due(struct mgr_core *c);
/* After the COMMIT: ends of waits, and recalls. */
void mgr_locks_pump(struct mgr_core *c);
/* Has a session other than this one the right to append to the file? */
bool mgr_others_append(const struct mgr_core *c, const struct mgr_session *me, uint64_t ino);

/* ---------------------------------------------------------------- lease.c */

struct mgr_leases *mgr_leases_new(void); /* NULL: out of memory */
void mgr_leases_free(struct mgr_leases *t);
/* Whether a session asks for leases is kept: who has may hold some when we are started again. */
int mgr_leases_session_new(struct mgr_core *c, struct mgr_session *s, bool behind);
int mgr_leases_session_load(struct mgr_core *c, struct mgr_session *s);
int mgr_leases_session_end(struct mgr_core *c, const struct mgr_session *s);
/* A session has lost its leases, and may come back with data that was closed under them. */
int mgr_leases_expire(struct mgr_core *c, struct mgr_session *s);
/* May one do so that is not back? Then an open for writing changes the version of the file, so that what it has is not taken any more. */
bool mgr_leases_may_return(const struct mgr_core *c);
/* It has not come back since the restart, and may have leases. */
static inline bool mgr_lease_is_away(const struct mgr_session *s)
{
    return s->behind && s->settled_ms == UINT64_MAX;
}
/* A session says what leases it has, after what it has open. */
void mgr_leases_hello(struct mgr_core *c, struct mgr_session *s, const Fp__Hello *h);
/* Opening or cutting ino: 0, or FP_ERECALL while another session has, or may have, the lease; it is recalled.
 * FP_EPUBLISHING: likewise, and that session has gone forward, or was lost, a moment ago. */
int mgr_lease_check(struct mgr_core *c, const struct mgr_session *s, uint64_t ino);
/* Another name for ino: the same, but for those that may have it after a restart, which are not waited for. */
int mgr_lease_check_known(struct mgr_core *c, const struct mgr_session *s, uint64_t ino);
/* Another name for the directory dir: the same for all files below it. Takes time in proportion to all leases of others. */
int mgr_lease_check_below(struct mgr_core *c, const struct mgr_session *s, uint64_t dir);
/* It has opened ino, and wants the lease or not: has it got it? */
bool mgr_lease_open(struct mgr_core *c, struct mgr_session *s, uint64_t ino, bool wanted);
/* It has the file open no more. */
void mgr_lease_released(struct mgr_core *c, const struct mgr_session *s, uint64_t ino);
/* … or nothing at all. */
void mgr_leases_drop(struct mgr_core *c, struct mgr_session *s);
/* What s is told of a file's attributes: with what the holder has closed and not published, if that is another session. */
void mgr_lease_attr(const struct mgr_core *c, const struct mgr_session *s, Fp__Attr *a);
/* Has the file been closed under a lease that is still had, and is not all of that published? */
bool mgr_lease_is_behind(const struct mgr_core *c, uint64_t ino);
/* Has the session closed anything behind that is not published? fn for each such file, once. */
bool mgr_leases_any_closed(const struct mgr_session *s);
void mgr_leases_each_written(const struct mgr_session *s, void (*fn)(void *arg, uint64_t ino), void *arg); /* those that it has open for writing */
void mgr_leases_take_closed(struct mgr_session *s, void (*fn)(void *arg, uint64_t ino, uint64_t size), void *arg);
/* A commit of s covers this close and those before it (Commit.closed_upto). */
int mgr_lease_published(struct mgr_core *c, const struct mgr_session *s, uint64_t ino, uint64_t closed_upto);
void mgr_leases_group_over(struct mgr_core *c, bool committed);
/* The holder has set the file's time, or its size: what it has said before is over. */
void mgr_lease_was_set(struct mgr_core *c, uint64_t ino, bool size);
void mgr_leases_tick(struct mgr_core *c);
/* fn for each lease that is had, of a file, or of all (0). False: no more. */
void mgr_leases_each(const struct mgr_core *c, uint64_t ino, bool (*fn)(void *arg, const struct mgr_session *s, uint64_t ino, uint64_t since_ms, bool recalled), void *arg);
/* After the COMMIT: recalls, and their ends. */
void mgr_leases_pump(struct mgr_core *c);

/* ---------------------------------------------------------------- lostclose.c */

struct mgr_deaths *mgr_deaths_new(void); /* NULL: out of memory */
void mgr_deaths_free(struct mgr_deaths *t);
/* The session is gone, and what it has closed and not published with it; final: for good. Before its leases and its writes go. */
int mgr_lost_closes(struct mgr_core *c, struct mgr_session *s, bool final);
/* Before it, of one that has not said that it goes: what it had open for writing it may have closed, and not told of that any more. */
int mgr_lost_doubt(struct mgr_core *c, const struct mgr_session *s);
/* A writer of the file is gone, or one of some file of the set: marked in this group, and if that fails, in the next one with a tick that does not. -ENOMEM, and the group is doomed: neither. Outside
 * a group: nothing. */
int mgr_lost_torn(struct mgr_core *c, uint64_t ino, uint32_t marks);
int mgr_lost_torn_set(struct mgr_core *c, uint64_t set);
/* The same once more, if the group has failed in which that was seen: with each group, and, of writers, with each tick; and the end of a group. */
int mgr_lost_again(struct mgr_core *c);
int mgr_lost_tick(struct mgr_core *c);
void mgr_lost_done(struct mgr_core *c, bool committed);
/* What was closed of this file is lost: as its mount says, or when that is gone. */
int mgr_lost_close(struct mgr_core *c, const struct mgr_session *s, uint64_t ino, uint64_t size); /* size in bytes that it had for who closed it; UINT64_MAX: not known */
/* Slices are written to it, or (none) it is cut: once all of it has been written again by one who opened it when nobody else had, it is well. Changes in->flags; the caller
 * writes the inode. */
int mgr_lost_written(struct mgr_core *c, struct mgr_inode *in, Fp__Slice *const *s, size_t n);
/* Who says in its hello that it has the file open has not opened it anew. */
void mgr_lost_reopened(struct mgr_core *c, uint64_t ino);
/* Its mount is back, and all that it had closed is published. */
int mgr_lost_found(struct mgr_core *c, uint64_t ino);
/* Files of which something that was closed is lost, as fpctl status shows them. */
int mgr_lost_list(struct mgr_core *c, Fp__CtlStatusReply *r);

/* ---------------------------------------------------------------- bnf.c, inventory.c, damage.c */

struct mgr_bnf *mgr_bnf_find(struct mgr_core *c, uint64_t id);
int mgr_bnf_load(struct mgr_core *c);
int mgr_bnf_hello(struct mgr_core *c, struct mgr_req *rq, const Fp__Hello *h, Fp__HelloReply *r);
void mgr_bnf_lost(struct mgr_core *c, struct mgr_bnf *b);
void mgr_bnf_tick(struct mgr_core *c);
int mgr_bnf_store(struct mgr_core *c); /* totals that changed, before the COMMIT */
Fp__BnfState mgr_bnf_state(const struct mgr_bnf *b);
/* Not connected, or not known yet to have what it had. */
bool mgr_bnf_away(const struct mgr_bnf *b);
/* What is on it may be referred to anew. */
bool mgr_bnf_vouched(const struct mgr_bnf *b);
/* What we have vouched for until now is to be asked again. */
void mgr_doubt(struct mgr_core *c);
/* All benefactors, in memory of the group; returns their number. */
size_t mgr_bnf_infos(struct mgr_core *c, Fp__BnfInfo ***out);
void mgr_bnf_pump(struct mgr_core *c); /* table, deletes, inventory */
/* The end of the group is to look at it: something of its deletes or its inventory has changed; or its totals. */
void mgr_bnf_touch(struct mgr_core *c, struct mgr_bnf *b);
void mgr_bnf_dirty(struct mgr_core *c, struct mgr_bnf *b);
/* What mounts know of it is old: tell them now; or some time, if it is only its space. */
void mgr_table_changed(struct mgr_core *c, struct mgr_bnf *b);
void mgr_table_space(struct mgr_core *c, struct mgr_bnf *b);
void mgr_table_pump(struct mgr_core *c);
void mgr_bnf_free(struct mgr_bnf *b);
int mgr_bnf_deleted(struct mgr_core *c, struct mgr_bnf *b, int status, const Fp__ChunkList *l);
struct mgr_space {
    uint64_t total, used, free, garbage, garbage_bytes, stored;
};
void mgr_space(const struct mgr_core *c, struct mgr_space *sp);

void mgr_inventory_pump(struct mgr_core *c, struct mgr_bnf *b);
int mgr_inventory_page(struct mgr_core *c, struct mgr_bnf *b, int status, const Fp__InventoryReply *r);
void mgr_inventory_committed(struct mgr_bnf *b, uint64_t chunk);
void mgr_inventory_want(struct mgr_core *c, uint64_t delay_ms);

/* bad_chunk.missing */
enum mgr_bad { MGR_BAD_READ, MGR_BAD_MISSING, MGR_BAD_LOOK, MGR_BAD_WRONG /* LOOK, and what bad_chunk.bnf has of it was read wrong: never in the table */ };
int mgr_damage_chunk(struct mgr_core *c, uint64_t chunk, uint32_t bnf, enum mgr_bad bad, const char *reason);
int mgr_damage_load(struct mgr_core *c);
int mgr_damage_drop(struct mgr_core *c, uint64_t chunk);
int mgr_damage_found(struct mgr_core *c, uint64_t chunk);
/* 1: nobody may refer to it anew, *bad (may be NULL) says why; 0; or a failure. */
int mgr_damage_has(struct mgr_core *c, uint64_t chunk, enum mgr_bad *bad);
/* *bnf: what this benefactor has of it was read wrong; 0: of none that is known. */
int mgr_damage_wrong(struct mgr_core *c, uint64_t chunk, uint32_t *bnf);

/* ---------------------------------------------------------------- handlers, one per message type */

void mgr_stop_pump(struct mgr_core *c); /* ctl.c */
/* A path from the root, without leading slash; symbolic links are not followed. 0, -ENOENT. */
int mgr_resolve(struct mgr_core *c, ProtobufCBinaryData path, uint64_t *ino);

#define MGR_HANDLER(name) int mgr_##name(struct mgr_core *c, struct mgr_req *rq, const void *msg)
MGR_HANDLER(hello);
MGR_HANDLER(bye);
MGR_HANDLER(lookup);
MGR_HANDLER(getattr);
MGR_HANDLER(setattr);
MGR_HANDLER(mknod);
MGR_HANDLER(unlink);
MGR_HANDLER(rename);
MGR_HANDLER(link);
MGR_HANDLER(readlink);
MGR_HANDLER(readdir);
MGR_HANDLER(open);
MGR_HANDLER(release);
MGR_HANDLER(setxattr);
MGR_HANDLER(getxattr);
MGR_HANDLER(listxattr);
MGR_HANDLER(removexattr);
MGR_HANDLER(statfs);
MGR_HANDLER(inodes);
MGR_HANDLER(lock);
MGR_HANDLER(recall);
MGR_HANDLER(closed);
MGR_HANDLER(slicemap);
MGR_HANDLER(commit);
MGR_HANDLER(punch);
MGR_HANDLER(seek);
MGR_HANDLER(clone);
MGR_HANDLER(badchunk);
MGR_HANDLER(sync);
MGR_HANDLER(hold_chunks);
MGR_HANDLER(notes);
MGR_HANDLER(note_find);
MGR_HANDLER(aux_table);
MGR_HANDLER(aux_msg);
MGR_HANDLER(aux_set);
MGR_HANDLER(client_stats);
MGR_HANDLER(keepalive);
MGR_HANDLER(ctl_status);
MGR_HANDLER(ctl_layout);
MGR_HANDLER(ctl_sets);
MGR_HANDLER(ctl_set_say);
MGR_HANDLER(ctl_stop);
MGR_HANDLER(ctl_versions);
MGR_HANDLER(ctl_conversions); /* convertmsg.c */
MGR_HANDLER(ctl_locks); /* ctl_locks.c */

#endif
