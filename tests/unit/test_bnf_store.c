/*
 * The benefactor's store against a model: random leases, records, remote writes, deletions, lost connections
 * and failing disk operations, finished in random order, checked after every step. The model is a device of
 * one byte per page: what an operation allocates or punches, what a writer writes. When everything has come
 * to rest the device must hold exactly the records of the index, and the counts must add up to the capacity
 * at every step.
 *
 * FP_SEED=n replays a run, FP_STEPS=n makes it longer.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "benefactor/store.h"
#include "fp/err.h"

#define MIB     ((uint64_t)1 << 20)
#define PAGE    4096u
#define SEG     (64 * MIB)
#define SEGS    4096
#define PAGES   (SEG / PAGE)
#define OPS_MAX 65536

static uint64_t rng;

static uint64_t rnd(uint64_t below)
{
    rng ^= rng << 13;
    rng ^= rng >> 7;
    rng ^= rng << 17;
    return rng % below;
}

/* ---------------------------------------------------------------- the model of a device */

static uint8_t *device[SEGS]; /* by segment id; one byte per page: 1 = takes space */
static struct bnf_op *under_way[OPS_MAX];
static unsigned nunder_way;

static void device_reset(void)
{
    for (unsigned i = 0; i < SEGS; i++) {
        free(device[i]);
        device[i] = NULL;
    }
    nunder_way = 0;
}

static uint64_t device_pages(void)
{
    uint64_t n = 0;

    for (unsigned i = 0; i < SEGS; i++)
        for (uint64_t p = 1; device[i] && p < PAGES; p++)
            n += device[i][p];
    return n;
}

static void set_pages(uint64_t segment, uint64_t off, uint64_t len, uint8_t value)
{
    assert_true(segment < SEGS && off % PAGE == 0 && len % PAGE == 0 && off >= PAGE && off + len <= SEG);
    assert_non_null(device[segment]);
    memset(device[segment] + off / PAGE, value, len / PAGE);
}

static int run_op(const struct bnf_op *op, bool fail)
{
    switch (op->kind) {
    case BNF_OP_CREATE:
        assert_true(op->segment < SEGS);
        assert_null(device[op->segment]);
        if (fail)
            return -EIO;
        device[op->segment] = calloc(PAGES, 1);
        return 0;
    case BNF_OP_ALLOC:
        if (fail)
            return -ENOSPC;
        set_pages(op->segment, op->off_bytes, op->len_bytes, 1);
        return 0;
    case BNF_OP_PUNCH:
        if (device[op->segment])
            set_pages(op->segment, op->off_bytes, op->len_bytes, 0);
        return 0;
    case BNF_OP_UNLINK:
        free(device[op->segment]);
        device[op->segment] = NULL;
        return 0;
    }
    return -EINVAL;
}

static void pop_all(struct bnf_store *s)
{
    struct bnf_op *op;

    while ((op = bnf_store_pop_op(s))) {
        assert_true(nunder_way < OPS_MAX);
        under_way[nunder_way++] = op;
    }
}

static void finish_one(struct bnf_store *s, unsigned fail_percent)
{
    unsigned i;
    struct bnf_op *op;

    pop_all(s);
    if (nunder_way == 0)
        return;
    i = (unsigned)rnd(nunder_way);
    op = under_way[i];
    under_way[i] = under_way[--nunder_way];
    bnf_store_op_done(s, op, run_op(op, rnd(100) < fail_percent));
}

static void finish_all(struct bnf_store *s)
{
    do
        finish_one(s, 0), pop_all(s);
    while (nunder_way);
}

static struct bnf_store *store_new(uint64_t capacity)
{
    struct bnf_store_config config = {.capacity_bytes = capacity, .segment_bytes = SEG, .salt_seed = 1};
    struct bnf_store *s;

    device_reset();
    assert_int_equal(bnf_store_new(&config, &s), 0);
    assert_int_equal(bnf_store_start(s), 0);
    finish_all(s);
    return s;
}

static void store_end(struct bnf_store *s)
{
    for (unsigned i = 0; i < nunder_way; i++)
        free(under_way[i]);
    bnf_store_free(s);
    device_reset();
}

