# Each sim_<topic>.c is one program; other .c files here are a library for all.
# module/: parts of the programs that are others here. The programs, real but for these, are shared objects that sim_store loads: see docs/SIMULATOR.md.
ifeq ($(SAN),)
TESTS_SIM := $(sort $(wildcard tests/sim/sim_*.c))
endif

SIM_MODULES := manager benefactor mount drain ctl
SIM_COMMON  := $(filter-out common/transport_tls.c common/tls_ctx.c common/child.c,$(wildcard common/*.c)) tests/sim/module/tls.c tests/sim/module/child.c
SIM_SRC_manager    := $(wildcard manager/*.c) $(SIM_COMMON)
SIM_SRC_benefactor := $(wildcard benefactor/*.c) $(SIM_COMMON)
SIM_SRC_mount      := $(filter-out client/mountpoint.c client/ending.c,$(wildcard client/*.c client/data/*.c client/ops/*.c client/aux/*.c)) tests/sim/module/mountpoint.c tests/sim/module/ending.c $(SIM_COMMON)
SIM_SRC_drain      := $(filter-out drain/main.c,$(wildcard drain/*.c)) tests/sim/module/drain.c $(SIM_COMMON)
SIM_SRC_ctl        := client/ctl/link.c tests/sim/module/ctl.c $(SIM_COMMON)
SIM_PKGS_manager   := sqlite3
SIM_PROTO := $(notdir $(basename $(wildcard common/proto/*.proto)))
SIM_SO := $(SIM_MODULES:%=$(O)/tests/sim/%.so)

$(O)/simpic/%.o: %.c $(O)/flags | $(SIM_PROTO:%=$(B)/proto/%.pb-c.h)
	$(call say,CC,$<)mkdir -p $(@D) && $(CC) $(DEFS) -DFP_SIM $(INCS) $(PKG_CFLAGS) $(ALL_CFLAGS) -fPIC -MMD -MP -c -o $@ $<
$(O)/simpic/proto/%.o: $(B)/proto/%.c $(O)/flags | $(SIM_PROTO:%=$(B)/proto/%.pb-c.h)
	$(call say,CC,$<)mkdir -p $(@D) && $(CC) $(DEFS) $(INCS) $(PKG_CFLAGS) $(ALL_CFLAGS) -w -fPIC -c -o $@ $<
$(O)/simpic/manager/db.o: $(B)/proto/mgr_schema.inc

# What a program does not have itself it finds in sim_store: libc's functions that are simulated, libuv, libfuse.
define sim_module
$(O)/tests/sim/$(1).so: $(patsubst %.c,$(O)/simpic/%.o,$(SIM_SRC_$(1))) $(SIM_PROTO:%=$(O)/simpic/proto/%.pb-c.o)
	$$(call say,LINK,$$@)mkdir -p $$(@D) && $$(CC) -shared $$(ALL_LDFLAGS) -Wl,-Bsymbolic -o $$@ $$(filter %.o,$$^) \
	  $$(filter-out -luv,$$(call pkg_libs,$$(PKGS_common) $(SIM_PKGS_$(1))))
endef
$(foreach m,$(SIM_MODULES),$(eval $(call sim_module,$(m))))

$(O)/tests/sim/sim_store: private ALL_LDFLAGS += -rdynamic -Wl,--whole-archive $(O)/tests/libsim.a -Wl,--no-whole-archive
$(O)/tests/sim/sim_store: | $(SIM_SO)
-include $(wildcard $(O)/simpic/*/*.d $(O)/simpic/*/*/*.d $(O)/simpic/*/*/*/*.d)
