/* The benefactor's store: what lies where, who may write where, what is free. A state machine without I/O.
 *
 * It is told what happens (a lease is asked for, records were stored, a connection ended, a disk operation
 * finished) and says which disk operations are to be done (bnf_store_pop_op) and which requests are complete
 * (bnf_store_pop_event). It opens no file, reads no clock, has no thread: the shell (service.c), the unit
 * tests and the simulator run the same code.
 *
 * Space. Every byte of the contributed size is in exactly one of
 *     used    records in the index, and records or leftovers whose hole has not been punched yet
 *     leased  given to a lease and not filled yet
 *     free    may be leased
 * and used + leased + free == capacity after every call (unless recovery found more than the capacity: then
 * free is 0). Segment headers, 4 KiB per segment, come on top.
 *
 * Segments are filled from front to back and no offset is ever used twice: a late write of a client whose
 * lease has ended can hit nothing but a hole. A segment is unlinked when it has no record, no lease and no
 * operation under way, and is not the one being filled.
 *
 * Order of operations: the store issues CREATE of a segment before all others of it, UNLINK when all others
 * of it are done, PUNCH of an extent after its ALLOC is done. The shell may run everything that it popped in
 * any order, in parallel.
 *
 * Thread: one, whichever it is. Nothing blocks. -ENOMEM leaves the state as it was. */
#ifndef BNF_STORE_H
#define BNF_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fp/record.h"

#define BNF_SEGMENT_MIN_BYTES ((uint64_t)32 << 20) /* one record of the largest size fits */
#define BNF_SEGMENT_MAX_BYTES ((uint64_t)1 << 40)
#define BNF_LEASES_MAX        8192u /* open at a time */
#define BNF_LEASE_MAX_BYTES   ((uint64_t)1 << 30)

struct bnf_store;

struct bnf_store_config {
    uint64_t capacity_bytes;
    uint64_t segment_bytes; /* limit of new segments, header included; a multiple of 4 KiB */
    uint64_t salt_seed;     /* random: salts of segments are made from it */
};

/* A segment as the shell knows it: slot is an index for the shell's own tables, free for reuse after UNLINK
 * is done. */
struct bnf_place {
    uint32_t slot;
    uint64_t segment;
    uint64_t salt;
    uint64_t off_bytes; /* of the record's header */
    uint32_t stored_bytes;
    uint32_t len_bytes;
    uint64_t sum;
};

enum bnf_op_kind {
    BNF_OP_CREATE, /* segment with header (salt, limit = len_bytes), durable before it is reported as done */
    BNF_OP_ALLOC,  /* make sure that writing [off, off+len) will find space */
    BNF_OP_PUNCH,  /* [off, off+len) is not needed: give the space back */
    BNF_OP_UNLINK, /* whole segment: give the space back now, also if somebody holds it open; remove the file
                    */
};

struct bnf_ticket;

struct bnf_op {
    struct bnf_op *next; /* the store's until popped, the shell's until done */
    enum bnf_op_kind kind;
    uint32_t slot;
    uint64_t segment;
    uint64_t salt;
    uint64_t off_bytes;
    uint64_t len_bytes;
    /* the store's */
    struct bnf_ticket *ticket;
    uint64_t lease;
    uint64_t credit_bytes;
};

/* A request that had to wait for disk operations is complete. */
struct bnf_event {
    uint64_t tag;   /* what the request was started with */
    uint64_t lease; /* leases: its id */
    int status;
};

struct bnf_extent {
    uint32_t slot;
    uint64_t segment;
    uint64_t salt;
    uint64_t off_bytes;
    uint64_t len_bytes;
};

struct bnf_space {
    uint64_t capacity_bytes;
    uint64_t used_bytes;
    uint64_t leased_bytes;
    uint64_t free_bytes;
    uint64_t chunks;
    uint64_t segments;
};

/* -EINVAL: sizes out of bounds; -ENOMEM. */
int bnf_store_new(const struct bnf_store_config *config, struct bnf_store **out);
void bnf_store_free(struct bnf_store *s); /* NULL is fine; operations not popped are dropped */

/* ---- start: what recovery found. Before anything else is asked of the store. */

/* A segment of an earlier run: read and punched, never written. *slot is for _add_record. */
int bnf_store_add_segment(struct bnf_store *s, uint64_t segment, uint64_t salt, uint64_t limit_bytes,
                          uint32_t *slot);
/* A record found in it. -EEXIST: another record of this chunk is known, in *other; -EINVAL: not within the
 * segment. */
int bnf_store_add_record(struct bnf_store *s, uint64_t chunk, const struct bnf_place *at,
                         struct bnf_place *other);
/* Takes a record out again, without punching (the other of two was the better one). */
void bnf_store_drop_record(struct bnf_store *s, uint64_t chunk);
/* A segment id that must not be given out (a segment that was set aside). */
void bnf_store_skip_segment(struct bnf_store *s, uint64_t segment);
/* Everything is known: unlinks recovered segments without records, prepares the first segment to fill. */
int bnf_store_start(struct bnf_store *s);

/* ---- what the file system below has left; limits leases like free space does. Not called: no limit. */
void bnf_store_set_device_free(struct bnf_store *s, uint64_t bytes);

/* ---- leases. owner is any number that the shell gives to a connection. */

