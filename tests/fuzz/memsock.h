/*
 * Pairs of SOCK_SEQPACKET sockets, eventfds and mapped memfds without the kernel, for harnesses of programs that talk over them on one thread: what such a
 * program calls is replaced by the linker (MEMSOCK_WRAP of module.mk). Descriptors of others are left to the kernel. Nothing blocks.
 */
#ifndef TESTS_FUZZ_MEMSOCK_H
#define TESTS_FUZZ_MEMSOCK_H

#include <poll.h>

#include "tests/fuzz/fuzz.h"

/* Nothing is there. All descriptors of the input before must be closed. */
void memsock_reset(void);
unsigned memsock_open(void); /* how many are open */
void memsock_pair(int fd[2]);
/* As poll(2) with a timeout of 0. */
int memsock_poll(struct pollfd *p, nfds_t n);

#endif
