# The #FP lines of batch scripts: what they say (library job), and fp-job, which checks and runs them.
LIBS  += job
PROGS += fp-job
job_DIRS    := jobscripts jobscripts/script jobscripts/cores jobscripts/agent jobscripts/launch jobscripts/doctor
fp-job_MAIN := jobscripts/main.c
fp-job_LIBS := job auxhost common
fp-job_PKGS :=

# What srun runs before each task.
TASK_PROLOG := $(O)/bin/fp-task-prolog
.PHONY: install-task-prolog uninstall-task-prolog
ifeq ($(ONLY),)
all: $(TASK_PROLOG)
endif
$(TASK_PROLOG): $(O)/bin/fp-job
	$(call say,LN,$@)ln -sf fp-job $@
install: install-task-prolog
install-task-prolog:
	install -d $(DESTDIR)$(PREFIX)/bin
	ln -sf fp-job $(DESTDIR)$(PREFIX)/bin/fp-task-prolog
uninstall: uninstall-task-prolog
uninstall-task-prolog:
	rm -f $(DESTDIR)$(PREFIX)/bin/fp-task-prolog

# What becomes a command that sees the store, where that is mounted in a user namespace.
ENTER := $(O)/bin/fp-enter
.PHONY: install-enter uninstall-enter
ifeq ($(ONLY),)
all: $(ENTER)
endif
$(ENTER): $(O)/bin/fp-job
	$(call say,LN,$@)ln -sf fp-job $@
install: install-enter
install-enter:
	install -d $(DESTDIR)$(PREFIX)/bin
	ln -sf fp-job $(DESTDIR)$(PREFIX)/bin/fp-enter
uninstall: uninstall-enter
uninstall-enter:
	rm -f $(DESTDIR)$(PREFIX)/bin/fp-enter

# The SPANK plugin, where Slurm's headers are (SLURM_CFLAGS="-I DIR" for other places): Slurm's programs have the functions that it calls.
SLURM_CFLAGS ?=
HAVE_SPANK   := $(shell $(CC) $(SLURM_CFLAGS) -include slurm/spank.h -E -x c - </dev/null >/dev/null 2>&1 && echo yes)
SPANK_SO     := $(if $(HAVE_SPANK),$(if $(SAN),,$(O)/lib/spank_fp.so))
SPANK_OBJ    := $(patsubst %.c,$(O)/pic/%.o,$(wildcard jobscripts/spank/*.c) jobscripts/launch/inherited.c jobscripts/dirname.c common/nsenter.c)
SPANK_INST    = $(DESTDIR)$(PREFIX)/lib/fpstore/spank_fp.so
spank_CFLAGS := -I . $(SLURM_CFLAGS)
launch_CFLAGS := -I .
jobscripts_CFLAGS := -I .

.PHONY: spank install-spank uninstall-spank
spank: $(SPANK_SO)
ifeq ($(ONLY),)
all: spank
endif

$(O)/lib/spank_fp.so: $(SPANK_OBJ)
	$(call say,LINK,$@)mkdir -p $(@D) && $(CC) -shared $(ALL_LDFLAGS) -Wl,-z,now -Wl,-z,relro -o $@ $^

-include $(SPANK_OBJ:.o=.d)

install: install-spank
install-spank: spank
	$(if $(SPANK_SO),install -D -m 755 $(SPANK_SO) $(SPANK_INST))

uninstall: uninstall-spank
uninstall-spank:
	rm -f $(SPANK_INST)

# What sites may give to Slurm, with the path of our programs in it.
JOB_SITE = $(DESTDIR)$(PREFIX)/share/fpstore/slurm

install: install-site-slurm
.PHONY: install-site-slurm uninstall-site-slurm
install-site-slurm:
	install -d $(JOB_SITE)
	sed 's|FP_JOB = "fp-job"|FP_JOB = "$(PREFIX)/bin/fp-job"|' jobscripts/slurm/burst_buffer.lua > $(JOB_SITE)/burst_buffer.lua
	chmod 644 $(JOB_SITE)/burst_buffer.lua

uninstall: uninstall-site-slurm
uninstall-site-slurm:
	rm -f $(JOB_SITE)/burst_buffer.lua
