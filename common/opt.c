/* Options: command line, environment, precedence. (opt_value.c: one value; conf.c: fp.conf; opt_help.c:
 * --help and man page.)
 *
 * Called by main() of every program, before any thread. The table is the only place where an option is
 * described; everything else is derived from it, so help, man page, file and environment cannot drift
 * apart.
 *
 * Each option remembers the strongest source that has set it, so sources may be read in any order: the
 * command line first, because it says which config file to read. A value from a weaker source is still
 * checked: a mistake in fp.conf should not wait for the day the command line stops hiding it.
 *
 * getopt_long() was rejected: it abbreviates names (--man would mean --manager today and be ambiguous
 * tomorrow), cannot suggest the nearest name, and prints its own messages. */
#include "opt_impl.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NAME_MAX_BYTES 48

const char *const fp_close_names[] = {"publish", "sync", "behind", NULL};
const char *const opt_common_names[] = {"manager", "key", "log-level", "node", "data-encryption", NULL};

static void *must(void *p)
{
    if (!p) {
        static const char text[] = "fp: ERROR: out of memory while reading options\n";
        (void)!write(STDERR_FILENO, text, sizeof text - 1);
        abort();
    }
    return p;
}

/* Arrays grow by doubling: one is full when its count is a power of two. */
static bool is_full(size_t count)
{
    return (count & (count - 1)) == 0;
}

void *opt_alloc(struct fp_opts *o, size_t len_bytes)
{
    if (is_full(o->nowned))
        o->owned = must(reallocarray(o->owned, o->nowned ? 2 * o->nowned : 1, sizeof *o->owned));
    void *p = must(calloc(1, len_bytes ? len_bytes : 1));
    o->owned[o->nowned++] = p;
    return p;
}

char *opt_strndup(struct fp_opts *o, const char *text, size_t len_bytes)
{
    char *p = opt_alloc(o, len_bytes + 1);
    memcpy(p, text, len_bytes);
    return p;
}

void opt_list_push(struct fp_opts *o, struct fp_strlist *list, const char *item)
{
    /* A fresh array each time that it doubles keeps ownership trivial. One for each item would be gigabytes for a command line of some ten thousand files. */
    if (is_full(list->count)) {
        const char **items = opt_alloc(o, (list->count ? 2 * list->count : 1) * sizeof *items);
        if (list->count > 0)
            memcpy(items, list->items, list->count * sizeof *items);
        list->items = items;
    }
    list->items[list->count++] = opt_strndup(o, item, strlen(item));
}

int opt_fail(struct fp_opts *o, int err, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(o->error, sizeof o->error, fmt, ap);
    va_end(ap);
    for (char *p = o->error; *p; p++) /* what a user or a file gave is in it, and it is to be one line */
        if ((unsigned char)*p < ' ' || *p == 0x7f)
            *p = '?';
    return err;
}

int opt_find(const struct fp_opt_table *table, const char *name)
{
    for (int i = 0; table->opts[i].name; i++) {
        if (strcmp(table->opts[i].name, name) == 0)
            return i;
    }
    return -1;
}

const char *const *opt_names(struct fp_opts *o)
{
    const char **names = opt_alloc(o, (o->count + 1) * sizeof *names);
    unsigned n = 0;
    for (unsigned i = 0; i < o->count; i++) {
        if (!(o->table->opts[i].flags & FP_OPT_HIDDEN))
            names[n++] = o->table->opts[i].name;
    }
    return names;
}

const char *opt_hint(char buf[OPT_HINT_BUF], const char *name, const char *const *candidates)
{
    const char *near = fp_nearest_name(name, candidates);
    buf[0] = '\0';
    if (near)
        snprintf(buf, OPT_HINT_BUF, ": did you mean '%s'?", near);
    return buf;
}

void opt_env_name(char buf[OPT_ENV_BUF], const char *name)
{
    int n = snprintf(buf, OPT_ENV_BUF, "FP_%s", name);
    assert(n < OPT_ENV_BUF);
    for (char *p = buf; *p; p++)
        *p = *p == '-' ? '_' : (char)toupper((unsigned char)*p);
}

static bool is_common(const char *name)
{
    for (const char *const *c = opt_common_names; *c; c++) {
        if (strcmp(*c, name) == 0)
            return true;
    }
    return false;
}

