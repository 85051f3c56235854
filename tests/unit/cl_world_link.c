/*
 * The core loop and the links to the models (see cl_world.h): what the linker puts in the place of cl_core_*, cl_mgr_*, fp_fdlink_* and fp_rpc_*
 * for the tests of client/data. Local calls run in the caller's thread; remote ones, as with the real thing, on the core loop, and
 * their answers come there later.
 */
#include "tests/unit/cl_world.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "client/core.h"
#include "fp/clock.h"
#include "fp/err.h"
#include "fp/fdlink.h"
#include "fp/rpc.h"
#include "tests/unit/cl_world_bnf.h"

#define LOCATE_MAX 64

atomic_ulong world_recalled;
atomic_uint world_forward;
atomic_uint world_closed;
atomic_ullong world_closed_size;
atomic_llong world_closed_mtime;
atomic_bool world_closed_lost;

struct world_faults world_faults;

int __wrap_cl_mgr_call_sync(struct cl_mount *m, uint32_t type, ProtobufCMessage *msg, ProtobufCMessage **reply);
void __wrap_cl_mgr_call_lasting(struct cl_mount *m, uint32_t type, ProtobufCMessage *msg, cl_mgr_cb cb, void *arg);
void __wrap_cl_mgr_call_known(struct cl_mount *m, uint32_t type, ProtobufCMessage *msg, cl_mgr_cb cb, void *arg);
void __wrap_cl_mgr_fail_lasting(struct cl_mount *m, int err);
void __wrap_cl_mgr_send(struct cl_mount *m, uint32_t type, ProtobufCMessage *msg);
void __wrap_cl_mgr_say(struct cl_mount *m, uint32_t type, ProtobufCMessage *msg);
void __wrap_cl_core_post(struct cl_mount *m, void (*fn)(void *arg), void *arg);
uint32_t __wrap_cl_core_session(struct cl_mount *m);
const struct fp_keyedsum *__wrap_cl_core_keyedsum(const struct cl_mount *m);
struct fp_rpc *__wrap_cl_core_rpc(struct cl_mount *m);
int __wrap_fp_fdlink_open(const char *path, uint32_t timeout_ms, struct fp_fdlink **out);
void __wrap_fp_fdlink_close(struct fp_fdlink *link);
void __wrap_fp_fdlink_shutdown(struct fp_fdlink *link);
bool __wrap_fp_fdlink_is_up(const struct fp_fdlink *link);
int __wrap_fp_fdlink_call(struct fp_fdlink *link, uint16_t type, const ProtobufCMessage *msg, uint32_t timeout_ms,
                          struct fp_fdlink_reply_buf *r);
int __wrap_fp_rpc_connect(struct fp_rpc *rpc, const char *addr, const struct fp_rpc_connect_opts *opts, const struct fp_rpc_handler *h,
                          void *arg, struct fp_rpc_conn **out);
int __wrap_fp_rpc_call(struct fp_rpc_conn *conn, const struct fp_rpc_req *req, uint64_t *id);
void __wrap_fp_rpc_conn_close(struct fp_rpc_conn *conn, int err);

/* -------------------------------------------------------------- core loop */

struct post {
    struct post *next;
    void (*fn)(void *arg);
    void *arg;
};

static struct {
    pthread_mutex_t lock;
    pthread_cond_t cond;
    struct post *head, **tail;
    bool stop;
    pthread_t thread;
} core = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, NULL, &core.head, false, 0};

static void *core_thread(void *arg)
{
    pthread_mutex_lock(&core.lock);
    while (!core.stop || core.head) {
        struct post *p = core.head;

        if (!p) {
            pthread_cond_wait(&core.cond, &core.lock);
            continue;
        }
        core.head = p->next;
        if (!core.head)
            core.tail = &core.head;
        pthread_mutex_unlock(&core.lock);
        p->fn(p->arg);
        free(p);
        pthread_mutex_lock(&core.lock);
    }
    pthread_mutex_unlock(&core.lock);
    return arg;
}

