/*
 * What aux-apps made of a sealed buffer: of which pieces it is, and the bytes that are stored in place of its pages.
 *
 * Made when the buffer is sealed, if aux-apps are declared, and gone with it. The buffer's pages stay until the chunk is stored, so that the data can be
 * read, and the aux-apps asked again if their host dies.
 */
#ifndef CL_DATA_PACKED_H
#define CL_DATA_PACKED_H

#include <stdbool.h>
#include <stdint.h>

#include "client/aux/aux.h"

struct cl_data;
struct cl_wbuf;

struct cl_packed {
    struct cl_aux_job job;             /* first: aux/'s until it is done */
    struct cl_wbuf *b;
    void (*ready)(struct cl_wbuf *b);
    uint32_t pieces_max;               /* so that the window does not become too many slices */
    bool answered;                     /* job has a result that was not given back */
    bool taken;                        /* what follows is set: store threads only before the buffer is STORED, then constant */
    uint32_t npieces;                  /* 0: the data of the chunk is that of the sealed buffer */
    struct fp_auxw_piece *pieces;
    bool refers;                       /* one is of a stored chunk */
    uint32_t new_bytes;                /* of data in the chunk; 0: nothing is stored */
    uint32_t data_len_bytes;           /* coded: = new_bytes; else 0 */
    uint8_t *flat;                     /* what is stored: flat_bytes, then zeros up to a device block; NULL: the buffer's pages */
    uint32_t flat_bytes;
    uint8_t *note;
    uint64_t *keys;
    uint32_t note_bytes, nkeys;
    struct cl_aux_tickets tickets;
    struct cl_aux_pins *pins;
};

/*
 * inode->lock held: give a SEALED buffer to the aux-apps. ready(b) is called when they are done with it, on a thread of aux/, maybe before this returns;
 * it must not block. no_stored: nothing of it may be referred to in stored chunks. -ENOMEM: nothing was done.
 */
int cl_packed_submit(struct cl_data *d, struct cl_wbuf *b, bool no_stored, void (*ready)(struct cl_wbuf *b));
/*
 * Take the result over, after ready; blocks on I/O where stored chunks are to be compared with. Store threads. 0: once. 1: what was said of the data is not so, and the
 * aux-apps have it again: ready is called again, and the buffer may be gone already. An error is the file's: an aux-app refused the data (logged by aux/), or what it
 * left can't be kept.
 */
int cl_packed_take(struct cl_data *d, struct cl_packed *k);
/* Where in the file it is, for aux-apps. inode->lock held. */
uint64_t cl_packed_file_off(const struct cl_wbuf *b);
/* The chunk is stored: its bytes are not needed any more. */
void cl_packed_stored(struct cl_data *d, struct cl_packed *k);
/* NULL is fine. Not while the aux-apps have it. */
void cl_packed_free(struct cl_data *d, struct cl_packed *k);
/* Bytes of notes and keys that a commit of this carries; NULL: 0. */
uint32_t cl_packed_note_bytes(const struct cl_packed *k);

#endif
