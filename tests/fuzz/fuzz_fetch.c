/*
 * What a benefactor fetches from targets, and its tasks, in any order: asks of mounts, tasks of the manager, answers of fp-drain, which may say, hang and die as it likes; disk
 * operations that fail; the manager hearing of it or not.
 *
 * The real tasks.c, targets.c, taskwire.c, fetch.c, stage.c and staged.c over the real service and store. fp-drain is the input: what is sent to it is kept here, and answered when and
 * how the input says (its place in the program, worker.c, is taken by the linker). Chunk n is filled with a byte of its own. Each ask is answered once; what is said to be
 * stored is, and is right; bytes that are passed on are right; when all have gone, no lease and no slot is left.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "benefactor/drain_impl.h"
#include "benefactor/service_impl.h"
#include "fp/checksum.h"
#include "fp/clock.h"
#include "fp/err.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/memfile.h"
#include "tests/fuzz/wire.h"

#define STEPS_MAX   64
#define TASKS       256
#define MESSAGES    64
#define ASKS        64
#define CHUNKS      12u
#define LEN_MAX     (70u << 10)
#define FILE_BYTES  (CHUNKS * (uint64_t)LEN_MAX)
#define MEMORY_BYTES (SLOTS_MAX * (FP_RECORD_HEADER_BYTES + (uint64_t)FP_STORED_MAX_BYTES + FP_RECORD_ALIGN_BYTES)) /* as worker.c */

struct bnf_disk {
    struct bnf_task *task[TASKS];
    size_t n;
};

struct fake {
    struct dworker w;
    struct fp_dw_status page;
    uint8_t *msg[MESSAGES];
    size_t nmsgs;
};

struct fuzz_ask {
    bool open, told, any; /* any: of what, only the input knows */
    unsigned chunk;
    void *handle;
};

static struct {
    struct fuzz_in *in;
    struct bnf_backend backend;
    struct bnf_disk disk;
    struct bnf_service *service;
    struct bnf_drain *drain;
    unsigned fails, workers;
    struct fuzz_ask ask[ASKS];
    unsigned nasks;
    uint64_t next_task;
    struct fuzz_pool pool;
    bool drained;
    uint8_t buf[8192];
} x;

static uint64_t chunk_id(unsigned k)
{
    return (uint64_t)1 << 32 | (1 + k % CHUNKS);
}

static uint32_t len_of(unsigned k)
{
    return k % CHUNKS % 3 == 0 ? LEN_MAX : 1 + k % CHUNKS * 5000;
}

static uint8_t byte_of(unsigned k)
{
    return k % CHUNKS == 5 ? 0 : (uint8_t)(k % CHUNKS * 37 + 5); /* one is a hole */
}

static uint64_t sums_of(unsigned k, uint64_t *sums)
{
    static uint8_t data[LEN_MAX];

    memset(data, byte_of(k), len_of(k));
    fp_sum_blocks(data, len_of(k), sums);
    return fp_sum_chunk(sums, fp_sum_nblocks(len_of(k)), len_of(k));
}

/* -------------------------------------------------------------- the back end and the disk */

static bool fails(void)
{
    return x.fails > 0 && x.fails-- > 0;
}

static int be_create(struct bnf_backend *b, const struct fp_segment_header *h, struct bnf_file **out)
{
    (void)b;
    if (fails())
        return -ENOSPC;
    *out = bnf_file_new(memfile_new(), false, h->id, h->salt, h->limit_bytes);
    FUZZ_CHECK(*out);
    return 0;
}

static int be_range(struct bnf_backend *b, struct bnf_file *f, uint64_t off_bytes, uint64_t len_bytes)
{
    (void)b;
    FUZZ_CHECK(!f || off_bytes + len_bytes <= f->limit_bytes);
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
    *bytes = x.fails & 1 ? 3u << 20 : 1u << 30;
    return 0;
}

static int be_probe(struct bnf_backend *b)
{
    (void)b;
    return fails() ? -EIO : 0;
}

