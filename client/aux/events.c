/*
 * Events for aux-apps (see events.h): built here, queued and sent as calls (calls.c). Those that an application waits for are asked in ask.c.
 *
 * Every event has an id, which the host answers: so that no more than it takes are under way (AUX_EVENTS_MAX), data in the region comes back, and who asked
 * before a call is carried out gets the answer. Events of one file stay in order, since all go through one list and one socket. An event under way
 * when the host dies is sent again: an aux-app may see it twice, as it may see a chunk twice.
 *
 * Data of a write is copied when the event is made, because the buffer is libfuse's and gone with the reply; more than FP_AUXW_INLINE_BYTES goes through the region.
 */
#include "client/aux/events.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/aux/earlier.h"
#include "client/aux/event.h"
#include "client/aux/internal.h"

#define QUEUE_MS     10000u
#define TRIES_MAX    3u

void cl_aux_event_put(struct cl_aux *a, struct aux_event *e)
{
    if (--e->users > 0)
        return;
    if (e->has_room)
        cl_aux_region_put(&a->out_room, e->room_off, e->big_bytes);
    free(e);
}

/* lock held: who would be asked does not run any more, and the host that is to come knows it as one that decodes. */
static bool nobody_there(const struct cl_aux *a, const struct aux_event *e)
{
    return e->call.kind == AUX_ASK && (a->app[e->app].bypassed || a->app[e->app].failed);
}

static int send_event(struct cl_aux *a, struct aux_call *c)
{
    struct aux_event *e = (struct aux_event *)c;
    struct fp_auxw_head *h = (struct fp_auxw_head *)(void *)e->msg;
    struct iovec iov = { e->msg, e->len_bytes };

    if (c->tries >= TRIES_MAX || e->left || nobody_there(a, e))
        return -EIO;
    if (e->big_bytes > 0 && !e->has_room) {
        if (!cl_aux_region_get(&a->out_room, e->big_bytes, &e->room_off))
            return -EAGAIN;
        e->has_room = true;
        memcpy(a->region + e->room_off, e->msg + e->len_bytes, e->big_bytes);
        ((struct fp_auxw_event *)(void *)e->msg)->data_region = e->room_off;
    }
    h->id = c->id;
    h->len_bytes = e->len_bytes;
    return cl_aux_tx(a, &iov, 1);
}

/* lock held. What the user gets to see of `fpctl auxapps set`. */
static void change_is(struct aux_app *p, const char *text, uint32_t text_bytes, const char *outcome)
{
    snprintf(p->change, sizeof(p->change), "%.*s: %s", (int)text_bytes, text, outcome);
}

/* What the host refuses is not told to the next one either. */
static void change_refused(struct cl_aux *a, const struct fp_auxw_change *c, const struct fp_auxw_head *answer, int status)
{
    size_t len = answer->len_bytes > sizeof(struct fp_auxw_done) ? answer->len_bytes - sizeof(struct fp_auxw_done) : 0;
    const char *text = (const char *)(c + 1), *why = len > 0 ? (const char *)answer + sizeof(struct fp_auxw_done) : fp_strerror(status);
    struct aux_app *p = &a->app[c->app];
    char refused[240];

    len = len > 0 ? strnlen(why, len) : strlen(why);
    snprintf(refused, sizeof(refused), "refused: %.*s", (int)(len < 220 ? len : 220), why);
    FP_WARN("aux-app %s: %.*s is %s", cl_aux_app_name(p), (int)c->text_bytes, text, refused);
    change_is(p, text, c->text_bytes, refused);
    for (uint32_t i = 0; i < p->nchanged; i++) {
        if (strlen(p->changed[i]) == c->text_bytes && memcmp(p->changed[i], text, c->text_bytes) == 0) {
            memcpy(p->changed[i], p->changed[--p->nchanged], sizeof(p->changed[i]));
            p->ntold = 0; /* if some are still to be told, the one that was moved may be one of them */
            break;
        }
    }
}

