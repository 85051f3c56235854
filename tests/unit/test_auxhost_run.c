/* fp-auxhost, the real program: what happens while it runs. Crashes, deadlines, cancelling, events, services, the end of the mount. */
#include <errno.h>
#include <linux/capability.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "aux_mount.h"
#include "fp.pb-c.h"
#include "fp/clock.h"

#define MIB (1u << 20)
#define LIST(...) ((const char *const[]){__VA_ARGS__, NULL})

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

/* -------------------------------------------------------------- misbehaving plugins */

static void crashes(const char *second, int sig)
{
    static struct am m;

    assert_int_equal(am_start(&m, NULL, "", LIST("probe", second)), 0);
    am_chunk_out(&m, 0, 1, 1000, 0);
    int status = am_wait_death(&m);

    if (sig < (int)FP_AUXW_EXITED) {
        assert_true(WIFSIGNALED(status));
        assert_int_equal(WTERMSIG(status), sig);
    } else {
        assert_true(WIFEXITED(status));
    }
    assert_int_equal(m.status->crashed_app, 2);
    assert_int_equal(m.status->crashed_signal, sig);
    am_stop(&m);
}

static void test_a_crash_is_noted_and_ends_the_host(void **state)
{
    (void)state;
    crashes("probe2 do=segv", SIGSEGV);
    crashes("probe2 do=fpe", SIGFPE);
    crashes("probe2 do=abort", SIGABRT);
    crashes("probe2 do=exit", FP_AUXW_EXITED);
    crashes("probe2 do=poke", SIGSEGV);    /* writes to its input */
    crashes("probe2 do=thread", SIGSEGV);  /* in a thread of its own, whose code tells */
    if (!SANITIZED)                        /* their frames do not fit their own stack then */
        crashes("probe2 do=stack", SIGSEGV);
}

/* Of a plugin that did not come with fpstore: others' outputs lie behind its own. */
static void test_a_foreign_plugin_cannot_write_past_its_buffer(void **state)
{
    char path[512];

    (void)state;
    snprintf(path, sizeof(path), "%s/tests/plugins/probe2.so do=overrun", am_dir());
    crashes(path, SIGSEGV);
}

static int ends_at_start(const char *second, uint32_t noted)
{
    static struct am m;

    assert_int_equal(am_start(&m, NULL, "", LIST("probe", second)), -1);
    int status = am_wait_death(&m);

    assert_int_equal(m.status->crashed_app, 2);
    assert_int_equal(m.status->crashed_signal, noted);
    am_stop(&m);
    return status;
}

static void test_a_crash_at_start_is_noted(void **state)
{
    (void)state;
    int status = ends_at_start("probe2 do=crash_start", SIGSEGV);

    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
    status = ends_at_start("probe2 do=exit_start", FP_AUXW_EXITED + 7);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 7);
    status = ends_at_start("stillborn", SIGSEGV); /* in a constructor: nothing of it is known yet but its place */
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
}

static void test_more_memory_than_the_host_may_have_is_told(void **state)
{
    static const char *const declared[] = { "dedup memory=400MiB", NULL };
    static struct am m = {.memory_bytes = 400u << 20};
    char dir[512];

    (void)state;
    snprintf(dir, sizeof(dir), "%.400s/lib/auxapps", am_dir());
    assert_int_equal(am_start(&m, dir, "", declared), 0);
    am_wait_log(&m, "aux-apps may take 400 MiB of memory (memory=), and are ended when they have 400 MiB");
    assert_int_equal(am_stop(&m), 0);
    m.memory_bytes++;
    assert_int_equal(am_start(&m, dir, "", declared), 0);
    assert_null(strstr(m.log, "may take"));
    assert_int_equal(am_stop(&m), 0);
}

/* The thread that fp-mount's watchdog would find: in a call of `app` for longer than its deadline. */
static bool over_deadline(struct am *m, uint32_t app)
{
    for (uint32_t i = 0; i < FP_AUXW_THREADS_MAX; i++) {
        const struct fp_auxw_thread *t = &m->status->thread[i];
        uint64_t now = fp_now_ns(), since = t->since_ns;

        if (t->tid && t->in_call == app + 1 && now > since && now - since > t->deadline_ms * 1000000ull)
            return true;
    }
    return false;
}

