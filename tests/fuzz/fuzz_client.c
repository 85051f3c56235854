/*
 * What a manager says to a mount, asked or not, in any order: hellos, answers, recalls, grants, tables, lost connections.
 *
 * The real link, requests, locks, names and early answers of fp-mount (client/mgr_link.c, mgr_call.c, locks.c, early.c, names.c, inode.c) over the
 * connections of wire.h; the core loop is a function of this harness. The mount has files open, asks for things in every way that there is, wants
 * locks, and is told what the input says: right answers to what was asked, messages of any other type, fields that make no sense. At the end every
 * request has been answered exactly once (a lasting one may be told twice), every lock request has ended, and everything is freed.
 *
 * Data, which is written behind threads, is fuzz_replies' matter.
 */
#include <errno.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "client/append.h"
#include "client/core_int.h"
#include "client/data.h"
#include "client/early.h"
#include "client/inode.h"
#include "client/locks.h"
#include "client/lockwork.h"
#include "fp/clock.h"
#include "fp/err.h"
#include "tests/fuzz/kinds.h"
#include "tests/fuzz/wire.h"

#define STEPS_MAX 48
#define ASKS_MAX  64
#define FILES     4
#define LOCKS_MAX 32

struct ask {
    bool lasting, over;
    unsigned told;
};

static struct {
    struct cl_mount m;
    struct cl_core core;
    struct wire_conn *conn;
    struct fuzz_pool pool;
    struct ask ask[ASKS_MAX];
    unsigned nasks, nlocks, locks_over;
    struct cl_handle file[FILES];
    struct cl_work *work, **work_end;
    bool interrupted, stop_asked;
    uint8_t buf[8192];
} x;

/* -------------------------------------------------------------- threads, which are not there */

struct cl_lockwork *__wrap_cl_lockwork_new(void);
void __wrap_cl_lockwork_stop(struct cl_lockwork *q);
void __wrap_cl_lockwork_free(struct cl_lockwork *q);
bool __wrap_cl_lockwork_at(struct cl_lockwork *q, uint64_t at_ms, struct cl_work *w, void (*fn)(struct cl_work *w));
bool __wrap_cl_lockwork_blocking(struct cl_lockwork *q, struct cl_work *w, void (*fn)(struct cl_work *w));
int __real_sem_wait(sem_t *s);
int __wrap_sem_wait(sem_t *s);
void __wrap_cl_shutdown_request(void);
void __wrap_cl_process_place(Fp__Place *out);

struct cl_lockwork *__wrap_cl_lockwork_new(void)
{
    return (struct cl_lockwork *)(void *)&x;
}

static void run_work(void)
{
    for (unsigned i = 0; i < 100 && x.work; i++) {
        struct cl_work *w = x.work;

        x.work = w->next;
        if (!x.work)
            x.work_end = &x.work;
        w->fn(w);
    }
}

void __wrap_cl_lockwork_stop(struct cl_lockwork *q)
{
    (void)q;
    run_work();
}

void __wrap_cl_lockwork_free(struct cl_lockwork *q)
{
    (void)q;
}

bool __wrap_cl_lockwork_at(struct cl_lockwork *q, uint64_t at_ms, struct cl_work *w, void (*fn)(struct cl_work *w))
{
    (void)q, (void)at_ms;
    w->fn = fn;
    w->next = NULL;
    *x.work_end = w;
    x.work_end = &w->next;
    return true;
}

bool __wrap_cl_lockwork_blocking(struct cl_lockwork *q, struct cl_work *w, void (*fn)(struct cl_work *w))
{
    return __wrap_cl_lockwork_at(q, 0, w, fn);
}

/* One turn of the core loop. */
static void turn(void)
{
    struct cl_core *c = &x.core;
    struct cl_item *item = c->inbox_head;

    c->inbox_head = c->inbox_tail = NULL;
    while (item) {
        struct cl_item *next = item->next;

        item->fn(item->arg);
        item = next;
    }
    cl_requests_pump(c);
    wire_turn();
}

int __wrap_sem_wait(sem_t *s)
{
    for (int i = 0; i < 100 && sem_trywait(s) < 0; i++)
        turn();
    return 0;
}

