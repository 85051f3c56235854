/*
 * The mount's side of aux-apps against a host that misbehaves: each job is done exactly once with the right result, whatever the host does.
 *
 * The host is this program, started again by the code under test (opt.auxhost) with the descriptors of auxwire.h; AUX_FAKE_HOST in the environment tells
 * it what it is. What it does is said in the declaration of the first aux-app: `crash=5` ends with every fifth chunk, `code` replaces data, and so on; a second
 * one lets everything pass.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "client/aux/holds.h"
#include "client/aux/internal.h"
#include "client/core.h"
#include "client/data/internal.h"
#include "client/data/pool.h"
#include "fp/fault.h"

#define POOL_BYTES (64ull << 20)
#define CHUNK      (1u << 20)
#define XOR        0x5a
#define STORED_ID  0x700000001ull

/* -------------------------------------------------------------- the host */

static char words[2048];
static bool left_out; /* the first aux-app is bypassed */
static uint8_t *host_pool, *host_region;
static struct fp_auxw_status *host_status;

static unsigned number_of(const char *word)
{
    char *at = strstr(words, word);

    return at ? (unsigned)strtoul(at + strlen(word), NULL, 10) : 0;
}

static void say(const void *msg, size_t len)
{
    if (send(FP_AUXW_FD_JOBS, msg, len, 0) < 0)
        _exit(0);
}

static void die_of_app_0(void)
{
    atomic_store(&host_status->crashed_signal, SIGSEGV);
    atomic_store(&host_status->crashed_app, 1);
    raise(SIGKILL);
}

static void say_ready(const struct fp_auxw_start *s)
{
    struct fp_auxw_ready r = {.h = {.type = FP_AUXW_READY, .len_bytes = sizeof r}, .abi = FP_AUX_ABI, .napps = s->napps};

    host_pool = mmap(NULL, s->pool_bytes, PROT_READ, MAP_SHARED, FP_AUXW_FD_POOL, 0);
    host_region = mmap(NULL, s->region_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, FP_AUXW_FD_REGION, 0);
    host_status = mmap(NULL, sizeof *host_status, PROT_READ | PROT_WRITE, MAP_SHARED, FP_AUXW_FD_STATUS, 0);
    if (host_pool == MAP_FAILED || host_region == MAP_FAILED || host_status == MAP_FAILED)
        _exit(9);
    /* the pool can't be made writable, and nothing of fp-mount's was passed on */
    if (mprotect(host_pool, 4096, PROT_READ | PROT_WRITE) == 0 || fcntl(8, F_GETFD) >= 0 || getenv("FP_KEY"))
        _exit(10);
    atomic_store(&host_status->thread[0].tid, (uint32_t)getpid());
    strcpy(r.app[0].name, "fake");
    r.app[0].has = FP_AUXW_HAS_OUT | FP_AUXW_HAS_STORED;
    r.app[0].required = (strstr(words, "required") ? FP_AUXW_REQUIRED : 0) |
                        (strstr(words, "selfish") ? FP_AUXW_REQUIRED | FP_AUXW_REQUIRED_SELF | FP_AUXW_REQUIRED_CODES : 0);
    if (left_out)
        r.app[0].has = FP_AUXW_HAS_IN;
    strcpy(r.app[1].name, "other");
    r.app[1].has = FP_AUXW_HAS_OUT;
    if (strstr(words, "slow"))
        usleep(200000);
    if (s->decode_only || s->napps == 0)
        r.napps = 0;
    say(&r, sizeof r);
    if (strstr(words, "slow"))
        usleep(200000);
}

static void say_failed(const char *text)
{
    struct { struct fp_auxw_failed f; char text[100]; } m = {.f = {.h = {.type = FP_AUXW_FAILED}}};

    strcpy(m.text, text);
    m.f.h.len_bytes = (uint32_t)(sizeof m.f + strlen(text));
    say(&m, m.f.h.len_bytes);
}

struct answer {
    struct fp_auxw_out_done d;
    uint8_t body[4096];
};

static void add(struct answer *a, const void *p, size_t len)
{
    memcpy((uint8_t *)a + a->d.h.len_bytes, p, len);
    a->d.h.len_bytes += (uint32_t)len;
}

