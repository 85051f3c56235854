/*
 * An agent among the others (see node.h): who is above it, who is below, what is told between them.
 *
 * The parent's address is not known when an agent starts, only its host and a few ports of which it listens on the first free one. So each is tried in turn;
 * whoever else listens there does not have the key, and the connection does not come up. If the parent can't be reached, or is lost, its own parent is tried
 * next, up to the root: a node that dies takes none of those below it out of the tree.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fp/addr.h"
#include "fp/clock.h"
#include "fp/err.h"
#include "fp/log.h"
#include "jobscripts/jobdir.h"
#include "jobscripts/agent/node.h"

#define CONNECT_MS  1500u
#define RETRY_MS    40u
#define ROUNDS      3u   /* all ports of one above are tried so often before the next above */
#define SILENT      4u   /* tries in a row without any answer */
#define HELLO_MS    5000u
#define RUNS        1000u /* in one message */

static void states_changed(struct node *n)
{
    n->states_fresh = true;
}

/* ---------------------------------------------------------------- what is told upwards */

/* Runs into a message; the texts are borrowed. Returns how many. */
static size_t fill(struct node *n, uint32_t *at, bool all, Fp__JobRun *runs, Fp__JobRun **list)
{
    struct job_run r;
    size_t k = 0;

    for (; k < RUNS && job_states_next(&n->states, at, all, &r); k++) {
        fp__job_run__init(&runs[k]);
        runs[k].first = r.first;
        runs[k].count = r.count;
        runs[k].state = (Fp__JobNodeState)r.state;
        runs[k].text = (char *)(uintptr_t)r.text;
        list[k] = &runs[k];
    }
    return k;
}

static void tell_up(struct node *n, bool all)
{
    static Fp__JobRun runs[RUNS];
    static Fp__JobRun *list[RUNS];
    uint32_t at = 0;

    if (!n->up || !n->up_is_up)
        return;
    for (;;) {
        Fp__JobStates msg = FP__JOB_STATES__INIT;

        msg.n_runs = fill(n, &at, all, runs, list);
        msg.runs = list;
        msg.manager = n->manager;
        msg.mount = n->mount;
        msg.application = n->map.application;
        msg.inside = n->some_inside;
        msg.elsewhere = n->elsewhere;
        if (!msg.n_runs)
            break;
        if (fp_rpc_send(n->up, FP__JOB_MSG__JOB_STATES, &msg.base))
            return; /* told again to the next one above */
    }
    n->states_fresh = false;
}

static void answer_all(struct node *n, struct fp_rpc_conn *conn, const struct fp_rpc_in *in)
{
    static Fp__JobRun runs[RUNS];
    static Fp__JobRun *list[RUNS];
    Fp__JobAsk *ask = fp__job_ask__unpack(NULL, in->msg_len_bytes, in->msg);
    Fp__JobStates msg = FP__JOB_STATES__INIT;
    uint32_t at = ask ? ask->first : 0;

    if (ask)
        fp__job_ask__free_unpacked(ask, NULL);
    msg.n_runs = fill(n, &at, true, runs, list);
    msg.runs = list;
    msg.manager = n->manager;
    msg.mount = n->mount;
    msg.next = msg.n_runs == RUNS ? at : 0;
    msg.inside = n->some_inside;
    (void)fp_rpc_reply_msg(conn, in, 0, &msg.base);
    states_changed(n); /* fill has taken what was fresh */
    tell_up(n, true);
}

void node_tree_say_of(struct node *n, uint32_t rank, int state, const char *text)
{
    if (job_states_set(&n->states, rank, 1, state, text))
        states_changed(n);
}

void node_tree_say(struct node *n, int state, const char *text)
{
    node_tree_say_of(n, n->rank, state, text);
}

/* ---------------------------------------------------------------- those below */

static int take_child(struct node *n, struct fp_rpc_conn *conn, uint32_t rank, bool asks)
{
    struct node_child *more;

    if (n->nchildren == NODE_CHILDREN)
        return -EBUSY;
    more = reallocarray(n->children, n->nchildren + 1, sizeof *more);
    if (!more)
        return -ENOMEM;
    n->children = more;
    n->children[n->nchildren++] = (struct node_child){.conn = fp_rpc_conn_get(conn), .rank = rank, .asks = asks};
    return 0;
}

static void send_go(const struct node *n, struct fp_rpc_conn *conn)
{
    Fp__JobGo go = FP__JOB_GO__INIT;

    go.manager = (char *)(uintptr_t)n->manager;
    go.mount = (char *)(uintptr_t)n->mount;
    (void)fp_rpc_send(conn, FP__JOB_MSG__JOB_GO, &go.base);
}

void node_tree_go(struct node *n)
{
    for (uint32_t i = 0; i < n->nchildren; i++)
        if (!n->children[i].asks)
            send_go(n, n->children[i].conn);
}

