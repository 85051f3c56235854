/* See mgr_fixture.h. */
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

#include "fp/log.h"
#include "life.pb-c.h"
#include "manager/version.h"
#include "mgr_fixture.h"

bool fix_versions;
bool fix_appended;

ProtobufCBinaryData fix_bin(const char *s)
{
    return (ProtobufCBinaryData){strlen(s), (uint8_t *)s};
}

void fix_free(void *msg)
{
    if (msg)
        protobuf_c_message_free_unpacked(msg, NULL);
}

void fix_clear_outs(struct fix *f)
{
    for (size_t i = 0; i < f->out_count; i++)
        free(f->outs[i].bytes);
    f->out_count = 0;
}

static void begin(struct fix *f)
{
    f->now.ms += 1;
    f->now.ns += 1000000;
    mgr_core_begin(f->core, f->now);
}

static int end(struct fix *f)
{
    struct mgr_out o;
    bool durable;
    int rc;

    if (f->doom)
        mgr_doom(f->core, f->doom);
    f->doom = 0;
    rc = mgr_core_end(f->core, &durable);

    while (mgr_core_out_next(f->core, &o)) {
        struct fix_out *q = &f->outs[f->out_count];

        assert_true(f->out_count < FIX_OUTS);
        q->kind = o.kind;
        q->conn = *(struct mgr_conn **)o.user;
        q->type = o.type;
        q->durable = o.durable;
        q->len = o.msg ? protobuf_c_message_get_packed_size(o.msg) : 0;
        q->bytes = malloc(q->len + 1);
        if (o.msg)
            protobuf_c_message_pack(o.msg, q->bytes);
        f->out_count++;
        if (f->sent)
            f->sent(f, q);
    }
    return rc;
}

const struct fix_out *fix_out_find(struct fix *f, const struct mgr_conn *conn, uint16_t type)
{
    for (size_t i = 0; i < f->out_count; i++)
        if (f->outs[i].conn == conn && f->outs[i].type == type)
            return &f->outs[i];
    return NULL;
}

struct mgr_conn *fix_conn(struct fix *f)
{
    struct mgr_conn **user = malloc(sizeof(*user));

    *user = mgr_core_conn_new(f->core, user);
    assert_non_null(*user);
    return *user;
}

void fix_lost(struct fix *f, struct mgr_conn *conn)
{
    void *user = conn->user;

    fix_clear_outs(f);
    begin(f);
    mgr_core_conn_lost(f->core, conn);
    assert_int_equal(end(f), 0);
    mgr_core_reset(f->core);
    free(user);
}

static uint8_t *pack(const void *msg, size_t *len)
{
    uint8_t *buf;

    *len = msg ? protobuf_c_message_get_packed_size(msg) : 0;
    buf = malloc(*len + 1);
    if (msg)
        protobuf_c_message_pack(msg, buf);
    return buf;
}

void *fix_call(struct fix *f, struct mgr_conn *conn, uint16_t type, const void *msg,
               const ProtobufCMessageDescriptor *out)
{
    struct mgr_reply r;
    size_t len;
    uint8_t *buf = pack(msg, &len);
    void *ret = NULL;
    int rc;

    fix_clear_outs(f);
    begin(f);
    mgr_core_request(f->core, conn, type, buf, len, &r);
    rc = end(f);
    free(buf);
    f->status = rc ? rc : r.status;
    f->durable = r.durable;
    if (!f->status && out) {
        assert_non_null(r.msg);
        assert_ptr_equal(r.msg->descriptor, out);
        buf = pack(r.msg, &len);
        ret = protobuf_c_message_unpack(out, NULL, len, buf);
        free(buf);
        assert_non_null(ret);
    }
    mgr_core_reset(f->core);
    return ret;
}

void fix_notice(struct fix *f, struct mgr_conn *conn, uint16_t type, const void *msg)
{
    size_t len;
    uint8_t *buf = pack(msg, &len);

    fix_clear_outs(f);
    begin(f);
    mgr_core_notice(f->core, conn, type, buf, len);
    assert_int_equal(end(f), 0);
    mgr_core_reset(f->core);
    free(buf);
}

