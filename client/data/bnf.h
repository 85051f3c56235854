/*
 * The benefactors as a mount sees them: the manager's table, and a link to each one used.
 *
 * A benefactor of the same node is reached through its Unix socket (descriptors of segments come through it), others over TCP on the
 * core loop. A link that breaks is opened again at next use; leases end with the link they came by (`local_generation`,
 * `remote_generation`).
 */
#ifndef CL_DATA_BNF_H
#define CL_DATA_BNF_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "fp.pb-c.h"
#include "fp/fdlink.h"
#include "fp/rpc.h"

struct cl_data;
struct cl_lease;

struct cl_seg {                    /* an open segment file of a local benefactor */
    struct cl_seg *next;           /* bnf->lock */
    struct cl_bnf *bnf;
    uint64_t id, salt;
    int fd;
    bool o_direct;
    atomic_uint refs;              /* list holds one */
    atomic_bool unsynced;          /* written since the last fdatasync */
    atomic_bool lost;              /* an fdatasync failed: nothing new is written to it */
    bool untold;                   /* … and the benefactor has not been told; sync_lock */
};

struct cl_llink {                  /* local link, closed when the last user has gone */
    struct fp_fdlink *link;
    struct fp_limiter *limiter;    /* that came with it, until it is in use */
    uint64_t generation;
    atomic_uint refs;
};

struct cl_rcall;

struct cl_bnf {
    struct cl_bnf *next;           /* data->bnf_lock; entries are never freed while mounted */
    struct cl_data *data;
    uint32_t id;                   /* constant */
    atomic_int state;              /* Fp__BnfState as the manager told */
    atomic_ullong free_bytes;
    atomic_bool prefers_local;     /* same node name */
    atomic_bool emulated;          /* there is a limiter */
    atomic_ullong life;            /* unsynced_life, by hello or by the manager's table; 0 = not told yet */
    uint64_t life_past[8];         /* life_lock: those before: late news of them are no news */
    unsigned nlives;               /* life_lock */
    pthread_mutex_t life_lock;     /* leaf */
    atomic_ullong lost_at;         /* data->losses when this one last lost what it had not synced */
    bool untold;                   /* sync_lock: it has not heard of a segment that could not be synced */
    /* Grow when the local link or the TCP connection breaks: leases that came by an older one are void. The other link's are not. */
    atomic_ullong local_generation, remote_generation;
    pthread_mutex_t sync_lock;     /* before lock; held over fdatasync: who finds nothing to sync must wait for who is syncing */
    atomic_ullong remote_written;  /* chunks that it has acknowledged over TCP … */
    atomic_ullong remote_synced;   /* … and how many of them are known to be on its device */
    pthread_mutex_t remote_lock;   /* leaf; held over MSG_BNF_SYNC */
    uint64_t remote_failed_ms;     /* remote_lock: when the last one failed */
    int remote_failed;             /* remote_lock: why */
    pthread_mutex_t lock;
    /* lock: */
    char node[128], addr[128], local_path[512], backend[32];
    uint64_t capacity_bytes;
    struct fp_limiter *limiter;    /* of the device that is emulated (device.h), or NULL */
    struct cl_llink *llink;
    bool opening;                  /* a thread is at it, without the lock: the core loop must not wait for a benefactor that hangs */
    pthread_cond_t opened;
    uint64_t retry_local_ms;       /* do not try the Unix socket before */
    bool local_failed;             /* … but its socket is not reachable: TCP */
    struct cl_seg *segs;
    /* lock of the space accounts (space.h): */
    struct cl_lease *leases;
    bool leasing;                  /* a thread is at it */
    bool ahead_queued;             /* a job to lease ahead waits for a thread */
    uint64_t full_until_ms, avoid_until_ms;
    uint32_t full_need_bytes;      /* until then it has no room for so many bytes; for fewer it may */
    uint64_t lease_bytes;          /* size of the next lease */
    /* core loop only: */
    struct fp_rpc_conn *conn;
    atomic_bool conn_hello_done;   /* any thread may look */
    struct cl_rcall *waiting, **waiting_tail;
};

