/* Has something stood still for too long? For who waits for work that others do, and that may be slow without being dead. No I/O, no clock. */
#ifndef FP_STALL_H
#define FP_STALL_H

#include <stdbool.h>
#include <stdint.h>

/* {0} at first. */
struct fp_stall {
    uint64_t most;    /* that was ever done */
    uint64_t still_ms; /* for so long it has stood still since then, all such times together */
    uint64_t look_ms; /* when it was looked at last; 0: never */
    bool stood;       /* it stood still then */
};

/* done: what is done by now, in any unit that only grows as work gets on. stands: whoever does it says that it does not go on. True: since there was more of it than ever
 * it has stood still for limit_ms; 0: no limit. */
bool fp_stall_over(struct fp_stall *s, uint64_t now_ms, uint64_t done, bool stands, uint64_t limit_ms);

#endif
