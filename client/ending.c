/*
 * How a program ended that had a file open. The kernel closes what a killed process has open, and to a FUSE file system that looks like close(2); but what such a
 * process was writing is half a file, and the manager has to know (MSG_RELEASE, torn_ino), for it has kept what was there before.
 *
 * What can be known, and when:
 *
 *     before Linux 6.3    FLUSH comes from the thread that ends, which waits for the answer: /proc/TID/stat has PF_EXITING, and with which code the process ends
 *     since               FLUSH of a process that ends comes from a thread of the kernel (PF_KTHREAD, or PID 0), and nobody waits: the process is looked at by the number of
 *                         who opened or wrote last. It may be a zombie (/proc has the code), or its parent may have collected it; then a pidfd that was opened in time tells, since
 *                         Linux 6.15 (PIDFD_GET_INFO)
 *
 * A process that executes another program closes its descriptors (close-on-exec) while it holds the lock that /proc/TID/stat waits for (exec_update_lock: stat, stack, wchan, environ, maps …; with it
 * held, those of every kind of reader hang, and this answer is what it waits for). So /proc/TID/stat is read only of what has no memory any more, which is past that lock for good: a thread of the
 * kernel, or a process that ends. /proc/TID/status, which says so, takes no such lock.
 *
 * So a pidfd is kept of each process that has a file open for writing: not of each file. The table is small and forgets; who is forgotten is looked for in /proc alone. What can't be found out
 * counts as a close, as on any other file system: no file is called torn on a guess. /proc tells the code to the same user and to root, a pidfd to everybody.
 *
 * Rejected: the flag PF_SIGNALED, which threads of a process have, too, that calls exit(); process events by netlink, which are for root; to ask only the manager of resources, which
 * knows of ranks and not of files.
 *
 * Called by FUSE threads.
 */
#include "client/ending.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PLACES          256u
#define STAT_MAX        1024u
#define STATUS_MAX      16384u /* the line of groups comes before those of memory, and may be long */
#define KERNEL_THREAD   0x00200000u /* PF_KTHREAD */
#define ENDS            0x00000004u /* PF_EXITING */
#define FIELD_FLAGS     9
#define FIELD_EXIT_CODE 52

/* linux/pidfd.h of 6.15, which this may be built without. */
struct info {
    uint64_t mask, cgroup;
    uint32_t pid, tgid, ppid, ids[8];
    int32_t exit_code;
};
#define GET_INFO  _IOWR(0xFF, 11, struct info)
#define INFO_EXIT 8u

_Static_assert(sizeof(struct info) == 64, "as the kernel has it: PIDFD_INFO_SIZE_VER0");

struct place {
    int32_t tid, pid;
    int fd; /* -1: none */
};

static struct {
    pthread_mutex_t lock;
    struct place place[PLACES];
} table = {.lock = PTHREAD_MUTEX_INITIALIZER};

static size_t read_text(const char *path, char *buf, size_t room)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, buf, room - 1);
    if (fd >= 0)
        close(fd);
    buf[n > 0 ? n : 0] = '\0';
    return n > 0 ? (size_t)n : 0;
}

/* Flags and exit code; false: there is no such thread. */
static bool stat_of(int32_t tid, unsigned long *flags, int *code)
{
    char path[40], text[STAT_MAX], *at;
    snprintf(path, sizeof path, "/proc/%d/stat", tid);
    if (!read_text(path, text, sizeof text) || !(at = strrchr(text, ')'))) /* a name may have brackets in it */
        return false;
    *flags = 0;
    *code = 0;
    at = strchr(at, ' ');
    for (int field = 3; at && field <= FIELD_EXIT_CODE; field++, at = strchr(at + 1, ' ')) {
        if (field == FIELD_FLAGS)
            *flags = strtoul(at + 1, NULL, 10);
        else if (field == FIELD_EXIT_CODE)
            *code = atoi(at + 1);
    }
    return true;
}

