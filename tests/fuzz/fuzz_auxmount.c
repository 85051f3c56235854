/*
 * What a host of aux-apps says to its mount, when a plugin has scribbled over it: results, requests, lines, and the page of counters (client/aux).
 *
 * The real link thread, calls, results, services, holds and watch of fp-mount, on the thread of this harness: its poll(2) is where the input goes on. The
 * host is this program, too: it has both sockets and the status page, and says what the input says, about chunks that the mount has given it or not. The manager
 * answers as the input says, or not at all. Every chunk comes back exactly once, with a result that describes it; when all has ended no room of the
 * region is taken.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "client/aux/internal.h"
#include "client/aux/services.h"
#include "client/core.h"
#include "client/data.h"
#include "client/data/pieces.h"
#include "client/data/pool.h"
#include "client/inode.h"
#include "life.pb-c.h"
#include "tests/fuzz/kinds.h"
#include "tests/fuzz/memsock.h"
#include "tests/fuzz/wire.h"

#define STEPS_MAX   40
#define JOBS        8
#define JOB_BYTES   (96u << 10)
#define ASKED_MAX   256
#define PAGE_BYTES  65536u

struct job {
    struct cl_aux_job job; /* first */
    uint8_t *pages[2];
    bool used;
    unsigned done;
};

static struct {
    struct fuzz_in *in;
    struct cl_mount m;
    struct cl_pool *pool; /* kept */
    struct cl_aux *a;
    struct job job[JOBS];
    struct fuzz_pool fields;
    struct fp_auxw_status status;
    int jobs_fd, services_fd; /* the host's ends; -1: there is none */
    uint64_t last_id;         /* of what came from the mount */
    void *(*thread)(void *arg);
    void *thread_arg;
    struct {
        cl_mgr_cb cb;
        void *arg;
        uint32_t type;
    } asked[ASKED_MAX]; /* questions to the manager */
    unsigned nasked;
    int steps;
    uint8_t buf[FP_AUXW_MESSAGE_MAX_BYTES], body[8192];
} x;

/* -------------------------------------------------------------- threads */

int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *attr, void *(*fn)(void *arg), void *arg);
int __wrap_pthread_join(pthread_t t, void **out);
int __wrap_pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock);
int __wrap_pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *lock, const struct timespec *ts);
int __wrap_poll(struct pollfd *p, nfds_t n, int timeout_ms);
int __wrap_cl_aux_tasks_start(struct cl_aux *a);
void __wrap_cl_aux_tasks_stop(struct cl_aux *a);
void __wrap_cl_aux_task_post(struct cl_aux *a, struct aux_task *t);

static bool manager_answers(void);

int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *attr, void *(*fn)(void *arg), void *arg)
{
    (void)attr;
    *t = pthread_self();
    x.thread = fn;
    x.thread_arg = arg;
    return 0;
}

int __wrap_pthread_join(pthread_t t, void **out)
{
    (void)t, (void)out;
    return 0;
}

/* Only who started the link thread waits like this: now it runs, and with it the input. */
int __wrap_pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock)
{
    (void)cond;
    pthread_mutex_unlock(lock);
    x.a = x.m.aux = x.thread_arg;
    x.thread(x.thread_arg);
    x.m.aux = NULL;
    x.a->started = true;
    x.a->start_error = 0;
    pthread_mutex_lock(lock);
    return 0;
}

int __wrap_pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *lock, const struct timespec *ts)
{
    bool any;

    (void)cond, (void)ts;
    pthread_mutex_unlock(lock);
    any = manager_answers();
    pthread_mutex_lock(lock);
    if (!any)
        wire_pass_ms(5000);
    return any ? 0 : ETIMEDOUT;
}

int __wrap_cl_aux_tasks_start(struct cl_aux *a)
{
    (void)a;
    return 0;
}

void __wrap_cl_aux_tasks_stop(struct cl_aux *a)
{
    (void)a;
}

void __wrap_cl_aux_task_post(struct cl_aux *a, struct aux_task *t)
{
    t->run(a, t);
}

/* -------------------------------------------------------------- the process of the host */

