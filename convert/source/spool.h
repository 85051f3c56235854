/* A temporary file for bytes of inputs that can't be read at any place (compressed members of .npz). One thread. */
#ifndef CV_SOURCE_SPOOL_H
#define CV_SOURCE_SPOOL_H

#include "convert/fail.h"

/* An empty file without a name in dir, open for reading and writing: fd, or a negative errno. It goes when it is closed, also when the program is killed. */
int cv_spool_open(const char *dir, struct cv_fail *why);
/* All of len bytes at off. -ENODATA: fewer are there. */
int cv_spool_write(int fd, const char *dir, uint64_t off, const void *buf, size_t len, struct cv_fail *why);
int cv_spool_read(int fd, const char *dir, uint64_t off, void *buf, size_t len, struct cv_fail *why);

#endif
