/*
 * The data path of fp-mount, when what the manager answers makes no sense (client/data/map.c, commit.c, sync.c, range.c, read.c ...).
 *
 * A mount over the models of tests/unit/cl_world.h: benefactors are as they should be, and so is the manager until the chunks of one file are
 * stored. Then every answer comes from the input: slice maps that overlap, lie beyond the window or the chunk or have no end, commits that name
 * other chunks, files of other sizes and versions, failures. An input opens a file with attributes of its own, reads, writes, syncs, cuts,
 * looks for holes and closes it. Nothing may crash, hang, or keep a page of the pool.
 *
 * Threads take turns, and time goes on when all wait (waits.h): an input does the same whenever it is run, and 100 ms of a time-out take none. The buffers that each thread
 * of the product has for itself are one for all here. That is right as long as nobody waits between filling and using one, as in store.c and load.c, or only this harness
 * uses it, as that of read.c.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <pthread.h>
#include <sys/mman.h>
#include <time.h>

#include "tests/fuzz/kinds.h"
#include "tests/fuzz/waits.h"
#include "tests/unit/cl_fixture.h"

#define STEPS_MAX 12
#define IO_MS     100
#define CALL_MS   15000 /* a call takes less, whatever the manager says, by the clock of waits.h; else something hangs */

int __real_world_mgr_call(uint32_t session, uint32_t type, const ProtobufCMessage *msg, ProtobufCMessage **reply);
int __wrap_world_mgr_call(uint32_t session, uint32_t type, const ProtobufCMessage *msg, ProtobufCMessage **reply);
void __real_world_mgr_lasting(struct cl_mount *m, uint32_t type, const ProtobufCMessage *msg, cl_mgr_cb cb, void *arg);
void __wrap_world_mgr_lasting(struct cl_mount *m, uint32_t type, const ProtobufCMessage *msg, cl_mgr_cb cb, void *arg);

static struct {
    struct fx_mount mount;
    bool started;
    pthread_mutex_t lock; /* the answers: threads of the store ask, too */
    struct fuzz_in *in;   /* NULL: the manager is as it should be */
    Fp__Slice slice[3];   /* of chunks that are stored */
    struct fuzz_pool pool;
    uint64_t next_ino;
} x = {.lock = PTHREAD_MUTEX_INITIALIZER};

int __wrap_clock_gettime(clockid_t id, struct timespec *ts);

int __wrap_clock_gettime(clockid_t id, struct timespec *ts)
{
    uint64_t ns = fuzz_waits_ns();

    (void)id;
    *ts = (struct timespec){.tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u)};
    return 0;
}

int __wrap_madvise(void *at, size_t bytes, int advice);
int __real_madvise(void *at, size_t bytes, int advice);

/* Large pages are not what is tried here, and to make one waits for all processors. */
int __wrap_madvise(void *at, size_t bytes, int advice)
{
    return advice == MADV_DONTDUMP ? __real_madvise(at, bytes, advice) : 0;
}

/* -------------------------------------------------------------- the manager */

/* A map of what is stored, with mistakes as the input says. */
static ProtobufCMessage *slice_map(struct fuzz_in *in, const Fp__SliceMap *q)
{
    Fp__SliceMapReply r = FP__SLICE_MAP_REPLY__INIT;
    Fp__Slice s[8], *list[8];
    uint32_t at = 0;

    r.slices = list;
    r.n_slices = fuzz_below(in, 8);
    for (size_t i = 0; i < r.n_slices; i++) {
        uint8_t how = fuzz_u8(in), k = how % 3;

        s[i] = x.slice[k];
        list[i] = &s[i];
        s[i].win = q->win_from + (how >= 224 ? fuzz_number(in) : 0);
        s[i].off = at;
        s[i].len = 1 + fuzz_u16(in);
        if (how & 16)
            s[i].off = (uint32_t)fuzz_number(in);
        if (how & 32)
            s[i].len = (uint32_t)fuzz_number(in);
        if (how & 64)
            s[i].chunk_off = (uint32_t)fuzz_number(in);
        if (fuzz_u8(in) >= 240) {
            s[i].chunk = fuzz_number(in);
            s[i].chunk_len = (uint32_t)fuzz_number(in);
            s[i].bnf = fuzz_u8(in) % 4;
            s[i].data_len = (uint32_t)fuzz_number(in);
        }
        at += s[i].len;
    }
    r.data_version = fuzz_u8(in) < 200 ? 2 : fuzz_number(in);
    r.size_bytes = fuzz_u8(in) < 200 ? 3u << 20 : fuzz_number(in);
    r.win_end = fuzz_u8(in) < 200 ? q->win_from + q->win_count : fuzz_number(in);
    return world_copy(&r.base);
}

