/*
 * The front of an agent (see node.h), for launchers whose daemons kill what they have started when they lose each other, as mpirun's do.
 *
 * The process that was started does nothing but wait, so that the launcher lasts as long as the agent; the agent is in a session of its own, where a signal to
 * the launcher's process groups does not reach it and its programs. If the front is killed, the agent goes on: it lives by the tree.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fp/err.h"
#include "fp/log.h"
#include "jobscripts/agent/node.h"

pid_t node_front(void)
{
    pid_t front = getpid(), pid = fork();
    int status = 0;

    if (pid < 0) {
        FP_ERROR("fork: %s", fp_strerror(-errno));
        exit(1);
    }
    if (pid == 0) {
        (void)setsid();
        return front;
    }
    close(STDIN_FILENO); /* what comes there is the agent's */
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
}
