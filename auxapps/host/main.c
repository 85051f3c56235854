/*
 * fp-auxhost: runs aux-apps on service cores, for one fp-mount, which starts it and gives it its descriptors (fp/auxwire.h).
 *
 * Not for people to start. It ends when fp-mount says so or its socket ends; what it had in hand is then fp-mount's to do again.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "auxapps/host/host.h"
#include "fp/fault.h"
#include "fp/log.h"

static int inherited(void)
{
    for (int fd = FP_AUXW_FD_JOBS; fd <= FP_AUXW_FD_STATUS; fd++) {
        struct stat st;

        if (fstat(fd, &st) < 0 || S_ISSOCK(st.st_mode) != (fd == FP_AUXW_FD_JOBS || fd == FP_AUXW_FD_SERVICES))
            return -EBADF;
        if (fd == FP_AUXW_FD_STATUS && (size_t)st.st_size < sizeof(struct fp_auxw_status))
            return -EBADF;
        if (fcntl(fd, F_SETFD, FD_CLOEXEC) < 0) /* not for programs that a plugin starts */
            return -errno;
    }
    return 0;
}

int main(int argc, char **argv)
{
    static struct aux_host h = {.fd_jobs = FP_AUXW_FD_JOBS, .fd_services = FP_AUXW_FD_SERVICES};
    static struct aux_thread self;

    if (argc == 2 && strcmp(argv[1], "--version") == 0) {
        puts("fp-auxhost " FP_VERSION);
        return 0;
    }
    fp_log_init("fp-auxhost", FP_LOG_INFO);
    if (inherited() < 0) {
        FP_ERROR("is started by fp-mount alone, when aux-apps are declared: fp-mount --auxapp NAME");
        return 2;
    }
    aux_guard_init();
    fp_fault_init();
    void *p = mmap(NULL, sizeof(struct fp_auxw_status), PROT_READ | PROT_WRITE, MAP_SHARED, FP_AUXW_FD_STATUS, 0);

    if (p == MAP_FAILED) {
        FP_ERROR("no status page: %s", strerror(errno));
        return 1;
    }
    (void)madvise(p, sizeof(struct fp_auxw_status), MADV_DONTFORK);
    h.status = p;
    pthread_mutex_init(&h.jobs.lock, NULL);
    aux_services_init();
    aux_guard_status(&h);
    aux_thread_begin(&self, &h, FP_AUXW_NO_APP, -1);
    int rc = aux_svc_new(&h);

    if (rc == 0)
        rc = aux_link_run(&h);
    if (rc < 0)
        FP_ERROR("%s", rc == -EPROTO ? "a message of fp-mount was not understood" : strerror(-rc));
    aux_control_stop(&h);
    /* No destructors of plugins, whose threads may still run. */
    fflush(NULL);
    _exit(rc < 0 ? 1 : 0);
}
