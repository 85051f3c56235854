/*
 * The store's core: segments, the queue of disk operations, counts (store.h says what it is for).
 *
 * Called by the shell on its one thread (service.c), by recovery before that, by tests and the simulator.
 * Leases and writing are in store_lease.c, deletion and listing in store_delete.c, the chunk index in
 * store_index.c.
 *
 * Invariants. A byte of the capacity is used, leased or free; it moves from leased to used when a record
 * arrives, from used to free when the hole is punched (until then it is "dying": still used, no longer live).
 * bnf_store_check() recomputes all counts from the index and the leases. A segment slot is given to another
 * segment only after UNLINK.
 *
 * Why a segment at a time: records of one time step lie together and die together, so most segments end by
 * one unlink instead of a thousand punches. Why a spare: making a segment costs two syncs, which a lease
 * should not wait for.
 */
#include "benefactor/store.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "benefactor/store_impl.h"
#include "fp/err.h"

static void queue_init(struct op_queue *q)
{
    q->head = NULL;
    q->tail = &q->head;
}

static void queue_push(struct op_queue *q, struct bnf_op *op)
{
    op->next = NULL;
    *q->tail = op;
    q->tail = &op->next;
}

static struct bnf_op *queue_pop(struct op_queue *q)
{
    struct bnf_op *op = q->head;

    if (!op)
        return NULL;
    q->head = op->next;
    if (!q->head)
        q->tail = &q->head;
    op->next = NULL;
    return op;
}

static void ops_free(struct bnf_op *op)
{
    while (op) {
        struct bnf_op *next = op->next;

        free(op);
        op = next;
    }
}

static uint64_t salt_of(const struct bnf_store *s, uint64_t segment)
{
    uint64_t x = s->config.salt_seed + segment * 0x9e3779b97f4a7c15ull;

    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    return x ^ x >> 31;
}

int bnf_store_new(const struct bnf_store_config *config, struct bnf_store **out)
{
    struct bnf_store *s;

    if (config->segment_bytes < BNF_SEGMENT_MIN_BYTES || config->segment_bytes > BNF_SEGMENT_MAX_BYTES ||
        config->segment_bytes % PAGE)
        return -EINVAL;
    s = calloc(1, sizeof(*s));
    if (!s)
        return -ENOMEM;
    if (bnf_index_init(&s->index)) {
        free(s);
        return -ENOMEM;
    }
    s->config = *config;
    s->config.capacity_bytes -= config->capacity_bytes % PAGE;
    s->next_segment = 1;
    s->current = s->spare = NO_SLOT;
    s->device_free_bytes = UINT64_MAX;
    /* A mount may report a record that it wrote under a lease of the run before: that lease must not exist. */
    s->lease_serial = salt_of(s, 0) >> 24;
    queue_init(&s->urgent);
    queue_init(&s->lazy);
    s->events_tail = &s->events;
    *out = s;
    return 0;
}

void bnf_store_free(struct bnf_store *s)
{
    struct bnf_event event;

    if (!s)
        return;
    while (bnf_store_pop_event(s, &event))
        ;
    for (uint32_t i = 0; i < s->lease_slots; i++) {
        free(s->leases[i].pages);
        free(s->leases[i].ticket);
    }
    for (uint32_t i = 0; i < s->segment_slots; i++)
        ops_free(s->segments[i].waiting);
    ops_free(s->urgent.head);
    ops_free(s->lazy.head);
    bnf_index_fini(&s->index);
    free(s->leases);
    free(s->segments);
    free(s);
}

/* ---------------------------------------------------------------- numbers */

uint64_t store_free_bytes(const struct bnf_store *s)
{
    uint64_t taken = s->used_bytes + s->leased_bytes;

    return taken < s->config.capacity_bytes ? s->config.capacity_bytes - taken : 0;
}

uint64_t bnf_store_leasable(const struct bnf_store *s)
{
    uint64_t room = store_free_bytes(s);

    if (room > s->device_free_bytes)
        room = s->device_free_bytes;
    return room - room % PAGE;
}

void bnf_store_space(const struct bnf_store *s, struct bnf_space *out)
{
    *out = (struct bnf_space){
        .capacity_bytes = s->config.capacity_bytes,
        .used_bytes = s->used_bytes,
        .leased_bytes = s->leased_bytes,
        .free_bytes = store_free_bytes(s),
        .chunks = s->index.count,
        .segments = s->segment_count,
    };
}

