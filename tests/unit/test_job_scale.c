/*
 * The start of a job of many nodes: the tree and the plan of the real code (jobscripts/agent/tree.c, plan.c, job.proto), and a model of the agents, with virtual time.
 *
 * An agent here does what node_tree.c does with the same functions: connects to its parent, or to the one above if that is gone; says that it has looked, passes on where the manager is;
 * keeps what it hears of nodes in a job_states, and each 20 ms tells what is fresh upwards, in messages packed as they go over the wire. Agents start within two
 * seconds in any order, services take up to one, a hop 0.2 ms, and whoever sends or gets a message is busy for 30 us. Agents that have nobody below have no table
 * of the others in memory here, since 10,000 of them would not fit; they tell of themselves alone.
 *
 * What is checked is what must not grow with the job: messages of one process, processes that one starts, the steps from a node to who waits. What grows, bytes
 * of the list of nodes and of states, is printed for docs/SCALING.md, and has a limit for each node.
 */
#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "job.pb-c.h"
#include "jobscripts/launch/plan.h"
#include "jobscripts/agent/tree.h"

#define KEY      "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define HOP_US   200u
#define BUSY_US  30u
#define TICK_US  20000u
#define RETRY_US 40000u
#define START_US 2000000u
#define READY_US 1000000u
#define RUNS     1000u /* in a message, as node_tree.c has it */

enum kind { BEGIN, ARRIVE, GO, READY, TICK, TOLD };

struct told {
    size_t n;
    struct job_run runs[];
};

struct event {
    uint64_t at_us, seq;
    enum kind kind;
    uint32_t to, from;
    struct told *told;
};

struct agent {
    struct job_states states; /* n == 0: nobody is below */
    uint32_t above, below[2 * JOB_FANOUT + 1], nbelow;
    bool up, linked, go, ready, dead;
    int told; /* of leaves: the last state */
    uint64_t busy_us, messages, bytes;
};

static struct {
    uint32_t n, fanout, want;
    struct agent *agents; /* agents[n]: who has started the job */
    struct event *heap;
    size_t len, room;
    uint64_t now_us, seq, seed, last_ready_us, known_us;
} s;

static uint32_t below(uint32_t limit)
{
    s.seed = s.seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((s.seed >> 33) % limit);
}

/* ---------------------------------------------------------------- time */

static bool sooner(const struct event *a, const struct event *b)
{
    return a->at_us != b->at_us ? a->at_us < b->at_us : a->seq < b->seq;
}

static void swap(size_t a, size_t b)
{
    struct event e = s.heap[a];

    s.heap[a] = s.heap[b];
    s.heap[b] = e;
}

static void put(uint64_t at_us, enum kind kind, uint32_t to, uint32_t from, struct told *told)
{
    size_t i = s.len++;

    if (s.len > s.room)
        s.heap = reallocarray(s.heap, s.room = s.room ? 2 * s.room : 1024, sizeof *s.heap);
    assert_non_null(s.heap);
    s.heap[i] = (struct event){at_us, s.seq++, kind, to, from, told};
    for (; i && sooner(&s.heap[i], &s.heap[(i - 1) / 2]); i = (i - 1) / 2)
        swap(i, (i - 1) / 2);
}

static struct event get(void)
{
    struct event first = s.heap[0];

    s.heap[0] = s.heap[--s.len];
    for (size_t i = 0, next; (next = 2 * i + 1) < s.len; i = next) {
        next += next + 1 < s.len && sooner(&s.heap[next + 1], &s.heap[next]);
        if (!sooner(&s.heap[next], &s.heap[i]))
            break;
        swap(i, next);
    }
    s.now_us = first.at_us;
    return first;
}

/* ---------------------------------------------------------------- messages */

static uint64_t work(struct agent *a)
{
    a->busy_us = (a->busy_us > s.now_us ? a->busy_us : s.now_us) + BUSY_US;
    a->messages++;
    return a->busy_us;
}

static void send_to(uint32_t from, uint32_t to, enum kind kind, struct told *told, size_t bytes)
{
    s.agents[from].bytes += bytes;
    s.agents[to].bytes += bytes;
    put(work(&s.agents[from]) + HOP_US, kind, to, from, told);
}

static size_t packed(const struct told *t)
{
    static Fp__JobRun runs[RUNS], *list[RUNS];
    Fp__JobStates msg = FP__JOB_STATES__INIT;

    for (size_t i = 0; i < t->n; i++) {
        fp__job_run__init(&runs[i]);
        runs[i].first = t->runs[i].first;
        runs[i].count = t->runs[i].count;
        runs[i].state = (Fp__JobNodeState)t->runs[i].state;
        runs[i].text = (char *)(uintptr_t)t->runs[i].text;
        list[i] = &runs[i];
    }
    msg.n_runs = t->n;
    msg.runs = list;
    return fp__job_states__get_packed_size(&msg) + 40; /* and the header of the frame */
}

