/* Benefactors: state, table, deletes until confirmed, inventory, damage, totals; and failures of the
 * database. */
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
#include "fp/frame.h"
#include "mgr_one.h"

#define ROOT   MGR_ROOT_INO
#define REG    (S_IFREG | 0644)
#define MSG(x) FP__MSG_TYPE__MSG_##x

static int teardown_faults(void **state)
{
    fp_fault_set(NULL);
    return teardown(state);
}

static Fp__BnfTable *table_of_last_call(void)
{
    const struct fix_out *o = fix_out_find(&f, f.conn, MSG(BNF_TABLE));

    return o ? fp__bnf_table__unpack(NULL, o->len, o->bytes) : NULL;
}

static void keepalive(Fp__BnfState state, uint64_t free_bytes)
{
    Fp__BnfInfo i = fix_bnf_info();

    i.free_bytes = free_bytes;
    i.state = state;
    fix_heard(&f, i);
}

static void test_table_goes_out_at_changes(void **state)
{
    Fp__BnfTable *t;

    (void)state;
    keepalive(FP__BNF_STATE__BNF_OK, 1u << 30);
    keepalive(FP__BNF_STATE__BNF_OK, 1u << 30);
    assert_null(table_of_last_call());
    keepalive(FP__BNF_STATE__BNF_FULL, 0);
    t = table_of_last_call();
    assert_int_equal(t->n_benefactors, 1);
    assert_int_equal(t->benefactors[0]->state, FP__BNF_STATE__BNF_FULL);
    fix_free(t);
    fix_tick(&f, 4000); /* silence */
    t = table_of_last_call();
    assert_int_equal(t->benefactors[0]->state, FP__BNF_STATE__BNF_DOWN);
    fix_free(t);
    keepalive(FP__BNF_STATE__BNF_OK, 5);
    t = table_of_last_call();
    assert_int_equal(t->benefactors[0]->state, FP__BNF_STATE__BNF_OK);
    fix_free(t);
    fix_lost(&f, f.bnf_conn);
    t = table_of_last_call();
    assert_int_equal(t->benefactors[0]->state, FP__BNF_STATE__BNF_DOWN);
    fix_free(t);
}

/* Entries of all tables that conn was sent in the last call. */
static size_t entries_for(const struct mgr_conn *conn, size_t *messages)
{
    size_t n = 0;

    *messages = 0;
    for (size_t i = 0; i < f.out_count; i++) {
        Fp__BnfTable *t;

        if (f.outs[i].conn != conn || f.outs[i].type != MSG(BNF_TABLE))
            continue;
        assert_true(f.outs[i].len <= FP_FRAME_MSG_MAX_BYTES);
        t = fp__bnf_table__unpack(NULL, f.outs[i].len, f.outs[i].bytes);
        n += t->n_benefactors;
        ++*messages;
        fix_free(t);
    }
    return n;
}

static void hello_numbered(struct mgr_conn *conn, uint32_t number)
{
    Fp__Hello h = FP__HELLO__INIT;
    Fp__BnfInfo i = FP__BNF_INFO__INIT;
    uint8_t uuid[16] = {9};

    memcpy(uuid + 4, &number, sizeof number);
    h.protocol = 1;
    h.role = FP__ROLE__ROLE_BENEFACTOR;
    h.benefactor = &i;
    i.uuid = (ProtobufCBinaryData){16, uuid};
    i.node = h.node = (char *)"a-node-with-a-name-of-some-length.cluster.example.org";
    i.addr = (char *)"192.168.100.100:7500";
    i.local_path = (char *)"/run/fpstore/a-directory-of-a-user/a-store-with-a-name/benefactor.sock";
    i.backend = (char *)"dir";
    i.capacity_bytes = i.free_bytes = UINT64_C(1) << 42;
    fix_free(fix_call(&f, conn, MSG(HELLO), &h, &fp__hello_reply__descriptor));
    assert_int_equal(f.status, 0);
}

static void test_table_holds_only_what_has_changed(void **state)
{
    struct mgr_conn *mount = fix_conn(&f);
    size_t messages;

    (void)state;
    for (uint32_t i = 0; i < 20; i++)
        hello_numbered(fix_conn(&f), i);
    assert_int_equal(entries_for(f.conn, &messages), 1); /* of the last one */
    fix_hello_client(&f, mount, 0, NULL);
    assert_int_equal(entries_for(mount, &messages), 21);
    assert_int_equal(entries_for(f.conn, &messages), 0);
    keepalive(FP__BNF_STATE__BNF_FULL, 0);
    assert_int_equal(entries_for(mount, &messages), 1);
    assert_int_equal(entries_for(f.conn, &messages), 1);
    fix_tick(&f, 1500); /* nothing is told twice */
    assert_int_equal(entries_for(mount, &messages), 0);
}

