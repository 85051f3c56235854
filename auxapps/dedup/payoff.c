/*
 * Whether de-duplication is worth its time (see payoff.h). Called by dedup for each chunk, under its lock.
 *
 * The share that pays is what the user says; the bytes it takes to decide are here: 64 MiB before turning off, so that a header of a file that differs
 * does not decide for its rest, and 16 MiB of samples before turning on, with twice the share, so that it does not go to and fro. The first pause is short: what
 * has begun without duplicates goes on with them more often than what has been without them for long.
 *
 * A look that never meets a second version ends after LOOK_BYTES, and the next one after twice as many: a step of a job can be larger than that. For the same reason
 * it takes ALONE_OFF_BYTES of such files to turn off: what the first step of a large node writes is alone, too.
 */
#include "payoff.h"

#define OFF_AFTER_BYTES ((uint64_t)64 << 20)
#define ON_AFTER_BYTES ((uint64_t)16 << 20)
#define FORGET_BYTES ((uint64_t)256 << 20)
#define LOOK_BYTES ((uint64_t)4 << 30)
#define LOOK_MOST_BYTES ((uint64_t)64 << 30)
#define ALONE_OFF_BYTES ((uint64_t)512 << 30)

void payoff_init(struct payoff *p, double least)
{
    *p = (struct payoff){ .least = least, .state = PAYOFF_ON };
}

bool payoff_wants(const struct payoff *p, uint64_t file_off)
{
    return p->state == PAYOFF_ON ||
           (p->state == PAYOFF_LOOKING && (p->wide || file_off / PAYOFF_RUN_BYTES % PAYOFF_RUN_OF == 0));
}

double payoff_share(const struct payoff *p)
{
    return p->compared_bytes ? (double)p->same_bytes / (double)p->compared_bytes : 0;
}

static enum payoff_change turn_on(struct payoff *p)
{
    payoff_init(p, p->least);
    return PAYOFF_TURNED_ON;
}

static enum payoff_change turn_off(struct payoff *p, uint64_t written_bytes)
{
    *p = (struct payoff){ .least = p->least, .state = PAYOFF_PAUSING, .until_bytes = written_bytes + PAYOFF_PAUSE_MIN_BYTES,
                  .pause = PAYOFF_PAUSE, .look_max_bytes = LOOK_BYTES };
    return PAYOFF_TURNED_OFF;
}

enum payoff_change payoff_goes_on(struct payoff *p, uint64_t written_bytes)
{
    if (p->state == PAYOFF_LOOKING && !p->wide && p->looked_bytes == 0 && written_bytes >= p->look_from_bytes + PAYOFF_BLIND_BYTES) {
        p->wide = true;
        return PAYOFF_LOOKS;
    }
    if (p->state != PAYOFF_PAUSING || written_bytes < p->until_bytes)
        return PAYOFF_AS_IT_WAS;
    p->state = PAYOFF_LOOKING;
    p->wide = false;
    p->look_from_bytes = written_bytes;
    p->looked_bytes = p->alone_bytes = p->compared_bytes = p->same_bytes = 0;
    return PAYOFF_LOOKS;
}

/* A look has shown nothing. */
static enum payoff_change make_pause(struct payoff *p, uint64_t written_bytes)
{
    uint64_t bytes = p->looked_bytes * p->pause;

    p->state = PAYOFF_PAUSING;
    p->until_bytes = written_bytes + (bytes > PAYOFF_PAUSE_MIN_BYTES ? bytes : PAYOFF_PAUSE_MIN_BYTES);
    if (p->looked_bytes - p->alone_bytes >= ON_AFTER_BYTES)
        p->pause = p->pause < PAYOFF_PAUSE_MAX ? 2 * p->pause : PAYOFF_PAUSE_MAX;
    else if (p->look_max_bytes < LOOK_MOST_BYTES)
        p->look_max_bytes *= 2;
    return PAYOFF_PAUSES;
}

static enum payoff_change look_note(struct payoff *p, bool first, uint64_t written_bytes)
{
    uint64_t again = p->looked_bytes - p->alone_bytes;

    if (p->compared_bytes >= ON_AFTER_BYTES && payoff_share(p) >= 2 * p->least)
        return turn_on(p);
    if ((again >= ON_AFTER_BYTES && again >= p->alone_bytes) || p->looked_bytes >= p->look_max_bytes)
        return make_pause(p, written_bytes);
    return first ? PAYOFF_LOOKS : PAYOFF_AS_IT_WAS;
}

enum payoff_change payoff_note(struct payoff *p, uint64_t looked_bytes, uint64_t same_bytes, bool alone, bool could, uint64_t written_bytes)
{
    bool first = p->looked_bytes == 0 && looked_bytes > 0;

    if (p->state == PAYOFF_PAUSING)
        return PAYOFF_AS_IT_WAS; /* it was begun before the pause */
    p->looked_bytes += looked_bytes;
    p->alone_bytes += alone ? looked_bytes : 0;
    p->compared_bytes += !alone || could ? looked_bytes : 0;
    p->same_bytes += !alone || could ? same_bytes : 0;
    if (p->state == PAYOFF_LOOKING)
        return look_note(p, first, written_bytes);
    if (same_bytes > 0 || !alone)
        p->alone_bytes = 0;
    if ((p->compared_bytes >= OFF_AFTER_BYTES && payoff_share(p) < p->least) || (p->least > 0 && p->alone_bytes >= ALONE_OFF_BYTES))
        return turn_off(p, written_bytes);
    if (p->compared_bytes > FORGET_BYTES) {
        p->compared_bytes /= 2;
        p->same_bytes /= 2;
    }
    return PAYOFF_AS_IT_WAS;
}
