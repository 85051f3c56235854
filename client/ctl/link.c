/* One connection to the manager, used as if it were a function call.
 *
 * fpctl asks one or a few questions and exits, so each step runs the loop until its answer or its deadline is there. The
 * connection is the common one (rpc.h): TLS with the store's key, then Hello in the role of control. Everything has a
 * deadline; rpc.h gives it for calls and connecting, and the watchdog below for what has none: a system call into a mount
 * whose fp-mount does not answer cannot be interrupted but by ending the process.
 *
 * Commands that wait for something are patient (ctl_patient): a manager that is away is waited for, and what it was asked when it went is asked again. So such
 * questions must do no harm twice: a second job of draining or evicting has less to do. While the connection stands, nothing is asked twice: then the answer has as
 * long as the patience lasts, and a manager that is dead is found out by the pings of rpc.h. */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "client/ctl/ctl.h"
#include "fp/clock.h"
#include "fp/err.h"
#include "fp/rpc.h"

#define AGAIN_MS 500u /* until it is tried again to connect */
#define LEAST_MS 100u
#define WATCH_MS 200u

struct ctl_link {
    uv_loop_t loop;
    struct fp_key *key;
    struct fp_rpc *rpc;
    struct fp_rpc_conn *conn; /* our reference */
    uint64_t timeout_ms;
    char addr[FP_ADDR_TEXT_BUF];
    bool up, closed, is_local;
    int closed_err;
    char why[256];
};

struct call {
    bool done;
    int status;
    const ProtobufCMessageDescriptor *desc;
    ProtobufCMessage *reply;
};

/* ---------------------------------------------------------------- the watchdog */

static _Atomic uint64_t watch_until_ms;
static const char *_Atomic watch_text = "no answer in time from the mount or the manager: is it stopped or cut off? (--timeout)";
static uint64_t patient_until_ms; /* 0: it is not */
static int patient_code;
static bool gave_up; /* patience is over */
static bool said;    /* that the manager is waited for */

static void sleep_ms(uint64_t ms)
{
    struct timespec pause = {(time_t)(ms / 1000), (long)(ms % 1000 * 1000000)};

    nanosleep(&pause, NULL);
}

static void *watch(void *arg)
{
    (void)arg;
    for (;;) {
        uint64_t now = fp_now_ms(), until = atomic_load(&watch_until_ms);
        if (now >= until)
            break;
        sleep_ms(until - now < WATCH_MS ? until - now : WATCH_MS); /* the limit may come nearer */
    }
    FP_ERROR("%s", atomic_load(&watch_text));
    _exit(patient_until_ms ? patient_code : 1);
}

void ctl_watch(uint64_t limit_ms)
{
    static bool started;
    pthread_t thread;
    uint64_t until = fp_now_ms() + limit_ms;
    atomic_store(&watch_until_ms, until > patient_until_ms ? until : patient_until_ms);
    if (!started && pthread_create(&thread, NULL, watch, NULL) == 0)
        pthread_detach(thread);
    started = true;
}

void ctl_watch_says(const char *text)
{
    atomic_store(&watch_text, text);
}

void ctl_patient(uint64_t until_ms, int code)
{
    patient_until_ms = until_ms;
    patient_code = code;
}

bool ctl_patience(void)
{
    if (!patient_until_ms || fp_now_ms() + AGAIN_MS >= patient_until_ms)
        return false;
    sleep_ms(AGAIN_MS);
    return true;
}

int ctl_exit_code(int rc)
{
    return rc >= 0 ? rc : gave_up ? patient_code : 1;
}

void ctl_pause(const struct ctl_options *o, uint64_t ms)
{
    ctl_watch(ms + 2 * o->timeout_ms + 1000);
    sleep_ms(ms);
}

void ctl_pause_longer(const struct ctl_options *o, uint64_t *ms, uint64_t max_ms)
{
    *ms = *ms ? *ms + *ms / 4 : 8;
    *ms = *ms < max_ms ? *ms : max_ms;
    ctl_pause(o, *ms);
}

/* Of limit_ms, what patience leaves. */
static uint64_t patience_left(uint64_t limit_ms)
{
    uint64_t now = fp_now_ms(), left = patient_until_ms <= now + LEAST_MS ? LEAST_MS : patient_until_ms - now;

    return !patient_until_ms || left > limit_ms ? limit_ms : left;
}

/* ---------------------------------------------------------------- connecting */

static void on_up(struct fp_rpc_conn *conn, void *arg)
{
    struct ctl_link *l = arg;
    const char *peer = fp_rpc_conn_peer(conn), *local = fp_rpc_conn_local(conn);
    const char *colon = strrchr(peer, ':');
    size_t len = colon ? (size_t)(colon - peer) : 0;
    l->up = true;
    l->is_local = len > 0 && strncmp(peer, local, len + 1) == 0;
}

