/* The loop: connections, timers, signals. It decides nothing; frames go to the core as they come
 * (server_batch.c).
 *
 * One thread runs the loop and everything of the core; two others sync the WAL and move it into the database,
 * because a disk that takes its time must not keep look-ups waiting. The checkpoint thread has a connection
 * of its own to the database: a passive checkpoint there does not stop the writer. What was written meanwhile
 * is little, and is moved by the loop itself afterwards, so that the WAL can begin anew; without that it
 * would grow as long as there is load. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "fp/clock.h"
#include "fp/err.h"
#include "fp/fault.h"
#include "fp/jobsignals.h"
#include "fp/log.h"
#include "fp/readyfd.h"
#include "manager/server_int.h"

#define TICK_MS 100u

/* ---------------------------------------------------------------- connections */

static void on_up(struct fp_rpc_conn *conn, void *arg)
{
    struct mgr_server *s = arg;
    struct mgr_peer *peer = calloc(1, sizeof *peer);

    if (peer) {
        peer->server = s;
        peer->conn = conn;
        peer->core = s->ending ? NULL : mgr_core_conn_new(s->core, peer);
    }
    if (!peer || !peer->core) {
        free(peer);
        fp_rpc_conn_close(conn, -ENOMEM);
        return;
    }
    fp_rpc_conn_set_data(conn, peer);
}

static void on_request(struct fp_rpc_conn *conn, const struct fp_rpc_in *in, void *arg)
{
    struct mgr_server *s = arg;
    struct mgr_peer *peer = fp_rpc_conn_data(conn);
    struct mgr_reply reply = {.status = 0};

    fp_rpc_payload_free(in->payload); /* none of the manager's messages has one */
    if (!peer || s->ending)
        return;
    mgr_batch_open(s);
    if (in->flags & FP_FRAME_ONEWAY) {
        mgr_core_notice(s->core, peer->core, in->type, in->msg, in->msg_len_bytes);
        return;
    }
    mgr_core_request(s->core, peer->core, in->type, in->msg, in->msg_len_bytes, &reply);
    mgr_batch_add(s, conn, in, &reply);
}

static void on_closed(struct fp_rpc_conn *conn, int err, const char *why, void *arg)
{
    struct mgr_server *s = arg;
    struct mgr_peer *peer = fp_rpc_conn_data(conn);

    FP_DEBUG("connection to %s closed: %s (%s)", fp_rpc_conn_peer(conn), why ? why : "", fp_strerror(err));
    if (!peer)
        return;
    mgr_batch_forget(s, peer);
    if (!s->ending) {
        mgr_batch_open(s);
        mgr_core_conn_lost(s->core, peer->core);
    }
    fp_rpc_conn_set_data(conn, NULL);
    free(peer);
}

static const struct fp_rpc_handler handler = {
    .on_up = on_up, .on_request = on_request, .on_closed = on_closed};

/* ---------------------------------------------------------------- ending */

static void on_rpc_closed(void *arg)
{
    (void)arg;
}

static void end(struct mgr_server *s)
{
    if (s->ending)
        return;
    mgr_batch_close(s);
    s->ending = true;
    uv_close((uv_handle_t *)&s->prepare, NULL);
    uv_close((uv_handle_t *)&s->check, NULL);
    uv_close((uv_handle_t *)&s->idle, NULL);
    uv_close((uv_handle_t *)&s->timer, NULL);
    uv_close((uv_handle_t *)&s->sigterm, NULL);
    uv_close((uv_handle_t *)&s->sigint, NULL);
    uv_close((uv_handle_t *)&s->sigend, NULL);
    mgr_worker_stop(&s->sync);
    mgr_worker_stop(&s->checkpoint);
    fp_rpc_close(s->rpc, on_rpc_closed, s);
}

static void on_signal(uv_signal_t *sig, int num)
{
    struct mgr_server *s = sig->data;

    if (!fp_job_signal_ends(num, s->opts->ignore_term))
        return;
    FP_INFO("%s: stopping", num == SIGTERM ? "SIGTERM" : num == SIGINT ? "SIGINT" : "told by its agent");
    end(s);
}

/* ---------------------------------------------------------------- turns of the loop */

static void work_on(struct mgr_server *s)
{
    mgr_batch_open(s);
    mgr_core_tick(s->core);
}

static void on_idle(uv_idle_t *idle)
{
    work_on(idle->data);
}

static void after_turn(struct mgr_server *s)
{
    bool busy;

    if (!s->in_group)
        return;
    mgr_batch_close(s);
    busy = mgr_core_busy(s->core);
    if (busy && !uv_is_active((uv_handle_t *)&s->idle))
        uv_idle_start(&s->idle, on_idle);
    else if (!busy)
        uv_idle_stop(&s->idle);
    if (mgr_core_stopped(s->core))
        end(s);
}

