# fp-auxhost and the aux-apps it loads.
#
# auxapps/host is the host: the library auxhost (which fp-auxtest links too) and the program. Every other folder with *.c is a
# plugin, $(O)/lib/auxapps/FOLDER.so; every auxapps/examples/NAME.c is one by itself, $(O)/lib/auxapps/examples/NAME.so.
# A plugin that needs packages says so in a module.mk in its folder: FOLDER_PKGS := libzstd (and FOLDER_CFLAGS, where -O2 is not
# enough). It includes fp/auxapp.h and its own headers alone, and links nothing of ours.
LIBS  += auxhost
PROGS += fp-auxhost
auxhost_DIRS    := auxapps/host
fp-auxhost_MAIN := auxapps/host/main.c
fp-auxhost_LIBS := auxhost common
fp-auxhost_PKGS :=

# Folders that are no plugins: the host, examples, and programs (those have a main.c).
PLUGIN_NAMES := $(patsubst auxapps/%/,%,$(sort $(dir $(wildcard auxapps/*/*.c))))
PLUGIN_NAMES := $(foreach p,$(filter-out host examples,$(PLUGIN_NAMES)),$(if $(wildcard auxapps/$(p)/main.c),,$(p)))
EXAMPLE_NAMES := $(patsubst auxapps/examples/%.c,%,$(sort $(wildcard auxapps/examples/*.c)))

-include $(sort $(wildcard auxapps/*/module.mk))

PLUGIN_DIR := $(O)/lib/auxapps
PLUGIN_SO  := $(PLUGIN_NAMES:%=$(PLUGIN_DIR)/%.so)
EXAMPLE_SO := $(EXAMPLE_NAMES:%=$(PLUGIN_DIR)/examples/%.so)
PLUGIN_OBJ := $(patsubst %.c,$(O)/pic/%.o,$(foreach p,$(PLUGIN_NAMES),$(wildcard auxapps/$(p)/*.c)) $(wildcard auxapps/examples/*.c))
# Whatever a plugin needs it must link itself. With a sanitizer, its functions come from the program that loads it.
PLUGIN_LDFLAGS = $(ALL_LDFLAGS) $(if $(SAN),,-Wl,-z,defs) -Wl,-z,now -Wl,-z,relro

.PHONY: plugins install-auxapps uninstall-auxapps
plugins: $(PLUGIN_SO) $(EXAMPLE_SO)
ifeq ($(ONLY),)
all: plugins
endif

# The folder of a source file names the variables <folder>_PKGS and <folder>_CFLAGS.
plugin_of = $(notdir $(patsubst %/,%,$(dir $(1))))
$(O)/pic/%.o: %.c $(O)/flags
	$(call say,CC,$<)mkdir -p $(@D) && $(CC) $(DEFS) -I include $(ALL_CFLAGS) -fPIC -fvisibility=hidden \
	  $(if $($(call plugin_of,$<)_PKGS),$$($(PKG_CONFIG) --cflags $($(call plugin_of,$<)_PKGS))) \
	  $($(call plugin_of,$<)_CFLAGS) -MMD -MP -c -o $@ $<

plugin_link = mkdir -p $(@D) && $(CC) -shared $(PLUGIN_LDFLAGS) -o $@ $(filter %.o,$^) $(if $(1),$(call pkg_libs,$(1))) -lm

define plugin_rule
$(PLUGIN_DIR)/$(1).so: $(patsubst %.c,$(O)/pic/%.o,$(sort $(wildcard auxapps/$(1)/*.c)))
	$$(call say,LINK,$$@)$$(call plugin_link,$$($(1)_PKGS))
endef
$(foreach p,$(PLUGIN_NAMES),$(eval $(call plugin_rule,$(p))))

$(EXAMPLE_SO): $(PLUGIN_DIR)/examples/%.so: $(O)/pic/auxapps/examples/%.o
	$(call say,LINK,$@)$(call plugin_link,$(examples_PKGS))

-include $(PLUGIN_OBJ:.o=.d)

# What builds of plugins ask for: pkg-config and CMake.
AUX_ABI  = $(shell sed -n 's/^.define FP_AUX_ABI \([0-9]*\)u$$/\1/p' include/fp/auxapp.h)
aux_fill = sed -e 's|@prefix@|$(PREFIX)|; s|@abi@|$(AUX_ABI)|; s|@version@|$(VERSION)|' $(1) > $(2) && chmod 644 $(2)
AUXAPPS_INST = $(DESTDIR)$(PREFIX)/lib/fpstore/auxapps
AUX_PC       = $(DESTDIR)$(PREFIX)/lib/pkgconfig/fp-auxapp.pc
AUX_CMAKE    = $(DESTDIR)$(PREFIX)/lib/cmake/fp-auxapp

install: install-auxapps
install-auxapps: plugins
	install -d $(AUXAPPS_INST)/examples $(dir $(AUX_PC)) $(AUX_CMAKE)
	$(if $(PLUGIN_SO),install -m 755 $(PLUGIN_SO) $(AUXAPPS_INST))
	$(if $(EXAMPLE_SO),install -m 755 $(EXAMPLE_SO) $(AUXAPPS_INST)/examples)
	install -m 644 $(EXAMPLE_NAMES:%=auxapps/examples/%.c) $(AUXAPPS_INST)/examples
	$(call aux_fill,auxapps/fp-auxapp.pc.in,$(AUX_PC))
	$(call aux_fill,auxapps/fp-auxapp-config.cmake.in,$(AUX_CMAKE)/fp-auxapp-config.cmake)
	$(call aux_fill,auxapps/fp-auxapp-config-version.cmake.in,$(AUX_CMAKE)/fp-auxapp-config-version.cmake)

uninstall: uninstall-auxapps
uninstall-auxapps:
	rm -f $(PLUGIN_SO:$(PLUGIN_DIR)/%=$(AUXAPPS_INST)/%) $(EXAMPLE_SO:$(PLUGIN_DIR)/%=$(AUXAPPS_INST)/%)
	rm -f $(EXAMPLE_NAMES:%=$(AUXAPPS_INST)/examples/%.c) $(AUX_PC)
	rm -rf $(AUX_CMAKE)