void world_post(void (*fn)(void *arg), void *arg)
{
    struct post *p = calloc(1, sizeof *p);

    p->fn = fn;
    p->arg = arg;
    pthread_mutex_lock(&core.lock);
    *core.tail = p;
    core.tail = &p->next;
    pthread_cond_signal(&core.cond);
    pthread_mutex_unlock(&core.lock);
}

struct waited {
    void (*fn)(void *arg);
    void *arg;
    pthread_mutex_t lock;
    pthread_cond_t cond;
    bool done;
};

static void run_waited(void *arg)
{
    struct waited *w = arg;

    w->fn(w->arg);
    pthread_mutex_lock(&w->lock);
    w->done = true;
    pthread_cond_signal(&w->cond);
    pthread_mutex_unlock(&w->lock);
}

void world_on_core(void (*fn)(void *arg), void *arg)
{
    struct waited w = {fn, arg, PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false};

    world_post(run_waited, &w);
    pthread_mutex_lock(&w.lock);
    while (!w.done)
        pthread_cond_wait(&w.cond, &w.lock);
    pthread_mutex_unlock(&w.lock);
}

void world_core_start(void)
{
    core.stop = false;
    WORLD_CHECK(pthread_create(&core.thread, NULL, core_thread, NULL) == 0);
}

void world_core_stop(void)
{
    pthread_mutex_lock(&core.lock);
    core.stop = true;
    pthread_cond_signal(&core.cond);
    pthread_mutex_unlock(&core.lock);
    pthread_join(core.thread, NULL);
}

void world_sleep_up_to(int us)
{
    static _Thread_local unsigned seed;

    if (us <= 0)
        return;
    if (!seed)
        seed = (unsigned)(uintptr_t)&seed;
    us = (int)((unsigned)rand_r(&seed) % (unsigned)us);
    if (us > 20)
        usleep((useconds_t)us);
}

struct fp_keyedsum world_keyedsum = {.secret = "of the store of these tests", .number = 0x1234};

const struct fp_keyedsum *__wrap_cl_core_keyedsum(const struct cl_mount *m)
{
    (void)m;
    return &world_keyedsum;
}

uint32_t __wrap_cl_core_session(struct cl_mount *m)
{
    return atomic_load(&((struct world_mount *)(void *)m->core)->session);
}

void __wrap_cl_core_post(struct cl_mount *m, void (*fn)(void *arg), void *arg)
{
    (void)m;
    world_post(fn, arg);
}

struct fp_rpc *__wrap_cl_core_rpc(struct cl_mount *m)
{
    return (struct fp_rpc *)(void *)m;
}

int __wrap_cl_mgr_call_sync(struct cl_mount *m, uint32_t type, ProtobufCMessage *msg, ProtobufCMessage **reply)
{
    return world_mgr_call(__wrap_cl_core_session(m), type, msg, reply);
}

void __wrap_cl_mgr_call_lasting(struct cl_mount *m, uint32_t type, ProtobufCMessage *msg, cl_mgr_cb cb, void *arg)
{
    world_mgr_lasting(m, type, msg, cb, arg);
}

void __wrap_cl_mgr_call_known(struct cl_mount *m, uint32_t type, ProtobufCMessage *msg, cl_mgr_cb cb, void *arg)
{
    world_mgr_lasting(m, type, msg, cb, arg);
}

void __wrap_cl_mgr_fail_lasting(struct cl_mount *m, int err)
{
    world_mgr_fail_lasting(m, err);
}

static void told_closed(const Fp__Closed *c)
{
    atomic_store(&world_closed_size, c->size_bytes);
    atomic_store(&world_closed_mtime, c->mtime_ns);
    atomic_store(&world_closed_lost, c->lost);
    atomic_fetch_add(&world_closed, 1);
}

