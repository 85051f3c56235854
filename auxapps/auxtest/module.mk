# fp-auxtest: plugins tried out without a store. Loads them as fp-auxhost does.
LIBS  += auxtest
PROGS += fp-auxtest
auxtest_DIRS    := auxapps/auxtest
fp-auxtest_MAIN := auxapps/auxtest/main.c
fp-auxtest_LIBS := auxtest auxhost common
fp-auxtest_PKGS :=
