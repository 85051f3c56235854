/*
 * What must not be left out: aux-apps without which data may not be stored, such as one that encrypts.
 *
 * Asked by whoever has an answer in hand (link and service threads), and by the end of all hope (calls.c). The rule is kept where data comes back, not where it
 * goes out: each answer says which stages the chunk has had, and one that lacks a required stage is not used, whatever the reason. So neither a chain that was
 * put together before somebody changed it, nor a host that goes on without a stage, can let plain data through; what is done before (jobs wait while the
 * chain is changed) only saves work.
 *
 * Required is who was declared so, or says so himself (FP_AUX_REQUIRED). Both are kept from the first host on: what a later one says takes nothing back. The user's
 * word can be taken back by hand (bypass=on), the aux-app's cannot.
 */
#include <stdio.h>
#include <string.h>

#include "client/aux/internal.h"

void cl_aux_learn(struct aux_app *p, const struct fp_auxw_app_info *info)
{
    p->info = *info;
    p->info.name[sizeof(info->name) - 1] = p->info.version[sizeof(info->version) - 1] = p->info.path[sizeof(info->path) - 1] = '\0';
    p->required |= info->required;
    p->takes_chunks |= (info->has & FP_AUXW_HAS_OUT) != 0;
}

static bool must_see(const struct aux_app *p)
{
    return p->required && p->takes_chunks && !p->bypassed;
}

bool cl_aux_all_may_pass(const struct cl_aux *a)
{
    for (uint32_t i = 0; i < a->napps; i++)
        if (a->app[i].failed || must_see(&a->app[i]))
            return false;
    return true;
}

static bool is_ours(const char *name)
{
    static const char *const ours[] = { "checksum", "compress", "dedup" };

    for (size_t i = 0; i < sizeof(ours) / sizeof(ours[0]); i++)
        if (strcmp(name, ours[i]) == 0)
            return true;
    return false;
}

bool cl_aux_may_refuse(struct cl_mount *m)
{
    struct cl_aux *a = m->aux;
    bool may = false;

    if (!a || a->decode_only)
        return false;
    pthread_mutex_lock(&a->lock);
    for (uint32_t i = 0; i < a->napps && !may; i++)
        may = a->app[i].required ? !a->app[i].bypassed : a->app[i].takes_chunks && !is_ours(a->app[i].decl.name);
    pthread_mutex_unlock(&a->lock);
    return may;
}

static bool has_stage(const struct cl_aux_job *job, const char *name)
{
    for (uint32_t i = 0; i < job->nstages; i++)
        if (strcmp(job->stages[i].name, name) == 0) /* ends with a NUL: result.c */
            return true;
    return false;
}

int cl_aux_left_out(const struct cl_aux *a, const struct cl_aux_job *job, uint32_t ran)
{
    if (job->new_bytes == 0) /* nothing is to be stored */
        return -1;
    for (uint32_t i = 0; i < a->napps; i++) {
        const struct aux_app *p = &a->app[i];

        if (!must_see(p))
            continue;
        if (!(ran & 1u << i) || ((p->required & FP_AUXW_REQUIRED_CODES) && !has_stage(job, p->info.name)))
            return (int)i;
    }
    return -1;
}

bool cl_aux_chain_changes(const struct cl_aux *a)
{
    return a->chain_sent != a->chain_wanted;
}

void cl_aux_chain_is_there(struct cl_aux *a)
{
    a->chain_sent = a->chain_wanted;
    for (uint32_t i = 0; i < a->napps; i++) {
        struct aux_app *p = &a->app[i];

        if (p->changing)
            snprintf(p->change, sizeof(p->change), "bypass=%s: done", p->bypassed ? "on" : "off");
        p->changing = false;
    }
}
