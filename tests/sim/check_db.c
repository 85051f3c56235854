/*
 * The manager's tables at the end of a run, when all files are gone: references agree with what refers, counters with tables, and no chunk is left, in the tables or waiting to be deleted. A
 * copy of the database is asked, by the simulator itself, while no program runs.
 */
#include "tests/sim/check_db.h"

#include <sqlite3.h>
#include <sys/syscall.h>
#include <fcntl.h>
#include <unistd.h>

static void copy(const char *from, const char *to)
{
    char buf[65536];
    long n;
    int in = open(from, O_RDONLY | O_CLOEXEC), out = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    while (in >= 0 && (n = syscall(SYS_read, in, buf, sizeof buf)) > 0)
        if (syscall(SYS_write, out, buf, n) != n)
            sim_fail("the copy of the database cannot be written");
    close(in);
    close(out);
}

static long long ask(sqlite3 *db, const char *sql)
{
    sqlite3_stmt *st;
    long long v = -1;

    if (sqlite3_prepare_v2(db, sql, -1, &st, NULL) != SQLITE_OK)
        sim_fail("%s: %s", sql, sqlite3_errmsg(db));
    if (sqlite3_step(st) == SQLITE_ROW)
        v = sqlite3_column_int64(st, 0);
    sqlite3_finalize(st);
    return v;
}

/* What is left, for the trace. */
static void tell_left(sqlite3 *db)
{
    sqlite3_stmt *st;

    if (sqlite3_prepare_v2(db, "SELECT 'inode ' || ino || ', ' || nlink || ' names, ' || CASE WHEN ino IN (SELECT ino FROM orphan) THEN 'orphan' ELSE '' END FROM inode WHERE ino > 1", -1, &st, NULL) != SQLITE_OK)
        return;
    while (sqlite3_step(st) == SQLITE_ROW)
        sim_trace("  left: %s", (const char *)sqlite3_column_text(st, 0));
    sqlite3_finalize(st);
}

bool check_db(const struct sim_node *manager, bool last)
{
    static const struct {
        const char *what, *sql;
        bool left;
    } checks[] = {
        {"chunks whose references are wrong", "SELECT count(*) FROM chunk c WHERE refs != (SELECT count(*) FROM slice WHERE chunk = c.id) + (SELECT count(*) FROM hold WHERE chunk = c.id)", false},
        {"slices of chunks that are not there", "SELECT count(*) FROM slice WHERE chunk NOT IN (SELECT id FROM chunk)", false},
        {"slices of inodes that are not there", "SELECT count(*) FROM slice WHERE ino NOT IN (SELECT ino FROM inode)", false},
        {"names of inodes that are not there", "SELECT count(*) FROM dirent WHERE ino NOT IN (SELECT ino FROM inode)", false},
        {"chunks more or less than are counted", "SELECT (SELECT count(*) FROM chunk) != (SELECT chunks FROM counters)", false},
        {"slices more or less than are counted", "SELECT (SELECT count(*) FROM slice) != (SELECT slices FROM counters)", false},
        {"names that are left", "SELECT count(*) FROM dirent WHERE name NOT IN (CAST('a' AS BLOB), CAST('b' AS BLOB))", false},
        {"inodes that are left", "SELECT count(*) - 3 FROM inode", true},
        {"chunks that are left", "SELECT count(*) FROM chunk", true},
        {"deletes that are left", "SELECT count(*) FROM garbage", true},
    };
    char from[256], to[256];
    long long n = 0;
    sqlite3 *db;

    for (unsigned i = 0; i < 2; i++) {
        snprintf(from, sizeof from, "%s/mgr/store.db%s", manager->dir, i ? "-wal" : "");
        snprintf(to, sizeof to, "%s/end.db%s", sim.dir, i ? "-wal" : "");
        copy(from, to);
    }
    snprintf(to, sizeof to, "%s/end.db", sim.dir);
    if (sqlite3_open(to, &db) != SQLITE_OK)
        sim_fail("the database cannot be opened: %s", sqlite3_errmsg(db));
    for (size_t i = 0; i < sizeof checks / sizeof *checks; i++) {
        if (checks[i].left && sim.procs[0].starts > 1)
            continue; /* a restarted manager may keep an inode without a name until its mount ends: docs/SIMULATOR.md */
        n = ask(db, checks[i].sql);
        if (n && last)
            tell_left(db);
        if (n && last)
            sim_fail("the manager's tables at the end: %lld %s", n, checks[i].what);
        if (n)
            break;
    }
    sqlite3_close(db);
    return n == 0;
}
