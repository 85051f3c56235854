/* Processes that are not our children, or whose number may be another's by now. Any thread. */
#ifndef FP_PROCS_H
#define FP_PROCS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* When it was started, in ticks since the boot: pid and this together name a process. 0: there is none, or it is a zombie of which no thread is left. */
uint64_t fp_proc_ticks(pid_t pid);
/* Is it still the one that was started then? Never of 0 ticks, nor of a pid below 2. */
bool fp_proc_runs(pid_t pid, uint64_t ticks);
/* Blocks until it is gone: true; false: it was not within limit_ms. */
bool fp_proc_wait_gone(pid_t pid, uint64_t ticks, uint64_t limit_ms);

/* It was killed, or its first thread has ended, and it is not gone yet: it serves nobody, but what it has open (a mount) may not be closed. */
bool fp_proc_ending(pid_t pid);

/* Who has started it, or has inherited it; 0: it is gone, or out of our sight. */
pid_t fp_proc_parent(pid_t pid);

/* Numbers of its children, zombies too: the first `max` of them into out. Returns how many those are; looks at all processes of the machine. */
size_t fp_proc_children(pid_t parent, pid_t *out, size_t max);

#endif