/* Also where there are more benefactors than fit into a frame. */
static void test_table_of_many_comes_in_several_messages(void **state)
{
    enum { MANY = 12000 };
    struct mgr_conn *mount = fix_conn(&f);
    size_t messages;

    (void)state;
    for (uint32_t i = 0; i < MANY; i++)
        hello_numbered(fix_conn(&f), i);
    fix_hello_client(&f, mount, 0, NULL);
    assert_int_equal(entries_for(mount, &messages), MANY + 1);
    assert_in_range(messages, 2, 10);
}

/* Keep-alives of all, in one group, whose frames are not looked at. */
static void space_changes_everywhere(struct mgr_conn *const *conns, size_t n, uint64_t free_bytes)
{
    Fp__KeepAlive k = FP__KEEP_ALIVE__INIT;
    Fp__BnfInfo i = FP__BNF_INFO__INIT;
    uint8_t buf[256];
    bool durable;

    i.capacity_bytes = UINT64_C(1) << 42;
    i.free_bytes = free_bytes;
    k.info = &i;
    f.now.ms++;
    mgr_core_begin(f.core, f.now);
    for (size_t j = 0; j < n; j++)
        mgr_core_notice(f.core, conns[j], MSG(KEEPALIVE), buf, fp__keep_alive__pack(&k, buf));
    assert_int_equal(mgr_core_end(f.core, &durable), 0);
    mgr_core_reset(f.core);
}

/* 50 mounts and 10,000 benefactors: what would be 500,000 entries a second is 250,000. A change of state does not wait for its turn. */
static void test_space_is_told_in_turns_where_much_is_to_be_told(void **state)
{
    enum { BNFS = 10000, MOUNTS = 50 };
    static struct mgr_conn *bnfs[BNFS];
    size_t messages, n, sum = 0;

    (void)state;
    for (uint32_t i = 0; i < BNFS; i++)
        hello_numbered(bnfs[i] = fix_conn(&f), i);
    for (uint32_t i = 0; i < MOUNTS; i++)
        fix_hello_client(&f, fix_conn(&f), 0, NULL);
    for (uint64_t i = 0; i < 16; i++) {
        space_changes_everywhere(bnfs, BNFS, 1000 + i);
        fix_tick(&f, 500);
        n = entries_for(f.conn, &messages);
        assert_in_range(n, 0, 250000 / MOUNTS + 1);
        sum += n;
    }
    assert_in_range(sum, 6 * 250000 / (MOUNTS + 2), 8 * 250000 / MOUNTS);
    keepalive(FP__BNF_STATE__BNF_FULL, 0);
    assert_non_null(fix_out_find(&f, f.conn, MSG(BNF_TABLE)));
}

static void test_benefactor_keeps_its_number(void **state)
{
    struct mgr_conn *other = fix_conn(&f), *again = fix_conn(&f);

    (void)state;
    assert_int_equal(fix_hello_bnf(&f, other, 8, 1u << 20), 2);
    fix_lost(&f, f.bnf_conn);
    assert_int_equal(fix_hello_bnf(&f, again, 7, 1u << 30), 1);
}

/* Answers the delete that was last sent, confirming all but the ids in `not`. */
static size_t confirm(uint64_t keep)
{
    const struct fix_out *o = fix_out_find(&f, f.bnf_conn, MSG(DELETE));
    Fp__ChunkList *l;
    size_t n;

    if (!o)
        return 0;
    assert_true(o->durable); /* else the map could come back without the chunk */
    l = fp__chunk_list__unpack(NULL, o->len, o->bytes);
    n = l->n_ids;
    for (size_t i = 0; i < l->n_ids; i++)
        if (l->ids[i] == keep)
            l->ids[i] = l->ids[--l->n_ids];
    fix_answer(&f, f.bnf_conn, MSG(DELETE), 0, l);
    fix_free(l);
    return n;
}