static void test_a_call_that_does_not_end_shows_and_the_host_beats(void **state)
{
    static struct am m;

    (void)state;
    assert_int_equal(am_start(&m, NULL, "", LIST("probe", "probe2 do=hang deadline=1s", "probe3")), 0);
    am_chunk_out(&m, 0, 1, 1000, 0);
    am_run(&m, 50);
    assert_false(over_deadline(&m, 1));
    uint64_t beat = m.status->beat;

    for (uint64_t until = fp_now_ms() + AM_WAIT_MS; !over_deadline(&m, 1); am_run(&m, 10))
        assert_true(fp_now_ms() < until);
    am_run(&m, 200);
    assert_true(m.status->beat > beat);
    assert_false(over_deadline(&m, 0));
    assert_false(over_deadline(&m, 2));
    assert_int_equal(m.status->crashed_app, 0);
    /* A plugin that hangs does not keep the host from ending, either. */
    uint64_t from = fp_now_ms();

    am_stop_clean(&m);
    assert_true(fp_now_ms() - from < 4000);
}

static void test_a_plugin_learns_of_deadline_and_cancelling(void **state)
{
    static struct am m;
    struct fp_auxw_done cancel = {.status = 0};

    (void)state;
    assert_int_equal(am_start(&m, NULL, "", LIST("probe do=patient deadline=300ms")), 0);
    assert_int_equal(am_out_done(&m, am_chunk_out(&m, 0, 1, 1000, 0))->status, -ETIMEDOUT);
    assert_int_equal(am_done(&m, am_change(&m, 0, "deadline=1h"), NULL), 0);
    uint64_t a = am_chunk_out(&m, 0, 1, 1000, 0), b = am_chunk_out(&m, 0, 1, 1000, 1);

    am_run(&m, 20);
    am_send(&m, &cancel, FP_AUXW_CANCEL, b, sizeof(cancel), NULL, 0, NULL, 0);
    am_send(&m, &cancel, FP_AUXW_CANCEL, a, sizeof(cancel), NULL, 0, NULL, 0);
    assert_int_equal(am_out_done(&m, a)->status, -ECANCELED);
    assert_int_equal(am_out_done(&m, b)->status, -ECANCELED);
    am_stop_clean(&m);
}

static void test_it_ends_when_the_mount_is_gone(void **state)
{
    static struct am m;

    (void)state;
    assert_int_equal(am_start(&m, NULL, "", LIST("probe do=patient")), 0);
    am_chunk_out(&m, 0, 1, 1000, 0);
    am_run(&m, 20);
    shutdown(m.fd_jobs, SHUT_RDWR);
    assert_true(WIFEXITED(am_wait_death(&m)));
    am_stop(&m);
}

static void test_signals_for_the_mount_do_not_end_it(void **state)
{
    static struct am m;

    (void)state;
    assert_int_equal(am_start(&m, NULL, "", LIST("probe")), 0);
    kill(m.pid, SIGINT);
    kill(m.pid, SIGTERM);
    kill(m.pid, SIGHUP);
    assert_int_equal(am_out_done(&m, am_chunk_out(&m, 0, 1, 1000, 0))->status, 0);
    am_stop_clean(&m);
}

/* Whether a thread may do more than its user. One of root's keeps in reserve that it may read all, for plugins loaded later (loader.c). */
static uint32_t may_more(pid_t pid, const char *tid, void *arg)
{
    char text[512];

    (void)arg;
    am_thread_says(pid, tid, "NoNewPrivs:", text, sizeof(text));
    bool may = atoi(text) != 1;

    am_thread_says(pid, tid, "CapBnd:", text, sizeof(text));
    may = may || (geteuid() == 0 && strtoull(text, NULL, 16) != 0);
    am_thread_says(pid, tid, "CapEff:", text, sizeof(text));
    may = may || strtoull(text, NULL, 16) != 0;
    am_thread_says(pid, tid, "CapPrm:", text, sizeof(text));
    uint64_t reserve = strtoull(text, NULL, 16);

    am_thread_says(pid, tid, "Name:", text, sizeof(text));
    return may || reserve & ~(strstr(text, "aux-loader") ? 1ull << CAP_DAC_READ_SEARCH : 0);
}

