/*
 * Every message that a benefactor takes, in any order: of mounts on its node, of mounts elsewhere, of the manager, of strangers.
 *
 * The real servers (local.c, remote.c, manager_link.c) over the real service and store; connections are those of wire.h, disk operations run
 * when and in the order the input says, and segments are files in memory whose operations fail when the input says so. Chunk n is filled with a
 * byte of its own. What was acknowledged and not deleted must be there and be right at every read and at the end; each request is answered once, and
 * when everybody has gone no lease and no buffer is left.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "benefactor/local.h"
#include "benefactor/manager_link.h"
#include "benefactor/remote.h"
#include "benefactor/service_impl.h"
#include "fp.pb-c.h"
#include "fp/checksum.h"
#include "fp/err.h"
#include "fp/fdlink.h"
#include "tests/fuzz/kinds.h"
#include "tests/fuzz/memfile.h"
#include "tests/fuzz/wire.h"

#define STEPS_MAX 48
#define TASKS_MAX 256
#define PEERS     2
#define SEGMENTS  16
#define LEASES    4
#define CHUNKS    12u
#define DATA_MAX  (80u << 10)

struct bnf_disk {
    struct bnf_task *task[TASKS_MAX];
    size_t n;
};

struct fp_fdlink_peer {
    unsigned refs;
    void *data;
    bool up;
    uint64_t last_id;
    bool open[256];
};

static struct {
    struct fuzz_in *in;
    struct bnf_backend backend;
    struct bnf_disk disk;
    struct bnf_service *service;
    struct bnf_remote *remote;
    struct bnf_local *local;
    struct bnf_manager_link *manager;
    struct wire_conn *to_manager, *conn[2];
    const struct fp_fdlink_handler *local_handler;
    void *local_arg;
    struct fp_fdlink_peer peer[PEERS];
    struct bnf_file *segment[SEGMENTS];
    struct fuzz_pool pool;
    struct {
        uint64_t lease, next; /* next: where nothing was written yet */
        size_t peer;
        Fp__Extent x;
    } held[LEASES]; /* by a mount of this node, perhaps not any more */
    unsigned nheld, nleases, nsegments;
    /* by chunk & 15: */
    bool acked[16], lied[16], gone[16];
    uint8_t write_of[2][256], stored_of[PEERS][256]; /* by request: which of these + 1 */
    unsigned fails; /* so many operations of the back end fail */
    bool drained, stop_asked;
    uint8_t buf[4096], data[DATA_MAX];
} x;

static uint64_t chunk_id(unsigned k)
{
    return (uint64_t)(1 + k % 2) << 32 | (1 + k % CHUNKS);
}

static uint8_t byte_of(uint64_t chunk)
{
    return (uint8_t)(chunk * 37 + 5);
}

static bool is_filled(const uint8_t *p, size_t n, uint8_t byte)
{
    return n == 0 || (p[0] == byte && memcmp(p, p + 1, n - 1) == 0);
}

/* -------------------------------------------------------------- the back end */

static bool fails(void)
{
    if (x.fails == 0)
        return false;
    x.fails--;
    return true;
}

static int be_create(struct bnf_backend *b, const struct fp_segment_header *h, struct bnf_file **out)
{
    uint8_t header[FP_SEGMENT_HEADER_BYTES];
    int fd;

    (void)b;
    if (fails())
        return -ENOSPC;
    fd = memfile_new();
    fp_segment_header_encode(h, header);
    memfile_write(fd, header, sizeof header, 0);
    *out = bnf_file_new(fd, false, h->id, h->salt, h->limit_bytes);
    FUZZ_CHECK(*out);
    x.pool.segment[x.nsegments % 4] = h->id;
    for (size_t i = 1; i < 4 && x.nsegments == 0; i++)
        x.pool.segment[i] = h->id + i;
    if (x.nsegments < SEGMENTS)
        x.segment[x.nsegments++] = bnf_file_get(*out);
    return 0;
}

static int be_alloc(struct bnf_backend *b, struct bnf_file *f, uint64_t off_bytes, uint64_t len_bytes)
{
    (void)b;
    FUZZ_CHECK(f && off_bytes + len_bytes <= f->limit_bytes && memfile_is(f->fd));
    return fails() ? -ENOSPC : 0;
}

