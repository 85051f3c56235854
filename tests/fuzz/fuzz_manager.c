/*
 * Every message that the manager takes, in any order, of clients, benefactors and programs that are neither.
 *
 * The core (manager/core.h) with a database in memory, two clients, two benefactors, a control program and a stranger. An input is a
 * list of steps: a request or notice on one of the connections, an answer of a benefactor to what the core asked of it, a lost
 * connection, time that goes by, a transaction that fails. Several steps may be one group. At the end the database must agree with itself
 * (fix_check) and the core with the database.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fuzz/kinds.h"
#include "tests/unit/mgr_fixture.h"

#define STEPS_MAX 48
#define CONNS     6
#define ASKED_MAX 8

static const struct fuzz_kind *const *kinds;
static size_t nkinds;

struct world {
    struct mgr_core *core;
    struct mgr_now now;
    struct mgr_conn *conn[CONNS];
    struct fuzz_pool pool;
    struct asked {
        struct mgr_conn *conn;
        uint16_t type;
    } asked[ASKED_MAX];
    size_t nasked;
    bool open; /* a group */
    uint8_t buf[8192];
};

static void begin(struct world *w)
{
    if (w->open)
        return;
    w->now.ms += 1;
    w->now.ns += 1000000;
    mgr_core_begin(w->core, w->now);
    w->open = true;
}

static void forget(struct world *w, struct mgr_conn *conn)
{
    size_t n = 0;

    for (size_t i = 0; i < w->nasked; i++)
        if (w->asked[i].conn != conn)
            w->asked[n++] = w->asked[i];
    w->nasked = n;
}

static void end(struct world *w)
{
    struct mgr_out o;
    bool durable, closing[CONNS] = {false};

    if (!w->open)
        return;
    mgr_core_end(w->core, &durable);
    while (mgr_core_out_next(w->core, &o)) {
        size_t at = (size_t)((struct mgr_conn **)o.user - w->conn);

        FUZZ_CHECK(at < CONNS && w->conn[at]);
        if (o.msg)
            FUZZ_CHECK(protobuf_c_message_get_packed_size(o.msg) < UINT32_MAX);
        if (o.kind == MGR_OUT_CALL && w->nasked < ASKED_MAX)
            w->asked[w->nasked++] = (struct asked){w->conn[at], o.type};
        closing[at] |= o.kind == MGR_OUT_CLOSE;
    }
    mgr_core_reset(w->core);
    w->open = false;
    for (size_t i = 0; i < CONNS; i++)
        if (closing[i]) {
            begin(w);
            forget(w, w->conn[i]);
            mgr_core_conn_lost(w->core, w->conn[i]);
            w->conn[i] = mgr_core_conn_new(w->core, &w->conn[i]);
        }
    if (w->open)
        end(w);
}

static void request(struct world *w, struct mgr_conn *conn, uint16_t type, const uint8_t *msg, size_t len, struct mgr_reply *r)
{
    memset(r, 0, sizeof *r);
    mgr_core_request(w->core, conn, type, msg, len, r);
    FUZZ_CHECK(r->status <= 0);
    if (r->msg) { /* what it answers can be sent and read */
        size_t n = protobuf_c_message_get_packed_size(r->msg);
        uint8_t *out = malloc(n + 1);

        FUZZ_CHECK(protobuf_c_message_pack(r->msg, out) == n);
        free(out);
    }
}

static void hello(struct world *w, size_t at, Fp__Role role, uint8_t uuid_byte)
{
    Fp__Hello h = FP__HELLO__INIT;
    Fp__BnfInfo i = FP__BNF_INFO__INIT;
    struct mgr_reply r;
    uint8_t uuid[16];

    memset(uuid, uuid_byte, sizeof uuid);
    h.protocol = 1;
    h.role = role;
    h.node = at % 2 ? "n2" : "n1";
    h.mountpoint = "/mnt";
    i.uuid = (ProtobufCBinaryData){16, uuid};
    i.node = h.node;
    i.addr = "127.0.0.1:1";
    i.capacity_bytes = i.free_bytes = 1u << 30;
    i.state = FP__BNF_STATE__BNF_OK;
    if (role == FP__ROLE__ROLE_BENEFACTOR)
        h.benefactor = &i;
    begin(w);
    request(w, w->conn[at], FP__MSG_TYPE__MSG_HELLO, w->buf, fp__hello__pack(&h, w->buf), &r);
    FUZZ_CHECK(r.status == 0);
    if (role == FP__ROLE__ROLE_CLIENT)
        w->pool.session[at] = ((const Fp__HelloReply *)r.msg)->session;
    end(w);
}

