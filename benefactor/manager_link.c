/*
 * The benefactor's side of its connection to the manager.
 *
 * Loop's thread. The connection is made again for ever, with pauses from 50 ms to 1 s; each new one begins
 * with a hello that says everything (soft state: a restarted manager knows what it needs after it). A
 * keep-alive goes every second, and at once when the state changes or space has become free. The manager asks
 * for deletions and for the inventory; everything else of a chunk's life is between mounts and the store.
 *
 * Before the first hello was answered, a wrong key or another store ends the program, as does the start
 * timeout: whoever started us should see it. Afterwards such answers are logged and tried again: the manager
 * may be the one at fault.
 */
#include "benefactor/manager_link.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "benefactor/tasklink.h"
#include "fp.pb-c.h"
#include "fp/clock.h"
#include "fp/err.h"
#include "fp/log.h"

#define KEEPALIVE_MS   1000u
#define NEWS_MS        50u
#define BACKOFF_MIN_MS 50u
#define BACKOFF_MAX_MS 1000u
#define INVENTORY_MAX  100000u

struct bnf_manager_link {
    struct bnf_manager_config config;
    struct fp_rpc_conn *conn; /* valid until on_closed; NULL: none */
    bool up;                  /* hello was answered on it */
    struct bnf_tasklink tasks;
    bool registered, failed, stopped;
    bool told_unreachable;
    uint32_t bnf_id;
    uint64_t started_ms;
    uint64_t backoff_ms;
    uv_timer_t connect_timer, keepalive_timer;
    uint64_t news_ms; /* last keep-alive out of turn */
    uint64_t seen_ms, seen_bytes, mount_rate; /* what mounts did here */
    char addr[300];
    int handles;
};

static void connect_later(struct bnf_manager_link *l);

/* ---------------------------------------------------------------- what we say of ourselves */

static void advertised(struct bnf_manager_link *l)
{
    char host[256];
    const char *colon;

    if (l->config.advertise) {
        bool v6 = strchr(l->config.advertise, ':') && l->config.advertise[0] != '[';

        snprintf(l->addr, sizeof(l->addr), v6 ? "[%s]:%u" : "%s:%u", l->config.advertise, l->config.port);
        return;
    }
    snprintf(host, sizeof(host), "%s", l->conn ? fp_rpc_conn_local(l->conn) : "");
    colon = strrchr(host, ':');
    snprintf(l->addr, sizeof(l->addr), "%.*s:%u", colon ? (int)(colon - host) : 0, host, l->config.port);
}

/* Of a second, as it was since the keep-alive before. */
static uint64_t mount_bytes(struct bnf_manager_link *l)
{
    uint64_t now = fp_now_ms(), bytes = bnf_service_mount_bytes(l->config.service);

    if (now >= l->seen_ms + KEEPALIVE_MS / 2) { /* others, out of turn, say the same again */
        l->mount_rate = l->seen_ms ? (bytes - l->seen_bytes) * 1000 / (now - l->seen_ms) : 0;
        l->seen_ms = now;
        l->seen_bytes = bytes;
    }
    return l->mount_rate;
}

static bool is_draining(void *arg, uint64_t segment)
{
    const struct bnf_manager_link *l = arg;

    return l->config.drain && bnf_drain_reads(l->config.drain, segment);
}

static void fill_info(struct bnf_manager_link *l, Fp__BnfInfo *i)
{
    struct bnf_status st;

    bnf_service_status(l->config.service, &st);
    fp__bnf_info__init(i);
    i->uuid.data = (uint8_t *)bnf_service_uuid(l->config.service);
    i->uuid.len = 16;
    i->id = l->bnf_id;
    i->node = (char *)l->config.node;
    i->addr = l->addr;
    i->local_path = (char *)l->config.local_path;
    i->backend = (char *)l->config.backend;
    i->capacity_bytes = st.space.capacity_bytes;
    i->used_bytes = st.space.used_bytes;
    i->free_bytes = st.free_bytes;
    i->state = (Fp__BnfState)st.state;
    i->error = (char *)st.error;
    i->chunks = st.space.chunks;
    i->unsynced_life = bnf_service_unsynced_life(l->config.service);
    i->mount_bytes = mount_bytes(l);
    i->n_buffers = bnf_service_buffers(l->config.service, is_draining, l, &i->buffers);
    if (l->config.drain)
        bnf_drain_info(l->config.drain, i);
}

