/* fpctl checkpoints, checkpoint latest, commit and forget: the checkpoint sets of a store.
 *
 * The manager tells them in pages (MSG_CTL_SETS). Paths are printed as programs of this node see them, where the store is mounted here.
 *
 * latest prints one path and nothing else, for scripts: the set that became complete last. Of several series those that are named as output for people to look at (plt,
 * frame, ...), and results of conversions, come last; PATH says which is meant where that is not enough. A set with damaged data is passed over, and one that seems to be half of one as long as
 * there is another; with --level also one whose copies are not found in the target. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client/ctl/cmd.h"
#include "fp/clock.h"
#include "fp/ctlwire.h"
#include "fp/err.h"
#include "fp/table.h"
#include "life.pb-c.h"

#define NEWEST    20u /* of each series */
#define LOOK_MS   1000u
#define HEARD_MS  3000u /* until the manager has heard of what was closed */
#define PAGES_MAX 4096u
#define TORN_BUF  (2 * PATH_MAX + 64)
#define NONE      3 /* exit codes */
#define LATE      3

struct sets {
    Fp__CtlSetsReply **page;
    size_t npages;
};

static void sets_free(struct sets *s)
{
    for (size_t i = 0; i < s->npages; i++)
        fp__ctl_sets_reply__free_unpacked(s->page[i], NULL);
    free(s->page);
    *s = (struct sets){0};
}

static int ask(const struct ctl_store *store, struct ctl_link *l, Fp__CtlSets *q, Fp__CtlSetsReply **out)
{
    ProtobufCMessage *reply = NULL;
    q->path.data = (uint8_t *)store->inner;
    q->path.len = strlen(store->inner);
    int rc = ctl_link_call(l, FP__MSG_TYPE__MSG_CTL_SETS, &q->base, &fp__ctl_sets_reply__descriptor, &reply);
    if (rc == -ENOENT || rc == -ENOTDIR) {
        FP_ERROR("%s/%s: %s", store->mountpoint, store->inner, fp_strerror(rc));
        return rc;
    }
    *out = (Fp__CtlSetsReply *)reply;
    return rc < 0 ? ctl_link_failed(l, rc, "checkpoints") : 0;
}

static int ask_sets(const struct ctl_store *store, struct ctl_link *l, uint32_t newest, struct sets *out)
{
    Fp__CtlSets q = FP__CTL_SETS__INIT;
    bool more = true;
    int rc = 0;
    q.newest = newest;
    while (more && rc == 0 && out->npages < PAGES_MAX) {
        Fp__CtlSetsReply **pages = reallocarray(out->page, out->npages + 1, sizeof *pages);
        if (!pages)
            return -ENOMEM;
        out->page = pages;
        rc = ask(store, l, &q, &pages[out->npages]);
        if (rc < 0)
            return rc;
        const Fp__CtlSetsReply *r = pages[out->npages++];
        more = r->more && r->n_sets > 0;
        if (more)
            q.after = r->sets[r->n_sets - 1]->id;
    }
    return rc;
}

/* -------------------------------------------------------------- printing */

static const char *state_text(const Fp__CkptSet *s)
{
    static const char *const names[] = {"?", "open", "complete", "torn", "forgotten"};
    return s->state < 5 ? names[s->state] : "?";
}

static const char *how_text(Fp__CkptHow how)
{
    static const char *const names[] = {"?", "pattern", "word", "growth", "told", "converted"};
    return how < sizeof names / sizeof *names ? names[how] : "?";
}

static enum fp_style style_of(const Fp__CkptSet *s)
{
    if (s->state == FP__CKPT_STATE__CKPT_TORN || s->level == FP__LEVEL__LEVEL_NONE)
        return FP_STYLE_BAD;
    return s->state == FP__CKPT_STATE__CKPT_COMPLETE ? FP_STYLE_GOOD : FP_STYLE_WARN;
}

