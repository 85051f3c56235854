/*
 * Threads that take turns (threads.h). Called by the harnesses and the program under test, on the only real thread.
 *
 * Each has a stack and a context of its own. Real threads were rejected: an input would not do the same twice, and to make and to end ten of them takes
 * longer than all else that it does. Timed waits end when there is nothing else to do: it is the harness that lets time pass.
 */
#include "tests/fuzz/threads.h"

#include <errno.h>
#include <pthread.h>
#include <sys/mman.h>
#include <time.h>
#include <ucontext.h>

#define THREADS_MAX 96
#define STACK_BYTES ((size_t)128 << 10)
#define TRIES_MAX   100000

void __asan_unpoison_memory_region(void const volatile *p, size_t size) __attribute__((weak));

static struct thread {
    ucontext_t at;
    uint8_t *stack; /* kept */
    void *(*fn)(void *arg);
    void *arg, *own;
    bool used, done;
    const void *waits; /* for this condition variable; NULL: not */
    bool timed;
} thread[THREADS_MAX];
static ucontext_t outside;
static struct thread *me; /* NULL: none */

void **fuzz_thread_own;

int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *attr, void *(*fn)(void *arg), void *arg);
int __wrap_pthread_join(pthread_t t, void **out);
int __wrap_pthread_timedjoin_np(pthread_t t, void **out, const struct timespec *ts);
int __wrap_pthread_setname_np(pthread_t t, const char *name);
int __wrap_pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock);
int __wrap_pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *lock, const struct timespec *ts);
int __wrap_pthread_cond_signal(pthread_cond_t *cond);
int __wrap_pthread_cond_broadcast(pthread_cond_t *cond);
int __wrap_pthread_mutex_lock(pthread_mutex_t *lock);
int __wrap_pthread_rwlock_rdlock(pthread_rwlock_t *lock);
int __wrap_pthread_rwlock_wrlock(pthread_rwlock_t *lock);

/* -------------------------------------------------------------- turns */

static void leave(void)
{
    struct thread *t = me;

    me = NULL;
    FUZZ_CHECK(swapcontext(&t->at, &outside) == 0);
}

static void enter(void)
{
    me->fn(me->arg);
    me->done = true;
    leave();
}

static void run(struct thread *t)
{
    void *own = fuzz_thread_own ? *fuzz_thread_own : NULL;

    me = t;
    if (fuzz_thread_own)
        *fuzz_thread_own = t->own;
    FUZZ_CHECK(swapcontext(&outside, &t->at) == 0);
    if (fuzz_thread_own) {
        t->own = *fuzz_thread_own;
        *fuzz_thread_own = own;
    }
}

static bool run_those(bool timed)
{
    bool any = false;

    for (struct thread *t = thread; t < thread + THREADS_MAX; t++)
        if (t->used && !t->done && (!t->waits || (timed && t->timed))) {
            any = true;
            t->waits = NULL;
            run(t);
        }
    return any;
}

bool fuzz_threads_run(void)
{
    FUZZ_CHECK(!me);
    return run_those(false) || run_those(true);
}

void fuzz_yield(void)
{
    if (me)
        leave();
    else
        fuzz_threads_run();
}

unsigned fuzz_threads_left(void)
{
    unsigned n = 0;

    for (struct thread *t = thread; t < thread + THREADS_MAX; t++)
        n += t->used && !t->done;
    return n;
}

void fuzz_threads_reset(void)
{
    FUZZ_CHECK(!me && fuzz_threads_left() == 0);
    for (struct thread *t = thread; t < thread + THREADS_MAX; t++)
        t->used = false;
}

/* -------------------------------------------------------------- what the program calls */

/* By itself: what calls getcontext may come back twice, says the compiler. */
static void context_of(ucontext_t *at)
{
    FUZZ_CHECK(getcontext(at) == 0);
}

int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *attr, void *(*fn)(void *arg), void *arg)
{
    struct thread *n = thread;

    (void)attr;
    while (n < thread + THREADS_MAX && n->used)
        n++;
    if (n == thread + THREADS_MAX)
        return EAGAIN;
    if (!n->stack) { /* not malloc: it would be of this input (fuzz_blocks_begin) */
        n->stack = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        FUZZ_CHECK(n->stack != MAP_FAILED);
    }
    if (__asan_unpoison_memory_region)
        __asan_unpoison_memory_region(n->stack, STACK_BYTES);
    context_of(&n->at);
    n->at.uc_stack.ss_sp = n->stack;
    n->at.uc_stack.ss_size = STACK_BYTES;
    n->at.uc_link = NULL;
    makecontext(&n->at, enter, 0);
    n->fn = fn;
    n->arg = arg;
    n->own = NULL;
    n->waits = NULL;
    n->used = true;
    n->done = false;
    *t = (pthread_t)(n - thread) + 1;
    return 0;
}

static int join(pthread_t t, int tries)
{
    struct thread *o = &thread[t - 1];

    FUZZ_CHECK(t >= 1 && t <= THREADS_MAX && o->used);
    for (; tries > 0 && !o->done; tries--)
        fuzz_yield();
    if (!o->done)
        return ETIMEDOUT;
    o->used = false;
    return 0;
}

int __wrap_pthread_join(pthread_t t, void **out)
{
    (void)out;
    FUZZ_CHECK(join(t, TRIES_MAX) == 0); /* else they wait for each other */
    return 0;
}

int __wrap_pthread_timedjoin_np(pthread_t t, void **out, const struct timespec *ts)
{
    (void)out, (void)ts;
    return join(t, TRIES_MAX);
}

int __wrap_pthread_setname_np(pthread_t t, const char *name)
{
    (void)t, (void)name;
    return 0;
}

static int wait_for(pthread_cond_t *cond, pthread_mutex_t *lock, bool timed)
{
    FUZZ_CHECK(pthread_mutex_unlock(lock) == 0);
    if (me) {
        me->waits = cond;
        me->timed = timed;
    }
    fuzz_yield();
    return __wrap_pthread_mutex_lock(lock);
}

int __wrap_pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock)
{
    return wait_for(cond, lock, false);
}

int __wrap_pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *lock, const struct timespec *ts)
{
    (void)ts;
    wait_for(cond, lock, true);
    return ETIMEDOUT; /* or woken: who waits looks himself */
}

int __wrap_pthread_cond_signal(pthread_cond_t *cond)
{
    for (struct thread *t = thread; t < thread + THREADS_MAX; t++)
        if (t->used && t->waits == cond) {
            t->waits = NULL;
            return 0;
        }
    return 0;
}

int __wrap_pthread_cond_broadcast(pthread_cond_t *cond)
{
    for (struct thread *t = thread; t < thread + THREADS_MAX; t++)
        if (t->used && t->waits == cond)
            t->waits = NULL;
    return 0;
}

#define UNTIL(got)                                             \
    do {                                                       \
        for (int i = 0; !(got); i++) {                         \
            FUZZ_CHECK(i < TRIES_MAX); /* nobody gives it back */ \
            fuzz_yield();                                      \
        }                                                      \
    } while (0)

int __wrap_pthread_mutex_lock(pthread_mutex_t *lock)
{
    UNTIL(pthread_mutex_trylock(lock) == 0);
    return 0;
}

int __wrap_pthread_rwlock_rdlock(pthread_rwlock_t *lock)
{
    UNTIL(pthread_rwlock_tryrdlock(lock) == 0);
    return 0;
}

int __wrap_pthread_rwlock_wrlock(pthread_rwlock_t *lock)
{
    UNTIL(pthread_rwlock_trywrlock(lock) == 0);
    return 0;
}
