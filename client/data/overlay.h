/*
 * Overlay: what a byte range of a window consists of, when newer slices lie over older ones.
 *
 * Pure functions. A reader adds the pieces from the oldest to the newest; each cuts what it covers. The result is sorted and disjoint; what is
 * not covered reads as zeros.
 */
#ifndef CL_DATA_OVERLAY_H
#define CL_DATA_OVERLAY_H

#include <stdint.h>

/* Enough for any 4 KiB: reads of windows with more pieces are done in parts. */
#define CL_OVERLAY_MAX 4200u

struct cl_wbuf;

struct cl_chunk_ref {          /* a stored chunk, all that a reader needs to know of it */
    uint64_t id;
    uint64_t sum;
    uint32_t len_bytes;    /* as stored; 0: only the number is known (read.c) */
    uint32_t bnf;
    uint32_t data_len_bytes; /* coded: bytes of data; 0: not coded, len_bytes are */
    uint64_t ext, ext_off;   /* bnf is 0: token of the file in a target (ext.h), and where in it; 0: lost */
};

struct cl_piece {
    uint32_t off, len;         /* bytes of the window */
    uint32_t src_off;          /* where they are in the data of the chunk, or in the buffer */
    struct cl_wbuf *buf;       /* data still in the pool; else NULL and chunk says where */
    struct cl_chunk_ref chunk; /* number 0: zeros */
};

struct cl_overlay {
    uint32_t from, to;         /* the bytes asked for */
    uint32_t n;
    struct cl_piece piece[CL_OVERLAY_MAX];
};

void cl_overlay_init(struct cl_overlay *o, uint32_t from, uint32_t to);
/* Lay p over what is there; bytes outside [from, to) are cut off. 0, or -E2BIG when there are too many pieces (the caller reads less). */
int cl_overlay_add(struct cl_overlay *o, const struct cl_piece *p);

#endif
