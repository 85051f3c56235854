/* The database: what SQLite is asked to do, and how its failures become ours.
 *
 * WAL mode with synchronous=NORMAL: a COMMIT is a write() to the WAL, which survives the death of the
 * process; what must survive the death of the machine is followed by one fdatasync of the WAL (mgr_db_sync),
 * for the whole batch of requests at once. Switching synchronous to FULL for such batches was rejected: the
 * pragma can't be changed inside a transaction, and whether a batch has to be durable is known only at its
 * end.
 *
 * Requests check everything before they write, so a logical error leaves nothing behind; a failure of SQLite
 * itself (disk full, I/O error) dooms the transaction: db->err sticks until mgr_db_commit rolls back. SQLite
 * may have rolled back on its own by then (sqlite3_get_autocommit).
 *
 * Pages of 2 KiB (of a new database): a transaction with a single create touches six of them, and their sums
 * and copies are most of its cost: 29 us against 34 with 4 KiB. 1 KiB would take 27, but long names would
 * spill to overflow pages.
 *
 * Not locking_mode=EXCLUSIVE, which would save some lock calls per transaction: people want to look into the
 * database with sqlite3 while the manager runs. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fp/bug.h"
#include "fp/fault.h"
#include "fp/log.h"
#include "manager/db.h"
#include "manager/walvfs.h"

static const char schema[] =
#include "mgr_schema.inc"
    ;

static const char *const stmt_text[] = {
#define MGR_STMT_TEXT(name, text) text,
    MGR_STMT_LIST(MGR_STMT_TEXT)
#undef MGR_STMT_TEXT
};

static int err_of(const struct mgr_db *db, int rc)
{
    switch (rc & 0xff) {
    case SQLITE_FULL:
        return -ENOSPC;
    case SQLITE_NOMEM:
        return -ENOMEM;
    case SQLITE_IOERR:
        return db->sq && sqlite3_system_errno(db->sq) == ENOSPC ? -ENOSPC : -EIO;
    default:
        return -EIO;
    }
}

/* Tells the log, once per run of failures. */
static int report(struct mgr_db *db, int err, const char *what)
{
    if (!db->failing)
        FP_ERROR("database %s: %s (%s): requests fail until this is repaired", db->path, what,
                 err == -ENOSPC ? "the disk is full: make room" : "check the disk");
    db->failing = true;
    return err;
}

/* Remembers the failure: the transaction can only be rolled back. */
static int fail(struct mgr_db *db, int rc)
{
    int err = report(db, err_of(db, rc), mgr_db_errmsg(db));

    if (!db->err)
        db->err = err;
    return err;
}

const char *mgr_db_errmsg(const struct mgr_db *db)
{
    return db->sq ? sqlite3_errmsg(db->sq) : "not open";
}

/* ---------------------------------------------------------------- open and close */

static int pragma_int(struct mgr_db *db, const char *sql, int64_t *out)
{
    sqlite3_stmt *st = NULL;
    int rc = sqlite3_prepare_v2(db->sq, sql, -1, &st, NULL);

    if (rc == SQLITE_OK)
        rc = sqlite3_step(st);
    if (rc == SQLITE_ROW)
        *out = sqlite3_column_int64(st, 0);
    sqlite3_finalize(st);
    return rc == SQLITE_ROW ? SQLITE_OK : rc;
}

static int settings(struct mgr_db *db, uint64_t cache_bytes)
{
    char sql[256];

    snprintf(sql, sizeof sql,
             "PRAGMA cache_size=-%llu; PRAGMA synchronous=NORMAL; PRAGMA temp_store=MEMORY;"
             "PRAGMA wal_autocheckpoint=0; PRAGMA journal_size_limit=%d; PRAGMA foreign_keys=OFF;",
             (unsigned long long)(cache_bytes >> 10), 64 << 20);
    return sqlite3_exec(db->sq, sql, NULL, NULL, NULL);
}

/* From version i + 1 to i + 2, what the schema's CREATE ... IF NOT EXISTS can't do. Columns are added at the end, with a
 * default, so no row is rewritten and a big database is as fast as a small one. */
