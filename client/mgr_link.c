/*
 * The link to the manager: connect, hello, connect again.
 *
 * Runs on the core loop. There is one connection at a time. When it breaks, the next attempt comes after 50
 * ms, then twice as long up to 1 s, for ever: a mount outlives any number of restarts of its manager, and
 * what gives up is each single request, after its own time (mgr_call.c). Only the first connection has a
 * limit (--start-timeout), and mistakes that waiting does not cure (wrong key, other store, other protocol
 * version) end the start at once.
 *
 * After TLS comes MSG_HELLO with the session to go on with and every inode that is held open. Only when it is
 * answered do requests flow, those sent before first. A manager that has forgotten the session gives a new
 * one: the data path is told, and stores again what was not committed.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/append.h"
#include "client/aux/aux.h"
#include "client/core_int.h"
#include "client/data.h"
#include "client/shutdown.h"
#include "client/inode.h"
#include "client/locks.h"
#include "client/names.h"
#include "client/process.h"
#include "fp/err.h"
#include "fp/fault.h"
#include "fp/log.h"

#define BACKOFF_MIN_MS 50u
#define BACKOFF_MAX_MS 1000u
#define CONNECT_MS     3000u
#define HELLO_MS       5000u
#define BYE_MS         200u
#define SLOTS_DEFAULT  64u

static void on_retry(uv_timer_t *timer)
{
    cl_link_connect(timer->data);
}

static void connect_later(struct cl_core *c)
{
    c->link = CL_LINK_DOWN;
    if (c->stopping)
        return;
    uv_timer_start(&c->retry, on_retry, c->backoff_ms, 0);
    c->backoff_ms *= 2;
    if (c->backoff_ms > BACKOFF_MAX_MS)
        c->backoff_ms = BACKOFF_MAX_MS;
}

static bool waiting_cures(int err)
{
    return err != FP_EAUTH && err != FP_EUUID && err != FP_EPROTO_VERSION && err != -EINVAL;
}

/* A line for the user about why there is no session. */
static void explain(struct cl_core *c, int err, const char *why, char *line, size_t size)
{
    const struct cl_options *opt = &c->m->opt;
    if (err == FP_EAUTH)
        snprintf(
            line, size,
            "the key in %s is not that of the store at %s: copy the store's key file, or check --manager",
            opt->key, opt->manager_text);
    else if (err == FP_EUUID)
        snprintf(line, size, "the manager at %s is of another store now: check --manager", opt->manager_text);
    else if (err == FP_EPROTO_VERSION)
        snprintf(line, size, "the manager at %s: %s", opt->manager_text, fp_strerror(err));
    else if (err == FP_ENOHOST)
        snprintf(line, size, "cannot reach the manager at %s: %s: check --manager, /etc/hosts and DNS",
                 opt->manager_text, why && *why ? why : fp_strerror(err));
    else
        snprintf(line, size, "cannot reach the manager at %s: %s: start fp-manager there, or check --manager",
                 opt->manager_text, why && *why ? why : fp_strerror(err));
}

static void note_failure(struct cl_core *c, int err, const char *why)
{
    char line[400];
    explain(c, err, why, line, sizeof line);
    if (!c->started) {
        pthread_mutex_lock(&c->start_lock);
        if (!c->start_done)
            memcpy(c->start_why, line, sizeof line);
        pthread_mutex_unlock(&c->start_lock);
        if (!waiting_cures(err))
            cl_core_start_result(c, err, "%s", line);
    } else if (!waiting_cures(err)) {
        FP_LOG_EVERY(60000, FP_LOG_ERROR, "%s", line);
    } else {
        FP_DEBUG("%s", line);
    }
}

/* -------------------------------------------------------------- hello */

static void forget_batch(void *arg)
{
    /* What waited to be released is not in the list of held ones any more, so the manager learns it from
     * that; but for how it ended. */
    struct cl_core *c = arg;
    pthread_mutex_lock(&c->release_lock);
    cl_torn_keep(c, c->releases, c->nreleases);
    c->nreleases = 0;
    pthread_mutex_unlock(&c->release_lock);
}

