/*
 * The manager's shell (manager/server_batch.c) without sockets: messages are collected into groups, each one transaction; answers and what the core wants to send
 * are packed as for a socket, and counted. The manager's clock is the time that its thread has used, so that what comes by the second comes as often as it
 * would to a manager that has nothing else to do than this.
 *
 * Time is taken of the thread (CLOCK_THREAD_CPUTIME_ID), so that other programs of the machine do not count. What stands for clients is outside of it.
 *
 * A message that goes to many is packed for each of them by the real shell. Here it is packed for the first eight, and what that took is counted for the others, too:
 * else ten thousand tables of a megabyte would take longer to count than to send.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "manager/db.h"
#include "scale.h"

#define CHECKPOINT_PAGES 8192u /* as in server_batch.c */
#define TICK_NS          (100 * UINT64_C(1000000))
#define SECOND_NS        UINT64_C(1000000000)
#define PACKED_MAX       8u
#define PAGE_IDS         8192u

struct scale_msg {
    struct scale_peer *peer;
    uint16_t type;
    bool notice;
    uint8_t *bytes;
    size_t len;
    scale_reply_fn fn;
    void *arg;
    struct mgr_reply reply;
};

uint64_t shell_cpu_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
    return (uint64_t)ts.tv_sec * SECOND_NS + (uint64_t)ts.tv_nsec;
}

void shell_must(struct scale *w, bool ok, const char *what, int status)
{
    if (ok)
        return;
    if (!w->failed)
        fprintf(stderr, "sim_scale: %s: %d\n", what, status);
    w->failed = true;
}

static struct mgr_now now_of(const struct scale *w)
{
    return (struct mgr_now){.ms = w->now_ns / 1000000, .ns = (int64_t)(UINT64_C(1700000000) * SECOND_NS + w->now_ns)};
}

void shell_open(struct scale *w)
{
    struct mgr_core_opts o = {.cache_bytes = w->o.cache_bytes, .store_uuid = {7}, .software = "scale"};
    char why[MGR_DB_WHY_MAX];
    int rc = mgr_core_new(&w->core, w->db_path, &o, now_of(w), why);

    if (rc) {
        fprintf(stderr, "sim_scale: %s: %s\n", w->db_path, why);
        exit(2);
    }
    if (!w->queue)
        w->queue = calloc(w->o.group + 2, sizeof *w->queue);
}

void shell_close(struct scale *w)
{
    shell_flush(w);
    mgr_core_free(w->core);
    w->core = NULL;
}

/* ------------------------------------------------------------------ what the core sends */

static struct packed {
    const ProtobufCMessage *msg;
    unsigned times;
    uint64_t sum_ns;
    size_t len;
} known[16]; /* of this group: the next one uses the same memory */
static unsigned next;

/* The time that packing took; for one that goes to many, see above. A table may be several messages, which go out in turns. */
static uint64_t pack(const ProtobufCMessage *msg, size_t *len)
{
    struct packed *k;
    uint64_t t0, ns;
    uint8_t *buf;

    *len = 0;
    if (!msg)
        return 0;
    for (k = known; k < known + 16 && k->msg != msg; k++)
        ;
    if (k == known + 16) {
        k = &known[next++ % 16];
        memset(k, 0, sizeof *k);
        k->msg = msg;
    }
    *len = k->len;
    if (k->times == PACKED_MAX && msg->descriptor == &fp__bnf_table__descriptor)
        return k->sum_ns / k->times;
    t0 = shell_cpu_ns();
    *len = k->len = protobuf_c_message_get_packed_size(msg);
    buf = malloc(*len + 1);
    protobuf_c_message_pack(msg, buf);
    free(buf);
    ns = shell_cpu_ns() - t0;
    if (k->times < PACKED_MAX) {
        k->sum_ns += ns;
        k->times++;
    }
    return ns;
}

/* Copied: the answer is given in another group. */
static void remember(struct scale *w, struct scale_peer *p, uint16_t type, const ProtobufCMessage *msg)
{
    struct scale_msg *m;

    if (w->nasked == w->asked_cap) {
        w->asked_cap = w->asked_cap ? w->asked_cap * 2 : 1024;
        w->asked = realloc(w->asked, w->asked_cap * sizeof *w->asked);
    }
    m = &w->asked[w->nasked++];
    *m = (struct scale_msg){.peer = p, .type = type, .len = msg ? protobuf_c_message_get_packed_size(msg) : 0}; /* NULL: a message without a body */
    m->bytes = malloc(m->len + 1);
    if (msg)
        protobuf_c_message_pack(msg, m->bytes);
}

