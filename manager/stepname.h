/* Which part of a file's name says of which time step it is. Pure: names in, answer out. */
#ifndef MGR_STEPNAME_H
#define MGR_STEPNAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MGR_STEP_ABOVE        3u   /* directories above a file of which the names are looked at */
#define MGR_STEP_TEMPLATE_MAX 256u /* a name, and the slash of a directory */

/* How it was found out: ckpt_set.how. */
enum mgr_step_how { MGR_STEP_NONE, MGR_STEP_PATTERN, MGR_STEP_WORD, MGR_STEP_GROWTH, MGR_STEP_TOLD };

struct mgr_step {
    enum mgr_step_how how;
    uint32_t above;     /* the component that has the step: 0 the file's own name, 1 its directory, ... */
    uint32_t off, len;  /* the digits (of a date: with what is between them) in that component */
    uint64_t step;
    bool temporary;     /* the component has a temporary beginning or ending (fp/tmpname.h) */
    uint32_t template_len;
    char template[MGR_STEP_TEMPLATE_MAX]; /* what all names of the series share; the step is '#'. Not ended by NUL */
};

struct mgr_name {
    const char *name;
    size_t len;
};

/* One component by its words. False: nothing in it is a step by its words. *out is of above 0. */
bool mgr_step_word(const char *name, size_t len, bool directory, struct mgr_step *out);

/* The number of one component that is its step if it grows (mgr_step_grows). False: it has none that may be. */
bool mgr_step_growth(const char *name, size_t len, bool directory, struct mgr_step *out);

/* A file by words: names[0] is its own, names[1] that of its directory, ...; n is at most MGR_STEP_ABOVE + 1. The one nearest to the root decides. */
bool mgr_step_of(const struct mgr_name *names, size_t n, struct mgr_step *out);

/* Two entries of one template, of which the second began to be written at began_ns, when all writers of the first had closed at closed_ns (0: not all have):
 * ranks of one step are written at the same time, steps one after the other. */
bool mgr_step_grows(uint64_t first, int64_t closed_ns, uint64_t second, int64_t began_ns, int64_t quiet_ns);

/*
 * A path from the store's root, without leading slash, by a pattern of the user. * and ? stop at a slash, ** does not, {step} is a whole group of
 * 1 to 18 digits. A pattern without a slash (but at its end) is one component anywhere; one that matches a directory matches all that is below it.
 * 1: matched, with a step in *out; 0: matched, and the pattern has no {step}: *out is not touched; -1: not matched, or the pattern is too intricate.
 */
int mgr_step_pattern(const char *path, size_t len, const char *pattern, struct mgr_step *out);

#endif
