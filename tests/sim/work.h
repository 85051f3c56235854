/* The workload: applications of several nodes, and the check at the end. See work.c. */
#ifndef TESTS_SIM_WORK_H
#define TESTS_SIM_WORK_H

#include <stdbool.h>
#include <stdint.h>

struct sim_node;
struct sim_proc;

struct work_counts { /* all uint64_t: they are added up */
    uint64_t opens, creates, reads, writes, truncates, fsyncs, closes, unlinks, renames, links, dirs, lists, locks, appends, xattrs, ranges, symlinks, errors, bytes_checked, kills, powers;
    uint64_t lives, evicts, targets, levels, disks; /* of seeds with a target: work_life.c */
};

extern struct work_counts work_counts;

/* What happened to logs (work_append.c): see model.h for the same of files. */
void appends_mount_died(const struct sim_proc *m);
void appends_cut_off(const struct sim_proc *m);
void appends_power_lost(const struct sim_node *n);
void appends_damaged(void);
void lives_damaged(void);
void xattrs_power_lost(void); /* of the manager's node (work_xattr.c) */

void work_start(unsigned level);

/* Instead of work_start (checkpoint.c). */
struct checkpoint {
    unsigned nodes, ranks, windows; /* ranks on each node, windows that each writes */
    bool shared;                    /* one file of all, in turns */
};
bool checkpoint_parse(const char *text, struct checkpoint *out); /* NODES:RANKS:WINDOWS[:shared] */
void checkpoint_start(const struct checkpoint *what);
void work_counts_print(const struct work_counts *c);
_Noreturn void sim_end(void);

#endif