static void test_deletes_go_out_at_once_and_until_confirmed(void **state)
{
    uint64_t a = fix_mk(&f, ROOT, "a", REG), c1, c2;

    (void)state;
    c1 = fix_write(&f, a, 0, 5000);
    c2 = fix_write(&f, a, 1 << 20, 5000);
    assert_true(c1 && c2);
    assert_int_equal(fix_unlink(&f, ROOT, "a", false), 0);
    assert_int_equal(confirm(c1), 2);
    assert_int_equal(fix_sql(&f, "SELECT chunk FROM garbage"), (int64_t)c1);
    fix_lost(&f, f.bnf_conn); /* and comes back: the rest is sent again */
    f.bnf_conn = fix_conn(&f);
    fix_hello_bnf(&f, f.bnf_conn, 7, 1u << 30);
    assert_int_equal(confirm(0), 1);
    assert_int_equal(fix_sql(&f, "SELECT count(*) FROM garbage"), 0);
}

static void test_unconfirmed_delete_is_tried_again(void **state)
{
    uint64_t a = fix_mk(&f, ROOT, "a", REG), c1 = fix_write(&f, a, 0, 5000);

    (void)state;
    assert_int_equal(fix_unlink(&f, ROOT, "a", false), 0);
    assert_int_equal(confirm(c1), 1);
    assert_int_equal(fix_sql(&f, "SELECT count(*) FROM garbage"), 1);
    fix_tick(&f, 2500);
    assert_int_equal(confirm(0), 1);
    assert_int_equal(fix_sql(&f, "SELECT count(*) FROM garbage"), 0);
}

static void test_failed_delete_is_tried_again(void **state)
{
    uint64_t a = fix_mk(&f, ROOT, "a", REG);

    (void)state;
    assert_true(fix_write(&f, a, 0, 5000));
    assert_int_equal(fix_unlink(&f, ROOT, "a", false), 0);
    assert_non_null(fix_out_find(&f, f.bnf_conn, MSG(DELETE)));
    fix_answer(&f, f.bnf_conn, MSG(DELETE), -ETIMEDOUT, NULL);
    fix_tick(&f, 2500);
    assert_int_equal(confirm(0), 1);
}

/* Answers the page of the inventory that was asked for. */
static void inventory(const uint64_t *ids, size_t n, bool eof)
{
    Fp__InventoryReply r = FP__INVENTORY_REPLY__INIT;

    r.ids = (uint64_t *)ids;
    r.n_ids = n;
    r.eof = eof;
    fix_answer(&f, f.bnf_conn, MSG(INVENTORY), 0, &r);
}

static void back(void)
{
    fix_lost(&f, f.bnf_conn);
    f.bnf_conn = fix_conn(&f);
    assert_int_equal(fix_hello_bnf(&f, f.bnf_conn, 7, 1u << 30), 1);
    assert_non_null(fix_out_find(&f, f.bnf_conn, MSG(INVENTORY)));
}

static void test_inventory_finds_orphans_of_dead_sessions_only(void **state)
{
    uint64_t a = fix_mk(&f, ROOT, "a", REG), mine = fix_write(&f, a, 0, 5000), dead;
    struct mgr_conn *conn = fix_conn(&f);

    (void)state;
    inventory(NULL, 0, true); /* the one of the first hello */
    dead = fix_hello_client(&f, conn, 0, NULL);
    fix_call(&f, conn, MSG(BYE), NULL, NULL);
    back();
    inventory((uint64_t[]){mine, mine + 1, dead << 32 | 1, UINT64_C(1000) << 32 | 1}, 4, true);
    assert_int_equal(fix_sql(&f, "SELECT count(*) FROM garbage"), 1);
    assert_int_equal(fix_sql(&f, "SELECT chunk FROM garbage"), (int64_t)(dead << 32 | 1));
    assert_int_equal(fix_sql(&f, "SELECT count(*) FROM damage"), 0);
}

static void test_inventory_runs_when_a_session_dies(void **state)
{
    struct mgr_conn *conn = fix_conn(&f);
    uint64_t dead = fix_hello_client(&f, conn, 0, NULL);

    (void)state;
    inventory(NULL, 0, true);
    fix_call(&f, conn, MSG(BYE), NULL, NULL);
    fix_tick(&f, 1500);
    assert_non_null(fix_out_find(&f, f.bnf_conn, MSG(INVENTORY)));
    inventory((uint64_t[]){dead << 32 | 7}, 1, true);
    assert_int_equal(fix_sql(&f, "SELECT count(*) FROM garbage"), 1);
}

