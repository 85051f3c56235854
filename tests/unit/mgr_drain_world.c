/* See mgr_drain_world.h. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <cmocka.h>

#include "mgr_drain_world.h"
#include "fp/err.h"

static void hello_as(struct world *w, size_t i)
{
    struct w_bnf *b = &w->bnf[i];
    Fp__Hello h = FP__HELLO__INIT;
    Fp__BnfInfo info = FP__BNF_INFO__INIT;
    Fp__BnfPrefs prefs = FP__BNF_PREFS__INIT;
    Fp__HelloReply *r;
    uint8_t uuid[16];
    char addr[32], node[32];

    memset(uuid, (int)(i ? 20 + i : 7), sizeof uuid); /* the first one is the fixture's */
    snprintf(addr, sizeof addr, "127.0.0.1:%zu", i + 1);
    snprintf(node, sizeof node, "n%zu", i + 1);
    prefs.drain = true;
    info.uuid.data = uuid;
    info.uuid.len = 16;
    info.node = node;
    info.addr = addr;
    info.capacity_bytes = info.free_bytes = 1u << 30;
    info.state = FP__BNF_STATE__BNF_OK;
    info.prefs = &prefs;
    h.protocol = 1;
    h.role = FP__ROLE__ROLE_BENEFACTOR;
    h.benefactor = &info;
    b->conn = fix_conn(&w->f);
    r = fix_call(&w->f, b->conn, FP__MSG_TYPE__MSG_HELLO, &h, &fp__hello_reply__descriptor);
    assert_non_null(r);
    b->id = r->bnf_id;
    b->down = false;
    fix_free(r);
}

static void forget(struct w_bnf *b)
{
    while (b->n)
        fix_free(b->task[--b->n]);
    fix_free(b->call);
    b->call = NULL;
    b->asked = false;
}

static void is_paced(struct w_bnf *b, const struct fix_out *o)
{
    Fp__Pace *m = fp__pace__unpack(NULL, o->len, o->bytes);

    assert_non_null(m);
    for (size_t i = 0; i < m->n_targets; i++) {
        b->pace.mode = m->targets[i]->mode;
        b->pace.rate = m->targets[i]->rate;
        b->pace.look = m->targets[i]->look;
    }
    fix_free(m);
}

/* What a benefactor is sent. */
static void sent(struct fix *f, const struct fix_out *o)
{
    struct world *w = (struct world *)f;

    for (size_t i = 0; i < w->nbnf && o->conn; i++) {
        if (w->bnf[i].conn != o->conn)
            continue;
        if (o->type == FP__MSG_TYPE__MSG_PACE)
            is_paced(&w->bnf[i], o);
        w->bnf[i].prefs_set += o->type == FP__MSG_TYPE__MSG_BNF_SET && o->kind == MGR_OUT_CALL;
    }

    for (size_t i = 0; i < w->nbnf && o->type == FP__MSG_TYPE__MSG_TASKS; i++)
        if (w->bnf[i].conn == o->conn && o->conn) {
            assert_false(w->bnf[i].asked); /* one at a time */
            assert_int_equal(o->kind, MGR_OUT_CALL);
            assert_true(o->len < 2u << 20);
            w->bnf[i].asked = true;
            w->bnf[i].call = fp__tasks__unpack(NULL, o->len, o->bytes);
            assert_non_null(w->bnf[i].call);
        }
}

void w_open(struct world *w, const char *path, size_t nbnf)
{
    memset(w, 0, sizeof *w);
    w->path = path;
    w->nbnf = nbnf;
    w->next_ino = 100;
    fix_open(&w->f, path, false);
    w->f.sent = sent;
    fix_lost(&w->f, w->f.bnf_conn);
    for (size_t i = 0; i < nbnf; i++)
        hello_as(w, i);
    w->f.bnf_conn = w->bnf[0].conn;
    w->ctl = fix_ctl(&w->f);
}

