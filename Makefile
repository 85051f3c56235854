# fpstore: one non-recursive make. `make help` lists the targets.
#
# How it is put together.  Each folder says in its module.mk what it holds: a
# library name in LIBS with <name>_DIRS (every *.c but main.c goes into it) and
# programs in PROGS with <program>_MAIN, <program>_LIBS, <program>_PKGS.  The
# rules below do the rest.  A program whose main.c is not there is not built.
#
# Variants.  One run of make builds one variant; the variant decides the
# output folder O, so that they live side by side:
#     (plain)        $(B)          what is installed
#     FAULT=1        $(B)/fault    fault points compiled in (-DFP_FAULT)
#     SAN=address    $(B)/asan     AddressSanitizer + UBSan, fault points in
#     SAN=thread     $(B)/tsan     ThreadSanitizer, fault points in
#     SAN=fuzz       $(B)/fuzz     clang with libFuzzer, AddressSanitizer + UBSan: for make fuzz, which builds no programs
# Targets that need another variant than the one asked for call make again.
#
# Only libfuse lives outside of B, in DEPS, so that all output folders share it.

B       ?= build
DEPS    ?= build/deps
SAN     ?=
V       ?=
PREFIX  ?= /usr/local
DESTDIR ?=
JOBS    ?= $(shell nproc 2>/dev/null || echo 1)
# For a make that we call: as many jobs as processors, unless the caller said -j.
J        = $(if $(findstring jobserver,$(MAKEFLAGS)),,-j$(JOBS))

VERSION       := 0.1.0
FUSE_MIN      := 3.17.2
PYTHON        ?= /usr/bin/python3
PROTOC_C      ?= protoc-c
MPICC         ?= mpicc
CLANG_FORMAT  ?= clang-format

ifeq ($(origin CC),default)
CC := gcc
endif

# --- variant ----------------------------------------------------------------

ifeq ($(SAN),address)
O         := $(B)/asan
FAULT     := 1
CFLAGS    ?= -O1 -g
SAN_FLAGS := -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer
else ifeq ($(SAN),thread)
O         := $(B)/tsan
FAULT     := 1
CFLAGS    ?= -O1 -g
SAN_FLAGS := -fsanitize=thread -fno-omit-frame-pointer
else ifeq ($(SAN),fuzz)
O         := $(B)/fuzz
FAULT     := 1
CLANG     ?= clang
CC        := $(CLANG)
CFLAGS    ?= -O2 -g
SAN_FLAGS := -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer -Wno-unknown-warning-option
# What leads the fuzzer: branches of the product, not of harnesses; comparisons only where bytes are parsed (a third of the time of the others).
COVERAGE   = $(if $(filter $(O)/obj/common/% $(O)/obj/auxapps/%,$@),-fsanitize=fuzzer-no-link,$(if $(filter $(O)/obj/tests/% $(O)/obj/proto/%,$@),, \
                  -fsanitize-coverage=inline-8bit-counters,pc-table))
else ifeq ($(SAN),)
O         := $(B)$(if $(FAULT),/fault)
CFLAGS    ?= -O2 -g
SAN_FLAGS :=
else
$(error SAN=$(SAN): use address, thread, fuzz or nothing)
endif

# --- flags ------------------------------------------------------------------

# Named in the command, since $(shell) of make < 4.4 does not see exported variables.
PKG_CONFIG := PKG_CONFIG_PATH=$(abspath $(DEPS))/libfuse/lib/pkgconfig:$$PKG_CONFIG_PATH pkg-config

# .ci/run runs with CI=true; warnings are errors there.
WERROR ?= $(if $(filter-out 0 false,$(CI)),1)

WARN     := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla -Wformat=2 \
            $(if $(filter-out 0,$(WERROR)),-Werror)
# -D_GNU_SOURCE= (empty) is what "#define _GNU_SOURCE" in a file would say.
DEFS     := -D_GNU_SOURCE= -D_FILE_OFFSET_BITS=64 -DFP_VERSION='"$(VERSION)"' \
            -DFP_SYSCONFDIR='"/etc"' $(if $(FAULT),-DFP_FAULT)
