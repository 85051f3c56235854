/* fpctl: what its commands share. One thread asks and prints; a second one only watches the clock.
 *
 * A command function gets its options, prints its answer to stdout and returns 0, or has logged one ERROR line and returns a
 * negative code; main turns that into exit 1. */
#ifndef CTL_H
#define CTL_H

#include <jansson.h>
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fp.pb-c.h"
#include "fp/opt.h"

enum ctl_command { CTL_STATUS, CTL_BENEFACTORS, CTL_STAT, CTL_DF, CTL_STOP, CTL_AUXAPPS, CTL_VERIFY };

struct ctl_options {
    int command; /* enum ctl_command */
    const char *path; /* absolute; NULL when not given */
    struct fp_addr manager;
    const char *key;
    bool manager_given, key_given; /* on the command line */
    bool json, all, watch;
    const char *aux_name, *aux_change; /* of `auxapps set`; else NULL */
    uint64_t timeout_ms; /* for every answer */
    uint64_t wait_ms;    /* stop: until the manager is gone */
    int log_level;
};

/* ---------------------------------------------------------------- find.c: which store is meant */

struct ctl_store {
    char manager[FP_ADDR_TEXT_BUF];
    char key[PATH_MAX];
    char mountpoint[PATH_MAX]; /* through which it was found; "" if by options */
    char inner[PATH_MAX];      /* options.path inside the store, no leading slash; "" is its root */
};

/* Fills *out, or logs and returns a negative errno. May block as long as a mount does: see ctl_watch. */
int ctl_find(const struct ctl_options *o, struct ctl_store *out);

/* One line of /proc/self/mountinfo. True for a mount of fstype fuse.fpstore, with its mountpoint and the directory of the
 * store that is mounted there ("/" but for bind mounts), unescaped. */
bool ctl_mountinfo_line(const char *line, char mountpoint[PATH_MAX], char root[PATH_MAX]);

/* ---------------------------------------------------------------- link.c: asking the manager */

struct ctl_link;

/* Connects with the store's key and says hello. Logs on failure. */
int ctl_link_open(const struct ctl_store *store, uint64_t timeout_ms, struct ctl_link **out);
void ctl_link_close(struct ctl_link *l); /* NULL is fine */

/* Sends a request and waits for its reply. *reply is freed with protobuf_c_message_free_unpacked; NULL (with desc NULL) when
 * the reply is empty. A failure is returned, not logged: see ctl_link_failed. */
int ctl_link_call(struct ctl_link *l, uint16_t type, const ProtobufCMessage *msg,
                  const ProtobufCMessageDescriptor *desc, ProtobufCMessage **reply);

/* Logs why a call failed; returns err. */
int ctl_link_failed(const struct ctl_link *l, int err, const char *what);

/* Waits until the other end has closed the connection: 0, or FP_EDEADLINE. */
int ctl_link_wait_closed(struct ctl_link *l, uint64_t timeout_ms);

/* The manager is on this very machine: both ends have the same address. */
bool ctl_link_is_local(const struct ctl_link *l);

/* The two questions that have more than one use. Both log. *out: fp__ctl_…__free_unpacked. */
int ctl_ask_status(struct ctl_link *l, Fp__CtlStatusReply **out);

/* Ends the program with a line and exit 1 when it is still there after limit_ms: for calls into a mount that hangs, which no
 * timeout of ours reaches. Called again, it sets a new limit. */
void ctl_watch(uint64_t limit_ms);

/* ---------------------------------------------------------------- the commands */

int ctl_status(const struct ctl_options *o, const struct ctl_store *store, struct ctl_link *l);
int ctl_benefactors(const struct ctl_options *o, const struct ctl_store *store, struct ctl_link *l);
int ctl_stat(const struct ctl_options *o, const struct ctl_store *store, struct ctl_link *l);
int ctl_df(const struct ctl_options *o, const struct ctl_store *store, struct ctl_link *l);
int ctl_stop(const struct ctl_options *o, const struct ctl_store *store, struct ctl_link *l);
int ctl_auxapps(const struct ctl_options *o, const struct ctl_store *store, struct ctl_link *l);
int ctl_verify(const struct ctl_options *o, const struct ctl_store *store, struct ctl_link *l);

/* Needs no store: makes the folder `name` here, with the skeleton of an aux-app. */
int ctl_auxapp_new(const char *name);

/* ---------------------------------------------------------------- show.c: printing */

/* Bytes that are mostly text: bytes that are no UTF-8 become \xNN. A new reference. */
json_t *ctl_json_bytes(const void *bytes, size_t len);
json_t *ctl_json_bnf(const Fp__BnfInfo *b);

/* Prints the object and a newline, and drops the reference. 0, -ENOMEM (j is NULL) or -EIO. */
int ctl_json_print(json_t *j);

/* stdout has taken everything: 0 or -EIO, logged. */
int ctl_flush(void);

const char *ctl_bnf_state(int state); /* "ok", "down", … */
int ctl_bnf_style(int state);         /* enum fp_style */

/* The manager's address for people: what it listens on, or, where that is all addresses of its node, how it was reached. */
const char *ctl_manager_addr(const Fp__CtlStatusReply *r, const struct ctl_store *store);

/* As df(1) has it: what is not free, so with the chunks of deleted files that are still being removed. */
uint64_t ctl_used_bytes(const Fp__CtlStatusReply *r);

/* The table of benefactors, for status and benefactors alike. */
int ctl_print_benefactors(size_t n, Fp__BnfInfo **b);

/* A line "name     text" of the head of an answer, the second in red; control characters become '?'. */
void ctl_print_line(const char *name, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void ctl_print_alarm(const char *name, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* A headline before a table. */
void ctl_print_title(const char *title);

#endif
