/*
 * The VFS that writes a commit into the WAL at once: what is committed is in the file, for another connection and
 * for whoever finds database and WAL after a crash; what was rolled back is not. Transactions small and large, with so
 * little cache that SQLite spills pages into the WAL and writes them anew, and checkpoints in between.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>
#include <sqlite3.h>

#include "manager/walvfs.h"

struct fixture {
    char dir[64], db[80], wal[96], copy_db[80], copy_wal[96];
    sqlite3 *ours, *other;
    unsigned seed;
};

static void sql(sqlite3 *db, const char *text)
{
    char *why = NULL;

    if (sqlite3_exec(db, text, NULL, NULL, &why) != SQLITE_OK)
        fail_msg("%s: %s", text, why);
}

static int64_t number(sqlite3 *db, const char *text)
{
    sqlite3_stmt *st;
    int64_t n;

    assert_int_equal(sqlite3_prepare_v2(db, text, -1, &st, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(st), SQLITE_ROW);
    n = sqlite3_column_int64(st, 0);
    sqlite3_finalize(st);
    return n;
}

static void copy(const char *from, const char *to)
{
    char cmd[256];

    snprintf(cmd, sizeof cmd, "cp %s %s", from, to);
    assert_int_equal(system(cmd), 0);
}

static int setup(void **state)
{
    struct fixture *x = calloc(1, sizeof *x);

    strcpy(x->dir, "/tmp/fp-walvfs-XXXXXX");
    assert_non_null(mkdtemp(x->dir));
    snprintf(x->db, sizeof x->db, "%s/a", x->dir);
    snprintf(x->wal, sizeof x->wal, "%s-wal", x->db);
    snprintf(x->copy_db, sizeof x->copy_db, "%s/b", x->dir);
    snprintf(x->copy_wal, sizeof x->copy_wal, "%s-wal", x->copy_db);
    assert_non_null(mgr_walvfs_name());
    assert_int_equal(sqlite3_open_v2(x->db, &x->ours, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, mgr_walvfs_name()),
                     SQLITE_OK);
    sql(x->ours, "PRAGMA page_size=2048; PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;"
                 "PRAGMA wal_autocheckpoint=0; PRAGMA cache_size=10;"
                 "CREATE TABLE t (k INTEGER PRIMARY KEY, v INTEGER, pad BLOB); CREATE INDEX tv ON t (v);");
    assert_int_equal(sqlite3_open_v2(x->db, &x->other, SQLITE_OPEN_READWRITE, NULL), SQLITE_OK);
    sqlite3_busy_timeout(x->other, 1000);
    *state = x;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *x = *state;
    char cmd[128];

    sqlite3_close(x->other);
    sqlite3_close(x->ours);
    snprintf(cmd, sizeof cmd, "rm -rf %s", x->dir);
    assert_int_equal(system(cmd), 0);
    free(x);
    return 0;
}

static void change(struct fixture *x, int rows)
{
    char text[256];

    for (int i = 0; i < rows; i++) {
        int k = rand_r(&x->seed) % 2000, v = rand_r(&x->seed) % 100000;

        if (rand_r(&x->seed) % 5 == 0)
            snprintf(text, sizeof text, "DELETE FROM t WHERE k=%d", k);
        else
            snprintf(text, sizeof text, "INSERT OR REPLACE INTO t VALUES(%d,%d,zeroblob(%d))", k, v, v % 700);
        sql(x->ours, text);
    }
}

static const char sum[] = "SELECT count(*) * 1000003 + total(k * v % 65521) FROM t";

/* As a crash of this process now would leave it. */
static void check_after_crash(struct fixture *x, int64_t want)
{
    sqlite3 *db;

    copy(x->db, x->copy_db);
    copy(x->wal, x->copy_wal);
    assert_int_equal(sqlite3_open_v2(x->copy_db, &db, SQLITE_OPEN_READWRITE, NULL), SQLITE_OK);
    assert_int_equal(number(db, "SELECT count(*) FROM pragma_integrity_check WHERE integrity_check='ok'"), 1);
    assert_int_equal(number(db, sum), want);
    sqlite3_close(db);
    unlink(x->copy_db);
}

static void test_walvfs_commits_are_in_the_file(void **state)
{
    struct fixture *x = *state;
    int64_t want = 0;

    for (int i = 0; i < 400; i++) {
        bool large = i % 13 == 0, back = i % 7 == 3;

        sql(x->ours, "BEGIN");
        change(x, large ? 600 : 1 + i % 4);
        if (!back)
            want = number(x->ours, sum);
        sql(x->ours, back ? "ROLLBACK" : "COMMIT");
        assert_int_equal(number(x->other, sum), want);
        assert_int_equal(number(x->ours, sum), want);
        if (i % 10 == 0)
            check_after_crash(x, want);
        if (i % 29 == 0)
            sqlite3_wal_checkpoint_v2(x->other, NULL, SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);
        if (i % 53 == 0)
            sqlite3_wal_checkpoint_v2(x->ours, NULL, SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL);
    }
}

/* With enough cache nothing is spilled: all of a transaction is written at its end, more than is kept at once. */
static void test_walvfs_writes_large_commits(void **state)
{
    struct fixture *x = *state;
    int64_t want;

    sql(x->ours, "PRAGMA cache_size=100000");
    for (int rows = 1; rows < 4000; rows = rows * 3 / 2 + 1) {
        sql(x->ours, "BEGIN");
        change(x, rows);
        sql(x->ours, "COMMIT");
        want = number(x->ours, sum);
        assert_int_equal(number(x->other, sum), want);
        check_after_crash(x, want);
    }
}

static void test_walvfs_full_disk_fails_the_commit(void **state)
{
    struct fixture *x = *state;
    struct rlimit old, limit;
    struct stat st;
    int64_t want;

    sql(x->ours, "BEGIN");
    change(x, 50);
    sql(x->ours, "COMMIT");
    want = number(x->ours, sum);
    assert_int_equal(stat(x->wal, &st), 0);
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    limit = (struct rlimit){.rlim_cur = (rlim_t)st.st_size + 3000, .rlim_max = old.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0); /* room for one page and a half */
    sql(x->ours, "BEGIN");
    change(x, 3);
    assert_int_not_equal(sqlite3_exec(x->ours, "COMMIT", NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    if (!sqlite3_get_autocommit(x->ours))
        sql(x->ours, "ROLLBACK");
    assert_int_equal(number(x->ours, sum), want);
    assert_int_equal(number(x->other, sum), want);
    sql(x->ours, "BEGIN");
    change(x, 3);
    sql(x->ours, "COMMIT");
    want = number(x->ours, sum);
    assert_int_equal(number(x->other, sum), want);
    check_after_crash(x, want);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_walvfs_commits_are_in_the_file, setup, teardown),
        cmocka_unit_test_setup_teardown(test_walvfs_writes_large_commits, setup, teardown),
        cmocka_unit_test_setup_teardown(test_walvfs_full_disk_fails_the_commit, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
