/*
 * Threads that take turns, for harnesses of programs that have some: what such a program calls of pthreads is replaced by the linker (THREADS_WRAP of
 * module.mk). A thread runs until it waits, and others run only where the harness says so, so an input does the same whenever it is run.
 */
#ifndef TESTS_FUZZ_THREADS_H
#define TESTS_FUZZ_THREADS_H

#include "tests/fuzz/fuzz.h"

/* A thread-local pointer of the program, of which each thread is to have its own. NULL: there is none. */
extern void **fuzz_thread_own;

/* Before each input. All threads of the one before have ended. */
void fuzz_threads_reset(void);
/* Each thread that need not wait runs until it does. false: none could. Not from a thread. */
bool fuzz_threads_run(void);
/* A thread lets the others run first. Not a thread: these run. */
void fuzz_yield(void);
unsigned fuzz_threads_left(void);

#endif