void w_close(struct world *w)
{
    for (size_t i = 0; i < w->nbnf; i++)
        forget(&w->bnf[i]);
    fix_check(&w->f);
    fix_close_and_remove(&w->f);
}

/* The mount is back, with nothing open. */
static uint64_t hello_again(struct world *w, uint64_t session)
{
    Fp__Hello h = FP__HELLO__INIT;
    Fp__HelloReply *r;
    uint64_t id;

    h.protocol = 1;
    h.role = FP__ROLE__ROLE_CLIENT;
    h.node = (char *)"n1";
    h.mountpoint = (char *)"/mnt";
    h.session = session;
    h.open_known = true;
    r = fix_call(&w->f, w->f.conn, FP__MSG_TYPE__MSG_HELLO, &h, &fp__hello_reply__descriptor);
    assert_non_null(r);
    id = r->session;
    fix_free(r);
    return id;
}

void w_restart(struct world *w)
{
    struct mgr_now now = w->f.now;
    uint64_t seq = w->f.seq, chunk = w->f.next_chunk, session = w->f.session;

    fix_close(&w->f);
    fix_open(&w->f, w->path, true);
    w->f.sent = sent;
    w->f.now = now;
    w->f.seq = seq;
    w->f.next_chunk = chunk;
    w->f.conn = fix_conn(&w->f);
    w->f.session = hello_again(w, session);
    assert_int_equal(w->f.session, session);
    for (size_t i = 0; i < w->nbnf; i++) { /* all, before a new connection is where one of them was */
        fix_free(w->bnf[i].call);
        w->bnf[i].call = NULL;
        w->bnf[i].asked = false;
        w->bnf[i].conn = NULL;
    }
    for (size_t i = 0; i < w->nbnf; i++) {
        if (!w->bnf[i].down)
            hello_as(w, i); /* with what it has taken before */
    }
    w->f.bnf = w->bnf[0].id;
    w->f.bnf_conn = w->bnf[0].conn;
    w->ctl = fix_ctl(&w->f);
}

void w_bnf_dies(struct world *w, size_t i)
{
    if (w->bnf[i].down)
        return;
    fix_lost(&w->f, w->bnf[i].conn);
    w->bnf[i].conn = NULL;
    w->bnf[i].down = true;
    forget(&w->bnf[i]);
}

void w_bnf_comes(struct world *w, size_t i)
{
    if (w->bnf[i].down)
        hello_as(w, i);
}

static void keepalives(struct world *w)
{
    (void)fix_attr(&w->f, MGR_ROOT_INO); /* the mount is alive, too */
    for (size_t i = 0; i < w->nbnf; i++) {
        Fp__KeepAlive k = FP__KEEP_ALIVE__INIT;
        Fp__BnfInfo info = FP__BNF_INFO__INIT;
        Fp__BnfPrefs prefs = FP__BNF_PREFS__INIT;
        char addr[32], node[32];

        if (w->bnf[i].down)
            continue;
        snprintf(addr, sizeof addr, "127.0.0.1:%zu", i + 1);
        snprintf(node, sizeof node, "n%zu", i + 1);
        prefs.drain = true;
        info.prefs = &prefs;
        info.node = node;
        info.addr = addr;
        info.capacity_bytes = info.free_bytes = w->capacity ? w->capacity : 1u << 30;
        if (w->free_bytes)
            info.free_bytes = w->free_bytes;
        info.state = FP__BNF_STATE__BNF_OK;
        info.targets = &w->bnf[i].says;
        info.n_targets = w->bnf[i].says != NULL;
        k.info = &info;
        fix_notice(&w->f, w->bnf[i].conn, FP__MSG_TYPE__MSG_KEEPALIVE, &k);
    }
}

void w_tick(struct world *w, uint64_t ms)
{
    for (uint64_t t = 0; t < ms; t += 500) {
        fix_tick(&w->f, 500);
        keepalives(w);
    }
}

