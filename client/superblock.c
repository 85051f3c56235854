/*
 * The end of the connection to the kernel has several reasons, and read(2) says ENODEV (ECONNABORTED if it was just copying a request) for each: the file system is gone, or the connection was aborted
 * (umount -f, /sys/fs/fuse/connections/N/abort) while programs have files open. Only the former says that nothing is open any more. Nor does the mountpoint tell: a file system
 * that was unmounted lazily, or is mounted in another namespace as well, goes on without it.
 *
 * What goes with the superblock, and not before, is its entry below /sys/class/bdi, named by its device. The number of a device is given again, so the entry is known by its
 * inode. Sysfs is there in containers, too. It is a moment later than the end of the connection, hence the wait.
 *
 * Rejected: the entry below /sys/fs/fuse/connections, a file system that is often not mounted; FUSE_ABORT_ERROR, which says nothing of umount -f; inotify's IN_UNMOUNT, for which
 * this process would have to ask itself for the root's attributes.
 */
#include "client/superblock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/shutdown.h"
#include "fp/clock.h"

#define STEP_US 1000u

static struct {
    char entry[48];
    ino_t ino;   /* of the entry; 0: not known */
    bool stays;  /* it was waited for already */
} mounted;

/* As in /proc/self/mountinfo: \040 is a space. In place. */
static void unescape(char *s)
{
    char *to = s;
    for (; *s; s++) {
        unsigned c;
        if (*s == '\\' && sscanf(s + 1, "%3o", &c) == 1) {
            *to++ = (char)c;
            s += 3;
        } else {
            *to++ = *s;
        }
    }
    *to = '\0';
}

/* Of the topmost mount on exactly this path. */
static bool device_of(const char *mountpoint, unsigned *major, unsigned *minor)
{
    FILE *f = fopen("/proc/self/mountinfo", "re");
    char *line = NULL, *path;
    size_t cap = 0;
    unsigned maj, min;
    bool found = false;
    while (f && getline(&line, &cap, f) > 0) {
        if (sscanf(line, "%*d %*d %u:%u %*s %ms", &maj, &min, &path) != 3)
            continue;
        unescape(path);
        if (strcmp(path, mountpoint) == 0) {
            *major = maj;
            *minor = min;
            found = true;
        }
        free(path);
    }
    free(line);
    if (f)
        fclose(f);
    return found;
}

void cl_superblock_mounted(const char *mountpoint)
{
    unsigned major, minor;
    struct stat st;
    mounted.ino = 0;
    if (!device_of(mountpoint, &major, &minor))
        return;
    snprintf(mounted.entry, sizeof mounted.entry, "/sys/class/bdi/%u:%u", major, minor);
    if (stat(mounted.entry, &st) == 0)
        mounted.ino = st.st_ino;
}

bool cl_superblock_gone(uint32_t wait_ms)
{
    uint64_t until_ms = fp_now_ms() + wait_ms;
    struct stat st;
    if (mounted.ino == 0)
        return false;
    while (stat(mounted.entry, &st) == 0 && st.st_ino == mounted.ino) {
        mounted.stays |= fp_now_ms() >= until_ms;
        if (mounted.stays || cl_shutdown_hurried())
            return false;
        usleep(STEP_US);
    }
    return true;
}
