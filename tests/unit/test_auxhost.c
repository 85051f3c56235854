/* fp-auxhost, the real program, from the mount's side of its sockets: chunks out and in, verdicts, errors, options, the end. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "aux_mount.h"

#define MIB (1u << 20)
#define PIECE(a, k, o, n, at_, c) {.kind = FP_AUXW_PIECE_##k, .app = (a), .off = (o), .len_bytes = (n), .at = (at_), .chunk = (c)}
#define LIST(...) ((const char *const[]){__VA_ARGS__, NULL})

static void fill(struct am *m, uint32_t first, uint32_t pages, uint32_t seed)
{
    for (uint32_t i = 0; i < pages * AM_PAGE / 4; i++) {
        seed = seed * 1664525u + 1013904223u;
        ((uint32_t *)(void *)(m->pool + (size_t)first * AM_PAGE))[i] = seed | 1;
    }
}

/* -------------------------------------------------------------- chunks out */

static void test_pass_leaves_the_pages(void **state)
{
    static struct am m;

    (void)state;
    assert_int_equal(am_start(&m, NULL, "", LIST("probe level=7")), 0);
    assert_string_equal(m.ready.app[0].name, "probe");
    assert_string_equal(m.ready.app[0].version, "1.0");
    assert_int_equal(m.ready.app[0].has & (FP_AUXW_HAS_OUT | FP_AUXW_HAS_IN | FP_AUXW_HAS_FILE), FP_AUXW_HAS_OUT | FP_AUXW_HAS_IN | FP_AUXW_HAS_FILE);
    assert_int_equal(m.ready.app[0].io_flags[FP_AUX_OP_UNLINK], 0x80 | FP_AUX_WAIT);
    assert_int_equal(m.ready.app[0].io_flags[FP_AUX_OP_OPEN], 0);
    const struct fp_auxw_out_done *d = am_out_done(&m, am_chunk_out(&m, 0, 1, MIB, 0));

    assert_int_equal(d->status, 0);
    assert_int_equal(d->npieces, 0);
    assert_int_equal(d->nstages, 0);
    assert_int_equal(d->where, 0);
    assert_int_equal(d->new_bytes, MIB);
    assert_int_equal(m.status->stats[0].chunks, 1);
    assert_int_equal(m.status->stats[0].bytes_in, MIB);
    assert_int_equal(am_counter(&m, 0, "seen"), MIB);
    am_wait_log(&m, "0 2 starts on node7 with do=pass level=7\n");
    am_stop_clean(&m);
    assert_non_null(strstr(m.log, "stops after 1 chunks"));
}

/* Codes what is in the pool and decodes it again: the bytes must be those. */
static void there_and_back(struct am *m, uint32_t step, uint32_t len, const char *names[], uint32_t n)
{
    struct fp_auxw_stage stage[8];
    uint32_t where = 0, off = 0;

    const struct fp_auxw_out_done *d = am_out_done(m, am_chunk_out(m, 3, step, len, 1));

    assert_int_equal(d->status, 0);
    assert_int_equal(d->nstages, n);
    assert_int_equal(d->coded_bytes, len + n);
    assert_int_equal(d->where, n % 2 ? 1 : 2);
    memcpy(stage, am_stages(d), n * sizeof(stage[0]));
    for (uint32_t i = 0; i < n; i++) {
        assert_string_equal(stage[i].name, names[i]);
        assert_int_equal(stage[i].in_bytes, len + i);
        assert_int_equal(stage[i].out_bytes, len + i + 1);
    }
    memcpy(am_slot(m, 4), am_slot(m, 2 + d->where - 1), d->coded_bytes);
    assert_int_equal(am_done(m, am_chunk_in(m, 2, stage, n, len + n), &where), 0);
    assert_int_equal(where, n % 2 ? 2 : 1);
    for (uint32_t i = 0; off < len; i += step, off += AM_PAGE) {
        uint32_t part = len - off < AM_PAGE ? len - off : AM_PAGE;

        assert_memory_equal(am_slot(m, 4 + where - 1) + off, m->pool + (size_t)(3 + i) * AM_PAGE, part);
    }
}

