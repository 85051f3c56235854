/*
 * A cpuset of its own for fp-auxhost: exactly the service cores, which no thread in it can leave.
 */
#ifndef CL_AUX_CPUSET_H
#define CL_AUX_CPUSET_H

#include <sched.h>
#include <stddef.h>
#include <sys/types.h>

/* What the kernel does when a cgroup is made and removed, and where it says which there are. Unlike the real ones in tests alone. */
struct cl_cpuset_sys {
    const char *self_cgroup, *self_mountinfo; /* /proc/self/... */
    int (*make)(const char *dir);          /* as mkdir(2), with the files that are in a new cgroup */
    int (*remove)(const char *dir);        /* as rmdir(2) */
};
extern const struct cl_cpuset_sys cl_cpuset_kernel;

/* One for each mount; all zero is none. */
struct cl_cpuset {
    char dir[2048];                        /* ""; the host is in none */
    int lock_fd;                           /* of dir: says that its mount lives */
};

/*
 * Make one below the cgroup of this process (or beside it, where cgroup v2 wants that), with those of `cores` that may be used there, and move pid into it with
 * all its threads. Removes those that mounts have left which were killed. 0; or a negative errno with the reason in why, and nothing is left behind.
 */
int cl_cpuset_enter(struct cl_cpuset *c, const struct cl_cpuset_sys *sys, pid_t pid, const cpu_set_t *cores, char *why, size_t why_size);
/* Who was in it has ended. What a plugin has started and is still there keeps it for the next mount to remove. */
void cl_cpuset_leave(struct cl_cpuset *c, const struct cl_cpuset_sys *sys);

#endif
