/* fpctl: looking at a store, and telling it what to do.
 *
 * One question, one answer, then it exits: no daemon, no state. The commands are one file each, with a struct ctl_cmd that says what they take; this one reads the
 * options, finds the command (cmd.c) and the store (find.c), connects (link.c) and calls the command.
 *
 * Exit codes: 0, 1 when the answer could not be had (one line on stderr says why), 2 for a mistake in the call; others are the command's own. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/ctl/cmd.h"
#include "fp/clock.h"
#include "fp/err.h"
#include "fp/fault.h"
#include "fp/log.h"
#include "life.pb-c.h"

#define ANSWER_MS 5000u /* of a command that waits longer than that for something else */

static const struct ctl_cmd *const commands[] = {
    &ctl_cmd_status, &ctl_cmd_benefactors, &ctl_cmd_df, &ctl_cmd_stat, &ctl_cmd_locks, &ctl_cmd_verify, &ctl_cmd_checkpoints, &ctl_cmd_checkpoint_latest,
    &ctl_cmd_checkpoint_commit, &ctl_cmd_checkpoint_forget, &ctl_cmd_conversions, &ctl_cmd_versions, &ctl_cmd_restore, &ctl_cmd_drain, &ctl_cmd_drain_show, &ctl_cmd_drain_cancel,
    &ctl_cmd_drain_set, &ctl_cmd_drain_remove, &ctl_cmd_drain_release, &ctl_cmd_merge, &ctl_cmd_evict, &ctl_cmd_stage_in, &ctl_cmd_stage_out, &ctl_cmd_benefactor_set, &ctl_cmd_wait, &ctl_cmd_auxapps, &ctl_cmd_auxapps_set, &ctl_cmd_auxapp_new, &ctl_cmd_convert,
    &ctl_cmd_schema, &ctl_cmd_stop, NULL};

/* Redundancy there is none yet. */
static const char *const level_names[] = {"any", "pool", "local", "drained", "verified", NULL};
static const int levels[] = {FP__LEVEL__LEVEL_NONE, FP__LEVEL__LEVEL_POOL, FP__LEVEL__LEVEL_LOCAL, FP__LEVEL__LEVEL_DRAINED, FP__LEVEL__LEVEL_VERIFIED};

static const char *const layout_names[] = {"file", "log", NULL}; /* enum fp_drain_layout */

struct given {
    struct fp_strlist words;
    int level; /* of level_names */
    struct ctl_options o;
};

