/*
 * Draining on the benefactor's side, against the real fp-drain over real directories: tasks once, results until they are taken, targets that take nothing, hang, or are
 * not there, workers that die. Faults in fp-drain come by FP_FAULTS, which it inherits.
 */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "benefactor/drain.h"
#include "fp/checksum.h"
#include "fp/clock.h"
#include "fp/err.h"
#include "tests/unit/bnf_util.h"

#define WINDOW  (1u << 20)
#define MIB     ((uint64_t)1 << 20)
#define TMP     "a5a5a5a5-7-1"
#define BNF_ID  3u
#define SIZE    (3 * MIB + 777)
#define TIMEOUT BNF_TARGET_TIMEOUT_MS

static struct {
    struct bnf_scratch t;
    char root[2][300]; /* of targets 1 and 2 */
    char program[4200];
    uv_loop_t loop;
    uv_timer_t timer;
    struct bnf_backend *backend;
    struct bnf_service *service;
    struct bnf_drain *drain;
    uint64_t owner, lease;
    bool done;
    int status;
    /* the last result */
    int32_t result;
    uint64_t id, ino, bytes, missing, sums[64];
    size_t nsums, nnames;
    bool tainted, stalled;
    char why[256], name[256];
} x;

/* -------------------------------------------------------------- the world */

static uint32_t bnf_id(void *arg)
{
    return arg ? 0 : BNF_ID;
}

static void nothing(void *arg)
{
    (void)arg;
}

static void pressed(void *arg, bool on)
{
    (void)arg, (void)on;
}

static void turn(void)
{
    uv_run(&x.loop, UV_RUN_ONCE); /* the timer ends it */
}

static void on_leased(void *arg, int status, uint64_t lease)
{
    (void)arg;
    x.done = true;
    x.status = status;
    x.lease = lease;
}

static void on_done(void *arg, int status)
{
    (void)arg;
    x.done = true;
    x.status = status;
}

static void wait_done(void)
{
    while (!x.done)
        turn();
    x.done = false;
}

static void store(uint64_t chunk, uint32_t len)
{
    uint8_t *buf = bnf_service_buffer(x.service, len, true);
    uint64_t sums[FP_BLOCKS_MAX];

    bnf_fill(chunk, buf + FP_RECORD_HEADER_BYTES, len);
    fp_sum_blocks(buf + FP_RECORD_HEADER_BYTES, len, sums);
    assert_int_equal(bnf_service_write(x.service, x.owner, x.lease, chunk, len, sums, fp_sum_nblocks(len), buf, on_done, NULL), 0);
    wait_done();
    assert_int_equal(x.status, 0);
}

static void start_drain(const char *program, uint64_t give_up_ms)
{
    struct bnf_drain_config c = { .loop = &x.loop, .service = x.service, .program = program, .target_timeout_ms = TIMEOUT, .give_up_ms = give_up_ms,
                                  .threads = 2, .on = true, .bnf_id = bnf_id, .results = nothing, .changed = nothing };

    assert_int_equal(bnf_drain_new(&c, &x.drain), 0);
}

static void find_program(void)
{
    ssize_t n = readlink("/proc/self/exe", x.program, 4096);

    assert_true(n > 0);
    for (int i = 0; i < 3; i++) /* tests/unit/test_x */
        *strrchr(x.program, '/') = '\0';
    strcat(x.program, "/bin/fp-drain");
}

static int setup(void **state)
{
    struct bnf_service_config c = { .loop = &x.loop, .threads = 2, .device_timeout_ms = 5000, .buffer_bytes = 32 * MIB, .capacity_bytes = 256 * MIB, .segment_bytes = 64 * MIB,
                                    .random = 4711, .changed = nothing, .pressed = pressed };

    (void)state;
    memset(&x, 0, sizeof(x));
    unsetenv("FP_FAULTS");
    find_program();
    bnf_scratch_init(&x.t);
    for (int i = 0; i < 2; i++) {
        snprintf(x.root[i], sizeof(x.root[i]), "%.*s-target%d", (int)sizeof(x.t.path) - 1, strdupa(x.t.path), i + 1);
        assert_int_equal(mkdir(x.root[i], 0755), 0);
    }
    uv_loop_init(&x.loop);
    uv_timer_init(&x.loop, &x.timer);
    uv_timer_start(&x.timer, (uv_timer_cb)nothing, 5, 5);
    assert_int_equal(bnf_backend_dir_new(x.t.dir_fd, &x.backend), 0);
    memcpy(c.store_uuid, x.t.store_uuid, 16);
    memcpy(c.bnf_uuid, x.t.bnf_uuid, 16);
    c.backend = x.backend;
    assert_int_equal(bnf_service_new(&c, &x.service), 0);
    assert_int_equal(bnf_service_start(x.service), 0);
    x.owner = bnf_service_owner_new(x.service);
    assert_int_equal(bnf_service_lease(x.service, x.owner, false, 32 * MIB, 32 * MIB, on_leased, NULL), 0);
    wait_done();
    for (uint64_t i = 1; i <= 3; i++)
        store(i, MIB);
    store(4, 777);
    start_drain(x.program, 600000);
    return 0;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    return (void)st, (void)type, (void)ftw, remove(path);
}

