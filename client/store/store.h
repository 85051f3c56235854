/* fp-store: a whole store on one machine. One thread, start to end; every wait has a deadline.
 *
 * Functions that return int have logged one ERROR line when they return a negative code. */
#ifndef STORE_H
#define STORE_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "fp/log.h"
#include "fp/opt.h"

#define STORE_BENEFACTORS_MAX 256
#define STORE_MOUNTS_MAX      16
#define STORE_AUXAPPS_MAX     16
#define STORE_READY_MS        10000u /* from its start to its ready line */
#define STORE_ARGS_MAX        40 /* of a process */
#define STORE_PROCS_MAX       (1 + STORE_BENEFACTORS_MAX + STORE_MOUNTS_MAX)

enum store_command { STORE_UP, STORE_DOWN, STORE_STATUS };

struct store_options {
    int command;       /* enum store_command */
    const char *dir;   /* absolute; never NULL after parsing */
    const char *mount; /* absolute, as the kernel writes it; never NULL after parsing */
    bool dir_default;  /* in a directory that others may write to: checked more strictly */
    bool mount_given, benefactors_given, size_given, backend_given, mounts_given, pool_given, cores_given, auxapps_given, chunk_size_given, stripe_given, data_encryption_given, close_given;
    int64_t benefactors;
    int64_t mounts;
    uint64_t size_bytes; /* of each benefactor */
    uint64_t pool_bytes; /* of each mount */
    int close;           /* of each mount, of fp_close_names; close_given: today, or when the store was kept */
    const char *cores;   /* service cores of each mount; NULL: none */
    struct fp_strlist auxapps; /* of each mount, as fp-mount takes them */
    uint64_t chunk_size_bytes;
    int64_t stripe;
    uint64_t grace_ms; /* from SIGTERM to SIGKILL */
    const char *backend; /* as fp-benefactor takes it */
    bool keep, force, json, data_encryption;
    int log_level;
};

enum store_role { STORE_MANAGER, STORE_BENEFACTOR, STORE_MOUNT };

/* A process of the store. pid and start time together name it: a pid alone may belong to somebody else by now. */
struct store_proc {
    enum store_role role;
    unsigned index; /* from 1 */
    pid_t pid;
    uint64_t start_ticks; /* field 22 of /proc/PID/stat */
    int ready_fd;         /* while it starts; else -1 */
    int64_t log_from;     /* where in its log this run begins */
    char mountpoint[PATH_MAX];
    bool made_mountpoint;
    struct json_t *args;  /* an array of strings, with which it was started; NULL: by an fp-store that kept none */
};

/* What DIR/fp-store.json says. */
struct store_state {
    unsigned count;
    struct store_proc procs[STORE_PROCS_MAX];
    char boot_id[40];
    char manager[FP_ADDR_TEXT_BUF];
    char key[PATH_MAX];
};

/* ---------------------------------------------------------------- files.c: what lies in DIR */

/* Creates the directory if need be, checks that it is ours, and locks it against another fp-store until the program ends.
 * *made, if not NULL: it was not there before. */
