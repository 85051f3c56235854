/* Names of nodes: lists of them as users and batch systems give them, and which of them this machine is. Blocks on a file alone. */
#ifndef JOB_HOSTS_H
#define JOB_HOSTS_H

#include <stddef.h>
#include <stdint.h>

#define JOB_HOSTS_WHY_BYTES 320u

/*
 * "a,b,c", or "@FILE" with a name at the beginning of each line, as $PBS_NODEFILE has them. What follows a name in its line, and ":SLOTS" behind it, is passed
 * over, and so is a name that was there before: each node has one agent, whatever ranks it takes. SLOTS are a number of 1 or more, as mpirun --host has them.
 * Between commas there is a name; lines of a file may be empty, or begin with #. An address of IPv6 is in brackets, "[fd00::7]"; in a file it may be without.
 * *nodes: the caller frees each and the list; addresses are as address.h says. 0; -ENOENT: the file, or any name in it; -EINVAL: no name of a node, as a range
 * of Slurm's is not, or two names of one, with a domain and without, or the file is no text; -E2BIG; -ENOMEM; why then has a line.
 */
int job_hosts_read(const char *text, char ***nodes, uint32_t *n, char why[JOB_HOSTS_WHY_BYTES]);

/* The same as the file DIR/JOB_DIR_NODES, for "@FILE" of job_hosts_read and --hostfile of mpirun, whose command line has no room for all names. 0; -ENOMEM; of job_dir_write. */
int job_hosts_write(const char *dir, char *const *nodes, uint32_t n);
/* The n names of that file; NULL: it is not there, or has others. */
char **job_hosts_load(const char *dir, uint32_t n);
int job_hosts_copy(char *const *from, uint32_t n, char ***nodes); /* 0 or -ENOMEM, and *nodes is NULL */
void job_hosts_free(char **nodes, uint32_t n); /* also NULL */

/*
 * Slurm's way of writing many names: n[001-120,130],login1. *nodes as above, in the order in which Slurm counts. 0; -EINVAL: it is written in some other way;
 * -E2BIG; -ENOMEM; *nodes is not set then. Pure.
 */
int job_hostlist(const char *text, char ***nodes, uint32_t *n);

/*
 * The other way round: of `nodes` those with the k numbers in `which`, in that order, as far as there is room (JOB_HOSTLIST_BYTES at least), then " and N more". Returns out.
 */
#define JOB_HOSTLIST_BYTES 300u
char *job_hostlist_write(char *const *nodes, const uint32_t *which, uint32_t k, char *out, size_t size);

/* The one that this machine is: by its host name, with or without domain, or one of its addresses. -ENOENT: none. */
int64_t job_hosts_self(char *const *nodes, uint32_t n);

/* The names by which they are found soon: an array of pointers into nodes, sorted; the caller frees it alone. NULL: no memory. */
char ***job_hosts_sort(char **nodes, uint32_t n);
/* Where in nodes a name is; -ENOENT. */
int64_t job_hosts_find(char **nodes, char ***sorted, uint32_t n, const char *name);

/* Is a the same host as b, with a domain or without? Pure. */
int job_hosts_same(const char *a, const char *b);

#endif
