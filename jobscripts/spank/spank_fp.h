/*
 * spank_fp.so, the part of fpstore inside of Slurm: what its files share.
 *
 * It is loaded into sbatch, salloc and srun, into slurmstepd for each step, and on each node before and after a job (prolog, epilog), there as root. It links
 * nothing of ours but nsenter.c and inherited.c, and knows no word of the #FP lines: all that is to be understood or done, fp-job does, as the user.
 */
#ifndef JOB_SPANK_FP_H
#define JOB_SPANK_FP_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Cores that Slurm leaves out of the job, a number: from sbatch to prologs, which do not see options of Slurm's own, as what has been asked for; from them to
 * fp-job wait as what is so (outside.c). */
#define SPANK_CORE_SPEC "FPSTORE_CORE_SPEC"

enum spank_fp_option { FP_TAKE, FP_STORE, FP_CORES, FP_AUXAPPS, FP_STAGE_IN, FP_STAGE_OUT, FP_OPTIONS };

/* What was given on the command line, or in #SBATCH lines. NULL: not; FP_TAKE has no value, "" is that it was. Owned. */
struct spank_fp {
    char *value[FP_OPTIONS];
    char fp_job[PATH_MAX]; /* the program */
};

/* options.c */
bool spank_fp_given(const struct spank_fp *s);
/* The directives that they stand for, a line each, as fp-job --directives takes them: the caller's. NULL: no memory. */
char *spank_fp_directives(const struct spank_fp *s);

/* submit.c. False: the job can't be as it is, and the user has been told why. *core_spec: it has --core-spec. Blocks as long as fp-job check does, at most a
 * minute. */
bool spank_fp_check(const struct spank_fp *s, bool *core_spec);

/* child.c. Exit code of argv[0]; -ETIMEDOUT: it was killed after limit_ms, or is about to end; or negative. Its output is our standard error, its
 * input ours or none. */
int spank_fp_run(char *const argv[], char *const envp[], bool input, uint64_t limit_ms);

/* The same as another user, with nothing of our environment and privileges, and none of our files but standard error: for root. */
int spank_fp_run_as(uid_t uid, char *const argv[], uint64_t limit_ms);
/* The same for what stays when it has ended: all of that is held (hold.h) until spank_hold_end. If it fails, nothing stays. cores: what FPSTORE_CORE_SPEC is there. */
int spank_fp_run_held(uint32_t job, uid_t uid, uint32_t cores, char *const argv[], uint64_t limit_ms);
/* What ask says, in a process of its own, which is killed after limit_ms. 0, its negative errno, or -ETIMEDOUT. */
int spank_fp_ask(int (*ask)(const void *arg, uint32_t *out), const void *arg, uint64_t limit_ms, uint32_t *out);

/* record.c. Cores of each of its nodes that are outside of this job's cpuset, and no other job's: as the controller has it. 0: none. Returns 0, or negative errno if
 * that is not known. */
int spank_fp_cores_left_out(uint32_t job, uid_t uid, uint64_t limit_ms, uint32_t *out);

#endif