/* ---------------------------------------------------------------- the benefactor */

static void take(struct w_bnf *b, Fp__Task *k)
{
    for (size_t i = 0; i < b->n; i++)
        if (b->task[i]->id == k->id) { /* a later attempt takes the place of the earlier one */
            if (b->task[i]->gen < k->gen || !k->gen) {
                fix_free(b->task[i]);
                b->task[i] = k;
            } else {
                fix_free(k);
            }
            return;
        }
    assert_true(b->n < W_TASKS);
    b->task[b->n++] = k;
}

void w_answer(struct world *w, size_t i, int status)
{
    struct w_bnf *b = &w->bnf[i];
    Fp__Tasks *m = b->call;

    if (!b->asked)
        return;
    b->asked = false;
    b->call = NULL;
    for (size_t k = 0; k < m->n_cancel && !status; k++)
        for (size_t n = b->n; n-- > 0;)
            if (b->task[n]->id == m->cancel[k]) {
                fix_free(b->task[n]);
                b->task[n] = b->task[--b->n];
            }
    for (size_t k = 0; k < m->n_tasks && !status; k++) {
        take(b, m->tasks[k]);
        m->tasks[k] = NULL;
    }
    if (!status)
        m->n_tasks = 0; /* they are ours */
    fix_free(m);
    fix_answer(&w->f, b->conn, FP__MSG_TYPE__MSG_TASKS, status, NULL);
}

/* ---------------------------------------------------------------- the target */

struct w_file *w_find(struct world *w, const char *name)
{
    for (size_t i = 0; i < W_FILES; i++)
        if (w->file[i].used && w->file[i].other == w->other && strcmp(w->file[i].name, name) == 0)
            return &w->file[i];
    return NULL;
}

size_t w_temps(const struct world *w)
{
    size_t n = 0;

    for (size_t i = 0; i < W_FILES; i++)
        n += w->file[i].used && strncmp(w->file[i].name, "01020300-", 9) == 0;
    return n;
}

static struct w_file *make(struct world *w, const char *name)
{
    for (size_t i = 0; i < W_FILES; i++)
        if (!w->file[i].used) {
            memset(&w->file[i], 0, sizeof w->file[i]);
            w->file[i].used = true;
            w->file[i].other = w->other;
            snprintf(w->file[i].name, sizeof w->file[i].name, "%s", name);
            w->file[i].ino = w->next_ino++;
            return &w->file[i];
        }
    fail_msg("too many files in the target");
    return NULL;
}

static const char *name_of(ProtobufCBinaryData b, char buf[W_NAME])
{
    assert_true(b.len < W_NAME);
    if (b.len)
        memcpy(buf, b.data, b.len);
    buf[b.len] = '\0';
    return buf;
}

static void see(Fp__TaskResult *r, const struct w_file *f)
{
    r->seen = malloc(sizeof *r->seen);
    fp__ext_file__init(r->seen);
    r->seen->target = 1;
    r->seen->dev = 77;
    r->seen->ino = f->ino;
    r->seen->size_bytes = f->size;
    r->seen->mtime_ns = 5;
}

static void do_write(struct world *w, const Fp__Task *k, struct w_file *f, Fp__TaskResult *r)
{
    uint64_t last = UINT64_MAX;

    r->sums = malloc(k->count * sizeof *r->sums);
    w->written++;
    for (size_t i = 0; i < k->n_slices; i++) {
        const Fp__Slice *s = k->slices[i];
        bool have = false;

        assert_true(s->win >= k->first && s->win < k->first + k->count);
        if (s->win != last)
            r->sums[r->n_sums++] = w->unsummed ? 0 : 0x1000 + s->win;
        last = s->win;
        for (size_t n = 0; n < f->n; n++)
            have |= f->piece[n].win == s->win && f->piece[n].off == s->off;
        assert_true(f->n < W_PIECES);
        if (!have)
            f->piece[f->n++] = (struct w_piece){.win = s->win, .chunk = s->chunk, .off = s->off, .len = s->len, .chunk_off = s->chunk_off};
    }
}