/* Since it was complete, or began. */
static uint64_t age_ms(const Fp__CkptSet *s)
{
    int64_t since = s->complete_ns ? s->complete_ns : s->began_ns, now = fp_wall_ns();
    return now > since ? (uint64_t)(now - since) / 1000000 : 0;
}

static json_t *json_path(const struct ctl_store *store, const ProtobufCBinaryData *path)
{
    char text[2 * PATH_MAX];
    int n = snprintf(text, sizeof text, "%s%.*s", store->mountpoint, (int)path->len, (const char *)path->data);
    return ctl_json_bytes(text, n < (int)sizeof text ? (size_t)n : sizeof text - 1);
}

/* Of the job that drains it now: null where there is none. */
static json_t *json_drain(const Fp__CkptSet *s)
{
    if (!s->drain_job)
        return json_null();
    return json_pack("{s:I, s:s, s:I, s:I, s:I, s:I, s:s, s:I}", "job", (json_int_t)s->drain_job, "to", s->to, "bytes", (json_int_t)s->drain_bytes, "bytes_done",
                     (json_int_t)s->drain_bytes_done, "rate", (json_int_t)s->drain_rate, "left_s",
                     (json_int_t)ctl_left_s(s->drain_bytes_done, s->drain_bytes, s->drain_rate), "why", s->drain_why, "again_s", (json_int_t)s->drain_again_s);
}

/* What tears it: null where it is not torn. */
static json_t *json_torn(const struct ctl_store *store, const Fp__CkptSet *s)
{
    if (!s->torn_files)
        return json_null();
    return json_pack("{s:I, s:b, s:o}", "files", (json_int_t)s->torn_files, "or_more", s->torn_files >= FP_TORN_COUNTED_MAX, "first", json_path(store, &s->torn_path));
}

static json_t *json_set(const struct ctl_store *store, const Fp__CkptSet *s)
{
    return json_pack("{s:o, s:o, s:I, s:s, s:s, s:b, s:I, s:I, s:I, s:o, s:I, s:I, s:I, s:I, s:I, s:s, s:s, s:I, s:I, s:o, s:o, s:o}", "path", json_path(store, &s->path), "series",
                     ctl_json_bytes(s->series.data, s->series.len), "step", (json_int_t)s->step, "state", state_text(s), "how", how_text(s->how), "told", s->told,
                     "files", (json_int_t)s->files, "files_before", (json_int_t)s->files_before, "bytes", (json_int_t)s->bytes, "unique_bytes", s->unique_known ? json_integer((json_int_t)s->unique_bytes) : json_null(), "writers", (json_int_t)s->writers, "generation", (json_int_t)s->gen, "number",
                     (json_int_t)s->seq, "began_ns", (json_int_t)s->began_ns, "complete_ns", (json_int_t)s->complete_ns, "level", ctl_level_text((int)s->level), "why", s->why, "files_drained",
                     (json_int_t)s->drained_files, "files_verified", (json_int_t)s->verified_files, "drain", json_drain(s), "convert", s->convert[0] ? ctl_json_bytes(s->convert, strlen(s->convert)) : json_null(), "torn", json_torn(store, s));
}

static int json_files(const struct ctl_store *store, struct ctl_link *l, uint64_t set, json_t *list)
{
    Fp__CtlSets q = FP__CTL_SETS__INIT;
    bool more = true;
    q.files_of = set;
    while (more) {
        Fp__CtlSetsReply *r = NULL;
        int rc = ask(store, l, &q, &r);
        if (rc < 0)
            return rc;
        for (size_t i = 0; i < r->n_files; i++) {
            const Fp__CkptFile *f = r->files[i];
            json_array_append_new(list, json_pack("{s:o, s:I, s:b, s:s, s:s, s:b}", "path", json_path(store, &f->path), "size_bytes", (json_int_t)f->size_bytes, "writing",
                                                  f->writing, "node", f->node, "level", ctl_level_text((int)f->level), "torn", f->torn));
            q.after = f->ino;
        }
        more = r->more && r->n_files > 0;
        fp__ctl_sets_reply__free_unpacked(r, NULL);
    }
    return 0;
}