static void test_it_keeps_no_privilege_and_no_descriptor(void **state)
{
    static struct am m;
    char path[64];

    (void)state;
    int extra = dup2(0, 700);

    assert_int_equal(am_start(&m, NULL, "", LIST("probe")), 0);
    close(extra);
    /* Each thread does so when it begins. A sanitizer's own thread is made before main. */
    for (uint64_t until = fp_now_ms() + AM_WAIT_MS; !SANITIZED && am_sum_threads(m.pid, may_more, NULL) > 0; am_run(&m, 5))
        assert_true(fp_now_ms() < until);
    snprintf(path, sizeof(path), "/proc/%d/fd/700", m.pid);
    assert_int_not_equal(access(path, F_OK), 0);
    am_stop_clean(&m);
}

/* -------------------------------------------------------------- events */

/* len 0: as long as data is. Long data are in the region, where anything may be the place: offset 0, too. */
static int io_event(struct am *m, uint32_t op, bool wait, const char *name, const char *data, uint32_t len, uint64_t in_region)
{
    struct fp_auxw_event e = {.app = 0, .wait = wait, .name_bytes = (uint32_t)strlen(name), .data_bytes = len ? len : (uint32_t)strlen(data)};

    e.io.size_bytes = sizeof(e.io);
    e.io.op = op;
    e.io.off = 10;
    e.io.len_bytes = e.data_bytes;
    e.data_region = in_region;
    if (len)
        memcpy(m->region + in_region, data, strlen(data) + 1);
    am_send(m, &e, FP_AUXW_EVENT, ++m->next_id, sizeof(e), name, e.name_bytes, data, len ? 0 : e.data_bytes);
    return am_done(m, m->next_id, NULL);
}

static uint64_t file_event(struct am *m, const char *path, uint64_t len)
{
    struct fp_auxw_file f = {.path_bytes = (uint32_t)strlen(path), .file = {.ino = 33, .len_bytes = len}};

    am_send(m, &f, FP_AUXW_FILE, ++m->next_id, sizeof(f), path, f.path_bytes, NULL, 0);
    return m->next_id;
}

static void test_events_reach_their_callbacks(void **state)
{
    static struct am m;
    struct fp_auxw_set set = {.step = 7, .nfiles = 2};
    struct fp_auxw_message msg = {.mount = 12, .app = 0, .node_bytes = 5, .data_bytes = 2};
    static const char files[] = "run/chk_0007\0run/chk_0007/a\0run/chk_0007/b";

    (void)state;
    assert_int_equal(am_start(&m, NULL, "", LIST("probe", "probe2")), 0);
    assert_int_equal(io_event(&m, FP_AUX_OP_UNLINK, true, "keep", "", 0, 0), -EPERM);
    assert_int_equal(io_event(&m, FP_AUX_OP_UNLINK, true, "go", "", 0, 0), 0);
    am_wait_log(&m, "unlink go, 1");
    assert_int_equal(io_event(&m, FP_AUX_OP_WRITE, false, "", "some bytes", 0, 0), 0);
    am_wait_log(&m, "write 10+10: some bytes");
    assert_int_equal(io_event(&m, FP_AUX_OP_WRITE, false, "", "far bytes", 70000, 4096), 0);
    am_wait_log(&m, "write 10+70000: far bytes");
    assert_int_equal(io_event(&m, FP_AUX_OP_WRITE, false, "", "first bytes", 70001, 0), 0);
    am_wait_log(&m, "write 10+70001: first bytes");
    assert_int_equal(io_event(&m, FP_AUX_OP_WRITE, false, "", "none", 70001, AM_SLOTS * (uint64_t)AM_SLOT - 70000), -EINVAL);
    assert_int_equal(io_event(&m, FP_AUX_OP_OPEN, false, "x", "", 0, 0), -EINVAL);    /* it has no callback for that */
    assert_int_equal(am_done(&m, file_event(&m, "a/b", 12345), NULL), 0);
    am_wait_log(&m, "0 2 sealed a/b of 12345 bytes, 1");
    am_wait_log(&m, "1 2 sealed a/b of 12345 bytes, 1");
    am_send(&m, &set, FP_AUXW_SET, ++m.next_id, sizeof(set), files, sizeof(files), NULL, 0);
    assert_int_equal(am_done(&m, m.next_id, NULL), 0);
    am_wait_log(&m, "set run/chk_0007 step 7: 2 files, last run/chk_0007/b");
    am_send(&m, &msg, FP_AUXW_MESSAGE, ++m.next_id, sizeof(msg), "node9", 5, "hi", 2);
    assert_int_equal(am_done(&m, m.next_id, NULL), 0);
    am_wait_log(&m, "message of node9 (12): hi");
    am_stop_clean(&m);
}