struct fp_opts *fp_opts_new(const struct fp_opt_table *table, void *out)
{
    struct fp_opts *o = must(calloc(1, sizeof *o));
    o->table = table;
    o->out = out;
    for (const struct fp_opt *opt = table->opts; opt->name; opt++) {
        assert(strlen(opt->name) < NAME_MAX_BYTES);
        assert(!(opt->flags & FP_OPT_COMMON) || is_common(opt->name));
        o->count++;
    }
    o->slots = must(calloc(o->count + 1, sizeof *o->slots));
    for (unsigned i = 0; i < o->count; i++) {
        char where[NAME_MAX_BYTES + 16];
        const struct fp_opt *opt = &table->opts[i];
        assert(opt_find(table, opt->name) == (int)i); /* no name twice */
        snprintf(where, sizeof where, "default of %s", opt->name);
        int rc = opt_apply(o, i, OPT_SRC_DEFAULT, where, opt->dflt);
        if (rc < 0) {
            fprintf(stderr, "%s: bug in the option table: %s\n", table->prog, o->error);
            abort();
        }
    }
    return o;
}

/* What fp_opt_parse_or_exit made: callers may drop the handle, and a leak checker must still find it.
 * volatile, or the compiler drops it too. */
static struct fp_opts *volatile kept;

void fp_opts_free(struct fp_opts *o)
{
    if (!o)
        return;
    if (kept == o)
        kept = NULL;
    for (size_t i = 0; i < o->nowned; i++)
        free(o->owned[i]);
    free(o->owned);
    free(o->slots);
    free(o);
}

const char *fp_opts_error(const struct fp_opts *o)
{
    return o->error;
}

const struct fp_strlist *fp_opts_mount_flags(const struct fp_opts *o)
{
    return &o->mount_flags;
}

const char *fp_opts_source(const struct fp_opts *o, const char *name)
{
    static const char *const texts[] = {"unset",   "default",     "fp.conf",
                                        "fp.conf", "environment", "command line"};
    int i = opt_find(o->table, name);
    return i < 0 ? "unset" : texts[o->slots[i].source];
}

/* Words have no --help at hand: all that there are. */
static int unknown_word(struct fp_opts *o, const char *name, const char *near)
{
    char all[400] = "";
    size_t n = 0;
    if (near)
        return opt_fail(o, -EINVAL, "'%.80s' is not understood: did you mean '%s'?", name, near);
    for (const char *const *c = opt_names(o); *c && n < sizeof all; c++)
        n += (size_t)snprintf(all + n, sizeof all - n, "%s%s", n ? ", " : "", *c);
    return opt_fail(o, -EINVAL, "'%.80s' is not understood: there are %s", name, all);
}

static int unknown_option(struct fp_opts *o, const char *prefix, const char *name)
{
    const char *near = fp_nearest_name(name, opt_names(o));
    if (o->table->words)
        return unknown_word(o, name, near);
    if (!near)
        return opt_fail(o, -EINVAL, "unknown option '%s%.80s': see --help", prefix, name);
    return opt_fail(o, -EINVAL, "unknown option '%s%.80s': did you mean '%s%s'?", prefix, name, prefix, near);
}

int fp_opts_set(struct fp_opts *o, const char *name, const char *value)
{
    char where[NAME_MAX_BYTES + 4];
    int i = opt_find(o->table, name);
    if (i < 0)
        return unknown_option(o, "", name);
    snprintf(where, sizeof where, "%s%s", o->table->words ? "" : "--", name);
    if (o->table->opts[i].flags & FP_OPT_ONCE && o->slots[i].source == OPT_SRC_ARGS)
        return opt_fail(o, -EINVAL, "%s is given twice", where);
    return opt_apply(o, (unsigned)i, OPT_SRC_ARGS, where, value);
}

static int positional(struct fp_opts *o, const char *text)
{
    char where[NAME_MAX_BYTES];
    for (unsigned i = o->next_positional; i < o->count; i++) {
        const struct fp_opt *opt = &o->table->opts[i];
        if (!(opt->flags & FP_OPT_POSITIONAL))
            continue;
        o->next_positional = opt->type == FP_OPT_TYPE_LIST ? i : i + 1;
        snprintf(where, sizeof where, "%s", opt_placeholder(o, opt));
        return opt_apply(o, i, OPT_SRC_ARGS, where, text);
    }
    return opt_fail(o, -EINVAL, "unexpected argument '%s': see --help", text);
}

