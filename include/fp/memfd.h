/*
 * Memory that is shared with a process that is not trusted: of a size that nobody can change any more.
 */
#ifndef FP_MEMFD_H
#define FP_MEMFD_H

#include <stddef.h>

/* A descriptor of `bytes` of zeros, close-on-exec, that cannot be cut, extended or executed. Negative errno. The caller closes it. */
int fp_memfd_new(const char *name, size_t bytes);
/* 0 if nobody can cut or extend what another process has given to us; -EINVAL if it could become a SIGBUS. */
int fp_memfd_fixed(int fd);
/* From here on it can be written to through mappings alone that are there already. 0 or negative errno. */
int fp_memfd_no_more_writers(int fd);
/* From here on nothing can be forbidden either: else the other side could keep us from mapping it. Last. */
int fp_memfd_seal(int fd);

#endif
