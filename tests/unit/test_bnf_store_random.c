/*
 * The benefactor's store against a model: random leases, records, remote writes, deletions, lost connections
 * and failing disk operations, finished in random order, checked after every step. The model is a device of
 * one byte per page: what an operation allocates or punches, what a writer writes. When everything has come
 * to rest the device must hold exactly the records of the index, and the counts must add up to the capacity
 * at every step.
 *
 * FP_SEED=n replays a run, FP_STEPS=n makes it longer.
 */
#include "bnf_device.h"

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
        cmocka_unit_test(test_store_random_life_adds_up),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