static void code(struct answer *a, const struct fp_auxw_chunk_out *c, const uint32_t *page)
{
    struct fp_auxw_stage stage = {.name = "fake", .in_bytes = c->len_bytes, .out_bytes = c->len_bytes};

    for (uint32_t i = 0; i < c->len_bytes; i++)
        host_region[c->out_b + i] = host_pool[(uint64_t)page[i / 65536] * 65536 + i % 65536] ^ XOR;
    a->d.nstages = 1;
    a->d.coded_bytes = c->len_bytes;
    a->d.where = 2;
    add(a, &stage, sizeof stage);
}

static void refer(struct answer *a, const struct fp_auxw_chunk_out *c)
{
    struct fp_auxw_piece p[2] = {
        {.kind = FP_AUXW_PIECE_NEW, .off = 0, .len_bytes = 65536, .at = 0},
        {.kind = FP_AUXW_PIECE_STORED, .off = 65536, .len_bytes = c->len_bytes - 65536, .at = 4096, .chunk = STORED_ID}};

    a->d.npieces = 2;
    a->d.new_bytes = 65536;
    add(a, p, sizeof p);
}

static void hang(void)
{
    atomic_store(&host_status->thread[0].deadline_ms, 200);
    atomic_store(&host_status->thread[0].since_ns, fp_now_ns());
    atomic_store(&host_status->thread[0].in_call, 1);
    pause();
}

static void leak(void)
{
    static void *volatile lost; /* else the compiler sees that nobody looks */

    lost = malloc(200u << 20);
    memset(lost, 1, 200u << 20);
}

static bool every(const char *word, unsigned n)
{
    unsigned k = number_of(word);

    return k != 0 && n % k == 0;
}

static void chunk(const struct fp_auxw_chunk_out *c)
{
    static unsigned n;
    struct answer a = {.d = {.h = {.type = FP_AUXW_CHUNK_OUT_DONE, .len_bytes = sizeof a.d, .id = c->h.id}, .new_bytes = c->len_bytes}};

    a.d.ran = left_out || strstr(words, "skip") ? 2 : 3;

    n++;
    atomic_fetch_add(&host_status->stats[0].chunks, 1);
    if (every("crash=", n))
        die_of_app_0();
    if (every("killed=", n))
        raise(SIGKILL);
    if (every("hang=", n))
        hang();
    if (every("leak=", n))
        leak();
    if (strstr(words, "refer") && !(c->flags & FP_AUXW_OUT_NO_STORED))
        refer(&a, c);
    else if (strstr(words, "code") && !left_out)
        code(&a, c, (const uint32_t *)(c + 1));
    if (every("refuse=", n))
        a.d.status = -EILSEQ;
    if (every("nonsense=", n))
        a.d.new_bytes++;
    say(&a, a.d.h.len_bytes);
}

static void decode(const struct fp_auxw_chunk_in *c)
{
    struct fp_auxw_done d = {.h = {.type = FP_AUXW_DONE, .len_bytes = sizeof d, .id = c->h.id}, .where = 2};

    if (strcmp(c->stage[0].name, "fake") != 0)
        d.status = strcmp(c->stage[0].name, "killer") == 0 ? (die_of_app_0(), 0) : -ENOPKG;
    for (uint32_t i = 0; i < c->coded_bytes; i++)
        host_region[c->b + i] = host_region[c->a + i] ^ XOR;
    say(&d, sizeof d);
}

static void configure(const struct fp_auxw_config *c, int len)
{
    if (c->index != 0)
        return;
    snprintf(words, sizeof words, "%.*s", len, (const char *)(c + 1));
    left_out = c->required & FP_AUXW_CONFIG_BYPASSED;
}

