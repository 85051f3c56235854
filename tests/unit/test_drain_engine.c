/* fp-drain: its queue, pace, cancelling, the end, messages that are wrong; and the program itself, started as the benefactor starts it (common/child.c). */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "fp/child.h"
#include "fp/clock.h"
#include "fp/err.h"
#include "fp/fault.h"
#include "tests/unit/drain_world.h"

#define TMP "a5a5a5a5-7-1"
#define MIB (1u << 20)

static struct dw d;

static int setup(void **state)
{
    (void)state;
    return dw_setup(&d);
}

static int teardown(void **state)
{
    (void)state;
    return dw_teardown(&d);
}

static void pace(enum fp_dw_pace_mode mode, uint64_t rate)
{
    struct fp_dw_pace m = { .h = { .type = FP_DW_PACE }, .mode = mode, .rate = rate };

    dw_send(&d, &m, sizeof(m), NULL, 0, -1);
}

static void cancel(uint64_t id)
{
    struct fp_dw_head m = { .type = FP_DW_CANCEL, .id = id, .gen = d.gen };

    dw_send(&d, &m, sizeof(m), NULL, 0, -1);
}

/* -------------------------------------------------------------- queue and pace */

static void test_hold_stops_data_and_not_metadata(void **state)
{
    struct fp_dw_slice s = dw_chunk(&d, 1, 1000, 0);
    uint64_t ino, write;

    (void)state;
    assert_int_equal(dw_prepare(&d, "f", TMP, 1000), 0);
    ino = d.done.tino;
    pace(FP_DW_HOLD, 0);
    dw_tell_write(&d, TMP, ino, 1000, 0, &s, 1);
    write = d.next_id;
    assert_int_equal(dw_prepare(&d, "g", "a5a5a5a5-8-1", 1000), 0);
    assert_false(dw_answers(&d, 100));
    pace(FP_DW_RUN, 0);
    dw_wait(&d);
    assert_int_equal(d.done.h.id, write);
    assert_int_equal(d.done.status, 0);
}

/* Both threads are busy: what is urgent comes first, then metadata, then data. */
static void test_order_of_the_queue(void **state)
{
    struct fp_dw_slice s = dw_chunk(&d, 1, 1000, 0);
    struct fp_dw_file stat = { .h = { .type = FP_DW_SWEEP, .gen = 1 }, .tmp_bytes = 1 };
    uint64_t ino, order[3];

    (void)state;
    assert_int_equal(dw_prepare(&d, "f", TMP, 1000), 0);
    ino = d.done.tino;
    pace(FP_DW_HOLD, 0);
    for (int i = 0; i < 3; i++)
        dw_tell_write(&d, TMP, ino, 1000, 0, &s, 1);
    while (!atomic_load(&d.status.op[0].kind) || !atomic_load(&d.status.op[1].kind))
        usleep(1000);
    stat.h.id = 1000;
    dw_send(&d, &stat, sizeof(stat), "a", 1, -1);
    stat.h.id = 1001;
    stat.flags = FP_DW_URGENT;
    dw_send(&d, &stat, sizeof(stat), "a", 1, -1);
    cancel(d.next_id - 2); /* one thread is free again, for all that is to come */
    dw_wait(&d);
    assert_int_equal(d.done.status, -ECANCELED);
    for (int i = 0; i < 2; i++) {
        dw_wait(&d);
        order[i] = d.done.h.id;
    }
    assert_true(order[0] == 1001 || order[0] == 1000); /* the free thread may have taken the first before the second was told */
    assert_false(dw_answers(&d, 50));
    pace(FP_DW_RUN, 0);
    dw_wait(&d);
    dw_wait(&d);
    assert_int_equal(d.done.status, 0);
}

static void test_a_rate_is_kept(void **state)
{
    struct fp_dw_slice s[16];
    uint64_t size = 16 * DW_WINDOW, ino, began;

    (void)state;
    for (uint32_t i = 0; i < 16; i++)
        s[i] = dw_chunk(&d, 10 + i, DW_WINDOW, i * DW_WINDOW);
    assert_int_equal(dw_prepare(&d, "f", TMP, size), 0);
    ino = d.done.tino;
    pace(FP_DW_RUN, 5 * MIB); /* 1 MiB each 200 ms; the first 100 ms are free */
    began = fp_now_ms();
    for (int i = 0; i < 4; i++)
        assert_int_equal(dw_write(&d, TMP, ino, size, 0, s, 16), 0);
    assert_in_range(fp_now_ms() - began, 450, 30000);
    /* a pace that is taken off ends a wait */
    pace(FP_DW_RUN, 1);
    assert_int_equal(dw_write(&d, TMP, ino, size, 0, s, 16), 0);
    dw_tell_write(&d, TMP, ino, size, 0, s, 16); /* 12 days from now */
    assert_false(dw_answers(&d, 50));
    pace(FP_DW_RUN, 0);
    dw_wait(&d);
    assert_int_equal(d.done.status, 0);
}

