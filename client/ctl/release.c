/* fpctl drain release: before a store is removed, for good.
 *
 * What was evicted is only in its target, and while the store is there other stores do not take its place (manager/needs.c). Nobody would say that it may be
 * replaced when the store is gone. fp-store down and fp-job stop do this by themselves. */
#include <errno.h>
#include <stdio.h>
#include <time.h>

#include "client/ctl/cmd.h"
#include "fp/clock.h"
#include "fp/log.h"
#include "life.pb-c.h"

#define LATE_MORE ": as long as %s/.fp-drain says so, other stores replace what is drained there only with --overwrite"

static int ask(struct ctl_link *l, Fp__CtlReleaseReply **out)
{
    ProtobufCMessage *reply = NULL;
    int rc = ctl_link_call(l, FP__MSG_TYPE__MSG_CTL_RELEASE, NULL, &fp__ctl_release_reply__descriptor, &reply);

    *out = (Fp__CtlReleaseReply *)reply;
    return rc < 0 ? ctl_link_failed(l, rc, "release") : 0;
}

static int say(const struct ctl_options *o, const Fp__CtlReleaseReply *r)
{
    json_t *left = json_array();

    for (size_t i = 0; i < r->n_targets; i++) {
        FP_WARN("%s could not be told within the time that this store relies on nothing there any more" LATE_MORE, r->targets[i], r->targets[i]);
        json_array_append_new(left, json_string(r->targets[i]));
    }
    if (o->json)
        return ctl_json_print(json_pack("{s:o}", "left", left));
    json_decref(left);
    return 0;
}

static int run(const struct ctl_options *o, const struct ctl_store *store, struct ctl_link *l)
{
    static const struct timespec pause = {0, 100000000};
    Fp__CtlReleaseReply *r = NULL;
    bool left;
    int rc;

    (void)store;
    for (;;) {
        rc = ask(l, &r);
        if (rc < 0)
            return rc;
        left = r->n_targets > 0;
        if (!left || (o->until_ms && fp_now_ms() >= o->until_ms))
            break;
        fp__ctl_release_reply__free_unpacked(r, NULL);
        nanosleep(&pause, NULL);
    }
    rc = say(o, r);
    fp__ctl_release_reply__free_unpacked(r, NULL);
    return rc < 0 ? rc : left ? CTL_LATE : 0;
}

const struct ctl_cmd ctl_cmd_drain_release = {
    .words = "drain release",
    .args = "[PATH]",
    .options = "",
    .help = "Tells all targets that this store relies on nothing there any more, so that other stores may replace what it has drained: before it is removed for good. Says nothing when that went well.",
    .more = "fp-store down (without --keep) and the end of a job do so by themselves. A store that goes on after this may lose what it has evicted to others.",
    .exits = "3 is that a target could not be told within --timeout (10 s): it is named.",
    .flags = CTL_WAITS,
    .limit_ms = 10000,
    .run = run,
};
