/*
 * The life of checkpoints in the manager: sets, versions, policies, draining, in any order, with benefactors that do their tasks, fail, die, or say what they
 * have said before.
 *
 * fuzz_manager sends any message; most of its drains end at the first answer that makes no sense. Here messages make sense, and what they say is true: a core over
 * the benefactors and the target of tests/unit/mgr_drain_world.h, with two mounts. An input makes, writes, renames and removes files with names of steps, rewrites them beside
 * open writers, commits, forgets and restores, drains and cancels, loses connections, lets time pass, has transactions fail and the core read its tables anew.
 *
 * Then the tables must agree, and every copy that is claimed must be there: whole, and of the present data. When all is well again, all jobs end, and nothing is
 * left of the work.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <cmocka.h>

#include "fp/err.h"
#include "tests/fuzz/fuzz.h"
#include "tests/unit/mgr_drain_world.h"

#define STEPS_MAX  40
#define WRITES_MAX 20 /* W_PIECES of a file in the target, and a write may cut one in two */
#define INOS_MAX   24
#define MIB        (1u << 20)

static struct life {
    struct world w; /* first */
    struct mgr_conn *other;
    uint64_t ino[INOS_MAX];
    size_t ninos;
    unsigned writes;
    bool spoilt; /* a benefactor has said what was not so */
    struct told { /* what a benefactor has said, to be said again */
        size_t bnf;
        Fp__TaskResult r;
        bool known;
    } told;
} x;

static struct fix *const f = &x.w.f;

/* -------------------------------------------------------------- mounts */

static const char *name_of(struct fuzz_in *in)
{
    static const char *const names[] = {"chk_1", "chk_2", "chk_3", "a", "b", "restart.7.0", "restart.7.1", "COMPLETE", "a.tmp", "step-4", "out", ".complete"};

    return names[fuzz_below(in, sizeof names / sizeof *names)];
}

static uint64_t some_ino(struct fuzz_in *in)
{
    uint8_t k = fuzz_u8(in);

    return x.ninos && k < 250 ? x.ino[k % x.ninos] : MGR_ROOT_INO;
}

static struct mgr_conn *mount_of(struct fuzz_in *in)
{
    return fuzz_u8(in) < 200 ? f->conn : x.other;
}

static void make(struct fuzz_in *in)
{
    uint8_t how = fuzz_u8(in);
    uint64_t ino = fix_mk(f, how & 1 ? some_ino(in) : MGR_ROOT_INO, name_of(in), how & 2 ? S_IFDIR | 0755 : S_IFREG | 0644);

    if (ino && x.ninos < INOS_MAX)
        x.ino[x.ninos++] = ino;
}

static void write_at(struct fuzz_in *in)
{
    uint64_t ino = some_ino(in);
    uint8_t where = fuzz_u8(in);

    f->bnf = x.w.bnf[where / 64 % x.w.nbnf].id;
    if (x.writes++ < WRITES_MAX && fix_attr(f, ino).ino == ino)
        fix_write(f, ino, (uint64_t)(where % 4) * MIB + (where & 16 ? 4096 : 0), where & 32 ? MIB / 2 : 1000);
}

static void open_close(struct fuzz_in *in)
{
    struct mgr_conn *conn = mount_of(in);
    uint64_t ino = some_ino(in);
    uint8_t how = fuzz_u8(in);

    if (how & 1) {
        Fp__Open m = FP__OPEN__INIT;

        m.ino = ino;
        m.write = how & 2;
        fix_free(fix_call(f, conn, FP__MSG_TYPE__MSG_OPEN, &m, &fp__attr_reply__descriptor));
    } else {
        Fp__Release m = FP__RELEASE__INIT;

        m.n_ino = m.n_write_ino = 1;
        m.ino = m.write_ino = &ino;
        fix_notice(f, conn, FP__MSG_TYPE__MSG_RELEASE, &m);
    }
}

/* A mount dies, and another one is there in its place. */
static void mount_dies(struct fuzz_in *in)
{
    struct mgr_conn **conn = fuzz_u8(in) < 128 ? &f->conn : &x.other;
    uint64_t session;

    fix_lost(f, *conn);
    *conn = fix_conn(f);
    session = fix_hello_client(f, *conn, 0, NULL);
    if (conn == &f->conn)
        f->session = session;
}