void fix_notice_failing(struct fix *f, struct mgr_conn *conn, uint16_t type, const void *msg)
{
    size_t len;
    uint8_t *buf = pack(msg, &len);

    fix_clear_outs(f);
    begin(f);
    mgr_core_notice(f->core, conn, type, buf, len);
    f->doom = -ENOSPC;
    assert_int_equal(end(f), -ENOSPC);
    mgr_core_reset(f->core);
    free(buf);
}

void fix_answer(struct fix *f, struct mgr_conn *conn, uint16_t type, int status, const void *msg)
{
    size_t len;
    uint8_t *buf = pack(msg, &len);

    fix_clear_outs(f);
    begin(f);
    mgr_core_answer(f->core, conn, type, status, buf, len);
    assert_int_equal(end(f), 0);
    mgr_core_reset(f->core);
    free(buf);
}

void fix_tick(struct fix *f, uint64_t ms)
{
    fix_clear_outs(f);
    for (uint64_t t = 0; t < ms; t += 500) {
        f->now.ms += 499;
        f->now.ns += 499 * 1000000;
        begin(f);
        mgr_core_tick(f->core);
        assert_int_equal(end(f), 0);
        mgr_core_reset(f->core);
    }
}

void fix_tick_failing(struct fix *f, uint64_t ms)
{
    fix_clear_outs(f);
    f->now.ms += ms;
    f->now.ns += (int64_t)ms * 1000000;
    begin(f);
    mgr_core_tick(f->core);
    (void)end(f);
    mgr_core_reset(f->core);
}

uint64_t fix_hello_client(struct fix *f, struct mgr_conn *conn, uint64_t session, bool *is_new)
{
    Fp__Hello h = FP__HELLO__INIT;
    Fp__HelloReply *r;
    uint64_t id = 0;

    h.protocol = 1;
    h.role = FP__ROLE__ROLE_CLIENT;
    h.node = "n1";
    h.mountpoint = "/mnt";
    h.session = session;
    r = fix_call(f, conn, FP__MSG_TYPE__MSG_HELLO, &h, &fp__hello_reply__descriptor);
    if (r) {
        id = r->session;
        if (is_new)
            *is_new = r->session_is_new;
    }
    fix_free(r);
    return id;
}

struct mgr_conn *fix_ctl(struct fix *f)
{
    struct mgr_conn *conn = fix_conn(f);
    Fp__Hello h = FP__HELLO__INIT;

    h.protocol = 1;
    h.role = FP__ROLE__ROLE_CONTROL;
    fix_free(fix_call(f, conn, FP__MSG_TYPE__MSG_HELLO, &h, &fp__hello_reply__descriptor));
    assert_int_equal(f->status, 0);
    return conn;
}

Fp__BnfInfo fix_bnf_info(void)
{
    Fp__BnfInfo i = FP__BNF_INFO__INIT;

    i.node = "n1";
    i.addr = "127.0.0.1:1";
    i.capacity_bytes = i.free_bytes = 1u << 30;
    i.state = FP__BNF_STATE__BNF_OK;
    return i;
}

uint32_t fix_hello_bnf(struct fix *f, struct mgr_conn *conn, uint8_t uuid_byte, uint64_t capacity)
{
    Fp__Hello h = FP__HELLO__INIT;
    Fp__BnfInfo i = fix_bnf_info();
    Fp__HelloReply *r;
    uint8_t uuid[16];
    uint32_t id = 0;

    memset(uuid, uuid_byte, sizeof uuid);
    i.uuid.data = uuid;
    i.uuid.len = 16;
    i.capacity_bytes = i.free_bytes = capacity;
    h.protocol = 1;
    h.role = FP__ROLE__ROLE_BENEFACTOR;
    h.benefactor = &i;
    r = fix_call(f, conn, FP__MSG_TYPE__MSG_HELLO, &h, &fp__hello_reply__descriptor);
    if (r)
        id = r->bnf_id;
    fix_free(r);
    return id;
}

