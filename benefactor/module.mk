# Chunks of one node, on a directory or in memory.
LIBS += benefactor
benefactor_DIRS := benefactor $(patsubst %/,%,$(wildcard benefactor/*/))

PROGS += fp-benefactor
fp-benefactor_MAIN := benefactor/main.c
fp-benefactor_LIBS := benefactor common
fp-benefactor_PKGS :=
