/*
 * fpctl conversions: how those are that aux-app convert, or whoever else, does of files and checkpoint sets of the store.
 *
 * Whoever converts something says in its attribute user.fp.convert how it is: waiting, running, done or failed, and more about it. The manager tells all of these below a
 * directory in pages (MSG_CTL_CONVERSIONS). With --wait they are asked for again until none of them is waiting or running. What was seen once and is not told any more has gone,
 * with its file: it is shown as that, since whoever waited for it wants to know. What will not be converted as it is, since its set is torn or forgotten, is not waited for either. Nothing is marked at
 * once: before the first look that counts, the aux-apps have marked what was closed when --wait began (backlog.c).
 *
 * Called by main.c, on the only thread that asks.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/ctl/backlog.h"
#include "client/ctl/cmd.h"
#include "fp/clock.h"
#include "fp/err.h"
#include "fp/grown.h"
#include "fp/table.h"
#include "life.pb-c.h"

#define LOOK_MS  500u
#define AGAIN_MS 1000u /* after the manager could not be asked */

enum { FAILED = 4 };

enum state { WAITING, RUNNING, DONE, BROKEN, OTHER, GONE };

static const char *const state_names[] = {"waiting", "running", "done", "failed"};

struct item {
    uint64_t ino;
    char *path, *text;
    enum state state;
    Fp__CkptState set;
    uint64_t seen; /* in that round */
};

struct list {
    const struct ctl_options *o;
    const struct ctl_store *store;
    struct ctl_link *link;
    struct item *item;
    size_t n, cap;
    uint64_t round;
    struct ctl_backlog backlog;
    bool all_marked; /* that was closed before we began */
};

static bool is_final(int rc)
{
    return rc == -EINVAL || rc == -ENOENT || rc == -ENOTDIR || rc == -EPERM || rc == -ENOMEM || rc == FP_EBADMSG_TYPE;
}

/* -------------------------------------------------------------- asking */

static enum state state_of(const char *text)
{
    size_t len = strcspn(text, " :,;\n");

    for (size_t i = 0; i < sizeof state_names / sizeof *state_names; i++)
        if (strlen(state_names[i]) == len && strncmp(text, state_names[i], len) == 0)
            return (enum state)i;
    return OTHER;
}

static int by_ino(const void *a, const void *b)
{
    const struct item *x = a, *y = b;

    return (x->ino > y->ino) - (x->ino < y->ino);
}

static struct item *new_item(struct list *l, uint64_t ino)
{
    struct item *more = fp_grown(l->item, l->n, &l->cap, sizeof *more);

    if (!more)
        return NULL;
    l->item = more;
    l->item[l->n] = (struct item){.ino = ino};
    return &l->item[l->n++];
}

/* known: how many of them are in the order of their inodes, from rounds before. */
static int take(struct list *l, size_t known, const Fp__Conversion *m)
{
    const struct item key = {.ino = m->ino};
    struct item *i = known ? bsearch(&key, l->item, known, sizeof key, by_ino) : NULL;
    char *path = malloc(m->path.len + 1), *text = strdup(m->text);

    i = i ? i : new_item(l, m->ino);
    if (!i || !path || !text) {
        free(path);
        free(text);
        return -ENOMEM;
    }
    memcpy(path, m->path.data, m->path.len);
    path[m->path.len] = '\0';
    free(i->path);
    free(i->text);
    i->path = path;
    i->text = text;
    i->state = state_of(text);
    i->set = m->set;
    i->seen = l->round;
    return 0;
}

static int ask_page(struct list *l, size_t known, uint64_t *after, bool *more)
{
    Fp__CtlConversions q = FP__CTL_CONVERSIONS__INIT;
    ProtobufCMessage *reply = NULL;
    int rc;

    q.path = (ProtobufCBinaryData){strlen(l->store->inner), (uint8_t *)(uintptr_t)l->store->inner};
    q.after = *after;
    rc = ctl_link_call(l->link, FP__MSG_TYPE__MSG_CTL_CONVERSIONS, &q.base, &fp__ctl_conversions_reply__descriptor, &reply);
    if (rc < 0)
        return rc;
    const Fp__CtlConversionsReply *r = (Fp__CtlConversionsReply *)reply;
    for (size_t i = 0; i < r->n_conversions && rc == 0; i++)
        rc = take(l, known, r->conversions[i]);
    *more = r->more && r->next > *after;
    *after = r->next;
    protobuf_c_message_free_unpacked(reply, NULL);
    return rc;
}

static int look(struct list *l)
{
    uint64_t after = 0;
    size_t known = l->n;
    bool more = true;
    int rc = l->o->wait && !l->all_marked ? ctl_backlog_look(&l->backlog, l->link, &l->all_marked) : 0;

    l->round++;
    while (more && rc == 0)
        rc = ask_page(l, known, &after, &more);
    for (size_t i = 0; i < l->n && rc == 0; i++)
        if (l->item[i].seen != l->round && (l->item[i].state == WAITING || l->item[i].state == RUNNING))
            l->item[i].state = GONE;
    if (l->n)
        qsort(l->item, l->n, sizeof *l->item, by_ino);
    return rc;
}

/* -------------------------------------------------------------- what it comes to */

static bool is_waited_for(const struct item *i)
{
    return (i->state == WAITING || i->state == RUNNING) && i->set != FP__CKPT_STATE__CKPT_TORN && i->set != FP__CKPT_STATE__CKPT_FORGOTTEN;
}

static size_t count_left(const struct list *l)
{
    size_t n = 0;

    for (size_t i = 0; i < l->n; i++)
        n += is_waited_for(&l->item[i]);
    return n;
}

