/* Names of real applications, and which time step they say. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "manager/stepname.h"

/* Path from a directory that has no step; above, template and step, or template NULL: none. */
struct row { const char *path, *template; uint32_t above; uint64_t step; };

static size_t split(const char *path, struct mgr_name *names)
{
    const char *end = path + strlen(path);
    size_t n = 0;

    while (n < MGR_STEP_ABOVE + 1) {
        const char *slash = memrchr(path, '/', (size_t)(end - path)), *from = slash ? slash + 1 : path;

        names[n++] = (struct mgr_name){from, (size_t)(end - from)};
        if (!slash)
            break;
        end = slash;
    }
    return n;
}

static unsigned wrong; /* rows of a table: all are told */

static void check_step(const char *path, const char *template, uint32_t above, uint64_t step, bool is, const struct mgr_step *s)
{
    if (is != (template != NULL)) {
        print_error("%s: %s\n", path, is ? "has a step" : "has no step");
        wrong++;
        return;
    }
    if (!is)
        return;
    if (s->step != step || s->above != above || s->template_len != strlen(template) || memcmp(s->template, template, s->template_len) != 0) {
        print_error("%s: step %llu, %u above, template '%.*s'\n", path, (unsigned long long)s->step, s->above, (int)s->template_len, s->template);
        wrong++;
    }
}

static int begin(void **state)
{
    (void)state;
    wrong = 0;
    return 0;
}