static void change_names(struct fuzz_in *in)
{
    uint8_t how = fuzz_u8(in);
    uint64_t from = how & 1 ? some_ino(in) : MGR_ROOT_INO, to = how & 2 ? some_ino(in) : MGR_ROOT_INO;
    const char *a = name_of(in), *b = name_of(in);

    if (how & 4)
        fix_rename(f, from, a, to, b, 0);
    else
        fix_unlink(f, from, a, how & 8);
}

/* A converter says what a file is, or how it gets on; or asks for what others have said. */
static void convert(struct fuzz_in *in)
{
    static const char *const mains[] = {"chk_1.h5", "chk_2", "chk_1", "a", "00100.h5", "b.nc"};
    Fp__CtlConversions m = FP__CTL_CONVERSIONS__INIT;
    uint8_t how = fuzz_u8(in);

    if (how < 160) {
        fix_set_xattr(f, some_ino(in), "user.fp.converted", mains[how % (sizeof mains / sizeof *mains)], 0);
    } else if (how < 200) {
        fix_set_xattr(f, some_ino(in), "user.fp.convert", how & 1 ? "running" : "failed a: byte 1", 0);
    } else if (how < 220) {
        fix_rename(f, MGR_ROOT_INO, name_of(in), MGR_ROOT_INO, how & 1 ? ".fp-convert-a" : "chk_1.h5", 0);
    } else {
        m.max = how & 3;
        fix_free(fix_call(f, x.w.ctl, FP__MSG_TYPE__MSG_CTL_CONVERSIONS, &m, &fp__ctl_conversions_reply__descriptor));
    }
}

/* -------------------------------------------------------------- fpctl */

static const char *path_of(struct fuzz_in *in, char path[64])
{
    uint8_t how = fuzz_u8(in);
    const char *a = name_of(in);

    if (how & 1)
        snprintf(path, 64, "%s/%s", a, name_of(in));
    else
        snprintf(path, 64, "%s", how & 2 ? a : "");
    return path;
}

static void sets(struct fuzz_in *in)
{
    Fp__CtlSets m = FP__CTL_SETS__INIT;
    Fp__CtlSetsReply *r;
    uint8_t how = fuzz_u8(in);
    char path[64];

    m.path = fix_bin(path_of(in, path));
    m.newest = how & 1;
    m.max = how & 2 ? 1 : 0;
    m.after = how & 4 ? fuzz_u8(in) : 0;
    m.files_of = how & 8 ? fuzz_u8(in) % 8 : 0;
    r = fix_call(f, x.w.ctl, FP__MSG_TYPE__MSG_CTL_SETS, &m, &fp__ctl_sets_reply__descriptor);
    for (size_t i = 0; r && i < r->n_sets; i++) {
        const Fp__CkptSet *s = r->sets[i];

        FUZZ_CHECK(s->files > 0 && s->path.len > 0);
        FUZZ_CHECK(s->state != FP__CKPT_STATE__CKPT_COMPLETE || s->writers == 0);
        FUZZ_CHECK(s->state != FP__CKPT_STATE__CKPT_FORGOTTEN);
    }
    fix_free(r);
}

static void say(struct fuzz_in *in)
{
    Fp__CtlSetSay m = FP__CTL_SET_SAY__INIT;
    uint8_t how = fuzz_u8(in);
    char path[64];

    m.path = fix_bin(path_of(in, path));
    m.what = how % 3;
    m.has_step = how & 4;
    m.step = how >> 3;
    fix_free(fix_call(f, x.w.ctl, FP__MSG_TYPE__MSG_CTL_SET_SAY, &m, &fp__ckpt_set__descriptor));
}

static void versions(struct fuzz_in *in)
{
    Fp__CtlVersions m = FP__CTL_VERSIONS__INIT;
    uint8_t how = fuzz_u8(in);
    char path[64];

    m.path = fix_bin(path_of(in, path));
    m.restore = how & 1 ? 1 + how / 64 : 0;
    m.newest = how & 2;
    m.force = how & 4;
    m.torn_all = how & 8;
    fix_free(fix_call(f, x.w.ctl, FP__MSG_TYPE__MSG_CTL_VERSIONS, &m, &fp__ctl_versions_reply__descriptor));
}

