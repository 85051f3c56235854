/*
 * Folding: windows of files are stored anew as one chunk, where older chunks are kept for little of them, or the window is of very many slices.
 */
#ifndef CL_DATA_FOLD_H
#define CL_DATA_FOLD_H

#include <stdbool.h>
#include <stdint.h>

#include "fp.pb-c.h"

struct cl_data;
struct cl_mount;
struct cl_file;

int cl_fold_new(struct cl_data *d);
int cl_fold_start(struct cl_mount *m);
/* `stopping` is set, and store threads run. */
void cl_fold_stop(struct cl_data *d);
void cl_fold_free(struct cl_data *d);

/* Does this mount fold, so that the manager is to say what is worth it? Any thread, any lock. */
bool cl_fold_wants_hints(const struct cl_data *d);
/* What the manager says of windows that this mount has written to. Any thread, inode->lock held. */
void cl_fold_hints(const struct cl_file *f, const Fp__CommitReply *r);
/* Space is short: nothing is waited for but space. Any thread, any lock. */
void cl_fold_hurry(struct cl_data *d);
/* The same, and wait until something was folded (true), there is nothing to fold, or wait_ms are over. Without lock. */
bool cl_fold_now(struct cl_data *d, uint32_t wait_ms);
/* What must stay free for the next fold; 0: there is none to come. Any thread, any lock. */
uint32_t cl_fold_spare_bytes(struct cl_data *d);

#endif
