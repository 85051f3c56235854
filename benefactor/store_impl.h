/* Inside of the store: shared by store.c, store_lease.c, store_delete.c and nobody else. */
#ifndef BNF_STORE_IMPL_H
#define BNF_STORE_IMPL_H

#include "benefactor/store.h"
#include "benefactor/store_index.h"

#define NO_SLOT UINT32_MAX
#define PAGE    FP_RECORD_ALIGN_BYTES

enum segment_state { SEG_NONE = 0, SEG_CREATING, SEG_READY, SEG_UNLINKING };

struct bnf_segment {
    enum segment_state state;
    bool dirty;
    bool condemned; /* could not be synced */
    uint64_t id;
    uint64_t salt;
    uint64_t limit_bytes;
    uint64_t cursor_bytes; /* nothing was ever given out above it */
    uint64_t live_bytes;
    uint32_t live_records;
    uint32_t users;         /* leases in it */
    uint32_t ops;           /* operations queued or under way */
    struct bnf_op *waiting; /* while CREATING: allocations that follow it */
};

enum lease_state { LEASE_NONE = 0, LEASE_PENDING, LEASE_OPEN, LEASE_CLOSING };

struct bnf_lease {
    enum lease_state state;
    bool local;
    bool doomed; /* owner went away while PENDING */
    uint64_t id;
    uint64_t owner;
    uint32_t slot; /* of the segment */
    uint64_t off_bytes;
    uint64_t len_bytes;
    uint64_t left_bytes;     /* local: pages not covered by records; remote: behind the cursor */
    uint64_t inflight_bytes; /* remote: between _write_begin and _write_end */
    uint32_t inflight;
    uint64_t *pages;           /* local: one bit per page, set = part of a record */
    struct bnf_ticket *ticket; /* while PENDING */
};

/* A request that waits for operations. In the event queue once pending is 0. */
struct bnf_ticket {
    struct bnf_ticket *next;
    uint32_t pending;
    struct bnf_event event;
};

struct op_queue {
    struct bnf_op *head, **tail;
};

struct bnf_store {
    struct bnf_store_config config;
    struct bnf_index index;

    struct bnf_segment *segments;
    uint32_t segment_slots;
    uint32_t segment_count;
    uint64_t next_segment;
    uint32_t current; /* slot being filled, or NO_SLOT */
    uint32_t spare;   /* slot made ahead, or NO_SLOT */

    struct bnf_lease *leases;
    uint32_t lease_slots;
    uint64_t lease_serial;

    uint64_t used_bytes;  /* live + dying */
    uint64_t dying_bytes; /* credit of operations queued or under way */
    uint64_t leased_bytes;
    uint64_t device_free_bytes;

    struct op_queue urgent; /* CREATE, ALLOC */
    struct op_queue lazy;   /* PUNCH, UNLINK */
    struct bnf_ticket *events, **events_tail;
};

uint64_t store_free_bytes(const struct bnf_store *s);

/* Queues an operation. Out of memory: the credit is given at once, the device's space comes back at the next
 * start. */
void store_emit(struct bnf_store *s, enum bnf_op_kind kind, uint32_t slot, uint64_t off_bytes,
                uint64_t len_bytes, uint64_t credit_bytes, struct bnf_ticket *ticket);
/* The same for ALLOC, which can't be left out: -ENOMEM. Held back while the segment is being made. */
int store_emit_alloc(struct bnf_store *s, uint32_t slot, uint64_t off_bytes, uint64_t len_bytes,
                     uint64_t lease);

struct bnf_ticket *store_ticket_new(uint64_t tag);
void store_ticket_done(struct bnf_store *s, struct bnf_ticket *t);

/* Makes `current` a segment with at least len bytes left and returns them as [*off, *off + *len): *len may be
 * made smaller, not below min, at the end of a segment. -ENOMEM. */
int store_carve(struct bnf_store *s, uint64_t *len_bytes, uint64_t min_bytes, uint32_t *slot,
                uint64_t *off_bytes);
/* True if nothing needs the segment any more. */
bool store_segment_is_idle(const struct bnf_store *s, uint32_t slot);
void store_segment_unlink(struct bnf_store *s, uint32_t slot, uint64_t credit_bytes,
                          struct bnf_ticket *ticket);
/* Unlinks the segment if it is idle. */
void store_segment_settle(struct bnf_store *s, uint32_t slot);

/* The record of e is no longer wanted: out of the counts of its segment, into dying; punches it. The index is
 * the caller's. */
void store_kill_record(struct bnf_store *s, const struct bnf_entry *e);
/* Enters a record that is on the device and already in used_bytes. One of two copies is killed. The index has
 * room. */
void store_enter_record(struct bnf_store *s, uint64_t chunk, uint64_t sum, uint32_t len_bytes, uint32_t slot,
                        uint64_t off_bytes, uint32_t stored_bytes);

/* All leases in this segment end. */
void store_leases_end(struct bnf_store *s, uint32_t slot);
/* ALLOC of this lease is over. */
void store_lease_allocated(struct bnf_store *s, uint64_t lease, int status);

#endif