static int be_punch(struct bnf_backend *b, struct bnf_file *f, uint64_t off_bytes, uint64_t len_bytes)
{
    (void)b;
    FUZZ_CHECK(off_bytes >= FP_SEGMENT_HEADER_BYTES && off_bytes + len_bytes <= f->limit_bytes);
    memfile_punch(f->fd, off_bytes, len_bytes);
    return fails() ? -EIO : 0;
}

static int be_simple(struct bnf_backend *b, struct bnf_file *f)
{
    (void)b, (void)f;
    return fails() ? -EIO : 0;
}

static int be_device_free(struct bnf_backend *b, uint64_t *bytes)
{
    (void)b;
    *bytes = x.fails & 1 ? 5u << 20 : 1u << 30;
    return fails() ? -EIO : 0;
}

static int be_probe(struct bnf_backend *b)
{
    (void)b;
    return fails() ? -EIO : 0;
}

static const struct bnf_backend_ops be_ops = {.name = "fuzz", .create = be_create, .alloc = be_alloc, .punch = be_punch, .unlink = be_simple,
                                              .sync = be_simple, .device_free = be_device_free, .probe = be_probe};

/* -------------------------------------------------------------- the disk */

int __wrap_bnf_disk_new(uv_loop_t *loop, unsigned threads, struct bnf_disk **out);
void __wrap_bnf_disk_submit(struct bnf_disk *d, struct bnf_task *task);
size_t __wrap_bnf_disk_pending(const struct bnf_disk *d);
unsigned __wrap_bnf_disk_look(struct bnf_disk *d);
void __wrap_bnf_disk_free(struct bnf_disk *d);

int __wrap_bnf_disk_new(uv_loop_t *loop, unsigned threads, struct bnf_disk **out)
{
    (void)loop, (void)threads;
    *out = &x.disk;
    return 0;
}

void __wrap_bnf_disk_submit(struct bnf_disk *d, struct bnf_task *task)
{
    FUZZ_CHECK(d->n < TASKS_MAX);
    d->task[d->n++] = task;
}

size_t __wrap_bnf_disk_pending(const struct bnf_disk *d)
{
    return d->n;
}

unsigned __wrap_bnf_disk_look(struct bnf_disk *d)
{
    return d->n > 0 && x.fails > 3 ? 12 : 0;
}

void __wrap_bnf_disk_free(struct bnf_disk *d)
{
    FUZZ_CHECK(d->n == 0);
}

static void run_task(size_t at)
{
    struct bnf_task *t = x.disk.task[at];

    memmove(x.disk.task + at, x.disk.task + at + 1, (--x.disk.n - at) * sizeof t);
    t->run(t);
    t->done(t);
}

static void run_all(void)
{
    while (x.disk.n > 0)
        run_task(0);
}

/* -------------------------------------------------------------- the local link */

int __wrap_fp_fdlink_listen(uv_loop_t *loop, const char *path, const struct fp_fdlink_handler *h, void *arg, struct fp_fdlink_server **out);
void __wrap_fp_fdlink_server_close(struct fp_fdlink_server *s, void (*closed)(void *arg), void *arg);
int __wrap_fp_fdlink_reply(struct fp_fdlink_peer *peer, const struct fp_fdlink_in *in, int32_t status, const ProtobufCMessage *msg, const int *fds,
                           size_t nfds);
int __wrap_fp_fdlink_reply_to(struct fp_fdlink_peer *peer, uint64_t id, uint16_t type, int32_t status, const ProtobufCMessage *msg, const int *fds,
                              size_t nfds);
struct fp_fdlink_peer *__wrap_fp_fdlink_peer_get(struct fp_fdlink_peer *peer);
void __wrap_fp_fdlink_peer_put(struct fp_fdlink_peer *peer);
void __wrap_fp_fdlink_peer_set_data(struct fp_fdlink_peer *peer, void *data);
void *__wrap_fp_fdlink_peer_data(const struct fp_fdlink_peer *peer);
pid_t __wrap_fp_fdlink_peer_pid(const struct fp_fdlink_peer *peer);

int __wrap_fp_fdlink_listen(uv_loop_t *loop, const char *path, const struct fp_fdlink_handler *h, void *arg, struct fp_fdlink_server **out)
{
    (void)loop, (void)path;
    x.local_handler = h;
    x.local_arg = arg;
    *out = (struct fp_fdlink_server *)(void *)&x;
    return 0;
}

