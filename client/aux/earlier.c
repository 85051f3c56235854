/*
 * The earlier version of a file that is being written: fp_aux_earlier, what a de-duplication compares with first (paper, section V).
 *
 * Service threads; cl_aux_before_truncate on FUSE threads. Looked for in this order:
 *   1. what the file itself was before it was cut to 0: asked for and held before the truncate reaches the manager, and kept until wanted
 *   2. what the file itself is
 *   3. in the same directory, the newest file whose name differs from this one in digits alone (the step number), an ending such as .tmp aside, since
 *      careful writers rename; or, with a pattern, the newest that matches it
 *   4. the file of the same name in a directory beside its own whose name differs in digits alone: chk_0006/state for chk_0007/state
 * 1 and 2 are enough by themselves; of 3 and 4 all that may be the step before is taken, since a name does not say which of its numbers that is. Without a name (a file that was opened, not made) the manager is asked for it.
 *
 * Names are compared here, not by the manager: it would have to know about step numbers. A directory of NAMES_MAX entries is read in a few messages.
 */
#include <ctype.h>
#include <errno.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "client/aux/earlier.h"
#include "client/aux/files.h"
#include "client/aux/holds.h"
#include "client/aux/services.h"
#include "client/core.h"
#include "client/inode.h"
#include "fp/tmpname.h"

#define ASK_MS     4000u
#define ANSWERS_MAX 256u    /* of MSG_NOTES for one request */
#define NOTES_BYTES_MAX (64u << 20) /* of one file: what is kept for a file that was cut to 0 stays in memory */
#define NAMES_MAX  65536u   /* entries looked at */
#define PAGE_NAMES 4096u
#define CANDIDATES 4u       /* of a class */
#define CLASSES    4u       /* the name differs in its first, second, third number alone; or in others */

/* -------------------------------------------------------------- names */

static size_t digits(const char *s, size_t len)
{
    size_t n = 0;

    while (n < len && isdigit((unsigned char)s[n]))
        n++;
    return n;
}

/* Of two numbers in digits: < 0, 0, > 0. */
static int compare_numbers(const char *x, size_t xlen, const char *y, size_t ylen)
{
    while (xlen > 0 && *x == '0')
        x++, xlen--;
    while (ylen > 0 && *y == '0')
        y++, ylen--;
    return xlen != ylen ? (xlen < ylen ? -1 : 1) : memcmp(x, y, xlen);
}

bool cl_aux_same_but_for_digits(const char *x, size_t xlen, const char *y, size_t ylen, struct aux_digits *d)
{
    uint32_t group = 0;
    size_t off;

    *d = (struct aux_digits){ 0 };
    xlen = fp_tmpname_body(x, xlen, &off);
    x += off;
    ylen = fp_tmpname_body(y, ylen, &off);
    y += off;
    while (xlen > 0 && ylen > 0) {
        size_t n = digits(x, xlen), k = digits(y, ylen);
        int order;

        if ((n > 0) != (k > 0) || (n == 0 && *x != *y))
            return false;
        order = n > 0 ? compare_numbers(x, n, y, k) : 0;
        if (order != 0) {
            d->differ++;
            d->group = group;
            d->later = order < 0;
        }
        group += n > 0;
        n = n ? n : 1;
        k = k ? k : 1;
        x += n, xlen -= n;
        y += k, ylen -= k;
    }
    return xlen == 0 && ylen == 0;
}

/* -------------------------------------------------------------- candidates */

/* Newest first, by the number in which the name differs. */
struct candidates { uint32_t n; bool later; struct { uint64_t ino; int64_t mtime_ns; } c[CANDIDATES]; };
struct classes { struct candidates of[CLASSES]; };

static void consider(struct candidates *l, uint64_t ino, int64_t mtime_ns)
{
    uint32_t i = l->n;

    if (l->n < CANDIDATES)
        l->n++;
    else if (l->c[--i].mtime_ns >= mtime_ns)
        return;
    for (; i > 0 && l->c[i - 1].mtime_ns < mtime_ns; i--)
        l->c[i] = l->c[i - 1];
    l->c[i].ino = ino;
    l->c[i].mtime_ns = mtime_ns;
}

/* What is looked for in a directory. pattern: "": the same but for digits. */
struct wanted { uint64_t ino, parent; const char *name, *pattern; bool directory; };