static void do_finish(struct world *w, const Fp__Task *k, struct w_file *tmp, const char *path, Fp__TaskResult *r)
{
    struct w_file *old = w_find(w, path);
    unsigned long long ino, version;
    char mark[W_NAME];

    assert_int_equal(sscanf(name_of(k->mark, mark), "%*8[0-9a-f]:%llu:%llu", &ino, &version), 2);
    if (!tmp && old && old->ino == k->tmp_ino) { /* done before */
        see(r, old);
        return;
    }
    if (!tmp || tmp->ino != k->tmp_ino) {
        r->status = -ENOENT;
        return;
    }
    assert_non_null(k->attr);
    if (old)
        old->used = false;
    snprintf(tmp->name, sizeof tmp->name, "%s", path);
    tmp->version = version;
    w->renamed++;
    see(r, tmp);
}

/* A directory has no temporary name: nothing of it is in w->file. */
static void do_dir(struct world *w, const Fp__Task *k, Fp__TaskResult *r)
{
    const struct w_file dir = {.ino = 4711};

    if (k->kind == FP__TASK_KIND__TASK_FINISH) {
        assert_int_equal(k->tmp_ino, dir.ino);
        for (size_t i = 0; i < W_FILES; i++) /* all else of the job is done */
            assert_true(!w->file[i].used || w->file[i].version || w->other_jobs);
    }
    w->dirs_made += k->kind == FP__TASK_KIND__TASK_PREPARE;
    w->dirs_done += k->kind == FP__TASK_KIND__TASK_FINISH;
    see(r, &dir);
}

static void do_prepare(struct world *w, const Fp__Task *k, struct w_file *f, const char *path, const char *tmp, Fp__TaskResult *r)
{
    if (w->refuse && strcmp(path, w->refuse_path) == 0) {
        r->status = w->refuse;
        return;
    }
    if (k->attr && S_ISDIR(k->attr->mode)) {
        do_dir(w, k, r);
        return;
    }
    if (k->attr) {
        assert_true(S_ISLNK(k->attr->mode) && k->text.len && !k->size_bytes);
        w->links++;
    }
    f = f ? f : make(w, tmp);
    f->size = k->size_bytes;
    see(r, f);
}

static void do_sweep(struct world *w, Fp__TaskResult *r)
{
    r->list = calloc(W_FILES, sizeof(*r->list));
    for (size_t i = 0; i < W_FILES; i++) {
        Fp__ListEntry *e;

        if (!w->file[i].used || w->file[i].other != w->other || strncmp(w->file[i].name, "01020300-", 9) != 0)
            continue;
        e = malloc(sizeof *e);
        fp__list_entry__init(e);
        e->path.len = strlen(w->file[i].name);
        e->path.data = (uint8_t *)strdup(w->file[i].name);
        r->list[r->n_list++] = e;
    }
}

