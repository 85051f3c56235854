/* What state the device of this benefactor is in: a state machine fed with results of disk operations. */
#ifndef BNF_HEALTH_H
#define BNF_HEALTH_H

#include <stdbool.h>
#include <stdint.h>

/* Same values as enum BnfState of the protocol. */
enum bnf_state { BNF_STATE_OK = 1, BNF_STATE_FULL = 2, BNF_STATE_READONLY = 3, BNF_STATE_FAILING = 4 };

struct bnf_health {
    enum bnf_state state;
    char text[200]; /* why it is not OK; "" if it is */
    uint64_t next_probe_ms;
};

void bnf_health_init(struct bnf_health *h);

/* An operation (its name: "write", "allocate", …) failed with rc. True: the state changed. */
bool bnf_health_failed(struct bnf_health *h, const char *what, int rc, uint64_t now_ms);

/* Shall writing be tried? At most every 2 s, and only when the device is not OK. */
bool bnf_health_probe_due(struct bnf_health *h, uint64_t now_ms);

/* Result of the probe, and what the device has left. True: the state changed. */
bool bnf_health_probed(struct bnf_health *h, int rc, uint64_t device_free_bytes, uint64_t now_ms);

/* May leases be given? */
static inline bool bnf_health_takes_data(const struct bnf_health *h)
{
    return h->state == BNF_STATE_OK;
}

#endif
