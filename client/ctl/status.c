/* fpctl status: the whole store on one page.
 *
 * Says what is there, what is wrong, and what would be lost by a crash at this moment: bytes that a mount has accepted and no
 * benefactor has (dirty), and bytes that a benefactor has and the manager's map does not (uncommitted). Mounts report once a
 * second, so figures may be that old. FUSE features come from the mounts too: each says which it uses and why not the others.
 *
 * Damaged files stay in the list until they are removed or rewritten: a checksum did not match, and reads of that range give
 * EIO. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "client/ctl/cmd.h"
#include "fp/ctlwire.h"
#include "fp/table.h"
#include "fp/uuid.h"

static const char *uuid_text(char buf[FP_UUID_BUF], const ProtobufCBinaryData *b)
{
    struct fp_uuid u;
    if (b->len != FP_UUID_BYTES)
        return "?";
    memcpy(u.b, b->data, FP_UUID_BYTES);
    return fp_uuid_format(buf, &u);
}

/* ---------------------------------------------------------------- for programs */

static json_t *json_features(const Fp__ClientStats *s)
{
    json_t *list = json_array();
    for (size_t i = 0; s && i < s->n_features; i++)
        json_array_append_new(list, json_pack("{s:s, s:b, s:s}", "name", s->features[i]->name, "in_use",
                                              s->features[i]->in_use, "why_not", s->features[i]->why_not));
    return list;
}

static json_t *json_client(const Fp__CtlClient *c)
{
    Fp__ClientStats none = FP__CLIENT_STATS__INIT;
    const Fp__ClientStats *s = c->stats ? c->stats : &none;
    json_t *j = json_pack("{s:I, s:o, s:o, s:i, s:b, s:s, s:s, s:s, s:b, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:I, s:o}", "session",
                          (json_int_t)c->session, "node", ctl_json_bytes(c->node, strlen(c->node)), "mountpoint",
                          ctl_json_bytes(c->mountpoint, strlen(c->mountpoint)), "pid", (int)c->pid, "connected",
                          c->connected, "software", c->software, "close", s->close, "locks", s->locks, "strict", s->strict, "pool_bytes", (json_int_t)s->pool_bytes,
                          "pool_used_bytes", (json_int_t)s->pool_used_bytes, "dirty_bytes",
                          (json_int_t)s->dirty_bytes, "uncommitted_bytes", (json_int_t)s->uncommitted_bytes,
                          "open_files", (json_int_t)s->open_files, "read_bytes", (json_int_t)s->read_bytes,
                          "written_bytes", (json_int_t)s->written_bytes, "errors", (json_int_t)s->errors,
                          "last_error", ctl_json_bytes(s->last_error, strlen(s->last_error)), "last_error_ns",
                          (json_int_t)s->last_error_ns, "features", json_features(c->stats));
    return j;
}

static json_t *json_damage(const Fp__Damage *d)
{
    return json_pack("{s:I, s:o, s:I, s:I, s:I, s:i, s:o, s:I, s:I}", "ino", (json_int_t)d->ino, "path",
                     ctl_json_bytes(d->path.data, d->path.len), "offset_bytes", (json_int_t)d->off, "length_bytes",
                     (json_int_t)d->len, "chunk", (json_int_t)d->chunk, "benefactor", (int)d->bnf, "reason",
                     ctl_json_bytes(d->reason, strlen(d->reason)), "seen_ns", (json_int_t)d->seen_ns, "version", (json_int_t)d->version);
}

/* An option that is for all mounts or for none. */
static bool strict_differs(const Fp__CtlStatusReply *r)
{
    bool on = false, off = false;
    for (size_t i = 0; i < r->n_clients; i++) {
        const Fp__ClientStats *s = r->clients[i]->stats;
        if (!r->clients[i]->connected || !s || !s->close[0])
            continue;
        on |= s->strict;
        off |= !s->strict;
    }
    return on && off;
}