static int teardown(void **state)
{
    (void)state;
    bnf_drain_stop(x.drain);
    bnf_drain_free(x.drain);
    bnf_service_owner_gone(x.service, x.owner);
    bnf_service_drain(x.service, 10000, on_done, NULL);
    wait_done();
    bnf_service_free(x.service);
    uv_close((uv_handle_t *)&x.timer, NULL);
    uv_run(&x.loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&x.loop), 0);
    bnf_backend_free(x.backend);
    for (int i = 0; i < 2; i++)
        nftw(x.root[i], remove_one, 16, FTW_DEPTH | FTW_PHYS);
    bnf_scratch_fini(&x.t);
    return unsetenv("FP_FAULTS");
}

/* -------------------------------------------------------------- tasks */

static ProtobufCBinaryData bytes_of(const char *text)
{
    return (ProtobufCBinaryData){ strlen(text), (uint8_t *)(uintptr_t)text };
}

/* By the wire's way, since bnf_drain_tasks keeps what it gets. */
static int tell(const Fp__Tasks *m)
{
    size_t len = fp__tasks__get_packed_size(m);
    uint8_t *buf = malloc(len + 1);
    Fp__Tasks *copy;
    int rc;

    fp__tasks__pack(m, buf);
    copy = fp__tasks__unpack(NULL, len, buf);
    assert_non_null(copy);
    rc = bnf_drain_tasks(x.drain, copy);
    fp__tasks__free_unpacked(copy, NULL);
    free(buf);
    return rc;
}

struct job {
    Fp__Task m;
    Fp__ExtFile dest;
    Fp__Attr attr;
    Fp__Slice slice[8], *slices[8];
};

/* A task of file "dir/file" on target 1. */
static struct job *job(enum _Fp__TaskKind kind, uint64_t id, uint64_t gen)
{
    static struct job j;

    memset(&j, 0, sizeof(j));
    fp__task__init(&j.m);
    fp__ext_file__init(&j.dest);
    fp__attr__init(&j.attr);
    j.dest.target = 1;
    j.dest.root = x.root[0];
    j.dest.uuid = (ProtobufCBinaryData){ 16, (uint8_t *)(uintptr_t) "0123456789abcdef" };
    j.dest.path = bytes_of("dir/file");
    j.attr.mode = S_IFREG | 0640;
    j.attr.uid = geteuid();
    j.attr.gid = getegid();
    j.attr.mtime_ns = 1234567890987654321;
    j.m.id = id;
    j.m.gen = gen;
    j.m.kind = kind;
    j.m.dest = &j.dest;
    j.m.attr = &j.attr;
    j.m.tmp = bytes_of(TMP);
    j.m.tmp_ino = x.ino;
    j.m.size_bytes = SIZE;
    j.m.window_bytes = WINDOW;
    j.m.overwrite = true;
    return &j;
}

/* Windows 0 to 3, chunks 1 to 4. */
static struct job *writing(uint64_t id, uint64_t gen)
{
    struct job *j = job(FP__TASK_KIND__TASK_WRITE, id, gen);

    j->m.count = 4;
    j->m.slices = j->slices;
    j->m.n_slices = 4;
    for (uint32_t i = 0; i < 4; i++) {
        fp__slice__init(&j->slice[i]);
        j->slice[i].win = i;
        j->slice[i].len = i < 3 ? WINDOW : 777;
        j->slice[i].chunk = i + 1;
        j->slice[i].bnf = BNF_ID;
        j->slices[i] = &j->slice[i];
    }
    return j;
}

