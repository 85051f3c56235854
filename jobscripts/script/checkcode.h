/* What fp-job check says to the SPANK plugin, which calls it and links nothing of it. */
#ifndef JOB_CHECKCODE_H
#define JOB_CHECKCODE_H

/* The exit code of check with --sbatch if all is well, and the job has --core-spec. */
#define JOB_CHECK_CORE_SPEC 3

#endif