static int print_json(const struct ctl_options *o, const struct ctl_store *store, struct ctl_link *l, const struct sets *sets)
{
    json_t *list = json_array();
    for (size_t p = 0; p < sets->npages; p++) {
        for (size_t i = 0; i < sets->page[p]->n_sets; i++) {
            const Fp__CkptSet *s = sets->page[p]->sets[i];
            json_t *one = json_set(store, s), *files = o->files ? json_array() : NULL;
            int rc = files ? json_files(store, l, s->id, files) : 0;
            if (files)
                json_object_set_new(one, "files_of_it", files);
            json_array_append_new(list, one);
            if (rc < 0) {
                json_decref(list);
                return rc;
            }
        }
    }
    return ctl_json_print(json_pack("{s:o}", "checkpoints", list));
}

static int print_files(const struct ctl_store *store, struct ctl_link *l, uint64_t set)
{
    Fp__CtlSets q = FP__CTL_SETS__INIT;
    bool more = true;
    q.files_of = set;
    while (more) {
        char size[FP_UNITS_BUF];
        Fp__CtlSetsReply *r = NULL;
        int rc = ask(store, l, &q, &r);
        if (rc < 0)
            return rc;
        for (size_t i = 0; i < r->n_files; i++) {
            const Fp__CkptFile *f = r->files[i];
            ctl_print_line("", "%s%.*s  %s, %s%s%s%s", store->mountpoint, (int)f->path.len, (const char *)f->path.data, fp_format_size(size, f->size_bytes),
                           ctl_level_text((int)f->level), f->torn ? ", torn" : "", f->writing ? ", open for writing on " : "", f->node);
            q.after = f->ino;
        }
        more = r->more && r->n_files > 0;
        fp__ctl_sets_reply__free_unpacked(r, NULL);
    }
    return 0;
}

/* The manager gives that of a directory whose number may have decimals in millionths. */
static void add_step(struct fp_table *t, const Fp__CkptSet *s)
{
    static const char name[] = "#.#/";
    size_t len = sizeof name - 1, at = s->series.len - len;
    char text[32];

    if (s->series.len < len || memcmp(s->series.data + at, name, len) != 0 || (at > 0 && s->series.data[at - 1] != '/')) {
        fp_table_cell(t, "%" PRIu64, s->step);
        return;
    }
    len = (size_t)snprintf(text, sizeof text, "%" PRIu64 ".%06" PRIu64, s->step / 1000000, s->step % 1000000);
    while (text[len - 1] == '0')
        len--;
    len -= text[len - 1] == '.';
    fp_table_cell(t, "%.*s", (int)len, text);
}

/* The files that tear it, as the user sees them: "/mnt/chk_1/rank_3 and 2 others: ". Empty: it is not torn. */
static const char *torn_text(char *buf, size_t size, const struct ctl_store *store, const Fp__CkptSet *s)
{
    uint64_t others = s->torn_files ? s->torn_files - 1 : 0;
    size_t n;

    buf[0] = '\0';
    if (!s->torn_path.len)
        return buf;
    snprintf(buf, size, "%s%.*s", store->mountpoint, (int)s->torn_path.len, (const char *)s->torn_path.data);
    n = strlen(buf);
    if (others)
        snprintf(buf + n, size - n, " and %s%" PRIu64 " other%s: ", s->torn_files >= FP_TORN_COUNTED_MAX ? "at least " : "", others, others == 1 ? "" : "s");
    else
        snprintf(buf + n, size - n, ": ");
    return buf;
}

