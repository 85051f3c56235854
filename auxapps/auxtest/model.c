/*
 * The host in memory: life of a host, a call, a plugin's instance (see auxtest.h). Called by the checks, in the process of one check.
 */
#include <stdlib.h>
#include <string.h>

#include "auxapps/auxtest/auxtest.h"

uint64_t random_next(struct random *r)
{
    r->x += 0x9e3779b97f4a7c15ull;
    uint64_t x = r->x;

    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    return x ^ x >> 31;
}

uint64_t random_below(struct random *r, uint64_t n)
{
    return random_next(r) % n;
}

void host_new(struct fp_aux_host *h, const struct subject *s)
{
    char why[AUX_WHY_BYTES];
    struct aux_words words;

    memset(h, 0, sizeof(*h));
    h->handle.services = &auxtest_services;
    h->random.x = s->seed;
    h->verbose = s->verbose;
    pthread_mutex_init(&h->lock, NULL);
    if (aux_options_parse(s->plugin, s->declaration, &words, &h->options, why) < 0)
        auxtest_fail("%s", why);
}

static void stored_free(struct stored *c)
{
    free(c->data);
    free(c->note);
    free(c->keys);
    *c = (struct stored){ 0 };
}

void host_free(struct fp_aux_host *h)
{
    for (uint32_t i = 0; i < h->nchunks; i++)
        stored_free(&h->chunk[i]);
    aux_options_free(h->options);
    pthread_mutex_destroy(&h->lock);
}

void *subject_start(const struct subject *s, struct fp_aux_host *h)
{
    void *state = NULL;
    int rc = s->app->start ? s->app->start(h, &state) : 0;

    if (rc < 0)
        auxtest_fail("start answered %d (%s); its line above says why. Options go behind the plugin: fp-auxtest %s name=value", rc,
                 strerror(-rc), s->path);
    if (rc > 0)
        auxtest_fail("start answered %d: it must be 0 or a negative errno", rc);
    return state;
}

void subject_stop(const struct subject *s, void *state)
{
    if (s->app->stop)
        s->app->stop(state);
}

void call_begin(struct fp_aux_call *c, struct fp_aux_host *h, const struct fp_aux_chunk *k)
{
    memset(c, 0, sizeof(*c));
    c->handle.services = &auxtest_services;
    c->host = h;
    c->chunk = k;
    c->last_kind = -1;
    if (k) {
        c->rebuilt = malloc(k->len_bytes);
        c->fresh = malloc(k->len_bytes);
        if (!c->rebuilt || !c->fresh)
            abort();
    }
}

void call_end(struct fp_aux_call *c)
{
    if (c->out.map && !buffer_is_clean(&c->out))
        auxtest_fail("it wrote in front of the out buffer");
    buffer_free(&c->out);
    free(c->flat);
    free(c->rebuilt);
    free(c->fresh);
    stored_free(&c->note);
}
