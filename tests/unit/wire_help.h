/* For test_rpc, test_tls and the like: a server and a client on one loop, and a loop that ends in time. */
#ifndef TESTS_UNIT_WIRE_HELP_H
#define TESTS_UNIT_WIRE_HELP_H

#include <stdbool.h>
#include <uv.h>

#include "fp/key.h"
#include "fp/rpc.h"

/* Everything a test may want to look at. The server echoes: message and payload go back, see
 * wire_server_request. */
struct wire {
    uv_loop_t loop;
    struct fp_key *key;
    struct fp_rpc *srv, *cli;
    struct fp_rpc_listener *listener;
    struct fp_rpc_conn *sconn, *cconn; /* of the last connection */
    struct fp_rpc_handler sh, ch;      /* change before wire_connect */
    unsigned s_up, s_closed, c_up, c_closed;
    int s_err, c_err;
    char c_why[256];
    unsigned requests;
    unsigned rpcs_closed;
    uint64_t late_id; /* of the last T_LATE request, which the server does not answer */
    bool echo_paused; /* the server pauses the connection at the first request */
    char addr[64];
};

enum wire_type { T_ECHO = 100, T_SILENT, T_FAIL, T_ONEWAY, T_BLOB, T_LATE };

void wire_init(struct wire *w, const struct fp_rpc_opts *server, const struct fp_rpc_opts *client);
void wire_connect(struct wire *w,
                  const struct fp_rpc_connect_opts *opts); /* waits until it is up or closed */
void wire_fini(struct wire *w);

/* Runs the loop until *flag is not less than n; fails the test after timeout_ms. */
void wire_until(struct wire *w, const unsigned *flag, unsigned n, unsigned timeout_ms);
void wire_run_ms(struct wire *w, unsigned ms);

/* What came back. */
struct wire_got {
    unsigned n; /* completions */
    int status;
    char msg[64];
    size_t payload_len;
    void *payload;
    struct wire *w;
};
void wire_reply_cb(void *arg, int status, const struct fp_rpc_in *in);

/* An echo call with text as message. */
int wire_call(struct wire *w, uint16_t type, const char *text, uint32_t timeout_ms, struct wire_got *got);

/* Plain TCP to the server, non-blocking loop-side: a stranger. */
int wire_stranger(struct wire *w);
/* Runs the loop until the server closes fd; ms it took, or fails after limit_ms. Bytes received are dropped.
 */
unsigned wire_until_eof(struct wire *w, int fd, unsigned limit_ms);

/* A relay in a thread of its own between a client and the server, as the network: it can be cut (bytes
 * vanish, both ends stay open), it can close in mid-stream, and it knows whether a text went by in the clear.
 */
struct wire_relay;
struct wire_relay *wire_relay_new(struct wire *w, const char *needle); /* and makes w->addr its own */
void wire_relay_cut(struct wire_relay *r);
void wire_relay_close_after(struct wire_relay *r, unsigned long bytes); /* to the server; from now on */
bool wire_relay_seen(struct wire_relay *r);
void wire_relay_free(struct wire_relay *r);

/* Captures stderr (the log) to a file until _end, which says how often needle was in it. */
void wire_log_begin(void);
unsigned wire_log_end(const char *needle);

#endif
