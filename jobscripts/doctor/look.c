/*
 * What fp-job doctor finds out: Slurm's configuration from its controller, and this machine by trying (see doctor.h). Called by cmd_doctor.c; one thread.
 *
 * Every program that is asked has a limit, and a directory is first looked at by a process that can be given up, since sites have file systems that hang.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>
#include <linux/magic.h>

#include "fp/err.h"
#include "fp/fusehelper.h"
#include "fp/mountprobe.h"
#include "fp/namespace.h"
#include "fp/command.h"
#include "jobscripts/cores/coremap.h"
#include "jobscripts/doctor/doctor.h"
#include "jobscripts/jobdir.h"
#include "jobscripts/agent/trymount.h"

#define ASK_MS        5000u
#define PROBE_MS      3000
#define CONFIG_BYTES  (256u << 10)
#define PLUG_BYTES    (64u << 10)
#define BLOCK_BYTES   4096u
#define MOUNTPOINT    "/AggregateSSDstore" /* that #FP store has by default */

/* ---------------------------------------------------------------- Slurm */

static char *text_of(const char *path, size_t most)
{
    char *text = malloc(most);
    FILE *f = fopen(path, "re");
    size_t n = text && f ? fread(text, 1, most - 1, f) : 0;

    if (f)
        fclose(f);
    if (!text || !f) {
        free(text);
        return NULL;
    }
    text[n] = '\0';
    return text;
}

void doctor_slurm_look(struct doctor_slurm *out)
{
    char *const argv[] = {(char *)"scontrol", (char *)"show", (char *)"config", NULL};
    char *text = calloc(1, CONFIG_BYTES), path[PATH_MAX];

    memset(out, 0, sizeof *out);
    out->rc = text ? fp_command(argv, ASK_MS, text, CONFIG_BYTES) : -ENOMEM;
    out->config = text;
    if (out->rc == 0 && doctor_conf(out, "PlugStackConfig", path, sizeof path)[0])
        out->plugstack = text_of(path, PLUG_BYTES);
}

/* ---------------------------------------------------------------- FUSE */

/* Both ways to mount, by trying: sysctls, limits and security modules all have a say. */
static void try_mounts(struct doctor_node *n)
{
    char dir[] = "/tmp/fp-job-doctor-XXXXXX";
    struct job_mount_tried tried;
    struct fp_namespace ns;

    if (!mkdtemp(dir)) {
        n->mount_rc = n->namespace_rc = -errno;
        snprintf(n->mount_why, sizeof n->mount_why, "/tmp: %s", fp_strerror(n->mount_rc));
        snprintf(n->namespace_why, sizeof n->namespace_why, "/tmp: %s", fp_strerror(n->mount_rc));
        return;
    }
    n->mount_rc = job_try_mount(dir, &tried);
    snprintf(n->mount_why, sizeof n->mount_why, "%.100s", tried.why);
    n->fuse_minor = tried.fuse_minor;
    n->passthrough = tried.passthrough;
    n->namespace_rc = fp_namespace_make(&ns, dir, n->namespace_why, sizeof n->namespace_why);
    fp_namespace_close(&ns);
    (void)rmdir(dir);
}

static void look_at_fuse(struct doctor_node *n)
{
    char *text = text_of("/sys/module/fuse/parameters/enable_uring", 8);
    int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);

    n->device_rc = fd < 0 ? -errno : 0;
    if (fd >= 0)
        close(fd);
    n->is_root = geteuid() == 0;
    n->user_allow_other = fp_fuse_user_allow_other();
    n->helper_root = job_mount_helper(n->helper, sizeof n->helper);
    n->uring = text ? text[0] : 0;
    free(text);
    try_mounts(n);
    snprintf(n->mountpoint, sizeof n->mountpoint, "%s", MOUNTPOINT);
    n->mountpoint_taken = job_dir_taken(MOUNTPOINT);
    n->mountpoint_rc = fp_mount_probe(MOUNTPOINT, PROBE_MS);
    if (n->mountpoint_taken)
        return;
    if (n->mountpoint_rc == 0)
        n->mountpoint_rc = job_dir_mountable(MOUNTPOINT, NULL);
    else if (n->mountpoint_rc == -ENOENT && access("/", W_OK) == 0)
        n->mountpoint_rc = 0; /* fp-job makes it */
}

/* ---------------------------------------------------------------- the SSD */