void __wrap_cl_shutdown_request(void)
{
    x.stop_asked = true;
}

void __wrap_cl_process_place(Fp__Place *out)
{
    fp__place__init(out);
}

/* -------------------------------------------------------------- what it asks */

static void on_answer(void *arg, int status, const ProtobufCMessage *reply)
{
    struct ask *a = arg;

    FUZZ_CHECK(status <= 0 && (reply != NULL) == (status == 0));
    FUZZ_CHECK(!a->over);
    a->told++;
    a->over = !(a->lasting && status == FP_EDEADLINE && a->told == 1);
}

static bool interrupted(void *arg)
{
    (void)arg;
    return x.interrupted;
}

/* What the kernel gives: names are not empty. */
static bool has_names(const ProtobufCMessage *msg)
{
    for (unsigned i = 0; i < msg->descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *f = &msg->descriptor->fields[i];

        if (f->type == PROTOBUF_C_TYPE_BYTES && f->label != PROTOBUF_C_LABEL_REPEATED &&
            ((const ProtobufCBinaryData *)(const void *)((const char *)msg + f->offset))->len == 0)
            return false;
    }
    return true;
}

static void ask(struct fuzz_in *in, uint8_t who)
{
    const struct fuzz_kind *const *kinds;
    size_t nkinds = fuzz_kinds_of(TO_MANAGER, &kinds);
    const struct fuzz_kind *q = kinds[fuzz_below(in, (uint32_t)nkinds)];
    size_t n = fuzz_message(in, q->msg, &x.pool, x.buf, sizeof x.buf);
    ProtobufCMessage *msg = protobuf_c_message_unpack(q->msg, NULL, n, x.buf);
    struct ask *a = &x.ask[x.nasks];

    if (!msg || x.nasks == ASKS_MAX || !has_names(msg) || q->to & NOTICE || q->type == FP__MSG_TYPE__MSG_HELLO) {
        if (msg)
            protobuf_c_message_free_unpacked(msg, NULL);
        return;
    }
    x.nasks++;
    who %= 8;
    if (who <= 2 && who > 0 && !protobuf_c_message_descriptor_get_field_by_name(q->msg, "slot"))
        who = 7; /* what is told early is a change */
    a->lasting = who <= 1 || who == 6;
    switch (who) {
    case 0: cl_mgr_call_lasting(&x.m, q->type, msg, on_answer, a); break;
    case 1: cl_mgr_call_early_lasting(&x.m, q->type, msg, on_answer, a); break;
    case 2: cl_mgr_call_early(&x.m, q->type, msg, interrupted, on_answer, a); break;
    case 3: cl_mgr_call_answered(&x.m, q->type, msg, on_answer, a); break;
    case 4: cl_mgr_call_answered_soon(&x.m, q->type, msg, on_answer, a); break;
    case 5: cl_mgr_call_intr(&x.m, q->type, msg, interrupted, on_answer, a); break;
    case 6: cl_mgr_call_known(&x.m, q->type, msg, on_answer, a); break;
    default: cl_mgr_call(&x.m, q->type, msg, on_answer, a); break;
    }
    protobuf_c_message_free_unpacked(msg, NULL);
}

static void on_locked(struct cl_lock_op *op, int status, const Fp__Attr *a)
{
    FUZZ_CHECK(status <= 0 && op->arg == &x);
    x.locks_over++;
    if (a && op->h)
        cl_data_locked(&x.m, op->h->inode, a);
}

static bool lock_interrupted(struct cl_lock_op *op)
{
    (void)op;
    return x.interrupted;
}