static void send_keepalive(struct bnf_manager_link *l)
{
    Fp__KeepAlive m = FP__KEEP_ALIVE__INIT;
    Fp__BnfInfo info;

    if (!l->up)
        return;
    fill_info(l, &info);
    m.info = &info;
    fp_rpc_send(l->conn, FP__MSG_TYPE__MSG_KEEPALIVE, &m.base);
}

static void on_keepalive_timer(uv_timer_t *timer)
{
    struct bnf_manager_link *l = timer->data;

    l->news_ms = fp_now_ms();
    send_keepalive(l);
    bnf_tasklink_tell(&l->tasks); /* again, what could not be told */
    uv_timer_start(timer, on_keepalive_timer, KEEPALIVE_MS, 0);
}

void bnf_manager_link_results(struct bnf_manager_link *l)
{
    bnf_tasklink_tell(&l->tasks);
}

void bnf_manager_link_news(struct bnf_manager_link *l)
{
    uint64_t now = fp_now_ms();
    uint64_t due = uv_timer_get_due_in(&l->keepalive_timer);

    if (!l->up)
        return;
    if (now >= l->news_ms + NEWS_MS)
        uv_timer_start(&l->keepalive_timer, on_keepalive_timer, 0, 0);
    else if (due > NEWS_MS)
        uv_timer_start(&l->keepalive_timer, on_keepalive_timer, NEWS_MS, 0);
}

/* ---------------------------------------------------------------- what the manager asks */

struct delete_call {
    struct bnf_service *service;
    struct fp_rpc_conn *conn; /* referenced */
    uint64_t id;
    Fp__ChunkList *list;
};

static void delete_done(struct delete_call *c)
{
    fp_rpc_conn_put(c->conn);
    fp__chunk_list__free_unpacked(c->list, NULL);
    free(c);
}

static void on_deleted(void *arg, int status)
{
    struct delete_call *c = arg;
    struct fp_rpc_reply reply = {
        .id = c->id, .type = FP__MSG_TYPE__MSG_DELETE, .status = status, .msg = &c->list->base};

    fp_rpc_reply(c->conn, &reply);
    delete_done(c);
}

/* What replaces these chunks may be here, acknowledged and not yet on the device: it gets there first. Else a power loss could
 * leave neither the old data nor the new. */
static void on_synced_for_delete(void *arg, int status)
{
    struct delete_call *c = arg;

    if (status == 0)
        status = bnf_service_delete(c->service, c->list->ids, c->list->n_ids, on_deleted, c);
    if (status)
        on_deleted(c, status);
}

static int delete_chunks(struct bnf_manager_link *l, struct fp_rpc_conn *conn, const struct fp_rpc_in *in)
{
    struct delete_call *c = calloc(1, sizeof(*c));
    int rc = -ENOMEM;

    if (!c)
        return rc;
    c->list = fp__chunk_list__unpack(NULL, in->msg_len_bytes, in->msg);
    if (!c->list) {
        free(c);
        return -EBADMSG;
    }
    c->service = l->config.service;
    c->conn = fp_rpc_conn_get(conn);
    c->id = in->id;
    rc = bnf_service_sync(c->service, on_synced_for_delete, c);
    if (rc)
        delete_done(c);
    return rc;
}

struct sync_call {
    struct bnf_service *service;
    struct fp_rpc_conn *conn; /* referenced */
    uint64_t id;
};