void __wrap_cl_mgr_send(struct cl_mount *m, uint32_t type, ProtobufCMessage *msg)
{
    (void)m;
    if (type == FP__MSG_TYPE__MSG_RECALL && !((const Fp__Recall *)msg)->done)
        atomic_fetch_add(&world_forward, 1);
    else if (type == FP__MSG_TYPE__MSG_RECALL)
        atomic_store(&world_recalled, ((const Fp__Recall *)msg)->serial);
    else if (type == FP__MSG_TYPE__MSG_CLOSED) {
        WORLD_CHECK(!((const Fp__Closed *)msg)->lost); /* this may not arrive */
        told_closed((const Fp__Closed *)msg);
    } else
        world_mgr_send(type, msg);
}

void __wrap_cl_mgr_say(struct cl_mount *m, uint32_t type, ProtobufCMessage *msg)
{
    (void)m;
    WORLD_CHECK(type == FP__MSG_TYPE__MSG_CLOSED && ((const Fp__Closed *)msg)->lost);
    told_closed((const Fp__Closed *)msg);
}

/* -------------------------------------------------------------- local links */

struct flink { /* what a struct fp_fdlink is here */
    struct world_bnf *b;
    uint64_t id;
    atomic_bool up;
    atomic_int calls;
    struct flink *next;
};

static pthread_mutex_t links_lock = PTHREAD_MUTEX_INITIALIZER;
static struct flink *links;
static uint64_t link_ids;

static void flink_break(struct flink *l)
{
    if (atomic_exchange(&l->up, false))
        world_bnf_link_gone(l->b, l->id);
}

int __wrap_fp_fdlink_open(const char *path, uint32_t timeout_ms, struct fp_fdlink **out)
{
    unsigned id = 0;
    struct flink *l;

    (void)timeout_ms;
    WORLD_CHECK(sscanf(path, "bnf:%u", &id) == 1 && world_bnf(id));
    while (world_bnf(id)->hang_open)
        usleep(1000);
    if (world_bnf(id)->down)
        return -ECONNREFUSED;
    l = calloc(1, sizeof *l);
    l->b = world_bnf(id);
    l->up = true;
    pthread_mutex_lock(&links_lock);
    l->id = ++link_ids;
    l->next = links;
    links = l;
    pthread_mutex_unlock(&links_lock);
    *out = (struct fp_fdlink *)(void *)l;
    return 0;
}

void __wrap_fp_fdlink_close(struct fp_fdlink *link)
{
    struct flink *l = (struct flink *)(void *)link, **p = &links;

    WORLD_CHECK(l->calls == 0);
    flink_break(l);
    pthread_mutex_lock(&links_lock);
    while (*p != l)
        p = &(*p)->next;
    *p = l->next;
    pthread_mutex_unlock(&links_lock);
    free(l);
}

void __wrap_fp_fdlink_shutdown(struct fp_fdlink *link)
{
    flink_break((struct flink *)(void *)link);
}

bool __wrap_fp_fdlink_is_up(const struct fp_fdlink *link)
{
    return ((const struct flink *)(const void *)link)->up;
}

static void put_msg(struct fp_fdlink_reply_buf *r, const ProtobufCMessage *msg)
{
    WORLD_CHECK(protobuf_c_message_get_packed_size(msg) <= r->buf_cap_bytes);
    r->in.msg_len_bytes = protobuf_c_message_pack(msg, r->buf);
    r->in.msg = r->buf;
}

