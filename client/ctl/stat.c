/* fpctl stat: one file, and where its bytes lie.
 *
 * The manager gives the slices of the file in pieces (MSG_CTL_LAYOUT); this collects them and folds what is
 * consecutive: neighbouring slices on one benefactor become one line, so that a file of 100 GiB that a node wrote for itself
 * is one line too. --all shows each slice. Ranges without a slice are holes; they are shown, since they are why a file's size
 * and its chunks disagree.
 *
 * What is at risk is known by the mount that wrote it, not by the manager: it is read from the xattr user.fp.at_risk of the
 * file where the store is mounted here. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include "client/ctl/cmd.h"
#include "fp/err.h"
#include "fp/clock.h"
#include "fp/grown.h"
#include "fp/table.h"
#include "life.pb-c.h"

#define ASK_SLICES   4096u
#define SYNC_MS      2000u /* how long a sync of devices is waited for */
#define SYNC_LOOK_MS 20u

struct range {
    uint64_t off, len, chunks;
    uint64_t chunk; /* id, when the range is one slice */
    uint32_t bnf;   /* 0 = hole, evicted, or lost */
    bool evicted;
};

struct layout {
    Fp__CtlLayoutReply *first; /* attributes and benefactors */
    Fp__CtlStatusReply *status;
    Fp__LevelReply *level; /* NULL: it has none, as a directory that is no checkpoint set */
    struct range *ranges;
    size_t count, room;
    uint64_t reached; /* bytes of the file that ranges cover */
    bool all;
    uint64_t evicted; /* bytes in a target only */
    bool risk_known;
    unsigned long long dirty_bytes, uncommitted_bytes;
};

static int push(struct layout *f, const struct range *r)
{
    struct range *last = f->count ? &f->ranges[f->count - 1] : NULL;
    if (last && !f->all && last->bnf == r->bnf && last->evicted == r->evicted && !last->chunks == !r->chunks && last->off + last->len == r->off) {
        last->len += r->len;
        last->chunks += r->chunks && r->chunk != last->chunk;
        last->chunk = r->chunk;
        return 0;
    }
    struct range *more = fp_grown(f->ranges, f->count, &f->room, sizeof *more);
    if (!more)
        return -ENOMEM;
    f->ranges = more;
    f->ranges[f->count++] = *r;
    return 0;
}

static int push_hole(struct layout *f, uint64_t until)
{
    if (until <= f->reached)
        return 0;
    struct range hole = {.off = f->reached, .len = until - f->reached};
    f->reached = until;
    return push(f, &hole);
}

static int push_slices(struct layout *f, const Fp__CtlLayoutReply *r, uint64_t window_bytes)
{
    int rc = 0;
    for (size_t i = 0; i < r->n_slices && rc == 0; i++) {
        const Fp__Slice *s = r->slices[i];
        struct range range = {
            .off = s->win * window_bytes + s->off, .len = s->len, .chunks = 1, .chunk = s->chunk, .bnf = s->bnf, .evicted = s->ext != 0};
        if (range.off < f->reached)
            continue; /* of a window that the answer before had cut */
        rc = push_hole(f, range.off);
        f->evicted += range.evicted ? range.len : 0;
        if (rc == 0)
            rc = push(f, &range);
        f->reached = range.off + range.len;
    }
    return rc;
}

static int ask_layout(struct ctl_link *l, const struct ctl_store *store, uint64_t win_from, Fp__CtlLayoutReply **out)
{
    Fp__CtlLayout q = FP__CTL_LAYOUT__INIT;
    ProtobufCMessage *reply = NULL;
    q.path.data = (uint8_t *)store->inner;
    q.path.len = strlen(store->inner);
    q.win_from = win_from;
    q.max_slices = ASK_SLICES;
    int rc =
        ctl_link_call(l, FP__MSG_TYPE__MSG_CTL_LAYOUT, &q.base, &fp__ctl_layout_reply__descriptor, &reply);
    if (rc == -ENOENT || rc == -ENOTDIR) {
        FP_ERROR("%s/%s: %s", store->mountpoint, store->inner, fp_strerror(rc));
        return rc;
    }
    if (rc < 0)
        return ctl_link_failed(l, rc, "stat");
    *out = (Fp__CtlLayoutReply *)reply;
    if ((*out)->attr)
        return 0;
    protobuf_c_message_free_unpacked(reply, NULL);
    return ctl_link_failed(l, FP_EBADFRAME, "stat");
}

