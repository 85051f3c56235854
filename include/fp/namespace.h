/*
 * A user and a mount namespace in which a user may mount FUSE file systems without any privilege: who has it, programs that enter it.
 *
 * It is known by a directory with two links, "user" and "mnt", as /proc/PID/ns is one. The user's number and group are his own in it. All functions: a process
 * that has one thread alone, else the kernel refuses; they block for seconds at most.
 */
#ifndef FP_NAMESPACE_H
#define FP_NAMESPACE_H

#include <stdbool.h>
#include <stddef.h>

struct fp_namespace {
    int user, mnt; /* descriptors that keep it, closed by exec; -1: none */
};

/* Makes one, and mounts something for a moment in it on the directory `trial` (NULL: nowhere), to see that this is allowed. 0, or negative errno and why has what to change. */
int fp_namespace_make(struct fp_namespace *out, const char *trial, char *why, size_t size);
void fp_namespace_close(struct fp_namespace *ns);

/* Makes the directory dir with links to the descriptors of this process: they lead somewhere as long as it lives. 0 or negative errno */
int fp_namespace_link(const struct fp_namespace *ns, const char *dir);

/* There is such a directory: who wants to see what is mounted must enter. */
bool fp_namespace_exists(const char *dir);

/*
 * The calling process goes there, in the same working directory, which must be one there, too. It has all capabilities there until it becomes another program. 0, also
 * if it is there already; -ESRCH: whoever kept it is gone; -EPERM: it is another user's, or the process is in one of its own; others.
 */
int fp_namespace_enter(const char *dir);

#endif