static int call_lease(struct flink *l, const Fp__Lease *q, struct fp_fdlink_reply_buf *r)
{
    Fp__LeaseReply a = FP__LEASE_REPLY__INIT;
    Fp__Extent ext[2], *list[2] = {&ext[0], &ext[1]};
    struct world_lease lease;
    int rc = world_bnf_lease(l->b, l->id, true, q, &lease);

    if (rc < 0)
        return rc;
    a.lease = lease.id;
    a.bytes = lease.rest_bytes;
    a.extents = list;
    for (uint32_t i = 0; i < lease.n; i++) {
        fp__extent__init(&ext[i]);
        r->fds[r->nfds++] = world_bnf_seg(l->b, lease.ext[i].seg, &ext[i].segment, &ext[i].salt);
        ext[i].off = lease.ext[i].off;
        ext[i].len = lease.ext[i].len;
        a.n_extents++;
    }
    put_msg(r, &a.base);
    return 0;
}

/* As the real one: one descriptor per distinct segment, and an answer that ends before the segment too many. */
static int call_locate(struct flink *l, const Fp__ChunkList *q, struct fp_fdlink_reply_buf *r)
{
    Fp__LocateReply a = FP__LOCATE_REPLY__INIT;
    Fp__Record rec[LOCATE_MAX], *recs[LOCATE_MAX];
    protobuf_c_boolean direct[FP_FDLINK_FDS_MAX] = {0};
    uint64_t salts[FP_FDLINK_FDS_MAX], segs[FP_FDLINK_FDS_MAX], salt;

    WORLD_CHECK(q->n_ids >= 1 && q->n_ids <= LOCATE_MAX);
    a.records = recs;
    a.salts = salts;
    a.o_direct = direct;
    for (size_t i = 0; i < q->n_ids; i++) {
        size_t k = 0;
        int fd;

        (void)world_bnf_locate(l->b, q->ids[i], &rec[i], &salt, &fd);
        while (fd >= 0 && k < r->nfds && segs[k] != rec[i].segment)
            k++;
        if (fd >= 0 && k == FP_FDLINK_FDS_MAX) {
            close(fd);
            break;
        }
        if (fd >= 0 && k == r->nfds) {
            segs[k] = rec[i].segment;
            salts[k] = salt;
            r->fds[r->nfds++] = fd;
        } else if (fd >= 0) {
            close(fd);
        }
        recs[a.n_records++] = &rec[i];
    }
    a.n_salts = a.n_o_direct = r->nfds;
    put_msg(r, &a.base);
    return 0;
}

static int local_execute(struct flink *l, uint16_t type, const ProtobufCMessage *msg, struct fp_fdlink_reply_buf *r)
{
    Fp__BnfHelloReply hello = FP__BNF_HELLO_REPLY__INIT;
    Fp__BnfSyncReply synced = FP__BNF_SYNC_REPLY__INIT;
    int rc;

    switch (type) {
    case FP__MSG_TYPE__MSG_BNF_HELLO:
        hello.unsynced_life = l->b->life;
        put_msg(r, &hello.base);
        return 0;
    case FP__MSG_TYPE__MSG_LEASE:
        return call_lease(l, (const Fp__Lease *)msg, r);
    case FP__MSG_TYPE__MSG_LEASE_RETURN:
        return world_bnf_lease_return(l->b, l->id, (const Fp__LeaseReturn *)msg);
    case FP__MSG_TYPE__MSG_STORED:
        return world_bnf_stored(l->b, l->id, (const Fp__Stored *)msg);
    case FP__MSG_TYPE__MSG_LOCATE:
        return call_locate(l, (const Fp__ChunkList *)msg, r);
    case FP__MSG_TYPE__MSG_BNF_SYNC:
        rc = world_bnf_sync(l->b, (const Fp__BnfSync *)msg);
        synced.unsynced_life = l->b->life;
        if (r)
            put_msg(r, &synced.base);
        return rc;
    default:
        return FP_EBADMSG_TYPE;
    }
}

/* True when this is the call at which the link is to break. */
static bool breaks_now(struct world_bnf *b)
{
    int v = atomic_load(&b->break_after);

    while (v > 0)
        if (atomic_compare_exchange_weak(&b->break_after, &v, v - 1))
            return v == 1;
    return false;
}

