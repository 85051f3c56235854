/* close(2) of descriptors that are none of the kernel's (fds.h). Called by the program under test, on any thread of a harness. */
#include "tests/fuzz/fds.h"

int (*fuzz_close)(int fd);

int __real_close(int fd);
int __wrap_close(int fd);

int __wrap_close(int fd)
{
    return fd < FUZZ_FIRST_FD ? __real_close(fd) : fuzz_close(fd);
}
