/*
 * The table of holds against a model of the manager: which holds end when, what late and stale answers do, and a new session.
 * The manager executes requests in the order in which they come, and may keep its answers back.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "client/aux/files.h"
#include "client/aux/holds.h"
#include "client/aux/internal.h"
#include "client/aux/services.h"
#include "client/core.h"
#include "client/data.h"
#include "client/inode.h"

/* -------------------------------------------------------------- the manager */

#define CHUNKS  1024u /* numbers that its table is exact for */
#define LATER   8u
#define LEN     4096u /* of data, in each chunk */

static bool exists[CHUNKS], is_held[CHUNKS];
static uint64_t nreleased, recalled;
static bool keep_answers;
static bool silent;               /* until answer_kept: a plain call is given up, one whose answer must be taken is not */
static unsigned unread;           /* so many answers that hold can't be read */
static unsigned nnotes;           /* MSG_NOTES */
static int release_status;        /* of releases, which are not executed if it is not 0; told by answer_kept */

struct kept { cl_mgr_cb cb; void *arg; ProtobufCMessage *reply; int status; };
static struct kept kept[LATER];
static unsigned nkept;

/* The file's chunks are 30 to 32. */
static Fp__NotesReply *execute_notes(const Fp__Notes *m)
{
    Fp__NotesReply *r = malloc(sizeof(*r));

    nnotes++;
    assert_true(m->ino == 77 && m->hold);
    fp__notes_reply__init(r);
    r->notes = malloc(3 * sizeof(*r->notes));
    for (; r->n_notes < 3; r->n_notes++) {
        Fp__ChunkNote *c = malloc(sizeof(*c));

        fp__chunk_note__init(c);
        c->chunk = 30 + r->n_notes;
        c->data_len = LEN;
        is_held[c->chunk] = true;
        r->notes[r->n_notes] = c;
    }
    return r;
}

static Fp__HoldReply *execute(const Fp__Hold *h)
{
    Fp__HoldReply *r = malloc(sizeof(*r));

    fp__hold_reply__init(r);
    r->ids = malloc((h->n_ids + 1) * sizeof(*r->ids));
    r->chunks = malloc((h->n_ids + 1) * sizeof(*r->chunks));
    r->gone = malloc((h->n_ids + 1) * sizeof(*r->gone));
    for (size_t i = 0; i < h->n_ids; i++) {
        uint64_t id = h->ids[i];

        if (h->release) {
            nreleased++;
            if (id < CHUNKS)
                is_held[id] = false;
        } else if (id < CHUNKS && !exists[id]) {
            r->gone[r->n_gone++] = id;
        } else {
            r->ids[r->n_ids++] = id;
            r->chunks[r->n_chunks] = malloc(sizeof(**r->chunks));
            fp__chunk_note__init(r->chunks[r->n_chunks]);
            r->chunks[r->n_chunks]->chunk = id;
            r->chunks[r->n_chunks++]->data_len = LEN;
            if (id < CHUNKS)
                is_held[id] = true;
        }
    }
    recalled += h->recall && h->release;
    return r;
}

static void answer(const struct kept *k)
{
    k->cb(k->arg, k->status, k->status ? NULL : k->reply);
    if (k->reply)
        protobuf_c_message_free_unpacked(k->reply, NULL);
}

static void answer_kept(void)
{
    for (unsigned i = 0; i < nkept; i++)
        answer(&kept[i]);
    nkept = 0;
}

static void call(uint32_t type, ProtobufCMessage *msg, struct kept k, bool given_up)
{
    const Fp__Hold *h = (const Fp__Hold *)msg;
    bool releases = type == FP__MSG_TYPE__MSG_HOLD && h->release;

    assert_true(type == FP__MSG_TYPE__MSG_HOLD || type == FP__MSG_TYPE__MSG_NOTES);
    k.status = releases ? release_status : 0;
    if (k.status == 0)
        k.reply = type == FP__MSG_TYPE__MSG_NOTES ? &execute_notes((const Fp__Notes *)msg)->base : &execute(h)->base;
    if (unread > 0 && !releases) {
        unread--;
        k.status = -EPROTO;
    }
    if (given_up) { /* and executed later */
        k.cb(k.arg, -ETIMEDOUT, NULL);
        protobuf_c_message_free_unpacked(k.reply, NULL);
    } else if ((k.status && k.status != -EPROTO) || silent || (keep_answers && !releases)) {
        assert_true(nkept < LATER);
        kept[nkept++] = k;
    } else {
        answer(&k);
    }
}

