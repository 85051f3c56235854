/* fpctl: looking at a store, and stopping it.
 *
 * One question, one answer, then it exits: no daemon, no state. The commands are one file each; this one reads the options,
 * finds the store (find.c), connects (link.c) and calls the command.
 *
 * Exit codes: 0, 1 when the answer could not be had (one line on stderr says why), 2 for a mistake in the call. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/ctl/ctl.h"
#include "fp/err.h"
#include "fp/fault.h"
#include "fp/log.h"

static const char *const commands[] = {"status", "benefactors", "stat", "df", "stop", "auxapps", "verify", NULL};

static const struct fp_opt options[] = {
    FP_OPT_ENUM(struct ctl_options, command, "command", NULL, commands,
                "What to do: show the state of the store; its benefactors; one file and where its chunks lie; how full it "
                "is; what the aux-apps of its mounts do; compare files with their digests; or stop manager, benefactors and "
                "mounts.",
                .flags = FP_OPT_POSITIONAL | FP_OPT_REQUIRED | FP_OPT_NO_FILE,
                .arg = "status|benefactors|stat|df|auxapps|verify|stop"),
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
    FP_OPT_BOOL(struct ctl_options, watch, "watch", "off", "With auxapps: again every second, until it is ended (Ctrl-C).",
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
    .summary = "Look at an fpstore, or stop it. fpctl auxapps set NAME OPTION=VALUE changes an aux-app that runs, fpctl auxapp new "
               "NAME makes the skeleton of one. The store is the one given by --manager and --key, or the one "
               "mounted at PATH or the current directory, or the only one mounted here.",
    .opts = options,
};

static int run(const struct ctl_options *o)
{
    static int (*const functions[])(const struct ctl_options *, const struct ctl_store *, struct ctl_link *) = {
        ctl_status, ctl_benefactors, ctl_stat, ctl_df, ctl_stop, ctl_auxapps, ctl_verify};
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

/* `auxapps set NAME OPTION=VALUE` has words that no option table knows: they are taken out of argv. 0, or -EINVAL. */
static int take_words(struct ctl_options *words, int *argc, char **argv)
{
    for (int i = 1; i + 1 < *argc; i++) {
        if (strcmp(argv[i], "auxapps") != 0 || strcmp(argv[i + 1], "set") != 0)
            continue;
        if (i + 3 >= *argc || !strchr(argv[i + 3], '='))
            return -EINVAL;
        words->aux_name = argv[i + 2];
        words->aux_change = argv[i + 3];
        memmove(argv + i + 1, argv + i + 4, (size_t)(*argc - i - 3) * sizeof *argv); /* the NULL too */
        *argc -= 3;
        return 0;
    }
    return 0;
}

int main(int argc, char **argv)
{
    static struct ctl_options o, words;
    fp_log_init("fpctl", FP_LOG_WARN);
    if (argc > 1 && strcmp(argv[1], "auxapp") == 0) {
        if (argc == 4 && strcmp(argv[2], "new") == 0)
            return ctl_auxapp_new(argv[3]) < 0 ? 1 : 0;
        fprintf(stderr, "fpctl: ERROR: fpctl auxapp new NAME makes the skeleton of an aux-app; fpctl auxapps shows those that run\n");
        return 2;
    }
    if (take_words(&words, &argc, argv) < 0) {
        fprintf(stderr, "fpctl: ERROR: fpctl auxapps set NAME OPTION=VALUE\n");
        return 2;
    }
    struct fp_opts *opts = fp_opt_parse_or_exit(&table, &o, argc, argv);
    fp_log_set_level(o.log_level == FP_LOG_INFO ? FP_LOG_WARN : (enum fp_log_level)o.log_level);
    fp_fault_init();
    o.aux_name = words.aux_name;
    o.aux_change = words.aux_change;
    o.manager_given = strcmp(fp_opts_source(opts, "manager"), "command line") == 0;
    o.key_given = strcmp(fp_opts_source(opts, "key"), "command line") == 0;
    if ((o.command == CTL_STAT || o.command == CTL_VERIFY) && !o.path) {
        const char *command = commands[o.command];
        fprintf(stderr, "fpctl: ERROR: %s needs a PATH: fpctl %s /AggregateSSDstore/file\n", command, command);
        return 2;
    }
    int rc = run(&o);
    fp_opts_free(opts);
    return rc < 0 ? 1 : 0;
}
