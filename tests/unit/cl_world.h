/*
 * The world around the data path of fp-mount, in one process: a model of the manager (slices, chunks, versions), models of
 * benefactors (leases, segments, records), the links to them, and a core loop. The functions that client/data calls are replaced by the
 * linker (--wrap, see module.mk). Whatever a real manager or benefactor would refuse is a failed check here.
 */
#ifndef TESTS_CL_WORLD_H
#define TESTS_CL_WORLD_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <protobuf-c/protobuf-c.h>

#include "client/client.h"
#include "client/core.h"
#include "fp.pb-c.h"
#include "fp/keyedsum.h"

#define WORLD_BNFS_MAX 4

/* What to go wrong. All zero: nothing. */
struct world_faults {
    atomic_int mgr_lost_before; /* so many manager requests are lost, not executed */
    atomic_int mgr_lost_after;  /* … executed, and the answer is lost */
    atomic_int mgr_hangs;       /* … of those that last nobody hears, until world_mgr_back */
    atomic_int mgr_delay_us;    /* each takes up to this long */
    atomic_int bnf_delay_us;
    atomic_ullong mgr_lease_time; /* of the mounts' session */
    atomic_int mgr_window_max;  /* slices of one window; 0: any number */
    atomic_uint mgr_refuse_win;  /* > 0: a COMMIT with slices of window n - 1 is refused: EINVAL */
    atomic_uint mgr_bad_win;     /* > 0: chunks in window n - 1 are named as bad */
    atomic_bool mgr_folds;       /* COMMIT tells of windows of which chunks take more than they need */
    atomic_int mgr_commit_err;  /* each COMMIT fails with this */
    atomic_int mgr_setattr_err; /* each SETATTR is refused with this */
    atomic_bool mgr_away;        /* FP_EAWAY, unless it is said to be of no matter */
    atomic_uint mgr_away_asked;  /* counted */
    atomic_int mgr_way;         /* STATFS says: 1: what is drained gives way, and stands still; 2: and goes forward, by each answer */
    atomic_bool mgr_strict;     /* all files are strict */
    atomic_bool mgr_old;        /* it does not say how much a CLONE has copied */
    atomic_uint mgr_commits;    /* counted: executed, with slices … */
    atomic_uint mgr_ends;       /* … and those that said that all have closed the file */
    atomic_uint mgr_slices_told; /* … and slices in answers to SLICEMAP */
    atomic_int mgr_sync_all;    /* a file with chunks of others is too large to look at */
};
extern struct world_faults world_faults;
/* What a mount makes of the store's key. */
extern struct fp_keyedsum world_keyedsum;

struct world_mount {
    atomic_uint session;
};

struct world_seg {
    uint64_t id, salt;
    int fd;
    uint64_t next; /* first byte never given away */
    uint8_t *used; /* 4 KiB blocks that hold a record */
    bool condemned; /* could not be synced */
};

struct world_lease {
    struct world_lease *next;
    uint64_t id, link, rest_bytes;
    bool local;
    uint32_t n;
    struct {
        uint32_t seg;
        uint64_t off, len;
    } ext[2];
};

struct world_rec {
    struct world_rec *next;
    uint64_t chunk, off, sum;
    uint32_t seg, stored_bytes, len;
};

struct world_bnf {
    uint32_t id;
    bool local;
    uint64_t capacity;
    pthread_mutex_t lock;
    /* lock: */
    uint64_t used; /* leased or stored */
    struct world_seg *segs;
    uint32_t nsegs;
    struct world_lease *leases;
    struct world_rec *bucket[1024];
    uint64_t nrecs, lease_ids;
    uint64_t starts; /* world_bnf_restart_empty */
    /* faults: */
    atomic_bool down;          /* nobody listens; links are broken by world_bnf_break */
    atomic_int store_err;      /* STORED and WRITE fail with this */
    atomic_int lease_err;
    atomic_bool hang_open;     /* who opens the local link waits, until this is false again */
    atomic_int break_after;    /* > 0: the link breaks at the n-th call from here */
    atomic_bool break_stored;  /* … and it breaks at the next record over the local link */
    atomic_int break_executes; /* … after it was executed */
    atomic_bool hold_answers;  /* what is asked over TCP is done, and answered when this is false again */
    atomic_bool hold_connects; /* who connects gets no answer, until this is false again */
    atomic_uint refuse_ms;     /* who connects while it is down hears of that after so long */
    atomic_ulong connects;
    atomic_bool table_down;    /* the manager's table says so */
    atomic_ulong stores;
    atomic_ulong syncs;        /* MSG_BNF_SYNC */
    atomic_ulong acked, synced; /* records ever taken over; how many at the last of these */
    atomic_int sync_err;       /* it says no */
    atomic_int sync_lost;      /* so many syncs from here on fail at its device */
    atomic_ulong stale;        /* records under leases that it does not know */
    atomic_ullong life;        /* BnfHelloReply.unsynced_life */
    atomic_ullong table_life;  /* … as the manager's table has it */
};

