/* Memory files with seals (see fp/memfd.h).
 *
 * Called by fp-mount for what it shares with fp-auxhost, which runs other people's plugins: the pool, the
 * region, the status page; and for an emulated device (limiter.c). Any thread.
 *
 * A process that has a descriptor of a memory file may cut it, whatever it is mapped as, and the next access
 * of everybody else is a SIGBUS; and it may open it again for writing by /proc/self/fd/N, whatever the
 * descriptor was opened for. Seals belong to the file and can't be taken off. A file system of our own with
 * files of mode 0400 was rejected: plugins run as the user who owns them. */
#include "fp/memfd.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MFD_NOEXEC_SEAL /* Linux 6.3 */
#define MFD_NOEXEC_SEAL 0x0008U
#endif
#ifndef F_SEAL_FUTURE_WRITE /* Linux 5.1 */
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

static int add_seals(int fd, int seals)
{
    return fcntl(fd, F_ADD_SEALS, seals) < 0 ? -errno : 0;
}

int fp_memfd_new(const char *name, size_t bytes)
{
    int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
    if (fd < 0 && errno == EINVAL)
        fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return -errno;
    int rc = ftruncate(fd, (off_t)bytes) < 0 ? -errno : add_seals(fd, F_SEAL_SHRINK | F_SEAL_GROW);
    if (rc == 0)
        return fd;
    close(fd);
    return rc;
}

int fp_memfd_fixed(int fd)
{
    const int wanted = F_SEAL_SHRINK | F_SEAL_GROW;
    int seals = fcntl(fd, F_GET_SEALS);

    return seals >= 0 && (seals & wanted) == wanted ? 0 : -EINVAL;
}

int fp_memfd_no_more_writers(int fd)
{
    return add_seals(fd, F_SEAL_FUTURE_WRITE);
}

int fp_memfd_seal(int fd)
{
    return add_seals(fd, F_SEAL_SEAL);
}
