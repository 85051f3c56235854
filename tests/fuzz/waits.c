/*
 * Time for threads that take turns (threads.h): sleeps and semaphores, for harnesses whose program waits for time to pass. What such a program calls of these is
 * replaced by the linker (WAITS_WRAP of module.mk). No wait takes any time but that of the clock, which goes on when all wait.
 */
#include "tests/fuzz/waits.h"

#include <errno.h>
#include <semaphore.h>
#include <time.h>
#include <unistd.h>

#include "tests/fuzz/threads.h"

#define BEGIN_NS 1000000000000u /* the clock, which is 0 for nobody */

static uint64_t now_ns = BEGIN_NS, end_ns = UINT64_MAX;

int __wrap_usleep(useconds_t us);
int __wrap_sem_wait(sem_t *s);
int __wrap_sem_clockwait(sem_t *s, clockid_t id, const struct timespec *ts);
int __wrap_sem_post(sem_t *s);
int __real_sem_post(sem_t *s);

void fuzz_waits_begin(void)
{
    fuzz_thread_clock = &now_ns;
    fuzz_thread_stack_bytes = (size_t)512 << 10;
}

void fuzz_waits_input(uint64_t ms)
{
    end_ns = now_ns + ms * 1000000;
}

uint64_t fuzz_waits_ns(void)
{
    FUZZ_CHECK(now_ns < end_ns); /* else something hangs */
    return now_ns;
}

int __wrap_usleep(useconds_t us)
{
    uint64_t until_ns = now_ns + us * (uint64_t)1000;
    char me; /* nobody wakes it */

    do
        fuzz_thread_wait(&me, until_ns);
    while (fuzz_waits_ns() < until_ns);
    return 0;
}

int __wrap_sem_wait(sem_t *s)
{
    while (sem_trywait(s) != 0)
        fuzz_thread_wait(s, UINT64_MAX);
    return 0;
}

int __wrap_sem_clockwait(sem_t *s, clockid_t id, const struct timespec *ts)
{
    uint64_t until_ns = (uint64_t)ts->tv_sec * 1000000000u + (uint64_t)ts->tv_nsec;

    (void)id;
    while (sem_trywait(s) != 0) {
        if (now_ns >= until_ns) {
            errno = ETIMEDOUT;
            return -1;
        }
        fuzz_thread_wait(s, until_ns);
    }
    return 0;
}

int __wrap_sem_post(sem_t *s)
{
    int rc = __real_sem_post(s);

    fuzz_thread_wake(s, true);
    return rc;
}
