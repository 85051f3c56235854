/*
 * When draining holds back for what mounts do here (pace.h).
 *
 * Called by targets.c from its timer, on the loop's thread; a pure function of what it is told. Draining is work for the time in which ranks compute: as soon as more
 * than a few MiB in half a second come from mounts, data waits, and goes on a second after they have stopped. The manager's pace says the same of the whole store, but
 * later: this is what the first MiB of a checkpoint finds. Only what goes through this program is seen here: mounts of this node read through descriptors of their own,
 * which the manager hears of by themselves.
 *
 * Rejected: looking at the device's queue or at pressure stall figures. They say that draining is slow, not whom it slows.
 */
#include "benefactor/pace.h"

#define BUSY_BYTES (4u << 20)
#define WITHIN_MS  500u
#define QUIET_MS   1000u

bool bnf_pace_holds(struct bnf_pace *p, uint64_t now_ms, uint64_t bytes, uint64_t free_bytes, uint64_t capacity_bytes)
{
    uint64_t least = bytes;

    for (unsigned i = 0; i < BNF_PACE_SAMPLES; i++)
        if (p->sample[i].at_ms && p->sample[i].at_ms + WITHIN_MS >= now_ms && p->sample[i].bytes < least)
            least = p->sample[i].bytes;
    if (bytes - least > BUSY_BYTES)
        p->busy_ms = now_ms;
    p->sample[p->next].at_ms = now_ms;
    p->sample[p->next].bytes = bytes;
    p->next = (p->next + 1) % BNF_PACE_SAMPLES;
    if (free_bytes < capacity_bytes / 4)
        return false;
    return p->busy_ms && now_ms < p->busy_ms + QUIET_MS;
}