static void add_row(struct fp_table *t, const struct ctl_store *store, const Fp__CkptSet *s, bool convert)
{
    char progress[CTL_PROGRESS_BUF], again[CTL_AGAIN_BUF], torn[TORN_BUF];

    fp_table_cell(t, "%s%.*s", store->mountpoint, (int)s->path.len, (const char *)s->path.data);
    add_step(t, s);
    fp_table_cell_count(t, s->files);
    fp_table_cell_size(t, s->bytes);
    if (s->unique_known)
        fp_table_cell_size(t, s->unique_bytes);
    else
        fp_table_cell(t, "-");
    fp_table_cell_duration(t, age_ms(s));
    fp_table_cell_styled(t, style_of(s), "%s", state_text(s));
    fp_table_cell(t, "%s", s->state != FP__CKPT_STATE__CKPT_OPEN ? ctl_level_text((int)s->level) : "");
    if (s->drain_job)
        fp_table_cell(t, "%s to %s", ctl_progress_text(progress, s->drain_bytes_done, s->drain_bytes, s->drain_rate), s->to);
    else
        fp_table_cell(t, "%s", "");
    if (convert)
        fp_table_cell_styled(t, strncmp(s->convert, "failed", 6) == 0 ? FP_STYLE_BAD : FP_STYLE_NONE, "%s", s->convert);
    if (s->why[0] || (s->writers == 0 && s->drain_why[0] == '\0'))
        fp_table_cell(t, "%s%s", torn_text(torn, sizeof torn, store, s), s->why);
    else if (s->writers)
        fp_table_cell(t, "%" PRIu64 " open for writing", s->writers);
    else
        fp_table_cell(t, "%s%s", s->drain_why, ctl_again_text(again, s->drain_again_s));
}

static bool any_convert(const struct sets *sets)
{
    for (size_t p = 0; p < sets->npages; p++)
        for (size_t i = 0; i < sets->page[p]->n_sets; i++)
            if (sets->page[p]->sets[i]->convert[0])
                return true;
    return false;
}

static int print_table(const struct ctl_options *o, const struct ctl_store *store, struct ctl_link *l, const struct sets *sets)
{
    static const struct fp_table_col cols[] = {{"set", false}, {"step", true}, {"files", true}, {"size", true}, {"unique", true}, {"age", true}, {"state", false}, {"level", false}, {"drain", false}, {"", false}};
    static const struct fp_table_col with_convert[] = {{"set", false}, {"step", true}, {"files", true}, {"size", true}, {"unique", true}, {"age", true}, {"state", false}, {"level", false}, {"drain", false}, {"convert", false}, {"", false}};
    bool convert = any_convert(sets);
    struct fp_table *t = convert ? fp_table_new(with_convert, sizeof with_convert / sizeof *with_convert) : fp_table_new(cols, sizeof cols / sizeof *cols);
    size_t n = 0;
    for (size_t p = 0; p < sets->npages; p++)
        for (size_t i = 0; i < sets->page[p]->n_sets; i++, n++)
            add_row(t, store, sets->page[p]->sets[i], convert);
    int rc = n ? fp_table_print(t, stdout) : 0;
    fp_table_free(t);
    if (n == 0)
        puts("No checkpoint set here: files of one time step are known by their names (chk_0007/…, restart.5000), or fpctl checkpoint commit PATH says so.");
    for (size_t p = 0; p < sets->npages && o->files && rc == 0; p++) {
        for (size_t i = 0; i < sets->page[p]->n_sets && rc == 0; i++) {
            const Fp__CkptSet *s = sets->page[p]->sets[i];
            ctl_print_line("FILES", "%s%.*s", store->mountpoint, (int)s->path.len, (const char *)s->path.data);
            rc = print_files(store, l, s->id);
        }
    }
    return rc < 0 ? rc : ctl_flush();
}

static int show_once(const struct ctl_options *o, const struct ctl_store *store, struct ctl_link *l)
{
    struct sets sets = {0};
    int rc = ask_sets(store, l, o->all ? 0 : NEWEST, &sets);
    if (rc == 0)
        rc = o->json ? print_json(o, store, l, &sets) : print_table(o, store, l, &sets);
    sets_free(&sets);
    return rc;
}

