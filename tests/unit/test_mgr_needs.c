/* The manager: a target is told what of it is needed before anything is evicted, and when nothing is any more (manager/needs.c). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "fp/drainwire.h"
#include "manager/ext.h"
#include "mgr_evict_world.h"

/* How many things in the target say that it is needed. */
static size_t entries(void)
{
    size_t n = 0;

    for (size_t i = 0; i < W_FILES; i++)
        n += w.file[i].used && strstr(w.file[i].name, "-needs-");
    return n;
}

static struct w_file *entry_of(uint64_t number)
{
    char name[MGR_TMP_NAME];

    mgr_task_tmp(w.f.core, number, 0, name);
    return w_find(&w, name);
}

static uint64_t number(void)
{
    return (uint64_t)e_sql("SELECT needs FROM target");
}

static void wait_for(unsigned seconds)
{
    for (unsigned i = 0; i < 2 * seconds; i++) {
        w_tick(&w, 500);
        w_run(&w);
    }
}

/* A task of this kind that a benefactor has been told; it is not done. */
static const Fp__Task *told(Fp__TaskKind kind)
{
    for (int i = 0; i < 200; i++)
        for (unsigned b = 0; b < 2; b++) {
            w_answer(&w, b, 0);
            for (size_t k = 0; k < w.bnf[b].n; k++)
                if (w.bnf[b].task[k]->kind == kind)
                    return w.bnf[b].task[k];
            if (w.bnf[b].n)
                w_work(&w, b, 0);
            w_tick(&w, 100);
        }
    fail();
    return NULL;
}

static void test_it_is_said_before_anything_goes(void **state)
{
    char name[MGR_TMP_NAME];
    const Fp__Task *k;
    uint64_t ino, job;

    (void)state;
    e_open_world(&ino);
    assert_int_equal(number(), 0);
    job = e_evict_begin("a");
    k = told(FP__TASK_KIND__TASK_STAT);
    assert_true(number() > 0);
    mgr_task_tmp(w.f.core, number(), 0, name);
    assert_int_equal(k->mark.len, strlen(name));
    assert_memory_equal(k->mark.data, name, k->mark.len);
    assert_int_equal(e_external(ino), 0);
    assert_int_equal(entries(), 0);
    assert_int_equal(e_run_job(job, NULL), FP__DRAIN_STATE__DRAIN_DONE);
    assert_int_equal(e_external(ino), 3);
    assert_int_equal(entries(), 1);
    assert_non_null(entry_of(number()));
    w_close(&w);
}

static void test_it_is_given_up_with_the_last_file(void **state)
{
    uint64_t ino, first;

    (void)state;
    e_open_world(&ino);
    e_file_of(MGR_ROOT_INO, "b");
    e_drain("b");
    assert_int_equal(e_evict("a", NULL), FP__DRAIN_STATE__DRAIN_DONE);
    assert_int_equal(e_evict("b", NULL), FP__DRAIN_STATE__DRAIN_DONE);
    first = number();
    assert_int_equal(fix_unlink(&w.f, MGR_ROOT_INO, "a", false), 0);
    wait_for(12);
    assert_int_equal(number(), first);
    assert_non_null(entry_of(first));
    assert_int_equal(fix_unlink(&w.f, MGR_ROOT_INO, "b", false), 0);
    wait_for(12);
    assert_int_equal(number(), 0);
    assert_int_equal(entries(), 0);
    e_file_of(MGR_ROOT_INO, "c");
    e_drain("c");
    assert_int_equal(e_evict("c", NULL), FP__DRAIN_STATE__DRAIN_DONE);
    assert_true(number() > 0 && number() != first); /* what is done late for the first harms nothing */
    assert_non_null(entry_of(number()));
    w_close(&w);
}

/* What has come back is still safe by its copy. */
static void test_what_was_staged_in_is_needed_as_before(void **state)
{
    uint64_t ino;

    (void)state;
    e_open_world(&ino);
    assert_int_equal(e_evict("a", NULL), FP__DRAIN_STATE__DRAIN_DONE);
    assert_int_equal(e_stage_in("a", NULL), FP__DRAIN_STATE__DRAIN_DONE);
    wait_for(12);
    assert_int_equal(entries(), 1);
    w_close(&w);
}