void fix_heard(struct fix *f, Fp__BnfInfo info)
{
    Fp__KeepAlive k = FP__KEEP_ALIVE__INIT;

    k.info = &info;
    fix_notice(f, f->bnf_conn, FP__MSG_TYPE__MSG_KEEPALIVE, &k);
}

void fix_keepalive(struct fix *f)
{
    fix_heard(f, fix_bnf_info());
}

void fix_inventory(struct fix *f, uint64_t but)
{
    enum { MAX = 4096 };
    Fp__InventoryReply r = FP__INVENTORY_REPLY__INIT;
    struct mgr_db *db = &f->core->db;
    static uint64_t ids[MAX];
    int rc = mgr_db_one(db, CHUNK_OF_BNF, DBI(f->bnf), DBI(0), DBI(INT64_MAX), DBI(MAX));

    for (; rc > 0; rc = mgr_db_step(db, MGR_ST_CHUNK_OF_BNF))
        if ((uint64_t)mgr_col(db, MGR_ST_CHUNK_OF_BNF, 0) != but)
            ids[r.n_ids++] = (uint64_t)mgr_col(db, MGR_ST_CHUNK_OF_BNF, 0);
    assert_int_equal(rc, 0);
    r.ids = ids;
    r.eof = true;
    fix_answer(f, f->bnf_conn, FP__MSG_TYPE__MSG_INVENTORY, 0, &r);
}

static void remove_db(const char *path)
{
    static const char *const ends[] = {"", "-wal", "-shm"};
    char name[sizeof ((struct fix *)NULL)->path + 8];

    for (size_t i = 0; i < 3; i++) {
        snprintf(name, sizeof name, "%s%s", path, ends[i]);
        unlink(name);
    }
}

const char *fix_path(void)
{
    static char path[sizeof ((struct fix *)NULL)->path];

    if (!path[0]) {
        snprintf(path, sizeof path, "/dev/shm/%s-%d.db", program_invocation_short_name, (int)getpid());
        remove_db(path); /* of a process that had this number and was killed */
    }
    return path;
}

void fix_open(struct fix *f, const char *path, bool bare)
{
    struct mgr_core_opts o = {.store_uuid = {1, 2, 3}, .versions = fix_versions};
    char why[MGR_DB_WHY_MAX];

    fp_log_set_level(FP_LOG_ERROR);
    memset(f, 0, sizeof *f);
    snprintf(f->path, sizeof f->path, "%s", path);
    f->now = (struct mgr_now){.ms = 1000, .ns = 1700000000 * INT64_C(1000000000)};
    if (mgr_core_new(&f->core, path, &o, f->now, why))
        fail_msg("%s", why);
    if (bare)
        return;
    f->bnf_conn = fix_conn(f);
    f->bnf = fix_hello_bnf(f, f->bnf_conn, 7, 1u << 30);
    assert_int_equal(f->bnf, 1);
    f->conn = fix_conn(f);
    f->session = fix_hello_client(f, f->conn, 0, NULL);
    assert_true(f->session > 0);
}

void fix_close(struct fix *f)
{
    for (struct mgr_conn *c = f->core->conns; c; c = c->next)
        free(c->user);
    mgr_core_free(f->core);
    fix_clear_outs(f);
}

void fix_close_and_remove(struct fix *f)
{
    fix_close(f);
    if (f->path[0] != ':')
        remove_db(f->path);
}

uint64_t fix_mk(struct fix *f, uint64_t parent, const char *name, uint32_t mode)
{
    Fp__MkNod m = FP__MK_NOD__INIT;
    Fp__AttrReply *r;
    uint64_t ino;

    m.slot = 1;
    m.slot_seq = ++f->seq;
    m.parent = parent;
    m.name = fix_bin(name);
    m.mode = mode;
    m.excl = true;
    if (S_ISLNK(mode))
        m.target = fix_bin("target");
    r = fix_call(f, f->conn, FP__MSG_TYPE__MSG_MKNOD, &m, &fp__attr_reply__descriptor);
    ino = r ? r->attr->ino : 0;
    fix_free(r);
    return ino;
}

