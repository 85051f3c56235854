/* Options: one table per program gives the struct, command line, fp.conf keys, FP_* environment, --help
 * and the OPTIONS part of the man page.
 *
 *     struct mgr_options { const char *dir; uint64_t cache_bytes; struct fp_addr listen; int log_level; };
 *     static const struct fp_opt opts[] = {
 *         FP_OPT_PATH(struct mgr_options, dir, "dir", NULL, "Directory of the database.",
 *                     .flags = FP_OPT_REQUIRED, .arg = "DIR"),
 *         FP_OPT_SIZE(struct mgr_options, cache_bytes, "cache", "64MiB", FP_MIB(1), FP_GIB(4), "Page
 * cache."), FP_OPT_ADDR(struct mgr_options, listen, "listen", "0.0.0.0:7420", 0, "Where to listen."),
 *         FP_OPT_LOG_LEVEL(struct mgr_options, log_level),
 *         FP_OPT_END
 *     };
 *     static const struct fp_opt_table table = {
 *         .prog = "fp-manager", .section = "manager", .summary = "…", .opts = opts };
 *     fp_opt_parse_or_exit(&table, &options, argc, argv);
 *
 * A field of the wrong type for its macro does not compile. Further members (.flags, .arg, .check) are
 * given as designated initialisers behind the help.
 *
 * Precedence: command line (and mount -o) > environment FP_<NAME> > own section of fp.conf > top of
 * fp.conf > default. `--name value`, `--name=value`; a boolean is `--name` or `--name=on|off`.
 * Built into every program: --help/-h, --version/-V, --config FILE (FP_CONFIG; '' = none; default
 * FP_SYSCONFDIR/fpstore/fp.conf where that exists), and hidden --print-man-options, --print-man-conf.
 * Every mistake is one line that says where (option, variable or file:line) and what to do.
 *
 * Main thread at start-up only. Out of memory aborts. */
#ifndef FP_OPT_H
#define FP_OPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fp/log.h"
#include "fp/units.h"

/* Field types: what the struct must hold for each. Strings live until fp_opts_free. */
enum fp_opt_type {
    FP_OPT_TYPE_STRING,   /* const char *; NULL when unset without default */
    FP_OPT_TYPE_PATH,     /* const char *; made absolute; never empty */
    FP_OPT_TYPE_SIZE,     /* uint64_t bytes */
    FP_OPT_TYPE_DURATION, /* uint64_t milliseconds */
    FP_OPT_TYPE_RATE,     /* uint64_t bytes per second */
    FP_OPT_TYPE_INT,      /* int64_t */
    FP_OPT_TYPE_BOOL,     /* bool */
    FP_OPT_TYPE_ENUM,     /* int, index into choices; -1 when unset without default */
    FP_OPT_TYPE_ADDR,     /* struct fp_addr; text[0] == 0 when unset */
    FP_OPT_TYPE_LIST,     /* struct fp_strlist; comma-separated and/or repeated */
};

enum fp_opt_flags {
    FP_OPT_REQUIRED = 1 << 0,   /* must come from somewhere */
    FP_OPT_POSITIONAL = 1 << 1, /* also taken from a bare argument, in table order; a LIST takes the rest */
    FP_OPT_SECRET = 1 << 2,     /* path of a secret: a value that looks like the secret itself is refused
                                   and never printed */
    FP_OPT_COMMON = 1 << 3,     /* may stand at the top of fp.conf; use the FP_OPT_KEY … macros below */
    FP_OPT_HIDDEN = 1 << 4,     /* not in --help and man page */
    FP_OPT_NO_FILE = 1 << 5,    /* makes no sense in fp.conf or environment (--ready-fd) */
    FP_OPT_WHOLE = 1 << 6,      /* LIST: each value is one item, commas and all */
    FP_OPT_ONCE = 1 << 7,       /* twice in the command line is a mistake: of what names things nobody means the last alone */
};

/* ADDR:PORT as given; IPv6 in brackets. Names are resolved later, by whoever connects. text is what the
 * rpc functions take (fp/addr.h reads the same form). */
