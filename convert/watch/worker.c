/*
 * Processes that convert (worker.h). Called by watch.c.
 *
 * It is a fork of the coordinator, which has one thread and has opened no library of a format: to load those anew takes ten times as long as to convert a small file (25 of 30 ms). What it does, and how it
 * ends, is still its own affair.
 *
 * A process ends with the coordinator (PR_SET_PDEATHSIG), and the lock of its group with the process, which has inherited it: so nobody begins the same conversion while one that lost its
 * coordinator is still about to be killed. Its lists of files are memory files, which it opens by /proc/self/fd: nothing of them is left when it has ended.
 */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "convert/watch/store.h"
#include "convert/watch/tell.h"
#include "convert/watch/worker.h"
#include "fp/auxapp.h"
#include "fp/err.h"
#include "fp/log.h"
#include "fp/memfd.h"

#define FDS (CW_ONLY_FD + 1 - CW_STATUS_FD) /* that a process inherits, beside its standard ones */

#define TOLD     256u            /* lines of logs that are remembered */
#define LOG_HEAD "fp-convert: "

/* A memory file, which nobody has to remove, however this process ends. A descriptor or negative errno. */
static int list_file(const struct cw_list *list)
{
    int fd = fp_memfd_new("fp-convert-files", list->len);

    for (size_t at = 0; fd >= 0 && at < list->len;) {
        ssize_t n = pwrite(fd, list->text + at, list->len - at, (off_t)at);

        if (n < 0 && errno != EINTR) {
            int err = errno;

            close(fd);
            return -err;
        }
        at += n > 0 ? (size_t)n : 0;
    }
    return fd;
}

/* The new process. fds: what becomes CW_STATUS_FD and those behind it; -1: none. */
static void child(const struct cw_argv *l, int (*convert)(int argc, char **argv), const int fds[FDS], pid_t parent)
{
    int null = open("/dev/null", O_RDWR), high[FDS] = {0};

    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != parent)
        _exit(127);
    if (null < 0 || dup2(null, 0) < 0 || dup2(null, 1) < 0 || dup2(null, 2) < 0)
        _exit(127);
    for (int i = 0; i < FDS; i++) /* above what they become, so that none is written over */
        if (fds[i] >= 0 && (high[i] = fcntl(fds[i], F_DUPFD, CW_STATUS_FD + FDS)) < 0)
            _exit(127);
    (void)close_range(CW_STATUS_FD, CW_STATUS_FD + FDS - 1, 0);
    for (int i = 0; i < FDS; i++)
        if (fds[i] >= 0 && dup2(high[i], CW_STATUS_FD + i) < 0)
            _exit(127);
    fp_log_also(CW_STATUS_FD);
    (void)close_range(CW_STATUS_FD + FDS, ~0u, 0);
    exit(convert((int)l->n, (char **)(uintptr_t)l->items));
}

/* only: -1 if there is none. Negative errno: neither is open. */
static int open_lists(const struct cw_argv *l, int *inputs, int *only)
{
    *only = -1;
    *inputs = list_file(&l->inputs);
    if (*inputs < 0)
        return *inputs;
    if (l->only.len && (*only = list_file(&l->only)) < 0) {
        close(*inputs);
        return *only;
    }
    return 0;
}

static int start(struct cw_worker *w, const struct cw_argv *l, int (*convert)(int argc, char **argv), const int fds[FDS])
{
    pid_t parent = getpid();

    w->pid = fork();
    if (w->pid < 0) {
        int err = errno;

        w->pid = 0;
        return -err;
    }
    if (w->pid == 0)
        child(l, convert, fds, parent);
    return 0;
}

