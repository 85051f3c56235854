/*
 * One database in memory for all inputs (fuzz_manager): to make its tables and statements anew takes ten times as long as an input.
 *
 * mgr_db_open and mgr_db_close are replaced by the linker. The tables are set back to what they were when they were made; sqlite3_deserialize would
 * do that too, but makes every statement be prepared again. Called by the harness, on its only thread.
 */
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "manager/db.h"
#include "tests/fuzz/fuzz.h"

#define TABLES_MAX 40

int __real_mgr_db_open(struct mgr_db *db, const char *path, uint64_t cache_bytes, bool *created, char *why);
int __wrap_mgr_db_open(struct mgr_db *db, const char *path, uint64_t cache_bytes, bool *created, char *why);
void __wrap_mgr_db_close(struct mgr_db *db);

static struct mgr_db kept; /* as it was opened */
static struct {
    sqlite3_stmt *clear, *fill;
} table[TABLES_MAX];
static unsigned ntables;

static void run(const char *sql)
{
    FUZZ_CHECK(sqlite3_exec(kept.sq, sql, NULL, NULL, NULL) == SQLITE_OK);
}

static sqlite3_stmt *prepared(const char *sql)
{
    sqlite3_stmt *st = NULL;

    FUZZ_CHECK(sqlite3_prepare_v3(kept.sq, sql, -1, SQLITE_PREPARE_PERSISTENT, &st, NULL) == SQLITE_OK);
    return st;
}

/* A copy of every table beside them. */
static void remember(void)
{
    char names[TABLES_MAX][64];
    sqlite3_stmt *st = NULL;

    run("ATTACH ':memory:' AS first");
    FUZZ_CHECK(sqlite3_prepare_v2(kept.sq, "SELECT name FROM main.sqlite_master WHERE type = 'table'", -1, &st, NULL) == SQLITE_OK);
    while (sqlite3_step(st) == SQLITE_ROW) {
        FUZZ_CHECK(ntables < TABLES_MAX);
        snprintf(names[ntables++], sizeof names[0], "%s", (const char *)sqlite3_column_text(st, 0));
    }
    sqlite3_finalize(st);
    for (unsigned i = 0; i < ntables; i++) {
        char sql[300];

        snprintf(sql, sizeof sql, "CREATE TABLE first.%s AS SELECT * FROM main.%s", names[i], names[i]);
        run(sql);
    }
    for (unsigned i = 0; i < ntables; i++) {
        char sql[300];

        snprintf(sql, sizeof sql, "DELETE FROM main.%s", names[i]);
        table[i].clear = prepared(sql);
        snprintf(sql, sizeof sql, "INSERT INTO main.%s SELECT * FROM first.%s", names[i], names[i]);
        table[i].fill = prepared(sql);
    }
}

int __wrap_mgr_db_open(struct mgr_db *db, const char *path, uint64_t cache_bytes, bool *created, char *why)
{
    if (!kept.sq) {
        FUZZ_CHECK(__real_mgr_db_open(&kept, path, cache_bytes, created, why) == 0 && *created);
        remember();
    }
    run("BEGIN");
    for (unsigned i = 0; i < ntables; i++) {
        FUZZ_CHECK(sqlite3_step(table[i].clear) == SQLITE_DONE && sqlite3_step(table[i].fill) == SQLITE_DONE);
        sqlite3_reset(table[i].clear);
        sqlite3_reset(table[i].fill);
    }
    run("COMMIT");
    *db = kept;
    *created = true;
    why[0] = '\0';
    return 0;
}

void __wrap_mgr_db_close(struct mgr_db *db)
{
    if (!db->sq)
        return;
    for (int i = 0; i < MGR_ST_COUNT; i++) {
        sqlite3_reset(db->st[i]);
        sqlite3_clear_bindings(db->st[i]);
    }
    if (!sqlite3_get_autocommit(db->sq))
        run("ROLLBACK");
    memset(db, 0, sizeof *db);
    db->wal_fd = -1;
}
