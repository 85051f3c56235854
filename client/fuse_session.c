/*
 * The FUSE session: mount options, FUSE_INIT, probing of features, threads.
 *
 * Called by main(); cl_init runs on the first FUSE thread when the kernel introduces itself, which is when
 * the mount is ready.
 *
 * What is asked of the kernel, and why:
 *   direct I/O for files (open.c)   several nodes may share a file; the page cache would make this kernel the
 * owner of its size and round writes to pages. Parallel direct writes, so that writers of one file do not
 * queue. DIRECT_IO_ALLOW_MMAP            shared mappings in spite of it (Linux 6.6; before that
 * mmap(MAP_SHARED) fails with ENODEV unless the mount has --direct-io off) DONT_MASK modes are made in one
 * place (ops/mknod.c) HANDLE_KILLPRIV_V2              set-id bits are cleared by us, as ext4 does no
 * ATOMIC_O_TRUNC               truncation is a setattr, with its permission check and its blocking no
 * WRITEBACK_CACHE, no SPLICE   see design.md: measured no POSIX_ACL                    ACLs are not kept
 *   CACHE_SYMLINKS                  a symbolic link never changes and its number is never used again
 * Access times are not kept by reading (as with noatime): a read would become a transaction of the manager.
 */
#include "client/fuse_session.h"

#define FUSE_USE_VERSION 317
#include <errno.h>
#include <fuse_lowlevel.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/client.h"
#include "client/daemon.h"
#include "client/mountpoint.h"
#include "client/notify.h"
#include "client/ops/ops.h"
#include "client/receive.h"
#include "client/shutdown.h"
#include "client/superblock.h"
#include "fp/err.h"
#include "fp/log.h"
#include "fp/readyfd.h"

#define MAX_WRITE_BYTES     (1u << 20)
#define MAX_WRITE_CAP_BYTES (4u << 20)
#define MINOR_PARALLEL      38u /* FOPEN_PARALLEL_DIRECT_WRITES: Linux 6.2 */
#define URING_SWITCH        "/sys/module/fuse/parameters/enable_uring"
#define PAGES_LIMIT         "/proc/sys/fs/fuse/max_pages_limit"

#ifndef FUSE_CAP_OVER_IO_URING /* libfuse 3.17: nothing to switch off */
#define FUSE_CAP_OVER_IO_URING 0
#endif

static char mount_words[300]; /* what libfuse said last, while mounting */
static bool mounting;

static void on_fuse_log(enum fuse_log_level level, const char *fmt, va_list ap)
{
    char line[sizeof mount_words];
    vsnprintf(line, sizeof line, fmt, ap);
    line[strcspn(line, "\n")] = '\0';
    if (mounting)
        memcpy(mount_words, line, sizeof mount_words);
    else if (level <= FUSE_LOG_ERR)
        FP_WARN("%s", line);
    else
        FP_DEBUG("%s", line);
}

/* -------------------------------------------------------------- features */

static void feature(struct cl_mount *m, unsigned *n, const char *name, const char *why_not)
{
    struct cl_feature *f = &m->features[(*n)++];
    f->name = name;
    f->in_use = !why_not;
    snprintf(f->why_not, sizeof f->why_not, "%s", why_not ? why_not : "");
}

static bool read_first(const char *path, char *buf, size_t size)
{
    FILE *f = fopen(path, "re");
    bool ok = f && fgets(buf, (int)size, f);
    if (f)
        fclose(f);
    return ok;
}

static const char *why_no_uring(const struct fuse_conn_info *conn)
{
    char text[16];
    if (!FUSE_CAP_OVER_IO_URING)
        return "this libfuse has none (3.18 has)";
    if (!read_first(URING_SWITCH, text, sizeof text))
        return "this kernel has none (Linux 6.14 has)";
    if (text[0] != 'Y' || !(conn->capable_ext & FUSE_CAP_OVER_IO_URING))
        return "switched off in this kernel (fuse.enable_uring=N)";
    return "not used: libfuse delivers no interrupts over it, and a killed program would wait for its "
           "manager";
}

