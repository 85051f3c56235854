/*
 * Calls of applications that wait for an aux-app (client/aux/ask.c), against a host that does what its declaration says: who gets an answer, who gets none, for how
 * long anybody waits, and what `required` makes of it. The host is this program, as in test_cl_aux_jobs.c.
 */
#include <errno.h>
#include <pthread.h>
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

#include "client/aux/events.h"
#include "client/aux/internal.h"
#include "client/data/pool.h"

#define LATE_MS 4000u /* beyond what was promised: for a loaded machine */

/* -------------------------------------------------------------- the host */

static char words[2048];

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

static void say_ready(const struct fp_auxw_start *s)
{
    struct fp_auxw_ready r = {.h = {.type = FP_AUXW_READY, .len_bytes = sizeof r}, .abi = FP_AUX_ABI, .napps = s->napps};
    struct fp_auxw_status *st = mmap(NULL, sizeof *st, PROT_READ | PROT_WRITE, MAP_SHARED, FP_AUXW_FD_STATUS, 0);

    if (st == MAP_FAILED)
        _exit(9);
    atomic_store(&st->thread[0].tid, (uint32_t)getpid());
    strcpy(r.app[0].name, "fake");
    r.app[0].io_flags[FP_AUX_OP_UNLINK] = 0x80 | FP_AUX_WAIT;
    r.app[0].io_flags[FP_AUX_OP_MKDIR] = 0x80;
    r.app[0].required = strstr(words, "=itself") ? FP_AUXW_REQUIRED_SELF : 0;
    say(&r, sizeof r);
}

static void on_event(const struct fp_auxw_event *e)
{
    struct fp_auxw_done d = {.h = {.type = FP_AUXW_DONE, .len_bytes = sizeof d, .id = e->h.id}};

    if (!e->wait || strstr(words, "silent"))
        return;
    if (strstr(words, "=dies"))
        raise(SIGKILL);
    usleep(number_of("ms=") * 1000);
    d.status = -(int)number_of("errno=");
    if (d.status == 0 || strstr(words, "=absent"))
        d.app = FP_AUXW_NO_APP;
    say(&d, sizeof d);
}