static void test_cancelling_what_waits_and_what_runs(void **state)
{
    struct fp_dw_slice s = dw_chunk(&d, 1, 1000, 0);
    uint64_t ino, first;

    (void)state;
    assert_int_equal(dw_prepare(&d, "f", TMP, 1000), 0);
    ino = d.done.tino;
    pace(FP_DW_HOLD, 0);
    for (int i = 0; i < 4; i++)
        dw_tell_write(&d, TMP, ino, 1000, 0, &s, 1);
    first = d.next_id - 3;
    for (uint64_t id = first; id < first + 4; id++)
        cancel(id);
    for (int i = 0; i < 4; i++) {
        dw_wait(&d);
        assert_int_equal(d.done.status, -ECANCELED);
    }
    cancel(4711); /* one that is not there */
    d.gen++;
    assert_int_equal(dw_prepare(&d, "f", "a5a5a5a5-8-1", 1000), 0);
}

static void test_the_page_shows_a_call_that_hangs(void **state)
{
    struct fp_dw_op *op = &d.status.op[0];
    struct fp_dw_slice s = dw_chunk(&d, 1, 1000, 0);
    uint64_t now, ino;

    (void)state;
    assert_int_equal(dw_prepare(&d, "f", TMP, 1000), 0);
    ino = d.done.tino;
    fp_fault_set("drain.pwrite=delay:ms=300:count=1");
    now = fp_now_ns();
    dw_tell_write(&d, TMP, ino, 1000, 0, &s, 1);
    for (;;) { /* either thread has it */
        op = &d.status.op[atomic_load(&d.status.op[0].in_target) ? 0 : 1];
        if (atomic_load(&op->in_target) && fp_now_ns() - now > 100000000u)
            break;
        assert_true(fp_now_ns() - now < 20000000000u);
        usleep(1000);
    }
    assert_int_equal(atomic_load(&op->kind), FP_DW_WRITE);
    assert_int_equal(atomic_load(&op->id), d.next_id);
    assert_true(atomic_load(&op->since_ns) >= now);
    dw_wait(&d);
    assert_int_equal(d.done.status, 0);
    assert_int_equal(fp_fault_fired("drain.pwrite"), 1);
}

/* -------------------------------------------------------------- messages */

static void refused(const void *msg, size_t len, const void *more, size_t more_len)
{
    dw_send(&d, msg, len, more, more_len, -1);
    pthread_join(d.thread, NULL);
    assert_int_equal(d.end, -EPROTO);
    close(d.socket);
    d.socket = -1;
    dw_stop(&d);
    dw_start(&d);
}

static void test_messages_that_are_wrong_end_it(void **state)
{
    struct fp_dw_file f = { .h = { .type = FP_DW_PREPARE }, .tmp_bytes = 1 };
    struct fp_dw_write w = { .h = { .type = FP_DW_WRITE }, .size = 100, .window_bytes = DW_WINDOW, .nslices = 1, .nsegments = 1, .tmp_bytes = 1 };
    static const char *const paths[] = { "/abs", "../up", "a/../b", "a//b", "a/", ".", "", FP_DW_TEMP_DIR "/x", FP_DW_MARKER };
    struct {
        char tmp;
        uint8_t segment[8];
        uint8_t slice[sizeof(struct fp_dw_slice)];
    } rest = { .tmp = 't' };
    struct fp_dw_slice good = { .page = 1, .len = 100, .chunk_len = 100 }, s;
    char text[64];

    (void)state;
    refused("x", 1, NULL, 0);
    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
        f.path_bytes = (uint32_t)strlen(paths[i]);
        snprintf(text, sizeof(text), "%st", paths[i]);
        refused(&f, sizeof(f), text, strlen(text));
    }
    f.path_bytes = UINT32_MAX;
    refused(&f, sizeof(f), "at", 2);
    f.path_bytes = 1;
    f.nxattrs = 1;
    refused(&f, sizeof(f), "at\1\0\0\0\377\377\377\377u", 11);
    for (int i = 0; i < 7; i++) {
        s = good;
        switch (i) {
        case 0: s.len = 101; s.chunk_len = 101; break; /* beyond the file */
        case 1: s.chunk_off = 1; break;
        case 2: s.seg = 1; break;
        case 3: s.len = 0; break;
        case 4: s.chunk_len = FP_STORED_MAX_BYTES + 1; break;
        case 5: s.page = 0; break;
        case 6: s.at = 1; break;
        }
        memcpy(rest.slice, &s, sizeof(s));
        refused(&w, sizeof(w), &rest, sizeof(rest));
    }
    w.window_bytes = 100;
    refused(&w, sizeof(w), &rest, sizeof(rest));
}

