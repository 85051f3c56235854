/* Comparing what a benefactor has with what the chunk table says, page by page, in ascending order of chunk
 * ids.
 *
 *   there, in no table, of a dead session    an orphan: becomes garbage
 *   there, in no table, of a living session  may be committed yet: left alone
 *   in the chunk table, not there            lost: a row in bad_chunk, and rows in damage
 *   in both, and was lost                    found again: these rows go
 *   in a target, too                         lost: is there only from now on; there, and in the table as external: it is here again
 *   of a file that has a copy in a target    lost: likewise, when that has been looked at (rescue.c)
 *
 * Done when a benefactor says hello, and on all of them after a session has died. The page is a picture of
 * the moment at which the benefactor made it: a chunk may be stored and committed between that moment and our
 * look at it. What is committed after the page was asked for is therefore remembered (inv_new) and not taken
 * for lost. A chunk of a session number that was never given out is not touched: then the database is an old
 * copy. */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "fp/log.h"
#include "manager/ext.h"
#include "manager/foreign.h"

#define NEW_MAX 65536u

void mgr_inventory_want(struct mgr_core *c, uint64_t delay_ms)
{
    for (size_t i = 0; i < c->bnf_count; i++) {
        struct mgr_bnf *b = c->bnfs[i];

        mgr_bnf_touch(c, b);
        if (b->inv_wanted && (b->inv_out || b->inv_after)) {
            b->inv_again = true;
        } else {
            b->inv_wanted = true;
            b->inv_at_ms = c->now.ms + delay_ms;
        }
    }
}

void mgr_inventory_committed(struct mgr_bnf *b, uint64_t chunk)
{
    if (!b->inv_out || b->inv_new_lost)
        return;
    if (b->inv_new_count == b->inv_new_cap) {
        size_t cap = b->inv_new_cap ? b->inv_new_cap * 2 : 256;
        uint64_t *p = cap > NEW_MAX ? NULL : realloc(b->inv_new, cap * sizeof *p);

        if (!p) {
            b->inv_new_lost = true; /* the page is asked for again */
            return;
        }
        b->inv_new = p;
        b->inv_new_cap = cap;
    }
    b->inv_new[b->inv_new_count++] = chunk;
}

void mgr_inventory_pump(struct mgr_core *c, struct mgr_bnf *b)
{
    Fp__Inventory *m;

    if (!b->inv_wanted || b->inv_out || c->now.ms < b->inv_at_ms)
        return;
    m = MGR_NEW(c, Fp__Inventory, fp__inventory__init);
    if (!m)
        return;
    m->after = b->inv_after;
    m->max = MGR_INVENTORY_PAGE;
    b->inv_out = true;
    b->inv_new_count = 0;
    b->inv_new_lost = false;
    mgr_out(c, MGR_OUT_CALL, b->conn, FP__MSG_TYPE__MSG_INVENTORY, &m->base);
}

