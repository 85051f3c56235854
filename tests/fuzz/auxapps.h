/*
 * Aux-apps for fuzz_auxhost. aux_plugin_load and aux_plugin_free are replaced by the linker: these are what can be declared.
 */
#ifndef TESTS_FUZZ_AUXAPPS_H
#define TESTS_FUZZ_AUXAPPS_H

#include "tests/fuzz/fuzz.h"

extern struct fuzz_in *fuzz_apps_in; /* where the input goes on */
extern uint64_t fuzz_apps_ticket;    /* the last that one of them has got */

/* A stored chunk that they and the mount speak of. */
uint64_t fuzz_apps_chunk(struct fuzz_in *in);

#endif
