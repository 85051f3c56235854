/* The manager's SQLite database: opening, transactions, prepared statements.
 *
 * Single-threaded: everything here is called by the thread that owns the struct mgr_db, and everything
 * may block on the disk. Errors are negative errnos (-ENOSPC, -EIO, -ENOMEM); the first one inside a
 * transaction sticks, so that the transaction as a whole can only be rolled back. */
#ifndef MGR_DB_H
#define MGR_DB_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sqlite3.h>

#include "manager/stmt.h"

#define MGR_DB_APPLICATION_ID 0x46505354 /* 'FPST' */
#define MGR_DB_VERSION        10
#define MGR_DB_WHY_MAX        512

struct mgr_db {
    sqlite3 *sq;
    sqlite3_stmt *st[MGR_ST_COUNT];
    int err; /* first failure of this transaction; 0: none */
    bool in_tx, begun;
    bool failing; /* last transaction failed: the log has been told */
    int wal_fd;   /* of our own, for fdatasync; -1: in memory */
    atomic_bool wal_torn; /* a sync failed: the WAL may have lost pages that look written */
    uint32_t wal_pages;
    char path[4096];
};

/* Opens or creates path (":memory:" for tests). A database of an older version is brought up to ours, in one
 * transaction. why: one line for the user. -EEXIST: a database, but not ours or of a newer version; otherwise as SQLite failed. *created: the tables are new and empty. */
int mgr_db_open(struct mgr_db *db, const char *path, uint64_t cache_bytes, bool *created,
                char why[MGR_DB_WHY_MAX]);

/* Writes the WAL back into the database and closes. */
void mgr_db_close(struct mgr_db *db);

int mgr_db_begin(struct mgr_db *db);
/* Commits, or rolls back when something failed since mgr_db_begin; returns that failure. After 0 the changes
 * survive a crash of the process; of the machine only after mgr_db_sync. */
int mgr_db_commit(struct mgr_db *db);
void mgr_db_rollback(struct mgr_db *db);
/* fdatasync of the WAL: what was committed before is on the device. The only function that any thread may
 * call. */
int mgr_db_sync(struct mgr_db *db);
/* Moves WAL pages into the database file. full: all of them, and truncates the WAL. */
int mgr_db_checkpoint(struct mgr_db *db, bool full);
/* A passive checkpoint through a connection of its own, for another thread than the owner's: does not stop
 * the writer. */
int mgr_db_checkpoint_aside(const char *path);
/* Size of database and WAL together. */
uint64_t mgr_db_size_bytes(struct mgr_db *db);

/* One parameter of a statement: DBI(integer), DBT(text), DBB(bytes, length). Texts and bytes are borrowed
 * until the statement is reset. */
struct mgr_arg {
    char kind; /* 0 ends the list */
    int64_t i; /* integer, or length */
    const void *p;
};
#define DBI(x)                    ((struct mgr_arg){.kind = 'i', .i = (int64_t)(x)})
#define DBT(s)                    ((struct mgr_arg){.kind = 't', .p = (s)})
#define DBB(b, n)                 ((struct mgr_arg){.kind = 'b', .p = (b), .i = (int64_t)(n)})
#define MGR_ARGS(...)             (((const struct mgr_arg[]){{.kind = 0}, ##__VA_ARGS__, {.kind = 0}}) + 1)

/* mgr_db_exec runs to the end and resets: 0 or the failure.
 * mgr_db_query binds; mgr_db_step(db, MGR_ST_X) gives 1 for a row, 0 at the end (reset then), or a failure
 * (reset); mgr_db_one is both. Whoever stops before the 0 calls mgr_db_reset. */
#define mgr_db_exec(db, st, ...)  mgr_db_exec_args((db), MGR_ST_##st, MGR_ARGS(__VA_ARGS__))
#define mgr_db_query(db, st, ...) mgr_db_query_args((db), MGR_ST_##st, MGR_ARGS(__VA_ARGS__))
#define mgr_db_one(db, st, ...)   mgr_db_one_args((db), MGR_ST_##st, MGR_ARGS(__VA_ARGS__))
int mgr_db_exec_args(struct mgr_db *db, enum mgr_stmt st, const struct mgr_arg *args);
int mgr_db_query_args(struct mgr_db *db, enum mgr_stmt st, const struct mgr_arg *args);
int mgr_db_one_args(struct mgr_db *db, enum mgr_stmt st, const struct mgr_arg *args);
int mgr_db_step(struct mgr_db *db, enum mgr_stmt st);
void mgr_db_reset(struct mgr_db *db, enum mgr_stmt st);

static inline int64_t mgr_col(const struct mgr_db *db, enum mgr_stmt st, int col)
{
    return sqlite3_column_int64(db->st[st], col);
}
/* Bytes of a blob or text; valid until the next step or reset. len may be NULL. */
const void *mgr_col_blob(struct mgr_db *db, enum mgr_stmt st, int col, size_t *len);
/* Never NULL. */
const char *mgr_col_text(struct mgr_db *db, enum mgr_stmt st, int col);

/* Text of the last SQLite failure. */
const char *mgr_db_errmsg(const struct mgr_db *db);

#endif