static int host_main(void)
{
    static union { struct fp_auxw_head h; uint8_t bytes[FP_AUXW_MESSAGE_MAX_BYTES]; } m;

    for (;;) {
        ssize_t n = recv(FP_AUXW_FD_JOBS, &m, sizeof m, 0);

        if (n <= 0)
            return 0;
        if (m.h.type == FP_AUXW_CONFIG)
            configure((const struct fp_auxw_config *)&m, (int)(n - (ssize_t)sizeof(struct fp_auxw_config)));
        if (m.h.type == FP_AUXW_CHANGE)
            atomic_fetch_add(&host_status->stats[0].events, 1);
        if (m.h.type == FP_AUXW_START && strstr(words, "unwilling"))
            say_failed("aux-app fake: option 'colour' is unknown");
        else if (m.h.type == FP_AUXW_START && strstr(words, "stillborn"))
            return 3;
        else if (m.h.type == FP_AUXW_START)
            say_ready((const struct fp_auxw_start *)&m);
        else if (m.h.type == FP_AUXW_CHUNK_OUT)
            chunk((const struct fp_auxw_chunk_out *)&m);
        else if (m.h.type == FP_AUXW_CHUNK_IN)
            decode((const struct fp_auxw_chunk_in *)&m);
        else if (m.h.type == FP_AUXW_STOP)
            return 0;
    }
}

/* -------------------------------------------------------------- the manager: holds chunks, or not */

static atomic_bool manager_has_it;
static atomic_uint manager_asked, manager_released;
static atomic_bool manager_waits; /* before it answers */

void __wrap_cl_mgr_call(struct cl_mount *m, uint32_t type, ProtobufCMessage *msg, cl_mgr_cb cb, void *arg);

void __wrap_cl_mgr_call(struct cl_mount *m, uint32_t type, ProtobufCMessage *msg, cl_mgr_cb cb, void *arg)
{
    const Fp__Hold *h = (const Fp__Hold *)msg;
    Fp__HoldReply reply = FP__HOLD_REPLY__INIT;

    (void)m;
    assert_int_equal(type, FP__MSG_TYPE__MSG_HOLD);
    if (h->release) {
        atomic_fetch_add(&manager_released, (unsigned)h->n_ids);
    } else {
        atomic_fetch_add(&manager_asked, 1);
        while (atomic_load(&manager_waits))
            usleep(1000);
        reply.ids = h->ids;
        reply.n_ids = atomic_load(&manager_has_it) ? h->n_ids : 0;
    }
    cb(arg, 0, &reply.base);
}

/* -------------------------------------------------------------- the mount */

static struct cl_mount mount_;
static struct cl_pool *pool;

static size_t no_reclaim(void *arg, size_t want)
{
    (void)arg;
    (void)want;
    return 0;
}

static void no_pressure(void *arg)
{
    (void)arg;
}

static int begin_with(const char *declared, const char *other)
{
    static const char *texts[2];

    memset(&mount_, 0, sizeof mount_);
    texts[0] = declared;
    texts[1] = other;
    mount_.opt.auxapps = (struct fp_strlist){.count = other ? 2 : declared ? 1 : 0, .items = texts};
    mount_.opt.auxhost = "/proc/self/exe";
    mount_.opt.auxapp_dir = "/nowhere";
    mount_.opt.node = "here";
    mount_.opt.aux_memory_bytes = 128u << 20;
    mount_.opt.aux_region_bytes = 36u << 20;
    atomic_store(&manager_asked, 0);
    atomic_store(&manager_released, 0);
    assert_int_equal(cl_pool_new(POOL_BYTES, no_reclaim, no_pressure, NULL, &pool), 0);
    return cl_aux_start(&mount_, pool);
}

static int begin(const char *declared)
{
    return begin_with(declared, NULL);
}

static void end(void)
{
    cl_aux_stop(&mount_);
    cl_aux_free(&mount_);
    cl_pool_free(pool);
}

struct job {
    struct cl_aux_job job; /* first */
    uint8_t *pages[16];
    uint8_t seed;
    atomic_uint done;
};

static void on_done(struct cl_aux_job *j)
{
    atomic_fetch_add(&((struct job *)j)->done, 1);
}

static uint8_t byte_at(const struct job *j, uint32_t i)
{
    return (uint8_t)(j->seed + i * 7 + (i >> 9));
}

