/* Names that a file or directory has while it is written, and is renamed from when it is whole: "x.tmp", "tmp-x", "x.part", "x.tmp.4711". Pure. */
#ifndef FP_TMPNAME_H
#define FP_TMPNAME_H

#include <stddef.h>

/* What of the name is left without such a beginning and such endings: bytes from *off, the length is returned. The whole name, if it is none, or
 * nothing would be left of it. */
size_t fp_tmpname_body(const char *name, size_t len, size_t *off);

#endif