void __wrap_cl_mgr_call(struct cl_mount *m, uint32_t type, ProtobufCMessage *msg, cl_mgr_cb cb, void *arg);
void __wrap_cl_mgr_call_answered(struct cl_mount *m, uint32_t type, ProtobufCMessage *msg, cl_mgr_cb cb, void *arg);

void __wrap_cl_mgr_call(struct cl_mount *m, uint32_t type, ProtobufCMessage *msg, cl_mgr_cb cb, void *arg)
{
    (void)m;
    call(type, msg, (struct kept){ .cb = cb, .arg = arg }, silent);
}

void __wrap_cl_mgr_call_answered(struct cl_mount *m, uint32_t type, ProtobufCMessage *msg, cl_mgr_cb cb, void *arg)
{
    (void)m;
    call(type, msg, (struct kept){ .cb = cb, .arg = arg }, false);
}

/* -------------------------------------------------------------- a mount with files */

static struct cl_mount mount_;
static struct cl_aux aux;

static int setup(void **state)
{
    (void)state;
    memset(&mount_, 0, sizeof(mount_));
    memset(&aux, 0, sizeof(aux));
    memset(is_held, 0, sizeof(is_held));
    memset(exists, true, sizeof(exists));
    nreleased = recalled = nkept = unread = nnotes = 0;
    keep_answers = silent = false;
    release_status = 0;
    aux.m = &mount_;
    mount_.aux = &aux;
    assert_int_equal(cl_aux_holds_new(&aux), 0);
    return cl_aux_files_new(&aux);
}

static int teardown(void **state)
{
    (void)state;
    cl_aux_holds_free(&aux);
    cl_aux_files_free(&aux);
    return 0;
}

struct file { struct cl_inode inode; struct cl_handle handle[3]; };

static void file_init(struct file *f, uint64_t ino)
{
    memset(f, 0, sizeof(*f));
    f->inode.ino = ino;
    pthread_mutex_init(&f->inode.lock, NULL);
}

/* Its serial. */
static uint64_t file_open(struct file *f, int i, int flags)
{
    f->handle[i].inode = &f->inode;
    f->handle[i].flags = flags;
    cl_aux_file_opened(&mount_, &f->handle[i]);
    return f->handle[i].aux_serial;
}

static void file_close(struct file *f, int i)
{
    cl_aux_file_closed(&mount_, &f->handle[i]);
}

static void hold(uint64_t chunk, uint64_t serial)
{
    bool wrong;

    assert_int_equal(cl_aux_holds_ask(&aux, &chunk, 1, serial, &wrong), 0);
}

static struct cl_aux_pins *pin(uint64_t chunk)
{
    struct fp_auxw_piece p = { .kind = FP_AUXW_PIECE_STORED, .len_bytes = LEN, .chunk = chunk };
    struct cl_aux_pins *pins;

    (void)cl_aux_holds_pin(&aux, &p, 1, &pins);
    return pins;
}

/* -------------------------------------------------------------- tests */

/* A log that is open for the whole job, and readers of all kinds, keep nobody else's chunks. */
static void test_holds_end_with_the_files_they_are_for(void **state)
{
    struct file log, one, two;
    uint64_t serial;

    (void)state;
    file_init(&log, 1);
    file_init(&one, 2);
    file_init(&two, 3);
    hold(10, file_open(&log, 0, O_WRONLY));
    serial = file_open(&one, 0, O_WRONLY);
    hold(20, serial);
    hold(21, serial);
    assert_int_equal(file_open(&one, 1, O_RDONLY), serial);
    hold(20, file_open(&two, 0, O_RDWR)); /* 20 is for both */
    file_close(&one, 0);                  /* the reader stays */
    assert_true(is_held[10] && is_held[20]);
    assert_false(is_held[21]);
    file_close(&two, 0);
    assert_false(is_held[20]);
    assert_true(is_held[10]);
    file_close(&one, 1);
    file_close(&log, 0);
    assert_false(is_held[10]);
}