static void drain(struct fuzz_in *in)
{
    Fp__CtlDrain m = FP__CTL_DRAIN__INIT;
    uint8_t how = fuzz_u8(in);
    char path[2][64];
    ProtobufCBinaryData p[2] = {fix_bin(path_of(in, path[0]))};

    m.op = how < 128 ? FP__DRAIN_OP__DRAIN_OP_START : how % 6;
    m.paths = p;
    m.n_paths = 1;
    if (how & 1) {
        p[1] = fix_bin(path_of(in, path[1]));
        m.n_paths = 2;
    }
    m.dest = how & 2 ? "/pfs" : "";
    m.verify = how & 4;
    m.urgent = how & 8;
    m.id = m.op == FP__DRAIN_OP__DRAIN_OP_START ? 0 : fuzz_u8(in) % 8;
    if (how & 16)
        f->doom = -EIO;
    fix_free(fix_call(f, x.w.ctl, FP__MSG_TYPE__MSG_CTL_DRAIN, &m, &fp__ctl_drain_reply__descriptor));
    f->doom = 0;
}

static void policy(struct fuzz_in *in)
{
    static const char *const texts[] = {"to=/pfs", "to=/pfs verify=on", "to=/pfs every=2", "to=/pfs every=1 keep=1", "to=/pfs all=yes",
                                        "to=/pfs results=a*", "to=relative", "every=", "to=/pfs max=1MB/s",
                                        "to=/pfs pattern=chk_{step}/*,a?{step},restart.7.{step}", "to=/pfs pattern={step}/,out/*_{step}*", "to=/pfs pattern=*_{step} complete=told marker=a,b",
                                        "to=/pfs quiet=5s late=10s marker=b"};
    Fp__Policy m = FP__POLICY__INIT;
    uint8_t how = fuzz_u8(in);

    m.slot = 2;
    m.slot_seq = ++f->seq;
    m.text = (char *)(uintptr_t)texts[how % (sizeof texts / sizeof *texts)];
    m.remove = how >= 200 ? how - 199 : 0;
    fix_free(fix_call(f, fuzz_u8(in) & 1 ? x.w.ctl : f->conn, FP__MSG_TYPE__MSG_POLICY, &m, &fp__policy_reply__descriptor));
}

static void level(struct fuzz_in *in)
{
    Fp__LevelAsk m = FP__LEVEL_ASK__INIT;
    uint8_t how = fuzz_u8(in);
    char path[64];

    if (how & 1)
        m.ino = some_ino(in);
    else
        m.path = fix_bin(path_of(in, path));
    m.wait = how / 2 % 6;
    fix_free(fix_call(f, x.w.ctl, FP__MSG_TYPE__MSG_LEVEL, &m, &fp__level_reply__descriptor));
}

/* -------------------------------------------------------------- benefactors */

static void forget_told(void)
{
    if (x.told.known)
        w_result_fini(&x.told.r);
    x.told.known = false;
}

/* What it says instead of what it did, or beside it. */
static void spoil(struct fuzz_in *in, Fp__TaskResult *r)
{
    static const int errors[] = {-ENOENT, -EIO, -ENOSPC, -EACCES, FP_ECHECKSUM, FP_ECHUNK_MISSING, -ESTALE, -ETIMEDOUT};
    uint8_t how = fuzz_u8(in);

    if (how < 128)
        return;
    x.spoilt = true;
    r->status = errors[how % 8];
    r->stalled = how & 8;
    r->tainted = how & 16;
    if (how & 32)
        r->gen--;
}

/* A benefactor does one of its tasks and tells it, or does it only, or tells of one once more. */
static void work(struct fuzz_in *in)
{
    size_t i = fuzz_below(in, (uint32_t)x.w.nbnf);
    struct w_bnf *b = &x.w.bnf[i];
    uint8_t how = fuzz_u8(in);
    Fp__Task *k;
    Fp__TaskResult r;

    if (b->down)
        return;
    if (how >= 240 && x.told.known && !x.w.bnf[x.told.bnf].down) {
        w_tell(&x.w, x.told.bnf, &x.told.r);
        return;
    }
    if (b->asked)
        w_answer(&x.w, i, how >= 220 ? -EIO : 0);
    if (!b->n)
        return;
    k = b->task[how % b->n];
    x.w.wrong = how % 16 == 15;
    w_do(&x.w, k, &r);
    x.w.wrong = false;
    spoil(in, &r);
    if (how & 64)
        f->doom = -EIO; /* the manager's transaction fails: told again, later */
    if (w_tell(&x.w, i, &r) == 0 && !b->down && r.gen == k->gen && !r.stalled) { /* else it is not the answer, or it is to be done yet */
        for (size_t n = 0; n < b->n; n++)
            if (b->task[n] == k) {
                b->task[n] = b->task[--b->n];
                fix_free(k);
                break;
            }
    }
    f->doom = 0;
    forget_told();
    x.told = (struct told){.bnf = i, .r = r, .known = true};
}

