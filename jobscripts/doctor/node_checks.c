/*
 * What a compute node must have for a store: a row for each thing (see doctor.h). Pure; called by cmd_doctor.c.
 *
 * "Wrong" is what keeps jobs with a store from running there, or from keeping what they have written; all else that costs something is a warning.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <linux/magic.h>

#include "fp/err.h"
#include "fp/units.h"
#include "jobscripts/doctor/doctor.h"

#define FREE_LEAST     FP_MIB(64) /* that fp-job start takes */
#define NOFILE_LEAST   4096u      /* a descriptor for each segment and each connection */
#define NPROC_LEAST    1024u
#define CLOCK_OFF_MS   1000
#define LUSTRE_MAGIC   0x0bd00bd0u
#define GPFS_MAGIC     0x47504653u
#define BEEGFS_MAGIC   0x19830326u
#ifndef CEPH_SUPER_MAGIC
#define CEPH_SUPER_MAGIC 0x00c36400
#endif

static unsigned kernel_of(const char *release)
{
    unsigned major, minor;

    return sscanf(release, "%3u.%3u", &major, &minor) == 2 ? major * 1000 + minor : 0;
}

static void judge_kernel(const struct doctor_node *n, struct doctor_answer *a)
{
    unsigned v = kernel_of(n->kernel);

    doctor_found(a, "Linux %s", n->kernel);
    if (v < 5004)
        doctor_warn(a, "Linux 6.6 or later: fpstore was not tried on one that is older than 5.4");
    else if (v < 6002)
        doctor_warn(a, "Linux 6.6 or later: with this one, programs that write one file on a node wait for each other, and files can't be mapped shared for writing");
    else if (v < 6006)
        doctor_warn(a, "Linux 6.6 or later: with this one, files can't be mapped shared for writing");
}

static void judge_device(const struct doctor_node *n, struct doctor_answer *a)
{
    doctor_found(a, "/dev/fuse: %s", n->device_rc ? fp_strerror(n->device_rc) : "can be opened");
    if (n->device_rc == -ENOENT || n->device_rc == -ENODEV || n->device_rc == -ENXIO)
        doctor_wrong(a, "load the kernel's module when nodes boot: a file in /etc/modules-load.d with the line fuse; in a container, give it the device /dev/fuse");
    else if (n->device_rc == -EACCES || n->device_rc == -EPERM)
        doctor_wrong(a, "chmod 666 /dev/fuse, by a rule of udev: KERNEL==\"fuse\", MODE=\"0666\"; in a container or a control group of devices, allow c 10:229");
    else if (n->device_rc)
        doctor_wrong(a, "see dmesg of the node: the device is there and does not open");
}

static void judge_helper(const struct doctor_node *n, struct doctor_answer *a)
{
    doctor_found(a, "%s%s%s", n->helper[0] ? n->helper : "not in PATH", n->helper[0] && !n->helper_root ? ", which does not run as root" : "", n->user_allow_other ? "; user_allow_other in /etc/fuse.conf, which jobs do not need" : "");
    if ((!n->helper[0] || !n->helper_root) && n->namespace_rc == 0)
        doctor_warn(a, "%s: without it stores are mounted in user namespaces, and seen by what fp-job run or fp-enter has started alone",
                    n->helper[0] ? "chown root: fusermount3 && chmod u+s fusermount3" : "install the package fuse3 on compute nodes");
    else if (!n->helper[0])
        doctor_wrong(a, "install the package fuse3 on compute nodes: users mount with fusermount3");
    else if (!n->helper_root)
        doctor_wrong(a, "chown root: %.100s && chmod u+s it, and no nosuid on its file system: users mount with it", n->helper);
}

