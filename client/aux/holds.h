/*
 * Holds: stored chunks that the manager keeps for this session, because a file that is being written may yet refer to them.
 *
 * What the manager said it holds is in a table here, with the files it is for (serials, files.h) and with pins: results that refer to it and are not
 * committed. A hold is released when nothing pins it and the last of its files is closed by its last writer and published; whatever else is open on
 * this mount does not matter. What was asked for without a file is kept for a minute or two.
 *
 * A chunk that is held is there; that it can be read, the manager says only for the moment: when it has been told of damage, or has lost a benefactor, it sends another
 * number of doubt (BnfTable), and what it said before that is asked again. Pages of a window that refers to stored chunks are given back
 * only while the manager vouches for all of them (store.c).
 */
#ifndef CL_AUX_HOLDS_H
#define CL_AUX_HOLDS_H

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

struct cl_aux;
struct cl_aux_pins;
struct cl_chunk_ref;
struct fp_auxw_piece;

#define CL_AUX_HOLDS_MAX 262144u       /* more: the oldest that nothing pins are released */

int cl_aux_holds_new(struct cl_aux *a);
void cl_aux_holds_free(struct cl_aux *a);

/* A request that makes holds: from before it is sent until its answer is here, however late. */
struct aux_hold_request {
    TAILQ_ENTRY(aux_hold_request) link;
    uint64_t seq;
    uint64_t file_serial;          /* 0: of no file */
    uint64_t doubt;                /* m->doubt before it was sent */
};

/* Before the request is sent. Any thread. */
void cl_aux_holds_begin(struct cl_aux *a, struct aux_hold_request *r);
/*
 * Core loop, in the order of answers: takes in what it holds. reply: of MSG_HOLD, MSG_NOTES or MSG_NOTE_FIND; NULL: it failed. wanted: somebody waits for it;
 * else what is not held for other reasons is released.
 */
void cl_aux_holds_answered(struct cl_aux *a, struct aux_hold_request *r, const ProtobufCMessage *reply, bool wanted);

/*
 * unread.c. Core loop, after that with NULL, when the answer can't be read (-EPROTO): the packed request, of MSG_HOLD, MSG_NOTES or MSG_NOTE_FIND. What it holds
 * is released, or asked for again to be.
 */
void cl_aux_holds_unread(struct cl_aux *a, uint32_t type, const uint8_t *msg, size_t len);
/* These may be held: what is not needed is released, and what is counts as held by a manager that vouches for nothing. */
void cl_aux_holds_not_told(struct cl_aux *a, const uint64_t *ids, size_t n);

/* False: it is not held, or not known where it is. */
bool cl_aux_holds_ref(struct cl_aux *a, uint64_t chunk, struct cl_chunk_ref *out);
/*
 * Pin all stored chunks that these pieces name; *out: NULL if they name none. -EAGAIN: one of them is not held, or it is too long ago that the manager vouched for
 * it: ask; -ERANGE: a piece is longer than its chunk; -ENOMEM. Any thread.
 */
int cl_aux_holds_pin(struct cl_aux *a, const struct fp_auxw_piece *pieces, uint32_t n, struct cl_aux_pins **out);
/*
 * Ask the manager to hold these: 0 if it has answered. *wrong: one of them is not there, although nothing that was held for the file has been let go: nobody
 * should have named it. Service and store threads; blocks.
 */
int cl_aux_holds_ask(struct cl_aux *a, const uint64_t *chunks, uint32_t n, uint64_t file_serial, bool *wrong);

/* The file's last writer has closed it, and all of it is published: release what was for it alone. Any thread; never blocks. */
void cl_aux_holds_closed(struct cl_aux *a, uint64_t file_serial);
/* Release whatever is not pinned. True: something was. Any thread; never blocks. */
bool cl_aux_holds_release_all(struct cl_aux *a);
/* Every second or so: ends holds of no file. Core loop. */
void cl_aux_holds_tick(struct cl_aux *a, uint64_t now_ms);

#endif
