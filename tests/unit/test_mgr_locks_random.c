/* Locks as a state machine (manager/locks.h), against a model that knows every byte. FP_SEED=n runs that seed alone; FP_VERBOSE names each. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "manager/locks_int.h"

static struct mgr_locks *t;
static uint64_t now = 1000, tickets;

enum { FILES = 2, OWNERS = 9, BYTES = 24, WAITS = 64, ROWS = 2000 };

struct model_wait {
    int file, owner, kind, start, end, excl;
    uint64_t ticket, since;
};
struct model {
    uint8_t byte[FILES][2][OWNERS][BYTES + 1]; /* 0, 1 shared, 2 exclusive; the last is all that follows */
    struct model_wait wait[WAITS];
    int nwaits;
};
static struct model now_, sure;
static struct mgr_lock_change row[ROWS], sure_row[ROWS];
static int nrows, nsure_rows;
static struct {
    uint64_t ticket;
    int status;
} want[WAITS];
static int nwant;
static uint32_t seed;

static uint32_t rnd(uint32_t n)
{
    seed = seed * 1664525u + 1013904223u;
    return (seed >> 8) % n;
}

static bool m_held_conflict(const struct model *m, const struct model_wait *w)
{
    for (int o = 0; o < OWNERS; o++)
        for (int b = w->start; b <= w->end && o != w->owner; b++)
            if (m->byte[w->file][w->kind][o][b] + w->excl > 1 && m->byte[w->file][w->kind][o][b])
                return true;
    return false;
}

static bool m_waits_on(const struct model *m, const struct model_wait *w, int o)
{
    for (int b = w->start; b <= w->end && o != w->owner; b++)
        if (m->byte[w->file][w->kind][o][b] && (m->byte[w->file][w->kind][o][b] == 2 || w->excl))
            return true;
    return false;
}

static bool m_reaches(const struct model *m, const struct model_wait *w, int target, int depth)
{
    for (int o = 0; o < OWNERS; o++) {
        if (!m_waits_on(m, w, o))
            continue;
        if (o == target)
            return true;
        for (int i = 0; i < m->nwaits && depth < OWNERS + 1; i++)
            if (m->wait[i].owner == o && m->wait[i].kind == 0 && m_reaches(m, &m->wait[i], target, depth + 1))
                return true;
    }
    return false;
}

static bool m_behind(const struct model *m, const struct model_wait *w, int upto)
{
    for (int b = 0; b <= BYTES; b++)
        if (m->byte[w->file][w->kind][w->owner][b])
            return false;
    for (int i = 0; i < upto; i++) {
        const struct model_wait *x = &m->wait[i];

        if (x->file == w->file && x->kind == w->kind && x->owner != w->owner && x->start <= w->end && w->start <= x->end &&
            (x->excl || w->excl))
            return now - w->since < MGR_LOCK_FAIR_MS;
    }
    return false;
}

static void m_apply(struct model *m, const struct model_wait *w, int what)
{
    for (int b = w->start; b <= w->end; b++)
        m->byte[w->file][w->kind][w->owner][b] = (uint8_t)what;
}

static void m_remove_wait(struct model *m, int i)
{
    memmove(&m->wait[i], &m->wait[i + 1], (size_t)(m->nwaits - i - 1) * sizeof m->wait[0]);
    m->nwaits--;
}

static void m_wake(struct model *m)
{
    for (bool again = true; again;) {
        again = false;
        for (int i = 0; i < m->nwaits; i++) {
            struct model_wait w = m->wait[i];

            if (m_held_conflict(m, &w) || m_behind(m, &w, i))
                continue;
            m_apply(m, &w, 1 + w.excl);
            want[nwant].ticket = w.ticket;
            want[nwant++].status = 0;
            m_remove_wait(m, i--);
            again = true;
        }
    }
}

