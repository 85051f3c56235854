/* Options of fp-benefactor: what the user may say, checked and ready for use. */
#ifndef BNF_OPTIONS_H
#define BNF_OPTIONS_H

#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fp/backend.h"
#include "fp/opt.h"

/* Constant after bnf_options_parse. Strings live as long as the process. */
struct bnf_options {
    struct fp_addr manager;
    struct fp_addr listen;
    const char *dir; /* absolute */
    const char *key;
    const char *node;      /* host name unless given */
    const char *advertise; /* NULL: our end of the connection to the manager */
    const char *cores_text;
    uint64_t size_bytes;
    uint64_t segment_bytes; /* 0: by the size */
    uint64_t buffer_bytes;
    uint64_t start_timeout_ms;
    uint64_t device_timeout_ms;
    int64_t threads;
    int64_t ready_fd;
    const char *backend_text;
    struct fp_backend_spec backend; /* of backend_text */
    bool ignore_term;
    int log_level;
    bool data_encryption;
    bool drain;
    uint64_t drain_max; /* 0: no limit */
    int64_t drain_threads;
    uint64_t target_timeout_ms;
    const char *drain_program; /* NULL: beside us */
    struct fp_strlist auxapps;
    const char *auxapp_dir; /* NULL: beside us */
    cpu_set_t cpus; /* of cores_text */
    unsigned ncpus; /* 0: anywhere */
};

/* Command line, environment and fp.conf into *out. Prints one line and exits with 2 on a mistake, 0 after
 * --help. */
void bnf_options_parse(struct bnf_options *out, int argc, char **argv);

#endif
