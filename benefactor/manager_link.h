/* The connection to the manager: hello, keep-alives, and what the manager asks for. Thread of the loop. */
#ifndef BNF_MANAGER_LINK_H
#define BNF_MANAGER_LINK_H

#include <stdint.h>

#include "benefactor/drain.h"
#include "benefactor/service.h"
#include "fp/rpc.h"

struct bnf_manager_link;

struct bnf_manager_config {
    uv_loop_t *loop;
    struct fp_rpc *rpc;
    struct bnf_service *service;
    struct bnf_drain *drain; /* NULL: tasks are not taken */
    const char *manager; /* ADDR:PORT; all strings are borrowed */
    const char *node;
    const char *advertise;  /* host for the data port; NULL: our end of the connection to the manager */
    uint16_t port;          /* data port */
    const char *local_path; /* Unix socket */
    const char *backend;
    uint64_t start_timeout_ms;
    /* After the first hello: the store is known. Before anything is served. Negative: give up. */
    int (*registered)(void *arg, const uint8_t store_uuid[16], uint32_t bnf_id);
    /* It can't work (wrong key, other store, start timeout): logged. Not after registered. */
    void (*failed)(void *arg);
    void (*stop)(void *arg); /* the manager asks us to end */
    void *arg;
};

/* Begins to connect; goes on for ever once registered. -ENOMEM, -EINVAL (address; logged). */
int bnf_manager_link_new(const struct bnf_manager_config *c, struct bnf_manager_link **out);
/* Tells the manager at once (at most every 50 ms) instead of at the next second. */
void bnf_manager_link_news(struct bnf_manager_link *l);
/* There are results of tasks. */
void bnf_manager_link_results(struct bnf_manager_link *l);
/* Says goodbye and stops connecting. Then fp_rpc_close, then _free. */
void bnf_manager_link_stop(struct bnf_manager_link *l);
void bnf_manager_link_free(struct bnf_manager_link *l); /* the loop must run once more */
uint32_t bnf_manager_link_id(const struct bnf_manager_link *l);

#endif