/* lock held. answer: of the host; NULL: it has ended, and the next one is told. */
static void change_done(struct cl_aux *a, const struct fp_auxw_change *c, const struct fp_auxw_head *answer, int status)
{
    if (answer && status < 0)
        change_refused(a, c, answer, status);
    else
        change_is(&a->app[c->app], (const char *)(c + 1), c->text_bytes, answer ? "done" : "with the next start of the host");
}

static bool is_sealed(const struct aux_event *e)
{
    return ((const struct fp_auxw_head *)(const void *)e->msg)->type == FP_AUXW_FILE;
}

static void event_done(struct cl_aux *a, struct aux_call *c, const struct fp_auxw_head *msg, int status)
{
    struct aux_event *e = (struct aux_event *)c;
    struct aux_call_list dead = TAILQ_HEAD_INITIALIZER(dead);

    pthread_mutex_lock(&a->lock);
    e->finished = true;
    e->status = msg && msg->type == FP_AUXW_DONE ? ((const struct fp_auxw_done *)msg)->status : status;
    if (e->call.kind == AUX_ASK && msg && msg->type == FP_AUXW_DONE)
        cl_aux_answered(a, e, (const struct fp_auxw_done *)msg);
    if (((const struct fp_auxw_head *)(const void *)e->msg)->type == FP_AUXW_CHANGE) {
        a->nchanging--;
        cl_aux_skip_end(a); /* what was said on the way may have been said before it was made */
        change_done(a, (const struct fp_auxw_change *)(const void *)e->msg, msg, e->status);
    }
    a->nsealed -= is_sealed(e);
    cl_aux_event_put(a, e);
    cl_aux_calls_pump(a, &dead);
    pthread_cond_broadcast(&a->cond);
    pthread_mutex_unlock(&a->lock);
    cl_aux_calls_finish(a, &dead, 0);
}

struct aux_event *cl_aux_event_new(uint32_t type, uint32_t len_bytes, uint32_t big_bytes)
{
    struct aux_event *e = calloc(1, sizeof(*e) + len_bytes + big_bytes);

    if (!e)
        return NULL;
    e->call = (struct aux_call){ .kind = AUX_EVENT, .send = send_event, .done = event_done };
    e->users = 1;
    e->len_bytes = len_bytes;
    e->big_bytes = big_bytes;
    ((struct fp_auxw_head *)(void *)e->msg)->type = type;
    return e;
}

/* -------------------------------------------------------------- calls of applications */

unsigned cl_aux_events_wanted(const struct cl_aux *a, enum fp_aux_op op)
{
    return atomic_load_explicit(&a->io_flags[op], memory_order_relaxed);
}

static uint32_t text_bytes(const char *s)
{
    return s ? (uint32_t)strlen(s) : 0;
}

struct aux_event *cl_aux_io_event(const struct fp_aux_io *io, uint32_t app, uint8_t flags)
{
    bool with_data = io->data && ((flags & FP_AUX_WANT_DATA) || io->op != FP_AUX_OP_WRITE);
    uint32_t data = with_data ? (uint32_t)io->len_bytes : 0, big = data > FP_AUXW_INLINE_BYTES ? data : 0;
    uint32_t name = text_bytes(io->name), new_name = text_bytes(io->new_name);
    struct aux_event *e = cl_aux_event_new(FP_AUXW_EVENT, (uint32_t)sizeof(struct fp_auxw_event) + name + new_name + (big ? 0 : data), big);
    struct fp_auxw_event *m;
    uint8_t *at;

    if (!e)
        return NULL;
    m = (struct fp_auxw_event *)(void *)e->msg;
    m->io = *io;
    m->io.size_bytes = sizeof(m->io);
    m->io.name = m->io.new_name = NULL;
    m->io.data = NULL;
    m->app = app;
    m->wait = (flags & FP_AUX_WAIT) != 0;
    e->app = app;
    if (m->wait)
        e->call.kind = AUX_ASK;
    m->name_bytes = name;
    m->new_name_bytes = new_name;
    m->data_bytes = data;
    at = e->msg + sizeof(*m);
    if (name)
        memcpy(at, io->name, name);
    at += name;
    if (new_name)
        memcpy(at, io->new_name, new_name);
    at += new_name;
    if (data)
        memcpy(at, io->data, data);
    return e;
}

