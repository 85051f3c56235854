# Man pages: docs/man/NAME.SECTION.in, with the options that the programs themselves print put in (fill.sh).
MAN_NAMES := fp-manager.8 fp-benefactor.8 fp-mount.8 fp-auxhost.8 fp-drain.8 fpctl.1 fp-store.1 fp-job.1 fp-jobscript.7 fp-auxtest.1 fp-slowfs.1 fp-convert.1 fpior.1 fp.conf.5
MAN_DIR   := $(O)/man
MAN_PAGES := $(addprefix $(MAN_DIR)/,$(MAN_NAMES) mount.fuse.fpstore.8 fp-enter.1)

.PHONY: man
man: $(MAN_PAGES)

# make all makes them too, where all programs are made; not in the variants for tests.
ifeq ($(ONLY)$(SAN)$(FAULT),)
all: man
endif

$(addprefix $(MAN_DIR)/,$(MAN_NAMES)): $(MAN_DIR)/%: docs/man/%.in docs/man/fill.sh
	$(call say,MAN,$@)mkdir -p $(@D) && docs/man/fill.sh $(or $(MAN_BIN),$(O)/bin) $(VERSION) $< > $@

$(MAN_DIR)/fp-manager.8: $(O)/bin/fp-manager
$(MAN_DIR)/fp-benefactor.8: $(O)/bin/fp-benefactor
$(MAN_DIR)/fp-mount.8: $(O)/bin/fp-mount
$(MAN_DIR)/fpctl.1: $(O)/bin/fpctl
$(MAN_DIR)/fp-store.1: $(O)/bin/fp-store
$(MAN_DIR)/fp-slowfs.1: $(O)/bin/fp-slowfs
$(MAN_DIR)/fp-convert.1: $(O)/bin/fp-convert
$(MAN_DIR)/fp-job.1 $(MAN_DIR)/fp-jobscript.7: $(O)/bin/fp-job
$(MAN_DIR)/fp.conf.5: $(addprefix $(O)/bin/,fp-manager fp-benefactor fp-mount fpctl fp-store fp-job)

# An MPI program, which is built beside those of the tests.
$(MAN_DIR)/fpior.1: MAN_BIN := $(B)/apps
$(MAN_DIR)/fpior.1: $(B)/apps/fpior

$(MAN_DIR)/mount.fuse.fpstore.8:
	$(call say,MAN,$@)mkdir -p $(@D) && echo '.so man8/fp-mount.8' > $@

$(MAN_DIR)/fp-enter.1:
	$(call say,MAN,$@)mkdir -p $(@D) && echo '.so man1/fp-job.1' > $@