static int show(const struct ctl_options *o, const struct ctl_store *store, struct ctl_link *l)
{
    int rc = show_once(o, store, l);
    while (o->watch && rc == 0) {
        ctl_pause(o, LOOK_MS);
        if (fp_colour_wanted(stdout))
            fputs("\033[H\033[2J", stdout); /* home, clear */
        rc = show_once(o, store, l);
    }
    return rc;
}

/* -------------------------------------------------------------- latest */

/* As far as its number of files says. */
static bool is_half(const Fp__CkptSet *s)
{
    return s->files_before != 0;
}

/* 2: made of another set, which is what a program starts from, if it is there still; 1: output for people to look at; 0: neither. */
static int last_resort(const Fp__CkptSet *s)
{
    static const char *const words[] = {"plt", "plot", "frame", "snap", "dump", NULL};
    const char *slash = s->series.len ? memrchr(s->series.data, '/', s->series.len - 1) : NULL;
    const char *name = slash ? slash + 1 : (const char *)s->series.data, *end = (const char *)s->series.data + s->series.len;
    if (s->how == FP__CKPT_HOW__CKPT_BY_CONVERSION)
        return 2;
    for (const char *const *w = words; *w; w++)
        if (end > name && memmem(name, (size_t)(end - name), *w, strlen(*w)))
            return 1;
    return 0;
}

static bool is_better(const Fp__CkptSet *s, const Fp__CkptSet *than)
{
    if (!than)
        return true;
    if (last_resort(s) != last_resort(than))
        return last_resort(s) < last_resort(than);
    if (is_half(s) != is_half(than))
        return !is_half(s);
    return s->complete_ns != than->complete_ns ? s->complete_ns > than->complete_ns : s->step > than->step;
}

/* The best one that seems to have the level, of those that were not passed over: these have the level none. NULL: there is none. */
static Fp__CkptSet *best_of(const struct sets *sets, int level, bool no_half)
{
    Fp__CkptSet *best = NULL;

    for (size_t p = 0; p < sets->npages; p++) {
        for (size_t i = 0; i < sets->page[p]->n_sets; i++) {
            Fp__CkptSet *s = sets->page[p]->sets[i];

            if (s->state == FP__CKPT_STATE__CKPT_COMPLETE && (int)s->level >= (level ? level : FP__LEVEL__LEVEL_POOL) && !(no_half && s->files_before) && is_better(s, best))
                best = s;
        }
    }
    return best;
}

/* Complete ones of which data is known to be lost or damaged. */
static size_t count_lost(const struct sets *sets)
{
    size_t n = 0;

    for (size_t p = 0; p < sets->npages; p++)
        for (size_t i = 0; i < sets->page[p]->n_sets; i++)
            n += sets->page[p]->sets[i]->state == FP__CKPT_STATE__CKPT_COMPLETE && sets->page[p]->sets[i]->level == FP__LEVEL__LEVEL_NONE;
    return n;
}

static void say_none(const struct ctl_options *o, size_t lost)
{
    const char *with = o->level ? " with the level " : "", *level = o->level ? ctl_level_text(o->level) : "";

    if (lost)
        FP_ERROR("there is no complete checkpoint set%s%s of which all data is there: of %zu that %s complete data is lost or damaged, see fpctl checkpoints and fpctl status", with, level, lost, lost == 1 ? "is" : "are");
    else
        FP_ERROR("there is no complete checkpoint set%s%s: see fpctl checkpoints", with, level);
}