static void do_task(struct world *w, const Fp__Task *k, Fp__TaskResult *r)
{
    char tmp[W_NAME], path[W_NAME];
    struct w_file *f = w_find(w, name_of(k->tmp, tmp));
    bool *marker = w->other ? &w->other_marker : &w->marker;

    name_of(k->dest->path, path);
    fp__task_result__init(r);
    r->id = k->id;
    r->gen = k->gen;
    assert_true(w->other || strcmp(k->dest->root, "/pfs") == 0);
    assert_true(k->dest->uuid.len == 16 && (*marker || k->kind == FP__TASK_KIND__TASK_PROBE));
    switch (k->kind) {
    case FP__TASK_KIND__TASK_PROBE:
        assert_true(k->overwrite && strcmp(tmp, "01020300-probe") == 0);
        *marker = true;
        w->probes++;
        return;
    case FP__TASK_KIND__TASK_PREPARE:
        do_prepare(w, k, f, path, tmp, r);
        return;
    case FP__TASK_KIND__TASK_WRITE:
    case FP__TASK_KIND__TASK_VERIFY:
        if (!f || f->ino != k->tmp_ino)
            r->status = -ENOENT;
        else if (k->kind == FP__TASK_KIND__TASK_WRITE)
            do_write(w, k, f, r);
        else {
            w->verified++;
            assert_int_equal(k->n_sums, k->count);
            w->others += k->n_slices;
            for (size_t i = 0; i < k->n_slices; i++)
                assert_true(k->sums[k->slices[i]->win - k->first] == 0x1000 + k->slices[i]->win);
            r->status = w->wrong ? FP_ECHECKSUM : 0;
            w->wrong = false;
        }
        return;
    case FP__TASK_KIND__TASK_STAT:
        if (k->mark.len && !w_find(w, name_of(k->mark, tmp)))
            make(w, tmp)->version = 1; /* no temporary file */
        f = w_find(w, path);
        if (f)
            see(r, f);
        else
            r->status = -ENOENT;
        return;
    case FP__TASK_KIND__TASK_FETCH:
        f = w_find(w, path);
        r->status = f && f->ino == k->dest->ino && f->size == k->dest->size_bytes ? 0 : -ENOENT;
        if (!r->status && w->other_bytes)
            r->status = FP_ECHECKSUM;
        return;
    case FP__TASK_KIND__TASK_FINISH:
        if (S_ISDIR(k->attr->mode))
            do_dir(w, k, r);
        else
            do_finish(w, k, f, path, r);
        return;
    case FP__TASK_KIND__TASK_CLEAN:
        w->cleaned++;
        if (f)
            f->used = false;
        return;
    case FP__TASK_KIND__TASK_SWEEP:
        do_sweep(w, r);
        return;
    default:
        fail_msg("task %d", k->kind);
    }
}

void w_do(struct world *w, const Fp__Task *k, Fp__TaskResult *r)
{
    bool other = w->other;

    w->other = strcmp(k->dest->root, "/other") == 0;
    do_task(w, k, r);
    w->other = other;
}

void w_result_fini(Fp__TaskResult *r)
{
    free(r->sums);
    free(r->seen);
    for (size_t i = 0; i < r->n_list; i++) {
        free(r->list[i]->path.data);
        free(r->list[i]);
    }
    free(r->list);
}

int w_tell(struct world *w, size_t i, Fp__TaskResult *r)
{
    Fp__TaskDone m = FP__TASK_DONE__INIT;

    m.n_results = 1;
    m.results = &r;
    fix_free(fix_call(&w->f, w->bnf[i].conn, FP__MSG_TYPE__MSG_TASK_DONE, &m, &fp__task_ack__descriptor));
    return w->f.status;
}

/* What it has fetched. */
static void say_staged(struct world *w, size_t i, const Fp__Task *t)
{
    Fp__TaskDone m = FP__TASK_DONE__INIT;
    Fp__Staged s[W_PIECES], *ss[W_PIECES];

    assert_true(t->n_slices > 0 && t->n_slices <= W_PIECES);
    for (size_t k = 0; k < t->n_slices; k++) {
        fp__staged__init(&s[k]);
        s[k].chunk = t->slices[k]->chunk;
        s[k].stored_bytes = t->slices[k]->chunk_len + 4096;
        ss[k] = &s[k];
    }
    m.n_staged = t->n_slices;
    m.staged = ss;
    fix_free(fix_call(&w->f, w->bnf[i].conn, FP__MSG_TYPE__MSG_TASK_DONE, &m, &fp__task_ack__descriptor));
    w->fetched += t->n_slices;
}

