# The digest libraries; -O3 for the scalar path of cdc.c. Also a library, for its unit tests and the benchmark cdc.
dedup_PKGS   := libcrypto libxxhash
dedup_CFLAGS := -O3
LIBS += dedup
dedup_DIRS := auxapps/dedup
