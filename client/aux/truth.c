/*
 * How far aux-apps are believed (see aux.h): what the rest of fp-mount asks when it looks at the data that they have worked on.
 *
 * Any thread, `lock` for a moment. The data path compares (client/data/prove.c, datasum.c), since it has the pages; who is to blame is counted here.
 */
#include <string.h>

#include "client/aux/holds.h"
#include "client/aux/internal.h"

bool cl_aux_hides(struct cl_mount *m, const struct fp_auxw_stage *stages, uint32_t nstages)
{
    struct cl_aux *a = m->aux;
    bool hides = false;

    if (!a)
        return false;
    pthread_mutex_lock(&a->lock);
    for (uint32_t i = 0; i < a->napps; i++)
        for (uint32_t k = 0; k < nstages && (a->app[i].info.has & FP_AUXW_HAS_HIDES); k++)
            hides |= strncmp(stages[k].name, a->app[i].info.name, sizeof(stages[k].name)) == 0;
    pthread_mutex_unlock(&a->lock);
    return hides;
}

bool cl_aux_held(struct cl_mount *m, uint64_t chunk, struct cl_chunk_ref *out)
{
    return m->aux && cl_aux_holds_ref(m->aux, chunk, out);
}

void cl_aux_lied(struct cl_mount *m, uint32_t app, const char *what)
{
    if (m->aux && app < m->aux->napps)
        cl_aux_misdeed(m->aux, app, what);
}