static int m_set(struct model *m, struct model_wait *w, bool wait)
{
    bool held;

    if (w->kind == 1)
        for (int b = 0; b <= BYTES; b++)
            if (m->byte[w->file][1][w->owner][b] && m->byte[w->file][1][w->owner][b] != 1 + w->excl)
                m->byte[w->file][1][w->owner][b] = 0;
    held = m_held_conflict(m, w);
    if (!held && (!wait || !m_behind(m, w, m->nwaits))) {
        m_apply(m, w, 1 + w->excl);
        return 0;
    }
    if (!wait)
        return -EAGAIN;
    if (held && w->kind == 0 && m_reaches(m, w, w->owner, 0))
        return -EDEADLK;
    m->wait[m->nwaits++] = *w;
    return MGR_LOCK_QUEUED;
}

static struct mgr_lock real(const struct model_wait *w)
{
    return (struct mgr_lock){.session = 1 + (uint64_t)w->owner % 3,
                             .owner = 100 + (uint64_t)w->owner / 3,
                             .start = (uint64_t)w->start,
                             .end = w->end == BYTES ? MGR_LOCK_EOF : (uint64_t)w->end,
                             .kind = (uint8_t)w->kind,
                             .exclusive = w->excl != 0};
}

/* What the database would have. */
static void take_changes(void)
{
    struct mgr_lock_change ch;
    int i;

    while (mgr_locks_change_next(t, &ch)) {
        for (i = 0; i < nrows; i++)
            if (row[i].ino == ch.ino && row[i].l.kind == ch.l.kind && row[i].l.session == ch.l.session &&
                row[i].l.owner == ch.l.owner && row[i].l.start == ch.l.start)
                break;
        if (ch.add) {
            assert_int_equal(i, nrows);
            row[nrows++] = ch;
        } else {
            assert_true(i < nrows);
            row[i] = row[--nrows];
        }
        assert_true(nrows < ROWS);
    }
}

static void compare(void)
{
    uint8_t got[FILES][2][OWNERS][BYTES + 1];

    memset(got, 0, sizeof got);
    for (int i = 0; i < nrows; i++) {
        const struct mgr_lock *l = &row[i].l;
        int o = (int)((l->owner - 100) * 3 + l->session - 1);

        for (uint64_t b = l->start; b <= BYTES && b <= l->end; b++) {
            assert_int_equal(got[row[i].ino - 1][l->kind][o][b], 0);
            got[row[i].ino - 1][l->kind][o][b] = (uint8_t)(1 + l->exclusive);
        }
        for (int j = 0; j < nrows; j++) /* neighbours of one type are one */
            assert_false(j != i && row[j].ino == row[i].ino && row[j].l.kind == l->kind && row[j].l.session == l->session &&
                         row[j].l.owner == l->owner && row[j].l.exclusive == l->exclusive &&
                         row[j].l.start == l->end + 1);
    }
    assert_memory_equal(got, now_.byte, sizeof got);
    assert_int_equal(mgr_locks_held(t), nrows);
    assert_int_equal(mgr_locks_waiting(t), now_.nwaits);
}

static void commit(void)
{
    struct mgr_lock_done d;

    mgr_locks_commit(t);
    for (int i = 0; mgr_locks_done_next(t, &d); i++) {
        int j = 0;

        while (j < nwant && want[j].ticket != d.ticket)
            j++;
        assert_true(j < nwant);
        assert_int_equal(want[j].status, d.status);
        want[j] = want[--nwant];
    }
    assert_int_equal(nwant, 0);
    sure = now_;
    memcpy(sure_row, row, sizeof row);
    nsure_rows = nrows;
}

static void undo(void)
{
    mgr_locks_undo(t);
    mgr_locks_clear(t);
    now_ = sure;
    memcpy(row, sure_row, sizeof row);
    nrows = nsure_rows;
    nwant = 0;
    for (int i = 0; i < nrows; i++)
        assert_int_equal(mgr_locks_load(t, row[i].ino, &row[i].l), 0);
    mgr_locks_tick(t, now);
    take_changes();
    m_wake(&now_);
}