/* Has it the level, also when its copies were looked at in the target? 1; 0: not, or that is not known in time, as is said; or a failure. */
static int is_so(const struct ctl_options *o, const struct ctl_store *store, struct ctl_link *l, const Fp__CkptSet *s, uint64_t until)
{
    Fp__LevelAsk q = FP__LEVEL_ASK__INIT;
    uint64_t pause_ms = 0;

    q.set = s->id;
    q.wait = (Fp__Level)o->level;
    q.to = (char *)"";
    q.only_look = true;
    for (;;) {
        ProtobufCMessage *reply = NULL;
        int rc = ctl_link_call(l, FP__MSG_TYPE__MSG_LEVEL, &q.base, &fp__level_reply__descriptor, &reply);
        const Fp__LevelReply *r = (Fp__LevelReply *)reply;
        bool so, over;

        if (rc < 0)
            return rc == -ENODATA ? 0 : ctl_link_failed(l, rc, "checkpoint latest"); /* removed meanwhile */
        so = (int)r->level >= o->level;
        over = so || r->failed || fp_now_ms() >= until;
        q.survey = r->survey;
        if (over && !so)
            FP_WARN("%s%.*s is passed over: it is not %s %s: %s", store->mountpoint, (int)s->path.len, (const char *)s->path.data, r->failed ? "any more" : "known to be", ctl_level_text(o->level), r->why);
        fp__level_reply__free_unpacked((Fp__LevelReply *)reply, NULL);
        if (over)
            return so;
        ctl_pause_longer(o, &pause_ms, LOOK_MS / 5);
    }
}

/* Of those that rest on a target that does not answer the first has half of the time, the next one half of the rest, and so on: another one may be in another target. */
/* Open, and nobody writes it: it may be complete in a moment. writers_too: nor is it known yet whether those that are said to write it do, for mounts say a moment later that a file was closed. */
static bool any_settles(const struct sets *sets, bool writers_too)
{
    bool any = false;

    for (size_t p = 0; p < sets->npages; p++)
        for (size_t i = 0; i < sets->page[p]->n_sets; i++) {
            const Fp__CkptSet *s = sets->page[p]->sets[i];

            any |= s->state == FP__CKPT_STATE__CKPT_OPEN && (s->writers == 0 || writers_too) && s->why[0] == '\0';
        }
    return any;
}

/* Who restarts right behind the end of a run would begin anew if the one set that there is were not waited for. */
static int ask_settled(const struct ctl_options *o, const struct ctl_store *store, struct ctl_link *l, uint64_t until, struct sets *sets)
{
    uint64_t pause_ms = 0, heard_ms = fp_now_ms() + HEARD_MS;
    int rc;

    while ((rc = ask_sets(store, l, 0, sets)) == 0 && !best_of(sets, 0, o->complete) && any_settles(sets, fp_now_ms() < heard_ms) && fp_now_ms() < until) {
        sets_free(sets);
        ctl_pause_longer(o, &pause_ms, LOOK_MS / 2);
    }
    return rc;
}

static int latest(const struct ctl_options *o, const struct ctl_store *store, struct ctl_link *l)
{
    uint64_t until = fp_now_ms() + o->limit_ms;
    struct sets sets = {0};
    Fp__CkptSet *best = NULL;
    int rc = ask_settled(o, store, l, until, &sets);
    size_t lost = count_lost(&sets); /* those that are passed over below get that level, too */

    while (rc == 0 && (best = best_of(&sets, o->level, o->complete)) != NULL && o->level > FP__LEVEL__LEVEL_POOL) {
        uint64_t now = fp_now_ms();

        rc = is_so(o, store, l, best, now < until ? now + (until - now) / 2 : now);
        if (rc != 0)
            break;
        best->level = FP__LEVEL__LEVEL_NONE;
    }
    if (rc >= 0 && !best) {
        say_none(o, lost);
        rc = NONE;
    } else if (rc >= 0 && o->json) {
        rc = ctl_json_print(json_set(store, best));
    } else if (rc >= 0) {
        printf("%s%.*s\n", store->mountpoint, (int)best->path.len, (const char *)best->path.data);
        rc = ctl_flush();
    }
    sets_free(&sets);
    return rc;
}

/* -------------------------------------------------------------- commit and forget */

