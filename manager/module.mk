# Namespace, striping maps, chunk table.
LIBS += manager
manager_DIRS := manager $(patsubst %/,%,$(wildcard manager/*/))

PROGS += fp-manager
fp-manager_MAIN := manager/main.c
fp-manager_LIBS := manager common
fp-manager_PKGS := sqlite3
