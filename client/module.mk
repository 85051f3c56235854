# The FUSE driver of one node, and the two programs people call.
# ctl/ and store/ are libraries of their own, so that tests can link their parts.
LIBS += client ctl store
client_DIRS := client $(filter-out client/ctl client/store,$(patsubst %/,%,$(wildcard client/*/)))
ctl_DIRS    := client/ctl
store_DIRS  := client/store

PROGS += fp-mount fpctl fp-store
fp-mount_MAIN := client/main.c
fp-mount_LIBS := client common
fp-mount_PKGS := fuse3

fpctl_MAIN := client/ctl/main.c
fpctl_LIBS := ctl common
fpctl_PKGS :=

fp-store_MAIN := client/store/main.c
fp-store_LIBS := store ctl common
fp-store_PKGS :=