#define FP_ADDR_TEXT_BUF 272
struct fp_addr {
    char text[FP_ADDR_TEXT_BUF]; /* "host:port"; empty = not given */
    char host[256];              /* without brackets */
    uint16_t port;
};

struct fp_strlist {
    size_t count;
    const char **items;
};

struct fp_opt {
    const char *name; /* lower-case, dashes; NULL ends the table */
    enum fp_opt_type type;
    size_t offset;
    const char *dflt;           /* as a user would write it; NULL = unset (0, NULL, false, -1) */
    int64_t imin, imax;         /* INT, ADDR (imin = lowest port: 0 where "any free port" makes sense) */
    uint64_t min, max;          /* SIZE, DURATION, RATE; max 0 = no limit; LIST: most items in max */
    const char *const *choices; /* ENUM: NULL-terminated */
    const char *help;           /* sentences; plain text, used by --help and man page alike */
    unsigned flags;             /* enum fp_opt_flags */
    const char *arg;            /* placeholder in help (SIZE, DIR, …); NULL = by type */
    /* Optional further check of the text; returns NULL or static text saying what to do. */
    const char *(*check)(const char *text);
};

#define FP_OPT_OFFSET_(T, field, want)                                                                       \
    (offsetof(T, field) +                                                                                    \
     0 * sizeof(char[__builtin_types_compatible_p(__typeof__(((T *)0)->field), want) ? 1 : -1]))

#define FP_OPT_END                                                                                           \
    {                                                                                                        \
        .name = NULL                                                                                         \
    }

#define FP_OPT_STRING(T, field, name_, dflt_, help_, ...)                                                    \
    {                                                                                                        \
        .name = name_, .type = FP_OPT_TYPE_STRING, .offset = FP_OPT_OFFSET_(T, field, const char *),         \
        .dflt = dflt_, .help = help_, ##__VA_ARGS__                                                          \
    }
#define FP_OPT_PATH(T, field, name_, dflt_, help_, ...)                                                      \
    {                                                                                                        \
        .name = name_, .type = FP_OPT_TYPE_PATH, .offset = FP_OPT_OFFSET_(T, field, const char *),           \
        .dflt = dflt_, .help = help_, ##__VA_ARGS__                                                          \
    }
#define FP_OPT_SIZE(T, field, name_, dflt_, min_, max_, help_, ...)                                          \
    {                                                                                                        \
        .name = name_, .type = FP_OPT_TYPE_SIZE, .offset = FP_OPT_OFFSET_(T, field, uint64_t),               \
        .dflt = dflt_, .min = min_, .max = max_, .help = help_, ##__VA_ARGS__                                \
    }
#define FP_OPT_DURATION(T, field, name_, dflt_, min_ms, max_ms, help_, ...)                                  \
    {                                                                                                        \
        .name = name_, .type = FP_OPT_TYPE_DURATION, .offset = FP_OPT_OFFSET_(T, field, uint64_t),           \
        .dflt = dflt_, .min = min_ms, .max = max_ms, .help = help_, ##__VA_ARGS__                            \
    }
#define FP_OPT_RATE(T, field, name_, dflt_, min_, max_, help_, ...)                                          \
    {                                                                                                        \
        .name = name_, .type = FP_OPT_TYPE_RATE, .offset = FP_OPT_OFFSET_(T, field, uint64_t),               \
        .dflt = dflt_, .min = min_, .max = max_, .help = help_, ##__VA_ARGS__                                \
    }
#define FP_OPT_INT(T, field, name_, dflt_, min_, max_, help_, ...)                                           \
    {                                                                                                        \
        .name = name_, .type = FP_OPT_TYPE_INT, .offset = FP_OPT_OFFSET_(T, field, int64_t), .dflt = dflt_,  \
        .imin = min_, .imax = max_, .help = help_, ##__VA_ARGS__                                             \
    }