static void test_replaced_chunks_come_back(void **state)
{
    static struct am m;
    const char *names[] = {"probe", "probe2", "probe3"};

    (void)state;
    assert_int_equal(am_start(&m, NULL, "", LIST("probe do=xor key=a", "probe2 do=xor key=Z", "probe3 do=xor key=#")), 0);
    fill(&m, 0, 64, 1);
    there_and_back(&m, 1, MIB, names, 3);
    there_and_back(&m, 2, MIB, names, 3);
    there_and_back(&m, 2, 70001, names, 3);
    there_and_back(&m, 1, 1, names, 3);
    assert_int_equal(am_counter(&m, 0, "coded"), -1);
    assert_int_equal(am_counter(&m, 1, "coded"), 4);
    am_stop_clean(&m);
}

static void test_pieces_are_told_and_new_ones_packed_for_the_next(void **state)
{
    static struct am m;

    (void)state;
    assert_int_equal(am_start(&m, NULL, "", LIST("probe do=pieces", "probe2 do=xor")), 0);
    fill(&m, 0, 16, 7);
    uint64_t chunk = 0x100000005;

    memset(m.pool + 4096, 0, 8192);                        /* blocks 1, 2: zeros */
    memcpy(m.pool + 5 * 4096, m.pool, 4096);               /* 5: as 0 */
    memcpy(m.pool + 8 * 4096, "STOR", 4);                  /* 8: stored */
    memcpy(m.pool + 8 * 4096 + 4, &chunk, 8);
    const struct fp_auxw_out_done *d = am_out_done(&m, am_chunk_out(&m, 0, 1, MIB, 0));
    const struct fp_auxw_piece want[] = {
        PIECE(0, NEW, 0, 4096, 0, 0),                 PIECE(0, ZERO, 4096, 8192, 0, 0),
        PIECE(0, NEW, 3 * 4096, 8192, 4096, 0),       PIECE(0, SAME, 5 * 4096, 4096, 0, 0),
        PIECE(0, NEW, 6 * 4096, 8192, 3 * 4096, 0),   PIECE(0, STORED, 8 * 4096, 4096, 4096, chunk),
        PIECE(0, NEW, 9 * 4096, MIB - 9 * 4096, 5 * 4096, 0),
    };

    assert_int_equal(d->status, 0);
    assert_int_equal(d->new_bytes, MIB - 4 * 4096);
    assert_int_equal(d->npieces, 7);
    assert_memory_equal(am_pieces(d), want, sizeof(want));
    assert_int_equal(d->nkeys, 1);
    assert_int_equal(am_keys(d)[0], 4711);
    assert_int_equal(d->note_bytes, 6);
    assert_memory_equal(am_note(d), "a note", 6);
    assert_true(d->ticket[0] != 0 && d->ticket_app[0] == 0 && d->ticket[1] == 0);
    assert_int_equal(d->nstages, 1);
    assert_int_equal(am_stages(d)->in_bytes, d->new_bytes);
    const uint8_t *coded = am_slot(&m, d->where - 1);

    for (uint32_t i = 0; i < d->npieces; i++) {
        for (uint32_t k = 0; want[i].kind == FP_AUXW_PIECE_NEW && k < want[i].len_bytes; k++)
            assert_int_equal(coded[1 + want[i].at + k] ^ 'K', m.pool[want[i].off + k]);
    }
    struct fp_auxw_stored s = {.ticket = d->ticket[0], .chunk = 99, .app = 0, .off = 0, .len_bytes = d->new_bytes};

    am_send(&m, &s, FP_AUXW_STORED, 0, sizeof(s), NULL, 0, NULL, 0);
    am_wait_log(&m, "stored 1: chunk 99 0+1032192");
    am_stop_clean(&m);
}

static void test_nothing_new_ends_the_chain(void **state)
{
    static struct am m;

    (void)state;
    assert_int_equal(am_start(&m, NULL, "", LIST("probe do=pieces", "probe2 do=xor")), 0);
    const struct fp_auxw_out_done *d = am_out_done(&m, am_chunk_out(&m, 0, 1, MIB, 0));

    assert_int_equal(d->status, 0);
    assert_int_equal(d->new_bytes, 0);
    assert_int_equal(d->npieces, 1);
    assert_int_equal(d->nstages, 0);
    assert_int_equal(m.status->stats[1].chunks, 0);
    am_stop_clean(&m);
}

