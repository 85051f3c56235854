/*
 * The mount's side of aux-apps, as the rest of fp-mount sees it. Implementation in this folder; the programs it talks to are
 * auxapps/host (include/fp/auxwire.h). docs/ARCHITECTURE.md, "Aux-apps", says how it works together.
 *
 * m->aux is NULL on a mount that has declared no aux-app and has met no coded chunk: every caller's branch. The functions below may be
 * called with it NULL unless they say otherwise.
 *
 * The rule that makes the death of a plugin harmless: the pages of a window belong to the mount and stay until its chunk is stored, and whatever
 * the host answers is checked before anybody sees it. A job without a usable answer is sent again to the next host; when there is none to be
 * had any more (bypassed), it is done with the result "as it came".
 */
#ifndef CL_AUX_H
#define CL_AUX_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "client/client.h"
#include "fp.pb-c.h"
#include "fp/auxwire.h"

struct cl_handle;
struct cl_inode;
struct cl_pool;
struct cl_aux;
struct cl_chunk_ref;
struct cl_aux_pins;

/* -------------------------------------------------------------- life */

/*
 * After cl_data_start, before mounting: starts the host if aux-apps are declared, and returns when it is ready, or with a negative errno and a logged line that
 * says what to do. pool: outlives cl_aux_stop.
 */
int cl_aux_start(struct cl_mount *m, struct cl_pool *pool);
/* At the end, when no file is open any more: until all that want to know have been told of the files that were sealed, and are done with them, or until_ms. */
void cl_aux_sealed_wait(struct cl_mount *m, uint64_t until_ms);
/* After cl_data_sync_at_end. Releases what is held, ends the host and all threads; what is submitted from here on fails. Before cl_data_stop and cl_core_stop. */
void cl_aux_stop(struct cl_mount *m);
/* After cl_data_free. */
void cl_aux_free(struct cl_mount *m);

/* -------------------------------------------------------------- chunks on their way to the store */

/* inode->aux_serial of a file that an aux-app writes: its data passes no aux-app. */
#define CL_AUX_SERIAL_OWN UINT64_MAX

struct cl_aux_tickets { uint64_t ticket[4]; uint32_t app[4]; }; /* 0: none */

/*
 * One window of a file on its way through the chain. The caller fills the first part, zeroes the rest, and owns all of it: job, pages and their
 * contents must not change between cl_aux_submit and done.
 */
struct cl_aux_job {
    uint64_t ino, file_off;        /* file_off: of byte 0 of the data, i.e. of the window when `whole` */
    uint64_t file_serial;          /* inode->aux_serial when the window was sealed */
    uint32_t len_bytes;            /* 1 .. FP_AUX_CHUNK_MAX_BYTES */
    uint32_t npages;               /* = len_bytes in pages of 64 KiB, rounded up */
    bool no_stored;                /* the result must not refer to stored chunks */
    bool whole;                    /* all bytes of [file_off, file_off + len_bytes), in order; else packed ranges */
    uint8_t *const *pages;         /* of the pool */
    bool no_pieces;                /* all data is to be new: what aux-apps said of which pieces it is was not so */
    /* Exactly once per submit, on a thread of aux/, with no lock held; sometimes before cl_aux_submit returns. Must not block: hand it to a store thread. */
    void (*done)(struct cl_aux_job *job);

    /* The result, valid from done to cl_aux_job_fini. All of it has been checked: pieces are in order without gaps, in bounds, and the
     * chunks they refer to are held. */
    int status;                    /* 0, or negative errno: an aux-app refused the data (logged), and the file's write fails with it */
    uint32_t npieces;              /* 0: all of it is new */
    const struct fp_auxw_piece *pieces;
    uint32_t new_bytes;            /* of new data, before coding: pieces of kind NEW in order. 0: nothing is to be stored */
    uint32_t nstages;              /* 0: not coded: the new data is in the caller's pages, where pieces say */
    const struct fp_auxw_stage *stages;
    const uint8_t *bytes;          /* nstages > 0: coded_bytes of coded data, in one piece, aligned to 64 KiB; else NULL */
    uint32_t coded_bytes;
    const uint8_t *note;           /* for Chunk.note, when something new is stored */
    uint32_t note_bytes, nkeys;
    const uint64_t *keys;
    struct cl_aux_tickets tickets; /* for cl_aux_stored */
    struct cl_aux_pins *pins;      /* NULL, or what keeps STORED chunks held: the caller takes it (and sets it NULL here) and gives it to cl_aux_pins_put
                                    * when its commit was answered, or it wants the pieces no more. Else cl_aux_job_fini does. */
    void *priv;                    /* of aux/ */
};

/* Some declared aux-app takes chunks and is not bypassed. One load; any thread. */
bool cl_aux_chunks(const struct cl_mount *m);
/* May cl_aux_passes_over say so? One load; any thread. */
bool cl_aux_may_pass_over(const struct cl_mount *m);
/*
 * Has no aux-app anything to do with these bytes at file_off (as in struct cl_aux_job) at present? OVER: they are to be stored as they came, and count as passed over. BUT_ZEROS: the same if
 * they have no block of zeros (fp/zeros.h): look, and ask again with no_zeros. Only if m->aux. Any thread; never blocks.
 */