size_t bnf_store_uses(const struct bnf_store *s, struct bnf_segment_use *out, size_t max)
{
    size_t n = 0;

    for (uint32_t i = 0; i < s->segment_slots && n < max; i++) {
        const struct bnf_segment *seg = &s->segments[i];

        if (seg->state == SEG_READY && (seg->live_records || seg->users))
            out[n++] = (struct bnf_segment_use){.segment = seg->id, .live_bytes = seg->live_bytes, .filling = i == s->current || seg->users};
    }
    return n;
}

void bnf_store_set_device_free(struct bnf_store *s, uint64_t bytes)
{
    s->device_free_bytes = bytes;
}

/* ---------------------------------------------------------------- operations and events */

static struct bnf_op *op_new(struct bnf_store *s, enum bnf_op_kind kind, uint32_t slot, uint64_t off,
                             uint64_t len)
{
    struct bnf_op *op = calloc(1, sizeof(*op));
    struct bnf_segment *seg = &s->segments[slot];

    if (!op)
        return NULL;
    op->kind = kind;
    op->slot = slot;
    op->segment = seg->id;
    op->salt = seg->salt;
    op->off_bytes = off;
    op->len_bytes = len;
    seg->ops++;
    return op;
}

void store_emit(struct bnf_store *s, enum bnf_op_kind kind, uint32_t slot, uint64_t off_bytes,
                uint64_t len_bytes, uint64_t credit_bytes, struct bnf_ticket *ticket)
{
    struct bnf_op *op = op_new(s, kind, slot, off_bytes, len_bytes);

    if (!op) {
        s->used_bytes -= credit_bytes;
        return;
    }
    op->credit_bytes = credit_bytes;
    s->dying_bytes += credit_bytes;
    op->ticket = ticket;
    if (ticket)
        ticket->pending++;
    queue_push(&s->lazy, op);
}

int store_emit_alloc(struct bnf_store *s, uint32_t slot, uint64_t off_bytes, uint64_t len_bytes,
                     uint64_t lease)
{
    struct bnf_op *op = op_new(s, BNF_OP_ALLOC, slot, off_bytes, len_bytes);
    struct bnf_segment *seg = &s->segments[slot];

    if (!op)
        return -ENOMEM;
    op->lease = lease;
    if (seg->state == SEG_CREATING) {
        op->next = seg->waiting;
        seg->waiting = op;
    } else {
        queue_push(&s->urgent, op);
    }
    return 0;
}

struct bnf_op *bnf_store_pop_op(struct bnf_store *s)
{
    struct bnf_op *op = queue_pop(&s->urgent);

    return op ? op : queue_pop(&s->lazy);
}

struct bnf_ticket *store_ticket_new(uint64_t tag)
{
    struct bnf_ticket *t = calloc(1, sizeof(*t));

    if (t)
        t->event.tag = tag;
    return t;
}

void store_ticket_done(struct bnf_store *s, struct bnf_ticket *t)
{
    t->next = NULL;
    *s->events_tail = t;
    s->events_tail = &t->next;
}

bool bnf_store_pop_event(struct bnf_store *s, struct bnf_event *out)
{
    struct bnf_ticket *t = s->events;

    if (!t)
        return false;
    s->events = t->next;
    if (!s->events)
        s->events_tail = &s->events;
    *out = t->event;
    free(t);
    return true;
}

/* ---------------------------------------------------------------- segments */

static uint32_t segment_slot_new(struct bnf_store *s)
{
    struct bnf_segment *more;
    uint32_t n = s->segment_slots;

    for (uint32_t i = 0; i < n; i++)
        if (s->segments[i].state == SEG_NONE)
            return i;
    more = realloc(s->segments, (n + 64) * sizeof(*more));
    if (!more)
        return NO_SLOT;
    memset(more + n, 0, 64 * sizeof(*more));
    s->segments = more;
    s->segment_slots = n + 64;
    return n;
}

static void segment_drop(struct bnf_store *s, uint32_t slot)
{
    s->segments[slot].state = SEG_NONE;
    s->segment_count--;
    if (s->current == slot)
        s->current = NO_SLOT;
    if (s->spare == slot)
        s->spare = NO_SLOT;
}

static int segment_create(struct bnf_store *s, uint32_t *out)
{
    uint32_t slot = segment_slot_new(s);
    struct bnf_segment *seg;
    struct bnf_op *op;

    if (slot == NO_SLOT)
        return -ENOMEM;
    seg = &s->segments[slot];
    *seg = (struct bnf_segment){
        .state = SEG_CREATING,
        .id = s->next_segment,
        .salt = salt_of(s, s->next_segment),
        .limit_bytes = s->config.segment_bytes,
        .cursor_bytes = FP_SEGMENT_HEADER_BYTES,
    };
    op = op_new(s, BNF_OP_CREATE, slot, 0, seg->limit_bytes);
    if (!op) {
        seg->state = SEG_NONE;
        return -ENOMEM;
    }
    s->next_segment++;
    s->segment_count++;
    queue_push(&s->urgent, op);
    *out = slot;
    return 0;
}

