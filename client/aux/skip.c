/*
 * Chunks that need not go through the aux-apps, since these have said that they have nothing to do at present (fp_aux_skip).
 *
 * Store threads ask cl_aux_passes_over before a sealed buffer goes to the host; link and service threads ask cl_aux_skips for one that is sent there all the same, on
 * behalf of other stages. What aux-apps say comes on the link thread. All of it under a->lock, but for one flag that spares those who never hear such a word the lock.
 *
 * The mount counts and decides, and tells the host for each chunk which stages are left out of it: so there is one place to look at, what ends the word ends it at
 * once, and nobody is woken to say that there is nothing to do. That the plugin answers each chunk "nothing" was there before, and cost a third of the
 * store's speed: messages, two switches of threads and a turn in each queue. A word in shared memory, which plugins could write to, was rejected: a stray
 * write would keep data from them for ever.
 *
 * A word ends with the host, with a change of any option and of the chain, and by itself after so many bytes. It is nothing to an aux-app that is required or
 * changes the data, whoever has sent it: no chunk is stored without what must be done to it.
 */
#include <string.h>

#include "client/aux/internal.h"

/* lock held, all that follow. */
static bool may_skip(const struct aux_app *p)
{
    return !p->required && !(p->info.has & FP_AUXW_HAS_IN);
}

static bool comes(const struct aux_skip *s, uint64_t file_off)
{
    return s->left_bytes == 0 || (s->of > 0 && file_off / s->step_bytes % s->of < s->come);
}

static bool is_skipped(const struct aux_app *p, uint64_t file_off)
{
    return may_skip(p) && !comes(&p->skip, file_off);
}

static void charge(struct aux_app *p, uint32_t len_bytes)
{
    struct aux_skip *s = &p->skip;

    s->left_bytes -= s->left_bytes < len_bytes ? s->left_bytes : len_bytes;
    p->passed_chunks++;
    p->passed_bytes += len_bytes;
}

static void refresh(struct cl_aux *a)
{
    bool any = false;

    for (uint32_t i = 0; i < a->napps; i++)
        any |= a->app[i].skip.left_bytes > 0;
    atomic_store(&a->skips, any);
}

void cl_aux_skip_end(struct cl_aux *a)
{
    for (uint32_t i = 0; i < a->napps; i++)
        a->app[i].skip = (struct aux_skip){ 0 };
    refresh(a);
}

uint32_t cl_aux_skips(struct cl_aux *a, const struct cl_aux_job *job, bool count)
{
    uint32_t skip = 0;

    for (uint32_t i = 0; i < a->napps && !job->no_pieces && !job->no_stored; i++) {
        struct aux_app *p = &a->app[i];

        if (!p->takes_chunks || p->bypassed || !is_skipped(p, job->file_off))
            continue;
        skip |= 1u << i;
        if (count)
            charge(p, job->len_bytes);
    }
    return skip;
}

void cl_aux_skip_said(struct cl_aux *a, const struct fp_auxw_skip *m)
{
    pthread_mutex_lock(&a->lock);
    if (a->nchanging == 0 && !cl_aux_chain_changes(a) && m->app < a->napps && m->come <= m->of && (m->of == 0 || m->step_bytes > 0)) {
        a->app[m->app].skip = (struct aux_skip){ .left_bytes = m->bytes, .step_bytes = m->step_bytes, .of = m->of, .come = m->come,
                             .but_zeros = (m->flags & FP_AUX_SKIP_BUT_ZEROS) != 0 };
        refresh(a);
    }
    pthread_mutex_unlock(&a->lock);
}

/* lock not held, these two. */

bool cl_aux_may_pass_over(const struct cl_mount *m)
{
    return m->aux && atomic_load_explicit(&m->aux->skips, memory_order_relaxed);
}

enum cl_aux_over cl_aux_passes_over(struct cl_mount *m, uint64_t file_off, uint32_t len_bytes, bool no_zeros)
{
    struct cl_aux *a = m->aux;
    bool all, but_zeros = false;
    uint32_t stages = 0;

    pthread_mutex_lock(&a->lock);
    all = a->state == AUX_UP && !a->stopping && !a->anything_failed && !cl_aux_chain_changes(a);
    for (uint32_t i = 0; i < a->napps && all; i++) {
        if (!a->app[i].takes_chunks || a->app[i].bypassed)
            continue;
        stages++;
        all = is_skipped(&a->app[i], file_off);
        but_zeros |= a->app[i].skip.but_zeros;
    }
    all &= stages > 0;
    for (uint32_t i = 0; i < a->napps && all && (no_zeros || !but_zeros); i++)
        if (a->app[i].takes_chunks && !a->app[i].bypassed)
            charge(&a->app[i], len_bytes);
    refresh(a);
    pthread_mutex_unlock(&a->lock);
    return !all ? CL_AUX_COMES : no_zeros || !but_zeros ? CL_AUX_OVER : CL_AUX_OVER_BUT_ZEROS;
}
