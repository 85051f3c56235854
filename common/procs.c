/* Processes by pid and start time (see fp/procs.h). */
#include "fp/procs.h"

#include <stdio.h>
#include <string.h>

static uint64_t look(pid_t pid, char *state, unsigned long long *threads)
{
    char path[64], line[1024];
    unsigned long long ticks = 0;
    FILE *f;

    *state = 'X';
    *threads = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    f = fopen(path, "re");
    if (!f)
        return 0;
    if (fgets(line, sizeof line, f)) {
        const char *end = strrchr(line, ')'); /* the name may hold anything */

        if (!end || sscanf(end + 1, " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %llu %*d %llu", state, threads, &ticks) != 3)
            ticks = 0;
    }
    fclose(f);
    return ticks;
}

uint64_t fp_proc_ticks(pid_t pid)
{
    unsigned long long threads;
    char state;
    uint64_t ticks = look(pid, &state, &threads);

    return state == 'X' || (state == 'Z' && threads <= 1) ? 0 : ticks;
}

bool fp_proc_ending(pid_t pid)
{
    unsigned long long threads;
    char state;

    return look(pid, &state, &threads) && state == 'Z' && threads > 1;
}