INCS     := -I include -I . -I $(B)/proto
# What is installed, debug information too, names files as they are called in the tree, not where that lay.
ALL_CFLAGS := -std=gnu11 $(CFLAGS) -ffile-prefix-map=$(CURDIR)=. $(SAN_FLAGS) -pthread -fstack-protector-strong $(WARN)
ALL_LDFLAGS := $(CFLAGS) $(SAN_FLAGS) -pthread -Wl,--as-needed $(LDFLAGS)

PKGS_common := libuv openssl libprotobuf-c libxxhash jansson hwloc
PKGS_all    := $(PKGS_common) sqlite3 fuse3

# A libfuse of our own is a static library, and wants its private libraries too.
FUSE_STATIC := $(if $(wildcard $(DEPS)/libfuse/lib/libfuse3.a),--static)

BUILD_GOALS := $(filter-out help deps deps-build clean style format,$(or $(MAKECMDGOALS),all))
ifneq ($(BUILD_GOALS),)
PKG_CFLAGS := $(shell $(PKG_CONFIG) --cflags $(PKGS_all) 2>/dev/null || \
                      $(PKG_CONFIG) --cflags $(PKGS_common) sqlite3 2>/dev/null)
pkg_libs    = $(shell $(PKG_CONFIG) --libs $(filter-out fuse3,$(1)) 2>/dev/null) $(if $(filter hdf5-openmpi,$(1)),-lhdf5_hl) \
              $(if $(filter fuse3,$(1)),$(shell $(PKG_CONFIG) $(FUSE_STATIC) --libs fuse3 2>/dev/null))
ifneq ($(shell $(PKG_CONFIG) --exists '$(PKGS_common) sqlite3 fuse3 >= $(FUSE_MIN)' 2>/dev/null && echo ok),ok)
ifeq ($(filter check quickstart quickstart-convert bench asan tsan,$(BUILD_GOALS)),)
$(warning libraries are missing or libfuse is older than $(FUSE_MIN): run "make deps" first)
endif
endif
endif

Q := $(if $(filter-out 0,$(V)),,@)
say = $(if $(filter-out 0,$(V)),,@printf '  %-7s %s\n' '$(1)' '$(2)';)

# --- what there is ----------------------------------------------------------

LIBS  :=
PROGS :=
TESTS_UNIT :=
TESTS_SIM  :=
TESTS_FUZZ :=
APPS  :=
# Packages of libraries that only some programs link, and tests of these.
PKGS_tests :=

.DEFAULT_GOAL := all

