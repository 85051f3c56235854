/* fpctl: what its commands share. One thread asks and prints; a second one only watches the clock.
 *
 * What a command is called, takes and says of itself is in its struct ctl_cmd (cmd.h). */
#ifndef CTL_H
#define CTL_H

#include <jansson.h>
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fp.pb-c.h"
#include "fp/opt.h"

#define CTL_PATHS_MAX 256u /* of one call */
#define CTL_NAMES_MAX 256u /* words of one call that are no paths */

/* What main.c has read of the command line. A path is absolute, symbolic links in it are not resolved. */
struct ctl_options {
    const struct ctl_cmd *cmd;
    const char *names[CTL_NAMES_MAX + 1]; /* words of the synopsis that are no paths, in their order; NULL behind the last that was given */
    const char *paths[CTL_PATHS_MAX + 1];
    size_t npaths;
    const char *path;     /* paths[0]; NULL when none was given */
    uint32_t version;     /* of PATH[@N]; 0: none */
    struct fp_addr manager;
    const char *key;
    bool manager_given, key_given; /* on the command line */
    bool json, all, watch, files, force, torn, offline, complete;
    int64_t step; /* -1: not given */
    const char *to;       /* directory: drain, of the target; stage-in, of the store; merge: file; NULL: not given */
    const char *target;   /* stage-in: root of a target; NULL: not given */
    bool now, verify, wait, last, failed, overwrite, again;
    int layout;           /* drain: enum fp_drain_layout */
    int level;            /* enum Level of life.proto; 0: not given */
    uint64_t timeout_ms; /* for every answer */
    uint64_t limit_ms;   /* of commands that wait: for all of it; 0: no limit */
    uint64_t until_ms;   /* the same as a time (fp_now_ms); 0: no limit */
    uint64_t stall_ms;   /* of a job that stands still: for so long it is waited for; 0: no limit */
    int log_level;
};

/* ---------------------------------------------------------------- find.c: which store is meant */

struct ctl_store {
    char manager[FP_ADDR_TEXT_BUF];
    char key[PATH_MAX];
    char mountpoint[PATH_MAX]; /* through which it was found; "" if by options */
    char inner[PATH_MAX];      /* options.path inside the store, no leading slash; "" is its root */
};

/* options.paths[i] inside of the store that was found, as `inner` above. Logs, with -EXDEV, if it lies in another mount. */
int ctl_find_inner(const struct ctl_options *o, const struct ctl_store *store, size_t i, char inner[PATH_MAX]);

/* Is a store meant at all: given, or one mounted where we are, or only one on this machine? May block as long as a mount does, if there are several. */
bool ctl_is_there(const struct ctl_options *o);

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

/* Sends a request and waits for its reply. Who is patient (ctl_patient) has it sent anew when the connection breaks. *reply is freed with protobuf_c_message_free_unpacked; NULL (with desc NULL) when
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

/* With this line instead: it is kept. Before the first ctl_watch, or in a program that has nothing else under way. */
void ctl_watch_says(const char *text);
/* Ends the program with a line and exit 1 when it is still there after limit_ms: for calls into a mount that hangs, which no
 * timeout of ours reaches. Called again, it sets a new limit. */
void ctl_watch(uint64_t limit_ms);

/* Until then (fp_now_ms) a manager that is away is waited for, calls into its mount may take as long, and what fails for that reason ends the program with code. */
void ctl_patient(uint64_t until_ms, int code);
/* Pauses for a moment. False: there is no patience, or it is over. */
bool ctl_patience(void);
/* Of the program: rc, if it is none of failure; else 1, or the code of ctl_patient when all patience was in vain. */
int ctl_exit_code(int rc);
/* Is it of use to try to connect again? */
bool ctl_link_may_come(int err);

/* Waits, with the watchdog told. For commands that ask again and again. */
void ctl_pause(const struct ctl_options *o, uint64_t ms);
/* The same, each time for a quarter longer (*ms: 0 at first), up to max_ms: what is done is heard of a quarter of the time late at most, as long as that is below max_ms. */
void ctl_pause_longer(const struct ctl_options *o, uint64_t *ms, uint64_t max_ms);

/* ---------------------------------------------------------------- progress.c: how far something is */

#define CTL_PROGRESS_BUF 160

/* "[####............]  25 %  85 MB/s  3 min 20 s left", without the last two where there is no rate (bytes/s). Returns buf. */
char *ctl_progress_text(char buf[CTL_PROGRESS_BUF], uint64_t done, uint64_t all, uint64_t rate);
#define CTL_AGAIN_BUF 48
/* Behind a reason: " (looked at again in 12 s)"; "" for 0. Returns buf. */
char *ctl_again_text(char buf[CTL_AGAIN_BUF], uint32_t again_s);
/* Seconds that the rest takes; 0: nothing is left, or there is no rate. */
uint64_t ctl_left_s(uint64_t done, uint64_t all, uint64_t rate);

/* One row of the terminal that stderr is, in place of what it had before, cut at its width; and nothing in its place. */
void ctl_progress_line(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void ctl_progress_end(void);

/* ---------------------------------------------------------------- show.c: printing */

/* Bytes that are mostly text: bytes that are no UTF-8 become \xNN. A new reference. */
json_t *ctl_json_bytes(const void *bytes, size_t len);
json_t *ctl_json_bnf(const Fp__BnfInfo *b);

/* Prints the object and a newline, and drops the reference. 0, -ENOMEM (j is NULL) or -EIO. */
int ctl_json_print(json_t *j);

/* stdout has taken everything: 0 or -EIO, logged. */
int ctl_flush(void);

const char *ctl_level_text(int level); /* enum Level of life.proto */
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
