/* Draining in the manager, against benefactors and a target that are this program: what is under its name is whole and of one version, whoever
 * dies and whatever is lost, said twice or said late. */
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

#include "mgr_drain_world.h"
#include "fp/err.h"

#define MIB (1u << 20)

static struct world w;

static uint64_t file_of(uint64_t parent, const char *name, unsigned windows)
{
    uint64_t ino = fix_mk(&w.f, parent, name, S_IFREG | 0644);

    assert_true(ino > 0);
    for (unsigned i = 0; i < windows; i++)
        assert_true(fix_write(&w.f, ino, (uint64_t)i * MIB, i + 1 == windows ? 1000 : MIB) > 0);
    return ino;
}

static int64_t rows(const char *table)
{
    return fix_sql(&w.f, "SELECT count(*) FROM %s", table);
}

static Fp__DrainState state_of(uint64_t job)
{
    Fp__CtlDrainReply *r = w_show(&w, job);
    Fp__DrainState s;

    assert_int_equal(r->n_jobs, 1);
    s = r->jobs[0]->state;
    if (s == FP__DRAIN_STATE__DRAIN_DONE) {
        assert_int_equal(r->jobs[0]->files, r->jobs[0]->files_done);
        if (r->jobs[0]->bytes != r->jobs[0]->bytes_done)
            fail_msg("job %llu: %llu bytes, %llu done", (unsigned long long)job, (unsigned long long)r->jobs[0]->bytes, (unsigned long long)r->jobs[0]->bytes_done);
    }
    fix_free(r);
    return s;
}

/* Nothing is left of the work. */
static void is_clean(void)
{
    assert_int_equal(rows("drain_part"), 0);
    assert_int_equal(w_temps(&w), 0);
    assert_int_equal(fix_sql(&w.f, "SELECT count(*) FROM drain_file WHERE state<6 AND job IN (SELECT id FROM drain_job WHERE state>=4)"),
                     fix_sql(&w.f, "SELECT count(*) FROM drain_file WHERE state=1 AND job IN (SELECT id FROM drain_job WHERE state>=4)"));
    assert_int_equal(fix_sql(&w.f, "SELECT count(*) FROM tfile t WHERE refs != (SELECT count(*) FROM drained d WHERE d.tfile=t.id)"), 0);
    assert_int_equal(fix_sql(&w.f, "SELECT count(*) FROM drained WHERE ino NOT IN (SELECT ino FROM inode)"), 0);
    assert_int_equal(fix_sql(&w.f, "SELECT count(*) FROM drained d WHERE data_version > (SELECT data_version FROM inode i WHERE i.ino=d.ino)"), 0);
}

static Fp__Level level(uint64_t ino)
{
    struct mgr_inode in;

    assert_int_equal(mgr_inode_get(w.f.core, ino, &in), 0);
    return mgr_drained_level(w.f.core, &in);
}

static void test_a_file_is_copied_and_renamed(void **state)
{
    uint64_t ino, job;

    (void)state;
    w_open(&w, ":memory:", 1);
    ino = file_of(MGR_ROOT_INO, "a", 3);
    job = w_start(&w, "/a", false, NULL);
    assert_int_equal(state_of(job), FP__DRAIN_STATE__DRAIN_RUNS);
    assert_int_equal(level(ino), FP__LEVEL__LEVEL_NONE);
    w_run(&w);
    assert_int_equal(state_of(job), FP__DRAIN_STATE__DRAIN_DONE);
    w_equal(&w, "a", ino);
    assert_int_equal(level(ino), FP__LEVEL__LEVEL_DRAINED);
    assert_int_equal(w.written, 1);
    assert_int_equal(w.probes, 1);
    assert_int_equal(fix_sql(&w.f, "SELECT length(sums) FROM drained"), 24);
    assert_int_equal(fix_sql(&w.f, "SELECT sums=x'001000000000000001100000000000000210000000000000' FROM drained"), 1);
    is_clean();
    /* once more: it is there */
    job = w_start(&w, "a", false, NULL);
    w_run(&w);
    assert_int_equal(state_of(job), FP__DRAIN_STATE__DRAIN_DONE);
    assert_int_equal(w.written, 1);
    /* and again when it has changed */
    assert_true(fix_write(&w.f, ino, 0, 5) > 0);
    assert_int_equal(level(ino), FP__LEVEL__LEVEL_NONE);
    job = w_start(&w, "a", false, NULL);
    w_run(&w);
    assert_int_equal(w.written, 2);
    w_equal(&w, "a", ino);
    assert_int_equal(rows("tfile"), 1);
    is_clean();
    /* a file that goes takes its row along */
    assert_int_equal(fix_unlink(&w.f, MGR_ROOT_INO, "a", false), 0);
    assert_int_equal(rows("drained"), 0);
    assert_int_equal(rows("tfile"), 0);
    w_close(&w);
}

