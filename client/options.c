/*
 * Options of fp-mount.
 *
 * Called once by main(), before any thread. There is one table; the two ways to call the program differ only
 * in which options are taken from bare arguments: `fp-mount MOUNTPOINT`, or `mount.fuse.fpstore ADDR:PORT
 * MOUNTPOINT` with the source first, as mount(8) calls its helpers. So the table is copied and the flag of
 * one line set, rather than kept twice.
 *
 * allow-other is on by default where it can be: for root. For other users it needs a line in /etc/fuse.conf,
 * which the check of the mountpoint looks at (mountpoint.c), so for them it is off unless asked for.
 */
#include "client/options.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/aux/declare.h"
#include "fp/units.h"

#define OPTS_MAX 48

static const char *const locks_names[] = {"store", "local", NULL};

const char *cl_options_close(const struct cl_options *o)
{
    return fp_close_names[o->close_mode];
}

const char *cl_options_locks(const struct cl_options *o)
{
    return locks_names[o->locks];
}

const char *cl_cores_parse(const char *text, cpu_set_t *set)
{
    const char *p = text;
    CPU_ZERO(set);
    do {
        char *end;
        if (!isdigit((unsigned char)*p))
            return "give numbers and ranges of cores, such as 0,2-5";
        unsigned long from = strtoul(p, &end, 10), to = from;
        if (*end == '-') {
            p = end + 1;
            if (!isdigit((unsigned char)*p))
                return "give numbers and ranges of cores, such as 0,2-5";
            to = strtoul(p, &end, 10);
        }
        if (from > to)
            return "a range of cores ends before it begins";
        if (to >= CPU_SETSIZE)
            return "there is no core of that number";
        for (unsigned long c = from; c <= to; c++)
            CPU_SET(c, set);
        p = end;
    } while (*p++ == ',');
    return p[-1] == '\0' ? NULL : "give numbers and ranges of cores, such as 0,2-5";
}

static const char *check_cores(const char *text)
{
    cpu_set_t set, ours;
    const char *why = cl_cores_parse(text, &set);
    if (why)
        return why;
    if (sched_getaffinity(0, sizeof ours, &ours) == 0) {
        CPU_AND(&set, &set, &ours);
        if (CPU_COUNT(&set) == 0)
            return "none of these cores may be used by this process: see taskset -p $$";
    }
    return NULL;
}