static Fp__CtlStatusReply *status(void)
{
    return fix_call(&f, f.conn, MSG(CTL_STATUS), NULL, &fp__ctl_status_reply__descriptor);
}

static void test_inventory_shows_lost_chunks_and_takes_it_back(void **state)
{
    uint64_t d = fix_mk(&f, ROOT, "d", S_IFDIR | 0755), a = fix_mk(&f, d, "a", REG);
    uint64_t c1 = fix_write(&f, a, 0, 5000), c2 = fix_write(&f, a, 3 << 20, 5000);
    Fp__CtlStatusReply *r;

    (void)state;
    inventory((uint64_t[]){c1, c2}, 2, true);
    back();
    inventory((uint64_t[]){c1}, 1, false);
    inventory(NULL, 0, true);
    r = status();
    assert_int_equal(r->n_damaged, 1);
    assert_int_equal(r->damaged[0]->chunk, c2);
    assert_int_equal(r->damaged[0]->off, 3 << 20);
    assert_int_equal(r->damaged[0]->path.len, 4);
    assert_memory_equal(r->damaged[0]->path.data, "/d/a", 4);
    fix_free(r);
    back();
    inventory((uint64_t[]){c1, c2}, 2, true);
    assert_int_equal(fix_sql(&f, "SELECT count(*) FROM damage"), 0);
}

static void test_chunk_committed_during_inventory_is_not_lost(void **state)
{
    uint64_t a = fix_mk(&f, ROOT, "a", REG);

    (void)state;
    assert_non_null(mgr_bnf_find(f.core, 1));
    assert_true(mgr_bnf_find(f.core, 1)->inv_out);
    assert_true(fix_write(&f, a, 0, 5000));
    inventory(NULL, 0, true);
    assert_int_equal(fix_sql(&f, "SELECT count(*) FROM damage"), 0);
}

static void test_bad_chunk_is_listed_until_it_goes(void **state)
{
    Fp__BadChunk b = FP__BAD_CHUNK__INIT;
    Fp__CtlStatusReply *r;
    uint64_t a = fix_mk(&f, ROOT, "a", REG);

    (void)state;
    b.chunk = fix_write(&f, a, 0, 5000);
    b.bnf = f.bnf;
    b.ino = a;
    b.len = 5000;
    b.reason = "checksum";
    fix_notice(&f, f.conn, MSG(BADCHUNK), &b);
    fix_notice(&f, f.conn, MSG(BADCHUNK), &b);
    r = status();
    assert_int_equal(r->n_damaged, 1);
    assert_string_equal(r->damaged[0]->reason, "checksum");
    fix_free(r);
    assert_int_equal(fix_unlink(&f, ROOT, "a", false), 0);
    r = status();
    assert_int_equal(r->n_damaged, 0);
    fix_free(r);
}

static void test_statfs_is_exact(void **state)
{
    uint64_t a = fix_mk(&f, ROOT, "a", REG), c1 = fix_write(&f, a, 0, 5000),
             c2 = fix_write(&f, a, 1 << 20, 100000);
    Fp__ChunkList l = FP__CHUNK_LIST__INIT;
    Fp__StatFsReply *r;

    (void)state;
    assert_true(c1 && c2);
    assert_int_equal(fix_truncate(&f, a, 1 << 20), 0);
    r = fix_call(&f, f.conn, MSG(STATFS), NULL, &fp__stat_fs_reply__descriptor);
    assert_int_equal(r->total_bytes, 1 << 30);
    assert_int_equal(r->free_bytes, (1 << 30) - 12288 - 106496); /* garbage is used until it is confirmed */
    fix_free(r);
    l.ids = &c2;
    l.n_ids = 1;
    fix_answer(&f, f.bnf_conn, MSG(DELETE), 0, &l);
    r = fix_call(&f, f.conn, MSG(STATFS), NULL, &fp__stat_fs_reply__descriptor);
    assert_int_equal(r->free_bytes, (1 << 30) - 12288);
    fix_free(r);
}