static void on_closed(struct fp_rpc_conn *conn, int err, const char *why, void *arg)
{
    struct ctl_link *l = arg;
    (void)conn;
    l->closed = true;
    l->closed_err = err ? err : FP_EPEER_GONE;
    snprintf(l->why, sizeof l->why, "%s", why ? why : fp_strerror(err));
}

static const struct fp_rpc_handler handler = {.on_up = on_up, .on_closed = on_closed};

static int call_once(struct ctl_link *l, uint16_t type, const ProtobufCMessage *msg, const ProtobufCMessageDescriptor *desc, ProtobufCMessage **reply);

static int hello(struct ctl_link *l)
{
    Fp__Hello msg = FP__HELLO__INIT;
    ProtobufCMessage *reply = NULL;
    msg.protocol = FP_FRAME_VERSION;
    msg.role = FP__ROLE__ROLE_CONTROL;
    msg.pid = (uint32_t)getpid();
    msg.software = (char *)"fpctl " FP_VERSION;
    int rc = call_once(l, FP__MSG_TYPE__MSG_HELLO, &msg.base, &fp__hello_reply__descriptor, &reply);
    if (reply)
        protobuf_c_message_free_unpacked(reply, NULL);
    return rc;
}

/* Nothing of it is heard any more. */
static void disconnect(struct ctl_link *l)
{
    if (!l->conn)
        return;
    if (!l->closed)
        fp_rpc_conn_close(l->conn, 0);
    while (!l->closed)
        uv_run(&l->loop, UV_RUN_ONCE);
    fp_rpc_conn_put(l->conn);
    l->conn = NULL;
}

static int connect_failed(const struct ctl_link *l, int err)
{
    if (patient_until_ms && ctl_link_may_come(err))
        return err; /* who is patient says so once */
    if (err == -ECONNREFUSED)
        FP_ERROR("no manager at %s: is the store up?", l->addr);
    else if (err == FP_ENOHOST)
        FP_ERROR("cannot connect to the manager at %s: %s: check --manager, /etc/hosts and DNS", l->addr, l->why);
    else
        FP_ERROR("cannot connect to the manager at %s: %s", l->addr, fp_strerror(err));
    return err;
}

static int connect_to(struct ctl_link *l)
{
    uint32_t timeout_ms = (uint32_t)patience_left(l->timeout_ms);
    struct fp_rpc_connect_opts how = {.timeout_ms = timeout_ms, .fresh_uuid = true};
    int rc;

    disconnect(l);
    l->up = l->closed = false;
    rc = fp_rpc_connect(l->rpc, l->addr, &how, &handler, l, &l->conn);
    if (rc < 0) {
        l->conn = NULL;
        return connect_failed(l, rc);
    }
    fp_rpc_conn_get(l->conn);
    while (!l->up && !l->closed)
        uv_run(&l->loop, UV_RUN_ONCE);
    if (!l->up)
        return connect_failed(l, l->closed_err);
    rc = hello(l);
    if (rc < 0 && !(patient_until_ms && ctl_link_may_come(rc)))
        ctl_link_failed(l, rc, "hello");
    return rc;
}

bool ctl_link_may_come(int err)
{
    return err == -ECONNREFUSED || err == -ECONNRESET || err == -ETIMEDOUT || err == -EHOSTUNREACH || err == -ENETUNREACH || err == -ENOTCONN || err == -EPIPE ||
           err == FP_EDEADLINE || err == FP_EPEER_GONE || err == FP_ESTOPPING;
}

/* After a failure of the connection: shall it be tried again? Says so once, and pauses. */
static bool wait_for_manager(const struct ctl_link *l, int err)
{
    if (!patient_until_ms || !ctl_link_may_come(err))
        return false;
    if (!said)
        FP_WARN("no manager at %s: waiting for it", l->addr);
    said = true;
    if (ctl_patience())
        return true;
    if (!gave_up)
        FP_ERROR("no manager at %s in all that time (%s): is the store up?", l->addr, fp_strerror(err));
    gave_up = true;
    return false;
}

static int connect_patiently(struct ctl_link *l)
{
    int rc;

    do
        rc = connect_to(l);
    while (rc < 0 && wait_for_manager(l, rc));
    return rc;
}

static int connect_first(struct ctl_link *l)
{
    struct fp_rpc_opts opts = {.key = l->key, .handshake_timeout_ms = (uint32_t)l->timeout_ms};
    int rc = fp_rpc_new(&l->loop, &opts, &l->rpc);

    if (rc < 0)
        FP_ERROR("cannot connect to the manager at %s: %s", l->addr, fp_strerror(rc));
    return rc < 0 ? rc : connect_patiently(l);
}