/* Those of single commands are flagged FP_OPT_NO_FILE, and named by the command (ctl_cmd.options). */
static const struct fp_opt options[] = {
    FP_OPT_LIST(struct given, words, "command", NULL, CTL_PATHS_MAX + 16, "What to do, and its words.", .flags = FP_OPT_POSITIONAL | FP_OPT_NO_FILE | FP_OPT_WHOLE | FP_OPT_HIDDEN,
                .arg = "COMMAND"),
    FP_OPT_MANAGER(struct given, o.manager, 0),
    FP_OPT_KEY(struct given, o.key),
    FP_OPT_BOOL(struct given, o.json, "json", "off", "Print one JSON object instead of text for people.", .flags = FP_OPT_NO_FILE),
    FP_OPT_BOOL(struct given, o.all, "all", "off", "With stat: a line for each slice, instead of one for consecutive chunks of one benefactor. With checkpoints: all sets of each series. With drain: the whole store.",
                .flags = FP_OPT_NO_FILE),
    FP_OPT_BOOL(struct given, o.watch, "watch", "off", "With auxapps and checkpoints: again every second, until it is ended (Ctrl-C).", .flags = FP_OPT_NO_FILE),
    FP_OPT_BOOL(struct given, o.files, "files", "off", "With checkpoints: the files of each set too.", .flags = FP_OPT_NO_FILE),
    FP_OPT_BOOL(struct given, o.complete, "complete", "off", "With checkpoint latest: none that seems to be half of one, also if there is no other.", .flags = FP_OPT_NO_FILE),
    FP_OPT_INT(struct given, o.step, "step", "-1", -1, INT64_MAX, "With checkpoint commit and forget, and wait: the time step of files that lie in PATH side by side.",
               .flags = FP_OPT_NO_FILE, .arg = "N"),
    FP_OPT_BOOL(struct given, o.force, "force", "off", "With restore: also if it is open for writing. With merge: also if the file is there. With checkpoint commit: also if something of it was lost after close.", .flags = FP_OPT_NO_FILE),
    FP_OPT_BOOL(struct given, o.offline, "offline", "off", "With merge: here, without a store.", .flags = FP_OPT_NO_FILE),
    FP_OPT_BOOL(struct given, o.torn, "torn", "off", "With restore: all torn files below PATH.", .flags = FP_OPT_NO_FILE),
    FP_OPT_STRING(struct given, o.to, "to", NULL, "With drain and stage-out: the directory to copy to, below which paths are as in the store. By default, that of the policy. With wait: the target that is to have it. With merge: the file. With stage-in: the directory of the store to copy to.",
                  .flags = FP_OPT_NO_FILE, .arg = "DIRECTORY"),
    FP_OPT_STRING(struct given, o.target, "target", NULL, "With stage-in --to: the directory that is to be a target, if none is known that has PATH: a file .fp-target is made in it, if it can be written to.",
                  .flags = FP_OPT_NO_FILE, .arg = "DIRECTORY"),
    FP_OPT_BOOL(struct given, o.now, "now", "off", "With drain: before all else, and without regard for programs.", .flags = FP_OPT_NO_FILE),
    FP_OPT_BOOL(struct given, o.last, "last", "off", "With drain: of each series of checkpoints below PATH the newest complete set, and nothing else.", .flags = FP_OPT_NO_FILE),
    FP_OPT_BOOL(struct given, o.failed, "failed", "off", "With drain: anew what policies have chosen and what could not be drained, and nothing else.", .flags = FP_OPT_NO_FILE),
    FP_OPT_BOOL(struct given, o.verify, "verify", "off", "With drain and merge: read back what was written and compare.", .flags = FP_OPT_NO_FILE),
    FP_OPT_BOOL(struct given, o.overwrite, "overwrite", "off", "With drain, stage-out and merge: replace also files in the target that another store relies on, since it has evicted data of them.",
                .flags = FP_OPT_NO_FILE),
    FP_OPT_BOOL(struct given, o.again, "again", "off", "With drain: copy, and with --verify compare, also what is in the target already.", .flags = FP_OPT_NO_FILE),
    FP_OPT_ENUM(struct given, o.layout, "layout", "file", layout_names,
                "With drain: file, or log: each benefactor writes one stream, for targets that are slow when several nodes write a file.", .flags = FP_OPT_NO_FILE),
    FP_OPT_BOOL(struct given, o.wait, "wait", "off", "With drain and conversions: until it has ended.", .flags = FP_OPT_NO_FILE),
    FP_OPT_DURATION(struct given, o.stall_ms, "stall", "0", 0, FP_HOUR_MS(720),
                    "With drain --wait and stage-out: wait no longer when it has stood still for so long, as for a target that is full or gone, and nothing more has got there. What is only slow does not "
                    "stand still. 0: no limit.", .flags = FP_OPT_NO_FILE),
    FP_OPT_ENUM(struct given, level, "level", "any", level_names, "Level of durability. With checkpoint latest: that the set is to have; with wait: that is waited for (local unless it is given).",
                .flags = FP_OPT_NO_FILE),
    FP_OPT_DURATION(struct given, o.timeout_ms, "timeout", "5s", 100, FP_HOUR_MS(24 * 30),
                    "How long to wait for the manager's answer; of a command that waits for more, such as stop (30s unless it is given), how long in all."),
    FP_OPT_LOG_LEVEL(struct given, o.log_level),
    FP_OPT_END,
};

static void print_commands(void)
{
    ctl_cmd_print_list(commands);
}

static const struct fp_opt_table table = {
    .prog = "fpctl",
    .section = "ctl",
    .usage = "fpctl COMMAND [ARGUMENT]... [OPTION]...",
    .summary = "Look at an fpstore, or tell it what to do. The store is the one given by --manager and --key, or the one mounted at PATH or the current directory, or the "
               "only one mounted here (by one mount or several).",
    .print_more = print_commands,
    .opts = options,
};

static const char *const common[] = {"command", "manager", "key", "json", "timeout", "log-level", NULL};

static bool is_common(const char *option)
{
    for (const char *const *c = common; *c; c++)
        if (strcmp(*c, option) == 0)
            return true;
    return false;
}

static int mistake(const char *why)
{
    fprintf(stderr, "fpctl: ERROR: %s\n", why);
    return 2;
}

int ctl_open(const struct ctl_options *o, struct ctl_store *store, struct ctl_link **link)
{
    if (o->cmd->flags & CTL_PATIENT && o->until_ms)
        ctl_patient(o->until_ms, CTL_LATE);
    ctl_watch(o->timeout_ms); /* who is patient waits for a path, too, in a mount whose manager is away */
    int rc = ctl_find(o, store);
    if (rc < 0)
        return rc;
    ctl_watch(2 * o->timeout_ms + 1000);
    return ctl_link_open(store, o->timeout_ms, link);
}

static int run(const struct ctl_options *o)
{
    static struct ctl_store store;
    struct ctl_link *link = NULL;

    if (o->cmd->flags & (CTL_NO_STORE | CTL_NO_LINK))
        return o->cmd->run(o, NULL, NULL);
    int rc = ctl_open(o, &store, &link);
    if (rc == 0)
        rc = o->cmd->run(o, &store, link);
    ctl_link_close(link);
    return rc;
}

