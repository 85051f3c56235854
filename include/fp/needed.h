/* What stores need in a target, as it is written there (drain/needed.c says when, and why so). Called by fp-drain and by fpctl merge, which may have no store. Blocks. */
#ifndef FP_NEEDED_H
#define FP_NEEDED_H

#include <stdbool.h>
#include <stdint.h>

#define FP_NEEDED_MIDDLE "-needs-"
#define FP_NEEDED_ALL    "-all"

/* Of a file that has a name in a target. */
struct fp_needed {
    char drained[256], needed[256]; /* its marks; "": there is none */
    uint64_t ino;
    bool is; /* there is a regular file of that name */
};

/* Is it the name of an entry in FP_DW_TEMP_DIR? */
bool fp_needed_is_entry(const char *name);
/* Does a mark or an entry begin with these first bytes of a store's UUID? store: 8 hexadecimal digits; NULL: false. */
bool fp_needed_is_of(const char *mark, const char *store);
/* 0, also if there is none, or of a mode that keeps its owner from it, and who would have marked it; or a failure. */
int fp_needed_read(int dir, const char *name, struct fp_needed *m);
/* temps: a target's FP_DW_TEMP_DIR. Does a store that is not this one (NULL: any) rely on the file? drained: that store has drained it, so it is none of those that others
 * could not mark. 1, 0, or a failure. */
int fp_needed_by_others(int temps, const struct fp_needed *m, const char *store, bool drained);
/* The same of any store, and of all targets that the directory is in. */
int fp_needed_by_any(int dir, const char *name);

#endif