static void peer_gone(struct fp_fdlink_peer *p)
{
    if (!p->up)
        return;
    p->up = false;
    x.local_handler->on_closed(p, FP_EPEER_GONE, x.local_arg);
}

void __wrap_fp_fdlink_server_close(struct fp_fdlink_server *s, void (*closed)(void *arg), void *arg)
{
    (void)s;
    for (size_t i = 0; i < PEERS; i++)
        peer_gone(&x.peer[i]);
    closed(arg);
}

int __wrap_fp_fdlink_reply(struct fp_fdlink_peer *peer, const struct fp_fdlink_in *in, int32_t status, const ProtobufCMessage *msg, const int *fds,
                           size_t nfds)
{
    return __wrap_fp_fdlink_reply_to(peer, in->id, in->type, status, msg, fds, nfds);
}

static void learn_lease(uint64_t id, const Fp__Extent *e, size_t peer)
{
    x.pool.lease[x.nleases++ % 4] = id;
    if (!e)
        return;
    x.held[x.nheld % LEASES].lease = id;
    x.held[x.nheld % LEASES].next = e->off;
    x.held[x.nheld % LEASES].peer = peer;
    x.held[x.nheld++ % LEASES].x = *e;
}

int __wrap_fp_fdlink_reply_to(struct fp_fdlink_peer *peer, uint64_t id, uint16_t type, int32_t status, const ProtobufCMessage *msg, const int *fds,
                              size_t nfds)
{
    FUZZ_CHECK(status <= 0 && nfds <= FP_FDLINK_FDS_MAX && peer->open[id]);
    peer->open[id] = false;
    if (!peer->up)
        return -ENOTCONN;
    for (size_t i = 0; i < nfds; i++)
        FUZZ_CHECK(memfile_is(fds[i]));
    if (status == 0 && msg)
        FUZZ_CHECK(protobuf_c_message_get_packed_size(msg) < FP_FDLINK_MSG_MAX_BYTES);
    if (status == 0 && type == FP__MSG_TYPE__MSG_LEASE) {
        const Fp__LeaseReply *r = (const Fp__LeaseReply *)msg;

        FUZZ_CHECK(nfds == 1 && r->n_extents == 1);
        learn_lease(r->lease, r->extents[0], (size_t)(peer - x.peer));
    }
    if (status == 0 && type == FP__MSG_TYPE__MSG_STORED && x.stored_of[peer - x.peer][id])
        x.acked[x.stored_of[peer - x.peer][id] - 1] = true;
    return 0;
}

struct fp_fdlink_peer *__wrap_fp_fdlink_peer_get(struct fp_fdlink_peer *peer)
{
    peer->refs++;
    return peer;
}

void __wrap_fp_fdlink_peer_put(struct fp_fdlink_peer *peer)
{
    FUZZ_CHECK(peer->refs-- > 0);
}

void __wrap_fp_fdlink_peer_set_data(struct fp_fdlink_peer *peer, void *data)
{
    peer->data = data;
}

void *__wrap_fp_fdlink_peer_data(const struct fp_fdlink_peer *peer)
{
    return peer->data;
}

pid_t __wrap_fp_fdlink_peer_pid(const struct fp_fdlink_peer *peer)
{
    (void)peer;
    return 1;
}

/* 0, or what it was answered at once. */
static void local_request(struct fp_fdlink_peer *p, uint16_t type, bool oneway, const uint8_t *msg, size_t len)
{
    struct fp_fdlink_in in = {.type = type, .flags = oneway ? FP_FRAME_ONEWAY : 0, .id = ++p->last_id, .msg_len_bytes = len};
    uint8_t *exact;

    if (!p->up || in.id >= 256) {
        p->last_id--;
        return;
    }
    exact = malloc(len ? len : 1);
    if (len > 0)
        memcpy(exact, msg, len);
    in.msg = exact;
    p->open[in.id] = !oneway;
    x.local_handler->on_request(p, &in, x.local_arg);
    free(exact);
}

/* -------------------------------------------------------------- what it answers over the network */