static int tell_job(struct job *j)
{
    Fp__Task *tasks[1] = { &j->m };
    Fp__Tasks m = FP__TASKS__INIT;

    m.tasks = tasks;
    m.n_tasks = 1;
    return tell(&m);
}

static void cancel(uint64_t id)
{
    Fp__Tasks m = FP__TASKS__INIT;

    m.cancel = &id;
    m.n_cancel = 1;
    assert_int_equal(tell(&m), 0);
}

/* One result, if there is one; the manager has it then. */
static bool take_result(void)
{
    Fp__TaskResult *r;

    if (bnf_drain_results(x.drain, &r, 1) == 0)
        return false;
    x.result = r->status;
    x.id = r->id;
    x.ino = r->seen ? r->seen->ino : x.ino;
    x.bytes = r->bytes;
    x.missing = r->n_missing ? r->missing[0] : 0;
    x.nsums = r->n_sums;
    if (r->n_sums)
        memcpy(x.sums, r->sums, r->n_sums * sizeof(x.sums[0]));
    x.nnames = r->n_list;
    snprintf(x.name, sizeof(x.name), "%.*s", r->n_list ? (int)r->list[0]->path.len : 0, r->n_list ? (char *)r->list[0]->path.data : "");
    x.tainted = r->tainted;
    x.stalled = r->stalled;
    snprintf(x.why, sizeof(x.why), "%s", r->why);
    bnf_drain_told(x.drain, true);
    return true;
}

static int wait_result(void)
{
    uint64_t until = fp_now_ms() + 30000;

    while (!take_result()) {
        assert_true(fp_now_ms() < until);
        turn();
    }
    return x.result;
}

static void no_result(unsigned ms)
{
    uint64_t until = fp_now_ms() + ms;

    while (fp_now_ms() < until) {
        assert_false(take_result());
        turn();
    }
}

#define turn_until(so)                                              \
    for (uint64_t until = fp_now_ms() + 30000; !(so); turn()) \
    assert_true(fp_now_ms() < until)

static int do_job(struct job *j)
{
    assert_int_equal(tell_job(j), 0);
    return wait_result();
}

static const Fp__TargetState *state_of(uint32_t target)
{
    static Fp__BnfInfo info;

    fp__bnf_info__init(&info);
    bnf_drain_info(x.drain, &info);
    for (size_t i = 0; i < info.n_targets; i++)
        if (info.targets[i]->target == target)
            return info.targets[i];
    return NULL;
}

static void wait_state(uint32_t target, enum _Fp__TargetCode code)
{
    turn_until(state_of(target) && state_of(target)->code == code);
}

static void make_marker(void)
{
    assert_int_equal(do_job(job(FP__TASK_KIND__TASK_PROBE, 9000, 1)), 0);
}

static void prepared(void)
{
    make_marker();
    assert_int_equal(do_job(job(FP__TASK_KIND__TASK_PREPARE, 100, 1)), 0);
    assert_true(x.ino != 0);
}

/* 0: chunks 1 to 4, one after the other. */
static int compare(const char *name)
{
    uint8_t *want = malloc(SIZE), *have = malloc(SIZE + 1);
    char path[600];
    int fd, rc;

    for (uint32_t i = 0; i < 4; i++)
        bnf_fill(i + 1, want + i * MIB, i < 3 ? MIB : 777);
    snprintf(path, sizeof(path), "%s/%s", x.root[0], name);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    rc = fd < 0 ? -errno : read(fd, have, SIZE + 1) == (ssize_t)SIZE ? memcmp(want, have, SIZE) : -ERANGE;
    if (fd >= 0)
        close(fd);
    return free(want), free(have), rc;
}

/* With faults in each fp-drain that is started from here on. */
static void restart(const char *faults, uint64_t give_up_ms)
{
    bnf_drain_stop(x.drain);
    bnf_drain_free(x.drain);
    setenv("FP_FAULTS", faults, 1);
    start_drain(x.program, give_up_ms);
}

/* The manager's pace for target 1. */
static void say_pace(enum _Fp__PaceMode mode, uint64_t look)
{
    Fp__TargetPace p = FP__TARGET_PACE__INIT, *list[] = { &p };
    Fp__Pace m = FP__PACE__INIT;

    p.target = 1;
    p.mode = mode;
    p.look = look;
    m.targets = list;
    m.n_targets = 1;
    bnf_drain_pace(x.drain, &m);
}

