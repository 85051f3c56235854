/* What tests of checkpoint sets share: a manager with two mounts, files and directories made through it, and what it says of the sets. */
#ifndef TESTS_MGR_SETS_H
#define TESTS_MGR_SETS_H

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

#include "life.pb-c.h"
#include "manager/sets.h"
#include "mgr_one.h"

#define OPEN     FP__CKPT_STATE__CKPT_OPEN
#define COMPLETE FP__CKPT_STATE__CKPT_COMPLETE
#define TORN     FP__CKPT_STATE__CKPT_TORN
#define QUIET_MS 2000u
#define LATE_MS  60000u

static struct mgr_conn *other; /* a second mount */
static uint64_t other_session;

static inline int setup(void **state)
{
    (void)state;
    fix_open(&f, ":memory:", false);
    other = fix_conn(&f);
    other_session = fix_hello_client(&f, other, 0, NULL);
    return 0;
}

static inline uint64_t make_dir(uint64_t parent, const char *name)
{
    return fix_mk(&f, parent, name, S_IFDIR | 0755);
}

static inline void open_by(struct mgr_conn *conn, uint64_t ino, bool write)
{
    Fp__Open m = FP__OPEN__INIT;

    m.ino = ino;
    m.write = write;
    fix_free(fix_call(&f, conn, FP__MSG_TYPE__MSG_OPEN, &m, &fp__attr_reply__descriptor));
    assert_int_equal(f.status, 0);
}

static inline void open_by_fails(uint64_t ino)
{
    Fp__Open m = FP__OPEN__INIT;

    m.ino = ino;
    m.write = true;
    fix_free(fix_call(&f, f.conn, FP__MSG_TYPE__MSG_OPEN, &m, &fp__attr_reply__descriptor));
    assert_int_not_equal(f.status, 0);
}

static inline uint64_t file(uint64_t parent, const char *name, uint32_t len)
{
    uint64_t ino = fix_creat(&f, f.conn, parent, name);

    if (len)
        assert_int_not_equal(fix_write(&f, ino, 0, len), 0);
    fix_release(&f, f.conn, ino);
    return ino;
}

static inline void wait_ms(uint64_t ms)
{
    for (uint64_t t = 0; t < ms; t += 500) {
        if (f.bnf_conn)
            fix_keepalive(&f);
        fix_tick(&f, ms - t < 500 ? ms - t : 500);
        /* both mounts are heard */
        fix_free(fix_call(&f, f.conn, FP__MSG_TYPE__MSG_STATFS, &(Fp__Empty)FP__EMPTY__INIT, &fp__stat_fs_reply__descriptor));
        if (other)
            fix_free(fix_call(&f, other, FP__MSG_TYPE__MSG_STATFS, &(Fp__Empty)FP__EMPTY__INIT, &fp__stat_fs_reply__descriptor));
    }
}

static inline Fp__CtlSetsReply *list(const char *path, uint32_t newest)
{
    Fp__CtlSets m = FP__CTL_SETS__INIT;

    m.path = fix_bin(path);
    m.newest = newest;
    return fix_call(&f, f.conn, FP__MSG_TYPE__MSG_CTL_SETS, &m, &fp__ctl_sets_reply__descriptor);
}

/* The only set there is. */
static inline void is(const char *path, uint64_t step, Fp__CkptState state, uint64_t files, uint64_t bytes)
{
    Fp__CtlSetsReply *r = list("", 0);

    assert_non_null(r);
    assert_int_equal(r->n_sets, 1);
    assert_int_equal(r->sets[0]->path.len, strlen(path));
    assert_memory_equal(r->sets[0]->path.data, path, strlen(path));
    assert_int_equal(r->sets[0]->step, step);
    assert_int_equal(r->sets[0]->state, state);
    assert_int_equal(r->sets[0]->files, files);
    assert_int_equal(r->sets[0]->bytes, bytes);
    fix_free(r);
}

static inline Fp__CkptState state_of(uint64_t step)
{
    Fp__CtlSetsReply *r = list("", 0);
    Fp__CkptState s = FP__CKPT_STATE__CKPT_NONE;

    assert_non_null(r);
    for (size_t i = 0; i < r->n_sets; i++)
        s = r->sets[i]->step == step ? r->sets[i]->state : s;
    fix_free(r);
    return s;
}

static inline size_t how_many(const char *path, uint32_t newest)
{
    Fp__CtlSetsReply *r = list(path, newest);
    size_t n = r ? r->n_sets : 999;

    if (r)
        fix_free(r);
    return n;
}

static char said_series[64]; /* of the last set that something was said of */

static inline Fp__CkptState say(const char *path, Fp__SetSay what)
{
    Fp__CtlSetSay m = FP__CTL_SET_SAY__INIT;
    struct mgr_conn *ctl = fix_conn(&f);
    Fp__Hello h = FP__HELLO__INIT;
    Fp__CkptState s = FP__CKPT_STATE__CKPT_NONE;
    Fp__CkptSet *r;

    h.protocol = 1;
    h.role = FP__ROLE__ROLE_CONTROL;
    h.software = (char *)"x";
    fix_free(fix_call(&f, ctl, FP__MSG_TYPE__MSG_HELLO, &h, &fp__hello_reply__descriptor));
    m.path = fix_bin(path);
    m.what = what;
    r = fix_call(&f, ctl, FP__MSG_TYPE__MSG_CTL_SET_SAY, &m, &fp__ckpt_set__descriptor);
    if (r) {
        s = r->state;
        assert_true(r->series.len < sizeof said_series);
        memcpy(said_series, r->series.data, r->series.len);
        said_series[r->series.len] = '\0';
        fix_free(r);
    }
    int status = f.status;
    fix_lost(&f, ctl);
    f.status = status;
    return s;
}

#endif