static const char *const steps[MGR_DB_VERSION - 1] = {
    "ALTER TABLE chunk ADD COLUMN data INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE chunk ADD COLUMN noted INTEGER NOT NULL DEFAULT 0;",
    "ALTER TABLE session ADD COLUMN machine INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE session ADD COLUMN boot INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE session ADD COLUMN mount_ns INTEGER NOT NULL DEFAULT 0;",
    "CREATE TABLE bad_chunk (chunk INTEGER PRIMARY KEY, missing INTEGER NOT NULL);"
    "INSERT INTO bad_chunk SELECT chunk,min(missing) FROM damage GROUP BY chunk;",
    "", /* the schema makes the table */
    "ALTER TABLE inode ADD COLUMN flags INTEGER NOT NULL DEFAULT 0;",
    "ALTER TABLE inode ADD COLUMN ckpt INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE chunk ADD COLUMN round INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE bad_chunk ADD COLUMN bnf INTEGER NOT NULL DEFAULT 0;",
    "", /* the schema makes the index */
    "", /* … */
    "", /* … */
};

/* Brings the tables from a version (0: there are none) to ours. */
static int make_tables(struct mgr_db *db, int version)
{
    char sql[64];
    int rc = sqlite3_exec(db->sq, "BEGIN IMMEDIATE", NULL, NULL, NULL);

    for (int v = version; version && v < MGR_DB_VERSION && rc == SQLITE_OK; v++)
        rc = sqlite3_exec(db->sq, steps[v - 1], NULL, NULL, NULL);
    if (rc == SQLITE_OK)
        rc = sqlite3_exec(db->sq, schema, NULL, NULL, NULL);
    if (rc == SQLITE_OK && !version)
        rc = sqlite3_exec(db->sq, "INSERT INTO counters VALUES(1,2,16,1,1,0,0,0)", NULL, NULL, NULL);
    snprintf(sql, sizeof sql, "PRAGMA user_version=%d; COMMIT", MGR_DB_VERSION);
    if (rc == SQLITE_OK)
        rc = sqlite3_exec(db->sq, sql, NULL, NULL, NULL);
    if (rc == SQLITE_OK && version)
        FP_INFO("database %s: brought from schema version %d to %d: older releases can't open it any more", db->path,
                version, MGR_DB_VERSION);
    return rc;
}

/* Makes the tables in a new database and those that an older one lacks, or checks that the one found is ours. */
static int check_schema(struct mgr_db *db, bool *created, char *why)
{
    int64_t app = 0, version = 0, tables = 0;
    char sql[64];
    int rc = pragma_int(db, "PRAGMA application_id", &app);

    if (rc == SQLITE_OK)
        rc = pragma_int(db, "PRAGMA user_version", &version);
    if (rc == SQLITE_OK)
        rc = pragma_int(db, "SELECT count(*) FROM sqlite_schema", &tables);
    if (rc != SQLITE_OK)
        return rc;
    *created = tables == 0;
    if (tables && app != MGR_DB_APPLICATION_ID) {
        snprintf(why, MGR_DB_WHY_MAX, "%.300s is a database of another program: choose another --dir", db->path);
        return SQLITE_MISMATCH;
    }
    if (tables && (version > MGR_DB_VERSION || version < 1)) {
        snprintf(why, MGR_DB_WHY_MAX,
                 "%.300s has schema version %d, this fp-manager has %d: use the release that wrote it", db->path,
                 (int)version, MGR_DB_VERSION);
        return SQLITE_MISMATCH;
    }
    if (tables && version == MGR_DB_VERSION)
        return SQLITE_OK;
    if (tables)
        return make_tables(db, (int)version);
    snprintf(sql, sizeof sql, "PRAGMA application_id=%d", MGR_DB_APPLICATION_ID);
    rc = sqlite3_exec(db->sq, sql, NULL, NULL, NULL);
    return rc == SQLITE_OK ? make_tables(db, 0) : rc;
}

