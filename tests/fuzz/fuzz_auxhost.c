/*
 * What a mount says to its host of aux-apps, in any order: chunks, events, changes of options, answers to services; right, wrong, cut off (auxapps/host).
 *
 * The real fp-auxhost but for its main(): the loop of its main thread, control, stages, event threads, decoders and services, on threads that take turns
 * (threads.h). The harness is the mount: it has the other end of both sockets, the pool and the region, which are as long as they say, so that
 * AddressSanitizer sees what is beyond them. The aux-apps are functions of auxapps.c; they use each service as the input says. What was understood is answered,
 * each request exactly once, however long it takes; nothing waits for ever, and everything ends when the mount says so.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "auxapps/host/host.h"
#include "tests/fuzz/auxapps.h"
#include "tests/fuzz/kinds.h"
#include "tests/fuzz/threads.h"
#include "tests/fuzz/wire.h"

#define STEPS_MAX  40
#define IDS_MAX    256u
#define ASKED_MAX  16u
#define POOL_PAGES 6u
#define REGION     (512u << 10)
#define FD_JOBS    1000
#define FD_SVC     1001
#define BEHIND     4096u /* that many bytes behind a message are poisoned */

void __asan_poison_memory_region(void const volatile *p, size_t size) __attribute__((weak));
void __asan_unpoison_memory_region(void const volatile *p, size_t size) __attribute__((weak));

static struct {
    struct fuzz_in *in;
    struct aux_host h;
    struct fuzz_pool fields;
    uint64_t last_id;
    uint8_t asked[IDS_MAX], answered[IDS_MAX]; /* by id */
    struct {
        uint64_t id;
        uint32_t type;
    } svc[ASKED_MAX]; /* services, the last ones */
    unsigned nsvc, steps;
    bool over, understood, ending; /* over: the mount has said the end, or gone */
    uint8_t *pool, *region;        /* kept */
    uint8_t *poisoned;
    uint8_t body[8192];
} x;

/* -------------------------------------------------------------- the machine */

int __wrap_setsockopt(int fd, int level, int name, const void *v, socklen_t n);
int __wrap_shutdown(int fd, int how);
void *__real_mmap64(void *at, size_t n, int prot, int flags, int fd, off_t off);
void *__wrap_mmap64(void *at, size_t n, int prot, int flags, int fd, off_t off);
int __wrap_madvise(void *p, size_t n, int what);
int __wrap_sigaltstack(const stack_t *ss, stack_t *old);
void __wrap_aux_guard_drop(void);
bool __wrap_aux_guard_has_reserve(void);
void __wrap_aux_thread_short(void);
int __wrap_aux_cores_new(const char *list, struct aux_cores **out, char why[96]);
uint32_t __wrap_aux_cores_count(const struct aux_cores *c);
uint32_t __wrap_aux_cores_width(const struct aux_cores *c);
int __wrap_aux_cores_cpu(const struct aux_cores *c, uint32_t i);
int __wrap_aux_cores_pin(const struct aux_cores *c, int cpu);
int __wrap_aux_cores_choose(const struct aux_cores *c, const uint32_t *mine, const uint32_t *load);

int __wrap_setsockopt(int fd, int level, int name, const void *v, socklen_t n)
{
    (void)fd, (void)level, (void)name, (void)v, (void)n;
    return 0;
}

int __wrap_shutdown(int fd, int how)
{
    FUZZ_CHECK(fd == FD_JOBS && how == SHUT_RD);
    x.over = true;
    return 0;
}

void *__wrap_mmap64(void *at, size_t n, int prot, int flags, int fd, off_t off)
{
    if (fd != FP_AUXW_FD_POOL && fd != FP_AUXW_FD_REGION)
        return __real_mmap64(at, n, prot, flags, fd, off);
    errno = EINVAL;
    if (n == 0 || n > (fd == FP_AUXW_FD_POOL ? POOL_PAGES * AUX_PAGE_BYTES : REGION))
        return MAP_FAILED;
    return fd == FP_AUXW_FD_POOL ? x.pool : x.region;
}

int __wrap_madvise(void *p, size_t n, int what)
{
    (void)p, (void)n, (void)what;
    return 0;
}

int __wrap_sigaltstack(const stack_t *ss, stack_t *old)
{
    (void)ss, (void)old;
    return 0;
}