/* The flags of aux-app i for this op; 0: it does not want it (any more). */
static uint8_t flags_of(struct cl_aux *a, uint32_t i, uint32_t op)
{
    const struct aux_app *p = &a->app[i];
    uint8_t flags;

    pthread_mutex_lock(&a->lock);
    flags = p->bypassed || p->failed ? 0 : p->info.io_flags[op];
    pthread_mutex_unlock(&a->lock);
    return flags & AUX_SUBSCRIBED ? flags : 0;
}

bool cl_aux_events_reserve(struct cl_aux *a)
{
    uint64_t until_ms = fp_now_ms() + QUEUE_MS;
    struct timespec ts = { .tv_sec = (time_t)(until_ms / 1000), .tv_nsec = (long)(until_ms % 1000) * 1000000 };
    bool room;
    int rc = 0;

    pthread_mutex_lock(&a->lock);
    a->room_waiters++;
    while (!(room = a->nwaiting[AUX_EVENT] + a->events_reserved < AUX_EVENTS_QUEUE) && rc == 0)
        rc = pthread_cond_timedwait(&a->room, &a->lock, &ts);
    a->room_waiters--;
    if (room)
        a->events_reserved++;
    pthread_mutex_unlock(&a->lock);
    if (!room)
        FP_LOG_EVERY(10000, FP_LOG_WARN, "aux-apps do not keep up with the calls of applications: some were not told to them");
    return room;
}

void cl_aux_events_unreserve(struct cl_aux *a)
{
    pthread_mutex_lock(&a->lock);
    a->events_reserved--;
    if (a->room_waiters > 0)
        pthread_cond_signal(&a->room);
    pthread_mutex_unlock(&a->lock);
}

void cl_aux_events_after(struct cl_aux *a, const struct fp_aux_io *io)
{
    for (uint32_t i = 0; i < a->napps; i++) {
        uint8_t flags = flags_of(a, i, io->op);
        struct aux_event *e = flags && !(flags & FP_AUX_WAIT) ? cl_aux_io_event(io, i, flags) : NULL;

        if (e)
            cl_aux_call_submit(a, &e->call);
    }
    cl_aux_events_unreserve(a);
}

/* -------------------------------------------------------------- sealed files */

struct sealed {
    struct aux_task task;          /* first */
    struct fp_aux_file file;
};

static void count_sealed(struct cl_aux *a, int by)
{
    pthread_mutex_lock(&a->lock);
    a->nsealed += (uint32_t)by;
    pthread_cond_broadcast(&a->cond);
    pthread_mutex_unlock(&a->lock);
}

static void tell_sealed(struct cl_aux *a, struct aux_task *t)
{
    struct sealed *s = (struct sealed *)t;
    char path[4096] = "";
    struct fp_auxw_file *m;
    struct aux_event *e;
    uint32_t len;

    if (cl_aux_path_of(a, s->file.ino, path, sizeof(path)) < 0)
        path[0] = '\0';
    len = (uint32_t)strlen(path);
    e = cl_aux_event_new(FP_AUXW_FILE, (uint32_t)sizeof(*m) + len, 0);
    if (e) {
        m = (struct fp_auxw_file *)(void *)e->msg;
        m->file = s->file;
        m->path_bytes = len;
        memcpy(m + 1, path, len);
        cl_aux_call_submit(a, &e->call);
    } else {
        count_sealed(a, -1);
    }
    free(s);
}

void cl_aux_events_sealed(struct cl_aux *a, const struct fp_aux_file *file)
{
    struct sealed *s = calloc(1, sizeof(*s));

    if (!s)
        return;
    s->task.run = tell_sealed;
    s->file = *file;
    count_sealed(a, 1);
    cl_aux_task_post(a, &s->task);
}

