/*
 * Signals to programs of a batch job (see fp/jobsignals.h). Called by fp-manager, fp-benefactor and fp-mount with --ignore-term, and by the agent that starts them.
 *
 * Slurm's --signal=USR1@300 is how users ask for a last checkpoint, and the default of most such signals is to end who gets them: the store would be gone when that
 * checkpoint is written. They are ignored and not blocked, since what is blocked is so in every program that is started, and for good. A signal for the end that
 * nobody else sends is simpler than a look at who has sent it, which libuv does not tell.
 */
#include "fp/jobsignals.h"

bool fp_job_signal_is_mark(int sig)
{
    switch (sig) {
    case SIGUSR1:
    case SIGUSR2:
    case SIGALRM:
    case SIGQUIT:
    case SIGXCPU:
        return true;
    default:
        return sig >= SIGRTMIN && sig <= SIGRTMAX;
    }
}

bool fp_job_signal_asks_end(int sig)
{
    return sig == SIGTERM || sig == SIGINT || sig == SIGHUP;
}

void fp_job_signals_ignore(bool all)
{
    for (int sig = 1; sig < NSIG; sig++)
        if (fp_job_signal_is_mark(sig) || (all && fp_job_signal_asks_end(sig)))
            (void)signal(sig, SIG_IGN);
}

bool fp_job_signal_ends(int sig, bool ignore_term)
{
    return !ignore_term || sig == FP_SIGNAL_END;
}
