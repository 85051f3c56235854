/* Telling whoever started us that we are ready: one line on the descriptor given by --ready-fd; systemd, by the socket that NOTIFY_SOCKET names. */
#ifndef FP_READYFD_H
#define FP_READYFD_H

/* Writes "text\n" (text = "addr:port", or the mountpoint) to fd and closes it; fd < 0: systemd alone is told, if it asked.
 * Main thread, once. Blocks until the pipe takes it. 0, -EBADF, or the errno of write. */
int fp_ready_write(int fd, const char *text);

/* Marks fd close-on-exec and checks that it is open for writing: right after option parsing, before
 * anything else can be given the same number. 0 or -EBADF. */
int fp_ready_check(int fd);

#endif
