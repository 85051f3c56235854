/* Processes by pid and start time (see fp/procs.h). */
#include "fp/procs.h"

#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fp/clock.h"

static uint64_t look(pid_t pid, char *state, int *parent, unsigned long long *threads)
{
    char path[64], line[1024];
    unsigned long long ticks = 0;
    FILE *f;

    *state = 'X';
    *parent = 0;
    *threads = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    f = fopen(path, "re");
    if (!f)
        return 0;
    if (fgets(line, sizeof line, f)) {
        const char *end = strrchr(line, ')'); /* the name may hold anything */

        if (!end || sscanf(end + 1, " %c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %llu %*d %llu", state, parent, threads, &ticks) != 4)
            ticks = 0;
    }
    fclose(f);
    return ticks;
}

uint64_t fp_proc_ticks(pid_t pid)
{
    unsigned long long threads;
    char state;
    int parent;
    uint64_t ticks = look(pid, &state, &parent, &threads);

    return state == 'X' || (state == 'Z' && threads <= 1) ? 0 : ticks;
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

bool fp_proc_ending(pid_t pid)
{
    unsigned long long threads;
    char state;
    int parent;

    return look(pid, &state, &parent, &threads) && state == 'Z' && threads > 1;
}

pid_t fp_proc_parent(pid_t pid)
{
    unsigned long long threads;
    char state;
    int parent;

    (void)look(pid, &state, &parent, &threads);
    return parent;
}

size_t fp_proc_children(pid_t parent, pid_t *out, size_t max)
{
    DIR *d = opendir("/proc");
    size_t n = 0;

    for (struct dirent *e; d && n < max && (e = readdir(d));) {
        pid_t pid = isdigit((unsigned char)e->d_name[0]) ? (pid_t)atoi(e->d_name) : 0;
        unsigned long long threads;
        char state;
        int of;

        if (pid > 0 && look(pid, &state, &of, &threads) && of == (int)parent)
            out[n++] = pid;
    }
    if (d)
        closedir(d);
    return n;
}
