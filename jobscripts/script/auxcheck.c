/*
 * Asks the plugin of an aux-app (see auxcheck.h): the same functions that fp-auxhost calls on the node look at the same words.
 *
 * In a forked process, since a plugin is a user's own code, whose constructors run when it is loaded: one that crashes on the login node would else take
 * with it what fp-job has to say about the rest of the script. dlopen in a thread with a time limit was rejected: a thread that hangs can't be ended.
 */
#include "jobscripts/script/auxcheck.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "auxapps/host/load.h"
#include "fp/clock.h"
#include "fp/err.h"
#include "fp/limited.h"

struct told {
    int rc;
    struct job_auxanswer answer;
    char why[JOB_AUX_WHY_BYTES];
};
_Static_assert(JOB_AUX_WHY_BYTES >= AUX_WHY_BYTES, "a line of the host does not fit");

static void look(const char *declaration, const char *plugin_dir, struct told *t)
{
    struct aux_plugin *p;
    struct aux_options *o;
    struct aux_words words;
    char word[AUX_PATH_BYTES];

    t->rc = aux_declared_word(declaration, word, sizeof word);
    if (t->rc) {
        snprintf(t->why, sizeof t->why, "the name of the aux-app is longer than %d bytes", AUX_PATH_BYTES - 1);
        return;
    }
    t->rc = aux_plugin_load(word, plugin_dir, &p, t->why);
    if (!t->rc)
        t->rc = aux_options_parse(p, declaration, &words, &o, t->why);
    if (t->rc)
        return;
    snprintf(t->answer.name, sizeof t->answer.name, "%s", p->app.name);
    t->answer.flags = p->app.flags;
    t->answer.sees_chunks = p->app.chunk_out || p->app.write;
    t->answer.cores_min = words.cores_min;
    t->answer.nodes = words.nodes;
    t->answer.required = words.required || (p->app.flags & FP_AUX_REQUIRED);
    t->answer.by_path = strchr(word, '/') != NULL;
}

/* What a plugin prints is not for the list of mistakes. */
static void quiet(void)
{
    int fd = open("/dev/null", O_RDWR | O_CLOEXEC);

    if (fd >= 0)
        for (int i = 0; i < 3; i++)
            (void)dup2(fd, i);
}

/* A handler of the program that asks would go on in this process where that one was. */
static void own_signals(void)
{
    for (int sig = 1; sig < NSIG; sig++)
        (void)signal(sig, SIG_DFL);
}

static _Noreturn void child(int out, const char *declaration, const char *plugin_dir)
{
    static struct told t;

    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    own_signals();
    quiet();
    look(declaration, plugin_dir, &t);
    (void)!write(out, &t, sizeof t); /* less than PIPE_BUF: in one piece or not at all */
    _exit(0);
}
_Static_assert(sizeof(struct told) <= 4096, "an answer is not one piece in a pipe");

/* 1: it came; 0: the process ended without one; -ETIMEDOUT; -EAGAIN: not until then. */
static int hear(const struct job_auxask *a, uint64_t wait_ms, struct told *t)
{
    uint64_t now = fp_now_ms(), until = now + wait_ms < a->until_ms ? now + wait_ms : a->until_ms;
    struct pollfd p = {.fd = a->fd, .events = POLLIN};

    if (poll(&p, 1, now < until ? (int)(until - now) : 0) > 0)
        return read(a->fd, t, sizeof *t) == sizeof *t;
    return fp_now_ms() >= a->until_ms ? -ETIMEDOUT : -EAGAIN;
}

/* fds[0] is what it tells. */
static int launch(int fds[2], const char *declaration, const char *plugin_dir, pid_t *pid)
{
    int rc;

    if (pipe2(fds, O_CLOEXEC) < 0)
        return -errno;
    *pid = fork();
    rc = *pid < 0 ? -errno : 0;
    if (*pid == 0)
        child(fds[1], declaration, plugin_dir);
    close(fds[1]);
    if (rc)
        close(fds[0]);
    return rc;
}

int job_auxask_begin(const char *declaration, const char *plugin_dir, uint64_t limit_ms, struct job_auxask *out, char why[JOB_AUX_WHY_BYTES])
{
    int fds[2], rc;

    *out = (struct job_auxask){.pid = -1, .fd = -1, .limit_ms = limit_ms, .until_ms = fp_now_ms() + limit_ms};
    rc = launch(fds, declaration, plugin_dir, &out->pid);
    if (rc)
        snprintf(why, JOB_AUX_WHY_BYTES, "no process to load it in: %s", fp_strerror(rc));
    else
        out->fd = fds[0];
    return rc;
}

bool job_auxask_hear(struct job_auxask *a, uint64_t wait_ms, int *rc, struct job_auxanswer *out, char why[JOB_AUX_WHY_BYTES])
{
    static struct told t;
    int status = 0, heard;

    memset(&t, 0, sizeof t);
    heard = hear(a, wait_ms, &t);
    if (heard == -EAGAIN)
        return false;
    close(a->fd);
    if (heard < 0)
        kill(a->pid, SIGKILL);
    (void)fp_reap(a->pid, &status);
    if (heard == 1) {
        *out = t.answer;
        memcpy(why, t.why, JOB_AUX_WHY_BYTES);
        *rc = t.rc;
        return true;
    }
    if (heard < 0)
        snprintf(why, JOB_AUX_WHY_BYTES, "its plugin was not loaded within %llu ms: it hangs", (unsigned long long)a->limit_ms);
    else if (WIFSIGNALED(status))
        snprintf(why, JOB_AUX_WHY_BYTES, "its plugin crashed when it was loaded: %s", strsignal(WTERMSIG(status)));
    else
        snprintf(why, JOB_AUX_WHY_BYTES, "its plugin ended the process that loaded it, with exit code %d", WEXITSTATUS(status));
    *rc = heard < 0 ? heard : -ELIBBAD;
    return true;
}

int job_auxcheck(const char *declaration, const char *plugin_dir, uint64_t limit_ms, struct job_auxanswer *out, char why[JOB_AUX_WHY_BYTES])
{
    struct job_auxask a;
    int rc = job_auxask_begin(declaration, plugin_dir, limit_ms, &a, why);

    if (rc)
        return rc;
    while (!job_auxask_hear(&a, limit_ms, &rc, out, why))
        ; /* poll was interrupted */
    return rc;
}

bool job_aux_runs_on(const struct job_auxanswer *a, uint32_t rank, uint32_t nnodes)
{
    return !a->nodes || a->nodes >= nnodes || rank >= nnodes - a->nodes;
}

const char *job_aux_partial_why(const struct job_auxanswer *a, uint32_t nnodes)
{
    if (!a->nodes || a->nodes >= nnodes)
        return NULL;
    if (a->required)
        return "it is required, so no node may store anything without it: leave nodes= out";
    if ((a->flags & FP_AUX_CODES) && a->by_path)
        return "it changes data, which the other nodes can read if they find its plugin by its name: name it without a slash, from --auxapp-dir, or leave nodes= out";
    return NULL;
}