static void check_space(const struct bnf_store *s)
{
    struct bnf_space sp;

    bnf_store_check(s);
    bnf_store_space(s, &sp);
    assert_int_equal(sp.used_bytes + sp.leased_bytes + sp.free_bytes, sp.capacity_bytes);
}

static uint64_t lease_now(struct bnf_store *s, uint64_t owner, bool local, uint64_t want, uint64_t min,
                          struct bnf_extent *ext)
{
    struct bnf_event ev;

    assert_int_equal(bnf_store_lease(s, owner, local, want, min, 77), 0);
    finish_all(s);
    assert_true(bnf_store_pop_event(s, &ev));
    assert_int_equal(ev.tag, 77);
    assert_int_equal(ev.status, 0);
    assert_true(bnf_store_lease_extent(s, ev.lease, ext));
    return ev.lease;
}

static struct bnf_stored rec(uint64_t chunk, const struct bnf_extent *ext, uint64_t at, uint32_t len)
{
    return (struct bnf_stored){.chunk = chunk,
                               .segment = ext->segment,
                               .off_bytes = ext->off_bytes + at,
                               .stored_bytes = fp_record_size_bytes(len),
                               .len_bytes = len,
                               .sum = chunk * 3};
}

static struct bnf_space space_of(const struct bnf_store *s)
{
    struct bnf_space sp;

    bnf_store_space(s, &sp);
    return sp;
}

/* ---------------------------------------------------------------- one behaviour each */

static void test_store_lease_moves_free_to_leased_to_used(void **state)
{
    struct bnf_store *s = store_new(1024 * MIB);
    struct bnf_extent ext;
    struct bnf_stored r[2];
    uint64_t lease = lease_now(s, 1, true, 64 * MIB - 4096, MIB, &ext);

    (void)state;
    assert_int_equal(ext.len_bytes, 64 * MIB - 4096);
    assert_int_equal(space_of(s).leased_bytes, ext.len_bytes);
    r[0] = rec(10, &ext, 0, MIB);
    r[1] = rec(11, &ext, 2 * MIB, 100);
    assert_int_equal(bnf_store_stored(s, 1, lease, r, 2), 0);
    check_space(s);
    assert_int_equal(space_of(s).used_bytes, MIB + 4096 + 8192);
    assert_int_equal(bnf_store_lease_return(s, 1, lease, 0), 0);
    check_space(s);
    finish_all(s);
    assert_int_equal(space_of(s).leased_bytes, 0);
    assert_int_equal(space_of(s).free_bytes, 1024 * MIB - (MIB + 4096 + 8192));
    assert_int_equal(device_pages(), 257 + 2);
    store_end(s);
}

static void test_store_lease_is_a_quarter_of_free_or_min(void **state)
{
    struct bnf_store *s = store_new(64 * MIB);
    struct bnf_extent ext;

    (void)state;
    lease_now(s, 1, true, 60 * MIB, MIB, &ext);
    assert_int_equal(ext.len_bytes, 16 * MIB);
    lease_now(s, 1, true, 60 * MIB, 30 * MIB, &ext);
    assert_int_equal(ext.len_bytes, 30 * MIB);
    assert_int_equal(bnf_store_lease(s, 1, true, 60 * MIB, 20 * MIB, 0), -ENOSPC);
    bnf_store_set_device_free(s, 2 * MIB);
    assert_int_equal(bnf_store_lease(s, 1, true, 60 * MIB, 3 * MIB, 0), -ENOSPC);
    lease_now(s, 1, true, 60 * MIB, 2 * MIB, &ext);
    assert_int_equal(ext.len_bytes, 2 * MIB);
    assert_int_equal(bnf_store_lease(s, 1, true, MIB, 2 * MIB, 0), -EINVAL);
    assert_int_equal(bnf_store_lease(s, 1, true, 100 * MIB, 64 * MIB, 0), -EINVAL);
    assert_int_equal(bnf_store_lease(s, 1, true, 0, 0, 0), -EINVAL);
    check_space(s);
    store_end(s);
}