static void test_a_directory_is_drained_whole(void **state)
{
    uint64_t d, e, ino[4], job;

    (void)state;
    w_open(&w, ":memory:", 2);
    d = fix_mk(&w.f, MGR_ROOT_INO, "run", S_IFDIR | 0755);
    e = fix_mk(&w.f, d, "chk_7", S_IFDIR | 0755);
    ino[0] = file_of(e, "empty", 0);
    ino[1] = file_of(e, "one", 1);
    w.f.bnf = w.bnf[1].id;
    ino[2] = file_of(e, "two", 2);
    ino[3] = fix_mk(&w.f, e, "hole", S_IFREG | 0644);
    assert_int_equal(fix_truncate(&w.f, ino[3], 5 * MIB), 0);
    fix_mk(&w.f, e, "link", S_IFLNK | 0777);
    job = w_start(&w, "run/chk_7/", false, NULL);
    w_run(&w);
    assert_int_equal(state_of(job), FP__DRAIN_STATE__DRAIN_DONE);
    w_equal(&w, "run/chk_7/empty", ino[0]);
    w_equal(&w, "run/chk_7/one", ino[1]);
    w_equal(&w, "run/chk_7/two", ino[2]);
    w_equal(&w, "run/chk_7/hole", ino[3]);
    assert_non_null(w_find(&w, "run/chk_7/link"));
    assert_int_equal(w.renamed, 5);
    is_clean();
    w_close(&w);
}

/* Directories are made, empty ones too, and finished when all else is done; links have no data. */
static void test_directories_and_links(void **state)
{
    uint64_t dir, job;

    (void)state;
    w_open(&w, ":memory:", 2);
    dir = fix_mk(&w.f, MGR_ROOT_INO, "d", S_IFDIR | 0750);
    fix_mk(&w.f, dir, "empty", S_IFDIR | 0700);
    fix_mk(&w.f, dir, "link", S_IFLNK | 0777);
    file_of(dir, "a", 2);
    job = w_start(&w, "d", true, NULL);
    w_run(&w);
    assert_int_equal(state_of(job), FP__DRAIN_STATE__DRAIN_DONE);
    assert_int_equal(w.dirs_made, 2);
    assert_int_equal(w.dirs_done, 2);
    assert_int_equal(w.links, 1);
    assert_non_null(w_find(&w, "d/link"));
    assert_int_equal(fix_sql(&w.f, "SELECT files=2 AND files_done=2 AND bytes=bytes_done FROM drain_job"), 1);
    is_clean();
    /* and again, from the root of the store, which has no name of its own in the target */
    job = w_start(&w, "", false, NULL);
    w_run(&w);
    assert_int_equal(state_of(job), FP__DRAIN_STATE__DRAIN_DONE);
    assert_int_equal(w.dirs_done, 4);
    assert_int_equal(fix_sql(&w.f, "SELECT count(*) FROM drain_file WHERE state<6 OR state>8"), 0);
    is_clean();
    w_close(&w);
}

