/*
 * One event on its way to an aux-app, as events.c and ask.c share it.
 */
#ifndef CL_AUX_EVENT_H
#define CL_AUX_EVENT_H

#include "client/aux/internal.h"

#define AUX_SUBSCRIBED 0x80u           /* in fp_auxw_app_info.io_flags: there is a callback */

struct aux_event {
    struct aux_call call;          /* first */
    uint32_t app;                  /* of a call of an application */
    uint32_t users;                /* lock */
    bool finished;                 /* lock */
    bool answered;                 /* lock: AUX_ASK: by the aux-app, with status */
    bool left;                     /* lock: AUX_ASK: nobody waits for it any more */
    int status;                    /* lock */
    bool has_room;                 /* lock */
    uint64_t room_off;
    uint32_t big_bytes;            /* of data that goes through the region: at the end of msg */
    uint32_t len_bytes;            /* of the message without these */
    _Alignas(16) uint8_t msg[];
};

/* events.c. NULL: no memory. len_bytes: of the message. */
struct aux_event *cl_aux_event_new(uint32_t type, uint32_t len_bytes, uint32_t big_bytes);
/* The same of a call. flags: fp_aux_io_op.flags. */
struct aux_event *cl_aux_io_event(const struct fp_aux_io *io, uint32_t app, uint8_t flags);
/* lock held. */
void cl_aux_event_put(struct cl_aux *a, struct aux_event *e);

/* ask.c. lock held, link thread: the host has answered a call that was waited for. */
void cl_aux_answered(struct cl_aux *a, struct aux_event *e, const struct fp_auxw_done *d);

#endif