static void test_two_deduplications_are_composed(void **state)
{
    static struct am m;

    (void)state;
    /* probe2 sees what probe has left: new blocks that are the same as another new one do not exist, so it is told by the stored ones */
    assert_int_equal(am_start(&m, NULL, "", LIST("probe do=many", "probe2 do=pieces")), 0);
    fill(&m, 0, 2, 3);
    memcpy(m.pool + 4 * 4096, m.pool, 4096);
    const struct fp_auxw_out_done *d = am_out_done(&m, am_chunk_out(&m, 0, 1, 8 * 4096, 0));
    const struct fp_auxw_piece want[] = {
        PIECE(1, NEW, 0, 4096, 0, 0),         PIECE(0, ZERO, 4096, 4096, 0, 0),
        PIECE(1, NEW, 2 * 4096, 4096, 4096, 0), PIECE(0, ZERO, 3 * 4096, 4096, 0, 0),
        PIECE(1, SAME, 4 * 4096, 4096, 0, 0), PIECE(0, ZERO, 5 * 4096, 4096, 0, 0),
        PIECE(1, NEW, 6 * 4096, 4096, 8192, 0), PIECE(0, ZERO, 7 * 4096, 4096, 0, 0),
    };

    assert_int_equal(d->npieces, 8);
    assert_memory_equal(am_pieces(d), want, sizeof(want));
    assert_int_equal(d->new_bytes, 3 * 4096);
    am_stop_clean(&m);
}

/* What is stored is to be compared with for an aux-app that has `verify`, also where another one's piece is the same as that. */
static void test_pieces_say_whose_they_are_and_what_is_doubted(void **state)
{
    static struct am m;
    uint64_t chunk = 0x100000005;

    (void)state;
    assert_int_equal(am_start(&m, NULL, "", LIST("probe do=lie_same verify=on", "probe2 do=pieces")), 0);
    fill(&m, 0, 2, 3);
    memcpy(m.pool + 4096, "STOR", 4);
    memcpy(m.pool + 4096 + 4, &chunk, 8);
    const struct fp_auxw_out_done *d = am_out_done(&m, am_chunk_out(&m, 0, 1, 4 * 4096, 0));
    const struct fp_auxw_piece *p = am_pieces(d);
    const struct fp_auxw_piece want[] = {
        PIECE(1, NEW, 0, 4096, 0, 0),        PIECE(1, STORED, 4096, 4096, 4096, chunk),
        PIECE(0, SAME, 2 * 4096, 4096, 0, 0), PIECE(0, STORED, 3 * 4096, 4096, 4096, chunk),
    };

    assert_int_equal(d->npieces, 4);
    assert_true(p[2].doubted && p[3].doubted && !p[0].doubted && !p[1].doubted);
    for (int i = 0; i < 4; i++) {
        struct fp_auxw_piece q = p[i];

        q.doubted = 0;
        assert_memory_equal(&q, &want[i], sizeof(q));
    }
    am_stop_clean(&m);
}

/* Pieces that were not true the last time: the window comes again, and all of it is new. */
static void test_without_pieces_all_is_new(void **state)
{
    static struct am m;

    (void)state;
    assert_int_equal(am_start(&m, NULL, "", LIST("probe do=pieces", "probe2 do=xor")), 0);
    memset(m.pool, 0, MIB);
    m.out_flags = FP_AUXW_OUT_NO_PIECES;
    const struct fp_auxw_out_done *d = am_out_done(&m, am_chunk_out(&m, 0, 1, MIB, 0));

    assert_int_equal(d->status, 0);
    assert_true(d->npieces == 0 && d->new_bytes == MIB && d->nstages == 1);
    assert_true(d->note_bytes == 0 && d->nkeys == 0 && d->ticket[0] == 0);
    am_stop_clean(&m);
}

/* -------------------------------------------------------------- verdicts that are wrong */