static void judge_mount(const struct doctor_node *n, struct doctor_answer *a)
{
    if (n->mount_rc == 0) {
        doctor_found(a, "a file system was mounted and unmounted%s", n->is_root ? ", by root" : "");
        return;
    }
    doctor_found(a, "a file system can't be mounted: %.90s; in a user namespace: %.90s", n->mount_why[0] ? n->mount_why : fp_strerror(n->mount_rc), n->namespace_rc ? n->namespace_why : "it can");
    if (n->namespace_rc == 0)
        doctor_warn(a, "%s", n->mount_rc == -ETIMEDOUT ? "fusermount3 hangs: look for a file system on the node that does not answer (/proc/mounts)"
                                                       : "let users mount with fusermount3: what fp-job run or fp-enter has not started does not see the store else");
    else if (n->device_rc || !n->helper[0] || !n->helper_root)
        doctor_wrong(a, "mend what is said of fuse and fusermount3 first");
    else if (n->mount_rc == -ETIMEDOUT)
        doctor_wrong(a, "fusermount3 hangs: look for a file system on the node that does not answer (/proc/mounts)");
    else
        doctor_wrong(a, "try it on the node as the user: fusermount3 says what it lacks; mount_max in /etc/fuse.conf, SELinux, AppArmor and seccomp may forbid it");
}

static void judge_features(const struct doctor_node *n, struct doctor_answer *a)
{
    if (!n->fuse_minor)
        doctor_found(a, "not known: nothing could be mounted");
    else
        doctor_found(a, "FUSE 7.%u, passthrough: %s, over io_uring: %s, user namespaces: %s; fpstore needs none of these three where fusermount3 mounts", n->fuse_minor, n->passthrough ? "yes" : "no",
                     n->uring == 'Y' ? "on" : n->uring ? "off" : "no", n->namespace_rc ? "no" : "yes");
}

static void judge_mountpoint(const struct doctor_node *n, struct doctor_answer *a)
{
    if (n->mountpoint_taken && n->mountpoint_rc == -ENOTCONN) {
        doctor_found(a, "%s: a store is mounted there, and no program of it runs any more", n->mountpoint);
        doctor_wrong(a, "fp-job clean, on the node as the same user; or fusermount3 -u %s", n->mountpoint);
        return;
    }
    if (n->mountpoint_taken) {
        doctor_found(a, "%s: a store is mounted there; that of another job comes elsewhere, as $FP_MOUNT says", n->mountpoint);
        return;
    }
    doctor_found(a, "%s: %s", n->mountpoint,
                 n->mountpoint_rc == -ENOENT      ? "not there"
                 : n->mountpoint_rc == -ENOTDIR   ? "no directory"
                 : n->mountpoint_rc == -ENOTEMPTY ? "there are files in it, which a store would hide"
                 : n->mountpoint_rc               ? "users can't mount on it"
                                                  : "can be mounted on");
    if (n->mountpoint_rc == -ENOTEMPTY)
        doctor_warn(a, "move away what is in %s (ls -lA); else stores of whose files they are are mounted below /tmp, where $FP_MOUNT says", n->mountpoint);
    else if (n->mountpoint_rc)
        doctor_warn(a, "mkdir -p %s && chmod 777 %s, without a sticky bit; else stores are mounted below /tmp, where $FP_MOUNT says", n->mountpoint, n->mountpoint);
}

/* ---------------------------------------------------------------- the SSD */

struct fs_kind {
    uint64_t magic;
    const char *name;
    enum { LOCAL, MEMORY, REMOTE } kind;
};
static const struct fs_kind kinds[] = {
    {EXT4_SUPER_MAGIC, "ext4", LOCAL},  {XFS_SUPER_MAGIC, "xfs", LOCAL},         {BTRFS_SUPER_MAGIC, "btrfs", LOCAL}, {F2FS_SUPER_MAGIC, "f2fs", LOCAL},
    {OVERLAYFS_SUPER_MAGIC, "overlay", LOCAL}, {TMPFS_MAGIC, "tmpfs", MEMORY},   {RAMFS_MAGIC, "ramfs", MEMORY},      {NFS_SUPER_MAGIC, "nfs", REMOTE},
    {SMB2_SUPER_MAGIC, "smb", REMOTE},  {CEPH_SUPER_MAGIC, "ceph", REMOTE},      {LUSTRE_MAGIC, "lustre", REMOTE},    {GPFS_MAGIC, "gpfs", REMOTE},
    {BEEGFS_MAGIC, "beegfs", REMOTE},   {FUSE_SUPER_MAGIC, "FUSE", REMOTE},
};

