/* Tables of aux-apps against a model, and their bounds. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "fp/auxapp.h"
#include "mgr_one.h"

#define KEYS 60u
#define OPS  20u

static const char *const apps[] = {"dedup", "peer", "a_b-9"};

struct entry {
    bool there;
    size_t len;
    uint8_t fill;
};
static struct entry model[3][KEYS];

static int setup(void **state)
{
    (void)state;
    fix_open(&f, fix_path(), false);
    memset(model, 0, sizeof model);
    return 0;
}

static void restart(void)
{
    struct fix old = f;

    fix_close(&f);
    fix_open(&f, fix_path(), true);
    f.bnf_conn = fix_conn(&f);
    f.bnf = fix_hello_bnf(&f, f.bnf_conn, 7, 1u << 30);
    f.conn = fix_conn(&f);
    f.session = fix_hello_client(&f, f.conn, old.session, NULL);
    assert_int_equal(f.session, old.session);
    f.seq = old.seq;
}

static Fp__TableReply *call(const char *app, Fp__TableOp *op, size_t n, uint64_t seq)
{
    static Fp__TableOp *ops[300];
    Fp__Table m = FP__TABLE__INIT;

    for (size_t i = 0; i < n; i++)
        ops[i] = &op[i];
    m.slot = seq ? 4 : 0;
    m.slot_seq = seq;
    m.app = (char *)app;
    m.ops = ops;
    m.n_ops = n;
    return fix_call(&f, f.conn, FP__MSG_TYPE__MSG_TABLE, &m, &fp__table_reply__descriptor);
}

static Fp__TableOp op_of(Fp__TableOpKind kind, const void *key, size_t key_len, const void *value, size_t len)
{
    Fp__TableOp op = FP__TABLE_OP__INIT;

    op.kind = kind;
    op.key = (ProtobufCBinaryData){key_len, (uint8_t *)key};
    op.value = (ProtobufCBinaryData){len, (uint8_t *)value};
    return op;
}

/* One operation by itself; got: NULL, or room for the value as text. */
static int one(const char *app, Fp__TableOpKind kind, const char *key, const char *value, char *got)
{
    Fp__TableOp op = op_of(kind, key, strlen(key), value, strlen(value));
    Fp__TableReply *r = call(app, &op, 1, 0);
    int status;

    if (!r)
        return f.status;
    status = r->results[0]->status;
    if (got) {
        memcpy(got, r->results[0]->value.data, r->results[0]->value.len);
        got[r->results[0]->value.len] = 0;
    }
    fix_free(r);
    return status;
}

static bool same(const struct entry *e, const Fp__TableResult *res)
{
    bool ok = res->value.len == e->len;

    for (size_t i = 0; i < e->len && ok; i++)
        ok = res->value.data[i] == e->fill;
    return ok;
}

static void apply(struct entry *e, const Fp__TableOp *op, const Fp__TableResult *res)
{
    struct entry next = {true, op->value.len, op->value.len ? op->value.data[0] : 0};

    switch (op->kind) {
    case FP__TABLE_OP_KIND__TABLE_GET:
        assert_int_equal(res->status, e->there ? 0 : -ENOENT);
        assert_true(!e->there || same(e, res));
        return;
    case FP__TABLE_OP_KIND__TABLE_PUT_NEW:
        assert_int_equal(res->status, e->there ? -EEXIST : 0);
        assert_true(!e->there || same(e, res));
        *e = e->there ? *e : next;
        return;
    case FP__TABLE_OP_KIND__TABLE_PUT:
        assert_int_equal(res->status, 0);
        *e = next;
        return;
    default:
        assert_int_equal(res->status, e->there ? 0 : -ENOENT);
        e->there = false;
    }
}

/* Some operations in one message, sent twice now and then. */
static void step(void)
{
    static uint8_t values[OPS][FP_AUX_VALUE_MAX_BYTES], keys[OPS][FP_AUX_KEY_MAX_BYTES];
    size_t app = (size_t)random() % 3, n = 1 + (size_t)random() % OPS, which[OPS];
    bool again = random() % 3 == 0;
    uint64_t seq = again ? ++f.seq : 0;
    Fp__TableOp op[OPS];
    Fp__TableReply *r;

    for (size_t i = 0; i < n; i++) {
        which[i] = (size_t)random() % KEYS;
        memset(keys[i], (int)which[i], sizeof keys[i]);
        memset(values[i], (int)random(), sizeof values[i]);
        op[i] = op_of((Fp__TableOpKind)(random() % 4), keys[i], 1 + which[i], values[i],
                      (size_t)random() % (FP_AUX_VALUE_MAX_BYTES + 1));
    }
    r = call(apps[app], op, n, seq);
    if (again) {
        fix_free(r);
        r = call(apps[app], op, n, seq);
    }
    assert_non_null(r);
    assert_int_equal(r->n_results, n);
    for (size_t i = 0; i < n; i++)
        apply(&model[app][which[i]], &op[i], r->results[i]);
    fix_free(r);
}

static void test_random_operations_match_the_model(void **state)
{
    (void)state;
    for (unsigned seed = 1; seed <= 3; seed++) {
        srandom(seed);
        for (int i = 0; i < 300; i++) {
            step();
            if (i % 50 == 0)
                fix_check(&f);
            if (i % 100 == 99)
                restart();
        }
    }
}

