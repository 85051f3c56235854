/*
 * Leases and writing: who may fill which part of a segment, and what becomes of it.
 *
 * Part of the store (store.h), same thread. A lease is one extent. A local one is written by the client
 * through the segment's descriptor, in any order; a bit per page says which pages belong to records that were
 * reported, so that a record outside its lease, or over another one, is refused, and exactly the rest is
 * given back at the end. A remote one is filled from front to back by this program.
 *
 *     PENDING --ALLOC done--> OPEN --return, owner gone--> CLOSING (remote writes under way) --> gone
 *        \--ALLOC failed, owner gone--> gone
 *
 * The rejected alternative, reservations without extents, would let a lease promise space that the file
 * system below turns out not to have when the bytes come.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "benefactor/store_impl.h"
#include "fp/err.h"

#define ID_SLOT_BITS 16

static struct bnf_lease *lease_by_id(const struct bnf_store *s, uint64_t id)
{
    uint64_t slot = id & ((1u << ID_SLOT_BITS) - 1);

    if (slot >= s->lease_slots || s->leases[slot].state == LEASE_NONE || s->leases[slot].id != id)
        return NULL;
    return &s->leases[slot];
}

static struct bnf_lease *lease_of(const struct bnf_store *s, uint64_t owner, uint64_t id, bool local)
{
    struct bnf_lease *l = lease_by_id(s, id);

    return l && l->owner == owner && l->local == local && l->state == LEASE_OPEN ? l : NULL;
}

static struct bnf_lease *lease_new(struct bnf_store *s)
{
    struct bnf_lease *more;
    uint32_t n = s->lease_slots, slot = n;

    for (uint32_t i = 0; i < n && slot == n; i++)
        if (s->leases[i].state == LEASE_NONE)
            slot = i;
    if (slot == n) {
        more = realloc(s->leases, (n + 64) * sizeof(*more));
        if (!more)
            return NULL;
        memset(more + n, 0, 64 * sizeof(*more));
        s->leases = more;
        s->lease_slots = n + 64;
    }
    s->leases[slot] = (struct bnf_lease){.id = ++s->lease_serial << ID_SLOT_BITS | slot};
    return &s->leases[slot];
}

static void lease_free(struct bnf_store *s, struct bnf_lease *l)
{
    uint32_t slot = l->slot;

    free(l->pages);
    l->pages = NULL;
    l->state = LEASE_NONE;
    s->segments[slot].users--;
    store_segment_settle(s, slot);
}

/* Moves bytes of a lease that nobody will fill to used, until the hole is punched. */
static void give_up(struct bnf_store *s, const struct bnf_lease *l, uint64_t off_bytes, uint64_t len_bytes)
{
    s->leased_bytes -= len_bytes;
    s->used_bytes += len_bytes;
    store_emit(s, BNF_OP_PUNCH, l->slot, off_bytes, len_bytes, len_bytes, NULL);
}

static bool page_is_set(const struct bnf_lease *l, uint64_t p)
{
    return l->pages[p / 64] >> p % 64 & 1;
}

static void give_up_gaps(struct bnf_store *s, const struct bnf_lease *l)
{
    uint64_t n = l->len_bytes / PAGE;

    for (uint64_t p = 0; p < n;) {
        uint64_t from = p;

        while (p < n && !page_is_set(l, p))
            p++;
        if (p > from)
            give_up(s, l, l->off_bytes + from * PAGE, (p - from) * PAGE);
        while (p < n && page_is_set(l, p))
            p++;
    }
}

static void lease_end(struct bnf_store *s, struct bnf_lease *l)
{
    if (l->local)
        give_up_gaps(s, l);
    else if (l->left_bytes)
        give_up(s, l, l->off_bytes + l->len_bytes - l->left_bytes, l->left_bytes);
    l->left_bytes = 0;
    l->state = LEASE_CLOSING;
    if (l->inflight == 0)
        lease_free(s, l);
}

static uint64_t grant_bytes(const struct bnf_store *s, uint64_t want, uint64_t min)
{
    uint64_t room = bnf_store_leasable(s), grant;

    if (room < min)
        return 0;
    grant = room / 4 < want ? room / 4 : want;
    grant -= grant % PAGE;
    return grant > min ? grant : min;
}

static uint64_t round_up(uint64_t bytes)
{
    return (bytes + PAGE - 1) / PAGE * PAGE;
}