enum cl_aux_over { CL_AUX_COMES, CL_AUX_OVER, CL_AUX_OVER_BUT_ZEROS };
enum cl_aux_over cl_aux_passes_over(struct cl_mount *m, uint64_t file_off, uint32_t len_bytes, bool no_zeros);
/* May data be refused on its way, by an aux-app that is required, or is not one of ours? Its word has to reach the program. Any thread. */
bool cl_aux_may_refuse(struct cl_mount *m);
/* Never blocks: what finds no room waits in a list, in order; the pool, whose pages it holds, bounds that. Only if m->aux. Any thread. */
void cl_aux_submit(struct cl_mount *m, struct cl_aux_job *job);
/* Gives the result back (not the job). Any thread; never blocks. Once per done, soon: region buffers are few. */
void cl_aux_job_fini(struct cl_mount *m, struct cl_aux_job *job);
/*
 * An aux-app has said of a job's data what is not so (what: for people): counts as its failure. Any thread; never blocks. Give the job back and submit it again
 * with no_pieces.
 */
void cl_aux_lied(struct cl_mount *m, uint32_t app, const char *what);
/* Where a stored chunk is that this session holds. False: it is not held, or not known where. Any thread. */
bool cl_aux_held(struct cl_mount *m, uint64_t chunk, struct cl_chunk_ref *out);
/* Is one of these stages' aux-apps there to hide the data? Then nothing beside it may tell of it. Any thread. */
bool cl_aux_hides(struct cl_mount *m, const struct fp_auxw_stage *stages, uint32_t nstages);
/* The chunk with this job's new data is stored: [off, off + len_bytes) of its data. Any thread; never blocks; may be dropped. */
void cl_aux_stored(struct cl_mount *m, const struct cl_aux_tickets *t, uint64_t chunk, uint32_t off, uint32_t len_bytes);

/* -------------------------------------------------------------- and back */

/*
 * Undo `stages` (first to last as in the envelope): coded bytes in, exactly the bytes of `out` out. FUSE and store threads; blocks up to deadline_ms
 * (fp_now_ms clock). Starts a host that decodes only when there is none. The caller compares the sum of the data.
 * -EIO: the aux-app is missing, or has no key, or fails (logged, with its name); -EILSEQ: damaged; -ETIMEDOUT.
 */
int cl_aux_decode(struct cl_mount *m, const struct fp_auxw_stage *stages, uint32_t nstages, const struct iovec *coded, int ncoded,
          const struct iovec *out, int nout, uint64_t deadline_ms);

/* -------------------------------------------------------------- holds: stored chunks that this session may still refer to */

/*
 * Does the manager still vouch for these chunks (holds.h)? To be asked before the pages of data that refers to them are given back. NULL: true. Any thread, with an
 * inode->lock or without; never blocks.
 */
bool cl_aux_pins_good(struct cl_mount *m, const struct cl_aux_pins *pins);
/* The same, and the manager is asked if it is too long ago that it was. *pins may be others then. False: store the data without referring to them. Store
 * threads; blocks for a message. */
bool cl_aux_pins_check(struct cl_mount *m, struct cl_aux_pins **pins);
/* NULL is fine. Any thread; never blocks. */
void cl_aux_pins_put(struct cl_mount *m, struct cl_aux_pins *pins);
/* Core loop: the manager has forgotten our session, and with it what was held. Pinned chunks are held again if they are still there. */
void cl_aux_session_new(struct cl_mount *m);
/* A write is about to get ENOSPC: release all holds that nothing pins. True: something was released, space may come. FUSE and store threads; blocks for one message. */
bool cl_aux_release_holds(struct cl_mount *m);
/* Core loop: the manager wants holds back, since another mount has no space: the same, and the manager is told when that was all. Also if m->aux is NULL. */
void cl_aux_recall(struct cl_mount *m);

/* -------------------------------------------------------------- files and calls of applications (ops/) */

/* A handle was opened: sets inode->aux_serial and h->aux_serial. Takes inode->lock. Core loop; only if m->aux. */
void cl_aux_file_opened(struct cl_mount *m, struct cl_handle *h);
/* That handle is closed and what it wrote is published. FUSE or store threads; only if m->aux. */
void cl_aux_file_closed(struct cl_mount *m, struct cl_handle *h);
/* The file is about to be cut to 0: hold what aux-apps noted about it, so that it can be compared with. FUSE threads; blocks for a message. Only if m->aux. */
void cl_aux_before_truncate(struct cl_mount *m, struct cl_inode *inode);

/* The xattr CL_AUX_SET_XATTR of a directory or file was set to CL_AUX_SET_COMPLETE: tell aux-apps of the set. Any thread; never blocks. */
#define CL_AUX_SET_XATTR    "user.fp.checkpoint"
#define CL_AUX_SET_COMPLETE "complete"
void cl_aux_set_complete(struct cl_mount *m, uint64_t ino);

/* -------------------------------------------------------------- what the manager says, and what is told to it (core loop) */

void cl_aux_message(struct cl_mount *m, const Fp__AuxMsg *msg);
void cl_aux_set(struct cl_mount *m, const Fp__AuxSet *msg);
/* Fills s->auxapps: valid until the next call. */
void cl_aux_stats(struct cl_mount *m, Fp__ClientStats *s);

#endif
