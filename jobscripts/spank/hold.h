/*
 * What holds the processes that a prolog has started for a user, outside of what Slurm holds the job's processes with, so that the epilog ends all of them.
 *
 * A control group of version 2, which nobody but root can leave; where there is none, a process of root's that inherits all orphans among them. Functions are
 * for root, and log what they can't do.
 */
#ifndef JOB_SPANK_HOLD_H
#define JOB_SPANK_HOLD_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct spank_hold {
    char group[PATH_MAX];  /* the control group; "": a reaper stands in for it */
    char memory[PATH_MAX]; /* where memory is limited: the same, or a group of version 1; "": nowhere */
    pid_t reaper;          /* 0: none */
    unsigned long long ticks; /* since when it runs */
};

/* hold.c */
/* Makes the groups of this job on this node. 0, or negative errno: then nothing of it is there. */
int spank_hold_make(uint32_t job, struct spank_hold *h);
/* Notes it for the functions below. The same. */
int spank_hold_note(uint32_t job, const struct spank_hold *h);
/* The calling process, and what it will start, is held from now on. 0 or negative errno */
int spank_hold_enter(const struct spank_hold *h);
/* No more memory than this for all of them together. Nothing, if the job has no hold. */
void spank_hold_limit(uint32_t job, uint64_t bytes);
/* SIGKILL for all, whatever they have become; then the hold is gone. False: some are still there after limit_ms, and so is the hold. */
bool spank_hold_end(uint32_t job, uint64_t limit_ms);
/* The same for one that may have no note. */
bool spank_hold_drop(uint32_t job, const struct spank_hold *h, uint64_t limit_ms);

/* reaper.c */
/* Starts a process that inherits what loses its parent among the processes below it, and ends when there are none. It starts what is given, below it, when *go has
 * got a byte, and answers there with a byte, the exit code; if *go is closed before, it ends. Its number, or negative errno. */
pid_t spank_reaper_start(void (*child)(void *), void *arg, int *go);
/* Closes all files from this number on, in a child. */
void spank_close_from(int first);
/* It ends all that is below it, and itself. */
void spank_reaper_end(pid_t reaper);
/* 0: there is no such process. */
unsigned long long spank_process_ticks(pid_t pid);

#endif
