/* Descriptors that are none of the kernel's: memfile.c's or memsock.c's. */
#ifndef TESTS_FUZZ_FDS_H
#define TESTS_FUZZ_FDS_H

#define FUZZ_FIRST_FD 1000000

/* What close(2) of one of them does; set by whose they are. */
extern int (*fuzz_close)(int fd);

#endif
