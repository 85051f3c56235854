/* MSG_CTL_VERSIONS: what a file was, and putting it back by hand (fpctl versions, fpctl restore).
 *
 * A version is not put back under the feet of those who write the file, unless that is asked for; then what they write from there on is refused (FP_EOVERTAKEN), since it would be of
 * neither, and their close would end what is given up. What is given up is itself a version afterwards, so that a mistake here can be taken back.
 *
 * Called by the core's thread, in a group. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "life.pb-c.h"
#include "manager/version.h"

#define WHYS_MAX   32u
#define SUMS_MAX   131072u /* slices that are counted */
#define TORN_STEP  256u    /* files put back in one group */

/* ---------------------------------------------------------------- telling */

/* Of the version's chunks, what its slices are of all slices that name them. */
static int own_bytes(struct mgr_core *c, uint64_t shadow, uint64_t *bytes)
{
    int rc = mgr_db_one(&c->db, SLICE_SUMS, DBI(shadow), DBI(SUMS_MAX));

    if (rc <= 0)
        return rc;
    *bytes = (uint64_t)mgr_col(&c->db, MGR_ST_SLICE_SUMS, 5);
    mgr_db_reset(&c->db, MGR_ST_SLICE_SUMS);
    return 0;
}

/* Before the reason of its state: what of it is lost. */
static int say_lost(struct mgr_core *c, uint64_t shadow, char **why)
{
    char line[800];
    int64_t lost = 0;
    int rc = c->bad_chunks ? mgr_db_one(&c->db, VERSION_LOST, DBI(shadow), DBI(SUMS_MAX)) : 0;

    if (rc > 0)
        lost = mgr_col(&c->db, MGR_ST_VERSION_LOST, 0);
    mgr_db_reset(&c->db, MGR_ST_VERSION_LOST);
    if (rc < 0 || !lost)
        return rc < 0 ? rc : 0;
    snprintf(line, sizeof line, "%s%s%s", lost == 1 ? "some of it is lost or damaged" : "some of it is only in a target, which is being looked at", **why ? "; " : "", *why);
    *why = mgr_arena_text(&c->arena, line);
    return *why ? 0 : mgr_doom(c, -ENOMEM);
}

static Fp__VersionInfo *add(struct mgr_core *c, Fp__CtlVersionsReply *r, const struct mgr_inode *in)
{
    Fp__VersionInfo *i = MGR_NEW(c, Fp__VersionInfo, fp__version_info__init);

    if (!i)
        return NULL;
    i->size_bytes = in->size;
    i->mtime_ns = in->mtime;
    i->why = (char *)"";
    r->versions[r->n_versions++] = i;
    return i;
}

static int add_version(struct mgr_core *c, Fp__CtlVersionsReply *r, uint64_t ino, const struct mgr_version *ver)
{
    Fp__VersionInfo *i;
    struct mgr_inode in;
    int rc = ver->shadow ? mgr_inode_get(c, ver->shadow, &in) : 0;

    if (rc || !ver->shadow)
        return rc;
    i = add(c, r, &in);
    if (!i)
        return mgr_doom(c, -ENOMEM);
    i->n = ver->n;
    i->state = ver->state == MGR_REMAINS     ? FP__VERSION_STATE__VERSION_TORN
               : ver->state == MGR_WAITS     ? FP__VERSION_STATE__VERSION_WAITS
               : ver->state == MGR_RETURNING || ver->state == MGR_NEXT ? FP__VERSION_STATE__VERSION_RETURNS
                                             : FP__VERSION_STATE__VERSION_GUARD;
    i->why = (char *)(ver->state == MGR_REMAINS  ? "given up when the version before was put back"
                      : ver->state == MGR_TORN   ? "the file is torn: one of those who wrote it is dead, and another had synced or closed"
                      : ver->state == MGR_KILLED ? "the file is torn: a program that wrote it was killed, or failed; it is put back when the mount of that program ends"
                     : ver->state == MGR_HURT   ? "the file is being rewritten, and one of those who wrote was killed, or failed"
                     : ver->state == MGR_SYNCED ? "the file is being rewritten, and one of those who write has synced or closed"
                      : ver->state == MGR_GUARD  ? "the file is being rewritten"
                                                 : "");
    r->returning |= ver->state == MGR_RETURNING || ver->state == MGR_NEXT;
    i->why = ver->state == MGR_WAITS ? mgr_waits_why(c, ino) : i->why;
    if (!i->why)
        return mgr_doom(c, -ENOMEM);
    rc = say_lost(c, ver->shadow, &i->why);
    return rc ? rc : own_bytes(c, ver->shadow, &i->own_bytes);
}

static int list(struct mgr_core *c, const struct mgr_inode *in, Fp__CtlVersionsReply *r)
{
    const struct mgr_vfile *v = mgr_vfile_find(c, in->ino);
    Fp__VersionInfo *gone;
    int rc;

    r->versions = mgr_arena_alloc(&c->arena, 5 * sizeof(*r->versions));
    if (!r->versions || !add(c, r, in))
        return mgr_doom(c, -ENOMEM);
    rc = mgr_given_up(c, in->ino, &gone);
    if (gone)
        r->versions[r->n_versions++] = gone;
    rc = rc || !v ? rc : add_version(c, r, in->ino, &v->guard);
    rc = rc || !v ? rc : add_version(c, r, in->ino, &v->waits);
    return rc || !v ? rc : add_version(c, r, in->ino, &v->remains);
}