static void test_what_is_no_file_is_left_out_and_said(void **state)
{
    Fp__CtlDrainReply *r;
    uint64_t dir, job;

    (void)state;
    w_open(&w, ":memory:", 1);
    dir = fix_mk(&w.f, MGR_ROOT_INO, "d", S_IFDIR | 0750);
    fix_mk(&w.f, dir, "pipe", S_IFIFO | 0644);
    fix_mk(&w.f, dir, "socket", S_IFSOCK | 0644);
    file_of(dir, "a", 2);
    job = w_start(&w, "d", false, NULL);
    w_run(&w);
    r = w_show(&w, job);
    assert_int_equal(r->jobs[0]->state, FP__DRAIN_STATE__DRAIN_DONE);
    assert_string_equal(r->jobs[0]->why, "left out: 2 devices, sockets and FIFOs, the first is d/pipe");
    assert_int_equal(r->jobs[0]->files, 1);
    fix_free(r);
    w_close(&w);
}

static void test_each_benefactor_writes_what_it_has(void **state)
{
    uint64_t ino, job;

    (void)state;
    w_open(&w, ":memory:", 2);
    ino = fix_mk(&w.f, MGR_ROOT_INO, "n1", S_IFREG | 0644);
    for (unsigned i = 0; i < 8; i++) {
        w.f.bnf = w.bnf[i % 2].id;
        assert_true(fix_write(&w.f, ino, (uint64_t)i * MIB, MIB) > 0);
    }
    w.f.bnf = w.bnf[0].id; /* a window that both have a piece of */
    assert_true(fix_write(&w.f, ino, 7 * MIB + 1000, 1000) > 0);
    job = w_start(&w, "n1", true, NULL);
    w_run(&w);
    assert_int_equal(state_of(job), FP__DRAIN_STATE__DRAIN_DONE);
    w_equal(&w, "n1", ino);
    assert_int_equal(w.written, 2);
    assert_int_equal(w.verified, 2);
    assert_int_equal(w.others, 3); /* of window 7: two of the one, told to the other, and one */
    assert_int_equal(level(ino), FP__LEVEL__LEVEL_VERIFIED);
    assert_int_equal(fix_sql(&w.f, "SELECT substr(sums,1,8)=x'0010000000000000' AND substr(sums,57,8)=x'0000000000000000' FROM drained"), 1);
    is_clean();
    w_close(&w);
}

static void test_a_window_without_a_sum_is_not_called_verified(void **state)
{
    uint64_t ino, job;

    (void)state;
    w_open(&w, ":memory:", 1);
    ino = file_of(MGR_ROOT_INO, "a", 2);
    w.unsummed = true;
    job = w_start(&w, "a", true, NULL);
    w_run(&w);
    assert_int_equal(state_of(job), FP__DRAIN_STATE__DRAIN_FAILED);
    assert_int_equal(fix_sql(&w.f, "SELECT why LIKE 'a: copied, but not compared%%' AND files_done=1 FROM drain_job"), 1);
    assert_int_equal(level(ino), FP__LEVEL__LEVEL_DRAINED);
    w_equal(&w, "a", ino);
    job = w_start(&w, "a", false, NULL); /* who does not ask for it is not told */
    w_run(&w);
    assert_int_equal(state_of(job), FP__DRAIN_STATE__DRAIN_DONE);
    is_clean();
    w_close(&w);
}

static void test_verified_before_it_has_its_name(void **state)
{
    uint64_t ino, job;

    (void)state;
    w_open(&w, ":memory:", 1);
    ino = file_of(MGR_ROOT_INO, "a", 2);
    w.wrong = true; /* the first time */
    job = w_start(&w, "a", true, NULL);
    while (!w.verified) {
        assert_int_equal(w.renamed, 0);
        if (w.bnf[0].asked)
            w_answer(&w, 0, 0);
        else if (w.bnf[0].n)
            w_work(&w, 0, 0);
        else
            w_tick(&w, 500);
    }
    assert_int_equal(w.renamed, 0);
    w_run(&w);
    assert_int_equal(state_of(job), FP__DRAIN_STATE__DRAIN_DONE);
    assert_int_equal(w.verified, 2);
    assert_int_equal(w.written, 2);
    assert_int_equal(level(ino), FP__LEVEL__LEVEL_VERIFIED);
    w_equal(&w, "a", ino);
    is_clean();
    w_close(&w);
}