static void test_the_end_of_the_socket_ends_it(void **state)
{
    struct fp_dw_slice s = dw_chunk(&d, 1, 1000, 0);

    (void)state;
    assert_int_equal(dw_prepare(&d, "f", TMP, 1000), 0);
    pace(FP_DW_HOLD, 0);
    for (int i = 0; i < 4; i++)
        dw_tell_write(&d, TMP, d.done.tino, 1000, 0, &s, 1);
    assert_int_equal(dw_end(&d), 0);
}

/* -------------------------------------------------------------- the program */

static const char *program(void)
{
    static char path[4200];
    char *slash;
    ssize_t n = readlink("/proc/self/exe", path, 4096);

    assert_true(n > 0);
    path[n] = '\0';
    for (int i = 0; i < 3; i++) { /* tests/unit/test_x */
        slash = strrchr(path, '/');
        *slash = '\0';
    }
    strcat(path, "/bin/fp-drain");
    return path;
}

static int wait_gone(struct fp_child *c)
{
    int status = -1;

    for (int i = 0; i < 2000 && !fp_child_gone(c, &status); i++)
        usleep(10000);
    assert_true(fp_child_gone(c, &status));
    return status;
}

static void test_the_program_drains_a_file(void **state)
{
    struct fp_child_opts o = { .path = program(), .name = "fp-drain", .page_bytes = sizeof(struct fp_dw_status), .nice = 1 };
    struct fp_dw_seg seg = { .h = { .type = FP_DW_SEG_ADD }, .segment = DW_SEGMENT, .salt = d.seg->salt };
    struct fp_dw_slice s = dw_chunk(&d, 1, 50000, 0);
    struct fp_child *c;
    int in_thread = d.socket, fd;

    (void)state;
    assert_int_equal(fp_child_start(&o, &c), 0);
    assert_true(fcntl(fp_child_socket(c), F_GETFL) & O_NONBLOCK);
    d.socket = fp_child_socket(c);
    dw_config(&d, 2);
    fd = bnf_file_reopen(d.seg);
    dw_send(&d, &seg, sizeof(seg), NULL, 0, fd);
    close(fd);
    assert_int_equal(dw_prepare(&d, "a/b", TMP, 50000), 0);
    assert_int_equal(dw_write(&d, TMP, d.done.tino, 50000, 0, &s, 1), 0);
    assert_int_equal(atomic_load(&((struct fp_dw_status *)fp_child_page(c))->written_bytes), 50000);
    assert_int_equal(dw_prepare(&d, "a/b", TMP, 50000), 0);
    assert_int_equal(dw_finish(&d, "a/b", TMP, d.done.tino, 50000), 0);
    assert_int_equal(dw_compare(&d, "a/b", 50000, 0, &s, 1), 0);
    shutdown(d.socket, SHUT_RDWR);
    assert_int_equal(wait_gone(c), 0);
    fp_child_free(c);
    d.socket = in_thread;
}

static void test_a_child_that_is_killed_or_cannot_be_executed(void **state)
{
    struct fp_child_opts o = { .path = program(), .name = "fp-drain", .page_bytes = sizeof(struct fp_dw_status) };
    struct pollfd p = { .events = POLLIN };
    struct fp_child *c;
    char byte;

    (void)state;
    assert_int_equal(fp_child_start(&o, &c), 0);
    assert_false(fp_child_gone(c, NULL));
    fp_child_kill(c);
    p.fd = fp_child_socket(c);
    assert_int_equal(poll(&p, 1, 20000), 1);
    assert_int_equal(recv(p.fd, &byte, 1, 0), 0);
    assert_int_equal(wait_gone(c), 0x100 + 9);
    fp_child_free(c);

    o.path = "/nowhere/fp-drain";
    assert_int_equal(fp_child_start(&o, &c), 0);
    assert_int_equal(wait_gone(c), -ENOENT);
    assert_int_equal(wait_gone(c), -ENOENT);
    fp_child_free(c);

    o.path = "/bin/sh"; /* options of ours, and descriptors, do not get there */
    o.name = "sh";
    setenv("FP_KEY", "secret", 1);
    assert_int_equal(fp_child_start(&o, &c), 0);
    fp_child_free(c); /* reads /dev/null, and ends by itself */
    unsetenv("FP_KEY");
    while (waitpid(-1, NULL, 0) > 0)
        ;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
        T(test_hold_stops_data_and_not_metadata),
        T(test_order_of_the_queue),
        T(test_a_rate_is_kept),
        T(test_cancelling_what_waits_and_what_runs),
        T(test_the_page_shows_a_call_that_hangs),
        T(test_messages_that_are_wrong_end_it),
        T(test_the_end_of_the_socket_ends_it),
        T(test_the_program_drains_a_file),
        T(test_a_child_that_is_killed_or_cannot_be_executed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
