/* The clocks. State machines never call these: they are given now_ms by the shell around them. */
#ifndef FP_CLOCK_H
#define FP_CLOCK_H

#include <stdint.h>
#include <time.h>

/* Monotonic nanoseconds since an arbitrary start; never goes back, not changed by NTP steps. */
static inline uint64_t fp_now_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* Monotonic milliseconds: for deadlines, ages, timers. */
static inline uint64_t fp_now_ms(void)
{
    return fp_now_ns() / 1000000u;
}

/* Nanoseconds since 1970, for the times of inodes. May go back when the clock is set. */
static inline int64_t fp_wall_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_REALTIME, &ts);
    return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

#endif
