/* Before the data of a file changes, whoever does it: commits, truncates, holes, clones. Each part of the manager that has to know has its line here, so that no
 * way of changing data can be forgotten by one of them. Not asked for folds, which store the same bytes anew.
 *
 * Called by the core's thread, in a group, when nothing can be refused any more. Rejected: to have slices.c ask, which sees single cuts, and not that a window is replaced as a
 * whole. */
#include "manager/version.h"

int mgr_data_changes(struct mgr_core *c, const struct mgr_session *s, struct mgr_inode *in, uint64_t from, uint64_t to)
{
    struct mgr_vfile *v;
    int rc = mgr_epoch_changed(c, s, in, false, &v);

    if (rc || !v)
        return rc;
    rc = mgr_version_take(c, v, in, from, to);
    return rc ? rc : mgr_version_count(c, v);
}

/* Slices that follow each other without a gap are one range, also over the bounds of windows. */
int mgr_data_commits(struct mgr_core *c, const struct mgr_session *s, struct mgr_inode *in, Fp__Slice *const *slices, size_t n, bool appends)
{
    struct mgr_vfile *v = mgr_vfile_find(c, in->ino);
    int rc = appends && (!v || !v->guard.shadow) ? 0 : mgr_epoch_changed(c, s, in, false, &v);

    if (rc || !v || (!v->guard.shadow && !v->waits.shadow))
        return rc;
    for (size_t i = 0, end; i < n && !rc; i = end) {
        uint64_t from = slices[i]->win * in->chunk_size + slices[i]->off, to = from + slices[i]->len;

        for (end = i + 1; end < n && slices[end]->win * in->chunk_size + slices[end]->off == to; end++)
            to += slices[end]->len;
        rc = mgr_version_take(c, v, in, from, to);
    }
    return rc ? rc : mgr_version_count(c, v);
}

int mgr_data_cut(struct mgr_core *c, const struct mgr_session *s, struct mgr_inode *in, uint64_t size)
{
    struct mgr_vfile *v;
    int rc = mgr_epoch_changed(c, s, in, true, &v);

    if (rc || !v)
        return rc;
    rc = mgr_version_cut(c, v, in, size);
    rc = rc || size ? rc : mgr_epoch_afresh(c, v);
    return rc ? rc : mgr_version_count(c, v);
}
