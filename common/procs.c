/* Processes by pid and start time (see fp/procs.h). */
#include "fp/procs.h"

#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fp/clock.h"

#define EXITING 0x4u   /* PF_EXITING of the kernel's flags: so also of a zombie */
#define KILLED  0x100u /* SIGKILL in a set of signals */

/* What of a line of /proc/PID/stat is asked for; its first thread's, but for `threads`. */
struct seen {
    char state;
    int parent;
    unsigned flags;
    unsigned long long threads, ticks;
};

/* ticks is 0 where nothing was found. */
static struct seen look(pid_t pid)
{
    struct seen p = {.state = 'X'};
    char path[64], line[1024];
    FILE *f;

    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    f = fopen(path, "re");
    if (!f)
        return p;
    if (fgets(line, sizeof line, f)) {
        const char *end = strrchr(line, ')'); /* the name may hold anything */

        if (!end || sscanf(end + 1, " %c %d %*d %*d %*d %*d %u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %llu %*d %llu", &p.state, &p.parent, &p.flags,
                           &p.threads, &p.ticks) != 5)
            p.ticks = 0;
    }
    fclose(f);
    return p;
}

static bool gone(const struct seen *p)
{
    return p->ticks == 0 || p->state == 'X' || (p->state == 'Z' && p->threads <= 1);
}

uint64_t fp_proc_ticks(pid_t pid)
{
    struct seen p = look(pid);

    return gone(&p) ? 0 : p.ticks;
}

bool fp_proc_runs(pid_t pid, uint64_t ticks)
{
    return pid > 1 && ticks && fp_proc_ticks(pid) == ticks;
}

bool fp_proc_wait_gone(pid_t pid, uint64_t ticks, uint64_t limit_ms)
{
    static const struct timespec pause = {0, 20000000};

    for (uint64_t until = fp_now_ms() + limit_ms; fp_proc_runs(pid, ticks); nanosleep(&pause, NULL))
        if (fp_now_ms() >= until)
            return false;
    return true;
}

/* SIGKILL was sent to it: it stays among the signals that wait for the process until that is gone, whereas a thread takes it from its own before it ends. */
static bool killed(pid_t pid)
{
    char path[64], line[256];
    unsigned long long pending = 0;
    bool found = false;
    FILE *f;

    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    f = fopen(path, "re");
    while (f && !found && fgets(line, sizeof line, f))
        found = sscanf(line, "ShdPnd: %llx", &pending) == 1;
    if (f)
        fclose(f);
    return pending & KILLED;
}

bool fp_proc_ending(pid_t pid)
{
    struct seen p = look(pid);

    return !gone(&p) && (p.state == 'Z' || (p.flags & EXITING) || killed(pid));
}

pid_t fp_proc_parent(pid_t pid)
{
    return look(pid).parent;
}

size_t fp_proc_children(pid_t parent, pid_t *out, size_t max)
{
    DIR *d = opendir("/proc");
    size_t n = 0;

    for (struct dirent *e; d && n < max && (e = readdir(d));) {
        pid_t pid = isdigit((unsigned char)e->d_name[0]) ? (pid_t)atoi(e->d_name) : 0;

        if (pid > 0 && look(pid).parent == (int)parent)
            out[n++] = pid;
    }
    if (d)
        closedir(d);
    return n;
}
