/*
 * fp-job: the #FP lines of batch scripts.
 *
 *     fp-job check job.sh      before sbatch: each mistake, with line and column
 *     fp-job explain job.sh    where its store is, and which cores serve it
 *     fp-job run -- srun ./app in the batch script: start, the application, stop
 *     fp-job doctor            what a site must change
 *
 * Exit codes: 0; 1: the script has mistakes, or the command failed; 2: a mistake in the call. Of run and stop, the application's. Of status up to 6 (cmd_status.c).
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fp/log.h"
#include "jobscripts/script/declared.h"
#include "jobscripts/enter.h"
#include "jobscripts/job.h"
#include "jobscripts/nodes_given.h"

static const char *const commands[] = {"check", "explain", "start", "stop", "run", "status", "doctor", "clean", "node", "wait", "confine", "owner", "daemon", NULL};
static int (*const functions[])(const struct job_options *) = {job_cmd_check, job_cmd_explain, job_cmd_start, job_cmd_stop,
                                                               job_cmd_run,   job_cmd_status,  job_cmd_doctor, job_cmd_clean, job_cmd_node,
                                                               job_cmd_wait, job_cmd_confine, job_cmd_owner, job_cmd_daemon};
static const char *const launchers[] = {"auto", "srun", "ssh", "mpirun", NULL};

static const struct fp_opt options[] = {
    FP_OPT_ENUM(struct job_options, command, "command", NULL, commands,
                "Look for mistakes in the #FP lines of a batch script; print what the job would do, and on which cores; within a job, start its store, end it, or both around a command; "
                "say how it is. doctor: look whether Slurm and the nodes are fit for it, and say what to change. clean: remove what jobs of yours have left on this node.",
                .flags = FP_OPT_POSITIONAL | FP_OPT_REQUIRED | FP_OPT_NO_FILE, .arg = "check|explain|start|stop|run|status|doctor|clean"),
    FP_OPT_STRING(struct job_options, script, "script", NULL,
                  "The batch script; - for standard input. Within a job, by default the job's own. With status and clean: the job's number.",
                  .flags = FP_OPT_POSITIONAL | FP_OPT_NO_FILE, .arg = "SCRIPT"),
    FP_OPT_INT(struct job_options, nodes, "nodes", NULL, 1, 1 << 20, "With check and explain: how many nodes the job is to have. By default, as many as --hosts names, else what the script's #SBATCH lines say. With --hosts it must be their number.",
               .flags = FP_OPT_NO_FILE | FP_OPT_ONCE),
    FP_OPT_INT(struct job_options, node_cores, "node-cores", NULL, 1, 65536,
               "With check and explain: how many cores its smallest node has, with one hardware thread each. By default, what Slurm says of the partitions, else as many as this machine.", .flags = FP_OPT_NO_FILE),
    FP_OPT_BOOL(struct job_options, words, "words", "off",
                "With check: the words alone. No directory, no node and no plugin given by its path is looked at, as where others than the script's user check it.", .flags = FP_OPT_NO_FILE),
    FP_OPT_INT(struct job_options, exit_code, "exit-code", "0", 0, 255,
               "With stop: what the application has ended with, for #FP stage-out ... on=. It is what stop ends with, too, unless something could not be copied.", .flags = FP_OPT_NO_FILE),
    FP_OPT_DURATION(struct job_options, timeout_ms, "timeout", "1h", FP_SEC_MS(1), FP_HOUR_MS(720),
                    "With stop and run: within this time all is drained and staged out, or the job has failed and its store ends all the same. Less if the job's own time ends "
                    "before. For a target that hangs, and a job without a limit."),
    FP_OPT_DURATION(struct job_options, stall_ms, "stall", "5min", FP_SEC_MS(1), FP_HOUR_MS(720),
                    "With stop and run: when draining or staging out has stood still for so long, as the target is full, not mounted or not to be written to, it is given up, and the job has failed. "
                    "What comes behind it has a tenth of that. A target that is only slow is waited for."),
    FP_OPT_PATH(struct job_options, auxapp_dir, "auxapp-dir", NULL, "Where the plugins of aux-apps are that are given by name. By default, those that came with fpstore.",
                .arg = "DIR"),
    FP_OPT_BOOL(struct job_options, kept, "kept", "off", "With clean: say which stores of yours lie on this node and no job has (persistent=, on-failure=keep); remove nothing.", .flags = FP_OPT_NO_FILE),
    FP_OPT_STRING(struct job_options, named, "named", NULL, "With clean: remove the part on this node of the store of this name, with all that is in it.", .arg = "NAME", .flags = FP_OPT_NO_FILE),
    FP_OPT_STRING(struct job_options, ssd, "ssd", "$TMPDIR", "With doctor and clean: the directory on the nodes' own SSDs that is looked at, as in #FP store ssd=.", .flags = FP_OPT_NO_FILE, .arg = "DIR"),
    FP_OPT_BOOL(struct job_options, here, "here", "off", "With doctor, in a job: look at this machine, and not at the nodes of the job.", .flags = FP_OPT_NO_FILE),
    FP_OPT_BOOL(struct job_options, json, "json", "off", "With doctor and status: print JSON.", .flags = FP_OPT_NO_FILE),
    FP_OPT_STRING(struct job_options, peer, "peer", NULL, "With doctor: a node whose address is to be found.", .flags = FP_OPT_NO_FILE | FP_OPT_HIDDEN),
    FP_OPT_BOOL(struct job_options, lines, "lines", "off", "With doctor: answers to another one that asks.", .flags = FP_OPT_NO_FILE | FP_OPT_HIDDEN),
    FP_OPT_STRING(struct job_options, hosts, "hosts", NULL,
                  "With start and run: the nodes (with check and explain their number counts), as a,b,c or @FILE with one at the beginning of each line; an address of IPv6 in brackets. A number of slots behind a name (a:4) is passed over, and a node that is named again is the same one. By default those of the job, as Slurm or PBS (PBS_NODEFILE) say.",
                  .arg = "LIST|@FILE", .flags = FP_OPT_NO_FILE | FP_OPT_ONCE),
    FP_OPT_ENUM(struct job_options, launcher, "launcher", "auto", launchers,
                "With start and run: what starts the services on the nodes. By default srun in a job of Slurm, else ssh if it is installed, else mpirun (Open MPI)."),
    FP_OPT_INT(struct job_options, fanout, "fanout", "32", 1, 1024, "With start and run: how many agents are below one.", .flags = FP_OPT_NO_FILE | FP_OPT_HIDDEN),
    FP_OPT_INT(struct job_options, rank, "rank", "-1", -1, INT32_MAX, "With node: which one it is.", .flags = FP_OPT_NO_FILE | FP_OPT_HIDDEN),
    FP_OPT_BOOL(struct job_options, front, "front", "off", "With node: the agent leaves the process group.", .flags = FP_OPT_NO_FILE | FP_OPT_HIDDEN),
    FP_OPT_INT(struct job_options, pid, "pid", "0", 0, INT32_MAX, "With confine and owner: the process.", .flags = FP_OPT_NO_FILE | FP_OPT_HIDDEN),
    FP_OPT_STRING(struct job_options, cpus, "cpus", NULL, "With confine: where it may run.", .flags = FP_OPT_NO_FILE | FP_OPT_HIDDEN),
    FP_OPT_STRING(struct job_options, directives, "directives", NULL, "With check, start and run: directives before those of the script, a line each.", .flags = FP_OPT_NO_FILE | FP_OPT_HIDDEN),
    FP_OPT_STRING(struct job_options, sbatch, "sbatch", NULL, "With check: what sbatch was called with, a line for each word; it counts more than #SBATCH lines.",
                  .flags = FP_OPT_NO_FILE | FP_OPT_HIDDEN),
    FP_OPT_BOOL(struct job_options, plugin, "plugin", "off", "With run: the command is the batch script.", .flags = FP_OPT_NO_FILE | FP_OPT_HIDDEN),
    FP_OPT_LOG_LEVEL(struct job_options, log_level),
    FP_OPT_END,
};

static const struct fp_opt_table table = {
    .prog = "fp-job",
    .section = "job",
    .summary = "What a batch script declares in its #FP lines: checked, explained, and done.",
    .usage = "fp-job check|explain SCRIPT [OPTION]...\n       fp-job start [SCRIPT]\n       fp-job stop [--exit-code=N] [--timeout=TIME]\n       fp-job run [SCRIPT] -- COMMAND...\n       fp-job status [JOB] [--json]\n       fp-job doctor [--ssd=DIR] [--json]\n       fp-job clean [JOB]\n       fp-job clean --kept|--named=NAME [--ssd=DIR]",
    .opts = options,
};

/* Words of the directives, for fp-jobscript(7). */
static int print_directives(void)
{
    static const struct fp_opt_table *const tables[] = {&job_store_table, &job_stage_in_table, &job_stage_out_table};
    char *const args[] = {"fp-job", "--print-man-options", NULL};

    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++) {
        struct job_store store;
        struct job_stage stage;
        struct fp_opts *o = fp_opts_new(tables[i], i == 0 ? (void *)&store : &stage);

        printf(".SS Words of %s\n", tables[i]->prog);
        (void)fp_opts_args(o, 2, (char **)(uintptr_t)args);
        fp_opts_free(o);
    }
    return 0;
}