/* A block into a file without a name, first as any, then past the page cache. */
static void try_writing(struct doctor_node *n)
{
    char path[PATH_MAX];
    void *block = NULL;
    int fd;

    snprintf(path, sizeof path, "%s/fp-job-doctor-XXXXXX", n->ssd);
    fd = mkostemp(path, O_CLOEXEC);
    if (fd < 0) {
        n->ssd_rc = -errno;
        return;
    }
    (void)unlink(path);
    if (posix_memalign(&block, BLOCK_BYTES, BLOCK_BYTES) != 0) {
        close(fd);
        n->ssd_rc = -ENOMEM;
        return;
    }
    memset(block, 0, BLOCK_BYTES);
    if (pwrite(fd, block, BLOCK_BYTES, 0) != (ssize_t)BLOCK_BYTES)
        n->ssd_rc = errno ? -errno : -EIO;
    else if (fcntl(fd, F_SETFL, O_DIRECT) < 0 || pwrite(fd, block, BLOCK_BYTES, BLOCK_BYTES) != (ssize_t)BLOCK_BYTES)
        n->direct_rc = errno ? -errno : -EIO;
    free(block);
    close(fd);
}

static void look_at_ssd(const char *wanted, struct doctor_node *n)
{
    char dir[PATH_MAX];
    struct statfs s;
    int rc = job_expand(dir, wanted);

    snprintf(n->ssd, sizeof n->ssd, "%.*s", (int)sizeof n->ssd - 1, dir);
    n->ssd_unset = rc == -ENOENT;
    n->ssd_rc = rc ? rc : strlen(dir) >= sizeof n->ssd ? -ENAMETOOLONG : fp_mount_probe(dir, PROBE_MS);
    if (n->ssd_rc)
        return;
    if (statfs(dir, &s) < 0) {
        n->ssd_rc = -errno;
        return;
    }
    n->ssd_magic = (uint64_t)(unsigned long)s.f_type;
    n->ssd_free_bytes = (uint64_t)s.f_bavail * (uint64_t)s.f_bsize;
    try_writing(n);
}

/* ---------------------------------------------------------------- the rest */

static void look_at_cores(struct doctor_node *n)
{
    static const struct job_cores one = {.kind = JOB_CORES_COUNT, .min = 1, .max = 1};
    static const struct job_near nothing = {.numa = -1};
    static struct job_coremap map;
    char why[JOB_COREMAP_WHY_BYTES];
    long all = sysconf(_SC_NPROCESSORS_CONF);
    hwloc_topology_t t = job_topology_here();

    n->cpus_machine = all > 0 ? (uint32_t)all : 0;
    if (!t)
        return;
    if (getenv("SLURM_STEP_ID"))
        (void)job_topology_keep_own(t); /* as the agents, which are started alike */
    if (job_coremap_choose(t, &one, &nothing, &map, why) == 0)
        snprintf(n->service, sizeof n->service, "%.100s", map.service);
    n->cores = map.cores;
    n->cpus = map.cpus;
    hwloc_topology_destroy(t);
}

static uint64_t limit_of(int resource, bool hard)
{
    struct rlimit r = {RLIM_INFINITY, RLIM_INFINITY};
    rlim_t value;

    (void)getrlimit((__rlimit_resource_t)resource, &r);
    value = hard ? r.rlim_max : r.rlim_cur;
    return value == RLIM_INFINITY ? UINT64_MAX : (uint64_t)value;
}

static void look_at_groups(struct doctor_node *n)
{
    struct statfs s;

    n->cgroup_v1 = access("/sys/fs/cgroup/cpuset", F_OK) == 0;
    n->cgroup_v2 = (statfs("/sys/fs/cgroup", &s) == 0 && s.f_type == CGROUP2_SUPER_MAGIC) || (statfs("/sys/fs/cgroup/unified", &s) == 0 && s.f_type == CGROUP2_SUPER_MAGIC);
}

/* By another program: the resolver of a node with a bad resolv.conf takes half a minute. */
static void look_for_first(const char *first, struct doctor_node *n)
{
    char out[256];
    char *const argv[] = {(char *)"getent", (char *)"ahosts", (char *)(uintptr_t)first, NULL};

    snprintf(n->first, sizeof n->first, "%s", first);
    if (first[0])
        n->first_rc = fp_command(argv, ASK_MS, out, sizeof out);
}

void doctor_node_look(const struct doctor_node_wants *w, struct doctor_node *out)
{
    struct utsname u;

    memset(out, 0, sizeof *out);
    if (uname(&u) == 0)
        snprintf(out->kernel, sizeof out->kernel, "%s", u.release);
    snprintf(out->version, sizeof out->version, "%s", FP_VERSION);
    look_at_fuse(out);
    look_at_ssd(w->ssd, out);
    look_at_cores(out);
    look_at_groups(out);
    look_for_first(w->first, out);
    out->nofile = limit_of(RLIMIT_NOFILE, true);
    out->memlock = limit_of(RLIMIT_MEMLOCK, true);
    out->nproc = limit_of(RLIMIT_NPROC, false);
}
