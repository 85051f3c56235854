/*
 * Watching the host: deadlines, its beat, its memory; who is to blame for its end; and when an aux-app has failed too often.
 *
 * Runs on the link thread. The status page is written by the host, i.e. by plugins, so nothing in it is believed but as a number in
 * range: at worst the wrong aux-app is blamed. What is read here costs a look at 64 slots ten times a second while something is going on.
 *
 * The memory counted is what the host has for itself (resident less shared): pool and region are the mount's.
 */
#include <ctype.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/aux/internal.h"
#include "fp/units.h"

#define BEAT_MS     10000u  /* without a beat: it is stopped or its main thread is stuck */
#define STILL_MS    2000u   /* without a beat: then nobody is to blame for a deadline */
#define STUCK_MS    20000u  /* jobs without any answer, and no thread in a callback */
#define GRACE_MS    100u    /* beyond a deadline */
#define BUSY_MS     100     /* between two looks */
#define QUIET_MS    500
#define REFUSED_MS  600000u
#define NOBODYS_MAX 20u     /* ends of the host within a minute that nobody is to blame for */

static const char *app_of(struct cl_aux *a, int app)
{
    return app >= 0 ? cl_aux_app_name(&a->app[app]) : "fp-auxhost";
}

static int in_range(struct cl_aux *a, uint32_t in_call)
{
    return in_call >= 1 && in_call <= a->napps ? (int)in_call - 1 : -1;
}

/* One that nobody declared, loaded to decode, is named in a->culprit; what it does counts for nobody else. */
static bool is_undeclared(struct cl_aux *a, uint32_t in_call)
{
    uint32_t place = in_call - 1;

    if (in_call == 0 || place < a->napps || place >= FP_AUXW_APPS_MAX)
        return false;
    snprintf(a->culprit, sizeof(a->culprit), "%.*s", (int)sizeof(a->culprit) - 1, a->host->status->undeclared[place]);
    for (char *p = a->culprit; *p; p++) /* of a page that plugins can write to */
        if (!isalnum((unsigned char)*p) && *p != '-' && *p != '_')
            *p = '?';
    return a->culprit[0] != '\0';
}

/* -------------------------------------------------------------- is it well? */

static bool over_deadline(const struct fp_auxw_thread *t, uint64_t now_ns, uint32_t *deadline_ms)
{
    uint64_t since_ns = atomic_load(&t->since_ns);

    *deadline_ms = atomic_load(&t->deadline_ms);
    return *deadline_ms > 0 && since_ns > 0 && now_ns > since_ns + ((uint64_t)*deadline_ms + GRACE_MS) * 1000000u;
}

static const char *watch_threads(struct cl_aux *a, int *app, char *why, size_t size, bool *busy)
{
    const struct fp_auxw_status *s = a->host->status;
    uint64_t now_ns = fp_now_ns();

    for (uint32_t i = 0; i < FP_AUXW_THREADS_MAX; i++) {
        const struct fp_auxw_thread *t = &s->thread[i];
        uint32_t in_call, deadline_ms;

        if (atomic_load(&t->tid) == 0)
            continue;
        in_call = atomic_load(&t->in_call);
        if (in_call == 0)
            continue;
        *busy = true;
        if (!over_deadline(t, now_ns, &deadline_ms) || atomic_load(&t->in_call) != in_call)
            continue;
        *app = in_range(a, in_call);
        if (is_undeclared(a, in_call))
            snprintf(why, size, "aux-app %s, loaded to read what it has coded: a call of it took longer than its deadline of %u ms", a->culprit,
                 deadline_ms);
        else
            snprintf(why, size, "a call of it took longer than its deadline of %u ms", deadline_ms);
        return why;
    }
    return NULL;
}

static const char *watch_beat(struct cl_aux *a, uint64_t now_ms, char *why, size_t size)
{
    uint64_t beat = atomic_load(&a->host->status->beat);

    if (beat != a->beat || a->beat_ms < a->host->started_ms) {
        a->beat = beat;
        a->beat_ms = now_ms;
        return NULL;
    }
    if (now_ms - a->beat_ms < BEAT_MS)
        return NULL;
    snprintf(why, size, "it gave no sign of life for %u s", BEAT_MS / 1000);
    return why;
}