/* ---------------------------------------------------------------- putting back */

static int name_writers(struct mgr_core *c, uint64_t ino, Fp__CtlVersionsReply *r)
{
    r->why = mgr_arena_alloc(&c->arena, WHYS_MAX * sizeof(*r->why));
    for (size_t i = 0; i < c->session_count && r->why && r->n_why < WHYS_MAX; i++) {
        const struct mgr_session *s = c->sessions[i];
        size_t room = strlen(s->node) + strlen(s->mountpoint) + 2;

        if (!mgr_map_get(&s->writes, ino))
            continue;
        r->why[r->n_why] = mgr_arena_alloc(&c->arena, room);
        if (!r->why[r->n_why])
            return mgr_doom(c, -ENOMEM);
        snprintf(r->why[r->n_why++], room, "%s:%s", s->node, s->mountpoint);
    }
    return r->why ? 0 : mgr_doom(c, -ENOMEM);
}

/* Who has it open for writing, or may have and has not come back to this manager, has data of what is given up. */
static int cut_off_writers(struct mgr_core *c, uint64_t ino)
{
    int rc = 0;

    for (size_t i = 0; i < c->session_count && !rc; i++) {
        struct mgr_session *s = c->sessions[i];

        if (mgr_map_get(&s->writes, ino) || s->settled_ms == UINT64_MAX)
            rc = mgr_session_overtake(c, s, ino);
    }
    return rc;
}

static int begin_return(struct mgr_core *c, struct mgr_vfile *v, bool waits)
{
    int rc = cut_off_writers(c, v->ino);

    v->open = false;
    v->asked = true;
    return rc ? rc : waits ? mgr_waits_return(c, v) : mgr_return_begin(c, v);
}

static int restore(struct mgr_core *c, const Fp__CtlVersions *m, uint64_t ino, Fp__CtlVersionsReply *r)
{
    struct mgr_vfile *v = mgr_vfile_find(c, ino);

    if (!v)
        return -ENODATA;
    if (v->guard.state == MGR_RETURNING || v->waits.state == MGR_NEXT)
        return 0;
    if (mgr_map_get(&c->writers, ino) && !m->force)
        return name_writers(c, ino, r);
    if (v->waits.shadow && (m->newest ? !v->guard.shadow : v->waits.n == m->restore)) {
        r->restored = v->waits.n;
        return begin_return(c, v, true);
    }
    if (m->newest ? !v->guard.shadow : v->guard.n != m->restore) { /* else the one that was given up */
        if (m->newest || v->guard.shadow || !v->remains.shadow || v->remains.n != m->restore)
            return -ENODATA;
        v->guard = v->remains;
        v->remains = (struct mgr_version){0};
    }
    r->restored = v->guard.n;
    return begin_return(c, v, false);
}

/* By where its name was last seen. */
static int is_below(struct mgr_core *c, uint64_t ino, uint64_t dir, bool *below)
{
    struct mgr_inode in;
    uint64_t up = ino;
    int rc = 0;

    while (!rc && up != dir && up != MGR_ROOT_INO) {
        rc = mgr_inode_get(c, up, &in);
        up = rc ? up : in.parent;
    }
    *below = up == dir;
    return rc == -ENOENT ? 0 : rc;
}

static int restore_torn(struct mgr_core *c, uint64_t dir, Fp__CtlVersionsReply *r)
{
    struct mgr_versions *t = c->versions;
    bool below;
    int rc = 0;

    for (size_t i = 0; i < t->buckets && !rc && r->restored < TORN_STEP; i++)
        for (struct mgr_vfile *v = t->bucket[i]; v && !rc; v = v->next) {
            if ((v->guard.state != MGR_TORN && v->guard.state != MGR_KILLED) || mgr_map_get(&c->writers, v->ino))
                continue;
            rc = is_below(c, v->ino, dir, &below);
            if (rc || !below)
                continue;
            v->asked = true;
            r->restored++;
            rc = mgr_return_begin(c, v);
        }
    r->returning = t->returning;
    return rc;
}

MGR_HANDLER(ctl_versions)
{
    const Fp__CtlVersions *m = msg;
    Fp__CtlVersionsReply *r = MGR_NEW(c, Fp__CtlVersionsReply, fp__ctl_versions_reply__init);
    struct mgr_inode in;
    uint64_t ino;
    int rc = r ? mgr_resolve(c, m->path, &ino) : mgr_doom(c, -ENOMEM);

    rc = rc ? rc : mgr_inode_get(c, ino, &in);
    if (rc)
        return rc;
    rq->reply = &r->base;
    if (m->torn_all)
        return restore_torn(c, ino, r);
    if (!mgr_is(&in, S_IFREG))
        return mgr_is(&in, S_IFDIR) ? -EISDIR : -EINVAL;
    if (m->restore || m->newest)
        rc = restore(c, m, ino, r);
    rc = rc ? rc : mgr_inode_get(c, ino, &in);
    return rc ? rc : list(c, &in, r);
}
