# MPI programs that the tests and quickstart run: each folder is one program,
# $(B)/apps/<folder>, made of its *.c; so is each .c file that lies here.
# They are ordinary applications: nothing of fpstore is linked into them.
APP_DIRS  := $(patsubst tests/apps/%/,%,$(sort $(wildcard tests/apps/*/)))
APP_DIRS  := $(foreach a,$(APP_DIRS),$(if $(wildcard tests/apps/$(a)/*.c),$(a)))
APP_FILES := $(patsubst tests/apps/%.c,%,$(sort $(wildcard tests/apps/*.c)))
APPS      := $(addprefix $(B)/apps/,$(APP_DIRS) $(APP_FILES))

HDF5_FLAGS = $(shell $(PKG_CONFIG) --cflags --libs hdf5-openmpi 2>/dev/null || echo -lhdf5)
APP_CFLAGS = -std=gnu11 -O2 -g -D_GNU_SOURCE= $(WARN)
app_cc = mkdir -p $(@D) && $(MPICC) $(APP_CFLAGS) -o $@ $(filter %.c,$^) $(HDF5_FLAGS) -lm -Wl,--as-needed

define app_rule
$(B)/apps/$(1): $(2) $(3)
	$$(call say,MPICC,$$@)$$(app_cc)
endef
$(foreach a,$(APP_DIRS),$(eval $(call app_rule,$(a),$(wildcard tests/apps/$(a)/*.c),$(wildcard tests/apps/$(a)/*.h))))
$(foreach a,$(APP_FILES),$(eval $(call app_rule,$(a),tests/apps/$(a).c,)))
