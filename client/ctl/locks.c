/* fpctl locks: who holds a lock of which file, and who waits for it. Where a job hangs on several nodes this is the first question.
 *
 * The manager knows all of it but what a program is called: the pid is that of the node (0: the mount's own, as the right to append). Who holds is printed before who
 * waits, file by file. Locks of mounts with --locks local are not known to anybody else. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/ctl/cmd.h"
#include "fp/err.h"
#include "fp/table.h"
#include "fp/units.h"

static const char *kind_of(const Fp__CtlLock *k)
{
    static const char *const names[] = {"fcntl", "flock", "append", "lease"};

    return (unsigned)k->kind < sizeof names / sizeof *names ? names[k->kind] : "?";
}

static int by_file(const void *a, const void *b)
{
    const Fp__CtlLock *x = *(Fp__CtlLock *const *)a, *y = *(Fp__CtlLock *const *)b;
    size_t len = x->path.len < y->path.len ? x->path.len : y->path.len;
    int c = len ? memcmp(x->path.data, y->path.data, len) : 0;

    c = c ? c : (x->path.len > y->path.len) - (x->path.len < y->path.len);
    c = c ? c : (x->ino > y->ino) - (x->ino < y->ino);
    c = c ? c : (x->kind > y->kind) - (x->kind < y->kind);
    c = c ? c : x->waits - y->waits;
    c = c ? c : x->waits ? (x->for_ms < y->for_ms) - (x->for_ms > y->for_ms) : (x->start > y->start) - (x->start < y->start);
    return c ? c : (x->session > y->session) - (x->session < y->session);
}

static int ask(struct ctl_link *l, const struct ctl_options *o, const struct ctl_store *store, Fp__CtlLocksReply **out)
{
    Fp__CtlLocks q = FP__CTL_LOCKS__INIT;
    ProtobufCMessage *reply = NULL;
    q.path.data = (uint8_t *)store->inner;
    q.path.len = o->path ? strlen(store->inner) : 0; /* without PATH: of the whole store, wherever we stand */
    int rc = ctl_link_call(l, FP__MSG_TYPE__MSG_CTL_LOCKS, &q.base, &fp__ctl_locks_reply__descriptor, &reply);
    if (rc == -ENOENT || rc == -ENOTDIR) {
        FP_ERROR("%s: %s", o->path ? o->path : "/", fp_strerror(rc));
        return rc;
    }
    if (rc < 0)
        return ctl_link_failed(l, rc, "locks");
    *out = (Fp__CtlLocksReply *)reply;
    return 0;
}

static json_t *json_of(const Fp__CtlLock *k)
{
    json_t *j = json_pack("{s:o, s:I, s:s, s:s, s:b, s:b, s:I, s:o, s:I, s:o, s:o, s:b, s:b}", "path", k->path.len ? ctl_json_bytes(k->path.data, k->path.len) : json_null(), "ino",
                          (json_int_t)k->ino, "kind", kind_of(k), "state", k->waits ? "waits" : "held", "exclusive", k->exclusive, "recalled", k->recalled, "start_bytes",
                          (json_int_t)k->start, "end_bytes", k->end >= INT64_MAX ? json_null() : json_integer((json_int_t)k->end), "session", (json_int_t)k->session, "node",
                          ctl_json_bytes(k->node, strlen(k->node)), "mountpoint", ctl_json_bytes(k->mountpoint, strlen(k->mountpoint)), "connected", k->connected, "behind", k->behind);
    if (j) {
        json_object_set_new(j, "pid", k->pid ? json_integer((json_int_t)k->pid) : json_null());
        json_object_set_new(j, "for_ms", k->since_start ? json_null() : json_integer((json_int_t)k->for_ms));
    }
    return j;
}

static int print_json(const Fp__CtlLocksReply *r)
{
    json_t *list = json_array();
    for (size_t i = 0; i < r->n_locks; i++)
        json_array_append_new(list, json_of(r->locks[i]));
    return ctl_json_print(json_pack("{s:o, s:b}", "locks", list, "more", r->more));
}