static void test_what_can_not_be_had_there_fails_alone(void **state)
{
    uint64_t d, ino, job;
    Fp__CtlDrainReply *r;

    (void)state;
    w_open(&w, ":memory:", 1);
    d = fix_mk(&w.f, MGR_ROOT_INO, "d", S_IFDIR | 0755);
    file_of(d, "bad", 1);
    ino = file_of(d, "good", 1);
    w.refuse = -ENAMETOOLONG;
    w.refuse_path = "d/bad";
    job = w_start(&w, "d", false, NULL);
    w_run(&w);
    r = w_show(&w, job);
    assert_int_equal(r->jobs[0]->state, FP__DRAIN_STATE__DRAIN_FAILED);
    assert_int_equal(r->jobs[0]->files_failed, 1);
    assert_int_equal(r->jobs[0]->error, -ENAMETOOLONG);
    assert_memory_equal(r->jobs[0]->why, "d/bad: ", 7);
    assert_memory_equal(r->jobs[0]->what.data, "d", 1);
    assert_string_equal(r->jobs[0]->to, "/pfs");
    fix_free(r);
    w_equal(&w, "d/good", ino);
    is_clean();
    w_close(&w);
}

static void test_a_request_that_makes_no_sense_is_refused(void **state)
{
    char why[300];

    (void)state;
    w_open(&w, ":memory:", 1);
    assert_int_equal(w_start(&w, "nothing", false, why), 0);
    assert_non_null(strstr(why, "nothing: "));
    fix_mk(&w.f, MGR_ROOT_INO, "link", S_IFLNK | 0777);
    assert_int_equal(w_start(&w, "link", false, why), 0);
    assert_non_null(strstr(why, "not a file"));
    assert_int_equal(rows("drain_job"), 0);
    w_close(&w);
}

static void test_the_same_again_is_the_same_job(void **state)
{
    uint64_t job;

    (void)state;
    w_open(&w, ":memory:", 1);
    file_of(MGR_ROOT_INO, "a", 1);
    file_of(MGR_ROOT_INO, "b", 1);
    job = w_start(&w, "a", false, NULL);
    assert_int_equal(w_start(&w, "a", false, NULL), job);
    assert_true(w_start(&w, "b", false, NULL) != job);
    assert_true(w_start(&w, "a", true, NULL) != job);
    w_run(&w);
    is_clean();
    w_close(&w);
}

static void test_a_change_begins_anew(void **state)
{
    uint64_t ino, job;

    (void)state;
    w_open(&w, ":memory:", 1);
    ino = file_of(MGR_ROOT_INO, "a", 2);
    job = w_start(&w, "a", false, NULL);
    w_answer(&w, 0, 0);
    w_work(&w, 0, 0); /* PROBE */
    w_answer(&w, 0, 0);
    while (w.bnf[0].n && w.written == 0) {
        w_work(&w, 0, 0);
        w_answer(&w, 0, 0);
    }
    assert_int_equal(w.written, 1);
    assert_true(fix_write(&w.f, ino, 0, 100) > 0); /* FINISH is under way */
    w_run(&w);
    assert_int_equal(state_of(job), FP__DRAIN_STATE__DRAIN_DONE);
    w_equal(&w, "a", ino);
    assert_int_equal(w.written, 2);
    assert_int_equal(level(ino), FP__LEVEL__LEVEL_DRAINED);
    is_clean();
    w_close(&w);
}

static void test_cancel_leaves_nothing(void **state)
{
    Fp__CtlDrain m = FP__CTL_DRAIN__INIT;
    uint64_t job;

    (void)state;
    w_open(&w, ":memory:", 1);
    file_of(MGR_ROOT_INO, "a", 2);
    job = w_start(&w, "a", false, NULL);
    while (!w_temps(&w)) {
        if (w.bnf[0].asked)
            w_answer(&w, 0, 0);
        w_work(&w, 0, 0);
    }
    m.op = FP__DRAIN_OP__DRAIN_OP_CANCEL;
    m.id = job;
    fix_free(fix_call(&w.f, w.ctl, FP__MSG_TYPE__MSG_CTL_DRAIN, &m, &fp__ctl_drain_reply__descriptor));
    assert_int_equal(state_of(job), FP__DRAIN_STATE__DRAIN_CANCELLED);
    w_run(&w);
    assert_int_equal(w.renamed, 0);
    is_clean();
    w_close(&w);
}