int store_dir_open(const struct store_options *o, bool create, bool *made);
/* DIR/name into buf; -ENAMETOOLONG. */
int store_path(const struct store_options *o, char buf[PATH_MAX], const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
int store_mkdir(const char *path, bool *made);
/* Number of benefactor directories there are: what a store of before has left. */
unsigned store_count_benefactors(const struct store_options *o);
/* Enough room for the benefactors that have no directory yet. */
int store_check_space(const struct store_options *o, unsigned have);
int store_make_key(const struct store_options *o, char path[PATH_MAX]);
/* Removes all that fp-store and its programs have made in DIR; and DIR itself, if asked to and nothing else is in it. */
void store_remove_all(const struct store_options *o, bool dir_too);
/* The text of the last ERROR line of this run in a program's log, or else of its last line; "" if there is none. */
void store_log_cause(const struct store_options *o, const struct store_proc *p, char *cause, size_t room);
/* The text of the last line of this kind (FP_LOG_ERROR, FP_LOG_WARN) of this run; false if there is none. */
bool store_log_last(const struct store_options *o, const struct store_proc *p, enum fp_log_level level, char *text,
                    size_t room);
/* The line that says what a mount has lost at its end, or else the last ERROR line of this run; false if there is neither. */
bool store_log_loss(const struct store_options *o, const struct store_proc *p, char *text, size_t room);
/* What comes after this is what store_log_last and store_log_cause look at. */
void store_log_mark(const struct store_options *o, struct store_proc *p);
void store_log_path(const struct store_options *o, const struct store_proc *p, char buf[PATH_MAX]);

/* ---------------------------------------------------------------- state.c */

/* 0; -ENOENT (not logged): there is none. */
int store_state_load(const struct store_options *o, struct store_state *s);
int store_state_save(const struct store_options *o, const struct store_state *s);
/* DIR/name: whole or as it was before, and durable. j: borrowed; NULL: out of memory. Negative: logged */
int store_save_json(const struct store_options *o, const char *name, const struct json_t *j);
void store_state_remove(const struct store_options *o);

/* ---------------------------------------------------------------- shape.c: what a store was told, for the next up */

int store_shape_save(const struct store_options *o);
/* Changes only what is not given in o, and sets environment variables FP_* that are not; no file is no error. What o points to then lives as long as the process. */
int store_shape_load(struct store_options *o);
/* What this environment variable was when the store was brought up; NULL: not set, or not known. Borrowed, for as long as the process lives. */
const char *store_shape_variable(const struct store_options *o, const char *name);
/* The environment variables FP_* are those that the store was brought up with, and no others. */
int store_shape_environment(const struct store_options *o);

/* ---------------------------------------------------------------- proc.c: processes and mounts */

const char *store_role_program(enum store_role role);
/* "fp-benefactor 2"; buf of 32. */
const char *store_proc_name(const struct store_proc *p, char buf[32]);
bool store_proc_alive(const struct store_state *s, const struct store_proc *p);
/* Waits (seconds at most) for processes that were killed and are about to be gone: until they are, their mounts look alive. */
void store_wait_ending(const struct store_state *s);
/* Starts a program that lies beside ours, in a session of its own, output appended to its log; argv without argv[0], NULL at
 * the end, --ready-fd is added. */
int store_proc_start(const struct store_options *o, struct store_proc *p, char *const argv[]);
/* The same with the arguments that it had. */
int store_proc_start_again(const struct store_options *o, struct store_proc *p);
/* Kills one that we have started. */
void store_proc_kill(struct store_proc *p);
/* Waits for its ready line, cut to room; logs what it died of when it did. */
int store_proc_wait_ready(const struct store_options *o, struct store_proc *p, uint64_t until_ms, char *line,
                          size_t room);
/* SIGTERM to all of a role, again after wait_ms for mounts, which then end within seconds and say what is lost, and
 * SIGKILL; returns when they are gone (or, in the kernel, cannot go). How many were killed. */
unsigned store_stop_role(const struct store_state *s, enum store_role role, uint64_t wait_ms);

enum store_mount_kind { STORE_NOT_MOUNTED, STORE_OURS, STORE_DEAD, STORE_OTHER };
/* An fpstore is mounted there, dead or alive. Makes no call into the mount. */
bool store_is_mounted(const char *mountpoint);
/* Takes a second at most: a mount that does not answer is no dead one. */
enum store_mount_kind store_mount_look(const char *mountpoint);
void store_unmount(const char *mountpoint);
/* It can be mounted there, now that what a crash had left is unmounted. */
int store_clear_mountpoint(const char *mountpoint);

/* SIGINT or SIGTERM has come. */
bool store_interrupted(void);
void store_catch_signals(void);

/* ---------------------------------------------------------------- revive.c: what has died is started again */

/* It runs, is not about to end, and is mounted if it is a mount. Makes no call into the mount. */
bool store_proc_up(const struct store_state *s, const struct store_proc *p);
/* Starts the manager of s again where it was, for mounts that wait for it. */
int store_revive_manager(const struct store_options *o, struct store_state *s);
/* Starts again, as they were, all processes of s that are gone, and says which. The others are left alone; so is what was started
 * again when another one cannot be. */
int store_revive(const struct store_options *o, struct store_state *s);

/* ---------------------------------------------------------------- the commands: 0, negative, or 1 (status: not all up) */

int store_up(const struct store_options *o);
int store_down(const struct store_options *o);
int store_status(const struct store_options *o);
/* Stops all that is in s, unmounts, and removes the state file. -EIO: a mount could not write everything out (logged). */
int store_stop_all(const struct store_options *o, struct store_state *s);

#endif
