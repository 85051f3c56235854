/*
 * Start and end of the mount's side of aux-apps. Called by main(), and by whoever reads the first coded chunk on a mount that has declared none.
 *
 * Everything is made before the link thread starts and freed after it has ended; in between nothing here changes. The region is a sparse memfd: what
 * is not used takes no memory, so the part for reading is large enough for one of the largest chunks without costing anything.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "client/aux/files.h"
#include "client/aux/holds.h"
#include "client/aux/internal.h"
#include "client/aux/svc_file.h"
#include "client/data.h"
#include "fp/memfd.h"

/* Two buffers for one of the largest chunks, and as much for smaller ones beside it. */
#define IN_BYTES (4ull * (FP_AUX_CHUNK_MAX_BYTES + 2 * AUX_UNIT_BYTES))

static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER; /* of m->aux_decode */
static bool mount_ends;                                    /* making: no more of them */

static int map_region(struct cl_aux *a)
{
    uint64_t out_bytes = a->m->opt.aux_region_bytes / AUX_UNIT_BYTES * AUX_UNIT_BYTES;
    void *at;
    int rc;

    if (a->decode_only)
        out_bytes = AUX_UNIT_BYTES;
    a->region_bytes = out_bytes + IN_BYTES;
    a->region_fd = fp_memfd_new("fpstore-aux-region", a->region_bytes);
    rc = a->region_fd < 0 ? a->region_fd : fp_memfd_seal(a->region_fd);
    if (rc < 0)
        return rc;
    at = mmap(NULL, a->region_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, a->region_fd, 0);
    if (at == MAP_FAILED)
        return -errno;
    a->region = at;
    (void)madvise(at, a->region_bytes, MADV_DONTDUMP);
    rc = cl_aux_region_init(&a->out_room, 0, out_bytes);
    return rc == 0 ? cl_aux_region_init(&a->in_room, out_bytes, IN_BYTES) : rc;
}

static void aux_free(struct cl_aux *a)
{
    cl_aux_own_files_free(a);
    cl_aux_stats_free(a);
    cl_aux_files_free(a);
    cl_aux_holds_free(a);
    cl_aux_region_fini(&a->out_room);
    cl_aux_region_fini(&a->in_room);
    if (a->region)
        munmap(a->region, a->region_bytes);
    if (a->region_fd >= 0)
        close(a->region_fd);
    if (a->wake_fd >= 0) /* not before: whoever submits late still wakes the link thread that is gone */
        close(a->wake_fd);
    pthread_cond_destroy(&a->room);
    pthread_cond_destroy(&a->cond);
    pthread_mutex_destroy(&a->lock);
    free(a);
}

static struct cl_aux *aux_alloc(struct cl_mount *m, struct cl_pool *pool)
{
    struct cl_aux *a = calloc(1, sizeof(*a));
    pthread_condattr_t attr;

    if (!a)
        return NULL;
    a->m = m;
    a->pool = pool;
    a->region_fd = a->wake_fd = -1;
    a->started_ms = fp_now_ms();
    pthread_mutex_init(&a->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&a->cond, &attr);
    pthread_cond_init(&a->room, &attr);
    pthread_condattr_destroy(&attr);
    TAILQ_INIT(&a->sent);
    for (int k = 0; k < AUX_KINDS; k++)
        TAILQ_INIT(&a->waiting[k]);
    return a;
}

static int declare(struct cl_aux *a)
{
    struct cl_aux_decl *decl = calloc(FP_AUXW_APPS_MAX, sizeof(*decl));
    const char *why = NULL;
    int n = decl ? cl_aux_decl_all(&a->m->opt.auxapps, decl, &why) : -ENOMEM;

    for (int i = 0; i < n; i++) {
        a->app[i].decl = decl[i];
        a->app[i].required = decl[i].required ? FP_AUXW_REQUIRED : 0;
    }
    free(decl);
    if (n < 0)
        FP_ERROR("--auxapp: %s", why ? why : fp_strerror(n));
    a->napps = n > 0 ? (uint32_t)n : 0;
    return n < 0 ? n : 0;
}

