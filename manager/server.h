/* The shell around the core: sockets, timers, signals, and when transactions begin and end. */
#ifndef MGR_SERVER_H
#define MGR_SERVER_H

#include <stdbool.h>

#include "fp/key.h"
#include "manager/core.h"

struct mgr_server_opts {
    const char *listen; /* "ADDR:PORT" */
    const struct fp_key *key;
    int ready_fd; /* -1: none */
    const char *db_path;
    bool ignore_term;
};

/* Serves until SIGTERM, SIGINT, or fpctl stop has been carried out. core is borrowed. 0, or why it could not
 * start (one line has been logged). Called once, by the main thread, which it is the loop of. */
int mgr_server_run(struct mgr_core *core, const struct mgr_server_opts *opts);

#endif
