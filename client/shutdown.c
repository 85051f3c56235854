/*
 * Ending by SIGTERM, SIGINT, SIGHUP or MSG_STOP.
 *
 * A thread waits for the signals, which are blocked everywhere else, so nothing here runs in a signal
 * handler. At the first one a second thread does the work, so that this one stays free to hear the next:
 *
 *   first    write everything out and make it durable, unmount; if files are open, unmount lazily and give
 * their owners a second; then the FUSE loop is ended and main() writes out what came in between. Exit code 0.
 *   second   unmount lazily and end the loop at once; main() has 2 s to write out. If that is not enough: a
 * line that says what was lost, exit code 1.
 *
 * umount(8) and fusermount3 -u need none of this: the kernel ends the loop, and main() goes on.
 */
#include "client/shutdown.h"

#define FUSE_USE_VERSION 317
#include <errno.h>
#include <fuse_lowlevel.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "client/client.h"
#include "client/core.h"
#include "client/data.h"
#include "client/mountpoint.h"
#include "fp/clock.h"
#include "fp/err.h"
#include "fp/jobsignals.h"
#include "fp/log.h"

#define SYNC_MS       30000u
#define GONE_MS       10000u /* for a manager that is away */
#define OPEN_GRACE_MS 1000u
#define HURRY_MS      3000u
#define STEP_US       10000u
#define WAKE_SIGNAL   SIGUSR1

static atomic_bool loop_ended, forced, hurried, unmounted, stopping, stop_done, sync_failed;
static pthread_t loop_thread; /* set before other threads are made */

static pthread_mutex_t parts_lock = PTHREAD_MUTEX_INITIALIZER;
static bool parts_gone; /* parts_lock */

static void fill_set(sigset_t *set)
{
    sigemptyset(set);
    sigaddset(set, SIGTERM);
    sigaddset(set, SIGINT);
    sigaddset(set, SIGHUP);
    sigaddset(set, FP_SIGNAL_END);
}

void cl_shutdown_block_signals(void)
{
    sigset_t set;
    fill_set(&set);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
}

void cl_shutdown_request(void)
{
    kill(getpid(), FP_SIGNAL_END);
}

bool cl_shutdown_asked(void)
{
    return atomic_load(&stopping);
}

void cl_shutdown_loop_ended(void)
{
    pthread_mutex_lock(&parts_lock);
    atomic_store(&loop_ended, true);
    pthread_mutex_unlock(&parts_lock);
}

bool cl_shutdown_hurried(void)
{
    return atomic_load(&hurried) || atomic_load(&sync_failed);
}

bool cl_shutdown_forced(void)
{
    return atomic_load(&forced);
}

bool cl_shutdown_unmounted(void)
{
    while (atomic_load(&stopping) && !atomic_load(&stop_done) && !atomic_load(&hurried))
        usleep(STEP_US);
    return atomic_load(&unmounted);
}

static void unmount(struct cl_mount *m)
{
    int rc = cl_mountpoint_unmount(m->opt.mountpoint, false);
    if (rc == -EBUSY) {
        FP_WARN("%s is in use: its open files end with this mount", m->opt.mountpoint);
        rc = cl_mountpoint_unmount(m->opt.mountpoint, true);
    }
    if (rc < 0 && rc != -EINVAL)
        FP_WARN("cannot unmount %s: %s", m->opt.mountpoint, fp_strerror(rc));
    atomic_store(&unmounted, rc == 0);
}

/*
 * libfuse before 3.18 only sets a flag in fuse_session_exit(): the loop, which sleeps on a semaphore, would see
 * it after the next request, and with a file open and nobody using it none comes. A signal wakes it. One
 * that arrives between its look at the flag and its sleep is lost, so it is sent again.
 */
