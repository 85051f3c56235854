/*
 * What a job's agent has made on this node, and what is left of it when the agent was killed: processes, a dead mount, the node's part of the store, the
 * job's own directory. Functions block, each with a limit, and log what they remove or can't.
 */
#ifndef JOB_LEFT_H
#define JOB_LEFT_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define JOB_NOTE_PIDS 5u

/* In DIR/node.json. */
struct job_note {
    char data[PATH_MAX];  /* on the SSD; "": not made */
    char mount[PATH_MAX]; /* "": not mounted */
    bool made_mount;      /* its directory, too */
    char link[PATH_MAX];  /* a symbolic link to it; "": none */
    struct {
        pid_t pid;        /* 0: none */
        uint64_t ticks;   /* fp_proc_ticks */
    } process[JOB_NOTE_PIDS]; /* in the order in which they are ended: what watches the agent, the agent, mount, benefactor, manager */
};

/* The agent's, whenever it has made something more. 0, or negative errno. */
int job_left_note(const char *dir, const struct job_note *note);

/* Removes a symbolic link if it is the one to the mount in dir (job_dir_path), and not somebody else's by now. */
void job_left_unlink(const char *link, const char *dir);
/* Takes away the mount of a program that is gone. One that answers is another store's by now, and in use. */
void job_left_unmount(const char *path);

/* Ends and removes all that the note in dir (job_dir_path) tells of, and dir; the agent at once, if it is still there, and the calling process never. Half a minute
 * at most, if everything hangs. */
void job_left_clean(const char *dir);

/* The same for all jobs of this user whose agents are gone; and their parts of stores below ssd, a directory (NULL: none is looked at), of which the note is lost.
 * Those that are held (job_dir_hold) are left alone. Returns how many there were. */
unsigned job_left_sweep(const char *ssd);

/* After that: mounts of stores of this user whose programs are gone, and of which no directory tells any more. Waits 2 seconds for each that does not answer, which is left alone. Returns
 * how many there were. */
unsigned job_left_unmount_dead(void);

#endif
