/*
 * Programs are told of a file made or removed before the manager knows.
 *
 * The kernel holds a directory's lock over each create and unlink, so that eight processes in one directory wait for
 * eight round trips one after the other. While this mount is the only one of its store, and the directory is known
 * (names.h), the answer is certain before the manager has heard of it. It is given at once; the request follows, with
 * an inode number of those that the manager has given out before (MSG_INODES), and with the time that was told.
 *
 * What holds all the same:
 *   order      what goes to the manager later goes behind it (slots.h), so no answer is older than what was told, and
 *              what a crash of fp-mount takes away is the last changes, never one in the middle
 *   close      of a new file waits until the manager has answered: what was closed is there
 *   fsync      of anything waits, by order
 *   others     another mount is let in when all has been answered (MSG_ALONE)
 *   failures   of a create: from close and fsync of that file; of an unlink: from the next fsync of a directory,
 *              in the log and in fpctl status
 */
#ifndef CL_EARLY_H
#define CL_EARLY_H

#include <stdbool.h>
#include <stdint.h>

#define FUSE_USE_VERSION 317
#include <fuse_lowlevel.h>

#include "fp.pb-c.h"

struct cl_mount;
struct cl_op;
struct cl_inode;

/* Called when the manager has answered, on the core loop: where the answer of a program had to wait for it. status may
 * be -EINTR. */
typedef void (*cl_early_late)(struct cl_op *op, int status, const ProtobufCMessage *reply);

/* May programs be answered from what this mount knows? If true, cl_early_end follows once they have been. Looking does
 * not ask for the right to that, nor keep it: it is there for a second after each change. */
bool cl_early_begin(struct cl_mount *m);
void cl_early_end(struct cl_mount *m);
/* Something changes in this directory: get ready for the next time, if it is known. */
void cl_early_want(struct cl_mount *m, uint64_t dir);

/* A number for a new file; 0: there is none now. Between begin and end. */
uint64_t cl_early_ino(struct cl_mount *m);
/*
 * Tell the manager of a file that has been made, or of a name that has been removed (cl_names_*). True: answer the
 * program now. False: too much is under way, and late(op) will be called. Between begin and end.
 */
bool cl_early_create(struct cl_mount *m, struct cl_inode *inode, Fp__MkNod *msg, cl_early_late late, struct cl_op *op);
bool cl_early_unlink(struct cl_mount *m, Fp__Unlink *msg, cl_early_late late, struct cl_op *op);

/* Wait until the manager has answered that this file exists; 0, or why it does not. Not on the core loop. */
int cl_early_wait(struct cl_inode *inode);
/* The same for a close: true if req is answered when the manager has; else *status is the answer. */
bool cl_early_flush(struct cl_inode *inode, fuse_req_t req, int *status);
/* A failure that no program has been told of, once; 0: none. */
int cl_early_failure(struct cl_mount *m);
/* Wait until nothing is under way, and end what then still is. At the end of the mount. */
void cl_early_drain(struct cl_mount *m, uint32_t limit_ms);

#endif
