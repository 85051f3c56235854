/* Tasks of many chunks of one file of a target, and pages of its directories, against the real fp-drain over a real directory. */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "fp/checksum.h"
#include "fp/clock.h"
#include "fp/err.h"
#include "fp/fault.h"
#include "tests/unit/fetch_world.h"

/* -------------------------------------------------------------- tasks */

static struct {
    Fp__Task m;
    Fp__Slice slice[CHUNKS], *slices[CHUNKS];
} job;

static void make_job(enum _Fp__TaskKind kind, uint64_t id, uint32_t from, uint32_t n)
{
    memset(&job, 0, sizeof(job));
    fp__task__init(&job.m);
    job.m.id = id;
    job.m.gen = 1;
    job.m.kind = kind;
    job.m.dest = &x.file;
    job.m.slices = job.slices;
    job.m.n_slices = n;
    for (uint32_t i = 0; i < n; i++) {
        Fp__Slice *s = job.slices[i] = &job.slice[i];

        fp__slice__init(s);
        s->chunk = FIRST + from + i;
        s->ext_off = (from + i) * MIB;
        s->win = from + i;
        s->len = s->chunk_len = fw_len_of(from + i);
        s->chunk_sum = fw_sum_of(from + i);
    }
}

static int tell(const uint64_t *cancel)
{
    Fp__Task *tasks[] = { &job.m };
    Fp__Tasks m = FP__TASKS__INIT, *copy;
    size_t len;
    uint8_t *buf;
    int rc;

    m.tasks = tasks;
    m.n_tasks = cancel ? 0 : 1;
    m.cancel = (uint64_t *)(uintptr_t)cancel;
    m.n_cancel = cancel ? 1 : 0;
    len = fp__tasks__get_packed_size(&m);
    buf = malloc(len + 1);
    fp__tasks__pack(&m, buf);
    copy = fp__tasks__unpack(NULL, len, buf);
    rc = bnf_drain_tasks(x.drain, copy);
    fp__tasks__free_unpacked(copy, NULL);
    free(buf);
    return rc;
}

static bool take_result(void)
{
    Fp__TaskResult *r;

    if (bnf_drain_results(x.drain, &r, 1) == 0)
        return false;
    x.result = r->status;
    x.bytes = r->bytes;
    x.nmissing = r->n_missing;
    x.nchunks = r->n_chunks;
    x.nlist = r->n_list;
    x.eof = r->eof;
    for (size_t i = 0; i < r->n_missing; i++)
        x.missing[i] = r->missing[i];
    for (size_t i = 0; i < r->n_chunks; i++)
        x.chunks[i] = *r->chunks[i];
    snprintf(x.why, sizeof(x.why), "%s", r->why);
    snprintf(x.name, sizeof(x.name), "%.*s", r->n_list ? (int)r->list[r->n_list - 1]->path.len : 0, r->n_list ? (char *)r->list[r->n_list - 1]->path.data : "");
    bnf_drain_told(x.drain, true);
    return true;
}

static int wait_result(void)
{
    uint64_t until = fp_now_ms() + 30000;

    while (!take_result()) {
        assert_true(fp_now_ms() < until);
        fw_turn();
    }
    return x.result;
}

static void no_result(unsigned ms)
{
    uint64_t until = fp_now_ms() + ms;

    while (fp_now_ms() < until) {
        assert_false(take_result());
        fw_turn();
    }
}

static int do_job(void)
{
    assert_int_equal(tell(NULL), 0);
    return wait_result();
}

static void test_a_task_brings_all_of_a_file(void **state)
{
    struct told t;
    uint64_t ids[CHUNKS];

    (void)state;
    assert_int_equal(fw_fetched(3, &t), 0);
    assert_int_equal(fw_staged(NULL, true), 1);
    make_job(FP__TASK_KIND__TASK_FETCH, 1, 0, CHUNKS);
    assert_int_equal(do_job(), 0);
    assert_int_equal(x.bytes, SIZE);
    assert_int_equal(x.nmissing, 0);
    for (uint32_t i = 0; i < CHUNKS; i++)
        assert_true(fw_is_here(i));
    assert_int_equal(fw_staged(ids, true), CHUNKS); /* the one that was here too */
}

