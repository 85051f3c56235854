/* fpctl auxapps: what the aux-apps of each mount do; and fpctl auxapps set: one of their options changed while they run.
 *
 * The figures come with the statistics that mounts send once a second, so they may be that old. They are totals since the mount began,
 * over restarts of its fp-auxhost. Speed and busy time are of the whole life of the mount, or, with --watch, of the time between two
 * looks. Busy is a share of the cores that the aux-app has: 100 % of 2 cores is 2 s of work in a second. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "client/ctl/cmd.h"
#include "fp/err.h"
#include "fp/table.h"

#define LOOK_MS 1000
#define LOOK_FIRST_MS 200
#define REPORT_WAIT_MS 6000 /* for the first report of a mount */

/* The same aux-app of the same mount in an earlier look, or NULL. */
static const Fp__AuxAppStats *earlier(const Fp__CtlStatusReply *old, uint64_t session, const char *declared)
{
    for (size_t i = 0; old && i < old->n_clients; i++) {
        const Fp__CtlClient *c = old->clients[i];
        for (size_t k = 0; c->session == session && c->stats && k < c->stats->n_auxapps; k++) {
            if (strcmp(c->stats->auxapps[k]->declared, declared) == 0)
                return c->stats->auxapps[k];
        }
    }
    return NULL;
}

/* What happened in how long. */
struct rates {
    uint64_t ms, bytes, busy_ns;
};

static struct rates rates_of(const Fp__AuxAppStats *now, const Fp__AuxAppStats *old)
{
    struct rates r = {now->since_ms, now->bytes_in, now->busy_ns};
    if (old && old->since_ms < now->since_ms && old->bytes_in <= now->bytes_in && old->busy_ns <= now->busy_ns) {
        r.ms -= old->since_ms;
        r.bytes -= old->bytes_in;
        r.busy_ns -= old->busy_ns;
    }
    return r;
}

static double mb_per_s(struct rates r)
{
    return r.ms ? (double)r.bytes / 1e3 / (double)r.ms : 0;
}

static double busy_percent(struct rates r, uint32_t cores)
{
    double p = r.ms && cores ? (double)r.busy_ns / 1e4 / (double)r.ms / cores : 0;
    return p > 100 ? 100 : p;
}

/* What a mount that is away has told last is no news: it may not even run. */
static const char *state_of(const Fp__CtlClient *c, const Fp__AuxAppStats *a)
{
    return c->connected ? a->state : "away";
}

/* ---------------------------------------------------------------- for programs */

static json_t *json_threads(const Fp__AuxAppStats *a)
{
    json_t *list = json_array();
    for (size_t i = 0; i < a->n_threads; i++)
        json_array_append_new(list, json_pack("{s:i, s:i, s:I}", "tid", (int)a->threads[i]->tid, "core",
                                              (int)a->threads[i]->core, "busy_ns", (json_int_t)a->threads[i]->busy_ns));
    return list;
}

static json_t *json_counters(const Fp__AuxAppStats *a)
{
    json_t *o = json_object();
    for (size_t i = 0; i < a->n_counters; i++)
        json_object_set_new(o, a->counters[i]->name, json_integer((json_int_t)a->counters[i]->value));
    return o;
}

