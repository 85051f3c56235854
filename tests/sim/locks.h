/* Locks of files, as the contract has them (docs/CONSISTENCY.md, Locks): who was told that he has which. See locks.c. */
#ifndef TESTS_SIM_LOCKS_H
#define TESTS_SIM_LOCKS_H

#include "tests/sim/model.h"

#define LOCK_UNITS 16 /* a file has so many ranges that can be locked; flock takes the first of its own kind */

enum lock_kind { LOCK_FCNTL, LOCK_FLOCKED };
enum lock_mode { LOCK_FREE, LOCK_SHARED, LOCK_ALONE };

struct lock_want {
    const struct sim_proc *mount;
    uint64_t ino, owner;
    enum lock_kind kind;
    enum lock_mode mode;
    unsigned first, last; /* units, both are in it */
    unsigned losses;      /* that there had been when it was asked for: lock_begins */
};

void lock_begins(struct lock_want *w); /* asked for, or to be given back: what goes in any case */
/* It was told that it has it; ends the run where another has it. Until when the holders before have given it back: what they have written is to be seen. */
uint64_t lock_granted(const struct lock_want *w);
/* It is told that there is a circle of waits. waiting: of fcntl's locks, others than this one. */
void lock_circle(const struct lock_want *w, const struct lock_want *waiting, unsigned n);
/* This one waits, and so do those: is there a circle that nobody was told of? */
bool lock_in_circle(const struct lock_want *w, const struct lock_want *waiting, unsigned n);
void lock_closed(const struct sim_proc *m, uint64_t ino, uint64_t process, uint64_t handle); /* is about to be */

void locks_mount_lost(const struct sim_proc *m); /* it died, or its session may have ended */
void locks_power_lost(void);                     /* of the manager's node */
void locks_durable(uint64_t from_ns);            /* an fsync that began then is through */

#endif