/* Options every program has. Returns 1 when it printed something, 0 when arg is none of them. */
static int builtin(struct fp_opts *o, const char *arg)
{
    if (strcmp(arg, "--help") == 0 || strcmp(arg, "-h") == 0)
        opt_print_help(o);
    else if (strcmp(arg, "--version") == 0 || strcmp(arg, "-V") == 0)
        opt_print_version(o->table);
    else if (strcmp(arg, "--print-man-options") == 0)
        opt_print_man_options(o);
    else if (strcmp(arg, "--print-man-conf") == 0)
        opt_print_man_conf(o);
    else
        return 0;
    return 1;
}

/* --name, --name=value, --name value. *i is moved over a value taken from the next argument. */
static int long_option(struct fp_opts *o, int argc, char **argv, int *i)
{
    char name[NAME_MAX_BYTES];
    const char *arg = argv[*i] + 2;
    const char *eq = strchr(arg, '=');
    size_t len = eq ? (size_t)(eq - arg) : strlen(arg);
    if (len == 0 || len >= sizeof name)
        return opt_fail(o, -EINVAL, "unknown option '--%.*s': see --help", (int)(len < 80 ? len : 80), arg);
    memcpy(name, arg, len);
    name[len] = '\0';

    bool is_config = o->table->section && strcmp(name, "config") == 0;
    int idx = opt_find(o->table, name);
    if (idx < 0 && !is_config)
        return unknown_option(o, "--", name);

    const char *value = eq ? eq + 1 : NULL;
    const struct fp_opt *opt = is_config ? NULL : &o->table->opts[idx];
    if (!value && opt && opt->type == FP_OPT_TYPE_BOOL)
        value = "on";
    if (!value) {
        if (*i + 1 >= argc || strncmp(argv[*i + 1], "--", 2) == 0)
            return opt_fail(o, -EINVAL, "--%s needs a value: --%s %s", name, name,
                            opt ? opt_placeholder(o, opt) : "FILE");
        value = argv[++*i];
    }
    if (is_config) {
        o->config_path = value;
        return 0;
    }
    return fp_opts_set(o, name, value);
}

/* What mount(8) passes to its helpers: -o a,b  -n -s -v  -t TYPE. */
static int mount_option(struct fp_opts *o, int argc, char **argv, int *i)
{
    const char *arg = argv[*i];
    if (strcmp(arg, "-n") == 0 || strcmp(arg, "-s") == 0 || strcmp(arg, "-v") == 0)
        return 0;
    if (arg[1] != 'o' && arg[1] != 't')
        return unknown_option(o, "", arg);
    const char *value = arg[2] ? arg + 2 : NULL;
    if (!value) {
        if (*i + 1 >= argc)
            return opt_fail(o, -EINVAL, "%s needs a value: see --help", arg);
        value = argv[++*i];
    }
    return arg[1] == 'o' ? fp_opt_parse_mount_string(o, value) : 0;
}