static json_t *json_app(const Fp__CtlClient *c, const Fp__AuxAppStats *a, struct rates r)
{
    json_t *j = json_pack("{s:s, s:o, s:I, s:o, s:s, s:s, s:o, s:i}", "name", a->name, "declared",
                          ctl_json_bytes(a->declared, strlen(a->declared)), "mount", (json_int_t)c->session, "mountpoint",
                          ctl_json_bytes(c->mountpoint, strlen(c->mountpoint)), "node", c->node, "state", state_of(c, a), "why",
                          ctl_json_bytes(a->why, strlen(a->why)), "cores", (int)a->cores);
    json_object_set_new(j, "cpuset", json_boolean(a->cpuset));
    json_object_set_new(j, "passed_chunks", json_integer((json_int_t)a->passed_chunks));
    json_object_set_new(j, "passed_bytes", json_integer((json_int_t)a->passed_bytes));
    json_object_set_new(j, "change", ctl_json_bytes(a->change, strlen(a->change)));
    json_t *more = json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:i, s:i, s:I, s:I, s:I, s:f, s:f, s:s, s:o, s:o}",
                             "chunks", (json_int_t)a->chunks, "bytes_in", (json_int_t)a->bytes_in, "bytes_out",
                             (json_int_t)a->bytes_out, "chunks_read", (json_int_t)a->chunks_in, "events",
                             (json_int_t)a->events, "busy_ns", (json_int_t)a->busy_ns, "waits", (json_int_t)a->waits, "wait_ns",
                             (json_int_t)a->wait_ns, "queue", (int)a->queue, "queue_max", (int)a->queue_max, "failures",
                             (json_int_t)a->failures, "restarts", (json_int_t)a->restarts, "since_ms", (json_int_t)a->since_ms,
                             "mb_per_s", mb_per_s(r), "busy_percent", busy_percent(r, a->cores), "version", a->version, "threads",
                             json_threads(a), "counters", json_counters(a));
    if (j && more)
        json_object_update(j, more);
    json_decref(more);
    return j;
}

static int print_json(const Fp__CtlStatusReply *r, const Fp__CtlStatusReply *old)
{
    json_t *list = json_array();
    for (size_t i = 0; i < r->n_clients; i++) {
        const Fp__CtlClient *c = r->clients[i];
        for (size_t k = 0; c->stats && k < c->stats->n_auxapps; k++) {
            const Fp__AuxAppStats *a = c->stats->auxapps[k];
            json_array_append_new(list, json_app(c, a, rates_of(a, earlier(old, c->session, a->declared))));
        }
    }
    return ctl_json_print(json_pack("{s:o}", "auxapps", list));
}

/* ---------------------------------------------------------------- for people */

static enum fp_style state_style(const char *state)
{
    if (strcmp(state, "running") == 0)
        return FP_STYLE_GOOD;
    return strcmp(state, "starting") == 0 ? FP_STYLE_WARN : FP_STYLE_BAD;
}

/* Beside cores: what keeps the aux-app there. */
static const char *cpuset_word(const Fp__AuxAppStats *a)
{
    return a->cpuset ? " cpuset" : "";
}

static void app_row(struct fp_table *t, const Fp__CtlClient *c, const Fp__AuxAppStats *a, struct rates r)
{
    fp_table_cell(t, "%s:%s", c->node, c->mountpoint);
    fp_table_cell(t, "%s", a->name);
    fp_table_cell_styled(t, state_style(state_of(c, a)), "%s", state_of(c, a));
    fp_table_cell_count(t, a->chunks);
    fp_table_cell_size(t, a->bytes_in);
    fp_table_cell_size(t, a->bytes_out);
    if (a->bytes_out)
        fp_table_cell(t, "%.2f", (double)a->bytes_in / (double)a->bytes_out);
    else
        fp_table_cell(t, "%s", a->bytes_in ? "all" : "-");
    fp_table_cell(t, "%.1f", mb_per_s(r));
    fp_table_cell(t, "%.0f %%", busy_percent(r, a->cores));
    fp_table_cell(t, "%u%s", a->cores, cpuset_word(a));
    fp_table_cell(t, "%u/%u", a->queue, a->queue_max);
    fp_table_cell_count(t, a->waits);
    fp_table_cell_duration(t, a->wait_ns / 1000000);
    fp_table_cell_count(t, a->chunks_in);
    fp_table_cell_count(t, a->events);
    fp_table_cell_styled(t, a->failures ? FP_STYLE_BAD : FP_STYLE_NONE, "%llu", (unsigned long long)a->failures);
}