void w_work(struct world *w, size_t i, size_t k)
{
    struct w_bnf *b = &w->bnf[i];
    Fp__Task *t = b->task[k];
    Fp__TaskResult r;

    b->task[k] = b->task[--b->n];
    w_do(w, t, &r);
    w->looks += t->kind == FP__TASK_KIND__TASK_STAT;
    if (t->kind == FP__TASK_KIND__TASK_STAT && i + 1 == w->blind)
        r.status = -ENOENT;
    if (t->kind == FP__TASK_KIND__TASK_FETCH && !r.status)
        say_staged(w, i, t);
    assert_int_equal(w_tell(w, i, &r), 0);
    w_result_fini(&r);
    fix_free(t);
}

void w_run(struct world *w)
{
    for (int idle = 0; idle < 60;) {
        bool any = false;

        for (size_t i = 0; i < w->nbnf; i++) {
            any |= w->bnf[i].asked || w->bnf[i].n;
            if (w->bnf[i].asked)
                w_answer(w, i, 0);
            while (w->bnf[i].n)
                w_work(w, i, 0);
        }
        idle = any ? 0 : idle + 1;
        if (!any)
            w_tick(w, 500);
    }
}

/* ---------------------------------------------------------------- the user */

uint64_t w_start(struct world *w, const char *path, bool verify, char why[300])
{
    Fp__CtlDrain m = FP__CTL_DRAIN__INIT;
    Fp__CtlDrainReply *r;
    ProtobufCBinaryData p = fix_bin(path);
    uint64_t id = 0;

    m.op = FP__DRAIN_OP__DRAIN_OP_START;
    m.n_paths = 1;
    m.paths = &p;
    m.dest = (char *)(uintptr_t)(w->to ? w->to : "/pfs");
    m.verify = verify;
    m.layout = w->layout;
    m.again = w->again;
    r = fix_call(&w->f, w->ctl, FP__MSG_TYPE__MSG_CTL_DRAIN, &m, &fp__ctl_drain_reply__descriptor);
    assert_non_null(r);
    assert_true(w->f.durable);
    if (r->n_ids)
        id = r->ids[0];
    if (why)
        snprintf(why, 300, "%s", r->n_why ? r->why[0] : "");
    assert_true((id != 0) != (r->n_why != 0));
    fix_free(r);
    return id;
}

void w_policy_change(struct world *w, const char *text, uint64_t remove, char why[FP_DRAIN_WHY_MAX])
{
    (void)fix_policy(&w->f, w->ctl, text, remove, why);
}

void w_policy(struct world *w, const char *text)
{
    w_policy_change(w, text, 0, NULL);
}

Fp__CtlDrainReply *w_show(struct world *w, uint64_t id)
{
    Fp__CtlDrain m = FP__CTL_DRAIN__INIT;
    Fp__CtlDrainReply *r;

    m.id = id;
    r = fix_call(&w->f, w->ctl, FP__MSG_TYPE__MSG_CTL_DRAIN, &m, &fp__ctl_drain_reply__descriptor);
    assert_non_null(r);
    return r;
}

void w_equal(struct world *w, const char *name, uint64_t ino)
{
    const struct w_file *f = w_find(w, name);

    if (!f)
        fail_msg("%s is not in the target", name);
    assert_int_equal(fix_sql(&w->f, "SELECT size FROM inode WHERE ino=%llu", (unsigned long long)ino), f->size);
    assert_int_equal(fix_sql(&w->f, "SELECT data_version FROM inode WHERE ino=%llu", (unsigned long long)ino), f->version);
    assert_int_equal(fix_sql(&w->f, "SELECT count(*) FROM slice WHERE ino=%llu", (unsigned long long)ino), f->n);
    for (size_t i = 0; i < f->n; i++) {
        const struct w_piece *p = &f->piece[i];

        assert_int_equal(fix_sql(&w->f, "SELECT count(*) FROM slice WHERE ino=%llu AND win=%llu AND off=%u AND len=%u AND chunk=%llu AND chunk_off=%u",
                 (unsigned long long)ino, (unsigned long long)p->win, p->off, p->len, (unsigned long long)p->chunk, p->chunk_off), 1);
    }
}
