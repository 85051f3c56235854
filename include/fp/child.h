/*
 * A program of ours, started by another with a socket and a page of shared memory, which ends when its parent does.
 *
 * All functions: the thread that starts it, which must live as long as the child shall (PR_SET_PDEATHSIG goes by threads). None waits.
 */
#ifndef FP_CHILD_H
#define FP_CHILD_H

#include <stdbool.h>
#include <stddef.h>

struct fp_child;

struct fp_child_fd {
    int fd, at;            /* fd is borrowed; at: FP_CHILD_FD_SOCKET + 1 .. FP_CHILD_FD_MAX, and not the page's */
};

struct fp_child_opts {
    const char *path;      /* of the program */
    const char *name;      /* argv[0] */
    size_t page_bytes;     /* of zeros, shared; the child cannot change its size */
    int nice;              /* added to ours */
    int page_at;           /* 0: FP_CHILD_FD_PAGE */
    const struct fp_child_fd *more; /* other descriptors that it gets */
    unsigned nmore;
};

#define FP_CHILD_FD_SOCKET 3 /* in the child: SOCK_SEQPACKET */
#define FP_CHILD_FD_PAGE 4   /* memory file of page_bytes */
#define FP_CHILD_FD_MAX 7

/*
 * 0 or negative errno. That the program could not be executed shows as its end: fp_child_gone says why. Its standard input is /dev/null, output
 * and error are ours; of the environment it gets neither FP_KEY nor our other options, only FP_FAULTS and FP_LOG_LEVEL.
 */
int fp_child_start(const struct fp_child_opts *o, struct fp_child **out);
/* The child's other end: non-blocking for us, close-on-exec, the child's until fp_child_free. End of file there when it has ended. */
int fp_child_socket(const struct fp_child *c);
void *fp_child_page(const struct fp_child *c);
int fp_child_pid(const struct fp_child *c);
/* SIGKILL. A thread of it that hangs in a file system keeps the process until that answers. */
void fp_child_kill(struct fp_child *c);
/* Has it ended? *status (NULL is fine): 0, exit code, 0x100 + signal, or negative errno when it could not be executed. Goes on saying so. */
bool fp_child_gone(struct fp_child *c, int *status);
/* Closes the socket and unmaps the page; kills it if it has not ended, and leaves it. NULL is fine. */
void fp_child_free(struct fp_child *c);

#endif
