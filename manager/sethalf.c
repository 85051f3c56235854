/*
 * Checkpoint sets: those that seem to be half of one.
 *
 * A job that is killed between two files of a step leaves a set in which nobody writes any more, and nothing of it is torn. Time completes it, as that of a job which
 * writes fewer files from now on: nothing tells the two apart. What can be seen is that those before it had as many files as each other, and this one has fewer, and nobody
 * has said that it is complete. Such a set is complete, is drained and read like any other, and says so; but where the newest is chosen (fpctl checkpoint latest, fpctl drain --last,
 * what keep= keeps) it does not count as long as there is another. The second one with just as few files counts: so a job goes on writing.
 *
 * Where the number of files differs from set to set nothing is concluded. Rejected: to leave it open (a job that waits for it, or drains it, would wait for ever).
 *
 * Called by sets.c, in the core's thread.
 */
#include "manager/sets_int.h"

int mgr_set_half(struct mgr_core *c, struct mgr_set *s)
{
    const enum mgr_stmt st = MGR_ST_SET_BEFORE;
    uint64_t files[2] = {0}, before[2] = {0}, usual;
    size_t n = 0;
    int rc;

    s->files_before = 0;
    if (s->told)
        return 0;
    for (rc = mgr_db_one(&c->db, SET_BEFORE, DBI(s->series), DBI(s->step)); rc > 0; rc = mgr_db_step(&c->db, st), n++) {
        files[n] = (uint64_t)mgr_col(&c->db, st, 0);
        before[n] = (uint64_t)mgr_col(&c->db, st, 1);
    }
    mgr_db_reset(&c->db, st);
    usual = before[0] ? before[0] : files[0] == files[1] ? files[0] : 0;
    if (s->files < usual && s->files != files[0])
        s->files_before = usual;
    return rc < 0 ? rc : 0;
}
