/* How the program ended that had a file open: closed it, ended, or was killed. */
#ifndef CL_ENDING_H
#define CL_ENDING_H

#include <stdbool.h>
#include <stdint.h>

/* A thread of a program has opened a file for writing, or writes with a descriptor for the first time: its process is looked at when the descriptor is closed. 0: it is not known (another
 * PID namespace). Any thread; some microseconds the first time, and a system call later. */
void cl_ending_seen(int32_t tid);
enum cl_ending {
    CL_ENDING_NONE,   /* of another process, which has inherited the descriptor: as each program that is started does */
    CL_ENDING_CLOSES, /* closes it, or ends by itself */
    CL_ENDING_KILLED, /* ends by a signal */
};

/* A descriptor is being closed on behalf of the thread closer; who opened it, or wrote with it last, is user, or 0. What does the process of user do? What can't be found out is a close, and
 * none if it is not known who that was. Any thread. */
enum cl_ending cl_ending_of(int32_t closer, int32_t user);

#endif
