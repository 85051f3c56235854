/*
 * fpctl merge: logs that fpctl drain --layout=log has left in a target become the files that a restart reads.
 *
 * In a store it is a job of the manager, done by the benefactors that reach the target, and waited for as a drain is (drain.c). A log says all about itself, so
 * where there is no store, or none that has the target, it is merged here, by fp_dlog_merge (common/dlogmerge.c).
 *
 * The target may hang: no path of it is looked at here for a store to be asked, but for one that is relative or has another name there. What does hang ends with
 * --timeout, by the watchdog (link.c).
 */
#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/ctl/cmd.h"
#include "fp/clock.h"
#include "fp/dlog.h"
#include "fp/err.h"
#include "fp/log.h"
#include "fp/units.h"
#include "life.pb-c.h"

#define SHOW_MS   300u
#define ELSEWHERE 1 /* in no target of the store */

/* ---------------------------------------------------------------- which logs */

static struct {
    char **path;
    size_t n, room;
} logs; /* in their order; of a directory, all below */

static bool is_log(const char *path)
{
    size_t len = strlen(path), cut = sizeof FP_DLOG_SUFFIX - 1;

    while (len > 1 && path[len - 1] == '/')
        len--;
    return len > cut && memcmp(path + len - cut, FP_DLOG_SUFFIX, cut) == 0;
}

static int add_log(const char *path)
{
    size_t room = logs.n == logs.room ? 2 * logs.room + 64 : logs.room;
    char **more = room == logs.room ? logs.path : realloc(logs.path, room * sizeof *more);

    if (more) {
        logs.path = more;
        logs.room = room;
        logs.path[logs.n] = strdup(path);
    }
    if (more && logs.path[logs.n]) {
        logs.n++;
        return 0;
    }
    FP_ERROR("out of memory");
    return -ENOMEM;
}

/* Of nftw. What is not whole yet lies in the target's own directory. */
static int visit(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)st;
    if (type == FTW_DNR) {
        FP_ERROR("%s: it can't be read", path);
        return -EACCES;
    }
    if (type != FTW_D)
        return FTW_CONTINUE;
    if (strcmp(path + at->base, ".fp-drain") == 0)
        return FTW_SKIP_SUBTREE;
    if (!is_log(path))
        return FTW_CONTINUE;
    return add_log(path) ? -ENOMEM : FTW_SKIP_SUBTREE;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static int find_logs(const char *name, bool walk)
{
    size_t before = logs.n;
    char dir[PATH_MAX];
    struct stat st;
    int rc;

    if (!walk || is_log(name) || stat(name, &st) || !S_ISDIR(st.st_mode))
        return add_log(name); /* what is wrong with it is said by who merges */
    if (!realpath(name, dir)) /* what is named may be a symbolic link; those below are not followed */
        rc = -1;
    else
        rc = nftw(dir, visit, 32, FTW_PHYS | FTW_ACTIONRETVAL);
    if (rc == -1)
        FP_ERROR("%s: %s", name, fp_strerror(rc = -errno));
    if (rc)
        return rc < 0 ? rc : -EIO;
    if (logs.n > before) {
        qsort(logs.path + before, logs.n - before, sizeof *logs.path, by_name);
        return 0;
    }
    FP_ERROR("%s: there is no log below it: fpctl drain --layout=log makes some", name);
    return -ENOENT;
}

/* ---------------------------------------------------------------- here */

/* F of DIR/F.fplog. */
static int name_of(const char *log, char to[PATH_MAX])
{
    size_t len = strlen(log), cut = sizeof FP_DLOG_SUFFIX - 1;

    while (len > 1 && log[len - 1] == '/')
        len--;
    if (len >= PATH_MAX || len <= cut + 1 || memcmp(log + len - cut, FP_DLOG_SUFFIX, cut) != 0 || log[len - cut - 1] == '/') {
        FP_ERROR("%s: does not end in " FP_DLOG_SUFFIX ": say with --to what file to make of it", log);
        return -EINVAL;
    }
    memcpy(to, log, len - cut);
    to[len - cut] = '\0';
    return 0;
}

static int say(const struct ctl_options *o, const struct fp_dlog_merge *m)
{
    char size[FP_UNITS_BUF];

    if (m->why[0])
        FP_WARN("%s: %s", m->to, m->why);
    if (o->json)
        return ctl_json_print(json_pack("{s:s, s:s, s:I, s:I, s:I}", "log", m->log, "file", m->to, "size", (json_int_t)m->size, "written",
                                        (json_int_t)m->written, "verified", (json_int_t)m->verified));
    printf("%s  %s%s\n", m->to, fp_format_size(size, m->size), o->verify ? ", compared" : "");
    return ctl_flush();
}

struct shown {
    const char *name;
    uint64_t since_ms, at_ms;
};

