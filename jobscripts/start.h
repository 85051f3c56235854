/* The store of a job from its start to its end, as fp-job start, stop and run have it in common. Functions block, each with a limit, and log what fails. */
#ifndef JOB_START_H
#define JOB_START_H

#include <stdbool.h>
#include <stdint.h>

#include "jobscripts/launch/alloc.h"
#include "jobscripts/script/declared.h"
#include "jobscripts/script/findings.h"
#include "jobscripts/job.h"
#include "jobscripts/jobdir.h"

struct job_run_of {
    struct job_alloc alloc;
    char dir[PATH_MAX];
    struct job_declared declared;
    struct job_findings findings;
    struct job_record record;
    char auxapp_dir[PATH_MAX];
    char naming[64]; /* where the directory of mount= is named as text; "": nowhere */
    bool given;   /* by an option of sbatch, before the script began: it is used, and not ended */
    bool kept;    /* on-failure=keep, and it is */
    uint64_t stall_ms; /* what is brought out may stand still for so long */
    int start_fd; /* a lock, while it is being started */
};

/* SIGINT, SIGTERM and SIGHUP are counted from now on, unless they are ignored already. */
void job_catch_signals(void);
bool job_interrupted(void);
/* A second ^C since job_catch_signals: what is not brought out yet is not to be. */
bool job_given_up(void);
/* Whom the same is told; 0: nobody any more. */
void job_signals_to(pid_t child);

/* Reads the script, checks it, starts everything on all nodes and what is to be done before the application. stays: we stay until its end,
 * and if we are gone before, it ends. A store that the job was given is taken as it is. Negative: nothing is left running. */
int job_start(const struct job_options *o, bool stays, struct job_run_of *r);
/* Once signals are the application's (app.h): one that came before is the end of the store, as if it had not started. 0; -EINTR. */
int job_begin_application(struct job_run_of *r);
/* Ends a store that no application has seen: nothing is brought out of it, and nothing is kept. */
void job_abandon(struct job_run_of *r);
/* What is running of this job, for stop. -ENOENT and logged: nothing. */
int job_find(struct job_run_of *r);
/* Brings data to where it is to be, within limit_ms or what the job has left, and ends everything. code: the application's. What this job's script shall end with: code, or 1 if not all data was brought out. */
int job_end(struct job_run_of *r, int code, uint64_t limit_ms);
void job_run_fini(struct job_run_of *r);

/* steps.c: what is done by fpctl before and after the application. */
/* Makes what is drained to, and in it what all nodes of the job look for; path: as that of job_shared_mark. */
int job_steps_target(const struct job_run_of *r, char path[PATH_MAX]);
int job_steps_before(const struct job_run_of *r);
/* code: the application's. -EIO: not all data is where it is to be. */
int job_steps_after(const struct job_run_of *r, int code, uint64_t limit_ms);
int job_steps_stop(const struct job_run_of *r);
/* Is anything to be brought out of the store at the end? */
bool job_steps_needed(const struct job_declared *d);

#endif
