/* What server.c and server_batch.c share. */
#ifndef MGR_SERVER_INT_H
#define MGR_SERVER_INT_H

#include "fp/rpc.h"
#include "manager/server.h"
#include "manager/worker.h"

struct mgr_server;

/* One connection. */
struct mgr_peer {
    struct mgr_server *server;
    struct fp_rpc_conn *conn;
    struct mgr_conn *core;
};

/* A request of the open group, to be answered after its COMMIT. */
struct mgr_pending {
    struct fp_rpc_conn *conn; /* a reference */
    uint64_t id;
    uint16_t type;
    struct mgr_reply reply;
};

/* A reply that waits for a sync: packed, because the group's memory goes before. */
struct mgr_durable {
    struct mgr_durable *next;
    struct fp_rpc_conn *conn; /* a reference */
    uint64_t id, ticket;
    uint16_t type;
    const ProtobufCMessageDescriptor *desc; /* NULL: empty */
    size_t len;
    uint8_t bytes[];
};

/* A request of the core that waits for a sync, packed likewise. */
struct mgr_late {
    struct mgr_late *next;
    struct mgr_peer *peer;
    uint64_t ticket;
    uint16_t type;
    const ProtobufCMessageDescriptor *desc;
    size_t len;
    uint8_t bytes[];
};

struct mgr_server {
    struct mgr_core *core;
    const struct mgr_server_opts *opts;
    uv_loop_t loop;
    struct fp_rpc *rpc;
    struct fp_rpc_listener *listener;
    uv_prepare_t prepare;
    uv_check_t check;
    uv_idle_t idle; /* runs while the core has work of its own */
    uv_timer_t timer;
    uv_signal_t sigterm, sigint, sigend;
    struct mgr_worker sync, checkpoint;
    bool in_group, ending, checkpointing;
    uint64_t make_room_ms; /* not again before */
    struct mgr_pending *pending;
    size_t pending_count, pending_cap;
    struct mgr_durable *durable_first, **durable_last;
    struct mgr_late *late_first, **late_last;
};

/* Makes sure that a group is open. */
void mgr_batch_open(struct mgr_server *s);
/* COMMIT and replies, if one is. */
void mgr_batch_close(struct mgr_server *s);
/* A request of the group has been executed; its answer waits. */
void mgr_batch_add(struct mgr_server *s, struct fp_rpc_conn *conn, const struct fp_rpc_in *in,
                   const struct mgr_reply *reply);
/* The worker has synced: everything up to this ticket. */
void mgr_batch_synced(void *server, uint64_t ticket, int err);
/* Forgets what waits to be sent to this peer, which is going. */
void mgr_batch_forget(struct mgr_server *s, const struct mgr_peer *peer);
/* Forgets what waits. */
void mgr_batch_drop(struct mgr_server *s);

#endif
