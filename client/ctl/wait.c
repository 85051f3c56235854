/* fpctl wait: until files and checkpoint sets are as durable as is asked for.
 *
 * Each is asked about in turn (MSG_LEVEL) until it is there, which begins what brings it there: a round of syncs, or a job of draining. Nothing of it is lost when the
 * manager is started anew in between: the answer says the number of the job, and the next question says it again. The connection is
 * opened anew by link.c, to the address that was found first, since a path in a mount can't be looked at while its manager is away.
 *
 * Exit codes tell what is late, which may come yet, from what has failed, which does not come without somebody's help. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/ctl/cmd.h"
#include "fp/clock.h"
#include "fp/err.h"
#include "fp/table.h"
#include "life.pb-c.h"

#define ASK_MS   200u
#define AGAIN_MS 1000u /* after the manager could not be asked */

enum { LATE = 3, FAILED = 4 };

struct item {
    const char *path; /* as it was given */
    char *inner;
    uint64_t set; /* with --step */
    uint64_t job, survey;
    int code; /* -1: not ended; 0: reached */
    char why[512]; /* that was said last */
    Fp__LevelReply *last;
};

struct wait {
    const struct ctl_options *o;
    const struct ctl_store *store;
    struct ctl_link *link;
    bool tty;
    Fp__Level level;
    char *to;
    struct item item[CTL_PATHS_MAX];
    size_t n;
};

/* -------------------------------------------------------------- one question */

/* Is it of no use to ask again? */
static bool is_final(int rc)
{
    return rc == -EINVAL || rc == -ENOENT || rc == -ENOTDIR || rc == -ENODATA || rc == -EPERM || rc == FP_EBADMSG_TYPE || rc == -ENOMEM;
}

static int failed(const struct wait *w, const struct item *i, int rc)
{
    if (rc == -ENODATA && w->o->step >= 0)
        FP_ERROR("there is no checkpoint set with step %lld in %s: see fpctl checkpoints", (long long)w->o->step, i->path);
    else if (rc == -ENODATA)
        FP_ERROR("%s is neither a file nor a checkpoint set: see fpctl checkpoints", i->path);
    else if (rc == -ENOENT || rc == -ENOTDIR)
        FP_ERROR("%s: %s", i->path, fp_strerror(rc));
    else
        ctl_link_failed(w->link, rc, "wait");
    return rc;
}

static int ask(struct wait *w, struct item *i)
{
    Fp__LevelAsk q = FP__LEVEL_ASK__INIT;
    ProtobufCMessage *reply = NULL;
    int rc;

    q.path = (ProtobufCBinaryData){strlen(i->inner), (uint8_t *)i->inner};
    q.set = i->set;
    q.wait = w->level;
    q.job = i->job;
    q.survey = i->survey;
    q.to = w->to;
    rc = ctl_link_call(w->link, FP__MSG_TYPE__MSG_LEVEL, &q.base, &fp__level_reply__descriptor, &reply);
    if (rc < 0)
        return is_final(rc) ? failed(w, i, rc) : rc;
    if (i->last)
        fp__level_reply__free_unpacked(i->last, NULL);
    i->last = (Fp__LevelReply *)reply;
    i->job = i->last->job;
    i->survey = i->last->survey;
    i->code = i->last->level >= w->level ? 0 : i->last->failed ? FAILED : -1;
    return 0;
}

/* The set that has this step, beside others in PATH. */
static int find_step(struct wait *w, struct item *i)
{
    Fp__CtlSetSay q = FP__CTL_SET_SAY__INIT;
    ProtobufCMessage *reply = NULL;
    int rc;

    q.path = (ProtobufCBinaryData){strlen(i->inner), (uint8_t *)i->inner};
    q.has_step = true;
    q.step = (uint64_t)w->o->step;
    rc = ctl_link_call(w->link, FP__MSG_TYPE__MSG_CTL_SET_SAY, &q.base, &fp__ckpt_set__descriptor, &reply);
    if (rc == -ENOTUNIQ) {
        FP_ERROR("%s has several series with step %lld: give a file or directory of the one that is meant", i->path, (long long)w->o->step);
        return rc;
    }
    if (rc < 0)
        return failed(w, i, rc);
    i->set = ((Fp__CkptSet *)reply)->id;
    protobuf_c_message_free_unpacked(reply, NULL);
    return 0;
}

/* -------------------------------------------------------------- what is printed */

/* Why its job does not go on, once; a terminal has it in its line. */
static void say_why(struct item *i)
{
    const Fp__LevelReply *r = i->last;

    if (i->code >= 0 || !r->job || !*r->why || strcmp(i->why, r->why) == 0)
        return;
    snprintf(i->why, sizeof i->why, "%s", r->why);
    fprintf(stderr, "%s: %s\n", i->path, r->why);
}

static void progress(const struct wait *w, struct item *i)
{
    const Fp__LevelReply *r = i->last;
    char text[CTL_PROGRESS_BUF];

    if (!w->tty) {
        say_why(i);
        return;
    }
    if (i->code >= 0)
        ctl_progress_end();
    else if (r->bytes)
        ctl_progress_line("%s: %s, %s to %s%s%s", i->path, ctl_level_text((int)r->level), ctl_progress_text(text, r->bytes_done, r->bytes, r->rate), r->to, *r->why ? ": " : "", r->why);
    else
        ctl_progress_line("%s: %s%s%s", i->path, ctl_level_text((int)r->level), *r->why ? ": " : "", r->why);
}