static void test_wrong_verdicts_cost_no_data(void **state)
{
    static struct am m;
    static const char *const deed[] = {"probe do=long", "probe do=gap", "probe do=verdict", "probe do=bad verify=on", NULL};
    static const int32_t status[] = {-EINVAL, 0, 0, 0};

    (void)state;
    for (int i = 0; deed[i]; i++) {
        assert_int_equal(am_start(&m, NULL, "", LIST(deed[i])), 0);
        fill(&m, 0, 16, 5);
        const struct fp_auxw_out_done *d = am_out_done(&m, am_chunk_out(&m, 0, 1, MIB, 0));

        assert_int_equal(d->status, status[i]);
        assert_int_equal(d->npieces, 0);
        assert_int_equal(d->nstages, 0);
        assert_int_equal(m.status->stats[0].errors, 1);
        am_run(&m, 20);
        if (status[i] == 0)
            assert_non_null(strstr(m.log, "stored as it came"));
        am_stop_clean(&m);
    }
}

static void refused_with_eio(struct am *m, const char *const *declared, const char *said)
{
    assert_int_equal(am_start(m, NULL, "", declared), 0);
    fill(m, 0, 16, 5);
    const struct fp_auxw_out_done *d = am_out_done(m, am_chunk_out(m, 0, 1, MIB, 0));

    assert_int_equal(d->status, -EIO);
    assert_int_equal(d->h.len_bytes, sizeof(*d));
    am_wait_log(m, said);
    am_wait_log(m, "not stored, and its write fails: the aux-app is required");
    am_stop_clean(m);
}

/* What costs another aux-app's chunk nothing must not let the chunk of a required one pass. */
static void test_what_is_required_never_lets_a_chunk_pass_as_it_came(void **state)
{
    static struct am m;

    (void)state;
    refused_with_eio(&m, LIST("probe2", "probe do=gap required"), "its pieces do not make up the chunk");
    refused_with_eio(&m, LIST("probe do=verdict required", "probe2"), "17, which is no verdict");
    refused_with_eio(&m, LIST("probe do=bad verify=on required"), "is not undone by chunk_in");
    refused_with_eio(&m, LIST("strict do=bad verify=on"), "is not undone by chunk_in");
    refused_with_eio(&m, LIST("strict do=pass"), "must replace every chunk");
    refused_with_eio(&m, LIST("strict do=pieces"), "must replace every chunk");
    refused_with_eio(&m, LIST("probe do=xor", "probe2 do=xor", "probe3 do=xor", "probe4 do=xor", "probe5 do=xor", "probe6 do=xor",
                  "probe7 do=xor", "many do=xor", "strict do=xor"), "no more than 8 aux-apps");
}

static void test_answers_tell_whom_the_chunk_has_passed(void **state)
{
    static struct am m;

    (void)state;
    assert_int_equal(am_start(&m, NULL, "", LIST("probe do=pass", "probe2 do=verdict", "strict do=xor")), 0);
    assert_int_equal(m.ready.app[0].required, 0);
    assert_int_equal(m.ready.app[2].required, FP_AUXW_REQUIRED | FP_AUXW_REQUIRED_SELF | FP_AUXW_REQUIRED_CODES);
    fill(&m, 0, 16, 5);
    const struct fp_auxw_out_done *d = am_out_done(&m, am_chunk_out(&m, 0, 1, MIB, 0));

    assert_int_equal(d->status, 0);
    assert_int_equal(d->ran, 5);
    assert_string_equal(am_stages(d)->name, "strict");
    am_stop_clean(&m);
    m.bypassed = 4;
    assert_int_equal(am_start(&m, NULL, "", LIST("probe do=pass", "probe2", "strict do=xor")), 0);
    d = am_out_done(&m, am_chunk_out(&m, 0, 1, MIB, 0));
    assert_int_equal(d->ran, 3);
    am_stop_clean(&m);
    m.bypassed = 0;
}

