/* Which part of a file's name says of which time step it is. Pure: names in, answer out. */
#ifndef MGR_STEPNAME_H
#define MGR_STEPNAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MGR_STEP_ABOVE        3u   /* directories above a file of which the names are looked at */
#define MGR_STEP_NUMBERS      3u   /* of a name that are followed to see if they grow */
#define MGR_STEP_TEMPLATE_MAX 256u /* a name, and the slash of a directory */

/* How it was found out: ckpt_set.how. */
enum mgr_step_how { MGR_STEP_NONE, MGR_STEP_PATTERN, MGR_STEP_WORD, MGR_STEP_GROWTH, MGR_STEP_TOLD, MGR_STEP_CONVERTED };

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

/*
 * A number of one component that is its step if it grows: the nth that may be, 0 is the last. False: it has no such.
 * A directory named by a number alone may be one of those with decimals, too (0.1, 100: times of OpenFOAM): that is 0 of one that has any, 1 of one that has
 * none. All of these are one series (mgr_step_is_decimal), of which the step is in millionths.
 */
bool mgr_step_growth(const char *name, size_t len, bool directory, unsigned nth, struct mgr_step *out);
bool mgr_step_is_decimal(const struct mgr_step *s);
/* Of digits, and what stands between those of a date: such a directory is a step, a date or a rank itself. */
bool mgr_step_is_bare(const char *name, size_t len);
/* It is the year, the day or the time (seconds, milliseconds or microseconds since 1970) at which it was made. */
bool mgr_step_is_clock(const struct mgr_step *s, int64_t made_ns);

/* A file that is a lock: of no set, wherever it lies. */
bool mgr_step_is_lock(const char *name, size_t len);

/* The name of a file that a converter is writing (.fp-convert- and letters): of no set, wherever it lies. */
bool mgr_step_is_convert(const char *name, size_t len);

/* *s, of a name of a file or directory, becomes that of the results of conversions that bear this name: behind the step, its template has what follows it there, too
 * (rest: rest_len bytes), so it is that of no other files. False: it is too long. */
bool mgr_step_result(struct mgr_step *s, const char *rest, size_t rest_len);

/* A file by words: names[0] is its own, names[1] that of its directory, ...; n is at most MGR_STEP_ABOVE + 1. The one nearest to the root decides. */
bool mgr_step_of(const struct mgr_name *names, size_t n, struct mgr_step *out);

/* What is known of the entries of one template, in the order in which they were made. */
struct mgr_trail {
    uint64_t top, stride; /* step of the last one, and by how much it had grown */
    int64_t began_ns;     /* when that step began */
    uint32_t n;           /* steps that came one after the other, each greater than the one before; 0: none */
};

/* Would an entry that began to be written now be the next step? Then the caller finds out when the last one was closed. */
bool mgr_trail_may_grow(const struct mgr_trail *t, uint64_t step, int64_t began_ns, int64_t quiet_ns);
/*
 * One more entry. closed_ns: when all writers of the last one had closed it (0: not all have). Ranks of one step are written at the same time, or one right behind
 * the other; steps with a pause between. True: they are steps, by now.
 */
bool mgr_trail_add(struct mgr_trail *t, uint64_t step, int64_t began_ns, int64_t closed_ns, int64_t quiet_ns);

/*
 * A path from the store's root, without leading slash, by a pattern of the user. * and ? stop at a slash, ** does not, {step} is a whole group of
 * 1 to 18 digits. A pattern without a slash (but at its end) is one component anywhere; one that matches a directory matches all that is below it.
 * 1: matched, with a step in *out; 0: matched, and the pattern has no {step}: *out is not touched; -1: not matched, or the pattern is too intricate.
 */
int mgr_step_pattern(const char *path, size_t len, const char *pattern, struct mgr_step *out);

#endif