/* -------------------------------------------------------------- what is asked for is done */

static void test_a_file_is_drained(void **state)
{
    struct bnf_place at;
    struct job *j;

    (void)state;
    prepared();
    assert_int_equal(do_job(writing(101, 1)), 0);
    assert_int_equal(x.nsums, 4);
    for (uint64_t i = 0; i < 4; i++) {
        assert_int_equal(bnf_store_find(bnf_service_store(x.service), i + 1, &at), 0);
        assert_true(x.sums[i] == at.sum);
    }
    assert_int_equal(x.bytes, SIZE);
    j = job(FP__TASK_KIND__TASK_VERIFY, 102, 1);
    j->m.count = 4;
    j->m.sums = x.sums;
    j->m.n_sums = 4;
    assert_int_equal(do_job(j), 0);
    assert_int_equal(do_job(job(FP__TASK_KIND__TASK_FINISH, 103, 1)), 0);
    assert_int_equal(compare("dir/file"), 0);
    assert_int_equal(do_job(job(FP__TASK_KIND__TASK_STAT, 104, 1)), 0);
    x.sums[2]++;
    j = job(FP__TASK_KIND__TASK_VERIFY, 105, 1); /* of the file that has the name */
    j->m.tmp = bytes_of("");
    j->dest.ino = x.ino;
    j->m.count = 4;
    j->m.sums = x.sums;
    j->m.n_sums = 4;
    assert_int_equal(do_job(j), FP_ECHECKSUM);
    assert_int_equal(state_of(1)->code, FP__TARGET_CODE__TARGET_OK);
    assert_int_equal(state_of(1)->done_bytes, SIZE);
    assert_int_equal(state_of(1)->queued_bytes, 0);
}

static void test_pieces_of_other_benefactors_are_left_out(void **state)
{
    struct job *j;

    (void)state;
    prepared();
    j = writing(101, 1);
    j->slice[1].bnf = BNF_ID + 1;
    j->slice[1].chunk = 4711;
    assert_int_equal(do_job(j), 0);
    assert_int_equal(x.bytes, SIZE - WINDOW);
    assert_int_equal(x.nsums, 3);
    assert_true(x.sums[0] && x.sums[1] && x.sums[2]); /* of what is here */
    j = writing(102, 1);
    j->slices[0] = &j->slice[1];
    j->m.n_slices = 1;
    assert_int_equal(do_job(j), 0);
    assert_int_equal(compare(".fp-drain/" TMP), 0);
}

static void test_temporary_files_are_listed_and_removed(void **state)
{
    struct job *j;

    (void)state;
    prepared();
    j = job(FP__TASK_KIND__TASK_SWEEP, 101, 1);
    j->m.tmp = bytes_of("a5a5a5a5-");
    assert_int_equal(do_job(j), 0);
    assert_int_equal(x.nnames, 1);
    assert_string_equal(x.name, TMP);
    assert_int_equal(do_job(job(FP__TASK_KIND__TASK_CLEAN, 102, 1)), 0);
    j = job(FP__TASK_KIND__TASK_SWEEP, 103, 1);
    j->m.tmp = bytes_of("a5a5a5a5-");
    assert_int_equal(do_job(j), 0);
    assert_int_equal(x.nnames, 0);
}

static void test_tasks_that_make_no_sense(void **state)
{
    struct job *j;

    (void)state;
    prepared();
    j = job(FP__TASK_KIND__TASK_PREPARE, 101, 1);
    j->dest.path = bytes_of("../out");
    assert_int_equal(do_job(j), -EINVAL);
    j->dest.path = bytes_of(".fp-drain/x");
    assert_int_equal(do_job(j), -EINVAL);
    j->dest.path = bytes_of("a");
    j->m.tmp = bytes_of("a/b");
    assert_int_equal(do_job(j), -EINVAL);
    j = writing(102, 1);
    j->slice[3].win = 4; /* beyond the end */
    assert_int_equal(do_job(j), -EINVAL);
    j = writing(103, 1);
    j->slice[1].off = 1;
    assert_int_equal(do_job(j), -EINVAL);
    j = writing(104, 1);
    j->slice[1].win = 0; /* over another */
    assert_int_equal(do_job(j), -EINVAL);
    j = writing(105, 1);
    j->slice[1].data_len = 5; /* it would be a piece of more than that */
    assert_int_equal(do_job(j), FP_ECORRUPT);
    j = job(FP__TASK_KIND__TASK_MERGE, 106, 1); /* of no logs */
    assert_int_equal(do_job(j), -EINVAL);
    j = job((Fp__TaskKind)99, 109, 1); /* of a later release */
    assert_int_equal(do_job(j), -EOPNOTSUPP);
    j = job(FP__TASK_KIND__TASK_PREPARE, 107, 1);
    j->dest.target = 5;
    j->dest.root = (char *)(uintptr_t)"relative";
    assert_int_equal(tell_job(j), -EINVAL);
    assert_int_equal(do_job(writing(108, 1)), 0); /* the worker has survived all that */
}

