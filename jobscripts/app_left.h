/* What the application of fp-job run leaves behind when it ends: processes that a shell has started, and not waited for. One thread. */
#ifndef JOB_APP_LEFT_H
#define JOB_APP_LEFT_H

#include <stdbool.h>
#include <stddef.h>

/* From now on processes whose parent is gone become this one's children. Before the application is started. */
void job_app_left_begin(void);
/* How many are left, some hundreds at most, and the name of one. Takes those away that have ended. */
size_t job_app_left(char name[32]);
/* Those that are srun, or all others, get this signal. */
void job_app_left_signal(int sig, bool sruns);

#endif