static void test_pins_outlast_the_file_and_no_longer(void **state)
{
    struct cl_aux_pins *a, *b;
    struct file f;

    (void)state;
    file_init(&f, 1);
    hold(5, file_open(&f, 0, O_WRONLY));
    a = pin(5);
    b = pin(5);
    file_close(&f, 0);
    assert_false(cl_aux_release_holds(&mount_));
    cl_aux_pins_put(&mount_, a);
    assert_true(is_held[5]);
    cl_aux_pins_put(&mount_, b);
    assert_false(is_held[5]);
    assert_null(pin(5));
}

static void test_holds_of_no_file_end_after_a_minute_or_two(void **state)
{
    (void)state;
    cl_aux_holds_tick(&aux, 1000000);
    hold(7, 0);
    cl_aux_holds_tick(&aux, 1059000);
    assert_true(is_held[7]);
    cl_aux_holds_tick(&aux, 1060000);
    assert_true(is_held[7]);
    cl_aux_holds_tick(&aux, 1120000);
    assert_false(is_held[7]);
}

/* An answer that nobody waits for any more, of a file that is closed: nobody would ever release it. */
static void test_late_answers_are_released(void **state)
{
    struct aux_hold_request r = { 0 };
    Fp__HoldReply reply = FP__HOLD_REPLY__INIT;
    uint64_t ids[2] = { 8, 9 };
    struct file f;

    (void)state;
    file_init(&f, 1);
    r.file_serial = file_open(&f, 0, O_WRONLY);
    hold(8, 0); /* for other reasons, too */
    is_held[8] = is_held[9] = true;
    reply.ids = ids;
    reply.n_ids = 2;
    cl_aux_holds_begin(&aux, &r);
    file_close(&f, 0);
    cl_aux_holds_answered(&aux, &r, &reply.base, false);
    assert_false(is_held[9]);
    assert_true(is_held[8]);
}

/* A manager that is away for longer than anybody waits: what it holds when it is back is known, and released. */
static void test_what_a_manager_holds_after_the_timeout_is_released(void **state)
{
    Fp__Hold msg = FP__HOLD__INIT;
    uint64_t id = 5, serial;
    uint8_t *packed;
    struct file f;
    size_t len;

    (void)state;
    file_init(&f, 1);
    serial = file_open(&f, 0, O_WRONLY);
    msg.ids = &id;
    msg.n_ids = 1;
    silent = true;
    assert_int_equal(cl_aux_ask_holding(&aux, FP__MSG_TYPE__MSG_HOLD, &msg.base, serial, 1, &packed, &len), -EAGAIN);
    file_close(&f, 0);
    assert_true(is_held[5]);
    silent = false;
    answer_kept();
    assert_false(is_held[5]);
}

/* One that the manager could not execute: the chunks are held still, and nobody else would ever release them. */
static void test_a_release_that_fails_is_made_again(void **state)
{
    Fp__HoldReply reply = FP__HOLD_REPLY__INIT;
    struct aux_hold_request before = { 0 };
    uint64_t id = 5, serial;
    struct file f;

    (void)state;
    file_init(&f, 1);
    serial = file_open(&f, 0, O_WRONLY);
    cl_aux_holds_tick(&aux, 1000000);
    hold(5, serial);
    hold(6, serial);
    hold(9, serial);
    before.file_serial = serial;
    cl_aux_holds_begin(&aux, &before);
    release_status = -EIO;
    assert_true(cl_aux_release_holds(&mount_));
    release_status = 0;
    hold(6, serial); /* before the failure is known: this one is for the file again */
    answer_kept();
    assert_true(is_held[5] && is_held[6] && is_held[9]);
    assert_null(pin(5)); /* it may be, but that is not certain */
    reply.ids = &id;
    reply.n_ids = 1;
    cl_aux_holds_answered(&aux, &before, &reply.base, false); /* from before: no proof */
    assert_null(pin(5));
    cl_aux_holds_tick(&aux, 1060000);
    cl_aux_holds_tick(&aux, 1120000);
    cl_aux_holds_tick(&aux, 1180000);
    assert_true(is_held[6]);
    assert_false(is_held[9]);
    file_close(&f, 0);
    assert_false(is_held[5] || is_held[6]);
}

