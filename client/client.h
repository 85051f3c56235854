/*
 * fp-mount: what all of its parts share. One struct cl_mount per process.
 *
 * Threads: FUSE threads (libfuse's loop, many), the core loop (one, libuv: manager link, remote benefactors, timers), store
 * threads (a few, pinned to the service cores: checksums and disk). Who owns what is said at each field.
 * Lock order: inode table -> inode -> data path's own locks (data.h). No lock is held across fuse_reply_*.
 */
#ifndef CL_CLIENT_H
#define CL_CLIENT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "client/options.h"

struct fuse_session;
struct cl_core;
struct cl_itable;
struct cl_data;
struct cl_aux;
struct cl_locks;
struct cl_lockwork;

struct cl_feature {            /* a kernel or library feature that was probed; for fpctl status */
    const char *name;
    bool in_use;
    char why_not[120];
};

struct cl_mount {
    struct cl_options opt;     /* constant after start */
    struct fuse_session *se;   /* of main(), and of shutdown.c while the loop runs; all others: notify.h */
    struct cl_core *core;      /* core.h */
    struct cl_itable *inodes;  /* inode.h */
    struct cl_data *data;      /* data.h */
    struct cl_locks *locks;    /* locks.h: NULL with --locks local; constant between start and end */
    struct cl_lockwork *lockwork; /* lockwork.h: with locks */
    struct cl_aux *aux;        /* aux/aux.h: NULL if no aux-app is declared; constant between start and end */
    struct cl_aux *aux_decode; /* the same for a mount without: made when a coded chunk is met */
    uint8_t store_uuid[16];    /* constant after the first hello */
    atomic_ullong lease_time;  /* of the last hello: as long as it is the same, leases last */
    atomic_ullong doubt;       /* of the last BnfTable: stored chunks may have become bad when it changes (aux/holds.h) */
    uint32_t default_chunk_size_bytes;
    uint32_t max_write_bytes;  /* as negotiated in FUSE_INIT */
    bool receives;             /* receive.h; constant between mount and unmount */
    struct cl_feature features[8];
    unsigned nfeatures;
};

#endif
