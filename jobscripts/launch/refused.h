/*
 * Whether what srun has said means "not now".
 */
#ifndef JOB_REFUSED_H
#define JOB_REFUSED_H

#include <stdbool.h>

/* text: what srun has written, by lines. True: the controller has refused a step for a reason that passes by itself, and another srun may get it. */
bool job_refused_for_now(const char *text);

#endif