static void look_at(const struct wanted *w, const Fp__DirEntry *e, struct classes *l)
{
    struct aux_digits d = { .differ = 1 };
    struct candidates *c;
    char name[256];

    if (e->ino == w->ino || !e->attr || e->name.len >= sizeof(name))
        return;
    if (w->directory ? !S_ISDIR(e->mode) : !S_ISREG(e->mode) || e->attr->size_bytes == 0)
        return;
    memcpy(name, e->name.data, e->name.len);
    name[e->name.len] = '\0';
    if (*w->pattern ? fnmatch(w->pattern, name, FNM_PERIOD) != 0
            : !cl_aux_same_but_for_digits(w->name, strlen(w->name), name, e->name.len, &d))
        return;
    c = &l->of[d.differ > 1 || d.group >= CLASSES - 1 ? CLASSES - 1 : d.group];
    c->later |= d.later;
    consider(c, e->ino, e->attr->mtime_ns);
}

static int look_through(struct cl_aux *a, const struct wanted *w, struct classes *l)
{
    Fp__ReadDir msg = FP__READ_DIR__INIT;
    uint32_t seen = 0;
    bool eof = false;

    memset(l, 0, sizeof(*l));
    msg.ino = w->parent;
    msg.max_entries = PAGE_NAMES;
    msg.plus = true;
    while (!eof && seen < NAMES_MAX) {
        Fp__ReadDirReply *r = NULL;
        uint8_t *packed;
        size_t len;
        int rc = cl_aux_ask(a, FP__MSG_TYPE__MSG_READDIR, &msg.base, ASK_MS, &packed, &len);

        if (rc == 0)
            r = fp__read_dir_reply__unpack(NULL, len, packed);
        free(packed);
        if (!r)
            return rc < 0 ? rc : -EPROTO;
        for (size_t i = 0; i < r->n_entries; i++) {
            look_at(w, r->entries[i], l);
            msg.cookie = r->entries[i]->cookie;
        }
        seen += (uint32_t)r->n_entries;
        eof = r->eof || r->n_entries == 0;
        fp__read_dir_reply__free_unpacked(r, NULL);
    }
    return 0;
}

int cl_aux_path_of(struct cl_aux *a, uint64_t ino, char *path, size_t size)
{
    Fp__CtlLayout msg = FP__CTL_LAYOUT__INIT;
    Fp__CtlLayoutReply *r = NULL;
    uint8_t *packed;
    size_t len;
    int rc;

    msg.ino = ino;
    msg.win_from = INT64_MAX; /* no slices */
    msg.max_slices = 1;
    rc = cl_aux_ask(a, FP__MSG_TYPE__MSG_CTL_LAYOUT, &msg.base, ASK_MS, &packed, &len);
    if (rc == 0 && !(r = fp__ctl_layout_reply__unpack(NULL, len, packed)))
        rc = -EPROTO;
    free(packed);
    if (rc < 0)
        return rc;
    len = r->path.len;
    while (len > 0 && r->path.data[0] == '/') {
        memmove(r->path.data, r->path.data + 1, --len);
    }
    if (len < size) {
        memcpy(path, r->path.data, len);
        path[len] = '\0';
    } else {
        rc = -ENAMETOOLONG;
    }
    fp__ctl_layout_reply__free_unpacked(r, NULL);
    return rc;
}

/* The directory of an inode, and its name there. The root has none. */
static int locate(struct cl_aux *a, uint64_t ino, uint64_t *parent, char *name, size_t size)
{
    char path[4096], *slash;
    Fp__AttrReply *r;
    int rc = cl_aux_path_of(a, ino, path, sizeof(path));

    if (rc < 0)
        return rc;
    *parent = 1;
    slash = strrchr(path, '/');
    if (slash) {
        *slash = '\0';
        rc = cl_aux_walk(a, path, &r);
        if (rc < 0)
            return rc;
        *parent = r->attr ? r->attr->ino : 0;
        fp__attr_reply__free_unpacked(r, NULL);
    }
    if (strlen(slash ? slash + 1 : path) >= size || *parent == 0)
        return -ENOENT;
    strcpy(name, slash ? slash + 1 : path);
    return *name ? 0 : -ENOENT;
}

