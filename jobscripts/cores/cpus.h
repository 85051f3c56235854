/* Lists of CPUs, as Linux writes them (0,2-5), and processes that are kept to them. Masks of any width; any thread. */
#ifndef JOB_CPUS_H
#define JOB_CPUS_H

#include <sys/types.h>

#define JOB_CPUS_MAX 8192u /* of a node */

/*
 * The thread pid (0: the calling one), and what it starts, runs on these CPUs alone: those of them that it may use already, or, if it may use none of them,
 * all. 0; -EINVAL: no list; -ESRCH, -EPERM: of sched_setaffinity(2).
 */
int job_cpus_confine(pid_t pid, const char *list);

/* The same of all threads of a process, also of those that it makes meanwhile. */
int job_cpus_confine_all(pid_t pid, const char *list);

/* Where the calling thread may run. 0, or negative errno. */
int job_cpus_here(char *out, size_t size);
/* What is left of that without these CPUs. 0; -ENOENT: nothing; or other negative errno. */
int job_cpus_others(const char *theirs, char *out, size_t size);

#endif
