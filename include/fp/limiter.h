/* A device of known speed, where there is none: who uses it waits as long as that device would have taken.
 *
 *     t = fp_limiter_take(l, true, bytes, fp_now_ns());   the device is busy with this until t
 *     pwrite(…);                                          what is really done, meanwhile
 *     fp_limiter_wait(t);
 *
 * The device is a page of shared memory with one clock, so all processes that have mapped it share its rate.
 * It does one operation at a time: each takes max(bytes / rate, 1 / iops) of its direction. What it works
 * over any time is exact but for the last operation; there is no credit for idle time beyond FP_LIMITER_CREDIT_NS.
 *
 * Any thread, any process of the node. Nothing here blocks but fp_limiter_wait. */
#ifndef FP_LIMITER_H
#define FP_LIMITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Speed of a device; 0 = no limit. */
struct fp_limiter_spec {
    uint64_t write_bps, read_bps; /* bytes per second */
    uint64_t write_iops, read_iops;
};

/* What was done so far, by all processes. */
struct fp_limiter_count {
    uint64_t write_bytes, read_bytes;
    uint64_t writes, reads;
};

/* A sleep ends late, and whoever slept gets no processor at once; the next operation begins so much earlier. Of 10 s, it is 0.1 %. */
#define FP_LIMITER_CREDIT_NS 10000000u

/* Slower devices would make single operations outlast the deadlines of whoever waits for them. */
#define FP_LIMITER_BPS_MIN  1000000u
#define FP_LIMITER_IOPS_MIN 10u
#define FP_LIMITER_IOPS_MAX 100000000u

#define FP_LIMITER_WHY_BUF  192

/* "x25e", or words with commas between: write=175MB/s,read=250MB/s,write-iops=3300,read-iops=35000; what is
 * not named is not limited. 0, or -EINVAL with what to do in why. */
int fp_limiter_spec(const char *text, struct fp_limiter_spec *out, char why[FP_LIMITER_WHY_BUF]);

struct fp_limiter;

/* A new device. *fd (-1 if fd is NULL) is for other processes: they map it; the caller closes it. 0 or negative errno. */
int fp_limiter_new(const struct fp_limiter_spec *spec, struct fp_limiter **out, int *fd);

/* The device of another process. fd may be closed afterwards. -EINVAL: it is something else. */
int fp_limiter_map(int fd, struct fp_limiter **out);

void fp_limiter_unmap(struct fp_limiter *l); /* NULL is fine */

/* Puts an operation behind those that wait: until when (fp_now_ns) it takes. now_ns: when it came. */
uint64_t fp_limiter_take(struct fp_limiter *l, bool write, uint64_t bytes, uint64_t now_ns);

/* Sleeps until then, signals or not. */
void fp_limiter_wait(uint64_t until_ns);

struct fp_limiter_spec fp_limiter_speed(const struct fp_limiter *l);
struct fp_limiter_count fp_limiter_count(const struct fp_limiter *l);

#endif