static void test_store_refuses_records_outside_the_lease(void **state)
{
    struct bnf_store *s = store_new(1024 * MIB);
    struct bnf_extent ext;
    struct bnf_stored good, r;
    uint64_t lease;

    (void)state;
    lease_now(s, 1, true, 8 * MIB, MIB, &ext);
    lease = lease_now(s, 1, true, 8 * MIB, MIB, &ext);
    good = rec(5, &ext, 4096, MIB);
    r = good, r.off_bytes = ext.off_bytes - 4096;
    assert_int_equal(bnf_store_stored(s, 1, lease, &r, 1), -EINVAL);
    r = good, r.off_bytes = ext.off_bytes + ext.len_bytes - MIB;
    assert_int_equal(bnf_store_stored(s, 1, lease, &r, 1), -EINVAL);
    r = good, r.off_bytes += 512;
    assert_int_equal(bnf_store_stored(s, 1, lease, &r, 1), -EINVAL);
    r = good, r.off_bytes = UINT64_MAX - 4095;
    assert_int_equal(bnf_store_stored(s, 1, lease, &r, 1), -EINVAL);
    r = good, r.segment++;
    assert_int_equal(bnf_store_stored(s, 1, lease, &r, 1), -EINVAL);
    r = good, r.stored_bytes = 4096;
    assert_int_equal(bnf_store_stored(s, 1, lease, &r, 1), -EINVAL);
    r = good, r.len_bytes = FP_CHUNK_MAX_BYTES + 1;
    assert_int_equal(bnf_store_stored(s, 1, lease, &r, 1), -EINVAL);
    assert_int_equal(bnf_store_stored(s, 2, lease, &good, 1), FP_ELEASE);
    assert_int_equal(bnf_store_stored(s, 1, lease + 1, &good, 1), FP_ELEASE);
    assert_int_equal(space_of(s).chunks, 0);
    assert_int_equal(bnf_store_stored(s, 1, lease, &good, 1), 0);
    check_space(s);
    store_end(s);
}

static void test_store_overlap_refuses_the_whole_message(void **state)
{
    struct bnf_store *s = store_new(1024 * MIB);
    struct bnf_extent ext;
    struct bnf_stored r[3];
    uint64_t lease = lease_now(s, 1, true, 8 * MIB, MIB, &ext);

    (void)state;
    r[0] = rec(1, &ext, 0, 4096);
    r[1] = rec(2, &ext, 8192, 4096);
    r[2] = rec(3, &ext, 12288, 4096);
    assert_int_equal(bnf_store_stored(s, 1, lease, r, 3), -EINVAL);
    check_space(s);
    assert_int_equal(space_of(s).chunks, 0);
    assert_int_equal(bnf_store_stored(s, 1, lease, r, 2), 0);
    assert_int_equal(bnf_store_stored(s, 1, lease, r, 2), 0); /* said twice */
    assert_int_equal(bnf_store_stored(s, 1, lease, r, 3), -EINVAL);
    check_space(s);
    assert_int_equal(space_of(s).chunks, 2);
    store_end(s);
}

static void test_store_second_copy_of_a_chunk_is_dropped(void **state)
{
    struct bnf_store *s = store_new(1024 * MIB);
    struct bnf_extent ext;
    struct bnf_stored r;
    struct bnf_place at;
    uint64_t lease = lease_now(s, 1, true, 8 * MIB, MIB, &ext);

    (void)state;
    r = rec(1, &ext, 0, MIB);
    assert_int_equal(bnf_store_stored(s, 1, lease, &r, 1), 0);
    r = rec(1, &ext, 4 * MIB, MIB);
    assert_int_equal(bnf_store_stored(s, 1, lease, &r, 1), 0);
    check_space(s);
    finish_all(s);
    assert_int_equal(bnf_store_find(s, 1, &at), 0);
    assert_int_equal(at.off_bytes, ext.off_bytes);
    assert_int_equal(space_of(s).used_bytes, MIB + 4096);
    assert_int_equal(device[ext.segment][(ext.off_bytes + 4 * MIB) / PAGE], 0);
    store_end(s);
}