/* A session that the manager has forgotten holds nothing: there is nothing to release again. */
static void test_a_release_of_a_forgotten_session_is_over(void **state)
{
    (void)state;
    cl_aux_holds_tick(&aux, 1000000);
    hold(5, 0);
    release_status = FP_ESESSION;
    assert_true(cl_aux_release_holds(&mount_));
    release_status = 0;
    answer_kept();
    assert_false(cl_aux_release_holds(&mount_));
}

static bool is_blamed(uint64_t chunk, uint64_t serial)
{
    bool wrong;

    assert_int_equal(cl_aux_holds_ask(&aux, &chunk, 1, serial, &wrong), 0);
    return wrong;
}

/* A reader keeps the file's serial, and with it what aux-apps know of the file; its writer has closed it. */
static void test_nobody_is_blamed_for_what_a_close_let_go(void **state)
{
    struct file f, other;
    uint64_t serial, others;

    (void)state;
    file_init(&f, 1);
    file_init(&other, 2);
    serial = file_open(&f, 0, O_WRONLY);
    hold(5, serial);
    exists[7] = false;
    assert_true(is_blamed(7, serial)); /* that was never there */
    assert_int_equal(file_open(&f, 1, O_RDONLY), serial);
    others = file_open(&other, 0, O_WRONLY);
    file_close(&f, 0);
    assert_false(is_held[5]);
    exists[5] = false;
    assert_false(is_blamed(5, serial));
    assert_true(is_blamed(7, others)); /* nothing that was held for it has been let go */
}

/* The same, of what was asked for when nobody wrote: it is kept for a minute or two. */
static void test_nobody_is_blamed_for_what_time_let_go(void **state)
{
    uint64_t serial;
    struct file f;

    (void)state;
    cl_aux_holds_tick(&aux, 1000000);
    file_init(&f, 1);
    serial = file_open(&f, 0, O_RDONLY);
    hold(5, serial);
    (void)file_open(&f, 1, O_WRONLY);
    cl_aux_holds_tick(&aux, 1060000);
    cl_aux_holds_tick(&aux, 1120000);
    assert_false(is_held[5]);
    exists[5] = false;
    assert_false(is_blamed(5, serial));
}

/* Asked for while it is held, and released before the answer is here: the answer is not true any more. */
static void test_a_release_overtakes_an_answer(void **state)
{
    Fp__HoldReply reply = FP__HOLD_REPLY__INIT;
    struct aux_hold_request asked = { 0 }, others = { 0 };
    uint64_t id = 5;
    struct file f;

    (void)state;
    file_init(&f, 1);
    asked.file_serial = file_open(&f, 0, O_WRONLY);
    hold(5, asked.file_serial);
    reply.ids = &id;
    reply.n_ids = 1;
    cl_aux_holds_begin(&aux, &asked); /* executed: it was held already */
    assert_true(cl_aux_release_holds(&mount_));
    assert_false(is_held[5]);
    cl_aux_holds_begin(&aux, &others);
    cl_aux_holds_answered(&aux, &asked, &reply.base, true);
    assert_null(pin(5));
    hold(5, asked.file_serial); /* asked after that: true */
    assert_true(is_held[5]);
    file_close(&f, 0); /* although a request is under way */
    assert_false(is_held[5]);
    cl_aux_holds_answered(&aux, &others, NULL, true);
}

/* Pins of the session before are given back after the chunk was held, and pinned, anew. */
static void test_old_pins_do_not_take_new_ones(void **state)
{
    struct cl_aux_pins *old, *new_one;
    struct file f;
    uint64_t serial;

    (void)state;
    file_init(&f, 1);
    serial = file_open(&f, 0, O_WRONLY);
    hold(5, serial);
    old = pin(5);
    memset(is_held, 0, sizeof(is_held));
    cl_aux_session_new(&mount_);
    assert_true(is_held[5]); /* asked for at once */
    hold(5, serial);
    new_one = pin(5);
    cl_aux_pins_put(&mount_, old);
    assert_false(cl_aux_release_holds(&mount_));
    assert_true(is_held[5]);
    cl_aux_pins_put(&mount_, new_one);
    assert_true(cl_aux_release_holds(&mount_));
    assert_false(is_held[5]);
}

