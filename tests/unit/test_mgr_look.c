/* Files in a target that somebody could not read, or did not find: benefactors look before anybody says so, and what was gone is back when it is found. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "manager/ext.h"
#include "mgr_evict_world.h"
#include "fp/err.h"

/* A mount could not read it from the target, and the manager has looked itself. */
static void unread(uint64_t chunk, int status, const Fp__ExtFile *file)
{
    Fp__BadChunk m = FP__BAD_CHUNK__INIT;

    m.chunk = chunk;
    m.reason = (char *)"can't be read";
    m.status = status;
    m.file = (Fp__ExtFile *)(uintptr_t)file;
    fix_notice(&w.f, w.f.conn, FP__MSG_TYPE__MSG_BADCHUNK, &m);
    w_run(&w);
}

static void test_a_copy_that_went_later_is_shown(void **state)
{
    uint64_t ino;

    (void)state;
    e_open_evicted(&ino);
    w_find(&w, "a")->used = false;
    e_bad(e_chunk_of(ino, 0), w.bnf[0].id, "by an old map");
    w_run(&w);
    assert_int_equal(e_sql("SELECT count(*) FROM bad_chunk"), 0);
    w.looks = 0;
    unread(e_chunk_of(ino, 0), FP_ECHUNK_MISSING, NULL);
    assert_int_equal(w.looks, 2); /* each of them has looked */
    assert_int_equal(e_sql("SELECT count(*) FROM damage WHERE ino=%llu", (unsigned long long)ino), 3);
    assert_int_equal(e_level(ino), FP__LEVEL__LEVEL_NONE);
    /* it is another now, of which somebody had one chunk */
    assert_true(e_staged(1, e_chunk_of(ino, 0)));
    w_run(&w);
    assert_int_equal(e_sql("SELECT count(*) FROM bad_chunk"), 2);
    assert_int_equal(e_evict("a", "not in a target"), FP__DRAIN_STATE__DRAIN_FAILED);
    w_close(&w);
}

static void test_what_a_mount_says_of_a_target_is_looked_at(void **state)
{
    Fp__ExtFile said = FP__EXT_FILE__INIT;
    struct w_file *f;
    uint64_t ino;

    (void)state;
    e_open_evicted(&ino);
    w.looks = 0;
    unread(e_chunk_of(ino, 0), FP_ECHUNK_MISSING, NULL);
    assert_int_equal(w.looks, 1);
    assert_int_equal(e_external(ino), 3);
    unread(e_chunk_of(ino, 0), FP_ECHECKSUM, NULL); /* fetched, and compared */
    assert_int_equal(w.looks, 2);
    assert_int_equal(e_external(ino), 2);
    assert_int_equal(e_sql("SELECT count(*) FROM bad_chunk"), 0);
    assert_int_equal(e_level(ino), FP__LEVEL__LEVEL_DRAINED);
    /* one that has read another file, by a map from before */
    f = w_find(&w, "a");
    f->used = false;
    said.target = 1;
    said.ino = f->ino + 1;
    said.size_bytes = f->size;
    unread(e_chunk_of(ino, 1), FP_ECHUNK_MISSING, &said);
    assert_int_equal(w.looks, 2);
    assert_int_equal(e_level(ino), FP__LEVEL__LEVEL_DRAINED);
    unread(e_chunk_of(ino, 1), FP_ECHUNK_MISSING, NULL);
    assert_int_equal(e_sql("SELECT count(*) FROM bad_chunk"), 2);
    assert_int_equal(e_level(ino), FP__LEVEL__LEVEL_NONE);
    /* it is there again: that is seen when something of it could be read */
    f->used = true;
    assert_true(e_staged(1, e_chunk_of(ino, 1)));
    w_run(&w);
    assert_int_equal(e_sql("SELECT count(*) FROM bad_chunk"), 0);
    assert_int_equal(e_level(ino), FP__LEVEL__LEVEL_DRAINED);
    w_close(&w);
}