static void test_what_was_deleted_is_left_out(void **state)
{
    uint64_t job, d;

    (void)state;
    w_open(&w, ":memory:", 1);
    d = fix_mk(&w.f, MGR_ROOT_INO, "d", S_IFDIR | 0755);
    file_of(d, "a", 2);
    file_of(d, "b", 1);
    job = w_start(&w, "d", false, NULL);
    assert_int_equal(fix_unlink(&w.f, d, "a", false), 0);
    w_run(&w);
    assert_int_equal(state_of(job), FP__DRAIN_STATE__DRAIN_DONE);
    assert_null(w_find(&w, "d/a"));
    assert_non_null(w_find(&w, "d/b"));
    is_clean();
    w_close(&w);
}

static void test_another_one_leads_when_the_lead_stays_away(void **state)
{
    uint64_t ino, job;

    (void)state;
    w_open(&w, ":memory:", 2);
    ino = file_of(MGR_ROOT_INO, "a", 0);
    job = w_start(&w, "a", false, NULL);
    for (int i = 0; i < 20 && !w_temps(&w); i++)
        for (size_t b = 0; b < 2; b++) {
            w_answer(&w, b, 0);
            if (w.bnf[b].n)
                w_work(&w, b, 0);
        }
    assert_int_equal(w_temps(&w), 1);
    w_bnf_dies(&w, 0);
    if (w.renamed == 0)
        w_tick(&w, 12000);
    w_bnf_dies(&w, 0);
    w_run(&w);
    if (state_of(job) != FP__DRAIN_STATE__DRAIN_DONE) { /* it was the other one */
        w_bnf_comes(&w, 0);
        w_run(&w);
    }
    assert_int_equal(state_of(job), FP__DRAIN_STATE__DRAIN_DONE);
    w_equal(&w, "a", ino);
    is_clean();
    w_close(&w);
}

/* Who was told to rename an old version, and is not heard of any more, does it when a newer one is there. */
static void test_a_rename_that_comes_late_puts_nothing_old_over_new(void **state)
{
    struct w_bnf *a = &w.bnf[0], *b = &w.bnf[1];
    Fp__Task *late = NULL;
    Fp__TaskResult r;
    uint64_t ino, job;
    size_t k;

    (void)state;
    w_open(&w, ":memory:", 2);
    ino = file_of(MGR_ROOT_INO, "a", 2);
    job = w_start(&w, "a", false, NULL);
    for (int i = 0; i < 100 && !late; i++) {
        w_answer(&w, 0, 0);
        w_answer(&w, 1, 0);
        if (b->n)
            w_work(&w, 1, 0);
        for (k = 0; k < a->n && a->task[k]->kind == FP__TASK_KIND__TASK_FINISH; k++)
            late = a->task[k];
        if (a->n && !late)
            w_work(&w, 0, 0);
    }
    assert_non_null(late);
    a->n = 0;
    w_bnf_dies(&w, 0); /* but for this one task */
    w.f.bnf = b->id;
    for (unsigned i = 0; i < 2; i++)
        assert_true(fix_write(&w.f, ino, i * MIB, MIB) > 0);
    for (int i = 0; i < 200 && late; i++) {
        w_answer(&w, 1, 0);
        for (k = 0; k < b->n && b->task[k]->kind == FP__TASK_KIND__TASK_CLEAN; k++)
            ;
        if (k < b->n) {
            w_work(&w, 1, k); /* all else comes before the cleaning */
        } else if (b->n) {
            w_do(&w, late, &r);
            w_result_fini(&r);
            fix_free(late);
            late = NULL;
        } else {
            w_tick(&w, 500);
        }
    }
    assert_null(late);
    w_run(&w);
    assert_int_equal(state_of(job), FP__DRAIN_STATE__DRAIN_DONE);
    assert_int_equal(level(ino), FP__LEVEL__LEVEL_DRAINED);
    w_equal(&w, "a", ino);
    is_clean();
    w_close(&w);
}

