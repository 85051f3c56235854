/* The manager as a state machine: decoded frames and the time go in, replies and frames to send come out.
 *
 * It knows no socket, clock, thread or random source; the database is its only disk. One thread at a time. A
 * shell (server.c, or a simulator) drives it in groups, each one transaction:
 *
 *     mgr_core_begin(core, now);
 *     mgr_core_request(core, conn, type, msg, len, &reply);     any number of these, of _notice, _answer,
 *     mgr_core_tick(core);                                      _conn_lost and of this
 *     err = mgr_core_end(core, &durable);                       COMMIT
 *     send the replies (all of them with status err if that is not 0), those that are durable after
 * mgr_db_sync, then what mgr_core_out_next gives mgr_core_reset(core); frees replies and frames of this group
 *
 * No reply leaves before the COMMIT, so what a client has been told is never lost by a crash of the manager.
 */
#ifndef MGR_CORE_H
#define MGR_CORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <protobuf-c/protobuf-c.h>

#include "manager/db.h"

#define MGR_ROOT_INO  1u
#define MGR_SLOTS_MAX 256u

struct mgr_core;
struct mgr_conn; /* one connection, as the core sees it */

struct mgr_now {
    uint64_t ms; /* monotonic, for waits */
    int64_t ns;  /* since 1970, for the times of inodes */
};

/* Zero means the default. */
struct mgr_core_opts {
    uint64_t session_timeout_ms; /* 60 s: silence after which a session's open files are forgotten */
    uint64_t orphan_grace_ms;    /* 60 s more until its chunks may be collected */
    uint64_t bnf_timeout_ms;     /* 3 s without keep-alive: down */
    uint64_t settle_ms;          /* 2 s for a returning client to send again what had no answer */
    uint64_t inodes_max;         /* 2^32 */
    bool checkpoints_off;        /* no checkpoint sets are recognised */
    uint64_t ckpt_quiet_ms;      /* 2 s after its last change a set is complete; */
    uint64_t ckpt_late_ms;       /* 60 s, if it has fewer files than the one before */
    uint64_t aux_table_bytes;    /* 1 GiB: keys and values of one aux-app's table */
    uint64_t cache_bytes;        /* 64 MiB: page cache of the database */
    uint32_t chunk_size_bytes;   /* default of the store; 0: as stored, 1 MiB for a new one */
    uint32_t stripe;             /* likewise, 1 */
    uint8_t store_uuid[16];      /* of a new store; an existing one keeps its own */
    uint32_t root_uid, root_gid; /* owner of the root directory of a new store */
    bool versions;               /* what a file was is kept until it is rewritten as a whole */
    uint64_t boot;               /* of the kernel that keeps the database's pages; 0: another one each time */
    uint64_t new_life;           /* a random number: see life.c; 0: the time */
    const char *software;        /* version text, borrowed */
};

struct mgr_reply {
    int32_t status;              /* 0 or negative: errno or err.h */
    const ProtobufCMessage *msg; /* NULL: empty; valid until mgr_core_reset */
    bool close;                  /* send, then close the connection (a refused hello) */
    bool durable;                /* send when the transaction is on stable storage */
};

enum mgr_out_kind {
    MGR_OUT_SEND,  /* one-way frame */
    MGR_OUT_POST,  /* one-way frame of another client: not to one for whom too much waits (mgr_core_dropped) */
    MGR_OUT_CALL,  /* request; the answer, or the failure to get one, goes to mgr_core_answer */
    MGR_OUT_CLOSE, /* close the connection */
};
struct mgr_out {
    enum mgr_out_kind kind;
    void *user; /* of mgr_core_conn_new */
    uint16_t type;
    bool durable;                /* send when everything committed so far is on stable storage */
    const ProtobufCMessage *msg; /* valid until mgr_core_reset */
};

/* Opens or creates the database. why: one line for the user. db_path may be ":memory:". */
int mgr_core_new(struct mgr_core **out, const char *db_path, const struct mgr_core_opts *opts,
                 struct mgr_now now, char why[MGR_DB_WHY_MAX]);
/* After the last group: what was answered is all there, also for those who have not synced it. 0, or it is as after a crash. */
int mgr_core_ended(struct mgr_core *core);
/* Connections that are left are forgotten; sessions stay in the database. */
void mgr_core_free(struct mgr_core *core);

/* user is given back in mgr_out. NULL: out of memory. May be called outside a group. */
struct mgr_conn *mgr_core_conn_new(struct mgr_core *core, void *user);
/* The connection is gone; conn is freed. Inside a group. */
void mgr_core_conn_lost(struct mgr_core *core, struct mgr_conn *conn);

void mgr_core_begin(struct mgr_core *core, struct mgr_now now);
/* msg is borrowed for the call. */
void mgr_core_request(struct mgr_core *core, struct mgr_conn *conn, uint16_t type, const uint8_t *msg,
                      size_t len, struct mgr_reply *reply);
/* A one-way frame. */
void mgr_core_notice(struct mgr_core *core, struct mgr_conn *conn, uint16_t type, const uint8_t *msg,
                     size_t len);
/* The answer to a MGR_OUT_CALL: status 0 and the message, or why there is none. */
void mgr_core_answer(struct mgr_core *core, struct mgr_conn *conn, uint16_t type, int status,
                     const uint8_t *msg, size_t len);
/* What is due at this time. Call it every 100 ms or so. */
void mgr_core_tick(struct mgr_core *core);
/* 0, or the failure that took the whole group back. *durable: some reply is. */
int mgr_core_end(struct mgr_core *core, bool *durable);
/* False: nothing (more) to send. */
bool mgr_core_out_next(struct mgr_core *core, struct mgr_out *out);
/* A MGR_OUT_POST was not sent. */
void mgr_core_dropped(struct mgr_core *core, struct mgr_conn *conn);
void mgr_core_reset(struct mgr_core *core);

/* There is work that needs no message to go on (removal of a big file): run another group soon. */
bool mgr_core_busy(const struct mgr_core *core);

/* Tells everyone to stop: clients first, benefactors when the clients are gone. Inside a group. */
void mgr_core_stop(struct mgr_core *core);
/* Nobody is left, or the time for leaving (10 s) is over. */
bool mgr_core_stopped(const struct mgr_core *core);

struct mgr_db *mgr_core_db(struct mgr_core *core);
const uint8_t *mgr_core_uuid(const struct mgr_core *core);
/* "ADDR:PORT" for fpctl status; copied. */
void mgr_core_set_addr(struct mgr_core *core, const char *addr);

#endif
