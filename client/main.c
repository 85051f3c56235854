/*
 * fp-mount: the FUSE client of a node.
 *
 * Order of start: options, namespace, mountpoint, fork, signals, core loop (session with the manager), data path (pool),
 * mount, FUSE loop. Each step says in one line what is wrong, and the process ends; nothing is taken back in
 * detail, but that the manager is told goodbye. Exit codes: 0 ended cleanly, 1 failed to start, lost data, or was unmounted under an agent of fp-job, 2 wrong use. Order of end: the loop
 * has ended because the mount is gone (umount, fusermount3 -u) or because shutdown.c ended it; requests that
 * wait for the manager are answered, the pool is written out, what was closed and never released is released, the session says goodbye.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "client/aux/aux.h"
#include "client/client.h"
#include "client/core.h"
#include "client/daemon.h"
#include "client/data.h"
#include "client/early.h"
#include "client/fuse_session.h"
#include "client/inode.h"
#include "client/locks.h"
#include "client/mountpoint.h"
#include "client/ops/ops.h"
#include "client/shutdown.h"
#include "client/superblock.h"
#include "fp/clock.h"
#include "fp/err.h"
#include "fp/fault.h"
#include "fp/jobsignals.h"
#include "fp/log.h"
#include "fp/namespace.h"
#include "fp/readyfd.h"

#define END_SYNC_MS   30000u
#define HURRY_SYNC_MS 2000u
#define GONE_MS       10000u /* for a manager that is away */
#define LEFT_MS       3000u  /* for the kernel to take the file system apart, which has many names perhaps */

static struct cl_mount mount_; /* one per process; static, so that leak checkers see what hangs on it */

/* The pool, sockets and segments need more than the usual 1024. */
static void raise_limits(void)
{
    struct rlimit r;
    if (getrlimit(RLIMIT_NOFILE, &r) == 0 && r.rlim_cur < r.rlim_max) {
        r.rlim_cur = r.rlim_max;
        setrlimit(RLIMIT_NOFILE, &r);
    }
}

static int prepare(struct cl_mount *m, int argc, char **argv)
{
    const char *wrong;
    int rc;

    fp_log_init("fp-mount", FP_LOG_INFO);
    cl_options_parse(&m->opt, argc, argv);
    fp_log_set_level((enum fp_log_level)m->opt.log_level);
    fp_fault_init();
    if (fp_ready_check((int)m->opt.ready_fd) < 0) {
        FP_ERROR("--ready-fd %d is not open for writing", (int)m->opt.ready_fd);
        return -EBADF;
    }
    wrong = cl_options_contradiction(&m->opt);
    if (wrong) {
        FP_ERROR("%s", wrong);
        return -EINVAL;
    }
    raise_limits();
    if (m->opt.namespace_dir && (rc = fp_namespace_enter(m->opt.namespace_dir))) { /* while there is one thread */
        FP_ERROR("--namespace=%s: %s: name a directory as /proc/PID/ns, of a process of yours with a user namespace", m->opt.namespace_dir, fp_strerror(rc));
        return rc;
    }
    return cl_mountpoint_check(&m->opt);
}

/* The manager knows us: from here on it is told if this fails. */
static int start_rest(struct cl_mount *m)
{
    int rc = cl_data_start(m);
    if (rc == 0)
        rc = cl_aux_start(m, cl_data_pool(m));
    if (rc < 0)
        return rc;
    cl_core_data_started(m);
    cl_daemon_mounting();
    rc = cl_fuse_mount(m);
    if (rc == 0)
        rc = cl_shutdown_start(m);
    return rc;
}

static int start(struct cl_mount *m)
{
    int rc = 0;
    if (!m->opt.foreground)
        rc = cl_daemon_fork();
    if (rc < 0) {
        FP_ERROR("cannot go into the background: %s", fp_strerror(rc));
        return rc;
    }
    if (m->opt.log_file && (rc = cl_daemon_log_to(m->opt.log_file)) < 0)
        return rc;
    if (m->opt.ignore_term)
        fp_job_signals_ignore(true);
    cl_shutdown_block_signals();
    cl_cores_tell(&m->opt);
    rc = cl_itable_new(&m->inodes);
    if (rc == 0)
        rc = cl_data_new(m);
    if (rc == 0)
        rc = cl_locks_new(m);
    if (rc == 0)
        rc = cl_core_start(m);
    if (rc < 0)
        return rc;
    rc = start_rest(m);
    if (rc < 0)
        cl_core_say_bye(m);
    return rc;
}

/* The loop has ended: see the top of the file. */
static int finish(struct cl_mount *m)
{
    bool unmounted = cl_shutdown_unmounted();
    uint32_t limit_ms = cl_shutdown_hurried() ? HURRY_SYNC_MS : END_SYNC_MS;
    cl_mgr_limit_wait(m, limit_ms < GONE_MS ? limit_ms : GONE_MS);
    cl_mgr_fail_interruptible(m, FP_ESTOPPING);
    cl_locks_stop(m, FP_ESTOPPING);
    cl_data_end_by(m, fp_now_ms() + limit_ms);
    int rc = cl_data_sync_at_end(m, fp_now_ms() + limit_ms);
    if (rc < 0)
        FP_ERROR("not everything could be written out: %s", fp_strerror(rc));
    cl_data_late_stop(m);
    cl_op_release_left(m, cl_shutdown_forced() ? 0 : LEFT_MS);
    cl_aux_sealed_wait(m, fp_now_ms() + limit_ms);
    bool told = cl_data_give_up(m); /* before the aux-apps end, which fails what they have in hand */
    cl_fuse_close(m, !unmounted);
    cl_early_drain(m, limit_ms);
    cl_core_data_stopping(m);
    cl_aux_stop(m);
    cl_data_stop(m);
    cl_shutdown_parts_go();
    cl_core_stop(m);
    cl_itable_free(m);
    if (rc == 0 && cl_data_has_lost(m)) {
        if (!told)
            FP_ERROR("written data was lost while this was mounted, as told then: see the errors above");
        rc = -EIO;
    }
    cl_locks_free(m);
    cl_data_free(m);
    cl_aux_free(m);
    return rc;
}

int main(int argc, char **argv)
{
    struct cl_mount *m = &mount_;
    if (prepare(m, argc, argv) < 0 || start(m) < 0)
        _exit(1);
    int rc = cl_fuse_loop(m);
    bool told = cl_shutdown_asked();
    cl_shutdown_loop_ended();
    if (rc == -ECONNABORTED) /* that is ENODEV, for a thread that was just reading a request: umount -f, whether files are open or not */
        rc = 0;
    if (rc < 0 && (cl_shutdown_unmounted() || cl_superblock_gone(LEFT_MS))) /* a thread that was just reading a release may get any error */
        rc = 0;
    if (rc < 0)
        FP_ERROR("the kernel's FUSE connection failed: %s", fp_strerror(rc));
    bool taken = rc == 0 && m->opt.ignore_term && !told; /* who has started it is not told by whoever unmounts it */
    if (finish(m) < 0 || rc < 0)
        return 1;
    if (taken) {
        FP_ERROR("somebody has unmounted %s", m->opt.mountpoint);
        return 1;
    }
    FP_INFO("ended cleanly");
    return 0;
}
