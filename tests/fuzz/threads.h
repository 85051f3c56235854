/*
 * Threads that take turns, for harnesses of programs that have some: what such a program calls of pthreads is replaced by the linker (THREADS_WRAP of
 * module.mk). A thread runs until it waits, and others run only where the harness says so, so an input does the same whenever it is run.
 */
#ifndef TESTS_FUZZ_THREADS_H
#define TESTS_FUZZ_THREADS_H

#include "tests/fuzz/fuzz.h"

/* A thread-local pointer of the program, of which each thread is to have its own. NULL: there is none. */
extern void **fuzz_thread_own;

/*
 * The clock of what runs on them, in ns: it stands while anybody can run, and goes to the next time that somebody waits for when all wait (waits.c). NULL: there is
 * none, and all timed waits end when all wait.
 */
extern uint64_t *fuzz_thread_clock;
/* Before the first one. */
extern size_t fuzz_thread_stack_bytes;

/* Before each input. All threads of the one before have ended. */
void fuzz_threads_reset(void);
/* Each thread that need not wait runs until it does. false: none could. Not from a thread. */
bool fuzz_threads_run(void);
/* A thread lets the others run first. Not a thread: these run. */
void fuzz_yield(void);
/* Until fuzz_thread_wake(what), or the clock is there; or for no reason. UINT64_MAX: whenever that is. Not a thread: others have run. */
void fuzz_thread_wait(const void *what, uint64_t until_ns);
void fuzz_thread_wake(const void *what, bool all);
unsigned fuzz_threads_left(void);

#endif
