# Programs of the tools: ordinary ones, nothing of fpstore is linked into them.
APPS += $(B)/apps/iobench $(B)/apps/ckptgen

$(B)/apps/iobench: tools/bench/iobench.c
	$(call say,CC,$<)mkdir -p $(@D) && $(CC) -std=gnu11 -O2 -g -D_GNU_SOURCE= $(WARN) -o $@ $< $(LDFLAGS)

# Checkpoints with a set share of duplicates (tests, benchmarks, and users who want to see what dedup finds).
$(B)/apps/ckptgen: $(wildcard tools/ckptgen/*.c) tools/ckptgen/ckptgen.h
	$(call say,MPICC,$@)mkdir -p $(@D) && $(MPICC) -std=gnu11 -O2 -g -D_GNU_SOURCE= $(WARN) -o $@ $(filter %.c,$^)
