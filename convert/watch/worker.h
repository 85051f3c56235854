/* One `fp-convert run` or `join`, started by the coordinator. One thread; nothing blocks. */
#ifndef CW_WORKER_H
#define CW_WORKER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "convert/watch/argv.h"
#include "convert/watch/group.h"

struct cw_worker {
    char *key;               /* of the group; NULL: this one is free */
    struct cw_action action; /* part.node: a copy of its own */
    char *node;
    char *result;            /* path in the store */
    bool replaces;           /* one was there before */
    pid_t pid;
    int status_fd, lock_fd;
    uint64_t done_bytes, of_bytes, told_ms;
    char said[1024];         /* why it failed */
    char left_out[320];      /* of what it has read; empty: nothing */
    char error[512];         /* the last one of its own log */
    unsigned notes;          /* lines of its log that were told */
    uint64_t moved_ms, moved_bytes; /* when it has read or written something last, and how much in all */
    bool hangs;              /* it has been killed for that */
    bool bad;                /* what it said will not pass by itself */
    char line[32768];        /* a path of control characters is written with six bytes for each */
    size_t line_bytes;
};

/* What argv.h has made. The lock belongs to the worker from now on, and to its process, so that it holds as long as that lives. 0 or negative errno: then w is as it was. */
int cw_worker_start(struct cw_worker *w, const struct cw_argv *l, int (*convert)(int argc, char **argv), int lock_fd);
/* Reads what it says, and tells of its log what people should know: CW_NOTES lines of one conversion, and none that another has said not long ago. */
#define CW_NOTES 16u
void cw_worker_hear(struct cw_worker *w);
/* Kills it when nothing of it has moved for CW_HANG_MS: a library that goes round in circles over a poisoned file. */
#define CW_HANG_MS 900000u
void cw_worker_watch(struct cw_worker *w, uint64_t now_ms);
/* True: it has ended, and how. The descriptors are closed. */
bool cw_worker_ended(struct cw_worker *w, enum cw_end *end);
void cw_worker_kill(struct cw_worker *w, int sig);
/* Frees what it has; the process has ended. */
void cw_worker_fini(struct cw_worker *w);

#endif