static int print_json(const Fp__CtlStatusReply *r, const struct ctl_store *store)
{
    char uuid[FP_UUID_BUF];
    json_t *bnfs = json_array(), *mounts = json_array(), *damaged = json_array(), *lost = json_array();
    for (size_t i = 0; i < r->n_benefactors; i++)
        json_array_append_new(bnfs, ctl_json_bnf(r->benefactors[i]));
    for (size_t i = 0; i < r->n_clients; i++)
        json_array_append_new(mounts, json_client(r->clients[i]));
    for (size_t i = 0; i < r->n_damaged; i++)
        json_array_append_new(damaged, json_damage(r->damaged[i]));
    for (size_t i = 0; i < r->n_lost; i++)
        json_array_append_new(lost, ctl_json_bytes(r->lost[i].data, r->lost[i].len));
    return ctl_json_print(json_pack(
        "{s:s, s:{s:s, s:I, s:I, s:s, s:I}, s:{s:I, s:I, s:I}, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:b, s:o, s:o, s:o, s:I}", "store",
        uuid_text(uuid, &r->store_uuid), "manager", "address", ctl_manager_addr(r, store), "pid",
        (json_int_t)r->pid, "uptime_ms", (json_int_t)r->uptime_ms, "software", r->software, "db_bytes", (json_int_t)r->db_bytes, "space",
        "total_bytes", (json_int_t)r->total_bytes, "used_bytes", (json_int_t)ctl_used_bytes(r), "free_bytes",
        (json_int_t)r->free_bytes, "inodes", (json_int_t)r->inodes, "chunks", (json_int_t)r->chunks, "slices",
        (json_int_t)r->slices, "garbage_chunks", (json_int_t)r->garbage_chunks, "garbage_bytes",
        (json_int_t)r->garbage_bytes, "versions", (json_int_t)r->versions, "version_bytes", (json_int_t)r->version_bytes, "given_up", (json_int_t)r->given_up, "mounts", mounts, "strict_differs", strict_differs(r), "benefactors", bnfs, "damaged", damaged, "lost", lost, "lost_files", (json_int_t)r->lost_files));
}

/* ---------------------------------------------------------------- for people */

static void print_head(const Fp__CtlStatusReply *r, const struct ctl_store *store)
{
    char uuid[FP_UUID_BUF], a[FP_UNITS_BUF], b[FP_UNITS_BUF], c[FP_UNITS_BUF];
    unsigned up = 0, mounted = 0;
    for (size_t i = 0; i < r->n_benefactors; i++)
        up += r->benefactors[i]->state != FP__BNF_STATE__BNF_DOWN;
    for (size_t i = 0; i < r->n_clients; i++)
        mounted += r->clients[i]->connected;
    ctl_print_line("store", "%s, %u of %zu benefactors up, %u mount%s", uuid_text(uuid, &r->store_uuid), up,
                   r->n_benefactors, mounted, mounted == 1 ? "" : "s");
    ctl_print_line("manager", "%s, pid %llu, up %s, database %s, fpstore %s", ctl_manager_addr(r, store),
                   (unsigned long long)r->pid, fp_format_duration(a, r->uptime_ms), fp_format_size(b, r->db_bytes), r->software);
    ctl_print_line("space", "%s used of %s, %s free", fp_format_size(a, ctl_used_bytes(r)),
                   fp_format_size(b, r->total_bytes), fp_format_size(c, r->free_bytes));
    ctl_print_line("holds", "%llu inodes, %llu chunks, %llu slices", (unsigned long long)r->inodes,
                   (unsigned long long)r->chunks, (unsigned long long)r->slices);
    if (r->garbage_chunks)
        ctl_print_line("deleting", "%llu chunks, %s", (unsigned long long)r->garbage_chunks,
                       fp_format_size(a, r->garbage_bytes));
    if (r->versions)
        ctl_print_line("versions", "%llu of files that are rewritten, or not safe yet, %s: they go when space is wanted", (unsigned long long)r->versions, fp_format_size(a, r->version_bytes));
    if (r->given_up)
        ctl_print_line("given up", "%llu of files that are not rewritten to the end, for want of space: fpctl versions FILE, and the manager's log, say which", (unsigned long long)r->given_up);
}

