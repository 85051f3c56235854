/*
 * What the agents of a job's nodes say to one, and who else finds its port (jobscripts/agent/node_tree.c, tree.c; common/proto/job.proto).
 *
 * The real tree of an agent over the connections of wire.h: the root or any other, of a job of some nodes, while it starts, is up, or ends. Those below and
 * above say what the input says: hellos, states, words to go and to stop, any other message, in any order, asked or not; connections come, break and
 * are refused; time passes. What is known of the nodes is compared with a model that hears the same. Every request is answered once, who has not
 * said hello changes nothing, and at the end nobody is left.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fp/clock.h"
#include "fp/key.h"
#include "jobscripts/agent/node.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/wire.h"

#define STEPS_MAX 64
#define NODES_MAX 40u
#define TEXTS     5u

static const char *const texts[TEXTS] = {"", "0-6", "/srv: 3.1 GiB are free, and 32 GiB are wanted", "fp-mount was ended by signal 9", NULL /* longer than any may be */};
static char too_long[JOB_TEXT_BYTES_MAX + 100];
static char *names[NODES_MAX];

static struct {
    struct node n;
    struct wire_conn *below[WIRE_CONNS_MAX];
    bool said_hello[WIRE_CONNS_MAX], asks[WIRE_CONNS_MAX];
    uint32_t rank[WIRE_CONNS_MAX];
    struct {
        int state;
        char text[JOB_TEXT_BYTES_MAX + 1];
    } known[NODES_MAX]; /* the model */
    bool missed[NODES_MAX];
    uint64_t missed_ms[NODES_MAX];
    struct fuzz_pool pool;
    unsigned gone, stopped;
    bool asked_for_some; /* somebody has, once: nodes from a rank on */
    uint8_t buf[8192];
} x;

/* ---------------------------------------------------------------- what is around the tree */

int __wrap_fp_key_load(const char *path, struct fp_key **out, char why[FP_KEY_WHY_MAX]);
int __wrap_fp_rpc_new(uv_loop_t *loop, const struct fp_rpc_opts *o, struct fp_rpc **out);
void __wrap_node_go(struct node *n, const char *manager, const char *mount);
void __wrap_node_stop(struct node *n);

int __wrap_fp_key_load(const char *path, struct fp_key **out, char why[FP_KEY_WHY_MAX])
{
    (void)path, (void)why;
    *out = (struct fp_key *)(void *)&x;
    return 0;
}

int __wrap_fp_rpc_new(uv_loop_t *loop, const struct fp_rpc_opts *o, struct fp_rpc **out)
{
    (void)loop;
    FUZZ_CHECK(o->key);
    *out = (struct fp_rpc *)(void *)&x;
    return 0;
}

/* As node.c does it, without programs. */
void __wrap_node_go(struct node *n, const char *manager, const char *mount)
{
    FUZZ_CHECK(manager && mount);
    if (n->phase != NODE_WAITING)
        return;
    n->phase = NODE_STARTING;
    snprintf(n->manager, sizeof n->manager, "%s", manager);
    snprintf(n->mount, sizeof n->mount, "%s", mount);
    x.gone++;
    node_tree_go(n);
}

void __wrap_node_stop(struct node *n)
{
    if (n->phase >= NODE_STOPPING)
        return;
    n->phase = NODE_STOPPING;
    x.stopped++;
    node_tree_stop(n);
}

/* ---------------------------------------------------------------- the model */

static void model_set(uint32_t first, uint32_t count, int state, const char *text)
{
    if (state < FP__JOB_NODE_STATE__JOB_NODE_STARTING || state >= (int)JOB_STATES)
        return;
    for (uint64_t i = first; i < (uint64_t)first + count && i < x.n.plan.nnodes; i++)
        if (x.known[i].state != FP__JOB_NODE_STATE__JOB_NODE_ENDED) {
            x.known[i].state = state;
            memset(x.known[i].text, 0, sizeof x.known[i].text);
            memcpy(x.known[i].text, text, strnlen(text, JOB_TEXT_BYTES_MAX));
        }
}

