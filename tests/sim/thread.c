/*
 * Threads, clocks and random numbers of the C library, for the programs. These definitions come before those of libc because this program exports them; who has no
 * task (before the run, or a library's constructor) finds every lock free.
 *
 * The state of a lock lies in the caller's pthread_mutex_t: zeros are a free lock, as PTHREAD_MUTEX_INITIALIZER wants. A cond needs no state but its clock.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "tests/sim/sim.h"

struct lock {
    int held;
    int count;
    struct sim_task *owner;
    int kind; /* where PTHREAD_MUTEX_*_INITIALIZER has it: byte 16 */
};

struct cond {
    int clock; /* CLOCK_REALTIME is 0 */
};

_Static_assert(sizeof(struct lock) <= sizeof(pthread_mutex_t) && offsetof(struct lock, kind) == 16, "mutex");

static struct lock *lock_of(pthread_mutex_t *m)
{
    return (struct lock *)(void *)m;
}

static uint64_t deadline(bool wall, const struct timespec *ts)
{
    return sim_clock_back(sim_self, wall, (uint64_t)ts->tv_sec * SIM_S + (uint64_t)ts->tv_nsec);
}

/* ------------------------------------------------------------------ mutexes */

int pthread_mutex_init(pthread_mutex_t *m, const pthread_mutexattr_t *attr)
{
    int kind = 0;

    if (attr)
        pthread_mutexattr_gettype(attr, &kind);
    memset(m, 0, sizeof *m);
    lock_of(m)->kind = kind;
    return 0;
}

int pthread_mutex_destroy(pthread_mutex_t *m)
{
    return lock_of(m)->held ? EBUSY : 0;
}

int pthread_mutex_trylock(pthread_mutex_t *m)
{
    struct lock *l = lock_of(m);

    if (l->held && !(l->kind == PTHREAD_MUTEX_RECURSIVE && l->owner == sim_self))
        return EBUSY;
    l->held = 1;
    l->owner = sim_self;
    l->count++;
    return 0;
}

int pthread_mutex_lock(pthread_mutex_t *m)
{
    sim_maybe_yield();
    while (pthread_mutex_trylock(m)) {
        if (!sim_self || lock_of(m)->owner == sim_self)
            sim_fail("a thread locks what it holds");
        sim_block(m, SIM_NEVER);
    }
    return 0;
}

int pthread_mutex_unlock(pthread_mutex_t *m)
{
    struct lock *l = lock_of(m);

    if (--l->count > 0)
        return 0;
    l->count = 0;
    l->held = 0;
    l->owner = NULL;
    if (sim_self)
        sim_wake_all(m);
    return 0;
}

/* ------------------------------------------------------------------ conditions */

int pthread_cond_init(pthread_cond_t *c, const pthread_condattr_t *attr)
{
    clockid_t clock = CLOCK_REALTIME;

    if (attr)
        pthread_condattr_getclock(attr, &clock);
    memset(c, 0, sizeof *c);
    ((struct cond *)(void *)c)->clock = clock;
    return 0;
}

int pthread_cond_destroy(pthread_cond_t *c)
{
    (void)c;
    return 0;
}

int pthread_cond_signal(pthread_cond_t *c)
{
    sim_wake_one(c);
    return 0;
}

int pthread_cond_broadcast(pthread_cond_t *c)
{
    sim_wake_all(c);
    return 0;
}

static int cond_wait(pthread_cond_t *c, pthread_mutex_t *m, uint64_t until_ns)
{
    bool woken;

    pthread_mutex_unlock(m);
    woken = sim_block(c, until_ns);
    pthread_mutex_lock(m);
    return woken ? 0 : ETIMEDOUT;
}

int pthread_cond_wait(pthread_cond_t *c, pthread_mutex_t *m)
{
    return cond_wait(c, m, SIM_NEVER);
}

int pthread_cond_timedwait(pthread_cond_t *c, pthread_mutex_t *m, const struct timespec *ts)
{
    return cond_wait(c, m, deadline(((struct cond *)(void *)c)->clock == CLOCK_REALTIME, ts));
}

/* ------------------------------------------------------------------ semaphores */

int sem_init(sem_t *s, int shared, unsigned value)
{
    (void)shared;
    *(unsigned *)(void *)s = value;
    return 0;
}

int sem_destroy(sem_t *s)
{
    (void)s;
    return 0;
}

int sem_post(sem_t *s)
{
    ++*(unsigned *)(void *)s;
    sim_wake_all(s);
    return 0;
}

int sem_wait(sem_t *s)
{
    while (*(unsigned *)(void *)s == 0)
        sim_block(s, SIM_NEVER);
    --*(unsigned *)(void *)s;
    return 0;
}

int sem_clockwait(sem_t *s, clockid_t clock, const struct timespec *ts)
{
    uint64_t until = deadline(clock == CLOCK_REALTIME, ts);

    while (*(unsigned *)(void *)s == 0)
        if (!sim_block(s, until)) {
            errno = ETIMEDOUT;
            return -1;
        }
    --*(unsigned *)(void *)s;
    return 0;
}

