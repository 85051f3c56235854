/*
 * A mount with aux-apps over the host of aux_fake_host.h and a manager that holds chunks or not (cl_mgr_call is wrapped): start, jobs, their results, end.
 */
#ifndef TESTS_AUX_FIXTURE_H
#define TESTS_AUX_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "client/aux/holds.h"
#include "client/aux/internal.h"
#include "client/core.h"
#include "client/data/internal.h"
#include "client/data/pool.h"
#include "tests/unit/aux_fake_host.h"

#define POOL_BYTES (64ull << 20)

/* -------------------------------------------------------------- the manager: holds chunks, or not */

static atomic_bool manager_has_it, manager_knows_it; /* knows it: but does not vouch for it */
static atomic_uint manager_data_len = CHUNK;
static atomic_bool manager_silent;
static atomic_uint manager_asked, manager_released;
static atomic_bool manager_waits; /* before it answers */

/* What a silent one leaves unanswered, until the mount ends. */
#define UNANSWERED_MAX 64u
static struct { cl_mgr_cb cb; void *arg; } unanswered[UNANSWERED_MAX];
static atomic_uint nunanswered;

void __wrap_cl_mgr_call(struct cl_mount *m, uint32_t type, ProtobufCMessage *msg, cl_mgr_cb cb, void *arg);

void __wrap_cl_mgr_call(struct cl_mount *m, uint32_t type, ProtobufCMessage *msg, cl_mgr_cb cb, void *arg)
{
    const Fp__Hold *h = (const Fp__Hold *)msg;
    Fp__HoldReply reply = FP__HOLD_REPLY__INIT;
    Fp__ChunkNote note = FP__CHUNK_NOTE__INIT, *notes[4] = {&note, &note, &note, &note};

    (void)m;
    assert_int_equal(type, FP__MSG_TYPE__MSG_HOLD);
    if (h->release) {
        atomic_fetch_add(&manager_released, (unsigned)h->n_ids);
    } else {
        atomic_fetch_add(&manager_asked, 1);
        while (atomic_load(&manager_waits))
            usleep(1000);
        reply.ids = h->ids;
        reply.n_ids = reply.n_chunks = atomic_load(&manager_has_it) ? h->n_ids : 0;
        note.chunk = STORED_ID;
        note.data_len = atomic_load(&manager_data_len);
        reply.chunks = notes;
        reply.gone = h->ids;
        reply.n_gone = atomic_load(&manager_knows_it) ? 0 : h->n_ids - reply.n_ids;
    }
    if (atomic_load(&manager_silent)) {
        unsigned i = atomic_fetch_add(&nunanswered, 1);

        assert_true(i < UNANSWERED_MAX);
        unanswered[i].cb = cb;
        unanswered[i].arg = arg;
        return;
    }
    cb(arg, 0, &reply.base);
}

void __wrap_cl_mgr_call_answered(struct cl_mount *m, uint32_t type, ProtobufCMessage *msg, cl_mgr_cb cb, void *arg);

void __wrap_cl_mgr_call_answered(struct cl_mount *m, uint32_t type, ProtobufCMessage *msg, cl_mgr_cb cb, void *arg)
{
    __wrap_cl_mgr_call(m, type, msg, cb, arg);
}

/* -------------------------------------------------------------- the mount */

static struct cl_mount mount_;
static struct cl_pool *pool;

static inline size_t no_reclaim(void *arg, size_t want)
{
    (void)arg;
    (void)want;
    return 0;
}

static inline void no_pressure(void *arg)
{
    (void)arg;
}

static inline int begin_with(const char *declared, const char *other)
{
    static const char *texts[2];

    memset(&mount_, 0, sizeof mount_);
    texts[0] = declared;
    texts[1] = other;
    mount_.opt.auxapps = (struct fp_strlist){.count = other ? 2 : declared ? 1 : 0, .items = texts};
    mount_.opt.auxhost = "/proc/self/exe";
    mount_.opt.auxapp_dir = "/nowhere";
    mount_.opt.node = "here";
    mount_.opt.aux_memory_bytes = AUX_MEMORY;
    mount_.opt.aux_region_bytes = 36u << 20;
    atomic_store(&manager_asked, 0);
    atomic_store(&manager_released, 0);
    assert_int_equal(cl_pool_new(POOL_BYTES, no_reclaim, no_pressure, NULL, &pool), 0);
    return cl_aux_start(&mount_, pool);
}