/* Resident memory that is its own, in bytes; 0: not known. */
static uint64_t own_memory(pid_t pid)
{
    unsigned long long total, resident = 0, shared = 0;
    char path[64];
    FILE *f;

    snprintf(path, sizeof(path), "/proc/%d/statm", (int)pid);
    f = fopen(path, "re");
    if (!f)
        return 0;
    if (fscanf(f, "%llu %llu %llu", &total, &resident, &shared) != 3 || resident < shared)
        resident = shared = 0;
    fclose(f);
    return (uint64_t)(resident - shared) * (uint64_t)sysconf(_SC_PAGESIZE);
}

static const char *watch_memory(struct cl_aux *a, int *app, char *why, size_t size)
{
    uint64_t bytes = own_memory(a->host->pid);
    char used[FP_UNITS_BUF], limit[FP_UNITS_BUF];
    int active = 0;

    if (bytes <= a->m->opt.aux_memory_bytes)
        return NULL;
    for (uint32_t i = 0; i < a->napps; i++)
        if (!a->app[i].bypassed && !a->app[i].failed && ++active)
            *app = (int)i;
    if (active != 1) /* memory has no owner's name on it */
        *app = -1;
    snprintf(why, size, "it had %s of memory, more than --aux-memory %s", fp_format_size(used, bytes),
         fp_format_size(limit, a->m->opt.aux_memory_bytes));
    return why;
}

static const char *watch_progress(struct cl_aux *a, uint64_t now_ms, bool busy, char *why, size_t size)
{
    const struct aux_call *c;
    bool stuck;

    pthread_mutex_lock(&a->lock);
    c = TAILQ_FIRST(&a->sent);
    stuck = c && !busy && now_ms > c->sent_ms + STUCK_MS && now_ms > a->progress_ms + STUCK_MS;
    pthread_mutex_unlock(&a->lock);
    if (!stuck)
        return NULL;
    snprintf(why, size, "it answered nothing for %u s and did nothing", STUCK_MS / 1000);
    return why;
}

const char *cl_aux_watch(struct cl_aux *a, uint64_t now_ms, int *app, char *why, size_t size)
{
    const char *wrong;
    bool busy = false;

    *app = -1;
    wrong = watch_beat(a, now_ms, why, size);
    if (!wrong)
        wrong = watch_threads(a, app, why, size, &busy);
    if (wrong && now_ms - a->beat_ms >= STILL_MS) { /* all of it stands still: stopped from outside, not a call that is late */
        *app = -1;
        snprintf(why, size, "it gave no sign of life for %u s", (unsigned)((now_ms - a->beat_ms) / 1000));
    }
    if (!wrong)
        wrong = watch_memory(a, app, why, size);
    if (!wrong && a->state == AUX_UP)
        wrong = watch_progress(a, now_ms, busy, why, size);
    return wrong;
}

int cl_aux_watch_interval_ms(struct cl_aux *a)
{
    bool busy;

    pthread_mutex_lock(&a->lock);
    busy = !TAILQ_EMPTY(&a->sent) || a->state == AUX_STARTING;
    pthread_mutex_unlock(&a->lock);
    return busy ? BUSY_MS : QUIET_MS;
}

/* -------------------------------------------------------------- who was it? */

/* Place + 1 of the aux-app whose callback runs, if there is only one such; 0: there is none, or there are others. */
static uint32_t only_one_in_call(const struct fp_auxw_status *s)
{
    uint32_t found = 0;

    for (uint32_t i = 0; i < FP_AUXW_THREADS_MAX; i++) {
        uint32_t in_call = atomic_load(&s->thread[i].tid) ? atomic_load(&s->thread[i].in_call) : 0;

        if (in_call == 0 || in_call > FP_AUXW_APPS_MAX)
            continue;
        if (found > 0 && found != in_call)
            return 0;
        found = in_call;
    }
    return found;
}