static void set_alone(struct cl_core *c, bool alone)
{
    if (alone && atomic_load(&c->alone) == 0) {
        atomic_store(&c->alone, ++c->alone_periods);
    } else if (!alone) {
        atomic_store(&c->alone, 0);
        cl_early_off(c);
        cl_names_clear();
    }
}

/* The session stands and may be used. */
static void link_up(struct cl_core *c)
{
    bool first = !c->started, new_session = c->session_new;
    c->session_new = false;
    c->link = CL_LINK_UP;
    atomic_store(&c->up, true);
    c->backoff_ms = BACKOFF_MIN_MS;
    c->queue_full = false;
    if (!first)
        FP_INFO("connected to the manager again%s", new_session ? ", which has forgotten our session" : "");
    if (!first && c->data_runs)
        cl_data_manager_back(c->m); /* before anything is asked anew */
    cl_requests_up(c, c->slots, new_session);
    cl_requests_release_now(c); /* what was closed since the hello said that it is open */
    cl_locks_up(c->m);
    if (new_session && c->data_runs)
        cl_data_session_new(c->m);
    if (first) {
        c->started = true;
        cl_core_start_result(c, 0, "started");
    }
}

/* The other may be a node that has lost its power: then it takes until its session has expired, and no mount of that node will hold this up again. */
static void wait_for(struct cl_core *c, const char *who, uint32_t session_timeout_ms)
{
    FP_INFO("waiting up to %u s for %s, which was the only mount of the store and has to tell the manager what it has done",
            (session_timeout_ms + CL_SESSION_MORE_MS) / 1000, who);
    if (c->started)
        return;
    c->start_deadline_ms += session_timeout_ms + CL_SESSION_MORE_MS;
    pthread_mutex_lock(&c->start_lock);
    if (!c->start_done)
        snprintf(c->start_why, sizeof c->start_why,
                 "the manager waits for the mount %.250s, which does not answer: end it, or try again when its session has "
                 "expired",
                 who);
    pthread_mutex_unlock(&c->start_lock);
}

static void accept_hello(struct cl_core *c, const Fp__HelloReply *r)
{
    cl_torn_heard(c);
    for (size_t i = 0; i < r->n_gone_ino; i++) {
        FP_WARN("inode %llu was open here and exists no more: its readers and writers get EIO",
                (unsigned long long)r->gone_ino[i]);
        cl_inode_mark_gone(c->m, r->gone_ino[i]);
    }
    cl_locks_lost(c->m, r->lost_locks, r->n_lost_locks);
    if (!c->uuid_known) {
        memcpy(c->m->store_uuid, r->store_uuid.data, sizeof c->m->store_uuid);
        fp_rpc_set_uuid(c->rpc, r->store_uuid.data);
        c->m->default_chunk_size_bytes = r->chunk_size_bytes;
        c->uuid_known = true;
    }
    /* Remembered until link_up, also when the connection breaks before. */
    c->session_new |= c->session != 0 && (r->session_is_new || r->session != c->session);
    if (c->mgr_life && r->unsynced_life && r->unsynced_life != c->mgr_life && c->data_runs)
        cl_data_manager_lost(c->m);
    c->mgr_life = r->unsynced_life ? r->unsynced_life : c->mgr_life;
    if (c->started && c->data_runs && r->lease_time != atomic_load(&c->m->lease_time))
        cl_data_leases_lost(c->m); /* before any close can look at them */
    atomic_store(&c->m->lease_time, r->lease_time);
    c->session_timeout_ms = r->session_timeout_ms;
    c->session = r->session;
    c->slots = r->slots ? r->slots : SLOTS_DEFAULT;
    atomic_store_explicit(&c->session_shown, (unsigned)r->session, memory_order_release);
    set_alone(c, r->alone);
    if (r->wait)
        wait_for(c, r->wait_for, r->session_timeout_ms); /* until MSG_READY */
    else
        link_up(c);
}

