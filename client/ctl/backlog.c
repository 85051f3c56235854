/*
 * What was closed, and aux-app convert has not marked yet (backlog.h). Called by conversions.c.
 *
 * A mount passes on what was closed at once, but a coordinator with thousands of files has more to do. How much that is each mount tells the manager, once a second, as the gauge "backlog" of its aux-app.
 * So no backlog counts only in a report that was made after we had begun: one that is more than a period newer than the first that was seen.
 *
 * Not waited for: a mount that is not connected, whose dumps the next one takes up; an aux-app that has failed or is bypassed, which may stay so; a mount that has said nothing for NEW_MS, since of
 * very many the manager does not tell all that they said. Rejected: to wait a second before the first look, and hope.
 */
#include "client/ctl/backlog.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fp/clock.h"
#include "life.pb-c.h"

#define PERIOD_MS 1200u /* of reports, with room */
#define NEW_MS    5000u /* a mount that has just come has said nothing yet */

struct ctl_backlog_mount {
    uint64_t session, since_ms; /* of the first report that was seen; 0: there was none */
    uint64_t seen_ms;           /* when that was */
};

static struct ctl_backlog_mount *mount_of(struct ctl_backlog *b, uint64_t session, uint64_t since_ms)
{
    struct ctl_backlog_mount *more;

    for (size_t i = 0; i < b->n; i++)
        if (b->mount[i].session == session)
            return &b->mount[i];
    more = reallocarray(b->mount, b->n + 1, sizeof *more);
    if (!more)
        return NULL;
    b->mount = more;
    b->mount[b->n] = (struct ctl_backlog_mount){session, since_ms, fp_now_ms()};
    return &b->mount[b->n++];
}

static bool has_backlog(const Fp__AuxAppStats *a)
{
    for (size_t i = 0; i < a->n_counters; i++)
        if (strcmp(a->counters[i]->name, "backlog") == 0 && a->counters[i]->value > 0)
            return true;
    return strcmp(a->state, "starting") == 0;
}

static bool is_asked(const Fp__CtlClient *c, const Fp__AuxAppStats *a)
{
    return c->connected && strcmp(a->name, "convert") == 0 && (strcmp(a->state, "running") == 0 || strcmp(a->state, "starting") == 0);
}

static int look_at_new(struct ctl_backlog *b, const Fp__CtlClient *c, bool *over)
{
    const struct ctl_backlog_mount *m = mount_of(b, c->session, 0);

    if (!m)
        return -ENOMEM;
    *over &= fp_now_ms() >= m->seen_ms + NEW_MS;
    return 0;
}

static int look_at(struct ctl_backlog *b, const Fp__CtlClient *c, bool *over)
{
    if (c->connected && !c->stats)
        return look_at_new(b, c, over);
    for (size_t k = 0; c->stats && k < c->stats->n_auxapps; k++) {
        const Fp__AuxAppStats *a = c->stats->auxapps[k];
        const struct ctl_backlog_mount *m;

        if (!is_asked(c, a))
            continue;
        if (!(m = mount_of(b, c->session, a->since_ms)))
            return -ENOMEM;
        *over &= a->since_ms >= m->since_ms + PERIOD_MS && !has_backlog(a);
    }
    return 0;
}

int ctl_backlog_look(struct ctl_backlog *b, struct ctl_link *l, bool *over)
{
    ProtobufCMessage *reply = NULL;
    int rc = ctl_link_call(l, FP__MSG_TYPE__MSG_CTL_STATUS, NULL, &fp__ctl_status_reply__descriptor, &reply);
    const Fp__CtlStatusReply *r = (Fp__CtlStatusReply *)reply;

    *over = true;
    for (size_t i = 0; rc == 0 && i < r->n_clients; i++)
        rc = look_at(b, r->clients[i], over);
    if (reply)
        protobuf_c_message_free_unpacked(reply, NULL);
    return rc;
}

void ctl_backlog_free(struct ctl_backlog *b)
{
    free(b->mount);
}