static void take_outs(struct scale *w)
{
    struct scale_phase *ph = w->phase;
    struct mgr_out o;
    size_t len;

    while (mgr_core_out_next(w->core, &o)) {
        struct scale_peer *p = o.user;
        uint64_t ns = pack(o.msg, &len);

        ph->pack_ns += ns;
        w->now_ns += ns;
        ph->out[o.type].n++;
        ph->out[o.type].bytes += len;
        ph->out[o.type].cpu_ns += ns;
        if (o.kind == MGR_OUT_CALL)
            remember(w, p, o.type, o.msg);
        shell_must(w, o.kind != MGR_OUT_CLOSE, "the manager closes a connection", 0);
    }
    memset(known, 0, sizeof known);
}

/* ------------------------------------------------------------------ groups */

static void tick_if_due(struct scale *w)
{
    if (w->now_ns < w->tick_ns)
        return;
    w->tick_ns = w->now_ns + TICK_NS;
    mgr_core_tick(w->core);
}

/* Time of what is alike and stands together is taken at once: to look at the clock costs as much as a small message. */
static void handle_all(struct scale *w)
{
    struct scale_phase *ph = w->phase;
    uint64_t t0 = shell_cpu_ns(), t1;

    for (size_t i = 0; i < w->queued; i++) {
        struct scale_msg *m = &w->queue[i];

        if (m->notice)
            mgr_core_notice(w->core, m->peer->conn, m->type, m->bytes, m->len);
        else
            mgr_core_request(w->core, m->peer->conn, m->type, m->bytes, m->len, &m->reply);
        ph->in[m->type].n++;
        ph->in[m->type].bytes += m->len;
        if (i + 1 < w->queued && w->queue[i + 1].type == m->type)
            continue;
        t1 = shell_cpu_ns();
        ph->in[m->type].cpu_ns += t1 - t0;
        ph->handle_ns += t1 - t0;
        w->now_ns += t1 - t0;
        t0 = t1;
    }
}

static void checkpoint_if_due(struct scale *w)
{
    struct mgr_db *db = mgr_core_db(w->core);
    uint64_t t0;

    if (db->wal_pages <= CHECKPOINT_PAGES)
        return;
    t0 = shell_cpu_ns();
    shell_must(w, mgr_db_checkpoint_aside(w->db_path) == 0, "checkpoint", 0);
    w->phase->checkpoint_ns += shell_cpu_ns() - t0;
    t0 = shell_cpu_ns();
    shell_must(w, mgr_db_checkpoint(db, false) == 0, "checkpoint", 0);
    w->phase->end_ns += shell_cpu_ns() - t0;
    db->wal_pages = 0;
}

static void end_group(struct scale *w)
{
    struct scale_phase *ph = w->phase;
    uint64_t t0 = shell_cpu_ns(), ns;
    bool durable;
    size_t len;
    int rc;

    tick_if_due(w);
    rc = mgr_core_end(w->core, &durable);
    shell_must(w, rc == 0, "a transaction fails", rc);
    ns = shell_cpu_ns() - t0;
    ph->end_ns += ns;
    w->now_ns += ns;
    ph->groups++;
    for (size_t i = 0; i < w->queued; i++) {
        struct scale_msg *m = &w->queue[i];

        if (m->notice)
            continue;
        ns = pack(m->reply.msg, &len);
        ph->pack_ns += ns;
        w->now_ns += ns;
        ph->replies++;
        ph->reply_bytes += len;
    }
    take_outs(w);
}

/* What stands for the other side: not measured. */
static void answer_queue(struct scale *w)
{
    for (size_t i = 0; i < w->queued; i++) {
        struct scale_msg *m = &w->queue[i];

        free(m->bytes);
        if (m->notice)
            continue;
        if (m->fn)
            m->fn(m->arg, m->reply.status, m->reply.msg);
        else
            shell_must(w, m->reply.status == 0, "a request fails", m->reply.status);
    }
    w->queued = 0;
    mgr_core_reset(w->core);
}