struct who {
    int32_t process; /* of which it is a thread */
    bool lives;      /* it has memory, so it may be executing a program: its stat may not be read */
};

/* false: there is no such thread, or it may not be looked at. */
static bool who_is(int32_t tid, struct who *out)
{
    char path[40], text[STATUS_MAX], *at;
    size_t n;
    snprintf(path, sizeof path, "/proc/%d/status", tid);
    n = read_text(path, text, sizeof text);
    if (!n || !(at = strstr(text, "\nTgid:")))
        return false;
    out->process = atoi(at + 6);
    out->lives = n == sizeof text - 1 || strstr(text, "\nVmSize:") != NULL;
    return true;
}

static bool was_signal(int code)
{
    return (code & 0x7f) != 0;
}

static struct place *place_of(int32_t tid)
{
    return &table.place[(uint32_t)tid % PLACES];
}

/* table.lock held: the same process as when its pidfd was opened? Numbers are given again. */
static bool lives(const struct place *p)
{
    return p->fd >= 0 && (syscall(SYS_pidfd_send_signal, p->fd, 0, NULL, 0) == 0 || errno == EPERM);
}

void cl_ending_seen(int32_t tid)
{
    struct place *p = place_of(tid);
    struct who who;
    if (tid <= 0)
        return;
    pthread_mutex_lock(&table.lock);
    if (p->tid != tid || !lives(p)) {
        if (p->tid && p->fd >= 0)
            close(p->fd);
        p->tid = tid;
        p->pid = who_is(tid, &who) ? who.process : 0;
        p->fd = p->pid ? (int)syscall(SYS_pidfd_open, p->pid, 0) : -1; /* close-on-exec by itself */
    }
    pthread_mutex_unlock(&table.lock);
}

/* It has been collected. */
static bool told_killed(int32_t tid)
{
    struct info in = {.mask = INFO_EXIT};
    const struct place *p = place_of(tid);
    bool killed = false;
    pthread_mutex_lock(&table.lock);
    if (p->tid == tid && p->fd >= 0)
        killed = ioctl(p->fd, GET_INFO, &in) == 0 && in.mask & INFO_EXIT && was_signal(in.exit_code);
    pthread_mutex_unlock(&table.lock);
    return killed;
}

static int32_t process_seen(int32_t tid)
{
    const struct place *p = place_of(tid);
    int32_t pid;
    pthread_mutex_lock(&table.lock);
    pid = p->tid == tid && p->pid ? p->pid : tid;
    pthread_mutex_unlock(&table.lock);
    return pid;
}

/* On behalf of itself. A process that has inherited the descriptor, and closes it to execute another program, says nothing. */
static enum cl_ending by_itself(const struct who *closer, int32_t tid, int32_t user, bool killed)
{
    if (tid != user && closer->process != process_seen(user))
        return CL_ENDING_NONE;
    return killed ? CL_ENDING_KILLED : CL_ENDING_CLOSES;
}

enum cl_ending cl_ending_of(int32_t closer, int32_t user)
{
    struct who who;
    unsigned long flags;
    int code;
    if (user <= 0)
        return CL_ENDING_NONE;
    if (closer > 0 && who_is(closer, &who)) {
        if (who.lives)
            return by_itself(&who, closer, user, false);
        if (stat_of(closer, &flags, &code) && !(flags & KERNEL_THREAD))
            return by_itself(&who, closer, user, flags & ENDS && was_signal(code));
    }
    if (who_is(process_seen(user), &who) && who.lives)
        return CL_ENDING_NONE; /* it is another one that ends */
    if (!stat_of(process_seen(user), &flags, &code))
        return told_killed(user) ? CL_ENDING_KILLED : CL_ENDING_CLOSES;
    if (!(flags & ENDS))
        return CL_ENDING_NONE;
    return was_signal(code) ? CL_ENDING_KILLED : CL_ENDING_CLOSES;
}
