# Programs of the tools: ordinary ones, nothing of fpstore is linked into them.
APPS += $(B)/apps/iobench

$(B)/apps/iobench: tools/bench/iobench.c
	$(call say,CC,$<)mkdir -p $(@D) && $(CC) -std=gnu11 -O2 -g -D_GNU_SOURCE= $(WARN) -o $@ $< $(LDFLAGS)