void cl_aux_sealed_wait(struct cl_mount *m, uint64_t until_ms)
{
    struct timespec ts = { .tv_sec = (time_t)(until_ms / 1000), .tv_nsec = (long)(until_ms % 1000) * 1000000 };
    struct cl_aux *a = m->aux;
    int rc = 0;

    if (!a)
        return;
    pthread_mutex_lock(&a->lock);
    while (a->nsealed > 0 && rc == 0)
        rc = pthread_cond_timedwait(&a->cond, &a->lock, &ts);
    if (a->nsealed > 0)
        FP_WARN("aux-apps were not through with %u files that were closed last: a digest of them may be missing (fpctl verify)", a->nsealed);
    pthread_mutex_unlock(&a->lock);
}

/* -------------------------------------------------------------- what the manager passes on */

static int app_named(const struct cl_aux *a, const char *name)
{
    for (uint32_t i = 0; i < a->napps; i++)
        if (strcmp(cl_aux_app_name(&a->app[i]), name) == 0 || strcmp(a->app[i].decl.name, name) == 0)
            return (int)i;
    return -1;
}

void cl_aux_message(struct cl_mount *m, const Fp__AuxMsg *msg)
{
    struct cl_aux *a = m->aux;
    uint32_t node = (uint32_t)strlen(msg->node);
    struct fp_auxw_message *w;
    struct aux_event *e;
    int app;

    if (!a || node > 255 || msg->data.len > FP_AUX_MESSAGE_MAX_BYTES)
        return;
    pthread_mutex_lock(&a->lock);
    app = app_named(a, msg->app);
    if (app >= 0 && (a->app[app].bypassed || a->app[app].failed || a->nwaiting[AUX_EVENT] >= AUX_EVENTS_QUEUE))
        app = -1; /* delivered at most once */
    pthread_mutex_unlock(&a->lock);
    e = app < 0 ? NULL : cl_aux_event_new(FP_AUXW_MESSAGE, (uint32_t)(sizeof(*w) + node + msg->data.len), 0);
    if (!e)
        return;
    w = (struct fp_auxw_message *)(void *)e->msg;
    w->mount = msg->mount;
    w->app = (uint32_t)app;
    w->node_bytes = node;
    w->data_bytes = (uint32_t)msg->data.len;
    memcpy(w + 1, msg->node, node);
    if (msg->data.len)
        memcpy((uint8_t *)(w + 1) + node, msg->data.data, msg->data.len);
    cl_aux_call_submit(a, &e->call);
}

/* lock held: for each new host. The same name is changed again in its place. */
static void remember(struct aux_app *p, const char *name, const char *value)
{
    size_t len = strlen(name);
    uint32_t i;

    if (strcmp(name, "deadline") == 0)
        (void)cl_aux_decl_deadline(value, &p->deadline_ms); /* how long applications wait for it; one that is not valid is refused by the host */
    if (len + strlen(value) + 2 > sizeof(p->changed[0]))
        return;
    for (i = 0; i < p->nchanged; i++)
        if (strncmp(p->changed[i], name, len) == 0 && p->changed[i][len] == '=')
            break;
    if (i == sizeof(p->changed) / sizeof(p->changed[0]))
        return;
    if (i == p->nchanged)
        p->nchanged++;
    snprintf(p->changed[i], sizeof(p->changed[i]), "%s=%s", name, value);
}

/* lock held. */
static const char *why_not(const struct aux_app *p, const char *value)
{
    bool on = strcmp(value, "on") == 0;

    if (!on && strcmp(value, "off") != 0)
        return "bypass is on or off";
    if (on && (p->required & FP_AUXW_REQUIRED_SELF))
        return "data must not be stored without it; mount without it";
    return NULL;
}