void node_tree_tell(struct node *n, unsigned what)
{
    for (uint32_t i = 0; i < n->nchildren; i++)
        if (!n->children[i].asks)
            (void)fp_rpc_send(n->children[i].conn, (uint16_t)what, NULL);
}

void node_tree_stop(struct node *n)
{
    node_tree_tell(n, FP__JOB_MSG__JOB_STOP);
}

/* What those who came before were told when it was so. */
static void tell_late(const struct node *n, struct fp_rpc_conn *conn)
{
    if (n->manager[0] && n->phase < NODE_STOPPING)
        send_go(n, conn);
    if (n->all_up)
        (void)fp_rpc_send(conn, FP__JOB_MSG__JOB_NOTE, NULL);
    if (n->discarded)
        (void)fp_rpc_send(conn, FP__JOB_MSG__JOB_DISCARD, NULL);
    if (n->phase >= NODE_STOPPING)
        (void)fp_rpc_send(conn, FP__JOB_MSG__JOB_STOP, NULL);
}

/* Below us in the plan, and never heard of: it is starting, and would look for us in vain if we were gone. */
static bool to_come(const struct node *n)
{
    uint64_t first = (uint64_t)n->rank * n->plan.fanout + 1;

    for (uint64_t i = first; i < first + n->plan.fanout && i < n->plan.nnodes; i++)
        if (n->states.nodes[i].state == FP__JOB_NODE_STATE__JOB_NODE_NONE)
            return true;
    return false;
}

bool node_tree_all_ended(const struct node *n)
{
    if (to_come(n) || n->states.missed)
        return false;
    for (uint32_t i = 0; i < n->nchildren; i++)
        if (!n->children[i].asks)
            return false;
    return true;
}

static void hello(struct node *n, struct fp_rpc_conn *conn, const struct fp_rpc_in *in)
{
    Fp__JobHello *h = fp__job_hello__unpack(NULL, in->msg_len_bytes, in->msg);
    Fp__JobHelloReply reply = FP__JOB_HELLO_REPLY__INIT;
    int rc = !h ? -EBADMSG : strcmp(h->job, n->plan.job) != 0 || (!h->asks && h->rank >= n->plan.nnodes) ? -EINVAL : 0;

    rc = rc ? rc : take_child(n, conn, h->rank, h->asks);
    reply.nodes = n->plan.nnodes;
    (void)fp_rpc_reply_msg(conn, in, rc, rc ? NULL : &reply.base);
    if (rc == 0 && !h->asks) {
        job_states_back(&n->states, h->rank);
        tell_late(n, conn);
    }
    if (h)
        fp__job_hello__free_unpacked(h, NULL);
}

static const struct node_child *child_of(const struct node *n, const struct fp_rpc_conn *conn)
{
    for (uint32_t i = 0; i < n->nchildren; i++)
        if (n->children[i].conn == conn)
            return &n->children[i];
    return NULL;
}

/* The first rank from `first` on, before `end`, of an agent that talks to us itself, and is not who says something now. */
static uint64_t next_here(const struct node *n, const struct node_child *says, uint64_t first, uint64_t end)
{
    for (uint32_t i = 0; i < n->nchildren; i++) {
        const struct node_child *c = &n->children[i];

        if (!c->asks && (says->asks || c->rank != says->rank) && c->rank >= first && c->rank < end)
            end = c->rank;
    }
    return end;
}

/* Who talks to us itself knows best how it is: the one that it has left for us has only lost it. */
static void take_run(struct node *n, const struct node_child *says, const Fp__JobRun *r)
{
    uint64_t end = (uint64_t)r->first + r->count, next;

    end = end < n->states.n ? end : n->states.n;
    for (uint64_t at = r->first; at < end; at = next + 1) {
        next = next_here(n, says, at, end);
        if (job_states_set(&n->states, (uint32_t)at, (uint32_t)(next - at), (int)r->state, r->text))
            states_changed(n);
    }
}

static void take_states(struct node *n, const struct node_child *says, const struct fp_rpc_in *in)
{
    Fp__JobStates *m = fp__job_states__unpack(NULL, in->msg_len_bytes, in->msg);

    for (size_t i = 0; m && i < m->n_runs; i++)
        take_run(n, says, m->runs[i]);
    if (m)
        fp__job_states__free_unpacked(m, NULL);
}

/* Requests are answered, one-way messages are not: of each kind there is one alone, as PROTOCOL.md says. */
static void below_says(struct node *n, const struct node_child *says, const struct fp_rpc_in *in)
{
    if (in->type == FP__JOB_MSG__JOB_STATES)
        take_states(n, says, in);
    else if (in->type == FP__JOB_MSG__JOB_DISCARD)
        node_discard(n);
    else if (in->type == FP__JOB_MSG__JOB_STOP)
        node_stop(n);
}

