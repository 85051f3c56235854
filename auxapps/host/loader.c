/*
 * The loader thread: loads plugins with the privilege to read what fp-mount could read, after all other threads have given it up.
 *
 * Root's fpstore may lie in a user's home, behind a directory of mode 0700 or with files of mode 0600. fp-mount can read it. This process starts with
 * CAP_DAC_READ_SEARCH for that reason, and gives it up once the declared aux-apps have started. But a plugin that nobody declared is loaded when the
 * first chunk is met that it has coded, maybe hours later. So one thread of root's host keeps the privilege in reserve, takes it up for the time of
 * a load, and runs nothing of a plugin but its constructors; start() of a plugin loaded so late runs on the thread that asked, without.
 *
 * That guards against mistakes, not against a plugin that wants the privilege: threads that it makes in a constructor or in the start() of a declared one
 * inherit it, and code in the same address space can have this thread run a signal handler. root's aux-apps have root's files anyway.
 *
 * Rejected: a descriptor of the plugin directory, kept open and loaded from by /proc/self/fd/N/NAME.so. It gets past a closed directory above, but not into a
 * closed plugin directory or a file of mode 0600, and not to libraries of the plugin's own beside it. Copies of all plugins in memory files: a system
 * may forbid to run those (vm.memfd_noexec), a plugin installed later is not among them, and crashes in them have no file's name. Loading all there
 * is at the start: that runs what nobody has asked for.
 *
 * Where there is no such privilege to keep, that is of every user but root, there is no such thread, and who asks loads.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "auxapps/host/host.h"

#define LOAD_MS 30000u                 /* a plugin's constructors */

struct aux_loader {
    pthread_mutex_t turn;          /* one asks at a time */
    pthread_mutex_t lock;
    pthread_cond_t asked, done;
    /* lock: what is wanted, NULL: nothing, and what has come of it */
    const char *word;
    uint32_t index;
    struct aux_plugin *plugin;
    char *why;
    int rc;
    bool finished;
};

/* A constructor that crashes or does not end is the fault of the aux-app. */
static int load(struct aux_host *h, uint32_t index, const char *word, struct aux_plugin **out, char why[AUX_WHY_BYTES])
{
    aux_thread_mark(index, LOAD_MS);
    int rc = aux_plugin_load(word, h->plugin_dir, out, why);

    aux_thread_mark(FP_AUXW_NO_APP, 0);
    return rc;
}

static void *loader_thread(void *arg)
{
    struct aux_host *h = arg;
    struct aux_loader *l = h->loader;
    struct aux_thread self;

    aux_guard_reserve(false);
    pthread_setname_np(pthread_self(), "aux-loader");
    aux_thread_begin(&self, h, FP_AUXW_NO_APP, -1);
    pthread_mutex_lock(&l->lock);
    for (;;) {
        while (!l->word)
            pthread_cond_wait(&l->asked, &l->lock);
        aux_guard_reserve(true);
        l->rc = load(h, l->index, l->word, &l->plugin, l->why);
        aux_guard_reserve(false);
        l->word = NULL;
        l->finished = true;
        pthread_cond_signal(&l->done);
    }
    return NULL;
}

int aux_loader_new(struct aux_host *h)
{
    struct aux_loader *l;
    pthread_t thread;

    if (!aux_guard_has_reserve())
        return 0;
    l = calloc(1, sizeof(*l));
    if (!l)
        return -ENOMEM;
    pthread_mutex_init(&l->turn, NULL);
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->asked, NULL);
    pthread_cond_init(&l->done, NULL);
    h->loader = l;
    int rc = -pthread_create(&thread, NULL, loader_thread, h);

    if (rc < 0) {
        h->loader = NULL;
        free(l);
        return rc;
    }
    pthread_detach(thread);        /* ends with the process */
    return 0;
}

int aux_loader_load(struct aux_host *h, uint32_t index, const char *word, struct aux_plugin **out, char why[AUX_WHY_BYTES])
{
    struct aux_loader *l = h->loader;

    if (!l)
        return load(h, index, word, out, why);
    pthread_mutex_lock(&l->turn);
    pthread_mutex_lock(&l->lock);
    l->finished = false;
    l->why = why;
    l->index = index;
    l->word = word;
    pthread_cond_signal(&l->asked);
    while (!l->finished)
        pthread_cond_wait(&l->done, &l->lock);
    int rc = l->rc;

    if (rc == 0)
        *out = l->plugin;
    pthread_mutex_unlock(&l->lock);
    pthread_mutex_unlock(&l->turn);
    return rc;
}