static void on_reply(struct wire_conn *c, const struct fp_rpc_reply *r)
{
    size_t at = 0;

    for (at = 0; at < 2 && x.conn[at] != c; at++)
        continue;
    if (at == 2)
        return;
    if (r->type == FP__MSG_TYPE__MSG_LEASE && r->status == 0)
        learn_lease(((const Fp__LeaseReply *)r->msg)->lease, NULL, 0);
    if (r->type == FP__MSG_TYPE__MSG_WRITE && r->status == 0 && x.write_of[at][r->id])
        x.acked[x.write_of[at][r->id] - 1] = true;
    if (r->type == FP__MSG_TYPE__MSG_READ && r->status == 0) {
        const Fp__ChunkReadReply *m = (const Fp__ChunkReadReply *)r->msg;

        FUZZ_CHECK(r->payload_iovcnt == 1 && r->payload->iov_len == m->len && m->len > 0);
        FUZZ_CHECK(m->off % FP_BLOCK_SIZE_BYTES == 0 && m->off + m->len <= m->chunk_len);
        FUZZ_CHECK(m->n_block_sums == fp_sum_nblocks(m->chunk_len));
        FUZZ_CHECK(fp_sum_verify(r->payload->iov_base, m->len, m->block_sums + m->off / FP_BLOCK_SIZE_BYTES) < 0);
    }
}

/* -------------------------------------------------------------- start and end */

static uint32_t bnf_id(void *arg)
{
    (void)arg;
    return 1;
}

static int on_registered(void *arg, const uint8_t store_uuid[16], uint32_t id)
{
    (void)arg, (void)id;
    bnf_service_set_store_uuid(x.service, store_uuid);
    FUZZ_CHECK(bnf_service_start(x.service) == 0);
    FUZZ_CHECK(bnf_local_new(NULL, "s", x.service, bnf_id, NULL, &x.local) == 0);
    bnf_remote_serve(x.remote, x.service);
    return 0;
}

static void on_stop(void *arg)
{
    (void)arg;
    x.stop_asked = true;
}

static void on_changed(void *arg)
{
    (void)arg;
    if (x.manager)
        bnf_manager_link_news(x.manager);
}

static void on_pressed(void *arg, bool pressed)
{
    (void)arg;
    bnf_remote_press(x.remote, pressed);
}

static void on_drained(void *arg, int status)
{
    (void)arg, (void)status;
    x.drained = true;
}

static void hello(size_t at, bool right)
{
    Fp__BnfHello m = FP__BNF_HELLO__INIT;
    uint8_t uuid[16], msg[64];

    memset(uuid, right ? 1 : 9, sizeof uuid);
    m.store_uuid = (ProtobufCBinaryData){16, uuid};
    if (at < 2)
        wire_request(x.conn[at], FP__MSG_TYPE__MSG_BNF_HELLO, false, msg, fp__bnf_hello__pack(&m, msg), NULL, 0, false);
    else
        local_request(&x.peer[at - 2], FP__MSG_TYPE__MSG_BNF_HELLO, false, msg, fp__bnf_hello__pack(&m, msg));
}

static void manager_hello(struct fuzz_in *in, uint8_t how)
{
    Fp__HelloReply r = FP__HELLO_REPLY__INIT;
    uint8_t uuid[16];
    size_t n;

    memset(uuid, how < 240 ? 1 : 2, sizeof uuid);
    r.store_uuid = (ProtobufCBinaryData){16, uuid};
    r.bnf_id = 1;
    if (how < 248)
        n = fp__hello_reply__pack(&r, x.buf);
    else
        n = fuzz_message(in, &fp__hello_reply__descriptor, &x.pool, x.buf, sizeof x.buf);
    wire_answer(x.to_manager, how == 255 ? FP_ETWIN : 0, x.buf, n);
}

static void start(struct fuzz_in *in, uint8_t how)
{
    static uv_loop_t loop;
    struct bnf_service_config c = {.loop = &loop, .backend = &x.backend, .threads = 1, .device_timeout_ms = 5000, .buffer_bytes = 3u << 20, .capacity_bytes = 80u << 20,
                                   .segment_bytes = 32u << 20, .random = 12345, .changed = on_changed, .pressed = on_pressed};
    struct bnf_manager_config m = {.loop = &loop, .manager = "m:1", .node = "n1", .port = 2, .local_path = "s", .backend = "fuzz",
                                   .start_timeout_ms = 60000, .registered = on_registered, .failed = on_stop, .stop = on_stop};

    memset(&x, 0, offsetof(__typeof__(x), buf));
    x.in = in;
    x.backend.ops = &be_ops;
    x.pool = (struct fuzz_pool){.session = {1, 2, 3, 0}, .ino_max = 8, .chunk_max = CHUNKS};
    wire_reset();
    memfile_reset();
    wire_on_reply = on_reply;
    FUZZ_CHECK(bnf_service_new(&c, &x.service) == 0);
    FUZZ_CHECK(bnf_remote_new(NULL, ":0", bnf_id, NULL, &x.remote) == 0);
    m.service = x.service;
    FUZZ_CHECK(bnf_manager_link_new(&m, &x.manager) == 0);
    x.to_manager = wire_connecting();
    if (how & 1)
        x.conn[0] = wire_accept(); /* before it is known */
    wire_up(x.to_manager);
    manager_hello(in, 0);
    for (size_t i = 0; i < 2; i++)
        x.conn[i] = x.conn[i] ? x.conn[i] : wire_accept();
    for (size_t i = 0; i < PEERS; i++)
        x.peer[i].up = true;
    hello(0, !(how & 2));
    hello(1, !(how & 4));
    hello(2, !(how & 8));
    run_all();
}