/* fp-mount says that what was referred to is gone. */
static void test_references_are_left_out_when_they_must_be(void **state)
{
    static struct am m;
    uint64_t chunk = 0x100000005;

    (void)state;
    assert_int_equal(am_start(&m, NULL, "", LIST("probe do=pieces", "probe2 do=xor")), 0);
    fill(&m, 0, 16, 7);
    memcpy(m.pool + 8 * 4096, "STOR", 4);
    memcpy(m.pool + 8 * 4096 + 4, &chunk, 8);
    assert_int_equal(am_out_done(&m, am_chunk_out(&m, 0, 1, MIB, 0))->npieces, 3);
    m.out_flags = FP_AUXW_OUT_NO_STORED;
    const struct fp_auxw_out_done *d = am_out_done(&m, am_chunk_out(&m, 0, 1, MIB, 0));

    m.out_flags = 0;
    assert_int_equal(d->status, 0);
    assert_int_equal(d->npieces, 0);
    assert_int_equal(d->new_bytes, MIB);
    assert_int_equal(d->note_bytes, 0);
    assert_int_equal(d->nstages, 1);
    assert_int_equal(d->ran, 3);
    assert_int_equal(m.status->stats[0].errors, 0);
    am_stop_clean(&m);
}

static void test_plugins_from_elsewhere_are_verified(void **state)
{
    static struct am m;
    char path[4300];

    (void)state;
    snprintf(path, sizeof(path), "%s/tests/plugins/probe.so do=bad", am_dir());
    assert_int_equal(am_start(&m, "/nowhere", "", LIST(path)), 0);
    assert_int_equal(am_out_done(&m, am_chunk_out(&m, 0, 1, MIB, 0))->nstages, 0);
    am_wait_log(&m, "what chunk_out wrote is not undone by chunk_in");
    am_stop_clean(&m);
    assert_int_equal(am_start(&m, NULL, "", LIST("probe do=bad")), 0);
    assert_int_equal(am_out_done(&m, am_chunk_out(&m, 0, 1, MIB, 0))->nstages, 1);
    am_stop_clean(&m);
}

static void test_log_lines_are_bounded(void **state)
{
    static struct am m;
    uint32_t lines = 0;

    (void)state;
    assert_int_equal(am_start(&m, NULL, "", LIST("probe do=verdict")), 0);
    for (int i = 0; i < 200; i++)
        assert_int_equal(am_out_done(&m, am_chunk_out(&m, 0, 1, 4096, 0))->status, 0);
    am_run(&m, 50);
    for (const char *s = m.log; (s = strstr(s, "which is no verdict")); s++)
        lines++;
    assert_in_range(lines, 10, 40);
    assert_int_equal(m.status->stats[0].errors, 200);
    am_stop_clean(&m);
}

static void test_too_many_pieces_are_refused(void **state)
{
    static struct am m;

    (void)state;
    assert_int_equal(am_start(&m, NULL, "", LIST("probe do=many")), 0);
    const struct fp_auxw_out_done *d = am_out_done(&m, am_chunk_out(&m, 0, 1, MIB, 0));

    assert_int_equal(d->status, -ENOSPC);
    d = am_out_done(&m, am_chunk_out(&m, 0, 1, 64 * 4096, 0));
    assert_int_equal(d->status, 0);
    assert_int_equal(d->npieces, 64);
    am_stop_clean(&m);
}

static void test_refusal_names_the_aux_app(void **state)
{
    static struct am m;

    (void)state;
    assert_int_equal(am_start(&m, NULL, "", LIST("probe", "probe2 do=refuse", "probe3")), 0);
    m.pool[0] = 'E';
    m.pool[AM_PAGE] = 'F';
    uint64_t id = am_chunk_out(&m, 0, 1, 5000, 0), good = am_chunk_out(&m, 1, 1, 5000, 1);
    const struct fp_auxw_out_done *d = am_out_done(&m, id);

    assert_int_equal(d->status, -EDQUOT);
    assert_int_equal(d->app, 1);
    d = am_out_done(&m, good);
    assert_int_equal(d->status, 0);
    assert_int_equal(m.status->stats[2].chunks, 1);
    am_stop_clean(&m);
}