static void test_a_copy_that_has_other_bytes_is_none(void **state)
{
    uint64_t ino;

    (void)state;
    e_open_evicted(&ino);
    w.other_bytes = true;
    unread(e_chunk_of(ino, 0), FP_ECHUNK_MISSING, NULL);
    assert_int_equal(e_level(ino), FP__LEVEL__LEVEL_DRAINED);
    unread(e_chunk_of(ino, 0), FP_ECHECKSUM, NULL);
    assert_int_equal(e_level(ino), FP__LEVEL__LEVEL_NONE);
    assert_int_equal(e_sql("SELECT count(*) FROM bad_chunk"), 1); /* of the others nothing is known */
    assert_int_equal(e_sql("SELECT count(*) FROM damage WHERE chunk=%llu", (unsigned long long)e_chunk_of(ino, 0)), 1);
    assert_true(e_staged(1, e_chunk_of(ino, 1)));
    unread(e_chunk_of(ino, 2), FP_ECHUNK_MISSING, NULL);
    assert_int_equal(e_level(ino), FP__LEVEL__LEVEL_NONE); /* its name and time say nothing */
    assert_int_equal(e_sql("SELECT count(*) FROM bad_chunk"), 1);
    w_close(&w);
}

/* As of a directory that its node has not heard of yet. */
static void test_one_benefactor_alone_does_not_say_that_a_copy_is_gone(void **state)
{
    uint64_t ino;

    (void)state;
    e_open_evicted(&ino);
    for (w.blind = 1; w.blind <= 2; w.blind++) {
        unread(e_chunk_of(ino, 0), FP_ECHUNK_MISSING, NULL);
        assert_int_equal(e_sql("SELECT count(*) FROM bad_chunk"), 0);
        assert_int_equal(e_level(ino), FP__LEVEL__LEVEL_DRAINED);
    }
    w.blind = 0;
    for (unsigned k = 0, failed = 0; !failed; k++) { /* until it is that one that looks first */
        assert_true(k < 8);
        w.blind = 0;
        assert_int_equal(e_stage_in("a", NULL), FP__DRAIN_STATE__DRAIN_DONE);
        w.blind = 1 + k % 2;
        failed = e_evict("a", NULL) == FP__DRAIN_STATE__DRAIN_FAILED;
        e_deleted();
        assert_int_equal(e_external(ino), failed ? 0 : 3);
        assert_int_equal(e_level(ino), FP__LEVEL__LEVEL_DRAINED);
    }
    w_close(&w);
}

/* Others are looked at, of this target, and nobody answers. */
static void hanging(uint32_t target, size_t count)
{
    struct mgr_drain *d = w.f.core->drain;

    for (d->nlooks = 0; d->nlooks < count; d->nlooks++)
        d->looks[d->nlooks] = (struct mgr_look){.tfile = 1000000 + d->nlooks, .target = target, .until_ms = UINT64_MAX};
}

static void test_a_target_that_hangs_leaves_room_for_others(void **state)
{
    uint32_t target;
    uint64_t ino;

    (void)state;
    e_open_evicted(&ino);
    target = w.f.core->drain->targets[0].id;
    w.looks = 0;
    hanging(target, 64);
    unread(e_chunk_of(ino, 0), FP_ECHUNK_MISSING, NULL);
    assert_int_equal(w.looks, 0);
    assert_int_equal(w.f.core->drain->nlooks, 64);
    hanging(target + 1, 64);
    unread(e_chunk_of(ino, 0), FP_ECHUNK_MISSING, NULL);
    assert_int_equal(w.looks, 1);
    w_close(&w);
}

/* One alone has not found it, and there is no place to ask the other. */
static void test_for_want_of_room_no_copy_is_gone(void **state)
{
    uint64_t ino;
    bool failed = false;

    (void)state;
    e_open_evicted(&ino);
    for (unsigned k = 0; !failed; k++) { /* until it is that one that looks first */
        assert_true(k < 8);
        w.blind = 0;
        assert_int_equal(e_stage_in("a", NULL), FP__DRAIN_STATE__DRAIN_DONE);
        w.blind = 1 + k % 2;
        hanging(99, sizeof w.f.core->drain->looks / sizeof w.f.core->drain->looks[0]);
        failed = e_evict("a", NULL) == FP__DRAIN_STATE__DRAIN_FAILED;
        hanging(99, 0);
        e_deleted();
        assert_int_equal(e_sql("SELECT count(*) FROM tfile WHERE gone<>0"), 0);
    }
    w_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_copy_that_went_later_is_shown),
        cmocka_unit_test(test_what_a_mount_says_of_a_target_is_looked_at),
        cmocka_unit_test(test_a_copy_that_has_other_bytes_is_none),
        cmocka_unit_test(test_one_benefactor_alone_does_not_say_that_a_copy_is_gone),
        cmocka_unit_test(test_a_target_that_hangs_leaves_room_for_others),
        cmocka_unit_test(test_for_want_of_room_no_copy_is_gone),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
