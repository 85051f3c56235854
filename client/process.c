/*
 * Where this process runs: machine, boot, mount namespace. See takes_place in the manager: a mount that dies is not
 * waited for once another one has its mountpoint, and only this tells whether two paths are one mountpoint.
 *
 * Called by mgr_link.c before each hello, on the core loop; kept nowhere, since it is read in microseconds.
 *
 * The name of the node does not do: two containers may have one name and one path, on one machine or on two. The
 * machine id alone does not either: containers made from one image may have it in common, so the manager asks for
 * an equal name too. DMI's UUID of the machine is for root only.
 */
#include "client/process.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

/* Sum of an id of hexadecimal digits in a file; 0: there is none. */
static uint64_t id_of(const char *path)
{
    char text[64];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    if (n <= 0)
        return 0;
    text[n] = '\0';
    size_t len = strspn(text, "0123456789abcdef-");
    return len >= 32 ? XXH3_64bits(text, len) : 0; /* "uninitialized" is not one */
}

void cl_process_place(Fp__Place *out)
{
    struct stat ns;
    fp__place__init(out);
    out->machine = id_of("/etc/machine-id");
    out->boot = id_of("/proc/sys/kernel/random/boot_id");
    if (stat("/proc/self/ns/mnt", &ns) == 0)
        out->mount_ns = ns.st_ino;
}