/* What somebody has removed from the target is not there. */
static void test_a_copy_that_is_gone_is_made_again(void **state)
{
    uint64_t ino, job;

    (void)state;
    w_open(&w, ":memory:", 1);
    ino = file_of(MGR_ROOT_INO, "a", 2);
    w_start(&w, "a", false, NULL);
    w_run(&w);
    w_find(&w, "a")->used = false;
    job = w_start(&w, "a", false, NULL);
    w_run(&w);
    assert_int_equal(state_of(job), FP__DRAIN_STATE__DRAIN_DONE);
    assert_non_null(w_find(&w, "a"));
    w_equal(&w, "a", ino);
    w_close(&w);
}

/* The name in the target was another file's in between. */
static void test_a_copy_that_was_replaced_is_made_again(void **state)
{
    uint64_t old, new, job;

    (void)state;
    w_open(&w, ":memory:", 1);
    old = file_of(MGR_ROOT_INO, "a", 2);
    w_start(&w, "a", false, NULL);
    w_run(&w);
    assert_int_equal(fix_rename(&w.f, MGR_ROOT_INO, "a", MGR_ROOT_INO, "a.old", 0), 0);
    new = file_of(MGR_ROOT_INO, "a", 2);
    w_start(&w, "a", false, NULL);
    w_run(&w);
    w_equal(&w, "a", new);
    assert_int_equal(fix_rename(&w.f, MGR_ROOT_INO, "a.old", MGR_ROOT_INO, "a", 0), 0);
    job = w_start(&w, "a", false, NULL);
    w_run(&w);
    assert_int_equal(state_of(job), FP__DRAIN_STATE__DRAIN_DONE);
    w_equal(&w, "a", old);
    w_close(&w);
}

/* Who was told to finish a file that was replaced by another of its name since does it when that one is there. */
static void test_a_rename_that_comes_late_is_of_the_file_before(void **state)
{
    struct w_bnf *a = &w.bnf[0], *b = &w.bnf[1];
    Fp__Task *late = NULL;
    Fp__TaskResult r;
    uint64_t ino, job;

    (void)state;
    w_open(&w, ":memory:", 2);
    file_of(MGR_ROOT_INO, "a", 2);
    w_start(&w, "a", false, NULL);
    for (int i = 0; i < 100 && !late; i++) {
        w_answer(&w, 0, 0);
        w_answer(&w, 1, 0);
        if (b->n)
            w_work(&w, 1, 0);
        for (size_t k = 0; k < a->n && a->task[k]->kind == FP__TASK_KIND__TASK_FINISH; k++)
            late = a->task[k];
        if (a->n && !late)
            w_work(&w, 0, 0);
    }
    assert_non_null(late);
    a->n = 0; /* it is slow: an fsync of the target */
    w.f.bnf = b->id;
    ino = file_of(MGR_ROOT_INO, "a.tmp", 1);
    assert_int_equal(fix_rename(&w.f, MGR_ROOT_INO, "a.tmp", MGR_ROOT_INO, "a", 0), 0);
    job = w_start(&w, "a", false, NULL);
    for (int i = 0; i < 40; i++) {
        w_answer(&w, 0, 0);
        w_answer(&w, 1, 0);
        if (a->n)
            w_work(&w, 0, 0);
        else if (b->n)
            w_work(&w, 1, 0);
    }
    w_do(&w, late, &r);
    r.id = late->id;
    r.gen = late->gen;
    w_tell(&w, 0, &r);
    w_result_fini(&r);
    fix_free(late);
    w_run(&w);
    assert_int_equal(state_of(job), FP__DRAIN_STATE__DRAIN_DONE);
    w_equal(&w, "a", ino);
    w_close(&w);
}