int __wrap_fp_fdlink_call(struct fp_fdlink *link, uint16_t type, const ProtobufCMessage *msg, uint32_t timeout_ms,
                          struct fp_fdlink_reply_buf *r)
{
    struct flink *l = (struct flink *)(void *)link;
    bool breaks;
    int rc;

    WORLD_CHECK(timeout_ms > 0);
    if (r)
        r->nfds = 0;
    atomic_fetch_add(&l->calls, 1);
    world_sleep_up_to(world_faults.bnf_delay_us);
    breaks = breaks_now(l->b) || (type == FP__MSG_TYPE__MSG_STORED && atomic_exchange(&l->b->break_stored, false));
    if (breaks && !l->b->break_executes)
        flink_break(l);
    rc = l->up ? local_execute(l, type, msg, r) : -ENOTCONN;
    if (breaks)
        flink_break(l);
    if (rc == 0 && breaks) {
        rc = FP_EPEER_GONE;
        while (r && r->nfds > 0)
            close(r->fds[--r->nfds]);
    }
    if (rc == 0 && !l->up) /* broken by another thread meanwhile */
        world_bnf_link_gone(l->b, l->id);
    world_sleep_up_to(world_faults.bnf_delay_us);
    atomic_fetch_sub(&l->calls, 1);
    return rc;
}

/* -------------------------------------------------------------- remote links; core loop */

struct fcall {
    struct fcall *next;
    struct fconn *conn;
    fp_rpc_reply_cb cb;
    void *arg;
    void *rx;
    int status;
    size_t rx_len;
    ProtobufCMessage *reply;
};

struct fconn { /* what a struct fp_rpc_conn is here */
    struct fconn *next;
    struct world_bnf *b;
    uint64_t id;
    bool up, closed;
    uint64_t since_ms;
    const struct fp_rpc_handler *h;
    void *arg;
    struct fcall *calls; /* oldest first */
    unsigned refs;       /* posts under way, and being open */
};

static struct fconn *conns;

static void conn_put(struct fconn *c)
{
    struct fconn **p = &conns;

    if (--c->refs > 0)
        return;
    while (*p != c)
        p = &(*p)->next;
    *p = c->next;
    free(c);
}

static void complete(struct fcall *k)
{
    struct fp_rpc_in in = {.status = k->status, .payload_len_bytes = k->rx_len, .payload = k->rx_len ? k->rx : NULL};
    uint8_t *buf = NULL;

    if (k->status == 0 && k->reply) {
        buf = malloc(protobuf_c_message_get_packed_size(k->reply) + 1);
        in.msg_len_bytes = protobuf_c_message_pack(k->reply, buf);
        in.msg = buf;
    }
    k->cb(k->arg, k->status, k->status == 0 ? &in : NULL);
    free(buf);
    if (k->reply)
        protobuf_c_message_free_unpacked(k->reply, NULL);
    free(k);
}

static void conn_end(struct fconn *c, int err)
{
    if (c->closed)
        return;
    c->closed = true;
    c->up = false;
    world_bnf_link_gone(c->b, c->id);
    while (c->calls) {
        struct fcall *k = c->calls;

        c->calls = k->next;
        k->status = err ? err : FP_ECANCELLED;
        k->rx_len = 0;
        complete(k);
    }
    c->h->on_closed((struct fp_rpc_conn *)(void *)c, err, NULL, c->arg);
    conn_put(c);
}

static void conn_up(void *arg)
{
    struct fconn *c = arg;

    if (!c->closed && (c->b->hold_connects || (c->b->down && fp_now_ms() < c->since_ms + c->b->refuse_ms))) {
        usleep(1000);
        world_post(conn_up, c);
        return;
    }
    if (!c->closed && c->b->down) {
        conn_end(c, -ECONNREFUSED);
    } else if (!c->closed) {
        c->up = true;
        c->h->on_up((struct fp_rpc_conn *)(void *)c, c->arg);
    }
    conn_put(c);
}

