/* Whose result has a name. One thread; blocks as the mount does. */
#ifndef CW_RESULTS_H
#define CW_RESULTS_H

#include "convert/engine/result.h"
#include "convert/watch/store.h"
#include "convert/watch/watch.h"

/*
 * CW_OF of a result is "STAMP:FILES:SAMPLE SOURCE": the stamp of the files that it was made of, how many these were, which (cw_group_sample), and what it is called after. With keep=none what is in it may be nowhere
 * else: then it is replaced only by one of which all these files are, too.
 */
void cw_result_of(const struct cw_group *g, uint64_t stamp, const char *dir, char of[CV_OF_MAX]);
/* What a result is called after: the directory that is the set ("": none is), or its first file. Borrowed from either. */
const char *cw_result_source(const struct cw_group *g, const char *dir);
/* Is there something of this name, or of that of its XDMF file, that is not of this dump, or of files of it that are gone (keep=none)? Then 1, and why is said; negative: it can't be told now. */
int cw_result_is_taken(const struct cw_store *s, const struct cw_options *o, const struct cw_group *g, const char *dir, const char *result, char *why, size_t size);
/* What is of the same source as this value of CW_OF goes. 0 also if nothing is there; -EEXIST if what is there is another's, which stays; another errno: come back. */
int cw_result_remove(const struct cw_store *s, const char *result, const char *of);
/* It is there, and of the files that had this stamp. */
bool cw_result_holds(const struct cw_store *s, const char *result, uint64_t stamp);

#endif