void __wrap_aux_guard_drop(void)
{
}

bool __wrap_aux_guard_has_reserve(void)
{
    return false;
}

void __wrap_aux_thread_short(void)
{
}

/* Two. */
int __wrap_aux_cores_new(const char *list, struct aux_cores **out, char why[96])
{
    FUZZ_CHECK(strlen(list) <= 256);
    why[0] = '\0';
    *out = (struct aux_cores *)(void *)&x;
    return 0;
}

uint32_t __wrap_aux_cores_count(const struct aux_cores *c)
{
    (void)c;
    return 2;
}

uint32_t __wrap_aux_cores_width(const struct aux_cores *c)
{
    (void)c;
    return 2;
}

int __wrap_aux_cores_cpu(const struct aux_cores *c, uint32_t i)
{
    (void)c;
    return i < 2 ? (int)i : -1;
}

int __wrap_aux_cores_pin(const struct aux_cores *c, int cpu)
{
    (void)c;
    return cpu;
}

int __wrap_aux_cores_choose(const struct aux_cores *c, const uint32_t *mine, const uint32_t *load)
{
    (void)c, (void)mine;
    return load[1] < load[0];
}

/* -------------------------------------------------------------- the mount: what it is told */

ssize_t __wrap_sendmsg(int fd, const struct msghdr *m, int flags);
ssize_t __wrap_recv(int fd, void *buf, size_t n, int flags);
int __wrap_poll(struct pollfd *p, nfds_t n, int timeout_ms);
int __wrap_recvmmsg(int fd, struct mmsghdr *v, unsigned n, int flags, struct timespec *timeout);

static size_t gathered(const struct msghdr *m, uint8_t *to, size_t cap)
{
    size_t len = 0;

    for (size_t i = 0; i < m->msg_iovlen; i++) {
        FUZZ_CHECK(m->msg_iov[i].iov_len <= cap - len);
        if (m->msg_iov[i].iov_len > 0)
            memcpy(to + len, m->msg_iov[i].iov_base, m->msg_iov[i].iov_len);
        len += m->msg_iov[i].iov_len;
    }
    return len;
}

ssize_t __wrap_sendmsg(int fd, const struct msghdr *m, int flags)
{
    static _Alignas(16) uint8_t all[FP_AUXW_MESSAGE_MAX_BYTES];
    const struct fp_auxw_head *h = (const struct fp_auxw_head *)(const void *)all;
    size_t n = gathered(m, all, sizeof all);

    (void)flags;
    FUZZ_CHECK(n >= sizeof *h && h->len_bytes == n && (fd == FD_JOBS || fd == FD_SVC));
    if (fd == FD_SVC) {
        FUZZ_CHECK(n >= sizeof(struct fp_auxw_svc) && h->type >= FP_AUXW_SVC_EARLIER && h->type <= FP_AUXW_SVC_POLICY);
        x.svc[x.nsvc % ASKED_MAX].id = h->id;
        x.svc[x.nsvc++ % ASKED_MAX].type = h->type;
    } else if (h->type == FP_AUXW_DONE || h->type == FP_AUXW_CHUNK_OUT_DONE) {
        FUZZ_CHECK(h->id < IDS_MAX && (h->id == 0 || x.answered[h->id] < x.asked[h->id]));
        x.answered[h->id]++;
    } else {
        FUZZ_CHECK(h->type == FP_AUXW_READY || h->type == FP_AUXW_FAILED || h->type == FP_AUXW_LOG || h->type == FP_AUXW_SKIP);
    }
    return (ssize_t)n;
}

/* Is there an answer? If not, time goes by. */
int __wrap_poll(struct pollfd *p, nfds_t n, int timeout_ms)
{
    FUZZ_CHECK(n == 1 && p->fd == FD_SVC && timeout_ms >= 0);
    fuzz_yield();
    if (x.nsvc > 0 && fuzz_left(x.in) > 0 && fuzz_u8(x.in) < 224) {
        p->revents = POLLIN;
        return 1;
    }
    wire_pass_ms(fuzz_left(x.in) > 0 ? (uint64_t)timeout_ms : 2500);
    return 0;
}