static void start(struct world *w)
{
    struct mgr_core_opts o = {.store_uuid = {1, 2, 3}, .cache_bytes = 1u << 20};
    char why[MGR_DB_WHY_MAX];

    w->now = (struct mgr_now){.ms = 1000, .ns = 1700000000 * INT64_C(1000000000)};
    w->pool = (struct fuzz_pool){.ino_max = 8, .chunk_max = 6};
    FUZZ_CHECK(mgr_core_new(&w->core, ":memory:", &o, w->now, why) == 0);
    for (size_t i = 0; i < CONNS; i++)
        w->conn[i] = mgr_core_conn_new(w->core, &w->conn[i]);
    hello(w, 2, FP__ROLE__ROLE_BENEFACTOR, 7);
    hello(w, 3, FP__ROLE__ROLE_BENEFACTOR, 8);
    hello(w, 0, FP__ROLE__ROLE_CLIENT, 0);
    hello(w, 1, FP__ROLE__ROLE_CLIENT, 0);
    hello(w, 4, FP__ROLE__ROLE_CONTROL, 0);
    w->pool.session[2] = 0;
    w->pool.session[3] = 77;
}

/* An answer to the oldest question, or to one that was never asked. */
static void answer(struct world *w, struct fuzz_in *in)
{
    struct asked q = {w->conn[2], FP__MSG_TYPE__MSG_DELETE};
    uint8_t how = fuzz_u8(in);
    size_t n;

    if (w->nasked > 0) {
        q = w->asked[0];
        memmove(w->asked, w->asked + 1, --w->nasked * sizeof *w->asked);
    }
    n = fuzz_message(in, fuzz_reply_of(q.type), &w->pool, w->buf, sizeof w->buf);
    mgr_core_answer(w->core, q.conn, q.type, how < 200 ? 0 : -(int)(how % 128), w->buf, n);
}

static void pass_time(struct world *w, uint8_t how)
{
    static const uint32_t ms[] = {100, 500, 1000, 2500, 4000, 30000, 61000, 130000};

    w->now.ms += ms[how % 8];
    w->now.ns += (int64_t)ms[how % 8] * 1000000;
    begin(w);
    mgr_core_tick(w->core);
}

static void step(struct world *w, struct fuzz_in *in)
{
    uint8_t what = fuzz_u8(in), who = fuzz_u8(in);
    size_t at = who < 180 ? who % 2 : who % CONNS;
    const struct fuzz_kind *k = kinds[what % nkinds];
    struct mgr_reply r = {0};
    size_t n;

    begin(w);
    if (what < 220) {
        n = fuzz_message(in, k->msg, &w->pool, w->buf, sizeof w->buf);
        if (!(k->to & NOTICE) == (who == 179))
            mgr_core_notice(w->core, w->conn[at], k->type, w->buf, n);
        else
            request(w, w->conn[at], k->type, w->buf, n, &r);
        if (r.close)
            what = 240; /* as the shell does */
    } else if (what < 230) {
        answer(w, in);
    } else if (what < 240) {
        end(w);
        pass_time(w, who);
    } else if (what >= 252) {
        mgr_doom(w->core, -EIO);
        end(w);
    }
    if (what >= 240 && what < 252) {
        end(w);
        begin(w);
        forget(w, w->conn[at]);
        mgr_core_conn_lost(w->core, w->conn[at]);
        w->conn[at] = mgr_core_conn_new(w->core, &w->conn[at]);
    }
    if (fuzz_u8(in) < 240)
        end(w);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct fuzz_in in = {data, data + len};
    struct world *w = calloc(1, sizeof *w);
    struct fix f = {0};

    nkinds = fuzz_kinds_of(TO_MANAGER, &kinds);
    start(w);
    for (int i = 0; i < STEPS_MAX && fuzz_left(&in) > 0; i++)
        step(w, &in);
    end(w);
    if (w->core->reload) { /* until its next group the core remembers what the one that failed did */
        begin(w);
        end(w);
    }
    f.core = w->core;
    fix_check(&f);
    mgr_core_free(w->core);
    free(w);
    return 0;
}