/* How much one request may carry. */
static uint32_t max_write(void)
{
    char text[32];
    unsigned long pages = read_first(PAGES_LIMIT, text, sizeof text) ? strtoul(text, NULL, 10) : 0;
    uint64_t bytes = (uint64_t)pages * (uint64_t)sysconf(_SC_PAGESIZE);
    if (bytes <= MAX_WRITE_BYTES)
        return MAX_WRITE_BYTES;
    return bytes < MAX_WRITE_CAP_BYTES ? (uint32_t)bytes : MAX_WRITE_CAP_BYTES;
}

static void probe(struct cl_mount *m, const struct fuse_conn_info *conn)
{
    bool direct = m->opt.direct_io;
    unsigned n = 0;
    feature(
        m, &n, "passthrough",
        conn->capable_ext & FUSE_CAP_PASSTHROUGH
            ? "not used: data goes through the chunk pool, to be placed, summed and shared with other nodes"
            : "this kernel has none (Linux 6.9 has); not needed: data goes through the chunk pool");
    feature(m, &n, "io_uring", why_no_uring(conn));
    feature(m, &n, "large max_pages",
            conn->max_write > MAX_WRITE_BYTES
                ? NULL
                : "limit of this kernel is 1 MiB for a request (fs.fuse.max_pages_limit)");
    feature(m, &n, "parallel direct writes",
            !direct                               ? "--direct-io is off"
            : conn->proto_minor >= MINOR_PARALLEL ? NULL
                                                  : "this kernel has none (Linux 6.2 has)");
    feature(m, &n, "direct-io mmap",
            !direct ? "--direct-io is off: mappings use the page cache"
            : conn->capable_ext & FUSE_CAP_DIRECT_IO_ALLOW_MMAP
                ? NULL
                : "this kernel has none (Linux 6.6 has): shared mappings "
                  "need --direct-io off");
    feature(m, &n, "writes received into the pool",
            m->receives ? NULL : "this libfuse was built without custom I/O: what is written is copied once more");
    __atomic_store_n(&m->nfeatures, n, __ATOMIC_RELEASE);
}

/* -------------------------------------------------------------- FUSE_INIT */

static void cl_init(void *userdata, struct fuse_conn_info *conn)
{
    struct cl_mount *m = userdata;
    static const uint64_t wanted[] = {
        FUSE_CAP_DONT_MASK,       FUSE_CAP_HANDLE_KILLPRIV_V2,
        FUSE_CAP_PARALLEL_DIROPS, FUSE_CAP_DIRECT_IO_ALLOW_MMAP,
        FUSE_CAP_READDIRPLUS,     FUSE_CAP_READDIRPLUS_AUTO,
        FUSE_CAP_CACHE_SYMLINKS,  FUSE_CAP_ASYNC_DIO,
    };
    static const uint64_t locks[] = {FUSE_CAP_POSIX_LOCKS, FUSE_CAP_FLOCK_LOCKS};
    static const uint64_t unwanted[] = {
        FUSE_CAP_ATOMIC_O_TRUNC, FUSE_CAP_SPLICE_READ,     FUSE_CAP_SPLICE_WRITE,
        FUSE_CAP_SPLICE_MOVE,    FUSE_CAP_WRITEBACK_CACHE, FUSE_CAP_OVER_IO_URING,
    };
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        if (conn->capable_ext & wanted[i])
            fuse_set_feature_flag(conn, wanted[i]);
    }
    for (size_t i = 0; i < sizeof locks / sizeof *locks; i++) {
        if (m->locks && (conn->capable_ext & locks[i]))
            fuse_set_feature_flag(conn, locks[i]);
        else
            fuse_unset_feature_flag(conn, locks[i]);
    }
    for (size_t i = 0; i < sizeof unwanted / sizeof *unwanted; i++)
        fuse_unset_feature_flag(conn, unwanted[i]);
    conn->max_write = max_write();
    conn->time_gran = 1;
    conn->max_background = 128;
    m->max_write_bytes = conn->max_write;
    probe(m, conn);
    cl_notify_start(m->se);

    fp_ready_write((int)m->opt.ready_fd, m->opt.mountpoint);
    FP_INFO("mounted the store of manager %s on %s", m->opt.manager_text, m->opt.mountpoint);
    if (!cl_daemon_ready(m->opt.log_file))
        cl_shutdown_request();
}

