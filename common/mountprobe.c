/* Looking at a mount that may hang (mountprobe.h).
 *
 * Called by fp-mount and fp-store before they use a mountpoint. A mount of fpstore whose manager is away answers only after
 * a minute, and a call into it cannot be given up; so a child process makes it, and is killed when it takes too long (the
 * kernel lets go of a FUSE request whose caller is killed). statfs(2) and not stat(2): of a mount that died a moment ago
 * the kernel may still know the attributes. */
#include "fp/mountprobe.h"

#include <errno.h>
#include <sys/vfs.h>

#include "fp/limited.h"

static int look(const void *path)
{
    struct statfs st;

    return statfs(path, &st) == 0 ? 0 : -errno;
}

int fp_mount_probe(const char *path, int limit_ms)
{
    return fp_limited(look, path, (uint64_t)limit_ms);
}