static const struct bnf_backend_ops be_ops = {.name = "fuzz", .create = be_create, .alloc = be_range, .punch = be_range, .unlink = be_simple, .sync = be_simple,
                                              .device_free = be_device_free, .probe = be_probe};

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
    FUZZ_CHECK(d->n < TASKS);
    d->task[d->n++] = task;
}

size_t __wrap_bnf_disk_pending(const struct bnf_disk *d)
{
    return d->n;
}

unsigned __wrap_bnf_disk_look(struct bnf_disk *d)
{
    (void)d;
    return 0;
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

/* -------------------------------------------------------------- fp-drain */

int __wrap_dworker_start(struct dtarget *t, struct dworker **out);
int __wrap_dworker_send(struct dworker *w, const void *msg, size_t len_bytes, int fd);
int __wrap_dworker_segment_use(struct dworker *w, uint64_t segment, struct bnf_file *f);
void __wrap_dworker_segment_unuse(struct dworker *w, uint64_t segment);
void __wrap_dworker_end(struct dworker *w, bool kill);
bool __wrap_dworker_reap(struct bnf_drain *d, struct dworker *w);
int __wrap_dworker_memory(struct dworker *w);

int __wrap_dworker_start(struct dtarget *t, struct dworker **out)
{
    struct fake *f;

    if (fails())
        return -EAGAIN;
    f = calloc(1, sizeof *f);
    FUZZ_CHECK(f);
    f->w.target = t;
    f->w.target_id = t->id;
    f->w.page = &f->page;
    x.workers++;
    *out = &f->w;
    return 0;
}

int __wrap_dworker_send(struct dworker *w, const void *msg, size_t len_bytes, int fd)
{
    struct fake *f = (struct fake *)w;
    const struct fp_dw_head *h = msg;

    FUZZ_CHECK(fd < 0 && len_bytes >= sizeof *h && h->len_bytes == len_bytes && len_bytes <= FP_DW_MESSAGE_MAX_BYTES);
    if (h->type == FP_DW_PACE || h->type == FP_DW_CANCEL)
        return 0;
    if (f->nmsgs == MESSAGES || fails())
        return -ENOMEM;
    f->msg[f->nmsgs] = malloc(len_bytes);
    memcpy(f->msg[f->nmsgs++], msg, len_bytes);
    return 0;
}

int __wrap_dworker_segment_use(struct dworker *w, uint64_t segment, struct bnf_file *f)
{
    (void)w, (void)segment;
    FUZZ_CHECK(f);
    return 0;
}

void __wrap_dworker_segment_unuse(struct dworker *w, uint64_t segment)
{
    (void)w, (void)segment;
}

int __wrap_dworker_memory(struct dworker *w)
{
    struct dmemory *m;
    void *base;

    if (w->memory)
        return 0;
    if (fails())
        return -ENOMEM;
    m = malloc(sizeof *m);
    base = mmap(NULL, MEMORY_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    FUZZ_CHECK(m && base != MAP_FAILED);
    *m = (struct dmemory){.refs = 1, .fd = -1, .base = base};
    w->memory = m;
    return 0;
}

void __wrap_dworker_end(struct dworker *w, bool kill)
{
    struct bnf_drain *d = w->target->drain;

    (void)kill;
    w->target = NULL;
    w->ending_ms = fp_now_ms();
    dmemory_put(w->memory);
    w->memory = NULL;
    w->next = d->ending;
    d->ending = w;
}

static void fake_free(struct dworker *w)
{
    struct fake *f = (struct fake *)w;

    while (f->nmsgs > 0)
        free(f->msg[--f->nmsgs]);
    free(f);
    x.workers--;
}

bool __wrap_dworker_reap(struct bnf_drain *d, struct dworker *w)
{
    if (!d->stopping && fuzz_u8(x.in) % 4 == 3) /* it hangs in the target */
        return false;
    fake_free(w);
    return true;
}

/* The file is right: each chunk has its bytes at its place. */
static void do_read(const struct fp_dw_read *m, struct dworker *w, struct fp_dw_done *done, uint64_t *sums)
{
    unsigned k = (unsigned)(m->off / LEN_MAX);
    uint64_t sum;

    FUZZ_CHECK(m->len > 0 && m->to % FP_RECORD_ALIGN_BYTES == 0 && m->to + m->len <= MEMORY_BYTES && w->memory);
    if (m->off % LEN_MAX || k >= CHUNKS || m->len != len_of(k)) {
        done->status = m->sum ? FP_ECHECKSUM : -ESTALE;
        return;
    }
    sum = sums_of(k, sums);
    if (m->sum && m->sum != sum) {
        done->status = FP_ECHECKSUM;
        return;
    }
    memset(w->memory->base + m->to, byte_of(k), m->len);
    done->nsums = fp_sum_nblocks(m->len);
    done->note = byte_of(k) == 0;
    done->bytes = m->len;
}

static void answer(struct fuzz_in *in, struct dtarget *t)
{
    static const int all[] = {0, 0, 0, 0, 0, 0, 0, 0, -EIO, -ENOENT, -ESTALE, FP_ECHECKSUM, -EACCES, -ENOSPC, -EROFS, -ECANCELED};
    struct fake *f = (struct fake *)t->worker;
    struct fp_dw_done done = {.h = {.type = FP_DW_DONE}};
    uint64_t sums[FP_BLOCKS_MAX] = {0};
    const struct fp_dw_head *h;
    uint8_t how = fuzz_u8(in);
    size_t at;
    uint8_t *msg;

    if (!f || f->nmsgs == 0)
        return;
    at = how / 16 % f->nmsgs;
    msg = f->msg[at];
    memmove(f->msg + at, f->msg + at + 1, (--f->nmsgs - at) * sizeof f->msg[0]);
    h = (const struct fp_dw_head *)(const void *)msg;
    done.h = *h;
    done.h.type = FP_DW_DONE;
    done.kind = h->type;
    done.status = all[how % 16];
    done.scope = done.status ? fuzz_u8(in) % 2 : 0;
    if (h->type == FP_DW_READ && done.status == 0)
        do_read((const struct fp_dw_read *)(const void *)msg, t->worker, &done, sums);
    dtarget_answer(t, &done, "as the input says", (const uint8_t *)sums);
    free(msg);
}

static void entries(struct fuzz_in *in, struct dtarget *t)
{
    struct fake *f = (struct fake *)t->worker;
    struct fp_dw_entry e = {.mode = S_IFREG};
    size_t n = fuzz_u8(in) % 64;
    uint8_t *p;

    if (!f || f->nmsgs == 0)
        return;
    e.name_bytes = fuzz_u8(in) % 32;
    e.link_bytes = n > 60 ? UINT32_MAX : fuzz_u8(in) % 8;
    e.xattr_bytes = n % 5 == 4 ? UINT32_MAX : n % 2 && e.name_bytes + e.link_bytes < n ? (uint32_t)n - e.name_bytes - e.link_bytes : 0;
    p = calloc(1, sizeof e + n);
    memcpy(p, &e, sizeof e);
    fuzz_bytes(in, p + sizeof e, n);
    if (dtarget_entries(t, (const struct fp_dw_head *)(const void *)f->msg[0], p, sizeof e + n))
        dtarget_worker_gone(t); /* as worker.c does */
    free(p);
}

/* -------------------------------------------------------------- asks */

static void on_fetched(void *arg, int status, const struct bnf_fetched *r)
{
    struct fuzz_ask *a = arg;
    struct bnf_place at;

    FUZZ_CHECK(a->open && !a->told && status <= 0 && (status == 0) == (r != NULL));
    a->told = true;
    if (!r)
        return;
    a->handle = r->handle;
    if (a->any)
        return;
    FUZZ_CHECK(r->nblocks == fp_sum_nblocks(r->len_bytes) && r->len_bytes == len_of(a->chunk) && r->stored == !r->data);
    if (r->stored) {
        FUZZ_CHECK(bnf_store_find(x.service->store, chunk_id(a->chunk), &at) == 0);
        FUZZ_CHECK(at.sum == fp_sum_chunk(r->block_sums, r->nblocks, r->len_bytes));
        return;
    }
    FUZZ_CHECK(fp_sum_verify(r->data, r->len_bytes, r->block_sums) < 0 && *(const uint8_t *)r->data == byte_of(a->chunk));
}

static void let_go(unsigned at)
{
    struct fuzz_ask *a = &x.ask[at % ASKS];

    if (!a->handle)
        return;
    bnf_drain_fetch_end(a->handle);
    a->handle = NULL;
}

static void fill_file(Fp__ExtFile *f, uint8_t how)
{
    static uint8_t uuid[16];

    fp__ext_file__init(f);
    memset(uuid, 7, sizeof uuid);
    f->target = 1 + how % 2;
    f->root = (char *)(uintptr_t)(how & 2 ? "/other" : "/target");
    f->uuid = (ProtobufCBinaryData){16, uuid};
    f->path = (ProtobufCBinaryData){how & 4 ? 1 : 3, (uint8_t *)(uintptr_t)"dir"};
    f->ino = 5;
    f->size_bytes = FILE_BYTES;
}

static void ask(struct fuzz_in *in, uint8_t how)
{
    struct fuzz_ask *a = &x.ask[x.nasks];
    Fp__Fetch m = FP__FETCH__INIT;
    Fp__ExtFile file;
    uint64_t sums[FP_BLOCKS_MAX];

    if (x.nasks == ASKS)
        return;
    fill_file(&file, how % 64 < 60 ? 0 : how);
    *a = (struct fuzz_ask){.open = true, .chunk = fuzz_u8(in) % CHUNKS};
    m.file = &file;
    m.chunk = chunk_id(a->chunk);
    m.len = len_of(a->chunk);
    m.off = a->chunk * (uint64_t)LEN_MAX;
    m.sum = sums_of(a->chunk, sums) + (how % 32 == 31);
    m.want_payload = how & 64;
    if (bnf_drain_fetch(x.drain, &m, on_fetched, a) == 0)
        x.nasks++;
    else
        FUZZ_CHECK(!a->told);
}

static void ask_anything(struct fuzz_in *in, const ProtobufCMessageDescriptor *d)
{
    size_t n = fuzz_message(in, d, &x.pool, x.buf, sizeof x.buf);
    struct fuzz_ask *a = &x.ask[x.nasks];
    Fp__Fetch *m;
    Fp__Tasks *t;

    if (d == &fp__tasks__descriptor) {
        t = fp__tasks__unpack(NULL, n, x.buf);
        if (t) {
            bnf_drain_tasks(x.drain, t);
            fp__tasks__free_unpacked(t, NULL);
        }
    } else if (x.nasks < ASKS && (m = fp__fetch__unpack(NULL, n, x.buf))) {
        *a = (struct fuzz_ask){.open = true, .any = true};
        if (m->sum != 0 && bnf_drain_fetch(x.drain, m, on_fetched, a) == 0)
            x.nasks++;
        fp__fetch__free_unpacked(m, NULL);
    }
}

/* One that makes sense. */
static void task(struct fuzz_in *in, uint8_t how)
{
    static const Fp__TaskKind kinds[] = {FP__TASK_KIND__TASK_FETCH, FP__TASK_KIND__TASK_STAGE, FP__TASK_KIND__TASK_FETCH, FP__TASK_KIND__TASK_STAGE,
                                         FP__TASK_KIND__TASK_LIST, FP__TASK_KIND__TASK_STAT, FP__TASK_KIND__TASK_PROBE, FP__TASK_KIND__TASK_CLEAN};
    Fp__Task m = FP__TASK__INIT, *list = &m;
    Fp__Slice slice[CHUNKS], *slices[CHUNKS];
    Fp__Tasks all = FP__TASKS__INIT, *copy;
    Fp__ExtFile file;
    uint64_t sums[FP_BLOCKS_MAX], cancel = fuzz_u8(in) % 8 + 1;
    size_t n;

    fill_file(&file, how % 32 < 30 ? 0 : how);
    m.kind = kinds[how % 8];
    m.id = 1 + how / 8 % 8;
    m.gen = 1 + x.next_task++ / 4;
    m.dest = &file;
    m.tmp = (ProtobufCBinaryData){3, (uint8_t *)(uintptr_t)"tmp"};
    m.slices = slices;
    m.n_slices = 1 + fuzz_u8(in) % CHUNKS;
    for (unsigned k = 0; k < m.n_slices; k++) {
        fp__slice__init(&slice[k]);
        slices[k] = &slice[k];
        slice[k].chunk = m.kind == FP__TASK_KIND__TASK_STAGE ? (uint64_t)2 << 32 | m.gen << 8 | k : chunk_id(k);
        slice[k].len = slice[k].chunk_len = len_of(k);
        slice[k].chunk_sum = sums_of(k, sums);
        slice[k].ext_off = k * (uint64_t)LEN_MAX;
    }
    all.tasks = &list;
    all.n_tasks = 1;
    all.cancel = &cancel;
    all.n_cancel = how >= 230;
    n = fp__tasks__get_packed_size(&all);
    FUZZ_CHECK(n <= sizeof x.buf);
    copy = fp__tasks__unpack(NULL, fp__tasks__pack(&all, x.buf), x.buf);
    FUZZ_CHECK(copy);
    bnf_drain_tasks(x.drain, copy);
    fp__tasks__free_unpacked(copy, NULL);
}

/* What the manager is told. */
static void tell(uint8_t how)
{
    Fp__TaskResult *results[8];
    Fp__Staged *staged[8];
    struct bnf_place at;
    size_t n = bnf_drain_staged(x.drain, staged, how % 8 + 1);

    for (size_t i = 0; i < n; i++)
        FUZZ_CHECK(bnf_store_find(x.service->store, staged[i]->chunk, &at) == 0 && at.stored_bytes == staged[i]->stored_bytes);
    n = bnf_drain_results(x.drain, results, how / 8 % 8 + 1);
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < results[i]->n_chunks; k++)
            FUZZ_CHECK(results[i]->status == 0 && bnf_store_find(x.service->store, results[i]->chunks[k]->id, &at) == 0 &&
                       at.sum == results[i]->chunks[k]->sum);
        FUZZ_CHECK(protobuf_c_message_get_packed_size(&results[i]->base) < FP_FRAME_MSG_MAX_BYTES);
    }
    bnf_drain_told(x.drain, how & 128);
}