/* 0, or why there is no answer; *reply unpacked. */
static int answer(uint32_t type, const ProtobufCMessage *msg, ProtobufCMessage **reply)
{
    static uint8_t buf[4096];
    int rc = 0;

    *reply = NULL;
    pthread_mutex_lock(&x.lock);
    if (!x.in || fuzz_left(x.in) == 0) { /* so that an input ends: a manager that has gone */
        rc = FP_EDEADLINE;
    } else if (fuzz_u8(x.in) >= 232) {
        rc = -1 - fuzz_u8(x.in) % 120;
    } else if (type == FP__MSG_TYPE__MSG_SLICEMAP && fuzz_u8(x.in) < 220) {
        *reply = slice_map(x.in, (const Fp__SliceMap *)msg);
    } else {
        size_t n = fuzz_message(x.in, fuzz_reply_of(type), &x.pool, buf, sizeof buf);

        *reply = protobuf_c_message_unpack(fuzz_reply_of(type), NULL, n, buf);
        rc = *reply ? 0 : -EBADMSG; /* as mgr_call.c has it */
    }
    pthread_mutex_unlock(&x.lock);
    return rc;
}

int __wrap_world_mgr_call(uint32_t session, uint32_t type, const ProtobufCMessage *msg, ProtobufCMessage **reply)
{
    ProtobufCMessage *r = NULL;
    int rc;

    if (!x.started)
        return __real_world_mgr_call(session, type, msg, reply);
    rc = answer(type, msg, &r);
    if (reply)
        *reply = r;
    else if (r)
        protobuf_c_message_free_unpacked(r, NULL);
    return rc;
}

struct lasting {
    cl_mgr_cb cb;
    void *arg;
    int rc;
    ProtobufCMessage *reply;
};

static void lasting_end(void *arg)
{
    struct lasting *l = arg;

    l->cb(l->arg, l->rc, l->reply);
    if (l->reply)
        protobuf_c_message_free_unpacked(l->reply, NULL);
    free(l);
}

void __wrap_world_mgr_lasting(struct cl_mount *m, uint32_t type, const ProtobufCMessage *msg, cl_mgr_cb cb, void *arg)
{
    struct lasting *l;

    if (!x.started) {
        __real_world_mgr_lasting(m, type, msg, cb, arg);
        return;
    }
    l = calloc(1, sizeof *l);
    l->cb = cb;
    l->arg = arg;
    l->rc = answer(type, msg, &l->reply);
    if (l->rc == FP_EDEADLINE)
        l->rc = FP_ESESSION; /* and not: it is coming yet */
    world_post(lasting_end, l);
}

/* -------------------------------------------------------------- the mount */