static void test_store_new_copy_replaces_what_recovery_found(void **state)
{
    struct bnf_store_config config = {.capacity_bytes = 1024 * MIB, .segment_bytes = SEG};
    struct bnf_place old = {.off_bytes = 4096, .stored_bytes = 8192, .len_bytes = 10, .sum = 1}, at;
    struct bnf_store *s;
    struct bnf_extent ext;
    struct bnf_stored r;
    uint64_t lease;

    (void)state;
    device_reset();
    assert_int_equal(bnf_store_new(&config, &s), 0);
    assert_int_equal(bnf_store_add_segment(s, 3, 9, SEG, &old.slot), 0);
    assert_int_equal(bnf_store_add_record(s, 1, &old, &at), 0);
    assert_int_equal(bnf_store_add_record(s, 1, &old, &at), -EEXIST);
    device[3] = calloc(PAGES, 1);
    device[3][1] = device[3][2] = 1;
    assert_int_equal(bnf_store_start(s), 0);
    lease = lease_now(s, 1, true, 8 * MIB, MIB, &ext);
    assert_true(ext.segment > 3);
    r = rec(1, &ext, 0, MIB);
    assert_int_equal(bnf_store_stored(s, 1, lease, &r, 1), 0);
    check_space(s);
    finish_all(s);
    assert_int_equal(bnf_store_find(s, 1, &at), 0);
    assert_int_equal(at.segment, ext.segment);
    assert_null(device[3]); /* nothing left in it */
    store_end(s);
}

static void test_store_lost_owner_gives_everything_back(void **state)
{
    struct bnf_store *s = store_new(512 * MIB);
    struct bnf_extent ext;
    struct bnf_event ev;
    struct bnf_stored r;
    uint64_t lease = lease_now(s, 1, true, 32 * MIB, MIB, &ext);

    (void)state;
    r = rec(1, &ext, 16 * MIB, MIB);
    assert_int_equal(bnf_store_stored(s, 1, lease, &r, 1), 0);
    assert_int_equal(bnf_store_lease(s, 1, true, 32 * MIB, MIB, 5), 0); /* under way */
    bnf_store_owner_gone(s, 1);
    check_space(s);
    finish_all(s);
    check_space(s);
    assert_true(bnf_store_pop_event(s, &ev));
    assert_int_equal(ev.status, -ECANCELED);
    assert_int_equal(space_of(s).leased_bytes, 0);
    assert_int_equal(device_pages(), 257);
    assert_int_equal(bnf_store_stored(s, 1, lease, &r, 1), FP_ELEASE);
    store_end(s);
}

static void test_store_failed_allocation_is_told_and_given_back(void **state)
{
    struct bnf_store *s = store_new(512 * MIB);
    struct bnf_event ev;

    (void)state;
    assert_int_equal(bnf_store_lease(s, 1, true, 32 * MIB, MIB, 5), 0);
    for (int i = 0; i < 3; i++) /* the next segment may be under way as well */
        finish_one(s, 100);
    check_space(s);
    assert_true(bnf_store_pop_event(s, &ev));
    assert_int_equal(ev.status, -ENOSPC);
    finish_all(s);
    assert_int_equal(space_of(s).free_bytes, 512 * MIB);
    store_end(s);
}

static void test_store_failed_segment_fails_its_leases(void **state)
{
    struct bnf_store_config config = {.capacity_bytes = 512 * MIB, .segment_bytes = SEG};
    struct bnf_store *s;
    struct bnf_event ev;
    struct bnf_extent ext;

    (void)state;
    device_reset();
    assert_int_equal(bnf_store_new(&config, &s), 0);
    assert_int_equal(bnf_store_start(s), 0);
    assert_int_equal(bnf_store_lease(s, 1, true, 8 * MIB, MIB, 5), 0);
    assert_int_equal(bnf_store_lease(s, 2, false, 8 * MIB, MIB, 6), 0);
    finish_one(s, 100);
    check_space(s);
    assert_true(bnf_store_pop_event(s, &ev));
    assert_int_equal(ev.status, -EIO);
    assert_true(bnf_store_pop_event(s, &ev));
    assert_int_equal(ev.status, -EIO);
    finish_all(s);
    assert_int_equal(space_of(s).free_bytes, 512 * MIB);
    lease_now(s, 1, true, 8 * MIB, MIB, &ext); /* goes on in another segment */
    store_end(s);
}

