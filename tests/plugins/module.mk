# Plugins for tests: they do what they are told, good and bad. $(O)/tests/plugins is a plugin directory.
# One source gives several: aux-apps of one chain must have different names. probe is called by one thread at a time, many by several.
# resting replaces no data, so that it may have nothing to do. strict says that it is required. future has an ABI of its own, older knows no FUSE calls, misnamed calls itself otherwise, coder says it codes and
# can't decode; stillborn crashes while it is loaded, leaving ends its process, sleeping never comes back.
PROBE_NAMES := probe probe2 probe3 probe4 probe5 probe6 probe7 many resting strict future older misnamed coder stillborn leaving sleeping
PROBE_SO    := $(PROBE_NAMES:%=$(O)/tests/plugins/%.so)
PROBE_FLAGS_many     := -DPROBE_FLAGS=FP_AUX_PARALLEL
PROBE_FLAGS_resting  := -DPROBE_CODES=0 -DPROBE_IN=NULL
PROBE_FLAGS_strict   := -DPROBE_FLAGS=FP_AUX_REQUIRED
PROBE_FLAGS_future   := -DPROBE_ABI=99
PROBE_FLAGS_older    := '-DPROBE_SIZE=offsetof(struct fp_aux_app, io)'
PROBE_FLAGS_misnamed := '-DPROBE_CALLED="other"'
PROBE_FLAGS_coder    := -DPROBE_IN=NULL
PROBE_FLAGS_stillborn := '-DPROBE_STILLBORN="segv"'
PROBE_FLAGS_leaving   := '-DPROBE_STILLBORN="exit"'
PROBE_FLAGS_sleeping  := '-DPROBE_STILLBORN="never"'

.PHONY: test-plugins
test-plugins: $(PROBE_SO)
ifeq ($(ONLY),)
all: test-plugins
endif

$(PROBE_SO): $(O)/tests/plugins/%.so: tests/plugins/probe.c include/fp/auxapp.h $(O)/flags
	$(call say,LINK,$@)mkdir -p $(@D) && $(CC) $(DEFS) -I include $(ALL_CFLAGS) -fPIC -fvisibility=hidden -shared $(PLUGIN_LDFLAGS) \
	  -DPROBE_NAME='"$*"' $(PROBE_FLAGS_$*) -o $@ $<

# Tests that load plugins need them, and those that run fp-auxhost need it, too.
$(O)/tests/unit/test_auxhost $(O)/tests/unit/test_auxhost_run $(O)/tests/unit/test_auxhost_cores: | $(O)/bin/fp-auxhost $(PROBE_SO) $(PLUGIN_SO) $(EXAMPLE_SO)
$(O)/tests/unit/test_job_check: | $(PROBE_SO) $(PLUGIN_SO)