static void tell_up(uint32_t rank)
{
    struct agent *a = &s.agents[rank];
    uint32_t at = 0;
    struct told *t;

    int state = a->ready ? FP__JOB_NODE_STATE__JOB_NODE_READY : FP__JOB_NODE_STATE__JOB_NODE_LOOKED;

    if (!a->linked || (!a->states.n && a->told == state))
        return;
    for (;;) {
        t = calloc(1, sizeof *t + RUNS * sizeof t->runs[0]);
        assert_non_null(t);
        if (!a->states.n) {
            t->runs[t->n++] = (struct job_run){.first = rank, .count = 1, .state = state, .text = a->ready ? "0-6" : ""};
            a->told = state;
        }
        while (a->states.n && t->n < RUNS && job_states_next(&a->states, &at, false, &t->runs[t->n]))
            t->runs[t->n].text = t->runs[t->n].state == FP__JOB_NODE_STATE__JOB_NODE_READY ? "0-6" : "", t->n++;
        if (!t->n)
            break;
        send_to(rank, rank ? a->above : s.n, TOLD, t, packed(t));
        if (!a->states.n)
            return;
    }
    free(t);
}

/* ---------------------------------------------------------------- agents */

static void pass_go(uint32_t rank)
{
    for (uint32_t i = 0; i < s.agents[rank].nbelow; i++)
        send_to(rank, s.agents[rank].below[i], GO, NULL, 80);
}

static void begin(uint32_t rank)
{
    struct agent *a = &s.agents[rank];

    a->up = true;
    a->above = rank ? a->above : s.n;
    put(s.now_us + below(TICK_US), TICK, rank, rank, NULL);
    if (a->states.n)
        (void)job_states_set(&a->states, rank, 1, FP__JOB_NODE_STATE__JOB_NODE_LOOKED, "");
    if (rank == 0)
        a->linked = true; /* the manager is ready long before all have come */
    else
        send_to(rank, a->above, ARRIVE, NULL, 100);
}

/* Somebody from below says hello: or nobody listens here yet, or any more. */
static void arrive(uint32_t rank, uint32_t from)
{
    struct agent *a = &s.agents[rank], *child = &s.agents[from];

    if (a->dead)
        child->above = job_tree_climb(rank, s.fanout);
    if (a->dead || !a->up) {
        put(s.now_us + RETRY_US, BEGIN, from, from, NULL);
        return;
    }
    assert_true(a->nbelow < sizeof a->below / sizeof a->below[0]);
    a->below[a->nbelow++] = from;
    child->linked = true;
    if (a->go)
        send_to(rank, from, GO, NULL, 80);
}

static void be_ready(uint32_t rank)
{
    struct agent *a = &s.agents[rank];

    a->ready = true;
    s.last_ready_us = s.now_us;
    if (a->states.n)
        (void)job_states_set(&a->states, rank, 1, FP__JOB_NODE_STATE__JOB_NODE_READY, "0-6");
}

static void hear(uint32_t rank, const struct told *t)
{
    for (size_t i = 0; i < t->n; i++)
        (void)job_states_set(&s.agents[rank].states, t->runs[i].first, t->runs[i].count, t->runs[i].state, t->runs[i].text);
    s.known_us = s.now_us;
}

static void happen(const struct event *e)
{
    struct agent *a = &s.agents[e->to];

    if (a->dead && e->kind != ARRIVE)
        return;
    if (e->kind == ARRIVE || e->kind == GO || e->kind == TOLD)
        (void)work(a);
    if (e->kind == BEGIN && !a->up)
        begin(e->to);
    else if (e->kind == BEGIN)
        send_to(e->to, a->above, ARRIVE, NULL, 100);
    else if (e->kind == ARRIVE)
        arrive(e->to, e->from);
    else if (e->kind == GO && !a->go) {
        a->go = true;
        pass_go(e->to);
        put(s.now_us + READY_US / 5 + below(READY_US * 4 / 5), READY, e->to, e->to, NULL);
    } else if (e->kind == READY)
        be_ready(e->to);
    else if (e->kind == TOLD)
        hear(e->to, e->told);
    else if (e->kind == TICK) {
        tell_up(e->to);
        if (e->to == 0 && !a->go && a->states.of[FP__JOB_NODE_STATE__JOB_NODE_LOOKED] == s.want)
            put(s.now_us, GO, 0, 0, NULL);
        if (a->told != FP__JOB_NODE_STATE__JOB_NODE_READY)
            put(s.now_us + TICK_US, TICK, e->to, e->to, NULL);
    }
}

/* ---------------------------------------------------------------- a job */

struct outcome {
    uint64_t most_messages, most_bytes, starter_messages, starter_bytes, ends_us, late_us;
    uint32_t most_below, depth;
};

