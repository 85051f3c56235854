/*
 * Is this directory the target, and not what lies below a mount point while the target is not mounted? And no store of ours?
 *
 * A file ROOT/.fp-target says so: a line for each store that drains to here. It is made once, when the target is declared; without it nothing is written
 * there: the local disk of a node must not fill with checkpoints because the parallel file system came up late.
 * What is to be mounted where, as far as /etc/fstab knows, is looked up before (fstab.c).
 * Lines are appended whole. One that a crash has cut short is followed by a new one on a line of its own.
 *
 * Where nothing can be written, no marker is made, and the directory may be read all the same: fp/targetid.h says by what it is then known. Rejected for that:
 * the id of the file system (it differs from mount to mount with NFS and FUSE), its size (of a parallel file system it differs from node to node), the times of
 * the directory (somebody else may write there).
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <xxhash.h>

#include "drain/drain.h"
#include "fp/err.h"
#include "fp/le.h"
#include "fp/targetid.h"

#define MARKER_MAX 65536u
#define LINE_BYTES 66u /* STORE TARGET\n */
#define FUSE_MAGIC 0x65735546

static void line_of(const struct dr_worker *w, const uint8_t target[16], char out[LINE_BYTES + 1])
{
    for (int i = 0; i < 16; i++) {
        snprintf(out + 2 * i, 3, "%02x", w->store[i]);
        snprintf(out + 33 + 2 * i, 3, "%02x", target[i]);
    }
    out[32] = ' ';
    out[65] = '\n';
    out[66] = '\0';
}

/* 0: our line is there. -ENOENT: none of our store. -EEXIST: our store has another target here. *torn: the last line has no end. */
static int look(int fd, const char *line, bool *torn)
{
    char *text = calloc(1, MARKER_MAX + 1);
    ssize_t n = text ? pread(fd, text, MARKER_MAX, 0) : -1;
    int rc = !text ? -ENOMEM : n < 0 ? -errno : -ENOENT;

    for (char *at = text, *end; n > 0 && at && (end = strchr(at, '\n')); at = end + 1) {
        if ((size_t)(end - at) + 1 != LINE_BYTES || memcmp(at, line, 33))
            continue;
        rc = memcmp(at, line, LINE_BYTES) == 0 ? 0 : -EEXIST; /* the last one that says something counts */
    }
    *torn = n > 0 && text[n - 1] != '\n';
    free(text);
    return rc;
}

static int append(int root, int fd, const char *line, bool torn)
{
    char out[LINE_BYTES + 2];
    size_t len = (size_t)snprintf(out, sizeof(out), "%s%s", torn ? "\n" : "", line);

    ssize_t n = write(fd, out, len);

    if (n != (ssize_t)len)
        return n < 0 ? -errno : -ENOSPC;
    return fsync(fd) || fsync(root) ? -errno : 0;
}

/* Before a marker is made: would it be below a mount point that is not mounted? */
static int refuse_unmounted(struct dr_thread *th, int root)
{
    char link[64], path[PATH_MAX], where[PATH_MAX];
    ssize_t n;

    snprintf(link, sizeof(link), "/proc/self/fd/%d", root);
    n = readlink(link, path, sizeof(path) - 1);
    if (n <= 0)
        return 0;
    path[n] = '\0';
    if (!dr_lacks_mount("/etc/fstab", "/proc/self/mounts", path, where))
        return 0;
    return dr_fail(th, FP_DW_SCOPE_TARGET, -ENOMEDIUM, "%s is not used as a target: /etc/fstab names %s, and nothing is mounted there on this node", th->w->root, where);
}

int dr_marker(struct dr_thread *th, int root, const uint8_t target[16], bool make)
{
    static const char name[] = FP_DW_MARKER;
    char line[LINE_BYTES + 1];
    bool torn;
    int fd, rc = make ? refuse_unmounted(th, root) : 0;

    if (rc)
        return rc;
    line_of(th->w, target, line);
    rc = dr_open(th, root, name, sizeof(name) - 1, make ? O_RDWR | O_CREAT | O_APPEND : O_RDONLY, 0644, &fd);
    if (rc == 0) {
        dr_enter(th);
        rc = look(fd, line, &torn);
        if (rc == -ENOENT && make)
            rc = append(root, fd, line, torn);
        close(fd);
        dr_leave(th, 0);
    }
    if (rc == -ENOENT)
        return dr_fail(th, FP_DW_SCOPE_TARGET, -ENOMEDIUM, "%s/%s is not there: is the file system mounted on this node? (fpctl drain set makes it)", th->w->root,
                       name);
    if (rc == -EEXIST && make) /* it never was this one: waiting does not help */
        return dr_fail(th, FP_DW_SCOPE_TARGET, -EMEDIUMTYPE, "%s is a target of this store by another path (or was, before it was moved here): drain to it by that one (fpctl drain show)",
                       th->w->root);
    if (rc == -EEXIST)
        return dr_fail(th, FP_DW_SCOPE_TARGET, -ENOMEDIUM, "%s/%s names another target of this store: another file system is mounted there, or it is that target by another path", th->w->root,
                       name);
    return rc ? dr_fail(th, FP_DW_SCOPE_TARGET, rc, "%s/%s: %s", th->w->root, name, fp_strerror(rc)) : 0;
}