static void test_what_is_pinned_is_unsure_until_a_new_session_has_answered(void **state)
{
    struct cl_aux_pins *a, *b, *c;
    struct file f;
    uint64_t serial;

    (void)state;
    file_init(&f, 1);
    serial = file_open(&f, 0, O_WRONLY);
    hold(5, serial);
    hold(6, serial);
    hold(7, serial);
    a = pin(5);
    b = pin(6);
    c = pin(5);
    exists[6] = false;
    memset(is_held, 0, sizeof(is_held));
    keep_answers = true;
    cl_aux_session_new(&mount_);
    assert_true(nkept == 1 && !is_held[7]);
    assert_null(pin(5));
    cl_aux_pins_put(&mount_, a);
    keep_answers = false;
    answer_kept();
    a = pin(5);
    assert_non_null(a);
    assert_null(pin(6));
    cl_aux_pins_put(&mount_, a);
    cl_aux_pins_put(&mount_, b);
    assert_true(is_held[5]);
    cl_aux_pins_put(&mount_, c);
    assert_false(is_held[5]); /* for no file: the plugins' places are of the session before */
}

/* A version of a file begins: who compares with the one before is to ask for it anew, though a reader keeps the file open. */
static void test_each_version_has_its_serial(void **state)
{
    struct file f, fresh;
    uint64_t first, second;
    struct aux_packed *notes;
    uint32_t n;

    (void)state;
    file_init(&f, 1);
    assert_int_equal(file_open(&f, 0, O_RDONLY), 1);
    first = file_open(&f, 1, O_WRONLY);
    assert_int_equal(first, 1); /* nobody has asked for anything yet */
    assert_int_equal(file_open(&f, 2, O_RDWR), first);
    file_close(&f, 1);
    assert_int_equal(file_open(&f, 1, O_WRONLY), first); /* one writer is left */
    hold(5, first);
    file_close(&f, 1);
    file_close(&f, 2);
    assert_false(is_held[5]);
    assert_int_equal(file_open(&f, 1, O_RDONLY), first);
    second = file_open(&f, 2, O_RDWR);
    assert_int_not_equal(second, first);
    assert_int_equal(f.inode.aux_serial, second);
    hold(6, second);
    file_close(&f, 1); /* and those of before do not count for another */
    file_close(&f, 0);
    assert_true(is_held[6]);
    file_close(&f, 2);
    assert_false(is_held[6]);
    file_init(&fresh, 2);
    (void)file_open(&fresh, 0, O_WRONLY);
    (void)file_open(&fresh, 1, O_RDONLY);
    file_close(&fresh, 0);
    first = cl_aux_files_renew(&aux, &fresh.inode); /* cut by its name: what it was is kept for who opens it then */
    cl_aux_files_keep_notes(&aux, first, calloc(1, sizeof(struct aux_packed)), 1);
    assert_int_equal(file_open(&fresh, 0, O_WRONLY), first);
    notes = cl_aux_files_take_notes(&aux, first, &n);
    assert_int_equal(n, 1);
    cl_aux_packed_free(notes, n);
    file_close(&fresh, 0);
    assert_int_not_equal(file_open(&fresh, 0, O_WRONLY), first);
    file_close(&fresh, 0);
    file_close(&fresh, 1);
}

/* An answer that can't be read: the manager holds what it says, and nobody would ever release it. */
static void test_what_is_held_by_an_answer_that_cannot_be_read_is_released(void **state)
{
    uint64_t ids[2] = { 5, 6 }, serial;
    struct cl_aux_pins *old;
    struct file f;
    bool wrong;

    (void)state;
    file_init(&f, 1);
    serial = file_open(&f, 0, O_WRONLY);
    hold(6, serial); /* and is needed */
    old = pin(6);
    unread = 1;
    assert_int_equal(cl_aux_holds_ask(&aux, ids, 2, serial, &wrong), -EPROTO);
    assert_false(is_held[5]);
    assert_true(is_held[6]);
    assert_null(pin(6)); /* whether it is good, nobody has said */
    hold(6, serial);
    cl_aux_pins_put(&mount_, old);
    cl_aux_pins_put(&mount_, pin(6));
    file_close(&f, 0);
    assert_false(is_held[6]);
}

static void test_what_is_pinned_is_released_though_the_new_session_cannot_be_understood(void **state)
{
    struct cl_aux_pins *p;
    struct file f;

    (void)state;
    file_init(&f, 1);
    hold(5, file_open(&f, 0, O_WRONLY));
    p = pin(5);
    is_held[5] = false;
    unread = 1;
    cl_aux_session_new(&mount_);
    assert_true(is_held[5]);
    assert_null(pin(5));
    cl_aux_pins_put(&mount_, p);
    assert_false(is_held[5]);
}