/* A file of three windows on one benefactor, whose chunks the maps are about. */
static void init(void)
{
    static uint8_t data[1u << 20];
    Fp__SliceMap q = FP__SLICE_MAP__INIT;
    ProtobufCMessage *map;
    struct cl_handle h;

    if (x.started)
        return;
    fuzz_waits_begin();
    world_core_start();
    world_bnf_add(1, true, 1u << 30);
    fx_start(&x.mount, 1, IO_MS);
    q.ino = world_file_new(1u << 20, 1);
    q.win_count = 3;
    fx_open(&x.mount, &h, q.ino);
    for (uint64_t i = 0; i < 3; i++) {
        fx_fill(data, sizeof data, (uint32_t)i);
        FUZZ_CHECK(fx_write(&x.mount, &h, data, sizeof data, i << 20) == (ssize_t)sizeof data);
    }
    FUZZ_CHECK(cl_data_fsync(&x.mount.m, h.inode) == 0);
    FUZZ_CHECK(__real_world_mgr_call(1, FP__MSG_TYPE__MSG_SLICEMAP, &q.base, &map) == 0);
    FUZZ_CHECK(((Fp__SliceMapReply *)map)->n_slices >= 3);
    for (size_t i = 0; i < 3; i++)
        x.slice[i] = *((Fp__SliceMapReply *)map)->slices[i];
    protobuf_c_message_free_unpacked(map, NULL);
    fx_close(&x.mount, &h);
    x.next_ino = 1000;
    x.pool = (struct fuzz_pool){.session = {1, 1, 2, 0}, .ino_max = 8, .chunk_max = 6};
    x.started = true;
}

static void open_file(struct cl_handle *h, struct fuzz_in *in)
{
    Fp__Attr a = FP__ATTR__INIT;

    memset(h, 0, sizeof *h);
    a.ino = ++x.next_ino;
    a.mode = 0100644;
    a.nlink = 1;
    a.size_bytes = fuzz_u8(in) < 200 ? 3u << 20 : fuzz_number(in) & INT64_MAX;
    a.chunk_size_bytes = fuzz_u8(in) < 220 ? 1u << 20 : 1u << (16 + fuzz_u8(in) % 9);
    a.stripe = 1 + fuzz_u8(in) % 4;
    a.data_version = 2;
    h->inode = cl_inode_intern(&x.mount.m, &a);
    FUZZ_CHECK(h->inode);
    if (cl_data_open(&x.mount.m, h, &a) < 0)
        FUZZ_CHECK(false);
}

static void step(struct cl_handle *h, struct fuzz_in *in)
{
    static uint8_t buf[1u << 20];
    struct cl_mount *m = &x.mount.m;
    uint8_t what;
    uint64_t off, out;
    size_t len;

    pthread_mutex_lock(&x.lock);
    what = fuzz_u8(in);
    off = what & 128 ? fuzz_number(in) & INT64_MAX : fuzz_u32(in) % (4u << 20);
    len = 1 + fuzz_u16(in) % 65536;
    pthread_mutex_unlock(&x.lock);
    switch (what % 8) {
    case 0:
    case 1:
    case 2:
        fx_read(&x.mount, h, buf, len, off);
        break;
    case 3:
        fx_write(&x.mount, h, buf, len, off & UINT32_MAX);
        break;
    case 4:
        cl_data_fsync(m, h->inode);
        break;
    case 5:
        cl_data_lseek(m, h, off, what & 64 ? SEEK_HOLE : SEEK_DATA, &out);
        break;
    case 6:
        cl_data_fallocate(m, h, what & 64 ? FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE : 0, off, len);
        break;
    default:
        fx_truncate(&x.mount, h, off & UINT32_MAX);
        break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct fuzz_in in = {data, data + len};
    struct cl_handle h;

    init();
    fuzz_waits_input(CALL_MS);
    pthread_mutex_lock(&x.lock);
    x.in = &in;
    pthread_mutex_unlock(&x.lock);
    open_file(&h, &in);
    for (int i = 0; i < STEPS_MAX && fuzz_left(&in) > 0; i++) {
        fuzz_waits_input(CALL_MS);
        step(&h, &in);
    }
    fuzz_waits_input(CALL_MS);
    fx_close(&x.mount, &h);
    pthread_mutex_lock(&x.lock);
    x.in = NULL;
    pthread_mutex_unlock(&x.lock);
    fx_check_quiet(&x.mount);
    return 0;
}
