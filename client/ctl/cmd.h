/* The commands of fpctl: a struct ctl_cmd each, beside its function; their list is in main.c. --help, `COMMAND --help` and the man page are made from it. */
#ifndef CTL_CMD_H
#define CTL_CMD_H

#include "client/ctl/ctl.h"

enum ctl_cmd_flags {
    CTL_NO_STORE = 1 << 0, /* needs none: store and link are NULL */
    CTL_NO_LINK = 1 << 1,  /* opens the connection itself, if it needs one (ctl_open): store and link are NULL */
    CTL_WAITS = 1 << 2,    /* --timeout is the limit of all of it, not of each answer */
    CTL_PATIENT = 1 << 3,  /* with a limit (CTL_WAITS), a manager that is away is waited for, too; then exit CTL_LATE */
};

#define CTL_LATE 3 /* exit code: --timeout is over */

struct ctl_cmd {
    const char *words;   /* "auxapps set": 1 to 3 words; of several that fit, the longest is meant */
    const char *args;    /* what follows: words in capitals, optional ones in brackets, the last may end with "...": "NAME OPTION=VALUE [PATH]", "[PATH...]".
                            What begins with PATH is a path in the store, and says which store is meant; PATH[@N] may have a version. "": nothing */
    const char *options; /* names of those of main.c's table that it knows: "all watch". Manager, key, json, timeout and log-level are for all */
    const char *help;    /* one or two sentences */
    const char *more;    /* further ones, for man page and COMMAND --help; or NULL */
    const char *exits;   /* sentence about exit codes other than 0, 1 and 2; or NULL */
    unsigned flags;
    uint64_t limit_ms;   /* CTL_WAITS: without --timeout; 0: none */

    /* Prints its answer to stdout. 0; an exit code > 2 of its own; or negative, with one ERROR line logged: exit 1. */
    int (*run)(const struct ctl_options *o, const struct ctl_store *store, struct ctl_link *l);
};

extern const struct ctl_cmd ctl_cmd_status, ctl_cmd_benefactors, ctl_cmd_stat, ctl_cmd_df, ctl_cmd_locks, ctl_cmd_auxapps, ctl_cmd_auxapps_set, ctl_cmd_auxapp_new, ctl_cmd_verify, ctl_cmd_stop;
extern const struct ctl_cmd ctl_cmd_checkpoints, ctl_cmd_checkpoint_latest, ctl_cmd_checkpoint_commit, ctl_cmd_checkpoint_forget, ctl_cmd_conversions, ctl_cmd_versions, ctl_cmd_restore;
extern const struct ctl_cmd ctl_cmd_drain, ctl_cmd_drain_show, ctl_cmd_drain_cancel, ctl_cmd_drain_set, ctl_cmd_drain_remove, ctl_cmd_drain_release, ctl_cmd_evict, ctl_cmd_stage_in, ctl_cmd_stage_out, ctl_cmd_benefactor_set, ctl_cmd_wait, ctl_cmd_merge;
extern const struct ctl_cmd ctl_cmd_convert, ctl_cmd_schema;

/* convert.c: whatever begins with one of these two words goes to fp-convert, which becomes this process. 0: it does not begin so; negative: it could not, and why is logged. */
int ctl_convert_hand_over(int argc, char **argv);

/* The command that these words begin with; *used of them are its name. NULL: none, and why has a line that says so (size bytes). list ends with NULL. */
const struct ctl_cmd *ctl_cmd_find(const struct ctl_cmd *const *list, const struct fp_strlist *words, size_t *used, char *why, size_t size);

/* Puts what follows the name into o: names, paths, version. Paths are made absolute and live as long as the process. 0, or -EINVAL with a line in why. */
int ctl_cmd_args(const struct ctl_cmd *c, const char *const *words, size_t n, struct ctl_options *o, char *why, size_t size);

bool ctl_cmd_knows(const struct ctl_cmd *c, const char *option);

/* Two columns, for --help. */
void ctl_cmd_print_list(const struct ctl_cmd *const *list);

/* Entries in roff, for the man page. */
void ctl_cmd_print_man(const struct ctl_cmd *const *list);

/* drain.c: can benefactors use this directory as a target? 0: yes, or nobody knows as yet; negative: no, and why is logged. "": 0 */
int ctl_target_try(const struct ctl_options *o, struct ctl_link *l, const char *root);
/* drain.c: --to as an absolute path, "" where it was not given; NULL: logged. */
char *ctl_dest(const struct ctl_options *o, char buf[PATH_MAX]);
/* drain.c: until the job has ended, or --timeout is over, and then a line about it. An exit code, or negative. */
int ctl_job_wait(const struct ctl_options *o, struct ctl_link *l, uint64_t job);
int ctl_jobs_wait(const struct ctl_options *o, struct ctl_link *l, const uint64_t *jobs, int n); /* of several: the worst exit code */

/* Finds the store and connects, for commands with CTL_NO_LINK. Logs. *link: ctl_link_close. */
int ctl_open(const struct ctl_options *o, struct ctl_store *store, struct ctl_link **link);

#endif