int cw_worker_start(struct cw_worker *w, const struct cw_argv *l, int (*convert)(int argc, char **argv), int lock_fd)
{
    int pipe_fd[2], inputs, only, rc = open_lists(l, &inputs, &only);

    if (rc)
        return rc;
    if (pipe2(pipe_fd, O_CLOEXEC) < 0) {
        rc = -errno;
    } else {
        rc = start(w, l, convert, (const int[FDS]){pipe_fd[1], lock_fd, inputs, only});
        close(pipe_fd[1]);
        if (rc)
            close(pipe_fd[0]);
    }
    close(inputs);
    if (only >= 0)
        close(only);
    if (rc)
        return rc;
    (void)fcntl(pipe_fd[0], F_SETFL, O_NONBLOCK);
    w->status_fd = pipe_fd[0];
    w->lock_fd = lock_fd;
    w->done_bytes = w->of_bytes = w->told_ms = 0;
    w->said[0] = w->left_out[0] = w->error[0] = '\0';
    w->notes = 0;
    w->moved_ms = w->moved_bytes = 0;
    w->hangs = false;
    w->bad = false;
    w->line_bytes = 0;
    return 0;
}

static const char *word(const json_t *o, const char *name)
{
    const char *text = json_string_value(json_object_get(o, name));

    return text ? text : "";
}

/* "FILE: dataset D: byte N: TEXT", with the file's name alone: the set says where it is. */
static void note_failure(struct cw_worker *w, const json_t *o)
{
    const char *file = word(o, "file"), *slash = strrchr(file, '/'), *dataset = word(o, "dataset");
    const json_t *offset = json_object_get(o, "offset");
    char byte[40] = "";

    if (offset)
        snprintf(byte, sizeof byte, "byte %lld: ", (long long)json_integer_value(offset));
    file = slash ? slash + 1 : file;
    snprintf(w->said, sizeof w->said, "%s%s%s%s%s%s%s", file, *file ? ": " : "", *dataset ? "dataset " : "", dataset, *dataset ? ": " : "", byte, word(o, "failed"));
    w->bad = !cw_err_passes(-(int)json_integer_value(json_object_get(o, "errno")));
}

/* No line twice: all dumps of a job are alike. And so many of one conversion, which may have a hundred thousand inputs. */
static void tell_note(struct cw_worker *w, const char *text)
{
    static uint64_t told[TOLD];
    static size_t next;
    uint64_t sum = cw_hash(0, text, strlen(text));

    for (size_t i = 0; i < TOLD; i++)
        if (told[i] == sum)
            return;
    if (w->notes++ >= CW_NOTES) {
        if (w->notes == CW_NOTES + 1)
            cw_tell_log(FP_AUX_WARN, "%.600s: its conversion says more of that kind", w->result);
        return;
    }
    told[next++ % TOLD] = sum;
    cw_tell_log(FP_AUX_WARN, "%.600s: %s", w->result, text);
}

/* A line of its log (fp/log.h); nobody else sees that. */
static bool hear_log(struct cw_worker *w, const char *line)
{
    static const char warn[] = LOG_HEAD "WARN: ", error[] = LOG_HEAD "ERROR: ";

    if (strncmp(line, warn, sizeof warn - 1) == 0) {
        tell_note(w, line + sizeof warn - 1);
        return true;
    }
    if (strncmp(line, error, sizeof error - 1) != 0)
        return false;
    snprintf(w->error, sizeof w->error, "%s", line + sizeof error - 1);
    tell_note(w, w->error);
    return true;
}

static void hear_line(struct cw_worker *w, const char *line)
{
    json_t *o;

    if (hear_log(w, line))
        return;
    o = json_loads(line, 0, NULL);
    if (json_object_get(o, "left_out"))
        snprintf(w->left_out, sizeof w->left_out, "%s", word(o, "left_out"));
    else if (json_object_get(o, "failed"))
        note_failure(w, o);
    else if (json_object_get(o, "of")) {
        w->done_bytes = (uint64_t)json_integer_value(json_object_get(o, "done"));
        w->of_bytes = (uint64_t)json_integer_value(json_object_get(o, "of"));
    }
    json_decref(o);
}

