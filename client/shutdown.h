/*
 * The end of a mount by signal or by the manager: write out, unmount, and be quick about it when asked twice.
 */
#ifndef CL_SHUTDOWN_H
#define CL_SHUTDOWN_H

#include <stdbool.h>
#include <stdint.h>

struct cl_mount;

/* Main thread, before any other is started: SIGTERM, SIGINT and SIGHUP go to the thread below from here on.
 */
void cl_shutdown_block_signals(void);
/* Start the thread that waits for them. Negative errno. */
int cl_shutdown_start(struct cl_mount *m);
/* As if SIGTERM had come. Any thread; never blocks. */
void cl_shutdown_request(void);

/* Has anybody asked for the end? Else the loop has ended because the mount is gone. Any thread. */
bool cl_shutdown_asked(void);
/* Main thread, when the FUSE loop has ended. */
void cl_shutdown_loop_ended(void);
/* Was the end asked for a second time, or has writing out failed once? Then there is no point in waiting long. */
bool cl_shutdown_hurried(void);
/* Did the loop have to be told to end, since files were open? Then the file system is still there. When the loop has ended. */
bool cl_shutdown_forced(void);
/* Has the thread taken the mount away? Waits until it is through with that. */
bool cl_shutdown_unmounted(void);
/* Main thread: all is written out or told to be lost, and what the mount is made of is freed from here on: the thread looks at none of it any more. */
void cl_shutdown_parts_go(void);

#endif