static void test_foreign_pages_and_buffers_are_refused(void **state)
{
    static struct am m;
    struct fp_auxw_chunk_out j = {.len_bytes = 1000, .npages = 1, .out_a = 0, .out_b = AM_SLOT, .out_cap_bytes = AM_SLOT};
    uint32_t page = AM_POOL_PAGES;

    (void)state;
    assert_int_equal(am_start(&m, NULL, "", LIST("probe")), 0);
    am_send(&m, &j, FP_AUXW_CHUNK_OUT, 1000, sizeof(j), &page, 4, NULL, 0);
    assert_int_equal(am_out_done(&m, 1000)->status, -EINVAL);
    page = 0;
    j.out_b = (uint64_t)AM_SLOT * AM_SLOTS - 4096;
    am_send(&m, &j, FP_AUXW_CHUNK_OUT, 1001, sizeof(j), &page, 4, NULL, 0);
    assert_int_equal(am_out_done(&m, 1001)->status, -EINVAL);
    j.out_b = AM_SLOT;
    am_send(&m, &j, FP_AUXW_CHUNK_OUT, 1002, sizeof(j), &page, 4, NULL, 0);
    assert_int_equal(am_out_done(&m, 1002)->status, 0);
    am_stop_clean(&m);
}

/* -------------------------------------------------------------- chunks in */

static void test_damaged_and_missing_decoders(void **state)
{
    static struct am m;
    struct fp_auxw_stage s = {.name = "probe", .in_bytes = 100, .out_bytes = 101};

    (void)state;
    assert_int_equal(am_start(&m, NULL, "", NULL), 0);
    memset(am_slot(&m, 0), 'x', 200);
    assert_int_equal(am_done(&m, am_chunk_in(&m, 0, &s, 1, 101), NULL), 0);        /* loaded by name */
    am_wait_log(&m, "aux-app 'probe' is loaded to read");
    s.in_bytes = 99;
    assert_int_equal(am_done(&m, am_chunk_in(&m, 0, &s, 1, 101), NULL), -EILSEQ);  /* the plugin finds it damaged */
    assert_int_equal(am_done(&m, am_chunk_in(&m, 0, &s, 1, 77), NULL), -EILSEQ);   /* lengths do not fit */
    memcpy(s.name, "nobody", 7);
    assert_int_equal(am_done(&m, am_chunk_in(&m, 0, &s, 1, 101), NULL), -ENOPKG);
    am_wait_log(&m, "aux-app 'nobody' is needed to read what it has coded: there is no aux-app 'nobody' in");
    memcpy(s.name, "../x", 5);
    assert_int_equal(am_done(&m, am_chunk_in(&m, 0, &s, 1, 101), NULL), -EILSEQ);
    am_stop_clean(&m);
}

static void test_a_bypassed_aux_app_decodes_and_no_more(void **state)
{
    static struct am m = {.bypassed = 2 | 4};
    struct fp_auxw_stage s = {.name = "probe2", .in_bytes = 100, .out_bytes = 101};
    char path[4300], first[4300];

    (void)state;
    snprintf(path, sizeof(path), "%s/tests/plugins/probe2.so do=xor", am_dir());
    snprintf(first, sizeof(first), "%s/tests/plugins/probe.so do=xor", am_dir());
    assert_int_equal(am_start(&m, "/nowhere", "", LIST(first, path, "/nowhere/x.so")), 0);
    assert_int_equal(m.ready.app[1].has, FP_AUXW_HAS_IN);
    assert_int_equal(m.ready.app[1].io_flags[FP_AUX_OP_UNLINK], 0);
    assert_string_equal(m.ready.app[2].name, "");
    am_wait_log(&m, "what it has coded can't be read: /nowhere/x.so");
    fill(&m, 0, 16, 5);
    const struct fp_auxw_out_done *d = am_out_done(&m, am_chunk_out(&m, 0, 1, MIB, 0));

    assert_int_equal(d->nstages, 1);
    assert_string_equal(am_stages(d)->name, "probe");
    memset(am_slot(&m, 0), 'x', 101);
    assert_int_equal(am_done(&m, am_chunk_in(&m, 0, &s, 1, 101), NULL), 0);
    am_stop_clean(&m);
}

/* -------------------------------------------------------------- declarations */

static void refused(const char *declared, const char *second, const char *want)
{
    static struct am m;
    const char *list[] = {declared, second, NULL};

    assert_int_equal(am_start(&m, NULL, "", list), -1);
    if (!strstr(m.failed, want))
        fail_msg("'%s' gives '%s', not '%s'", declared, m.failed, want);
    assert_int_equal(m.failed_app, second ? 1 : 0);
    am_stop_clean(&m);
}

