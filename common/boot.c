/*
 * Which boot of its kernel this is: manager and benefactor ask at their start, since what they have written and not synced lives as long as the kernel's page
 * cache does. The time since the boot was rejected: clocks are set, and two boots may be at the same time.
 */
#include "fp/boot.h"

#include <fcntl.h>
#include <unistd.h>
#include <xxhash.h>

uint64_t fp_boot_number(void)
{
    char boot_id[64] = "";
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, boot_id, sizeof boot_id - 1);

    if (fd >= 0)
        close(fd);
    return n > 0 ? XXH3_64bits(boot_id, (size_t)n) | 1 : 0;
}