/* What the host's handlers have noted: its own words for it. */
static void say_crash(const struct fp_auxw_status *s, char *why, size_t size)
{
    uint32_t sig = atomic_load(&s->crashed_signal);

    if (sig >= FP_AUXW_EXITED)
        snprintf(why, size, "it called exit(%u), which ends the process that all aux-apps share", (sig - FP_AUXW_EXITED) & 0xff);
    else
        snprintf(why, size, "it crashed (%s)", strsignal(sig > 0 && sig < 65 ? (int)sig : SIGSEGV));
}

int cl_aux_blame(struct cl_aux *a, int wait_status, char *why, size_t size)
{
    const struct fp_auxw_status *s = a->host->status;
    uint32_t who = atomic_load(&s->crashed_app);
    char what[200];

    if (who > 0) {
        say_crash(s, what, sizeof(what));
    } else if (WIFSIGNALED(wait_status)) {
        /* Killed from outside, or by the system for want of memory: no aux-app's doing. */
        if (WTERMSIG(wait_status) != SIGKILL && WTERMSIG(wait_status) != SIGTERM)
            who = only_one_in_call(s);
        snprintf(what, sizeof(what), "it was ended by a signal (%s)", strsignal(WTERMSIG(wait_status)));
    } else {
        who = only_one_in_call(s);
        snprintf(what, sizeof(what), "it ended by itself (exit code %d)", WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : -1);
    }
    if (is_undeclared(a, who))
        snprintf(why, size, "aux-app %s, loaded to read what it has coded: %s", a->culprit, what);
    else
        snprintf(why, size, "%s", what);
    return in_range(a, who);
}

/* -------------------------------------------------------------- too often? */

/* lock held. */
static void give_up(struct aux_app *p)
{
    if (p->changing)
        snprintf(p->change, sizeof(p->change), "bypass=off: refused: it has failed again");
    else if (strncmp(p->change, "bypass=", 7) == 0)
        p->change[0] = '\0'; /* it is not so any more */
    p->changing = false;
    if (p->required) {
        p->failed = true;
        FP_ERROR("aux-app %s failed too often (%s) and is required: writes fail with EIO; mend it, then `fpctl auxapps set %s bypass=off`",
             cl_aux_app_name(p), p->why, cl_aux_app_name(p));
    } else {
        p->bypassed = true;
        FP_WARN("aux-app %s failed too often (%s) and is bypassed: data is stored without it; mend it, then `fpctl auxapps set %s bypass=off`",
            cl_aux_app_name(p), p->why, cl_aux_app_name(p));
    }
}

/* lock held: the n-th failure within a minute? */
static bool too_often(const uint64_t *ring, uint64_t count, uint64_t from, uint32_t n, uint64_t now_ms)
{
    return count - from >= n && now_ms - ring[count % n] < CL_AUX_FAILURES_MS;
}

/* lock held. True: that was one too many. */
static bool count_failure(struct aux_app *p, const char *why, uint64_t now_ms)
{
    p->failed_ms[p->failures++ % p->decl.failures] = now_ms;
    snprintf(p->why, sizeof(p->why), "%s", why);
    return too_often(p->failed_ms, p->failures, p->counted_from, p->decl.failures, now_ms);
}

/* lock held. Its own record, or that of one whose last death is longest ago. */
static struct aux_coder *coder_of(struct cl_aux *a, const char *name)
{
    struct aux_coder *oldest = &a->coder[0];

    for (uint32_t i = 0; i < FP_AUXW_APPS_MAX; i++) {
        struct aux_coder *c = &a->coder[i];

        if (strcmp(c->name, name) == 0)
            return c;
        if (c->deaths == 0 || (oldest->deaths > 0 && c->died_ms[(c->deaths - 1) % CL_AUX_FAILURES] <
                                    oldest->died_ms[(oldest->deaths - 1) % CL_AUX_FAILURES]))
            oldest = c;
    }
    memset(oldest, 0, sizeof(*oldest));
    snprintf(oldest->name, sizeof(oldest->name), "%s", name);
    return oldest;
}

