/*
 * Scratch memory of the data path (see scratch.h). Called by store threads (packing, decoding ahead), FUSE threads (decoding), the core loop (giving back after
 * a remote write) and the tick.
 *
 * malloc gives memory of this size from the system and back each time, and the page faults of a megabyte cost twenty times what copying it does (0.54 ms
 * against 0.02 ms). Pages of the pool were rejected: who holds some while it waits for more could wait for itself.
 */
#include "client/data/scratch.h"

#include <stdlib.h>

#include "fp/record.h"

/* A window of the usual size and of the largest, with what coding adds. */
static const struct {
    size_t bytes;
    unsigned keep;
} classes[CL_SCRATCH_CLASSES] = { { (1u << 20) + (128u << 10), CL_SCRATCH_KEPT_MAX }, { FP_STORED_MAX_BYTES + (64u << 10), 3 } };

void cl_scratch_init(struct cl_scratch *s)
{
    *s = (struct cl_scratch){ 0 };
    pthread_mutex_init(&s->lock, NULL);
}

void cl_scratch_fini(struct cl_scratch *s)
{
    for (unsigned i = 0; i < CL_SCRATCH_CLASSES; i++)
        while (s->class[i].nkept > 0)
            free(s->class[i].kept[--s->class[i].nkept]);
    pthread_mutex_destroy(&s->lock);
}

static unsigned class_of(size_t bytes)
{
    unsigned i = 0;

    while (i < CL_SCRATCH_CLASSES && bytes > classes[i].bytes)
        i++;
    return i;
}

void *cl_scratch_get(struct cl_scratch *s, size_t bytes)
{
    unsigned i = class_of(bytes);
    void *p = NULL;

    if (i == CL_SCRATCH_CLASSES)
        return NULL;
    pthread_mutex_lock(&s->lock);
    if (s->class[i].nkept > 0) {
        p = s->class[i].kept[--s->class[i].nkept];
        if (s->class[i].nkept < s->class[i].least)
            s->class[i].least = s->class[i].nkept;
    }
    pthread_mutex_unlock(&s->lock);
    return p ? p : aligned_alloc(4096, classes[i].bytes);
}

void cl_scratch_put(struct cl_scratch *s, void *p, size_t bytes)
{
    unsigned i = class_of(bytes);

    if (!p)
        return;
    pthread_mutex_lock(&s->lock);
    if (s->class[i].nkept < classes[i].keep) {
        s->class[i].kept[s->class[i].nkept++] = p;
        p = NULL;
    }
    pthread_mutex_unlock(&s->lock);
    free(p);
}

void cl_scratch_tick(struct cl_scratch *s)
{
    for (unsigned i = 0; i < CL_SCRATCH_CLASSES; i++) {
        void *p = NULL;

        pthread_mutex_lock(&s->lock);
        if (s->class[i].least > 0)
            p = s->class[i].kept[--s->class[i].nkept];
        s->class[i].least = s->class[i].nkept;
        pthread_mutex_unlock(&s->lock);
        free(p);
    }
}
