/*
 * The benefactor's store, one behaviour in each test: leases, records, remote writes, deletions, inventory, recovery. Everything at random is
 * in test_bnf_store_random.c.
 */
#include "bnf_device.h"

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
    r = good, r.len_bytes = FP_STORED_MAX_BYTES + 1;
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

static void test_store_gives_nothing_more_in_a_condemned_segment(void **state)
{
    struct bnf_store *s = store_new(512 * MIB);
    struct bnf_extent ext, ext2;
    struct bnf_place at;
    struct bnf_event ev;
    struct bnf_stored r;
    uint32_t slot;
    uint64_t lease = lease_now(s, 1, true, 8 * MIB, MIB, &ext), remote = lease_now(s, 2, false, 8 * MIB, MIB, &ext2);

    (void)state;
    assert_int_equal(ext.slot, ext2.slot);
    r = rec(1, &ext, 0, MIB);
    assert_int_equal(bnf_store_stored(s, 1, lease, &r, 1), 0);
    assert_int_equal(bnf_store_write_begin(s, 2, remote, 2, 1000, &at), 0); /* under way when it happens */
    assert_int_equal(bnf_store_lease(s, 3, true, MIB, MIB, 77), 0);        /* and this one too */
    assert_true(bnf_store_slot(s, ext.segment, &slot));
    assert_int_equal(slot, ext.slot);
    assert_true(bnf_store_condemn(s, slot));
    assert_false(bnf_store_condemn(s, slot));
    assert_false(bnf_store_slot(s, ext.segment + 1000, &slot));
    r = rec(3, &ext, MIB, MIB);
    assert_int_equal(bnf_store_stored(s, 1, lease, &r, 1), FP_ELEASE);
    assert_int_equal(bnf_store_write_begin(s, 2, remote, 4, 1000, &at), FP_ELEASE);
    assert_int_equal(bnf_store_write_end(s, remote, 2, &at, 0), 0);
    finish_all(s);
    while (bnf_store_pop_event(s, &ev))
        assert_int_equal(ev.tag == 77 ? ev.status : -ECANCELED, -ECANCELED);
    check_space(s);
    assert_int_equal(space_of(s).leased_bytes, 0);
    assert_int_equal(bnf_store_find(s, 1, &at), 0); /* what is there is read as before */
    assert_int_equal(bnf_store_find(s, 2, &at), 0);
    lease_now(s, 1, true, 8 * MIB, MIB, &ext2);
    assert_true(ext2.segment != ext.segment);
    check_space(s);
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
        cmocka_unit_test(test_store_gives_nothing_more_in_a_condemned_segment),
        cmocka_unit_test(test_store_knows_no_lease_of_an_earlier_run),
        cmocka_unit_test(test_store_recovered_segments_are_dirty),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