static const struct row real_names[] = {
    /* FLASH, AMReX (Castro, Nyx, WarpX), Enzo, Gadget, RAMSES, Athena++ */
    {"flash_hdf5_chk_0007", "flash_hdf*_chk_#", 0, 7},
    {"flash_hdf5_plt_cnt_0007", "flash_hdf*_plt_cnt_#", 0, 7},
    {"lasslab_forced_hdf5_plt_cnt_0123", "lasslab_forced_hdf*_plt_cnt_#", 0, 123},
    {"chk00100/Level_0/Cell_D_00000", "chk#/", 2, 100},
    {"chk00100/Header", "chk#/", 1, 100},
    {"plt00010/Level_1/Cell_H", "plt#/", 2, 10},
    {"diags/chk000020/WarpXHeader", "chk#/", 1, 20},
    {"snapshot_012.3.hdf5", "snapshot_#", 0, 12},
    {"snapdir_012/snap_012.3.hdf5", "snap_#", 0, 12}, /* snapdir is no word of ours: its files say it */
    {"rst.00005.athdf", "rst.#", 0, 5},
    {"blast.rst.00005", "blast.rst.#", 0, 5},
    {"dump_00012", "dump_#", 0, 12},
    /* plain ones */
    {"chk_0007/rank_12.dat", "chk_#/", 1, 7},
    {"chk_0007/12", "chk_#/", 1, 7},
    {"run/chk_0007/0/1/2/3", NULL, 0, 0}, /* too far above */
    {"chk_0007/0/1/2", "chk_#/", 3, 7},
    {"chk_0007.rank3", "chk_#", 0, 7},
    {"chk_0007.rank4", "chk_#", 0, 7},
    {"rank3_chk_0007", "rank*_chk_#", 0, 7},
    {"ckpt-12.bin", "ckpt-#", 0, 12},
    {"ckpt12", "ckpt#", 0, 12},
    {"Checkpoint.000004", "Checkpoint.#", 0, 4},
    {"CHECKPOINT4", "CHECKPOINT#", 0, 4},
    {"checkpoint_4.mpi", "checkpoint_#", 0, 4},
    {"cp=12", "cp=#", 0, 12},
    {"save1", "save#", 0, 1},
    {"restore.000100/nodes.00016/proc.00003", "restore.#/", 2, 100},
    {"visit_dump.00100/processor_cluster.00000.samrai", "visit_dump.#/", 1, 100},
    {"heat3d_chk_0007", "heat*d_chk_#", 0, 7},
    /* LAMMPS, GROMACS, NAMD, CP2K, HOOMD, WRF, CESM, MITgcm, MOM */
    {"restart.5000", "restart.#", 0, 5000},
    {"tmp.restart.5000", "restart.#", 0, 5000},
    {"poly.restart.100000", "poly.restart.#", 0, 100000},
    {"dump.5000.lammpstrj", "dump.#", 0, 5000},
    {"restart.base.0", NULL, 0, 0},
    {"state_step5000.cpt", "state_step#", 0, 5000},
    {"state.cpt", NULL, 0, 0},
    {"wrfrst_d01_2000-01-25_12:00:00", NULL, 0, 0},
    {"restart_2000-01-25_12:00:00.nc", "restart_#", 0, 20000125120000},
    {"case.restart.0001-01-02-43200.nc", "case.restart.#", 0, 1010243200},
    {"snapshot_20260101T120000.h5", "snapshot_#", 0, 20260101120000},
    {"snapshot_20260101_120000.h5", "snapshot_#", 0, 20260101120000},
    {"dump_00000101_000012", "dump_#", 0, 101}, /* no date */
    {"pickup.0000036000.data", NULL, 0, 0},
    /* PyTorch, Lightning, DeepSpeed, Megatron, HuggingFace, TensorFlow, JAX */
    {"step-1200/__0_0.distcp", "step-#/", 1, 1200},
    {"step-1200/.metadata", "step-#/", 1, 1200},
    {"epoch=3-step=1200.ckpt", "epoch=*-step=#", 0, 1200},
    {"epoch=3.ckpt", "epoch=#", 0, 3},
    {"epoch=3-step=1200-v2.ckpt", "epoch=*-step=#", 0, 1200},
    {"checkpoint-500/global_step500/mp_rank_00_model_states.pt", "checkpoint-#/", 2, 500},
    {"global_step500/zero_pp_rank_0_mp_rank_00_optim_states.pt", "global_step#/", 1, 500},
    {"tmp-checkpoint-500/model-00001-of-00003.safetensors", "checkpoint-#/", 1, 500},
    {"checkpoint-500/model-00001-of-00003.safetensors", "checkpoint-#/", 1, 500},
    {"iter_0001000/mp_rank_00/model_optim_rng.pt", "iter_#/", 2, 1000},
    {"model_epoch_10_loss_0.25.pt", "model_epoch_#", 0, 10},
    {"GlobalStep500.pt", "GlobalStep#", 0, 500},
    {"globalstep500.pt", "globalstep#", 0, 500},
    {"model.ckpt-5000.index", "model.ckpt-#", 0, 5000},
    {"model.ckpt-5000.data-00000-of-00001", "model.ckpt-#", 0, 5000},
    {"checkpoint_1000.orbax-checkpoint-tmp-1699912345/params", "checkpoint_#/", 1, 1000},
    {"checkpoint_1000/params", "checkpoint_#/", 1, 1000},
    /* DMTCP, BLCR, Charm++ */
    {"ckpt_a.out_3f2b-40000-5e8f.dmtcp", NULL, 0, 0},
    {"context.1234", NULL, 0, 0},
    /* times */
    {"time=0.25.h5", "time=#.##", 0, 25},
    {"time=1.50.h5", "time=#.##", 0, 150},
    {"time_12.h5", "time_#", 0, 12},
    {"t_100.vtu", "t_#", 0, 100},
    {"t100.vtu", NULL, 0, 0},
    {"frame_0001.png", "frame_#", 0, 1},
    {"frame0001.1.png", "frame#.#", 0, 11},
    {"cycle_000123/domain_000001.hdf5", "cycle_#/", 1, 123},
    {"timestep-12/p3", "timestep-#/", 1, 12},
    /* temporary, and directories beside files */
    {"chk_0007.tmp/rank_1", "chk_#/", 1, 7},
    {"chk_0007.tmp", "chk_#", 0, 7},
    {"chk_0007.h5.tmp.x8Kw2", "chk_#", 0, 7},
    /* no steps */
    {"README", NULL, 0, 0}, {"a1", NULL, 0, 0}, {"rank_12.dat", NULL, 0, 0}, {"hdf5", NULL, 0, 0}, {"mesh_v2.h5", NULL, 0, 0}, {"footstep12", NULL, 0, 0},
    {"upstep_5", NULL, 0, 0}, {"unit5", NULL, 0, 0}, {"chk", NULL, 0, 0}, {"chk_", NULL, 0, 0}, {"chk__7", NULL, 0, 0}, {"chk_x7", NULL, 0, 0}, {"7chk", NULL, 0, 0},
    /* as many digits as a step may have, and one more */
    {"chk_999999999999999999", "chk_#", 0, 999999999999999999},
    {"chk_1000000000000000000", NULL, 0, 0},
    {"chk_00000000000000000007", NULL, 0, 0},
    {"chk_1000000000000000000_step_3", "chk_*_step_#", 0, 3},
    {NULL, NULL, 0, 0}};

