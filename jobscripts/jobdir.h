/* What a job keeps in the memory or on the disk of a node outside of its store: key, logs, mountpoint, what fp-job stop must know. Blocks on the disk. */
#ifndef JOB_JOBDIR_H
#define JOB_JOBDIR_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define JOB_DIR_LOCK  ".fp-job"
#define JOB_DIR_CHARS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-" /* of a job's number; PBS has 12.server */

#define JOB_DIR_REMOVED ".removed-" /* and a number, behind its name */

#define JOB_DIR_MOUNT   "mnt"         /* a directory in it: where the store is mounted if it can't be at mount= */
#define JOB_DIR_START  "start"       /* a file in it, where fp-job start was called; locked while that starts the store */
#define JOB_DIR_GIVEN  "given"       /* a file in it: the store is there by an option of sbatch, and ends with the batch script */
#define JOB_DIR_ENDING "ending"      /* a file in it: fp-job stop has begun */
#define JOB_DIR_BEGUN  "begun"       /* a file in it: the application may use the store */
#define JOB_DIR_TOLD   "told"        /* the application was told that the job's time is nearly over */
#define JOB_TASK_PROLOG "task-prolog" /* a script in it, for sh: what is run before each task on the node. /tmp may be mounted noexec */
#define JOB_DIR_NODES  "nodes"       /* where the store was started: names of the job's nodes by rank, a line for each, as job_hosts_read and mpirun take them */
#define JOB_APPLICATION "application" /* the CPUs that are left to the application */

#define JOB_WHERE_BYTES 280u

/* What fp-job start leaves for stop and status, in DIR/job.json. */
struct job_record {
    char job[65];
    char root[280];      /* HOST:PORT of the root agent */
    char step[64];       /* of the agents; "": not known */
    char manager[280];
    char mount[PATH_MAX];
    char application[4096]; /* of the first node, where the batch script runs: CPUs of the application; "": all */
    char script[PATH_MAX]; /* copy of the #FP lines */
    uint32_t nodes;
    bool inside;         /* on some nodes it is mounted in a user namespace (enter.h) */
    pid_t launcher;      /* srun */
    uint64_t launcher_ticks;
    char elsewhere[JOB_WHERE_BYTES]; /* of the start alone: why it is not mounted at mount=; "": it is, or not known */
};

/* The same on each node where nobody else has taken the name: /tmp/fpstore-UID-JOB (dirname.h). */
void job_dir_path(char out[PATH_MAX], const char *job);
/* 0; -EPERM: somebody else has put something there; -EAGAIN: it is made and removed again and again; others of mkdir. */
int job_dir_make(const char *dir);
/* It is there, and nobody else may read it or has made it. */
bool job_dir_is_ours(const char *dir);
/*
 * For as long as this process, or one that it forks, lives, the directory and what is in it are passed by, however old, by what clears /tmp and looks at locks:
 * systemd-tmpfiles does (tmpfiles.d(5)). A shared lock on the directory itself. -EAGAIN: it is just being cleared, or gone; others of open.
 */
int job_dir_keep(const char *dir);
/* job_dir_make, job_dir_keep, and a lock in it by which everybody sees that it is in use, for as long as this process, or one that it forks, lives. -EBUSY: it is just being
 * removed, and that takes too long. */
int job_dir_hold(const char *dir);
/* Has anybody on this node a lock on this file of it? */
bool job_dir_is_locked(const char *dir, const char *name);
/* Has anybody on this node called job_dir_hold, and lives? */
bool job_dir_is_held(const char *dir);
/* job_dir_path and job_dir_hold; another name is taken, and that is logged, where the first is somebody else's. */
int job_dir_begin(char dir[PATH_MAX], const char *job);
/* Of one that is refused (-EPERM): whose it is, and what is to be done. */
#define JOB_DIR_WHOSE_BYTES 128u
void job_dir_whose(const char *dir, char *out, size_t size);
/* "DIR/name"; -ENAMETOOLONG. */
int job_dir_file(char out[PATH_MAX], const char *dir, const char *name);
/* A file in it for reading. -EPERM: it or the directory is somebody else's, or no such thing; others of open. Never waits for what others have put there. */
int job_dir_read(const char *dir, const char *name);
/* A file of ours alone, whole or not at all, unless the machine loses power. */
int job_dir_write(const char *dir, const char *name, const char *text, mode_t mode);

#define JOB_REMOVE_MS 60000u
/* fp_remove_tree within JOB_REMOVE_MS. -ETIMEDOUT, and logged: what is left stays. */
int job_dir_clear(const char *path);
/* All of it (job_dir_clear), by another name from the first moment on: who makes the directory anew meanwhile has nothing of it removed, and what is killed in
 * between is seen to be on its way out. 0, also if it was not there; else of the first thing that stays. */
int job_dir_remove(const char *dir);
/* Is it the name that one has while it is removed? */
bool job_dir_is_removed(const char *name);

/* Is a store mounted there, of another job or of the site? The directory itself is not looked at, which takes long if that store hangs. */
bool job_dir_taken(const char *path);
/* What is in a directory: of this user if there is such, else any. */
struct job_stray {
    char name[64]; /* its beginning, what is not ASCII as ?; "": it is empty, or can't be read */
    uid_t uid;     /* -1: not known */
};
/*
 * Would nobody miss what is in the directory while a store is mounted on it? 0, also if there are files of others where all may write without a sticky bit: anybody can leave one there, and
 * what is to be kept is not put there. -ENOTEMPTY: there are files of this user, or others in a directory that is not like that. out: NULL, or filled in either case.
 */
int job_dir_strays(const char *path, struct job_stray *out);
/* May this user mount something on the directory? 0; -ENOENT, -ENOTDIR; -EACCES: FUSE takes one that is the user's, or that all may write to without a sticky bit; -ENOTEMPTY: as
 * job_dir_strays. */
int job_dir_mountable(const char *path, struct job_stray *out);

int job_record_save(const char *dir, const struct job_record *r);
/* -ENOENT: nothing runs here; -EPERM: as job_dir_read; -EBADMSG. */
int job_record_load(const char *dir, struct job_record *out);

/* Without slashes that say nothing: twice, or at the end. */
void job_path_plain(char *path);
/* How long the $NAME or ${NAME} is that text begins with; 0: it is none. */
size_t job_variable(const char *text);
/* $NAME and ${NAME} of the environment. 0; -ENOENT and the name in out: it is not set; -ENAMETOOLONG. */
int job_expand(char out[PATH_MAX], const char *text);

#endif