static int say(const struct ctl_options *o, const struct ctl_store *store, struct ctl_link *l, Fp__SetSay what, Fp__CkptSet **out)
{
    Fp__CtlSetSay q = FP__CTL_SET_SAY__INIT;
    ProtobufCMessage *reply = NULL;
    q.path.data = (uint8_t *)(uintptr_t)store->inner;
    q.path.len = strlen(store->inner);
    q.has_step = o->step >= 0;
    q.step = o->step >= 0 ? (uint64_t)o->step : 0;
    q.what = what;
    q.force = o->force;
    int rc = ctl_link_call(l, FP__MSG_TYPE__MSG_CTL_SET_SAY, &q.base, &fp__ckpt_set__descriptor, &reply);
    if (rc == -ENODATA)
        FP_ERROR("%s is no checkpoint set, nor of one: see fpctl checkpoints --all", o->path);
    else if (rc == -ENXIO)
        FP_ERROR("there is no file in %s, so nothing that could be complete: commit it when it is written", o->path);
    else if (rc == -EUCLEAN)
        FP_ERROR("%s is not complete: what programs had closed of files of it was lost before it was stored, or may be (--close behind): fpctl checkpoints --files shows them, with level none or "
                 "pool. Write them again, and commit again; or, if they are whole as they are: --force", o->path);
    else if (rc == -ENOTUNIQ)
        FP_ERROR("%s has several series with step %lld: give a file or directory of the one that is meant", o->path, (long long)o->step);
    else if (rc == -ENOTEMPTY)
        FP_ERROR("there are checkpoint sets in %s: give the directory or file of the one that is meant, or --step", o->path);
    else if (rc == -ENOENT || rc == -ENOTDIR)
        FP_ERROR("%s: %s", o->path, fp_strerror(rc));
    else if (rc < 0)
        ctl_link_failed(l, rc, "checkpoint");
    *out = (Fp__CkptSet *)reply;
    return rc;
}

static int late(const struct ctl_store *store, struct ctl_link *l, const Fp__CkptSet *s)
{
    Fp__CtlSets q = FP__CTL_SETS__INIT;
    Fp__CtlSetsReply *r = NULL;
    char torn[TORN_BUF];
    if (s->state == FP__CKPT_STATE__CKPT_FORGOTTEN) {
        FP_ERROR("it is no set any more: it was given to fpctl checkpoint forget");
        return -EINVAL;
    }
    if (s->state == FP__CKPT_STATE__CKPT_TORN) {
        FP_ERROR("it is torn: %sa mount or a program that was writing a file of it is gone, or could not store it. Write that again, and commit again; or, if all of it is whole as it is: --force", torn_text(torn, sizeof torn, store, s));
        return -EIO;
    }
    q.files_of = s->id;
    int rc = ask(store, l, &q, &r);
    if (rc < 0)
        return rc;
    if (s->writers || !s->why[0])
        FP_ERROR("it is not complete yet%s%s: %llu of its files are open for writing", s->why[0] ? ", " : "", s->why, (unsigned long long)s->writers);
    else
        FP_ERROR("it is not complete yet: %s", s->why);
    for (size_t i = 0; i < r->n_files; i++)
        if (r->files[i]->writing)
            fprintf(stderr, "%s%.*s is open on %s\n", store->mountpoint, (int)r->files[i]->path.len, (const char *)r->files[i]->path.data, r->files[i]->node);
    fp__ctl_sets_reply__free_unpacked(r, NULL);
    return LATE;
}

static int commit(const struct ctl_options *o, const struct ctl_store *store, struct ctl_link *l)
{
    uint64_t until = fp_now_ms() + o->limit_ms;
    Fp__CkptSet *s = NULL;
    int rc = say(o, store, l, FP__SET_SAY__SET_SAY_COMMIT, &s);
    while (rc == 0 && s->state != FP__CKPT_STATE__CKPT_COMPLETE) {
        if (s->state == FP__CKPT_STATE__CKPT_FORGOTTEN || s->state == FP__CKPT_STATE__CKPT_TORN || fp_now_ms() >= until) {
            rc = late(store, l, s);
            break;
        }
        fp__ckpt_set__free_unpacked(s, NULL);
        s = NULL;
        ctl_pause(o, 100);
        rc = say(o, store, l, FP__SET_SAY__SET_SAY_NOTHING, &s);
    }
    if (rc == 0 && o->json)
        rc = ctl_json_print(json_set(store, s));
    if (s)
        fp__ckpt_set__free_unpacked(s, NULL);
    return rc;
}