static int prepare_all(struct mgr_db *db)
{
    for (int i = 0; i < MGR_ST_COUNT; i++) {
        int rc = sqlite3_prepare_v3(db->sq, stmt_text[i], -1, SQLITE_PREPARE_PERSISTENT, &db->st[i], NULL);

        if (rc != SQLITE_OK)
            return rc;
    }
    return SQLITE_OK;
}

static int on_wal(void *arg, sqlite3 *sq, const char *name, int pages)
{
    (void)sq;
    (void)name;
    ((struct mgr_db *)arg)->wal_pages = (uint32_t)pages;
    return SQLITE_OK;
}

/* The names of database and WAL must be as durable as what is synced into them. */
static int sync_dir(const char *path)
{
    char dir[4096];
    char *slash;
    int fd, rc;

    strcpy(dir, path);
    slash = strrchr(dir, '/');
    strcpy(slash ? slash + 1 : dir, ".");
    fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    rc = fd < 0 ? -errno : fsync(fd) != 0 ? -errno : 0;
    if (fd >= 0)
        close(fd);
    return rc;
}

static int open_all(struct mgr_db *db, uint64_t cache_bytes, bool *created, char *why)
{
    bool memory = strcmp(db->path, ":memory:") == 0;
    char wal[sizeof db->path + 8];
    int rc = sqlite3_open_v2(db->path, &db->sq,
                             SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, mgr_walvfs_name());

    if (rc != SQLITE_OK)
        return rc;
    sqlite3_busy_timeout(db->sq, 1000);
    if (!memory)
        rc = sqlite3_exec(db->sq, "PRAGMA page_size=2048; PRAGMA journal_mode=WAL", NULL, NULL, NULL);
    if (rc == SQLITE_OK)
        rc = settings(db, cache_bytes);
    if (rc == SQLITE_OK)
        rc = check_schema(db, created, why);
    if (rc == SQLITE_OK)
        rc = prepare_all(db);
    if (rc != SQLITE_OK || memory)
        return rc;
    sqlite3_wal_hook(db->sq, on_wal, db);
    snprintf(wal, sizeof wal, "%s-wal", db->path);
    db->wal_fd = open(wal, O_RDONLY | O_CLOEXEC);
    if (db->wal_fd < 0) { /* no WAL before the first write */
        sqlite3_exec(db->sq, "BEGIN IMMEDIATE; UPDATE counters SET one=1; COMMIT", NULL, NULL, NULL);
        db->wal_fd = open(wal, O_RDONLY | O_CLOEXEC);
    }
    return db->wal_fd < 0 || sync_dir(db->path) ? SQLITE_CANTOPEN : SQLITE_OK;
}

int mgr_db_open(struct mgr_db *db, const char *path, uint64_t cache_bytes, bool *created,
                char why[MGR_DB_WHY_MAX])
{
    int rc, err;

    memset(db, 0, sizeof *db);
    db->wal_fd = -1;
    why[0] = 0;
    if (strlen(path) >= sizeof db->path) {
        snprintf(why, MGR_DB_WHY_MAX, "path of the database is too long: choose a shorter --dir");
        return -ENAMETOOLONG;
    }
    strcpy(db->path, path);
    rc = open_all(db, cache_bytes, created, why);
    if (rc == SQLITE_OK)
        return 0;
    if (!why[0])
        snprintf(why, MGR_DB_WHY_MAX,
                 "cannot open the database %.300s: %s: check disk and permissions, or restore a copy", path,
                 mgr_db_errmsg(db));
    err = rc == SQLITE_MISMATCH ? -EEXIST : err_of(db, rc);
    mgr_db_close(db);
    return err;
}

void mgr_db_close(struct mgr_db *db)
{
    if (!db->sq)
        return;
    for (int i = 0; i < MGR_ST_COUNT; i++)
        sqlite3_finalize(db->st[i]);
    sqlite3_close_v2(db->sq);
    if (db->wal_fd >= 0)
        close(db->wal_fd);
    memset(db, 0, sizeof *db);
    db->wal_fd = -1;
}