/* -------------------------------------------------------------- once, and until it is heard */

static void test_results_are_kept_until_they_are_taken(void **state)
{
    Fp__TaskResult *r[4];
    uint64_t until = fp_now_ms() + 30000;

    (void)state;
    prepared();
    assert_int_equal(tell_job(writing(101, 1)), 0);
    while (bnf_drain_results(x.drain, r, 4) == 0) {
        assert_true(fp_now_ms() < until);
        turn();
    }
    assert_int_equal(r[0]->id, 101);
    assert_int_equal(bnf_drain_results(x.drain, r, 4), 0); /* on its way */
    assert_int_equal(tell_job(writing(101, 1)), 0);        /* told again: known */
    bnf_drain_told(x.drain, false);                        /* the connection broke */
    assert_int_equal(bnf_drain_results(x.drain, r, 4), 1);
    assert_int_equal(r[0]->status, 0);
    assert_int_equal(r[0]->n_sums, 4);
    bnf_drain_told(x.drain, true);
    no_result(50);
    assert_int_equal(do_job(writing(101, 1)), 0); /* the manager has not kept it: it is done again */
}

static void test_a_newer_attempt_replaces_the_older(void **state)
{
    (void)state;
    prepared();
    assert_int_equal(bnf_drain_set(x.drain, "hold", "on", &(const char *){ NULL }), 0);
    assert_int_equal(tell_job(writing(101, 5)), 0);
    assert_int_equal(tell_job(writing(102, 5)), 0);
    turn_until(state_of(1)->queued_bytes == 2 * SIZE);
    assert_int_equal(tell_job(writing(101, 7)), 0);
    assert_int_equal(tell_job(writing(101, 6)), 0); /* late */
    cancel(102);
    turn_until(state_of(1)->queued_bytes == SIZE);
    no_result(50);
    assert_int_equal(bnf_drain_set(x.drain, "hold", "off", &(const char *){ NULL }), 0);
    assert_int_equal(wait_result(), 0);
    assert_int_equal(x.id, 101);
    no_result(100);
    assert_int_equal(compare(".fp-drain/" TMP), 0);
}

static void test_chunks_that_are_not_here(void **state)
{
    struct job *j;

    (void)state;
    prepared();
    j = writing(101, 1);
    j->slice[2].chunk = 4711;
    assert_int_equal(do_job(j), FP_ECHUNK_MISSING);
    assert_int_equal(x.missing, 4711);
    assert_int_equal(state_of(1)->code, FP__TARGET_CODE__TARGET_OK);
}

/* -------------------------------------------------------------- targets that take nothing */

static void test_a_target_that_is_full_stalls_and_goes_on(void **state)
{
    uint64_t began;

    (void)state;
    prepared();
    restart("drain.pwrite=ENOSPC:count=2", 600000);
    began = fp_now_ms();
    assert_int_equal(tell_job(writing(101, 1)), 0);
    wait_state(1, FP__TARGET_CODE__TARGET_FULL);
    assert_non_null(strstr(state_of(1)->why, "No space"));
    assert_int_equal(wait_result(), 0); /* after two probes: the first of them finds no space either */
    assert_in_range(fp_now_ms() - began, 2900, 30000);
    assert_int_equal(state_of(1)->code, FP__TARGET_CODE__TARGET_OK);
    assert_string_equal(state_of(1)->why, "");
    assert_int_equal(compare(".fp-drain/" TMP), 0);
}

