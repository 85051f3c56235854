/*
 * Directories that this mount has made while it was the only one: which names are certainly not in them.
 *
 * Before each create the kernel looks the name up. In a directory that was made here a moment ago, by the
 * only mount of the store, the answer is known without the manager: no name is in it but those that this
 * mount has asked to be put there. That is half of the messages of a create, and the case of every checkpoint
 * directory.
 *
 * The sets only grow: a name that failed to be made, or was removed again, is asked of the manager. So
 * "absent" is certain, and everything else is only "not known". They are forgotten the moment another mount
 * may exist (MSG_ALONE, a lost connection).
 */
#ifndef CL_NEWDIRS_H
#define CL_NEWDIRS_H

#include <stdbool.h>
#include <stdint.h>

/* All: any thread; never block for long. One table per process, bounded (some MiB); what does not fit is
 * forgotten. */
void cl_newdirs_made(uint64_t dir);                   /* it is empty, and nobody knows of it yet */
void cl_newdirs_name(uint64_t dir, const char *name); /* before a request is sent that may put name there */
bool cl_newdirs_absent(uint64_t dir, const char *name);
void cl_newdirs_clear(void);

#endif
