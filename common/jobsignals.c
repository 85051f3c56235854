/*
 * Signals to programs of a batch job (see fp/jobsignals.h). Called by fp-manager, fp-benefactor and fp-mount with --ignore-term, and by the agent that starts them.
 *
 * Slurm's --signal=USR1@300 is how users ask for a last checkpoint, and the default of most such signals is to end who gets them: the store would be gone when that
 * checkpoint is written. They are ignored and not blocked, since what is blocked is so in every program that is started, and for good. A signal for the end that
 * nobody else sends is simpler than a look at who has sent it, which libuv does not tell.
 */
#include "fp/jobsignals.h"

void fp_job_signals_ignore(bool all)
{
    static const int marks[] = {SIGUSR1, SIGUSR2, SIGALRM, SIGQUIT}, ends[] = {SIGTERM, SIGINT, SIGHUP};

    for (size_t i = 0; i < sizeof marks / sizeof marks[0]; i++)
        (void)signal(marks[i], SIG_IGN);
    for (size_t i = 0; all && i < sizeof ends / sizeof ends[0]; i++)
        (void)signal(ends[i], SIG_IGN);
}

bool fp_job_signal_ends(int sig, bool ignore_term)
{
    return !ignore_term || sig == FP_SIGNAL_END;
}