static void below_asks(struct fp_rpc_conn *conn, const struct fp_rpc_in *in, void *arg)
{
    struct node *n = arg;
    const struct node_child *known = child_of(n, conn);

    fp_rpc_payload_free(in->payload);
    if (in->flags & FP_FRAME_ONEWAY) {
        if (known)
            below_says(n, known, in);
    } else if (in->type == FP__JOB_MSG__JOB_HELLO && !known)
        hello(n, conn, in);
    else if (in->type == FP__JOB_MSG__JOB_ASK && known)
        answer_all(n, conn, in);
    else
        (void)fp_rpc_reply_msg(conn, in, known ? FP_EBADMSG_TYPE : -EPROTO, NULL);
}

/* The agent of this rank does not talk to us any more. One that is alive comes again, to us or to one above, and says how it is; that it is gone is said when it has not. */
static void lost(struct node *n, uint32_t rank)
{
    for (uint32_t i = 0; i < n->nchildren; i++)
        if (!n->children[i].asks && n->children[i].rank == rank)
            return; /* it has come already, and this was its old connection */
    job_states_miss(&n->states, rank, n->ran.ms);
}

static void below_closed(struct fp_rpc_conn *conn, int err, const char *why, void *arg)
{
    struct node *n = arg;

    (void)err;
    (void)why;
    for (uint32_t i = 0; i < n->nchildren; i++)
        if (n->children[i].conn == conn) {
            struct node_child was = n->children[i];

            fp_rpc_conn_put(conn);
            n->children[i] = n->children[--n->nchildren];
            if (!was.asks)
                lost(n, was.rank);
            return;
        }
}

static const struct fp_rpc_handler below = {.on_request = below_asks, .on_closed = below_closed};

/* ---------------------------------------------------------------- the one above */

static void keep(struct node *n)
{
    if (!n->keep)
        node_time_begin(n);
    n->keep = true;
}

static void above_asks(struct fp_rpc_conn *conn, const struct fp_rpc_in *in, void *arg)
{
    struct node *n = arg;

    fp_rpc_payload_free(in->payload);
    if (!(in->flags & FP_FRAME_ONEWAY)) {
        if (in->type == FP__JOB_MSG__JOB_KEEP)
            keep(n);
        (void)fp_rpc_reply_msg(conn, in, in->type == FP__JOB_MSG__JOB_KEEP ? 0 : FP_EBADMSG_TYPE, NULL);
    } else if (in->type == FP__JOB_MSG__JOB_GO) {
        Fp__JobGo *go = fp__job_go__unpack(NULL, in->msg_len_bytes, in->msg);

        if (go)
            node_go(n, go->manager, go->mount);
        if (go)
            fp__job_go__free_unpacked(go, NULL);
    } else if (in->type == FP__JOB_MSG__JOB_STOP)
        node_stop(n);
    else if (in->type == FP__JOB_MSG__JOB_NOTE)
        node_note(n);
    else if (in->type == FP__JOB_MSG__JOB_DISCARD)
        node_discard(n);
}

static void said_hello(void *arg, int status, const struct fp_rpc_in *in)
{
    struct node *n = arg;

    if (in)
        fp_rpc_payload_free(in->payload);
    if (status < 0) {
        if (n->up)
            fp_rpc_conn_close(n->up, status);
        return;
    }
    n->up_is_up = true;
    n->alone_since_ms = 0;
    tell_up(n, true);
}

static void above_up(struct fp_rpc_conn *conn, void *arg)
{
    struct node *n = arg;
    const char *step = getenv("SLURM_STEP_ID");
    Fp__JobHello h = FP__JOB_HELLO__INIT;
    struct fp_rpc_req req = {.type = FP__JOB_MSG__JOB_HELLO, .msg = &h.base, .timeout_ms = HELLO_MS, .cb = said_hello, .arg = n};

    h.job = n->plan.job;
    h.rank = n->rank;
    h.step = (char *)(uintptr_t)(step ? step : "");
    h.port = n->port;
    if (fp_rpc_call(conn, &req, NULL))
        fp_rpc_conn_close(conn, -ENOTCONN);
}

/* The next port; after some rounds the next one above, and sooner if that host does not even refuse: all rounds with one that is down take longer than we may be alone. */
static void try_another(struct node *n, int err)
{
    bool silent = err == -ETIMEDOUT || err == -EHOSTUNREACH || err == -EHOSTDOWN || err == -ENETUNREACH;

    n->tries++;
    n->silent = silent ? n->silent + 1 : 0;
    if (n->rank && (n->tries >= 2 * ROUNDS * JOB_PORTS || (n->above && n->silent >= SILENT))) {
        n->above = job_tree_climb(n->above, n->plan.fanout);
        n->tries = n->silent = 0;
    }
}

