/* Signals to programs of a batch job, which batch systems send to all processes of a job, or of a step of it, though they are meant for the application. */
#ifndef FP_JOBSIGNALS_H
#define FP_JOBSIGNALS_H

#include <signal.h>
#include <stdbool.h>

/* Ends a program that has --ignore-term, and an agent at once. No user asks a batch system for it: it has no name there (sbatch --signal). */
#define FP_SIGNAL_END SIGPWR

/* Do users ask a batch system for it as a mark for their application: USR1, USR2, ALRM, QUIT, XCPU, and those without a name, from SIGRTMIN on? Nothing of ours means anything by it. */
bool fp_job_signal_is_mark(int sig);
/* Is it an end, asked for by users, batch systems and terminals: TERM, INT, HUP? */
bool fp_job_signal_asks_end(int sig);

/* From now on marks do nothing here, until the program takes one for itself; with
 * `all` those that ask for an end, too. What is run by exec inherits this. Any thread. */
void fp_job_signals_ignore(bool all);

/* Is this signal, which has come, an end for a program that was started with --ignore-term or without? */
bool fp_job_signal_ends(int sig, bool ignore_term);

#endif
