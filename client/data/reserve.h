/*
 * Reservations of write buffers: how much of a lease each has, and what is tried before a write gets ENOSPC.
 */
#ifndef CL_DATA_RESERVE_H
#define CL_DATA_RESERVE_H

#include <stdbool.h>
#include <stdint.h>

struct cl_data;
struct cl_inode;
struct cl_wbuf;

struct cl_reserve_for {            /* a new buffer's place */
    uint64_t win;
    uint32_t window_bytes, stripe;
};

/* For a new buffer that begins with `data` bytes; sets b->resv and b->paid. Without lock; blocks: see cl_space_reserve. -ENOSPC: the store is full. */
int cl_reserve(struct cl_data *d, struct cl_inode *inode, const struct cl_reserve_for *r, uint32_t data, struct cl_wbuf *b);
/* inode->lock held, these three. b is to have `data` bytes. False: there is no room for that where it has its reservation. */
bool cl_reserve_more(struct cl_data *d, struct cl_wbuf *b, uint32_t data, uint32_t window_bytes);
/* b is OPEN: no more than what it has. */
void cl_reserve_trim(struct cl_data *d, struct cl_wbuf *b, uint32_t window_bytes);
/* b was sealed: no more than its record takes. */
void cl_reserve_sealed(struct cl_data *d, struct cl_wbuf *b);

#endif
