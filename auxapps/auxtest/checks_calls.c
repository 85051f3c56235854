/*
 * Checks of everything but data: start and stop, FUSE calls, sealed files, sets, messages, options, leaks (see auxtest.h).
 *
 * Sequences are first those of an ordinary program, then random: names missing, lengths of 0, errors as results. A plugin sees all of that in the
 * field.
 */
#include <errno.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "auxapps/auxtest/auxtest.h"

#define LEAK_BYTES (256u << 10)

void check_start(const struct subject *s)
{
    for (unsigned i = 0; i < 20; i++) {
        struct fp_aux_host h;

        host_new(&h, s);
        subject_stop(s, subject_start(s, &h));
        host_free(&h);
    }
}

/* -------------------------------------------------------------- calls */

static int one_io(const struct subject *s, void *state, struct fp_aux_host *h, struct fp_aux_io *io)
{
    struct fp_aux_call call;
    int rc;

    if (!s->app->io[io->op].fn)
        return 0;
    io->size_bytes = sizeof(*io);
    if (!(s->app->io[io->op].flags & FP_AUX_WANT_DATA) && io->op == FP_AUX_OP_WRITE)
        io->data = NULL;
    call_begin(&call, h, NULL);
    rc = s->app->io[io->op].fn(state, &call, io);
    call_end(&call);
    if (rc > 0 || rc < -4095)
        auxtest_fail("the op for call %u answered %d: it must be 0 or a negative errno", io->op, rc);
    return rc;
}

/* mkdir, create, write, fsync, close, rename, open, read, close, unlink. */
static void ordinary(const struct subject *s, void *state, struct fp_aux_host *h)
{
    static const uint8_t bytes[4096] = "checkpoint";
    struct fp_aux_io script[] = {
        { .op = FP_AUX_OP_LOOKUP, .parent = 1, .name = "run", .result = -ENOENT },
        { .op = FP_AUX_OP_MKDIR, .parent = 1, .ino = 2, .name = "run", .mode = 040755 },
        { .op = FP_AUX_OP_CREATE, .parent = 2, .ino = 3, .name = "ckpt.tmp", .mode = 0100644, .flags = 01101 },
        { .op = FP_AUX_OP_WRITE, .ino = 3, .off = 0, .len_bytes = 4096, .data = bytes },
        { .op = FP_AUX_OP_FSYNC, .ino = 3 },
        { .op = FP_AUX_OP_FLUSH, .ino = 3 },
        { .op = FP_AUX_OP_RELEASE, .ino = 3 },
        { .op = FP_AUX_OP_RENAME, .parent = 2, .new_parent = 2, .ino = 3, .name = "ckpt.tmp", .new_name = "ckpt" },
        { .op = FP_AUX_OP_OPEN, .ino = 3 },
        { .op = FP_AUX_OP_READ, .ino = 3, .len_bytes = 4096 },
        { .op = FP_AUX_OP_RELEASE, .ino = 3 },
        { .op = FP_AUX_OP_UNLINK, .parent = 2, .ino = 3, .name = "ckpt" },
    };

    for (size_t i = 0; i < sizeof(script) / sizeof(*script); i++)
        (void)one_io(s, state, h, &script[i]);
}

static void random_io(const struct subject *s, void *state, struct fp_aux_host *h, struct random *r)
{
    static const char *const names[] = { NULL, "", "a", "chk_0007", "a name with spaces and \x01 bytes \xff", "user.fp.checksum" };
    uint64_t len = random_below(r, 3) * 4096;
    struct buffer data;
    struct fp_aux_io io = {
        .op = (uint32_t)random_below(r, FP_AUX_OP_COUNT), .result = random_below(r, 4) ? 0 : -(int32_t)(1 + random_below(r, 100)),
        .uid = (uint32_t)random_next(r), .pid = (uint32_t)random_next(r), .mode = (uint32_t)random_next(r),
        .flags = (uint32_t)random_next(r), .ino = random_next(r) >> random_below(r, 64), .parent = random_next(r) >> random_below(r, 64),
        .name = names[random_below(r, 6)], .new_name = names[random_below(r, 6)], .off = random_next(r) >> random_below(r, 64),
        .len_bytes = len, .time_ns = 1,
    };

    buffer_new(&data, len ? len : 1);
    buffer_read_only(&data, true);
    io.data = len && (io.op == FP_AUX_OP_WRITE || io.op == FP_AUX_OP_SETXATTR) ? data.data : NULL;
    (void)one_io(s, state, h, &io);
    buffer_free(&data);
}