bool store_segment_is_idle(const struct bnf_store *s, uint32_t slot)
{
    const struct bnf_segment *seg = &s->segments[slot];

    return seg->state == SEG_READY && !seg->live_records && !seg->users && !seg->ops && slot != s->current &&
           slot != s->spare;
}

void store_segment_unlink(struct bnf_store *s, uint32_t slot, uint64_t credit_bytes,
                          struct bnf_ticket *ticket)
{
    s->segments[slot].state = SEG_UNLINKING;
    store_emit(s, BNF_OP_UNLINK, slot, 0, s->segments[slot].limit_bytes, credit_bytes, ticket);
    if (!s->segments[slot].ops) /* out of memory: the file stays until the next start */
        segment_drop(s, slot);
}

void store_segment_settle(struct bnf_store *s, uint32_t slot)
{
    if (store_segment_is_idle(s, slot))
        store_segment_unlink(s, slot, 0, NULL);
}

/* A spare is made when the rest of the current segment is good for a few leases only. */
static void want_spare(struct bnf_store *s)
{
    const struct bnf_segment *seg = &s->segments[s->current];
    uint64_t low = s->config.segment_bytes / 4;

    if (low < FP_CHUNK_MAX_BYTES * 8ull)
        low = FP_CHUNK_MAX_BYTES * 8ull;
    if (s->spare == NO_SLOT && seg->limit_bytes - seg->cursor_bytes < low && segment_create(s, &s->spare))
        s->spare = NO_SLOT;
}

static int next_segment(struct bnf_store *s)
{
    uint32_t old = s->current;
    int rc = 0;

    s->current = s->spare;
    s->spare = NO_SLOT;
    if (s->current == NO_SLOT) {
        uint32_t slot;

        rc = segment_create(s, &slot);
        s->current = rc ? NO_SLOT : slot;
    }
    if (old != NO_SLOT)
        store_segment_settle(s, old);
    return rc;
}

int store_carve(struct bnf_store *s, uint64_t *len_bytes, uint64_t min_bytes, uint32_t *slot,
                uint64_t *off_bytes)
{
    uint64_t rest = 0;
    struct bnf_segment *seg;

    if (s->current != NO_SLOT) {
        seg = &s->segments[s->current];
        rest = seg->limit_bytes - seg->cursor_bytes;
    }
    if (rest < *len_bytes && (rest < min_bytes || rest < *len_bytes / 2)) {
        int rc = next_segment(s);

        if (rc)
            return rc;
        seg = &s->segments[s->current];
        rest = seg->limit_bytes - seg->cursor_bytes;
    }
    seg = &s->segments[s->current];
    if (*len_bytes > rest)
        *len_bytes = rest;
    *slot = s->current;
    *off_bytes = seg->cursor_bytes;
    seg->cursor_bytes += *len_bytes;
    want_spare(s);
    return 0;
}

void bnf_store_retire(struct bnf_store *s, uint32_t slot)
{
    if (s->current != slot || s->segments[slot].state != SEG_READY)
        return;
    s->current = NO_SLOT;
    store_segment_settle(s, slot);
}

bool bnf_store_condemn(struct bnf_store *s, uint32_t slot)
{
    if (slot >= s->segment_slots || s->segments[slot].state != SEG_READY || s->segments[slot].condemned)
        return false;
    s->segments[slot].condemned = true;
    if (s->current == slot)
        s->current = NO_SLOT;
    store_leases_end(s, slot);
    store_segment_settle(s, slot);
    return true;
}

bool bnf_store_slot(const struct bnf_store *s, uint64_t segment, uint32_t *slot)
{
    for (uint32_t i = 0; i < s->segment_slots; i++)
        if (s->segments[i].state == SEG_READY && s->segments[i].id == segment) {
            *slot = i;
            return true;
        }
    return false;
}

static void create_done(struct bnf_store *s, uint32_t slot, int status)
{
    struct bnf_segment *seg = &s->segments[slot];
    struct bnf_op *op = seg->waiting;

    seg->waiting = NULL;
    seg->state = SEG_READY;
    if (status && s->current == slot)
        s->current = NO_SLOT;
    if (status && s->spare == slot)
        s->spare = NO_SLOT;
    while (op) {
        struct bnf_op *next = op->next;

        if (status == 0) {
            queue_push(&s->urgent, op);
        } else {
            seg->ops--;
            store_lease_allocated(s, op->lease, status);
            free(op);
        }
        op = next;
    }
    /* A failed one may have left a file: UNLINK it as any other that nobody needs. */
    store_segment_settle(s, slot);
}