int __wrap_cl_aux_spawn(struct cl_aux *a, struct aux_host **out, char *why, size_t why_size);
void __wrap_cl_aux_host_put(struct aux_host *h);
int __wrap_cl_aux_host_end(struct cl_aux *a, struct aux_host *h, bool gently);

static void host_closes(void)
{
    if (x.jobs_fd >= 0) {
        close(x.jobs_fd);
        close(x.services_fd);
    }
    x.jobs_fd = x.services_fd = -1;
}

int __wrap_cl_aux_spawn(struct cl_aux *a, struct aux_host **out, char *why, size_t why_size)
{
    struct aux_host *h;
    int jobs[2], services[2];

    (void)a;
    if (x.in && fuzz_left(x.in) > 0 && fuzz_u8(x.in) == 255) {
        snprintf(why, why_size, "the input says so");
        return -ENOENT;
    }
    host_closes();
    memsock_pair(jobs);
    memsock_pair(services);
    h = calloc(1, sizeof *h);
    memset(&x.status, 0, sizeof x.status);
    *h = (struct aux_host){.refs = 1, .pid = getpid(), .jobs_fd = jobs[0], .services_fd = services[0], .pid_fd = -1, .status = &x.status,
                           .started_ms = fp_now_ms()};
    x.jobs_fd = jobs[1];
    x.services_fd = services[1];
    *out = h;
    return 0;
}

void __wrap_cl_aux_host_put(struct aux_host *h)
{
    if (!h || atomic_fetch_sub(&h->refs, 1) != 1)
        return;
    close(h->jobs_fd);
    close(h->services_fd);
    free(h);
}

int __wrap_cl_aux_host_end(struct cl_aux *a, struct aux_host *h, bool gently)
{
    static const int ends[] = {0, SIGSEGV, SIGKILL, SIGTERM, 256, SIGABRT};

    (void)a, (void)gently;
    h->pid = 0;
    host_closes();
    return x.in ? ends[fuzz_below(x.in, 6)] : 0;
}

/* What the mount has sent is read: numbers of jobs are learnt. */
static void host_reads(void)
{
    struct fp_auxw_head *h = (struct fp_auxw_head *)(void *)x.buf;
    ssize_t n;

    while (x.jobs_fd >= 0 && (n = recv(x.jobs_fd, x.buf, sizeof x.buf, MSG_DONTWAIT)) > 0) {
        FUZZ_CHECK((size_t)n >= sizeof *h && h->len_bytes == (size_t)n);
        if (h->id > x.last_id)
            x.last_id = h->id;
    }
    while (x.services_fd >= 0 && (n = recv(x.services_fd, x.buf, sizeof x.buf, MSG_DONTWAIT)) > 0)
        FUZZ_CHECK((size_t)n >= sizeof(struct fp_auxw_svc) && h->len_bytes == (size_t)n);
}