static int check_hello(struct cl_core *c, const Fp__HelloReply *r)
{
    if (!r || r->store_uuid.len != sizeof c->m->store_uuid || r->session == 0 || r->root_ino != 1)
        return -EPROTO;
    if (c->uuid_known && memcmp(r->store_uuid.data, c->m->store_uuid, sizeof c->m->store_uuid) != 0)
        return FP_EUUID;
    return 0;
}

static void on_hello(void *arg, int status, const struct fp_rpc_in *in)
{
    struct cl_core *c = arg;
    if (status == 0 && in) {
        Fp__HelloReply *r = fp__hello_reply__unpack(NULL, in->msg_len_bytes, in->msg);
        status = check_hello(c, r);
        if (status == 0)
            accept_hello(c, r);
        if (r)
            fp__hello_reply__free_unpacked(r, NULL);
    }
    if (status < 0 && c->conn) {
        note_failure(c, status, NULL);
        fp_rpc_conn_close(c->conn, status);
    }
}

/* What this mount holds. An incomplete list would be taken as the whole: what it leaves out is given to others. */
static int tell_held(struct cl_core *c, Fp__Hello *h)
{
    struct cl_held held = {NULL, NULL, 0, 0};
    int rc = c->session ? cl_inode_held_list(c->m, &held, forget_batch, c) : 0;
    h->open_ino = held.ino;
    h->n_open_ino = held.n;
    h->open_write_ino = held.write_ino;
    h->n_open_write_ino = held.nwrite;
    if (rc == 0 && c->session)
        rc = cl_inode_leased_list(c->m, &h->behind_ino, &h->n_behind_ino);
    rc = rc < 0 ? rc : cl_torn_hello(c, h);
    return rc < 0 ? rc : cl_locks_hello(c->m, &h->locks, &h->n_locks);
}

static void on_up(struct fp_rpc_conn *conn, void *arg)
{
    struct cl_core *c = arg;
    Fp__Hello h = FP__HELLO__INIT;
    Fp__Place place;
    int rc = tell_held(c, &h);

    c->link = CL_LINK_HELLO;
    h.protocol = FP_FRAME_VERSION;
    h.role = FP__ROLE__ROLE_CLIENT;
    if (c->uuid_known)
        h.store_uuid = (ProtobufCBinaryData){.len = sizeof c->m->store_uuid, .data = c->m->store_uuid};
    h.node = (char *)c->m->opt.node;
    h.session = c->session;
    h.pid = (uint32_t)getpid();
    h.mountpoint = (char *)c->m->opt.mountpoint;
    h.software = (char *)"fpstore " FP_VERSION;
    h.open_known = c->session != 0;
    h.behind = c->m->opt.close_mode == CL_CLOSE_BEHIND;
    h.lease_time = atomic_load(&c->m->lease_time);
    cl_process_place(&place);
    h.place = &place;
    h.early = c->early.lent = !cl_early_ended(c);
    struct fp_rpc_req req = {
        .type = FP__MSG_TYPE__MSG_HELLO, .msg = &h.base, .timeout_ms = HELLO_MS, .cb = on_hello, .arg = c};
    rc = rc < 0 ? rc : fp_rpc_call(conn, &req, NULL);
    free(h.open_ino);
    free(h.open_write_ino);
    free(h.behind_ino);
    free(h.torn_ino);
    free(h.locks);
    if (rc < 0)
        fp_rpc_conn_close(conn, rc);
}

static void on_closed(struct fp_rpc_conn *conn, int err, const char *why, void *arg)
{
    struct cl_core *c = arg;
    bool was_up = c->link == CL_LINK_UP;
    if (conn != c->conn)
        return;
    c->conn = NULL;
    atomic_store(&c->up, false);
    set_alone(c, false); /* until the next hello says so */
    c->early.recalled = false;
    if (was_up && !c->stopping)
        FP_WARN("lost the manager at %s: %s; trying again", c->m->opt.manager_text,
                why ? why : fp_strerror(err));
    else if (err != 0)
        note_failure(c, err, why);
    cl_requests_down(c);
    cl_locks_down(c->m);
    connect_later(c);
}

/* -------------------------------------------------------------- what the manager says by itself */

