/* Policies of draining: what a user writes behind `drain` in the declaration of the aux-app, or gives to `fpctl drain set`.
 *
 *     to=/lustre/proj/run every=4 keep=2 max=200MB/s
 *
 * Words with a value, in any order, each at most once; `to` must be there. A value that holds blanks stands in double quotes. Every
 * policy has one canonical text, by which the manager knows that two mounts mean the same: words in the order of the table, and only
 * those that are not at their default. Pure functions, any thread, nothing blocks. */
#ifndef FP_DRAINOPT_H
#define FP_DRAINOPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FP_DRAIN_TEXT_MAX  4096u /* of a policy, with its end */
#define FP_DRAIN_WHY_MAX   512u
#define FP_DRAIN_PATH_MAX  1024u /* of a target's root, with its end */
#define FP_DRAIN_LIST_MAX  896u  /* of a list of patterns, with its end: three of them and a path fit into a text */
#define FP_DRAIN_EVERY_MAX 1000000u

enum fp_drain_layout { FP_DRAIN_FILE, FP_DRAIN_LOG };

/* The level that the next version of a file must have reached until the one before may go. */
enum fp_drain_level { FP_DRAIN_LOCAL, FP_DRAIN_DRAINED, FP_DRAIN_VERIFIED };

/* every= : a number, or one of these */
#define FP_DRAIN_EVERY_AUTO 0u          /* as space and the speed of the target allow */
#define FP_DRAIN_EVERY_NONE UINT32_MAX  /* no set, but results= */

/* Lists are as in the text: separated by commas, none empty; "" is none. */
struct fp_drain_policy {
    char to[FP_DRAIN_PATH_MAX]; /* absolute, without "." and "..", without a slash at its end */
    uint32_t every;
    uint32_t keep;
    char pattern[FP_DRAIN_LIST_MAX];
    char results[FP_DRAIN_LIST_MAX];
    bool all;
    bool verify;
    uint32_t layout; /* enum fp_drain_layout */
    uint64_t max, max_job; /* bytes/s of a node, of all together; 0: no limit */
    uint32_t level;  /* enum fp_drain_level */
    uint64_t quiet_ms, late_ms; /* 0: as the manager was started */
    bool told;       /* sets are complete only when somebody has said so */
    char marker[FP_DRAIN_LIST_MAX]; /* "": the usual ones */
    uint32_t low;    /* per cent of the store that are free: drain first */
    bool overwrite;  /* also files in the target that another store relies on */
};

/* One word, for help, and for the table of the aux-app, which says the same. */
struct fp_drain_word {
    const char *name, *fallback; /* NULL: none */
    const char *help;            /* one line */
    const char *const *choices;  /* NULL: not one of a few words */
    int64_t min, max;            /* of a plain number; both 0: not one */
};

/* In the order of the canonical text; *n: how many. */
const struct fp_drain_word *fp_drain_words(size_t *n);

/* 0; or -EINVAL, -ENAMETOOLONG, and why is a line for the user that names the word. *p is set whole on success only. */
int fp_drain_parse(const char *text, struct fp_drain_policy *p, char why[FP_DRAIN_WHY_MAX]);

/* The canonical text. */
void fp_drain_text(const struct fp_drain_policy *p, char text[FP_DRAIN_TEXT_MAX]);

/* The next of a list: *list moves behind it. False: no more. *item is not ended by 0. */
bool fp_drain_next(const char **list, const char **item, size_t *len);

#endif