#define FP_OPT_BOOL(T, field, name_, dflt_, help_, ...)                                                      \
    {                                                                                                        \
        .name = name_, .type = FP_OPT_TYPE_BOOL, .offset = FP_OPT_OFFSET_(T, field, bool), .dflt = dflt_,    \
        .help = help_, ##__VA_ARGS__                                                                         \
    }
#define FP_OPT_ENUM(T, field, name_, dflt_, choices_, help_, ...)                                            \
    {                                                                                                        \
        .name = name_, .type = FP_OPT_TYPE_ENUM, .offset = FP_OPT_OFFSET_(T, field, int), .dflt = dflt_,     \
        .choices = choices_, .help = help_, ##__VA_ARGS__                                                    \
    }
#define FP_OPT_ADDR(T, field, name_, dflt_, min_port, help_, ...)                                            \
    {                                                                                                        \
        .name = name_, .type = FP_OPT_TYPE_ADDR, .offset = FP_OPT_OFFSET_(T, field, struct fp_addr),         \
        .dflt = dflt_, .imin = min_port, .imax = 65535, .help = help_, ##__VA_ARGS__                         \
    }
#define FP_OPT_LIST(T, field, name_, dflt_, max_items, help_, ...)                                           \
    {                                                                                                        \
        .name = name_, .type = FP_OPT_TYPE_LIST, .offset = FP_OPT_OFFSET_(T, field, struct fp_strlist),      \
        .dflt = dflt_, .max = max_items, .help = help_, ##__VA_ARGS__                                        \
    }

/* Options that several programs share, so that name, default and help agree everywhere. These, and only
 * these, may stand at the top of fp.conf, before any [section]. */
#define FP_OPT_LOG_LEVEL(T, field)                                                                           \
    FP_OPT_ENUM(T, field, "log-level", "info", fp_log_level_names, "Least important lines to log.",          \
                .flags = FP_OPT_COMMON)
#define FP_OPT_KEY(T, field)                                                                                 \
    FP_OPT_PATH(T, field, "key", FP_SYSCONFDIR "/fpstore/key",                                               \
                "File with the store's key: 64 hexadecimal digits, readable by its owner only (mode 0600).", \
                .flags = FP_OPT_COMMON | FP_OPT_SECRET, .arg = "FILE")
#define FP_OPT_MANAGER(T, field, extra_flags)                                                                \
    FP_OPT_ADDR(T, field, "manager", NULL, 1, "Address of the store's manager.",                             \
                .flags = FP_OPT_COMMON | (extra_flags), .arg = "ADDR:PORT")
#define FP_OPT_NODE(T, field)                                                                                \
    FP_OPT_STRING(T, field, "node", NULL, "Name of this node in the store. By default, the host name.",      \
                  .flags = FP_OPT_COMMON, .arg = "NAME")
#define FP_OPT_DATA_ENCRYPTION(T, field)                                                                     \
    FP_OPT_BOOL(T, field, "data-encryption", "on",                                                           \
                "Encrypt chunk payloads between nodes. Off only where the network is trusted; both ends "    \
                "always prove the key.",                                                                     \
                .flags = FP_OPT_COMMON)
/* The words of close, in the order of enum cl_close_mode. */
extern const char *const fp_close_names[];
/* Of a mount, and of who starts one. */
#define FP_OPT_CLOSE(T, field)                                                                               \
    FP_OPT_ENUM(T, field, "close", "publish", fp_close_names,                                                \
                "What close(2) waits for: until other mounts can see the data (publish), until it is on "    \
                "the device as after fsync(2) (sync), or for nothing: another mount that opens the file "    \
                "waits instead (behind). With behind, what was closed is lost with the mount, unless it "    \
                "was synced, renamed or linked, or opened elsewhere, since.")
#define FP_OPT_READY_FD(T, field)                                                                            \
    FP_OPT_INT(T, field, "ready-fd", "-1", -1, 1 << 20,                                                      \
               "Write one line to this descriptor once ready, and close it: the address listened on, or "    \
               "the mountpoint.",                                                                            \
               .flags = FP_OPT_NO_FILE, .arg = "N")