static int forget(const struct ctl_options *o, const struct ctl_store *store, struct ctl_link *l)
{
    Fp__CkptSet *s = NULL;
    int rc = say(o, store, l, FP__SET_SAY__SET_SAY_FORGET, &s);
    if (rc == 0 && o->json)
        rc = ctl_json_print(json_set(store, s));
    if (s)
        fp__ckpt_set__free_unpacked(s, NULL);
    return rc;
}

const struct ctl_cmd ctl_cmd_checkpoints = {
    .words = "checkpoints",
    .args = "[PATH]",
    .options = "all files watch",
    .help = "The checkpoint sets at or below PATH: step, files, size, age, state, level of durability.",
    .more = "A set is the files of one time step, known by the number in their names or in that of a directory above them (chk_0007/rank_12, restart.5000). state: open (somebody "
            "writes, or may go on), complete, or torn (a mount or a program that was writing a file of it is gone, and nobody has written it since; the first such file is named, and its level is none). drain: how far the job is that copies it to a target now. convert, where one has been begun: how its conversion is, and why it failed. The newest 20 of each series are shown; --all shows all.",
    .run = show,
};

const struct ctl_cmd ctl_cmd_checkpoint_latest = {
    .words = "checkpoint latest",
    .args = "[PATH]",
    .options = "level complete",
    .help = "Prints the path to restart from: of the set at or below PATH that became complete last.",
    .more = "Of a set of several files side by side it is what their names have in common, up to the step. A set that nobody writes any more, and that is not complete yet, is waited for if there is no other. A set with damaged or lost data is passed over, and as long as there is another one that nobody has said is complete and that has fewer files than those before had each (with --complete, also if there is no other). Series named as output "
            "(plt, plot, frame, snap, dump), and results of conversions, count only where there is no other. With --level it is the last that has this level or a higher one by now: copies "
            "that this rests on are looked at in the target. A set whose copies have gone, or can't be looked at in time, is passed over, with a line that says so.",
    .exits = "Exits with 3 when there is none by --timeout (20s); with 1 when the manager does not answer, so that nobody begins anew for want of an answer.",
    .flags = CTL_WAITS,
    .limit_ms = 20000,
    .run = latest,
};

const struct ctl_cmd ctl_cmd_checkpoint_commit = {
    .words = "checkpoint commit",
    .args = "PATH",
    .options = "step force",
    .help = "Says that a checkpoint set is complete, and waits until it is: until nobody has a file of it open for writing.",
    .more = "PATH is its directory, a directory or a file in it, or with --step the directory in which its files lie. What is not known as a set becomes one. The attribute "
            "user.fp.checkpoint=complete says the same, as does a file in it that is called COMPLETE, .complete, _SUCCESS or DONE. None of them makes a set complete of which something was lost after close (fpctl status): "
            "with --force it is, as it is. A manager that is away is waited for.",
    .exits = "Exits with 1 when something of it was lost or is torn, with 3 when it is not complete in time (--timeout, 60s), and says which files are open and where, or when the manager did not answer in all that time.",
    .flags = CTL_WAITS | CTL_PATIENT,
    .limit_ms = 60000,
    .run = commit,
};

const struct ctl_cmd ctl_cmd_checkpoint_forget = {
    .words = "checkpoint forget",
    .args = "PATH",
    .options = "step",
    .help = "What looked like a checkpoint set is none: it is not shown any more, and nothing is done with it. Its files stay. For good: nothing makes it one again under this name.",
    .run = forget,
};
