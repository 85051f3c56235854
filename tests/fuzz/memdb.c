/*
 * One database in memory for all inputs (fuzz_manager): to make its tables and statements anew takes ten times as long as an input.
 *
 * mgr_db_open and mgr_db_close are replaced by the linker. What an input does lies in one transaction that is rolled back at its end; the product's own
 * BEGIN, COMMIT and ROLLBACK are those of a savepoint in it. To clear and fill the tables again took as long as forty messages, and
 * sqlite3_deserialize makes every statement be prepared again. Statements that are prepared for one use (the checks at the end) are kept, too, and
 * SQLite, which is not instrumented, gets its memory from lists of its own: AddressSanitizer's took a fifth of the time. What is read of SQLite's
 * results beyond their end is seen by the unit tests of make asan.
 *
 * Called by the harness, on its only thread.
 */
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>

#include "manager/db.h"
#include "tests/fuzz/fuzz.h"

#define PREPARED_MAX 64
#define CLASSES      20 /* 32 bytes .. 16 MiB */

int __real_mgr_db_open(struct mgr_db *db, const char *path, uint64_t cache_bytes, bool *created, char *why);
int __wrap_mgr_db_open(struct mgr_db *db, const char *path, uint64_t cache_bytes, bool *created, char *why);
void __wrap_mgr_db_close(struct mgr_db *db);
int __real_sqlite3_exec(sqlite3 *sq, const char *sql, int (*cb)(void *, int, char **, char **), void *arg, char **err);
int __wrap_sqlite3_exec(sqlite3 *sq, const char *sql, int (*cb)(void *, int, char **, char **), void *arg, char **err);
int __real_sqlite3_prepare_v2(sqlite3 *sq, const char *sql, int n, sqlite3_stmt **out, const char **tail);
int __wrap_sqlite3_prepare_v2(sqlite3 *sq, const char *sql, int n, sqlite3_stmt **out, const char **tail);
int __real_sqlite3_finalize(sqlite3_stmt *st);
int __wrap_sqlite3_finalize(sqlite3_stmt *st);

static struct mgr_db kept; /* as it was opened */
static struct prepared {
    char *sql; /* a copy */
    sqlite3_stmt *st;
    bool used;
} prepared[PREPARED_MAX];

/* -------------------------------------------------------------- memory */

struct block {
    size_t of; /* class */
    struct block *next;
};

static struct block *unused[CLASSES];

static void *mem_alloc(int n)
{
    struct block *b;
    size_t of = 0;

    while ((size_t)32 << of < (size_t)n)
        of++;
    if (of >= CLASSES)
        return NULL;
    b = unused[of];
    if (b)
        unused[of] = b->next;
    else if (!(b = malloc(sizeof *b + ((size_t)32 << of))))
        return NULL;
    b->of = of;
    return b + 1;
}

static void mem_free(void *p)
{
    struct block *b = (struct block *)p - 1;

    b->next = unused[b->of];
    unused[b->of] = b;
}

static int mem_size(void *p)
{
    return p ? 32 << ((struct block *)p - 1)->of : 0;
}

static void *mem_realloc(void *p, int n)
{
    void *more;

    if (n <= mem_size(p))
        return p;
    more = mem_alloc(n);
    if (more) {
        memcpy(more, p, (size_t)mem_size(p));
        mem_free(p);
    }
    return more;
}

static int mem_roundup(int n)
{
    return (n + 7) & ~7;
}

static int mem_init(void *arg)
{
    (void)arg;
    return SQLITE_OK;
}

static void mem_end(void *arg)
{
    (void)arg;
}

/* -------------------------------------------------------------- statements */

int __wrap_sqlite3_prepare_v2(sqlite3 *sq, const char *sql, int n, sqlite3_stmt **out, const char **tail)
{
    struct prepared *p = prepared;

    while (sq == kept.sq && p < prepared + PREPARED_MAX && p->sql && (p->used || strcmp(p->sql, sql) != 0)) /* not by its address: texts that are made for one query come to lie where another one was */
        p++;
    if (sq != kept.sq || p == prepared + PREPARED_MAX || n >= 0)
        return __real_sqlite3_prepare_v2(sq, sql, n, out, tail);
    if (!p->sql) {
        int rc = __real_sqlite3_prepare_v2(sq, sql, n, &p->st, tail);

        if (rc)
            return rc;
        p->sql = strdup(sql);
        FUZZ_CHECK(p->sql);
    }
    p->used = true;
    *out = p->st;
    return SQLITE_OK;
}

int __wrap_sqlite3_finalize(sqlite3_stmt *st)
{
    for (struct prepared *p = prepared; st && p < prepared + PREPARED_MAX && p->sql; p++)
        if (p->st == st) {
            p->used = false;
            return sqlite3_reset(st);
        }
    return __real_sqlite3_finalize(st);
}

/* Of what the product asks for only a rollback comes here once the database is open. */
int __wrap_sqlite3_exec(sqlite3 *sq, const char *sql, int (*cb)(void *, int, char **, char **), void *arg, char **err)
{
    int rc;

    if (sq != kept.sq || strcmp(sql, "ROLLBACK") != 0)
        return __real_sqlite3_exec(sq, sql, cb, arg, err);
    rc = __real_sqlite3_exec(sq, "ROLLBACK TO product", NULL, NULL, NULL); /* there is none when nothing was written */
    return rc ? SQLITE_OK : __real_sqlite3_exec(sq, "RELEASE product", NULL, NULL, NULL);
}

static sqlite3_stmt *instead(sqlite3_stmt *old, const char *sql)
{
    sqlite3_stmt *st = NULL;

    FUZZ_CHECK(sqlite3_prepare_v3(kept.sq, sql, -1, SQLITE_PREPARE_PERSISTENT, &st, NULL) == SQLITE_OK);
    __real_sqlite3_finalize(old);
    return st;
}

/* -------------------------------------------------------------- open and close */

int __wrap_mgr_db_open(struct mgr_db *db, const char *path, uint64_t cache_bytes, bool *created, char *why)
{
    static const sqlite3_mem_methods mem = {mem_alloc, mem_free, mem_realloc, mem_size, mem_roundup, mem_init, mem_end, NULL};

    if (!kept.sq) {
        struct mgr_db first = {0};

        FUZZ_CHECK(sqlite3_config(SQLITE_CONFIG_MALLOC, &mem) == SQLITE_OK && sqlite3_config(SQLITE_CONFIG_SINGLETHREAD) == SQLITE_OK);
        FUZZ_CHECK(__real_mgr_db_open(&first, path, cache_bytes, created, why) == 0 && *created);
        kept = first;
        kept.st[MGR_ST_BEGIN] = instead(kept.st[MGR_ST_BEGIN], "SAVEPOINT product");
        kept.st[MGR_ST_COMMIT] = instead(kept.st[MGR_ST_COMMIT], "RELEASE product");
    }
    FUZZ_CHECK(__real_sqlite3_exec(kept.sq, "BEGIN", NULL, NULL, NULL) == SQLITE_OK);
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
    FUZZ_CHECK(__real_sqlite3_exec(kept.sq, "ROLLBACK", NULL, NULL, NULL) == SQLITE_OK);
    memset(db, 0, sizeof *db);
    db->wal_fd = -1;
}