/* -------------------------------------------------------------- start, end, steps */

static uint32_t bnf_id(void *arg)
{
    (void)arg;
    return 1;
}

static void nothing(void *arg)
{
    (void)arg;
}

static void on_pressed(void *arg, bool pressed)
{
    (void)arg, (void)pressed;
}

static void on_drained(void *arg, int status)
{
    (void)arg, (void)status;
    x.drained = true;
}

static void on_deleted(void *arg, int status)
{
    (void)arg, (void)status;
}

static void start(struct fuzz_in *in)
{
    static uv_loop_t loop;
    struct bnf_service_config c = {.loop = &loop, .backend = &x.backend, .threads = 1, .device_timeout_ms = 5000, .buffer_bytes = 3u << 20, .capacity_bytes = 80u << 20,
                                   .segment_bytes = 32u << 20, .random = 12345, .changed = nothing, .pressed = on_pressed};
    struct bnf_drain_config d = {.loop = &loop, .program = "fp-drain", .target_timeout_ms = 5000, .give_up_ms = 20000, .threads = 2, .on = true,
                                 .bnf_id = bnf_id, .results = nothing, .changed = nothing};

    memset(&x, 0, offsetof(__typeof__(x), buf));
    x.in = in;
    x.backend.ops = &be_ops;
    x.pool = (struct fuzz_pool){.session = {1, 2, 0, 0}, .ino_max = 8, .chunk_max = CHUNKS};
    wire_reset();
    memfile_reset();
    FUZZ_CHECK(bnf_service_new(&c, &x.service) == 0);
    FUZZ_CHECK(bnf_service_start(x.service) == 0);
    d.service = x.service;
    FUZZ_CHECK(bnf_drain_new(&d, &x.drain) == 0);
    run_all();
}