/* That it has a header is no answer: the bytes behind it are read. */
static void test_a_task_replaces_a_record_that_is_damaged(void **state)
{
    (void)state;
    make_job(FP__TASK_KIND__TASK_FETCH, 1, 0, 4);
    assert_int_equal(do_job(), 0);
    assert_int_equal(fw_staged(NULL, true), 4);
    fw_damage(2);
    make_job(FP__TASK_KIND__TASK_FETCH, 2, 0, 4);
    assert_int_equal(do_job(), 0);
    assert_int_equal(x.bytes, 4 * MIB);
    for (uint32_t i = 0; i < 4; i++)
        assert_true(fw_is_here(i));
    assert_int_equal(fw_staged(NULL, true), 4);
    /* where the target has it no more either, it is missing, and not here */
    fw_damage(1);
    assert_int_equal(unlink(fw_path_of("dir/file")), 0);
    make_job(FP__TASK_KIND__TASK_FETCH, 3, 0, 4);
    assert_int_equal(do_job(), -ENOENT);
    assert_int_equal(x.nmissing, 1);
    assert_int_equal(x.missing[0], FIRST + 1);
}

static void test_a_foreign_file_becomes_chunks(void **state)
{
    (void)state;
    memset(x.data + 7 * MIB, 0, MIB);
    fw_make_file();
    make_job(FP__TASK_KIND__TASK_STAGE, 1, 0, CHUNKS);
    for (uint32_t i = 0; i < CHUNKS; i++)
        job.slice[i].chunk_sum = 0;
    assert_int_equal(do_job(), 0);
    assert_int_equal(x.bytes, SIZE);
    assert_int_equal(x.nchunks, CHUNKS - 1);
    for (uint32_t i = 0, k = 0; i < CHUNKS; i++) {
        if (i == 7) {
            assert_false(fw_is_here(i)); /* a hole */
            continue;
        }
        assert_int_equal(x.chunks[k].id, FIRST + i);
        assert_int_equal(x.chunks[k].len, fw_len_of(i));
        assert_true(x.chunks[k].sum == fw_sum_of(i));
        assert_int_equal(x.chunks[k].stored_bytes, fp_record_size_bytes(fw_len_of(i)));
        assert_int_equal(x.chunks[k++].bnf, BNF_ID);
        assert_true(fw_is_here(i));
    }
    assert_int_equal(fw_staged(NULL, true), 0); /* the result says it */
}

/* A number that was given out twice: what is there stays, and is not taken for what was read. */
static void test_a_number_that_is_taken_is_not_another_chunk(void **state)
{
    (void)state;
    make_job(FP__TASK_KIND__TASK_STAGE, 1, 0, 2);
    assert_int_equal(do_job(), 0);
    make_job(FP__TASK_KIND__TASK_STAGE, 2, 0, 2); /* the same bytes */
    assert_int_equal(do_job(), 0);
    assert_int_equal(x.nchunks, 2);
    make_job(FP__TASK_KIND__TASK_STAGE, 3, 0, 3);
    job.slice[1].ext_off = 5 * MIB;
    assert_int_equal(do_job(), -EEXIST);
    assert_int_equal(x.nchunks, 0);
    assert_non_null(strstr(x.why, "other bytes"));
    assert_true(fw_is_here(1));
}

static void test_a_foreign_file_that_changes_leaves_nothing(void **state)
{
    (void)state;
    fw_restart("drain.target_pread=delay:ms=100", 600000); /* the file changes long before all is read, on a slow machine too */
    make_job(FP__TASK_KIND__TASK_STAGE, 1, 0, CHUNKS);
    assert_int_equal(tell(NULL), 0);
    while (!fw_is_here(2))
        fw_turn();
    assert_int_equal(truncate(fw_path_of("dir/file"), SIZE - 1), 0);
    assert_int_equal(wait_result(), -ESTALE);
    assert_non_null(strstr(x.why, "dir/file"));
    assert_int_equal(x.nchunks, 0);
    for (uint32_t i = 0; i < CHUNKS; i++)
        assert_false(fw_is_here(i));
}

static void test_a_task_without_room_says_what_is_missing(void **state)
{
    size_t here = 0;

    (void)state;
    fw_fill_up(CAPACITY / 16 + 8 * MIB);
    make_job(FP__TASK_KIND__TASK_FETCH, 1, 0, CHUNKS);
    assert_int_equal(do_job(), -ENOSPC);
    for (uint32_t i = 0; i < CHUNKS; i++)
        here += fw_is_here(i);
    assert_true(here >= 4 && here <= 8);
    assert_int_equal(x.nmissing, CHUNKS - here);
    for (size_t i = 0; i < x.nmissing; i++)
        assert_false(fw_is_here((uint32_t)(x.missing[i] - FIRST)));
    assert_int_equal(fw_staged(NULL, true), here);
}

