/*
 * The manager with thousands of nodes: its core (manager/core.h, the real code and a real database) is sent what their mounts and benefactors send, and what it
 * takes is measured. See docs/SCALING.md.
 *
 * shell.c stands for the manager's loop, job.c for the nodes, loss.c for what goes wrong; sim_scale.c has the options and the report. One thread.
 */
#ifndef TESTS_SIM_SCALE_H
#define TESTS_SIM_SCALE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fp.pb-c.h"
#include "manager/core.h"

#define SCALE_TYPES 96

struct scale_opts {
    uint32_t nodes, ranks, windows; /* ranks on each node, windows of 1 MiB that each writes */
    bool shared;                    /* one file of all ranks, in turns */
    uint32_t group;                 /* messages in one transaction */
    uint32_t lost_ppm;              /* of the benefactors */
    uint64_t cache_bytes;
    const char *dir;
    bool counts; /* only messages by kind, in the words of sim_store --checkpoint */
};

/* Of one kind of message. */
struct scale_kind {
    uint64_t n, bytes, cpu_ns;
};

struct scale_peer {
    struct mgr_conn *conn; /* NULL: not connected */
    uint32_t node;
    bool is_mount;
};

struct scale_node {
    struct scale_peer mount, bnf;
    uint64_t session;
    uint32_t bnf_id;
    uint64_t seq[257]; /* of slots */
    uint64_t told_free; /* what its last keep-alive said */
    uint32_t stored;    /* chunks on its benefactor, numbers 1.. of its session */
    bool empty;         /* its benefactor has come back without anything */
};

/* Of a phase; added up for the report. */
struct scale_phase {
    const char *name;
    struct scale_kind in[SCALE_TYPES], out[SCALE_TYPES]; /* to the manager; from it, but for replies */
    uint64_t groups, replies, reply_bytes;
    uint64_t handle_ns, end_ns, pack_ns; /* handlers; end of groups: COMMIT and what is to be sent; answers into bytes */
    uint64_t checkpoint_ns;              /* WAL into the database, on a thread of its own in the real shell */
    uint64_t chunks, slices, released;   /* in commits and releases */
};

struct scale_msg;
typedef void (*scale_reply_fn)(void *arg, int status, const ProtobufCMessage *reply);

struct scale {
    struct scale_opts o;
    struct mgr_core *core;
    char db_path[4096];
    struct scale_node *nodes;
    uint64_t *inos; /* of ranks; of one file, if it is shared */
    uint64_t dir_ino;
    uint64_t now_ns, tick_ns, second_ns; /* of the manager's clock: the time of its processor, and what is waited */
    uint32_t due; /* sign of life: next node */
    bool quiet;   /* none are sent */
    struct scale_msg *queue;
    size_t queued;
    struct scale_msg *asked; /* what the manager has asked for in this group */
    size_t nasked, asked_cap;
    struct scale_phase *phase;
    bool failed;
};

/* ------------------------------------------------------------------ shell.c */

void shell_open(struct scale *w);
/* Packs it into the group that is being collected, which runs when it is full. fn NULL: the answer must be a success. */
void shell_send(struct scale *w, struct scale_peer *from, uint16_t type, const void *msg, scale_reply_fn fn, void *arg);
void shell_notice(struct scale *w, struct scale_peer *from, uint16_t type, const void *msg);
void shell_flush(struct scale *w);
/* The connection is gone, in a group of its own. */
void shell_lost(struct scale *w, struct scale_peer *p);
void shell_connect(struct scale *w, struct scale_peer *p);
/* Lets time go by with nothing but ticks and signs of life. */
void shell_wait(struct scale *w, uint64_t ms);
void shell_close(struct scale *w);
uint64_t shell_cpu_ns(void);
void shell_must(struct scale *w, bool ok, const char *what, int status);

/* ------------------------------------------------------------------ job.c */

void job_nodes_begin(struct scale *w);
void job_hello_bnf(struct scale *w, struct scale_node *n);
void job_hello_mount(struct scale *w, struct scale_node *n);
void job_make_dir(struct scale *w);
void job_checkpoint(struct scale *w);
void job_sign_of_life(struct scale *w, struct scale_node *n);
/* A page of a benefactor's inventory. */
void job_inventory(const struct scale *w, const struct scale_node *n, const Fp__Inventory *m, Fp__InventoryReply *r, uint64_t *ids);

/* ------------------------------------------------------------------ loss.c */

void loss_restart(struct scale *w);
void loss_benefactors(struct scale *w);
void loss_return(struct scale *w, bool empty);

#endif