static void test_a_restart_keeps_it_and_what_is_left_is_swept(void **state)
{
    struct w_file *left;
    uint64_t was;

    (void)state;
    w_open(&w, fix_path(), 2);
    e_file_of(MGR_ROOT_INO, "a");
    e_drain("a");
    assert_int_equal(e_evict("a", NULL), FP__DRAIN_STATE__DRAIN_DONE);
    was = number();
    left = entry_of(was);
    snprintf(left->name, sizeof left->name, "%s", "01020300-needs-fffff"); /* of a benefactor that was slow */
    left->used = true;
    w_restart(&w);
    wait_for(3);
    assert_int_equal(number(), was);
    assert_null(w_find(&w, "01020300-needs-fffff"));
    assert_int_equal(e_evict("a", NULL), FP__DRAIN_STATE__DRAIN_DONE); /* it says so again */
    assert_non_null(entry_of(was));
    w_close(&w);
}

/* Nobody is there who could look: it is not said, and taken back, and said again. */
static void test_what_waits_needs_nothing(void **state)
{
    uint64_t ino, job;

    (void)state;
    e_open_world(&ino);
    for (size_t i = 0; i < 2; i++)
        w_bnf_dies(&w, i);
    job = e_evict_begin("a");
    for (unsigned i = 0; i < 24; i++) {
        w_tick(&w, 500);
        assert_int_equal(number(), 0);
    }
    for (size_t i = 0; i < 2; i++)
        w_bnf_comes(&w, i);
    assert_int_equal(e_run_job(job, NULL), FP__DRAIN_STATE__DRAIN_DONE);
    assert_int_equal(e_external(ino), 3);
    assert_true(number() > 0);
    w_close(&w);
}

/* What was evicted, has come back and is drained anew is kept by the new copy: that has the mark before it has the name. */
static void test_the_next_copy_is_marked_as_the_one_before(void **state)
{
    char name[MGR_TMP_NAME];
    const Fp__Task *k;
    uint64_t ino, other;

    (void)state;
    e_open_evicted(&ino);
    assert_int_equal(e_stage_in("a", NULL), FP__DRAIN_STATE__DRAIN_DONE);
    mgr_task_tmp(w.f.core, number(), 0, name);
    assert_true(w_start(&w, "a", true, NULL) > 0);
    k = told(FP__TASK_KIND__TASK_FINISH);
    assert_int_equal(k->n_xattrs, 1);
    assert_int_equal(k->xattrs[0]->name.len, strlen(FP_DW_NEED_XATTR));
    assert_memory_equal(k->xattrs[0]->name.data, FP_DW_NEED_XATTR, k->xattrs[0]->name.len);
    assert_int_equal(k->xattrs[0]->value.len, strlen(name));
    assert_memory_equal(k->xattrs[0]->value.data, name, k->xattrs[0]->value.len);
    w_run(&w);
    assert_int_equal(w.renamed, 2);
    assert_int_equal(e_sql("SELECT count(*) FROM ext e JOIN tfile t ON t.id=e.tfile WHERE t.gone=0"), 3);
    /* nothing was evicted in favour of another one */
    other = e_file_of(MGR_ROOT_INO, "b");
    assert_int_equal(fix_set_xattr(&w.f, other, "user.mine", "x", 0), 0);
    assert_true(w_start(&w, "b", false, NULL) > 0);
    k = told(FP__TASK_KIND__TASK_FINISH);
    assert_int_equal(k->n_xattrs, 1);
    assert_memory_equal(k->xattrs[0]->name.data, "user.mine", 9);
    w_run(&w);
    w_close(&w);
}

static uint64_t start(bool overwrite)
{
    Fp__CtlDrain m = FP__CTL_DRAIN__INIT;
    ProtobufCBinaryData p = fix_bin("a");
    Fp__CtlDrainReply *r;
    uint64_t id;

    m.op = FP__DRAIN_OP__DRAIN_OP_START;
    m.n_paths = 1;
    m.paths = &p;
    m.dest = (char *)(uintptr_t)"/pfs";
    m.overwrite = overwrite;
    r = fix_call(&w.f, w.ctl, FP__MSG_TYPE__MSG_CTL_DRAIN, &m, &fp__ctl_drain_reply__descriptor);
    assert_int_equal(r->n_ids, 1);
    id = r->ids[0];
    fix_free(r);
    return id;
}

