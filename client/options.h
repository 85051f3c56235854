/* Options of fp-mount: what the user may say, checked and ready for use. */
#ifndef CL_OPTIONS_H
#define CL_OPTIONS_H

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>

#include "fp/opt.h"

enum cl_locks_mode {
    CL_LOCKS_STORE, /* kept by the manager, for all mounts */
    CL_LOCKS_LOCAL, /* kept by this node's kernel */
};

/* The order of fp_close_names. */
enum cl_close_mode {
    CL_CLOSE_PUBLISH, /* close(2) returns when other mounts can see the data */
    CL_CLOSE_SYNC,    /* close(2) does what fsync(2) does */
    CL_CLOSE_BEHIND,  /* close(2) returns at once; who opens the file elsewhere has it published first */
};

/* Constant after cl_options_parse. Strings live as long as the process. */
struct cl_options {
    struct fp_addr manager;
    char manager_text[FP_ADDR_TEXT_BUF];
    const char *key; /* path of the key file, absolute */
    const char *node;
    const char *mountpoint; /* absolute */
    const char *log_file;   /* NULL: stderr, and nowhere once in the background */
    const char *cores_text; /* NULL: no cores were set aside */
    cpu_set_t cores;
    unsigned ncores; /* 0: none were set aside */
    uint64_t pool_bytes;
    uint64_t read_ahead_bytes;
    struct fp_strlist auxapps; /* declarations, in order: client/aux/declare.h */
    const char *auxapp_dir;    /* NULL: where this build or installation has them */
    const char *auxhost;       /* NULL: beside this program */
    uint64_t aux_memory_bytes;
    uint64_t aux_region_bytes;
    uint64_t manager_timeout_ms;
    uint64_t io_timeout_ms;
    uint64_t start_timeout_ms;
    int64_t threads;       /* FUSE threads, at most */
    int64_t store_threads; /* 0: by the number of service cores */
    int64_t ready_fd;
    int close_mode; /* enum cl_close_mode */
    int locks;      /* enum cl_locks_mode */
    bool fold;
    bool ignore_term;
    int log_level;
    bool data_encryption;
    bool allow_other;
    const char *namespace_dir; /* NULL: not given */
    bool direct_io;
    bool strict;
    bool foreground;
    struct fp_strlist mount_flags; /* words of mount -o that are the kernel's */
};

/*
 * Command line, environment and fp.conf into *out. Two forms: `fp-mount [OPTIONS] [MOUNTPOINT]`, and, when
 * the program is called mount.fuse.fpstore or fpstore, `… ADDR:PORT MOUNTPOINT [-o OPTIONS]` as mount(8)
 * does. Main thread, at start. Prints one line and exits with 2 on a mistake, with 0 after --help and the
 * like.
 */
void cl_options_parse(struct cl_options *out, int argc, char **argv);

/* NULL, or what does not go together, and what to do. Static text. */
const char *cl_options_contradiction(const struct cl_options *o);

/* The words of --close and --locks. Static text. */
const char *cl_options_close(const struct cl_options *o);
const char *cl_options_locks(const struct cl_options *o);

/* "0,2-5" into a CPU set. NULL, or static text that says what is wrong. */
const char *cl_cores_parse(const char *text, cpu_set_t *set);
/* cores.c: log whether others may run on the service cores. */
void cl_cores_tell(const struct cl_options *o);

#endif
