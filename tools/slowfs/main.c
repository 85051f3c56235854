/*
 * fp-slowfs: a directory, mounted once more as a file system on a device of known speed.
 *
 *     fp-slowfs --emulate write=85MB/s,read=85MB/s /scratch/dir /mnt/slow
 *
 * Stands for the parallel file system where there is none, and for one that is slow, hangs (stop the process), is gone (kill it),
 * or gives errors (attribute user.slowfs.fail of the mountpoint). Nothing of fpstore needs it.
 *
 * What others change in the directory is seen at once: the kernel is told to remember neither names nor attributes.
 *
 * Exit codes: 0, 1 when it could not mount, 2 for a mistake in the call.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "fp/log.h"
#include "fp/opt.h"
#include "fp/readyfd.h"
#include "tools/slowfs/slowfs.h"

struct slow_options {
    const char *source, *mountpoint, *emulate;
    int64_t threads, ready_fd;
    bool foreground;
    int log_level;
};

static struct fp_limiter_spec spec;
static char spec_why[FP_LIMITER_WHY_BUF];

static const char *check_spec(const char *text)
{
    return fp_limiter_spec(text, &spec, spec_why) ? spec_why : NULL;
}

static const struct fp_opt options[] = {
    FP_OPT_PATH(struct slow_options, source, "source", NULL, "Directory that is shown.",
                .flags = FP_OPT_POSITIONAL | FP_OPT_REQUIRED | FP_OPT_NO_FILE, .arg = "DIR"),
    FP_OPT_PATH(struct slow_options, mountpoint, "mountpoint", NULL, "Directory to mount it on.",
                .flags = FP_OPT_POSITIONAL | FP_OPT_REQUIRED | FP_OPT_NO_FILE, .arg = "MNT"),
    FP_OPT_STRING(struct slow_options, emulate, "emulate", NULL,
                  "Speed of the device: x25e, or words such as write=85MB/s,read=85MB/s,write-iops=3300,read-iops=35000. What is not "
                  "named is not limited; without the option, nothing is.",
                  .flags = FP_OPT_NO_FILE, .arg = "SPEC", .check = check_spec),
    FP_OPT_INT(struct slow_options, threads, "threads", "16", 1, 256, "Requests that are under way at a time.", .flags = FP_OPT_NO_FILE),
    FP_OPT_BOOL(struct slow_options, foreground, "foreground", "off", "Stay in the foreground.", .flags = FP_OPT_NO_FILE),
    FP_OPT_READY_FD(struct slow_options, ready_fd),
    FP_OPT_LOG_LEVEL(struct slow_options, log_level),
    FP_OPT_END,
};

static const struct fp_opt_table table = {
    .prog = "fp-slowfs",
    .section = NULL,
    .summary = "Mount a directory once more, as slow as a device of known speed.",
    .opts = options,
};

static void on_init(void *arg, struct fuse_conn_info *conn)
{
    struct slow_fs *fs = arg;

    conn->max_background = 64;
    conn->time_gran = 1;
    fp_ready_write(fs->ready_fd, fs->mountpoint);
}

/* Below the source the mount would show itself, and wait for itself. */
static bool is_below(const char *path, const char *dir)
{
    size_t len = strlen(dir);

    return strncmp(path, dir, len) == 0 && (path[len] == '/' || (len == 1 && path[1]));
}

static int open_source(struct slow_fs *fs, const struct slow_options *o)
{
    static char mountpoint[PATH_MAX];
    char source[PATH_MAX];
    struct stat st;

    fs->root.fd = open(o->source, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fs->root.fd < 0 || fstat(fs->root.fd, &st) < 0 || !realpath(o->source, source)) {
        FP_ERROR("cannot show %s: %s", o->source, strerror(errno));
        return -1;
    }
    fs->root.dev = st.st_dev;
    fs->root.ino = st.st_ino;
    if (!realpath(o->mountpoint, mountpoint)) {
        FP_ERROR("cannot mount on %s: %s", o->mountpoint, strerror(errno));
        return -1;
    }
    if (is_below(mountpoint, source)) {
        FP_ERROR("%s lies below %s and would show itself: mount somewhere else", mountpoint, source);
        return -1;
    }
    fs->mountpoint = mountpoint;
    return 0;
}

static struct fuse_session *session(struct slow_fs *fs)
{
    struct fuse_lowlevel_ops ops = {.init = on_init};
    struct fuse_args args = FUSE_ARGS_INIT(0, NULL);
    struct fuse_session *se = NULL;
    int rc = fuse_opt_add_arg(&args, "fp-slowfs");

    slow_name_ops(&ops);
    slow_attr_ops(&ops);
    slow_io_ops(&ops);
    rc |= fuse_opt_add_arg(&args, "-ofsname=fp-slowfs,subtype=fp-slowfs,default_permissions");
    if (geteuid() == 0)
        rc |= fuse_opt_add_arg(&args, "-oallow_other");
    if (rc == 0)
        se = fuse_session_new(&args, &ops, sizeof(ops), fs);
    fuse_opt_free_args(&args);
    return se;
}

static int loop(struct fuse_session *se, int64_t threads)
{
    struct fuse_loop_config *config = fuse_loop_cfg_create();
    int rc;

    if (!config)
        return -ENOMEM;
    fuse_loop_cfg_set_clone_fd(config, 0);
    fuse_loop_cfg_set_max_threads(config, (unsigned)threads);
    fuse_loop_cfg_set_idle_threads(config, (unsigned)threads);
    rc = fuse_session_loop_mt(se, config);
    fuse_loop_cfg_destroy(config);
    return rc < 0 ? rc : 0; /* a signal is the usual end */
}

static int serve(struct slow_fs *fs, const struct slow_options *o)
{
    struct fuse_session *se = session(fs);
    int rc = -1;

    if (!se || fuse_set_signal_handlers(se) != 0)
        goto out;
    if (fuse_session_mount(se, fs->mountpoint) == 0) {
        rc = fuse_daemonize(o->foreground);
        if (rc == 0)
            rc = loop(se, o->threads);
        fuse_session_unmount(se);
    }
    fuse_remove_signal_handlers(se);
out:
    if (se)
        fuse_session_destroy(se);
    if (rc != 0)
        FP_ERROR("the mount on %s has failed", fs->mountpoint);
    return rc;
}

int main(int argc, char **argv)
{
    static struct slow_fs fs = {.lock = PTHREAD_MUTEX_INITIALIZER};
    struct slow_options o;
    struct rlimit files;
    int rc;

    fp_log_init("fp-slowfs", FP_LOG_INFO);
    fp_opt_parse_or_exit(&table, &o, argc, argv);
    fp_log_set_level((enum fp_log_level)o.log_level);
    fs.ready_fd = (int)o.ready_fd;
    if (o.ready_fd >= 0 && fp_ready_check(fs.ready_fd) != 0) {
        FP_ERROR("--ready-fd %d is not open for writing", fs.ready_fd);
        return 2;
    }
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) { /* one for each inode that the kernel knows */
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    umask(0); /* the kernel has applied the program's */
    if (open_source(&fs, &o) != 0)
        return 1;
    rc = fp_limiter_new(&spec, &fs.device, NULL);
    if (rc != 0)
        FP_ERROR("cannot make the device: %s", strerror(-rc));
    else
        rc = serve(&fs, &o);
    slow_nodes_free(&fs);
    fp_limiter_unmap(fs.device);
    close(fs.root.fd);
    return rc == 0 ? 0 : 1;
}