/* ------------------------------------------------------------------ threads */

int pthread_create(pthread_t *out, const pthread_attr_t *attr, void *(*fn)(void *), void *arg)
{
    (void)attr;
    *out = sim_task_new(sim_self->proc, sim_self->node, "thread", fn, arg)->handle;
    return 0;
}

int pthread_join(pthread_t handle, void **ret)
{
    struct sim_task *t = sim_task_of(handle);

    if (!t)
        return ESRCH;
    sim_join(t, SIM_NEVER);
    if (ret)
        *ret = t->ret;
    return 0;
}

int pthread_timedjoin_np(pthread_t handle, void **ret, const struct timespec *ts)
{
    struct sim_task *t = sim_task_of(handle);

    (void)ret;
    return !t ? ESRCH : sim_join(t, deadline(true, ts)) ? 0 : ETIMEDOUT;
}

int pthread_detach(pthread_t handle)
{
    (void)handle;
    return 0;
}

int pthread_setname_np(pthread_t handle, const char *name)
{
    (void)handle;
    if (sim_self)
        snprintf(sim_self->name, sizeof sim_self->name, "%s", name);
    return 0;
}

int pthread_setaffinity_np(pthread_t handle, size_t size, const cpu_set_t *set)
{
    (void)handle;
    (void)size;
    (void)set;
    return 0;
}

int pthread_kill(pthread_t handle, int sig)
{
    (void)handle;
    (void)sig;
    return 0;
}

/* ------------------------------------------------------------------ time */

int clock_gettime(clockid_t clock, struct timespec *ts)
{
    bool wall = clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE;

    if (!sim_self)
        return (int)syscall(SYS_clock_gettime, clock, ts);
    uint64_t ns = sim_clock(sim_self, wall);

    ts->tv_sec = (time_t)(ns / SIM_S);
    ts->tv_nsec = (long)(ns % SIM_S);
    return 0;
}

time_t time(time_t *out)
{
    struct timespec ts;

    clock_gettime(CLOCK_REALTIME, &ts);
    if (out)
        *out = ts.tv_sec;
    return ts.tv_sec;
}

int nanosleep(const struct timespec *ts, struct timespec *left)
{
    if (!sim_self)
        return (int)syscall(SYS_nanosleep, ts, left);
    sim_sleep_ns((uint64_t)ts->tv_sec * SIM_S + (uint64_t)ts->tv_nsec);
    return 0;
}

int usleep(useconds_t us)
{
    struct timespec ts = {us / 1000000, (long)(us % 1000000) * 1000};

    return nanosleep(&ts, NULL);
}

int pause(void)
{
    for (;;)
        sim_block(NULL, SIM_NEVER);
}

int sched_yield(void)
{
    if (sim_self)
        sim_yield();
    return 0;
}

/* ------------------------------------------------------------------ what else would differ from run to run */

ssize_t getrandom(void *buf, size_t len, unsigned flags)
{
    if (!sim_self)
        return syscall(SYS_getrandom, buf, len, flags);
    for (size_t i = 0; i < len; i++)
        ((uint8_t *)buf)[i] = (uint8_t)sim_random(SIM_RNG_PRODUCT);
    return (ssize_t)len;
}

/* Memory that is not touched costs nothing, and seeds are many. */
int mlock(const void *addr, size_t len)
{
    (void)addr;
    (void)len;
    return 0;
}

int madvise(void *addr, size_t len, int advice)
{
    (void)addr;
    (void)len;
    (void)advice;
    return 0;
}

pid_t getpid(void)
{
    return sim_self && sim_self->proc ? 1000 + sim_self->proc->id : (pid_t)syscall(SYS_getpid);
}

/* The only signal that a program sends itself is the one that ends it. */
int kill(pid_t pid, int sig)
{
    if (sim_self && sim_self->proc && pid == getpid()) {
        sim_proc_term(sim_self->proc);
        return 0;
    }
    return (int)syscall(SYS_kill, pid, sig);
}

/* fp-mount's thread for signals: SIGTERM is the only one that is sent. */
int sigwait(const sigset_t *set, int *sig)
{
    (void)set;
    while (!sim_self->proc->told_end)
        sim_block(&sim_self->proc->told_end, SIM_NEVER);
    sim_self->proc->told_end = false;
    *sig = SIGTERM;
    return 0;
}

_Noreturn void exit(int code)
{
    if (sim_self && sim_self->proc)
        sim_proc_exit(code);
    fflush(NULL);
    syscall(SYS_exit_group, code);
    __builtin_unreachable();
}

_Noreturn void _exit(int code)
{
    if (sim_self && sim_self->proc)
        sim_proc_exit(code);
    syscall(SYS_exit_group, code);
    __builtin_unreachable();
}
