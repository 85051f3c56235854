/* The words of a conversion's process, and the lists of files that it reads. Pure. */
#ifndef CW_ARGV_H
#define CW_ARGV_H

#include "convert/watch/watch.h"

/* Descriptors of the process: where it says how far it is, the lock, the lists. */
#define CW_STATUS_FD 3
#define CW_LOCK_FD   4
#define CW_INPUTS_FD 5
#define CW_ONLY_FD   6

/* Paths, each ended by NUL. */
struct cw_list {
    char *text;
    size_t len, cap;
};

struct cw_argv {
    const char **items; /* ended by NULL */
    char **own;         /* those that are freed */
    size_t n, nown, cap;
    struct cw_list inputs, only; /* only: empty if it is not for a part */
    bool bad;           /* out of memory, or a name is too long */
};

/* of: what the result is made of, kept with it. Zeroed before. */
void cw_argv_fill(struct cw_argv *l, const struct cw_options *o, const struct cw_group *g, const struct cw_action *a, const char *result, const char *of);
void cw_argv_free(struct cw_argv *l);

#endif