static void end(void)
{
    struct bnf_space sp;

    x.fails = 0;
    bnf_drain_stop(x.drain);
    run_all();
    for (unsigned i = 0; i < x.nasks; i++)
        let_go(i);
    bnf_service_drain(x.service, 1000, on_drained, NULL);
    for (int i = 0; i < 20 && !x.drained; i++) {
        run_all();
        for (unsigned t = 0; !x.drained && wire_timer_fire(t); t++)
            continue;
    }
    FUZZ_CHECK(x.drained);
    for (unsigned i = 0; i < x.nasks; i++)
        FUZZ_CHECK(x.ask[i].told);
    bnf_drain_free(x.drain);
    bnf_store_check(x.service->store);
    bnf_store_space(x.service->store, &sp);
    FUZZ_CHECK(sp.leased_bytes == 0 && x.workers == 0);
    bnf_service_free(x.service);
    wire_turn();
    FUZZ_CHECK(memfile_open() == 0);
}

static struct dtarget *target(uint8_t who)
{
    struct dtarget *t = x.drain->targets;

    while (t && who-- % 4 && t->next)
        t = t->next;
    return t;
}

/* A call of the target has not come back since. */
static void hang(struct fuzz_in *in, struct dtarget *t)
{
    struct fp_dw_op *op = &t->worker->page->op[fuzz_u8(in) % FP_DW_OPS_MAX];

    atomic_store(&op->kind, FP_DW_READ);
    atomic_store(&op->id, READ_ID);
    atomic_store(&op->gen, fuzz_u8(in));
    atomic_store(&op->since_ns, fp_now_ns());
    atomic_store(&op->in_target, fuzz_u8(in) % 2);
}

