/*
 * Deleting chunks, and listing those that are here.
 *
 * Part of the store (store.h), same thread. The manager deletes in batches, and what was written together is
 * deleted together: the places of a batch are sorted and neighbours become one hole; a segment that becomes
 * empty is unlinked instead of punched, which the file system below does in a fraction of the time.
 *
 * The list of a whole benefactor is asked for in pages, in ascending order, out of a hash. Each page is a
 * true picture of the moment at which it is made, because the manager takes a chunk that is missing from a
 * page for lost: one pass over the index keeps the smallest ids above `after` in a heap (10 ms for a million
 * chunks). A sorted copy made once was rejected: its later pages would be of the past.
 */
#include <errno.h>
#include <stdlib.h>

#include "benefactor/store_impl.h"
#include "fp/bug.h"

static int by_place(const void *pa, const void *pb)
{
    const struct bnf_entry *a = pa, *b = pb;

    if (a->segment != b->segment)
        return a->segment < b->segment ? -1 : 1;
    return a->page < b->page ? -1 : a->page > b->page;
}

/* Records first..end of one segment, in order of their places. */
static void free_records(struct bnf_store *s, const struct bnf_entry *first, const struct bnf_entry *end,
                         struct bnf_ticket *t)
{
    uint32_t slot = first->segment;
    uint64_t total = 0;

    for (const struct bnf_entry *e = first; e < end; e++)
        total += (uint64_t)e->pages * PAGE;
    s->segments[slot].live_bytes -= total;
    s->segments[slot].live_records -= (uint32_t)(end - first);
    if (FP_BUG("bnf-reuses-a-freed-segment") && slot == s->current && s->segments[slot].live_records == 0)
        s->segments[slot].cursor_bytes = PAGE; /* which leases may have */
    if (store_segment_is_idle(s, slot)) {
        store_segment_unlink(s, slot, total, t);
        return;
    }
    while (first < end) {
        uint64_t from = (uint64_t)first->page * PAGE, to = from;

        for (; first < end && (uint64_t)first->page * PAGE == to; first++)
            to += (uint64_t)first->pages * PAGE;
        store_emit(s, BNF_OP_PUNCH, slot, from, to - from, to - from, t);
    }
}

int bnf_store_delete(struct bnf_store *s, const uint64_t *chunks, size_t count, uint64_t tag)
{
    struct bnf_ticket *t = store_ticket_new(tag);
    struct bnf_entry *gone = malloc((count + 1) * sizeof(*gone));
    size_t n = 0;

    if (!t || !gone) {
        free(t);
        free(gone);
        return -ENOMEM;
    }
    for (size_t i = 0; i < count; i++) {
        struct bnf_entry *e = bnf_index_get(&s->index, chunks[i]);

        if (e) {
            gone[n++] = *e;
            bnf_index_remove(&s->index, e);
        }
    }
    qsort(gone, n, sizeof(*gone), by_place);
    for (size_t i = 0, end; i < n; i = end) {
        for (end = i; end < n && gone[end].segment == gone[i].segment; end++)
            ;
        free_records(s, gone + i, gone + end, t);
    }
    free(gone);
    if (t->pending == 0)
        store_ticket_done(s, t);
    return 0;
}

static int by_id(const void *pa, const void *pb)
{
    uint64_t a = *(const uint64_t *)pa, b = *(const uint64_t *)pb;

    return a < b ? -1 : a > b;
}

/* The largest is at heap[0]; puts id in its place. */
static void heap_replace(uint64_t *heap, size_t n, uint64_t id)
{
    size_t i = 0, child;

    while ((child = 2 * i + 1) < n) {
        if (child + 1 < n && heap[child + 1] > heap[child])
            child++;
        if (heap[child] <= id)
            break;
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = id;
}

static void heap_add(uint64_t *heap, size_t n, uint64_t id)
{
    size_t i = n;

    while (i > 0 && heap[(i - 1) / 2] < id) {
        heap[i] = heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    heap[i] = id;
}

size_t bnf_store_inventory(const struct bnf_store *s, uint64_t after, uint64_t *out, size_t max, bool *eof)
{
    size_t n = 0;

    *eof = true;
    for (size_t i = 0; i <= s->index.mask; i++) {
        uint64_t id = s->index.slots[i].chunk;

        if (!s->index.slots[i].pages || id <= after)
            continue;
        if (n < max) {
            heap_add(out, n++, id);
            continue;
        }
        *eof = false;
        if (max && id < out[0])
            heap_replace(out, n, id);
    }
    qsort(out, n, sizeof(*out), by_id);
    return n;
}