uint64_t fix_creat(struct fix *f, struct mgr_conn *conn, uint64_t parent, const char *name)
{
    Fp__MkNod m = FP__MK_NOD__INIT;
    Fp__AttrReply *r;
    uint64_t ino;

    m.parent = parent;
    m.name = fix_bin(name);
    m.mode = S_IFREG | 0644;
    m.open = true;
    r = fix_call(f, conn, FP__MSG_TYPE__MSG_MKNOD, &m, &fp__attr_reply__descriptor);
    assert_non_null(r);
    ino = r->attr->ino;
    fix_free(r);
    return ino;
}

void fix_release(struct fix *f, struct mgr_conn *conn, uint64_t ino)
{
    Fp__Release m = FP__RELEASE__INIT;

    m.n_ino = m.n_write_ino = 1;
    m.ino = m.write_ino = &ino;
    fix_notice(f, conn, FP__MSG_TYPE__MSG_RELEASE, &m);
}

int fix_unlink(struct fix *f, uint64_t parent, const char *name, bool dir)
{
    Fp__Unlink m = FP__UNLINK__INIT;

    m.slot = 1;
    m.slot_seq = ++f->seq;
    m.parent = parent;
    m.name = fix_bin(name);
    m.dir = dir;
    fix_free(fix_call(f, f->conn, FP__MSG_TYPE__MSG_UNLINK, &m, &fp__unlink_reply__descriptor));
    return f->status;
}

int fix_rename(struct fix *f, uint64_t p1, const char *n1, uint64_t p2, const char *n2, uint32_t flags)
{
    Fp__Rename m = FP__RENAME__INIT;

    m.slot = 1;
    m.slot_seq = ++f->seq;
    m.parent = p1;
    m.name = fix_bin(n1);
    m.new_parent = p2;
    m.new_name = fix_bin(n2);
    m.flags = flags;
    fix_call(f, f->conn, FP__MSG_TYPE__MSG_RENAME, &m, NULL);
    return f->status;
}

uint64_t fix_lookup(struct fix *f, uint64_t parent, const char *name)
{
    Fp__Lookup m = FP__LOOKUP__INIT;
    Fp__AttrReply *r;
    uint64_t ino;

    m.parent = parent;
    m.name = fix_bin(name);
    r = fix_call(f, f->conn, FP__MSG_TYPE__MSG_LOOKUP, &m, &fp__attr_reply__descriptor);
    ino = r ? r->attr->ino : 0;
    fix_free(r);
    return ino;
}

Fp__Attr fix_attr(struct fix *f, uint64_t ino)
{
    Fp__InodeReq m = FP__INODE_REQ__INIT;
    Fp__Attr a = FP__ATTR__INIT;
    Fp__AttrReply *r;

    m.ino = ino;
    r = fix_call(f, f->conn, FP__MSG_TYPE__MSG_GETATTR, &m, &fp__attr_reply__descriptor);
    if (r)
        a = *r->attr;
    fix_free(r);
    return a;
}

int fix_truncate(struct fix *f, uint64_t ino, uint64_t size)
{
    Fp__SetAttr m = FP__SET_ATTR__INIT;

    m.slot = 1;
    m.slot_seq = ++f->seq;
    m.ino = ino;
    m.valid = FP__SET_ATTR_VALID__SET_SIZE;
    m.size_bytes = size;
    fix_free(fix_call(f, f->conn, FP__MSG_TYPE__MSG_SETATTR, &m, &fp__attr_reply__descriptor));
    return f->status;
}

