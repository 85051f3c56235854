/*
 * What conversions say of themselves: user.fp.convert, a text that begins with waiting, running, done or failed, of the file or directory that is converted. MSG_CTL_CONVERSIONS, and
 * CkptSet.convert. Loop thread.
 *
 * The manager keeps it and tells it; what it says is between converters and people. All there are have a partial index, so a store without conversions is asked in no time, whatever
 * other attributes it has. An answer looks at so many rows, whether they lie below the path or not, and says from where to go on. Rejected: to walk the tree below the path, which
 * costs the tree, or all sets, since what is converted need not be one.
 */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "life.pb-c.h"
#include "manager/sets_int.h"

#define ATTRIBUTE   "user.fp.convert"
#define TEXT_MAX    4096u
#define LIST_MAX    256u  /* of one answer: with paths it has room for so many of the longest */
#define ROWS_MAX    1024u /* looked at for one */
#define MEMBERS_MAX 16u

/* As much as is told of it: to a NUL, and no part of a character. NULL: out of memory. */
static char *text_of(struct mgr_core *c, const void *value, size_t len)
{
    const char *p = value;
    size_t n = len ? strnlen(p, len < TEXT_MAX ? len : TEXT_MAX) : 0;
    char *text;

    while (n == TEXT_MAX && len > n && n > TEXT_MAX - 4 && (p[n] & 0xC0) == 0x80)
        n--;
    text = mgr_arena_alloc(&c->arena, n + 1);
    if (!text)
        return NULL;
    if (n)
        memcpy(text, p, n);
    text[n] = '\0';
    return text;
}

/* Of the row that the statement is at, if rc says that there is one. */
static int take_text(struct mgr_core *c, enum mgr_stmt st, int rc, char **text)
{
    size_t len = 0;
    const void *p = rc > 0 ? mgr_col_blob(&c->db, st, 0, &len) : NULL;

    *text = rc > 0 ? text_of(c, p, len) : (char *)"";
    mgr_db_reset(&c->db, st);
    return rc < 0 ? rc : *text ? 0 : mgr_doom(c, -ENOMEM);
}

int mgr_set_convert(struct mgr_core *c, const struct mgr_set *s, char **text)
{
    const size_t len = sizeof ATTRIBUTE - 1;
    int rc = 0;

    *text = (char *)"";
    if (s->top)
        rc = take_text(c, MGR_ST_XATTR_GET, mgr_db_one(&c->db, XATTR_GET, DBI(s->top), DBB(ATTRIBUTE, len)), text);
    if (rc || **text)
        return rc;
    return take_text(c, MGR_ST_CONVERT_MEMBER, mgr_db_one(&c->db, CONVERT_MEMBER, DBI(s->id), DBI(MEMBERS_MAX), DBB(ATTRIBUTE, len)), text);
}

/* -------------------------------------------------------------- all there are */

struct row { uint64_t ino; char *text; };

static int read_rows(struct mgr_core *c, uint64_t after, struct row *rows, size_t *n)
{
    const enum mgr_stmt st = MGR_ST_CONVERT_LIST;
    size_t len;
    int rc;

    for (rc = mgr_db_one(&c->db, CONVERT_LIST, DBI(after), DBI(LIST_MAX)), *n = 0; rc > 0 && *n < LIST_MAX; rc = mgr_db_step(&c->db, st)) {
        struct row *r = &rows[*n];
        const void *p = mgr_col_blob(&c->db, st, 1, &len);

        r->ino = (uint64_t)mgr_col(&c->db, st, 0);
        r->text = text_of(c, p, len);
        if (!r->text) {
            mgr_db_reset(&c->db, st);
            return mgr_doom(c, -ENOMEM);
        }
        ++*n;
    }
    mgr_db_reset(&c->db, st);
    return rc < 0 ? rc : 0;
}

static int set_state(struct mgr_core *c, const struct mgr_inode *in, Fp__CkptState *state)
{
    uint64_t id = in->ckpt;
    struct mgr_set s;
    int rc = mgr_is(in, S_IFDIR) ? mgr_set_with_top(c, in->ino, &id) : 0;

    rc = rc || !id ? rc : mgr_set_get(c, id, &s);
    *state = rc || !id ? FP__CKPT_STATE__CKPT_NONE : (Fp__CkptState)s.state;
    return rc == -ENOENT ? 0 : rc;
}

/* What has no name any more, or lies elsewhere, is passed over. */
static int add(struct mgr_core *c, uint64_t below, const struct row *row, Fp__CtlConversionsReply *r)
{
    Fp__Conversion *m;
    struct mgr_inode in;
    bool yes = row->ino == below;
    int rc = mgr_inode_get_live(c, row->ino, &in);

    rc = rc || yes ? rc : mgr_set_is_below(c, mgr_is(&in, S_IFDIR) ? in.ino : in.parent, below, &yes);
    if (rc || !yes || in.nlink == 0)
        return rc == -ENOENT ? 0 : rc;
    m = MGR_NEW(c, Fp__Conversion, fp__conversion__init);
    if (!m)
        return mgr_doom(c, -ENOMEM);
    m->ino = row->ino;
    m->text = row->text;
    m->path = mgr_path(c, row->ino);
    rc = set_state(c, &in, &m->set);
    if (!rc && m->path.len)
        r->conversions[r->n_conversions++] = m;
    return rc;
}

MGR_HANDLER(ctl_conversions)
{
    const Fp__CtlConversions *m = msg;
    Fp__CtlConversionsReply *r = MGR_NEW(c, Fp__CtlConversionsReply, fp__ctl_conversions_reply__init);
    struct row *rows = mgr_arena_alloc(&c->arena, LIST_MAX * sizeof *rows);
    size_t max = m->max && m->max < LIST_MAX ? m->max : LIST_MAX, seen = 0;
    uint64_t below;
    int rc = mgr_resolve(c, m->path, &below);

    if (!r || !rows || !(r->conversions = mgr_arena_alloc(&c->arena, LIST_MAX * sizeof(*r->conversions))))
        return mgr_doom(c, -ENOMEM);
    rq->reply = &r->base;
    r->next = m->after;
    r->more = true;
    while (!rc && r->more && r->n_conversions < max && seen < ROWS_MAX) {
        size_t i = 0, n = 0;

        rc = r->next <= INT64_MAX ? read_rows(c, r->next, rows, &n) : -EINVAL;
        for (; i < n && !rc && r->n_conversions < max; i++, seen++) {
            rc = add(c, below, &rows[i], r);
            r->next = rows[i].ino;
        }
        r->more = i < n || n == LIST_MAX;
    }
    return rc;
}