int fp_opts_args(struct fp_opts *o, int argc, char **argv)
{
    bool only_positional = false;
    for (int i = 1; i < argc; i++) {
        const char *arg = argv[i];
        int rc;
        if (only_positional || arg[0] != '-' || arg[1] == '\0') {
            rc = positional(o, arg);
        } else if (strcmp(arg, "--") == 0) {
            only_positional = true;
            rc = 0;
        } else if (builtin(o, arg)) {
            return 1;
        } else if (arg[1] == '-') {
            rc = long_option(o, argc, argv, &i);
        } else if (o->table->mount_helper) {
            rc = mount_option(o, argc, argv, &i);
        } else {
            rc = unknown_option(o, "", arg);
        }
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* mount(8) and fstab words that are not ours; it passes them all to the helper. */
static bool is_generic_mount_flag(const char *word)
{
    static const char *const words[] = {"rw",
                                        "ro",
                                        "suid",
                                        "nosuid",
                                        "dev",
                                        "nodev",
                                        "exec",
                                        "noexec",
                                        "sync",
                                        "async",
                                        "dirsync",
                                        "atime",
                                        "noatime",
                                        "diratime",
                                        "nodiratime",
                                        "relatime",
                                        "norelatime",
                                        "strictatime",
                                        "lazytime",
                                        "nolazytime",
                                        "auto",
                                        "noauto",
                                        "defaults",
                                        "user",
                                        "nouser",
                                        "users",
                                        "owner",
                                        "group",
                                        "_netdev",
                                        "nofail",
                                        "mand",
                                        "nomand",
                                        "silent",
                                        "loud",
                                        "allow_other",
                                        "default_permissions",
                                        "nostrictatime",
                                        NULL};
    for (const char *const *w = words; *w; w++) {
        if (strcmp(*w, word) == 0)
            return true;
    }
    return strncmp(word, "x-", 2) == 0 || strncmp(word, "comment=", 8) == 0 ||
           strncmp(word, "user=", 5) == 0 || strncmp(word, "subtype=", 8) == 0 ||
           strncmp(word, "fsname=", 7) == 0;
}

static int mount_word(struct fp_opts *o, const char *word)
{
    char name[NAME_MAX_BYTES];
    size_t len = strcspn(word, "=");
    const char *value = word[len] ? word + len + 1 : NULL;
    snprintf(name, sizeof name, "%.*s", (int)(len < sizeof name ? len : sizeof name - 1), word);
    int i = opt_find(o->table, name);
    if (i >= 0 && !value && o->table->opts[i].type != FP_OPT_TYPE_BOOL)
        return opt_fail(o, -EINVAL, "-o %s needs a value: %s=%s", name, name,
                        opt_placeholder(o, &o->table->opts[i]));
    if (i >= 0)
        return fp_opts_set(o, name, value ? value : "on");
    if (strcmp(name, "config") == 0 && value)
        o->config_path = opt_strndup(o, value, strlen(value));
    else if (is_generic_mount_flag(word))
        opt_list_push(o, &o->mount_flags, word);
    else if (*word)
        return unknown_option(o, "-o ", name);
    return 0;
}

int fp_opt_parse_mount_string(struct fp_opts *o, const char *text)
{
    char *word = opt_alloc(o, strlen(text) + 1);
    size_t n = 0;
    for (const char *p = text;; p++) {
        if (*p == '\\' && (p[1] == ',' || p[1] == '\\')) {
            word[n++] = *++p;
            continue;
        }
        if (*p != ',' && *p != '\0') {
            word[n++] = *p;
            continue;
        }
        word[n] = '\0';
        n = 0;
        int rc = mount_word(o, word);
        if (rc < 0 || *p == '\0')
            return rc;
    }
}

static int read_environment(struct fp_opts *o)
{
    for (unsigned i = 0; i < o->count; i++) {
        char name[OPT_ENV_BUF];
        if (o->table->opts[i].flags & FP_OPT_NO_FILE)
            continue;
        opt_env_name(name, o->table->opts[i].name);
        const char *value = getenv(name);
        if (!value || !*value)
            continue;
        int rc = opt_apply(o, i, OPT_SRC_ENV, name, value);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int read_config(struct fp_opts *o)
{
    const char *path = o->config_path ? o->config_path : getenv("FP_CONFIG");
    if (!o->table->section)
        return 0;
    if (path)
        return *path ? fp_opts_file(o, path) : 0;
    if (access(FP_CONF_DEFAULT, F_OK) < 0 && (errno == ENOENT || errno == ENOTDIR))
        return 0;
    return fp_opts_file(o, FP_CONF_DEFAULT);
}

static int check_required(struct fp_opts *o)
{
    for (unsigned i = 0; i < o->count; i++) {
        char env[OPT_ENV_BUF];
        const struct fp_opt *opt = &o->table->opts[i];
        if (!(opt->flags & FP_OPT_REQUIRED) || o->slots[i].source > OPT_SRC_UNSET)
            continue;
        if (opt->flags & FP_OPT_POSITIONAL)
            return opt_fail(o, -EINVAL, "%s is missing: see --help", opt_placeholder(o, opt));
        opt_env_name(env, opt->name);
        return opt_fail(o, -EINVAL, "--%s is missing: give --%s %s, or set %s, or '%s' in fp.conf", opt->name,
                        opt->name, opt_placeholder(o, opt), env, opt->name);
    }
    return 0;
}

int fp_opts_finish(struct fp_opts *o)
{
    int rc = read_environment(o);
    if (rc == 0)
        rc = read_config(o);
    return rc == 0 ? check_required(o) : rc;
}

struct fp_opts *fp_opt_parse_or_exit(const struct fp_opt_table *table, void *out, int argc, char **argv)
{
    struct fp_opts *o = fp_opts_new(table, out);
    kept = o;
    int rc = fp_opts_args(o, argc, argv);
    if (rc == 0)
        rc = fp_opts_finish(o);
    if (rc < 0) {
        fp_log_init(table->prog, FP_LOG_ERROR);
        FP_ERROR("%s", fp_opts_error(o));
    }
    if (rc != 0) {
        fp_opts_free(o);
        exit(rc < 0 ? 2 : 0);
    }
    return o;
}
