/*
 * The end of fp-auxhost's process, also when it does not come.
 *
 * Called on the link thread. A process that is killed ends at once, but for one thing: a thread that waits in the kernel for something that does not come,
 * such as a file of a server that is away, mounted hard. Nobody can end that, and the kernel may still write into the region for it, once the server is back.
 * All that readers and writers need goes through the link thread, so this must not wait for it: such a process is left behind, and all that may go on
 * without it does. The next host gets a region of its own: the units in use are copied to new memory, which is mapped in the place of the old, so
 * that neither offsets nor pointers of results change. What the old process still does it does to memory that is nobody's.
 *
 * The pool is not made anew: no host can write to it. Nor does anybody hear the old process: its sockets are closed.
 *
 * Each one left behind keeps memory, so there may be ORPHANS_MAX at a time; then no other is started before one has ended, which counts as a start
 * that failed (cl_aux_failed). They are looked for once a second, and PR_SET_PDEATHSIG sees to them after us.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/aux/internal.h"
#include "fp/memfd.h"

#define KILL_MS 2000u          /* from SIGKILL to the end: gigabytes of memory are given back in between */

/* -------------------------------------------------------------- memory of its own for the next */

static int map_new(uint64_t bytes, int *fd, uint8_t **at)
{
    void *p;
    int rc;

    *fd = fp_memfd_new("fpstore-aux-region", bytes);
    if (*fd < 0)
        return *fd;
    p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
    rc = p == MAP_FAILED ? -errno : fp_memfd_seal(*fd);
    if (rc == 0) {
        *at = p;
        return 0;
    }
    if (p != MAP_FAILED)
        munmap(p, bytes);
    close(*fd);
    return rc;
}

/* Results are read without a lock while this goes on: they find the same bytes before and after. Written is with the lock alone. */
static int renew_region(struct cl_aux *a)
{
    uint8_t *fresh = NULL;
    int fd, rc = map_new(a->region_bytes, &fd, &fresh);

    if (rc < 0)
        return rc;
    pthread_mutex_lock(&a->lock);
    cl_aux_region_copy(&a->out_room, fresh, a->region);
    cl_aux_region_copy(&a->in_room, fresh, a->region);
    if (mmap(a->region, a->region_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED)
        rc = -errno; /* the old one is where it was */
    pthread_mutex_unlock(&a->lock);
    munmap(fresh, a->region_bytes);
    if (rc < 0) {
        close(fd);
        return rc;
    }
    (void)madvise(a->region, a->region_bytes, MADV_DONTDUMP);
    close(a->region_fd);
    a->region_fd = fd;
    return 0;
}

/* -------------------------------------------------------------- those left behind */

static void leave_behind(struct cl_aux *a, pid_t pid)
{
    FP_WARN("fp-auxhost (process %d) was killed and does not end: it waits in the kernel, as for a file of a server that is away; it is left behind",
        (int)pid);
    if (a->norphans < AUX_ORPHANS_MAX) /* always: see cl_aux_may_spawn */
        a->orphan[a->norphans++] = pid;
    a->region_shared = renew_region(a) < 0;
}

void cl_aux_orphans_reap(struct cl_aux *a)
{
    for (uint32_t i = 0; i < a->norphans;) {
        int status;
        pid_t pid = waitpid(a->orphan[i], &status, WNOHANG);

        if (pid == 0 || (pid < 0 && errno == EINTR)) {
            i++;
            continue;
        }
        FP_INFO("fp-auxhost (process %d), which was left behind, has ended", (int)a->orphan[i]);
        a->orphan[i] = a->orphan[--a->norphans];
    }
    if (a->norphans == 0)
        a->region_shared = false;
}

int cl_aux_may_spawn(struct cl_aux *a, char *why, size_t why_size)
{
    int rc = 0;

    cl_aux_orphans_reap(a);
    if (a->norphans == AUX_ORPHANS_MAX) {
        snprintf(why, why_size, "fp-auxhost is not started: %u of them were killed and wait in the kernel still; what do their aux-apps wait for?",
             a->norphans);
        return -EBUSY;
    }
    if (a->region_shared) {
        rc = renew_region(a);
        a->region_shared = rc < 0;
        snprintf(why, why_size, "fp-auxhost is not started: no memory that the one left behind can't write to: %s", fp_strerror(rc));
    }
    return rc;
}

/* -------------------------------------------------------------- the end */

/* Not waited for yet: until then its number, which is that of the group, is nobody else's. */
static bool has_ended(pid_t pid)
{
    siginfo_t info = { .si_pid = 0 };

    return waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) < 0 ? errno != EINTR : info.si_pid == pid;
}

/* With the children that a plugin may have made: they hold memory of ours, and its sockets. */
static bool reap(const struct aux_host *h, uint64_t wait_ms, int *status)
{
    uint64_t until_ms = fp_now_ms() + wait_ms;

    for (;;) {
        if (has_ended(h->pid)) {
            (void)kill(-h->pid, SIGKILL);
            while (waitpid(h->pid, status, 0) < 0 && errno == EINTR)
                ;
            return true;
        }
        if (fp_now_ms() >= until_ms)
            return false;
        usleep(500);
    }
}

int cl_aux_host_end(struct cl_aux *a, struct aux_host *h, bool gently)
{
    int status = 0;
    bool ended = false;

    if (h->pid <= 0)
        return 0;
    if (gently && h->jobs_fd >= 0) {
        (void)shutdown(h->jobs_fd, SHUT_WR);
        ended = reap(h, AUX_STOP_MS, &status);
    }
    if (!ended) {
        (void)kill(h->pid, SIGKILL);
        ended = reap(h, KILL_MS, &status);
    }
    if (!ended) {
        leave_behind(a, h->pid);
        status = SIGKILL; /* as waitpid will say */
    }
    h->pid = 0;
    cl_cpuset_leave(&a->cpuset, &cl_cpuset_kernel);
    return status;
}
