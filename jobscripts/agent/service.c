/*
 * A program of the store under an agent (see service.h).
 *
 * By uv_spawn, so that its end is an event of the agent's loop. It stays in the agent's process group and control group: whatever ends the agents, Slurm's
 * SIGKILL of the step at the end, ends it too. Its end of a pipe, which it gets as --ready-fd, tells when it is ready; its log, why it has ended.
 */
#include "jobscripts/agent/service.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fp/beside.h"
#include "fp/jobsignals.h"
#include "fp/logtail.h"

#define AFTER_SECOND_MS 5000u /* fp-mount needs 3 s at most */
#define AFTER_KILL_MS   5000u
#define HURRY_MS        1000u

extern char **environ;

static void tell_end(struct job_service *s)
{
    char why[512], last[400];

    s->running = s->is_ready = false;
    if (fp_log_tail(s->log, s->log_from, FP_LOG_ERROR_MARK, "", last, sizeof last))
        snprintf(why, sizeof why, "%s: %s", s->program, last);
    else if (s->code & 0x100)
        snprintf(why, sizeof why, "%s was ended by signal %d", s->program, s->code & 0xff);
    else
        snprintf(why, sizeof why, "%s ended with exit code %d", s->program, s->code);
    s->calls->ended(s, s->code, why, s->arg);
}

static void on_closed(uv_handle_t *h)
{
    struct job_service *s = h->data;

    if (--s->open_handles == 0)
        tell_end(s);
}

static void close_pipe(struct job_service *s)
{
    if (!uv_is_closing((uv_handle_t *)&s->pipe))
        uv_close((uv_handle_t *)&s->pipe, on_closed);
}

static void on_exit_of(uv_process_t *p, int64_t status, int sig)
{
    struct job_service *s = p->data;

    s->code = sig ? 0x100 + sig : (int)status & 0xff;
    uv_close((uv_handle_t *)p, on_closed);
    close_pipe(s);
}

static void room(uv_handle_t *h, size_t suggested, uv_buf_t *buf)
{
    struct job_service *s = h->data;

    (void)suggested;
    *buf = uv_buf_init(s->line + s->line_len, (unsigned)(sizeof s->line - 1 - s->line_len));
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    struct job_service *s = stream->data;
    char *end;

    (void)buf;
    if (n < 0) {
        uv_read_stop(stream);
        return;
    }
    s->line_len += (size_t)n;
    s->line[s->line_len] = '\0';
    end = strchr(s->line, '\n');
    if (!end || s->is_ready)
        return;
    *end = '\0';
    s->is_ready = true;
    uv_read_stop(stream);
    s->calls->ready(s, s->line, s->arg);
}

static int spawn(struct job_service *s, int log)
{
    static const char *tails[2];
    char path[PATH_MAX], ready[] = "--ready-fd=3";
    char *argv[JOB_SERVICE_ARGS + 3];
    size_t n = 0;
    uv_stdio_container_t io[4] = {
        {.flags = UV_IGNORE},
        {.flags = UV_INHERIT_FD, .data.fd = log},
        {.flags = UV_INHERIT_FD, .data.fd = log},
        {.flags = UV_CREATE_PIPE | UV_READABLE_PIPE | UV_WRITABLE_PIPE, .data.stream = (uv_stream_t *)&s->pipe},
    };
    uv_process_options_t o = {.exit_cb = on_exit_of, .file = path, .args = argv, .stdio = io, .stdio_count = 4};

    tails[0] = s->program;
    fp_beside(path, sizeof path, tails);
    argv[n++] = (char *)(uintptr_t)s->program;
    for (char **a = s->argv; *a && n < JOB_SERVICE_ARGS; a++)
        argv[n++] = *a;
    argv[n++] = ready;
    argv[n] = NULL;
    return uv_spawn(s->loop, &s->process, &o);
}

int job_service_start(struct job_service *s)
{
    struct stat st;
    int log = open(s->log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600), rc;

    if (log < 0)
        return -errno;
    s->log_from = fstat(log, &st) == 0 ? (long)st.st_size : 0;
    s->process.data = s->pipe.data = s;
    s->line_len = 0;
    s->is_ready = s->told = false;
    s->step = 0;
    uv_pipe_init(s->loop, &s->pipe, 0);
    rc = spawn(s, log);
    close(log);
    s->open_handles = 2;
    if (rc) { /* both handles must be closed all the same; it is told as an end */
        s->code = 127;
        uv_close((uv_handle_t *)&s->process, on_closed);
        close_pipe(s);
        s->running = true;
        return rc;
    }
    s->running = true;
    s->starts++;
    s->pipe.data = s;
    (void)uv_read_start((uv_stream_t *)&s->pipe, room, on_read);
    return 0;
}

void job_service_stop(struct job_service *s, uint64_t now_ms)
{
    if (!s->running || s->told)
        return;
    s->told = true;
    s->step = 1;
    s->step_at_ms = now_ms + (s->hurry ? HURRY_MS : s->term_ms);
    (void)uv_process_kill(&s->process, FP_SIGNAL_END);
}

void job_service_tick(struct job_service *s, uint64_t now_ms)
{
    if (s->hurry && s->step_at_ms > now_ms + HURRY_MS) /* it was told to end before that was known */
        s->step_at_ms = now_ms + HURRY_MS;
    if (!s->running || !s->told || now_ms < s->step_at_ms)
        return;
    if (s->twice && s->step == 1 && !s->hurry) {
        (void)uv_process_kill(&s->process, FP_SIGNAL_END);
        s->step_at_ms = now_ms + AFTER_SECOND_MS;
    } else {
        (void)uv_process_kill(&s->process, SIGKILL);
        s->step_at_ms = now_ms + AFTER_KILL_MS;
    }
    s->step++;
}
