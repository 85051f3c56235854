/* Where the files of this installation are, as seen from the program that runs: beside it, or where `make install` puts them. Any thread. */
#ifndef FP_BESIDE_H
#define FP_BESIDE_H

#include <stdbool.h>
#include <stddef.h>

/* The first of `tails` (relative to the directory of the running program; NULL-terminated) that is there and can be read. False: none; out is then
 * what the first would be, cut if it is too long. */
bool fp_beside(char *out, size_t size, const char *const *tails);

/* The directory of the plugins that came with fpstore; one that is not there if none is. Returns out. */
const char *fp_beside_plugins(char *out, size_t size);

#endif