static int host_main(void)
{
    static union { struct fp_auxw_head h; uint8_t bytes[FP_AUXW_MESSAGE_MAX_BYTES]; } m;

    for (;;) {
        ssize_t n = recv(FP_AUXW_FD_JOBS, &m, sizeof m, 0);

        if (n <= 0 || m.h.type == FP_AUXW_STOP)
            return 0;
        if (m.h.type == FP_AUXW_CONFIG)
            snprintf(words, sizeof words, "%.*s", (int)(n - (ssize_t)sizeof(struct fp_auxw_config)),
                     (const char *)m.bytes + sizeof(struct fp_auxw_config));
        if (m.h.type == FP_AUXW_START)
            say_ready((const struct fp_auxw_start *)&m);
        if (m.h.type == FP_AUXW_EVENT)
            on_event((const struct fp_auxw_event *)&m);
    }
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

static void begin(const char *declared)
{
    static const char *texts[1];

    memset(&mount_, 0, sizeof mount_);
    texts[0] = declared;
    mount_.opt.auxapps = (struct fp_strlist){.count = 1, .items = texts};
    mount_.opt.auxhost = "/proc/self/exe";
    mount_.opt.auxapp_dir = "/nowhere";
    mount_.opt.node = "here";
    mount_.opt.aux_memory_bytes = 128u << 20;
    mount_.opt.aux_region_bytes = 36u << 20;
    assert_int_equal(cl_pool_new(8u << 20, no_reclaim, no_pressure, NULL, &pool), 0);
    assert_int_equal(cl_aux_start(&mount_, pool), 0);
}

static void end(void)
{
    cl_aux_stop(&mount_);
    cl_aux_free(&mount_);
    cl_pool_free(pool);
}

static uint64_t took_ms;

static int ask(bool (*interrupted)(void *), void *arg)
{
    struct fp_aux_io io = {.size_bytes = sizeof io, .op = FP_AUX_OP_UNLINK, .name = "file"};
    uint64_t from_ms = fp_now_ms();
    int rc = cl_aux_events_before(mount_.aux, &io, interrupted, arg);

    took_ms = fp_now_ms() - from_ms;
    return rc;
}

static Fp__AuxAppStats *stats_of_app(void)
{
    static Fp__ClientStats s;

    fp__client_stats__init(&s);
    cl_aux_stats(&mount_, &s);
    assert_int_equal(s.n_auxapps, 1);
    return s.auxapps[0];
}

static void wait_state(const char *state)
{
    for (int i = 0; i < 1000 && strcmp(stats_of_app()->state, state) != 0; i++)
        usleep(10000);
    assert_string_equal(stats_of_app()->state, state);
}

/* -------------------------------------------------------------- tests */

static void test_ask_the_answer_is_the_applications(void **state)
{
    static const struct { const char *declared; int rc; } cases[] = {
        {"fake", 0}, {"fake x=errno=1", -EPERM}, {"fake x=errno=5", -EIO}, {"fake required x=errno=122", -EDQUOT}, {"fake required", 0},
        {"fake x=errno=4", -EIO},       {"fake x=errno=11", -EIO},   {"fake x=errno=512", -EIO},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        begin(cases[i].declared);
        for (int k = 0; k < 5; k++)
            assert_int_equal(ask(NULL, NULL), cases[i].rc);
        assert_int_equal(stats_of_app()->failures, 0);
        end();
    }
}

/* Its deadline and a second: then the call goes on, or fails where it is required, by who declared it or by itself. */
static void test_ask_without_an_answer_nobody_waits_for_long(void **state)
{
    static const char *const declared[] = {"fake deadline=300ms x=silent", "fake required deadline=300ms x=silent", "fake deadline=300ms x=itself,silent"};

    (void)state;
    for (int i = 0; i < 3; i++) {
        begin(declared[i]);
        assert_int_equal(ask(NULL, NULL), i > 0 ? -EIO : 0);
        assert_in_range(took_ms, 1300, 1300 + LATE_MS);
        end();
    }
}

static void test_ask_the_default_deadline_is_that_of_the_header(void **state)
{
    (void)state;
    begin("fake x=silent");
    assert_int_equal(ask(NULL, NULL), 0);
    assert_in_range(took_ms, FP_AUX_WAIT_MS + 1000, FP_AUX_WAIT_MS + 1000 + LATE_MS);
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

static void test_ask_a_deadline_set_by_hand_holds(void **state)
{
    (void)state;
    begin("fake deadline=1h x=silent");
    set("deadline", "200ms");
    assert_int_equal(ask(NULL, NULL), 0);
    assert_in_range(took_ms, 1200, 1200 + LATE_MS);
    end();
}

/* -ECANCELED and -ETIMEDOUT are no refusals, and count as failures. */
static void test_ask_giving_up_refuses_nothing(void **state)
{
    static const int codes[] = {ECANCELED, ETIMEDOUT};
    char declared[64];

    (void)state;
    for (int i = 0; i < 4; i++) {
        snprintf(declared, sizeof declared, "fake %s failures=100 x=errno=%d", i & 1 ? "required" : "", codes[i / 2]);
        begin(declared);
        assert_int_equal(ask(NULL, NULL), i & 1 ? -EIO : 0);
        for (int k = 0; k < 500 && stats_of_app()->failures == 0; k++)
            usleep(10000);
        assert_int_equal(stats_of_app()->failures, 1);
        end();
    }
}

static void test_ask_hosts_that_die_of_it_are_no_answer(void **state)
{
    (void)state;
    for (int required = 0; required < 2; required++) {
        begin(required ? "fake required x=dies" : "fake x=dies");
        assert_int_equal(ask(NULL, NULL), required ? -EIO : 0);
        assert_in_range(took_ms, 0, 3000 + LATE_MS);
        end();
    }
}

/* The host says that the aux-app does not run there: that is not the aux-app's word. */
static void test_ask_the_word_of_the_host_is_no_answer(void **state)
{
    (void)state;
    for (int required = 0; required < 2; required++) {
        begin(required ? "fake required x=absent,errno=95" : "fake x=absent,errno=95");
        assert_int_equal(ask(NULL, NULL), required ? -EIO : 0);
        end();
    }
}

/* Failed too often: one that is required fails each call that it would have been asked about, at once; another one is not asked any more. */
static void test_ask_one_that_has_failed(void **state)
{
    (void)state;
    for (int required = 0; required < 2; required++) {
        begin(required ? "fake required failures=1 x=errno=125" : "fake failures=1 x=errno=125");
        assert_int_equal(ask(NULL, NULL), required ? -EIO : 0);
        wait_state(required ? "failed" : "bypassed");
        assert_int_equal(cl_aux_events_wanted(mount_.aux, FP_AUX_OP_UNLINK), required ? AUX_WANTS_BEFORE : 0);
        assert_int_equal(cl_aux_events_wanted(mount_.aux, FP_AUX_OP_MKDIR), 0);
        assert_int_equal(ask(NULL, NULL), required ? -EIO : 0);
        assert_in_range(took_ms, 0, 500);
        end();
    }
}

/* Bypassed by hand: the user knows what he does. */
static void test_ask_one_that_is_bypassed_by_hand_is_not_asked(void **state)
{
    (void)state;
    begin("fake required x=errno=1");
    assert_int_equal(ask(NULL, NULL), -EPERM);
    set("bypass", "on");
    assert_int_equal(ask(NULL, NULL), 0);
    end();
}

static bool after(void *arg)
{
    return fp_now_ms() >= *(uint64_t *)arg;
}

static void test_ask_a_signal_ends_the_wait(void **state)
{
    uint64_t at_ms;

    (void)state;
    begin("fake required deadline=1h x=silent");
    at_ms = fp_now_ms(); /* from the first moment on, but no call is ended within the first second */
    assert_int_equal(ask(after, &at_ms), -EINTR);
    assert_in_range(took_ms, AUX_ASK_INTR_MS, AUX_ASK_INTR_MS + LATE_MS);
    at_ms = fp_now_ms() + 1500;
    assert_int_equal(ask(after, &at_ms), -EINTR);
    assert_in_range(took_ms, 1500, 1500 + LATE_MS);
    assert_int_equal(stats_of_app()->failures, 0);
    end();
}

/* So many that no more of them are sent: who waits is not behind them. */
static void test_ask_is_not_behind_what_nobody_waits_for(void **state)
{
    struct fp_aux_io io = {.size_bytes = sizeof io, .op = FP_AUX_OP_MKDIR, .name = "dir"};

    (void)state;
    begin("fake deadline=20s x=errno=1"); /* the host answers none of the others */
    for (unsigned i = 0; i < AUX_EVENTS_MAX + 100; i++) {
        assert_true(cl_aux_events_reserve(mount_.aux));
        cl_aux_events_after(mount_.aux, &io);
    }
    assert_int_equal(ask(NULL, NULL), -EPERM);
    assert_in_range(took_ms, 0, LATE_MS);
    end();
}

/* The queue of what nobody waits for is full, and the aux-app stands still: each call waits for a place, and then is not told. */
static void test_events_that_are_not_kept_up_with_hold_a_call_up_for_ten_seconds(void **state)
{
    struct fp_aux_io io = {.size_bytes = sizeof io, .op = FP_AUX_OP_MKDIR, .name = "dir"};
    uint64_t from_ms;

    (void)state;
    begin("fake deadline=1h");
    for (unsigned i = 0; i < AUX_EVENTS_MAX + AUX_EVENTS_QUEUE; i++) {
        assert_true(cl_aux_events_reserve(mount_.aux));
        cl_aux_events_after(mount_.aux, &io);
    }
    from_ms = fp_now_ms();
    assert_false(cl_aux_events_reserve(mount_.aux));
    assert_in_range(fp_now_ms() - from_ms, 10000, 10000 + LATE_MS);
    end();
}

static void *ask_thread(void *arg)
{
    struct fp_aux_io io = {.size_bytes = sizeof io, .op = FP_AUX_OP_UNLINK, .name = "file"};

    *(int *)arg = cl_aux_events_before(mount_.aux, &io, NULL, NULL);
    return NULL;
}

/* Asked one after the other, each within the deadline: the last waits for longer than that, and none is without an answer. */
static void test_ask_many_at_once_wait_for_their_turn(void **state)
{
    pthread_t t[10];
    int rc[10];
    uint64_t from_ms = fp_now_ms();

    (void)state;
    begin("fake required deadline=500ms x=ms=300,errno=1");
    for (int i = 0; i < 10; i++)
        assert_int_equal(pthread_create(&t[i], NULL, ask_thread, &rc[i]), 0);
    for (int i = 0; i < 10; i++) {
        pthread_join(t[i], NULL);
        assert_int_equal(rc[i], -EPERM);
    }
    assert_true(fp_now_ms() - from_ms >= 3000);
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ask_the_answer_is_the_applications),
        cmocka_unit_test(test_ask_without_an_answer_nobody_waits_for_long),
        cmocka_unit_test(test_ask_the_default_deadline_is_that_of_the_header),
        cmocka_unit_test(test_ask_a_deadline_set_by_hand_holds),
        cmocka_unit_test(test_ask_giving_up_refuses_nothing),
        cmocka_unit_test(test_ask_hosts_that_die_of_it_are_no_answer),
        cmocka_unit_test(test_ask_the_word_of_the_host_is_no_answer),
        cmocka_unit_test(test_ask_one_that_has_failed),
        cmocka_unit_test(test_ask_one_that_is_bypassed_by_hand_is_not_asked),
        cmocka_unit_test(test_ask_a_signal_ends_the_wait),
        cmocka_unit_test(test_ask_is_not_behind_what_nobody_waits_for),
        cmocka_unit_test(test_ask_many_at_once_wait_for_their_turn),
        cmocka_unit_test(test_events_that_are_not_kept_up_with_hold_a_call_up_for_ten_seconds),
    };

    if (getenv("AUX_FAKE_HOST"))
        return host_main();
    setenv("AUX_FAKE_HOST", "1", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
