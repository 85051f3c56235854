/* Draining: a file is cut into parts.
 *
 * A part is the slices of a run of windows of which the chunks lie on one benefactor. So each benefactor writes what it has, where it has it,
 * and no data goes over the network but to the target. Runs are of at most 64 windows and 64 MiB, and of at most 4096 slices unless one
 * window has more; all parts of a run have the same bounds, so that the end of the last one says where to go on: a big file is cut over
 * several groups, and a manager that is started anew goes on there. Windows without data are in no part.
 *
 * To give each window to one benefactor, which would fetch from the others what it lacks, makes larger writes of de-duplicated files; it waits for
 * benefactors that talk to each other. To cut by chunk was rejected: one row for each MiB, and writes of one MiB. */
#include "manager/drain.h"

#include <errno.h>
#include <stdlib.h>

#include "fp/grown.h"

/* ---------------------------------------------------------------- a run */

bool mgr_plan_takes(const struct mgr_plan *p, uint64_t win, uint32_t slices)
{
    return p->first == p->end || (win < p->first + p->windows_max && p->slices + slices <= MGR_PART_SLICES);
}

int mgr_plan_add(struct mgr_plan *p, uint64_t win, uint32_t bnf, uint32_t bytes)
{
    struct mgr_plan_bnf *more;
    size_t i = p->count;

    if (p->first == p->end)
        p->first = win;
    p->end = win + 1;
    p->slices++;
    while (i && p->bnf[i - 1].bnf != bnf) /* mostly the last one */
        i--;
    if (i) {
        p->bnf[i - 1].bytes += bytes;
        return 0;
    }
    more = fp_grown(p->bnf, p->count, &p->cap, sizeof *more);
    if (!more)
        return -ENOMEM;
    p->bnf = more;
    p->bnf[p->count++] = (struct mgr_plan_bnf){.bnf = bnf, .bytes = bytes};
    return 0;
}

static int flush(struct mgr_core *c, const struct mgr_dfile *f, struct mgr_plan *p)
{
    int rc = 0;

    for (size_t i = 0; i < p->count && !rc; i++) {
        struct mgr_tasker *t = mgr_tasker(c, p->bnf[i].bnf);

        rc = mgr_db_exec(&c->db, DPART_PUT, DBI(f->id), DBI(p->first), DBI(p->bnf[i].bnf), DBI(p->end - p->first), DBI(f->gen), DBI(MGR_P_TODO),
                         DBI(p->bnf[i].bytes));
        if (t)
            t->look = true;
    }
    p->first = p->end = 0;
    p->slices = 0;
    p->count = 0;
    return rc;
}

/* ---------------------------------------------------------------- the slices */

struct got { /* of a window */
    uint32_t bnf, len;
};

static int cut_from(struct mgr_core *c, const struct mgr_dfile *f, struct mgr_plan *p, struct got *got, uint64_t from, bool *done)
{
    const enum mgr_stmt st = MGR_ST_DPART_SLICES;
    uint64_t win = 0, seen = 0;
    uint32_t n = 0;
    int rc, row = mgr_db_one(&c->db, DPART_SLICES, DBI(f->ino), DBI(from));

    /* A window at a time, for only then its number of slices is known. */
    for (rc = 0; row >= 0 && !rc; row = row > 0 ? mgr_db_step(&c->db, st) : -1) {
        uint64_t now = row > 0 ? (uint64_t)mgr_col(&c->db, st, 0) : UINT64_MAX;

        if (n && now != win) {
            if (!mgr_plan_takes(p, win, n))
                rc = flush(c, f, p);
            for (uint32_t i = 0; i < n && !rc; i++)
                rc = mgr_plan_add(p, win, got[i].bnf, got[i].len);
            n = 0;
            if (!rc && seen >= MGR_PLAN_STEP && row > 0) {
                mgr_db_reset(&c->db, st);
                return flush(c, f, p);
            }
        }
        if (row <= 0 || rc)
            break;
        if (n == MGR_WINDOW_MAX || now >= MGR_TASK_WINDOWS)
            rc = -EFBIG;
        else if (!(got[n].bnf = (uint32_t)mgr_col(&c->db, st, 2)))
            rc = -EIO;
        else
            got[n++].len = (uint32_t)mgr_col(&c->db, st, 1);
        win = now;
        seen++;
    }
    mgr_db_reset(&c->db, st);
    *done = !rc && row >= 0;
    return rc ? rc : row < 0 ? c->db.err : flush(c, f, p);
}

int mgr_drain_plan(struct mgr_core *c, struct mgr_dfile *f, bool *done)
{
    struct mgr_plan p = {0};
    struct mgr_inode in;
    struct got *got = mgr_arena_alloc(&c->arena, MGR_WINDOW_MAX * sizeof *got);
    uint64_t from = 0;
    int rc = mgr_inode_get_live(c, f->ino, &in);

    *done = false;
    if (!got)
        return mgr_doom(c, -ENOMEM);
    if (!rc && in.data_version != f->version)
        rc = -ESTALE;
    if (!rc && in.flags & MGR_LOST_CLOSE)
        rc = -ENODATA; /* an older copy is better than what is left here */
    if (rc)
        return rc;
    p.windows_max = mgr_plan_windows(in.chunk_size);
    rc = mgr_db_one(&c->db, DPART_END, DBI(f->id));
    if (rc > 0)
        from = (uint64_t)mgr_col(&c->db, MGR_ST_DPART_END, 0);
    mgr_db_reset(&c->db, MGR_ST_DPART_END);
    rc = rc < 0 ? rc : cut_from(c, f, &p, got, from, done);
    free(p.bnf);
    return rc == -ENOMEM ? mgr_doom(c, rc) : rc;
}
