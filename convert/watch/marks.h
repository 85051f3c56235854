/* Marks of conversions in the mounted store: CW_MARK, and beside it CW_OF. The group has a file. One thread; blocks as the mount does. */
#ifndef CW_MARKS_H
#define CW_MARKS_H

#include "convert/watch/store.h"

#define CW_STAMP_BYTES 17u /* of a stamp in hexadecimal digits, with the NUL behind it */

/* On the directory that is the set, else on each file. Negative, and nothing is written, or not on all files: it can't be done now. */
int cw_mark_put(const struct cw_store *s, const struct cw_group *g, const char *name, const char *text);
/* The same of CW_MARK, "waiting ..." or another word and more; the group knows then what its mark says, or that it does not. */
int cw_mark(const struct cw_store *s, struct cw_group *g, const char *text);
/* As it is in the store, on that directory, else on the first file, as good as any: "" if there is none. */
void cw_mark_get(const struct cw_store *s, const struct cw_group *g, const char *name, char *text, size_t size);
/* The first word of a mark is this one, of whichever files. */
bool cw_mark_begins(const char *text, const char *word);
/* What is beside a mark of an end: of the files that had this stamp, by a conversion that was declared so. */
int cw_mark_put_of(const struct cw_store *s, const struct cw_group *g, uint64_t stamp, uint64_t declared);
/* So it was declared, or nobody says how. */
bool cw_mark_is_by(const struct cw_store *s, const struct cw_group *g, uint64_t declared);
/* It is, and it is of the files as they are now. */
bool cw_mark_says(const struct cw_store *s, const struct cw_group *g, const char *word);
/*
 * The dump is converted, and its mark is of the directory that is the set. Files that came before they were known to be of one have marks of their own, and were converted, or could not be, as such: these go, since nobody else
 * would take them off, and so do groups of such a file alone that do not run. Returns g, which may have moved.
 */
struct cw_group *cw_marks_of_files_end(const struct cw_store *s, struct cw_groups *groups, struct cw_group *g);

#endif
