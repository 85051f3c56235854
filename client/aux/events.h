/*
 * What applications do, told to aux-apps: calls before (FP_AUX_WAIT) and after, sealed files, messages, changed options.
 */
#ifndef CL_AUX_EVENTS_H
#define CL_AUX_EVENTS_H

#include <stdbool.h>
#include <stdint.h>

#include "fp/auxapp.h"

struct cl_aux;

/* Which of the two somebody wants for this op: bits of enum. Any thread. */
#define AUX_WANTS_BEFORE 1u
#define AUX_WANTS_AFTER  2u
#define AUX_WANTS_DATA   4u  /* beside one of the others */
unsigned cl_aux_events_wanted(const struct cl_aux *a, enum fp_aux_op op);

/*
 * Ask those who want to be asked. 0, or the negative errno that refuses the call. FUSE threads. Pointers in io are borrowed. Blocks for each up to its deadline
 * and AUX_ASK_MORE_MS from when it last answered such a call of anybody, since it is asked one at a time. Without an answer: -EIO if it is required,
 * else the call goes on. interrupted(arg), which may be NULL, is asked after AUX_ASK_INTR_MS: true is -EINTR.
 */
#define AUX_ASK_MORE_MS 1000u
#define AUX_ASK_INTR_MS 1000u
int cl_aux_events_before(struct cl_aux *a, const struct fp_aux_io *io, bool (*interrupted)(void *arg), void *arg);

/* A place in the queue, for cl_aux_events_after. Blocks while it is full, not for ever: false, then nobody is told. FUSE threads. */
bool cl_aux_events_reserve(struct cl_aux *a);
void cl_aux_events_unreserve(struct cl_aux *a);
/* Tell who wants to know; uses up the place. Pointers in io are borrowed; never blocks. Any thread. */
void cl_aux_events_after(struct cl_aux *a, const struct fp_aux_io *io);

/* A file was sealed: finds its path and tells. Any thread, without an inode's lock; never blocks. */
void cl_aux_events_sealed(struct cl_aux *a, const struct fp_aux_file *file);

#endif
