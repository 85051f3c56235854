/* The database through crashes, and what it refuses to open. A crash of the process is imitated by copying
 * database and WAL as they are and opening the copy. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "fp/fault.h"
#include "mgr_fixture.h"

#define REG (S_IFREG | 0644)

static struct fix f;
static char dir[64], db[96], copy[96];

static int setup(void **state)
{
    (void)state;
    snprintf(dir, sizeof dir, "/tmp/test-mgr-db-XXXXXX");
    assert_non_null(mkdtemp(dir));
    snprintf(db, sizeof db, "%s/store.db", dir);
    snprintf(copy, sizeof copy, "%s/copy.db", dir);
    return 0;
}

static int teardown(void **state)
{
    static const char *const ends[] = {"", "-wal", "-shm"};
    char name[128];

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        snprintf(name, sizeof name, "%s%s", db, ends[i]);
        unlink(name);
        snprintf(name, sizeof name, "%s%s", copy, ends[i]);
        unlink(name);
    }
    return rmdir(dir);
}

/* Copies at most max bytes. */
static size_t copy_file(const char *from, const char *to, size_t max)
{
    FILE *in = fopen(from, "rb"), *out = fopen(to, "wb");
    size_t sum = 0;
    int ch;

    assert_non_null(out);
    while (in && sum < max && (ch = getc(in)) != EOF) {
        putc(ch, out);
        sum++;
    }
    if (in)
        fclose(in);
    fclose(out);
    return sum;
}

static size_t crash_copy(size_t wal_max)
{
    char from[128], to[128];

    copy_file(db, copy, SIZE_MAX);
    snprintf(from, sizeof from, "%s-wal", db);
    snprintf(to, sizeof to, "%s-wal", copy);
    return copy_file(from, to, wal_max);
}

static void test_answered_changes_survive_a_kill(void **state)
{
    uint64_t a, chunk;

    (void)state;
    fix_open(&f, db, false);
    a = fix_mk(&f, MGR_ROOT_INO, "a", REG);
    chunk = fix_write(&f, a, 0, 5000);
    assert_true(chunk);
    crash_copy(SIZE_MAX);
    fix_close(&f);

    fix_open(&f, copy, false);
    assert_int_equal(fix_lookup(&f, MGR_ROOT_INO, "a"), a);
    assert_int_equal(fix_sql(&f, "SELECT id FROM chunk"), (int64_t)chunk);
    assert_true(f.session > 1);
    fix_check(&f);
    assert_true(fix_mk(&f, MGR_ROOT_INO, "b", REG) > a);
    fix_check(&f);
    fix_close(&f);
}

static void test_any_part_of_the_wal_is_a_consistent_state(void **state)
{
    size_t len;

    (void)state;
    fix_open(&f, db, false);
    assert_int_equal(mgr_db_checkpoint(&f.core->db, true), 0);
    for (int i = 0; i < 20; i++) {
        char name[16];
        uint64_t ino;

        snprintf(name, sizeof name, "f%d", i);
        ino = fix_mk(&f, MGR_ROOT_INO, name, REG);
        assert_true(fix_write(&f, ino, 0, 5000));
        if (i % 3 == 0)
            assert_int_equal(fix_unlink(&f, MGR_ROOT_INO, name, false), 0);
    }
    len = crash_copy(SIZE_MAX);
    assert_true(len > 20000);
    for (size_t part = 0; part < len; part += len / 23) {
        struct fix g = f;

        crash_copy(part); /* power was lost: the end of the WAL is missing */
        fix_open(&f, copy, true);
        fix_check(&f);
        fix_close(&f);
        unlink(copy);
        f = g;
    }
    fix_close(&f);
}

/* By the helper thread's connection: else the loop has it to do, and everybody waits for the disk. */
static void test_checkpoint_aside_moves_the_wal(void **state)
{
    struct stat before, after;
    char name[16];

    (void)state;
    fix_open(&f, db, false);
    for (unsigned i = 0; i < 500; i++) {
        snprintf(name, sizeof name, "f%u", i);
        assert_true(fix_mk(&f, MGR_ROOT_INO, name, REG));
    }
    assert_int_equal(stat(db, &before), 0);
    assert_int_equal(mgr_db_checkpoint_aside(db), 0);
    assert_int_equal(stat(db, &after), 0);
    assert_true(after.st_size > before.st_size);
    fix_close(&f);
}

