/*
 * fpctl, called for a job (fpctl_call.h). Called by steps.c. One thread.
 *
 * A call is put together word by word and run once. It owns its words, since paths come from lists that go, and knows the manager and the key of the job's store, which no other user of the node
 * may see in the environment. Rejected: to link what fpctl does: its lines and progress are what the user is to see, as if he had called it.
 */
#include "jobscripts/fpctl_call.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fp/beside.h"
#include "fp/command.h"

#define TIMEOUT_LEAST 100u /* that fpctl takes */

void job_call_add(struct job_call *c, const char *text)
{
    if (c->n == JOB_CALL_WORDS_MAX || !(c->words[c->n] = strdup(text)))
        abort();
    c->n++;
}

void job_call_begin(struct job_call *c, const struct job_run_of *r, const char *const *words)
{
    static const char *const tails[] = {"fpctl", NULL};

    c->n = 0;
    fp_beside(c->program, sizeof c->program, tails);
    job_call_add(c, c->program);
    for (; *words; words++)
        job_call_add(c, *words);
    snprintf(c->manager, sizeof c->manager, "--manager=%s", r->record.manager);
    snprintf(c->key, sizeof c->key, "--key=%s/key", r->dir);
    job_call_add(c, "--config=");
    job_call_add(c, c->manager);
    job_call_add(c, c->key);
}

void job_call_forget(struct job_call *c)
{
    for (size_t i = 0; i < c->n; i++)
        free(c->words[i]);
    c->n = 0;
}

size_t job_call_add_some(struct job_call *c, char *const *paths, size_t n, size_t skip)
{
    size_t some = n < JOB_CALL_PATHS_MAX ? n : JOB_CALL_PATHS_MAX;

    for (size_t i = 0; i < some; i++)
        job_call_add(c, paths[i] + skip);
    return some;
}

int job_call_run(struct job_call *c, uint64_t limit_ms)
{
    int rc;

    c->words[c->n] = NULL;
    rc = fp_command_shown_until(c->words, limit_ms, c->over);
    job_call_forget(c);
    return rc;
}

void job_call_add_stall(struct job_call *c, uint64_t ms)
{
    snprintf(c->stall, sizeof c->stall, "--stall=%llums", (unsigned long long)ms);
    job_call_add(c, c->stall);
}

void job_call_add_timeout(struct job_call *c, uint64_t ms)
{
    snprintf(c->timeout, sizeof c->timeout, "--timeout=%llums", (unsigned long long)(ms > TIMEOUT_LEAST ? ms : TIMEOUT_LEAST));
    job_call_add(c, c->timeout);
}