uint64_t fix_write(struct fix *f, uint64_t ino, uint64_t pos, uint32_t len)
{
    Fp__Attr a = fix_attr(f, ino);
    Fp__Commit m = FP__COMMIT__INIT;
    Fp__Chunk ch = FP__CHUNK__INIT, *chs = &ch;
    Fp__Slice s = FP__SLICE__INIT, *ss = &s;

    assert_true(a.ino == ino);
    ch.id = f->session << 32 | ++f->next_chunk;
    ch.len = len;
    ch.stored_bytes = 4096 + (len + 4095) / 4096 * 4096;
    ch.sum = ch.id * UINT64_C(0x9E3779B97F4A7C15);
    ch.bnf = f->bnf;
    s.win = pos / a.chunk_size_bytes;
    s.off = (uint32_t)(pos % a.chunk_size_bytes);
    s.len = len;
    s.chunk = ch.id;
    m.slot = 1;
    m.slot_seq = ++f->seq;
    m.ino = ino;
    m.n_chunks = m.n_slices = 1;
    m.chunks = &chs;
    m.slices = &ss;
    m.size_bytes = pos + len;
    m.mtime_ns = f->now.ns;
    m.appended = fix_appended;
    fix_free(fix_call(f, f->conn, FP__MSG_TYPE__MSG_COMMIT, &m, &fp__commit_reply__descriptor));
    return f->status ? 0 : ch.id;
}

int fix_clone(struct fix *f, uint64_t src, uint64_t dst, uint64_t dst_off, uint64_t len)
{
    Fp__Clone m = FP__CLONE__INIT;

    m.slot = 1;
    m.slot_seq = ++f->seq;
    m.src_ino = src;
    m.dst_ino = dst;
    m.dst_off = dst_off;
    m.len = len;
    fix_free(fix_call(f, f->conn, FP__MSG_TYPE__MSG_CLONE, &m, &fp__commit_reply__descriptor));
    return f->status;
}

int fix_punch(struct fix *f, uint64_t ino, uint64_t off, uint64_t len)
{
    Fp__Punch m = FP__PUNCH__INIT;

    m.slot = 1;
    m.slot_seq = ++f->seq;
    m.ino = ino;
    m.off = off;
    m.len = len;
    fix_free(fix_call(f, f->conn, FP__MSG_TYPE__MSG_PUNCH, &m, &fp__commit_reply__descriptor));
    return f->status;
}

uint64_t fix_policy(struct fix *f, struct mgr_conn *ctl, const char *text, uint64_t remove, char why[FP_DRAIN_WHY_MAX])
{
    Fp__Policy m = FP__POLICY__INIT;
    Fp__PolicyReply *r;
    uint64_t id;

    if (text)
        m.text = (char *)(uintptr_t)text;
    m.remove = remove;
    r = fix_call(f, ctl, FP__MSG_TYPE__MSG_POLICY, &m, &fp__policy_reply__descriptor);
    assert_non_null(r);
    if (why)
        snprintf(why, FP_DRAIN_WHY_MAX, "%s", r->why);
    else
        assert_string_equal(r->why, "");
    id = r->id;
    fix_free(r);
    return id;
}

int64_t fix_sql(struct fix *f, const char *fmt, ...)
{
    sqlite3_stmt *st;
    int64_t v = -1;
    va_list ap;
    char *sql;

    va_start(ap, fmt);
    assert_true(vasprintf(&sql, fmt, ap) > 0);
    va_end(ap);
    if (sqlite3_prepare_v2(f->core->db.sq, sql, -1, &st, NULL) != SQLITE_OK)
        fail_msg("%s: %s", sql, sqlite3_errmsg(f->core->db.sq));
    if (sqlite3_step(st) == SQLITE_ROW)
        v = sqlite3_column_int64(st, 0);
    sqlite3_finalize(st);
    free(sql);
    return v;
}

