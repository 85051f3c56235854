/*
 * The process above the agent of a node (see node.h): waits, and ends what the agent has started if that is killed.
 *
 * It is what the batch system has started, and holds nothing that could make it fail: so a kernel that runs out of memory, or a user who kills the agent, does
 * not leave a dead mount and a full SSD to the jobs that come next. Signals for the agent come to it, of all processes of a step alone, and are passed on. When
 * it is killed itself, the agent ends (PR_SET_PDEATHSIG); when both are, whoever comes next removes what they had (left.h).
 */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fp/err.h"
#include "fp/jobsignals.h"
#include "fp/log.h"
#include "jobscripts/agent/left.h"
#include "jobscripts/agent/node.h"

static const int passed[] = {SIGTERM, SIGINT, SIGHUP};
static volatile sig_atomic_t agent;

static void pass_on(int sig)
{
    if (agent > 0)
        (void)kill((pid_t)agent, sig);
}

/* It is a zombie until it is no more passed anything, so that its number is its own. */
static int wait_agent(void)
{
    siginfo_t info;
    pid_t pid = (pid_t)agent;
    int status = 0;

    while (waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT) < 0 && errno == EINTR)
        ;
    agent = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    return status;
}

static int watch(const struct node *n)
{
    int status = wait_agent();

    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return 0;
    if (WIFSIGNALED(status))
        FP_ERROR("%s: the agent of this node was killed by signal %d: what it had started is ended", n->plan.nodes[n->rank], WTERMSIG(status));
    job_left_clean(n->dir);
    return -EIO;
}

int node_watch(const struct node *n, bool *is_agent)
{
    struct sigaction sa = {.sa_handler = pass_on};
    pid_t above = getpid(), pid;
    sigset_t held, before;

    sigemptyset(&held);
    for (size_t i = 0; i < sizeof passed / sizeof passed[0]; i++)
        sigaddset(&held, passed[i]);
    sigprocmask(SIG_BLOCK, &held, &before);
    pid = fork();
    *is_agent = pid == 0;
    if (pid < 0) {
        int rc = -errno;

        FP_ERROR("%s: no process can be made: %s", n->plan.nodes[n->rank], fp_strerror(rc));
        return rc;
    }
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, FP_SIGNAL_END);
        if (getppid() != above)
            (void)kill(getpid(), FP_SIGNAL_END);
        sigprocmask(SIG_SETMASK, &before, NULL);
        return 0;
    }
    agent = pid;
    (void)prctl(PR_SET_NAME, "fp-job-watch");
    for (size_t i = 0; i < sizeof passed / sizeof passed[0]; i++)
        sigaction(passed[i], &sa, NULL);
    sigprocmask(SIG_SETMASK, &before, NULL);
    return watch(n);
}