static void test_words_of_real_names(void **state)
{
    unsigned n = 0;

    (void)state;
    for (const struct row *r = real_names; r->path; r++, n++) {
        struct mgr_name names[MGR_STEP_ABOVE + 1];
        struct mgr_step s = {0};
        bool is = mgr_step_of(names, split(r->path, names), &s);

        check_step(r->path, r->template, r->above, r->step, is, &s);
        if (is)
            assert_int_equal(s.how, MGR_STEP_WORD);
    }
    assert_true(n >= 80);
    assert_int_equal(wrong, 0);
}

static void test_where_the_digits_are(void **state)
{
    static const char name[] = "tmp-epoch=3-step=1200.ckpt.part";
    struct mgr_step s;

    (void)state;
    assert_true(mgr_step_word(name, sizeof name - 1, false, &s));
    assert_int_equal(s.len, 4);
    assert_memory_equal(name + s.off, "1200", 4);
    assert_true(s.temporary);
    assert_true(mgr_step_word("chk_7", 5, true, &s));
    assert_false(s.temporary);
}

/* Which number would be the step, if it grew. */
static void test_numbers_that_may_grow(void **state)
{
    static const struct { const char *name; bool directory; const char *template; uint64_t step; } rows[] = {
        {"00100", true, "#/", 100}, {"1000", false, "#", 1000}, {"out_3_100.dat", false, "out_*_#", 100}, {"out_3_100.dat.tmp", false, "out_*_#", 100},
        {"data_100.h5", false, "data_#", 100}, {"data_100.nc4", false, "data_#", 100}, {"movie1.mp4", false, "movie#", 1}, {"channel0.f00001", false, "channel*.f#", 1},
        {"wrfrst_d01_2000-01-25_12:00:00", false, "wrfrst_d*_#", 20000125120000}, {"case.clm2.r.0001-01-02-43200.nc", false, "case.clm*.r.#", 1010243200},
        {"pickup.0000036000.data", false, "pickup.#", 36000}, {"rst.00005.athdf", false, "rst.#", 5}, {"out.100.rank3", false, "out.#", 100},
        {"model-00001-of-00003.bin", false, NULL, 0}, {"model_100-00001-of-00003.bin", false, "model_#", 100}, {"rank_3", false, NULL, 0},
        {"processor12", true, NULL, 0}, {"run7", true, NULL, 0}, {"mesh_v2", false, NULL, 0}, {"tmp1234", true, NULL, 0}, {"slurm-4711.out", false, NULL, 0}, {"job.o4711", false, NULL, 0}, {"0.25", true, "#.#/", 250000}, {"0.25", false, "*.#", 25}, {"0.1234567", true, "*.#/", 1234567}, {"README", false, NULL, 0}, {"hdf5", false, NULL, 0},
        {"x_1234567890123456789", false, NULL, 0}, {"mp3", false, NULL, 0}, {"a.mp3", false, NULL, 0}, {NULL, false, NULL, 0}};

    (void)state;
    for (size_t i = 0; rows[i].name; i++) {
        struct mgr_step s = {0};
        bool is = mgr_step_growth(rows[i].name, strlen(rows[i].name), rows[i].directory, 0, &s);

        check_step(rows[i].name, rows[i].template, 0, rows[i].step, is, &s);
        if (is)
            assert_int_equal(s.how, MGR_STEP_GROWTH);
    }
    assert_int_equal(wrong, 0);
}

static void test_each_number_of_a_name_may_be_the_one(void **state)
{
    static const struct { const char *name; unsigned nth; const char *template; uint64_t step; } rows[] = {
        {"out_100_3.dat", 0, "out_*_#", 3}, {"out_100_3.dat", 1, "out_#", 100}, {"out_100_3.dat", 2, NULL, 0}, {"weights.01-0.54.h5", 2, "weights.#", 1},
        {"a1b2c3d4", 0, "a*b*c*d#", 4}, {"a1b2c3d4", 2, "a*b#", 2}, {"a1b2c3d4", 3, NULL, 0}, {"7_rank_3", 0, "#", 7}, {"7_rank_3", 1, NULL, 0}, {NULL, 0, NULL, 0}};

    (void)state;
    for (size_t i = 0; rows[i].name; i++) {
        struct mgr_step s = {0};

        check_step(rows[i].name, rows[i].template, 0, rows[i].step, mgr_step_growth(rows[i].name, strlen(rows[i].name), false, rows[i].nth, &s), &s);
    }
    assert_int_equal(wrong, 0);
}