/* The whole file, window by window. */
static int collect(struct ctl_link *l, const struct ctl_store *store, struct layout *f)
{
    uint64_t next = 0;
    for (bool more = true; more;) {
        Fp__CtlLayoutReply *r = NULL;
        int rc = ask_layout(l, store, next, &r);
        if (rc < 0)
            return rc;
        rc = push_slices(f, r, r->attr->chunk_size_bytes);
        more = r->more && r->n_slices > 0;
        if (r->n_slices) { /* the last window may have been cut: ask for it again, unless it is all there was */
            uint64_t last = r->slices[r->n_slices - 1]->win;
            next = last > next ? last : last + 1;
        }
        if (!f->first)
            f->first = r;
        else
            fp__ctl_layout_reply__free_unpacked(r, NULL);
        if (rc < 0)
            return rc;
    }
    return push_hole(f, f->first->attr->size_bytes);
}

/* The xattr is "DIRTY UNCOMMITTED", in bytes. */
static void read_at_risk(const struct ctl_options *o, const struct ctl_store *store, struct layout *f)
{
    char text[64];
    ssize_t n = store->mountpoint[0] ? getxattr(o->path, "user.fp.at_risk", text, sizeof text - 1) : -1;
    text[n > 0 ? n : 0] = '\0';
    f->risk_known = sscanf(text, "%llu %llu", &f->dirty_bytes, &f->uncommitted_bytes) == 2;
}

static int ask_level_once(const struct ctl_store *store, struct ctl_link *l, struct layout *f)
{
    Fp__LevelAsk q = FP__LEVEL_ASK__INIT;
    ProtobufCMessage *reply = NULL;
    q.path.data = (uint8_t *)store->inner;
    q.path.len = strlen(store->inner);
    q.wait = FP__LEVEL__LEVEL_LOCAL; /* what is not known to be synced is synced */
    int rc = ctl_link_call(l, FP__MSG_TYPE__MSG_LEVEL, &q.base, &fp__level_reply__descriptor, &reply);
    if (f->level)
        fp__level_reply__free_unpacked(f->level, NULL);
    f->level = (Fp__LevelReply *)reply;
    return rc;
}

/* What a program has synced by itself is known to the manager only when it has asked the benefactors: that is waited for, so that who looks after fsync is
 * told that it is on the devices. */
static int ask_level(const struct ctl_options *o, const struct ctl_store *store, struct ctl_link *l, struct layout *f)
{
    uint64_t until = fp_now_ms() + SYNC_MS;
    int rc = ask_level_once(store, l, f);
    while (rc == 0 && f->level->level == FP__LEVEL__LEVEL_POOL && f->level->syncing && fp_now_ms() < until) {
        ctl_pause(o, SYNC_LOOK_MS);
        rc = ask_level_once(store, l, f);
    }
    return rc == -ENODATA || rc == -ENOENT ? 0 : rc < 0 ? ctl_link_failed(l, rc, "stat") : 0;
}

static const Fp__BnfInfo *bnf_of(const struct layout *f, uint32_t id)
{
    for (size_t i = 0; i < f->first->n_benefactors; i++) {
        if (f->first->benefactors[i]->id == id)
            return f->first->benefactors[i];
    }
    return NULL;
}

static const char *kind(uint32_t mode)
{
    switch (mode & S_IFMT) {
    case S_IFREG:
        return "regular file";
    case S_IFDIR:
        return "directory";
    case S_IFLNK:
        return "symbolic link";
    case S_IFIFO:
        return "fifo";
    case S_IFSOCK:
        return "socket";
    case S_IFCHR:
        return "character device";
    case S_IFBLK:
        return "block device";
    default:
        return "unknown";
    }
}

/* ---------------------------------------------------------------- for programs */

static json_t *json_ranges(const struct layout *f)
{
    json_t *list = json_array();
    for (size_t i = 0; i < f->count; i++) {
        const struct range *r = &f->ranges[i];
        const Fp__BnfInfo *b = bnf_of(f, r->bnf);
        json_t *j = json_pack("{s:I, s:I, s:b, s:I}", "offset_bytes", (json_int_t)r->off, "length_bytes",
                              (json_int_t)r->len, "hole", r->chunks == 0, "chunks", (json_int_t)r->chunks);
        if (r->bnf) {
            json_object_set_new(j, "benefactor", json_integer(r->bnf));
            json_object_set_new(j, "node", b ? ctl_json_bytes(b->node, strlen(b->node)) : json_null());
            json_object_set_new(j, "state", json_string(b ? ctl_bnf_state((int)b->state) : "unknown"));
            if (f->all)
                json_object_set_new(j, "chunk", json_integer((json_int_t)r->chunk));
        }
        else if (r->chunks)
            json_object_set_new(j, "state", json_string(r->evicted ? "evicted" : "lost"));
        json_array_append_new(list, j);
    }
    return list;
}