static const struct fs_kind *kind_of(uint64_t magic)
{
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (kinds[i].magic == magic)
            return &kinds[i];
    return NULL;
}

/* Free space changes all the time, and nodes of which the same is to be said are told in one line. */
static uint64_t about(uint64_t bytes)
{
    uint64_t floor = FP_MIB(64);

    while (floor <= bytes / 2)
        floor *= 2;
    return floor;
}

static void judge_ssd(const struct doctor_node *n, struct doctor_answer *a)
{
    const struct fs_kind *k = kind_of(n->ssd_magic);
    char size[FP_UNITS_BUF];

    if (n->ssd_unset) {
        doctor_found(a, "$%s is not set on the node", n->ssd);
        doctor_wrong(a, "set it for jobs (TaskProlog of slurm.conf prints: export %s=DIRECTORY), or users write #FP store ssd=DIRECTORY; here: --ssd=DIRECTORY", n->ssd);
        return;
    }
    if (n->ssd_rc) {
        doctor_found(a, "%s: %s", n->ssd, fp_strerror(n->ssd_rc));
        doctor_wrong(a, n->ssd_rc == -ENOSPC ? "remove what fills it" : "a directory on the node's own SSD that users may write to: chmod 1777, or one for each job made by the prolog");
        return;
    }
    if (n->ssd_free_bytes < FREE_LEAST) {
        doctor_found(a, "%s: %s free", n->ssd, fp_format_size(size, n->ssd_free_bytes));
        doctor_wrong(a, "remove what fills it: the store of a job takes 64 MiB on each node at least");
        return;
    }
    doctor_found(a, "%s: %s%s, more than %s free", n->ssd, k ? k->name : "a file system of another kind", k && k->kind == MEMORY ? ", which is memory and no SSD" : "",
                 fp_format_size(size, about(n->ssd_free_bytes)));
    if (k && k->kind == REMOTE)
        doctor_wrong(a, "ssd= must be a disk of the node itself: --ssd=DIRECTORY tries another one; without any, #FP store backend=memory");
    else if (k && k->kind == MEMORY)
        doctor_warn(a, "a directory on an SSD: in this one checkpoints take the job's own memory (--mem), and are lost when the node restarts or loses power, also what was synced");
}

static void judge_direct(const struct doctor_node *n, struct doctor_answer *a)
{
    const struct fs_kind *k = kind_of(n->ssd_magic);

    if (n->ssd_unset || n->ssd_rc || n->ssd_free_bytes < FREE_LEAST) {
        doctor_found(a, "not tried");
        return;
    }
    doctor_found(a, "O_DIRECT in %s: %s", n->ssd, n->direct_rc ? fp_strerror(n->direct_rc) : "yes");
    if (n->direct_rc && !(k && k->kind == MEMORY))
        doctor_warn(a, "ext4 or xfs for ssd=: without O_DIRECT each chunk passes the page cache, and takes memory from the application");
}

/* ---------------------------------------------------------------- the rest */

static void judge_cgroups(const struct doctor_node *n, struct doctor_answer *a)
{
    doctor_found(a, "%s", n->cgroup_v1 && n->cgroup_v2 ? "v1, beside v2" : n->cgroup_v1 ? "v1" : n->cgroup_v2 ? "v2" : "none");
    if (!n->cgroup_v1 && !n->cgroup_v2)
        doctor_warn(a, "mount the control groups on /sys/fs/cgroup (systemd does so): Slurm holds jobs to their cores with them");
}

static void judge_cores(const struct doctor_node *n, struct doctor_answer *a)
{
    if (!n->cpus) {
        doctor_found(a, "hwloc can't tell them");
        doctor_wrong(a, "/sys/devices/system must be readable on the node: service cores are chosen by what it says");
        return;
    }
    doctor_found(a, "%u core%s (%u of the %u CPUs)%s%s", n->cores, n->cores == 1 ? "" : "s", n->cpus, n->cpus_machine, n->service[0] ? "; #FP cores 1 takes CPU " : "", n->service);
    if (n->cores < 2)
        doctor_warn(a, "jobs of two cores or more on each node (--exclusive: all): of this one none can be set aside for services");
}