/* A file that takes long is no reason for an application to wait. */
static void test_calls_that_are_waited_for_have_a_thread_of_their_own(void **state)
{
    static struct am m;
    uint64_t from_ms, file;

    (void)state;
    assert_int_equal(am_start(&m, NULL, "", LIST("probe us=3000000")), 0);
    file = file_event(&m, "slow", 1);
    am_run(&m, 100);
    from_ms = fp_now_ms();
    assert_int_equal(io_event(&m, FP_AUX_OP_UNLINK, true, "keep", "", 0, 0), -EPERM);
    assert_true(fp_now_ms() - from_ms < 2000);
    assert_null(strstr(m.log, "sealed slow"));
    assert_int_equal(am_done(&m, file, NULL), 0);
    am_stop_clean(&m);
}

/* What a callback that is waited for has left when it begins. */
static long left_ms(const char *declared, const char *change)
{
    static struct am m;
    long ms;

    assert_int_equal(am_start(&m, NULL, "", LIST(declared)), 0);
    if (change)
        assert_int_equal(am_done(&m, am_change(&m, 0, change), NULL), 0);
    assert_int_equal(io_event(&m, FP_AUX_OP_UNLINK, true, "go", "", 0, 0), 0);
    am_wait_log(&m, "unlink go, ");
    ms = strtol(strstr(m.log, "unlink go, ") + strlen("unlink go, 1, "), NULL, 10);
    am_stop_clean(&m);
    return ms;
}

static void test_the_deadline_of_calls_that_are_waited_for_is_the_option(void **state)
{
    (void)state;
    assert_in_range(left_ms("probe", NULL), FP_AUX_WAIT_MS / 2, FP_AUX_WAIT_MS);
    assert_in_range(left_ms("probe deadline=30s", NULL), 20000, 30000);
    assert_in_range(left_ms("probe deadline=1500ms", NULL), 100, 1500);
    assert_in_range(left_ms("probe", "deadline=40s"), 30000, 40000);
}

static void test_a_crash_in_an_event_is_noted(void **state)
{
    static struct am m;

    (void)state;
    assert_int_equal(am_start(&m, NULL, "", LIST("probe")), 0);
    file_event(&m, "crash", 1);
    assert_true(WIFSIGNALED(am_wait_death(&m)));
    assert_int_equal(m.status->crashed_app, 1);
    am_stop(&m);
}

static void test_idle_comes_when_nothing_else_does(void **state)
{
    static struct am m;

    (void)state;
    assert_int_equal(am_start(&m, NULL, "", LIST("probe idle=100ms", "probe2 idle=1h")), 0);
    for (int i = 0; i < 40; i++) {         /* 400 ms without 100 ms of rest */
        assert_int_equal(am_out_done(&m, am_chunk_out(&m, 0, 1, 1000, 0))->status, 0);
        am_run(&m, 10);
    }
    /* On a machine that stops for 100 ms now and then it is called then. */
    int64_t before = am_counter(&m, 0, "idle") > 0 ? am_counter(&m, 0, "idle") : 0;

    for (uint64_t until = fp_now_ms() + AM_WAIT_MS; am_counter(&m, 0, "idle") < before + 3; am_run(&m, 20))
        assert_true(fp_now_ms() < until);
    assert_true(am_counter(&m, 1, "idle") <= before + 1);
    am_stop_clean(&m);
}

