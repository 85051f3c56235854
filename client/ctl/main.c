/* fpctl: looking at a store, and stopping it.
 *
 * One question, one answer, then it exits: no daemon, no state. The commands are one file each; this one reads the options,
 * finds the store (find.c), connects (link.c) and calls the command.
 *
 * Exit codes: 0, 1 when the answer could not be had (one line on stderr says why), 2 for a mistake in the call. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/ctl/ctl.h"
#include "fp/err.h"
#include "fp/fault.h"
#include "fp/log.h"

static const char *const commands[] = {"status", "benefactors", "stat", "df", "stop", NULL};

static const struct fp_opt options[] = {
    FP_OPT_ENUM(struct ctl_options, command, "command", NULL, commands,
                "What to do: show the state of the store; its benefactors; one file and where its chunks lie; how full it "
                "is; or stop manager, benefactors and mounts.",
                .flags = FP_OPT_POSITIONAL | FP_OPT_REQUIRED | FP_OPT_NO_FILE, .arg = "status|benefactors|stat|df|stop"),
    FP_OPT_PATH(struct ctl_options, path, "path", NULL,
                "File or directory in the store: stat shows it. For the other commands it says which store is meant.",
                .flags = FP_OPT_POSITIONAL | FP_OPT_NO_FILE, .arg = "PATH"),
    FP_OPT_MANAGER(struct ctl_options, manager, 0),
    FP_OPT_KEY(struct ctl_options, key),
    FP_OPT_BOOL(struct ctl_options, json, "json", "off", "Print one JSON object instead of text for people.",
                .flags = FP_OPT_NO_FILE),
    FP_OPT_BOOL(struct ctl_options, all, "all", "off",
                "With stat: a line for each slice, instead of one for consecutive chunks of one benefactor.",
                .flags = FP_OPT_NO_FILE),
    FP_OPT_DURATION(struct ctl_options, timeout_ms, "timeout", "5s", 100, FP_HOUR_MS(1),
                    "How long to wait for the manager's answer."),
    FP_OPT_DURATION(struct ctl_options, wait_ms, "wait", "30s", 0, FP_HOUR_MS(1),
                    "With stop: how long to wait until the manager has ended."),
    FP_OPT_LOG_LEVEL(struct ctl_options, log_level),
    FP_OPT_END,
};

static const struct fp_opt_table table = {
    .prog = "fpctl",
    .section = "ctl",
    .summary = "Look at an fpstore, or stop it. The store is the one given by --manager and --key, or the one "
               "mounted at PATH or the current directory, or the only one mounted here.",
    .opts = options,
};

static int run(const struct ctl_options *o)
{
    static int (*const functions[])(const struct ctl_options *, const struct ctl_store *, struct ctl_link *) = {
        ctl_status, ctl_benefactors, ctl_stat, ctl_df, ctl_stop};
    static struct ctl_store store;
    struct ctl_link *link = NULL;

    ctl_watch(o->timeout_ms);
    int rc = ctl_find(o, &store);
    if (rc < 0)
        return rc;
    ctl_watch(2 * o->timeout_ms + 1000);
    rc = ctl_link_open(&store, o->timeout_ms, &link);
    if (rc == 0)
        rc = functions[o->command](o, &store, link);
    ctl_link_close(link);
    return rc;
}

int main(int argc, char **argv)
{
    static struct ctl_options o;
    fp_log_init("fpctl", FP_LOG_WARN);
    struct fp_opts *opts = fp_opt_parse_or_exit(&table, &o, argc, argv);
    fp_log_set_level(o.log_level == FP_LOG_INFO ? FP_LOG_WARN : (enum fp_log_level)o.log_level);
    fp_fault_init();
    o.manager_given = strcmp(fp_opts_source(opts, "manager"), "command line") == 0;
    o.key_given = strcmp(fp_opts_source(opts, "key"), "command line") == 0;
    if (o.command == CTL_STAT && !o.path) {
        fprintf(stderr, "fpctl: ERROR: stat needs a PATH: fpctl stat /AggregateSSDstore/file\n");
        return 2;
    }
    int rc = run(&o);
    fp_opts_free(opts);
    return rc < 0 ? 1 : 0;
}
