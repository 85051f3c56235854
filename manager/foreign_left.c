/* Staging in what others have put into a target: attributes that come along, and what is left out, which the end of the job says.
 *
 * What the store can't have, or does not take from others, is no failure of its job: devices, sockets and FIFOs, that two names are one file, attributes which are no user's or
 * too many. Each such path is a row of the job (MGR_D_LEFT, with the kind in its column error), so that nothing of it is lost with the manager, and a file that is listed
 * anew counts once. Devices, sockets and FIFOs are left out of jobs that drain, too. Called by foreign.c, drain_tree.c and drain_job.c, on the core's thread, in a group.
 *
 * Rejected: only the first of them: who reads "a FIFO was left out" takes it that all else is there. */
#include "manager/foreign.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "fp/err.h"

#define NAME_MAX_BYTES  255u
#define VALUE_MAX_BYTES 65536u

int mgr_foreign_left(struct mgr_core *c, uint64_t job, ProtobufCBinaryData path, enum mgr_left what)
{
    int rc = mgr_db_exec(&c->db, FOREIGN_LEFT, DBI(job), DBB(path.len ? path.data : (const uint8_t *)"", path.len), DBI(what));

    if (!rc && (uint64_t)sqlite3_last_insert_rowid(c->db.sq) > MGR_TASK_FILE_MAX)
        rc = mgr_doom(c, -EOVERFLOW);
    return rc;
}

/* As programs may give them; ours say something of another file, or of another store. */
static bool is_users(const Fp__XattrEntry *x)
{
    return x->name.len > 5 && x->name.len <= NAME_MAX_BYTES && x->value.len <= VALUE_MAX_BYTES && memcmp(x->name.data, "user.", 5) == 0 &&
           (x->name.len < 8 || memcmp(x->name.data, "user.fp.", 8) != 0) && !memchr(x->name.data, 0, x->name.len);
}

int mgr_foreign_attrs(struct mgr_core *c, const struct mgr_dfile *f, uint64_t ino, const Fp__ListEntry *e, ProtobufCBinaryData path)
{
    bool left = e->xattrs_left;
    int rc = 0;

    for (size_t i = 0; i < e->n_xattrs && !rc; i++) {
        const Fp__XattrEntry *x = e->xattrs[i];

        left |= !is_users(x);
        if (is_users(x))
            rc = mgr_db_exec(&c->db, XATTR_PUT, DBI(ino), DBB(x->name.data, x->name.len), DBB(x->value.len ? x->value.data : (const uint8_t *)"", x->value.len));
    }
    return rc || !left ? rc : mgr_foreign_left(c, f->job, path, MGR_LEFT_ATTRS);
}

static const char *text_of(enum mgr_left what, bool one)
{
    switch (what) {
    case MGR_LEFT_SPECIAL:
        return one ? "device, socket or FIFO" : "devices, sockets and FIFOs";
    case MGR_LEFT_NAMES:
        return one ? "hard link (what has several names there is a file for each here)" : "hard links (what has several names there is a file for each here)";
    case MGR_LEFT_ATTRS:
        return one ? "file's ACL or attributes" : "files' ACLs or attributes";
    }
    return "";
}

int mgr_foreign_left_text(struct mgr_core *c, uint64_t job, char line[MGR_LEFT_LINE])
{
    const enum mgr_stmt st = MGR_ST_FOREIGN_LEFTS;
    size_t n = 0;
    int rc;

    line[0] = '\0';
    for (rc = mgr_db_one(&c->db, FOREIGN_LEFTS, DBI(job)); rc > 0; rc = mgr_db_step(&c->db, st)) {
        unsigned long long count = (unsigned long long)mgr_col(&c->db, st, 1);
        size_t len;
        const char *path = mgr_col_blob(&c->db, st, 2, &len);

        if (n < MGR_LEFT_LINE)
            n += (size_t)snprintf(line + n, MGR_LEFT_LINE - n, "%s%llu %s, %s%.*s", n ? "; " : "left out: ", count, text_of((enum mgr_left)mgr_col(&c->db, st, 0), count == 1),
                                  count == 1 ? "" : "the first is ", len < 200 ? (int)len : 200, path ? path : "");
    }
    mgr_db_reset(&c->db, st);
    return rc < 0 ? rc : 0;
}