static int child_of(struct cl_aux *a, uint64_t dir, const char *name, uint64_t *ino)
{
    Fp__Lookup msg = FP__LOOKUP__INIT;
    Fp__AttrReply *r = NULL;
    uint8_t *packed;
    size_t len;
    int rc;

    msg.parent = dir;
    msg.name = (ProtobufCBinaryData){ .len = strlen(name), .data = (uint8_t *)name };
    rc = cl_aux_ask(a, FP__MSG_TYPE__MSG_LOOKUP, &msg.base, ASK_MS, &packed, &len);
    if (rc == 0 && (!(r = fp__attr_reply__unpack(NULL, len, packed)) || !r->attr))
        rc = -EPROTO;
    if (rc == 0)
        *ino = S_ISREG(r->attr->mode) ? r->attr->ino : 0;
    if (r)
        fp__attr_reply__free_unpacked(r, NULL);
    free(packed);
    return rc;
}

/* -------------------------------------------------------------- notes */

/* Answers of the manager, as they came; plugins get them in this order. */
struct notes { struct aux_packed *answer; uint32_t n; };

/* All that there is of one file, held. Returns how many notes there are. */
static int fetch_notes(struct cl_aux *a, uint64_t ino, uint64_t serial, struct notes *to)
{
    Fp__Notes msg = FP__NOTES__INIT;
    size_t bytes = 0;
    int found = 0, rc = 0;
    bool eof = false;

    if (!to->answer)
        to->answer = calloc(ANSWERS_MAX, sizeof(*to->answer));
    if (!to->answer)
        return -ENOMEM;
    msg.ino = ino;
    msg.hold = true;
    while (rc == 0 && !eof && to->n < ANSWERS_MAX && bytes < NOTES_BYTES_MAX) {
        struct aux_packed *p = &to->answer[to->n];
        Fp__NotesReply *r = NULL;

        rc = cl_aux_ask_holding(a, FP__MSG_TYPE__MSG_NOTES, &msg.base, serial, ASK_MS, &p->bytes, &p->len_bytes);
        if (rc == 0 && !(r = fp__notes_reply__unpack(NULL, p->len_bytes, p->bytes)))
            rc = -EPROTO;
        bytes += p->len_bytes;
        ++to->n;
        if (!r)
            break;
        found += (int)r->n_notes;
        eof = r->eof || r->win_end <= msg.win_from;
        msg.win_from = r->win_end;
        fp__notes_reply__free_unpacked(r, NULL);
    }
    return rc < 0 ? rc : found;
}

/* 1: answered. */
static int reply_all(struct aux_request *r, const struct notes *notes)
{
    int found = 0;

    for (uint32_t i = 0; i < notes->n && found >= 0; i++)
        found = cl_aux_reply_notes(r, notes->answer[i].bytes, notes->answer[i].len_bytes, i + 1 == notes->n);
    return found < 0 ? found : 1;
}

/* The newest of a class that has notes. */
static int fetch_newest(struct cl_aux *a, const struct candidates *c, const char *name_in_it, uint64_t serial, struct notes *to)
{
    int found = 0;

    for (uint32_t i = 0; i < c->n && found == 0; i++) {
        uint64_t ino = c->c[i].ino;
        int rc = name_in_it ? child_of(a, ino, name_in_it, &ino) : 0;

        if (rc == 0 && ino != 0)
            rc = found = fetch_notes(a, ino, serial, to);
        if (rc < 0) /* deleted meanwhile, or there is none */
            found = rc == -ENOENT || rc == -ESTALE ? 0 : rc;
    }
    return found;
}

/*
 * A name with several numbers does not say which is the step and which the rank: the newest of each that may be is taken. Where there are later numbers, it is
 * hardly the step, and is looked at last.
 */
static int fetch_classes(struct cl_aux *a, const struct classes *l, const char *name_in_it, uint64_t serial, struct notes *to)
{
    int found = 0, more = 0;

    for (uint32_t i = 0; i < CLASSES - 1 && more >= 0; i++) {
        more = l->of[i].later ? 0 : fetch_newest(a, &l->of[i], name_in_it, serial, to);
        found += more;
    }
    for (uint32_t i = 0; i < CLASSES && found == 0 && more >= 0; i++)
        found = more = fetch_newest(a, &l->of[i], name_in_it, serial, to);
    return more < 0 ? more : found;
}

