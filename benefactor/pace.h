/* When draining holds back for what mounts of this node and others do here. No I/O, no clock; one thread. */
#ifndef BNF_PACE_H
#define BNF_PACE_H

#include <stdbool.h>
#include <stdint.h>

#define BNF_PACE_SAMPLES 8u

struct bnf_pace {
    struct {
        uint64_t at_ms, bytes;
    } sample[BNF_PACE_SAMPLES];
    uint64_t busy_ms; /* when mounts were seen at work last; 0: never */
    unsigned next;
};

/*
 * Every 100 ms or so. bytes: stored and read by mounts since the start of the program. free, capacity: of the store. True: what is drained waits.
 * A store that is filling is emptied whatever else goes on: else writers would wait for what waits for them.
 */
bool bnf_pace_holds(struct bnf_pace *p, uint64_t now_ms, uint64_t bytes, uint64_t free_bytes, uint64_t capacity_bytes);

#endif