static void at_risk_cell(struct fp_table *t, uint64_t bytes)
{
    char buf[FP_UNITS_BUF];
    fp_table_cell_styled(t, bytes ? FP_STYLE_WARN : FP_STYLE_NONE, "%s", fp_format_size(buf, bytes));
}

/* Nothing for 0. */
static void time_cell(struct fp_table *t, int64_t ns)
{
    char buf[32] = "";
    time_t s = (time_t)(ns / 1000000000);
    struct tm tm;
    if (ns && localtime_r(&s, &tm))
        strftime(buf, sizeof buf, "%Y-%m-%d %H:%M:%S", &tm);
    fp_table_cell(t, "%s", buf);
}

static int print_mounts(const Fp__CtlStatusReply *r)
{
    static const struct fp_table_col cols[] = {
        {"node", false},  {"mountpoint", false},  {"pid", true},        {"state", false}, {"close", false},
        {"strict", false}, {"locks", false},      {"pool used", true},
        {"of", true},     {"dirty", true},        {"uncommitted", true}, {"open", true},   {"errors", true},
        {"at", false},    {"last error", false}};
    struct fp_table *t = fp_table_new(cols, sizeof cols / sizeof *cols);
    Fp__ClientStats none = FP__CLIENT_STATS__INIT;
    for (size_t i = 0; i < r->n_clients; i++) {
        const Fp__CtlClient *c = r->clients[i];
        const Fp__ClientStats *s = c->stats ? c->stats : &none;
        fp_table_cell(t, "%s", c->node);
        fp_table_cell(t, "%s", c->mountpoint);
        fp_table_cell(t, "%u", c->pid);
        fp_table_cell_styled(t, c->connected ? FP_STYLE_GOOD : FP_STYLE_BAD, "%s",
                             c->connected ? "connected" : "away");
        fp_table_cell(t, "%s", s->close);
        fp_table_cell(t, "%s", !s->close[0] ? "" : s->strict ? "on" : "off");
        fp_table_cell(t, "%s", s->locks);
        fp_table_cell_size(t, s->pool_used_bytes);
        fp_table_cell_size(t, s->pool_bytes);
        at_risk_cell(t, s->dirty_bytes);
        at_risk_cell(t, s->uncommitted_bytes);
        fp_table_cell_count(t, s->open_files);
        fp_table_cell_count(t, s->errors);
        time_cell(t, s->last_error_ns);
        fp_table_cell(t, "%s", s->last_error);
    }
    int rc = fp_table_print(t, stdout);
    fp_table_free(t);
    return rc;
}

static int print_features(const Fp__CtlStatusReply *r)
{
    static const struct fp_table_col cols[] = {
        {"mountpoint", false}, {"feature", false}, {"in use", false}, {"why not", false}};
    struct fp_table *t = fp_table_new(cols, 4);
    for (size_t i = 0; i < r->n_clients; i++) {
        const Fp__ClientStats *s = r->clients[i]->stats;
        for (size_t k = 0; s && k < s->n_features; k++) {
            const Fp__Feature *f = s->features[k];
            fp_table_cell(t, "%s", k ? "" : r->clients[i]->mountpoint);
            fp_table_cell(t, "%s", f->name);
            fp_table_cell_styled(t, f->in_use ? FP_STYLE_GOOD : FP_STYLE_DIM, "%s", f->in_use ? "yes" : "no");
            fp_table_cell(t, "%s", f->in_use ? "" : f->why_not);
        }
    }
    int rc = fp_table_print(t, stdout);
    fp_table_free(t);
    return rc;
}