static json_t *json_damage(const struct layout *f)
{
    json_t *list = json_array();
    for (size_t i = 0; i < f->status->n_damaged; i++) {
        const Fp__Damage *d = f->status->damaged[i];
        if (d->ino == f->first->attr->ino)
            json_array_append_new(list, json_pack("{s:I, s:I, s:o}", "offset_bytes", (json_int_t)d->off,
                                                  "length_bytes", (json_int_t)d->len, "reason",
                                                  ctl_json_bytes(d->reason, strlen(d->reason))));
    }
    return list;
}

/* null where the store is not mounted here. */
static json_t *json_at_risk(const struct layout *f)
{
    if (!f->risk_known)
        return json_null();
    return json_pack("{s:I, s:I}", "dirty_bytes", (json_int_t)f->dirty_bytes, "uncommitted_bytes",
                     (json_int_t)f->uncommitted_bytes);
}

static int print_json(const struct layout *f)
{
    const Fp__CtlLayoutReply *r = f->first;
    const Fp__Attr *a = r->attr;
    return ctl_json_print(json_pack(
        "{s:o, s:I, s:s, s:i, s:i, s:i, s:i, s:I, s:I, s:I, s:I, s:i, s:I, s:I, s:I, s:I, s:I, s:b, s:o, s:o, s:o, s:s}", "path",
        ctl_json_bytes(r->path.data, r->path.len), "ino", (json_int_t)a->ino, "kind", kind(a->mode), "mode",
        (int)(a->mode & 07777), "nlink", (int)a->nlink, "uid", (int)a->uid, "gid", (int)a->gid, "size_bytes",
        (json_int_t)a->size_bytes, "stored_bytes", (json_int_t)r->stored_bytes, "evicted_bytes", (json_int_t)f->evicted, "chunk_size_bytes",
        (json_int_t)a->chunk_size_bytes, "stripe", (int)a->stripe, "chunks", (json_int_t)r->chunk_count, "slices",
        (json_int_t)r->slice_count, "shared_chunks", (json_int_t)r->shared_chunks, "saved_bytes",
        (json_int_t)r->saved_bytes, "data_version", (json_int_t)a->data_version, "strict", a->strict, "at_risk",
        json_at_risk(f), "damaged", json_damage(f), "ranges", json_ranges(f), "level", f->level ? ctl_level_text((int)f->level->level) : ""));
}

/* ---------------------------------------------------------------- for people */

static void print_head(const struct layout *f, const struct ctl_options *o)
{
    const Fp__CtlLayoutReply *r = f->first;
    const Fp__Attr *a = r->attr;
    char size[FP_UNITS_BUF], stored[FP_UNITS_BUF], chunk[FP_UNITS_BUF];
    ctl_print_line("file", "%s", o->path);
    ctl_print_line("inode", "%llu, %s, mode %04o, owner %u:%u, links %u", (unsigned long long)a->ino, kind(a->mode),
                   a->mode & 07777, a->uid, a->gid, a->nlink);
    if (f->level)
        ctl_print_line("level", "%s%s%s", ctl_level_text((int)f->level->level), *f->level->why ? ": " : "", f->level->why);
    if (!S_ISREG(a->mode))
        return;
    ctl_print_line("size", "%s (%llu bytes), takes %s", fp_format_size(size, a->size_bytes),
                   (unsigned long long)a->size_bytes, fp_format_size(stored, r->stored_bytes));
    ctl_print_line("chunks", "%llu of at most %s, in %llu slices%s", (unsigned long long)r->chunk_count,
                   fp_format_size_exact(chunk, a->chunk_size_bytes), (unsigned long long)r->slice_count,
                   a->stripe > 1 ? ", striped" : "");
    if (f->evicted)
        ctl_print_line("evicted", "%s in a target only: what is read of it is fetched", fp_format_size(size, f->evicted));
    if (a->strict)
        ctl_print_line("strict", "every read sees every write that has returned, on any mount");
    if (r->shared_chunks || r->saved_bytes)
        ctl_print_line("shared", "%llu chunks with other files or versions; aux-apps and sharing save %s",
                       (unsigned long long)r->shared_chunks, fp_format_size(size, r->saved_bytes));
    if (f->risk_known && f->dirty_bytes + f->uncommitted_bytes == 0)
        ctl_print_line("at risk", "nothing on this mount");
    else if (f->risk_known)
        ctl_print_line("at risk", "%s only in this mount's memory, %s on a benefactor but not committed",
                       fp_format_size(size, f->dirty_bytes), fp_format_size(stored, f->uncommitted_bytes));
    for (size_t i = 0; i < f->status->n_damaged; i++) {
        const Fp__Damage *d = f->status->damaged[i];
        if (d->ino == a->ino)
            ctl_print_alarm("damaged", "%llu bytes at %llu: %s", (unsigned long long)d->len,
                            (unsigned long long)d->off, d->reason);
    }
}

