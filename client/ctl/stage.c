/* fpctl evict: files that are drained give their space back, and are read from the target from then on. fpctl stage-in: they come back before they are read.
 *
 * A job of the manager, as a drain is one, and waited for in the same way (drain.c). */
#include <errno.h>
#include <limits.h>
#include <string.h>

#include "client/ctl/cmd.h"
#include "fp/err.h"
#include "life.pb-c.h"

static int start(const struct ctl_options *o, const struct ctl_store *store, struct ctl_link *l, Fp__StageOp op, uint64_t *job)
{
    static char inner[CTL_PATHS_MAX][PATH_MAX];
    ProtobufCBinaryData paths[CTL_PATHS_MAX];
    Fp__CtlStage q = FP__CTL_STAGE__INIT;
    ProtobufCMessage *reply = NULL;
    int rc = 0;

    for (size_t i = 0; i < o->npaths && rc == 0; i++) {
        rc = ctl_find_inner(o, store, i, inner[i]);
        paths[i] = (ProtobufCBinaryData){strlen(inner[i]), (uint8_t *)inner[i]};
    }
    if (rc < 0)
        return rc;
    q.op = op;
    q.n_paths = o->npaths;
    q.paths = paths;
    rc = ctl_link_call(l, FP__MSG_TYPE__MSG_CTL_STAGE, &q.base, &fp__ctl_stage_reply__descriptor, &reply);
    if (rc < 0)
        return ctl_link_failed(l, rc, o->cmd->words);
    const Fp__CtlStageReply *r = (const Fp__CtlStageReply *)reply;

    for (size_t i = 0; i < r->n_why; i++)
        FP_ERROR("%s", r->why[i]);
    rc = r->n_why ? -EINVAL : r->job ? 0 : FP_EBADFRAME;
    *job = r->job;
    protobuf_c_message_free_unpacked(reply, NULL);
    return rc;
}

static int run_evict(const struct ctl_options *o, const struct ctl_store *store, struct ctl_link *l)
{
    uint64_t job;
    int rc = start(o, store, l, FP__STAGE_OP__STAGE_OP_EVICT, &job);

    return rc < 0 ? rc : ctl_job_wait(o, l, job);
}

const struct ctl_cmd ctl_cmd_evict = {
    .words = "evict",
    .args = "PATH...",
    .options = "",
    .help = "Frees the space of files, and of all files below directories, of which the present data is in a target. They are read from there from then on, as if they were here.",
    .more = "What is read comes back and is kept. The copy in the target is looked at before. The newest complete checkpoint sets of a series stay, and so do files that are open, and chunks "
            "that other files or versions share, that aux-apps have coded, or of which a file has a part only: the bytes that are told are those that are not here any more, and what stays is told with its reason.",
    .exits = "3 when --timeout is over and it still goes on, 4 when nothing of a file could be evicted, 5 when the job was cancelled.",
    .flags = CTL_WAITS,
    .run = run_evict,
};

static int run_in(const struct ctl_options *o, const struct ctl_store *store, struct ctl_link *l)
{
    uint64_t job;
    int rc = start(o, store, l, FP__STAGE_OP__STAGE_OP_IN, &job);

    return rc < 0 ? rc : ctl_job_wait(o, l, job);
}

const struct ctl_cmd ctl_cmd_stage_in = {
    .words = "stage-in",
    .args = "PATH...",
    .options = "",
    .help = "Brings back files, and all files below directories, that were evicted, before a program reads them.",
    .more = "Benefactors fetch them from the target, several files at a time, and compare what they get with its digests. A file of which nothing was evicted is here already.",
    .exits = "3 when --timeout is over and it still goes on, 4 when a file could not be brought back, 5 when the job was cancelled.",
    .flags = CTL_WAITS,
    .run = run_in,
};