/* ---------------------------------------------------------------- transactions */

int mgr_db_begin(struct mgr_db *db)
{
    db->err = 0;
    db->in_tx = true;
    db->begun = false;
    return 0;
}

/* BEGIN comes with the first statement: many groups have none (releases, keep-alives). */
static int begin_now(struct mgr_db *db)
{
    int rc;

    db->begun = true;
    rc = sqlite3_step(db->st[MGR_ST_BEGIN]);
    sqlite3_reset(db->st[MGR_ST_BEGIN]);
    return rc == SQLITE_DONE ? 0 : fail(db, sqlite3_extended_errcode(db->sq));
}

void mgr_db_rollback(struct mgr_db *db)
{
    int err = db->err;

    for (int i = 0; i < MGR_ST_COUNT; i++)
        sqlite3_reset(db->st[i]);
    if (!sqlite3_get_autocommit(db->sq))
        sqlite3_exec(db->sq, "ROLLBACK", NULL, NULL, NULL);
    db->in_tx = false;
    db->err = err;
}

int mgr_db_commit(struct mgr_db *db)
{
    bool wrote = sqlite3_txn_state(db->sq, NULL) == SQLITE_TXN_WRITE;
    int err;

    if (!db->err && db->begun) {
        int injected = FP_FAULT_POINT("mgr.commit");

        if (injected < 0)
            db->err = report(db, injected, "injected failure");
        else
            mgr_db_exec(db, COMMIT);
    }
    db->begun = false;
    err = db->err;
    if (err) {
        mgr_db_rollback(db);
    } else if (wrote) {
        if (db->failing)
            FP_INFO("database %s: works again", db->path);
        db->failing = false;
    }
    db->in_tx = false;
    db->err = 0;
    return err;
}

/* After a failed sync Linux takes the pages for clean, and the next sync succeeds without them: recovery
 * would stop at the gap, before all that is committed later. So everything goes into the database, which is
 * synced as a file of its own, and the WAL begins anew. */
static int leave_wal(struct mgr_db *db)
{
    int log = -1, done = -1;
    sqlite3 *sq = NULL;
    int rc = sqlite3_open_v2(db->path, &sq, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL);

    if (rc == SQLITE_OK)
        rc = sqlite3_busy_timeout(sq, 500);
    if (rc == SQLITE_OK)
        rc = sqlite3_exec(sq, "PRAGMA wal_autocheckpoint=0; PRAGMA synchronous=FULL", NULL, NULL, NULL);
    if (rc == SQLITE_OK)
        rc = sqlite3_wal_checkpoint_v2(sq, "main", SQLITE_CHECKPOINT_TRUNCATE, &log, &done);
    sqlite3_close(sq);
    if (rc != SQLITE_OK || log != done)
        return rc == SQLITE_FULL ? -ENOSPC : -EIO;
    FP_INFO("database %s: synced again", db->path);
    atomic_store(&db->wal_torn, false);
    return 0;
}

int mgr_db_sync(struct mgr_db *db)
{
    int err = FP_FAULT_POINT("mgr.sync");

    if (db->wal_fd < 0)
        return err;
    if (err == 0 && atomic_load(&db->wal_torn))
        return leave_wal(db);
    if (err == 0 && !FP_BUG("mgr-answers-before-sync") && fdatasync(db->wal_fd) != 0)
        err = -errno;
    if (err == 0)
        return 0;
    atomic_store(&db->wal_torn, true);
    FP_ERROR("database %s: sync of the WAL: %s: check the disk", db->path, strerror(-err));
    return err == -ENOSPC ? err : -EIO;
}

int mgr_db_checkpoint(struct mgr_db *db, bool full)
{
    int rc = sqlite3_wal_checkpoint_v2(
        db->sq, "main", full ? SQLITE_CHECKPOINT_TRUNCATE : SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);

    if (rc != SQLITE_OK && rc != SQLITE_BUSY && rc != SQLITE_LOCKED)
        return err_of(db, rc);
    if (full)
        db->wal_pages = 0;
    return 0;
}