int __wrap_fp_rpc_connect(struct fp_rpc *rpc, const char *addr, const struct fp_rpc_connect_opts *opts, const struct fp_rpc_handler *h,
                          void *arg, struct fp_rpc_conn **out)
{
    struct fconn *c = calloc(1, sizeof *c);
    unsigned id = 0;

    (void)rpc;
    (void)opts;
    WORLD_CHECK(sscanf(addr, "tcp:%u", &id) == 1 && world_bnf(id));
    c->b = world_bnf(id);
    atomic_fetch_add(&c->b->connects, 1);
    c->h = h;
    c->arg = arg;
    c->since_ms = fp_now_ms();
    pthread_mutex_lock(&links_lock);
    c->id = ++link_ids;
    pthread_mutex_unlock(&links_lock);
    c->next = conns;
    conns = c;
    c->refs = 2; /* being open, and the post */
    *out = (struct fp_rpc_conn *)(void *)c;
    world_post(conn_up, c);
    return 0;
}

static void answer_next(void *arg)
{
    struct fconn *c = arg;
    struct fcall *k = c->calls;

    if (k && c->b->hold_answers) {
        usleep(1000);
        world_post(answer_next, c);
        return;
    }
    if (k) {
        c->calls = k->next;
        complete(k);
    }
    conn_put(c);
}

static void remote_execute(struct fconn *c, const struct fp_rpc_req *q, struct fcall *k)
{
    Fp__BnfHelloReply hello = FP__BNF_HELLO_REPLY__INIT;
    Fp__BnfSyncReply synced = FP__BNF_SYNC_REPLY__INIT;
    Fp__LeaseReply lr = FP__LEASE_REPLY__INIT;
    struct world_lease lease;
    uint8_t *data = NULL;
    size_t len = 0;

    switch (q->type) {
    case FP__MSG_TYPE__MSG_LEASE:
        k->status = world_bnf_lease(c->b, c->id, false, (const Fp__Lease *)q->msg, &lease);
        lr.lease = lease.id;
        lr.bytes = k->status == 0 ? lease.rest_bytes : 0;
        k->reply = k->status == 0 ? world_copy(&lr.base) : NULL;
        break;
    case FP__MSG_TYPE__MSG_LEASE_RETURN:
        k->status = world_bnf_lease_return(c->b, c->id, (const Fp__LeaseReturn *)q->msg);
        break;
    case FP__MSG_TYPE__MSG_WRITE:
        for (int i = 0; i < q->payload_iovcnt; i++)
            len += q->payload[i].iov_len;
        data = malloc(len);
        len = 0;
        for (int i = 0; i < q->payload_iovcnt; i++) {
            memcpy(data + len, q->payload[i].iov_base, q->payload[i].iov_len);
            len += q->payload[i].iov_len;
        }
        k->status = world_bnf_write(c->b, c->id, (const Fp__ChunkWrite *)q->msg, data, len);
        free(data);
        break;
    case FP__MSG_TYPE__MSG_READ:
        k->status = world_bnf_read(c->b, (const Fp__ChunkRead *)q->msg, q->rx, q->rx_cap_bytes, &k->rx_len, &k->reply);
        break;
    case FP__MSG_TYPE__MSG_BNF_HELLO:
        hello.unsynced_life = c->b->life;
        k->reply = world_copy(&hello.base);
        break;
    default:
        WORLD_CHECK(q->type == FP__MSG_TYPE__MSG_BNF_SYNC);
        k->status = world_bnf_sync(c->b, (const Fp__BnfSync *)q->msg);
        synced.unsynced_life = c->b->life;
        k->reply = world_copy(&synced.base);
        break;
    }
}