static void range_row(struct fp_table *t, const struct layout *f, const struct range *r)
{
    char buf[FP_UNITS_BUF];
    const Fp__BnfInfo *b = bnf_of(f, r->bnf);
    fp_table_cell_count(t, r->off);
    fp_table_cell(t, "%s", fp_format_size_exact(buf, r->len));
    if (r->chunks == 0) {
        fp_table_cell(t, "%s", "");
        fp_table_cell_styled(t, FP_STYLE_DIM, "hole");
        fp_table_cell(t, "%s", "");
        fp_table_cell(t, "%s", "");
        return;
    }
    if (f->all)
        fp_table_cell(t, "%llx", (unsigned long long)r->chunk);
    else
        fp_table_cell_count(t, r->chunks);
    if (r->bnf == 0) {
        fp_table_cell(t, "%s", "");
        fp_table_cell(t, "%s", "");
        fp_table_cell_styled(t, r->evicted ? FP_STYLE_NONE : FP_STYLE_BAD, "%s", r->evicted ? "evicted" : "lost");
        return;
    }
    fp_table_cell(t, "%u", r->bnf);
    fp_table_cell(t, "%s", b ? b->node : "?");
    fp_table_cell_styled(t, b ? (enum fp_style)ctl_bnf_style((int)b->state) : FP_STYLE_BAD, "%s",
                         b ? ctl_bnf_state((int)b->state) : "unknown");
}

static int print_text(const struct layout *f, const struct ctl_options *o)
{
    static const struct fp_table_col folded[] = {{"offset", true},     {"length", true}, {"chunks", true},
                                                 {"benefactor", true}, {"node", false},  {"state", false}};
    static const struct fp_table_col each[] = {{"offset", true},     {"length", true}, {"chunk", true},
                                               {"benefactor", true}, {"node", false},  {"state", false}};
    print_head(f, o);
    if (f->count == 0)
        return ctl_flush();
    struct fp_table *t = fp_table_new(f->all ? each : folded, 6);
    for (size_t i = 0; i < f->count; i++)
        range_row(t, f, &f->ranges[i]);
    putchar('\n');
    int rc = fp_table_print(t, stdout);
    fp_table_free(t);
    return rc < 0 ? rc : ctl_flush();
}

static int run(const struct ctl_options *o, const struct ctl_store *store, struct ctl_link *l)
{
    struct layout f = {.all = o->all};
    int rc = collect(l, store, &f);
    if (rc == 0)
        rc = ctl_ask_status(l, &f.status);
    if (rc == 0)
        rc = ask_level(o, store, l, &f);
    if (rc == 0) {
        ctl_watch(o->timeout_ms);
        read_at_risk(o, store, &f);
        rc = o->json ? print_json(&f) : print_text(&f, o);
    } else if (rc == -ENOMEM) {
        FP_ERROR("out of memory");
    }
    if (f.first)
        fp__ctl_layout_reply__free_unpacked(f.first, NULL);
    if (f.status)
        fp__ctl_status_reply__free_unpacked(f.status, NULL);
    if (f.level)
        fp__level_reply__free_unpacked(f.level, NULL);
    free(f.ranges);
    return rc;
}

const struct ctl_cmd ctl_cmd_stat = {
    .words = "stat",
    .args = "PATH",
    .options = "all",
    .help = "One file: attributes, chunks and slices, where each lies, its level of durability, what is at risk on this mount.",
    .run = run,
};