static int make(struct cl_mount *m, struct cl_pool *pool, bool decode_only, struct cl_aux **out)
{
    struct cl_aux *a = aux_alloc(m, pool);
    int rc;

    if (!a)
        return -ENOMEM;
    a->decode_only = decode_only;
    cl_aux_find_programs(a);
    rc = decode_only ? 0 : declare(a);
    if (rc == 0)
        rc = map_region(a);
    if (rc == 0)
        rc = cl_aux_holds_new(a);
    if (rc == 0)
        rc = cl_aux_files_new(a);
    if (rc == 0)
        rc = cl_aux_stats_new(a);
    if (rc == 0)
        rc = cl_aux_own_files_new(a);
    if (rc == 0)
        rc = cl_aux_tasks_start(a);
    if (rc < 0) {
        aux_free(a);
        return rc;
    }
    a->started = decode_only; /* nobody waits for the first start of such a host */
    rc = cl_aux_link_start(a);
    *out = a;
    return rc;
}

static void end(struct cl_aux *a)
{
    cl_aux_link_stop(a);
    cl_aux_tasks_stop(a); /* finishes what it has: results that waited to be held */
    cl_aux_own_files_drop(a);
}

static int wait_for_start(struct cl_aux *a)
{
    int rc;

    pthread_mutex_lock(&a->lock);
    while (!a->started)
        pthread_cond_wait(&a->cond, &a->lock); /* bounded by the link thread */
    rc = a->start_error;
    pthread_mutex_unlock(&a->lock);
    if (rc < 0)
        FP_ERROR("%s", a->start_why);
    return rc;
}

/* A chain that makes no sense works, and gains nothing: the user is told. */
static void warn_of_order(const struct cl_aux *a)
{
    for (uint32_t i = 0; i < a->napps; i++)
        for (uint32_t k = i + 1; k < a->napps; k++) {
            const char *first = a->app[i].info.name, *then = a->app[k].info.name;
            uint32_t has = a->app[i].info.has, has_then = a->app[k].info.has;

            if ((has & FP_AUXW_HAS_IN) && strcmp(then, "dedup") == 0)
                FP_WARN("--auxapp: dedup comes after %s, which changes the data: it will find no duplicates. Declare it before %s",
                    first, first);
            else if ((has & FP_AUXW_HAS_HIDES) && (has_then & FP_AUXW_HAS_OUT))
                FP_WARN("--auxapp: %s comes after %s and sees hidden data only. Declare it before %s", then, first, first);
            else if ((has & FP_AUXW_HAS_OUT) && !(has & FP_AUXW_HAS_IN) && (has_then & FP_AUXW_HAS_HIDES))
                FP_WARN("--auxapp: %s comes before %s and sees the plain data: digests or notes that it keeps are in the store as they are, and "
                    "who can read them can check a guess at the data. Leave %s out if that matters",
                    first, then, first);
        }
}

int cl_aux_start(struct cl_mount *m, struct cl_pool *pool)
{
    struct cl_aux *a = NULL;
    int rc;

    pthread_mutex_lock(&making);
    mount_ends = false;
    pthread_mutex_unlock(&making);
    if (m->opt.auxapps.count == 0)
        return 0;
    rc = make(m, pool, false, &a);
    if (rc < 0)
        FP_ERROR("cannot make ready for aux-apps: %s", fp_strerror(rc));
    else
        rc = wait_for_start(a);
    if (rc < 0) {
        if (a) {
            end(a);
            aux_free(a);
        }
        return rc;
    }
    warn_of_order(a);
    m->aux = a;
    return 0;
}

void cl_aux_stop(struct cl_mount *m)
{
    struct cl_aux *a;

    pthread_mutex_lock(&making);
    mount_ends = true;
    a = m->aux ? m->aux : m->aux_decode;
    pthread_mutex_unlock(&making);
    if (!a)
        return;
    if (m->aux)
        (void)cl_aux_holds_release_all(a);
    end(a);
}

void cl_aux_free(struct cl_mount *m)
{
    struct cl_aux *a = m->aux ? m->aux : m->aux_decode;

    m->aux = m->aux_decode = NULL;
    if (a)
        aux_free(a);
}

struct cl_aux *cl_aux_for_decoding(struct cl_mount *m)
{
    struct cl_aux *a = m->aux;
    int rc;

    if (a)
        return a;
    pthread_mutex_lock(&making);
    if (!m->aux_decode && !mount_ends) {
        rc = make(m, cl_data_pool(m), true, &m->aux_decode);
        if (rc < 0)
            FP_LOG_EVERY(10000, FP_LOG_ERROR, "cannot start a host for aux-apps, which coded chunks are read with: %s", fp_strerror(rc));
    }
    a = m->aux_decode;
    pthread_mutex_unlock(&making);
    return a;
}