include $(sort $(wildcard */module.mk tests/*/module.mk))

# ONLY="common manager" leaves the rest of the tree out, when that does not build.
ifneq ($(ONLY),)
LIBS  := $(filter $(ONLY),$(LIBS))
PROGS := $(foreach p,$(PROGS),$(if $(filter-out $(ONLY),$($(p)_LIBS)),,$(p)))
APPS  :=
endif

obj_of  = $(patsubst %.c,$(O)/obj/%.o,$(1))
lib_src = $(filter-out %/main.c,$(sort $(wildcard $(addsuffix /*.c,$($(1)_DIRS)))))
lib_a   = $(patsubst %,$(O)/lib/lib%.a,$(1))

PROTOS   := $(wildcard common/proto/*.proto)
PROTO_C  := $(patsubst common/proto/%.proto,$(B)/proto/%.pb-c.c,$(PROTOS))
PROTO_H  := $(PROTO_C:.c=.h)
PROTO_O  := $(patsubst $(B)/proto/%.c,$(O)/obj/proto/%.o,$(PROTO_C))

HAVE     := $(foreach p,$(PROGS),$(if $(wildcard $($(p)_MAIN)),$(p)))
BINS     := $(addprefix $(O)/bin/,$(HAVE))
LIB_OBJ  := $(foreach l,$(LIBS),$(call obj_of,$(call lib_src,$(l))))
MAIN_OBJ := $(foreach p,$(HAVE),$(call obj_of,$($(p)_MAIN)))
DEP_FILES = $(patsubst %.o,%.d,$(LIB_OBJ) $(MAIN_OBJ) $(PROTO_O) $(TEST_OBJ))

.PHONY: all help deps deps-build check check-unit check-sim sim-night sim-scale check-sim-mutants check-fuzz fuzz fuzz-tests check-e2e check-fault asan tsan bench quickstart quickstart-convert \
        format style install uninstall clean apps unit-tests sim-tests fault-bins FORCE
.SECONDARY:
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules

all: $(BINS) $(patsubst %,$(O)/lib/lib%.a,$(LIBS)) apps

# --- generated code ---------------------------------------------------------

$(B)/proto/%.pb-c.c $(B)/proto/%.pb-c.h &: common/proto/%.proto
	$(call say,PROTOC,$<)mkdir -p $(@D) && \
	  { $(PROTOC_C) --proto_path=common/proto --c_out=$(@D) $< 2>$@.log || { cat $@.log >&2; exit 1; }; }

$(PROTO_O): $(O)/obj/proto/%.o: $(B)/proto/%.c $(O)/flags | $(PROTO_H)
	$(call say,CC,$<)mkdir -p $(@D) && $(CC) $(DEFS) $(INCS) $(PKG_CFLAGS) $(ALL_CFLAGS) -w -MMD -MP -c -o $@ $<

# --- objects, libraries, programs -------------------------------------------

# Objects are made again when the flags change: the file changes only then.
FLAGS_TEXT := $(CC) $(DEFS) $(INCS) $(PKG_CFLAGS) $(ALL_CFLAGS) $(value COVERAGE)
$(O)/flags: FORCE
	@mkdir -p $(@D); printf '%s\n' $(call shq,$(FLAGS_TEXT)) | cmp -s - $@ || \
	  printf '%s\n' $(call shq,$(FLAGS_TEXT)) > $@
shq = '$(subst ','\'',$(1))'

$(O)/obj/%.o: %.c $(O)/flags | $(PROTO_H)
	$(call say,CC,$<)mkdir -p $(@D) && $(CC) $(DEFS) $(INCS) $(PKG_CFLAGS) $(ALL_CFLAGS) $(COVERAGE) -MMD -MP -c -o $@ $<

# lib_rule name
define lib_rule
$(call lib_a,$(1)): $(call obj_of,$(call lib_src,$(1))) $(if $(filter common,$(1)),$(PROTO_O))
	$$(call say,AR,$$@)mkdir -p $$(@D) && rm -f $$@ && ar rcs $$@ $$(filter %.o,$$^)
endef
$(foreach l,$(LIBS),$(eval $(call lib_rule,$(l))))

# link: everything of $^ that is an object or a library, then the packages of $(1)
link = mkdir -p $(@D) && $(CC) $(ALL_LDFLAGS) -o $@ $(filter %.o,$^) \
       -Wl,--start-group $(filter %.a,$^) -Wl,--end-group $(call pkg_libs,$(1)) $(2)

# prog_rule name
define prog_rule
$(O)/bin/$(1): $(call obj_of,$($(1)_MAIN)) $(call lib_a,$($(1)_LIBS))
	$$(call say,LINK,$$@)$$(call link,$(PKGS_common) $($(1)_PKGS))
endef
$(foreach p,$(HAVE),$(eval $(call prog_rule,$(p))))

# --- tests ------------------------------------------------------------------

# Every C test links all libraries, what it needs of the helpers beside it, and cmocka.
define test_rule
$(O)/tests/$(1): $(O)/obj/tests/$(1).o $(2) $(call lib_a,$(LIBS))
	$$(call say,LINK,$$@)$$(call link,$(PKGS_all) $(PKGS_tests) cmocka)
endef
UNIT_HELP := $(call obj_of,$(filter-out $(TESTS_UNIT),$(wildcard tests/unit/*.c)))
SIM_HELP  := $(call obj_of,$(filter-out $(TESTS_SIM),$(wildcard tests/sim/*.c)))
UNIT_BINS := $(patsubst %.c,$(O)/%,$(TESTS_UNIT))
SIM_BINS  := $(patsubst %.c,$(O)/%,$(TESTS_SIM))
SCALE_OBJ := $(call obj_of,$(wildcard tests/sim/scale/*.c))
SCALE_BIN := $(O)/tests/sim/scale/sim_scale
FUZZ_HELP := $(call obj_of,$(filter-out $(TESTS_FUZZ) tests/fuzz/replay.c,$(wildcard tests/fuzz/*.c)))
FUZZ_BINS := $(patsubst %.c,$(O)/%,$(TESTS_FUZZ))
# libFuzzer has a main() of its own; else replay.c is it.
FUZZ_MAIN := $(if $(filter fuzz,$(SAN)),,$(O)/obj/tests/fuzz/replay.o)
$(SCALE_BIN): $(SCALE_OBJ) $(call lib_a,$(LIBS))
	$(call say,LINK,$@)$(call link,$(PKGS_all))
TEST_OBJ  := $(SCALE_OBJ) $(call obj_of,$(TESTS_UNIT) $(TESTS_SIM) $(TESTS_FUZZ)) $(UNIT_HELP) $(SIM_HELP) $(FUZZ_HELP) $(FUZZ_MAIN)
define test_help_rule
$(O)/tests/lib$(1).a: $(2)
	$$(call say,AR,$$@)mkdir -p $$(@D) && rm -f $$@ && ar rcs $$@ $$^
endef
$(eval $(call test_help_rule,unit,$(UNIT_HELP)))
$(eval $(call test_help_rule,sim,$(SIM_HELP)))
$(foreach t,$(TESTS_UNIT),$(eval $(call test_rule,$(patsubst tests/%.c,%,$(t)),$(O)/tests/libunit.a)))
$(foreach t,$(TESTS_SIM),$(eval $(call test_rule,$(patsubst tests/%.c,%,$(t)),$(O)/tests/libsim.a)))
$(eval $(call test_help_rule,fuzz,$(FUZZ_HELP)))
$(foreach t,$(TESTS_FUZZ),$(eval $(call test_rule,$(patsubst tests/%.c,%,$(t)),$(FUZZ_MAIN) $(O)/tests/libfuzz.a $(O)/tests/libunit.a)))
$(FUZZ_BINS): ALL_LDFLAGS += -Wl,--wrap=fp_log -Wl,--wrap=fp_log_limited $(if $(filter fuzz,$(SAN)),-fsanitize=fuzzer)

# T=name builds and runs one: make check-unit T=place is tests/unit/test_place.c
ifneq ($(T),)
UNIT_BINS := $(addprefix $(O)/tests/unit/test_,$(T))
SIM_BINS  := $(addprefix $(O)/tests/sim/sim_,$(T))
FUZZ_BINS := $(addprefix $(O)/tests/fuzz/fuzz_,$(T))
endif
unit-tests: $(UNIT_BINS)
sim-tests: $(SIM_BINS) $(if $(SIM_BINS),$(SCALE_BIN))
fuzz-tests: $(FUZZ_BINS)
apps: $(APPS)

UNIT_SECONDS ?= $(if $(SAN),600,400)
SUB := $(MAKE) --no-print-directory B=$(B) DEPS=$(DEPS) SAN=$(SAN)

ifneq ($(FAULT),)
check-unit: unit-tests
	@tests/run-programs.sh check-unit $(UNIT_SECONDS) $(JOBS) $(UNIT_BINS)
check-sim: sim-tests
	@$(if $(SIM_BINS),tests/sim/scale/check.sh $(SIM_BINS) $(SCALE_BIN) && tests/sim/check.sh $(SIM_BINS) $(JOBS),echo "check-sim: 0 seeds: not with a sanitizer")
sim-night: sim-tests
	@$(SIM_BINS) --seed $$(date +%s) --jobs $(JOBS) --seconds $(or $(SECONDS),3600) --keep-going
check-sim-mutants: sim-tests
	@tests/sim/mutants.sh $(SIM_BINS) $(JOBS)
check-fuzz: fuzz-tests
	@FP_FUZZ=tests/fuzz tests/run-programs.sh check-fuzz 120 $(JOBS) $(FUZZ_BINS)
else
check-unit check-fuzz check-sim sim-night check-sim-mutants:
	+@$(SUB) FAULT=1 $@
endif

# New inputs, for FUZZ_SECONDS in all: with clang, which make deps does not install.
# As it is built for use; the database is removed at the end.
sim-scale: $(SCALE_BIN)
	@$(SCALE_BIN) --nodes $(or $(NODES),1000) --ranks $(or $(RANKS),16) --windows $(or $(WINDOWS),16) --group $(or $(GROUP),256) \
	  --dir $(or $(DIR),/tmp) $(if $(SHARED),--shared)

FUZZ_SECONDS ?= 600
FUZZ_JOBS    ?= 2
fuzz:
	+@$(SUB) deps-build
	@DEPS=$(DEPS) tools/deps.sh fuzz
	+@$(MAKE) --no-print-directory B=$(B) DEPS=$(DEPS) SAN=fuzz WERROR= $(J) fuzz-tests
	@FUZZ_SECONDS=$(FUZZ_SECONDS) FUZZ_JOBS=$(FUZZ_JOBS) tests/fuzz/run.sh $(B)/fuzz $(if $(T),$(T),$(patsubst tests/fuzz/fuzz_%.c,%,$(TESTS_FUZZ)))

# PYTEST_ARGS is passed on: make check-e2e PYTEST_ARGS='-k rename -x'. TEST_JOBS tests run at a time: each has daemons, mounts and nodes of its own,
# and waits more than it computes, except with a sanitizer.
TEST_JOBS ?= $(if $(SAN)$(filter asan tsan,$(MAKECMDGOALS)),$(JOBS),$(shell expr 2 "*" $(JOBS)))
PYTEST_ARGS ?=
pytest = FP_BIN=$(abspath $(1)) FP_APPS=$(abspath $(B)/apps) FP_BUILD=$(abspath $(B)) FP_DEPS=$(abspath $(DEPS)) FP_TEST_JOBS=$(TEST_JOBS) \
         tests/run-pytest.sh $(PYTHON)

check-e2e: all
	@$(call pytest,$(O)/bin) check-e2e tests/e2e $(PYTEST_ARGS)

fault-bins: all
check-fault:
	+@$(SUB) FAULT=1 fault-bins
	@$(call pytest,$(if $(SAN),$(O),$(B)/fault)/bin) check-fault tests/fault $(PYTEST_ARGS)

SHORT_ARGS = -m short $(PYTEST_ARGS)
sanitized = $(MAKE) --no-print-directory B=$(B) DEPS=$(DEPS) SAN=$(1)
asan tsan: deps-build
	+@$(call sanitized,$(if $(filter asan,$@),address,thread)) $(J) all unit-tests $(if $(filter asan,$@),fuzz-tests)
	+@$(call sanitized,$(if $(filter asan,$@),address,thread)) check-unit $(if $(filter asan,$@),check-fuzz)
	@$(call pytest,$(B)/$@/bin) $@ tests/e2e $(SHORT_ARGS)

# Everything, in an order that fails early; all parts run even when one fails.
PARTS ?= style check-unit check-sim check-fuzz check-e2e check-fault
check:
	+@$(SUB) deps
	@B=$(B) tests/run-parts.sh "$(MAKE) --no-print-directory B=$(B) DEPS=$(DEPS)" "$(JOBS)" $(PARTS)

style:
	@PYTHONDONTWRITEBYTECODE=1 $(PYTHON) tests/style/test_style.py
	@PYTHONDONTWRITEBYTECODE=1 $(PYTHON) tests/style/style.py

# --- set-up, installation, the rest -----------------------------------------

deps deps-build:
	@DEPS=$(DEPS) FUSE_MIN=$(FUSE_MIN) tools/deps.sh $(if $(filter deps,$@),tests)

quickstart:
	+@$(SUB) deps-build
	+@$(SUB) $(J) all
	@FP_BIN=$(abspath $(B)/bin) FP_APPS=$(abspath $(B)/apps) FP_BUILD=$(abspath $(B)) tools/quickstart.sh

quickstart-convert:
	+@$(SUB) deps-build
	+@$(SUB) $(J) all
	@FP_BIN=$(abspath $(B)/bin) FP_APPS=$(abspath $(B)/apps) FP_BUILD=$(abspath $(B)) tools/quickstart-convert.sh

bench:
	+@$(SUB) deps-build
	+@$(SUB) $(J) all
	@FP_BIN=$(abspath $(B)/bin) FP_APPS=$(abspath $(B)/apps) FP_BUILD=$(abspath $(B)) BENCH=$(BENCH) \
	  $(PYTHON) tools/bench/bench.py

INST := $(DESTDIR)$(PREFIX)
install: all man
	install -d $(INST)/bin $(INST)/sbin $(INST)/share/doc/fpstore $(INST)/share/man $(INST)/include/fp
	$(if $(BINS),install -m 755 $(BINS) $(INST)/bin)
	$(if $(APPS),install -m 755 $(B)/apps/fpior $(INST)/bin)
	$(if $(filter fp-mount,$(HAVE)),ln -sf fp-mount $(INST)/bin/fpstore)
	$(if $(filter fp-mount,$(HAVE)),ln -sf ../bin/fp-mount $(INST)/sbin/mount.fuse.fpstore)
	install -m 644 LICENSE $(wildcard README.md docs/*.md) $(INST)/share/doc/fpstore
	$(if $(wildcard include/fp/auxapp.h),install -m 644 include/fp/auxapp.h $(INST)/include/fp)
	for p in $(MAN_PAGES); do \
	  install -D -m 644 $$p $(INST)/share/man/man$${p##*.}/$${p##*/} || exit 1; done
	for l in $(wildcard $(DEPS)/libfuse/LICENSE*); do \
	  install -D -m 644 $$l $(INST)/share/doc/fpstore/libfuse/$${l##*/} || exit 1; done

uninstall:
	rm -f $(addprefix $(INST)/bin/,$(PROGS) fpstore fpior) $(INST)/sbin/mount.fuse.fpstore
	rm -f $(addprefix $(INST)/share/man/,$(foreach p,$(MAN_PAGES),man$(subst .,,$(suffix $(p)))/$(notdir $(p))))
	rm -f $(INST)/include/fp/auxapp.h
	rm -rf $(INST)/share/doc/fpstore

format:
	$(CLANG_FORMAT) -i $$(git ls-files '*.c' '*.h')

# libfuse stays: building it again is minutes. rm -rf $(DEPS) when you mean it.
clean:
	rm -rf $(filter-out $(DEPS),$(wildcard $(B)/*))

help:
	@printf '%s\n' \
	  'make quickstart   set up, build, run an MPI job with checkpoints on a store of 4 benefactors' \
	  'make quickstart-convert  the same of raw dumps that become HDF5 files while the job goes on' \
	  'make check        set up, build, style, unit, sim, end-to-end and fault tests' \
	  'make all          build (make deps first); V=1 shows commands, WERROR=1 makes warnings errors' \
	  'make deps         packages by apt (root or sudo), libfuse where the system has an old one, and' \
  '                  pjdfstest by cargo, which only make check wants; make deps-build leaves that out' \
	  'make check-unit   T=name runs one, ONLY="common manager" builds no more than these' \
  'make check-sim    a store with faults, in a simulator; sim-night SECONDS=n; check-sim-mutants' \
	  'make sim-scale    one manager and very many nodes: NODES= RANKS= WINDOWS= SHARED=1 GROUP= DIR= (docs/SCALING.md)' \
	  'make check-e2e | check-fault  PYTEST_ARGS="-k name -x"' \
	  'make fuzz         new inputs against every harness of tests/fuzz, FUZZ_SECONDS=600 in all; make check-fuzz' \
  '                  runs the stored ones, and is a part of make check; T=name takes one' \
  'make asan | tsan  sanitizer build, unit tests and short end-to-end tests' \
	  'make bench        BENCH=name,... runs a choice; result in $(B)/bench.json' \
	  'make install      DESTDIR= PREFIX=/usr/local; make man makes the man pages alone' \
	  'make format | style | clean' \
	  'variables         B=build  DEPS=build/deps  SAN=address|thread  FAULT=1  CFLAGS  CC'

-include $(DEP_FILES)
