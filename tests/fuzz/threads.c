/*
 * Threads that take turns (threads.h). Called by the harnesses and the program under test, on the only real thread.
 *
 * Each has a stack and a context of its own. On x86-64 a switch is some instructions: swapcontext() asks the kernel for the signal mask each time, and AddressSanitizer maps
 * the shadow of the stack anew, which together were a quarter of the time of an input. Real threads were rejected: an input would not do the same twice, and to make and to end ten of them takes
 * longer than all else that it does. Timed waits end when there is nothing else to do: it is the harness that lets time pass, or the clock goes on to the end of
 * the first of them.
 */
#include "tests/fuzz/threads.h"

#include <errno.h>
#include <pthread.h>
#include <sys/mman.h>
#include <time.h>
#include <ucontext.h>

#define THREADS_MAX 96
#define TRIES_MAX   100000

struct place { /* where a thread goes on */
    void *sp;
    ucontext_t context; /* on other processors */
};

void __asan_unpoison_memory_region(void const volatile *p, size_t size) __attribute__((weak));

static struct thread {
    struct place at;
    uint8_t *stack; /* kept */
    void *(*fn)(void *arg);
    void *arg, *own;
    bool used, done;
    bool polls;        /* for a lock: it runs, and does nothing else until it has it */
    const void *waits; /* for this condition variable; NULL: not */
    uint64_t until_ns; /* UINT64_MAX: not for a time */
} thread[THREADS_MAX];
static struct place outside;
static struct thread *me; /* NULL: none */
static uint64_t outside_until_ns = UINT64_MAX;

void **fuzz_thread_own;
uint64_t *fuzz_thread_clock;
size_t fuzz_thread_stack_bytes = (size_t)128 << 10; /* ASan clears it whenever a thread begins */

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

#ifdef __x86_64__
void fuzz_threads_go(void **from, void *to);
/* clang-format off */
__asm__(".text\n"
        ".globl fuzz_threads_go\n"
        ".type fuzz_threads_go, @function\n"
        "fuzz_threads_go:\n"
        "    pushq %rbp\n    pushq %rbx\n    pushq %r12\n    pushq %r13\n    pushq %r14\n    pushq %r15\n"
        "    movq %rsp, (%rdi)\n"
        "    movq %rsi, %rsp\n"
        "    popq %r15\n    popq %r14\n    popq %r13\n    popq %r12\n    popq %rbx\n    popq %rbp\n"
        "    ret\n"
        ".size fuzz_threads_go, . - fuzz_threads_go\n");
/* clang-format on */

static void go(struct place *from, struct place *to)
{
    fuzz_threads_go(&from->sp, to->sp);
}

/* Six registers, where to return to, and nothing to return to from there. */
static void first_place(struct place *at, uint8_t *stack, size_t bytes, void (*fn)(void))
{
    void **sp = (void **)(void *)(stack + bytes) - 2;

    sp[1] = NULL;
    *sp = (void *)(uintptr_t)fn;
    for (int i = 0; i < 6; i++)
        *--sp = NULL;
    at->sp = sp;
}
#else
static void go(struct place *from, struct place *to)
{
    FUZZ_CHECK(swapcontext(&from->context, &to->context) == 0);
}

/* What calls getcontext may come back twice, says the compiler. */
static void first_place(struct place *at, uint8_t *stack, size_t bytes, void (*fn)(void))
{
    FUZZ_CHECK(getcontext(&at->context) == 0);
    at->context.uc_stack.ss_sp = stack;
    at->context.uc_stack.ss_size = bytes;
    at->context.uc_link = NULL;
    makecontext(&at->context, fn, 0);
}
#endif

static void leave(void)
{
    struct thread *t = me;

    me = NULL;
    go(&t->at, &outside);
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
    go(&outside, &t->at);
    if (fuzz_thread_own) {
        t->own = *fuzz_thread_own;
        *fuzz_thread_own = own;
    }
}

