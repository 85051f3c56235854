/*
 * The table of services that plugins call through the inline functions of fp/auxapp.h, and those of them that need nobody else: options, log,
 * counters.
 *
 * Any thread. Counters are in the status page, so that fp-mount has them when the host dies; a name takes its place there once and for all.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>

#include "auxapps/host/host.h"

struct fp_aux_services aux_services;

static const char *sv_option_text(struct fp_aux_host *host, const char *name)
{
    return aux_option_text(host->app->options, name);
}

static int64_t sv_option_number(struct fp_aux_host *host, const char *name)
{
    return aux_option_number(host->app->options, name);
}

static void sv_log(struct fp_aux_host *host, int level, const char *text)
{
    struct aux_call *c = aux_self ? aux_self->call : NULL;

    if (c && c->said && c->app == host->app && level <= FP_AUX_WARN)
        snprintf(c->said, AUX_WHY_BYTES, "%.*s", AUX_WHY_BYTES - 1, text);
    aux_log_text(host->app->h, host->app->index, level, text);
}

/* The place of a counter, made if there is room. A name longer than its place is cut. */
static int counter(struct aux_app *a, const char *name, bool is_gauge)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    struct fp_auxw_stats *s = a->stats;
    uint32_t n = atomic_load_explicit(&a->ncounters, memory_order_acquire);
    size_t len = strnlen(name, sizeof(s->counter[0].name) - 1);

    for (uint32_t i = 0; i < n; i++) {
        if (strncmp(s->counter[i].name, name, len) == 0 && s->counter[i].name[len] == '\0')
            return (int)i;
    }
    pthread_mutex_lock(&lock);
    uint32_t now = atomic_load(&a->ncounters);

    for (uint32_t i = n; i < now; i++) {
        if (strncmp(s->counter[i].name, name, len) == 0 && s->counter[i].name[len] == '\0') {
            pthread_mutex_unlock(&lock);
            return (int)i;
        }
    }
    if (now < FP_AUXW_COUNTERS_MAX && len > 0) {
        memcpy(s->counter[now].name, name, len);
        atomic_store(&s->counter[now].is_gauge, is_gauge);
        atomic_store_explicit(&a->ncounters, now + 1, memory_order_release);
    }
    pthread_mutex_unlock(&lock);
    return now < FP_AUXW_COUNTERS_MAX && len > 0 ? (int)now : -1;
}

static void sv_count(struct fp_aux_host *host, const char *name, int64_t add)
{
    int i = counter(host->app, name, false);

    if (i >= 0)
        atomic_fetch_add_explicit(&host->app->stats->counter[i].value, add, memory_order_relaxed);
}

static void sv_gauge(struct fp_aux_host *host, const char *name, int64_t value)
{
    int i = counter(host->app, name, true);

    if (i >= 0)
        atomic_store_explicit(&host->app->stats->counter[i].value, value, memory_order_relaxed);
}

/* Filled by a plugin that knows less of it. */
static int sv_skip(struct fp_aux_host *host, const struct fp_aux_skip *said)
{
    struct aux_app *a = host->app;
    struct fp_aux_skip s = {0};

    memcpy(&s, said, said->size_bytes < sizeof(s) ? said->size_bytes : sizeof(s));
    if (!aux_may_skip(a))
        return -ENOTSUP;
    if (s.come > s.of || (s.of > 0 && s.step_bytes == 0))
        return -EINVAL;
    atomic_store(&a->skip_but_zeros, (s.flags & FP_AUX_SKIP_BUT_ZEROS) != 0);
    struct fp_auxw_skip m = {.h = {.type = FP_AUXW_SKIP}, .app = a->index, .flags = s.flags, .of = s.of, .come = s.come,
                             .bytes = s.bytes, .step_bytes = s.step_bytes};
    struct iovec iov = {&m, sizeof(m)};

    return aux_link_send(a->h, &iov, 1);
}

static const char *sv_node(struct fp_aux_host *host)
{
    return host->app->h->node;
}

static const char *sv_mountpoint(struct fp_aux_host *host)
{
    return host->app->h->mountpoint;
}

static const char *sv_cores(struct fp_aux_host *host)
{
    return host->app->h->cores_text;
}

void aux_services_init(void)
{
    struct fp_aux_services *s = &aux_services;

    s->size_bytes = sizeof(*s);
    s->abi = FP_AUX_ABI;
    s->option_text = sv_option_text;
    s->option_number = sv_option_number;
    s->log = sv_log;
    s->count = sv_count;
    s->gauge = sv_gauge;
    s->node = sv_node;
    s->mountpoint = sv_mountpoint;
    s->cores = sv_cores;
    s->skip = sv_skip;
    aux_call_fill(s);
    aux_figure2_fill(s);
    aux_svc_fill(s);
    aux_svc_fill_files(s);
}