int ctl_link_open(const struct ctl_store *store, uint64_t timeout_ms, struct ctl_link **out)
{
    char why[FP_KEY_WHY_MAX];
    struct ctl_link *l = calloc(1, sizeof *l);
    if (!l || uv_loop_init(&l->loop) < 0) {
        free(l);
        FP_ERROR("out of memory");
        return -ENOMEM;
    }
    l->timeout_ms = timeout_ms;
    snprintf(l->addr, sizeof l->addr, "%s", store->manager);
    int rc = fp_key_load(store->key, &l->key, why);
    if (rc < 0)
        FP_ERROR("%s", why);
    else
        rc = connect_first(l);
    if (rc < 0) {
        ctl_link_close(l);
        return rc;
    }
    *out = l;
    return 0;
}

void ctl_link_close(struct ctl_link *l)
{
    if (!l)
        return;
    disconnect(l);
    if (l->rpc)
        fp_rpc_close(l->rpc, NULL, NULL);
    uv_run(&l->loop, UV_RUN_DEFAULT);
    uv_loop_close(&l->loop);
    fp_key_free(l->key);
    free(l);
}

/* ---------------------------------------------------------------- asking */

static void on_reply(void *arg, int status, const struct fp_rpc_in *in)
{
    struct call *c = arg;
    c->done = true;
    c->status = status;
    if (in && in->payload)
        fp_rpc_payload_free(in->payload);
    if (status < 0 || !c->desc)
        return;
    c->reply = protobuf_c_message_unpack(c->desc, NULL, in->msg_len_bytes, in->msg);
    if (!c->reply)
        c->status = FP_EBADFRAME;
}

static int call_once(struct ctl_link *l, uint16_t type, const ProtobufCMessage *msg, const ProtobufCMessageDescriptor *desc, ProtobufCMessage **reply)
{
    struct call c = {.desc = desc};
    struct fp_rpc_req req = {.type = type, .msg = msg, .timeout_ms = (uint32_t)(patient_until_ms ? patience_left(UINT32_MAX) : l->timeout_ms), .cb = on_reply, .arg = &c};
    ctl_watch(2 * l->timeout_ms + 1000);
    int rc = fp_rpc_call(l->conn, &req, NULL);
    if (rc < 0)
        return l->closed ? l->closed_err : rc;
    while (!c.done)
        uv_run(&l->loop, UV_RUN_ONCE);
    if (c.status == 0 && reply)
        *reply = c.reply;
    return c.status;
}

int ctl_link_call(struct ctl_link *l, uint16_t type, const ProtobufCMessage *msg,
                  const ProtobufCMessageDescriptor *desc, ProtobufCMessage **reply)
{
    int rc = l->conn && !l->closed ? 0 : patient_until_ms ? connect_patiently(l) : FP_EPEER_GONE;

    rc = rc < 0 ? rc : call_once(l, type, msg, desc, reply);
    while (rc < 0 && wait_for_manager(l, rc)) {
        rc = connect_patiently(l);
        rc = rc < 0 ? rc : call_once(l, type, msg, desc, reply);
    }
    return rc;
}

int ctl_link_failed(const struct ctl_link *l, int err, const char *what)
{
    if (gave_up && ctl_link_may_come(err))
        return err; /* it was said */
    if (err == FP_EDEADLINE)
        FP_ERROR("%s: the manager at %s does not answer within %u ms (--timeout)", what, l->addr,
                 (unsigned)l->timeout_ms);
    else
        FP_ERROR("%s: the manager at %s says: %s", what, l->addr, fp_strerror(err));
    return err;
}

static void on_timer(uv_timer_t *t)
{
    *(bool *)t->data = true;
}

int ctl_link_wait_closed(struct ctl_link *l, uint64_t timeout_ms)
{
    uv_timer_t timer;
    bool over = false;
    uv_timer_init(&l->loop, &timer);
    timer.data = &over;
    uv_timer_start(&timer, on_timer, timeout_ms, 0);
    while (!l->closed && !over)
        uv_run(&l->loop, UV_RUN_ONCE);
    uv_close((uv_handle_t *)&timer, NULL);
    uv_run(&l->loop, UV_RUN_NOWAIT);
    return l->closed ? 0 : FP_EDEADLINE;
}

bool ctl_link_is_local(const struct ctl_link *l)
{
    return l->is_local;
}

int ctl_ask_status(struct ctl_link *l, Fp__CtlStatusReply **out)
{
    ProtobufCMessage *reply = NULL;
    int rc =
        ctl_link_call(l, FP__MSG_TYPE__MSG_CTL_STATUS, NULL, &fp__ctl_status_reply__descriptor, &reply);
    if (rc < 0)
        return ctl_link_failed(l, rc, "status");
    *out = (Fp__CtlStatusReply *)reply;
    return 0;
}