struct world_bnf *world_bnf_add(uint32_t id, bool local, uint64_t capacity);
struct world_bnf *world_bnf(uint32_t id);
void world_bnf_break(struct world_bnf *b); /* the links to it, now */
void world_bnf_break_tcp(struct world_bnf *b);
/* Started again with nothing, as one in memory: links break, and segments are numbered from the beginning. */
void world_bnf_restart_empty(struct world_bnf *b);
void world_bnf_delete(uint32_t bnf, uint64_t chunk);
uint64_t world_bnf_used(struct world_bnf *b);
/* Change one bit of the chunk's data at off; false: not there. */
bool world_bnf_flip(struct world_bnf *b, uint64_t chunk, uint32_t off);
/* The data of a stored chunk, verified; 0, or a negative code. */
int world_bnf_data(uint32_t bnf, uint64_t chunk, uint32_t len, uint64_t sum, uint8_t *out);
/* Is this chunk stored like this? */
bool world_bnf_has(uint32_t bnf, uint64_t chunk, uint32_t len, uint32_t stored_bytes, uint64_t sum);
void world_bnf_fini(void); /* checks that no lease is left */

/* The table of benefactors as the manager would send it; those of the node are on node "n0". */
struct world_table {
    Fp__BnfTable msg;
    Fp__BnfInfo info[WORLD_BNFS_MAX], *list[WORLD_BNFS_MAX];
    char text[WORLD_BNFS_MAX][2][32];
};
void world_table(struct world_table *w);

/* Run fn(arg) on the core loop and wait for it. */
void world_on_core(void (*fn)(void *arg), void *arg);
void world_post(void (*fn)(void *arg), void *arg);
/* All connections of the mounts are closed. */
void world_close_conns(void);
void world_core_start(void);
void world_core_stop(void);
void world_sleep_up_to(int us);

/* manager */
uint64_t world_file_new(uint32_t chunk_size_bytes, uint32_t stripe);
void world_attr(uint64_t ino, Fp__Attr *out);
void world_unlink(uint64_t ino);
/* The file as another mount sees it: from slices and records. out has room for cap bytes. Returns the size. */
uint64_t world_view(uint64_t ino, uint8_t *out, uint64_t cap);
/* Chunk (and where in it) that holds this byte; 0: a hole. */
uint64_t world_chunk_at(uint64_t ino, uint64_t off, uint32_t *bnf, uint32_t *chunk_off);
/* A chunk with a hold more or less: false: it is gone. */
bool world_mgr_hold(uint64_t chunk);
void world_mgr_release(uint64_t chunk);
/* Stored bytes of a coded chunk -> its data; NULL: there are no coded chunks. */
extern int (*world_decode)(const uint8_t *stored, uint32_t len, uint8_t *out, uint32_t data_len);
/* Called before a fold is committed, on the thread that does. */
extern void (*world_before_fold)(void);
uint64_t world_folds(uint64_t *lost); /* how many were committed; *lost: of them, those of windows that had changed */
uint64_t world_bad_chunks(void); /* how many were reported */
uint64_t world_chunk_count(void);
uint64_t world_stored_bytes(void); /* of all chunks, with headers */
uint64_t world_slice_count(uint64_t ino);
/* As a manager that lost its last commits with the power of its node: the file is as it was at its version 1, but for its size. */
void world_mgr_go_back(uint64_t ino, uint64_t size);
void world_mgr_reset(void);
int world_mgr_call(uint32_t session, uint32_t type, const ProtobufCMessage *msg, ProtobufCMessage **reply);
uint64_t world_mgr_calls(void); /* requests so far */
/* Lasting requests: cb as cl_mgr_call_lasting and cl_mgr_call_known say, on the core loop. Those whose answer was lost wait for world_mgr_back, which sends them again. */
void world_mgr_lasting(struct cl_mount *m, uint32_t type, const ProtobufCMessage *msg, cl_mgr_cb cb, void *arg);
void world_mgr_back(void);
void world_mgr_fail_lasting(struct cl_mount *m, int err);
extern atomic_ulong world_recalled; /* serial of the recall that was answered last */
extern atomic_uint world_closed;   /* MSG_CLOSED: how many, and what the last one said */
extern atomic_ullong world_closed_size;
extern atomic_llong world_closed_mtime;
extern atomic_bool world_closed_lost;
extern atomic_uint world_forward;   /* how often the manager was told that what is recalled goes forward */
void world_mgr_send(uint32_t type, const ProtobufCMessage *msg);
ProtobufCMessage *world_copy(const ProtobufCMessage *msg);

#define WORLD_CHECK(cond)                                                                                                  \
    do {                                                                                                                   \
        if (!(cond))                                                                                                       \
            world_failed(__FILE__, __LINE__, #cond);                                                                       \
    } while (0)
void world_failed(const char *file, int line, const char *what) __attribute__((noreturn));

#endif