/* What was acknowledged is there, and is what it was. */
static void check_chunks(void)
{
    for (unsigned k = 1; k < 16; k++) {
        static struct fp_record_header h;
        uint8_t head[FP_RECORD_HEADER_BYTES];
        struct bnf_place at;
        uint64_t chunk = chunk_id(k - 1);
        struct bnf_file *f;

        if (!x.acked[k] || x.lied[k] || x.gone[k])
            continue;
        FUZZ_CHECK(bnf_store_find(x.service->store, chunk, &at) == 0);
        f = bnf_service_file(x.service, at.slot);
        FUZZ_CHECK(bnf_file_read(f, head, sizeof head, at.off_bytes) == 0 && fp_record_header_decode(head, &h) == 0);
        FUZZ_CHECK(h.chunk == chunk && fp_record_header_is_at(&h, f->segment, f->salt, at.off_bytes) && h.len_bytes <= DATA_MAX);
        FUZZ_CHECK(bnf_file_read(f, x.data, h.len_bytes, at.off_bytes + sizeof head) == 0 && is_filled(x.data, h.len_bytes, byte_of(chunk)));
    }
}

static void drain(void)
{
    x.drained = false;
    bnf_service_drain(x.service, 1000, on_drained, NULL);
    for (int i = 0; i < 20 && !x.drained; i++) {
        run_all();
        for (unsigned t = 0; !x.drained && wire_timer_fire(t); t++)
            continue;
    }
    FUZZ_CHECK(x.drained);
}

/* Reads wait for buffers of those that are being sent: each round answers at least one. */
static void answer_all(void)
{
    unsigned before;

    do {
        before = wire_unanswered();
        run_all();
        wire_turn();
        run_all();
    } while (wire_unanswered() > 0 && wire_unanswered() < before);
    FUZZ_CHECK(wire_unanswered() == 0);
}

static void end(void)
{
    struct bnf_space sp;

    x.fails = 0;
    answer_all();
    for (size_t p = 0; p < PEERS; p++)
        for (size_t i = 0; i < 256 && x.peer[p].up; i++)
            FUZZ_CHECK(!x.peer[p].open[i]);
    check_chunks();
    drain();
    bnf_remote_stop(x.remote);
    bnf_local_free(x.local, NULL, NULL);
    wire_turn();
    drain();
    bnf_manager_link_stop(x.manager);
    wire_turn();
    bnf_store_check(x.service->store);
    bnf_store_space(x.service->store, &sp);
    FUZZ_CHECK(sp.leased_bytes == 0 && x.service->buffers.used_bytes == 0 && x.service->ops_running == 0);
    for (size_t p = 0; p < PEERS; p++)
        FUZZ_CHECK(x.peer[p].refs == 0 && !x.peer[p].data);
    bnf_remote_free(x.remote);
    bnf_manager_link_free(x.manager);
    bnf_service_free(x.service);
    for (unsigned i = 0; i < x.nsegments; i++)
        bnf_file_put(x.segment[i]);
    FUZZ_CHECK(wire_left() == 0 && memfile_open() == 0);
}

/* -------------------------------------------------------------- steps */