static void random_file(const struct subject *s, void *state, struct fp_aux_host *h, struct random *r)
{
    static const char *const paths[] = { "", "ckpt", "run/chk_0007/rank_12.dat", "a/b.json" };
    struct fp_aux_file f = { .size_bytes = sizeof(f), .ino = 100 + random_below(r, 5), .file_serial = 1 + random_below(r, 4), .mode = 0100644,
                 .path = paths[random_below(r, 4)], .data_version = random_below(r, 100) };
    const char *const set_paths[] = { "run/chk_0007/rank_0.dat", "run/chk_0007/rank_1.dat" };
    struct fp_aux_set set = { .size_bytes = sizeof(set), .nfiles = 2, .step = 7, .name = "run/chk_0007", .paths = set_paths };
    struct fp_aux_call call;
    int rc = 0;

    h->file_bytes = random_below(r, 3) ? random_below(r, 3 << 20) : 0;
    uint8_t *bytes = malloc(h->file_bytes + 1);

    if (!bytes)
        abort();
    memset(bytes, (int)random_below(r, 256), h->file_bytes);
    h->file = bytes;
    f.len_bytes = h->file_bytes + (random_below(r, 8) == 0); /* it may have become shorter meanwhile */
    call_begin(&call, h, NULL);
    if (s->app->file_sealed)
        rc = s->app->file_sealed(state, &call, &f);
    if (rc > 0)
        auxtest_fail("file_sealed answered %d: it must be 0 or a negative errno", rc);
    if (s->app->set_complete && s->app->set_complete(state, &call, &set) > 0)
        auxtest_fail("set_complete answered more than 0");
    if (s->app->idle && s->app->idle(state, &call) > 0)
        auxtest_fail("idle answered more than 0");
    call_end(&call);
    h->file_bytes = 0;
    free(bytes);
}

static void random_message(const struct subject *s, void *state, struct fp_aux_host *h, struct random *r)
{
    struct fp_aux_message m = { .size_bytes = sizeof(m), .node = "other", .mount = random_next(r) };
    struct fp_aux_call call;
    struct buffer data;

    if (!s->app->message)
        return;
    m.len_bytes = (uint32_t)(random_below(r, 3) ? random_below(r, 64) : random_below(r, FP_AUX_MESSAGE_MAX_BYTES + 1));
    buffer_new(&data, m.len_bytes ? m.len_bytes : 1);
    buffer_read_only(&data, true);
    m.data = data.data;
    call_begin(&call, h, NULL);
    if (s->app->message(state, &call, &m) > 0)
        auxtest_fail("message answered more than 0");
    call_end(&call);
    buffer_free(&data);
}

static void round_of_calls(const struct subject *s, void *state, struct fp_aux_host *h, struct random *r)
{
    random_io(s, state, h, r);
    random_message(s, state, h, r);
    if (random_below(r, 8) == 0)
        random_file(s, state, h, r);
}

void check_calls(const struct subject *s)
{
    struct fp_aux_host h;
    struct random r = { s->seed };
    void *state;

    host_new(&h, s);
    state = subject_start(s, &h);
    ordinary(s, state, &h);
    for (unsigned i = 0; i < 20 * s->rounds; i++) {
        h.fail_percent = i % 3 ? 0 : 30;
        round_of_calls(s, state, &h, &r);
    }
    subject_stop(s, state);
    host_free(&h);
}

/* -------------------------------------------------------------- options that change */

static const char *another_value(const struct fp_aux_option *o, char *buf, size_t cap)
{
    if (o->choices)
        return o->choices[o->choices[1] ? 1 : 0];
    if (o->min == 0 && o->max == 0)
        return o->fallback;
    snprintf(buf, cap, "%lld", (long long)o->max);
    return buf;
}

void check_change(const struct subject *s)
{
    struct fp_aux_host h;
    struct random r = { s->seed };
    void *state;

    host_new(&h, s);
    state = subject_start(s, &h);
    for (uint32_t i = 0; i < s->plugin->noptions; i++) {
        const struct fp_aux_option *o = &s->app->options[i];
        char why[AUX_WHY_BYTES], buf[32], *old = NULL;
        const char *value = another_value(o, buf, sizeof(buf));
        int rc;

        if (!o->can_change || !value || aux_option_set(h.options, o->name, value, &old, why) < 0)
            continue;
        rc = s->app->configure ? s->app->configure(state, o->name) : -ENOSYS;
        if (!s->app->configure)
            auxtest_fail("option %s has can_change, but there is no configure", o->name);
        if (rc > 0)
            auxtest_fail("configure answered %d: it must be 0 or a negative errno", rc);
        if (s->app->chunk_out || s->app->write)
            (void)chunk_round_trip(s, state, &h, &r, false);
        aux_option_restore(h.options, o->name, old);
        (void)s->app->configure(state, o->name);
    }
    subject_stop(s, state);
    host_free(&h);
}

/* -------------------------------------------------------------- leaks */

static void life(const struct subject *s, struct random *r, unsigned rounds)
{
    struct fp_aux_host h;
    void *state;

    host_new(&h, s);
    state = subject_start(s, &h);
    for (unsigned i = 0; i < rounds; i++) {
        if (s->app->chunk_out || s->app->write)
            (void)chunk_round_trip(s, state, &h, r, false);
        round_of_calls(s, state, &h, r);
    }
    subject_stop(s, state);
    host_free(&h);
}

static size_t in_use(void)
{
    struct mallinfo2 m = mallinfo2();

    return m.uordblks + m.hblkhd;
}

/* The same life again and again must not need more memory each time. The first ones fill caches of libraries. */
void check_leaks(const struct subject *s)
{
    struct random warm = { s->seed };
    size_t before, after;

    for (unsigned i = 0; i < 3; i++)
        life(s, &warm, s->rounds / 4 + 2);
    before = in_use();
    for (unsigned i = 0; i < 8; i++) {
        struct random r = { s->seed + i };

        life(s, &r, s->rounds / 4 + 2);
    }
    after = in_use();
    if (after > before + LEAK_BYTES)
        auxtest_fail("eight lives (start, work, stop) left %zu KiB behind: something is not freed", (after - before) >> 10);
}
