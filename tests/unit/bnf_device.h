/*
 * A model of the device below a benefactor's store, for test_bnf_store*.c: one byte per page, set by what an operation allocates or
 * a writer writes, cleared by what it punches. Operations that the store issues are kept and finished in random order.
 */
#ifndef BNF_DEVICE_H
#define BNF_DEVICE_H

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

static inline uint64_t rnd(uint64_t below)
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

static inline void device_reset(void)
{
    for (unsigned i = 0; i < SEGS; i++) {
        free(device[i]);
        device[i] = NULL;
    }
    nunder_way = 0;
}

static inline uint64_t device_pages(void)
{
    uint64_t n = 0;

    for (unsigned i = 0; i < SEGS; i++)
        for (uint64_t p = 1; device[i] && p < PAGES; p++)
            n += device[i][p];
    return n;
}

static inline void set_pages(uint64_t segment, uint64_t off, uint64_t len, uint8_t value)
{
    assert_true(segment < SEGS && off % PAGE == 0 && len % PAGE == 0 && off >= PAGE && off + len <= SEG);
    assert_non_null(device[segment]);
    memset(device[segment] + off / PAGE, value, len / PAGE);
}

static inline int run_op(const struct bnf_op *op, bool fail)
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

static inline void pop_all(struct bnf_store *s)
{
    struct bnf_op *op;

    while ((op = bnf_store_pop_op(s))) {
        assert_true(nunder_way < OPS_MAX);
        under_way[nunder_way++] = op;
    }
}

static inline void finish_one(struct bnf_store *s, unsigned fail_percent)
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

static inline void finish_all(struct bnf_store *s)
{
    do
        finish_one(s, 0), pop_all(s);
    while (nunder_way);
}

static inline struct bnf_store *store_new(uint64_t capacity)
{
    struct bnf_store_config config = {.capacity_bytes = capacity, .segment_bytes = SEG, .salt_seed = 1};
    struct bnf_store *s;

    device_reset();
    assert_int_equal(bnf_store_new(&config, &s), 0);
    assert_int_equal(bnf_store_start(s), 0);
    finish_all(s);
    return s;
}

static inline void store_end(struct bnf_store *s)
{
    for (unsigned i = 0; i < nunder_way; i++)
        free(under_way[i]);
    bnf_store_free(s);
    device_reset();
}

static inline void check_space(const struct bnf_store *s)
{
    struct bnf_space sp;

    bnf_store_check(s);
    bnf_store_space(s, &sp);
    assert_int_equal(sp.used_bytes + sp.leased_bytes + sp.free_bytes, sp.capacity_bytes);
}

static inline uint64_t lease_now(struct bnf_store *s, uint64_t owner, bool local, uint64_t want, uint64_t min,
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

static inline struct bnf_stored rec(uint64_t chunk, const struct bnf_extent *ext, uint64_t at, uint32_t len)
{
    return (struct bnf_stored){.chunk = chunk,
                               .segment = ext->segment,
                               .off_bytes = ext->off_bytes + at,
                               .stored_bytes = fp_record_size_bytes(len),
                               .len_bytes = len,
                               .sum = chunk * 3};
}

static inline struct bnf_space space_of(const struct bnf_store *s)
{
    struct bnf_space sp;

    bnf_store_space(s, &sp);
    return sp;
}

#endif