static void comes_or_goes(struct fuzz_in *in)
{
    size_t i = fuzz_below(in, (uint32_t)x.w.nbnf);

    if (x.w.bnf[i].down)
        w_bnf_comes(&x.w, i);
    else
        w_bnf_dies(&x.w, i);
}

static void pass_time(struct fuzz_in *in)
{
    static const uint32_t ms[] = {500, 500, 1000, 1000, 2500, 2500, 5000, 20000};
    uint8_t how = fuzz_u8(in);

    if (how < 224) {
        w_tick(&x.w, ms[how % 8]);
        return;
    }
    f->doom = -EIO;
    fix_tick_failing(f, 500);
    f->doom = 0;
    w_tick(&x.w, 500);
}

/* -------------------------------------------------------------- what must hold */

static void none(const char *sql)
{
    int64_t n = fix_sql(f, "%s", sql);

    if (n != 0) {
        fprintf(stderr, "%lld rows: %s\n", (long long)n, sql);
        FUZZ_CHECK(!"rows that agree");
    }
}

static void check_tables(void)
{
    if (f->core->reload) /* until its next group the core remembers what the one that failed did */
        (void)fix_attr(f, MGR_ROOT_INO);
    fix_check(f);
    none("SELECT count(*) FROM tfile t WHERE refs != (SELECT count(*) FROM drained d WHERE d.tfile=t.id)+(SELECT count(*) FROM ext e WHERE e.tfile=t.id)");
    none("SELECT count(*) FROM drained WHERE tfile NOT IN (SELECT id FROM tfile)");
    none("SELECT count(*) FROM drained WHERE ino NOT IN (SELECT ino FROM inode)");
    none("SELECT count(*) FROM drained d WHERE data_version > (SELECT data_version FROM inode i WHERE i.ino=d.ino)");
    none("SELECT count(*) FROM drain_file WHERE job NOT IN (SELECT id FROM drain_job)");
    none("SELECT count(*) FROM drain_file WHERE state IN (2,3,4,5) AND job IN (SELECT id FROM drain_job WHERE state>=4)");
    none("SELECT count(*) FROM drain_job WHERE files_done>files OR bytes_done>bytes");
    none("SELECT count(*) FROM drain_job j WHERE files_done != (SELECT count(*) FROM drain_file f WHERE f.job=j.id AND f.state=6 AND f.data_version>0) AND "
         "files_done > (SELECT count(*) FROM drain_file f WHERE f.job=j.id)");
    none("SELECT count(*) FROM ckpt_set WHERE series NOT IN (SELECT id FROM ckpt_series)");
    none("SELECT count(*) FROM inode WHERE ckpt!=0 AND ckpt NOT IN (SELECT id FROM ckpt_set)");
    none("SELECT count(*) FROM inode WHERE ckpt!=0 AND (flags&16)!=0"); /* a kept version is in no set */
    none("SELECT count(*) FROM inode i JOIN ckpt_set s ON s.id=i.ckpt WHERE s.how=5 AND (i.flags&256)=0"); /* only results are in sets of results */
    FUZZ_CHECK((uint64_t)fix_sql(f, "SELECT count(*) FROM drain_job WHERE state<4") == f->core->drain->njobs);
}

