/* fpctl evict: files that are drained give their space back, and are read from the target from then on. fpctl stage-in: they come back before they are read; with --to,
 * what others have put into a target is copied into the store.
 *
 * A job of the manager, as a drain is one, and waited for in the same way (drain.c). */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/ctl/cmd.h"
#include "fp/err.h"
#include "life.pb-c.h"

static int ask(const struct ctl_options *o, struct ctl_link *l, const Fp__CtlStage *q, uint64_t *job)
{
    ProtobufCMessage *reply = NULL;
    int rc = ctl_link_call(l, FP__MSG_TYPE__MSG_CTL_STAGE, &q->base, &fp__ctl_stage_reply__descriptor, &reply);

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

static int start(const struct ctl_options *o, const struct ctl_store *store, struct ctl_link *l, Fp__StageOp op, uint64_t *job)
{
    static char inner[CTL_PATHS_MAX][PATH_MAX];
    ProtobufCBinaryData paths[CTL_PATHS_MAX];
    Fp__CtlStage q = FP__CTL_STAGE__INIT;
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
    return ask(o, l, &q, job);
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
    .exits = "3 when --timeout is over and it still goes on, or no manager was there, 4 when nothing of any file could be evicted, or a copy is not there as it was, 5 when the job was cancelled.",
    .flags = CTL_WAITS | CTL_PATIENT,
    .run = run_evict,
};

/* ---------------------------------------------------------------- stage-in */

/* A path of a target as the manager takes it: the target need not be mounted here, so it is looked at only where it has to be. Logs. */
static int plain_path(const char *path, char out[PATH_MAX])
{
    bool dots = strstr(path, "/./") || strstr(path, "/../");
    size_t len = strlen(path);

    dots |= (len > 1 && strcmp(path + len - 2, "/.") == 0) || (len > 2 && strcmp(path + len - 3, "/..") == 0);
    if (!dots) {
        snprintf(out, PATH_MAX, "%s", path);
        return 0;
    }
    if (realpath(path, out))
        return 0;
    FP_ERROR("%s: %s", path, fp_strerror(-errno));
    return -errno;
}

static int ask_foreign(const struct ctl_options *o, const struct ctl_options *at, const struct ctl_store *store, struct ctl_link *l, uint64_t *job)
{
    static char path[CTL_PATHS_MAX][PATH_MAX], root[PATH_MAX];
    ProtobufCBinaryData paths[CTL_PATHS_MAX];
    Fp__CtlStage q = FP__CTL_STAGE__INIT;
    char dest[PATH_MAX];
    int rc = ctl_find_inner(at, store, 0, dest);

    for (size_t i = 0; i < o->npaths && rc == 0; i++) {
        rc = plain_path(o->paths[i], path[i]);
        paths[i] = (ProtobufCBinaryData){strlen(path[i]), (uint8_t *)path[i]};
    }
    if (rc == 0 && o->target && *o->target == '/') { /* not looked at: it may hang, or not be mounted here */
        snprintf(root, sizeof root, "%s", o->target);
    } else if (rc == 0 && o->target && !realpath(o->target, root)) {
        rc = -errno;
        FP_ERROR("--target %s: %s", o->target, fp_strerror(rc));
    }
    if (rc < 0)
        return rc;
    q.op = FP__STAGE_OP__STAGE_OP_IN;
    q.foreign = true;
    q.n_paths = o->npaths;
    q.paths = paths;
    q.dest = (ProtobufCBinaryData){strlen(dest), (uint8_t *)dest};
    if (o->target) {
        q.root = root;
        rc = ctl_target_try(o, l, root);
    }
    return rc < 0 ? rc : ask(o, l, &q, job);
}

static int run_foreign(const struct ctl_options *o)
{
    static struct ctl_store store;
    static struct ctl_options at; /* as if the directory of the store had been given */
    static char dir[PATH_MAX];
    struct ctl_link *l = NULL;
    uint64_t job;
    int rc;

    if (*o->to != '/' && !realpath(o->to, dir)) {
        FP_ERROR("--to %s: %s", o->to, fp_strerror(-errno));
        return -errno;
    }
    if (*o->to == '/')
        snprintf(dir, sizeof dir, "%s", o->to);
    at = *o;
    at.path = at.paths[0] = dir;
    at.npaths = 1;
    rc = ctl_open(&at, &store, &l);
    rc = rc < 0 ? rc : ask_foreign(o, &at, &store, l, &job);
    rc = rc < 0 ? rc : ctl_job_wait(&at, l, job);
    ctl_link_close(l);
    return rc;
}

static int run_in(const struct ctl_options *o, const struct ctl_store *store, struct ctl_link *l)
{
    static struct ctl_store found;
    uint64_t job;
    int rc;

    (void)store;
    if (o->to)
        return run_foreign(o);
    if (o->target) {
        FP_ERROR("--target is for what others have put there: say with --to which directory of the store it is to come to");
        return -EINVAL;
    }
    rc = ctl_open(o, &found, &l);
    rc = rc < 0 ? rc : start(o, &found, l, FP__STAGE_OP__STAGE_OP_IN, &job);
    rc = rc < 0 ? rc : ctl_job_wait(o, l, job);
    ctl_link_close(l);
    return rc;
}

const struct ctl_cmd ctl_cmd_stage_in = {
    .words = "stage-in",
    .args = "PATH...",
    .options = "to target",
    .help = "Brings files into the store before a program reads them: those that were evicted; or, with --to=DIRECTORY, files and directories of a target that others have put there.",
    .more = "What was evicted, PATHs of the store and all below, is fetched and compared with its digests. With --to, PATHs are of a target (from / on, as the benefactors have them), and are copied "
            "into that directory of the store, with mode, owner and times, by all benefactors that reach the target. A file gets its name when it is whole. What the store has under a name stays: "
            "a file of the same size and time is not copied again, another one makes the command fail. It goes on when this command ends.",
    .exits = "3 when --timeout is over and it still goes on, or no manager was there, 4 when a file could not be brought in, 5 when the job was cancelled.",
    .flags = CTL_WAITS | CTL_NO_LINK | CTL_PATIENT,
    .run = run_in,
};
