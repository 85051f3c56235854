/*
 * A program of the store, run by the agent of a node: started, heard of, started again when it crashes, ended.
 *
 * All functions: the loop's thread. None blocks.
 */
#ifndef JOB_SERVICE_H
#define JOB_SERVICE_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#define JOB_SERVICE_ARGS 64u

struct job_service;

struct job_service_calls {
    void (*ready)(struct job_service *s, const char *line, void *arg); /* each time that it has been started */
    /* It has ended, and why has a line about that. After this it may be started again, or freed. code: 0, of exit, or 0x100 + signal */
    void (*ended)(struct job_service *s, int code, const char *why, void *arg);
};

struct job_service {
    /* by the caller */
    uv_loop_t *loop;
    const char *program;      /* beside ours */
    char log[PATH_MAX];       /* its output is appended */
    char *argv[JOB_SERVICE_ARGS]; /* without argv[0]; NULL at the end; borrowed */
    uint64_t term_ms;         /* from FP_SIGNAL_END to what comes next */
    bool hurry;               /* SIGKILL after a second at most */
    bool twice;               /* that is a second FP_SIGNAL_END, and SIGKILL after it: fp-mount, which then says what is lost */
    const struct job_service_calls *calls;
    void *arg;
    /* its own */
    bool running, is_ready, told;
    unsigned step, starts;
    uint64_t step_at_ms;
    long log_from;
    uv_process_t process;
    uv_pipe_t pipe;
    unsigned open_handles;    /* that the loop has not let go of */
    size_t line_len;
    char line[512];
    int code;
};

/* 0, or negative errno and it does not run. */
int job_service_start(struct job_service *s);
/* FP_SIGNAL_END, unless it was told before. */
void job_service_stop(struct job_service *s, uint64_t now_ms);
/* At least each tenth of a second: does what is due to one that was told to stop. */
void job_service_tick(struct job_service *s, uint64_t now_ms);

#endif
