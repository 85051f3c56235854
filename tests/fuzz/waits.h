/*
 * Time that goes on when all threads wait, at once (waits.c); for harnesses whose program sleeps, has semaphores, or waits for times.
 */
#ifndef TESTS_FUZZ_WAITS_H
#define TESTS_FUZZ_WAITS_H

#include <stdint.h>

/* Before the first thread. */
void fuzz_waits_begin(void);
/* An input begins, which takes less than that. */
void fuzz_waits_input(uint64_t ms);
/* The harness has clock_gettime say this. */
uint64_t fuzz_waits_ns(void);

#endif
