/* Files that are there whole or not at all, whatever is killed meanwhile. Any thread; blocks on the disk. */
#ifndef FP_WHOLEFILE_H
#define FP_WHOLEFILE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* All of it, however often a signal comes. 0 or negative errno */
int fp_write_all(int fd, const void *data, size_t n);

/*
 * The file of this path has these bytes, or what it had before: they are written into PATH.new, which is removed first, whatever it is, and renamed. durable: also
 * after a power failure from the return on; without, the file may then be empty. 0; -ENAMETOOLONG; negative errno, and the file is as it was. With durable an error
 * can also mean that it is new, and that this may not last.
 */
int fp_write_whole(const char *path, const char *text, mode_t mode, bool durable);

#endif