static const struct fp_opt options[] = {
    FP_OPT_MANAGER(struct cl_options, manager, FP_OPT_REQUIRED),
    FP_OPT_KEY(struct cl_options, key),
    FP_OPT_NODE(struct cl_options, node),
    FP_OPT_PATH(struct cl_options, mountpoint, "mountpoint", "/AggregateSSDstore",
                "Directory to mount the store on.", .flags = FP_OPT_POSITIONAL, .arg = "MOUNTPOINT"),
    FP_OPT_SIZE(
        struct cl_options, pool_bytes, "pool", "512MiB", FP_MIB(16), FP_TIB(4),
        "Memory for chunks that are being written or read. Allocated and locked to this size at start."),
    FP_OPT_STRING(
        struct cl_options, cores_text, "cores", NULL,
        "Service cores: checksums and device I/O run on these alone, such as 0,2-5. By default, anywhere.",
        .arg = "LIST", .check = check_cores),
    FP_OPT_LIST(
        struct cl_options, auxapps, "auxapp", NULL, FP_AUXW_APPS_MAX,
        "Run an aux-app on the service cores: its name, or the path of its plugin, and its options, such as "
        "\"dedup hash=sha1 cores=1-2\". Given again for each; data passes through them in this order.",
        .flags = FP_OPT_WHOLE, .arg = "TEXT", .check = cl_aux_decl_check),
    FP_OPT_PATH(struct cl_options, auxapp_dir, "auxapp-dir", NULL,
                "Directory with the plugins of aux-apps. By default that of this build or installation.", .arg = "DIR"),
    FP_OPT_SIZE(struct cl_options, aux_memory_bytes, "aux-memory", "1GiB", FP_MIB(64), FP_TIB(1),
                "Memory that aux-apps together may use. Beyond it their host is started again."),
    FP_OPT_SIZE(struct cl_options, aux_region_bytes, "aux-region", "64MiB", FP_MIB(36), FP_GIB(64),
                "Memory for what aux-apps make of chunks. Used only while aux-apps are declared."),
    FP_OPT_PATH(struct cl_options, auxhost, "auxhost", NULL, "The program that runs aux-apps.", .arg = "FILE",
                .flags = FP_OPT_HIDDEN),
    FP_OPT_SIZE(struct cl_options, read_ahead_bytes, "read-ahead", "16MiB", 0, FP_GIB(4),
                "How far to read ahead of a sequential reader. 0: not at all."),
    FP_OPT_CLOSE(struct cl_options, close_mode),
    FP_OPT_BOOL(
        struct cl_options, strict, "strict", "off",
        "Single-copy consistency for all files, as the attribute user.fp.strict gives it to those of a directory: a read sees every write that "
        "has returned on any node. Slower. Give it to all mounts that share the files, or to none."),
    FP_OPT_ENUM(
        struct cl_options, locks, "locks", "store", locks_names,
        "Whom locks by fcntl(2) and flock(2) exclude, and O_APPEND goes together with: programs of all mounts, or (faster, "
        "local) of this mount only, which aux-app convert can't do with."),
    FP_OPT_BOOL(
        struct cl_options, fold, "fold", "off",
        "Store pieces of files anew, in the background, when small writes into them have left chunks of which much is not in use "
        "any more: for programs that change large files in place. Not with aux-apps that take chunks."),
    FP_OPT_DURATION(
        struct cl_options, manager_timeout_ms, "manager-timeout", "60s", 100, FP_HOUR_MS(24),
        "How long an operation waits for a manager that does not answer before it fails with EIO."),
    FP_OPT_DURATION(struct cl_options, io_timeout_ms, "io-timeout", "60s", 100, FP_HOUR_MS(24),
                    "How long writing and syncing wait for benefactors and aux-apps with which nothing goes forward, before they fail with EIO. Reading of a benefactor that is away gives up after 6 s."),
    FP_OPT_DURATION(struct cl_options, start_timeout_ms, "start-timeout", "5s", 100, FP_HOUR_MS(1),
                    "How long to try to reach the manager at start."),
    FP_OPT_INT(struct cl_options, threads, "threads", "32", 2, 1024,
               "Most threads that serve requests of the kernel. Started when needed."),
    FP_OPT_INT(struct cl_options, store_threads, "store-threads", "0", 0, 256,
               "Threads for checksums and device I/O. 0: two for each service core, or 4 where none are set aside."),
    FP_OPT_BOOL(
        struct cl_options, direct_io, "direct-io", "on",
        "Bypass the kernel's page cache. Off only where programs need shared mappings on a kernel that has "
        "none for direct I/O (before Linux 6.6); writes are slower then."),
    FP_OPT_BOOL(
        struct cl_options, allow_other, "allow-other", "on",
        "Let all users of the node use the mount, by the permissions of the files. For others than root "
        "it is off by default and needs user_allow_other in /etc/fuse.conf."),
    FP_OPT_PATH(struct cl_options, namespace_dir, "namespace", NULL,
                "Mount in the user and mount namespaces that this directory has links to, as /proc/PID/ns has: no privilege and no fusermount3 is needed there, "
                "and programs see the store if they are in them, too (nsenter, fp-enter).",
                .arg = "DIR", .flags = FP_OPT_NO_FILE),
    FP_OPT_DATA_ENCRYPTION(struct cl_options, data_encryption),
    FP_OPT_BOOL(struct cl_options, foreground, "foreground", "off",
                "Stay in the foreground (-f). Otherwise the program returns when the mount can be used.",
                .flags = FP_OPT_NO_FILE),
    FP_OPT_PATH(struct cl_options, log_file, "log", NULL,
                "File to append log lines to. By default stderr, and nothing once in the background.",
                .arg = "FILE"),
    FP_OPT_READY_FD(struct cl_options, ready_fd),
    FP_OPT_IGNORE_TERM(struct cl_options, ignore_term),
    FP_OPT_LOG_LEVEL(struct cl_options, log_level),
    FP_OPT_END,
};