/* What a message that makes no promise says of chunks. */
static void believe_less(uint16_t type, const uint8_t *msg, size_t len)
{
    if (type == FP__MSG_TYPE__MSG_STORED) {
        Fp__Stored *m = fp__stored__unpack(NULL, len, msg);

        for (size_t i = 0; m && i < m->n_records; i++)
            x.lied[m->records[i]->chunk & 15] = true;
        if (m)
            fp__stored__free_unpacked(m, NULL);
    } else if (type == FP__MSG_TYPE__MSG_DELETE) {
        Fp__ChunkList *m = fp__chunk_list__unpack(NULL, len, msg);

        for (size_t i = 0; m && i < m->n_ids; i++)
            x.gone[m->ids[i] & 15] = true;
        if (m)
            fp__chunk_list__free_unpacked(m, NULL);
    }
}

static void any_message(struct fuzz_in *in, uint8_t who)
{
    const struct fuzz_kind *const *kinds;
    size_t nkinds = fuzz_kinds_of(who % 32 == 29 ? ~0u : TO_BENEFACTOR, &kinds);
    const struct fuzz_kind *k = kinds[fuzz_below(in, (uint32_t)nkinds)];
    size_t n = fuzz_message(in, k->msg, &x.pool, x.buf, sizeof x.buf);
    size_t payload = k->type == FP__MSG_TYPE__MSG_WRITE || who >= 240 ? 1 + fuzz_u16(in) % 5000 : 0;
    bool oneway = who >= 250;

    believe_less(k->type, x.buf, n);
    memset(x.data, who, payload);
    if (who % 8 < 3)
        wire_request(x.conn[who % 2], k->type, oneway, x.buf, n, x.data, payload, who >= 220 && who < 230);
    else if (who % 8 < 6)
        local_request(&x.peer[who % PEERS], k->type, oneway, x.buf, n);
    else if (x.to_manager)
        wire_request(x.to_manager, k->type, oneway, x.buf, n, NULL, 0, false);
}

static void lease(struct fuzz_in *in, uint8_t who)
{
    Fp__Lease m = FP__LEASE__INIT;

    m.want_bytes = (1 + fuzz_u8(in) % 64) * (uint64_t)65536;
    m.min_bytes = who & 64 ? m.want_bytes : 4096;
    if (who & 4)
        local_request(&x.peer[who % PEERS], FP__MSG_TYPE__MSG_LEASE, false, x.buf, fp__lease__pack(&m, x.buf));
    else
        wire_request(x.conn[who % 2], FP__MSG_TYPE__MSG_LEASE, false, x.buf, fp__lease__pack(&m, x.buf), NULL, 0, false);
}

/* A chunk with its own bytes. */
static void write_chunk(struct fuzz_in *in, uint8_t who)
{
    Fp__ChunkWrite m = FP__CHUNK_WRITE__INIT;
    struct wire_conn *c = x.conn[who % 2];
    uint64_t sums[2], chunk = chunk_id(fuzz_u8(in)), id = wire_last_id(c) + 1;

    m.chunk = chunk;
    m.lease = x.pool.lease[who / 2 % 4];
    m.len = 1 + (who & 128 ? fuzz_u32(in) % DATA_MAX : fuzz_u16(in) % 5000);
    memset(x.data, byte_of(chunk), m.len);
    fp_sum_blocks(x.data, m.len, sums);
    if (who % 32 == 31)
        sums[0]++;
    m.block_sums = sums;
    m.n_block_sums = fp_sum_nblocks(m.len);
    if (id < 256)
        x.write_of[who % 2][id] = (uint8_t)((chunk & 15) + 1);
    wire_request(c, FP__MSG_TYPE__MSG_WRITE, false, x.buf, fp__chunk_write__pack(&m, x.buf), x.data, m.len, who % 32 == 30);
    if (id < 256 && wire_last_id(c) != id) /* it was not sent: the id is another request's */
        x.write_of[who % 2][id] = 0;
}

/* A record as a mount writes it through its descriptor. */
static void put_record(const Fp__Record *r, uint64_t salt, uint64_t *sum)
{
    struct fp_record_header h = {.chunk = r->chunk, .segment = r->segment, .offset = r->off, .salt = salt, .len_bytes = r->len,
                                 .stored_len_bytes = r->len};
    uint8_t *rec = aligned_alloc(4096, r->stored_bytes);

    memset(rec, 0, r->stored_bytes);
    memset(rec + FP_RECORD_HEADER_BYTES, byte_of(r->chunk), r->len);
    fp_record_header_sum(&h, rec + FP_RECORD_HEADER_BYTES);
    fp_record_header_encode(&h, rec);
    *sum = h.sum;
    for (unsigned i = 0; i < x.nsegments; i++)
        if (x.segment[i]->segment == r->segment)
            memfile_write(x.segment[i]->fd, rec, r->stored_bytes, r->off);
    free(rec);
}

