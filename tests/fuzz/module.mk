# Each fuzz_<name>.c is one harness; other .c files here but replay.c are a library for all. replay.c is their main() without libFuzzer.
TESTS_FUZZ := $(sort $(wildcard tests/fuzz/fuzz_*.c))

# The data path of fp-mount over the models of tests/unit/cl_world.h, whose manager answers what the input says.
$(O)/tests/fuzz/fuzz_replies: ALL_LDFLAGS += $(CL_WRAP:%=-Wl,--wrap=%) -Wl,--wrap=world_mgr_call -Wl,--wrap=world_mgr_lasting
