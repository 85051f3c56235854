/*
 * What the kernel was told of names, by the thread that asked.
 *
 * On one node the kernel holds the lock of a directory while it looks names up and then changes them. Other nodes do not know that lock, so
 * what was found may be another thing when the change is asked for. The manager decides by the names as they are then, and that is right for
 * all but what the kernel does by itself with what it has found. For that it must be known what it has found: the last two names that each
 * thread has looked up (rename has two), which it does right before it asks. Only where names are kept for no time (ops.h): else the kernel
 * need not have asked.
 *
 * A thread that is not known (0: of another PID namespace), or was pushed out by very many others, has found nothing: then what is described
 * in CONSISTENCY.md (M7, M8) may go wrong as if this table were not there.
 *
 * One table per process; all functions: any thread, never block for long.
 */
#ifndef CL_WALK_H
#define CL_WALK_H

#include <stdbool.h>
#include <stdint.h>

/* This thread will be told that the name is of this inode (0: of none). True: another name, which it looked up right before, was of the same inode. */
bool cl_walk_told(uint32_t tid, uint64_t parent, const char *name, uint64_t ino, bool dir);
/* What the thread was told of this name, if it is one of the last two: 0 for none. */
uint64_t cl_walk_found(uint32_t tid, uint64_t parent, const char *name, bool *dir);
/* Has the thread found this inode by a name a moment ago? Then that is forgotten: what says "look again" is said once. */
bool cl_walk_came_to(uint32_t tid, uint64_t ino);
/* It has gone on to do something. */
void cl_walk_forget(uint32_t tid);
/* An open of this thread that came at came_ms (its own, later than what it was told before) is to look again: true, and that is remembered; false: it has been told
 * so already, and is not to be twice. Threads that are not known are each told: the kernel itself does not look more than twice. */
bool cl_walk_again(uint32_t tid, uint32_t came_ms, uint32_t now_ms);
/* Its open is over, or the name is not there: its next time is a first one again. */
void cl_walk_ends(uint32_t tid);

#endif