/* A program of a job: the batch system sends SIGTERM to all of a job's processes, also when the user has asked for it long before the end (see fp/jobsignals.h). */
#define FP_OPT_IGNORE_TERM(T, field) \
    FP_OPT_BOOL(T, field, "ignore-term", "off", "Signals of a batch system are not for this program: only SIGPWR ends it.", .flags = FP_OPT_HIDDEN | FP_OPT_NO_FILE)

/* FP_SYSCONFDIR comes from the Makefile; this is what the file is called without it. */
#ifndef FP_SYSCONFDIR
#define FP_SYSCONFDIR "/etc"
#endif
#define FP_CONF_DEFAULT FP_SYSCONFDIR "/fpstore/fp.conf"

struct fp_opt_table {
    const char *prog;    /* "fp-manager" */
    const char *section; /* of fp.conf: "manager", "benefactor", "mount", "ctl", "store"; NULL: the program reads no fp.conf */
    const char *summary; /* one sentence for --help */
    const struct fp_opt *opts;
    bool words; /* not of a program: NAME=VALUE words of a #FP line, whose mistakes are told without dashes */
    bool mount_helper; /* accept -o a=b,c and -n -s -v -t TYPE as mount(8) passes them */
    const char *usage; /* what --help writes behind "Usage: "; NULL: made from the table */
    void (*print_more)(void); /* printed by --help between summary and options; NULL: nothing */
};

/* Parses everything into out: each field that is in the table is set, others are left alone. Prints and
 * exits: 0 after --help, --version and the --print-man ones, 2 after a mistake. Returns a handle that owns
 * the strings; programs may ignore it and keep it to the end of the process. */
struct fp_opts *fp_opt_parse_or_exit(const struct fp_opt_table *table, void *out, int argc, char **argv);

/* The steps of the above, for tests and for programs that add values of their own. The order of
 * args/set/mount_string does not matter, precedence is kept per option; finish comes last. On error
 * (-EINVAL, -ERANGE, -ENOENT …) the line for the user, without program name, is in fp_opts_error. */
struct fp_opts *fp_opts_new(const struct fp_opt_table *table, void *out);
void fp_opts_free(struct fp_opts *o); /* NULL is fine; out's strings die with it */

/* argv as main got it. Returns 0, or 1 when a --help-like option was printed to stdout: exit 0. */
int fp_opts_args(struct fp_opts *o, int argc, char **argv);

/* As if --name=value had been given. */
int fp_opts_set(struct fp_opts *o, const char *name, const char *value);

/* "a=b,c,d=e\,f" of mount -o: names of the table are set, mount(8)'s own (rw, nosuid, _netdev,
 * x-systemd.*, …) are collected for fp_opts_mount_flags, anything else is an error. */
int fp_opt_parse_mount_string(struct fp_opts *o, const char *text);

/* Generic mount options seen so far. Valid until fp_opts_free. */
const struct fp_strlist *fp_opts_mount_flags(const struct fp_opts *o);

/* Reads one config file strictly. Used by finish; for tests. */
int fp_opts_file(struct fp_opts *o, const char *path);

/* Environment, config file, defaults, required. */
int fp_opts_finish(struct fp_opts *o);

const char *fp_opts_error(const struct fp_opts *o);

/* Where the value came from: "command line", "environment", "fp.conf", "default", or "unset". */
const char *fp_opts_source(const struct fp_opts *o, const char *name);

/* "host:port", "[v6]:port"; 0 or -EINVAL with *why static text. min_port 0 is for
 * listening: ":0", any port, and ":7420", all addresses, are allowed. */
int fp_parse_addr(const char *text, int64_t min_port, struct fp_addr *out, const char **why);

/* For print_more, and for what else goes into man pages. A line of --help: two columns, the second wrapped. */
void fp_opt_print_help_line(const char *left, const char *help);
/* Text as roff wants it, to stdout. */
void fp_opt_print_roff(const char *text);

/* The candidate nearest to name by Damerau-Levenshtein distance, or NULL when none is near enough to be
 * what the user meant. candidates is NULL-terminated. */
const char *fp_nearest_name(const char *name, const char *const *candidates);

#endif