/* The file in the target has the present data: each piece of it, and no other. */
static void check_equal(const struct w_file *t, const struct mgr_inode *in)
{
    sqlite3_stmt *st;
    size_t n = 0;

    FUZZ_CHECK(t->size == in->size && t->version == in->data_version);
    FUZZ_CHECK(sqlite3_prepare_v2(f->core->db.sq, "SELECT win,off,len,chunk,chunk_off FROM slice WHERE ino=?1", -1, &st, NULL) == SQLITE_OK);
    sqlite3_bind_int64(st, 1, (int64_t)in->ino);
    for (; sqlite3_step(st) == SQLITE_ROW; n++) {
        bool there = false;

        for (size_t i = 0; i < t->n; i++) {
            const struct w_piece *p = &t->piece[i];

            there |= p->win == (uint64_t)sqlite3_column_int64(st, 0) && p->off == (uint32_t)sqlite3_column_int64(st, 1) &&
                     p->len == (uint32_t)sqlite3_column_int64(st, 2) && p->chunk == (uint64_t)sqlite3_column_int64(st, 3) &&
                     p->chunk_off == (uint32_t)sqlite3_column_int64(st, 4);
        }
        FUZZ_CHECK(there);
    }
    sqlite3_finalize(st);
    FUZZ_CHECK(n == t->n);
}

/* What is said to be copied, is. */
static void check_copies(void)
{
    sqlite3_stmt *st;
    struct {
        char name[128];
        uint64_t ino, tino;
    } copy[INOS_MAX * 4];
    size_t n = 0;

    FUZZ_CHECK(sqlite3_prepare_v2(f->core->db.sq,
                                  "SELECT d.ino,t.path,t.tino FROM drained d JOIN tfile t ON t.id=d.tfile JOIN inode i ON i.ino=d.ino WHERE "
                                  "d.data_version=i.data_version AND t.gone=0",
                                  -1, &st, NULL) == SQLITE_OK);
    while (sqlite3_step(st) == SQLITE_ROW && n < sizeof copy / sizeof *copy) {
        copy[n].ino = (uint64_t)sqlite3_column_int64(st, 0);
        copy[n].tino = (uint64_t)sqlite3_column_int64(st, 2);
        snprintf(copy[n].name, sizeof copy[n].name, "%.*s", sqlite3_column_bytes(st, 1), (const char *)sqlite3_column_blob(st, 1));
        n++;
    }
    sqlite3_finalize(st);
    for (size_t i = 0; i < n; i++) {
        struct mgr_inode in;

        FUZZ_CHECK(mgr_inode_get(f->core, copy[i].ino, &in) == 0);
        if (mgr_drained_level(f->core, &in) < FP__LEVEL__LEVEL_DRAINED)
            continue;
        FUZZ_CHECK(w_find(&x.w, copy[i].name) && w_find(&x.w, copy[i].name)->ino == copy[i].tino);
        check_equal(w_find(&x.w, copy[i].name), &in);
    }
}

/* All are well, and have time: each job comes to its end. */
static void check_end(void)
{
    forget_told();
    for (size_t i = 0; i < x.w.nbnf; i++)
        if (x.w.bnf[i].down)
            w_bnf_comes(&x.w, i);
    w_run(&x.w);
    check_tables();
    check_copies();
    none("SELECT count(*) FROM drain_part");
    if (f->core->drain->njobs == 0 && !x.spoilt) /* else some are left to the sweep of each hour */
        FUZZ_CHECK(w_temps(&x.w) == 0);
}

/* -------------------------------------------------------------- an input */

static void step(struct fuzz_in *in)
{
    static void (*const what[])(struct fuzz_in *in) = {make,  write_at, work,   work,  drain,        open_close, pass_time,     write_at,   work, change_names,
                                                       sets,  say,      policy, level, versions,     work,       comes_or_goes, mount_dies, make, work};
    uint8_t k = fuzz_u8(in);

    if (k >= 250) { /* as after a transaction that failed */
        FUZZ_CHECK(mgr_reload(f->core) == 0);
        return;
    }
    if (k >= 240) {
        convert(in);
        return;
    }
    what[k % (sizeof what / sizeof *what)](in);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct fuzz_in in = {data, data + len};
    uint8_t how = fuzz_u8(&in);

    memset(&x, 0, sizeof x);
    fix_versions = how & 1;
    w_open(&x.w, ":memory:", how & 2 ? 2 : 1);
    x.w.unsummed = how & 4;
    x.w.other_jobs = true;
    x.other = fix_conn(f);
    fix_hello_client(f, x.other, 0, NULL);
    for (int i = 0; i < STEPS_MAX && fuzz_left(&in) > 0; i++)
        step(&in);
    check_tables();
    check_copies();
    if (f->core->drain->njobs || how & 8)
        check_end();
    forget_told();
    w_close(&x.w);
    return 0;
}