/* lock held. */
static void coder_failed(struct cl_aux *a, const char *name, uint64_t now_ms)
{
    struct aux_coder *c = coder_of(a, name);

    c->died_ms[c->deaths++ % CL_AUX_FAILURES] = now_ms;
    if (!too_often(c->died_ms, c->deaths, c->counted_from, CL_AUX_FAILURES, now_ms))
        return;
    c->counted_from = c->deaths;
    c->refused_until_ms = now_ms + REFUSED_MS;
    FP_ERROR("aux-app %s failed too often when it was to read what it has coded: such data can't be read for %u minutes (EIO), so that others go on; "
         "mend it, and mount again", name, REFUSED_MS / 60000u);
}

bool cl_aux_coder_refused(const struct cl_aux *a, const struct fp_auxw_stage *stages, uint32_t nstages)
{
    uint64_t now_ms = fp_now_ms();

    for (uint32_t i = 0; i < FP_AUXW_APPS_MAX; i++)
        for (uint32_t k = 0; k < nstages && now_ms < a->coder[i].refused_until_ms; k++)
            if (strcmp(a->coder[i].name, stages[k].name) == 0)
                return true;
    return false;
}

void cl_aux_coder_forgive(struct cl_aux *a, const char *name)
{
    for (uint32_t i = 0; i < FP_AUXW_APPS_MAX; i++)
        if (strcmp(a->coder[i].name, name) == 0)
            memset(&a->coder[i], 0, sizeof(a->coder[i]));
}

static void nobodys_fault(struct cl_aux *a, const char *why, uint64_t now_ms)
{
    a->unknown_ms[a->unknown_deaths++ % NOBODYS_MAX] = now_ms;
    FP_WARN("fp-auxhost: %s; it is started again", why);
    if (!too_often(a->unknown_ms, a->unknown_deaths, 0, NOBODYS_MAX, now_ms))
        return;
    for (uint32_t i = 0; i < a->napps; i++) {
        snprintf(a->app[i].why, sizeof(a->app[i].why), "fp-auxhost: %.150s", why);
        if (!a->app[i].bypassed && !a->app[i].failed)
            give_up(&a->app[i]);
    }
}

void cl_aux_failed(struct cl_aux *a, int app, const char *why)
{
    struct aux_call_list dead = TAILQ_HEAD_INITIALIZER(dead);
    uint64_t now_ms = fp_now_ms();
    struct aux_app *p = app >= 0 ? &a->app[app] : NULL;

    pthread_mutex_lock(&a->lock);
    if (p) {
        bool left_out = p->bypassed || p->failed;

        FP_WARN("aux-app %s: %s; its host is started again, nothing is lost", app_of(a, app), why);
        if (count_failure(p, why, now_ms) && !left_out)
            give_up(p);
        else if (left_out) /* all that it is there for is to decode */
            coder_failed(a, cl_aux_app_name(p), now_ms);
    } else if (a->culprit[0]) {
        FP_WARN("fp-auxhost: %s; it is started again", why);
        coder_failed(a, a->culprit, now_ms);
    } else {
        nobodys_fault(a, why, now_ms);
    }
    a->culprit[0] = '\0';
    cl_aux_refresh_wishes(a);
    cl_aux_calls_drop_hopeless(a, &dead);
    pthread_mutex_unlock(&a->lock);
    cl_aux_calls_finish(a, &dead, 0);
}

void cl_aux_misdeed(struct cl_aux *a, uint32_t app, const char *what)
{
    struct aux_call_list dead = TAILQ_HEAD_INITIALIZER(dead);
    struct aux_app *p = &a->app[app];
    bool left_out;

    pthread_mutex_lock(&a->lock);
    left_out = !p->bypassed && !p->failed && count_failure(p, what, fp_now_ms());
    FP_LOG_EVERY(1000, FP_LOG_WARN, "aux-app %s: %s: the data is not stored so, and it counts as a failure", cl_aux_app_name(p), what);
    if (left_out) {
        give_up(p);
        a->chain_wanted++;
        cl_aux_refresh_wishes(a);
        cl_aux_calls_drop_hopeless(a, &dead);
    }
    pthread_mutex_unlock(&a->lock);
    cl_aux_calls_finish(a, &dead, 0);
    if (left_out)
        cl_aux_wake(a);
}