static void test_store_remote_lease_counts_down(void **state)
{
    struct bnf_store *s = store_new(512 * MIB);
    struct bnf_place a, b, c;
    struct bnf_extent ext;
    uint64_t lease = lease_now(s, 9, false, 3 * (MIB + 4096), MIB + 4096, &ext);

    (void)state;
    assert_int_equal(bnf_store_write_begin(s, 9, lease, 1, MIB, &a), 0);
    assert_int_equal(bnf_store_write_begin(s, 9, lease, 2, MIB, &b), 0);
    assert_int_equal(b.off_bytes, a.off_bytes + MIB + 4096);
    check_space(s);
    assert_int_equal(bnf_store_write_end(s, lease, 1, &a, 0), 0);
    assert_int_equal(bnf_store_write_end(s, lease, 2, &b, -EIO), -EIO);
    check_space(s);
    assert_int_equal(bnf_store_write_begin(s, 9, lease, 1, MIB, &c), -EEXIST);
    assert_int_equal(bnf_store_write_begin(s, 8, lease, 3, MIB, &c), FP_ELEASE);
    assert_int_equal(bnf_store_write_begin(s, 9, lease, 3, MIB, &c), 0);
    assert_int_equal(bnf_store_write_begin(s, 9, lease, 4, 1, &b), -ENOSPC);
    bnf_store_owner_gone(s, 9);
    check_space(s);
    assert_int_equal(bnf_store_write_end(s, lease, 3, &c, 0), 0);
    finish_all(s);
    check_space(s);
    assert_int_equal(space_of(s).used_bytes, 2 * (MIB + 4096));
    assert_int_equal(device_pages(), 2 * 257);
    store_end(s);
}

static void test_store_remote_lease_is_returned_in_parts(void **state)
{
    struct bnf_store *s = store_new(512 * MIB);
    struct bnf_extent ext;
    struct bnf_place at;
    uint64_t lease = lease_now(s, 9, false, 10 * MIB, MIB, &ext);

    (void)state;
    assert_int_equal(bnf_store_lease_return(s, 9, lease, 4 * MIB), 0);
    finish_all(s);
    assert_int_equal(space_of(s).leased_bytes, 6 * MIB);
    assert_int_equal(device_pages(), 6 * 256);
    assert_int_equal(bnf_store_write_begin(s, 9, lease, 1, 6 * MIB, &at), -ENOSPC);
    assert_int_equal(bnf_store_write_begin(s, 9, lease, 1, 6 * MIB - 4096, &at), 0);
    assert_int_equal(bnf_store_write_end(s, lease, 1, &at, 0), 0);
    assert_int_equal(bnf_store_lease_return(s, 9, lease, UINT64_MAX), 0);
    assert_int_equal(bnf_store_lease_return(s, 9, lease, 1), FP_ELEASE);
    check_space(s);
    store_end(s);
}

static void test_store_delete_merges_holes_and_tells_when_done(void **state)
{
    struct bnf_store *s = store_new(512 * MIB);
    struct bnf_extent ext;
    struct bnf_stored r[8];
    struct bnf_event ev;
    uint64_t ids[10] = {3, 7, 0, 5, 1, 4, 999, 2, 6, 3}, lease = lease_now(s, 1, true, 16 * MIB, MIB, &ext);

    (void)state;
    for (unsigned i = 0; i < 8; i++)
        r[i] = rec(i, &ext, i * (MIB + 4096), MIB);
    assert_int_equal(bnf_store_stored(s, 1, lease, r, 8), 0);
    assert_int_equal(bnf_store_delete(s, ids, 10, 42), 0);
    check_space(s);
    pop_all(s);
    assert_int_equal(nunder_way, 1);
    assert_false(bnf_store_pop_event(s, &ev));
    finish_all(s);
    assert_true(bnf_store_pop_event(s, &ev));
    assert_int_equal(ev.tag, 42);
    assert_int_equal(space_of(s).used_bytes, 0);
    assert_int_equal(bnf_store_delete(s, ids, 10, 43), 0);
    assert_true(bnf_store_pop_event(s, &ev)); /* nothing to wait for */
    store_end(s);
}

static void test_store_empty_segment_is_unlinked(void **state)
{
    struct bnf_store *s = store_new(1024 * MIB);
    struct bnf_extent a, b;
    struct bnf_stored r;
    uint64_t id = 1, lease = lease_now(s, 1, true, 60 * MIB, MIB, &a);

    (void)state;
    r = rec(1, &a, 0, MIB);
    assert_int_equal(bnf_store_stored(s, 1, lease, &r, 1), 0);
    lease_now(s, 1, true, 60 * MIB, MIB, &b);
    assert_true(b.segment != a.segment);
    assert_int_equal(bnf_store_lease_return(s, 1, lease, 0), 0);
    finish_all(s);
    assert_non_null(device[a.segment]);
    assert_int_equal(bnf_store_delete(s, &id, 1, 1), 0);
    pop_all(s);
    assert_int_equal(nunder_way, 1);
    assert_int_equal(under_way[0]->kind, BNF_OP_UNLINK);
    finish_all(s);
    assert_null(device[a.segment]);
    check_space(s);
    store_end(s);
}

