/* Deliberate bugs, which the simulator must find (docs/SIMULATOR.md): FP_BUG("name") is true in its builds of the programs when it is told to have that bug. */
#ifndef FP_BUG_H
#define FP_BUG_H

#include <stdbool.h>

#ifdef FP_SIM
bool sim_bug(const char *name);
#define FP_BUG(name) sim_bug(name)
#else
#define FP_BUG(name) false
#endif

#endif