/* Such a request does not say what it holds: it is made again. */
static void test_what_cannot_be_read_and_was_not_named_is_asked_again(void **state)
{
    Fp__Notes msg = FP__NOTES__INIT;
    uint8_t *packed;
    uint64_t serial;
    struct file f;
    size_t len;

    (void)state;
    file_init(&f, 1);
    serial = file_open(&f, 0, O_WRONLY);
    hold(31, serial); /* and is needed */
    msg.ino = 77;
    msg.hold = true;
    unread = 1;
    assert_int_equal(cl_aux_ask_holding(&aux, FP__MSG_TYPE__MSG_NOTES, &msg.base, serial, 4000, &packed, &len), -EPROTO);
    assert_int_equal(nnotes, 2);
    assert_false(is_held[30] || is_held[32]);
    assert_true(is_held[31]);
    unread = 100;
    assert_int_equal(cl_aux_ask_holding(&aux, FP__MSG_TYPE__MSG_NOTES, &msg.base, serial, 4000, &packed, &len), -EPROTO);
    assert_int_equal(nnotes, 6); /* not for ever */
    unread = 0;
    file_close(&f, 0);
    assert_false(is_held[31]);
}

static void test_the_table_is_bounded(void **state)
{
    enum { MORE = 5000 };
    static uint64_t ids[4096];
    struct cl_aux_pins *first;
    struct file f;
    uint64_t serial;
    bool wrong;

    (void)state;
    file_init(&f, 1);
    serial = file_open(&f, 0, O_WRONLY);
    hold(5, serial);
    first = pin(5);
    for (uint64_t n = 0; n < CL_AUX_HOLDS_MAX + MORE; n += 4096) {
        for (uint64_t i = 0; i < 4096; i++)
            ids[i] = CHUNKS + n + i;
        assert_int_equal(cl_aux_holds_ask(&aux, ids, 4096, serial, &wrong), 0);
    }
    assert_in_range(nreleased, MORE, MORE + 4096);
    assert_null(pin(CHUNKS)); /* the oldest */
    assert_true(is_held[5]);  /* but what is pinned */
    cl_aux_pins_put(&mount_, first);
    file_close(&f, 0);
    assert_in_range(nreleased, CL_AUX_HOLDS_MAX + MORE, CL_AUX_HOLDS_MAX + MORE + 4097);
}

static void test_a_recall_takes_what_is_not_pinned_and_says_so(void **state)
{
    struct cl_aux_pins *p;
    struct file f;
    uint64_t serial;

    (void)state;
    file_init(&f, 1);
    serial = file_open(&f, 0, O_WRONLY);
    hold(5, serial);
    hold(6, serial);
    p = pin(6);
    cl_aux_recall(&mount_);
    assert_false(is_held[5]);
    assert_true(is_held[6]);
    assert_int_equal(recalled, 1);
    cl_aux_pins_put(&mount_, p);
    mount_.aux = NULL; /* a mount without aux-apps answers, too */
    cl_aux_recall(&mount_);
    assert_int_equal(recalled, 2);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_holds_end_with_the_files_they_are_for),
        T(test_pins_outlast_the_file_and_no_longer),
        T(test_holds_of_no_file_end_after_a_minute_or_two),
        T(test_each_version_has_its_serial),
        T(test_what_is_held_by_an_answer_that_cannot_be_read_is_released),
        T(test_what_is_pinned_is_released_though_the_new_session_cannot_be_understood),
        T(test_what_cannot_be_read_and_was_not_named_is_asked_again),
        T(test_late_answers_are_released),
        T(test_what_a_manager_holds_after_the_timeout_is_released),
        T(test_a_release_that_fails_is_made_again),
        T(test_a_release_of_a_forgotten_session_is_over),
        T(test_nobody_is_blamed_for_what_a_close_let_go),
        T(test_nobody_is_blamed_for_what_time_let_go),
        T(test_a_release_overtakes_an_answer),
        T(test_old_pins_do_not_take_new_ones),
        T(test_what_is_pinned_is_unsure_until_a_new_session_has_answered),
        T(test_the_table_is_bounded),
        T(test_a_recall_takes_what_is_not_pinned_and_says_so),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