/* -------------------------------------------------------------- mounting */

/* mount(8) passes words for itself as well; these are for the kernel. */
static bool is_kernel_word(const char *word)
{
    static const char *const words[] = {"ro",     "rw",    "suid",    "nosuid", "dev",   "nodev",   "exec",
                                        "noexec", "atime", "noatime", "sync",   "async", "dirsync", NULL};
    for (const char *const *w = words; *w; w++) {
        if (strcmp(*w, word) == 0)
            return true;
    }
    return false;
}

static int add(struct fuse_args *args, const char *option, const char *value)
{
    char text[FP_ADDR_TEXT_BUF + 32];
    snprintf(text, sizeof text, "-o%s%s", option, value);
    return fuse_opt_add_arg(args, text);
}

static int mount_args(const struct cl_options *opt, struct fuse_args *args)
{
    int rc = fuse_opt_add_arg(args, "fp-mount");
    rc |= add(args, "fsname=", opt->manager_text);
    rc |= add(args, "subtype=", "fpstore");
    rc |= add(args, "default_permissions", "");
    if (opt->allow_other)
        rc |= add(args, "allow_other", "");
    for (size_t i = 0; i < opt->mount_flags.count; i++) {
        if (is_kernel_word(opt->mount_flags.items[i]))
            rc |= add(args, opt->mount_flags.items[i], "");
    }
    return rc < 0 ? -ENOMEM : 0;
}

/* The directory below is ours to write to for as short as it can be: what programs write there is lost to them. */
static int mount_session(struct cl_mount *m)
{
    int below, rc = cl_mountpoint_open(&m->opt, &below);
    if (rc < 0) {
        snprintf(mount_words, sizeof mount_words, "its directory can't be used");
        return rc;
    }
    rc = fuse_session_mount(m->se, m->opt.mountpoint);
    cl_mountpoint_close(below);
    if (rc == 0)
        cl_superblock_mounted(m->opt.mountpoint);
    return rc;
}

int cl_fuse_mount(struct cl_mount *m)
{
    struct fuse_args args = FUSE_ARGS_INIT(0, NULL);
    struct fuse_lowlevel_ops ops;
    fuse_set_log_func(on_fuse_log);
    cl_ops_fill(&ops);
    if (!m->locks) { /* the kernel keeps them, for programs of this mount */
        ops.getlk = NULL;
        ops.setlk = NULL;
        ops.flock = NULL;
    }
    cl_ops_watch(m, &ops);
    ops.init = cl_init;
    mounting = true;
    int rc = mount_args(&m->opt, &args);
    if (rc == 0) {
        m->se = fuse_session_new(&args, &ops, sizeof ops, m);
        rc = m->se ? mount_session(m) : -EINVAL;
    }
    m->receives = rc == 0 && cl_receive_setup(m->se) == 0;
    mounting = false;
    fuse_opt_free_args(&args);
    if (rc != 0)
        FP_ERROR("cannot mount on %s: %s", m->opt.mountpoint,
                 mount_words[0] ? mount_words : "see the line before this");
    return rc != 0 ? -EIO : 0;
}

int cl_fuse_loop(struct cl_mount *m)
{
    struct fuse_loop_config *config = fuse_loop_cfg_create();
    if (!config)
        return -ENOMEM;
    fuse_loop_cfg_set_clone_fd(config, 1);
    fuse_loop_cfg_set_max_threads(config, (unsigned)m->opt.threads);
    fuse_loop_cfg_set_idle_threads(config, (unsigned)m->opt.threads);
    int rc = fuse_session_loop_mt(m->se, config);
    fuse_loop_cfg_destroy(config);
    return rc > 0 ? 0 : rc;
}

void cl_fuse_close(struct cl_mount *m, int still_mounted)
{
    cl_notify_stop(); /* the core loop goes on for a while */
    if (still_mounted)
        fuse_session_unmount(m->se);
    fuse_session_destroy(m->se);
    m->se = NULL;
}
