/*
 * fp-drain: writes what a benefactor keeps into one target, and reads it back. fp-benefactor starts it and gives it its descriptors (fp/drainwire.h).
 *
 * Not for people to start. It keeps nothing that is lost with it, so it ends by _exit: threads that hang in the target's file system could not be joined.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "drain/drain.h"
#include "fp/fault.h"
#include "fp/log.h"

static int inherited(void)
{
    struct stat st;

    if (fstat(FP_DW_FD_SOCKET, &st) < 0 || !S_ISSOCK(st.st_mode))
        return -EBADF;
    if (fstat(FP_DW_FD_PAGE, &st) < 0 || !S_ISREG(st.st_mode) || (size_t)st.st_size < sizeof(struct fp_dw_status))
        return -EBADF;
    return 0;
}

/* What it reads of the device and writes to the target comes after what programs do. Priority of processes: by the benefactor, at fork. */
static void be_modest(void)
{
    struct rlimit files;

    (void)syscall(SYS_ioprio_set, 1 /* IOPRIO_WHO_PROCESS */, 0, 3 << 13 /* IOPRIO_CLASS_IDLE */);
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max; /* one descriptor per segment in use */
        (void)setrlimit(RLIMIT_NOFILE, &files);
    }
    umask(022);
}

int main(int argc, char **argv)
{
    struct dr_worker *w;
    void *page;
    int rc;

    if (argc == 2 && strcmp(argv[1], "--version") == 0) {
        puts("fp-drain " FP_VERSION);
        return 0;
    }
    fp_log_init("fp-drain", FP_LOG_INFO);
    if (inherited() < 0) {
        FP_ERROR("is started by fp-benefactor alone, when files are to be drained: fpctl drain");
        return 2;
    }
    fp_fault_init();
    be_modest();
    page = mmap(NULL, sizeof(struct fp_dw_status), PROT_READ | PROT_WRITE, MAP_SHARED, FP_DW_FD_PAGE, 0);
    if (page == MAP_FAILED) {
        FP_ERROR("no status page: %s", strerror(errno));
        return 1;
    }
    w = dr_new(FP_DW_FD_SOCKET, page);
    rc = w ? dr_link_run(w) : -ENOMEM;
    if (rc < 0)
        FP_ERROR("%s", rc == -EPROTO ? "a message of fp-benefactor was not understood" : strerror(-rc));
    _exit(rc < 0 ? 1 : 0);
}