static void on_table(struct cl_core *c, const struct fp_rpc_in *in)
{
    Fp__BnfTable *t = fp__bnf_table__unpack(NULL, in->msg_len_bytes, in->msg);
    if (!t)
        return;
    atomic_store(&c->m->doubt, t->doubt);
    cl_data_bnf_table(c->m, t);
    fp__bnf_table__free_unpacked(t, NULL);
}

/* Answered when nothing is under way of what being alone has allowed. */
static void on_alone(struct cl_core *c, const struct fp_rpc_in *in)
{
    Fp__Alone *a = fp__alone__unpack(NULL, in->msg_len_bytes, in->msg);
    set_alone(c, a && a->alone);
    if (a)
        fp__alone__free_unpacked(a, NULL);
    if (c->early.recalled) /* asked anew before it has ended: only the last question says what is to end */
        (void)fp_rpc_reply(c->conn, &(struct fp_rpc_reply){.id = c->early.recall_id, .type = in->type, .status = -EAGAIN});
    c->early.recalled = true;
    c->early.recall_id = in->id;
    cl_early_check(c);
}

static void on_aux_msg(struct cl_core *c, const struct fp_rpc_in *in)
{
    Fp__AuxMsg *msg = c->data_runs ? fp__aux_msg__unpack(NULL, in->msg_len_bytes, in->msg) : NULL;
    if (!msg)
        return;
    cl_aux_message(c->m, msg);
    fp__aux_msg__free_unpacked(msg, NULL);
}

static void on_aux_set(struct cl_core *c, const struct fp_rpc_in *in)
{
    Fp__AuxSet *set = c->data_runs ? fp__aux_set__unpack(NULL, in->msg_len_bytes, in->msg) : NULL;
    if (!set)
        return;
    cl_aux_set(c->m, set);
    fp__aux_set__free_unpacked(set, NULL);
}

/* Space is short: chunks that only our holds keep are to go. */
static void on_hold(struct cl_core *c, const struct fp_rpc_in *in)
{
    Fp__Hold *h = c->data_runs ? fp__hold__unpack(NULL, in->msg_len_bytes, in->msg) : NULL;
    if (!h)
        return;
    if (h->recall)
        cl_aux_recall(c->m);
    fp__hold__free_unpacked(h, NULL);
}

static void on_grant(struct cl_core *c, const struct fp_rpc_in *in)
{
    Fp__LockGrant *g = fp__lock_grant__unpack(NULL, in->msg_len_bytes, in->msg);
    if (!g)
        return;
    cl_locks_granted(c->m, g);
    fp__lock_grant__free_unpacked(g, NULL);
}

static void on_recall(struct cl_core *c, const struct fp_rpc_in *in)
{
    Fp__InodeReq *r = fp__inode_req__unpack(NULL, in->msg_len_bytes, in->msg);
    if (!r)
        return;
    cl_append_recalled(c->m, r->ino);
    fp__inode_req__free_unpacked(r, NULL);
}

/* Another mount wants a file of which we have the lease; or has published one that we want. */
static void on_lease(struct cl_core *c, const struct fp_rpc_in *in)
{
    Fp__Recall *r = fp__recall__unpack(NULL, in->msg_len_bytes, in->msg);
    if (!r)
        return;
    if (r->done)
        cl_requests_again(c);
    else
        cl_data_recalled(c->m, r->ino, r->serial);
    fp__recall__free_unpacked(r, NULL);
}

