/* Names of dumps, results and parts, all as paths in the store without a slash before them. Pure. */
#ifndef CW_NAMES_H
#define CW_NAMES_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

#include "convert/watch/group.h"

#define CW_PART_END ".piece" /* of NAME.h5.NODE.piece. Not .part: that is how files end that are not whole yet, and a set that has one is not complete (include/fp/tmpname.h) */

/* Does the pattern (* and ? stop at a slash) name this path? */
bool cw_name_matches(const char *pattern, const char *path);
/*
 * The result of a group: in `into`, or beside. set_dir: the directory that is the set ("run/dump_0040" gives run/dump_0040.h5); "": none, then the part that the names of its files share (restart.5000.0 and .1 give
 * restart.5000.h5), and of one file its name without the last ending (final.raw gives final.h5). False: too long.
 */
bool cw_name_result(const struct cw_group *g, const char *set_dir, const char *into, const char *ending, char out[PATH_MAX]);
/* The XDMF file beside it. False: too long. */
bool cw_name_xdmf(const char *result, const char *ending, char out[PATH_MAX]);
/* The part of a node. */
bool cw_name_part(const char *result, const char *node, char out[PATH_MAX]);
const char *cw_name_base(const char *path);

#endif
