/*
 * Which request to the manager goes when: replay slots, order, and what a broken connection does to those
 * under way.
 *
 * A state machine: no clock, socket, thread or lock. The core loop (core.c) feeds it and does what it says.
 * The owner embeds a struct cl_call in each request; it is in exactly one list from cl_calls_add until it is
 * handed back.
 *
 *   add ──► plain ───────────────┐
 *      ├──► waiting ─(slot free)─┤ next          answered
 *      └──► early ───(slot free)─┤
 *                     resend ────┴────► sent ───────────────► out
 *                        ▲               │
 *                        └─── down ──────┘      (detached ones: out)
 *                                        │ refuse
 *   plain, waiting ◄──── again ── refused┘
 *
 * Requests with a slot change state at the manager, which keeps the last number and reply of each slot. So
 * after a broken connection such a request goes again with the same slot and number, and in the order of the
 * first sending.
 *
 * Early requests tell the manager of what programs have been told already (early.h). Nothing that was added after one
 * goes before it, so that no answer of the manager is older than that.
 */
#ifndef CL_SLOTS_H
#define CL_SLOTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CL_SLOTS_MAX 1024u

enum cl_call_state {
    CL_CALL_NEW,     /* in no list */
    CL_CALL_PLAIN,   /* to be sent, needs no slot */
    CL_CALL_WAITING, /* needs a slot, has none */
    CL_CALL_EARLY,   /* the same, and nothing may overtake it */
    CL_CALL_RESEND,  /* was sent over a connection that is gone */
    CL_CALL_SENT,
    CL_CALL_REFUSED, /* was not executed: to be asked again */
};

struct cl_call {
    struct cl_call *prev, *next;
    enum cl_call_state state;
    bool slotted;     /* wants a slot; set by the owner before cl_calls_add */
    bool early;       /* nothing may overtake it; slotted too; set by the owner before cl_calls_add */
    bool detached;    /* nobody waits any more; kept only until its answer or the end of the connection */
    bool sent_before; /* may have been executed */
    uint32_t slot;    /* 1..nslots while it has one, else 0 */
    uint64_t slot_seq;
};

struct cl_call_list {
    struct cl_call *head, *tail;
};

struct cl_calls {
    struct cl_call_list resend, early, plain, waiting, sent, refused;
    uint32_t nslots;
    uint32_t nfree;
    uint32_t free_slots[CL_SLOTS_MAX]; /* a stack */
    uint64_t seq[CL_SLOTS_MAX + 1];    /* last number used, by slot */
    size_t count;                      /* calls in all lists */
    bool up;
};

void cl_calls_init(struct cl_calls *c);

/* A new request. */
void cl_calls_add(struct cl_calls *c, struct cl_call *call);

/* The request to send now, which becomes SENT with its slot and number; NULL: none can go. */
struct cl_call *cl_calls_next(struct cl_calls *c);

/* cl_calls_next gave it, but it could not be sent (queue full): it is the first to go later. */
void cl_calls_unsend(struct cl_calls *c, struct cl_call *call);

/* Answered, or given up for good: leaves, and its slot is free for the next number. */
void cl_calls_done(struct cl_calls *c, struct cl_call *call);

/* A sent one was answered that it can't be executed now. It gives its slot back, and waits. */
void cl_calls_refuse(struct cl_calls *c, struct cl_call *call);
/* Those go again, as new requests. */
void cl_calls_again(struct cl_calls *c);

/* The caller of this request goes away. True: it has left the lists (it was never sent, or can be forgotten).
 * False: it is under way; it stays, detached, until cl_calls_done or cl_calls_down. */
bool cl_calls_detach(struct cl_calls *c, struct cl_call *call);

/* The connection is gone: everything sent goes again after the next cl_calls_up. *dropped: the detached ones,
 * which leave. */
void cl_calls_down(struct cl_calls *c, struct cl_call_list *dropped);

/*
 * A session stands, with nslots slots (cut to CL_SLOTS_MAX). new_session: the manager has forgotten the old
 * one, and the slots begin anew; *lost: requests with a slot that may have been executed, which nobody can
 * tell now; they leave.
 */
void cl_calls_up(struct cl_calls *c, uint32_t nslots, bool new_session, struct cl_call_list *lost);

/* Take the first of a list that was handed out; NULL at its end. */
struct cl_call *cl_call_list_pop(struct cl_call_list *l);

#endif