/* What stands behind -- is the application's, with all that looks like an option. Returns how many words are before. */
static int cut_command(int argc, char **argv, struct job_options *o)
{
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--") == 0) {
            o->argv = argv + i + 1;
            return i;
        }
    return argc;
}

static int mistake(const char *why)
{
    fprintf(stderr, "fp-job: ERROR: %s\n", why);
    return 2;
}

static enum job_nodes_use use_of_nodes(const struct job_options *o)
{
    int (*f)(const struct job_options *) = functions[o->command];

    if (f == job_cmd_check || f == job_cmd_explain)
        return JOB_NODES_COUNTED;
    if (f == job_cmd_start || f == job_cmd_run)
        return JOB_NODES_USED;
    return f == job_cmd_doctor || f == job_cmd_clean ? JOB_NODES_HERE : JOB_NODES_KNOWN;
}

int main(int argc, char **argv)
{
    char why[JOB_NODES_GIVEN_WHY_BYTES];
    static struct job_options o;
    struct fp_opts *opts;
    int rc;

    fp_log_init("fp-job", FP_LOG_INFO);
    if (strcmp(program_invocation_short_name, "fp-task-prolog") == 0)
        return job_cmd_prolog() < 0;
    if (strcmp(program_invocation_short_name, "fp-enter") == 0)
        return job_cmd_enter(argv);
    if (argc == 2 && strcmp(argv[1], "--print-man-commands") == 0)
        return print_directives();
    argc = cut_command(argc, argv, &o);
    opts = fp_opt_parse_or_exit(&table, &o, argc, argv);
    fp_log_set_level((enum fp_log_level)o.log_level);
    if (!o.script && !getenv("SLURM_JOB_ID") && (functions[o.command] == job_cmd_check || functions[o.command] == job_cmd_explain))
        return mistake("which script? fp-job check SCRIPT (in a job of Slurm it is the job's, unless one is named)");
    if (o.script && (functions[o.command] == job_cmd_stop || functions[o.command] == job_cmd_doctor))
        return mistake(functions[o.command] == job_cmd_stop ? "stop ends the store of the job that it is called in: it takes no name of one, and no script" : "doctor takes no script: fp-job doctor");
    if (o.argv && functions[o.command] != job_cmd_run && functions[o.command] != job_cmd_daemon)
        return mistake("a command behind -- is for fp-job run alone");
    if (job_nodes_given(&o, use_of_nodes(&o), why)) {
        if (functions[o.command] == job_cmd_start)
            puts("false"); /* as of a store that does not start */
        return mistake(why);
    }
    rc = functions[o.command](&o);
    job_hosts_free(o.host_names, o.nhosts);
    fp_opts_free(opts);
    return rc < 0 ? 1 : rc;
}
