/* The application of fp-job run: told to end in time, waited for. One thread, one application in a process. */
#ifndef JOB_APP_H
#define JOB_APP_H

#include <stdbool.h>
#include <sys/types.h>

#include "jobscripts/start.h"

/* From now on signals that are marks for the application are kept for it, or passed on. Before any other signal is set. */
void job_app_signals_begin(void);
/* From now on those that ask for an end, too. */
void job_app_signals(void);
/* As they were before job_app_signals_begin: for who becomes the application. */
void job_app_signals_reset(void);
/* fork(), of which neither side misses a signal: in the child they are as they were. */
pid_t job_app_fork(void);

/*
 * Until it ends: its exit code, or 128 + signal, as a shell has it. It is told to end when the job has only the reserve left, if that is needed, and killed when half of
 * the reserve has gone by. program: its first word.
 */
int job_app_wait(const struct job_run_of *r, pid_t pid, const char *program);

#endif