static void test_store_keeps_identity_and_defaults(void **state)
{
    struct mgr_core_opts o = {.store_uuid = {5, 5}, .chunk_size_bytes = 1 << 18, .stripe = 3},
                         none = {.store_uuid = {6}};
    struct mgr_now now = {1, 1};
    struct mgr_core *core;
    char why[MGR_DB_WHY_MAX];

    (void)state;
    assert_int_equal(mgr_core_new(&core, db, &o, now, why), 0);
    mgr_core_free(core);
    assert_int_equal(mgr_core_new(&core, db, &none, now, why), 0);
    assert_memory_equal(mgr_core_uuid(core), o.store_uuid, 16);
    assert_int_equal(core->chunk_size, 1 << 18);
    assert_int_equal(core->stripe, 3);
    assert_int_equal(core->n.inodes, 1);
    mgr_core_free(core);
}

/* fdatasync says that it failed once only; then the pages count as clean, written or not. */
static void test_after_a_failed_sync_the_wal_is_not_trusted(void **state)
{
    struct mgr_db *d;
    char wal[256];
    struct stat st;

    (void)state;
    fix_open(&f, db, false);
    d = mgr_core_db(f.core);
    snprintf(wal, sizeof wal, "%s-wal", db);
    assert_int_equal(fp_fault_set("mgr.sync=EIO:count=1"), 0);
    assert_true(fix_mk(&f, MGR_ROOT_INO, "a", S_IFREG | 0644) != 0);
    if (mgr_db_sync(d) == 0) { /* no fault points in this build */
        fix_close(&f);
        skip();
    }
    assert_int_equal(stat(wal, &st), 0);
    assert_true(st.st_size > 0);
    assert_int_equal(mgr_db_sync(d), 0);
    assert_int_equal(stat(wal, &st), 0);
    assert_int_equal(st.st_size, 0); /* all of it is in the database */
    assert_true(fix_mk(&f, MGR_ROOT_INO, "b", S_IFREG | 0644) != 0);
    assert_int_equal(mgr_db_sync(d), 0);
    assert_int_equal(stat(wal, &st), 0);
    assert_true(st.st_size > 0); /* as ever */
    assert_int_equal(fp_fault_set(NULL), 0);
    fix_check(&f);
    fix_close(&f);
}