/* Somebody waits: it is not left alone until the pause is over, which has grown. */
static void test_a_target_that_stalls_is_tried_at_once_when_that_is_asked_for(void **state)
{
    uint64_t until = fp_now_ms() + 60000;

    (void)state;
    prepared();
    restart("drain.pwrite=ENOSPC:count=3", 600000);
    assert_int_equal(tell_job(writing(101, 1)), 0);
    wait_state(1, FP__TARGET_CODE__TARGET_FULL);
    while (state_of(1)->again_ms <= 1000) { /* the first pause */
        assert_true(fp_now_ms() < until);
        turn();
    }
    say_pace(FP__PACE_MODE__PACE_RUN, 7);
    assert_int_equal(state_of(1)->again_ms, 0); /* it is due */
    while (!state_of(1)->again_ms) {
        assert_true(fp_now_ms() < until);
        turn();
    }
    assert_in_range(state_of(1)->again_ms, 1, 1000); /* it was tried, and pauses begin anew */
    say_pace(FP__PACE_MODE__PACE_RUN, 7);
    assert_int_not_equal(state_of(1)->again_ms, 0); /* told again: nothing new */
    assert_int_equal(wait_result(), 0);
    assert_int_equal(state_of(1)->again_ms, 0);
}

static void test_a_target_without_a_marker_is_not_written_to(void **state)
{
    char marker[400];
    struct job *j;

    (void)state;
    j = job(FP__TASK_KIND__TASK_PROBE, 100, 1);
    j->m.overwrite = false;
    assert_int_equal(do_job(j), -ENOMEDIUM); /* a probe is always answered */
    assert_true(x.stalled);
    assert_int_equal(tell_job(job(FP__TASK_KIND__TASK_PREPARE, 101, 1)), 0);
    wait_state(1, FP__TARGET_CODE__TARGET_UNREACHABLE);
    no_result(100);
    snprintf(marker, sizeof(marker), "%s/.fp-drain", x.root[0]);
    assert_int_equal(access(marker, F_OK), -1);
    make_marker(); /* also while it is stalled */
    assert_int_equal(wait_result(), 0);
    assert_int_equal(x.id, 101);
}

static void test_a_target_that_hangs_holds_up_nobody_else(void **state)
{
    struct job *j;
    uint64_t began;

    (void)state;
    prepared();
    restart("drain.pwrite=hang", 600000);
    assert_int_equal(tell_job(writing(101, 1)), 0);
    wait_state(1, FP__TARGET_CODE__TARGET_HANGS);
    unsetenv("FP_FAULTS");
    j = job(FP__TASK_KIND__TASK_PROBE, 9001, 1);
    j->dest.target = 2;
    j->dest.root = x.root[1];
    assert_int_equal(do_job(j), 0);
    began = fp_now_ms();
    bnf_drain_stop(x.drain);
    assert_in_range(fp_now_ms() - began, 0, 1000);
}

static void test_a_worker_that_hangs_is_left_behind(void **state)
{
    (void)state;
    prepared();
    restart("drain.pwrite=hang", 800);
    assert_int_equal(tell_job(writing(101, 1)), 0);
    wait_state(1, FP__TARGET_CODE__TARGET_HANGS);
    unsetenv("FP_FAULTS");
    assert_int_equal(wait_result(), -ETIMEDOUT);
    assert_true(x.tainted);
    assert_int_equal(tell_job(writing(101, 2)), 0);
    assert_int_equal(wait_result(), 0);
    assert_int_equal(state_of(1)->code, FP__TARGET_CODE__TARGET_OK);
}

/* -------------------------------------------------------------- workers that die */

static void test_a_worker_that_is_killed_is_started_again(void **state)
{
    uint64_t until = fp_now_ms() + 30000;

    (void)state;
    prepared();
    restart("drain.fsync=kill", 600000);
    assert_int_equal(tell_job(writing(101, 1)), 0);
    for (int i = 0; i < 20 && fp_now_ms() < until; i++) /* it has been started with that */
        turn();
    unsetenv("FP_FAULTS");
    assert_int_equal(wait_result(), 0);
    assert_int_equal(x.nsums, 4);
    assert_int_equal(compare(".fp-drain/" TMP), 0);
}