/* That data was lost says the other life, as to mounts (remote.c). */
static void on_synced(void *arg, int status)
{
    struct sync_call *c = arg;
    Fp__BnfSyncReply m = FP__BNF_SYNC_REPLY__INIT;
    struct fp_rpc_reply reply = {
        .id = c->id, .type = FP__MSG_TYPE__MSG_BNF_SYNC_ALL, .status = status == -EIO ? 0 : status, .msg = &m.base};

    m.unsynced_life = bnf_service_unsynced_life(c->service);
    fp_rpc_reply(c->conn, &reply);
    fp_rpc_conn_put(c->conn);
    free(c);
}

static int sync_all(struct bnf_manager_link *l, struct fp_rpc_conn *conn, const struct fp_rpc_in *in)
{
    struct sync_call *c = malloc(sizeof(*c));
    int rc = -ENOMEM;

    if (!c)
        return rc;
    *c = (struct sync_call){.service = l->config.service, .conn = fp_rpc_conn_get(conn), .id = in->id};
    rc = bnf_service_sync(c->service, on_synced, c);
    if (rc) {
        fp_rpc_conn_put(c->conn);
        free(c);
    }
    return rc;
}

static int inventory(struct bnf_manager_link *l, struct fp_rpc_conn *conn, const struct fp_rpc_in *in)
{
    Fp__InventoryReply reply = FP__INVENTORY_REPLY__INIT;
    Fp__Inventory *m = fp__inventory__unpack(NULL, in->msg_len_bytes, in->msg);
    size_t max;
    bool eof = true;

    if (!m)
        return -EBADMSG;
    max = m->max && m->max < INVENTORY_MAX ? m->max : INVENTORY_MAX;
    reply.ids = malloc(max * sizeof(*reply.ids));
    if (reply.ids)
        reply.n_ids =
            bnf_store_inventory(bnf_service_store(l->config.service), m->after, reply.ids, max, &eof);
    reply.eof = eof;
    fp__inventory__free_unpacked(m, NULL);
    if (!reply.ids)
        return -ENOMEM;
    fp_rpc_reply_msg(conn, in, 0, &reply.base);
    free(reply.ids);
    return 0;
}

static void on_request(struct fp_rpc_conn *conn, const struct fp_rpc_in *in, void *arg)
{
    struct bnf_manager_link *l = arg;
    int rc;

    fp_rpc_payload_free(in->payload);
    rc = bnf_tasklink_request(&l->tasks, conn, in);
    if (in->flags & FP_FRAME_ONEWAY) /* everything else has an answer: what wants none is not done */
        return;
    if (in->type == FP__MSG_TYPE__MSG_DELETE) {
        rc = delete_chunks(l, conn, in);
    } else if (in->type == FP__MSG_TYPE__MSG_INVENTORY) {
        rc = inventory(l, conn, in);
    } else if (in->type == FP__MSG_TYPE__MSG_BNF_SYNC_ALL) {
        rc = sync_all(l, conn, in);
    } else if (in->type == FP__MSG_TYPE__MSG_STOP) {
        rc = 0;
        fp_rpc_reply_msg(conn, in, 0, NULL);
        l->config.stop(l->config.arg);
    }
    if (rc)
        fp_rpc_reply_msg(conn, in, rc, NULL);
}

/* ---------------------------------------------------------------- hello */

static void fail(struct bnf_manager_link *l)
{
    l->failed = true;
    uv_timer_stop(&l->connect_timer);
    l->config.failed(l->config.arg);
}

static bool is_final(int err)
{
    return err == FP_EAUTH || err == FP_EUUID || err == FP_EPROTO_VERSION;
}