static void compare(void)
{
    uint32_t of[JOB_STATES] = {0};

    for (uint32_t i = 0; i < x.n.plan.nnodes; i++) {
        const struct job_node *node = &x.n.states.nodes[i];

        FUZZ_CHECK(node->state == x.known[i].state && strcmp(node->text ? node->text : "", x.known[i].text) == 0);
        of[node->state]++;
    }
    FUZZ_CHECK(memcmp(of, x.n.states.of, sizeof of) == 0);
}

/* Who has asked hears of each node that is known what is known, in order. */
static void on_reply(struct wire_conn *c, const struct fp_rpc_reply *r)
{
    uint64_t at = 0;

    (void)c;
    if (r->status || !r->msg || r->msg->descriptor != &fp__job_states__descriptor)
        return;
    const Fp__JobStates *m = (const Fp__JobStates *)(const void *)r->msg;

    for (size_t i = 0; i < m->n_runs; i++) {
        const Fp__JobRun *run = m->runs[i];

        FUZZ_CHECK(run->first >= at && run->count > 0 && (uint64_t)run->first + run->count <= x.n.plan.nnodes);
        for (; at < run->first; at++)
            FUZZ_CHECK(x.known[at].state == FP__JOB_NODE_STATE__JOB_NODE_NONE || (i == 0 && x.asked_for_some));
        for (; at < (uint64_t)run->first + run->count; at++)
            FUZZ_CHECK(x.known[at].state == (int)run->state && strcmp(x.known[at].text, run->text) == 0);
    }
    for (; at < x.n.plan.nnodes; at++)
        FUZZ_CHECK(x.known[at].state == FP__JOB_NODE_STATE__JOB_NODE_NONE || (!m->n_runs && x.asked_for_some));
}

/* ---------------------------------------------------------------- what is said */

static size_t pack(const ProtobufCMessage *m)
{
    FUZZ_CHECK(protobuf_c_message_get_packed_size(m) <= sizeof x.buf);
    return protobuf_c_message_pack(m, x.buf);
}

static const char *text_of(struct fuzz_in *in)
{
    const char *t = texts[fuzz_below(in, TEXTS)];

    return t ? t : too_long;
}

static void say_hello(struct fuzz_in *in, unsigned k)
{
    Fp__JobHello h = FP__JOB_HELLO__INIT;
    bool ours, oneway = fuzz_u8(in) > 240;

    h.job = (char *)(uintptr_t)(fuzz_u8(in) < 220 ? "77" : text_of(in));
    h.rank = fuzz_u8(in) < 220 ? fuzz_below(in, x.n.plan.nnodes) : (uint32_t)fuzz_number(in);
    h.asks = fuzz_u8(in) & 1;
    ours = strcmp(h.job, "77") == 0 && (h.asks || h.rank < x.n.plan.nnodes) && !oneway;
    if (!wire_is_up(x.below[k]))
        return;
    wire_request(x.below[k], FP__JOB_MSG__JOB_HELLO, oneway, x.buf, pack(&h.base), NULL, 0, false);
    if (ours && !x.said_hello[k]) {
        x.said_hello[k] = true;
        x.asks[k] = h.asks;
        x.rank[k] = h.rank;
        if (!h.asks)
            x.missed[h.rank] = false;
    }
}

/* Says so itself, and knows better than number k. */
static bool is_here(unsigned k, uint64_t rank)
{
    for (unsigned i = 0; i < WIRE_CONNS_MAX; i++)
        if (i != k && x.below[i] && x.said_hello[i] && !x.asks[i] && x.rank[i] == rank && (x.asks[k] || x.rank[k] != rank))
            return true;
    return false;
}

