/* Going where a job's store is mounted, on nodes where that is a user namespace (fp/namespace.h): what reads or writes in the store must be there. */
#ifndef JOB_ENTER_H
#define JOB_ENTER_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

#define JOB_DIR_INSIDE "ns" /* in a job's directory: a directory of links to the namespaces, kept by the agent; there is none where everybody sees the mount */

/* The calling process, which has one thread, if there is such a place on this node. dir: job_dir_path. 0, or negative and logged. */
int job_enter(const char *dir);

/* Calls do_it there: in a process of its own if need be. Its result, which is 0 or negative. */
int job_inside(const char *dir, int (*do_it)(void *arg), void *arg);

/* All that this command of fp-job run starts is there: tasks of srun, and ranks of mpirun. */
bool job_enters(const char *command);

/* The program fp-enter. False: it is missing. */
bool job_enter_program(char *out, size_t size);

/* fp-enter, under its own name: becomes the command of the words behind the first. Exit code if that can't be. */
int job_cmd_enter(char *const argv[]);

#endif
