/* Why a conversion failed, so that a person finds the place: file, dataset and byte. No I/O. */
#ifndef CV_FAIL_H
#define CV_FAIL_H

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

#define CV_NO_OFFSET UINT64_MAX

struct cv_fail {
    char file[PATH_MAX];    /* input or output; empty: none in particular */
    char dataset[256];      /* empty: none in particular */
    uint64_t offset_bytes;  /* in that file; CV_NO_OFFSET: none in particular */
    char text[512];         /* what is wrong, and what can be done */
};

/* Fills *f (the first reason stays) and returns rc, a negative errno: return cv_fail(f, -EINVAL, file, dataset, off, "…", …). file, dataset: NULL, none. */
int cv_fail(struct cv_fail *f, int rc, const char *file, const char *dataset, uint64_t offset_bytes, const char *format, ...)
    __attribute__((format(printf, 6, 7)));
/* "FILE: dataset NAME: byte N: TEXT", cut to cap_bytes. */
void cv_fail_line(const struct cv_fail *f, char *out, size_t cap_bytes);

#endif