static void step(struct fuzz_in *in)
{
    uint8_t what = fuzz_u8(in), who = fuzz_u8(in);
    struct dtarget *t = target(who);
    uint64_t id = chunk_id(who);

    if (what < 50)
        ask(in, who);
    else if (what < 58)
        ask_anything(in, who & 1 ? &fp__tasks__descriptor : &fp__fetch__descriptor);
    else if (what < 85)
        task(in, who);
    else if (what < 150 && t)
        answer(in, t);
    else if (what < 156 && t)
        entries(in, t);
    else if (what < 164 && t && t->worker)
        dtarget_worker_gone(t);
    else if (what < 170 && t && t->worker)
        hang(in, t);
    else if (what < 190)
        run_all();
    else if (what < 200 && x.disk.n > 0)
        run_task(who % x.disk.n);
    else if (what < 215)
        wire_timer_fire(who % 3);
    else if (what < 225)
        wire_pass_ms(who * UINT64_C(60));
    else if (what < 235)
        tell(who);
    else if (what < 242)
        let_go(who);
    else if (what < 247)
        (void)bnf_service_delete(x.service, &id, 1, on_deleted, NULL);
    else
        x.fails = who % 6;
    wire_turn();
    if (what % 8 == 7)
        bnf_store_check(x.service->store);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct fuzz_in in = {data, data + len};

    start(&in);
    for (int i = 0; i < STEPS_MAX && fuzz_left(&in) > 0; i++)
        step(&in);
    end();
    return 0;
}