static void submit(struct job *j, uint8_t seed, uint32_t len)
{
    memset(j, 0, sizeof *j);
    j->seed = seed;
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

static void wait_done(struct job *j)
{
    uint64_t until_ms = fp_now_ms() + 30000;

    while (atomic_load(&j->done) == 0 && fp_now_ms() < until_ms)
        usleep(200);
    assert_int_equal(atomic_load(&j->done), 1);
}

static void fini(struct job *j)
{
    cl_aux_job_fini(&mount_, &j->job);
    cl_pool_put(pool, j->pages, j->job.npages);
    assert_int_equal(atomic_load(&j->done), 1);
}

static void assert_as_it_came(const struct job *j)
{
    assert_int_equal(j->job.status, 0);
    assert_int_equal(j->job.npieces, 0);
    assert_int_equal(j->job.nstages, 0);
    assert_int_equal(j->job.new_bytes, j->job.len_bytes);
    assert_null(j->job.bytes);
}

static void assert_coded(const struct job *j)
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
static void run_jobs(void (*check)(const struct job *j))
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

static Fp__AuxAppStats *stats_of_app(void)
{
    static Fp__ClientStats s;

    fp__client_stats__init(&s);
    cl_aux_stats(&mount_, &s);
    assert_true(s.n_auxapps >= 1);
    return s.auxapps[0];
}

/* -------------------------------------------------------------- tests */

static void test_jobs_pass_in_any_number(void **state)
{
    (void)state;
    assert_int_equal(begin("fake"), 0);
    assert_true(cl_aux_chunks(&mount_));
    run_jobs(assert_as_it_came);
    assert_int_equal(stats_of_app()->chunks, NJOBS);
    assert_string_equal(stats_of_app()->state, "running");
    end();
}

static void test_jobs_bring_coded_data(void **state)
{
    (void)state;
    assert_int_equal(begin("fake x=code"), 0) ;
    run_jobs(assert_coded);
    end();
}

static void test_jobs_survive_hosts_that_crash(void **state)
{
    (void)state;
    assert_int_equal(begin("fake x=code crash=9 failures=100"), 0);
    run_jobs(assert_coded);
    assert_true(stats_of_app()->failures >= 3);
    assert_true(stats_of_app()->chunks >= NJOBS); /* over restarts */
    end();
}

static void test_jobs_survive_hosts_that_are_killed(void **state)
{
    (void)state;
    assert_int_equal(begin("fake x=code killed=9"), 0);
    run_jobs(assert_coded);
    assert_int_equal(stats_of_app()->failures, 0); /* nobody's fault */
    assert_true(stats_of_app()->restarts >= 3);
    assert_string_equal(stats_of_app()->state, "running");
    end();
}

static void kill_host(void)
{
    pthread_mutex_lock(&mount_.aux->lock);
    if (mount_.aux->host)
        kill(mount_.aux->host->pid, SIGKILL);
    pthread_mutex_unlock(&mount_.aux->lock);
}

static void *keep_killing(void *arg)
{
    for (int i = 0; i < 5; i++) {
        usleep(30000);
        kill_host();
    }
    return arg;
}

static void test_service_is_back_within_a_second(void **state)
{
    (void)state;
    struct job j;
    uint64_t from_ms;

    assert_int_equal(begin("fake x=code"), 0);
    submit(&j, 1, CHUNK);
    wait_done(&j);
    fini(&j);
    usleep(1200000); /* it has lived for a while */
    kill_host();
    from_ms = fp_now_ms();
    submit(&j, 2, CHUNK);
    wait_done(&j);
    assert_true(fp_now_ms() - from_ms < 1000);
    assert_coded(&j);
    fini(&j);
    end();
}

static void test_nonsense_is_not_believed(void **state)
{
    (void)state;
    assert_int_equal(begin("fake x=code nonsense=13 failures=100"), 0);
    run_jobs(assert_coded);
    assert_true(stats_of_app()->failures >= 2);
    end();
}

static void test_too_many_failures_bypass(void **state)
{
    (void)state;
    assert_int_equal(begin("fake x=code crash=1"), 0);
    run_jobs(assert_as_it_came);
    assert_string_equal(stats_of_app()->state, "bypassed");
    assert_int_equal(stats_of_app()->failures, CL_AUX_FAILURES);
    assert_non_null(strstr(stats_of_app()->why, "crashed"));
    assert_false(cl_aux_chunks(&mount_));
    end();
}

static void assert_eio(const struct job *j)
{
    assert_int_equal(j->job.status, -EIO);
}

static void test_too_many_failures_of_a_required_one_are_errors(void **state)
{
    (void)state;
    assert_int_equal(begin("fake x=code crash=1 required"), 0);
    run_jobs(assert_eio);
    assert_string_equal(stats_of_app()->state, "failed");
    assert_true(cl_aux_chunks(&mount_)); /* writes must not go past it */
    run_jobs(assert_eio);
    end();
}

static void set(const char *name, const char *value)
{
    Fp__AuxSet s = FP__AUX_SET__INIT;

    s.app = "fake";
    s.name = (char *)name;
    s.value = (char *)value;
    cl_aux_set(&mount_, &s);
}

static void test_bypass_is_taken_back_by_hand(void **state)
{
    (void)state;
    assert_int_equal(begin("fake x=code crash=41"), 0);
    set("bypass", "on");
    assert_false(cl_aux_chunks(&mount_));
    run_jobs(assert_as_it_came);
    set("bypass", "off");
    for (int i = 0; i < 500 && strcmp(stats_of_app()->state, "running") != 0; i++)
        usleep(10000);
    run_jobs(assert_coded);
    end();
}

/* -------------------------------------------------------------- what must not be left out */

/* The host that runs when it is taken in again has a chain without it, and goes on for a while. */
static void test_no_chunk_meets_the_chain_before_the_change(void **state)
{
    (void)state;
    assert_int_equal(begin_with("fake x=code required", "other"), 0);
    for (int i = 0; i < 5; i++) {
        set("bypass", "on"); /* the user may take back what the user has said */
        for (int k = 0; k < 500 && strcmp(stats_of_app()->change, "bypass=on: done") != 0; k++)
            usleep(10000);
        run_jobs(assert_as_it_came);
        set("bypass", "off");
        assert_string_equal(stats_of_app()->state, "starting");
        assert_null(strstr(stats_of_app()->change, "done"));
        run_jobs(assert_coded);
        assert_string_equal(stats_of_app()->state, "running");
        assert_string_equal(stats_of_app()->change, "bypass=off: done");
    }
    end();
}

static void assert_coded_or_eio(const struct job *j)
{
    if (j->job.status == 0)
        assert_coded(j);
    else
        assert_eio(j);
}

/* It says itself that it is required: nobody has to declare it so, and nobody can take it out. */
static void test_what_is_required_of_itself_is_never_bypassed(void **state)
{
    (void)state;
    assert_int_equal(begin_with("fake x=code-selfish crash=50", "other"), 0);
    set("bypass", "on");
    assert_non_null(strstr(stats_of_app()->change, "bypass=on: refused"));
    set("bypass", "maybe");
    assert_non_null(strstr(stats_of_app()->change, "bypass=maybe: refused"));
    assert_string_equal(stats_of_app()->state, "running");
    run_jobs(assert_coded);
    for (int i = 0; i < 4; i++)
        run_jobs(assert_coded_or_eio);
    assert_string_equal(stats_of_app()->state, "failed");
    run_jobs(assert_eio);
    set("bypass", "off");
    run_jobs(assert_coded);
    end();
}

static void test_too_many_deaths_of_nobody_store_nothing_plain(void **state)
{
    (void)state;
    assert_int_equal(begin_with("fake x=code-selfish killed=1", "other"), 0);
    run_jobs(assert_eio);
    end();
}

/* Whatever the host says: what lacks the stage is not stored. */
static void test_answers_that_lack_a_required_stage_are_not_used(void **state)
{
    static const char *const wrong[] = {"fake x=skip-required", "fake x=selfish", "fake x=code-selfish-skip"};

    (void)state;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(begin_with(wrong[i], "other"), 0);
        run_jobs(assert_eio);
        assert_string_equal(stats_of_app()->state, "failed");
        end();
    }
}