static void show(void *arg, uint64_t done, uint64_t all)
{
    struct shown *s = arg;
    uint64_t now = fp_now_ms();
    char text[CTL_PROGRESS_BUF];

    if (now < s->at_ms + SHOW_MS)
        return;
    s->at_ms = now;
    ctl_progress_line("%s  %s", s->name, ctl_progress_text(text, done, all, done * 1000 / (now - s->since_ms + 1)));
}

static int merge_one(const struct ctl_options *o, const char *log)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    struct shown s = {.name = log, .since_ms = fp_now_ms(), .at_ms = fp_now_ms()};
    struct fp_dlog_merge m = {.log = log, .replace = o->force || o->overwrite, .replace_needed = o->overwrite, .verify = o->verify, .threads = cores < 2 ? 2 : cores > 8 ? 8 : (unsigned)cores, .arg = &s};
    char to[PATH_MAX];
    int rc = o->to ? 0 : name_of(log, to);

    if (rc < 0)
        return rc;
    m.to = o->to ? o->to : to;
    m.progress = isatty(2) ? show : NULL;
    rc = fp_dlog_merge(&m);
    if (m.progress)
        ctl_progress_end();
    if (rc == 0)
        return say(o, &m);
    FP_ERROR("%s", m.why);
    return rc;
}

/* The target may hang. */
static void watch_here(const struct ctl_options *o)
{
    ctl_watch_says("not merged within --timeout: the target does not answer, or it takes longer; what had the name before has it");
    if (o->until_ms)
        ctl_patient(o->until_ms, CTL_LATE);
    ctl_watch(o->until_ms ? 1 : UINT64_MAX / 2);
}

static int merge_here(const struct ctl_options *o, char *const *path, size_t n)
{
    int rc = 0;

    watch_here(o);
    for (size_t i = 0; i < n; i++) { /* what is wrong with one is nothing to the others */
        int one = merge_one(o, path[i]);

        rc = rc ? rc : one;
    }
    return rc;
}

/* ---------------------------------------------------------------- in a store */

/* With the directory resolved: the file need not be there. */
static int resolved(const char *path, char out[PATH_MAX])
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    char dir[PATH_MAX];
    size_t len;

    if (realpath(path, out))
        return 0;
    if (errno != ENOENT || !*name || snprintf(dir, sizeof dir, "%.*s", slash ? (int)(slash - path) + 1 : 1, slash ? path : ".") >= PATH_MAX || !realpath(dir, out))
        return -errno;
    len = strlen(out);
    return snprintf(out + len, PATH_MAX - len, "%s%s", out[len - 1] == '/' ? "" : "/", name) < (int)(PATH_MAX - len) ? 0 : -ENAMETOOLONG;
}

/* From / on. resolve: without symbolic links, as the target has been named. Logs. */
static int whole_path(const char *path, bool resolve, char out[PATH_MAX])
{
    bool dots = strstr(path, "/./") || strstr(path, "/../");
    int rc = 0;

    if (*path != '/' || dots || resolve)
        rc = resolved(path, out);
    else if (snprintf(out, PATH_MAX, "%s", path) >= PATH_MAX)
        rc = -ENAMETOOLONG;
    if (rc)
        FP_ERROR("%s: %s", path, fp_strerror(rc));
    return rc;
}

/* From logs.path[at] on: 0, the job, and how many it is of; ELSEWHERE; or a failure. */
static int ask(const struct ctl_options *o, struct ctl_link *l, size_t at, bool resolve, uint64_t *job, size_t *taken)
{
    static char path[CTL_PATHS_MAX][PATH_MAX], dest[PATH_MAX];
    ProtobufCBinaryData paths[CTL_PATHS_MAX];
    Fp__CtlStage q = FP__CTL_STAGE__INIT;
    ProtobufCMessage *reply = NULL;
    int rc = o->to ? whole_path(o->to, resolve, dest) : 0;

    q.op = FP__STAGE_OP__STAGE_OP_MERGE;
    q.paths = paths;
    q.verify = o->verify;
    q.overwrite = o->force || o->overwrite;
    q.force = o->overwrite;
    for (; at + q.n_paths < logs.n && q.n_paths < CTL_PATHS_MAX && rc == 0; q.n_paths++) {
        rc = whole_path(logs.path[at + q.n_paths], resolve, path[q.n_paths]);
        paths[q.n_paths] = (ProtobufCBinaryData){strlen(path[q.n_paths]), (uint8_t *)path[q.n_paths]};
    }
    if (rc)
        return rc;
    if (o->to)
        q.dest = (ProtobufCBinaryData){strlen(dest), (uint8_t *)dest};
    rc = ctl_link_call(l, FP__MSG_TYPE__MSG_CTL_STAGE, &q.base, &fp__ctl_stage_reply__descriptor, &reply);
    if (rc < 0)
        return ctl_link_failed(l, rc, "merge");
    const Fp__CtlStageReply *r = (const Fp__CtlStageReply *)reply;

    rc = r->elsewhere ? ELSEWHERE : r->n_why ? -EINVAL : r->job ? 0 : FP_EBADFRAME;
    for (size_t i = 0; i < r->n_why && rc == -EINVAL; i++)
        FP_ERROR("%s", r->why[i]);
    *job = r->job;
    *taken = r->taken && r->taken < q.n_paths ? r->taken : q.n_paths;
    protobuf_c_message_free_unpacked(reply, NULL);
    return rc;
}