static int by_id(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

/* The list was sorted by mgr_inventory_page. */
static bool is_new(const struct mgr_bnf *b, uint64_t chunk)
{
    return b->inv_new_count && bsearch(&chunk, b->inv_new, b->inv_new_count, sizeof chunk, by_id);
}

static int stray(struct mgr_core *c, struct mgr_bnf *b, uint64_t id)
{
    uint64_t session = id >> 32;
    struct mgr_chunk ch;
    int rc;

    rc = c->exts ? mgr_chunk_get(c, id, &ch) : -ENOENT;
    if (!rc && ch.bnf != b->id)
        return mgr_ext_found(c, b, &ch);
    if (rc && rc != -ENOENT)
        return rc;
    if (session > MGR_SESSION_MAX)
        return mgr_foreign_stray(c, b, id);
    if (mgr_session_find(c, session))
        return 0;
    if (session >= c->n.next_session) {
        FP_LOG_EVERY(60000, FP_LOG_ERROR,
                     "benefactor %u has chunks of session %llu, which this manager never had: "
                     "they are left alone; is the database an old copy?",
                     b->id, (unsigned long long)session);
        return 0;
    }
    rc = mgr_chunk_get(c, id, &ch);
    if (rc != -ENOENT)
        return rc;
    b->inv_orphans++;
    return mgr_garbage_put(c, id, b->id, 0);
}

static int lost(struct mgr_core *c, struct mgr_bnf *b, uint64_t id)
{
    struct mgr_chunk ch;
    int rc;

    if (is_new(b, id))
        return 0;
    rc = mgr_ext_has(c, id);
    rc = rc > 0 ? mgr_chunk_get(c, id, &ch) : rc < 0 ? rc : -ENOENT;
    if (rc != -ENOENT) /* it is in a target, too */
        return rc ? rc : mgr_ext_revert(c, &ch, MGR_BAD_MISSING, "the benefactor does not have it");
    rc = mgr_chunk_get(c, id, &ch);
    rc = rc ? rc : mgr_rescue(c, &ch, MGR_BAD_MISSING, "the benefactor does not have it");
    b->inv_missing += rc == 0;
    b->inv_rescued += rc > 0;
    return rc < 0 ? rc : 0;
}

/* Both lists ascend: one walk. have: ids of the chunk table in (after, hi], at most cap. */
static int compare(struct mgr_core *c, struct mgr_bnf *b, const uint64_t *ids, size_t n_ids,
                   const uint64_t *have, size_t n_have)
{
    size_t i = 0, j = 0;
    int rc = 0;

    while (!rc && (i < n_ids || j < n_have)) {
        if (j == n_have || (i < n_ids && ids[i] < have[j])) {
            rc = stray(c, b, ids[i++]);
        } else if (i == n_ids || have[j] < ids[i]) {
            rc = lost(c, b, have[j++]);
        } else {
            rc = mgr_damage_found(c, ids[i++]);
            j++;
        }
    }
    return rc;
}

static int range(struct mgr_core *c, struct mgr_bnf *b, const Fp__InventoryReply *r, uint64_t *hi)
{
    enum { HAVE_MAX = 2 * MGR_INVENTORY_PAGE };
    uint64_t *have = mgr_arena_alloc(&c->arena, HAVE_MAX * sizeof *have);
    size_t n = 0, n_ids = r->n_ids;
    int rc;

    if (!have)
        return mgr_doom(c, -ENOMEM);
    *hi = r->eof || !n_ids ? INT64_MAX : r->ids[n_ids - 1];
    for (rc = mgr_db_one(&c->db, CHUNK_OF_BNF, DBI(b->id), DBI(b->inv_after), DBI(*hi), DBI(HAVE_MAX));
         rc > 0; rc = mgr_db_step(&c->db, MGR_ST_CHUNK_OF_BNF))
        have[n++] = (uint64_t)mgr_col(&c->db, MGR_ST_CHUNK_OF_BNF, 0);
    if (rc)
        return rc;
    if (n == HAVE_MAX) { /* very much is lost: no further than we have looked */
        *hi = have[n - 1];
        while (n_ids && r->ids[n_ids - 1] > *hi)
            n_ids--;
    }
    return compare(c, b, r->ids, n_ids, have, n);
}

static void finish(struct mgr_core *c, struct mgr_bnf *b)
{
    if (b->inv_missing)
        FP_ERROR("benefactor %u (%s) lacks %llu chunks of files: see fpctl status", b->id, b->addr,
                 (unsigned long long)b->inv_missing);
    if (b->inv_rescued)
        FP_WARN("benefactor %u (%s) lacks %llu chunks of files that have a copy in a target: they are read from there", b->id, b->addr,
                (unsigned long long)b->inv_rescued);
    if (b->inv_orphans)
        FP_INFO("benefactor %u: %llu chunks of dead sessions are deleted", b->id,
                (unsigned long long)b->inv_orphans);
    b->unchecked = false;
    b->inv_wanted = b->inv_again;
    b->inv_again = false;
    b->inv_at_ms = c->now.ms;
    b->inv_after = b->inv_orphans = b->inv_missing = b->inv_rescued = 0;
}

int mgr_inventory_page(struct mgr_core *c, struct mgr_bnf *b, int status, const Fp__InventoryReply *r)
{
    uint64_t hi = 0;
    int rc;

    b->inv_out = false;
    mgr_bnf_touch(c, b);
    if (status || !r || b->inv_new_lost) {
        b->inv_at_ms = c->now.ms + (status ? 1000 : 0);
        return 0;
    }
    for (size_t i = 0; i < r->n_ids; i++)
        if (r->ids[i] <= (i ? r->ids[i - 1] : b->inv_after) || r->ids[i] > INT64_MAX) {
            FP_ERROR("benefactor %u: its inventory is not in order: ignored", b->id);
            b->inv_at_ms = c->now.ms + 60000;
            return 0;
        }
    if (b->inv_new_count)
        qsort(b->inv_new, b->inv_new_count, sizeof *b->inv_new, by_id);
    rc = range(c, b, r, &hi);
    if (rc)
        return rc;
    b->inv_after = hi;
    if (hi != INT64_MAX)
        return 0;
    finish(c, b);
    return 0;
}
