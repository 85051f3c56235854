/*
 * fpctl merge: logs that fpctl drain --layout=log has left in a target become the files that a restart reads.
 *
 * Asks nobody: a log says all about itself, so it is merged where the target is mounted, also when there is no store any more. The work is
 * fp_dlog_merge (common/dlogmerge.c).
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "client/ctl/cmd.h"
#include "fp/dlog.h"
#include "fp/err.h"
#include "fp/log.h"
#include "fp/units.h"

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

static int merge(const struct ctl_options *o, const char *log)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    struct fp_dlog_merge m = {.log = log, .replace = o->force, .verify = o->verify, .threads = cores < 2 ? 2 : cores > 8 ? 8 : (unsigned)cores};
    char to[PATH_MAX];
    int rc = o->to ? 0 : name_of(log, to);

    if (rc < 0)
        return rc;
    m.to = o->to ? o->to : to;
    rc = fp_dlog_merge(&m);
    if (rc == 0)
        return say(o, &m);
    FP_ERROR("%s", m.why);
    return rc;
}

static int run(const struct ctl_options *o, const struct ctl_store *store, struct ctl_link *l)
{
    int rc = 0;

    (void)store;
    (void)l;
    if (o->to && o->names[1]) {
        FP_ERROR("--to names one file: give one LOG with it");
        return -EINVAL;
    }
    if (o->limit_ms)
        ctl_watch(o->limit_ms);
    for (size_t i = 0; o->names[i]; i++) { /* what is wrong with one is nothing to the others */
        int one = merge(o, o->names[i]);

        rc = rc ? rc : one;
    }
    return rc;
}

const struct ctl_cmd ctl_cmd_merge = {
    .words = "merge",
    .args = "LOG...",
    .options = "to force verify",
    .help = "Makes a file of the log F.fplog that fpctl drain --layout=log has left in a target: F beside it, or what --to names. Needs no store.",
    .more = "Every byte is compared with its sum before it is written. The file gets its name when it is whole and synced, with owner, mode, times and attributes of the drained one; the log stays. "
            "A merge that was killed is begun anew by the next one.",
    .flags = CTL_NO_STORE | CTL_WAITS,
    .run = run,
};