static void answer(struct scale *w, const struct scale_msg *m)
{
    static uint64_t ids[PAGE_IDS];
    Fp__InventoryReply r = FP__INVENTORY_REPLY__INIT;
    struct scale_phase *ph = w->phase;
    uint8_t *buf = NULL;
    size_t len = 0;
    uint64_t t0, ns;

    if (m->type == FP__MSG_TYPE__MSG_INVENTORY) {
        Fp__Inventory *q = fp__inventory__unpack(NULL, m->len, m->bytes);

        r.ids = ids;
        job_inventory(w, &w->nodes[m->peer->node], q, &r, ids);
        fp__inventory__free_unpacked(q, NULL);
        len = fp__inventory_reply__get_packed_size(&r);
        buf = malloc(len + 1);
        fp__inventory_reply__pack(&r, buf);
    } else if (m->type == FP__MSG_TYPE__MSG_DELETE) {
        len = m->len; /* a list of chunks, too: all of them */
        buf = malloc(len + 1);
        memcpy(buf, m->bytes, len);
    }
    t0 = shell_cpu_ns();
    mgr_core_begin(w->core, now_of(w));
    if (m->peer->conn)
        mgr_core_answer(w->core, m->peer->conn, m->type, 0, buf, len);
    ns = shell_cpu_ns() - t0;
    ph->in[m->type].n++;
    ph->in[m->type].bytes += len;
    ph->in[m->type].cpu_ns += ns;
    ph->handle_ns += ns;
    w->now_ns += ns;
    free(buf);
    end_group(w);
    mgr_core_reset(w->core);
    checkpoint_if_due(w);
}

/* Each answer may be followed by another question: of inventories, the next page. */
static void answer_asked(struct scale *w)
{
    for (size_t i = 0; i < w->nasked; i++) {
        struct scale_msg m = w->asked[i];

        answer(w, &m); /* may move the list */
        free(m.bytes);
    }
    w->nasked = 0;
}

static void run(struct scale *w)
{
    uint64_t t0 = shell_cpu_ns(), ns;

    mgr_core_begin(w->core, now_of(w));
    ns = shell_cpu_ns() - t0;
    w->phase->handle_ns += ns;
    w->now_ns += ns;
    handle_all(w);
    end_group(w);
    answer_queue(w);
    checkpoint_if_due(w);
    answer_asked(w);
}

/* Mounts and benefactors that have not been heard for a second. */
static void signs_of_life(struct scale *w)
{
    uint64_t each = SECOND_NS / w->o.nodes;

    if (w->quiet)
        return;
    if (w->now_ns > w->second_ns + SECOND_NS) /* not more than one of each a second */
        w->second_ns = w->now_ns - SECOND_NS;
    while (w->second_ns + each <= w->now_ns && w->queued + 2 <= w->o.group + 1) {
        w->second_ns += each;
        job_sign_of_life(w, &w->nodes[w->due++ % w->o.nodes]);
    }
}

void shell_flush(struct scale *w)
{
    if (w->queued)
        run(w);
}

static void add(struct scale *w, struct scale_peer *from, uint16_t type, const ProtobufCMessage *msg, bool notice)
{
    struct scale_msg *m = &w->queue[w->queued++];

    *m = (struct scale_msg){.peer = from, .type = type, .notice = notice, .len = msg ? protobuf_c_message_get_packed_size(msg) : 0};
    m->bytes = malloc(m->len + 1);
    if (msg)
        protobuf_c_message_pack(msg, m->bytes);
}

void shell_send(struct scale *w, struct scale_peer *from, uint16_t type, const void *msg, scale_reply_fn fn, void *arg)
{
    add(w, from, type, msg, false);
    w->queue[w->queued - 1].fn = fn;
    w->queue[w->queued - 1].arg = arg;
    if (w->queued < w->o.group)
        return;
    run(w);
    signs_of_life(w);
}

void shell_notice(struct scale *w, struct scale_peer *from, uint16_t type, const void *msg)
{
    add(w, from, type, msg, true);
    if (w->queued >= w->o.group)
        run(w);
}

void shell_connect(struct scale *w, struct scale_peer *p)
{
    p->conn = mgr_core_conn_new(w->core, p);
}

void shell_lost(struct scale *w, struct scale_peer *p)
{
    uint64_t t0, ns;

    shell_flush(w);
    t0 = shell_cpu_ns();
    mgr_core_begin(w->core, now_of(w));
    mgr_core_conn_lost(w->core, p->conn);
    p->conn = NULL;
    ns = shell_cpu_ns() - t0;
    w->phase->handle_ns += ns;
    w->now_ns += ns;
    end_group(w);
    mgr_core_reset(w->core);
}

void shell_wait(struct scale *w, uint64_t ms)
{
    uint64_t until = w->now_ns + ms * 1000000;

    shell_flush(w);
    while (w->now_ns < until) {
        w->now_ns += TICK_NS / 4;
        signs_of_life(w);
        run(w);
    }
}