static void say(int fd, uint32_t type, uint64_t id, size_t n)
{
    struct fp_auxw_head *h = (struct fp_auxw_head *)(void *)x.buf;

    h->type = type;
    h->id = id;
    h->len_bytes = (uint32_t)n;
    if (fd >= 0)
        (void)!send(fd, x.buf, n, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static uint64_t some_id(struct fuzz_in *in)
{
    uint8_t c = fuzz_u8(in);

    return c < 240 ? x.last_id - (x.last_id ? c % 8 % x.last_id : 0) : fuzz_number(in);
}

/* Some bytes of what lies in the buffer are others. */
static void harm(struct fuzz_in *in, size_t n)
{
    uint8_t c = fuzz_u8(in);

    for (int i = 0; i < c - 250; i++)
        x.buf[16 + fuzz_u16(in) % (n - 16)] = fuzz_u8(in);
}

static void say_ready(struct fuzz_in *in, uint8_t how)
{
    struct fp_auxw_ready r = {.abi = FP_AUX_ABI, .napps = x.a->napps};

    for (uint32_t i = 0; i < x.a->napps; i++) {
        snprintf(r.app[i].name, sizeof r.app[i].name, "%s", x.a->app[i].decl.name);
        r.app[i].has = how & 1 ? fuzz_u8(in) : FP_AUXW_HAS_OUT | FP_AUXW_HAS_IN | FP_AUXW_HAS_STORED;
        r.app[i].deadline_ms = how & 2 ? (uint32_t)fuzz_number(in) : 30000;
        r.app[i].failures_max = how & 4 ? (uint32_t)fuzz_number(in) : 100;
        r.app[i].required = how & 8 ? fuzz_u8(in) % 8 : 0;
        r.app[i].io_flags[fuzz_u8(in) % 64] = fuzz_u8(in);
    }
    memcpy(x.buf, &r, sizeof r);
    harm(in, sizeof r);
    say(x.jobs_fd, FP_AUXW_READY, 0, sizeof r);
}

static void say_result(struct fuzz_in *in, uint8_t how)
{
    struct fp_auxw_out_done d = {.app = fuzz_u8(in) % 3};
    uint8_t *at = x.buf + sizeof d;
    uint32_t off = 0, fresh = 0, len = how & 1 ? JOB_BYTES : 1u + fuzz_u16(in);

    d.npieces = fuzz_u8(in) % 6;
    for (uint32_t i = 0; i < d.npieces; i++) {
        struct fp_auxw_piece p = {.kind = fuzz_u8(in) % 5, .app = fuzz_u8(in) % 3, .off = off};

        p.len_bytes = i + 1 == d.npieces ? len - off : fuzz_u16(in) % (len - off + 1);
        p.at = p.kind == FP_AUXW_PIECE_NEW ? fresh : 0;
        p.chunk = p.kind == FP_AUXW_PIECE_STORED ? UINT64_C(1) << 32 | fuzz_u8(in) % 4 : 0;
        fresh += p.kind == FP_AUXW_PIECE_NEW ? p.len_bytes : 0;
        off += p.len_bytes;
        memcpy(at, &p, sizeof p);
        at += sizeof p;
    }
    d.new_bytes = d.coded_bytes = d.npieces ? fresh : len;
    d.nstages = how & 2 ? 1 : 0;
    d.where = how & 2 ? 1 + (how >> 2 & 1) : 0;
    if (how & 2) {
        struct fp_auxw_stage s = {"fake", d.new_bytes, d.new_bytes};

        memcpy(at, &s, sizeof s);
        at += sizeof s;
    }
    d.note_bytes = fuzz_u8(in);
    memset(at, 6, d.note_bytes);
    at += d.note_bytes;
    d.ran = fuzz_u8(in) % 4;
    d.stored_app = fuzz_u8(in) % 3;
    d.failed = how >= 240 ? 1 : 0;
    d.status = how >= 248 ? -(int)fuzz_u8(in) : 0;
    d.ticket[0] = fuzz_u8(in) % 2;
    memcpy(x.buf, &d, sizeof d);
    harm(in, (size_t)(at - x.buf));
    say(x.jobs_fd, FP_AUXW_CHUNK_OUT_DONE, some_id(in), (size_t)(at - x.buf));
}

/* One of the short ones, of any length. */
static void say_short(struct fuzz_in *in, uint8_t how)
{
    static const uint32_t types[] = {FP_AUXW_DONE, FP_AUXW_LOG, FP_AUXW_SKIP, FP_AUXW_FAILED, FP_AUXW_DONE, FP_AUXW_LOG, FP_AUXW_NONE, FP_AUXW_CHUNK_OUT_DONE};
    size_t n = 16 + fuzz_bytes(in, x.buf + 16, 16 + how);

    if (how % 8 == 2) {
        struct fp_auxw_skip s = {.app = fuzz_u8(in) % 4, .flags = fuzz_u8(in) % 4, .of = fuzz_u8(in), .come = fuzz_u8(in), .bytes = fuzz_number(in),
                                 .step_bytes = fuzz_number(in)};

        memcpy(x.buf, &s, n = sizeof s);
    }
    say(x.jobs_fd, types[how % 8], some_id(in), n);
}

/* A new one of either kind is to be said here, too. */
_Static_assert(FP_AUXW_SKIP - FP_AUXW_READY == 5, "a new message of the host: say_short()");
_Static_assert(FP_AUXW_SVC_POLICY - FP_AUXW_SVC_EARLIER == 11, "a new service: body_of()");

static const ProtobufCMessageDescriptor *body_of(uint32_t type)
{
    static const ProtobufCMessageDescriptor *const bodies[] = {
        &fp__aux_earlier__descriptor, &fp__note_find__descriptor, &fp__hold__descriptor, &fp__aux_read__descriptor, &fp__table__descriptor,
        &fp__aux_read__descriptor, &fp__aux_write__descriptor, &fp__lookup__descriptor, &fp__get_xattr__descriptor, &fp__set_xattr__descriptor,
        &fp__aux_msg__descriptor, &fp__policy__descriptor};

    type -= FP_AUXW_SVC_EARLIER;
    return type < sizeof bodies / sizeof *bodies ? bodies[type] : &fp__empty__descriptor;
}

static void ask_service(struct fuzz_in *in, uint8_t how)
{
    uint32_t type = FP_AUXW_SVC_EARLIER + how % 13;
    struct fp_auxw_svc s = {.app = fuzz_u8(in) % 3, .file_serial = fuzz_u8(in) % 3};
    size_t n = fuzz_message(in, body_of(type), &x.fields, x.body, sizeof x.body);

    memcpy(x.buf, &s, sizeof s);
    memcpy(x.buf + sizeof s, x.body, n);
    say(x.services_fd, type, 1 + how % 3, how >= 250 ? (size_t)(16 + how % 16) : sizeof s + n);
}

/* -------------------------------------------------------------- the manager, the data path */

void __wrap_cl_mgr_call(struct cl_mount *m, uint32_t type, ProtobufCMessage *msg, cl_mgr_cb cb, void *arg);
void __wrap_cl_mgr_call_answered(struct cl_mount *m, uint32_t type, ProtobufCMessage *msg, cl_mgr_cb cb, void *arg);
int __wrap_cl_mgr_call_sync(struct cl_mount *m, uint32_t type, ProtobufCMessage *msg, ProtobufCMessage **reply);
void __wrap_cl_mgr_send(struct cl_mount *m, uint32_t type, ProtobufCMessage *msg);
void __wrap_cl_mgr_release(struct cl_mount *m, struct cl_inode *inode, bool write, bool torn);
uint32_t __wrap_cl_core_session(struct cl_mount *m);
int __wrap_cl_data_open(struct cl_mount *m, struct cl_handle *h, const Fp__Attr *a);
ssize_t __wrap_cl_data_write(struct cl_mount *m, struct cl_handle *h, const char *buf, size_t len, uint64_t off, bool kill_suidgid);
ssize_t __wrap_cl_data_read(struct cl_mount *m, struct cl_handle *h, size_t len, uint64_t off, struct iovec *iov, int *niov, struct cl_read_pin **pin);
void __wrap_cl_data_read_done(struct cl_mount *m, struct cl_read_pin *pin);
int __wrap_cl_data_flush(struct cl_mount *m, struct cl_inode *inode);
void __wrap_cl_data_release(struct cl_mount *m, struct cl_handle *h, void (*end)(struct cl_mount *m, struct cl_handle *h));
void __wrap_cl_aux_svc_read_chunk(struct cl_aux *a, struct aux_request *r);

/* What the manager says: 0 and *reply, or why there is none. */
static int manager_says(uint32_t type, ProtobufCMessage **reply)
{
    const ProtobufCMessageDescriptor *d = fuzz_reply_of(type);
    size_t n;

    *reply = NULL;
    if (!x.in || fuzz_left(x.in) == 0)
        return FP_ESTOPPING;
    if (fuzz_u8(x.in) >= 224)
        return -1 - fuzz_u8(x.in) % 100;
    n = fuzz_message(x.in, d, &x.fields, x.body, sizeof x.body);
    *reply = protobuf_c_message_unpack(d, NULL, n, x.body);
    return *reply ? 0 : -EPROTO;
}

void __wrap_cl_mgr_call(struct cl_mount *m, uint32_t type, ProtobufCMessage *msg, cl_mgr_cb cb, void *arg)
{
    (void)m, (void)msg;
    FUZZ_CHECK(x.nasked < ASKED_MAX);
    x.asked[x.nasked].cb = cb;
    x.asked[x.nasked].arg = arg;
    x.asked[x.nasked++].type = type;
}

/* Never from inside of the question. True: something was answered; what is left waits on. */
static bool manager_answers(void)
{
    bool any = false;

    for (unsigned n = x.nasked; n > 0; n--) {
        cl_mgr_cb cb = x.asked[0].cb;
        void *arg = x.asked[0].arg;
        uint32_t type = x.asked[0].type;
        ProtobufCMessage *reply;
        int rc;

        memmove(x.asked, x.asked + 1, --x.nasked * sizeof x.asked[0]);
        if (x.in && fuzz_left(x.in) > 0 && fuzz_u8(x.in) >= 236) {
            __wrap_cl_mgr_call(NULL, type, NULL, cb, arg);
            continue;
        }
        rc = manager_says(type, &reply);
        cb(arg, rc, reply);
        if (reply)
            protobuf_c_message_free_unpacked(reply, NULL);
        any = true;
    }
    return any;
}

void __wrap_cl_mgr_call_answered(struct cl_mount *m, uint32_t type, ProtobufCMessage *msg, cl_mgr_cb cb, void *arg)
{
    __wrap_cl_mgr_call(m, type, msg, cb, arg);
}

int __wrap_cl_mgr_call_sync(struct cl_mount *m, uint32_t type, ProtobufCMessage *msg, ProtobufCMessage **reply)
{
    ProtobufCMessage *r;
    int rc = manager_says(type, &r);

    (void)m, (void)msg;
    if (reply)
        *reply = r;
    else if (r)
        protobuf_c_message_free_unpacked(r, NULL);
    return rc;
}

void __wrap_cl_mgr_send(struct cl_mount *m, uint32_t type, ProtobufCMessage *msg)
{
    (void)m, (void)type, (void)msg;
}

static void nothing(void *arg)
{
    (void)arg;
}

void __wrap_cl_mgr_release(struct cl_mount *m, struct cl_inode *inode, bool write, bool torn)
{
    (void)torn;
    cl_inode_unhold(m, inode, write, nothing, NULL);
}

uint32_t __wrap_cl_core_session(struct cl_mount *m)
{
    (void)m;
    return 1;
}

int __wrap_cl_data_open(struct cl_mount *m, struct cl_handle *h, const Fp__Attr *a)
{
    (void)m, (void)h, (void)a;
    return 0;
}

ssize_t __wrap_cl_data_write(struct cl_mount *m, struct cl_handle *h, const char *buf, size_t len, uint64_t off, bool kill_suidgid)
{
    (void)m, (void)h, (void)off, (void)kill_suidgid;
    FUZZ_CHECK(len == 0 || buf);
    return len % 7 == 6 ? -EIO : (ssize_t)len;
}

ssize_t __wrap_cl_data_read(struct cl_mount *m, struct cl_handle *h, size_t len, uint64_t off, struct iovec *iov, int *niov, struct cl_read_pin **pin)
{
    static uint8_t zeros[FP_AUXW_MESSAGE_MAX_BYTES];

    (void)m, (void)h;
    *pin = NULL;
    if (off % 5 == 4)
        return -EIO;
    len = len < sizeof zeros ? len : sizeof zeros;
    FUZZ_CHECK(*niov >= 1);
    iov[0] = (struct iovec){zeros, len};
    *niov = 1;
    return (ssize_t)len;
}

void __wrap_cl_data_read_done(struct cl_mount *m, struct cl_read_pin *pin)
{
    (void)m, (void)pin;
}

int __wrap_cl_data_flush(struct cl_mount *m, struct cl_inode *inode)
{
    (void)m;
    return inode->ino % 5 == 4 ? -EIO : 0;
}

void __wrap_cl_data_release(struct cl_mount *m, struct cl_handle *h, void (*end)(struct cl_mount *m, struct cl_handle *h))
{
    end(m, h);
}

/* Of a benefactor: fuzz_replies' matter. */
void __wrap_cl_aux_svc_read_chunk(struct cl_aux *a, struct aux_request *r)
{
    (void)a;
    cl_aux_reply(r, -EIO, NULL, 0, true);
}

/* -------------------------------------------------------------- chunks */

static void on_done(struct cl_aux_job *job)
{
    struct job *j = (struct job *)job;
    volatile uint8_t sink = 0;

    FUZZ_CHECK(j->used && j->done++ == 0 && job->status <= 0);
    if (job->status)
        return;
    FUZZ_CHECK(cl_pieces_check(job->pieces, job->npieces, job->len_bytes, job->new_bytes) == 0);
    for (uint32_t i = 0; i < job->note_bytes; i++)
        sink = (uint8_t)(sink ^ job->note[i]);
    for (uint32_t i = 0; i < job->nkeys; i++)
        sink = (uint8_t)(sink ^ job->keys[i]);
    if (job->nstages > 0 && job->coded_bytes > 0)
        sink = (uint8_t)(sink ^ job->bytes[0] ^ job->bytes[job->coded_bytes - 1]);
}

static void job_fini(struct job *j)
{
    cl_aux_job_fini(&x.m, &j->job);
    cl_pool_put(x.pool, j->pages, j->job.npages);
    j->used = false;
}

static void submit(struct fuzz_in *in, uint8_t how)
{
    struct job *j = &x.job[how % JOBS];

    if (j->used && j->done == 0)
        return;
    if (j->used)
        job_fini(j);
    memset(j, 0, sizeof *j);
    j->job = (struct cl_aux_job){.ino = 5, .file_serial = how & 64 ? 1 : 0, .len_bytes = how & 8 ? JOB_BYTES : 1u + fuzz_u16(in), .whole = how & 16,
                                 .no_stored = how & 32, .pages = j->pages, .done = on_done};
    j->job.npages = (j->job.len_bytes + PAGE_BYTES - 1) / PAGE_BYTES;
    if (cl_pool_try_get(x.pool, j->pages, j->job.npages, 0) < 0)
        return;
    j->used = true;
    cl_aux_submit(&x.m, &j->job);
}

/* -------------------------------------------------------------- steps */

static void said_by_manager(struct fuzz_in *in, uint8_t how)
{
    const ProtobufCMessageDescriptor *d = how & 1 ? &fp__aux_msg__descriptor : &fp__aux_set__descriptor;
    size_t n = fuzz_message(in, d, &x.fields, x.body, sizeof x.body);
    ProtobufCMessage *msg = protobuf_c_message_unpack(d, NULL, n, x.body);

    if (how >= 240)
        cl_aux_session_new(&x.m);
    else if (how >= 224)
        cl_aux_recall(&x.m);
    else if (msg && how & 1)
        cl_aux_message(&x.m, (const Fp__AuxMsg *)msg);
    else if (msg)
        cl_aux_set(&x.m, (const Fp__AuxSet *)msg);
    if (msg)
        protobuf_c_message_free_unpacked(msg, NULL);
}

/* The page that the host writes and the mount reads: anything may stand in it. */
static void scribble(struct fuzz_in *in, uint8_t how)
{
    uint8_t *p = (uint8_t *)&x.status;
    struct fp_auxw_thread *t = &x.status.thread[how % 4];

    if (how < 128) {
        t->tid = 1;
        t->app = fuzz_u8(in) % 4;
        t->in_call = fuzz_u8(in);
        t->since_ns = fuzz_number(in);
        t->deadline_ms = (uint32_t)fuzz_number(in);
    } else if (how < 160) {
        x.status.crashed_app = (uint32_t)fuzz_number(in);
        x.status.crashed_signal = (uint32_t)fuzz_number(in);
    } else if (how < 200) {
        memset(p + fuzz_u32(in) % (sizeof x.status - 256), fuzz_u8(in), 256);
    } else {
        x.status.beat++;
    }
}

static void step(struct fuzz_in *in)
{
    uint8_t what = fuzz_u8(in), how = fuzz_u8(in);
    static Fp__ClientStats s;

    if (what < 60)
        submit(in, how);
    else if (what < 110)
        say_result(in, how);
    else if (what < 130)
        say_ready(in, how);
    else if (what < 150)
        say_short(in, how);
    else if (what < 190)
        ask_service(in, how);
    else if (what < 205)
        said_by_manager(in, how);
    else if (what < 215)
        scribble(in, how);
    else if (what < 232)
        wire_pass_ms(how * UINT64_C(50));
    else if (what < 236)
        host_closes();
    else if (what < 240) {
        fp__client_stats__init(&s);
        cl_aux_stats(&x.m, &s);
        FUZZ_CHECK(protobuf_c_message_get_packed_size(&s.base) > 0);
    } else if (what < 248) {
        cl_aux_stored(&x.m, &(struct cl_aux_tickets){{how % 3, how}, {how % 4, 1}}, UINT64_C(1) << 32 | how, 0, 4096);
    } else if (x.job[how % JOBS].used && x.job[how % JOBS].done) {
        job_fini(&x.job[how % JOBS]);
    }
}

/* Where the link thread waits. Others who wait find that nobody reads. */
int __wrap_poll(struct pollfd *p, nfds_t n, int timeout_ms)
{
    (void)timeout_ms;
    if (n != 4)
        return memsock_poll(p, n);
    host_reads();
    manager_answers();
    if (fuzz_left(x.in) == 0 || x.steps++ == STEPS_MAX)
        x.a->stopping = true;
    else
        step(x.in);
    return memsock_poll(p, n);
}

/* -------------------------------------------------------------- start and end */

static size_t no_reclaim(void *arg, size_t want)
{
    (void)arg, (void)want;
    return 0;
}

static void no_pressure(void *arg)
{
    (void)arg;
}

static void start(struct fuzz_in *in, uint8_t how)
{
    static const char *const texts[2] = {"fake", "other"};
    struct cl_pool *pool = x.pool;

    memset(&x, 0, offsetof(__typeof__(x), buf));
    wire_reset();
    memsock_reset();
    x.pool = pool;
    x.in = in;
    x.jobs_fd = x.services_fd = -1;
    x.fields = (struct fuzz_pool){.session = {1, 1, 2, 0}, .ino_max = 8, .chunk_max = 4};
    x.m.opt.auxapps = (struct fp_strlist){.count = 1 + (how & 1), .items = (const char **)(uintptr_t)texts};
    x.m.opt.auxhost = "/proc/self/exe";
    x.m.opt.auxapp_dir = "/nowhere";
    x.m.opt.node = "here";
    x.m.opt.aux_memory_bytes = UINT64_C(1) << 50;
    x.m.opt.aux_region_bytes = 4u << 20;
    x.m.opt.manager_timeout_ms = 1000;
    x.m.opt.io_timeout_ms = 1000;
    if (!x.pool)
        FUZZ_CHECK(cl_pool_new(4u << 20, no_reclaim, no_pressure, NULL, &x.pool) == 0);
    FUZZ_CHECK(cl_itable_new(&x.m.inodes) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct fuzz_in in = {data, data + len};

    start(&in, fuzz_u8(&in));
    FUZZ_CHECK(cl_aux_start(&x.m, x.pool) == 0);
    x.in = NULL;
    cl_aux_stop(&x.m);
    while (x.nasked > 0)
        manager_answers();
    for (size_t i = 0; i < JOBS; i++) {
        FUZZ_CHECK(!x.job[i].used || x.job[i].done == 1);
        if (x.job[i].used)
            job_fini(&x.job[i]);
    }
    while (x.nasked > 0)
        manager_answers();
    FUZZ_CHECK(x.a->out_room.used == 0 && x.a->in_room.used == 0);
    cl_aux_free(&x.m);
    cl_itable_free(&x.m);
    host_closes();
    FUZZ_CHECK(memsock_open() == 0);
    FUZZ_CHECK(cl_pool_free_pages(x.pool) == cl_pool_pages(x.pool));
    return 0;
}