/* -------------------------------------------------------------- services */

static struct {
    uint32_t reads, writes, wrote_bytes[2], holds, puts;
    uint8_t wrote[2][MIB];
    bool hold_gone, silent;
    struct { uint8_t key[64]; uint32_t key_bytes; uint8_t value[64]; uint32_t value_bytes; } row[2048];
    uint32_t nrows;
    uint64_t serial;
} store;

static uint32_t pack(const ProtobufCMessage *r, uint8_t *reply)
{
    return (uint32_t)protobuf_c_message_pack(r, reply);
}

static int find_row(const ProtobufCBinaryData *key)
{
    for (uint32_t i = 0; i < store.nrows; i++) {
        if (store.row[i].key_bytes == key->len && memcmp(store.row[i].key, key->data, key->len) == 0)
            return (int)i;
    }
    return -1;
}

static uint32_t on_table(const uint8_t *body, uint32_t len, uint8_t *reply)
{
    Fp__Table *t = fp__table__unpack(NULL, len, body);
    Fp__TableResult result[256], *results[256];
    Fp__TableReply r = FP__TABLE_REPLY__INIT;

    assert_non_null(t);
    assert_true(t->n_ops <= 256);
    for (size_t i = 0; i < t->n_ops; i++) {
        const Fp__TableOp *op = t->ops[i];
        int row = find_row(&op->key);

        fp__table_result__init(&result[i]);
        results[i] = &result[i];
        if (op->kind == FP__TABLE_OP_KIND__TABLE_GET) {
            result[i].status = row < 0 ? -ENOENT : 0;
            if (row >= 0)
                result[i].value = (ProtobufCBinaryData){store.row[row].value_bytes, store.row[row].value};
            continue;
        }
        row = row < 0 ? (int)store.nrows++ : row;
        memcpy(store.row[row].key, op->key.data, op->key.len);
        store.row[row].key_bytes = (uint32_t)op->key.len;
        memcpy(store.row[row].value, op->value.data, op->value.len);
        store.row[row].value_bytes = (uint32_t)op->value.len;
        store.puts++;
    }
    r.n_results = t->n_ops;
    r.results = results;
    len = pack(&r.base, reply);
    fp__table__free_unpacked(t, NULL);
    return len;
}

static uint32_t on_hold(const uint8_t *body, uint32_t len, uint8_t *reply)
{
    Fp__Hold *h = fp__hold__unpack(NULL, len, body);
    Fp__HoldReply r = FP__HOLD_REPLY__INIT;

    store.holds++;
    r.n_ids = store.hold_gone ? 0 : h->n_ids;
    r.ids = h->ids;
    len = pack(&r.base, reply);
    fp__hold__free_unpacked(h, NULL);
    return len;
}

/* A file of 300 000 bytes: byte i is i % 251. */
static uint32_t on_file_read(const uint8_t *body, uint32_t len, uint8_t *reply)
{
    Fp__AuxRead *q = fp__aux_read__unpack(NULL, len, body);
    uint32_t n = 0;

    assert_int_equal(q->ino, 33);
    assert_true(q->len <= 128u << 10);
    for (; n < q->len && q->off + n < 300000; n++)
        reply[n] = (uint8_t)((q->off + n) % 251);
    store.reads++;
    fp__aux_read__free_unpacked(q, NULL);
    return n;
}

static uint32_t on_file_write(uint32_t app, const uint8_t *body, uint32_t len)
{
    Fp__AuxWrite *q = fp__aux_write__unpack(NULL, len, body);

    assert_true(q->data.len <= 128u << 10);
    assert_int_equal(q->off, store.wrote_bytes[app]);
    memcpy(store.wrote[app] + q->off, q->data.data, q->data.len);
    store.wrote_bytes[app] += (uint32_t)q->data.len;
    store.writes += q->last;
    fp__aux_write__free_unpacked(q, NULL);
    return 0;
}

