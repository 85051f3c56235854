/* The context of all connections of a loop: turns, clock, end. (The module's map is in rpc_int.h.)
 *
 * Called by programs (new, close) and by libuv, on the loop's thread.
 *
 * A turn of the loop: timers (our tick), prepare, poll (requests come in, programs queue frames), check. What
 * was queued is sent in check, or in prepare if a timer or a closing callback queued it, so frames leave
 * together and none waits for another event. While some list still wants work, an idle handle keeps poll from
 * waiting.
 *
 * The tick looks at deadlines every 32 ms while anyone waits for something, else every 250 ms: idle daemons
 * should not disturb the compute cores. A tick that comes more than a second late means that this process did
 * not run: then nobody is declared dead before what waits in the sockets has been read. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fp/clock.h"
#include "fp/err.h"
#include "fp/log.h"
#include "rpc_int.h"

#define REFUSED_PER_S 20u

/* -------------------------------------------------------------- turns */

static bool has_work(const struct fp_rpc *rpc)
{
    return !TAILQ_EMPTY(&rpc->closing) || !TAILQ_EMPTY(&rpc->dirty) || !TAILQ_EMPTY(&rpc->again) ||
           !TAILQ_EMPTY(&rpc->expired);
}

static void idle_cb(uv_idle_t *h)
{
    (void)h; /* its being active is all that matters */
}

void fp_rpc_kick(struct fp_rpc *rpc)
{
    if (!uv_is_active((uv_handle_t *)&rpc->idle) && !uv_is_closing((uv_handle_t *)&rpc->idle))
        uv_idle_start(&rpc->idle, idle_cb);
}

/* Those that are dirty now; who becomes dirty meanwhile waits for the next turn, so that one cannot starve
 * the loop. */
static void run_dirty(struct fp_rpc *rpc)
{
    struct conn_list now = TAILQ_HEAD_INITIALIZER(now);
    struct fp_rpc_conn *c;
    TAILQ_CONCAT(&now, &rpc->dirty, dirty_link);
    while ((c = TAILQ_FIRST(&now)) != NULL) {
        TAILQ_REMOVE(&now, c, dirty_link);
        c->dirty = false;
        fp_conn_send(c);
    }
}

static void run_again(struct fp_rpc *rpc)
{
    struct conn_list now = TAILQ_HEAD_INITIALIZER(now);
    struct fp_rpc_conn *c;
    TAILQ_CONCAT(&now, &rpc->again, again_link);
    while ((c = TAILQ_FIRST(&now)) != NULL) {
        TAILQ_REMOVE(&now, c, again_link);
        c->again = false;
        fp_conn_read(c);
    }
}

static void run_closing(struct fp_rpc *rpc)
{
    struct fp_rpc_conn *c;
    while ((c = TAILQ_FIRST(&rpc->closing)) != NULL)
        fp_conn_finalize(c);
}

/* Handles that are being closed do not call back, so that rpc is whole in here. */
static void run_turn(struct fp_rpc *rpc)
{
    fp_calls_run_expired(rpc);
    run_again(rpc);
    run_dirty(rpc);
    run_closing(rpc);
    fp_listen_resume(rpc);
    if (!has_work(rpc))
        uv_idle_stop(&rpc->idle);
}

static void prepare_cb(uv_prepare_t *h)
{
    run_turn(h->data);
}

static void check_cb(uv_check_t *h)
{
    run_turn(h->data);
}

void fp_rpc_flush(struct fp_rpc *rpc)
{
    run_dirty(rpc);
}

/* -------------------------------------------------------------- clock */

static void tick_cb(uv_timer_t *h);

static void tick_arm(struct fp_rpc *rpc)
{
    uv_timer_start(&rpc->tick, tick_cb, rpc->fast ? TICK_MS : TICK_SLOW_MS, 0);
}

void fp_rpc_fast(struct fp_rpc *rpc)
{
    if (rpc->fast || rpc->ending)
        return;
    rpc->fast = true;
    tick_arm(rpc);
}

static void tick_cb(uv_timer_t *h)
{
    struct fp_rpc *rpc = h->data;
    uint64_t now_ms = fp_now_ms();
    bool late = now_ms - rpc->last_tick_ms > LATE_MS;
    struct fp_rpc_conn *c;
    rpc->fast = false;
    TAILQ_FOREACH(c, &rpc->all, all_link)
    {
        if (late)
            c->last_rx_ms = now_ms;
        else
            fp_conn_tick(c, now_ms);
    }
    if (!late)
        fp_calls_tick(rpc, now_ms);
    rpc->last_tick_ms = now_ms;
    rpc->fast = rpc->fast || rpc->calls_n > 0 || late;
    if (!rpc->ending)
        tick_arm(rpc);
}

/* -------------------------------------------------------------- lines about strangers */

void fp_rpc_refused(struct fp_rpc *rpc, const char *peer, const char *why)
{
    uint64_t second = fp_now_ms() / 1000;
    if (second != rpc->refused_second) {
        if (rpc->refused_n > REFUSED_PER_S)
            FP_WARN("refused %u more connections", rpc->refused_n - REFUSED_PER_S);
        rpc->refused_second = second;
        rpc->refused_n = 0;
    }
    if (rpc->refused_n++ < REFUSED_PER_S)
        FP_WARN("refused connection from %s: %s", peer, why);
}

