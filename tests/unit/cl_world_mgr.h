/* What lasting requests (cl_world_lasting.c) ask of the model of the manager (cl_world_mgr.c). Any thread. */
#ifndef TESTS_CL_WORLD_MGR_H
#define TESTS_CL_WORLD_MGR_H

#include "tests/unit/cl_world.h"

/* 0 and the reply, the caller's to free, or an error. */
int world_mgr_execute(uint32_t session, uint32_t type, const ProtobufCMessage *msg, ProtobufCMessage **reply);
/* Takes one of a fault that is to happen so many times; false if none is left. */
bool world_take_one(atomic_int *n);

#endif