static void test_what_others_need_is_replaced_when_that_is_said(void **state)
{
    const Fp__Task *k;
    uint64_t ino, before, id;

    (void)state;
    e_open_world(&ino);
    before = w_find(&w, "a")->ino;
    for (int overwrite = 0; overwrite < 2; overwrite++) {
        assert_true(fix_write(&w.f, ino, 0, 1000 + (unsigned)overwrite) > 0);
        id = start(overwrite);
        assert_true(start(overwrite) == id); /* it is the same job, … */
        k = told(FP__TASK_KIND__TASK_PREPARE);
        assert_int_equal(k->force, overwrite);
        assert_int_equal(k->own_ino, before); /* what we have drained there is ours, with a mark or without */
        k = told(FP__TASK_KIND__TASK_FINISH);
        assert_int_equal(k->force, overwrite);
        assert_int_equal(k->own_ino, before);
        if (!overwrite) {
            assert_true(start(true) != id); /* … and this is another */
            w_run(&w);
        }
        w_run(&w);
        before = w_find(&w, "a")->ino;
    }
    w_close(&w);
}

/* How many targets are left. */
static size_t release(void)
{
    Fp__CtlReleaseReply *r = fix_call(&w.f, w.ctl, FP__MSG_TYPE__MSG_CTL_RELEASE, NULL, &fp__ctl_release_reply__descriptor);
    size_t n = r->n_targets;

    assert_int_equal(w.f.status, 0);
    if (n)
        assert_string_equal(r->targets[0], "/pfs");
    fix_free(r);
    return n;
}

static void test_a_store_that_is_removed_relies_on_nothing(void **state)
{
    uint64_t ino, first;

    (void)state;
    e_open_world(&ino);
    assert_int_equal(release(), 0);
    assert_int_equal(e_evict("a", NULL), FP__DRAIN_STATE__DRAIN_DONE);
    first = number();
    assert_int_equal(entries(), 1);
    assert_int_equal(release(), 1); /* nobody has removed the entry yet */
    assert_int_equal(number(), 0);
    w_run(&w);
    assert_int_equal(release(), 0);
    assert_null(entry_of(first));
    assert_int_equal(entries(), 0);
    assert_int_equal(e_external(ino), 3);
    w_close(&w);
}

static void test_an_entry_that_is_not_removed_yet_is_not_forgotten(void **state)
{
    uint64_t ino, first;
    struct mgr_drain *d;

    (void)state;
    e_open_world(&ino);
    assert_int_equal(e_evict("a", NULL), FP__DRAIN_STATE__DRAIN_DONE);
    first = number();
    d = w.f.core->drain;
    while (mgr_task_clean_has_room(w.f.core)) /* as many pieces as it keeps in mind are to be removed */
        d->clean[d->nclean++] = (struct mgr_cleaning){.file = 100000 + d->nclean, .gen = 1, .target = d->targets[0].id, .at_ms = UINT64_MAX / 2};
    assert_int_equal(release(), 1);
    assert_true(number() == first);
    d->nclean = 0;
    assert_int_equal(release(), 1);
    w_run(&w);
    assert_int_equal(release(), 0);
    assert_null(entry_of(first));
    w_close(&w);
}

static void test_what_is_being_evicted_is_waited_for(void **state)
{
    uint64_t ino, job;

    (void)state;
    e_open_world(&ino);
    job = e_evict_begin("a");
    (void)told(FP__TASK_KIND__TASK_STAT);
    assert_int_equal(release(), 1);
    assert_true(number() > 0); /* what is evicted next is marked */
    assert_int_equal(e_run_job(job, NULL), FP__DRAIN_STATE__DRAIN_DONE);
    assert_int_equal(entries(), 1);
    (void)release();
    w_run(&w);
    assert_int_equal(release(), 0);
    assert_int_equal(entries(), 0);
    w_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_it_is_said_before_anything_goes),
        cmocka_unit_test(test_it_is_given_up_with_the_last_file),
        cmocka_unit_test(test_what_was_staged_in_is_needed_as_before),
        cmocka_unit_test(test_a_restart_keeps_it_and_what_is_left_is_swept),
        cmocka_unit_test(test_what_waits_needs_nothing),
        cmocka_unit_test(test_the_next_copy_is_marked_as_the_one_before),
        cmocka_unit_test(test_what_others_need_is_replaced_when_that_is_said),
        cmocka_unit_test(test_a_store_that_is_removed_relies_on_nothing),
        cmocka_unit_test(test_an_entry_that_is_not_removed_yet_is_not_forgotten),
        cmocka_unit_test(test_what_is_being_evicted_is_waited_for),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