/* The answer to a service, mostly to the last one. */
ssize_t __wrap_recv(int fd, void *buf, size_t cap, int flags)
{
    struct fuzz_in *in = x.in;
    uint8_t how = fuzz_u8(in);
    unsigned at = (x.nsvc - 1 - (how >= 200 ? how % 4 % x.nsvc : 0)) % ASKED_MAX;
    uint32_t type = how >= 232 ? FP_AUXW_SVC_EARLIER + how % 12u : x.svc[at].type;
    const ProtobufCMessageDescriptor *d = fuzz_aux_reply_of(type);
    struct fp_auxw_svc m = {.h = {.type = type, .id = x.svc[at].id}, .eof = how & 1};
    size_t n;

    FUZZ_CHECK(fd == FD_SVC && cap >= FP_AUXW_MESSAGE_MAX_BYTES && flags & MSG_DONTWAIT);
    if (how == 255)
        return 0;
    if (how % 16 == 14)
        m.status = -(int)fuzz_u8(in);
    if (d)
        n = fuzz_message(in, d, &x.fields, x.body, sizeof x.body);
    else
        memset(x.body, how, n = how & 2 ? 1u + fuzz_u16(in) % sizeof x.body : fuzz_u8(in));
    if (how >= 248) /* cut off */
        return (ssize_t)fuzz_u8(in) % (ssize_t)sizeof m;
    m.h.len_bytes = (uint32_t)(sizeof m + n);
    memcpy(buf, &m, sizeof m);
    memcpy((uint8_t *)buf + sizeof m, x.body, n);
    return (ssize_t)(sizeof m + n);
}

/* -------------------------------------------------------------- the mount: what it says */

static uint32_t some_app(struct fuzz_in *in)
{
    uint8_t c = fuzz_u8(in);

    return c < 240 ? c % 3 : (uint32_t)fuzz_number(in);
}

/* A buffer of the region, or anything. */
static uint64_t some_place(struct fuzz_in *in)
{
    uint8_t c = fuzz_u8(in);

    return c < 232 ? c % 4 * (uint64_t)(REGION / 4) : fuzz_number(in);
}

static uint32_t some_bytes(struct fuzz_in *in, size_t max)
{
    uint8_t c = fuzz_u8(in);

    return c < 224 ? c % (max + 1) : (uint32_t)fuzz_number(in);
}

static size_t chunk_out(struct fuzz_in *in, uint8_t *buf, uint8_t how)
{
    struct fp_auxw_chunk_out *m = (struct fp_auxw_chunk_out *)(void *)buf;
    uint32_t *page = (uint32_t *)(void *)(m + 1);

    m->ino = 5;
    m->file_serial = how & 1;
    m->len_bytes = how & 2 ? 1 + fuzz_u32(in) % AUX_PAGE_BYTES : 1u + fuzz_u16(in) % 8192;
    m->npages = (m->len_bytes + AUX_PAGE_BYTES - 1) / AUX_PAGE_BYTES;
    m->whole = how & 4;
    m->skip = how & 8 ? fuzz_u8(in) : 0;
    m->flags = how & 16 ? fuzz_u8(in) % 4 : 0;
    m->out_a = some_place(in);
    m->out_b = some_place(in);
    m->out_cap_bytes = how < 240 ? REGION / 4 : (uint32_t)fuzz_number(in);
    if (how >= 248)
        m->npages = fuzz_u8(in);
    for (uint32_t i = 0; i < m->npages; i++)
        page[i] = fuzz_u8(in) % (POOL_PAGES + (how >= 224));
    return sizeof *m + m->npages * sizeof *page;
}

static size_t chunk_in(struct fuzz_in *in, uint8_t *buf, uint8_t how)
{
    struct fp_auxw_chunk_in *m = (struct fp_auxw_chunk_in *)(void *)buf;
    static const char *const names[] = {"coder", "foreign", "table", "gone", "../x", ""};
    uint32_t len = 1u + fuzz_u16(in) % 8192;

    m->a = some_place(in);
    m->b = some_place(in);
    m->cap_bytes = how < 240 ? REGION / 4 : (uint32_t)fuzz_number(in);
    m->coded_bytes = len;
    m->nstages = how < 224 ? 1 + how % 3 : how % 16;
    for (uint32_t i = m->nstages; i-- > 0;) {
        uint8_t c = fuzz_u8(in);

        if (i >= FP_AUXW_STAGES_MAX)
            continue;
        snprintf(m->stage[i].name, sizeof m->stage[i].name, "%s", names[c < 200 ? c % 2 : c % 6]);
        m->stage[i].out_bytes = len;
        len -= c < 128 ? 0 : c % len;
        m->stage[i].in_bytes = c < 240 ? len : (uint32_t)fuzz_number(in);
    }
    return sizeof *m;
}