static void explain(const struct wait *w, const struct item *i)
{
    const Fp__LevelReply *r = i->last;

    if (i->code == FAILED)
        FP_ERROR("%s will not be %s: %s", i->path, ctl_level_text((int)w->level), r->why);
    else if (i->code == LATE && r)
        FP_ERROR("%s is not %s yet: it is %s%s%s", i->path, ctl_level_text((int)w->level), ctl_level_text((int)r->level), *r->why ? ": " : "", r->why);
    else if (i->code == LATE)
        FP_ERROR("%s is not known to be %s: the manager could not be asked", i->path, ctl_level_text((int)w->level));
}

static int print_json(const struct wait *w)
{
    json_t *list = json_array();

    for (size_t k = 0; k < w->n; k++) {
        const struct item *i = &w->item[k];
        const Fp__LevelReply *r = i->last;

        json_array_append_new(list, json_pack("{s:o, s:s, s:b, s:b, s:s, s:I, s:I, s:I}", "path", ctl_json_bytes(i->path, strlen(i->path)), "level",
                                              ctl_level_text(r ? (int)r->level : -1), "reached", i->code == 0, "failed", i->code == FAILED, "why", r ? r->why : "", "job",
                                              (json_int_t)i->job, "bytes", (json_int_t)(r ? r->bytes : 0), "bytes_done", (json_int_t)(r ? r->bytes_done : 0)));
    }
    return ctl_json_print(json_pack("{s:s, s:o}", "waited_for", ctl_level_text((int)w->level), "paths", list));
}

/* -------------------------------------------------------------- until the end */

/* One round of questions; *left: some have not ended. */
static int look(struct wait *w, bool *left)
{
    int rc = 0;

    *left = false;
    for (size_t k = 0; k < w->n && rc == 0; k++) {
        struct item *i = &w->item[k];

        if (i->code >= 0)
            continue;
        rc = ask(w, i);
        if (rc == 0)
            progress(w, i);
        *left |= i->code < 0;
    }
    return rc;
}

static int wait_for_all(struct wait *w)
{
    uint64_t pause_ms = 0;
    bool left = true;
    int code = 0;

    for (;;) {
        int rc = look(w, &left);

        if (rc < 0 && is_final(rc))
            return rc;
        if ((rc == 0 && !left) || fp_now_ms() >= w->o->until_ms)
            break;
        if (rc < 0)
            ctl_pause(w->o, AGAIN_MS);
        else
            ctl_pause_longer(w->o, &pause_ms, ASK_MS);
    }
    for (size_t k = 0; k < w->n; k++) {
        struct item *i = &w->item[k];

        i->code = i->code < 0 ? LATE : i->code;
        explain(w, i);
        code = i->code > code ? i->code : code;
    }
    return code;
}

static int begin(struct wait *w)
{
    const struct ctl_options *o = w->o;
    static char inner[PATH_MAX];
    int rc = 0;

    for (size_t k = 0; k < o->npaths && rc == 0; k++) {
        struct item *i = &w->item[w->n];

        rc = ctl_find_inner(o, w->store, k, inner);
        if (rc < 0)
            return rc;
        *i = (struct item){.path = o->paths[k], .inner = strdup(inner), .code = -1};
        if (!i->inner)
            return -ENOMEM;
        w->n++;
        rc = o->step >= 0 ? find_step(w, i) : 0;
    }
    return rc;
}

static int run(const struct ctl_options *o, const struct ctl_store *store, struct ctl_link *l)
{
    static struct wait w;
    char dest[PATH_MAX];
    int rc;

    w = (struct wait){.o = o, .store = store, .link = l, .tty = isatty(2) && !o->json, .level = o->level ? (Fp__Level)o->level : FP__LEVEL__LEVEL_LOCAL};
    w.to = ctl_dest(o, dest);
    rc = w.to ? 0 : -EINVAL;
    if (!rc && w.level >= FP__LEVEL__LEVEL_DRAINED && ctl_target_try(o, l, w.to) == -EINVAL)
        rc = -EINVAL; /* anything else may be otherwise in a moment */
    rc = rc ? rc : begin(&w);
    rc = rc ? rc : wait_for_all(&w);
    if (rc >= 0 && o->json && print_json(&w) < 0)
        rc = -EIO;
    for (size_t k = 0; k < w.n; k++) {
        free(w.item[k].inner);
        if (w.item[k].last)
            fp__level_reply__free_unpacked(w.item[k].last, NULL);
    }
    return rc;
}

const struct ctl_cmd ctl_cmd_wait = {
    .words = "wait",
    .args = "PATH...",
    .options = "level step to",
    .help = "Waits until files and checkpoint sets have a level of durability: local (on synced devices), drained (a whole file in the target), or verified (read back from there).",
    .more = "PATH is a file, the directory that is a set, or with --step the directory in which the files of one lie side by side. What brings it there is begun: benefactors sync their "
            "devices; what is to be drained is, to --to, else to where fpctl drain set says; with --to only a copy there counts, else any does. A manager that is away is waited for. A set has the least level of its files, pool until it is complete, and none while it is torn.",
    .exits = "Exits with 3 when --timeout (1h) is over, 4 when it will not come to it without somebody's help, and says why.",
    .flags = CTL_WAITS | CTL_PATIENT,
    .limit_ms = 3600000,
    .run = run,
};
