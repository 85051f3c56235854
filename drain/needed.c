/*
 * What other stores need in this target, and what ours does.
 *
 * Stores share targets: the next job has the same names. A file that another store has drained may be replaced, but not one in favour of which it has evicted:
 * that is the only copy. So before a store relies on a file it says so, and whoever would replace a file looks:
 *
 *     ROOT/.fp-drain/STORE8-needs-N        there as long as that store relies on anything here
 *     user.fp.needed = STORE8-needs-N      on each file that it relies on
 *     ROOT/.fp-drain/STORE8-needs-N-all    it relies on files that it could not mark: any that it may have drained is one
 *
 * Both are synced before anything is evicted. A mark without its entry says nothing: it is by the entry alone that a store gives up all that it needed, and a late
 * mark, of a number that is over, does no harm.
 *
 * Two stores may do this at the same moment. Who needs a file marks it, then looks whether it still has its name (STAT). Who replaces one keeps a link to it, gives the
 * name away, and looks at the mark then: if it is there by now, the file gets its name back. So one of the two sees the other, and no lock is held in a file
 * system that may hang. Where there are no hard links, a mark that comes between the look and the rename is too late.
 *
 * Rejected: the mark of the copy (user.fp.drain) alone, which refused the next job every name of the one before; a list of files in one place, which
 * would have to be changed for each.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "drain/drain.h"
#include "fp/fault.h"
#include "fp/needed.h"

/* -------------------------------------------------------------- whose it is */

/* As "01020304-needs-5" and "01020304:INODE:VERSION" begin: the first bytes of a store's UUID. */
static void digits_of(const struct dr_worker *w, char own[9])
{
    snprintf(own, 9, "%02x%02x%02x%02x", w->store[0], w->store[1], w->store[2], w->store[3]);
}

static int look(struct dr_thread *th, int dir, const char *name, struct fp_needed *m)
{
    int rc;

    dr_enter(th);
    rc = fp_needed_read(dir, name, m);
    dr_leave(th, 0);
    return rc;
}

/* -------------------------------------------------------------- what others need */

/* Have we drained it? own: the inode of what we have drained to that name last; 0: nothing. Numbers of inodes are used again, so a mark says more. */
static bool is_drained_by_us(const struct fp_needed *m, const char *store, uint64_t own)
{
    return m->drained[0] ? fp_needed_is_of(m->drained, store) : own && m->ino == own;
}

/* Whose mark it is, another store's: STORE8:INODE:VERSION. That store says of it that it is drained, until it looks. */
static void note_replaced(struct dr_thread *th, const struct fp_needed *m)
{
    char store[9];

    digits_of(th->w, store);
    if (m->is && strspn(m->drained, "0123456789abcdef") == 8 && m->drained[8] == ':' && !fp_needed_is_of(m->drained, store))
        th->r.note = 1;
}

static int is_needed(struct dr_thread *th, int temps, const struct fp_needed *m, uint64_t own)
{
    char store[9];
    int rc;

    digits_of(th->w, store);
    dr_enter(th);
    rc = fp_needed_by_others(temps, m, store, is_drained_by_us(m, store, own));
    dr_leave(th, 0);
    return rc;
}

static int refuse(struct dr_thread *th, const char *name)
{
    return dr_fail(th, FP_DW_SCOPE_FILE, -EPERM, "%s: another store has evicted data that is only in the file of that name there: drain to another directory, or, if that store "
                   "needs it no more, with --overwrite (of fpctl drain and merge), or overwrite=yes in the policy", name);
}

int dr_may_replace(struct dr_thread *th, int temps, int dir, const char *name, uint64_t own, bool force)
{
    struct fp_needed m;
    char store[9];
    int rc = look(th, dir, name, &m);

    if (rc == 0)
        note_replaced(th, &m);
    if (force)
        return 0;
    if (rc == 0 && m.is)
        rc = is_needed(th, temps, &m, own);
    if (rc < 0)
        return dr_failed_call(th, rc, "look at what has its name,", name);
    digits_of(th->w, store);
    return rc ? refuse(th, name) : m.is && !is_drained_by_us(&m, store, own);
}

/* -------------------------------------------------------------- replacing */

static void aside_of(const char *tmp, char aside[DR_ASIDE_MAX])
{
    snprintf(aside, DR_ASIDE_MAX, "%s-kept", tmp);
}

int dr_keep_aside(struct dr_thread *th, int temps, const char *tmp, int dir, const char *name)
{
    char aside[DR_ASIDE_MAX];
    int rc;

    aside_of(tmp, aside);
    dr_enter(th);
    (void)unlinkat(temps, aside, 0); /* of an attempt that went no further: what it is has its name still */
    rc = linkat(dir, name, temps, aside, 0) ? -errno : 0;
    dr_leave(th, 0);
    return rc;
}