/* Behind the word of its state. */
static const char *about(const struct item *i)
{
    const char *p = i->text;

    if (i->state == OTHER)
        return p;
    p += strcspn(p, " :,;\n");
    return p + strspn(p, " :,;\n");
}

static const char *state_text(const struct item *i)
{
    return i->state == GONE ? "gone" : i->state == OTHER ? "?" : state_names[i->state];
}

static const char *set_text(const struct item *i)
{
    static const char *const names[] = {"", "open", "complete", "torn", "forgotten"};

    return i->set < sizeof names / sizeof *names ? names[i->set] : "?";
}

static enum fp_style style_of(const struct item *i)
{
    if (i->state == DONE)
        return FP_STYLE_GOOD;
    return i->state == BROKEN ? FP_STYLE_BAD : FP_STYLE_WARN;
}

/* -------------------------------------------------------------- printing */

static int print_json(const struct list *l)
{
    json_t *list = json_array();

    for (size_t k = 0; k < l->n; k++) {
        const struct item *i = &l->item[k];
        char path[2 * PATH_MAX];
        int n = snprintf(path, sizeof path, "%s%s", l->store->mountpoint, i->path);

        json_array_append_new(list, json_pack("{s:o, s:s, s:s, s:o, s:o, s:o}", "path", ctl_json_bytes(path, n < (int)sizeof path ? (size_t)n : sizeof path - 1), "state", state_text(i), "set",
                                              i->set ? set_text(i) : "none", "result", i->state == DONE ? ctl_json_bytes(about(i), strlen(about(i))) : json_null(), "reason",
                                              i->state == BROKEN ? ctl_json_bytes(about(i), strlen(about(i))) : json_null(), "text", ctl_json_bytes(i->text, strlen(i->text))));
    }
    return ctl_json_print(json_pack("{s:o}", "conversions", list));
}

static int print_table(const struct list *l)
{
    static const struct fp_table_col cols[] = {{"path", false}, {"set", false}, {"state", false}, {"", false}};
    struct fp_table *t;
    int rc;

    if (l->n == 0) {
        puts("No conversion here: what aux-app convert takes up has the attribute user.fp.convert.");
        return ctl_flush();
    }
    t = fp_table_new(cols, sizeof cols / sizeof *cols);
    for (size_t k = 0; k < l->n; k++) {
        const struct item *i = &l->item[k];

        fp_table_cell(t, "%s%s", l->store->mountpoint, i->path);
        fp_table_cell(t, "%s", set_text(i));
        fp_table_cell_styled(t, style_of(i), "%s", state_text(i));
        fp_table_cell(t, "%s", i->state == GONE ? "it is not there any more: converted and removed (keep=none), or removed by somebody" : about(i));
    }
    rc = fp_table_print(t, stdout);
    fp_table_free(t);
    return rc < 0 ? rc : ctl_flush();
}

static int by_path(const void *a, const void *b)
{
    return strcmp(((const struct item *)a)->path, ((const struct item *)b)->path);
}

/* -------------------------------------------------------------- until the end */

/* 0, CTL_LATE, or negative and logged. */
static int wait_for_all(struct list *l)
{
    for (;;) {
        int rc = look(l);
        bool late = l->o->until_ms && fp_now_ms() >= l->o->until_ms;

        if (rc == -ENOENT || rc == -ENOTDIR) {
            FP_ERROR("%s: %s", l->o->path ? l->o->path : l->store->mountpoint, fp_strerror(rc));
            return rc;
        }
        if (rc < 0 && (!l->o->wait || late || is_final(rc)))
            return ctl_link_failed(l->link, rc, "conversions");
        if (rc == 0 && (!l->o->wait || (l->all_marked && count_left(l) == 0)))
            return 0;
        if (late)
            return CTL_LATE;
        ctl_pause(l->o, rc < 0 ? AGAIN_MS : LOOK_MS);
    }
}

static int exit_code(const struct list *l, int rc)
{
    size_t failed = 0;

    for (size_t i = 0; i < l->n; i++)
        failed += l->item[i].state == BROKEN;
    if (rc == CTL_LATE)
        FP_ERROR("%zu of %zu conversions have not ended yet%s", count_left(l), l->n, l->all_marked ? "" : ", and there may be more: aux-app convert has not looked at all that was closed");
    return rc ? rc : l->o->wait && failed ? FAILED : 0;
}

static int run(const struct ctl_options *o, const struct ctl_store *store, struct ctl_link *link)
{
    struct list l = {.o = o, .store = store, .link = link};
    int rc = wait_for_all(&l), printed;

    if (rc >= 0) {
        if (l.n)
            qsort(l.item, l.n, sizeof *l.item, by_path);
        printed = o->json ? print_json(&l) : print_table(&l);
        rc = printed < 0 ? printed : exit_code(&l, rc);
    }
    for (size_t i = 0; i < l.n; i++) {
        free(l.item[i].path);
        free(l.item[i].text);
    }
    free(l.item);
    ctl_backlog_free(&l.backlog);
    return rc;
}

const struct ctl_cmd ctl_cmd_conversions = {
    .words = "conversions",
    .args = "[PATH]",
    .options = "wait",
    .help = "How conversions are of files and checkpoint sets at or below PATH: waiting, running, done (and the result), or failed (and why).",
    .more = "Of what aux-app convert has taken up, or whoever else says so in the attribute user.fp.convert. With --wait until none is waiting or running, which can be without limit; what is of a "
            "set that is torn or forgotten, or is removed meanwhile, is shown and not waited for. What was closed before it began is waited for from the first: it may be a second or two before all of it is marked.",
    .exits = "With --wait it exits with 3 when --timeout is over, 4 when one has failed; 0 when all are done, or there is none.",
    .flags = CTL_WAITS | CTL_PATIENT,
    .run = run,
};