/* 1: without symbolic links it has another name, or what is to be made of it has. */
static int has_other_name(const struct ctl_options *o, const char *log)
{
    static char as_given[PATH_MAX], whole[PATH_MAX];
    const char *const names[] = {log, o->to};
    int rc = 0;

    for (size_t i = 0; i < 2 && names[i] && rc == 0; i++) {
        rc = whole_path(names[i], false, as_given);
        rc = rc ? rc : whole_path(names[i], true, whole);
        rc = rc ? rc : strcmp(as_given, whole) != 0;
    }
    return rc;
}

/* They go on, whatever becomes of this command. */
static void say_begun(const uint64_t *jobs, int n)
{
    for (int i = 0; i < n; i++)
        FP_WARN("job %llu has been begun for logs before that, and goes on (fpctl drain show)", (unsigned long long)jobs[i]);
}

/* A job for those of each target. Those that are in none are the first *left of logs then. Jobs: how many. */
static int ask_all(const struct ctl_options *o, struct ctl_link *l, uint64_t *jobs, int *n, size_t *left)
{
    int rc = 0;

    *n = 0;
    *left = 0;
    for (size_t at = 0, taken; at < logs.n; at += taken) {
        rc = ask(o, l, at, false, &jobs[*n], &taken);
        if (rc == ELSEWHERE && (rc = has_other_name(o, logs.path[at])) >= 0) /* of the target */
            rc = rc ? ask(o, l, at, true, &jobs[*n], &taken) : ELSEWHERE;
        if (rc < 0) {
            say_begun(jobs, *n);
            return rc;
        }
        if (rc == 0) {
            ++*n;
            continue;
        }
        taken = 1;
        FP_WARN("%s is merged here: not in a target of the store (fpctl drain show)", logs.path[at]);
        logs.path[(*left)++] = logs.path[at];
    }
    return 0;
}

/* *left: so many logs, the first ones then, are not the store's. */
static int merge_there(const struct ctl_options *o, size_t *left)
{
    static struct ctl_store store;
    struct ctl_link *l = NULL;
    uint64_t *jobs = calloc(logs.n, sizeof *jobs);
    int n, rc = jobs ? ctl_open(o, &store, &l) : -ENOMEM;

    *left = 0;
    if (jobs && rc < 0 && !o->manager_given && !(o->until_ms && ctl_link_may_come(rc))) {
        FP_WARN("merged here, since the store can't be asked");
        *left = logs.n;
        rc = 0;
    } else {
        rc = rc < 0 ? rc : ask_all(o, l, jobs, &n, left);
        rc = rc < 0 ? rc : ctl_jobs_wait(o, l, jobs, n);
    }
    ctl_link_close(l);
    free(jobs);
    return rc;
}

static int run(const struct ctl_options *o, const struct ctl_store *store, struct ctl_link *l)
{
    size_t left = 0;
    int rc = 0, here;

    (void)store;
    (void)l;
    if (o->to && o->names[1]) {
        FP_ERROR("--to names one file: give one LOG with it");
        return -EINVAL;
    }
    watch_here(o);
    for (size_t i = 0; o->names[i] && rc == 0; i++)
        rc = find_logs(o->names[i], !o->to);
    if (rc)
        return rc;
    if (!o->offline)
        ctl_watch(2 * o->timeout_ms + 1000); /* of several mounts each says which store it is of */
    if (!o->offline && ctl_is_there(o))
        rc = merge_there(o, &left);
    else
        left = logs.n;
    here = left && rc >= 0 ? merge_here(o, logs.path, left) : 0;
    return rc ? rc : here;
}

const struct ctl_cmd ctl_cmd_merge = {
    .words = "merge",
    .args = "LOG...",
    .options = "to force overwrite verify offline",
    .help = "Makes a file of the log F.fplog that fpctl drain --layout=log has left in a target: F beside it, or what --to names. All benefactors of the store that reach the target do it; with "
            "--offline, or where there is no store, it is done here.",
    .more = "Of a directory that is no log, all logs below it are meant. Every byte is compared with its sum before it is written. The file gets its name when it is whole and synced, with owner, mode, times and attributes of the drained one; the log stays. "
            "In a store it goes on when this command ends, and holds back while programs write, as a drain does; given again, the command waits for the same job. A merge without a store that was "
            "killed is begun anew by the next one.",
    .exits = "3 when --timeout is over, or no manager was there in all that time, 4 when a log could not be merged by the store, 5 when the job was cancelled.",
    .flags = CTL_WAITS | CTL_NO_LINK | CTL_PATIENT,
    .run = run,
};