/* A chunk that a result refers to is gone, and when the manager has said so, the aux-app that is required has failed. */
static void test_a_job_whose_aux_app_has_failed_meanwhile_is_done(void **state)
{
    struct job j, killer;

    (void)state;
    atomic_store(&manager_has_it, false);
    atomic_store(&manager_waits, true);
    assert_int_equal(begin("fake x=refer-required crash=2 failures=1"), 0);
    submit(&j, 1, CHUNK);
    while (atomic_load(&manager_asked) == 0)
        usleep(1000);
    submit(&killer, 2, CHUNK);
    wait_done(&killer);
    assert_eio(&killer);
    fini(&killer);
    atomic_store(&manager_waits, false);
    wait_done(&j);
    assert_eio(&j);
    fini(&j);
    end();
}

static void *let_the_manager_answer(void *arg)
{
    usleep(1000000); /* the link thread has ended */
    atomic_store(&manager_waits, false);
    return arg;
}

static void test_a_job_is_done_when_the_mount_ends_meanwhile(void **state)
{
    pthread_t t;
    struct job j;

    (void)state;
    atomic_store(&manager_has_it, false);
    atomic_store(&manager_waits, true);
    assert_int_equal(begin("fake x=refer-required"), 0);
    submit(&j, 1, CHUNK);
    while (atomic_load(&manager_asked) == 0)
        usleep(1000);
    pthread_create(&t, NULL, let_the_manager_answer, NULL);
    cl_aux_stop(&mount_);
    pthread_join(t, NULL);
    wait_done(&j);
    assert_true(j.job.status < 0);
    fini(&j);
    cl_aux_free(&mount_);
    cl_pool_free(pool);
}

