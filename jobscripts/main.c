/*
 * fp-job: the #FP lines of batch scripts.
 *
 *     fp-job check job.sh      before sbatch: each mistake, with line and column
 *
 * Exit codes: 0; 1: the script has mistakes, or the command failed; 2: a mistake in the call.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fp/beside.h"
#include "fp/err.h"
#include "fp/log.h"
#include "jobscripts/job.h"

static const char *const commands[] = {"check", NULL};

static const struct fp_opt options[] = {
    FP_OPT_ENUM(struct job_options, command, "command", NULL, commands, "Look for mistakes in the #FP lines of a batch script.",
                .flags = FP_OPT_POSITIONAL | FP_OPT_REQUIRED | FP_OPT_NO_FILE, .arg = "check"),
    FP_OPT_STRING(struct job_options, script, "script", NULL, "The batch script; - for standard input.", .flags = FP_OPT_POSITIONAL | FP_OPT_REQUIRED | FP_OPT_NO_FILE,
                  .arg = "SCRIPT"),
    FP_OPT_INT(struct job_options, nodes, "nodes", "0", 0, 1 << 20, "How many nodes the job is to have. By default, what the script's #SBATCH lines say.",
               .flags = FP_OPT_NO_FILE),
    FP_OPT_INT(struct job_options, node_cores, "node-cores", "0", 0, 65536,
               "How many cores its smallest node has. By default, what Slurm says of the partition, else as many as this machine.", .flags = FP_OPT_NO_FILE),
    FP_OPT_PATH(struct job_options, auxapp_dir, "auxapp-dir", NULL, "Where the plugins of aux-apps are that are given by name. By default, those that came with fpstore.",
                .arg = "DIR"),
    FP_OPT_LOG_LEVEL(struct job_options, log_level),
    FP_OPT_END,
};

static const struct fp_opt_table table = {
    .prog = "fp-job",
    .section = "job",
    .summary = "Checks what a batch script declares in its #FP lines.",
    .opts = options,
};

int main(int argc, char **argv)
{
    static int (*const functions[])(const struct job_options *) = {job_cmd_check};
    static struct job_options o;
    struct fp_opts *opts;
    int rc;

    fp_log_init("fp-job", FP_LOG_INFO);
    opts = fp_opt_parse_or_exit(&table, &o, argc, argv);
    fp_log_set_level((enum fp_log_level)o.log_level);
    rc = functions[o.command](&o);
    fp_opts_free(opts);
    return rc == 0 ? 0 : 1;
}