void fix_check(struct fix *f)
{
    assert_int_equal(
        fix_sql(f,
                "SELECT count(*) FROM chunk c WHERE refs != (SELECT count(*) FROM slice WHERE chunk=c.id) + "
                "(SELECT count(*) FROM hold WHERE chunk=c.id)"),
        0);
    assert_int_equal(fix_sql(f, "SELECT count(*) FROM hold WHERE chunk NOT IN (SELECT id FROM chunk)"), 0);
    assert_int_equal(fix_sql(f, "SELECT count(*) FROM bad_chunk WHERE chunk NOT IN (SELECT id FROM chunk)"), 0);
    assert_int_equal(fix_sql(f, "SELECT count(*) FROM damage WHERE chunk NOT IN (SELECT chunk FROM bad_chunk)"), 0);
    assert_int_equal(fix_sql(f, "SELECT count(*) FROM bad_chunk"), f->core->bad_chunks);
    assert_int_equal(fix_sql(f, "SELECT count(*) FROM damage"), f->core->damages);
    assert_int_equal(fix_sql(f, "SELECT count(*) FROM chunk WHERE noted != (id IN (SELECT chunk FROM note))"), 0);
    assert_int_equal(fix_sql(f, "SELECT count(*) FROM note WHERE chunk NOT IN (SELECT id FROM chunk)"), 0);
    assert_int_equal(fix_sql(f, "SELECT count(*) FROM note_key WHERE chunk NOT IN (SELECT chunk FROM note)"), 0);
    assert_int_equal(fix_sql(f, "SELECT count(*) FROM aux_table t WHERE "
                                "entries != (SELECT count(*) FROM aux_entry WHERE app=t.id) OR bytes != "
                                "(SELECT ifnull(sum(length(key)+length(value)),0) FROM aux_entry WHERE app=t.id)"),
                     0);
    assert_int_equal(fix_sql(f, "SELECT count(*) FROM aux_entry WHERE app NOT IN (SELECT id FROM aux_table)"), 0);
    assert_int_equal(fix_sql(f, "SELECT count(*) FROM slice WHERE chunk NOT IN (SELECT id FROM chunk)"), 0);
    assert_int_equal(
        fix_sql(f, "SELECT count(*) FROM slice s JOIN chunk c ON c.id=s.chunk WHERE s.chunk_off+s.len>"
                   "iif(c.data,c.data,c.len)"),
        0);
    assert_int_equal(fix_sql(f, "SELECT count(*) FROM chunk c JOIN garbage g ON g.chunk=c.id AND (g.bnf=c.bnf OR c.id NOT IN (SELECT chunk FROM ext))"), 0);
    assert_int_equal(fix_sql(f, "SELECT count(*) FROM ext WHERE chunk NOT IN (SELECT id FROM chunk) OR tfile NOT IN (SELECT id FROM tfile)"), 0);
    assert_int_equal(fix_sql(f, "SELECT count(*) FROM tfile t WHERE refs != (SELECT count(*) FROM drained WHERE tfile=t.id) + "
                                "(SELECT count(*) FROM ext WHERE tfile=t.id)"),
                     0);
    assert_int_equal(fix_sql(f, "SELECT count(*) FROM inode i WHERE mapped != "
                                "(SELECT ifnull(sum(len),0) FROM slice s WHERE s.ino=i.ino)"),
                     0);
    assert_int_equal(
        fix_sql(f, "SELECT count(*) FROM counters WHERE inodes != (SELECT count(*) FROM inode) "
                   "OR chunks != (SELECT count(*) FROM chunk) OR slices != (SELECT count(*) FROM slice)"),
        0);
    assert_int_equal(fix_sql(f,
                             "SELECT count(*) FROM benefactor b WHERE "
                             "stored != (SELECT ifnull(sum(stored),0) FROM chunk WHERE bnf=b.id) OR "
                             "chunks != (SELECT count(*) FROM chunk WHERE bnf=b.id) OR "
                             "garbage != (SELECT count(*) FROM garbage WHERE bnf=b.id) OR "
                             "garbage_bytes != (SELECT ifnull(sum(stored),0) FROM garbage WHERE bnf=b.id)"),
                     0);
    /* names: links of files, subdirectories and entries of directories */
    assert_int_equal(fix_sql(f, "SELECT count(*) FROM inode i WHERE (mode>>12)!=4 AND nlink != "
                                "(SELECT count(*) FROM dirent d WHERE d.ino=i.ino)"),
                     0);
    assert_int_equal(fix_sql(f,
                             "SELECT count(*) FROM inode i WHERE (mode>>12)=4 AND nlink>0 AND (nlink != 2 + "
                             "(SELECT count(*) FROM dirent d WHERE d.parent=i.ino AND d.type=4) OR size != "
                             "(SELECT count(*) FROM dirent d WHERE d.parent=i.ino))"),
                     0);
    assert_int_equal(fix_sql(f, "SELECT count(*) FROM dirent WHERE ino NOT IN (SELECT ino FROM inode)"), 0);
    assert_int_equal(
        fix_sql(f, "SELECT count(*) FROM inode WHERE nlink=0 AND ino NOT IN (SELECT ino FROM orphan UNION SELECT shadow FROM version)"), 0);
    assert_int_equal(fix_sql(f, "SELECT count(*) FROM version WHERE ino NOT IN (SELECT ino FROM inode WHERE nlink>0) OR shadow IN (SELECT ino FROM orphan) OR "
                                "shadow NOT IN (SELECT ino FROM inode WHERE flags&16)"), 0);
    assert_int_equal(fix_sql(f, "SELECT count(*) FROM version_win WHERE shadow NOT IN (SELECT ino FROM inode WHERE flags&16)"), 0);
    assert_int_equal(fix_sql(f, "SELECT count(*) FROM version"), f->core->versions->shadows.used);
    assert_int_equal(fix_sql(f, "SELECT count(*) FROM overtaken"), f->core->versions->overtaken);
    assert_int_equal(
        fix_sql(f, "SELECT count(*) FROM orphan WHERE ino NOT IN (SELECT ino FROM inode WHERE nlink=0)"), 0);
}