static uint32_t serve(struct am *m, const struct fp_auxw_svc *q, const uint8_t *body, uint32_t len, unsigned call, struct fp_auxw_svc *a,
              uint8_t *reply)
{
    (void)m;
    (void)call;
    a->status = 0;
    if (store.silent)
        a->h.id = 0;   /* an answer to nobody */
    store.serial = q->file_serial;
    switch (q->h.type) {
    case FP_AUXW_SVC_TABLE: return on_table(body, len, reply);
    case FP_AUXW_SVC_HOLD: return on_hold(body, len, reply);
    case FP_AUXW_SVC_FILE_READ: return on_file_read(body, len, reply);
    case FP_AUXW_SVC_FILE_WRITE: return on_file_write(q->app, body, len);
    default: a->status = -ENOTSUP; return 0;
    }
}

static void test_services_are_asked_of_the_mount(void **state)
{
    static struct am m = {.service = serve};

    (void)state;
    memset(&store, 0, sizeof(store));
    memcpy(store.row[0].key, "ask me", 6);
    store.row[0].key_bytes = 6;
    memcpy(store.row[0].value, "yes", 4);
    store.row[0].value_bytes = 4;
    store.nrows = 1;
    assert_int_equal(am_start(&m, NULL, "", LIST("probe", "probe2")), 0);
    assert_int_equal(am_done(&m, file_event(&m, "ask me", 1), NULL), 0);
    assert_non_null(strstr(m.log, "0 2 table says 0 yes"));
    assert_non_null(strstr(m.log, "1 2 table says 0 yes"));
    assert_int_equal(am_done(&m, file_event(&m, "ask it", 1), NULL), -ENOENT);
    assert_int_equal(am_done(&m, file_event(&m, "read", 1), NULL), 0);
    assert_non_null(strstr(m.log, "read 299995, first 5 last 54"));
    assert_int_equal(store.reads, 6);      /* two aux-apps, each three parts */
    am_stop_clean(&m);
}

static void test_files_are_written_in_parts(void **state)
{
    static struct am m = {.service = serve};

    (void)state;
    memset(&store, 0, sizeof(store));
    assert_int_equal(am_start(&m, NULL, "", LIST("probe")), 0);
    assert_int_equal(am_done(&m, file_event(&m, "read", 1), NULL), 0);
    assert_int_equal(store.wrote_bytes[0], 299995);
    assert_int_equal(store.writes, 1);
    for (uint32_t i = 0; i < store.wrote_bytes[0]; i++)
        assert_int_equal(store.wrote[0][i], (i + 5) % 251);
    am_stop_clean(&m);
}

/* A table whose value is the key. */
static uint32_t echo(struct am *m, const struct fp_auxw_svc *q, const uint8_t *body, uint32_t len, unsigned call, struct fp_auxw_svc *a,
             uint8_t *reply)
{
    Fp__Table *t = fp__table__unpack(NULL, len, body);
    Fp__TableResult result = FP__TABLE_RESULT__INIT, *results = &result;
    Fp__TableReply r = FP__TABLE_REPLY__INIT;

    (void)m;
    (void)call;
    assert_int_equal(q->h.type, FP_AUXW_SVC_TABLE);
    assert_string_equal(t->app, "many");
    a->status = 0;
    result.value = t->ops[0]->key;
    r.n_results = 1;
    r.results = &results;
    len = pack(&r.base, reply);
    fp__table__free_unpacked(t, NULL);
    return len;
}

static void test_answers_find_who_asked(void **state)
{
    static struct am m = {.service = echo};
    uint64_t id[64];

    (void)state;
    assert_int_equal(am_start(&m, NULL, "", LIST("many do=ask cores=4")), 0);
    for (int i = 0; i < 64; i++)
        id[i] = am_chunk_out(&m, 0, 1, 4096, (uint32_t)i % 16);
    for (int i = 0; i < 64; i++)
        assert_int_equal(am_out_done(&m, id[i])->status, 0);
    am_stop_clean(&m);
}

static void test_a_service_that_does_not_answer_is_given_up(void **state)
{
    static struct am m = {.service = serve};

    (void)state;
    memset(&store, 0, sizeof(store));
    store.silent = true;
    assert_int_equal(am_start(&m, NULL, "", LIST("probe deadline=600ms")), 0);
    assert_int_equal(am_done(&m, file_event(&m, "ask it", 1), NULL), -EAGAIN);
    am_stop_clean(&m);
}

