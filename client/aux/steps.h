/*
 * Names of steps: which of the files of a directory is the earlier version of one that is being written. Pure.
 *
 * A name is cut into digits and the rest. Two names belong together if they are equal but for digits, an ending such as .tmp aside. A name has often more than
 * one number, of the step and of the rank: with exactly one of them smaller, and the others the same, the other file is the step before,
 * or the rank before in the same step. The step before is the older one.
 */
#ifndef CL_AUX_STEPS_H
#define CL_AUX_STEPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define AUX_STEPS_MAX 6u       /* candidates */
#define AUX_NUMBERS_MAX 16u    /* in a name; what comes after is compared as text */

struct aux_step { uint64_t ino; int64_t mtime_ns; uint32_t group; char name[256]; };
struct aux_steps {
	uint32_t nnear;
	struct aux_step near[AUX_NUMBERS_MAX]; /* one for each number: the nearest smaller one */
	struct aux_step newest;        /* of all that belong together; ino 0: none */
};

/* How y relates to x: -1: they do not belong together. Else how many numbers differ; *group: which, *less: y's is smaller (of the last that differs). */
int cl_aux_steps_differ(const char *x, const char *y, uint32_t *group, bool *less);

/* Take a file of the same directory into account, whatever its name is. any: it counts as belonging together (it matches a pattern). */
void cl_aux_steps_add(struct aux_steps *s, const char *own, const char *name, uint64_t ino, int64_t mtime_ns, bool any);
/* Candidates, best first: inode numbers, each once. Returns how many. */
uint32_t cl_aux_steps_order(const struct aux_steps *s, uint64_t *ino);
/* The nearest smaller one alone (of directories); NULL: none. */
const struct aux_step *cl_aux_steps_before(const struct aux_steps *s);

#endif