int fix_set_xattr(struct fix *f, uint64_t ino, const char *name, const char *value, uint32_t flags)
{
    Fp__SetXattr m = FP__SET_XATTR__INIT;

    m.ino = ino;
    m.name = fix_bin(name);
    m.value = fix_bin(value);
    m.flags = flags;
    fix_call(f, f->conn, FP__MSG_TYPE__MSG_SETXATTR, &m, NULL);
    return f->status;
}

int fix_get_xattr(struct fix *f, uint64_t ino, const char *name, const char *expect)
{
    Fp__GetXattr m = FP__GET_XATTR__INIT;
    Fp__XattrReply *r;

    m.ino = ino;
    m.name = fix_bin(name);
    r = fix_call(f, f->conn, FP__MSG_TYPE__MSG_GETXATTR, &m, &fp__xattr_reply__descriptor);
    if (r) {
        assert_int_equal(r->value.len, strlen(expect));
        assert_memory_equal(r->value.data, expect, r->value.len);
    }
    fix_free(r);
    return f->status;
}

void fix_fill_map(struct fix *f, const char *name, uint32_t windows, uint32_t slices)
{
    assert_int_equal(fix_sql(f, "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i+1 FROM n WHERE i<%u) INSERT INTO slice SELECT (SELECT ino FROM dirent "
             "WHERE name=CAST('%s' AS BLOB)),i/%u,i%%%u,1,i+1,0 FROM n", windows * slices - 1, name, slices, slices), -1);
    fix_sql(f, "INSERT INTO chunk(id,len,stored,sum,refs,bnf) SELECT chunk,1,4096,0,1,1 FROM slice");
    fix_sql(f, "UPDATE inode SET mapped=%u WHERE ino=(SELECT ino FROM slice)", windows * slices);
    fix_sql(f, "UPDATE counters SET slices=%u,chunks=%u", windows * slices, windows * slices);
    fix_sql(f, "UPDATE benefactor SET chunks=%u,stored=%u*4096", windows * slices, windows * slices);
    assert_int_equal(mgr_reload(f->core), 0);
}