static void test_store_inventory_is_ascending_and_whole(void **state)
{
    struct bnf_store *s = store_new(512 * MIB);
    struct bnf_extent ext;
    uint64_t lease = lease_now(s, 1, true, 60 * MIB, MIB, &ext), out[100], after = 0, seen = 0;
    bool eof = false;

    (void)state;
    for (uint64_t i = 0; i < 1000; i++) {
        struct bnf_stored r = rec((i * 7919 + 1) % 1000 + 1, &ext, i * 8192, 10);

        assert_int_equal(bnf_store_stored(s, 1, lease, &r, 1), 0);
    }
    while (!eof) {
        size_t n = bnf_store_inventory(s, after, out, 70, &eof);

        for (size_t i = 0; i < n; i++)
            assert_int_equal(out[i], ++after);
        seen += n;
    }
    assert_int_equal(seen, 1000);
    assert_int_equal(bnf_store_inventory(s, 1000, out, 70, &eof), 0);
    assert_true(eof);
    assert_int_equal(bnf_store_inventory(s, 930, out, 70, &eof), 70);
    assert_true(eof);
    assert_int_equal(bnf_store_inventory(s, 929, out, 70, &eof), 70);
    assert_false(eof);
    store_end(s);
}

static void test_store_dirty_segments_are_told_once(void **state)
{
    struct bnf_store *s = store_new(512 * MIB);
    struct bnf_extent ext;
    struct bnf_stored r;
    uint32_t slots[4];
    uint64_t lease = lease_now(s, 1, true, 8 * MIB, MIB, &ext);

    (void)state;
    assert_int_equal(bnf_store_take_dirty(s, slots, 4), 0);
    r = rec(1, &ext, 0, MIB);
    assert_int_equal(bnf_store_stored(s, 1, lease, &r, 1), 0);
    assert_int_equal(bnf_store_take_dirty(s, slots, 0), 1);
    assert_int_equal(bnf_store_take_dirty(s, slots, 4), 1);
    assert_int_equal(slots[0], ext.slot);
    assert_int_equal(bnf_store_take_dirty(s, slots, 4), 0);
    bnf_store_mark_dirty(s, slots[0]);
    assert_int_equal(bnf_store_take_dirty(s, slots, 4), 1);
    store_end(s);
}

static void test_store_knows_no_lease_of_an_earlier_run(void **state)
{
    struct bnf_extent ext, ext2;
    struct bnf_stored r;
    uint64_t lease[2];

    (void)state;
    for (unsigned i = 0; i < 2; i++) { /* an empty store each time, as one in memory: all numbers begin anew */
        const struct bnf_store_config config = {512 * MIB, SEG, i + 1};
        struct bnf_store *s;

        device_reset();
        assert_int_equal(bnf_store_new(&config, &s), 0);
        assert_int_equal(bnf_store_start(s), 0);
        lease[i] = lease_now(s, 1, true, 8 * MIB, MIB, i ? &ext2 : &ext);
        r = rec(1, &ext, 0, MIB);
        if (i) {
            assert_int_equal(ext2.segment, ext.segment);
            assert_int_equal(bnf_store_stored(s, 1, lease[0], &r, 1), FP_ELEASE);
        }
        assert_int_equal(bnf_store_stored(s, 1, lease[i], &r, 1), 0);
        store_end(s);
    }
    assert_true(lease[0] != lease[1]);
}

