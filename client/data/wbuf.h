/*
 * The write buffer of a window: bytes an application wrote into one chunk-sized piece of a file, until they are a stored chunk.
 *
 * Life: OPEN (takes writes) -> SEALED (layout fixed, waits for a store thread) -> STORED (the chunk is on a benefactor, pages given back) ->
 * committed, which ends it. FAILED ends it too, with the error kept by the file. The buffers of a window form a list, oldest first; a later one
 * wins. Pure: no I/O, no lock (the inode's lock is held by the caller), no clock.
 *
 * While OPEN, byte x of the window is in page[x / 64 KiB]. Sealing lays the written ranges out as the data of one chunk: as it
 * is, from the first block on, if little space would be wasted, else packed without gaps. Afterwards `slices` says
 * which bytes of the window are where in the chunk, and byte y of the chunk is in page[base + y / 64 KiB].
 */
#ifndef CL_DATA_WBUF_H
#define CL_DATA_WBUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/data/jobs.h"
#include "client/data/overlay.h"
#include "client/data/space.h"

#define CL_WBUF_RANGES_MAX 32u
/* Gaps of up to this size in all are stored as zeros rather than packed away: one device block. */
#define CL_WBUF_WASTE_MAX_BYTES 4096u
#define CL_WBUF_PAGES_MAX 256u   /* 16 MiB, the largest chunk */

struct cl_file;
struct cl_packed;

enum cl_wbuf_state { CL_WBUF_OPEN, CL_WBUF_SEALED, CL_WBUF_STORED, CL_WBUF_FAILED };

struct cl_range {              /* written bytes of the window; after sealing also where they are in the chunk */
    uint32_t off, len, chunk_off;
};

struct cl_wbuf {
    struct cl_job job;             /* first: the job that stores it */
    struct cl_wbuf *next;          /* newer buffer of the same window */
    struct cl_wbuf *fl_prev, *fl_next; /* sealed, not stored: list of the file, by seal_seq */
    uint64_t seal_seq;
    bool committing;               /* in a MSG_COMMIT under way */
    uint32_t avoid_bnf;            /* store: number of the benefactor that failed last */
    uint64_t losses;               /* store: data->losses before the attempt */
    bool is_asked_about;           /* store: may it be passed over by aux-apps? */
    bool passes_anew;              /* store: it goes to the aux-apps (once more) */
    uint64_t asked_off;            /* … and where in the file it is for them */
    uint64_t deadline_ms;          /* store: give up then; 0 = not begun */
    struct cl_file *file;
    uint64_t win;
    enum cl_wbuf_state state;
    uint32_t writers;              /* threads copying into pages now: sealing waits for them */
    bool seal_wanted;
    uint64_t opened_ms;            /* for age */
    bool aged;                     /* in the list of open buffers; its lock */
    uint64_t counted_bytes;        /* bytes in the file's and mount's accounts since sealing */
    struct cl_wbuf *age_prev, *age_next; /* list of open buffers, lock of the data path */
    struct cl_resv resv;           /* reserved space */
    uint32_t paid;                 /* open: bytes of data that the reservation is for (reserve.c) */
    uint32_t copying;              /* bytes that writers are copying now */
    uint32_t nranges;
    struct cl_range range[CL_WBUF_RANGES_MAX];
    uint32_t base;                 /* sealed: first page of the chunk */
    uint32_t chunk_len;            /* sealed: bytes of the chunk */
    struct cl_chunk_ref chunk;     /* stored; number 0: there was nothing to store */
    struct cl_packed *packed;      /* what aux-apps made of it (packed.h); NULL: it is stored as it was sealed */
    uint32_t stored_bytes;         /* stored: on the benefactor, header included */
    uint32_t npages;
    uint8_t *page[];
};

/* window_bytes: chunk size of the file. NULL: out of memory. */
struct cl_wbuf *cl_wbuf_new(struct cl_file *file, uint64_t win, uint32_t window_bytes);
void cl_wbuf_free(struct cl_wbuf *b);        /* pages must be gone */

/* How many pages are missing for a write of [off, off+len). */
uint32_t cl_wbuf_missing(const struct cl_wbuf *b, uint32_t off, uint32_t len);
/* Put pages in the missing places; takes cl_wbuf_missing() of them from *pages. Returns how many it took. */
uint32_t cl_wbuf_attach(struct cl_wbuf *b, uint32_t off, uint32_t len, uint8_t **pages);
/*
 * The same for bytes that lie in received[] as they are to lie in the window's pages, from the one of off on: a missing page is one of those received, and the one
 * of *pages in its place is left in received[]. taken[k] says so of received[k], of which nothing is to be copied then.
 */
uint32_t cl_wbuf_attach_received(struct cl_wbuf *b, uint32_t off, uint32_t len, uint8_t **pages, uint8_t **received, bool *taken);
/* Copy data in; pages must be attached. May run without the lock while writers > 0. */
void cl_wbuf_copy_in(struct cl_wbuf *b, uint32_t off, const void *data, uint32_t len);
/* Note [off, off+len) as written. False: too many ranges; the caller seals this buffer and writes into a new one. */
bool cl_wbuf_add_range(struct cl_wbuf *b, uint32_t off, uint32_t len);
/* True if adding the range would exceed CL_WBUF_RANGES_MAX. */
bool cl_wbuf_would_overflow(const struct cl_wbuf *b, uint32_t off, uint32_t len);
bool cl_wbuf_is_full(const struct cl_wbuf *b, uint32_t window_bytes);
uint64_t cl_wbuf_bytes(const struct cl_wbuf *b);
/* Bytes that it has, at most, if [off, off+len) is written too. */
uint32_t cl_wbuf_needs(const struct cl_wbuf *b, uint32_t off, uint32_t len, uint32_t window_bytes);

/*
 * Fix the layout. Pages that the chunk does not need are moved to spare[] (room for npages) and their number returned. Bytes of the chunk
 * that nobody wrote are zero: never the pool's old content.
 */
uint32_t cl_wbuf_seal(struct cl_wbuf *b, uint8_t **spare);

/* Cut away bytes at and beyond new_len of the window (truncate). Only slices change, also of a buffer being stored. */
void cl_wbuf_truncate(struct cl_wbuf *b, uint32_t new_len);

/* Copy [off, off+len) of the window out of a buffer whose pages are there (OPEN: by place; SEALED: src_off in the chunk). */
void cl_wbuf_copy_out(const struct cl_wbuf *b, uint32_t src_off, void *dst, uint32_t len);

/* Add this buffer's pieces to an overlay. 0 or -E2BIG. */
int cl_wbuf_overlay(struct cl_wbuf *b, struct cl_overlay *o);

#endif