int mgr_db_checkpoint_aside(const char *path)
{
    sqlite3 *sq = NULL;
    int rc = sqlite3_open_v2(path, &sq, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL);

    if (rc == SQLITE_OK) /* a connection that has read nothing does not know of the WAL, and its checkpoint does nothing */
        rc = sqlite3_exec(sq, "PRAGMA wal_autocheckpoint=0; SELECT count(*) FROM sqlite_schema", NULL, NULL, NULL);
    if (rc == SQLITE_OK)
        rc = sqlite3_wal_checkpoint_v2(sq, NULL, SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);
    sqlite3_close(sq);
    return rc == SQLITE_OK || rc == SQLITE_BUSY || rc == SQLITE_LOCKED ? 0
           : rc == SQLITE_FULL                                         ? -ENOSPC
                                                                       : -EIO;
}

uint64_t mgr_db_size_bytes(struct mgr_db *db)
{
    struct stat st;
    uint64_t sum = 0;

    if (stat(db->path, &st) == 0)
        sum += (uint64_t)st.st_size;
    if (db->wal_fd >= 0 && fstat(db->wal_fd, &st) == 0)
        sum += (uint64_t)st.st_size;
    return sum;
}

/* ---------------------------------------------------------------- statements */

static int bind(struct mgr_db *db, sqlite3_stmt *st, const struct mgr_arg *args)
{
    int rc = SQLITE_OK;

    for (int i = 1; args->kind && rc == SQLITE_OK; args++, i++) {
        const void *p = args->p ? args->p : ""; /* a NULL pointer would be SQL NULL */

        if (args->kind == 'i')
            rc = sqlite3_bind_int64(st, i, args->i);
        else if (args->kind == 't')
            rc = sqlite3_bind_text(st, i, p, -1, SQLITE_STATIC);
        else
            rc = sqlite3_bind_blob64(st, i, p, (sqlite3_uint64)args->i, SQLITE_STATIC);
    }
    return rc == SQLITE_OK ? 0 : fail(db, rc);
}

int mgr_db_step(struct mgr_db *db, enum mgr_stmt st)
{
    int rc = sqlite3_step(db->st[st]);

    if (rc == SQLITE_ROW)
        return 1;
    if (rc == SQLITE_DONE) {
        sqlite3_reset(db->st[st]);
        return 0;
    }
    rc = fail(db, sqlite3_extended_errcode(db->sq));
    sqlite3_reset(db->st[st]);
    return rc;
}

void mgr_db_reset(struct mgr_db *db, enum mgr_stmt st)
{
    sqlite3_reset(db->st[st]);
}

int mgr_db_query_args(struct mgr_db *db, enum mgr_stmt st, const struct mgr_arg *args)
{
    if (db->in_tx && !db->begun && !db->err)
        begin_now(db);
    return db->err ? db->err : bind(db, db->st[st], args);
}

int mgr_db_one_args(struct mgr_db *db, enum mgr_stmt st, const struct mgr_arg *args)
{
    int rc = mgr_db_query_args(db, st, args);

    return rc ? rc : mgr_db_step(db, st);
}

int mgr_db_exec_args(struct mgr_db *db, enum mgr_stmt st, const struct mgr_arg *args)
{
    int rc = mgr_db_one_args(db, st, args);

    if (rc > 0)
        mgr_db_reset(db, st);
    return rc < 0 ? rc : 0;
}

const void *mgr_col_blob(struct mgr_db *db, enum mgr_stmt st, int col, size_t *len)
{
    const void *p = sqlite3_column_blob(db->st[st], col);

    if (len)
        *len = (size_t)sqlite3_column_bytes(db->st[st], col);
    return p ? p : "";
}

const char *mgr_col_text(struct mgr_db *db, enum mgr_stmt st, int col)
{
    const char *p = (const char *)sqlite3_column_text(db->st[st], col);

    return p ? p : "";
}