static void test_exactly_one_puts_a_new_key(void **state)
{
    char got[FP_AUX_VALUE_MAX_BYTES + 1];

    (void)state;
    assert_int_equal(one("peer", FP__TABLE_OP_KIND__TABLE_PUT_NEW, "k", "first", NULL), 0);
    assert_int_equal(one("peer", FP__TABLE_OP_KIND__TABLE_PUT_NEW, "k", "second", got), -EEXIST);
    assert_string_equal(got, "first");
    assert_int_equal(one("dedup", FP__TABLE_OP_KIND__TABLE_GET, "k", "", NULL), -ENOENT);
    assert_int_equal(one("peer", FP__TABLE_OP_KIND__TABLE_REMOVE, "k", "", NULL), 0);
    assert_int_equal(one("peer", FP__TABLE_OP_KIND__TABLE_PUT_NEW, "k", "second", NULL), 0);
}

static void test_lengths_and_names_are_checked(void **state)
{
    static const char *const bad[] = {"", "Upper", "9a", "a b", "abcdefghijklmnopqrstuvwx", "a/b"};
    static uint8_t big[FP_AUX_VALUE_MAX_BYTES + 1];
    Fp__TableOp op[257];
    Fp__TableReply *r;

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(one(bad[i], FP__TABLE_OP_KIND__TABLE_GET, "k", "", NULL), -EINVAL);
    op[0] = op_of(FP__TABLE_OP_KIND__TABLE_PUT, big, FP_AUX_KEY_MAX_BYTES + 1, big, 1);
    op[1] = op_of(FP__TABLE_OP_KIND__TABLE_PUT, big, 0, big, 1);
    op[2] = op_of(FP__TABLE_OP_KIND__TABLE_PUT, big, 1, big, FP_AUX_VALUE_MAX_BYTES + 1);
    op[3] = op_of((Fp__TableOpKind)9, big, 1, big, 1);
    op[4] = op_of(FP__TABLE_OP_KIND__TABLE_PUT, big, FP_AUX_KEY_MAX_BYTES, big, FP_AUX_VALUE_MAX_BYTES);
    r = call("peer", op, 5, 0);
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(r->results[i]->status, -EINVAL);
    assert_int_equal(r->results[4]->status, 0);
    fix_free(r);
    for (size_t i = 0; i < 257; i++)
        op[i] = op_of(FP__TABLE_OP_KIND__TABLE_GET, big, 1, NULL, 0);
    assert_null(call("peer", op, 257, 0));
    assert_int_equal(f.status, -E2BIG);
    fix_free(call("peer", op, 256, 0));
    assert_int_equal(f.status, 0);
}

static void test_table_is_full_at_its_limit_and_not_before(void **state)
{
    static char v[101];

    (void)state;
    memset(v, 'v', 100);
    f.core->o.aux_table_bytes = 303;
    for (int i = 0; i < 3; i++)
        assert_int_equal(one("peer", FP__TABLE_OP_KIND__TABLE_PUT, (char[2]){(char)('a' + i), 0}, v, NULL), 0);
    assert_int_equal(one("peer", FP__TABLE_OP_KIND__TABLE_PUT, "d", "", NULL), -ENOSPC);
    assert_int_equal(one("dedup", FP__TABLE_OP_KIND__TABLE_PUT, "d", v, NULL), 0); /* its own */
    assert_int_equal(one("peer", FP__TABLE_OP_KIND__TABLE_PUT, "c", v, NULL), 0);  /* not more than before */
    assert_int_equal(one("peer", FP__TABLE_OP_KIND__TABLE_PUT, "c", "x", NULL), 0);
    assert_int_equal(one("peer", FP__TABLE_OP_KIND__TABLE_PUT, "d", "x", NULL), 0);
    f.core->o.aux_table_bytes = 10; /* a smaller limit than what is there: less may still be put */
    assert_int_equal(one("peer", FP__TABLE_OP_KIND__TABLE_PUT, "a", "x", NULL), 0);
    assert_int_equal(one("peer", FP__TABLE_OP_KIND__TABLE_PUT, "a", v, NULL), -ENOSPC);
}

static void test_so_many_tables_and_no_more(void **state)
{
    char name[16];

    (void)state;
    for (int i = 0; i < 64; i++) {
        snprintf(name, sizeof name, "app%d", i);
        assert_int_equal(one(name, FP__TABLE_OP_KIND__TABLE_PUT, "k", "v", NULL), 0);
    }
    assert_int_equal(one("more", FP__TABLE_OP_KIND__TABLE_PUT, "k", "v", NULL), -ENOSPC);
    assert_int_equal(one("more", FP__TABLE_OP_KIND__TABLE_GET, "k", "", NULL), -ENOENT);
    assert_int_equal(one("app3", FP__TABLE_OP_KIND__TABLE_PUT, "l", "v", NULL), 0);
}

static void test_answers_of_gets_are_not_kept(void **state)
{
    Fp__TableOp op = op_of(FP__TABLE_OP_KIND__TABLE_GET, "k", 1, NULL, 0);

    (void)state;
    fix_free(call("peer", &op, 1, ++f.seq));
    assert_int_equal(fix_sql(&f, "SELECT count(*) FROM reply WHERE slot=4"), 0);
    op.kind = FP__TABLE_OP_KIND__TABLE_PUT;
    fix_free(call("peer", &op, 1, ++f.seq));
    assert_int_equal(fix_sql(&f, "SELECT count(*) FROM reply WHERE slot=4"), 1);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_random_operations_match_the_model),
        T(test_exactly_one_puts_a_new_key),
        T(test_lengths_and_names_are_checked),
        T(test_table_is_full_at_its_limit_and_not_before),
        T(test_so_many_tables_and_no_more),
        T(test_answers_of_gets_are_not_kept),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