static void test_wrong_declarations_are_told_in_a_line(void **state)
{
    (void)state;
    refused("prob", NULL, "did you mean 'probe'?");
    refused("probe levle=3", NULL, "probe has no option 'levle': did you mean 'level'?");
    refused("probe qeue=3", NULL, "did you mean 'queue'?");
    refused("probe zzzzzz=3", NULL, "probe has no option 'zzzzzz': there are do, key,");
    refused("probe level=23", NULL, "probe: level=23: give a number from 1 to 22");
    refused("probe level=x", NULL, "not a whole number");
    refused("probe block=1", NULL, "give a size from 4KiB to 1MiB");
    refused("probe block=64K", NULL, "unknown unit");
    refused("probe do=pasz", NULL, "did you mean 'pass'?");
    refused("probe level=3 level=4", NULL, "'level' is given twice");
    refused("probe cores=3-1", NULL, "cores=3-1: give a number of cores");
    refused("probe deadline=5", NULL, "deadline=5: give a time");
    refused("probe level", NULL, "probe: 'level' has no value: write level=VALUE");
    refused("probe required=yes", NULL, "required=yes: give no value, the word alone");
    refused("probe queue", NULL, "probe: queue: give how many chunks may wait");
    refused("probe key=\"a", NULL, "a double quote is not closed");
    refused("probe do=nostart", NULL, "aux-app probe does not start: there is no key under the mat");
    refused("probe", "probe key=x", "aux-app probe is declared twice");
    refused("/nowhere/x.so", NULL, "/nowhere/x.so: No such file or directory");
    refused("  ", NULL, "say first the name of an aux-app");
}

static void test_plugins_that_will_not_do_are_told_in_a_line(void **state)
{
    static struct am m;
    char path[4300];

    (void)state;
    refused("future", NULL, "future.so was not built for ABI 1 of aux-apps");
    refused("misnamed", NULL, "calls itself 'other': its file must be other.so");
    refused("coder", NULL, "says FP_AUX_CODES and has no chunk_in");
    snprintf(path, sizeof(path), "%s/bin/fp-auxhost", am_dir());
    refused(path, NULL, "fp-auxhost: ");   /* what the loader says of a program */
    refused("libm.so.6", NULL, "is no name of an aux-app");
    snprintf(path, sizeof(path), "%s/tests/plugins/misnamed.so", am_dir());
    assert_int_equal(am_start(&m, NULL, "", LIST(path)), 0);       /* by its path it may */
    assert_string_equal(m.ready.app[0].name, "other");
    am_stop_clean(&m);
}

static void test_a_plugin_of_an_older_header_works(void **state)
{
    static struct am m;

    (void)state;
    assert_int_equal(am_start(&m, NULL, "", LIST("older do=xor")), 0);
    assert_int_equal(m.ready.app[0].io_flags[FP_AUX_OP_UNLINK], 0);
    assert_int_equal(am_out_done(&m, am_chunk_out(&m, 0, 1, MIB, 0))->nstages, 1);
    am_stop_clean(&m);
}

static void test_words_of_the_host_reach_the_mount(void **state)
{
    static struct am m;
    char path[4300];

    (void)state;
    snprintf(path, sizeof(path), "%s/tests/plugins/probe2.so deadline=3s failures=9 required key=\"two words\"", am_dir());
    assert_int_equal(am_start(&m, "/nowhere", "", LIST(path)), 0);
    assert_string_equal(m.ready.app[0].name, "probe2");
    assert_int_equal(m.ready.app[0].deadline_ms, 3000);
    assert_int_equal(m.ready.app[0].failures_max, 9);
    assert_int_equal(m.ready.app[0].required, 1);
    am_stop_clean(&m);
}

/* The answer to a change that is refused says why; what is in the log is not seen by who has asked. */
static void change_refused(struct am *m, const char *change, int status, const char *why)
{
    struct am_answer *a = am_take(m, am_change(m, 1, change), AM_WAIT_MS);
    char text[1024];

    assert_non_null(a);
    assert_int_equal(((const struct fp_auxw_done *)(const void *)a->buf)->status, status);
    assert_in_range(a->len, sizeof(struct fp_auxw_done), sizeof(struct fp_auxw_done) + sizeof(text) - 1);
    snprintf(text, sizeof(text), "%.*s", (int)(a->len - sizeof(struct fp_auxw_done)), (const char *)a->buf + sizeof(struct fp_auxw_done));
    if (!strstr(text, why))
        fail_msg("%s: '%s' is not in '%s'", change, why, text);
    free(a);
}