static int take_hello(struct bnf_manager_link *l, const struct fp_rpc_in *in)
{
    Fp__HelloReply *r = fp__hello_reply__unpack(NULL, in->msg_len_bytes, in->msg);
    int rc = r && r->store_uuid.len == 16 ? 0 : -EBADMSG;

    if (rc == 0) {
        l->bnf_id = r->bnf_id;
        if (!l->registered)
            rc = l->config.registered(l->config.arg, r->store_uuid.data, r->bnf_id);
        else if (memcmp(r->store_uuid.data, bnf_service_store_uuid(l->config.service), 16))
            rc = FP_EUUID;
    }
    if (r)
        fp__hello_reply__free_unpacked(r, NULL);
    return rc;
}

static void on_hello_reply(void *arg, int status, const struct fp_rpc_in *in)
{
    struct bnf_manager_link *l = arg;
    bool first = !l->registered;

    if (in)
        fp_rpc_payload_free(in->payload);
    if (status == 0)
        status = take_hello(l, in);
    if (l->stopped || l->failed)
        return;
    if (status) {
        if (status == FP_ETWIN) /* perhaps the process before us, whose end the manager has not seen yet */
            FP_LOG_EVERY(10000, FP_LOG_WARN, "the manager at %s: %s", l->config.manager, fp_strerror(status));
        else if (status != FP_ECANCELLED && status != FP_EPEER_GONE)
            FP_LOG_EVERY(10000, FP_LOG_ERROR, "the manager at %s refuses this benefactor: %s",
                         l->config.manager, fp_strerror(status));
        if (first && is_final(status))
            fail(l);
        if (l->conn)
            fp_rpc_conn_close(l->conn, status);
        return;
    }
    l->registered = true;
    l->up = true;
    bnf_tasklink_up(&l->tasks, l->conn);
    l->backoff_ms = BACKOFF_MIN_MS;
    l->told_unreachable = false;
    if (!first)
        FP_INFO("connected to the manager at %s again", l->config.manager);
    on_keepalive_timer(&l->keepalive_timer);
}

static void on_up(struct fp_rpc_conn *conn, void *arg)
{
    struct bnf_manager_link *l = arg;
    Fp__Hello m = FP__HELLO__INIT;
    Fp__BnfInfo info;
    struct fp_rpc_req req = {
        .type = FP__MSG_TYPE__MSG_HELLO, .msg = &m.base, .timeout_ms = 5000, .cb = on_hello_reply, .arg = l};
    static const uint8_t nil[16];
    int rc;

    advertised(l);
    fill_info(l, &info);
    m.protocol = FP_FRAME_VERSION;
    m.role = FP__ROLE__ROLE_BENEFACTOR;
    if (memcmp(bnf_service_store_uuid(l->config.service), nil, 16)) {
        m.store_uuid.data = (uint8_t *)bnf_service_store_uuid(l->config.service);
        m.store_uuid.len = 16;
    }
    m.node = (char *)l->config.node;
    m.pid = (uint32_t)getpid();
    m.benefactor = &info;
    m.software = (char *)"fpstore " FP_VERSION;
    rc = fp_rpc_call(conn, &req, NULL);
    if (rc)
        fp_rpc_conn_close(conn, rc);
}

/* ---------------------------------------------------------------- connecting */

static void tell_lost(struct bnf_manager_link *l, int err, const char *why)
{
    if (l->told_unreachable)
        return;
    l->told_unreachable = true;
    if (l->registered)
        FP_WARN("the manager at %s is gone (%s): what is stored stays readable; connecting again until it is "
                "back",
                l->config.manager, why);
    else if (!is_final(err))
        FP_WARN("the manager at %s can't be reached (%s): trying for %" PRIu64
                " s; is fp-manager running there?",
                l->config.manager, why, l->config.start_timeout_ms / 1000);
}