static void test_store_recovered_segments_are_dirty(void **state)
{
    const struct bnf_store_config config = {512 * MIB, SEG, 1};
    struct bnf_place at = {.off_bytes = PAGE, .stored_bytes = 3 * PAGE, .len_bytes = 5000}, other;
    struct bnf_store *s;
    uint32_t slots[4], empty;

    (void)state;
    device_reset();
    assert_int_equal(bnf_store_new(&config, &s), 0);
    assert_int_equal(bnf_store_add_segment(s, 1, 9, SEG, &at.slot), 0);
    assert_int_equal(bnf_store_add_segment(s, 2, 9, SEG, &empty), 0);
    assert_int_equal(bnf_store_add_record(s, 1, &at, &other), 0);
    assert_int_equal(bnf_store_take_dirty(s, slots, 4), 1);
    assert_int_equal(slots[0], at.slot);
    assert_int_equal(bnf_store_take_dirty(s, slots, 4), 0);
    bnf_store_free(s);
}

/* ---------------------------------------------------------------- everything at random */

#define OWNERS 4
#define LIVE   64

struct model_lease {
    uint64_t id, owner, cursor;
    bool local;
    struct bnf_extent ext;
};

struct model_write {
    uint64_t lease, chunk;
    struct bnf_place at;
};

static struct model_lease leases[LIVE];
static struct model_write writes[LIVE];
static unsigned nleases, nwrites;
static uint64_t next_chunk;
static uint64_t tag_owner[1u << 20];
static bool tag_local[1u << 20];
static uint32_t next_tag;

static void take_events(struct bnf_store *s)
{
    struct bnf_event ev;

    while (bnf_store_pop_event(s, &ev)) {
        struct model_lease l = {.id = ev.lease};

        if (ev.status || ev.lease == 0)
            continue;
        l.owner = tag_owner[ev.tag];
        l.local = tag_local[ev.tag];
        if (!bnf_store_lease_extent(s, ev.lease, &l.ext))
            continue; /* its owner went away after it was ready */
        if (nleases == LIVE)
            assert_int_equal(bnf_store_lease_return(s, l.owner, l.id, UINT64_MAX), 0);
        else
            leases[nleases++] = l;
    }
}

static void step_lease(struct bnf_store *s)
{
    uint64_t min = rnd(2 * MIB), want = min + rnd(64 * MIB) + 1;
    uint32_t tag = next_tag++ & 0xfffff;
    int rc;

    tag_owner[tag] = 1 + rnd(OWNERS);
    tag_local[tag] = rnd(2);
    rc = bnf_store_lease(s, tag_owner[tag], tag_local[tag], want, min, tag);
    assert_true(rc == 0 || rc == -ENOSPC || rc == -EINVAL);
}

static void step_store(struct bnf_store *s)
{
    struct model_lease *l;
    struct bnf_stored r;
    int rc;

    if (nleases == 0)
        return;
    l = &leases[rnd(nleases)];
    if (!l->local)
        return;
    r = rec(rnd(20) ? ++next_chunk : 1 + rnd(next_chunk + 1), &l->ext, 0, 1 + (uint32_t)rnd(MIB));
    r.off_bytes += rnd(3) ? l->cursor : rnd(l->ext.len_bytes / PAGE) * PAGE;
    rc = bnf_store_stored(s, l->owner, l->id, &r, 1);
    assert_true(rc == 0 || rc == -EINVAL);
    if (rc == 0) /* the bytes are on the device already: ALLOC set the pages */
        l->cursor = r.off_bytes + r.stored_bytes - l->ext.off_bytes;
}

static void step_write(struct bnf_store *s)
{
    struct model_lease *l;
    struct model_write w;
    int rc;

    if (nleases == 0 || nwrites == LIVE)
        return;
    l = &leases[rnd(nleases)];
    if (l->local)
        return;
    w.lease = l->id;
    w.chunk = rnd(20) ? ++next_chunk : 1 + rnd(next_chunk + 1);
    rc = bnf_store_write_begin(s, l->owner, l->id, w.chunk, 1 + (uint32_t)rnd(MIB), &w.at);
    assert_true(rc == 0 || rc == -EEXIST || rc == -ENOSPC || rc == FP_ELEASE);
    if (rc == 0)
        writes[nwrites++] = w;
}

static void step_write_end(struct bnf_store *s)
{
    struct model_write w;
    unsigned i;

    if (nwrites == 0)
        return;
    i = (unsigned)rnd(nwrites);
    w = writes[i];
    writes[i] = writes[--nwrites];
    bnf_store_write_end(s, w.lease, w.chunk, &w.at, rnd(10) ? 0 : -EIO);
}