static int lease_start(struct bnf_store *s, struct bnf_lease *l, uint64_t grant, uint64_t min)
{
    int rc = store_carve(s, &grant, min, &l->slot, &l->off_bytes);

    if (rc)
        return rc;
    l->len_bytes = l->left_bytes = grant;
    if (l->local) {
        l->pages = calloc((grant / PAGE + 63) / 64, sizeof(*l->pages));
        if (!l->pages)
            return -ENOMEM;
    }
    rc = store_emit_alloc(s, l->slot, l->off_bytes, grant, l->id);
    if (rc)
        return rc;
    l->state = LEASE_PENDING;
    s->segments[l->slot].users++;
    s->leased_bytes += grant;
    s->device_free_bytes -= s->device_free_bytes == UINT64_MAX ? 0 : grant;
    return 0;
}

int bnf_store_lease(struct bnf_store *s, uint64_t owner, bool local, uint64_t want_bytes, uint64_t min_bytes,
                    uint64_t tag)
{
    uint64_t most = s->config.segment_bytes - FP_SEGMENT_HEADER_BYTES, grant;
    struct bnf_lease *l;
    int rc;

    most = most < BNF_LEASE_MAX_BYTES ? most : BNF_LEASE_MAX_BYTES;
    if (min_bytes > want_bytes || min_bytes > most || want_bytes == 0)
        return -EINVAL;
    want_bytes = round_up(want_bytes < most ? want_bytes : most);
    min_bytes = round_up(min_bytes ? min_bytes : 1);
    grant = grant_bytes(s, want_bytes, min_bytes);
    if (grant == 0)
        return -ENOSPC;
    l = lease_new(s);
    if (!l)
        return -ENOMEM;
    if (l - s->leases >= (ptrdiff_t)BNF_LEASES_MAX)
        return -EBUSY;
    l->owner = owner;
    l->local = local;
    l->ticket = store_ticket_new(tag);
    rc = l->ticket ? lease_start(s, l, grant, min_bytes) : -ENOMEM;
    if (rc) {
        free(l->ticket);
        free(l->pages);
        *l = (struct bnf_lease){0};
        return rc;
    }
    l->ticket->event.lease = l->id;
    return 0;
}

void store_lease_allocated(struct bnf_store *s, uint64_t lease, int status)
{
    struct bnf_lease *l = lease_by_id(s, lease);
    struct bnf_ticket *t = l->ticket;

    assert(l->state == LEASE_PENDING);
    if (status == 0 && l->doomed)
        status = -ECANCELED;
    t->event.status = status;
    store_ticket_done(s, t);
    l->ticket = NULL;
    l->state = LEASE_OPEN;
    if (status)
        lease_end(s, l);
}

bool bnf_store_lease_extent(const struct bnf_store *s, uint64_t lease, struct bnf_extent *out)
{
    const struct bnf_lease *l = lease_by_id(s, lease);

    if (!l || l->state != LEASE_OPEN)
        return false;
    *out = (struct bnf_extent){
        .slot = l->slot,
        .segment = s->segments[l->slot].id,
        .salt = s->segments[l->slot].salt,
        .off_bytes = l->off_bytes,
        .len_bytes = l->len_bytes,
    };
    return true;
}

int bnf_store_lease_return(struct bnf_store *s, uint64_t owner, uint64_t lease, uint64_t bytes)
{
    struct bnf_lease *l = lease_by_id(s, lease);

    if (!l || l->owner != owner || l->state != LEASE_OPEN)
        return FP_ELEASE;
    bytes -= bytes % PAGE;
    if (l->local || bytes >= l->left_bytes) {
        lease_end(s, l);
    } else if (bytes) {
        l->len_bytes -= bytes;
        l->left_bytes -= bytes;
        give_up(s, l, l->off_bytes + l->len_bytes, bytes);
    }
    return 0;
}

void bnf_store_owner_gone(struct bnf_store *s, uint64_t owner)
{
    for (uint32_t i = 0; i < s->lease_slots; i++) {
        struct bnf_lease *l = &s->leases[i];

        if (l->state == LEASE_NONE || l->owner != owner)
            continue;
        if (l->state == LEASE_PENDING)
            l->doomed = true;
        else if (l->state == LEASE_OPEN)
            lease_end(s, l);
    }
}

void store_leases_end(struct bnf_store *s, uint32_t slot)
{
    for (uint32_t i = 0; i < s->lease_slots; i++) {
        struct bnf_lease *l = &s->leases[i];

        if (l->state == LEASE_NONE || l->slot != slot)
            continue;
        if (l->state == LEASE_PENDING)
            l->doomed = true;
        else if (l->state == LEASE_OPEN)
            lease_end(s, l);
    }
}

/* ---------------------------------------------------------------- records of a local writer */

static bool is_known(const struct bnf_store *s, const struct bnf_stored *r)
{
    const struct bnf_entry *e = bnf_index_get(&s->index, r->chunk);

    return e && s->segments[e->segment].id == r->segment && (uint64_t)e->page * PAGE == r->off_bytes;
}

