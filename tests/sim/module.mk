# Each sim_<topic>.c is one program; other .c files here are a library for all.
TESTS_SIM := $(sort $(wildcard tests/sim/sim_*.c))