static void on_prepare(uv_prepare_t *prepare)
{
    after_turn(prepare->data);
}

static void on_check(uv_check_t *check)
{
    after_turn(check->data);
}

static void on_timer(uv_timer_t *timer)
{
    work_on(timer->data);
}

/* ---------------------------------------------------------------- threads for the disk */

static int run_sync(void *arg)
{
    const struct mgr_server *s = arg;

    return mgr_db_sync(mgr_core_db(s->core));
}

static int run_checkpoint(void *arg)
{
    const struct mgr_server *s = arg;

    return mgr_db_checkpoint_aside(s->opts->db_path);
}

static void on_checkpointed(void *arg, uint64_t ticket, int err)
{
    struct mgr_server *s = arg;

    (void)ticket;
    mgr_batch_close(s);
    s->checkpointing = false;
    if (!err)
        err = mgr_db_checkpoint(mgr_core_db(s->core), false);
    if (err)
        FP_LOG_EVERY(10000, FP_LOG_WARN, "database: checkpoint: %s: tried again", fp_strerror(err));
    mgr_core_db(s->core)->wal_pages = 0;
}

/* ---------------------------------------------------------------- starting */

static int start_handles(struct mgr_server *s)
{
    uv_prepare_init(&s->loop, &s->prepare);
    uv_check_init(&s->loop, &s->check);
    uv_idle_init(&s->loop, &s->idle);
    uv_timer_init(&s->loop, &s->timer);
    uv_signal_init(&s->loop, &s->sigterm);
    uv_signal_init(&s->loop, &s->sigint);
    uv_signal_init(&s->loop, &s->sigend);
    s->prepare.data = s->check.data = s->idle.data = s->timer.data = s->sigterm.data = s->sigint.data = s->sigend.data = s;
    uv_prepare_start(&s->prepare, on_prepare);
    uv_check_start(&s->check, on_check);
    uv_timer_start(&s->timer, on_timer, 0, TICK_MS);
    uv_signal_start(&s->sigterm, on_signal, SIGTERM);
    uv_signal_start(&s->sigint, on_signal, SIGINT);
    uv_signal_start(&s->sigend, on_signal, FP_SIGNAL_END);
    if (mgr_worker_start(&s->sync, &s->loop, run_sync, mgr_batch_synced, s) ||
        mgr_worker_start(&s->checkpoint, &s->loop, run_checkpoint, on_checkpointed, s)) {
        FP_ERROR("cannot start threads: raise the limit of processes (ulimit -u)");
        return -EAGAIN;
    }
    return 0;
}

static int listen_on(struct mgr_server *s)
{
    struct fp_rpc_opts ro = {.key = s->opts->key, .store_uuid = mgr_core_uuid(s->core)};
    const char *addr = s->opts->listen;
    int rc = fp_rpc_new(&s->loop, &ro, &s->rpc);

    if (rc) {
        FP_ERROR("cannot set up TLS: %s", fp_strerror(rc));
        return rc;
    }
    rc = fp_rpc_listen(s->rpc, addr, &handler, s, &s->listener);
    if (rc == -EADDRINUSE)
        FP_ERROR("cannot listen on %s: another program does: stop it or choose another --listen", addr);
    else if (rc == -EACCES)
        FP_ERROR("cannot listen on %s: not permitted: choose a port from 1024 on", addr);
    else if (rc == FP_ENOHOST)
        FP_ERROR("cannot listen on %s: the host name %.*s cannot be resolved: give an address of this node with "
                 "--listen",
                 addr, (int)(strrchr(addr, ':') - addr), addr); /* it has one, else it were -EINVAL */
    else if (rc)
        FP_ERROR("cannot listen on %s: %s: give an address of this node with --listen", addr,
                 fp_strerror(rc));
    return rc;
}

static void run_out(struct mgr_server *s)
{
    uv_run(&s->loop, UV_RUN_DEFAULT);
    uv_loop_close(&s->loop);
    mgr_batch_drop(s);
}

int mgr_server_run(struct mgr_core *core, const struct mgr_server_opts *opts)
{
    static struct mgr_server s; /* one per process */
    int rc;

    s = (struct mgr_server){.core = core, .opts = opts, .durable_last = &s.durable_first, .late_last = &s.late_first};
    uv_loop_init(&s.loop);
    rc = listen_on(&s);
    if (rc)
        return rc;
    rc = start_handles(&s);
    if (rc)
        return rc;
    mgr_core_set_addr(core, fp_rpc_listener_addr(s.listener));
    FP_INFO("listening on %s", fp_rpc_listener_addr(s.listener));
    rc = fp_ready_write(opts->ready_fd, fp_rpc_listener_addr(s.listener));
    if (rc)
        FP_WARN("--ready-fd %d: %s", opts->ready_fd, fp_strerror(rc));
    run_out(&s);
    return 0;
}