static void lock(struct fuzz_in *in, uint8_t who)
{
    const struct cl_handle *h = &x.file[who % FILES];
    struct cl_lock_op *op;

    if (who >= 220) {
        cl_locks_release(&x.m, h);
        return;
    }
    if (who >= 200)
        cl_locks_forget(&x.m, h->inode->ino, (Fp__LockKind)(who % 3), fuzz_u8(in) % 4);
    if (x.nlocks == LOCKS_MAX)
        return;
    x.nlocks++;
    op = calloc(1, sizeof *op);
    fp__lock__init(&op->msg);
    op->m = &x.m;
    op->h = who & 4 ? h : NULL;
    op->msg.ino = h->inode->ino;
    op->msg.kind = (Fp__LockKind)(fuzz_u8(in) % 3);
    op->msg.exclusive = fuzz_u8(in) & 1;
    op->msg.owner = 1 + fuzz_u8(in) % 3;
    op->msg.start = fuzz_u8(in);
    op->msg.end = op->msg.start + fuzz_u8(in);
    op->msg.wait = who & 8;
    op->done = on_locked;
    op->interrupted = who & 16 ? lock_interrupted : NULL;
    op->arg = &x;
    cl_locks_ask(op);
}

/* Programs are told of a file made, or removed, before the manager knows. */
static void early(struct fuzz_in *in, uint8_t who)
{
    Fp__MkNod msg = FP__MK_NOD__INIT;
    Fp__Unlink un = FP__UNLINK__INIT;
    Fp__Attr a = FP__ATTR__INIT;
    struct cl_inode *inode;

    a.ino = 2 + who % 3;
    a.mode = 040755;
    if (who & 128) {
        cl_names_made(&a);
        cl_early_want(&x.m, a.ino);
    }
    if (!cl_early_begin(&x.m))
        return;
    msg.parent = un.parent = a.ino;
    msg.name = (ProtobufCBinaryData){1, (uint8_t *)(who & 8 ? "a" : "b")};
    un.name = msg.name;
    a = (Fp__Attr)FP__ATTR__INIT;
    a.ino = who & 64 ? fuzz_u8(in) : cl_early_ino(&x.m);
    un.ino = a.ino;
    a.mode = msg.mode = 0100644;
    if (who & 64) {
        (void)cl_early_unlink(&x.m, &un, NULL, NULL);
    } else if (a.ino && (inode = cl_inode_intern(&x.m, &a))) {
        msg.ino = a.ino;
        if (!inode->creating)
            (void)cl_early_create(&x.m, inode, &msg, NULL, NULL);
        cl_inode_put(&x.m, inode);
    }
    cl_early_end(&x.m);
}

/* -------------------------------------------------------------- what it is told */

static void hello(struct fuzz_in *in, uint8_t how)
{
    Fp__HelloReply r = FP__HELLO_REPLY__INIT;
    uint8_t uuid[16];
    size_t n;

    memset(uuid, 1, sizeof uuid);
    if (x.core.uuid_known)
        memcpy(uuid, x.m.store_uuid, sizeof uuid);
    r.store_uuid = (ProtobufCBinaryData){16, uuid};
    r.session = how & 128 ? 9 : how & 8 ? 8 : 7;
    r.session_is_new = how & 16;
    r.root_ino = 1;
    r.chunk_size_bytes = 1u << 20;
    r.slots = how & 1 ? 1 : 8;
    r.alone = how & 2;
    r.wait = how % 64 == 63;
    r.wait_for = (char *)"n2:/mnt";
    r.session_timeout_ms = 30000;
    r.lease_time = how & 32 ? 5 : 6;
    r.unsynced_life = how & 64 ? 9 : 10;
    n = how < 250 ? fp__hello_reply__pack(&r, x.buf) : fuzz_message(in, &fp__hello_reply__descriptor, &x.pool, x.buf, sizeof x.buf);
    wire_answer(x.conn, 0, x.buf, n);
}

static void answer(struct fuzz_in *in, uint8_t who)
{
    uint16_t type = x.conn ? wire_asked(x.conn) : 0;
    static const int bad[] = {-EIO, -ENOENT, FP_ERECALL, FP_EPUBLISHING, -EINTR, -EMSGSIZE, FP_ESESSION, FP_EBADMSG_TYPE};
    size_t n;

    if (type == 0)
        return;
    if (type == FP__MSG_TYPE__MSG_HELLO) {
        hello(in, who);
        return;
    }
    if (who < 200 && type == FP__MSG_TYPE__MSG_INODES) {
        Fp__InodesReply r = FP__INODES_REPLY__INIT;

        r.first = 100;
        r.count = who;
        n = fp__inodes_reply__pack(&r, x.buf);
    } else {
        n = fuzz_message(in, fuzz_reply_of(type), &x.pool, x.buf, sizeof x.buf);
    }
    wire_answer(x.conn, who >= 200 ? bad[who % 8] : 0, x.buf, n);
}