static void say_states(struct fuzz_in *in, unsigned k)
{
    Fp__JobRun runs[4], *list[4];
    Fp__JobStates m = FP__JOB_STATES__INIT;
    bool oneway = fuzz_u8(in) < 240;
    uint32_t nruns = fuzz_below(in, 5);

    m.runs = list;
    for (; m.n_runs < nruns; m.n_runs++) {
        Fp__JobRun *r = list[m.n_runs] = &runs[m.n_runs];

        fp__job_run__init(r);
        r->first = fuzz_u8(in) < 220 ? fuzz_below(in, x.n.plan.nnodes) : (uint32_t)fuzz_number(in);
        r->count = fuzz_u8(in) < 220 ? 1 + fuzz_below(in, 8) : (uint32_t)fuzz_number(in);
        r->state = (Fp__JobNodeState)(fuzz_u8(in) < 240 ? fuzz_below(in, 5) : (uint32_t)fuzz_number(in));
        r->text = (char *)(uintptr_t)text_of(in);
    }
    if (!wire_is_up(x.below[k]))
        return;
    wire_request(x.below[k], FP__JOB_MSG__JOB_STATES, oneway, x.buf, pack(&m.base), NULL, 0, false);
    for (size_t i = 0; x.said_hello[k] && oneway && i < m.n_runs; i++)
        for (uint64_t at = runs[i].first; at < (uint64_t)runs[i].first + runs[i].count && at < x.n.plan.nnodes; at++)
            if (!is_here(k, at))
                model_set((uint32_t)at, 1, (int)runs[i].state, runs[i].text);
}

/* A message of any type with any fields but states, whose effect the model would have to know. */
static void say_any(struct fuzz_in *in, struct wire_conn *c)
{
    static const struct {
        uint16_t type;
        const ProtobufCMessageDescriptor *d;
    } kinds[] = {
        {FP__JOB_MSG__JOB_GO, &fp__job_go__descriptor},     {FP__JOB_MSG__JOB_STOP, &fp__job_go__descriptor}, {FP__JOB_MSG__JOB_KEEP, &fp__job_go__descriptor},
        {FP__JOB_MSG__JOB_ASK, &fp__job_ask__descriptor}, {0, &fp__job_go__descriptor},                     {1, &fp__job_states__descriptor},
        {299, &fp__job_states__descriptor},
    };
    unsigned k = fuzz_below(in, sizeof kinds / sizeof *kinds);
    bool oneway = fuzz_u8(in) & 1;
    size_t len = fuzz_message(in, kinds[k].d, &x.pool, x.buf, sizeof x.buf);

    if (kinds[k].type == FP__JOB_MSG__JOB_ASK) {
        Fp__JobAsk *ask = fp__job_ask__unpack(NULL, len, x.buf);

        x.asked_for_some |= ask && ask->first;
        if (ask)
            fp__job_ask__free_unpacked(ask, NULL);
    }
    if (wire_is_up(c))
        wire_request(c, kinds[k].type, oneway, x.buf, len, NULL, 0, false);
}

static struct wire_conn *above(void)
{
    return x.n.up ? (struct wire_conn *)(void *)x.n.up : NULL;
}

static void above_does(struct fuzz_in *in)
{
    struct wire_conn *c = wire_connecting();
    Fp__JobHelloReply reply = FP__JOB_HELLO_REPLY__INIT;

    if (c && fuzz_u8(in) < 200) {
        wire_up(c);
    } else if (c) {
        wire_close(c, -111);
    } else if (above() && wire_asked(above())) {
        bool good = fuzz_u8(in) < 220;

        wire_answer(above(), good ? 0 : -22, x.buf, pack(&reply.base));
    } else if (above() && fuzz_u8(in) < 230) {
        say_any(in, above());
    } else if (above()) {
        wire_close(above(), -104);
    }
}

static void below_comes(void)
{
    for (unsigned k = 0; k + 1 < WIRE_CONNS_MAX; k++) /* one is for the one above */
        if (!x.below[k]) {
            x.below[k] = wire_accept();
            x.said_hello[k] = false;
            return;
        }
}

static bool is_agent(unsigned k, uint32_t rank)
{
    return x.below[k] && x.said_hello[k] && !x.asks[k] && x.rank[k] == rank;
}

/* An agent whose last connection is gone is missed. */
static void forget_closed(void)
{
    bool closed[WIRE_CONNS_MAX] = {false};

    for (unsigned k = 0; k < WIRE_CONNS_MAX; k++)
        if (x.below[k] && !wire_is_up(x.below[k])) {
            closed[k] = x.said_hello[k] && !x.asks[k];
            x.below[k] = NULL;
        }
    for (unsigned k = 0; k < WIRE_CONNS_MAX; k++) {
        bool another = false;

        for (unsigned i = 0; closed[k] && i < WIRE_CONNS_MAX; i++)
            another |= is_agent(i, x.rank[k]);
        if (closed[k] && !another) {
            x.missed[x.rank[k]] = true;
            x.missed_ms[x.rank[k]] = x.n.ran.ms;
        }
    }
}