int __wrap_fp_rpc_call(struct fp_rpc_conn *conn, const struct fp_rpc_req *req, uint64_t *id)
{
    struct fconn *c = (struct fconn *)(void *)conn;
    struct fcall *k, **p;
    bool breaks;

    (void)id;
    WORLD_CHECK(req->payload_iovcnt <= (int)FP_RPC_IOV_MAX && req->timeout_ms > 0);
    if (!c->up)
        return -ENOTCONN;
    k = calloc(1, sizeof *k);
    k->conn = c;
    k->cb = req->cb;
    k->arg = req->arg;
    k->rx = req->rx;
    breaks = breaks_now(c->b);
    if (!breaks || c->b->break_executes)
        remote_execute(c, req, k);
    p = &c->calls;
    while (*p)
        p = &(*p)->next;
    *p = k;
    c->refs++;
    if (breaks) /* by the loop, never inside the call, and before the answer */
        world_bnf_break(c->b);
    world_post(answer_next, c);
    return 0;
}

void __wrap_fp_rpc_conn_close(struct fp_rpc_conn *conn, int err)
{
    conn_end((struct fconn *)(void *)conn, err);
}

struct conn_break {
    struct world_bnf *b; /* NULL: all */
    int err;
};

static void break_conns(void *arg)
{
    struct conn_break *k = arg;
    struct fconn *c, *next;

    for (c = conns; c; c = next) {
        c->refs++;
        if (!k->b || c->b == k->b)
            conn_end(c, k->err);
        next = c->next;
        conn_put(c);
    }
    free(k);
}

static void post_break(struct world_bnf *b, int err)
{
    struct conn_break *k = calloc(1, sizeof *k);

    *k = (struct conn_break){b, err};
    world_post(break_conns, k);
}

void world_bnf_break(struct world_bnf *b)
{
    pthread_mutex_lock(&links_lock);
    for (struct flink *l = links; l; l = l->next)
        if (l->b == b)
            flink_break(l);
    pthread_mutex_unlock(&links_lock);
    post_break(b, -ECONNRESET);
}

void world_bnf_break_tcp(struct world_bnf *b)
{
    post_break(b, -ECONNRESET);
}

static void nothing(void *arg)
{
    (void)arg;
}

void world_close_conns(void)
{
    post_break(NULL, 0);
    world_on_core(nothing, NULL);
    world_on_core(nothing, NULL);
}

/* -------------------------------------------------------------- the table */

void world_table(struct world_table *w)
{
    struct world_bnf *b[WORLD_BNFS_MAX];
    Fp__BnfInfo *info = w->info;

    fp__bnf_table__init(&w->msg);
    w->msg.n_benefactors = world_bnf_list(b);
    w->msg.benefactors = w->list;
    for (size_t i = 0; i < w->msg.n_benefactors; i++) {
        char (*text)[32] = w->text[i];

        fp__bnf_info__init(&info[i]);
        w->list[i] = &info[i];
        info[i].id = b[i]->id;
        info[i].node = (char *)(uintptr_t)(b[i]->local ? "n0" : "n9");
        snprintf(text[0], sizeof text[0], "tcp:%u", b[i]->id);
        snprintf(text[1], sizeof text[1], "bnf:%u", b[i]->id);
        info[i].addr = text[0];
        info[i].local_path = text[1];
        info[i].state = b[i]->table_down ? FP__BNF_STATE__BNF_DOWN : FP__BNF_STATE__BNF_OK;
        info[i].capacity_bytes = b[i]->capacity;
        info[i].unsynced_life = b[i]->table_life;
        info[i].free_bytes = b[i]->capacity - world_bnf_used(b[i]);
    }
}

ProtobufCMessage *world_copy(const ProtobufCMessage *msg)
{
    size_t len = protobuf_c_message_get_packed_size(msg);
    uint8_t *buf = malloc(len + 1);

    protobuf_c_message_pack(msg, buf);
    ProtobufCMessage *out = protobuf_c_message_unpack(msg->descriptor, NULL, len, buf);

    free(buf);
    return out;
}
