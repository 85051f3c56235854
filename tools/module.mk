# Programs of the tools: ordinary ones, nothing of fpstore is linked into them but the chunking that cdcbench and
# dupratio measure.
APPS += $(B)/apps/iobench $(B)/apps/appbench $(B)/apps/cdcbench $(B)/apps/ckptgen $(B)/apps/dupratio

$(B)/apps/iobench $(B)/apps/appbench: $(B)/apps/%: tools/bench/%.c
	$(call say,CC,$<)mkdir -p $(@D) && $(CC) -std=gnu11 -O2 -g -D_GNU_SOURCE= $(WARN) -o $@ $< $(LDFLAGS) -lm

# The chunking as the plugin is built: -O3.
$(B)/apps/cdcbench: tools/bench/cdcbench.c auxapps/dedup/cdc.c auxapps/dedup/cdc.h
	$(call say,CC,$<)mkdir -p $(@D) && $(CC) -std=gnu11 $(CFLAGS) $(dedup_CFLAGS) -D_GNU_SOURCE= -I . $(WARN) -o $@ $(filter %.c,$^) $(LDFLAGS)

# What dedup would find in two files: the plugin's own code, without a store.
DUPRATIO_C := tools/dupratio/dupratio.c $(patsubst %,auxapps/dedup/%.c,cdc digest index lanes pieces sha1x16 sha1x2)
$(B)/apps/dupratio: $(DUPRATIO_C) $(wildcard auxapps/dedup/*.h) include/fp/auxapp.h
	$(call say,CC,$@)mkdir -p $(@D) && $(CC) -std=gnu11 $(CFLAGS) $(dedup_CFLAGS) -D_GNU_SOURCE= -I include -I . $(WARN) -o $@ $(filter %.c,$^) $(LDFLAGS) $(call pkg_libs,$(dedup_PKGS))

# Checkpoints with a set share of duplicates (tests, benchmarks, and users who want to see what dedup finds).
$(B)/apps/ckptgen: $(wildcard tools/ckptgen/*.c) tools/ckptgen/ckptgen.h
	$(call say,MPICC,$@)mkdir -p $(@D) && $(MPICC) -std=gnu11 -O2 -g -D_GNU_SOURCE= $(WARN) -o $@ $(filter %.c,$^)

# What fp-auxhost costs: plays the mount as unit tests do.
APPS += $(B)/apps/auxchain
$(B)/apps/auxchain: tools/bench/auxchain.c tests/unit/aux_mount.c common/memfd.c tests/unit/aux_mount.h include/fp/auxwire.h include/fp/auxapp.h
	$(call say,CC,$@)mkdir -p $(@D) && $(CC) -std=gnu11 -O2 -g -D_GNU_SOURCE= $(WARN) -I include -I . -o $@ $(filter %.c,$^) -lcmocka

# How exact emulated devices are: fp-benefactor's own back ends, without a store.
APPS += $(B)/apps/devbench
DEVBENCH_C := tools/bench/devbench.c $(patsubst %,benefactor/%.c,backend backend_dir backend_memory) $(patsubst %,common/%.c,backend checksum limiter log memfd nearest record units)
$(B)/apps/devbench: $(DEVBENCH_C) benefactor/backend.h $(wildcard include/fp/*.h)
	$(call say,CC,$@)mkdir -p $(@D) && $(CC) -std=gnu11 -O2 -g -D_GNU_SOURCE= $(WARN) -I include -I . -o $@ $(filter %.c,$^) $(LDFLAGS) -lxxhash -lpthread

# Parallel I/O with IOR's command line: POSIX, MPI-IO, HDF5, PnetCDF, netCDF-4. Debian keeps the header of the parallel netCDF beside the library.
APPS += $(B)/apps/fpior
FPIOR_FLAGS = -I $(shell $(PKG_CONFIG) --variable=libdir netcdf-mpi)/netcdf/mpi/include $(shell $(PKG_CONFIG) --cflags --libs netcdf-mpi pnetcdf hdf5-openmpi)
$(B)/apps/fpior: $(wildcard tools/fpior/*.c) tools/fpior/fpior.h
	$(call say,MPICC,$@)mkdir -p $(@D) && $(MPICC) -std=gnu11 -O2 -g -ffile-prefix-map=$(CURDIR)=. -D_GNU_SOURCE= -DFP_VERSION='"$(VERSION)"' $(WARN) -o $@ $(filter %.c,$^) $(FPIOR_FLAGS) -lm

# What fp-convert is measured beside: a plain HDF5 program.
APPS += $(B)/apps/convplain
$(B)/apps/convplain: tools/bench/convplain.c
	$(call say,MPICC,$@)mkdir -p $(@D) && $(MPICC) -std=gnu11 -O2 -g -D_GNU_SOURCE= $(WARN) -o $@ $< $(shell $(PKG_CONFIG) --cflags --libs hdf5-openmpi)

# A directory on a device of known speed: the parallel file system of tests, benchmarks, and of users who have none.
LIBS  += slowfs
PROGS += fp-slowfs
slowfs_DIRS    := tools/slowfs
fp-slowfs_MAIN := tools/slowfs/main.c
fp-slowfs_LIBS := slowfs common
fp-slowfs_PKGS := fuse3

# A store that is there for all jobs: units of systemd, with the path of our programs in them.
UNITS     := fpstore-manager.service fpstore-benefactor@.service fpstore-mount.service
UNIT_DIR  ?= $(PREFIX)/lib/systemd/system
UNIT_INST  = $(DESTDIR)$(UNIT_DIR)

install: install-units
.PHONY: install-units uninstall-units
install-units:
	install -d $(UNIT_INST)
	for u in $(UNITS); do \
	  sed 's|@bindir@|$(PREFIX)/bin|' tools/systemd/$$u.in > $(UNIT_INST)/$$u && chmod 644 $(UNIT_INST)/$$u || exit 1; done

uninstall: uninstall-units
uninstall-units:
	rm -f $(UNITS:%=$(UNIT_INST)/%)

# What applications link to write process-group streams: a library of C, a module of Fortran, a module of Python.
LIBS += fpdump
fpdump_DIRS := tools/fpdump
$(O)/obj/tools/fpdump/%.o: PKG_CFLAGS += -fPIC
FPDUMP_INST = $(DESTDIR)$(PREFIX)

install: install-fpdump
.PHONY: install-fpdump uninstall-fpdump
install-fpdump: $(O)/lib/libfpdump.a
	install -d $(FPDUMP_INST)/lib $(FPDUMP_INST)/include $(FPDUMP_INST)/share/fpstore/fpdump
	install -m 644 $(O)/lib/libfpdump.a $(FPDUMP_INST)/lib
	install -m 644 tools/fpdump/fpdump.h $(FPDUMP_INST)/include
	install -m 644 tools/fpdump/fpdump.f90 tools/fpdump/fpdump.py $(FPDUMP_INST)/share/fpstore/fpdump

uninstall: uninstall-fpdump
uninstall-fpdump:
	rm -f $(FPDUMP_INST)/lib/libfpdump.a $(FPDUMP_INST)/include/fpdump.h
	rm -rf $(FPDUMP_INST)/share/fpstore/fpdump