/* Jobs that wait, and the last aux-app is taken out. */
static void test_bypassing_the_last_one_leaves_no_job_behind(void **state)
{
    (void)state;
    assert_int_equal(begin("fake x=code hang=1 deadline=60s"), 0);
    for (uint32_t i = 0; i < NJOBS; i++)
        submit(&jobs[i], (uint8_t)(i * 31), CHUNK);
    set("bypass", "on");
    for (uint32_t i = 0; i < NJOBS; i++) {
        wait_done(&jobs[i]);
        assert_as_it_came(&jobs[i]);
        fini(&jobs[i]);
    }
    end();
}

/* More changes than the socket takes at once. */
static void test_a_new_host_hears_of_all_changes(void **state)
{
    char name[16], value[140];
    int small = 1, tries = 0;
    pid_t old;

    (void)state;
    memset(value, 'v', sizeof value);
    value[sizeof value - 1] = '\0';
    assert_int_equal(begin("fake x=code-slow"), 0);
    old = mount_.aux->host->pid;
    for (int i = 0; i < 16; i++) {
        snprintf(name, sizeof name, "option%d", i);
        set(name, value);
    }
    while (stats_of_app()->events < 16 && tries++ < 500)
        usleep(10000);
    kill_host();
    for (bool set_it = false; !set_it; usleep(1000)) {
        pthread_mutex_lock(&mount_.aux->lock);
        if (mount_.aux->host && mount_.aux->host->pid != old) {
            assert_int_equal(mount_.aux->state, AUX_STARTING);
            set_it = setsockopt(mount_.aux->host->jobs_fd, SOL_SOCKET, SO_SNDBUF, &small, sizeof small) == 0;
        }
        pthread_mutex_unlock(&mount_.aux->lock);
    }
    for (tries = 0; stats_of_app()->events < 48 && tries < 300; tries++)
        usleep(10000);
    assert_in_range(stats_of_app()->events, 48, 64); /* 16 of them counted by the first host, 16 or 32 by the second: what was not answered is sent again, too */
    end();
}

#ifdef FP_FAULT
static void test_want_of_memory_is_not_the_hosts_fault(void **state)
{
    struct job j;

    (void)state;
    assert_int_equal(begin("fake x=code failures=1"), 0);
    assert_int_equal(fp_fault_set("cl.aux_answer=ENOMEM:count=1"), 0);
    submit(&j, 1, CHUNK);
    wait_done(&j);
    assert_as_it_came(&j);
    fini(&j);
    run_jobs(assert_coded);
    assert_int_equal(stats_of_app()->failures, 0);
    end();
    assert_int_equal(begin("fake x=code-required failures=1"), 0);
    assert_int_equal(fp_fault_set("cl.aux_answer=ENOMEM:count=1"), 0);
    submit(&j, 1, CHUNK);
    wait_done(&j);
    assert_int_equal(j.job.status, -ENOMEM);
    fini(&j);
    run_jobs(assert_coded);
    assert_int_equal(stats_of_app()->failures, 0);
    end();
}
#endif