/* Who is missed for long enough is taken for dead. */
static void pass_time(uint32_t ms)
{
    wire_pass_ms(ms);
    node_tree_tick(&x.n, fp_now_ms());
    for (uint32_t i = 0; i < x.n.plan.nnodes; i++)
        if (x.missed[i] && x.n.ran.ms - x.missed_ms[i] >= JOB_AGAIN_MS) {
            x.missed[i] = false;
            model_set(i, 1, FP__JOB_NODE_STATE__JOB_NODE_FAILED, "its agent is gone: it was killed, or the node is down");
        }
}

static void step(struct fuzz_in *in)
{
    uint8_t what = fuzz_u8(in);
    unsigned k = fuzz_below(in, WIRE_CONNS_MAX);
    int state;
    const char *text;

    if (what < 40) {
        below_comes();
    } else if (what < 80 && x.below[k]) {
        say_hello(in, k);
    } else if (what < 130 && x.below[k]) {
        say_states(in, k);
    } else if (what < 150 && x.below[k]) {
        say_any(in, x.below[k]);
    } else if (what < 160 && x.below[k]) {
        wire_close(x.below[k], -104);
    } else if (what < 210) {
        above_does(in);
    } else if (what < 235) {
        for (uint32_t ms = fuzz_u8(in) < 200 ? 50 : fuzz_u16(in), some; ms; ms -= some) {
            some = ms < JOB_STEP_MS ? ms : JOB_STEP_MS;
            pass_time(some);
        }
    } else if (what < 250) {
        state = 1 + (int)fuzz_below(in, 3);
        text = text_of(in);
        node_tree_say(&x.n, state, text);
        model_set(x.n.rank, 1, state, text);
    } else {
        __wrap_node_stop(&x.n);
    }
    wire_turn();
    forget_closed();
}

/* ---------------------------------------------------------------- one input */

static void begin(struct fuzz_in *in)
{
    wire_reset();
    memset(&x, 0, sizeof x);
    x.n.plan.job = (char *)(uintptr_t)"77";
    x.n.plan.starter = (char *)(uintptr_t)"n0:4000";
    x.n.plan.nnodes = 1 + fuzz_below(in, NODES_MAX);
    x.n.plan.fanout = 1 + fuzz_below(in, 4);
    x.n.plan.port = 20000;
    x.n.plan.nodes = names;
    x.n.rank = fuzz_u8(in) & 1 ? 0 : fuzz_below(in, x.n.plan.nnodes);
    snprintf(x.n.dir, sizeof x.n.dir, "/tmp/none");
    FUZZ_CHECK(node_tree_start(&x.n) == 0);
}

static void end(void)
{
    FUZZ_CHECK(wire_unanswered() == 0);
    __wrap_node_stop(&x.n);
    x.n.phase = NODE_OVER;
    node_tree_say(&x.n, FP__JOB_NODE_STATE__JOB_NODE_ENDED, "");
    node_tree_end(&x.n);
    for (unsigned k = 0; k < WIRE_CONNS_MAX; k++)
        wire_close(x.below[k], 0);
    wire_close(wire_connecting() ? wire_connecting() : above(), 0);
    wire_turn();
    wire_turn();
    FUZZ_CHECK(x.n.nchildren == 0 && !x.n.up && x.gone <= 1 && x.stopped == 1 && wire_left() == 0);
    job_states_fini(&x.n.states);
    free(x.n.children);
}

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    static char room[NODES_MAX][8];

    (void)argc, (void)argv;
    memset(too_long, 'x', sizeof too_long - 1);
    for (unsigned i = 0; i < NODES_MAX; i++) {
        snprintf(room[i], sizeof room[i], "n%u", i);
        names[i] = room[i];
    }
    wire_on_reply = on_reply;
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct fuzz_in in = {data, data + len};

    begin(&in);
    for (unsigned i = 0; i < STEPS_MAX && fuzz_left(&in) > 0; i++) {
        step(&in);
        compare();
    }
    end();
    return 0;
}