/* Bytes behind a struct, and how many of them there are said to be. */
static uint32_t tail(struct fuzz_in *in, uint8_t *buf, size_t *n, uint8_t how)
{
    uint32_t len = (uint32_t)fuzz_bytes(in, buf + *n, fuzz_u8(in) % 40);

    *n += len;
    return how < 232 ? len : some_bytes(in, 300);
}

static size_t event(struct fuzz_in *in, uint8_t *buf, uint8_t how)
{
    struct fp_auxw_event *m = (struct fp_auxw_event *)(void *)buf;
    size_t n = sizeof *m;

    m->app = some_app(in);
    m->wait = how & 1;
    m->io = (struct fp_aux_io){.size_bytes = sizeof m->io, .op = some_bytes(in, FP_AUX_OP_COUNT), .ino = how, .result = -(how % 4)};
    m->name_bytes = tail(in, buf, &n, how);
    m->new_name_bytes = how & 2 ? tail(in, buf, &n, how) : 0;
    m->data_bytes = how & 4 ? tail(in, buf, &n, how) : 0;
    if (how & 8) {
        m->data_bytes = how & 16 ? FP_AUXW_INLINE_BYTES + 1u + fuzz_u16(in) : (uint32_t)fuzz_number(in);
        m->data_region = some_place(in);
    }
    return n;
}

static size_t file(struct fuzz_in *in, uint8_t *buf, uint8_t how)
{
    struct fp_auxw_file *m = (struct fp_auxw_file *)(void *)buf;
    size_t n = sizeof *m;

    m->file = (struct fp_aux_file){.size_bytes = sizeof m->file, .ino = 5, .file_serial = how & 1, .len_bytes = how};
    m->path_bytes = tail(in, buf, &n, how);
    return n;
}

static size_t set(struct fuzz_in *in, uint8_t *buf, uint8_t how)
{
    struct fp_auxw_set *m = (struct fp_auxw_set *)(void *)buf;
    size_t n = sizeof *m;

    tail(in, buf, &n, 0);
    m->nfiles = how < 200 ? how % 5 : some_bytes(in, 255);
    m->step = how;
    return n;
}

static size_t message(struct fuzz_in *in, uint8_t *buf, uint8_t how)
{
    struct fp_auxw_message *m = (struct fp_auxw_message *)(void *)buf;
    size_t n = sizeof *m;

    m->app = some_app(in);
    m->mount = how;
    m->node_bytes = tail(in, buf, &n, how);
    m->data_bytes = tail(in, buf, &n, how);
    return n;
}

static size_t change(struct fuzz_in *in, uint8_t *buf, uint8_t how)
{
    static const char *const texts[] = {"cores=2", "cores=1-2", "word=two", "size=4KiB", "text=x", "queue=1", "deadline=5s", "verify=1", "idle=1s",
                                        "word=no", "memory=1", "=", "cores=0", "failures=3", "nothing", ""};
    struct fp_auxw_change *m = (struct fp_auxw_change *)(void *)buf;
    size_t n = sizeof *m;

    m->app = some_app(in);
    if (how < 200) {
        m->text_bytes = (uint32_t)strlen(texts[how % 16]);
        memcpy(m + 1, texts[how % 16], m->text_bytes);
        return n + m->text_bytes;
    }
    m->text_bytes = tail(in, buf, &n, how);
    return n;
}

