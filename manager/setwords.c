/*
 * Checkpoint sets: what policies say of when they are complete (quiet=, late=, complete=, marker=). Loop thread, called by sets.c.
 *
 * A policy speaks of the sets that match its pattern=, of all if it has none. Of several that speak of one set, those count that have the word: the longest time holds, told if one says
 * told, and the names of markers of all of them; where none has a word, what the manager was started with. So a policy can only make a set complete later than another one wants it,
 * and a drain never takes for whole what somebody else would wait for.
 *
 * What time needs to know is asked of the policies once after each pause of a set, and kept with it: which names it has decides (setpattern.c).
 */
#include <errno.h>
#include <string.h>

#include "manager/drain.h"
#include "manager/sets_int.h"

static const char standard[] = "COMPLETE,.complete,_SUCCESS,DONE";

static bool is_in(const char *list, const ProtobufCBinaryData *name)
{
    const char *item;
    size_t len;

    while (fp_drain_next(&list, &item, &len))
        if (len == name->len && memcmp(item, name->data, len) == 0)
            return true;
    return false;
}

static void longest(uint64_t *to, uint64_t ms)
{
    *to = ms > *to ? ms : *to;
}

int mgr_set_words(struct mgr_core *c, struct mgr_set *s)
{
    const struct mgr_drain *d = c->drain;
    int rc = 0;

    if (s->words.gen == d->policies_gen && s->words.at_ms == s->changed_ms)
        return 0;
    s->words.quiet_ms = s->words.late_ms = 0;
    s->words.told = false;
    for (size_t i = 0; i < d->npolicies && !rc; i++) {
        const struct fp_drain_policy *p = &d->policies[i].p;
        bool yes;

        if (!p->quiet_ms && !p->late_ms && !p->told)
            continue;
        rc = mgr_pattern_has(c, s, &d->policies[i], &yes);
        if (rc || !yes)
            continue;
        longest(&s->words.quiet_ms, p->quiet_ms);
        longest(&s->words.late_ms, p->late_ms);
        s->words.told |= p->told;
    }
    s->words.quiet_ms = s->words.quiet_ms ? s->words.quiet_ms : c->o.ckpt_quiet_ms;
    s->words.late_ms = s->words.late_ms ? s->words.late_ms : c->o.ckpt_late_ms;
    s->words.at_ms = s->changed_ms;
    s->words.gen = rc ? 0 : d->policies_gen;
    return rc;
}

int mgr_set_marks(struct mgr_core *c, uint64_t set, const ProtobufCBinaryData *name, bool *yes)
{
    const struct mgr_drain *d = c->drain;
    bool any = is_in(standard, name), said = false;
    struct mgr_set s;
    int rc = 0;

    *yes = false;
    for (size_t i = 0; i < d->npolicies && !any; i++)
        any = is_in(d->policies[i].p.marker, name);
    if (!any || !set)
        return 0;
    rc = d->marks ? mgr_set_get(c, set, &s) : 0;
    for (size_t i = 0; i < d->npolicies && !rc; i++) {
        bool concerns;

        if (!d->policies[i].p.marker[0])
            continue;
        rc = mgr_pattern_has(c, &s, &d->policies[i], &concerns);
        if (rc || !concerns)
            continue;
        said = true;
        *yes = *yes || is_in(d->policies[i].p.marker, name);
    }
    *yes = said ? *yes : is_in(standard, name);
    return rc;
}

int mgr_set_is_marked(struct mgr_core *c, uint64_t set, uint64_t ino, bool *yes)
{
    const enum mgr_stmt st = MGR_ST_DIR_NAME;
    ProtobufCBinaryData name = {0, NULL};
    uint8_t buf[MGR_NAME_MAX];
    struct mgr_inode in;
    const void *p;
    int rc = c->drain->marks ? mgr_inode_get(c, ino, &in) : -ENOENT;

    *yes = false;
    if (rc)
        return rc == -ENOENT ? 0 : rc;
    rc = mgr_db_one(&c->db, DIR_NAME, DBI(in.parent), DBI(ino));
    if (rc > 0) {
        p = mgr_col_blob(&c->db, st, 0, &name.len);
        name.len = name.len < sizeof buf ? name.len : sizeof buf;
        memcpy(buf, p, name.len);
        name.data = buf;
    }
    mgr_db_reset(&c->db, st);
    return rc <= 0 ? rc : mgr_set_marks(c, set, &name, yes);
}