static void test_calls_beyond_their_deadline_end_the_host(void **state)
{
    (void)state;
    struct job j;

    assert_int_equal(begin("fake x=code hang=2"), 0);
    for (int i = 0; i < 3; i++) {
        uint64_t from_ms = fp_now_ms();

        submit(&j, (uint8_t)i, CHUNK);
        wait_done(&j);
        assert_coded(&j);
        fini(&j);
        assert_true(fp_now_ms() - from_ms < 3000);
    }
    assert_int_equal(stats_of_app()->failures, 2); /* the second job of each host, and the one sent again is its first */
    
    end();
}

static void test_a_host_that_leaks_is_started_again(void **state)
{
    (void)state;
    struct job j;

    assert_int_equal(begin("fake x=code leak=1"), 0);
    submit(&j, 1, CHUNK);
    wait_done(&j);
    fini(&j);
    for (int i = 0; i < 500 && stats_of_app()->failures == 0; i++)
        usleep(10000);
    assert_true(stats_of_app()->failures >= 1); /* more, if it is caught before it has answered */
    assert_non_null(strstr(stats_of_app()->why, "memory"));
    end();
}

static void test_refusal_is_the_writers_error(void **state)
{
    (void)state;
    struct job j;

    assert_int_equal(begin("fake refuse=1"), 0);
    submit(&j, 1, CHUNK);
    wait_done(&j);
    assert_int_equal(j.job.status, -EILSEQ);
    fini(&j);
    end();
}

static void test_references_are_held_before_they_are_handed_over(void **state)
{
    (void)state;
    struct cl_aux_pins *pins;
    struct job j;

    assert_int_equal(begin("fake x=refer"), 0);
    atomic_store(&manager_has_it, true);
    submit(&j, 1, CHUNK);
    wait_done(&j);
    assert_int_equal(j.job.npieces, 2);
    assert_int_equal(j.job.new_bytes, 65536);
    assert_non_null(j.job.pins);
    assert_int_equal(atomic_load(&manager_asked), 1);
    pins = j.job.pins;
    j.job.pins = NULL;
    fini(&j);
    assert_false(cl_aux_release_holds(&mount_)); /* pinned */
    cl_aux_pins_put(&mount_, pins);
    assert_true(cl_aux_release_holds(&mount_));
    assert_int_equal(atomic_load(&manager_released), 1);
    end();
}

static void test_references_to_what_is_gone_are_not(void **state)
{
    (void)state;
    assert_int_equal(begin("fake x=refer"), 0);
    atomic_store(&manager_has_it, false);
    run_jobs(assert_as_it_came);
    end();
    assert_int_equal(begin("fake x=refer-code-required"), 0); /* they pass the chain once more */
    run_jobs(assert_coded);
    end();
}

static void test_a_start_that_fails_says_why(void **state)
{
    (void)state;
    assert_int_equal(begin("fake x=unwilling"), -EINVAL);
    cl_pool_free(pool);
    assert_int_equal(begin("fake x=stillborn"), -EIO);
    cl_pool_free(pool);
}

static int decode_one(const char *name, uint8_t *out, size_t len)
{
    struct fp_auxw_stage stage = {.in_bytes = (uint32_t)len, .out_bytes = (uint32_t)len};
    static uint8_t coded[CHUNK];
    struct iovec from[2] = {{coded, 1000}, {coded + 1000, len - 1000}}, to[2] = {{out, 77}, {out + 77, len - 77}};

    for (uint32_t i = 0; i < len; i++)
        coded[i] = (uint8_t)(i * 13) ^ XOR;
    strcpy(stage.name, name);
    return cl_aux_decode(&mount_, &stage, 1, from, 2, to, 2, fp_now_ms() + 10000);
}

