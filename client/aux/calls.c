/*
 * The table of calls: what waits to be sent to the host, what was sent and has no answer yet.
 *
 * Any thread submits; answers come on the link thread. Submitting never blocks: a store thread that waited for room in the region here might be the one
 * that has to give room back. What cannot go waits in the list of its kind, so that chunks on their way out, which wait for room, hold
 * up neither readers nor events. When the host dies, all that was sent waits again, in the old order and in front; so each
 * call is done exactly once, by its answer or by the end of all hope (aux_calls_finish).
 */
#include <errno.h>
#include <stdlib.h>

#include "client/aux/internal.h"

static struct aux_call **bucket(struct cl_aux *a, uint64_t id)
{
    return &a->hash[id % AUX_HASH];
}

static void hash_remove(struct cl_aux *a, struct aux_call *c)
{
    struct aux_call **p = bucket(a, c->id);

    while (*p != c)
        p = &(*p)->hash_next;
    *p = c->hash_next;
}

static void to_sent(struct cl_aux *a, struct aux_call *c)
{
    TAILQ_INSERT_TAIL(&a->sent, c, link);
    a->nsent[c->kind]++;
    c->sent = true;
    c->sent_ms = fp_now_ms();
    c->hash_next = *bucket(a, c->id);
    *bucket(a, c->id) = c;
}

static void from_sent(struct cl_aux *a, struct aux_call *c)
{
    TAILQ_REMOVE(&a->sent, c, link);
    a->nsent[c->kind]--;
    c->sent = false;
    hash_remove(a, c);
}

static void from_waiting(struct cl_aux *a, struct aux_call *c)
{
    TAILQ_REMOVE(&a->waiting[c->kind], c, link);
    a->nwaiting[c->kind]--;
}

/* What passes the chain waits for the one that is wanted: a stage that is to be taken in again is not there yet. */
static bool may_send(const struct cl_aux *a, enum aux_kind kind)
{
    if ((kind == AUX_OUT || kind == AUX_EVENT || kind == AUX_ASK) && cl_aux_chain_changes(a))
        return false;
    return kind != AUX_EVENT || a->nsent[AUX_EVENT] < AUX_EVENTS_MAX;
}

static void pump_kind(struct cl_aux *a, enum aux_kind kind, struct aux_call_list *dead)
{
    struct aux_call *c;

    while ((c = TAILQ_FIRST(&a->waiting[kind])) && may_send(a, kind) && !a->tx_full) {
        int rc;

        if (c->id == 0)
            c->id = ++a->last_id;
        rc = c->send(a, c);
        if (rc == -EAGAIN)
            return;
        from_waiting(a, c);
        if (rc < 0 || c->oneway)
            TAILQ_INSERT_TAIL(dead, c, link);
        else
            to_sent(a, c);
    }
}

void cl_aux_calls_pump(struct cl_aux *a, struct aux_call_list *dead)
{
    static const enum aux_kind order[] = { AUX_IN, AUX_ASK, AUX_STORED, AUX_EVENT, AUX_OUT };

    if (a->state != AUX_UP || !cl_aux_tell_changes(a))
        return;
    for (size_t i = 0; i < sizeof(order) / sizeof(order[0]); i++)
        pump_kind(a, order[i], dead);
    if (a->room_waiters > 0)
        pthread_cond_broadcast(&a->room);
}

void cl_aux_calls_finish(struct cl_aux *a, struct aux_call_list *dead, int status)
{
    struct aux_call *c;

    while ((c = TAILQ_FIRST(dead))) {
        TAILQ_REMOVE(dead, c, link);
        c->done(a, c, NULL, status);
    }
}

void cl_aux_calls_kick(struct cl_aux *a)
{
    struct aux_call_list dead = TAILQ_HEAD_INITIALIZER(dead);

    pthread_mutex_lock(&a->lock);
    cl_aux_calls_pump(a, &dead);
    pthread_mutex_unlock(&a->lock);
    cl_aux_calls_finish(a, &dead, 0);
}

/* Without a host, and without the hope of one, nobody would ever look at it. */
static bool hopeless(const struct cl_aux *a, enum aux_kind kind)
{
    return a->stopping || !cl_aux_needs_host(a) || (kind == AUX_OUT && a->anything_failed);
}

void cl_aux_call_again(struct cl_aux *a, struct aux_call *c)
{
    TAILQ_INSERT_HEAD(&a->waiting[c->kind], c, link);
    a->nwaiting[c->kind]++;
}

static void submit(struct cl_aux *a, struct aux_call *c, bool first)
{
    struct aux_call_list dead = TAILQ_HEAD_INITIALIZER(dead);
    bool wake;

    pthread_mutex_lock(&a->lock);
    if (first) {
        cl_aux_call_again(a, c);
    } else {
        TAILQ_INSERT_TAIL(&a->waiting[c->kind], c, link);
        a->nwaiting[c->kind]++;
    }
    if (hopeless(a, c->kind)) {
        from_waiting(a, c);
        TAILQ_INSERT_TAIL(&dead, c, link);
    } else if (a->state == AUX_UP) {
        cl_aux_calls_pump(a, &dead);
    }
    wake = a->state == AUX_DOWN;
    pthread_mutex_unlock(&a->lock);
    cl_aux_calls_finish(a, &dead, 0);
    if (wake)
        cl_aux_wake(a);
}

void cl_aux_call_submit(struct cl_aux *a, struct aux_call *c)
{
    submit(a, c, false);
}

void cl_aux_call_resubmit(struct cl_aux *a, struct aux_call *c)
{
    submit(a, c, true);
}

struct aux_call *cl_aux_call_take(struct cl_aux *a, uint64_t id)
{
    struct aux_call *c;

    pthread_mutex_lock(&a->lock);
    for (c = *bucket(a, id); c && c->id != id; c = c->hash_next)
        ;
    if (c)
        from_sent(a, c);
    a->progress_ms = fp_now_ms();
    pthread_mutex_unlock(&a->lock);
    return c;
}

void cl_aux_calls_lost(struct cl_aux *a, bool of_it)
{
    struct aux_call *c;

    while ((c = TAILQ_LAST(&a->sent, aux_call_list))) {
        from_sent(a, c);
        c->tries += of_it;
        cl_aux_call_again(a, c);
    }
    a->tx_full = false;
}

void cl_aux_calls_drop(struct cl_aux *a, enum aux_kind kind, struct aux_call_list *dead)
{
    struct aux_call *c;

    while ((c = TAILQ_FIRST(&a->waiting[kind]))) {
        from_waiting(a, c);
        TAILQ_INSERT_TAIL(dead, c, link);
    }
}

void cl_aux_calls_drop_hopeless(struct cl_aux *a, struct aux_call_list *dead)
{
    for (int k = 0; k < AUX_KINDS; k++)
        if (k != AUX_IN && hopeless(a, (enum aux_kind)k)) /* who waits for AUX_IN has a deadline, and is what needs a host */
            cl_aux_calls_drop(a, (enum aux_kind)k, dead);
}