static int print_apps(const Fp__CtlStatusReply *r, const Fp__CtlStatusReply *old)
{
    static const struct fp_table_col cols[] = {
        {"mount", false}, {"aux-app", false}, {"state", false}, {"chunks", true}, {"in", true},    {"out", true},
        {"ratio", true},  {"MB/s", true},     {"busy", true},   {"cores", true},  {"queue", true}, {"waits", true},
        {"waited", true}, {"read back", true}, {"calls", true}, {"failures", true}};
    struct fp_table *t = fp_table_new(cols, sizeof cols / sizeof *cols);
    for (size_t i = 0; i < r->n_clients; i++) {
        const Fp__CtlClient *c = r->clients[i];
        for (size_t k = 0; c->stats && k < c->stats->n_auxapps; k++) {
            const Fp__AuxAppStats *a = c->stats->auxapps[k];
            app_row(t, c, a, rates_of(a, earlier(old, c->session, a->declared)));
        }
    }
    int rc = fp_table_print(t, stdout);
    fp_table_free(t);
    return rc;
}

static int print_threads(const Fp__CtlStatusReply *r)
{
    static const struct fp_table_col cols[] = {{"mount", false}, {"aux-app", false}, {"thread", true}, {"core", true}, {"busy", true}};
    struct fp_table *t = fp_table_new(cols, sizeof cols / sizeof *cols);
    for (size_t i = 0; i < r->n_clients; i++) {
        const Fp__CtlClient *c = r->clients[i];
        for (size_t k = 0; c->connected && c->stats && k < c->stats->n_auxapps; k++) {
            const Fp__AuxAppStats *a = c->stats->auxapps[k];
            for (size_t n = 0; n < a->n_threads; n++) {
                fp_table_cell(t, "%s:%s", c->node, c->mountpoint);
                fp_table_cell(t, "%s", a->name);
                fp_table_cell(t, "%u", a->threads[n]->tid);
                if (a->threads[n]->core < 0)
                    fp_table_cell(t, "any");
                else
                    fp_table_cell(t, "%d%s", a->threads[n]->core, cpuset_word(a));
                fp_table_cell_duration(t, a->threads[n]->busy_ns / 1000000);
            }
        }
    }
    int rc = fp_table_print(t, stdout);
    fp_table_free(t);
    return rc;
}

static void print_notes(const Fp__CtlStatusReply *r)
{
    for (size_t i = 0; i < r->n_clients; i++) {
        const Fp__CtlClient *c = r->clients[i];
        for (size_t k = 0; c->stats && k < c->stats->n_auxapps; k++) {
            const Fp__AuxAppStats *a = c->stats->auxapps[k];
            ctl_print_line(a->name, "declared: %s", a->declared);
            if (a->why[0])
                ctl_print_line(a->name, "%s", a->why);
            if (a->change[0])
                ctl_print_line(a->name, "set %s", a->change);
            if (a->passed_chunks)
                ctl_print_line(a->name, "passed over, since it had nothing to do: %llu chunks, %llu bytes",
                               (unsigned long long)a->passed_chunks, (unsigned long long)a->passed_bytes);
            for (size_t n = 0; n < a->n_counters; n++)
                ctl_print_line(a->name, "%s: %lld", a->counters[n]->name, (long long)a->counters[n]->value);
        }
    }
}

/* Since it was mounted: the report before that knows neither aux-apps nor features. One that is away will not. */
static bool has_reported(const Fp__CtlClient *c)
{
    return !c->connected || (c->stats && c->stats->n_features > 0);
}

