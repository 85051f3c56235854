/*
 * Lasting requests of the model of the manager (see cl_world.h): those that are sent again until they are answered, and whose answer may be held or lost. All
 * on the core loop, so without a lock of their own.
 */
#include "tests/unit/cl_world_mgr.h"

#include <stdlib.h>

#include "fp/err.h"

struct lasting {
    struct lasting *next;
    struct cl_mount *m;
    uint32_t type, session;
    ProtobufCMessage *msg, *reply;
    cl_mgr_cb cb;
    void *arg;
    bool executed; /* … and its answer was lost: sent again, it gets the same one */
};

static struct lasting *unanswered;

static void lasting_end(struct lasting *l, int rc)
{
    l->cb(l->arg, rc, rc == 0 ? l->reply : NULL);
    if (l->reply)
        protobuf_c_message_free_unpacked(l->reply, NULL);
    protobuf_c_message_free_unpacked(l->msg, NULL);
    free(l);
}

static int lasting_execute(struct lasting *l)
{
    uint32_t session = atomic_load(&((struct world_mount *)(void *)l->m->core)->session);
    const Fp__Commit *c = l->type == FP__MSG_TYPE__MSG_COMMIT ? (const Fp__Commit *)l->msg : NULL;

    /* The real client ends what was sent in a session that was forgotten since like this. */
    for (size_t i = 0; c && i < c->n_chunks; i++)
        if (c->chunks[i]->id >> 32 != session)
            return FP_ESESSION;
    if (!c && l->session != session)
        return FP_ESESSION;
    return l->executed ? 0 : world_mgr_execute(session, l->type, l->msg, &l->reply);
}

static void lasting_run(void *arg)
{
    struct lasting *l = arg, **p = &unanswered;
    bool hangs = world_take_one(&world_faults.mgr_hangs), lost = hangs || world_take_one(&world_faults.mgr_lost_before);
    int rc = 0;

    world_sleep_up_to(world_faults.mgr_delay_us);
    if (!lost) {
        rc = lasting_execute(l);
        l->executed = rc == 0;
        lost = l->executed && world_take_one(&world_faults.mgr_lost_after);
    }
    if (!lost) {
        lasting_end(l, rc);
        return;
    }
    while (*p)
        p = &(*p)->next;
    *p = l;
    if (!hangs)
        l->cb(l->arg, FP_EDEADLINE, NULL);
}

void world_mgr_lasting(struct cl_mount *m, uint32_t type, const ProtobufCMessage *msg, cl_mgr_cb cb, void *arg)
{
    struct lasting *l = calloc(1, sizeof *l);

    WORLD_CHECK(type == FP__MSG_TYPE__MSG_COMMIT || type == FP__MSG_TYPE__MSG_SETATTR);
    if (type == FP__MSG_TYPE__MSG_COMMIT && ((const Fp__Commit *)msg)->fold && world_before_fold)
        world_before_fold();
    *l = (struct lasting){.m = m, .type = type, .session = atomic_load(&((struct world_mount *)(void *)m->core)->session), .msg = world_copy(msg), .cb = cb, .arg = arg};
    world_post(lasting_run, l);
}

static void answer_all(void *arg)
{
    (void)arg;
    while (unanswered) {
        struct lasting *l = unanswered;

        unanswered = l->next;
        lasting_end(l, l->executed && l->type == FP__MSG_TYPE__MSG_COMMIT ? 0 : lasting_execute(l));
    }
}

void world_mgr_back(void)
{
    world_on_core(answer_all, NULL);
}

struct lasting_fail {
    struct cl_mount *m;
    int err;
};

static void fail_lasting(void *arg)
{
    const struct lasting_fail *f = arg;

    for (struct lasting **p = &unanswered; *p;) {
        struct lasting *l = *p;

        if (l->m != f->m) {
            p = &l->next;
            continue;
        }
        *p = l->next;
        lasting_end(l, f->err);
    }
}

void world_mgr_fail_lasting(struct cl_mount *m, int err)
{
    struct lasting_fail f = {m, err};

    world_on_core(fail_lasting, &f);
}