/* -------------------------------------------------------------- begin and end */

static uint32_t def(uint32_t value, uint32_t fallback)
{
    return value ? value : fallback;
}

static void fill_opts(struct fp_rpc_opts *o, const struct fp_rpc_opts *from)
{
    *o = *from;
    o->store_uuid = NULL; /* the TLS context has a copy */
    o->handshake_timeout_ms = def(o->handshake_timeout_ms, 800);
    o->ping_idle_ms = def(o->ping_idle_ms, 2000);
    o->dead_ms = def(o->dead_ms, 5000);
    o->preauth_max = def(o->preauth_max, 64);
    o->conns_max = def(o->conns_max, 16384);
    o->requests_max = def(o->requests_max, 16384);
    if (o->send_queue_max_bytes == 0)
        o->send_queue_max_bytes = 64u << 20;
}

static void handles_init(struct fp_rpc *rpc)
{
    uv_timer_init(rpc->loop, &rpc->tick);
    uv_prepare_init(rpc->loop, &rpc->prepare);
    uv_check_init(rpc->loop, &rpc->check);
    uv_idle_init(rpc->loop, &rpc->idle);
    rpc->tick.data = rpc->prepare.data = rpc->check.data = rpc->idle.data = rpc;
    rpc->refs += 4;
    uv_prepare_start(&rpc->prepare, prepare_cb);
    uv_check_start(&rpc->check, check_cb);
    tick_arm(rpc);
    uv_unref((uv_handle_t *)&rpc->tick);
    uv_unref((uv_handle_t *)&rpc->prepare);
    uv_unref((uv_handle_t *)&rpc->check);
}

int fp_rpc_new(uv_loop_t *loop, const struct fp_rpc_opts *opts, struct fp_rpc **out)
{
    if (!loop || !opts->key)
        return -EINVAL;
    struct fp_rpc *rpc = calloc(1, sizeof *rpc);
    if (!rpc)
        return -ENOMEM;
    int rc = fp_tls_ctx_new(opts->key, opts->store_uuid, &rpc->tls);
    if (rc < 0) {
        free(rpc);
        return rc;
    }
    rpc->loop = loop;
    rpc->refs = 1;
    fill_opts(&rpc->o, opts);
    TAILQ_INIT(&rpc->all);
    TAILQ_INIT(&rpc->dirty);
    TAILQ_INIT(&rpc->again);
    TAILQ_INIT(&rpc->closing);
    TAILQ_INIT(&rpc->expired);
    LIST_INIT(&rpc->listeners);
    for (unsigned i = 0; i < WHEEL_SLOTS; i++)
        TAILQ_INIT(&rpc->wheel[i]);
    rpc->last_tick_ms = fp_now_ms();
    rpc->wheel_at_ms = rpc->last_tick_ms;
    handles_init(rpc);
    *out = rpc;
    return 0;
}

void fp_rpc_set_uuid(struct fp_rpc *rpc, const uint8_t uuid[16])
{
    fp_tls_ctx_set_uuid(rpc->tls, uuid);
}

void fp_rpc_put(struct fp_rpc *rpc)
{
    if (--rpc->refs > 0)
        return;
    void (*closed)(void *arg) = rpc->closed;
    void *arg = rpc->closed_arg;
    fp_tls_ctx_free(rpc->tls);
    free(rpc);
    if (closed)
        closed(arg);
}

static void handle_closed(uv_handle_t *h)
{
    fp_rpc_put(h->data);
}

/* The last connection has been finalized: nothing needs turns any more. */
static void end_cb(uv_timer_t *h)
{
    struct fp_rpc *rpc = h->data;
    run_turn(rpc);
    if (!TAILQ_EMPTY(&rpc->all)) {
        uv_timer_start(&rpc->tick, end_cb, 0, 0);
        return;
    }
    uv_close((uv_handle_t *)&rpc->tick, handle_closed);
    uv_close((uv_handle_t *)&rpc->prepare, handle_closed);
    uv_close((uv_handle_t *)&rpc->check, handle_closed);
    uv_close((uv_handle_t *)&rpc->idle, handle_closed);
    fp_rpc_put(rpc);
}

void fp_rpc_close(struct fp_rpc *rpc, void (*closed)(void *arg), void *arg)
{
    struct fp_rpc_listener *l;
    struct fp_rpc_conn *c;
    if (rpc->ending)
        return;
    rpc->ending = true;
    rpc->closed = closed;
    rpc->closed_arg = arg;
    while ((l = LIST_FIRST(&rpc->listeners)) != NULL)
        fp_rpc_listener_close(l);
    TAILQ_FOREACH(c, &rpc->all, all_link)
    {
        fp_rpc_conn_close(c, 0);
    }
    uv_ref((uv_handle_t *)&rpc->tick);
    uv_timer_start(&rpc->tick, end_cb, 0, 0);
}