static void end_loop(struct cl_mount *m, uint64_t until_ms)
{
    pthread_mutex_lock(&parts_lock);
    if (!atomic_load(&loop_ended)) { /* else main() closes the session */
        atomic_store(&forced, true);
        fuse_session_exit(m->se);
    }
    pthread_mutex_unlock(&parts_lock);
    while (!atomic_load(&loop_ended) && fp_now_ms() < until_ms) {
        pthread_kill(loop_thread, WAKE_SIGNAL);
        usleep(STEP_US);
    }
}

static void *stop_main(void *arg)
{
    struct cl_mount *m = arg;
    pthread_setname_np(pthread_self(), "stop");
    if (atomic_load(&loop_ended)) { /* unmounted by others: main() writes out already, and waits for us only if it has seen `stopping` before */
        atomic_store(&stop_done, true);
        return NULL;
    }
    FP_INFO("ending: writing out what is in the pool");
    cl_mgr_limit_wait(m, GONE_MS);
    uint64_t until_ms = fp_now_ms() + SYNC_MS;
    cl_data_end_by(m, until_ms); /* for calls that are under way, too: the loop can't end before they do */
    int rc = cl_data_sync_at_end(m, until_ms);
    atomic_store(&sync_failed, rc < 0);
    if (rc < 0)
        FP_WARN("not everything could be written out yet: %s", fp_strerror(rc));
    if (!atomic_load(&hurried))
        unmount(m);
    /* With no file open the kernel ends the loop now. */
    for (unsigned ms = 0; ms < OPEN_GRACE_MS && !atomic_load(&loop_ended) && !atomic_load(&hurried);
         ms += STEP_US / 1000)
        usleep(STEP_US);
    if (!atomic_load(&hurried))
        end_loop(m, UINT64_MAX);
    atomic_store(&stop_done, true);
    return NULL;
}

void cl_shutdown_parts_go(void)
{
    pthread_mutex_lock(&parts_lock);
    parts_gone = true;
    pthread_mutex_unlock(&parts_lock);
}

static void hurry(struct cl_mount *m)
{
    uint64_t until_ms = fp_now_ms() + HURRY_MS;
    atomic_store(&hurried, true);
    pthread_mutex_lock(&parts_lock);
    if (!parts_gone) {
        cl_mgr_limit_wait(m, 1);
        cl_data_end_by(m, fp_now_ms());
    }
    pthread_mutex_unlock(&parts_lock);
    FP_WARN("asked again: ending quickly");
    if (cl_mountpoint_unmount(m->opt.mountpoint, true) == 0)
        atomic_store(&unmounted, true);
    end_loop(m, until_ms);
    while (fp_now_ms() < until_ms)
        usleep(STEP_US);
    pthread_mutex_lock(&parts_lock);
    if (parts_gone || !cl_data_give_up(m))
        FP_WARN("leaving without an orderly end");
    _exit(1);
}

static void on_wake(int sig)
{
    (void)sig;
}

static void *signals_main(void *arg)
{
    struct cl_mount *m = arg;
    sigset_t set;
    int sig;
    fill_set(&set);
    pthread_setname_np(pthread_self(), "signals");
    for (;;) {
        pthread_t stop;
        if (sigwait(&set, &sig) != 0 || !fp_job_signal_ends(sig, m->opt.ignore_term))
            continue;
        if (atomic_exchange(&stopping, true))
            hurry(m);
        else if (pthread_create(&stop, NULL, stop_main, m) == 0)
            pthread_detach(stop);
        else
            hurry(m);
    }
    return NULL;
}

int cl_shutdown_start(struct cl_mount *m)
{
    struct sigaction wake = { .sa_handler = on_wake }; /* without SA_RESTART: it has to interrupt */
    pthread_t thread;
    int rc;
    loop_thread = pthread_self();
    sigaction(WAKE_SIGNAL, &wake, NULL);
    rc = pthread_create(&thread, NULL, signals_main, m);
    if (rc != 0)
        return -rc;
    pthread_detach(thread);
    return 0;
}