static void test_decode_by_the_declared_host(void **state)
{
    (void)state;
    static uint8_t out[CHUNK];

    assert_int_equal(begin("fake x=code failures=9"), 0);
    for (int n = 0; n < 100; n++) {
        memset(out, 0, sizeof out);
        assert_int_equal(decode_one("fake", out, sizeof out - (size_t)n), 0);
        for (uint32_t i = 0; i < sizeof out - 100; i++)
            assert_int_equal(out[i], (uint8_t)(i * 13));
    }
    assert_int_equal(decode_one("other", out, sizeof out), -EIO);
    assert_int_equal(decode_one("killer", out, sizeof out), -EIO); /* and not for ever */
    assert_int_equal(decode_one("fake", out, sizeof out), 0);
    assert_int_equal(mount_.aux->in_room.used, 0);
    end();
}

static void test_decode_survives_any_number_of_killed_hosts(void **state)
{
    (void)state;
    static uint8_t out[CHUNK];
    pthread_t killer;

    assert_int_equal(begin("fake x=code"), 0);
    assert_int_equal(pthread_create(&killer, NULL, keep_killing, NULL), 0);
    for (int n = 0; n < 300; n++) {
        memset(out, 0, sizeof out);
        assert_int_equal(decode_one("fake", out, sizeof out), 0);
        for (uint32_t i = 0; i < sizeof out; i += 511)
            assert_int_equal(out[i], (uint8_t)(i * 13));
    }
    pthread_join(killer, NULL);
    assert_true(stats_of_app()->restarts >= 1);
    end();
}

static void test_decode_where_nothing_is_declared(void **state)
{
    (void)state;
    static uint8_t out[CHUNK];

    assert_int_equal(begin(NULL), 0);
    assert_null(mount_.aux);
    mount_.data = &(struct cl_data){.pool = pool};
    assert_int_equal(decode_one("fake", out, sizeof out), 0);
    assert_int_equal(out[100], (uint8_t)1300);
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_jobs_pass_in_any_number),
        cmocka_unit_test(test_jobs_bring_coded_data),
        cmocka_unit_test(test_jobs_survive_hosts_that_crash),
        cmocka_unit_test(test_jobs_survive_hosts_that_are_killed),
        cmocka_unit_test(test_service_is_back_within_a_second),
        cmocka_unit_test(test_nonsense_is_not_believed),
        cmocka_unit_test(test_too_many_failures_bypass),
        cmocka_unit_test(test_too_many_failures_of_a_required_one_are_errors),
        cmocka_unit_test(test_bypass_is_taken_back_by_hand),
        cmocka_unit_test(test_no_chunk_meets_the_chain_before_the_change),
        cmocka_unit_test(test_what_is_required_of_itself_is_never_bypassed),
        cmocka_unit_test(test_too_many_deaths_of_nobody_store_nothing_plain),
        cmocka_unit_test(test_answers_that_lack_a_required_stage_are_not_used),
        cmocka_unit_test(test_a_job_whose_aux_app_has_failed_meanwhile_is_done),
        cmocka_unit_test(test_a_job_is_done_when_the_mount_ends_meanwhile),
        cmocka_unit_test(test_bypassing_the_last_one_leaves_no_job_behind),
        cmocka_unit_test(test_a_new_host_hears_of_all_changes),
#ifdef FP_FAULT
        cmocka_unit_test(test_want_of_memory_is_not_the_hosts_fault),
#endif
        cmocka_unit_test(test_calls_beyond_their_deadline_end_the_host),
        cmocka_unit_test(test_a_host_that_leaks_is_started_again),
        cmocka_unit_test(test_refusal_is_the_writers_error),
        cmocka_unit_test(test_references_are_held_before_they_are_handed_over),
        cmocka_unit_test(test_references_to_what_is_gone_are_not),
        cmocka_unit_test(test_a_start_that_fails_says_why),
        cmocka_unit_test(test_decode_by_the_declared_host),
        cmocka_unit_test(test_decode_survives_any_number_of_killed_hosts),
        cmocka_unit_test(test_decode_where_nothing_is_declared),
    };

    if (getenv("AUX_FAKE_HOST"))
        return host_main();
    setenv("AUX_FAKE_HOST", "1", 1);
    setenv("FP_KEY", "/a/secret", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
