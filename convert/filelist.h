/* The files of a set: those that are words of a command, and those of a list in a file (--files0-from). One thread. */
#ifndef CV_FILELIST_H
#define CV_FILELIST_H

#include "convert/fail.h"
#include "fp/opt.h"

struct cv_filelist {
    const char **items; /* words are the caller's, the others lie in text */
    size_t count;
    char *text;
};

/*
 * The words, and behind them the names in the file `from`, each of which is ended by a NUL byte, as find -print0 and printf '%s\0' write them ("-": standard input; NULL: none). 0; -EINVAL: the list is
 * none, and why says what to do; -ENOMEM. Whatever it returns, cv_filelist_free is called.
 */
int cv_filelist_fill(struct cv_filelist *l, const struct fp_strlist *words, const char *from, struct cv_fail *why);
void cv_filelist_free(struct cv_filelist *l);
/* For qsort and bsearch of names: in the order of their bytes. */
int cv_filelist_order(const void *a, const void *b);

#endif