void cw_worker_hear(struct cw_worker *w)
{
    ssize_t n;

    while (w->status_fd >= 0 && (n = read(w->status_fd, w->line + w->line_bytes, sizeof w->line - 1 - w->line_bytes)) > 0) {
        char *start = w->line, *end;

        w->line_bytes += (size_t)n;
        w->line[w->line_bytes] = '\0';
        while ((end = strchr(start, '\n'))) {
            *end = '\0';
            hear_line(w, start);
            start = end + 1;
        }
        w->line_bytes -= (size_t)(start - w->line);
        memmove(w->line, start, w->line_bytes);
        if (w->line_bytes == sizeof w->line - 1)
            w->line_bytes = 0;
    }
}

/* Bytes that it has read and written, by all system calls. 0: not known. */
static uint64_t bytes_moved(pid_t pid)
{
    char path[40], text[512];
    unsigned long long in = 0, out = 0;
    FILE *f;
    size_t n;

    snprintf(path, sizeof path, "/proc/%d/io", (int)pid);
    f = fopen(path, "re");
    if (!f)
        return 0;
    n = fread(text, 1, sizeof text - 1, f);
    text[n] = '\0';
    fclose(f);
    return sscanf(text, "rchar: %llu wchar: %llu", &in, &out) == 2 ? in + out : 0;
}

void cw_worker_watch(struct cw_worker *w, uint64_t now_ms)
{
    uint64_t bytes = w->pid > 0 ? bytes_moved(w->pid) : 0;

    if (!w->moved_ms || bytes != w->moved_bytes) {
        w->moved_ms = now_ms;
        w->moved_bytes = bytes;
    } else if (!w->hangs && now_ms - w->moved_ms >= CW_HANG_MS) {
        w->hangs = true;
        cw_worker_kill(w, SIGKILL);
    }
}

bool cw_worker_ended(struct cw_worker *w, enum cw_end *end)
{
    int status;
    bool over = waitpid(w->pid, &status, WNOHANG) == w->pid;

    cw_worker_hear(w); /* whoever is to end waits for nobody to read */
    if (!over)
        return false;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
        *end = w->action.what == CW_PART ? CW_END_PART : CW_END_DONE;
    } else if (WIFEXITED(status) && WEXITSTATUS(status) == 1 && w->said[0]) {
        *end = w->bad ? CW_END_BAD : CW_END_PASSING;
    } else if (WIFEXITED(status) && WEXITSTATUS(status) == 2) {
        snprintf(w->said, sizeof w->said, "fp-convert does not take its options: %s", w->error);
        *end = CW_END_BAD;
    } else if (w->hangs) {
        snprintf(w->said, sizeof w->said, "fp-convert has neither read nor written anything for %u minutes", CW_HANG_MS / 60000u);
        *end = CW_END_CRASH;
    } else if (WIFSIGNALED(status) && WTERMSIG(status) != SIGKILL && WTERMSIG(status) != SIGTERM) {
        snprintf(w->said, sizeof w->said, "fp-convert has crashed (signal %d, %s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
        *end = CW_END_CRASH;
    } else {
        snprintf(w->said, sizeof w->said, "fp-convert was ended (%s %d)", WIFSIGNALED(status) ? "signal" : "exit code", WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
        *end = CW_END_PASSING;
    }
    w->pid = 0;
    return true;
}

void cw_worker_kill(struct cw_worker *w, int sig)
{
    if (w->pid > 0)
        (void)kill(w->pid, sig);
}

void cw_worker_fini(struct cw_worker *w)
{
    if (w->status_fd >= 0)
        close(w->status_fd);
    if (w->lock_fd >= 0)
        close(w->lock_fd);
    free(w->key);
    free(w->node);
    free(w->result);
    *w = (struct cw_worker){.status_fd = -1, .lock_fd = -1};
}