/* -------------------------------------------------------------- Figure 2 */

static void test_figure2_writes_what_the_table_does_not_know(void **state)
{
    static struct am m = {.service = serve};
    char path[4300];
    uint64_t chunk = 0;

    (void)state;
    memset(&store, 0, sizeof(store));
    snprintf(path, sizeof(path), "%s/lib/auxapps/examples/figure2.so", am_dir());
    assert_int_equal(am_start(&m, NULL, "", LIST(path)), 0);
    for (uint32_t i = 0; i < MIB; i++)
        m.pool[i] = (uint8_t)(i >> 16 == 3 ? (i & 0xffff) * 7 >> 3 : (i * 2654435761u) >> 13);
    memcpy(m.pool + 12 * AM_PAGE, m.pool + 3 * AM_PAGE, AM_PAGE);
    const struct fp_auxw_out_done *d = am_out_done(&m, am_chunk_out(&m, 0, 1, MIB, 0));

    assert_int_equal(d->status, 0);
    assert_true(d->new_bytes <= MIB - AM_PAGE);    /* the same twice in one window */
    assert_true(d->ticket[0] != 0);
    uint32_t unique = d->new_bytes;
    struct fp_auxw_stored s = {.ticket = d->ticket[0], .chunk = 77, .len_bytes = unique};

    am_send(&m, &s, FP_AUXW_STORED, 0, sizeof(s), NULL, 0, NULL, 0);
    for (uint64_t until = fp_now_ms() + AM_WAIT_MS; store.puts == 0; am_run(&m, 1))
        assert_true(fp_now_ms() < until);
    am_run(&m, 20);
    store.holds = 0;
    d = am_out_done(&m, am_chunk_out(&m, 0, 1, MIB, 0));
    assert_int_equal(d->new_bytes, 0);
    assert_int_equal(store.serial, 5);
    assert_int_equal(store.holds, 1);      /* once for the chunk, not for each piece */
    for (uint32_t i = 0; i < d->npieces; i++) {
        assert_int_not_equal(am_pieces(d)[i].kind, FP_AUXW_PIECE_NEW);
        if (am_pieces(d)[i].kind == FP_AUXW_PIECE_STORED)
            chunk = am_pieces(d)[i].chunk;
    }
    assert_int_equal(chunk, 77);
    store.hold_gone = true;                /* the table is older than its chunk */
    d = am_out_done(&m, am_chunk_out(&m, 0, 1, MIB, 0));
    assert_int_equal(d->new_bytes, unique);
    am_stop_clean(&m);
}

/* -------------------------------------------------------------- nothing to do */

static void one_chunk(struct am *m)
{
    assert_int_equal(am_out_done(m, am_chunk_out(m, 0, 1, MIB, 0))->status, 0);
}

static void test_a_stage_that_has_nothing_to_do_is_passed_over(void **state)
{
    static struct am m = {.passed_bytes = 12345};

    (void)state;
    assert_int_equal(am_start(&m, NULL, "", LIST("probe", "resting do=rest", "probe3 do=xor")), 0);
    memset(m.pool, 'x', MIB);
    one_chunk(&m);
    am_run(&m, 50);
    assert_int_equal(am_counter(&m, 1, "rests"), 0);
    assert_int_equal(am_counter(&m, 1, "passed"), 12345);
    assert_true(m.said.app == 1 && m.said.bytes == 3 << 20 && m.said.step_bytes == 4096 && m.said.of == 9 && m.said.come == 2 &&
            m.said.flags == FP_AUX_SKIP_BUT_ZEROS);
    m.skip = 2;
    assert_int_equal(am_stages(am_out_done(&m, am_chunk_out(&m, 0, 1, MIB, 0)))->in_bytes, MIB); /* the others have it */
    assert_int_equal(am_counter(&m, 0, "seen"), 2 * MIB);
    assert_int_equal(am_counter(&m, 1, "seen"), MIB);
    assert_int_equal(am_counter(&m, 2, "seen"), 2 * MIB);
    assert_int_equal(am_out_done(&m, am_chunk_out(&m, 0, 1, MIB, 0))->ran, 1 | 4);
    memset(m.pool + 3 * AM_PAGE + 4096, 0, 4096); /* but zeros it wants */
    one_chunk(&m);
    assert_int_equal(am_counter(&m, 1, "seen"), 2 * MIB);
    m.skip = 1 | 2 | 4;
    assert_int_equal(am_stages(am_out_done(&m, am_chunk_out(&m, 0, 1, MIB, 0)))->in_bytes, MIB); /* what codes is never left out */
    am_stop_clean(&m);
}

