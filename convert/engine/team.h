/* The ranks that make one result together, or this process alone. Collective calls are made by all ranks in the same order. */
#ifndef CV_TEAM_H
#define CV_TEAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "convert/fail.h"

struct cv_team { int rank, size; };

/* parallel false: alone, and MPI is not touched. Else MPI is initialised if nobody has. */
int cv_team_join(struct cv_team *t, bool parallel, struct cv_fail *why);
/* Before MPI_Init, by whoever calls it: Open MPI's own way to write files does not say when a disk is full. */
void cv_team_settings(void);
/* The least of all ranks' rc (the worst): what each then returns. The reason of the rank that has it goes to all. */
int cv_team_agree(const struct cv_team *t, int rc, struct cv_fail *why);
/* All ranks have this number. */
bool cv_team_same(const struct cv_team *t, uint64_t number);
/* What rank 0 has, to all. */
void cv_team_share(const struct cv_team *t, void *data, size_t bytes);
/* Ends MPI if cv_team_join began it. */
void cv_team_leave(void);
/* The same behind a failure, of which all ranks know: several ranks end here with this exit status, since libraries can't close what they could not write. Else it returns. */
void cv_team_give_up(int status);

#endif
