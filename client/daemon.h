/*
 * Into the background: the parent waits until the mount can be used, and ends with the child's exit code.
 *
 * Main thread, before any other thread. Without cl_daemon_fork (foreground) cl_daemon_ready does what is left
 * of it.
 */
#ifndef CL_DAEMON_H
#define CL_DAEMON_H

#include <stdbool.h>

/*
 * Fork. Returns 0 in the child; in the parent it does not return: it waits for cl_daemon_ready (exit 0) or
 * the end of the child (its exit code, or 1 if a signal killed it). Error lines of the child go to the stderr
 * that it shares. Negative errno: no fork.
 */
int cl_daemon_fork(void);

/* About to mount: until here the child is killed when the parent is, by Ctrl-C for one; from here on it would leave a stale
 * mount. */
void cl_daemon_mounting(void);

/* Tell the parent, and let go of the terminal. log_file: where stderr goes from here on; NULL: nowhere. Once,
 * any thread. False: the parent has been killed, and nobody wants this mount any more. */
bool cl_daemon_ready(const char *log_file);

/* stderr into this file, appending; errors and warnings go to the old one too, until cl_daemon_ready. 0 or negative
 * errno after a line. */
int cl_daemon_log_to(const char *log_file);

#endif