/* Steps, each with when it began and when it was closed (0: it is not when the next one comes). When are they known as such? 0: never. */
struct came { uint64_t step; int64_t began, closed; };

static size_t known_after(const struct came *c, size_t n)
{
    struct mgr_trail t = {0};

    for (size_t i = 0; i < n; i++)
        if (mgr_trail_add(&t, c[i].step, c[i].began, i ? c[i - 1].closed : 0, 2000))
            return i + 1;
    return 0;
}

#define AFTER(...) known_after((const struct came[]){__VA_ARGS__}, sizeof((const struct came[]){__VA_ARGS__}) / sizeof(struct came))

static void test_steps_grow_one_after_the_other_and_ranks_do_not(void **state)
{
    (void)state;
    assert_int_equal(AFTER({100, 1000, 5000}, {200, 7000, 9000}, {300, 11000, 12000}), 3);
    assert_int_equal(AFTER({7, 1000, 1000}, {100, 5000, 5000}, {200, 9000, 9000}, {300, 12000, 12000}), 4);
    assert_int_equal(AFTER({2024, 1000, 5000}, {2025, 7000, 9000}), 0);
    assert_int_equal(AFTER({100, 1000, 5000}, {200, 7000, 9000}, {300, 10999, 12000}), 0);                                  /* written by one program, one behind the other */
    assert_int_equal(AFTER({1, 1000, 9000}, {2, 4000, 9000}, {3, 8000, 9000}, {4, 11000, 12000}), 0);                       /* at the same time */
    assert_int_equal(AFTER({1, 1000, 1000}, {2, 3000, 0}, {3, 70000, 70000}), 0);                                           /* the second is still being written */
    assert_int_equal(AFTER({300, 1000, 1000}, {200, 7000, 7000}, {100, 17000, 17000}), 0);                                  /* down */
    assert_int_equal(AFTER({10, 1000, 1000}, {35, 7000, 7000}, {40, 17000, 17000}, {57, 20000, 20000}), 0);                 /* by chance */
    assert_int_equal(AFTER({10, 1000, 1000}, {35, 7000, 7000}, {40, 17000, 17000}, {57, 20000, 20000}, {58, 30000, 1}), 5); /* by the clock of who writes */
    assert_int_equal(AFTER({1, 1000, 1000}, {2, 5000, 5000}, {2, 5001, 6000}, {3, 9000, 9000}), 4);                         /* two files of the second */
    assert_int_equal(AFTER({1, 1000, 1000}, {2, 5000, 5000}, {1, 9000, 9000}, {2, 15000, 15000}, {3, 19000, 1}), 5);        /* it went back */
}

/* OpenFOAM's: whole ones are of the same series, as the second of what they may be. */
static void test_numbers_with_decimals(void **state)
{
    static const struct { const char *name; unsigned nth; uint64_t step; bool is, temporary; } rows[] = {
        {"0.1", 0, 100000, true, false}, {"0.15", 0, 150000, true, false}, {"1", 1, 1000000, true, false}, {"10.000001", 0, 10000001, true, false}, {"0.1.tmp", 0, 100000, true, true},
        {"999999999999.5", 0, 999999999999500000, true, false}, {"1", 0, 1, false, false}, {"0.1", 1, 0, false, false}, {"0.", 0, 0, false, false}, {"x0.1", 0, 1, false, false},
        {"1.2.3", 0, 3, false, false}, {"9999999999999", 1, 0, false, false}, {NULL, 0, 0, false, false}};

    (void)state;
    for (size_t i = 0; rows[i].name; i++) {
        struct mgr_step s = {0};
        bool any = mgr_step_growth(rows[i].name, strlen(rows[i].name), true, rows[i].nth, &s), is = any && mgr_step_is_decimal(&s);

        if (is != rows[i].is || (any && s.step != rows[i].step) || (is && s.temporary != rows[i].temporary))
            fail_msg("%s: %d, step %llu", rows[i].name, is, (unsigned long long)s.step);
    }
}