/* Is there a line of our store, whatever it says? */
static int has_line(struct dr_thread *th, int root, bool *has)
{
    static const char name[] = FP_DW_MARKER;
    char line[LINE_BYTES + 1];
    bool torn;
    int fd, rc = dr_open(th, root, name, sizeof(name) - 1, O_RDONLY, 0, &fd);

    *has = false;
    if (rc)
        return rc == -ENOENT ? 0 : rc;
    line_of(th->w, th->w->target, line);
    dr_enter(th);
    rc = look(fd, line, &torn);
    close(fd);
    dr_leave(th, 0);
    *has = rc == 0 || rc == -EEXIST;
    return *has || rc == -ENOENT ? 0 : rc;
}

static int unmarked_id(struct dr_thread *th, int root, uint8_t id[FP_TARGETID_BYTES])
{
    uint8_t of[16];
    struct statfs fs;
    struct stat st;
    int rc = refuse_unmounted(th, root);

    if (rc)
        return rc;
    dr_enter(th);
    rc = fstatfs(root, &fs) || fstat(root, &st) ? -errno : 0;
    dr_leave(th, 0);
    if (rc)
        return dr_fail(th, FP_DW_SCOPE_TARGET, rc, "%s: %s", th->w->root, fp_strerror(rc));
    fp_put64(of, (uint64_t)fs.f_type);
    fp_put64(of + 8, st.st_ino);
    memcpy(id, FP_TARGET_UNMARKED, 8);
    fp_put64(id + 8, XXH3_64bits(of, sizeof(of)));
    return 0;
}

int dr_unmarked(struct dr_thread *th, int root, uint8_t id[FP_TARGETID_BYTES])
{
    bool has;
    int rc = has_line(th, root, &has);

    if (rc)
        return dr_fail(th, FP_DW_SCOPE_TARGET, rc, "%s/" FP_DW_MARKER ": %s", th->w->root, fp_strerror(rc));
    return has ? -EEXIST : unmarked_id(th, root, id);
}

int dr_unmarked_is(struct dr_thread *th, int root)
{
    uint8_t id[FP_TARGETID_BYTES];
    int rc = unmarked_id(th, root, id);

    if (rc == 0 && memcmp(id, th->w->target, sizeof(id)) != 0)
        return dr_fail(th, FP_DW_SCOPE_TARGET, -ENOMEDIUM, "%s is not the directory that was staged in from before: is the file system mounted on this node?", th->w->root);
    return rc;
}

/* The type of the file system with this device, from /proc/self/mountinfo: ID PARENT MAJ:MIN ROOT MOUNTPOINT OPTIONS [...] - TYPE ... */
static bool is_fpstore(dev_t dev)
{
    FILE *f = fopen("/proc/self/mountinfo", "re");
    char *line = NULL, want[40];
    size_t cap = 0;
    bool found = false;

    snprintf(want, sizeof(want), " %u:%u ", major(dev), minor(dev));
    while (f && !found && getline(&line, &cap, f) > 0) {
        const char *type = strstr(line, " - ");

        found = type && strstr(line, want) && strncmp(type + 3, "fuse.fpstore ", 13) == 0;
    }
    free(line);
    if (f)
        fclose(f);
    return found;
}

/* What the kernel shows of itself as files. */
static bool is_kernels(unsigned long type)
{
    static const unsigned long types[] = {PROC_SUPER_MAGIC,   SYSFS_MAGIC,   CGROUP_SUPER_MAGIC, CGROUP2_SUPER_MAGIC, DEBUGFS_MAGIC, TRACEFS_MAGIC,
                                          SECURITYFS_MAGIC, DEVPTS_SUPER_MAGIC, BPF_FS_MAGIC,   EFIVARFS_MAGIC, PSTOREFS_MAGIC};

    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
        if (type == types[i])
            return true;
    return false;
}

int dr_refuse_useless(struct dr_thread *th, int root)
{
    struct statfs fs;
    struct stat st;
    int rc;

    dr_enter(th);
    rc = fstatfs(root, &fs) || fstat(root, &st) ? -errno : 0;
    dr_leave(th, 0);
    if (rc)
        return dr_fail(th, FP_DW_SCOPE_TARGET, rc, "%s: %s", th->w->root, fp_strerror(rc));
    if (is_kernels((unsigned long)fs.f_type))
        return dr_fail(th, FP_DW_SCOPE_TARGET, -EMEDIUMTYPE, "%s is a part of the kernel, which keeps no files: drain to a parallel file system or a disk", th->w->root);
    if ((unsigned long)fs.f_type != FUSE_MAGIC || !is_fpstore(st.st_dev))
        return 0;
    return dr_fail(th, FP_DW_SCOPE_TARGET, -EMEDIUMTYPE, "%s is on an fpstore: drain to a parallel file system or a disk", th->w->root);
}