/* Asks for want bytes and takes no less than min. A lease is one extent of one segment. It gets less than
 * want when little is free (never more than a quarter of that, or min) and at the end of a segment. 0: comes
 * as an event with this tag; -ENOSPC; -EINVAL: min is larger than a segment, or than want; -EBUSY: too many
 * leases. local: for a writer on this node, who writes the extent itself and reports records; else
 * _write_begin fills it. */
int bnf_store_lease(struct bnf_store *s, uint64_t owner, bool local, uint64_t want_bytes, uint64_t min_bytes,
                    uint64_t tag);
/* The extent of a lease that is ready. False: no such lease. */
bool bnf_store_lease_extent(const struct bnf_store *s, uint64_t lease, struct bnf_extent *out);
/* Gives space back: of a remote lease `bytes` of what is left (all: the lease ends), of a local one all that
 * is left. FP_ELEASE: not held by this owner. */
int bnf_store_lease_return(struct bnf_store *s, uint64_t owner, uint64_t lease, uint64_t bytes);
/* The connection is gone: all its leases end. A lease request under way still gets its event (-ECANCELED). */
void bnf_store_owner_gone(struct bnf_store *s, uint64_t owner);

/* ---- writing */

struct bnf_stored {
    uint64_t chunk;
    uint64_t segment;
    uint64_t off_bytes;
    uint32_t stored_bytes;
    uint32_t len_bytes;
    uint64_t sum;
};
/* Records that the holder of a local lease wrote. All or none. Saying it twice is fine. FP_ELEASE; -EINVAL:
 * outside the lease, not aligned, or over another record. A second copy of a chunk is not an error: one of
 * the two is dropped. */
int bnf_store_stored(struct bnf_store *s, uint64_t owner, uint64_t lease, const struct bnf_stored *records,
                     size_t count);

/* A chunk that came over the network: where shall it go? 0: *at is reserved until _write_end; -EEXIST: this
 * chunk is stored already (the writer asks again after a lost reply); FP_ELEASE; -ENOSPC: more than the lease
 * has left; -EINVAL. */
int bnf_store_write_begin(struct bnf_store *s, uint64_t owner, uint64_t lease, uint64_t chunk,
                          uint32_t len_bytes, struct bnf_place *at);
/* The write is over. status < 0: the place is given up; its bytes are free again, but not the lease's. 0 or
 * -ENOMEM (as a failed write). */
int bnf_store_write_end(struct bnf_store *s, uint64_t lease, uint64_t chunk, const struct bnf_place *at,
                        int status);

/* ---- reading, deleting, listing */

/* 0 or FP_ECHUNK_MISSING. */
int bnf_store_find(const struct bnf_store *s, uint64_t chunk, struct bnf_place *at);
/* Ids that are not here count as gone. Event with this tag when the space of all has been given back.
 * -ENOMEM. */
int bnf_store_delete(struct bnf_store *s, const uint64_t *chunks, size_t count, uint64_t tag);
/* Ids above `after` in ascending order, at most max into out; *eof when these were the last. Returns their
 * number. */
size_t bnf_store_inventory(const struct bnf_store *s, uint64_t after, uint64_t *out, size_t max, bool *eof);

/* ---- durability */

/* Slots of segments with records that were stored since the last call, or found at start; they count as clean
 * from now on.
 * Returns how many there are; if that is more than max nothing was changed: call again with more room. */
size_t bnf_store_take_dirty(struct bnf_store *s, uint32_t *slots, size_t max);
/* To be synced (again), whatever was stored in it. */
void bnf_store_mark_dirty(struct bnf_store *s, uint32_t slot);
/* A segment could not be synced: nobody gets a lease in it any more, and those in it end. False: that was so already. */
bool bnf_store_condemn(struct bnf_store *s, uint32_t slot);
/* The slot of a segment that is in use. False: there is none. */
bool bnf_store_slot(const struct bnf_store *s, uint64_t segment, uint32_t *slot);

/* ---- operations and events */

/* The next operation or NULL: those that a client waits for first. */
struct bnf_op *bnf_store_pop_op(struct bnf_store *s);
/* Takes the operation back. Failed ALLOC or CREATE: leases that wait for it get the status. Failed PUNCH or
 * UNLINK: the space counts as free (the file system below knows better: the shell limits what it announces by
 * statfs). */
void bnf_store_op_done(struct bnf_store *s, struct bnf_op *op, int status);
bool bnf_store_pop_event(struct bnf_store *s, struct bnf_event *out);

/* ---- numbers */

void bnf_store_space(const struct bnf_store *s, struct bnf_space *out);
struct bnf_segment_use {
    uint64_t segment;
    uint64_t live_bytes; /* of records */
    bool filling;        /* leases are cut from it, or are open in it */
};
/* Segments with records or leases, in no order: at most max. */
size_t bnf_store_uses(const struct bnf_store *s, struct bnf_segment_use *out, size_t max);
/* The most that leases could get now: free space, limited by the device. */
uint64_t bnf_store_leasable(const struct bnf_store *s);
/* A write into this segment failed: fill another one from now on. */
void bnf_store_retire(struct bnf_store *s, uint32_t slot);
/* Recomputes everything from the index and the leases, asserts that it agrees. For tests. */
void bnf_store_check(const struct bnf_store *s);

#endif