/* A grant of a lock that may have been asked for. */
static void grant(struct fuzz_in *in)
{
    Fp__LockGrant g = FP__LOCK_GRANT__INIT;
    Fp__Attr a = FP__ATTR__INIT;

    g.ticket = fuzz_u8(in) % 12;
    g.status = fuzz_u8(in) < 200 ? 0 : -(int)(fuzz_u8(in) % 100);
    a.ino = 10 + fuzz_u8(in) % FILES;
    a.data_version = fuzz_number(in);
    if (fuzz_u8(in) < 220)
        g.attr = &a;
    wire_request(x.conn, FP__MSG_TYPE__MSG_LOCK_GRANT, true, x.buf, fp__lock_grant__pack(&g, x.buf), NULL, 0, false);
}

static void told(struct fuzz_in *in, uint8_t who)
{
    const struct fuzz_kind *const *kinds;
    size_t nkinds = fuzz_kinds_of(who % 32 == 29 ? ~0u : TO_CLIENT, &kinds), n;
    const struct fuzz_kind *k = kinds[fuzz_below(in, (uint32_t)nkinds)];

    if (!x.conn)
        return;
    if (who >= 128) {
        grant(in);
        return;
    }
    n = fuzz_message(in, k->msg, &x.pool, x.buf, sizeof x.buf);
    wire_request(x.conn, k->type, who & 1, x.buf, n, NULL, 0, false);
}

static void connection(uint8_t who)
{
    if (wire_connecting()) {
        x.conn = wire_connecting();
        if (who < 240) {
            wire_up(x.conn);
            return;
        }
        wire_close(x.conn, who & 1 ? -ECONNREFUSED : FP_EAUTH);
    } else if (x.conn && who < 200) {
        wire_close(x.conn, FP_EPEER_GONE);
    } else {
        wire_timer_fire(who % 3);
    }
}

static void tick(void)
{
    uint64_t now_ms = fp_now_ms();

    cl_requests_tick(&x.core, now_ms);
    cl_locks_tick(&x.m, now_ms);
    cl_early_tick(&x.core);
}

static void step(struct fuzz_in *in)
{
    uint8_t what = fuzz_u8(in), who = fuzz_u8(in);

    if (x.conn && !wire_is_up(x.conn) && !wire_connecting())
        x.conn = NULL;
    if (what < 50)
        told(in, who);
    else if (what < 120)
        answer(in, who);
    else if (what < 160)
        ask(in, who);
    else if (what < 185)
        lock(in, who);
    else if (what < 205)
        early(in, who);
    else if (what < 222)
        connection(who);
    else if (what < 232)
        wire_pass_ms(who * UINT64_C(100));
    else if (what < 236)
        x.interrupted = who & 1;
    else if (what < 240)
        cl_mgr_fail_interruptible(&x.m, -EINTR);
    else if (what < 243)
        cl_mgr_fail_lasting(&x.m, FP_ESTOPPING);
    else if (what < 248)
        x.core.data_runs = !x.core.data_runs;
    else if (what < 252)
        cl_inode_hold(&x.m, x.file[who % FILES].inode, who & 1), cl_mgr_release(&x.m, x.file[who % FILES].inode, who & 1, who & 2);
    else
        run_work();
    if (what & 1)
        tick();
    turn();
    FUZZ_CHECK(wire_unanswered() <= 1); /* MSG_ALONE, until what it ends has ended */
}

/* -------------------------------------------------------------- start and end */