/* A worker that was given up may still write: the next one has another file. */
static void test_what_a_worker_that_was_given_up_writes_goes_nowhere(void **state)
{
    struct w_bnf *a = &w.bnf[0];
    uint64_t ino, job, gen = 0;
    Fp__TaskResult r;

    (void)state;
    w_open(&w, ":memory:", 1);
    ino = file_of(MGR_ROOT_INO, "a", 2);
    job = w_start(&w, "a", false, NULL);
    for (int i = 0; i < 100 && !gen; i++) {
        w_answer(&w, 0, 0);
        if (!a->n || a->task[0]->kind != FP__TASK_KIND__TASK_WRITE) {
            if (a->n)
                w_work(&w, 0, 0);
            continue;
        }
        gen = a->task[0]->gen;
        fp__task_result__init(&r);
        r.id = a->task[0]->id;
        r.gen = gen;
        r.status = -ETIMEDOUT;
        r.tainted = r.stalled = true;
        fix_free(a->task[0]);
        a->task[0] = a->task[--a->n];
        assert_int_equal(w_tell(&w, 0, &r), 0);
    }
    assert_true(gen > 0);
    w_run(&w);
    assert_int_equal(state_of(job), FP__DRAIN_STATE__DRAIN_DONE);
    assert_true(fix_sql(&w.f, "SELECT max(gen) FROM drain_file") > (int64_t)gen);
    w_equal(&w, "a", ino);
    is_clean();
    w_close(&w);
}

/* ---------------------------------------------------------------- everything goes wrong that can */

static uint64_t rnd;

static unsigned roll(unsigned n)
{
    rnd ^= rnd << 13;
    rnd ^= rnd >> 7;
    rnd ^= rnd << 17;
    return (unsigned)(rnd >> 33) % n;
}

enum { NFILES = 5 };
static uint64_t inos[NFILES];
static char names[NFILES][16];

/* A task is done; it may be told not at all (the benefactor dies), twice, or with a failed transaction of the manager first. */
static void some_work(size_t i)
{
    struct w_bnf *b = &w.bnf[i];
    size_t k = roll((unsigned)b->n);
    Fp__Task *t = b->task[k];
    Fp__TaskResult r;

    w_do(&w, t, &r);
    if (roll(8) == 0) { /* it is done, and nobody hears of it */
        w_result_fini(&r);
        w_bnf_dies(&w, i);
        return;
    }
    if (roll(8) == 0)
        w_restart(&w);
    if (roll(8) == 0) {
        w.f.doom = -ENOSPC;
        assert_int_equal(w_tell(&w, i, &r), -ENOSPC);
    }
    b->task[k] = b->task[--b->n];
    assert_int_equal(w_tell(&w, i, &r), 0);
    if (roll(4) == 0)
        assert_int_equal(w_tell(&w, i, &r), 0); /* again */
    if (roll(4) == 0) {
        r.gen = r.gen ? r.gen - 1 : 0; /* of an attempt before */
        assert_int_equal(w_tell(&w, i, &r), 0);
    }
    w_result_fini(&r);
    fix_free(t);
}

static void some_change(void)
{
    unsigned k = roll(NFILES);

    if (!inos[k])
        return;
    w.f.bnf = w.bnf[roll((unsigned)w.nbnf)].id;
    if (roll(8) == 0) {
        assert_int_equal(fix_unlink(&w.f, MGR_ROOT_INO, names[k], false), 0);
        inos[k] = 0;
    } else if (roll(4) == 0) {
        assert_int_equal(fix_truncate(&w.f, inos[k], roll(3 * MIB)), 0);
    } else {
        assert_true(fix_write(&w.f, inos[k], (uint64_t)roll(4) * MIB + roll(1000), 1 + roll(100000)) > 0);
    }
}

static void some_step(unsigned changes)
{
    size_t i = roll((unsigned)w.nbnf);
    struct w_bnf *b = &w.bnf[i];

    switch (roll(10)) {
    case 0:
        w_tick(&w, 500 * (1 + roll(8)));
        break;
    case 1:
        if (roll(4) == 0)
            w_restart(&w);
        break;
    case 2:
        if (roll(4) == 0)
            w_bnf_dies(&w, i);
        break;
    case 3:
        w_bnf_comes(&w, i);
        break;
    case 4:
        if (changes)
            some_change();
        break;
    case 5:
    case 6:
        if (b->asked)
            w_answer(&w, i, roll(4) == 0 ? -ETIMEDOUT : 0);
        break;
    default:
        if (b->n && !b->down)
            some_work(i);
    }
}

