# Each test_<module>.c is one program; other .c files here are linked into all.
TESTS_UNIT := $(sort $(wildcard tests/unit/test_*.c))
