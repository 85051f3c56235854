/*
 * Aux-app drain: tells the store which checkpoints a job wants to have in the parallel file system.
 *
 *     drain to=/lustre/proj/run every=4
 *
 * It takes no chunk and sees no call: the benefactors that hold the data drain it, when the manager says so (paper, section IV.B: draining is an aux-app
 * that runs on them), so it costs a mount nothing. All that is done here is to give the words to the manager when the mount starts; 10,000 mounts with the
 * same words make one policy, which stays when they end. The words are those of common/drainopt.c, which no plugin can link; tests/unit/test_drainopt.c
 * compares the two.
 *
 * A manager that is away does not keep the mount from starting, nor the host from starting again: it is told as soon as it can be, from `idle`. What
 * it refuses ends the start, with its reason: a user would take his checkpoints for safe.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fp/auxapp.h"

#define TEXT_BYTES 4096
#define WHY_BYTES  512

struct drain {
    struct fp_aux_host *host;
    bool told;
    char text[TEXT_BYTES];
};

static const char *const on_off[] = { "off", "on", NULL };
static const char *const no_yes[] = { "no", "yes", NULL };
static const char *const layouts[] = { "file", "log", NULL };
static const char *const levels[] = { "local", "drained", "verified", NULL };
static const char *const completes[] = { "auto", "told", NULL };

static const struct fp_aux_option options[] = {
    { .name = "to", .help = "Directory of another file system, the same on all nodes: the target." },
    { .name = "every", .fallback = "1", .help = "Each so many-th complete checkpoint set is drained; auto: as many as space and the target's speed allow; none." },
    { .name = "keep", .fallback = "2", .min = 1, .max = 1000, .help = "So many of the newest complete sets are never evicted." },
    { .name = "pattern", .help = "Which files are checkpoints, with {step} where the step stands: run/chk_{step}/*. By default, names tell." },
    { .name = "results", .help = "Single files that are drained when they are closed: out/*.h5,summary.txt." },
    { .name = "all", .fallback = "no", .choices = no_yes, .help = "Drain every file that is closed." },
    { .name = "verify", .fallback = "off", .choices = on_off, .help = "Read back from the target and compare digests." },
    { .name = "layout", .fallback = "file", .choices = layouts, .help = "log: one stream for each benefactor, which fpctl merge turns into files." },
    { .name = "max", .fallback = "0", .help = "Bytes per second to the target, of each node: 200MB/s. 0: no limit." },
    { .name = "max-job", .fallback = "0", .help = "The same of all nodes together." },
    { .name = "level", .fallback = "local", .choices = levels, .help = "What a new version must have reached until the one before it is given up." },
    { .name = "quiet", .help = "A set in which nothing has changed for so long is complete. By default what fp-manager has: --ckpt-quiet." },
    { .name = "late", .help = "The same, if it has fewer files than the one before. By default --ckpt-late of fp-manager." },
    { .name = "complete", .fallback = "auto", .choices = completes, .help = "told: a set is complete only when a marker, an xattr or fpctl says so." },
    { .name = "marker", .help = "Names of files whose close says that their set is complete. By default COMPLETE,.complete,_SUCCESS,DONE." },
    { .name = "low", .fallback = "30%", .help = "When less of the store is free than this, draining goes first." },
    { .name = "overwrite", .fallback = "no", .choices = no_yes, .help = "Replace also files in the target that another store relies on, since it has evicted data of them." },
    { .name = NULL },
};

/* The words that are not at their default, as the user would give them to `fpctl drain set`. */
static int fill_text(struct drain *d)
{
    size_t n = 0;

    for (const struct fp_aux_option *o = options; o->name; o++) {
        const char *value = fp_aux_option_text(d->host, o->name);

        if (!value || (o->fallback && strcmp(value, o->fallback) == 0))
            continue;
        n += (size_t)snprintf(d->text + n, sizeof(d->text) - n, "%s%s=\"%s\"", n ? " " : "", o->name, value);
        if (n >= sizeof(d->text))
            return -ENAMETOOLONG;
    }
    return 0;
}

static int tell(struct drain *d)
{
    char why[WHY_BYTES] = "", line[WHY_BYTES + 100];
    int rc = fp_aux_policy(d->host, d->text, why, sizeof(why));

    d->told = rc == 0;
    fp_aux_gauge(d->host, "policy told", d->told);
    if (rc == -EINVAL) {
        snprintf(line, sizeof(line), "the manager refuses it: %s", why);
        fp_aux_log(d->host, FP_AUX_ERROR, line);
    }
    return rc;
}

static int drain_start(struct fp_aux_host *host, void **state)
{
    struct drain *d = calloc(1, sizeof(*d));
    int rc = d ? 0 : -ENOMEM;

    if (d) {
        d->host = host;
        rc = fill_text(d);
    }
    if (rc == 0 && !fp_aux_option_text(host, "to")) {
        fp_aux_log(host, FP_AUX_ERROR, "it does not say where to: declare it as 'drain to=DIRECTORY ...'");
        rc = -EINVAL;
    }
    rc = rc == 0 ? tell(d) : rc;
    if (rc == -EAGAIN || rc == -ECANCELED) {
        fp_aux_log(host, FP_AUX_WARN, "the manager could not be told what is to be drained: tried again");
        rc = 0;
    }
    if (rc < 0)
        free(d);
    else
        *state = d;
    return rc;
}

static int drain_idle(void *state, struct fp_aux_call *call)
{
    struct drain *d = state;

    (void)call;
    if (!d->told && tell(d) == 0)
        fp_aux_log(d->host, FP_AUX_INFO, "the manager knows what is to be drained");
    return 0;
}

static void drain_stop(void *state)
{
    free(state);
}

static const struct fp_aux_app app = {
    .abi = FP_AUX_ABI,
    .size_bytes = sizeof(app),
    .name = "drain",
    .version = "1",
    .summary = "the benefactors copy checkpoints to the parallel file system",
    .options = options,
    .start = drain_start,
    .stop = drain_stop,
    .idle = drain_idle,
};

FP_AUX_APP(app)
