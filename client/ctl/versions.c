/* fpctl versions, fpctl restore: what a file was before it was rewritten, and putting that back.
 *
 * The manager does it, and at once says that it has begun; a large file takes it a while, so this asks again until it is done. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "client/ctl/cmd.h"
#include "fp/err.h"
#include "fp/table.h"
#include "life.pb-c.h"

#define AGAIN_MS 100u
#define IS_OPEN  3

static int ask(const struct ctl_store *store, struct ctl_link *l, Fp__CtlVersions *q, Fp__CtlVersionsReply **out)
{
    ProtobufCMessage *reply = NULL;
    int rc;

    q->path.data = (uint8_t *)store->inner;
    q->path.len = strlen(store->inner);
    rc = ctl_link_call(l, FP__MSG_TYPE__MSG_CTL_VERSIONS, &q->base, &fp__ctl_versions_reply__descriptor, &reply);
    if (rc == -ENODATA)
        FP_ERROR("%s/%s: there is no such version: fpctl versions lists those that are kept", store->mountpoint, store->inner);
    else if (rc == -ENOENT || rc == -ENOTDIR || rc == -EISDIR || rc == -EINVAL)
        FP_ERROR("%s/%s: %s", store->mountpoint, store->inner, fp_strerror(rc));
    else if (rc < 0)
        return ctl_link_failed(l, rc, "versions");
    *out = (Fp__CtlVersionsReply *)reply;
    return rc;
}

static const char *state_of(const Fp__VersionInfo *v)
{
    static const char *const names[] = {"present", "guard", "waits", NULL, "torn", "returning", NULL, "given up"};

    return (unsigned)v->state < sizeof names / sizeof *names && names[v->state] ? names[v->state] : "unknown";
}

static json_t *json_of(const Fp__CtlVersionsReply *r)
{
    json_t *list = json_array();

    for (size_t i = 0; i < r->n_versions; i++) {
        const Fp__VersionInfo *v = r->versions[i];

        json_array_append_new(list, json_pack("{s:I, s:s, s:I, s:I, s:I, s:s}", "version", (json_int_t)v->n, "state", state_of(v), "size_bytes", (json_int_t)v->size_bytes,
                                              "mtime_ns", (json_int_t)v->mtime_ns, "own_bytes", (json_int_t)v->own_bytes, "why", v->why));
    }
    return list;
}

static void row(struct fp_table *t, const Fp__VersionInfo *v)
{
    char buf[FP_UNITS_BUF], when[64];
    time_t sec = (time_t)(v->mtime_ns / 1000000000);
    struct tm tm;

    if (v->n)
        fp_table_cell_count(t, v->n);
    else
        fp_table_cell(t, "%s", "-");
    strftime(when, sizeof when, "%F %T", localtime_r(&sec, &tm));
    fp_table_cell(t, "%s", when);
    fp_table_cell(t, "%s", fp_format_size(buf, v->size_bytes));
    fp_table_cell(t, "%s", v->n && v->state != FP__VERSION_STATE__VERSION_GIVEN_UP ? fp_format_size(buf, v->own_bytes) : "");
    fp_table_cell(t, "%s", state_of(v));
    fp_table_cell(t, "%s", v->why);
}

static int print(const struct ctl_options *o, const Fp__CtlVersionsReply *r)
{
    static const struct fp_table_col cols[] = {{"version", true}, {"modified", false}, {"size", true}, {"takes", true}, {"state", false}, {"why", false}};
    struct fp_table *t;
    int rc;

    if (o->json)
        return ctl_json_print(json_pack("{s:o}", "versions", json_of(r)));
    t = fp_table_new(cols, 6);
    for (size_t i = 0; i < r->n_versions; i++)
        row(t, r->versions[i]);
    rc = fp_table_print(t, stdout);
    fp_table_free(t);
    return rc < 0 ? rc : ctl_flush();
}

static int run_versions(const struct ctl_options *o, const struct ctl_store *store, struct ctl_link *l)
{
    Fp__CtlVersions q = FP__CTL_VERSIONS__INIT;
    Fp__CtlVersionsReply *r = NULL;
    int rc = ask(store, l, &q, &r);

    rc = rc < 0 ? rc : print(o, r);
    if (r)
        fp__ctl_versions_reply__free_unpacked(r, NULL);
    return rc;
}

static int name_writers(const struct ctl_options *o, const Fp__CtlVersionsReply *r)
{
    for (size_t i = 0; i < r->n_why; i++)
        FP_ERROR("%s is open for writing at %s: it is put back when that has ended, or with --force", o->path, r->why[i]);
    return IS_OPEN;
}

/* Until nothing of it is under way. torn: the rest of them, too. */
static int wait_done(const struct ctl_options *o, const struct ctl_store *store, struct ctl_link *l, bool torn, uint64_t *restored, bool more)
{
    int rc = 0;

    while (more && rc == 0) {
        Fp__CtlVersions q = FP__CTL_VERSIONS__INIT;
        Fp__CtlVersionsReply *r = NULL;

        ctl_pause(o, AGAIN_MS);
        q.torn_all = torn;
        rc = ask(store, l, &q, &r);
        more = rc == 0 && (r->returning || (torn && r->restored));
        *restored += rc == 0 && torn ? r->restored : 0;
        if (r)
            fp__ctl_versions_reply__free_unpacked(r, NULL);
    }
    return rc;
}

static int say(const struct ctl_options *o, uint64_t restored)
{
    if (o->json)
        return ctl_json_print(json_pack("{s:I}", "restored", (json_int_t)restored));
    if (o->torn)
        printf("%" PRIu64 " files put back\n", restored);
    else
        printf("%s: version %" PRIu64 " put back\n", o->path, restored);
    return ctl_flush();
}

static int run_restore(const struct ctl_options *o, const struct ctl_store *store, struct ctl_link *l)
{
    Fp__CtlVersions q = FP__CTL_VERSIONS__INIT;
    Fp__CtlVersionsReply *r = NULL;
    uint64_t restored = 0;
    bool more = false;
    int rc;

    q.restore = o->version;
    q.newest = !o->version && !o->torn;
    q.force = o->force;
    q.torn_all = o->torn;
    rc = ask(store, l, &q, &r);
    if (rc == 0 && r->n_why)
        rc = name_writers(o, r);
    if (rc == 0) {
        restored = r->restored;
        more = r->returning || (o->torn && restored);
    }
    if (r)
        fp__ctl_versions_reply__free_unpacked(r, NULL);
    rc = rc ? rc : wait_done(o, store, l, o->torn, &restored, more);
    return rc ? rc : say(o, restored);
}

const struct ctl_cmd ctl_cmd_versions = {
    .words = "versions",
    .args = "PATH",
    .options = "",
    .help = "What a file was before it was rewritten, as far as that is kept: while it is rewritten, and after it was put back.",
    .run = run_versions,
};

const struct ctl_cmd ctl_cmd_restore = {
    .words = "restore",
    .args = "PATH[@N]",
    .options = "force torn",
    .help = "Puts version N of a file back, or its last good one. What it is now is kept in its place.",
    .more = "With --force it is put back also while it is open for writing: those who have it so can't change it any more, and get EIO, until all programs of their mount have closed it. With --torn, PATH is a directory: all files below it that a dead writer has left torn.",
    .exits = "Exit code 3: the file is open for writing, by those who are named.",
    .run = run_restore,
};