/* Whether any has gone on. */
static bool run_those(bool timed)
{
    bool any = false;

    for (struct thread *t = thread; t < thread + THREADS_MAX; t++)
        if (t->used && !t->done && (!t->waits || (timed && t->until_ns != UINT64_MAX))) {
            bool polled = t->polls;

            t->waits = NULL;
            run(t);
            any |= !polled || !t->polls;
        }
    return any;
}

/* The clock goes on to whoever waits for the next time. false: nobody does. */
static bool run_next(void)
{
    uint64_t first_ns = outside_until_ns;
    struct thread *next = NULL;

    for (struct thread *t = thread; t < thread + THREADS_MAX; t++)
        if (t->used && !t->done && t->waits && t->until_ns < first_ns) {
            first_ns = t->until_ns;
            next = t;
        }
    if (first_ns == UINT64_MAX)
        return false;
    if (*fuzz_thread_clock < first_ns)
        *fuzz_thread_clock = first_ns;
    if (next) {
        next->waits = NULL;
        run(next);
    }
    return true;
}

bool fuzz_threads_run(void)
{
    FUZZ_CHECK(!me);
    return run_those(false) || (fuzz_thread_clock ? run_next() : run_those(true));
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

int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *attr, void *(*fn)(void *arg), void *arg)
{
    struct thread *n = thread;

    (void)attr;
    while (n < thread + THREADS_MAX && n->used)
        n++;
    if (n == thread + THREADS_MAX)
        return EAGAIN;
    if (!n->stack) { /* not malloc: it would be of this input (fuzz_blocks_begin) */
        n->stack = mmap(NULL, fuzz_thread_stack_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        FUZZ_CHECK(n->stack != MAP_FAILED);
    }
    if (__asan_unpoison_memory_region)
        __asan_unpoison_memory_region(n->stack, fuzz_thread_stack_bytes);
    first_place(&n->at, n->stack, fuzz_thread_stack_bytes, enter);
    n->fn = fn;
    n->arg = arg;
    n->own = NULL;
    n->waits = NULL;
    n->polls = false;
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

void fuzz_thread_wait(const void *what, uint64_t until_ns)
{
    if (me) {
        me->waits = what;
        me->until_ns = until_ns;
        leave();
        return;
    }
    outside_until_ns = until_ns;
    if (!fuzz_threads_run())
        FUZZ_CHECK(!fuzz_thread_clock); /* else all wait for each other */
    outside_until_ns = UINT64_MAX;
}

void fuzz_thread_wake(const void *what, bool all)
{
    for (struct thread *t = thread; t < thread + THREADS_MAX; t++)
        if (t->used && t->waits == what) {
            t->waits = NULL;
            if (!all)
                return;
        }
}

static int wait_for(pthread_cond_t *cond, pthread_mutex_t *lock, uint64_t until_ns)
{
    FUZZ_CHECK(pthread_mutex_unlock(lock) == 0);
    fuzz_thread_wait(cond, until_ns);
    return __wrap_pthread_mutex_lock(lock);
}

int __wrap_pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock)
{
    return wait_for(cond, lock, UINT64_MAX);
}

int __wrap_pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *lock, const struct timespec *ts)
{
    uint64_t until_ns = (uint64_t)ts->tv_sec * 1000000000u + (uint64_t)ts->tv_nsec;

    wait_for(cond, lock, until_ns);
    if (fuzz_thread_clock && *fuzz_thread_clock < until_ns)
        return 0;
    return ETIMEDOUT; /* or woken: who waits looks himself */
}

int __wrap_pthread_cond_signal(pthread_cond_t *cond)
{
    fuzz_thread_wake(cond, false);
    return 0;
}

int __wrap_pthread_cond_broadcast(pthread_cond_t *cond)
{
    fuzz_thread_wake(cond, true);
    return 0;
}

static void poll_once(bool polls)
{
    if (me)
        me->polls = polls;
    if (polls)
        fuzz_yield();
}

#define UNTIL(got)                                             \
    do {                                                       \
        for (int i = 0; !(got); i++) {                         \
            FUZZ_CHECK(i < TRIES_MAX); /* nobody gives it back */ \
            poll_once(true);                                   \
        }                                                      \
        poll_once(false);                                      \
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