static void above_closed(struct fp_rpc_conn *conn, int err, const char *why, void *arg)
{
    struct node *n = arg;

    FP_DEBUG("agent above: %s", why ? why : fp_strerror(err));
    if (n->up != conn)
        return;
    if (!n->up_is_up)
        try_another(n, err);
    else
        n->tries = n->silent = 0;
    fp_rpc_conn_put(conn);
    n->up = NULL;
    n->up_is_up = false;
    n->up_next_ms = fp_now_ms() + RETRY_MS;
}

static const struct fp_rpc_handler above = {.on_up = above_up, .on_request = above_asks, .on_closed = above_closed};

/* Mostly it is the first one, and the agent there has not begun to listen yet: so each other port is tried after it once more. */
static unsigned port_of(const struct node *n)
{
    return n->plan.port + (n->tries % 2 ? n->tries / 2 % JOB_PORTS : 0);
}

static void connect_up(struct node *n)
{
    struct fp_rpc_connect_opts o = {.timeout_ms = CONNECT_MS, .fresh_uuid = true};
    char addr[JOB_NODE_NAME_MAX + 16];
    int rc;

    if (n->rank == 0)
        snprintf(addr, sizeof addr, "%s", n->plan.starter);
    else
        snprintf(addr, sizeof addr, "%s:%u", n->plan.nodes[n->above], port_of(n));
    rc = fp_rpc_connect(n->rpc, addr, &o, &above, n, &n->up);
    if (rc) {
        n->up = NULL;
        n->up_next_ms = fp_now_ms() + RETRY_MS;
        try_another(n, rc);
        return;
    }
    fp_rpc_conn_get(n->up);
}

/* ---------------------------------------------------------------- start, time, end */

static int listen_somewhere(struct node *n)
{
    const char *any = fp_addr_any();
    int rc = 0;

    for (unsigned i = 0; i < JOB_PORTS; i++) {
        char addr[FP_ADDR_BUF];

        n->port = (uint16_t)(n->plan.port + i);
        snprintf(addr, sizeof addr, "%s:%u", any, n->port);
        rc = fp_rpc_listen(n->rpc, addr, &below, n, &n->listener);
        if (rc != -EADDRINUSE)
            break;
    }
    if (rc)
        FP_ERROR("%s: no port from %u to %u can be listened on: %s", n->plan.nodes[n->rank], n->plan.port, n->plan.port + JOB_PORTS - 1, fp_strerror(rc));
    return rc;
}

int node_tree_start(struct node *n)
{
    char path[PATH_MAX], why[FP_KEY_WHY_MAX];
    struct fp_rpc_opts o = {0};
    int rc = job_dir_file(path, n->dir, "key");

    if (rc == 0 && !n->key)
        rc = fp_key_load(path, &n->key, why);
    if (rc) {
        FP_ERROR("%s: %s", n->plan.nodes[n->rank], why);
        return rc;
    }
    o.key = n->key;
    rc = job_states_init(&n->states, n->plan.nnodes);
    rc = rc ? rc : fp_rpc_new(&n->loop, &o, &n->rpc);
    rc = rc ? rc : listen_somewhere(n);
    n->above = n->rank ? job_tree_parent(n->rank, n->plan.fanout) : 0;
    return rc;
}

void node_tree_tick(struct node *n, uint64_t now_ms)
{
    uint64_t ran_ms = job_ran_tick(&n->ran, now_ms);

    if (job_states_give_up(&n->states, ran_ms, JOB_GONE))
        states_changed(n);
    if (n->states_fresh)
        tell_up(n, false);
    n->alone_since_ms = n->up_is_up ? 0 : n->alone_since_ms ? n->alone_since_ms : ran_ms;
    if (!n->up && (n->rank || !n->keep || ran_ms - n->alone_since_ms < HELLO_MS) && now_ms >= n->up_next_ms && n->phase < NODE_OVER)
        connect_up(n);
    if (n->alone_since_ms && ran_ms - n->alone_since_ms > (n->rank == 0 && n->plan.guarded ? NODE_GUARD_MS : NODE_ORPHAN_MS) && (n->rank || !n->keep) &&
        n->phase < NODE_STOPPING) {
        FP_ERROR("%s: %s: ending", n->plan.nodes[n->rank],
                 n->rank ? "no agent of the job's other nodes answers, and the first node is gone, too" : "who has started the job is gone, and has not said that it stays up");
        node_stop(n);
    }
}

void node_tree_end(struct node *n)
{
    tell_up(n, false);
    if (n->listener)
        fp_rpc_listener_close(n->listener);
    n->listener = NULL;
    if (n->rpc)
        fp_rpc_flush(n->rpc); /* the connections are closed next */
}