static void one_world(uint64_t seed)
{
    uint64_t job[2];

    rnd = seed * UINT64_C(0x9E3779B97F4A7C15) + 1;
    w_open(&w, fix_path(), W_BNFS);
    for (unsigned k = 0; k < NFILES; k++) {
        snprintf(names[k], sizeof names[k], "f%u", k % 10);
        w.f.bnf = w.bnf[roll(W_BNFS)].id;
        inos[k] = file_of(MGR_ROOT_INO, names[k], roll(4));
    }
    job[0] = w_start(&w, "/", roll(2), NULL);
    job[1] = roll(2) ? w_start(&w, "f1", false, NULL) : 0;
    for (int i = 0; i < 300; i++)
        some_step(i < 200);
    for (size_t i = 0; i < w.nbnf; i++)
        w_bnf_comes(&w, i);
    w.refuse = 0;
    w_run(&w);
    for (unsigned k = 0; k < NFILES; k++)
        if (inos[k] && state_of(job[0]) == FP__DRAIN_STATE__DRAIN_DONE && level(inos[k]) >= FP__LEVEL__LEVEL_DRAINED)
            w_equal(&w, names[k], inos[k]);
    assert_true(state_of(job[0]) >= FP__DRAIN_STATE__DRAIN_DONE);
    assert_true(!job[1] || state_of(job[1]) >= FP__DRAIN_STATE__DRAIN_DONE);
    /* and what has changed since is drained the next time */
    job[0] = w_start(&w, "", false, NULL);
    w_run(&w);
    assert_int_equal(state_of(job[0]), FP__DRAIN_STATE__DRAIN_DONE);
    for (unsigned k = 0; k < NFILES; k++)
        if (inos[k])
            w_equal(&w, names[k], inos[k]);
    is_clean();
    w_close(&w);
}

static void test_whatever_is_lost_late_or_said_twice(void **state)
{
    const char *one = getenv("DRAIN_SEED"), *many = getenv("DRAIN_SEEDS"); /* which; or how many */

    (void)state;
    if (one) {
        one_world(strtoull(one, NULL, 10));
        return;
    }
    for (uint64_t seed = 1; seed <= (many ? strtoull(many, NULL, 10) : 40); seed++) {
        if (many)
            print_message("seed %llu\n", (unsigned long long)seed);
        one_world(seed);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_file_is_copied_and_renamed),
        cmocka_unit_test(test_a_directory_is_drained_whole),
        cmocka_unit_test(test_directories_and_links),
        cmocka_unit_test(test_what_is_no_file_is_left_out_and_said),
        cmocka_unit_test(test_each_benefactor_writes_what_it_has),
        cmocka_unit_test(test_a_window_without_a_sum_is_not_called_verified),
        cmocka_unit_test(test_verified_before_it_has_its_name),
        cmocka_unit_test(test_what_can_not_be_had_there_fails_alone),
        cmocka_unit_test(test_a_request_that_makes_no_sense_is_refused),
        cmocka_unit_test(test_the_same_again_is_the_same_job),
        cmocka_unit_test(test_what_a_worker_that_was_given_up_writes_goes_nowhere),
        cmocka_unit_test(test_a_copy_that_is_gone_is_made_again),
        cmocka_unit_test(test_a_copy_that_was_replaced_is_made_again),
        cmocka_unit_test(test_a_rename_that_comes_late_is_of_the_file_before),
        cmocka_unit_test(test_a_change_begins_anew),
        cmocka_unit_test(test_cancel_leaves_nothing),
        cmocka_unit_test(test_what_was_deleted_is_left_out),
        cmocka_unit_test(test_another_one_leads_when_the_lead_stays_away),
        cmocka_unit_test(test_a_rename_that_comes_late_puts_nothing_old_over_new),
        cmocka_unit_test(test_whatever_is_lost_late_or_said_twice),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
