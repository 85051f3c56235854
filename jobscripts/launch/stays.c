/*
 * Starting a program that stays behind (see stays.h): srun, or what else keeps the agents. Called by launch.c around uv_spawn.
 *
 * Descriptors that we have been given are not closed but marked, and only for that moment: the application, which fp-job run starts later, is to have them.
 */
#include "jobscripts/launch/stays.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern char **environ;

static void mark(struct job_stays *s, int fd)
{
    int flags = fcntl(fd, F_GETFD);

    if (flags < 0 || (flags & FD_CLOEXEC) || s->nfds == JOB_STAYS_FDS)
        return;
    if (fcntl(fd, F_SETFD, flags | FD_CLOEXEC) == 0)
        s->fd[s->nfds++] = fd;
}

void job_stays_begin(struct job_stays *s)
{
    size_t n = 0;
    DIR *d;

    memset(s, 0, sizeof *s);
    while (environ && environ[n])
        n++;
    s->copy = calloc(n + 1, sizeof *s->copy);
    if (!s->copy)
        abort();
    if (n)
        memcpy(s->copy, environ, n * sizeof *environ);
    s->environment = environ;
    environ = s->copy;
    d = opendir("/proc/self/fd");
    for (struct dirent *e; d && (e = readdir(d));) {
        int fd = e->d_name[0] == '.' ? -1 : atoi(e->d_name);

        if (fd > STDERR_FILENO)
            mark(s, fd);
    }
    if (d)
        closedir(d);
}

void job_stays_end(struct job_stays *s)
{
    for (size_t i = 0; i < s->nfds; i++) {
        int flags = fcntl(s->fd[i], F_GETFD);

        if (flags >= 0)
            (void)fcntl(s->fd[i], F_SETFD, flags & ~FD_CLOEXEC);
    }
    if (environ == s->copy) /* else setenv has made one of its own */
        environ = s->environment;
    free(s->copy);
    memset(s, 0, sizeof *s);
}