static void test_a_refused_change_says_why(void **state)
{
    static struct am m;

    (void)state;
    assert_int_equal(am_start(&m, NULL, "", LIST("probe", "probe2")), 0);
    change_refused(&m, "level=99", -EINVAL, "level=99: give a number from 1 to 22");
    change_refused(&m, "level=13", -EINVAL, "probe2: level=13 is refused by it: 13 is one too many");
    change_refused(&m, "level=17", -EDOM, "probe2: level=17 is refused by it: Numerical argument out of domain");
    change_refused(&m, "cores=0", -EINVAL, "cores=0: give a number of cores");
    change_refused(&m, "nonsense", -EINVAL, "give NAME=VALUE");
    assert_int_equal(am_done(&m, am_change(&m, 1, "level=4"), NULL), 0);
    am_stop_clean(&m);
}

static void test_options_change_while_running(void **state)
{
    static struct am m;

    (void)state;
    assert_int_equal(am_start(&m, NULL, "", LIST("probe level=3", "probe2 do=spin us=2000")), 0);
    for (uint32_t i = 0; i < 8; i++)
        am_chunk_out(&m, 0, 1, 100, i);
    assert_int_equal(am_done(&m, am_change(&m, 1, "level=4"), NULL), 0);
    am_wait_log(&m, "level is 4");
    assert_null(strstr(m.log, "configure beside chunk_out"));
    assert_int_equal(am_done(&m, am_change(&m, 1, "level=13"), NULL), -EINVAL);
    am_wait_log(&m, "level=13 is refused by it");
    assert_int_equal(am_done(&m, am_change(&m, 1, "key=x"), NULL), -EPERM);
    assert_int_equal(am_done(&m, am_change(&m, 1, "failures=2"), NULL), -EPERM);
    assert_int_equal(am_done(&m, am_change(&m, 1, "deadline=200ms"), NULL), 0);
    assert_int_equal(am_done(&m, am_change(&m, 1, "nonsense"), NULL), -EINVAL);
    assert_int_equal(am_done(&m, am_change(&m, 5, "level=4"), NULL), -ENOENT);
    for (uint64_t id = 2; id < 10; id++)
        assert_int_equal(am_out_done(&m, id)->status, 0);
    am_stop_clean(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pass_leaves_the_pages),
        cmocka_unit_test(test_replaced_chunks_come_back),
        cmocka_unit_test(test_pieces_are_told_and_new_ones_packed_for_the_next),
        cmocka_unit_test(test_nothing_new_ends_the_chain),
        cmocka_unit_test(test_two_deduplications_are_composed),
        cmocka_unit_test(test_pieces_say_whose_they_are_and_what_is_doubted),
        cmocka_unit_test(test_without_pieces_all_is_new),
        cmocka_unit_test(test_wrong_verdicts_cost_no_data),
        cmocka_unit_test(test_what_is_required_never_lets_a_chunk_pass_as_it_came),
        cmocka_unit_test(test_answers_tell_whom_the_chunk_has_passed),
        cmocka_unit_test(test_references_are_left_out_when_they_must_be),
        cmocka_unit_test(test_plugins_from_elsewhere_are_verified),
        cmocka_unit_test(test_log_lines_are_bounded),
        cmocka_unit_test(test_too_many_pieces_are_refused),
        cmocka_unit_test(test_refusal_names_the_aux_app),
        cmocka_unit_test(test_foreign_pages_and_buffers_are_refused),
        cmocka_unit_test(test_damaged_and_missing_decoders),
        cmocka_unit_test(test_a_bypassed_aux_app_decodes_and_no_more),
        cmocka_unit_test(test_wrong_declarations_are_told_in_a_line),
        cmocka_unit_test(test_plugins_that_will_not_do_are_told_in_a_line),
        cmocka_unit_test(test_a_plugin_of_an_older_header_works),
        cmocka_unit_test(test_words_of_the_host_reach_the_mount),
        cmocka_unit_test(test_options_change_while_running),
        cmocka_unit_test(test_a_refused_change_says_why),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