static void range_cell(struct fp_table *t, const Fp__CtlLock *k)
{
    if (k->kind != FP__CTL_LOCK_KIND__CTL_LOCK_FCNTL || (k->start == 0 && k->end >= INT64_MAX))
        fp_table_cell(t, "all");
    else if (k->end >= INT64_MAX)
        fp_table_cell(t, "%llu-", (unsigned long long)k->start);
    else
        fp_table_cell(t, "%llu-%llu", (unsigned long long)k->start, (unsigned long long)k->end);
}

static void row(struct fp_table *t, const Fp__CtlLock *k, bool same_file)
{
    char age[FP_UNITS_BUF];
    if (same_file)
        fp_table_cell(t, "%s", "");
    else if (k->path.len)
        fp_table_cell(t, "%.*s", (int)k->path.len, (const char *)k->path.data);
    else
        fp_table_cell(t, "inode %llu, without a name", (unsigned long long)k->ino);
    fp_table_cell(t, "%s", kind_of(k));
    fp_table_cell(t, "%s", k->exclusive ? "write" : "read");
    range_cell(t, k);
    fp_table_cell_styled(t, k->waits ? FP_STYLE_WARN : FP_STYLE_NONE, "%s", k->waits ? "waits" : k->behind ? "held, closed" : k->recalled ? "held, wanted" : "held");
    fp_table_cell(t, "%s", k->since_start ? "before the manager's start" : fp_format_duration(age, k->for_ms));
    fp_table_cell_styled(t, k->connected ? FP_STYLE_NONE : FP_STYLE_BAD, "%s:%s%s", *k->node ? k->node : "?", k->mountpoint, k->connected ? "" : " (away)");
    if (k->pid)
        fp_table_cell(t, "%u", k->pid);
    else
        fp_table_cell(t, "-");
}

static int print_text(const Fp__CtlLocksReply *r)
{
    static const struct fp_table_col cols[] = {{"file", false}, {"kind", false}, {"for", false}, {"bytes", false}, {"state", false}, {"since", true}, {"mount", false}, {"pid", true}};
    if (r->n_locks == 0) {
        printf("no locks%s\n", r->more ? " among those looked at: ask for a file" : "");
        return ctl_flush();
    }
    struct fp_table *t = fp_table_new(cols, sizeof cols / sizeof *cols);
    for (size_t i = 0; i < r->n_locks; i++)
        row(t, r->locks[i], i > 0 && r->locks[i]->ino == r->locks[i - 1]->ino);
    int rc = fp_table_print(t, stdout);
    fp_table_free(t);
    if (r->more)
        printf("and more: ask for a file, or a directory\n");
    return rc < 0 ? rc : ctl_flush();
}

static int run(const struct ctl_options *o, const struct ctl_store *store, struct ctl_link *l)
{
    Fp__CtlLocksReply *r = NULL;
    int rc = ask(l, o, store, &r);
    if (rc < 0)
        return rc;
    if (r->n_locks > 1)
        qsort(r->locks, r->n_locks, sizeof *r->locks, by_file);
    rc = o->json ? print_json(r) : print_text(r);
    fp__ctl_locks_reply__free_unpacked(r, NULL);
    return rc;
}

const struct ctl_cmd ctl_cmd_locks = {
    .words = "locks",
    .args = "[PATH]",
    .options = "",
    .help = "Who holds locks of files, by fcntl(2) or flock(2), the right to append to a file (O_APPEND), or the lease of one that may be closed before it is published (--close "
            "behind); and who waits for one, and for how long. Of one file, of all in a directory, or of the whole store.",
    .more = "Each line has the mount, and the process there, where it is a program's. A right to append, and a lease, stay with a mount until another one wants them. Closed: "
            "what was closed is perhaps not published yet, or a program has the file still open. (away): that mount is "
            "not connected, and loses them when its session ends. At most 4096 lines. Locks of mounts with --locks local are not known here.",
    .run = run,
};