/* A mount of this node has written a record, or has not, or over another, and says that it has. */
static void store_local(struct fuzz_in *in, uint8_t who)
{
    Fp__Stored m = FP__STORED__INIT;
    Fp__Record r = FP__RECORD__INIT, *list = &r;
    size_t at = who % LEASES, peer = who % 64 == 63 ? who / 64 % PEERS : x.held[at].peer;
    const Fp__Extent *e = &x.held[at].x;

    r.chunk = chunk_id(fuzz_u8(in));
    r.len = 1 + fuzz_u16(in) % 5000;
    r.stored_bytes = fp_record_size_bytes(r.len);
    r.segment = e->segment;
    r.off = who & 4 ? e->off + fuzz_u8(in) % 8 * (uint64_t)4096 : x.held[at].next;
    if (e->len == 0 || r.off + r.stored_bytes > e->off + e->len)
        return;
    for (size_t k = 0; k < 16 && r.off < x.held[at].next; k++)
        x.lied[k] = true;
    if (who & 8)
        x.lied[r.chunk & 15] = true;
    else
        put_record(&r, e->salt, &r.sum);
    if (r.off + r.stored_bytes > x.held[at].next)
        x.held[at].next = r.off + r.stored_bytes;
    m.lease = x.held[at].lease;
    m.records = &list;
    m.n_records = 1;
    if (x.peer[peer].up && x.peer[peer].last_id + 1 < 256) /* as local_request */
        x.stored_of[peer][x.peer[peer].last_id + 1] = (uint8_t)((r.chunk & 15) + 1);
    local_request(&x.peer[peer], FP__MSG_TYPE__MSG_STORED, false, x.buf, fp__stored__pack(&m, x.buf));
}

static void with_manager(struct fuzz_in *in, uint8_t who)
{
    if (wire_connecting()) {
        x.to_manager = wire_connecting();
        if (who < 200)
            wire_up(x.to_manager);
        else
            wire_close(x.to_manager, who & 1 ? -ECONNREFUSED : FP_EAUTH);
    } else if (x.to_manager && wire_asked(x.to_manager)) {
        manager_hello(in, who);
    } else if (x.to_manager && who < 128) {
        wire_close(x.to_manager, FP_EPEER_GONE);
        x.to_manager = NULL;
    } else {
        wire_timer_fire(who);
    }
}

static void come_and_go(struct fuzz_in *in, uint8_t who)
{
    size_t at = who % 4;

    if (at < 2) {
        wire_close(x.conn[at], FP_EPEER_GONE);
        wire_turn();
        memset(x.write_of[at], 0, sizeof x.write_of[at]);
        x.conn[at] = wire_accept();
    } else if (x.peer[at - 2].refs == 0) {
        peer_gone(&x.peer[at - 2]);
        x.peer[at - 2] = (struct fp_fdlink_peer){.up = true};
        memset(x.stored_of[at - 2], 0, sizeof x.stored_of[at - 2]);
    }
    if (who < 240)
        hello(at, true);
    (void)in;
}

/* The next connection may get the place of one that is closed. */
static void forget_closed(void)
{
    for (size_t i = 0; i < 2; i++)
        if (x.conn[i] && !wire_is_up(x.conn[i])) {
            x.conn[i] = NULL;
            memset(x.write_of[i], 0, sizeof x.write_of[0]);
        }
}

static void step(struct fuzz_in *in)
{
    uint8_t what = fuzz_u8(in), who = fuzz_u8(in);

    if (what < 70)
        any_message(in, who);
    else if (what < 100)
        lease(in, who);
    else if (what < 150)
        write_chunk(in, who);
    else if (what < 170)
        store_local(in, who);
    else if (what < 200)
        run_all();
    else if (what < 225 && x.disk.n > 0)
        run_task(who % x.disk.n);
    else if (what < 232)
        wire_timer_fire(who % 4);
    else if (what < 238)
        wire_pass_ms(who * UINT64_C(40));
    else if (what < 243)
        come_and_go(in, who);
    else if (what < 249)
        with_manager(in, who);
    else
        x.fails = who % 8;
    forget_closed();
    wire_turn();
    forget_closed();
    if (what % 8 == 7)
        bnf_store_check(x.service->store);
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
