/*
 * Replay slots and the order of requests: see slots.h for the picture.
 *
 * Called by core.c on the core loop only. All operations are O(1) but cl_calls_down and cl_calls_up, which
 * walk what is under way once.
 *
 * Invariants: a slot is either on the stack of free ones or belongs to exactly one call; a call keeps its
 * slot from its first sending to cl_calls_done; numbers of a slot only grow within a session (they may skip:
 * a request that was given up before its answer came used one up).
 *
 * A request whose slot is unknown to a new session is not sent again: it may have been executed, and
 * executing an unlink or rename twice is worse than an EIO that says "unknown". Reading requests have no slot
 * and simply go again.
 */
#include "client/slots.h"

#include <assert.h>
#include <string.h>

static void list_append(struct cl_call_list *l, struct cl_call *call)
{
    call->next = NULL;
    call->prev = l->tail;
    if (l->tail)
        l->tail->next = call;
    else
        l->head = call;
    l->tail = call;
}

static void list_prepend(struct cl_call_list *l, struct cl_call *call)
{
    call->prev = NULL;
    call->next = l->head;
    if (l->head)
        l->head->prev = call;
    else
        l->tail = call;
    l->head = call;
}

static void list_remove(struct cl_call_list *l, struct cl_call *call)
{
    if (call->prev)
        call->prev->next = call->next;
    else
        l->head = call->next;
    if (call->next)
        call->next->prev = call->prev;
    else
        l->tail = call->prev;
    call->prev = call->next = NULL;
}

struct cl_call *cl_call_list_pop(struct cl_call_list *l)
{
    struct cl_call *call = l->head;
    if (call)
        list_remove(l, call);
    return call;
}

static struct cl_call_list *list_of(struct cl_calls *c, const struct cl_call *call)
{
    switch (call->state) {
    case CL_CALL_PLAIN:
        return &c->plain;
    case CL_CALL_WAITING:
        return &c->waiting;
    case CL_CALL_EARLY:
        return &c->early;
    case CL_CALL_RESEND:
        return &c->resend;
    case CL_CALL_SENT:
        return &c->sent;
    case CL_CALL_REFUSED:
        return &c->refused;
    case CL_CALL_NEW:
        break;
    }
    assert(!"a call that is in no list");
    return NULL;
}

void cl_calls_init(struct cl_calls *c)
{
    memset(c, 0, sizeof *c);
}

void cl_calls_add(struct cl_calls *c, struct cl_call *call)
{
    assert(call->state == CL_CALL_NEW);
    call->slot = 0;
    call->slot_seq = 0;
    call->detached = call->sent_before = false;
    assert(call->slotted || !call->early);
    call->state = call->early ? CL_CALL_EARLY : call->slotted ? CL_CALL_WAITING : CL_CALL_PLAIN;
    list_append(list_of(c, call), call);
    c->count++;
}

static void to_sent(struct cl_calls *c, struct cl_call *call)
{
    call->state = CL_CALL_SENT;
    call->sent_before = true;
    list_append(&c->sent, call);
}

static struct cl_call *with_slot(struct cl_calls *c, struct cl_call_list *l)
{
    if (!l->head || c->nfree == 0)
        return NULL;
    struct cl_call *call = cl_call_list_pop(l);
    call->slot = c->free_slots[--c->nfree];
    call->slot_seq = ++c->seq[call->slot];
    return call;
}

struct cl_call *cl_calls_next(struct cl_calls *c)
{
    struct cl_call *call;
    if (!c->up)
        return NULL;
    call = cl_call_list_pop(&c->resend);
    if (!call && c->early.head)
        call = with_slot(c, &c->early); /* NULL: all the others wait too */
    else if (!call)
        call = cl_call_list_pop(&c->plain);
    if (!call && !c->early.head)
        call = with_slot(c, &c->waiting);
    if (call)
        to_sent(c, call);
    return call;
}

void cl_calls_unsend(struct cl_calls *c, struct cl_call *call)
{
    assert(call->state == CL_CALL_SENT);
    list_remove(&c->sent, call);
    call->state = CL_CALL_RESEND;
    list_prepend(&c->resend, call);
}

static void give_slot_back(struct cl_calls *c, struct cl_call *call)
{
    if (call->slot != 0 && call->slot <= c->nslots)
        c->free_slots[c->nfree++] = call->slot;
    call->slot = 0;
}

static void leave(struct cl_calls *c, struct cl_call *call)
{
    assert(c->count > 0);
    c->count--;
    give_slot_back(c, call);
    call->state = CL_CALL_NEW;
}

void cl_calls_done(struct cl_calls *c, struct cl_call *call)
{
    list_remove(list_of(c, call), call);
    leave(c, call);
}

void cl_calls_refuse(struct cl_calls *c, struct cl_call *call)
{
    assert(call->state == CL_CALL_SENT && !call->early);
    list_remove(&c->sent, call);
    give_slot_back(c, call);
    call->slot_seq = 0;
    call->sent_before = false;
    call->state = CL_CALL_REFUSED;
    list_append(&c->refused, call);
}

void cl_calls_again(struct cl_calls *c)
{
    struct cl_call *call;
    while ((call = cl_call_list_pop(&c->refused))) {
        call->state = call->slotted ? CL_CALL_WAITING : CL_CALL_PLAIN;
        list_append(list_of(c, call), call);
    }
}

bool cl_calls_detach(struct cl_calls *c, struct cl_call *call)
{
    if (call->state == CL_CALL_SENT) {
        call->detached = true;
        return false;
    }
    cl_calls_done(c, call);
    return true;
}

void cl_calls_down(struct cl_calls *c, struct cl_call_list *dropped)
{
    struct cl_call_list again = {0};
    struct cl_call *call;
    c->up = false;
    *dropped = (struct cl_call_list){0};
    while ((call = cl_call_list_pop(&c->sent))) {
        if (call->detached) {
            leave(c, call);
            list_append(dropped, call);
            continue;
        }
        call->state = CL_CALL_RESEND;
        list_append(&again, call);
    }
    /* What was sent goes before what a full queue kept from being sent. */
    while ((call = cl_call_list_pop(&c->resend)))
        list_append(&again, call);
    c->resend = again;
}

static void start_slots(struct cl_calls *c, uint32_t nslots)
{
    c->nslots = nslots;
    c->nfree = 0;
    memset(c->seq, 0, sizeof c->seq);
    for (uint32_t s = nslots; s >= 1; s--)
        c->free_slots[c->nfree++] = s;
}

void cl_calls_up(struct cl_calls *c, uint32_t nslots, bool new_session, struct cl_call_list *lost)
{
    struct cl_call_list again = {0};
    struct cl_call *call;
    if (nslots > CL_SLOTS_MAX)
        nslots = CL_SLOTS_MAX;
    if (nslots == 0)
        nslots = 1;
    c->up = true;
    *lost = (struct cl_call_list){0};
    if (!new_session) {
        /* The number of slots of a session does not change; were it larger now, the new ones stay unused. */
        if (c->nslots == 0)
            start_slots(c, nslots);
        return;
    }
    while ((call = cl_call_list_pop(&c->resend))) {
        if (call->slot != 0) {
            leave(c, call);
            list_append(lost, call);
        } else {
            list_append(&again, call);
        }
    }
    c->resend = again;
    start_slots(c, nslots);
}