static void step_delete(struct bnf_store *s)
{
    uint64_t ids[64], n = 1 + rnd(64), from = 1 + rnd(next_chunk + 1);

    for (uint64_t i = 0; i < n; i++)
        ids[i] = from + i;
    assert_int_equal(bnf_store_delete(s, ids, n, 0), 0);
}

static void step_return(struct bnf_store *s)
{
    unsigned i;
    uint64_t bytes = rnd(2) ? UINT64_MAX : rnd(4 * MIB);
    int rc;

    if (nleases == 0)
        return;
    i = (unsigned)rnd(nleases);
    rc = bnf_store_lease_return(s, leases[i].owner, leases[i].id, bytes);
    assert_true(rc == 0 || rc == FP_ELEASE);
    if (leases[i].local || bytes == UINT64_MAX || rc)
        leases[i] = leases[--nleases];
}

static void step_gone(struct bnf_store *s)
{
    uint64_t owner = 1 + rnd(OWNERS);

    bnf_store_owner_gone(s, owner);
    for (unsigned i = 0; i < nleases;)
        if (leases[i].owner == owner)
            leases[i] = leases[--nleases];
        else
            i++;
}

static void random_step(struct bnf_store *s)
{
    uint64_t dice = rnd(1000);

    if (dice < 40)
        step_lease(s);
    else if (dice < 450)
        step_store(s);
    else if (dice < 550)
        step_write(s);
    else if (dice < 640)
        step_write_end(s);
    else if (dice < 700)
        step_delete(s);
    else if (dice < 715)
        step_return(s);
    else if (dice < 718)
        step_gone(s);
    else
        finish_one(s, 3);
    take_events(s);
}

static void come_to_rest(struct bnf_store *s)
{
    while (nwrites)
        step_write_end(s);
    for (uint64_t owner = 1; owner <= OWNERS; owner++)
        bnf_store_owner_gone(s, owner);
    nleases = 0;
    finish_all(s);
    take_events(s);
}

static void test_store_random_life_adds_up(void **state)
{
    const char *seed = getenv("FP_SEED"), *steps = getenv("FP_STEPS");
    unsigned long n = steps ? strtoul(steps, NULL, 0) : 60000;

    (void)state;
    for (uint64_t run = 0; run < 4; run++) {
        struct bnf_store *s;

        rng = (seed ? strtoull(seed, NULL, 0) : 20261121) + run;
        rng = rng * 2862933555777941757ull + 1;
        s = store_new(700 * MIB);
        nleases = nwrites = 0;
        next_chunk = 0;
        for (unsigned long i = 0; i < n; i++) {
            random_step(s);
            if (i % 64 == 0)
                check_space(s);
        }
        come_to_rest(s);
        check_space(s);
        assert_int_equal(space_of(s).leased_bytes, 0);
        assert_int_equal(device_pages() * PAGE, space_of(s).used_bytes);
        assert_true(next_chunk > n / 20);
        store_end(s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_store_lease_moves_free_to_leased_to_used),
        cmocka_unit_test(test_store_lease_is_a_quarter_of_free_or_min),
        cmocka_unit_test(test_store_refuses_records_outside_the_lease),
        cmocka_unit_test(test_store_overlap_refuses_the_whole_message),
        cmocka_unit_test(test_store_second_copy_of_a_chunk_is_dropped),
        cmocka_unit_test(test_store_new_copy_replaces_what_recovery_found),
        cmocka_unit_test(test_store_lost_owner_gives_everything_back),
        cmocka_unit_test(test_store_failed_allocation_is_told_and_given_back),
        cmocka_unit_test(test_store_failed_segment_fails_its_leases),
        cmocka_unit_test(test_store_remote_lease_counts_down),
        cmocka_unit_test(test_store_remote_lease_is_returned_in_parts),
        cmocka_unit_test(test_store_delete_merges_holes_and_tells_when_done),
        cmocka_unit_test(test_store_empty_segment_is_unlinked),
        cmocka_unit_test(test_store_inventory_is_ascending_and_whole),
        cmocka_unit_test(test_store_dirty_segments_are_told_once),
        cmocka_unit_test(test_store_knows_no_lease_of_an_earlier_run),
        cmocka_unit_test(test_store_recovered_segments_are_dirty),
        cmocka_unit_test(test_store_random_life_adds_up),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
