/*
 * Leases: space on benefactors that is this mount's to fill. A byte is accepted from an application only when leased space for it is reserved,
 * so that ENOSPC comes from write() and not after close().
 */
#ifndef CL_DATA_SPACE_H
#define CL_DATA_SPACE_H

#include <stdbool.h>
#include <stdint.h>

struct cl_data;
struct cl_bnf;
struct cl_seg;

#define CL_LEASE_EXTENTS_MAX 8u

struct cl_extent {
    struct cl_seg *seg;            /* NULL: remote lease, only bytes count */
    uint64_t off, end;             /* next byte to use, first byte beyond */
    uint64_t promised;             /* reserved and not yet placed */
};

struct cl_lease {                  /* all under data->space_lock */
    struct cl_lease *next;
    struct cl_bnf *bnf;
    uint64_t id;
    bool local;                    /* it came by the local link */
    uint64_t generation;           /* of the link it came by: void when that broke */
    bool refused;                  /* the benefactor does not know it any more */
    uint64_t used_ms;              /* last time of use, for giving it back */
    uint32_t busy;                 /* reservations and records under way */
    uint32_t nextents;
    struct cl_extent ext[CL_LEASE_EXTENTS_MAX];
};

/* A part of a lease, reserved for one record. lease NULL: none. */
struct cl_resv {
    struct cl_lease *lease;
    uint32_t ext;
    uint32_t bytes;
};

/*
 * Reserve need bytes (a record with header) for a window, on the best benefactor. Blocks for leasing, until deadline_ms. FUSE or store threads.
 * 0; -ENOSPC: every benefactor that is up is full; FP_ENOBENEFACTOR: none is up; avoid: number of one not to take (it just failed), 0 = none.
 */
int cl_space_reserve(struct cl_data *d, uint64_t ino, uint64_t win, uint32_t stripe, uint32_t need, uint32_t avoid,
             uint64_t deadline_ms, struct cl_resv *out);
/* Give a reservation back unused. NULL lease is fine. */
void cl_space_release(struct cl_data *d, struct cl_resv *r);
/* Make it larger where it is; false: there is no room, with `spare` left. */
bool cl_space_grow(struct cl_data *d, struct cl_resv *r, uint32_t bytes, uint32_t spare);
/* Make it smaller, if it is larger. */
void cl_space_shrink(struct cl_data *d, struct cl_resv *r, uint32_t bytes);
/* Turn a reservation into a place: bytes <= r->bytes; *off in the segment. The difference is free again. False: the lease is void (link broke). */
bool cl_space_place(struct cl_data *d, struct cl_resv *r, uint32_t bytes, uint64_t *off);
/* The record is stored or has failed: the lease may go. */
void cl_space_done(struct cl_data *d, struct cl_resv *r);
/* The benefactor failed with err: leave it alone for a moment. */
void cl_space_avoid(struct cl_data *d, struct cl_bnf *b, int err);
/* As cl_space_done, and err is why the benefactor did not take the record: FP_ELEASE ends the lease here too. */
void cl_space_failed(struct cl_data *d, struct cl_resv *r, int err);
/* Bytes that could be leased now, by the table and the leases held. */
uint64_t cl_space_free_bytes(struct cl_data *d);
/* Give back leases that are idle (all of them: at the end). */
void cl_space_tick(struct cl_data *d, uint64_t now_ms, bool all);
void cl_space_fini(struct cl_data *d);

#endif