static const char *limit(char *buf, uint64_t value, bool bytes)
{
    if (value == UINT64_MAX)
        return "no limit";
    if (bytes)
        return fp_format_size(buf, value);
    snprintf(buf, FP_UNITS_BUF, "%llu", (unsigned long long)value);
    return buf;
}

static void judge_nofile(const struct doctor_node *n, struct doctor_answer *a)
{
    char buf[FP_UNITS_BUF];

    doctor_found(a, "%s (hard limit)", limit(buf, n->nofile, false));
    if (n->nofile < NOFILE_LEAST)
        doctor_warn(a, "LimitNOFILE=65536 in slurmd's unit, and nofile in /etc/security/limits.conf of login nodes, or PropagateResourceLimitsExcept=NOFILE: at least %u", NOFILE_LEAST);
}

static void judge_memlock(const struct doctor_node *n, struct doctor_answer *a)
{
    char buf[FP_UNITS_BUF];

    doctor_found(a, "%s (hard limit)", limit(buf, n->memlock, true));
    if (n->memlock < FP_KIB(64))
        doctor_warn(a, "LimitMEMLOCK=infinity in slurmd's unit, or PropagateResourceLimitsExcept=MEMLOCK: else the store's key may come onto the swap device");
}

/* Threads count, those of the application too. */
static void judge_nproc(const struct doctor_node *n, struct doctor_answer *a)
{
    char buf[FP_UNITS_BUF];

    doctor_found(a, "%s", limit(buf, n->nproc, false));
    if (n->nproc < NPROC_LEAST && !n->is_root)
        doctor_warn(a, "nproc in /etc/security/limits.conf of login and compute nodes, or PropagateResourceLimitsExcept=NPROC in slurm.conf: at least %u; services have some 60 threads on a node, "
                       "and all of the user's there count", NPROC_LEAST);
}

static void judge_names(const struct doctor_node *n, struct doctor_answer *a)
{
    if (!n->first[0]) {
        doctor_found(a, "not tried: this machine alone is looked at");
        return;
    }
    doctor_found(a, "%s, the first node of the job: %s", n->first, n->first_rc ? "its address is not found" : "found");
    if (n->first_rc)
        doctor_wrong(a, "/etc/hosts or DNS of the node must have the names of all nodes: agents find each other by them");
}

const struct doctor_node_check doctor_node_checks[] = {
    {"kernel", judge_kernel},
    {"fuse", judge_device},
    {"fusermount3", judge_helper},
    {"mount", judge_mount},
    {"features", judge_features},
    {"mountpoint", judge_mountpoint},
    {"ssd", judge_ssd},
    {"direct-io", judge_direct},
    {"cgroups", judge_cgroups},
    {"cores", judge_cores},
    {"nofile", judge_nofile},
    {"memlock", judge_memlock},
    {"nproc", judge_nproc},
    {"names", judge_names},
    {NULL, NULL},
};

static void judge_version(const struct doctor_node *n, struct doctor_answer *a)
{
    doctor_found(a, "fpstore %s", n->version);
    if (n->asked_version && strcmp(n->asked_version, n->version) != 0)
        doctor_wrong(a, "install the same release everywhere: here it is %s", n->asked_version);
}

static void judge_clock(const struct doctor_node *n, struct doctor_answer *a)
{
    int64_t off = n->clock_off_ms < 0 ? -n->clock_off_ms : n->clock_off_ms;
    char buf[FP_UNITS_BUF];

    if (!n->clock_known || off < CLOCK_OFF_MS) {
        doctor_found(a, n->clock_known ? "within a second, as near as can be seen" : "not compared");
        return;
    }
    doctor_found(a, "%s %s at least", fp_format_duration(buf, (uint64_t)off), n->clock_off_ms < 0 ? "behind" : "ahead");
    doctor_warn(a, "run chronyd or systemd-timesyncd on all nodes: times of files, and of lines in logs, are those of nodes");
}

const struct doctor_node_check doctor_peer_checks[] = {
    {"version", judge_version},
    {"clock", judge_clock},
    {NULL, NULL},
};
