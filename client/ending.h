/* How the program ended that had a file open: closed it, ended, or was killed. */
#ifndef CL_ENDING_H
#define CL_ENDING_H

#include <stdbool.h>
#include <stdint.h>

/* A thread of a program has opened a file for writing, or writes with a descriptor for the first time: its process is looked at when the descriptor is closed. 0: it is not known (another
 * PID namespace). Any thread; some microseconds the first time, and a system call later. */
void cl_ending_seen(int32_t tid);
/* A descriptor is being closed on behalf of the thread closer; who used it last is user, or 0. Was that process killed by a signal? False if that can't be found out. Any thread. */
bool cl_ending_killed(int32_t closer, int32_t user);

#endif
