/*
 * Segment files without a file system, for harnesses of the benefactor: bnf_file_read, _write and _reopen, and what is asked of a descriptor (close, lseek,
 * fstat), are replaced by the linker (MEMFILE_WRAP of module.mk). Descriptors of others are left to the kernel.
 */
#ifndef TESTS_FUZZ_MEMFILE_H
#define TESTS_FUZZ_MEMFILE_H

#include <stdint.h>

#include "tests/fuzz/fuzz.h"

/* Nothing is there. All descriptors of the input before must be closed. */
void memfile_reset(void);
/* An empty file. Returns its descriptor, which is closed once. */
int memfile_new(void);
/* Another descriptor of it. */
int memfile_dup(int fd);
/* Is it one of these, and open? */
bool memfile_is(int fd);
unsigned memfile_open(void); /* how many descriptors are */
void memfile_write(int fd, const void *p, size_t n, uint64_t off);
void memfile_punch(int fd, uint64_t off, uint64_t n);
void memfile_truncate(int fd, uint64_t size);

#endif