/* What a stage says while a chunk is in the one before it is of later chunks: it was made ready for those that follow. */
static void test_who_takes_a_chunk_is_decided_when_it_comes(void **state)
{
    static struct am m;
    uint64_t chunk;

    (void)state;
    assert_int_equal(am_start(&m, NULL, "", LIST("probe do=sleep us=500000", "resting")), 0);
    memset(m.pool, 'x', MIB);
    memset(m.pool + 3 * AM_PAGE + 4096, 0, 4096);
    assert_int_equal(am_done(&m, file_event(&m, "rest but zeros", 1), NULL), 0);
    m.skip = 2;
    chunk = am_chunk_out(&m, 0, 1, MIB, 0);
    assert_int_equal(am_done(&m, file_event(&m, "rest", 1), NULL), 0);
    assert_int_equal(am_out_done(&m, chunk)->ran, 1 | 2);
    assert_int_equal(am_counter(&m, 1, "seen"), MIB);
    assert_int_equal(am_out_done(&m, am_chunk_out(&m, 0, 1, MIB, 0))->ran, 1);
    am_stop_clean(&m);
}

static void test_who_must_see_all_data_can_t_be_passed_over(void **state)
{
    static const char *const declared[] = {"resting do=rest required", "strict do=rest", "probe do=rest"};
    static struct am m;

    (void)state;
    for (int i = 0; i < 3; i++) {
        memset(&m, 0, sizeof(m));
        assert_int_equal(am_start(&m, NULL, "", LIST(declared[i])), 0);
        m.skip = 1;
        (void)am_out_done(&m, am_chunk_out(&m, 0, 1, MIB, 0));
        am_run(&m, 50);
        assert_int_equal(am_counter(&m, 0, "rests"), -ENOTSUP);
        assert_int_equal(m.said.bytes, 0);
        am_stop_clean(&m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_crash_is_noted_and_ends_the_host),
        cmocka_unit_test(test_a_foreign_plugin_cannot_write_past_its_buffer),
        cmocka_unit_test(test_a_crash_at_start_is_noted),
        cmocka_unit_test(test_more_memory_than_the_host_may_have_is_told),
        cmocka_unit_test(test_a_call_that_does_not_end_shows_and_the_host_beats),
        cmocka_unit_test(test_a_plugin_learns_of_deadline_and_cancelling),
        cmocka_unit_test(test_it_ends_when_the_mount_is_gone),
        cmocka_unit_test(test_signals_for_the_mount_do_not_end_it),
        cmocka_unit_test(test_it_keeps_no_privilege_and_no_descriptor),
        cmocka_unit_test(test_events_reach_their_callbacks),
        cmocka_unit_test(test_calls_that_are_waited_for_have_a_thread_of_their_own),
        cmocka_unit_test(test_the_deadline_of_calls_that_are_waited_for_is_the_option),
        cmocka_unit_test(test_a_crash_in_an_event_is_noted),
        cmocka_unit_test(test_idle_comes_when_nothing_else_does),
        cmocka_unit_test(test_services_are_asked_of_the_mount),
        cmocka_unit_test(test_files_are_written_in_parts),
        cmocka_unit_test(test_answers_find_who_asked),
        cmocka_unit_test(test_a_service_that_does_not_answer_is_given_up),
        cmocka_unit_test(test_figure2_writes_what_the_table_does_not_know),
        cmocka_unit_test(test_a_stage_that_has_nothing_to_do_is_passed_over),
        cmocka_unit_test(test_who_takes_a_chunk_is_decided_when_it_comes),
        cmocka_unit_test(test_who_must_see_all_data_can_t_be_passed_over),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