/* lock held. Done when a host runs with that chain: it is put together when a host starts, and until then no chunk goes to this one. */
static void set_bypass(struct cl_aux *a, struct aux_app *p, const char *value, struct aux_call_list *dead)
{
    bool on = strcmp(value, "on") == 0;
    const char *not = why_not(p, value);

    if (not) {
        snprintf(p->change, sizeof(p->change), "bypass=%s: refused: %s", value, not);
        FP_WARN("aux-app %s: bypass=%s is refused: %s", cl_aux_app_name(p), value, not);
        return;
    }
    snprintf(p->change, sizeof(p->change), "bypass=%s, when fp-auxhost runs again", value);
    p->changing = true;
    p->bypassed = on;
    p->failed = false;
    if (!on) {
        p->why[0] = '\0';
        cl_aux_coder_forgive(a, cl_aux_app_name(p));
    }
    memset(p->failed_ms, 0, sizeof(p->failed_ms));
    p->counted_from = p->failures;
    cl_aux_refresh_wishes(a);
    a->chain_wanted++;
    cl_aux_skip_end(a);
    if (a->state == AUX_DOWN && !cl_aux_needs_host(a))
        cl_aux_chain_is_there(a);
    cl_aux_calls_drop_hopeless(a, dead);
    FP_INFO("aux-app %s is %s", cl_aux_app_name(p), on ? "bypassed" : "to be used again");
}

/* lock held. */
static int tell_change(struct cl_aux *a, uint32_t app, const char *text)
{
    uint32_t len = (uint32_t)strlen(text);
    struct fp_auxw_change msg = { .h = { .type = FP_AUXW_CHANGE, .len_bytes = (uint32_t)sizeof(msg) + len }, .app = app, .text_bytes = len };
    struct iovec iov[2] = { { &msg, sizeof(msg) }, { (void *)text, len } };

    return cl_aux_tx(a, iov, 2);
}

void cl_aux_changes_untold(struct cl_aux *a)
{
    a->changes_told = false;
    for (uint32_t i = 0; i < a->napps; i++)
        a->app[i].ntold = 0;
}

bool cl_aux_tell_changes(struct cl_aux *a)
{
    for (uint32_t i = 0; i < a->napps && !a->changes_told; i++)
        for (; a->app[i].ntold < a->app[i].nchanged; a->app[i].ntold++)
            if (tell_change(a, i, a->app[i].changed[a->app[i].ntold]) == -EAGAIN)
                return false;
    a->changes_told = true;
    return true;
}

void cl_aux_set(struct cl_mount *m, const Fp__AuxSet *msg)
{
    struct cl_aux *a = m->aux;
    struct fp_auxw_change *w;
    struct aux_event *e = NULL;
    struct aux_call_list dead = TAILQ_HEAD_INITIALIZER(dead);
    size_t len = strlen(msg->name) + 1 + strlen(msg->value);
    int app;

    if (!a || len >= 160 || (msg->node[0] && strcmp(msg->node, m->opt.node) != 0))
        return;
    pthread_mutex_lock(&a->lock);
    app = app_named(a, msg->app);
    if (app >= 0 && strcmp(msg->name, "bypass") == 0) {
        set_bypass(a, &a->app[app], msg->value, &dead);
    } else if (app >= 0) {
        remember(&a->app[app], msg->name, msg->value);
        if (!a->app[app].bypassed && !a->app[app].failed) /* else when it is in use again */
            e = cl_aux_event_new(FP_AUXW_CHANGE, (uint32_t)(sizeof(*w) + len), 0);
        else
            snprintf(a->app[app].change, sizeof(a->app[app].change), "%s=%s: when it is in use again", msg->name, msg->value);
        a->nchanging += e != NULL;
        cl_aux_skip_end(a);
    }
    pthread_mutex_unlock(&a->lock);
    cl_aux_calls_finish(a, &dead, 0);
    if (!e) {
        cl_aux_wake(a);
        return;
    }
    w = (struct fp_auxw_change *)(void *)e->msg;
    w->app = (uint32_t)app;
    w->text_bytes = (uint32_t)len;
    memcpy(w + 1, msg->name, strlen(msg->name));
    ((char *)(w + 1))[strlen(msg->name)] = '=';
    memcpy((char *)(w + 1) + strlen(msg->name) + 1, msg->value, strlen(msg->value));
    cl_aux_call_submit(a, &e->call);
}