void bnf_store_op_done(struct bnf_store *s, struct bnf_op *op, int status)
{
    struct bnf_segment *seg = &s->segments[op->slot];
    struct bnf_ticket *ticket = op->ticket;

    assert(seg->id == op->segment && seg->ops > 0);
    seg->ops--;
    s->used_bytes -= op->credit_bytes;
    s->dying_bytes -= op->credit_bytes;
    if (op->kind == BNF_OP_CREATE)
        create_done(s, op->slot, status);
    else if (op->kind == BNF_OP_ALLOC)
        store_lease_allocated(s, op->lease, status);
    else if (op->kind == BNF_OP_UNLINK)
        segment_drop(s, op->slot);
    if (op->kind == BNF_OP_PUNCH || op->kind == BNF_OP_ALLOC)
        store_segment_settle(s, op->slot);
    if (ticket && --ticket->pending == 0)
        store_ticket_done(s, ticket);
    free(op);
}

/* ---------------------------------------------------------------- records */

void store_kill_record(struct bnf_store *s, const struct bnf_entry *e)
{
    struct bnf_segment *seg = &s->segments[e->segment];
    uint64_t bytes = (uint64_t)e->pages * PAGE;

    seg->live_records--;
    seg->live_bytes -= bytes;
    store_emit(s, BNF_OP_PUNCH, e->segment, (uint64_t)e->page * PAGE, bytes, bytes, NULL);
}

void store_enter_record(struct bnf_store *s, uint64_t chunk, uint64_t sum, uint32_t len_bytes, uint32_t slot,
                        uint64_t off_bytes, uint32_t stored_bytes)
{
    struct bnf_entry fresh = {
        .chunk = chunk,
        .sum = sum,
        .page = (uint32_t)(off_bytes / PAGE),
        .segment = slot,
        .len_bytes = len_bytes,
        .pages = (uint16_t)(stored_bytes / PAGE),
    };
    struct bnf_entry *e = bnf_index_get(&s->index, chunk);

    s->segments[slot].live_records++;
    s->segments[slot].live_bytes += stored_bytes;
    s->segments[slot].dirty = true;
    if (!e) {
        int rc = bnf_index_put(&s->index, &fresh);

        assert(rc == 0);
        (void)rc;
    } else if (e->recovered) {
        /* What recovery found may be torn: its writer never heard that it was stored, or would not write
         * again. */
        store_kill_record(s, e);
        *e = fresh;
    } else {
        store_kill_record(s, &fresh);
    }
}

static void place_of(const struct bnf_store *s, const struct bnf_entry *e, struct bnf_place *at)
{
    *at = (struct bnf_place){
        .slot = e->segment,
        .segment = s->segments[e->segment].id,
        .salt = s->segments[e->segment].salt,
        .off_bytes = (uint64_t)e->page * PAGE,
        .stored_bytes = (uint32_t)e->pages * PAGE,
        .len_bytes = e->len_bytes,
        .sum = e->sum,
    };
}

int bnf_store_find(const struct bnf_store *s, uint64_t chunk, struct bnf_place *at)
{
    const struct bnf_entry *e = bnf_index_get(&s->index, chunk);

    if (!e)
        return FP_ECHUNK_MISSING;
    place_of(s, e, at);
    return 0;
}

/* ---------------------------------------------------------------- start */

void bnf_store_skip_segment(struct bnf_store *s, uint64_t segment)
{
    if (segment >= s->next_segment)
        s->next_segment = segment + 1;
}

int bnf_store_add_segment(struct bnf_store *s, uint64_t segment, uint64_t salt, uint64_t limit_bytes,
                          uint32_t *slot)
{
    uint32_t at = segment_slot_new(s);

    if (at == NO_SLOT)
        return -ENOMEM;
    s->segments[at] = (struct bnf_segment){
        .state = SEG_READY,
        .id = segment,
        .salt = salt,
        .limit_bytes = limit_bytes,
        .cursor_bytes = limit_bytes,
    };
    s->segment_count++;
    bnf_store_skip_segment(s, segment);
    *slot = at;
    return 0;
}