/* Core loop: take over the manager's table. */
void cl_bnfs_update(struct cl_data *d, const Fp__BnfTable *t);
void cl_bnfs_free(struct cl_data *d);
/* Benefactor by number, or NULL. Any thread. */
struct cl_bnf *cl_bnf_find(struct cl_data *d, uint32_t id);

/* Its unsynced_life, as it says itself or as the manager heard: if its unsynced data may be gone, files that have such data will be told by fsync. True: they will. */
bool cl_bnf_life(struct cl_bnf *b, uint64_t life);

/* True if chunks of this benefactor go through descriptors: opens the local link if need be (blocks up to 1 s). FUSE or store threads. */
bool cl_bnf_is_local(struct cl_bnf *b);

/* A call over the local link, answered within 2.5 s or given up. r as in fp_fdlink_call. -ENOTCONN when there is no link. */
int cl_bnf_local_call(struct cl_bnf *b, uint32_t type, const ProtobufCMessage *msg, struct fp_fdlink_reply_buf *r);
/* MSG_LEASE over the local link; *generation of the link that it came by. */
int cl_bnf_local_lease(struct cl_bnf *b, const Fp__Lease *msg, struct fp_fdlink_reply_buf *r, uint64_t *generation);
/* MSG_BNF_SYNC over the local link: as long as the device takes, at most timeout_ms. */
int cl_bnf_local_sync(struct cl_bnf *b, uint32_t timeout_ms);

/* Take over a descriptor that came with a reply (closed if the segment, by id and salt, is open already). One reference for the caller. NULL: no memory. */
struct cl_seg *cl_seg_add(struct cl_bnf *b, uint64_t id, uint64_t salt, int fd, bool o_direct);
void cl_seg_put(struct cl_seg *s);
/* Close segments that nobody uses and the benefactor has removed; tell it of those that could not be synced, if that failed. The tick calls it. */
void cl_segs_tick(struct cl_data *d);

/* A call to a benefactor over TCP. */
struct cl_rcall {
    struct cl_rcall *next;
    struct cl_bnf *bnf;
    uint32_t type;
    const ProtobufCMessage *msg;   /* caller's until done */
    const struct iovec *payload;   /* caller's until done */
    int niov;
    void *rx;                      /* where the payload of the reply goes */
    size_t rx_cap_bytes;
    size_t rx_len_bytes;           /* out */
    uint64_t generation;           /* out: of the connection that the answer came by */
    uint32_t timeout_ms;
    /* Core loop. reply: unpacked message, freed after done returns; NULL if status < 0. */
    void (*done)(struct cl_rcall *c, int status, const ProtobufCMessage *reply);
    uint8_t *gathered;             /* payload copied together when it has more parts than a frame takes */
    struct iovec gathered_iov;
};
/* Any thread. done is called exactly once. */
void cl_bnf_remote_call(struct cl_rcall *c);
/* Wait for the answer; not from the core loop. *reply (may be NULL) is freed by the caller. */
int cl_bnf_remote_call_sync(struct cl_rcall *c, ProtobufCMessage **reply);

/* Benefactors that could not be synced. */
struct cl_unsynced {
    uint32_t id[8];
    unsigned n;
    bool more;                     /* and others */
    bool untried;                  /* cl_bnfs_sync_present has passed over some */
};

/* Everything written by this mount is on the devices, or data->losses tells that it may be lost: fdatasync of local segments, MSG_BNF_SYNC to remote ones.
   Blocks. failed may be NULL. */
int cl_bnfs_sync(struct cl_data *d, struct cl_unsynced *failed);
/* The same, but those that the manager calls down and that have no link are failed without being tried: each try takes seconds. */
int cl_bnfs_sync_present(struct cl_data *d, struct cl_unsynced *failed);
/* Everything that these benefactors (ids NULL: all) have acknowledged to anybody is on their devices: MSG_BNF_SYNC to all at once. Blocks. */
int cl_bnfs_sync_others(struct cl_data *d, const uint32_t *ids, size_t n, struct cl_unsynced *failed);
void cl_unsynced_add(struct cl_unsynced *failed, uint32_t id);
bool cl_unsynced_has(const struct cl_unsynced *failed, uint32_t id);

#endif