static void test_a_task_that_kills_workers_is_blamed(void **state)
{
    (void)state;
    prepared();
    restart("drain.fsync=kill", 600000);
    assert_int_equal(do_job(writing(101, 1)), FP_EAUXAPP);
    assert_non_null(strstr(x.why, "three times"));
    unsetenv("FP_FAULTS");
    assert_int_equal(do_job(writing(102, 1)), 0);
}

static void test_a_program_that_is_not_there(void **state)
{
    (void)state;
    bnf_drain_stop(x.drain);
    bnf_drain_free(x.drain);
    start_drain("/nowhere/fp-drain", 600000);
    assert_int_equal(tell_job(job(FP__TASK_KIND__TASK_PREPARE, 101, 1)), 0);
    wait_state(1, FP__TARGET_CODE__TARGET_IO);
    assert_non_null(strstr(state_of(1)->why, "/nowhere/fp-drain could not be executed"));
}

/* -------------------------------------------------------------- preferences */

static void test_preferences(void **state)
{
    Fp__BnfInfo info;
    const char *why;

    (void)state;
    assert_int_equal(bnf_drain_set(x.drain, "speed", "1", &why), -EINVAL);
    assert_int_equal(bnf_drain_set(x.drain, "threads", "9", &why), -EINVAL);
    assert_int_equal(bnf_drain_set(x.drain, "max", "fast", &why), -EINVAL);
    assert_string_equal(why, "max is a rate, such as 200MB/s, or 0");
    assert_int_equal(bnf_drain_set(x.drain, "threads", "1", &why), 0);
    assert_int_equal(bnf_drain_set(x.drain, "max", "200MB/s", &why), 0);
    assert_int_equal(bnf_drain_set(x.drain, "drain", "off", &why), 0);
    fp__bnf_info__init(&info);
    bnf_drain_info(x.drain, &info);
    assert_false(info.prefs->drain);
    assert_int_equal(info.prefs->max_rate, 200000000);
    assert_int_equal(info.prefs->threads, 1);
    assert_int_equal(tell_job(job(FP__TASK_KIND__TASK_PROBE, 1, 1)), 0);
    no_result(200);
    assert_int_equal(bnf_drain_set(x.drain, "drain", "on", &why), 0);
    assert_int_equal(wait_result(), 0);
    /* what the manager says holds until it says something else */
    assert_int_equal(do_job(job(FP__TASK_KIND__TASK_PREPARE, 2, 1)), 0);
    say_pace(FP__PACE_MODE__PACE_HOLD, 0);
    assert_int_equal(tell_job(writing(3, 1)), 0);
    no_result(300);
    say_pace(FP__PACE_MODE__PACE_RUN, 0);
    assert_int_equal(wait_result(), 0);
}

/* 8 MiB from a mount: data waits, and goes on when it is quiet again, or at once when the manager says hurry. */
static void test_mounts_at_work_hold_it(void **state)
{
    (void)state;
    prepared();
    no_result(150); /* it has looked before */
    for (uint64_t i = 10; i < 18; i++)
        store(i, MIB);
    no_result(150); /* and has seen it */
    assert_int_equal(tell_job(writing(101, 1)), 0);
    no_result(300);
    assert_int_equal(wait_result(), 0);
    for (uint64_t i = 20; i < 28; i++)
        store(i, MIB);
    no_result(150);
    assert_int_equal(tell_job(writing(102, 1)), 0);
    no_result(100);
    say_pace(FP__PACE_MODE__PACE_HURRY, 0);
    assert_int_equal(wait_result(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
        T(test_a_file_is_drained),
        T(test_pieces_of_other_benefactors_are_left_out),
        T(test_temporary_files_are_listed_and_removed),
        T(test_tasks_that_make_no_sense),
        T(test_results_are_kept_until_they_are_taken),
        T(test_a_newer_attempt_replaces_the_older),
        T(test_chunks_that_are_not_here),
        T(test_a_target_that_is_full_stalls_and_goes_on),
        T(test_a_target_that_stalls_is_tried_at_once_when_that_is_asked_for),
        T(test_a_target_without_a_marker_is_not_written_to),
        T(test_a_target_that_hangs_holds_up_nobody_else),
        T(test_a_worker_that_hangs_is_left_behind),
        T(test_a_worker_that_is_killed_is_started_again),
        T(test_a_task_that_kills_workers_is_blamed),
        T(test_a_program_that_is_not_there),
        T(test_preferences),
        T(test_mounts_at_work_hold_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