int bnf_store_add_record(struct bnf_store *s, uint64_t chunk, const struct bnf_place *at,
                         struct bnf_place *other)
{
    struct bnf_segment *seg = &s->segments[at->slot];
    struct bnf_entry *e = bnf_index_get(&s->index, chunk);
    struct bnf_entry fresh = {
        .chunk = chunk,
        .sum = at->sum,
        .page = (uint32_t)(at->off_bytes / PAGE),
        .segment = at->slot,
        .len_bytes = at->len_bytes,
        .pages = (uint16_t)(at->stored_bytes / PAGE),
        .recovered = 1,
    };
    int rc;

    if (at->off_bytes % PAGE || at->stored_bytes % PAGE || at->stored_bytes == 0 ||
        at->off_bytes + at->stored_bytes > seg->limit_bytes)
        return -EINVAL;
    if (e) {
        place_of(s, e, other);
        return -EEXIST;
    }
    rc = bnf_index_put(&s->index, &fresh);
    if (rc)
        return rc;
    seg->live_records++;
    seg->live_bytes += at->stored_bytes;
    seg->dirty = true; /* the run before may have acknowledged it without a sync */
    s->used_bytes += at->stored_bytes;
    return 0;
}

void bnf_store_drop_record(struct bnf_store *s, uint64_t chunk)
{
    struct bnf_entry *e = bnf_index_get(&s->index, chunk);
    uint64_t bytes = (uint64_t)e->pages * PAGE;

    s->segments[e->segment].live_records--;
    s->segments[e->segment].live_bytes -= bytes;
    s->used_bytes -= bytes;
    bnf_index_remove(&s->index, e);
}

int bnf_store_start(struct bnf_store *s)
{
    for (uint32_t i = 0; i < s->segment_slots; i++)
        store_segment_settle(s, i);
    return next_segment(s);
}

/* ---------------------------------------------------------------- durability */

size_t bnf_store_take_dirty(struct bnf_store *s, uint32_t *slots, size_t max)
{
    size_t n = 0;

    for (uint32_t i = 0; i < s->segment_slots; i++)
        n += s->segments[i].state == SEG_READY && s->segments[i].dirty;
    if (n > max)
        return n;
    n = 0;
    for (uint32_t i = 0; i < s->segment_slots; i++) {
        if (s->segments[i].state == SEG_READY && s->segments[i].dirty) {
            s->segments[i].dirty = false;
            slots[n++] = i;
        }
    }
    return n;
}

void bnf_store_mark_dirty(struct bnf_store *s, uint32_t slot)
{
    if (s->segments[slot].state == SEG_READY)
        s->segments[slot].dirty = true;
}

/* ---------------------------------------------------------------- self-check */

static void check_leases(const struct bnf_store *s, uint64_t *leased, uint32_t *users)
{
    for (uint32_t i = 0; i < s->lease_slots; i++) {
        const struct bnf_lease *l = &s->leases[i];
        uint64_t set = 0;

        if (l->state == LEASE_NONE)
            continue;
        *leased += l->left_bytes + l->inflight_bytes;
        users[l->slot]++;
        assert(l->off_bytes + l->len_bytes <= s->segments[l->slot].cursor_bytes);
        if (!l->local || l->state == LEASE_CLOSING)
            continue;
        for (uint64_t p = 0; p < l->len_bytes / PAGE; p++)
            set += l->pages[p / 64] >> p % 64 & 1;
        assert(l->left_bytes == l->len_bytes - set * PAGE);
    }
}

void bnf_store_check(const struct bnf_store *s)
{
    uint64_t live = 0, leased = 0, count = 0;
    uint64_t *bytes = calloc(s->segment_slots + 1, sizeof(*bytes));
    uint32_t *users = calloc(s->segment_slots + 1, sizeof(*users));

    if (!bytes || !users)
        abort();
    for (size_t i = 0; i <= s->index.mask; i++) {
        const struct bnf_entry *e = &s->index.slots[i];

        if (!e->pages)
            continue;
        count++;
        live += (uint64_t)e->pages * PAGE;
        bytes[e->segment] += (uint64_t)e->pages * PAGE;
        assert(s->segments[e->segment].state == SEG_READY);
        assert(bnf_index_get(&s->index, e->chunk) == e);
    }
    check_leases(s, &leased, users);
    for (uint32_t i = 0; i < s->segment_slots; i++) {
        assert(s->segments[i].state == SEG_NONE || s->segments[i].live_bytes == bytes[i]);
        assert(s->segments[i].state == SEG_NONE || s->segments[i].users == users[i]);
    }
    assert(count == s->index.count);
    assert(leased == s->leased_bytes);
    assert(s->used_bytes == live + s->dying_bytes);
    assert(s->used_bytes + s->leased_bytes + store_free_bytes(s) == s->config.capacity_bytes ||
           store_free_bytes(s) == 0);
    free(bytes);
    free(users);
}