static void test_locks_are_of_no_step(void **state)
{
    static const char *const names[] = {"chk_0007.h5-3221-4711.lock", "chk_0007.lck", "restart_5.LOCK", "chk_0007.h5.locktest.12"};
    struct mgr_name above[2] = {{NULL, 0}, {"chk_0007", 8}};
    struct mgr_step s;

    (void)state;
    for (size_t i = 0; i < 4; i++) {
        above[0] = (struct mgr_name){names[i], strlen(names[i])};
        assert_false(mgr_step_of(above, 1, &s));
        assert_false(mgr_step_of(above, 2, &s));
        assert_false(mgr_step_growth(names[i], strlen(names[i]), false, 0, &s));
    }
    above[0] = (struct mgr_name){"chk_0007.locks", 14};
    assert_true(mgr_step_of(above, 1, &s));
    above[0] = (struct mgr_name){".lock", 5};
    assert_true(mgr_step_of(above, 2, &s)); /* a name, and no ending */
    assert_true(mgr_step_growth("5000.lock", 9, true, 0, &s));
}

static void test_the_clock_is_no_step(void **state)
{
    static const struct { const char *name; bool clock; } rows[] = {
        {"2023", true}, {"2024", false}, {"20231114", true}, {"20231113", true}, {"20231012", false}, {"2023-11-14", true}, {"log_20231114_221320", true}, {"202311", true},
        {"out_1700000005", true}, {"out_1600000000", false}, {"1700000005123", true}, {"1700000005123456", true}, {"14", false}, {"5000", false}, {NULL, false}};

    (void)state;
    for (size_t i = 0; rows[i].name; i++) {
        struct mgr_step s = {0};

        assert_true(mgr_step_growth(rows[i].name, strlen(rows[i].name), true, 0, &s));
        if (mgr_step_is_clock(&s, 1700000000 * INT64_C(1000000000)) != rows[i].clock)
            fail_msg("%s", rows[i].name);
    }
}

static void test_bare_names(void **state)
{
    static const char *const yes[] = {"100", "2026-11-23", "12-01-30", "0.25", NULL}, *const no[] = {"", "out100", "100_x", "-1", "v1", NULL};

    (void)state;
    for (size_t i = 0; yes[i]; i++)
        assert_true(mgr_step_is_bare(yes[i], strlen(yes[i])));
    for (size_t i = 0; no[i]; i++)
        assert_false(mgr_step_is_bare(no[i], strlen(no[i])));
}

static void test_patterns(void **state)
{
    static const struct { const char *pattern, *path; int is; const char *template; uint32_t above; uint64_t step; } rows[] = {
        {"run/state-{step}/**", "run/state-12/rank3", 1, "state-#/", 1, 12},
        {"run/state-{step}", "run/state-12/a/b", 1, "state-#/", 2, 12},
        {"run/state-{step}/", "run/state-12/a/b", 1, "state-#/", 2, 12},
        {"run/state-{step}/", "run/state-12", -1, NULL, 0, 0},
        {"run/state-{step}", "run/state-12.tmp/a", -1, NULL, 0, 0},
        {"run/state-{step}*", "run/state-12.tmp/a", 1, "state-#/", 1, 12},
        {"state-{step}", "other/run/state-12/a", 1, "state-#/", 1, 12}, /* no slash: anywhere */
        {"/state-{step}", "run/state-12/a", -1, NULL, 0, 0},            /* the root's alone */
        {"/state-{step}", "state-12/a", 1, "state-#/", 1, 12},
        {"*_{step}.h5", "out_3_007.h5", 1, "out_*_#", 0, 7},
        {"*{step}.h5", "out_007.h5", 1, "out_#", 0, 7}, /* the whole group, not its last digit */
        {"out_*/{step}", "out_a/b/7", -1, NULL, 0, 0},
        {"out_**/{step}", "out_a/b/7", 1, "#", 0, 7},
        {"a/**/{step}", "a/7", 1, "#", 0, 7},
        {"a/**/{step}", "a/b/c/7", 1, "#", 0, 7},
        {"a?{step}", "a/7", -1, NULL, 0, 0},
        {"a?{step}", "a_7", 1, "a_#", 0, 7},
        {"x{step}", "x1234567890123456789", -1, NULL, 0, 0},
        {"x{step}", "x", -1, NULL, 0, 0},
        {"*.h5", "a/b/result.h5", 0, NULL, 0, 0},
        {"results/**", "results/a/b", 0, NULL, 0, 0},
        {"results", "results/a/b", 0, NULL, 0, 0},
        {"results", "myresults", -1, NULL, 0, 0},
        {"d_{step}-*-*", "d_2000-01-25", 1, "d_#", 0, 2000},
        {"d_*-*-{step}.nc", "d_2000-01-25.nc", 1, "d_*-*-#", 0, 25},
        {"epoch_{step}_step_*", "epoch_4_step_1200", 1, "epoch_#", 0, 4}, /* what the user says goes before words */
        {"", "a", -1, NULL, 0, 0},
        {"/", "a", -1, NULL, 0, 0},
        {NULL, NULL, 0, NULL, 0, 0}};

    (void)state;
    for (size_t i = 0; rows[i].pattern; i++) {
        struct mgr_step s = {0};
        int is = mgr_step_pattern(rows[i].path, strlen(rows[i].path), rows[i].pattern, &s);

        if (is != rows[i].is)
            fail_msg("%s of %s: %d", rows[i].pattern, rows[i].path, is);
        if (is == 1)
            check_step(rows[i].path, rows[i].template, rows[i].above, rows[i].step, true, &s);
    }
    assert_int_equal(wrong, 0);
}