static int print_text(const Fp__CtlStatusReply *r, const Fp__CtlStatusReply *old)
{
    size_t apps = 0, silent = 0;
    for (size_t i = 0; i < r->n_clients; i++) {
        apps += r->clients[i]->stats ? r->clients[i]->stats->n_auxapps : 0;
        if (!has_reported(r->clients[i])) {
            silent++;
            printf("%s:%s has not reported yet, and may have aux-apps: ask again.\n", r->clients[i]->node, r->clients[i]->mountpoint);
        }
    }
    if (apps == 0) {
        if (silent == 0)
            puts("No mount of this store has declared aux-apps: fp-mount --auxapp dedup ...");
        return ctl_flush();
    }
    int rc = print_apps(r, old);
    ctl_print_title("THREADS");
    rc |= print_threads(r);
    puts("");
    print_notes(r);
    return rc < 0 ? rc : ctl_flush();
}

/* Until the user ends it. Each look is an answer of its own, so a manager that goes away ends it too. */
static int watch(const struct ctl_options *o, struct ctl_link *l)
{
    static const struct timespec pause = {LOOK_MS / 1000, LOOK_MS % 1000 * 1000000L};
    Fp__CtlStatusReply *old = NULL, *r = NULL;
    int rc = ctl_ask_status(l, &r);
    while (rc == 0) {
        if (fp_colour_wanted(stdout))
            fputs("\033[H\033[2J", stdout); /* home, clear */
        rc = o->json ? print_json(r, old) : print_text(r, old);
        if (old)
            fp__ctl_status_reply__free_unpacked(old, NULL);
        old = r;
        nanosleep(&pause, NULL);
        r = NULL;
        rc = rc ? rc : ctl_ask_status(l, &r);
    }
    if (old)
        fp__ctl_status_reply__free_unpacked(old, NULL);
    if (r)
        fp__ctl_status_reply__free_unpacked(r, NULL);
    return rc;
}

/* A mount that has just begun reports within a second; on a busy machine it takes longer. */
static int ask_when_all_have_reported(struct ctl_link *l, Fp__CtlStatusReply **out)
{
    static const struct timespec pause = {0, LOOK_FIRST_MS * 1000000L};
    for (int tries = 0;; tries++) {
        bool all = true;
        int rc = ctl_ask_status(l, out);
        for (size_t i = 0; rc == 0 && i < (*out)->n_clients; i++)
            all = all && has_reported((*out)->clients[i]);
        if (rc < 0 || all || tries == REPORT_WAIT_MS / LOOK_FIRST_MS)
            return rc;
        fp__ctl_status_reply__free_unpacked(*out, NULL);
        nanosleep(&pause, NULL);
    }
}

/* ---------------------------------------------------------------- set */

/* Tells, mount by mount, what came of the change; `waiting`: those that have not said so yet. Returns how many have the aux-app. */
static unsigned outcome(const struct ctl_options *o, const Fp__CtlStatusReply *r, bool tell, unsigned *waiting, unsigned *refused)
{
    size_t len = strlen(o->names[1]);
    unsigned mounts = 0;
    *waiting = *refused = 0;
    for (size_t i = 0; i < r->n_clients; i++) {
        const Fp__CtlClient *c = r->clients[i];
        for (size_t k = 0; c->connected && c->stats && k < c->stats->n_auxapps; k++) {
            const Fp__AuxAppStats *a = c->stats->auxapps[k];
            if (strcmp(a->name, o->names[0]) != 0)
                continue;
            mounts++;
            bool said = strncmp(a->change, o->names[1], len) == 0 && a->change[len] == ':';
            *waiting += !said;
            *refused += said && strncmp(a->change + len, ": refused", 9) == 0;
            if (tell)
                printf("%s:%s %s\n", c->node, c->mountpoint, said ? a->change : "has not answered yet: see fpctl auxapps");
        }
    }
    return mounts;
}