static void test_a_task_waits_for_its_target(void **state)
{
    char away[400];

    (void)state;
    snprintf(away, sizeof(away), "%s-away", x.root);
    assert_int_equal(rename(x.root, away), 0);
    make_job(FP__TASK_KIND__TASK_FETCH, 1, 0, CHUNKS);
    assert_int_equal(tell(NULL), 0);
    no_result(500);
    assert_int_equal(rename(away, x.root), 0);
    assert_int_equal(wait_result(), 0);
    assert_int_equal(fw_staged(NULL, true), CHUNKS);
}

static void test_a_task_that_is_given_up(void **state)
{
    uint64_t id = 1;

    (void)state;
    fw_restart("drain.target_pread=delay:ms=50", 600000);
    make_job(FP__TASK_KIND__TASK_STAGE, id, 0, CHUNKS);
    assert_int_equal(tell(NULL), 0);
    while (!fw_is_here(1))
        fw_turn();
    assert_int_equal(tell(&id), 0);
    no_result(600);
    for (uint32_t i = 0; i < CHUNKS; i++)
        assert_false(fw_is_here(i));
}

static void test_a_program_does_not_wait_for_a_task(void **state)
{
    struct told t;

    (void)state;
    fw_restart("drain.target_pread=delay:ms=100", 600000);
    make_job(FP__TASK_KIND__TASK_FETCH, 1, 0, CHUNKS - 1);
    assert_int_equal(tell(NULL), 0);
    no_result(20);
    assert_int_equal(fw_fetched(CHUNKS - 1, &t), 0);
    assert_false(take_result());
    assert_int_equal(wait_result(), 0);
}

static void test_tasks_that_make_no_sense(void **state)
{
    (void)state;
    for (int i = 0; i < 5; i++) {
        make_job(i < 4 ? FP__TASK_KIND__TASK_FETCH : FP__TASK_KIND__TASK_STAGE, (uint64_t)i + 1, 0, 2);
        switch (i) {
        case 0: job.m.n_slices = 0; break;
        case 1: job.slice[1].chunk_len = 0; break;
        case 2: job.slice[1].chunk_sum = 0; break;
        case 3: job.slice[1].ext_off = SIZE; break;
        case 4: job.slice[1].len = FP_STORED_MAX_BYTES + 1; break;
        }
        assert_int_equal(do_job(), -EINVAL);
    }
}

static void test_a_directory_is_listed(void **state)
{
    (void)state;
    make_job(FP__TASK_KIND__TASK_LIST, 1, 0, 0);
    x.file.path.len = 0;
    assert_int_equal(do_job(), 0);
    assert_int_equal(x.nlist, 2); /* the first one is itself */
    assert_string_equal(x.name, "dir");
    assert_true(x.eof);
    for (int i = 0; i < 5; i++)
        fclose(fopen(fw_path_of((const char *[]){ "dir/a", "dir/b", "dir/c", "dir/d", "dir/e" }[i]), "w"));
    x.file.path.len = 3;
    job.m.id = 2;
    job.m.count = 3;
    assert_int_equal(do_job(), 0);
    assert_int_equal(x.nlist, 4);
    assert_string_equal(x.name, "c");
    assert_false(x.eof);
    job.m.id = 3;
    job.m.text = (ProtobufCBinaryData){ 1, (uint8_t *)(uintptr_t) "c" };
    assert_int_equal(do_job(), 0);
    assert_int_equal(x.nlist, 3);
    assert_string_equal(x.name, "file");
    assert_true(x.eof);
    x.file.path = (ProtobufCBinaryData){ 7, (uint8_t *)(uintptr_t) "nothing" };
    job.m.id = 4;
    assert_int_equal(do_job(), -ENOENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(f) cmocka_unit_test_setup_teardown(f, fw_setup, fw_teardown)
        T(test_a_task_brings_all_of_a_file),
        T(test_a_task_replaces_a_record_that_is_damaged),
        T(test_a_foreign_file_becomes_chunks),
        T(test_a_number_that_is_taken_is_not_another_chunk),
        T(test_a_foreign_file_that_changes_leaves_nothing),
        T(test_a_task_without_room_says_what_is_missing),
        T(test_a_task_waits_for_its_target),
        T(test_a_task_that_is_given_up),
        T(test_a_program_does_not_wait_for_a_task),
        T(test_tasks_that_make_no_sense),
        T(test_a_directory_is_listed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