static void start(struct fuzz_in *in, uint8_t how)
{
    static int wake_fd = -1;
    struct cl_core *c = &x.core;

    memset(&x, 0, offsetof(__typeof__(x), buf));
    wire_reset();
    if (wake_fd < 0)
        wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    x.work_end = &x.work;
    x.pool = (struct fuzz_pool){.session = {7, 7, 8, 0}, .ino_max = 14, .chunk_max = 6};
    x.m.core = c;
    x.m.opt.node = "n1";
    x.m.opt.mountpoint = "/mnt";
    x.m.opt.key = "k";
    memcpy(x.m.opt.manager_text, "m:1", 4);
    x.m.opt.manager_timeout_ms = 10000;
    x.m.opt.io_timeout_ms = 1000;
    x.m.opt.close_mode = how & 1 ? CL_CLOSE_BEHIND : 0;
    c->m = &x.m;
    c->wake_fd = wake_fd;
    pthread_mutex_init(&c->loop_lock, NULL);
    pthread_mutex_init(&c->inbox_lock, NULL);
    pthread_mutex_init(&c->release_lock, NULL);
    pthread_mutex_init(&c->start_lock, NULL);
    pthread_cond_init(&c->start_cond, NULL);
    c->tick.data = c->retry.data = c->release.data = c;
    cl_calls_init(&c->calls);
    cl_early_init(c);
    cl_names_clear();
    FUZZ_CHECK(cl_itable_new(&x.m.inodes) == 0 && cl_data_new(&x.m) == 0 && cl_locks_new(&x.m) == 0);
    c->start_deadline_ms = fp_now_ms() + 100000;
    pthread_mutex_lock(&c->loop_lock); /* as its thread does: nobody else sends */
    if (how & 2)
        pthread_mutex_unlock(&c->loop_lock);
    for (size_t i = 0; i < FILES; i++) {
        Fp__Attr a = FP__ATTR__INIT;

        a.ino = 10 + i;
        a.mode = 0100644;
        a.nlink = 1;
        x.file[i].inode = cl_inode_intern(&x.m, &a);
        FUZZ_CHECK(x.file[i].inode && cl_data_open(&x.m, &x.file[i], &a) == 0);
        cl_inode_hold(&x.m, x.file[i].inode, true);
    }
    cl_link_connect(c);
    if (how & 4)
        return;
    x.conn = wire_connecting();
    wire_up(x.conn);
    hello(in, how & 8 ? 2 : 0);
    c->data_runs = true;
    turn();
}

/* The manager comes again, has forgotten the session, and answers everything. */
static void answer_all(void)
{
    if (x.conn)
        wire_close(x.conn, FP_EPEER_GONE);
    if (wire_connecting())
        wire_close(wire_connecting(), FP_EPEER_GONE);
    turn();
    wire_timer_fire_of(&x.core.retry);
    x.conn = wire_connecting();
    FUZZ_CHECK(x.conn);
    wire_up(x.conn);
    FUZZ_CHECK(wire_asked(x.conn) == FP__MSG_TYPE__MSG_HELLO);
    hello(&(struct fuzz_in){0}, 128);
    for (int i = 0; i < 200; i++) {
        if (wire_asked(x.conn))
            wire_answer(x.conn, -EIO, NULL, 0);
        turn();
        if (i % 16 == 0 && i < 128) { /* not at the end: what is asked then is to be answered yet */
            wire_pass_ms(1000); /* what was refused is asked again */
            tick();
        }
    }
}

/* As the mount ends: what was asked has been answered, or is given up. */
static void end(void)
{
    struct cl_core *c = &x.core;

    x.interrupted = true;
    cl_locks_stop(&x.m, FP_ESTOPPING);
    cl_mgr_fail_lasting(&x.m, FP_ESTOPPING);
    cl_mgr_fail_interruptible(&x.m, FP_ESTOPPING);
    answer_all();
    c->stopping = true;
    wire_close(x.conn, 0);
    turn();
    FUZZ_CHECK(c->calls.count == 0);
    for (unsigned i = 0; i < x.nasks; i++)
        FUZZ_CHECK(x.ask[i].over);
    FUZZ_CHECK(x.locks_over == x.nlocks);
    run_work();
    cl_locks_free(&x.m);
    for (size_t i = 0; i < FILES; i++)
        cl_inode_put(&x.m, x.file[i].inode);
    cl_itable_free(&x.m);
    cl_data_free(&x.m);
    free(c->releases);
    FUZZ_CHECK(wire_left() == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct fuzz_in in = {data, data + len};

    start(&in, fuzz_u8(&in));
    for (int i = 0; i < STEPS_MAX && fuzz_left(&in) > 0; i++)
        step(&in);
    end();
    return 0;
}
