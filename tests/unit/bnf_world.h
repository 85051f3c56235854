/* A benefactor in a thread, without a manager, and clients of both kinds: for test_bnf_server.c. */
#ifndef TESTS_BNF_WORLD_H
#define TESTS_BNF_WORLD_H

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "benefactor/local.h"
#include "benefactor/remote.h"
#include "benefactor/service.h"
#include "fp.pb-c.h"
#include "fp/checksum.h"
#include "fp/clock.h"
#include "fp/err.h"
#include "fp/fault.h"
#include "fp/fdlink.h"
#include "fp/key.h"
#include "fp/log.h"
#include "fp/rpc.h"
#include "tests/unit/bnf_util.h"

#define BW_MIB  ((uint64_t)1 << 20)
#define BW_SIZE (512 * BW_MIB)

struct bnf_world {
    struct bnf_scratch t;
    struct fp_key *key;
    char sock[300];
    /* the server's thread */
    pthread_t thread;
    uv_loop_t loop;
    uv_async_t async;
    struct bnf_backend *backend;
    struct bnf_service *service;
    struct bnf_local *local;
    struct bnf_remote *remote;
    struct fp_rpc *rpc;
    char addr[64];
    void (*todo)(struct bnf_world *x); /* set, then async; done when ran */
    pthread_mutex_t lock;
    pthread_cond_t cond;
    bool ran;
    /* client ends, of the test's thread */
    struct fp_fdlink *link;
    uv_loop_t cloop;
    struct fp_rpc *crpc;
    struct fp_rpc_conn *conn;
    bool up, closed;
    struct bnf_space space;
    uint64_t ids[64];
    size_t nids;
    bool deleted;
};

struct bw_lease {
    uint64_t id, at;
    Fp__Extent x;
    struct bnf_file *file;
};

struct bw_answer {
    bool done;
    int status;
    uint8_t msg[8192];
    size_t msg_len;
    uint8_t *payload;
    size_t payload_len;
};

void bw_on_server(struct bnf_world *x, void (*fn)(struct bnf_world *x));
int bw_local_call(struct bnf_world *x, uint16_t type, const ProtobufCMessage *msg,
                  struct fp_fdlink_reply_buf *r);
void bw_local_open(struct bnf_world *x);
int bw_local_lease(struct bnf_world *x, uint64_t want, uint64_t min, struct bw_lease *l);
int bw_local_store(struct bnf_world *x, struct bw_lease *l, uint64_t chunk, uint32_t len);
bool bw_local_read_is(struct bnf_world *x, uint64_t chunk, uint32_t len);
void bw_remote_start(struct bnf_world *x, struct bw_answer *a, uint16_t type, const ProtobufCMessage *msg,
                     void *data, size_t len);
int bw_remote_wait(struct bnf_world *x, struct bw_answer *a);
void bw_remote_open(struct bnf_world *x);
void bw_remote_shut(struct bnf_world *x);
uint64_t bw_remote_lease(struct bnf_world *x, uint64_t want, uint64_t *bytes);
void bw_remote_write_start(struct bnf_world *x, struct bw_answer *a, uint64_t lease, uint64_t chunk,
                           uint8_t *data, uint32_t len);
int bw_remote_write(struct bnf_world *x, uint64_t lease, uint64_t chunk, uint32_t len);
int bw_remote_read(struct bnf_world *x, uint64_t chunk, uint32_t off, uint32_t len, uint32_t chunk_len);
struct bnf_space bw_space_of(struct bnf_world *x);
void bw_delete_ids(struct bnf_world *x);
void bw_wait_leased(struct bnf_world *x, uint64_t leased);
void bw_wait_used(struct bnf_world *x, uint64_t used);
int bw_setup(void **state);
int bw_setup_memory(void **state);
int bw_setup_few_buffers(void **state);
int bw_teardown(void **state);

#endif