/* A pattern for which each star would be tried with each end. */
static void test_an_intricate_pattern_ends(void **state)
{
    char path[4096], pattern[256];
    struct mgr_step s;

    (void)state;
    memset(path, 'a', sizeof path);
    for (size_t i = 0; i + 3 < sizeof pattern; i += 2)
        memcpy(pattern + i, "*a", 3);
    strcat(pattern, "b");
    assert_int_equal(mgr_step_pattern(path, sizeof path, pattern, &s), -1);
}

static void check_result(const char *name, bool directory, const char *rest, const char *want)
{
    struct mgr_step s;

    assert_true(mgr_step_word(name, strlen(name), directory, &s));
    assert_true(mgr_step_result(&s, rest, strlen(rest)));
    assert_int_equal(s.how, MGR_STEP_CONVERTED);
    assert_int_equal(s.template_len, strlen(want));
    assert_memory_equal(s.template, want, strlen(want));
}

static void test_results_of_conversions_have_a_template_of_their_own(void **state)
{
    static const char *const temporary[] = {".fp-convert-a", ".fp-convert-ABcdZ"}, *const others[] = {".fp-convert-", ".fp-convert-a1", ".fp-convert-a.h5", "fp-convert-a", ".fp-conver"};
    char rest[256];
    struct mgr_step s;

    (void)state;
    check_result("dump_0007.h5", false, ".h5", "dump_#.h5");
    check_result("dump_0007_part3.nc4", false, "_part3.nc4", "dump_#_part*.nc4");
    check_result("dump_0007", false, "", "dump_#."); /* no file's */
    check_result("dump_0007", true, ".h5", "dump_#.h5");
    memset(rest, 'x', sizeof rest);
    assert_true(mgr_step_word("dump_0007", 9, false, &s));
    assert_false(mgr_step_result(&s, rest, 250));
    assert_true(mgr_step_result(&s, rest, 249));
    for (size_t i = 0; i < sizeof temporary / sizeof *temporary; i++)
        assert_true(mgr_step_is_convert(temporary[i], strlen(temporary[i])));
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        assert_false(mgr_step_is_convert(others[i], strlen(others[i])));
}

/* The longest names: nothing is written past the template. */
static void test_names_as_long_as_they_may_be(void **state)
{
    char name[256];
    struct mgr_step s;

    (void)state;
    memset(name, 'x', sizeof name);
    memcpy(name, "chk_7", 5);
    assert_true(mgr_step_word(name, 255, true, &s));
    assert_int_equal(s.template_len, 256);
    assert_int_equal(s.template[255], '/');
    assert_false(mgr_step_word(name, 256, true, &s));
    assert_false(mgr_step_growth(name, 256, true, 0, &s));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_words_of_real_names, begin),
        cmocka_unit_test_setup(test_where_the_digits_are, begin),
        cmocka_unit_test_setup(test_numbers_that_may_grow, begin),
        cmocka_unit_test_setup(test_each_number_of_a_name_may_be_the_one, begin),
        cmocka_unit_test_setup(test_numbers_with_decimals, begin),
        cmocka_unit_test_setup(test_locks_are_of_no_step, begin),
        cmocka_unit_test_setup(test_the_clock_is_no_step, begin),
        cmocka_unit_test_setup(test_bare_names, begin),
        cmocka_unit_test_setup(test_steps_grow_one_after_the_other_and_ranks_do_not, begin),
        cmocka_unit_test_setup(test_patterns, begin),
        cmocka_unit_test_setup(test_an_intricate_pattern_ends, begin),
        cmocka_unit_test_setup(test_results_of_conversions_have_a_template_of_their_own, begin),
        cmocka_unit_test_setup(test_names_as_long_as_they_may_be, begin),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
