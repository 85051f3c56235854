/*
 * Work that stands still (see fp/stall.h). Called by fpctl for a job that it waits for, and by fp-job for those that the store does by itself.
 *
 * Time counts only while somebody says that nothing goes on, and why: a part of a file may be 64 MiB, and of a target that takes 100 kB/s nothing is heard for as long as
 * that needs. It is added up, since what is tried again every few seconds looks well for a moment each time. Only more than there ever was is progress: what an attempt
 * has done is taken back when it fails, and done again by the next one.
 */
#include "fp/stall.h"

bool fp_stall_over(struct fp_stall *s, uint64_t now_ms, uint64_t done, bool stands, uint64_t limit_ms)
{
    if (s->stood && stands)
        s->still_ms += now_ms - s->look_ms;
    if (done > s->most) {
        s->most = done;
        s->still_ms = 0;
    }
    s->look_ms = now_ms;
    s->stood = stands;
    return limit_ms && stands && s->still_ms >= limit_ms;
}
