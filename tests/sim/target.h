/* The target of drains, as the disks' functions see it: see target.c. */
#ifndef TESTS_SIM_TARGET_H
#define TESTS_SIM_TARGET_H

#include <stdbool.h>

/* renameat(2) of an fp-drain in its target: true, and *err; false: the caller is none. */
bool sim_target_rename(int fromfd, const char *from, int tofd, const char *to, int *err);

#endif