static inline int begin(const char *declared)
{
    return begin_with(declared, NULL);
}

static inline void end(void)
{
    cl_aux_stop(&mount_);
    for (unsigned i = 0; i < atomic_load(&nunanswered); i++)
        unanswered[i].cb(unanswered[i].arg, FP_ESTOPPING, NULL);
    atomic_store(&nunanswered, 0);
    cl_aux_free(&mount_);
    cl_pool_free(pool);
}

struct job {
    struct cl_aux_job job; /* first */
    uint8_t *pages[16];
    uint8_t seed;
    atomic_uint done;
};

static inline void on_done(struct cl_aux_job *j)
{
    atomic_fetch_add(&((struct job *)j)->done, 1);
}

static inline uint8_t byte_at(const struct job *j, uint32_t i)
{
    return (uint8_t)(j->seed + i * 7 + (i >> 9));
}

static inline void submit_of(struct job *j, uint8_t seed, uint32_t len, uint64_t serial)
{
    memset(j, 0, sizeof *j);
    j->seed = seed;
    j->job.file_serial = serial;
    j->job.len_bytes = len;
    j->job.npages = (len + 65535) / 65536;
    j->job.whole = true;
    j->job.pages = j->pages;
    j->job.done = on_done;
    assert_int_equal(cl_pool_get(pool, j->pages, j->job.npages, fp_now_ms() + 1000), 0);
    for (uint32_t i = 0; i < len; i++)
        j->pages[i / 65536][i % 65536] = byte_at(j, i);
    cl_aux_submit(&mount_, &j->job);
}

static inline void submit(struct job *j, uint8_t seed, uint32_t len)
{
    submit_of(j, seed, len, 0);
}

static inline void wait_done(struct job *j)
{
    uint64_t until_ms = fp_now_ms() + 30000;

    while (atomic_load(&j->done) == 0 && fp_now_ms() < until_ms)
        usleep(200);
    assert_int_equal(atomic_load(&j->done), 1);
}

static inline void fini(struct job *j)
{
    cl_aux_job_fini(&mount_, &j->job);
    cl_pool_put(pool, j->pages, j->job.npages);
    assert_int_equal(atomic_load(&j->done), 1);
}

static inline void assert_as_it_came(const struct job *j)
{
    assert_int_equal(j->job.status, 0);
    assert_int_equal(j->job.npieces, 0);
    assert_int_equal(j->job.nstages, 0);
    assert_int_equal(j->job.new_bytes, j->job.len_bytes);
    assert_null(j->job.bytes);
}

static inline void assert_coded(const struct job *j)
{
    assert_int_equal(j->job.status, 0);
    assert_int_equal(j->job.nstages, 1);
    assert_int_equal(j->job.coded_bytes, j->job.len_bytes);
    for (uint32_t i = 0; i < j->job.len_bytes; i += 97)
        assert_int_equal(j->job.bytes[i], byte_at(j, i) ^ XOR);
}

#define NJOBS 40u
static struct job jobs[NJOBS];

/* All at once, more than the region has room for; each finished as it comes. */
static inline void run_jobs(void (*check)(const struct job *j))
{
    for (uint32_t i = 0; i < NJOBS; i++)
        submit(&jobs[i], (uint8_t)(i * 31), i % 4 == 3 ? 100001 : CHUNK);
    for (uint32_t i = 0; i < NJOBS; i++) {
        wait_done(&jobs[i]);
        check(&jobs[i]);
        fini(&jobs[i]);
    }
    assert_int_equal(mount_.aux->out_room.used, 0);
}

static inline Fp__AuxAppStats *stats_of_app(void)
{
    static Fp__ClientStats s;

    fp__client_stats__init(&s);
    cl_aux_stats(&mount_, &s);
    assert_true(s.n_auxapps >= 1);
    return s.auxapps[0];
}

static inline void kill_host(void)
{
    pthread_mutex_lock(&mount_.aux->lock);
    if (mount_.aux->host)
        kill(mount_.aux->host->pid, SIGKILL);
    pthread_mutex_unlock(&mount_.aux->lock);
}

static inline void assert_eio(const struct job *j)
{
    assert_int_equal(j->job.status, -EIO);
}

static inline void set(const char *name, const char *value)
{
    Fp__AuxSet s = FP__AUX_SET__INIT;

    s.app = "fake";
    s.name = (char *)name;
    s.value = (char *)value;
    cl_aux_set(&mount_, &s);
}

#endif