static bool is_within(const struct bnf_store *s, const struct bnf_lease *l, const struct bnf_stored *r)
{
    return r->segment == s->segments[l->slot].id && r->off_bytes % PAGE == 0 && r->stored_bytes % PAGE == 0 &&
           r->stored_bytes >= 2 * PAGE && r->stored_bytes <= FP_RECORD_HEADER_BYTES + FP_STORED_MAX_BYTES &&
           r->len_bytes > 0 && r->len_bytes <= FP_STORED_MAX_BYTES && r->off_bytes >= l->off_bytes &&
           r->off_bytes - l->off_bytes <= l->len_bytes &&
           r->stored_bytes <= l->off_bytes + l->len_bytes - r->off_bytes;
}

static void flip_pages(struct bnf_lease *l, const struct bnf_stored *r)
{
    uint64_t from = (r->off_bytes - l->off_bytes) / PAGE;

    for (uint64_t p = from; p < from + r->stored_bytes / PAGE; p++)
        l->pages[p / 64] ^= (uint64_t)1 << p % 64;
}

static int claim_pages(const struct bnf_store *s, struct bnf_lease *l, const struct bnf_stored *r)
{
    uint64_t from = (r->off_bytes - l->off_bytes) / PAGE;

    if (!is_within(s, l, r))
        return -EINVAL;
    for (uint64_t p = from; p < from + r->stored_bytes / PAGE; p++)
        if (page_is_set(l, p))
            return -EINVAL;
    flip_pages(l, r);
    return 0;
}

int bnf_store_stored(struct bnf_store *s, uint64_t owner, uint64_t lease, const struct bnf_stored *records,
                     size_t count)
{
    struct bnf_lease *l = lease_of(s, owner, lease, true);
    size_t i;
    int rc;

    if (!l)
        return FP_ELEASE;
    rc = bnf_index_reserve(&s->index, count);
    for (i = 0; i < count && rc == 0; i++)
        rc = is_known(s, &records[i]) ? 0 : claim_pages(s, l, &records[i]);
    if (rc) {
        while (i > 1) /* the last one failed and claimed nothing */
            if (!is_known(s, &records[--i - 1]))
                flip_pages(l, &records[i - 1]);
        return rc;
    }
    for (i = 0; i < count; i++) {
        const struct bnf_stored *r = &records[i];

        if (is_known(s, r))
            continue;
        l->left_bytes -= r->stored_bytes;
        s->leased_bytes -= r->stored_bytes;
        s->used_bytes += r->stored_bytes;
        store_enter_record(s, r->chunk, r->sum, r->len_bytes, l->slot, r->off_bytes, r->stored_bytes);
    }
    return 0;
}

/* ---------------------------------------------------------------- chunks from the network */

int bnf_store_write_begin(struct bnf_store *s, uint64_t owner, uint64_t lease, uint64_t chunk,
                          uint32_t len_bytes, struct bnf_place *at)
{
    struct bnf_lease *l = lease_of(s, owner, lease, false);
    const struct bnf_entry *e = bnf_index_get(&s->index, chunk);
    uint32_t stored = fp_record_size_bytes(len_bytes);

    if (len_bytes == 0 || len_bytes > FP_STORED_MAX_BYTES)
        return -EINVAL;
    if (e && !e->recovered)
        return -EEXIST;
    if (!l)
        return FP_ELEASE;
    if (stored > l->left_bytes)
        return -ENOSPC;
    *at = (struct bnf_place){
        .slot = l->slot,
        .segment = s->segments[l->slot].id,
        .salt = s->segments[l->slot].salt,
        .off_bytes = l->off_bytes + l->len_bytes - l->left_bytes,
        .stored_bytes = stored,
        .len_bytes = len_bytes,
    };
    l->left_bytes -= stored;
    l->inflight_bytes += stored;
    l->inflight++;
    return 0;
}

int bnf_store_write_end(struct bnf_store *s, uint64_t lease, uint64_t chunk, const struct bnf_place *at,
                        int status)
{
    struct bnf_lease *l = lease_by_id(s, lease);

    assert(l && l->inflight > 0);
    l->inflight--;
    l->inflight_bytes -= at->stored_bytes;
    if (status == 0)
        status = bnf_index_reserve(&s->index, 1);
    if (status) {
        give_up(s, l, at->off_bytes, at->stored_bytes);
    } else {
        s->leased_bytes -= at->stored_bytes;
        s->used_bytes += at->stored_bytes;
        store_enter_record(s, chunk, at->sum, at->len_bytes, at->slot, at->off_bytes, at->stored_bytes);
    }
    if (l->state == LEASE_CLOSING && l->inflight == 0)
        lease_free(s, l);
    return status;
}