/* --help of one command: its words are in argv, values of options perhaps too. */
static const struct ctl_cmd *command_of(int argc, char **argv)
{
    const char *items[CTL_PATHS_MAX];
    struct fp_strlist words = {.items = items};
    const struct ctl_cmd *c;
    char why[512];
    size_t used;

    for (int i = 1; i < argc && words.count < CTL_PATHS_MAX; i++)
        if (argv[i][0] != '-')
            items[words.count++] = argv[i];
    for (c = NULL; words.count > 0 && !c; words.items++, words.count--)
        c = ctl_cmd_find(commands, &words, &used, why, sizeof why);
    return c;
}

static int help(const struct ctl_cmd *c)
{
    struct fp_opt own[sizeof options / sizeof *options];
    char usage[256], summary[4096];
    char *argv[] = {(char *)"fpctl", (char *)"--help", NULL};
    struct fp_opt_table t = table;
    struct given unused;
    size_t n = 0;

    for (const struct fp_opt *opt = options; opt->name; opt++)
        if (is_common(opt->name) || ctl_cmd_knows(c, opt->name))
            own[n++] = *opt;
    own[n] = (struct fp_opt)FP_OPT_END;
    snprintf(usage, sizeof usage, "fpctl %s%s%s [OPTION]...", c->words, *c->args ? " " : "", c->args);
    snprintf(summary, sizeof summary, "%s%s%s%s%s", c->help, c->more ? " " : "", c->more ? c->more : "", c->exits ? " " : "", c->exits ? c->exits : "");
    t.usage = usage;
    t.summary = summary;
    t.print_more = NULL;
    t.opts = own;
    struct fp_opts *opts = fp_opts_new(&t, &unused);
    fp_opts_args(opts, 2, argv);
    fp_opts_free(opts);
    return 0;
}

/* --help after a command, and what the build asks for. -1: neither. */
static int other_output(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        bool asks = strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0;
        const struct ctl_cmd *c = asks ? command_of(argc, argv) : NULL;
        if (c)
            return help(c);
        if (strcmp(argv[i], "--print-man-commands") != 0)
            continue;
        ctl_cmd_print_man(commands);
        return 0;
    }
    return -1;
}

/* What was read becomes what commands are called with. 0, or -EINVAL with a line in why. */
static int prepare(struct given *g, const struct fp_opts *opts, char *why, size_t size)
{
    struct ctl_options *o = &g->o;
    size_t used;

    o->cmd = ctl_cmd_find(commands, &g->words, &used, why, size);
    if (!o->cmd)
        return -EINVAL;
    for (const struct fp_opt *opt = options; opt->name; opt++) {
        if (is_common(opt->name) || ctl_cmd_knows(o->cmd, opt->name) || strcmp(fp_opts_source(opts, opt->name), "command line") != 0)
            continue;
        snprintf(why, size, "fpctl %s has no option --%s: see fpctl %s --help", o->cmd->words, opt->name, o->cmd->words);
        return -EINVAL;
    }
    o->level = levels[g->level];
    o->manager_given = strcmp(fp_opts_source(opts, "manager"), "command line") == 0;
    o->key_given = strcmp(fp_opts_source(opts, "key"), "command line") == 0;
    if (o->cmd->flags & CTL_WAITS) {
        bool given = strcmp(fp_opts_source(opts, "timeout"), "command line") == 0;
        o->limit_ms = given ? o->timeout_ms : o->cmd->limit_ms;
        o->until_ms = o->limit_ms ? fp_now_ms() + o->limit_ms : 0;
        if (given && o->timeout_ms > ANSWER_MS)
            o->timeout_ms = ANSWER_MS;
    }
    return ctl_cmd_args(o->cmd, g->words.items + used, g->words.count - used, o, why, size);
}

int main(int argc, char **argv)
{
    static struct given g;
    char why[1024];

    fp_log_init("fpctl", FP_LOG_WARN);
    int rc = ctl_convert_hand_over(argc, argv);
    if (rc < 0)
        return ctl_exit_code(rc);
    rc = other_output(argc, argv);
    if (rc >= 0)
        return rc;
    struct fp_opts *opts = fp_opt_parse_or_exit(&table, &g, argc, argv);
    fp_log_set_level(g.o.log_level == FP_LOG_INFO ? FP_LOG_WARN : (enum fp_log_level)g.o.log_level);
    fp_fault_init();
    if (prepare(&g, opts, why, sizeof why) < 0)
        return mistake(why);
    rc = run(&g.o);
    fp_opts_free(opts);
    return ctl_exit_code(rc);
}
