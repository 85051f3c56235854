/* What keeps two jobs of a node from one directory for their stores, from the moment on at which they look whether it is free. */
#ifndef JOB_MOUNTLOCK_H
#define JOB_MOUNTLOCK_H

#include <stdbool.h>
#include <stddef.h>

#define JOB_CLAIM "claim" /* a file in a job's directory: where it wants its store */
#define JOB_CLAIMS_MAX 32u

struct job_mount_lock {
    int claim[JOB_CLAIMS_MAX]; /* of jobs of this user that want the same directory, ours among them: locked */
    size_t nclaims;
    int name;                  /* a socket; 0: none */
};

/*
 * l: all zeros. dir: of this job (job_dir_hold); path: job_path_plain. 0, until job_mount_unlock or the end of the process. -EADDRINUSE: another job of this user has it. Nobody else can hold this
 * one, and nothing that others do keeps it from anybody. Where there can be no locks it goes without.
 */
int job_mount_lock_own(struct job_mount_lock *l, const char *dir, const char *path);
/* Among users, of whom anybody can hold it without a store: false is a hint, no more. */
bool job_mount_lock_all(struct job_mount_lock *l, const char *path);
void job_mount_unlock(struct job_mount_lock *l, const char *dir);

#endif
