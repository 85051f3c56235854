/* The manager's tables at the end of a run: see check_db.c. */
#ifndef TESTS_SIM_CHECK_DB_H
#define TESTS_SIM_CHECK_DB_H

#include "tests/sim/sim.h"

/* All files have been removed. False if the tables disagree with each other or something is left; if this is the last look, that ends the run. */
bool check_db(const struct sim_node *manager, bool last);

#endif