static size_t config(struct fuzz_in *in, uint8_t *buf, uint8_t how, uint32_t index)
{
    static const char *const texts[] = {"coder", "table", "foreign verify=1", "coder cores=1-2 word=two", "table deadline=1s idle=1s queue=2",
                                        "coder queue=1 size=1MiB verify=1", "gone", "coder what=1"};
    struct fp_auxw_config *m = (struct fp_auxw_config *)(void *)buf;
    size_t n = sizeof *m;

    m->index = how < 250 ? index : (uint32_t)fuzz_number(in);
    m->required = how >= 240 ? fuzz_u8(in) % 4 : 0;
    if (how >= 232) {
        tail(in, buf, &n, 0);
        return n;
    }
    memcpy(m + 1, texts[how < 200 ? how % 6 : how % 8], strlen(texts[how < 200 ? how % 6 : how % 8]));
    return n + strlen(texts[how < 200 ? how % 6 : how % 8]);
}

static size_t start(struct fuzz_in *in, uint8_t *buf, uint8_t how)
{
    struct fp_auxw_start *m = (struct fp_auxw_start *)(void *)buf;

    m->pool_bytes = how < 250 ? POOL_PAGES * AUX_PAGE_BYTES : fuzz_number(in);
    m->region_bytes = how < 250 ? REGION : fuzz_number(in);
    memset(m->node, how >= 240 ? 'n' : 0, sizeof m->node);
    memset(m->cores, how >= 240 ? '1' : 0, sizeof m->cores);
    memset(m->plugin_dir, how >= 240 ? 'd' : 0, sizeof m->plugin_dir);
    m->memory_bytes = how & 1 ? 1 << 20 : 0;
    return sizeof *m;
}

/* One message into the buffer, as the host's main thread gets it. */
static size_t say(uint8_t *buf, uint32_t type, uint8_t how)
{
    struct fp_auxw_head *h = (struct fp_auxw_head *)(void *)buf;
    struct fuzz_in *in = x.in;
    size_t n = 0, least = sizeof *h;
    uint64_t id = how == 77 ? 0 : how == 78 ? 1 + x.last_id % 255 : 1 + ++x.last_id % 255;

    for (size_t i = 0; i < fuzz_aux_nkinds; i++)
        least = fuzz_aux_kinds[i].type == type ? fuzz_aux_kinds[i].bytes : least;
    memset(buf, 0, least);
    switch (type) {
    case FP_AUXW_CHUNK_OUT: n = chunk_out(in, buf, how); break;
    case FP_AUXW_CHUNK_IN: n = chunk_in(in, buf, how); break;
    case FP_AUXW_EVENT: n = event(in, buf, how); break;
    case FP_AUXW_FILE: n = file(in, buf, how); break;
    case FP_AUXW_SET: n = set(in, buf, how); break;
    case FP_AUXW_MESSAGE: n = message(in, buf, how); break;
    case FP_AUXW_CHANGE: n = change(in, buf, how); break;
    case FP_AUXW_CONFIG: n = config(in, buf, how, how % 3); break;
    case FP_AUXW_START: n = start(in, buf, how); break;
    case FP_AUXW_CANCEL: n = least, id = x.last_id - how % 4; break;
    case FP_AUXW_STORED:
        *(struct fp_auxw_stored *)(void *)buf =
            (struct fp_auxw_stored){.ticket = how & 1 ? fuzz_apps_ticket : fuzz_number(in), .chunk = fuzz_apps_chunk(in), .app = some_app(in), .len_bytes = 4096};
        n = least;
        break;
    default: n = least; break;
    }
    h->type = type;
    h->id = id;
    h->len_bytes = (uint32_t)n;
    if (how == 79)
        h->len_bytes = some_bytes(in, 255), x.understood = false;
    if (how == 80)
        n = fuzz_u8(in), x.understood = false;
    if (id < IDS_MAX && type != FP_AUXW_CANCEL && type != FP_AUXW_CONFIG && type != FP_AUXW_START && type != FP_AUXW_STOP)
        x.asked[id]++;
    return n;
}

static bool all_answered(void)
{
    for (unsigned i = 1; i < IDS_MAX; i++)
        if (x.asked[i] != x.answered[i])
            return false;
    return true;
}

/* Nothing is said any more until all is answered. */
static void drain(void)
{
    for (int i = 0; i < 2000 && !x.over && !(all_answered() && i >= 10); i++) {
        fuzz_threads_run();
        wire_pass_ms(10);
    }
    FUZZ_CHECK(x.over || !x.understood || all_answered());
}