static void random_set(void)
{
    struct model_wait w = {.file = (int)rnd(FILES), .owner = (int)rnd(OWNERS), .kind = rnd(4) == 0, .start = (int)rnd(BYTES),
                           .excl = (int)rnd(2), .ticket = ++tickets, .since = now};
    bool wait = rnd(3) != 0;
    struct mgr_lock l;
    int want_rc;

    for (int i = 0; i < now_.nwaits; i++)
        if (now_.wait[i].owner == w.owner)
            return; /* one thread */
    w.end = rnd(5) == 0 ? BYTES : w.start + (int)rnd((uint32_t)(BYTES - w.start));
    if (w.kind == 1) {
        w.start = 0;
        w.end = BYTES;
    }
    l = real(&w);
    want_rc = m_set(&now_, &w, wait);
    assert_int_equal(mgr_locks_set(t, (uint64_t)w.file + 1, &l, w.ticket, wait, now), want_rc);
    m_wake(&now_);
}

static void random_unset(void)
{
    struct model_wait w = {.file = (int)rnd(FILES), .owner = (int)rnd(OWNERS), .kind = rnd(4) == 0, .start = (int)rnd(BYTES)};
    struct mgr_lock l;

    w.end = rnd(3) == 0 ? BYTES : w.start + (int)rnd((uint32_t)(BYTES - w.start));
    if (rnd(3) == 0 || w.kind == 1) {
        w.start = 0;
        w.end = BYTES;
    }
    l = real(&w);
    m_apply(&now_, &w, 0);
    assert_int_equal(mgr_locks_unset(t, (uint64_t)w.file + 1, &l, now), 0);
    m_wake(&now_);
}

static void random_cancel(void)
{
    int i = now_.nwaits ? (int)rnd((uint32_t)now_.nwaits) : 0;
    struct model_wait w = now_.wait[i];

    if (!now_.nwaits)
        return;
    m_remove_wait(&now_, i);
    want[nwant].ticket = w.ticket;
    want[nwant++].status = -EINTR;
    m_wake(&now_);
    assert_true(mgr_locks_cancel(t, real(&w).session, w.ticket, now));
}

static void random_end(void)
{
    uint64_t session = 1 + rnd(3);

    for (int i = now_.nwaits; i-- > 0;)
        if (real(&now_.wait[i]).session == session)
            m_remove_wait(&now_, i);
    for (int i = sure.nwaits; i-- > 0;) /* its connection stays gone, whatever becomes of the group */
        if (real(&sure.wait[i]).session == session)
            m_remove_wait(&sure, i);
    for (int f = 0; f < FILES; f++)
        for (int k = 0; k < 2; k++)
            for (int o = (int)session - 1; o < OWNERS; o += 3)
                memset(now_.byte[f][k][o], 0, BYTES + 1);
    m_wake(&now_);
    assert_int_equal(mgr_locks_end(t, session, now), 0);
}

static void run_seed(uint32_t s)
{
    seed = s;
    memset(&now_, 0, sizeof now_);
    sure = now_;
    nrows = nsure_rows = nwant = 0;
    for (int step = 0; step < 400; step++) {
        switch (rnd(16)) {
        case 0:
            random_cancel();
            break;
        case 1:
            if (rnd(4) == 0)
                random_end();
            break;
        case 2:
            commit(); /* time goes on between groups */
            now += rnd(600);
            mgr_locks_tick(t, now);
            m_wake(&now_);
            break;
        case 3:
            if (rnd(3) == 0)
                undo();
            break;
        case 4:
        case 5:
        case 6:
        case 7:
            random_unset();
            break;
        default:
            random_set();
        }
        take_changes();
        compare();
        if (rnd(2))
            commit();
    }
}

static void test_locks_random_against_a_model(void **state)
{
    const char *one = getenv("FP_SEED");

    (void)state;
    for (uint32_t s = one ? (uint32_t)atoi(one) : 1; s <= (one ? (uint32_t)atoi(one) : 400); s++) {
        t = mgr_locks_new();
        assert_non_null(t);
        if (getenv("FP_VERBOSE"))
            fprintf(stderr, "FP_SEED=%u\n", s);
        run_seed(s);
        mgr_locks_free(t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_locks_random_against_a_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