/* The mounts report once a second; what was said of an earlier change of the same words counts as an answer to this one. */
static int wait_for_outcome(const struct ctl_options *o, struct ctl_link *l)
{
    static const struct timespec pause = {0, 500000000};
    unsigned waiting = 1, refused = 0;
    for (int tries = 0; tries < 8; tries++) {
        Fp__CtlStatusReply *r = NULL;
        nanosleep(&pause, NULL);
        int rc = ctl_ask_status(l, &r);
        if (rc < 0)
            return rc;
        outcome(o, r, false, &waiting, &refused);
        if (waiting == 0 || tries == 7)
            outcome(o, r, true, &waiting, &refused);
        fp__ctl_status_reply__free_unpacked(r, NULL);
        if (waiting == 0)
            break;
    }
    if (refused)
        FP_ERROR("%s: %s is refused", o->names[0], o->names[1]);
    return refused ? -EINVAL : ctl_flush();
}

static int somebody_has(const struct ctl_options *o, struct ctl_link *l)
{
    Fp__CtlStatusReply *r = NULL;
    unsigned waiting, refused;
    int rc = ask_when_all_have_reported(l, &r);
    if (rc < 0)
        return rc;
    unsigned mounts = outcome(o, r, false, &waiting, &refused);
    fp__ctl_status_reply__free_unpacked(r, NULL);
    if (mounts)
        return 0;
    FP_ERROR("no mount of this store has an aux-app '%s': see fpctl auxapps", o->names[0]);
    return -ENOENT;
}

static int set(const struct ctl_options *o, const struct ctl_store *store, struct ctl_link *l)
{
    (void)store;
    Fp__AuxSet q = FP__AUX_SET__INIT;
    char name[64];
    const char *value = strchr(o->names[1], '=');
    ProtobufCMessage *reply = NULL;
    if (!value || value == o->names[1] || (size_t)(value - o->names[1]) >= sizeof name) {
        FP_ERROR("'%s' is not OPTION=VALUE, such as cores=2", o->names[1]);
        return -EINVAL;
    }
    int rc = somebody_has(o, l);
    if (rc < 0)
        return rc;
    snprintf(name, sizeof name, "%.*s", (int)(value - o->names[1]), o->names[1]);
    q.app = (char *)o->names[0];
    q.name = name;
    q.value = (char *)value + 1;
    rc = ctl_link_call(l, FP__MSG_TYPE__MSG_AUX_SET, &q.base, &fp__aux_msg_reply__descriptor, &reply);
    if (rc < 0)
        return ctl_link_failed(l, rc, "auxapps set");
    protobuf_c_message_free_unpacked(reply, NULL);
    return wait_for_outcome(o, l);
}

static int run(const struct ctl_options *o, const struct ctl_store *store, struct ctl_link *l)
{
    Fp__CtlStatusReply *r = NULL;
    (void)store;
    if (o->watch)
        return watch(o, l);
    int rc = ask_when_all_have_reported(l, &r);
    if (rc < 0)
        return rc;
    rc = o->json ? print_json(r, NULL) : print_text(r, NULL);
    fp__ctl_status_reply__free_unpacked(r, NULL);
    return rc;
}

const struct ctl_cmd ctl_cmd_auxapps = {
    .words = "auxapps",
    .args = "[PATH]",
    .options = "watch",
    .help = "What the aux-apps of each mount do: chunks and bytes in and out, speed, how busy their cores are, queue, how often and how long they made the application "
            "wait, failures; each thread with its core; their own counters; what was passed over, since the aux-app had said that it has nothing to do.",
    .more = "busy is a share of the cores that the aux-app has. Of a mount that is away (killed, or cut off) these are the last figures it has told. With --watch speed and "
            "busy are of the last second, otherwise of the time since the mount began.",
    .run = run,
};

const struct ctl_cmd ctl_cmd_auxapps_set = {
    .words = "auxapps set",
    .args = "NAME OPTION=VALUE [PATH]",
    .options = "",
    .help = "Changes an option of a running aux-app on all mounts, such as cores=2, and tells what came of it.",
    .more = "bypass=on leaves the aux-app out, bypass=off takes it in again; both are done when fp-auxhost runs again. One that says itself that it is required, such as "
            "encrypt, can't be left out.",
    .run = set,
};
