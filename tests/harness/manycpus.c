/*
 * Loaded before a program (LD_PRELOAD): a node seems to have other CPUs than the machine, so that what is asked of one with eight of them can be tried where
 * there are two. Which ones says a file of the node, FP_CPUS_DIR/topology, in the words of hwloc's synthetic topologies behind their number:
 * "8 pack:1 core:4 pu:2". Without it, nothing is pretended.
 *
 * A mask that is set is kept in that directory, in a file named after the thread and the time of its start, since numbers of threads are used again; the kernel
 * gets it folded onto the CPUs that there are. A thread without a file has the mask of its process, and that one's is its parent's, as they inherit it from
 * each other; nobody above has any: all CPUs.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define DEPTH 32

int sched_setaffinity(pid_t pid, size_t size, const cpu_set_t *mask);
int sched_getaffinity(pid_t pid, size_t size, cpu_set_t *mask);
int pthread_setaffinity_np(pthread_t thread, size_t size, const cpu_set_t *mask);

static size_t pretended; /* 0: none */

static const char *directory(void)
{
    const char *dir = getenv("FP_CPUS_DIR");

    return dir ? dir : "/mnt/cpus";
}

__attribute__((constructor)) static void begin(void)
{
    char path[256], line[256] = "", *words;
    FILE *f;

    snprintf(path, sizeof path, "%s/topology", directory());
    f = fopen(path, "re");
    if (!f)
        return;
    if (fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = '\0';
        pretended = strtoul(line, &words, 10);
        setenv("HWLOC_SYNTHETIC", words + strspn(words, " "), 1);
    }
    fclose(f);
}

/* Of a thread: when it started, its process, and the parent of that. False: it is gone. */
static bool look(pid_t tid, unsigned long long *start, pid_t *process, pid_t *parent)
{
    char path[64], line[1024], *end;
    int tgid = 0, ppid = 0;
    FILE *f;

    *start = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)tid);
    f = fopen(path, "re");
    if (!f)
        return false;
    if (fgets(line, sizeof line, f) && (end = strrchr(line, ')')))
        (void)sscanf(end + 2, "%*c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu", &ppid, start);
    fclose(f);
    snprintf(path, sizeof path, "/proc/%d/status", (int)tid);
    f = fopen(path, "re");
    while (f && fgets(line, sizeof line, f))
        (void)sscanf(line, "Tgid: %d", &tgid);
    if (f)
        fclose(f);
    *process = tgid;
    *parent = ppid;
    return *start && tgid;
}

static void file_of(char out[256], pid_t tid, unsigned long long start)
{
    snprintf(out, 256, "%s/%d.%llu", directory(), (int)tid, start);
}

static int keep(pid_t tid, size_t size, const cpu_set_t *mask)
{
    unsigned long long start;
    char path[256];
    pid_t process, parent;
    ssize_t n;
    int fd;

    if (!look(tid, &start, &process, &parent)) {
        errno = ESRCH;
        return -1;
    }
    file_of(path, tid, start);
    fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0)
        return -1;
    (void)fchmod(fd, 0666); /* of the daemon that sets a task's first mask, and then of the task */
    n = write(fd, mask, size);
    return close(fd) == 0 && n == (ssize_t)size ? 0 : -1;
}

int sched_setaffinity(pid_t pid, size_t size, const cpu_set_t *mask)
{
    int there = (int)sysconf(_SC_NPROCESSORS_CONF);
    pid_t tid = pid ? pid : (pid_t)syscall(SYS_gettid);
    cpu_set_t folded;

    if (!pretended)
        return syscall(SYS_sched_setaffinity, pid, size, mask) < 0 ? -1 : 0;
    CPU_ZERO(&folded);
    for (size_t i = 0; i < pretended && i < size * 8; i++)
        if (CPU_ISSET_S(i, size, mask))
            CPU_SET((int)i % there, &folded);
    if (syscall(SYS_sched_setaffinity, pid, sizeof folded, &folded) < 0)
        return -1;
    return keep(tid, size, mask);
}

/* Of the thread, or of the one that it has inherited from. 1: found; 0: nobody above has one; -1: somebody of them has ended meanwhile. */
static int inherited(pid_t tid, size_t size, cpu_set_t *mask)
{
    unsigned long long start;
    pid_t process, parent;

    for (int i = 0; tid > 1 && i < DEPTH; i++, tid = process == tid ? parent : process) {
        char path[256];
        ssize_t n = 0;
        int fd;

        if (!look(tid, &start, &process, &parent))
            return -1;
        file_of(path, tid, start);
        fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd >= 0) {
            n = read(fd, mask, size);
            close(fd);
        }
        if (n > 0)
            return 1;
    }
    return 0;
}

int sched_getaffinity(pid_t pid, size_t size, cpu_set_t *mask)
{
    pid_t tid = pid ? pid : (pid_t)syscall(SYS_gettid);
    int found = -1;

    memset(mask, 0, size);
    if (!pretended)
        return syscall(SYS_sched_getaffinity, pid, size, mask) < 0 ? -1 : 0;
    if (size * 8 < pretended) {
        errno = EINVAL; /* as the kernel: callers try again with a larger one */
        return -1;
    }
    for (int i = 0; found < 0 && i < DEPTH; i++) /* once more: who was above has ended, or the thread itself */
        found = inherited(tid, size, mask);
    if (found < 0) {
        errno = ESRCH; /* as the kernel: what has ended has no mask, least of all one of all CPUs */
        return -1;
    }
    if (found)
        return 0;
    for (size_t i = 0; i < pretended && i < size * 8; i++)
        CPU_SET_S(i, size, mask);
    return 0;
}

/* Of the calling thread alone, as all of ours call it. */
int pthread_setaffinity_np(pthread_t thread, size_t size, const cpu_set_t *mask)
{
    if (!pthread_equal(thread, pthread_self()))
        return ENOTSUP;
    return sched_setaffinity(0, size, mask) == 0 ? 0 : errno;
}