static uint32_t some_type(uint8_t what)
{
    return what < 240 ? fuzz_aux_kinds[what % 9].type : what < 250 ? fuzz_aux_kinds[what % fuzz_aux_nkinds].type : what - 230u;
}

/* Where the host's main thread waits: the others run, and the input goes on. */
int __wrap_recvmmsg(int fd, struct mmsghdr *v, unsigned n, int flags, struct timespec *timeout)
{
    struct fuzz_in *in = x.in;
    uint8_t what = fuzz_u8(in), how = fuzz_u8(in), rounds = fuzz_u8(in);
    uint8_t *buf = v[0].msg_hdr.msg_iov->iov_base;

    FUZZ_CHECK(fd == FD_JOBS && n > 0 && flags == MSG_WAITFORONE && !timeout);
    if (x.poisoned && __asan_unpoison_memory_region)
        __asan_unpoison_memory_region(x.poisoned, BEHIND);
    x.poisoned = NULL;
    for (unsigned i = 0; i < (x.steps < 4 ? 12u : rounds % 4u); i++)
        fuzz_threads_run();
    if (x.over) { /* it has ended the socket itself */
        v[0].msg_len = 0;
        return 1;
    }
    if (rounds >= 200)
        wire_pass_ms(rounds >= 250 ? 30000 : 60);
    if (fuzz_left(in) == 0 || x.steps == STEPS_MAX) {
        drain();
        x.over = true;
        v[0].msg_len = x.steps % 2 ? 0 : (unsigned)say(buf, FP_AUXW_STOP, 0);
        return 1;
    }
    x.steps++;
    v[0].msg_len = (unsigned)say(buf, x.steps <= 2 ? FP_AUXW_CONFIG : x.steps == 3 ? FP_AUXW_START : some_type(what), how);
    if (x.steps <= 2 && how < 250)
        ((struct fp_auxw_config *)(void *)buf)->index = x.steps - 1;
    if (((struct fp_auxw_head *)(void *)buf)->type == FP_AUXW_STOP)
        x.over = true;
    x.poisoned = buf + (v[0].msg_len + 7) / 8 * 8;
    if (__asan_poison_memory_region)
        __asan_poison_memory_region(x.poisoned, BEHIND);
    return 1;
}

/* -------------------------------------------------------------- start and end */

static void init(void)
{
    if (x.pool)
        return;
    aux_services_init();
    x.pool = aligned_alloc(4096, POOL_PAGES * AUX_PAGE_BYTES);
    x.region = aligned_alloc(4096, REGION);
    FUZZ_CHECK(x.pool && x.region);
    for (size_t i = 0; i < POOL_PAGES * AUX_PAGE_BYTES; i++)
        x.pool[i] = i / 8192 % 2 ? (uint8_t)(i * 31 >> 3) : 0;
    memset(x.region, 1, REGION);
    fuzz_thread_own = (void **)(void *)&aux_self;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    static struct fp_auxw_status status;
    struct fuzz_in in = {data, data + len};
    uint8_t *pool, *region;
    struct aux_thread self;
    int rc;

    init();
    pool = x.pool;
    region = x.region;
    memset(&x, 0, offsetof(__typeof__(x), body));
    memset(&status, 0, sizeof status);
    x.pool = pool;
    x.region = region;
    x.in = fuzz_apps_in = &in;
    fuzz_apps_ticket = 0;
    x.understood = true;
    x.fields = (struct fuzz_pool){.session = {1, 1, 2, 0}, .ino_max = 8, .chunk_max = 4};
    x.h.fd_jobs = FD_JOBS;
    x.h.fd_services = FD_SVC;
    x.h.status = &status;
    wire_reset();
    fuzz_threads_reset();
    fuzz_blocks_begin();
    pthread_mutex_init(&x.h.jobs.lock, NULL);
    aux_thread_begin(&self, &x.h, FP_AUXW_NO_APP, -1);
    FUZZ_CHECK(aux_svc_new(&x.h) == 0);
    rc = aux_link_run(&x.h);
    FUZZ_CHECK(rc == 0 || rc == -EPROTO || rc == -EINVAL);
    in.at = in.end; /* no more answers */
    aux_control_stop(&x.h);
    FUZZ_CHECK(fuzz_threads_left() == 0);
    aux_thread_end(&self);
    fuzz_blocks_end();
    return 0;
}
