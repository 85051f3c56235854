/* Shared by opt.c, opt_value.c, opt_help.c and conf.c only. */
#ifndef FP_COMMON_OPT_IMPL_H
#define FP_COMMON_OPT_IMPL_H

#include "fp/opt.h"

/* Where a value came from; a higher one wins. */
enum opt_source {
    OPT_SRC_UNSET,
    OPT_SRC_DEFAULT,
    OPT_SRC_FILE_TOP,
    OPT_SRC_FILE_OWN,
    OPT_SRC_ENV,
    OPT_SRC_ARGS,
};

struct opt_slot {
    enum opt_source source;
    unsigned top_line, own_line; /* of the config file, to report keys given twice; 0 = not given */
};

struct fp_opts {
    const struct fp_opt_table *table;
    char *out; /* the caller's struct */
    unsigned count;
    struct opt_slot *slots; /* one per option */
    void **owned;           /* what fp_opts_free frees */
    size_t nowned;
    unsigned next_positional; /* index into the table where to look for the next one */
    const char *config_path;  /* NULL = not given; "" = none wanted */
    struct fp_strlist mount_flags;
    char error[1024];
};

/* The options that may stand at the top of fp.conf; NULL-terminated. */
extern const char *const opt_common_names[];

/* Memory owned by o; abort when there is none. */
void *opt_alloc(struct fp_opts *o, size_t len_bytes);
char *opt_strndup(struct fp_opts *o, const char *text, size_t len_bytes);
void opt_list_push(struct fp_opts *o, struct fp_strlist *list, const char *item);

/* Sets o->error and returns err. */
int opt_fail(struct fp_opts *o, int err, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* Index of the option of that name, or -1. */
int opt_find(const struct fp_opt_table *table, const char *name);

/* ", did you mean 'x'?" in buf, or "" when nothing is near. */
#define OPT_HINT_BUF 96
const char *opt_hint(char buf[OPT_HINT_BUF], const char *name, const char *const *candidates);

/* NULL-terminated names of the table's visible options, owned by o. */
const char *const *opt_names(struct fp_opts *o);

/* FP_<NAME> of an option. */
#define OPT_ENV_BUF 64
void opt_env_name(char buf[OPT_ENV_BUF], const char *name);

/* Checks text for option i and, unless a stronger source has spoken, stores it. where begins the error
 * line: "--pool", "FP_POOL", "/etc/fpstore/fp.conf:12: pool". */
int opt_apply(struct fp_opts *o, unsigned i, enum opt_source source, const char *where, const char *text);

/* "SIZE", "on|off", … for help texts. */
const char *opt_placeholder(struct fp_opts *o, const struct fp_opt *opt);

/* "64MiB to 1TiB", or "" when there is nothing to say. */
#define OPT_RANGE_BUF 128
const char *opt_range_text(char buf[OPT_RANGE_BUF], const struct fp_opt *opt);

void opt_print_help(struct fp_opts *o);
void opt_print_version(const struct fp_opt_table *table);
void opt_print_man_options(struct fp_opts *o);
void opt_print_man_conf(struct fp_opts *o);

#endif