static void on_request(struct fp_rpc_conn *conn, const struct fp_rpc_in *in, void *arg)
{
    struct cl_core *c = arg;
    int status = 0;
    fp_rpc_payload_free(in->payload);
    switch (in->type) {
    case FP__MSG_TYPE__MSG_BNF_TABLE:
        on_table(c, in);
        break;
    case FP__MSG_TYPE__MSG_ALONE:
        if (!(in->flags & FP_FRAME_ONEWAY)) /* its answer is what matters: without one it is not done */
            on_alone(c, in);
        return;
    case FP__MSG_TYPE__MSG_READY:
        if (c->link == CL_LINK_HELLO)
            link_up(c);
        break;
    case FP__MSG_TYPE__MSG_AUX_MSG:
        on_aux_msg(c, in);
        break;
    case FP__MSG_TYPE__MSG_AUX_SET:
        on_aux_set(c, in);
        break;
    case FP__MSG_TYPE__MSG_HOLD:
        on_hold(c, in);
        break;
    case FP__MSG_TYPE__MSG_LOCK_RECALL:
        on_recall(c, in);
        break;
    case FP__MSG_TYPE__MSG_RECALL:
        on_lease(c, in);
        break;
    case FP__MSG_TYPE__MSG_LOCK_GRANT:
        on_grant(c, in);
        break;
    case FP__MSG_TYPE__MSG_STOP:
        FP_INFO("the manager asks us to end");
        cl_shutdown_request();
        break;
    default:
        status = FP_EBADMSG_TYPE;
        break;
    }
    if (!(in->flags & FP_FRAME_ONEWAY))
        fp_rpc_reply_msg(conn, in, status, NULL);
}

static void on_writable(struct fp_rpc_conn *conn, void *arg)
{
    struct cl_core *c = arg;
    (void)conn;
    c->queue_full = false;
    cl_requests_pump(c);
}

static const struct fp_rpc_handler handler = {
    .on_up = on_up,
    .on_request = on_request,
    .on_writable = on_writable,
    .on_closed = on_closed,
};

void cl_link_connect(struct cl_core *c)
{
    struct fp_rpc_connect_opts opts = {.timeout_ms = CONNECT_MS};
    if (c->backoff_ms == 0)
        c->backoff_ms = BACKOFF_MIN_MS;
    c->link = CL_LINK_CONNECTING;
    int rc = fp_rpc_connect(c->rpc, c->m->opt.manager_text, &opts, &handler, c, &c->conn);
    if (rc < 0) {
        c->conn = NULL;
        note_failure(c, rc, NULL);
        connect_later(c);
    }
}

static void on_bye(void *arg, int status, const struct fp_rpc_in *in)
{
    struct cl_core *c = arg;
    (void)status;
    (void)in;
    if (c->conn)
        fp_rpc_conn_close(c->conn, 0);
    cl_core_bye_done(c);
}

void cl_link_bye(struct cl_core *c)
{
    struct fp_rpc_req req = {.type = FP__MSG_TYPE__MSG_BYE, .timeout_ms = BYE_MS, .cb = on_bye, .arg = c};
    struct cl_held held = {NULL, NULL, 0, 0};
    Fp__Bye bye = FP__BYE__INIT;
    if (c->link != CL_LINK_UP || !c->conn)
        return;
    if (cl_inode_held_list(c->m, &held, forget_batch, c) == 0) { /* else the session ends by itself, which says the same */
        bye.n_write_ino = held.nwrite;
        bye.write_ino = held.write_ino;
        req.msg = &bye.base;
        (void)fp_rpc_call(c->conn, &req, NULL);
    }
    free(held.ino);
    free(held.write_ino);
}

/* -------------------------------------------------------------- statistics */

void cl_link_stats(struct cl_core *c)
{
    Fp__ClientStats s = FP__CLIENT_STATS__INIT;
    Fp__Feature features[8], *pointers[8];
    struct cl_mount *m = c->m;
    if (FP_FAULT_POINT("cl.report") < 0)
        return;
    if (c->data_runs) {
        cl_data_stats(m, &s);
        cl_aux_stats(m, &s);
    }
    s.open_files = cl_inode_held_count(m);
    s.close = (char *)cl_options_close(&m->opt);
    s.locks = (char *)cl_options_locks(&m->opt);
    s.strict = m->opt.strict;
    unsigned n = __atomic_load_n(&m->nfeatures, __ATOMIC_ACQUIRE);
    for (unsigned i = 0; i < n; i++) {
        fp__feature__init(&features[i]);
        features[i].name = (char *)m->features[i].name;
        features[i].in_use = m->features[i].in_use;
        features[i].why_not = m->features[i].why_not;
        pointers[i] = &features[i];
    }
    s.features = pointers;
    s.n_features = n;
    cl_mgr_send(m, FP__MSG_TYPE__MSG_CLIENT_STATS, &s.base);
}
