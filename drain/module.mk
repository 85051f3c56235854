# fp-drain: writes files into a target and reads them back, for fp-benefactor, which starts it.
LIBS += drain
drain_DIRS := drain

PROGS += fp-drain
fp-drain_MAIN := drain/main.c
fp-drain_LIBS := drain common
fp-drain_PKGS :=