static int print_damaged(const Fp__CtlStatusReply *r)
{
    static const struct fp_table_col cols[] = {{"file", false},       {"inode", true},    {"offset", true},
                                               {"length", true},      {"benefactor", true}, {"seen", false},
                                               {"reason", false}};
    struct fp_table *t = fp_table_new(cols, sizeof cols / sizeof *cols);
    for (size_t i = 0; i < r->n_damaged; i++) {
        const Fp__Damage *d = r->damaged[i];
        fp_table_cell_styled(t, FP_STYLE_BAD, "%.*s", (int)d->path.len, (const char *)d->path.data);
        fp_table_cell(t, "%llu", (unsigned long long)d->ino);
        fp_table_cell_count(t, d->off);
        fp_table_cell_count(t, d->len);
        fp_table_cell(t, "%u", d->bnf);
        time_cell(t, d->seen_ns);
        if (d->version)
            fp_table_cell(t, "%s; version %llu is kept: fpctl restore", d->reason, (unsigned long long)d->version);
        else
            fp_table_cell(t, "%s", d->reason);
    }
    int rc = fp_table_print(t, stdout);
    fp_table_free(t);
    return rc;
}

static void print_lost(const Fp__CtlStatusReply *r)
{
    for (size_t i = 0; i < r->n_lost; i++)
        ctl_print_alarm("lost", "%.*s: what was closed of it was lost before it was stored: replace it, or cut it to nothing and write it again", (int)r->lost[i].len, (const char *)r->lost[i].data);
    if (r->lost_files > r->n_lost)
        ctl_print_line("", "... and %llu%s more", (unsigned long long)(r->lost_files - r->n_lost), r->lost_files >= FP_LOST_COUNTED_MAX ? " or" : "");
}

static int print_text(const Fp__CtlStatusReply *r, const struct ctl_store *store)
{
    int rc = 0;
    print_head(r, store);
    if (r->n_clients) {
        ctl_print_title("MOUNTS");
        rc |= print_mounts(r);
        if (strict_differs(r))
            ctl_print_alarm("--strict", "is not the same for all mounts: what is seen of files that others write depends on who looks");
        ctl_print_title("FUSE FEATURES");
        rc |= print_features(r);
    }
    if (r->n_benefactors) {
        ctl_print_title("BENEFACTORS");
        rc |= ctl_print_benefactors(r->n_benefactors, r->benefactors);
    }
    if (r->n_damaged) {
        ctl_print_title("DAMAGED FILES");
        rc |= print_damaged(r);
    }
    if (r->n_lost) {
        ctl_print_title("LOST AFTER CLOSE");
        print_lost(r);
    }
    return rc < 0 ? rc : ctl_flush();
}

static int run(const struct ctl_options *o, const struct ctl_store *store, struct ctl_link *l)
{
    Fp__CtlStatusReply *r = NULL;
    int rc = ctl_ask_status(l, &r);
    if (rc < 0)
        return rc;
    rc = o->json ? print_json(r, store) : print_text(r, store);
    fp__ctl_status_reply__free_unpacked(r, NULL);
    return rc;
}

const struct ctl_cmd ctl_cmd_status = {
    .words = "status",
    .args = "[PATH]",
    .options = "",
    .help = "The store on one page: mounts, the FUSE features that each uses and why not the others, benefactors, and files with damaged or lost data.",
    .more = "What is at risk is in the columns dirty (accepted by a mount, not yet on a benefactor) and uncommitted (on a benefactor, not yet part of the file for "
            "others). close, strict and locks are these options of the mount; a line says so if strict is not the same for all. LOST AFTER CLOSE has files of which "
            "something was closed behind and lost before it was stored, until they are written again (64 of them, and how many more there are; \"lost_files\" of --json is the sum, 10000 if there are more).",
    .run = run,
};