static void sql(const char *path, const char *text)
{
    sqlite3 *sq;

    assert_int_equal(sqlite3_open(path, &sq), SQLITE_OK);
    assert_int_equal(sqlite3_exec(sq, text, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(sq);
}

static void test_open_refuses_other_databases(void **state)
{
    struct mgr_core_opts o = {.stripe = 0};
    struct mgr_now now = {1, 1};
    struct mgr_core *core;
    char why[MGR_DB_WHY_MAX];

    (void)state;
    sql(copy, "CREATE TABLE x(y)");
    assert_int_equal(mgr_core_new(&core, copy, &o, now, why), -EEXIST);
    assert_non_null(strstr(why, "another program"));
    fix_open(&f, db, false);
    fix_close(&f);
    sql(db, "PRAGMA user_version=99");
    assert_int_equal(mgr_core_new(&core, db, &o, now, why), -EEXIST);
    assert_non_null(strstr(why, "version 99"));
    copy_file("/dev/zero", copy, 8192);
    assert_true(mgr_core_new(&core, copy, &o, now, why) < 0);
    assert_non_null(strstr(why, copy));
    assert_true(mgr_core_new(&core, "/nonexistent/store.db", &o, now, why) < 0);
    assert_true(strchr(why, '\n') == NULL);
}

/* What version 1 did not have is taken away again. */
static const char to_version_1[] =
    "DROP TABLE bad_chunk; DROP TABLE note; DROP TABLE note_key; DROP TABLE hold; DROP TABLE aux_table; DROP TABLE aux_entry;"
    "ALTER TABLE chunk DROP COLUMN round; DROP TABLE bnf_sync; DROP TABLE bnf_lost; ALTER TABLE chunk DROP COLUMN data; ALTER TABLE chunk DROP COLUMN noted;"
    "ALTER TABLE session DROP COLUMN machine; ALTER TABLE session DROP COLUMN boot; ALTER TABLE session DROP COLUMN mount_ns;"
    "DROP INDEX inode_lost; DROP INDEX inode_torn; ALTER TABLE inode DROP COLUMN flags; DROP INDEX inode_ckpt; ALTER TABLE inode DROP COLUMN ckpt;"
    "DROP TABLE ckpt_series; DROP TABLE ckpt_set; DROP TABLE version; DROP TABLE version_win; DROP TABLE given_up; DROP TABLE overtaken; DROP TABLE policy;"
    "DROP TABLE target; DROP TABLE tfile; DROP TABLE ext; DROP TABLE drained; DROP TABLE drain_job; DROP TABLE drain_file; DROP TABLE drain_part;"
    "DROP INDEX xattr_convert; PRAGMA user_version=1";

static void test_database_of_version_1_is_brought_up(void **state)
{
    uint64_t a, chunk;

    (void)state;
    fix_open(&f, db, false);
    a = fix_mk(&f, MGR_ROOT_INO, "a", REG);
    chunk = fix_write(&f, a, 0, 5000);
    fix_close(&f);
    sql(db, to_version_1);
    fix_open(&f, db, false);
    assert_int_equal(fix_sql(&f, "PRAGMA user_version"), MGR_DB_VERSION);
    assert_int_equal(fix_lookup(&f, MGR_ROOT_INO, "a"), a);
    assert_int_equal(fix_sql(&f, "SELECT id FROM chunk WHERE data=0 AND noted=0"), (int64_t)chunk);
    assert_int_equal(fix_sql(&f, "SELECT count(*) FROM inode WHERE ckpt=0"), 2);
    assert_int_equal(fix_sql(&f, "SELECT count(*) FROM ckpt_set"), 0);
    assert_int_not_equal(fix_write(&f, a, 5000, 5000), 0);
    fix_check(&f);
    fix_close(&f);
    fix_open(&f, db, false); /* once */
    fix_check(&f);
    fix_close(&f);
}

static void test_conversions_of_version_7_are_found(void **state)
{
    (void)state;
    fix_open(&f, db, false);
    assert_int_equal(fix_set_xattr(&f, fix_mk(&f, MGR_ROOT_INO, "a", REG), "user.fp.convert", "waiting", 0), 0);
    fix_close(&f);
    sql(db, "DROP INDEX xattr_convert; PRAGMA user_version=7");
    fix_open(&f, db, false);
    assert_int_equal(fix_sql(&f, "PRAGMA user_version"), MGR_DB_VERSION);
    assert_int_equal(fix_sql(&f, "SELECT count(*) FROM xattr INDEXED BY xattr_convert WHERE name=x'757365722e66702e636f6e76657274'"), 1);
    fix_check(&f);
    fix_close(&f);
}

static void test_the_index_that_version_8_lacks_is_made(void **state)
{
    uint64_t a;

    (void)state;
    fix_open(&f, db, false);
    a = fix_mk(&f, MGR_ROOT_INO, "a", REG);
    fix_close(&f);
    sql(db, "DROP INDEX inode_lost; UPDATE inode SET flags=flags|512 WHERE mode&61440=32768; PRAGMA user_version=8");
    fix_open(&f, db, false);
    assert_int_equal(fix_sql(&f, "PRAGMA user_version"), MGR_DB_VERSION);
    assert_int_equal(fix_sql(&f, "SELECT ino FROM inode INDEXED BY inode_lost WHERE flags&512<>0 AND nlink>0"), (int64_t)a);
    fix_check(&f);
    fix_close(&f);
}

static void test_the_index_that_version_9_lacks_is_made(void **state)
{
    uint64_t a;

    (void)state;
    fix_open(&f, db, false);
    a = fix_mk(&f, fix_mk(&f, MGR_ROOT_INO, "chk_1", S_IFDIR | 0755), "a", REG);
    fix_close(&f);
    sql(db, "DROP INDEX inode_torn; UPDATE inode SET flags=flags|32 WHERE mode&61440=32768; PRAGMA user_version=9");
    fix_open(&f, db, false);
    assert_int_equal(fix_sql(&f, "PRAGMA user_version"), MGR_DB_VERSION);
    assert_int_equal(fix_sql(&f, "SELECT ino FROM inode INDEXED BY inode_torn WHERE ckpt<>0 AND flags&1568<>0"), (int64_t)a);
    fix_check(&f);
    fix_close(&f);
}

/* Damage was known by its places in files alone. */
static void test_damage_of_version_3_is_taken_over(void **state)
{
    uint64_t a, chunk;

    (void)state;
    fix_open(&f, db, false);
    a = fix_mk(&f, MGR_ROOT_INO, "a", REG);
    chunk = fix_write(&f, a, 0, 5000);
    fix_write(&f, a, 5000, 5000);
    fix_close(&f);
    sql(db, "DROP TABLE bad_chunk; INSERT INTO damage SELECT chunk,ino,off,len,1,1,'',0 FROM slice WHERE off=0;"
            "INSERT INTO damage SELECT chunk,ino,off+1,len,1,0,'',0 FROM slice WHERE off=0; PRAGMA user_version=3;"
            "DROP INDEX inode_lost; DROP INDEX inode_torn; ALTER TABLE inode DROP COLUMN flags; DROP INDEX inode_ckpt; ALTER TABLE inode DROP COLUMN ckpt; ALTER TABLE chunk DROP COLUMN round");
    fix_open(&f, db, false);
    assert_int_equal(fix_sql(&f, "PRAGMA user_version"), MGR_DB_VERSION);
    assert_int_equal(fix_sql(&f, "SELECT count(*) FROM bad_chunk WHERE missing=0"), 1);
    assert_int_equal(fix_sql(&f, "SELECT chunk FROM bad_chunk"), (int64_t)chunk);
    fix_check(&f);
    assert_int_equal(fix_truncate(&f, a, 0), 0);
    assert_int_equal(fix_sql(&f, "SELECT count(*) FROM damage"), 0);
    fix_check(&f);
    fix_close(&f);
}

/* All or nothing: what stands in the way of a later step takes the earlier ones back. */
static void test_failed_migration_leaves_the_older_database_as_it_is(void **state)
{
    struct mgr_core_opts o = {.stripe = 0};
    struct mgr_now now = {1, 1};
    struct mgr_core *core;
    char why[MGR_DB_WHY_MAX];

    (void)state;
    fix_open(&f, db, false);
    fix_close(&f);
    sql(db, to_version_1);
    sql(db, "CREATE TABLE hold_chunk(x)"); /* the name of an index */
    assert_true(mgr_core_new(&core, db, &o, now, why) < 0);
    assert_non_null(strstr(why, db));
    sql(db, "DROP TABLE hold_chunk; ALTER TABLE chunk ADD COLUMN data"); /* it is not there */
    sql(db, "ALTER TABLE chunk DROP COLUMN data");
    fix_open(&f, db, false);
    fix_check(&f);
    fix_close(&f);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_answered_changes_survive_a_kill),
        T(test_any_part_of_the_wal_is_a_consistent_state),
        T(test_after_a_failed_sync_the_wal_is_not_trusted),
        T(test_checkpoint_aside_moves_the_wal),
        T(test_store_keeps_identity_and_defaults),
        T(test_open_refuses_other_databases),
        T(test_database_of_version_1_is_brought_up),
        T(test_conversions_of_version_7_are_found),
        T(test_the_index_that_version_8_lacks_is_made),
        T(test_the_index_that_version_9_lacks_is_made),
        T(test_damage_of_version_3_is_taken_over),
        T(test_failed_migration_leaves_the_older_database_as_it_is),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