int dr_settle(struct dr_thread *th, int temps, const char *tmp, int dir, const char *name)
{
    char aside[DR_ASIDE_MAX];
    struct fp_needed m;
    int rc;

    aside_of(tmp, aside);
    rc = FP_FAULT_POINT("drain.settle");
    rc = rc ? rc : look(th, temps, aside, &m);
    rc = rc || !m.is ? rc : is_needed(th, temps, &m, 0);
    if (rc < 0)
        return dr_failed_call(th, rc, "look at what had its name,", name);
    if (rc == 0)
        note_replaced(th, &m); /* if the answer of the attempt that has replaced it was lost */
    dr_enter(th);
    if (rc)
        rc = renameat(temps, aside, dir, name) ? -errno : 1;
    else if (m.is)
        (void)unlinkat(temps, aside, 0); /* else with the temporary file's name (dr_drop_aside) */
    dr_leave(th, 0);
    if (rc > 0)
        rc = dr_fsync(th, dir) ? -EIO : 1;
    if (rc < 0)
        return dr_failed_call(th, rc, "give its name back to", name);
    return rc ? refuse(th, name) : 0;
}

void dr_drop_aside(struct dr_thread *th, int temps, const char *tmp, uint32_t tmp_bytes)
{
    char name[FP_DW_TMP_MAX + 1], aside[DR_ASIDE_MAX];
    struct fp_needed m;

    snprintf(name, sizeof(name), "%.*s", (int)tmp_bytes, tmp);
    aside_of(name, aside);
    if (look(th, temps, aside, &m) || !m.is || is_needed(th, temps, &m, 0))
        return; /* what somebody needs is in no case removed by us */
    dr_enter(th);
    (void)unlinkat(temps, aside, 0);
    dr_leave(th, 0);
}

/* -------------------------------------------------------------- what we need */

int dr_need_no_more(struct dr_thread *th, int temps, const char *entry, uint32_t entry_bytes)
{
    char name[FP_DW_TMP_MAX + sizeof(FP_NEEDED_ALL)];
    int rc = 0;

    snprintf(name, sizeof(name), "%.*s", (int)entry_bytes, entry);
    if (!fp_needed_is_entry(name))
        return 0;
    strcat(name, FP_NEEDED_ALL);
    dr_enter(th);
    rc = unlinkat(temps, name, 0) && errno != ENOENT ? -errno : 0;
    dr_leave(th, 0);
    return rc;
}

static int write_entry(struct dr_thread *th, int fd)
{
    char text[400], host[65] = "";
    int n;

    (void)gethostname(host, sizeof(host) - 1);
    n = snprintf(text, sizeof(text), "A store has evicted data of files that it had drained to here, and reads it from them. They have the extended attribute\n"
                 FP_DW_NEED_XATTR ", if there is none " FP_NEEDED_ALL "; other stores do not replace them. Node: %s\n", host);
    return pwrite(fd, text, (size_t)n, 0) == n ? dr_fsync(th, fd) : errno ? -errno : -ENOSPC;
}

/* Synced, with its name. */
static int make_entry(struct dr_thread *th, int temps, const char *name)
{
    struct dr_worker *w = th->w;
    struct stat st;
    bool known;
    int fd, rc;

    dr_enter(th);
    rc = fstatat(temps, name, &st, AT_SYMLINK_NOFOLLOW) ? -errno : 0;
    dr_leave(th, 0);
    pthread_mutex_lock(&w->lock);
    known = rc == 0 && strcmp(w->needs, name) == 0;
    pthread_mutex_unlock(&w->lock);
    if (known || (rc && rc != -ENOENT))
        return known ? 0 : rc;
    rc = dr_open(th, temps, name, (uint32_t)strlen(name), O_WRONLY | O_CREAT, 0644, &fd);
    if (rc)
        return rc;
    rc = write_entry(th, fd);
    dr_enter(th);
    close(fd);
    dr_leave(th, 0);
    rc = rc ? rc : dr_fsync(th, temps);
    if (rc)
        return rc;
    pthread_mutex_lock(&w->lock);
    snprintf(w->needs, sizeof(w->needs), "%s", name);
    pthread_mutex_unlock(&w->lock);
    return 0;
}

static int mark_it(struct dr_thread *th, int root, const char *path, uint32_t path_bytes, const char *entry)
{
    int fd, rc = dr_open(th, root, path, path_bytes, O_RDONLY | O_NONBLOCK, 0, &fd);

    if (rc)
        return rc;
    dr_enter(th);
    rc = FP_FAULT_POINT("drain.mark");
    rc = rc ? rc : fsetxattr(fd, FP_DW_NEED_XATTR, entry, strlen(entry), 0) ? -errno : 0;
    dr_leave(th, 0);
    rc = rc ? rc : dr_fsync(th, fd);
    close(fd);
    return rc;
}

int dr_need(struct dr_thread *th, int root, const char *path, uint32_t path_bytes, const char *entry, uint32_t entry_bytes)
{
    char name[FP_DW_TMP_MAX + sizeof(FP_NEEDED_ALL)];
    int temps, rc = dr_temps(th, root, true, &temps);

    if (rc)
        return rc;
    snprintf(name, sizeof(name), "%.*s", (int)entry_bytes, entry);
    rc = make_entry(th, temps, name);
    if (rc == 0) {
        rc = mark_it(th, root, path, path_bytes, name);
        if (rc == -ENOTSUP || rc == -EACCES || rc == -EPERM || rc == -ENOSPC || rc == -EDQUOT || rc == -E2BIG || rc == -ERANGE) {
            strcat(name, FP_NEEDED_ALL);
            rc = make_entry(th, temps, name);
        }
    }
    close(temps);
    return rc ? dr_failed_call(th, rc, "say that it is needed,", name) : 0;
}
