/*
 * Pauses between calls on the mount (breath.h). Called by store.c before each, and by watch.c in its loop.
 *
 * umount(2) of a mount gives EBUSY while any call on it is under way, whatever is open: the kernel counts who walks a path. A coordinator that asks for thousands of files is nearly always in one, and nothing tells
 * it that somebody tries to unmount. So it asks in short passes. Rejected: to look by a mount in a namespace of its own, which would keep the store mounted after the umount, and fp-mount alive.
 */
#include <poll.h>
#include <stddef.h>

#include "convert/watch/breath.h"
#include "fp/clock.h"

void cw_breath_begin(struct cw_breath *b, bool hurry)
{
    b->since_ms = fp_now_ms();
    b->end_ms = b->paused_ms + CW_PAUSES_MS;
    b->hurry = hurry;
}

void cw_breath_take(struct cw_breath *b)
{
    struct pollfd input = {.fd = 0, .events = POLLIN};
    uint64_t now;

    if (!b || b->hurry)
        return;
    now = fp_now_ms();
    if (now - b->since_ms < CW_BUSY_MS)
        return;
    b->hurry = poll(&input, 1, (int)CW_PAUSE_MS) > 0;
    b->since_ms = fp_now_ms();
    b->paused_ms += b->since_ms - now;
    b->hurry |= b->paused_ms >= b->end_ms;
}

uint64_t cw_breath_ms(const struct cw_breath *b)
{
    return fp_now_ms() - b->paused_ms;
}