static void test_layout_shows_where_chunks_lie(void **state)
{
    uint64_t d = fix_mk(&f, ROOT, "d", S_IFDIR | 0755), a = fix_mk(&f, d, "a", REG);
    Fp__CtlLayout m = FP__CTL_LAYOUT__INIT;
    Fp__CtlLayoutReply *r;

    (void)state;
    assert_true(fix_write(&f, a, 0, 5000) && fix_write(&f, a, 1 << 20, 5000));
    m.path = fix_bin("/d//a");
    r = fix_call(&f, f.conn, MSG(CTL_LAYOUT), &m, &fp__ctl_layout_reply__descriptor);
    assert_int_equal(r->attr->ino, a);
    assert_int_equal(r->slice_count, 2);
    assert_int_equal(r->chunk_count, 2);
    assert_int_equal(r->stored_bytes, 2 * 12288);
    assert_int_equal(r->n_slices, 2);
    assert_int_equal(r->n_benefactors, 1);
    assert_memory_equal(r->path.data, "/d/a", 4);
    fix_free(r);
    m.path = fix_bin("/d/none");
    fix_call(&f, f.conn, MSG(CTL_LAYOUT), &m, NULL);
    assert_int_equal(f.status, -ENOENT);
}

/* ---------------------------------------------------------------- the database fails */

static void test_failed_commit_takes_everything_back(void **state)
{
    uint64_t a = fix_mk(&f, ROOT, "a", REG), seq;
    Fp__MkNod m = FP__MK_NOD__INIT;
    Fp__AttrReply *r;

    (void)state;
    assert_true(fix_write(&f, a, 0, 5000));
    assert_int_equal(fp_fault_set("mgr.commit=ENOSPC:count=3"), 0);
    if (!fp_fault_fired("mgr.commit") && FP_FAULT_POINT("mgr.commit") == 0) {
        fp_fault_set(NULL);
        skip(); /* not compiled in */
    }
    m.slot = 1;
    m.slot_seq = seq = ++f.seq;
    m.parent = ROOT;
    m.name = fix_bin("new");
    m.mode = REG;
    m.excl = m.open = true;
    fix_call(&f, f.conn, MSG(MKNOD), &m, NULL);
    assert_int_equal(f.status, -ENOSPC);
    assert_int_equal(f.core->holders.used, 0);
    assert_int_equal(fix_unlink(&f, ROOT, "a", false), -ENOSPC);
    fp_fault_set(NULL);
    assert_int_equal(fix_lookup(&f, ROOT, "a"), a);
    assert_int_equal(fix_lookup(&f, ROOT, "new"), 0);
    fix_check(&f);
    m.slot_seq = f.seq + 1; /* works again */
    r = fix_call(&f, f.conn, MSG(MKNOD), &m, &fp__attr_reply__descriptor);
    assert_non_null(r);
    f.seq++;
    fix_free(r);
    assert_true(seq);
}

static void test_full_database_is_enospc_and_recovers(void **state)
{
    char name[16];
    int made = 0;

    (void)state;
    fix_sql(&f, "PRAGMA max_page_count=%d", (int)fix_sql(&f, "PRAGMA page_count") + 4);
    do
        snprintf(name, sizeof name, "f%d", made++);
    while (fix_mk(&f, ROOT, name, REG) && made < 100000);
    assert_int_equal(f.status, -ENOSPC);
    assert_int_equal(fix_lookup(&f, ROOT, name), 0);
    assert_true(fix_lookup(&f, ROOT, "f0"));
    fix_check(&f);
    fix_sql(&f, "PRAGMA max_page_count=1000000");
    assert_true(fix_mk(&f, ROOT, name, REG));
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup_plain, teardown_faults)
    const struct CMUnitTest tests[] = {
        T(test_table_goes_out_at_changes),
        T(test_table_holds_only_what_has_changed),
        T(test_table_of_many_comes_in_several_messages),
        T(test_space_is_told_in_turns_where_much_is_to_be_told),
        T(test_benefactor_keeps_its_number),
        T(test_deletes_go_out_at_once_and_until_confirmed),
        T(test_unconfirmed_delete_is_tried_again),
        T(test_failed_delete_is_tried_again),
        T(test_inventory_finds_orphans_of_dead_sessions_only),
        T(test_inventory_runs_when_a_session_dies),
        T(test_inventory_shows_lost_chunks_and_takes_it_back),
        T(test_chunk_committed_during_inventory_is_not_lost),
        T(test_bad_chunk_is_listed_until_it_goes),
        T(test_statfs_is_exact),
        T(test_layout_shows_where_chunks_lie),
        T(test_failed_commit_takes_everything_back),
        T(test_full_database_is_enospc_and_recovers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