static void run_job(uint32_t n, uint32_t dead, struct outcome *out)
{
    struct agent *starter;
    uint32_t want = n - (dead != 0);

    memset(&s, 0, sizeof s);
    memset(out, 0, sizeof *out);
    s.n = n;
    s.want = want;
    s.fanout = JOB_FANOUT;
    s.seed = 42;
    s.agents = calloc(n + 1, sizeof *s.agents);
    assert_non_null(s.agents);
    starter = &s.agents[n];
    assert_int_equal(job_states_init(&starter->states, n), 0);
    for (uint32_t rank = 0; rank < n; rank++) {
        uint32_t deep = job_tree_depth(rank, JOB_FANOUT);

        out->depth = deep > out->depth ? deep : out->depth;
        if (rank == 0 || (uint64_t)rank * JOB_FANOUT + 1 < n)
            assert_int_equal(job_states_init(&s.agents[rank].states, n), 0);
        s.agents[rank].above = rank ? job_tree_parent(rank, JOB_FANOUT) : n;
        s.agents[rank].dead = dead && rank == dead;
        put(below(START_US), BEGIN, rank, rank, NULL);
    }
    while (s.len && starter->states.of[FP__JOB_NODE_STATE__JOB_NODE_READY] < want) {
        struct event e = get();

        assert_true(s.now_us < 60000000);
        happen(&e);
        free(e.told);
    }
    assert_int_equal(starter->states.of[FP__JOB_NODE_STATE__JOB_NODE_READY], want);
    out->ends_us = s.now_us;
    out->late_us = s.known_us - s.last_ready_us;
    out->starter_messages = starter->messages;
    out->starter_bytes = starter->bytes;
    for (uint32_t rank = 0; rank <= n; rank++) {
        struct agent *a = &s.agents[rank];

        out->most_messages = a->messages > out->most_messages ? a->messages : out->most_messages;
        out->most_bytes = a->bytes > out->most_bytes ? a->bytes : out->most_bytes;
        out->most_below = a->nbelow > out->most_below ? a->nbelow : out->most_below;
        job_states_fini(&a->states);
    }
    for (size_t i = 0; i < s.len; i++)
        free(s.heap[i].told);
    free(s.heap);
    free(s.agents);
}

/*
 * Of one process, and of who waits, whatever the job: a fifth more than of 20,000 nodes (2,525 and 135; the model is the same each time), and far less than one for
 * each of 10,000.
 */
#define MESSAGES_MAX 3000u
#define WAITER_MAX   160u

static void test_no_process_has_messages_for_each_node(void **state)
{
    static const uint32_t sizes[] = {4, 100, 1000, 10000, 20000};
    struct outcome o;

    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        run_job(sizes[i], 0, &o);
        print_message("%u nodes: depth %u, fan-out %u, messages of one process %llu at most, of who waits %llu, bytes of one process %llu, known %.0f ms after the last is ready\n", sizes[i],
                      o.depth, o.most_below, (unsigned long long)o.most_messages, (unsigned long long)o.starter_messages, (unsigned long long)o.most_bytes, (double)o.late_us / 1000);
        assert_true(o.most_below <= JOB_FANOUT && o.depth <= 3);
        assert_true(o.most_messages <= MESSAGES_MAX);
        assert_true(o.starter_messages <= WAITER_MAX);
        assert_true(o.most_bytes <= 100000 + 64 * (uint64_t)sizes[i]);
        assert_true(o.late_us <= (o.depth + 1) * (TICK_US + 10 * HOP_US) + 10000);
    }
}

static void test_a_node_that_dies_leaves_its_own_to_the_one_above(void **state)
{
    struct outcome o;

    (void)state;
    run_job(10000, 5, &o);
    assert_in_range(o.most_below, JOB_FANOUT + 1, 2 * JOB_FANOUT);
    assert_true(o.most_messages <= 2 * MESSAGES_MAX);
}

/* What each agent has of all the others: their names, and a row of its table for each. */
static void test_an_agent_has_some_bytes_for_each_node(void **state)
{
    enum { N = 10000 };
    static char text[N][16], *names[N];
    struct job_plan p = {.job = (char *)"1", .starter = (char *)"node00000:4000", .auxapp_dir = (char *)"/usr/lib/fpstore", .nodes = names, .nnodes = N, .fanout = JOB_FANOUT,
                         .port = 20000, .key = KEY, .cwd = (char *)"/", .naming = (char *)"", .shared = (char *)"", .lines = (char *)"#FP store\n"};
    struct job_plan q;
    struct job_states states;
    size_t plan, before, memory;
    char *all;

    (void)state;
    for (int i = 0; i < N; i++) {
        snprintf(text[i], sizeof text[i], "node%05d", i);
        names[i] = text[i];
    }
    all = job_plan_write(&p);
    assert_non_null(all);
    plan = strlen(all);
    before = mallinfo2().uordblks + mallinfo2().hblkhd;
    assert_int_equal(job_plan_read(all, &q), 0);
    assert_int_equal(job_states_init(&states, N), 0);
    memory = mallinfo2().uordblks + mallinfo2().hblkhd - before;
    print_message("10,000 nodes: the plan %zu bytes, in memory %zu bytes of names and states\n", plan, memory);
    assert_int_equal(q.nnodes, N);
    assert_true(plan <= 16u * N + 1000 && plan < JOB_PLAN_BYTES_MAX && memory <= 80u * N);
    job_states_fini(&states);
    job_plan_fini(&q);
    free(all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_process_has_messages_for_each_node),
        cmocka_unit_test(test_a_node_that_dies_leaves_its_own_to_the_one_above),
        cmocka_unit_test(test_an_agent_has_some_bytes_for_each_node),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