static void on_closed(struct fp_rpc_conn *conn, int err, const char *why, void *arg)
{
    struct bnf_manager_link *l = arg;

    (void)conn;
    l->conn = NULL;
    l->up = false;
    bnf_tasklink_down(&l->tasks);
    uv_timer_stop(&l->keepalive_timer);
    if (l->stopped || l->failed)
        return;
    if (!l->registered && is_final(err)) {
        FP_ERROR("the manager at %s: %s", l->config.manager, fp_strerror(err));
        fail(l);
        return;
    }
    why = why && *why ? why : fp_strerror(err);
    tell_lost(l, err, why);
    if (!l->registered && fp_now_ms() >= l->started_ms + l->config.start_timeout_ms) {
        FP_ERROR("no manager at %s after %" PRIu64
                 " s (%s): start fp-manager, or check --manager and the network",
                 l->config.manager, l->config.start_timeout_ms / 1000, why);
        fail(l);
        return;
    }
    connect_later(l);
}

static const struct fp_rpc_handler handler = {
    .on_up = on_up,
    .on_request = on_request,
    .on_closed = on_closed,
};

static int connect_now(struct bnf_manager_link *l)
{
    struct fp_rpc_connect_opts opts = {.timeout_ms = 3000};
    uint64_t left = l->started_ms + l->config.start_timeout_ms;
    uint64_t now = fp_now_ms();

    if (!l->registered && left > now && left - now < opts.timeout_ms)
        opts.timeout_ms = (uint32_t)(left - now);
    return fp_rpc_connect(l->config.rpc, l->config.manager, &opts, &handler, l, &l->conn);
}

static void on_connect_timer(uv_timer_t *timer)
{
    struct bnf_manager_link *l = timer->data;

    if (connect_now(l))
        connect_later(l);
}

static void connect_later(struct bnf_manager_link *l)
{
    uv_timer_start(&l->connect_timer, on_connect_timer, l->backoff_ms, 0);
    l->backoff_ms = 2 * l->backoff_ms < BACKOFF_MAX_MS ? 2 * l->backoff_ms : BACKOFF_MAX_MS;
}

int bnf_manager_link_new(const struct bnf_manager_config *c, struct bnf_manager_link **out)
{
    struct bnf_manager_link *l = calloc(1, sizeof(*l));
    int rc;

    if (!l)
        return -ENOMEM;
    l->config = *c;
    l->tasks.drain = c->drain;
    l->started_ms = fp_now_ms();
    l->backoff_ms = BACKOFF_MIN_MS;
    rc = connect_now(l);
    if (rc) {
        FP_ERROR("can't connect to the manager at %s: %s", c->manager, fp_strerror(rc));
        free(l);
        return rc;
    }
    uv_timer_init(c->loop, &l->connect_timer);
    uv_timer_init(c->loop, &l->keepalive_timer);
    l->connect_timer.data = l->keepalive_timer.data = l;
    l->handles = 2;
    *out = l;
    return 0;
}

uint32_t bnf_manager_link_id(const struct bnf_manager_link *l)
{
    return l->bnf_id;
}

static void on_bye(void *arg, int status, const struct fp_rpc_in *in)
{
    (void)arg;
    (void)status;
    if (in)
        fp_rpc_payload_free(in->payload);
}

void bnf_manager_link_stop(struct bnf_manager_link *l)
{
    struct fp_rpc_req req = {.type = FP__MSG_TYPE__MSG_BYE, .timeout_ms = 1000, .cb = on_bye};

    if (l->stopped)
        return;
    if (l->up)
        fp_rpc_call(l->conn, &req, NULL); /* the answer does not matter */
    l->stopped = true;
    l->up = false;
    bnf_tasklink_down(&l->tasks);
    uv_timer_stop(&l->connect_timer);
    uv_timer_stop(&l->keepalive_timer);
    if (l->conn)
        fp_rpc_conn_finish(l->conn);
}

static void on_handle_closed(uv_handle_t *handle)
{
    struct bnf_manager_link *l = handle->data;

    if (--l->handles == 0)
        free(l);
}

void bnf_manager_link_free(struct bnf_manager_link *l)
{
    uv_close((uv_handle_t *)&l->connect_timer, on_handle_closed);
    uv_close((uv_handle_t *)&l->keepalive_timer, on_handle_closed);
}