/* Files of this name in directories whose names differ in the step. */
static int fetch_beside(struct cl_aux *a, const struct aux_file_name *own, const char *pattern, uint64_t serial, struct notes *to)
{
    struct wanted dir = { .ino = own->parent, .directory = true, .pattern = pattern };
    struct classes l;
    char name[256];
    int rc;

    if (own->parent == 1)
        return 0;
    dir.name = name;
    rc = locate(a, own->parent, &dir.parent, name, sizeof(name));
    if (rc == 0)
        rc = look_through(a, &dir, &l);
    return rc < 0 ? rc : fetch_classes(a, &l, own->name, serial, to);
}

static int fetch_others(struct cl_aux *a, const struct aux_file_name *own, const char *pattern, uint64_t serial, struct notes *to)
{
    struct wanted file = { .ino = own->ino, .parent = own->parent, .name = own->name, .pattern = pattern };
    const char *slash = strrchr(pattern, '/');
    char directory[256];
    struct classes l;
    int rc, found;

    if (slash) {
        const char *from = memrchr(pattern, '/', (size_t)(slash - pattern));

        from = from ? from + 1 : pattern; /* the last directory: what is above it is the same */
        if ((size_t)(slash - from) >= sizeof(directory) || fnmatch(slash + 1, own->name, FNM_PERIOD) != 0)
            return 0;
        memcpy(directory, from, (size_t)(slash - from));
        directory[slash - from] = '\0';
        return fetch_beside(a, own, directory, serial, to);
    }
    rc = look_through(a, &file, &l);
    found = rc < 0 ? rc : fetch_classes(a, &l, NULL, serial, to);
    if (found < 0 || *pattern)
        return found;
    rc = fetch_beside(a, own, "", serial, to); /* too: what was found may be of other ranks of the same step */
    return rc < 0 ? rc : found + rc;
}

/* 1: answered. */
static int find_earlier(struct cl_aux *a, struct aux_request *r, struct aux_file_name *own, const char *pattern)
{
    struct notes notes = { 0 };
    int rc;

    notes.answer = cl_aux_files_take_notes(a, r->file_serial, &notes.n);
    rc = notes.answer ? 1 : fetch_notes(a, own->ino, r->file_serial, &notes);
    if (rc == 0 && own->parent == 0) /* it was opened, not made */
        rc = locate(a, own->ino, &own->parent, own->name, sizeof(own->name));
    if (rc == 0)
        rc = fetch_others(a, own, pattern, r->file_serial, &notes);
    if (rc > 0)
        rc = reply_all(r, &notes);
    cl_aux_packed_free(notes.answer, notes.n);
    return rc;
}

void cl_aux_svc_earlier(struct cl_aux *a, struct aux_request *r)
{
    Fp__AuxEarlier *msg = cl_aux_request_unpack(r, &fp__aux_earlier__descriptor);
    struct aux_file_name own;
    int rc;

    if (!msg)
        return;
    r->file_serial = msg->file_serial;
    rc = cl_aux_files_find(a, msg->file_serial, &own) ? find_earlier(a, r, &own, msg->pattern) : -ENOENT;
    if (rc <= 0)
        cl_aux_reply(r, rc == -ENOENT ? 0 : rc, NULL, 0, true); /* nothing earlier */
    fp__aux_earlier__free_unpacked(msg, NULL);
}

void cl_aux_before_truncate(struct cl_mount *m, struct cl_inode *inode)
{
    struct cl_aux *a = m->aux;
    struct notes notes = { 0 };
    uint64_t before, serial, size;
    int found;

    pthread_mutex_lock(&inode->lock);
    before = inode->aux_serial;
    size = inode->attr.size_bytes;
    pthread_mutex_unlock(&inode->lock);
    if (before == 0 || before == CL_AUX_SERIAL_OWN || size == 0 || !cl_aux_chunks(m))
        return;
    serial = cl_aux_files_renew(a, inode); /* others may have it open still, and an aux-app has asked for the version before that one */
    if (serial == 0)
        return;
    found = fetch_notes(a, inode->ino, serial, &notes);
    if (found > 0)
        cl_aux_files_keep_notes(a, serial, notes.answer, notes.n);
    else
        cl_aux_packed_free(notes.answer, notes.n);
    cl_aux_holds_closed(a, before); /* after the new holds: what both have stays */
}