/* mount(8) calls mount.fuse.fpstore, or mount.fuse, which calls fpstore. */
static bool is_mount_helper(const char *argv0)
{
    const char *base = strrchr(argv0, '/');
    base = base ? base + 1 : argv0;
    return strncmp(base, "mount.", 6) == 0 || strcmp(base, "fpstore") == 0;
}

/* The table for this way of calling. */
static const struct fp_opt_table *table_for(bool helper)
{
    static struct fp_opt copy[OPTS_MAX];
    static struct fp_opt_table table = {
        .section = "mount",
        .summary = "Mount an fpstore: the aggregate store of the nodes' SSDs, as a directory.",
        .opts = copy,
        .mount_helper = true,
    };
    _Static_assert(sizeof options <= sizeof copy, "OPTS_MAX is too small");
    memcpy(copy, options, sizeof options);
    table.prog = "fp-mount";
    if (helper)
        copy[0].flags |= FP_OPT_POSITIONAL;
    return &table;
}

/* -f is --foreground. The copy stays: options point into it. */
static char **without_short(int argc, char **argv)
{
    static char foreground[] = "--foreground";
    static char **copy __attribute__((used)); /* else the compiler drops it, and the leak checker finds no pointer */
    copy = calloc((size_t)argc + 1, sizeof *copy);
    if (!copy)
        abort();
    for (int i = 0; i < argc; i++)
        copy[i] = strcmp(argv[i], "-f") == 0 ? foreground : argv[i];
    return copy;
}

/* Plugins are found from where the user is now, also once we are in the background. Where that has blanks, the whole path has to be given. */
static void absolute_plugins(struct fp_strlist *auxapps)
{
    static char text[FP_AUXW_APPS_MAX][PATH_MAX + 1024];
    char cwd[PATH_MAX];
    if (!getcwd(cwd, sizeof cwd) || strpbrk(cwd, " \t\""))
        return;
    for (size_t i = 0; i < auxapps->count && i < FP_AUXW_APPS_MAX; i++) {
        const char *item = auxapps->items[i], *slash = strchr(item, '/');
        if (!slash || slash == item || strcspn(item, " \t\"") < (size_t)(slash - item))
            continue;
        int n = snprintf(text[i], sizeof text[i], "%s/%s", cwd, item);
        if (n > 0 && (size_t)n < sizeof text[i])
            auxapps->items[i] = text[i];
    }
}

/* Which node converts a dump is decided by a lock that all mounts see: without it two convert it at once, and remove it (keep=none) while the other reads it. */
const char *cl_options_contradiction(const struct cl_options *o)
{
    for (size_t i = 0; i < o->auxapps.count; i++)
        if (o->locks == CL_LOCKS_LOCAL && cl_aux_decl_is(o->auxapps.items[i], "convert"))
            return "--auxapp=convert needs locks that hold between all mounts, and --locks=local has none: leave --locks=local out, or mount the store once more for convert, without it";
    return NULL;
}

void cl_options_parse(struct cl_options *out, int argc, char **argv)
{
    static char host[256];
    bool helper = is_mount_helper(argv[0]);
    struct fp_opts *o = fp_opt_parse_or_exit(table_for(helper), out, argc, without_short(argc, argv));

    memcpy(out->manager_text, out->manager.text, sizeof out->manager_text);
    if (!out->node || !*out->node) {
        if (gethostname(host, sizeof host - 1) != 0)
            snprintf(host, sizeof host, "localhost");
        out->node = host;
    }
    if (out->cores_text && !cl_cores_parse(out->cores_text, &out->cores))
        out->ncores = (unsigned)CPU_COUNT(&out->cores);
    absolute_plugins(&out->auxapps);
    out->mount_flags = *fp_opts_mount_flags(o);
    for (size_t i = 0; i < out->mount_flags.count; i++) {
        if (strcmp(out->mount_flags.items[i], "allow_other") == 0)
            return;
    }
    if (geteuid() != 0 && strcmp(fp_opts_source(o, "allow-other"), "default") == 0)
        out->allow_other = false;
}
