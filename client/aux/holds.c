/*
 * The table of holds (see holds.h).
 *
 * Any thread; answers are taken in on the core loop, in the order in which they come. One lock, held for as long as a release takes to be queued, so that
 * a later hold of the same chunk comes after it at the manager.
 *
 * A request that holds a chunk may be on its way while an older hold of that chunk is released. The manager then executes, in the order of sending: hold
 * (it was held already), release; and the answer to the first, which comes later, is not true any more. So a released chunk stays in the table as GONE
 * until every request that was begun before the release is answered; such an answer is not believed, and the chunk is released once more, should it be the
 * other way round. To release nothing while a request is under way was tried: with scope=store there always is one.
 *
 * What is not known here is not believed: a plugin that names a chunk it once saw is asked about at the manager (jobs.c). So a forgotten hold
 * costs a message and never a dangling reference.
 *
 * Requests are answered however late (cl_mgr_call_answered), so nothing is held that the table does not know of. A release that fails was not executed: its
 * chunks are back in the table, for nobody, and are released again in a minute or two. By then they may have been released by another request: so
 * nothing refers to them until they are asked for anew (not_before).
 *
 * A new session holds nothing. What is pinned stays in the table as UNSURE, with its pins, and is asked for again; the rest is forgotten. So pins taken before
 * and after are counted at one place, whichever is given back first. A commit needs the chunk, not the hold: one sent before that answer is right as well.
 */
#include "client/aux/holds.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/aux/files.h"
#include "client/aux/internal.h"
#include "client/core.h"
#include "client/data/overlay.h"

#define BUCKETS      16384u
#define OWNERS       256u   /* buckets */
#define RELEASE_MAX  4096u  /* in one message */
#define ASK_MS       5000u
#define NOBODY_MS    60000u
#define EVICT_LOOKS  64u

#define NOT_VOUCHED UINT64_MAX

/* Serials of owners that are no file: one takes holds in, one waits for its end. */
#define NOBODY_FIRST (UINT64_MAX - 2)

enum state {
    HELD,                          /* in `held` */
    GONE,                          /* released, in `gone` */
    UNSURE,                        /* of a session that is over, and pinned: in no list */
};

/* A file for whose sake a chunk is held. */
struct claim {
    LIST_ENTRY(claim) of_hold, of_owner;
    struct hold *hold;
    uint64_t serial;
};
LIST_HEAD(claim_list, claim);

struct hold {
    struct hold *next;             /* bucket */
    TAILQ_ENTRY(hold) link;
    uint64_t chunk;
    enum state state;
    uint64_t gone_seq;
    uint32_t pins;
    struct claim_list claims;      /* HELD */
    uint32_t data_bytes;           /* HELD, these two: bytes of data of the chunk */
    uint64_t doubt;                /* the manager vouched for it when this was its number; NOT_VOUCHED */
    uint64_t not_before;           /* HELD: what was asked before this, by seq, does not tell whether it is held */
    struct cl_chunk_ref ref;       /* len_bytes 0: not known */
};
TAILQ_HEAD(hold_list, hold);

struct owner {
    struct owner *next;            /* bucket */
    uint64_t serial;
    struct claim_list claims;
};

struct aux_holds {
    pthread_mutex_t lock;          /* above those of files.c, of names.c, and of the core's inbox */
    struct hold *bucket[BUCKETS];
    struct owner *owner[OWNERS];
    struct hold_list held, gone;   /* oldest first */
    uint32_t count;                /* HELD */
    uint32_t all;                  /* in buckets: where there are none, none is looked at */
    uint64_t seq;
    TAILQ_HEAD(, aux_hold_request) requests; /* under way, by seq */
    uint64_t nobody, nobody_ms;    /* owner of holds of no file now, and since when */
    uint64_t let_go_serial;        /* of files up to this one, chunks may have been let go that are still named */
    uint32_t nout;
    uint64_t out[RELEASE_MAX];     /* to be released */
};

struct cl_aux_pins { uint32_t n; uint64_t chunk[]; };

/* A release under way. */
struct releasing {
    struct cl_aux *a;
    uint32_t n;
    uint64_t chunk[];
};

/* -------------------------------------------------------------- the table; lock held */

static struct hold **find(struct aux_holds *t, uint64_t chunk)
{
    struct hold **p = &t->bucket[(chunk * 0x9e3779b97f4a7c15u) >> 50];

    while (*p && (*p)->chunk != chunk)
        p = &(*p)->next;
    return p;
}

/* In no list, without claims. */
static void forget(struct aux_holds *t, struct hold *h)
{
    *find(t, h->chunk) = h->next;
    t->all--;
    free(h);
}

static void on_release(void *arg, int status, const ProtobufCMessage *reply);

static void send_out(struct cl_aux *a)
{
    struct aux_holds *t = a->holds;
    Fp__Hold msg = FP__HOLD__INIT;
    struct releasing *r;

    if (t->nout == 0)
        return;
    r = malloc(sizeof(*r) + t->nout * sizeof(r->chunk[0]));
    if (r) { /* else: should it fail, they are held until the session ends */
        r->a = a;
        r->n = t->nout;
        memcpy(r->chunk, t->out, t->nout * sizeof(r->chunk[0]));
    }
    msg.ids = t->out;
    msg.n_ids = t->nout;
    msg.release = true;
    t->nout = 0;
    cl_mgr_call_answered(a->m, FP__MSG_TYPE__MSG_HOLD, &msg.base, on_release, r);
}

static void unlock(struct cl_aux *a)
{
    send_out(a);
    pthread_mutex_unlock(&a->holds->lock);
}

static void release(struct cl_aux *a, uint64_t chunk)
{
    struct aux_holds *t = a->holds;

    t->out[t->nout++] = chunk;
    t->seq++;
    if (t->nout == RELEASE_MAX)
        send_out(a);
}

/* HELD, without claims and pins. */
static void let_go(struct cl_aux *a, struct hold *h)
{
    struct aux_holds *t = a->holds;

    release(a, h->chunk);
    TAILQ_REMOVE(&t->held, h, link);
    t->count--;
    if (TAILQ_EMPTY(&t->requests)) {
        forget(t, h);
        return;
    }
    h->state = GONE;
    h->gone_seq = t->seq;
    memset(&h->ref, 0, sizeof(h->ref));
    TAILQ_INSERT_TAIL(&t->gone, h, link);
}

static bool is_needed(const struct hold *h)
{
    return h->state != HELD || h->pins > 0 || !LIST_EMPTY(&h->claims);
}

static void drop_claims(struct hold *h)
{
    struct claim *c;

    while ((c = LIST_FIRST(&h->claims))) {
        LIST_REMOVE(c, of_hold);
        LIST_REMOVE(c, of_owner);
        free(c);
    }
}

static struct owner **owner_of(struct aux_holds *t, uint64_t serial)
{
    struct owner **p = &t->owner[serial % OWNERS];

    while (*p && (*p)->serial != serial)
        p = &(*p)->next;
    return p;
}

/* From here on somebody who names a chunk that is gone, for a file up to this one, may be right to have known it. */
static void note_let_go_up_to(struct cl_aux *a, uint64_t serial)
{
    struct aux_holds *t = a->holds;

    if (serial >= NOBODY_FIRST)
        serial = cl_aux_files_last_serial(a);
    if (serial > t->let_go_serial)
        t->let_go_serial = serial;
}

static void note_let_go(struct cl_aux *a)
{
    note_let_go_up_to(a, NOBODY_FIRST);
}

/* The file may stay open, with its serial: who reads it keeps it, and a writer may come again. */
static void owner_gone(struct cl_aux *a, uint64_t serial)
{
    struct owner **p = owner_of(a->holds, serial), *o = *p;
    struct claim *c;

    while (o && (c = LIST_FIRST(&o->claims))) {
        struct hold *h = c->hold;

        LIST_REMOVE(c, of_hold);
        LIST_REMOVE(c, of_owner);
        free(c);
        if (!is_needed(h))
            let_go(a, h);
    }
    if (o) {
        note_let_go_up_to(a, serial);
        *p = o->next;
        free(o);
    }
}

static void claim(struct aux_holds *t, struct hold *h, uint64_t serial)
{
    struct owner **p = owner_of(t, serial);
    struct claim *c;

    LIST_FOREACH(c, &h->claims, of_hold)
        if (c->serial == serial)
            return;
    if (!*p && (*p = calloc(1, sizeof(**p))))
        (*p)->serial = serial;
    c = *p ? malloc(sizeof(*c)) : NULL;
    if (!c)
        return;
    c->hold = h;
    c->serial = serial;
    LIST_INSERT_HEAD(&h->claims, c, of_hold);
    LIST_INSERT_HEAD(&(*p)->claims, c, of_owner);
}

/* More than the table is for: the oldest go. */
static void evict(struct cl_aux *a)
{
    struct aux_holds *t = a->holds;
    struct hold *h;

    for (uint32_t i = 0; t->count > CL_AUX_HOLDS_MAX && i < EVICT_LOOKS; i++) {
        h = TAILQ_FIRST(&t->held);
        if (h->pins == 0) {
            drop_claims(h);
            let_go(a, h);
            note_let_go(a);
            continue;
        }
        TAILQ_REMOVE(&t->held, h, link);
        TAILQ_INSERT_TAIL(&t->held, h, link);
    }
}

/* -------------------------------------------------------------- life */

int cl_aux_holds_new(struct cl_aux *a)
{
    struct aux_holds *t = a->holds = calloc(1, sizeof(*t));

    if (!t)
        return -ENOMEM;
    pthread_mutex_init(&t->lock, NULL);
    TAILQ_INIT(&t->held);
    TAILQ_INIT(&t->gone);
    TAILQ_INIT(&t->requests);
    t->nobody = NOBODY_FIRST;
    return 0;
}

/* What no pin keeps: the session that held it is over. */
static void forget_unpinned(struct aux_holds *t)
{
    for (uint32_t i = 0, left = t->all; left > 0; i++) {
        struct hold **p = &t->bucket[i], *h;

        for (; (h = *p); left--) {
            drop_claims(h);
            if (h->pins > 0) {
                h->state = UNSURE;
                p = &h->next;
            } else {
                *p = h->next;
                t->all--;
                free(h);
            }
        }
    }
    TAILQ_INIT(&t->held);
    TAILQ_INIT(&t->gone);
    t->count = 0;
}

void cl_aux_holds_free(struct cl_aux *a)
{
    struct aux_holds *t = a->holds;

    if (!t)
        return;
    forget_unpinned(t);
    for (uint32_t i = 0; t->all > 0; i++)
        while (t->bucket[i])
            forget(t, t->bucket[i]);
    for (uint32_t i = 0; i < OWNERS; i++)
        while (t->owner[i]) {
            struct owner *o = t->owner[i];

            t->owner[i] = o->next;
            free(o);
        }
    pthread_mutex_destroy(&t->lock);
    free(t);
    a->holds = NULL;
}

/* -------------------------------------------------------------- what is held */

void cl_aux_holds_begin(struct cl_aux *a, struct aux_hold_request *r)
{
    struct aux_holds *t = a->holds;

    pthread_mutex_lock(&t->lock);
    r->seq = t->seq;
    r->doubt = atomic_load(&a->m->doubt);
    TAILQ_INSERT_TAIL(&t->requests, r, link);
    pthread_mutex_unlock(&t->lock);
}

/* lock held. NULL: it is not to be believed (and released), or there is no memory (it ends with the session). */
static struct hold *take_in(struct cl_aux *a, const struct aux_hold_request *r, uint64_t chunk)
{
    struct aux_holds *t = a->holds;
    struct hold **p = find(t, chunk), *h = *p;

    if (h && h->state == HELD)
        return h;
    if (h && h->state == GONE && h->gone_seq > r->seq) {
        release(a, chunk);
        h->gone_seq = t->seq;
        TAILQ_REMOVE(&t->gone, h, link);
        TAILQ_INSERT_TAIL(&t->gone, h, link);
        return NULL;
    }
    if (h && h->state == GONE)
        TAILQ_REMOVE(&t->gone, h, link);
    if (!h && (h = *p = calloc(1, sizeof(*h)))) {
        h->chunk = chunk;
        t->all++;
    }
    if (!h)
        return NULL;
    h->state = HELD;
    h->not_before = 0;
    TAILQ_INSERT_TAIL(&t->held, h, link);
    t->count++;
    return h;
}

/* n: NULL if no more is known than its number. */
static void held(struct cl_aux *a, const struct aux_hold_request *r, uint64_t chunk, const Fp__ChunkNote *n, uint64_t owner)
{
    struct hold *h = take_in(a, r, chunk);

    if (!h)
        return;
    if (r->seq >= h->not_before)
        h->doubt = r->doubt;
    if (n) {
        h->data_bytes = n->data_len;
        h->ref = (struct cl_chunk_ref){ .id = n->chunk, .sum = n->sum, .len_bytes = n->len, .bnf = n->bnf, .data_len_bytes = n->coded_len };
    }
    if (owner)
        claim(a->holds, h, owner);
    if (!is_needed(h))
        let_go(a, h);
    evict(a);
}

/* lock held: for whom it is held. 0: for nobody. */
static uint64_t owner_for(struct cl_aux *a, const struct aux_hold_request *r, bool wanted)
{
    if (r->file_serial && cl_aux_files_written(a, r->file_serial)) /* lock held: it is told of the last close after that */
        return r->file_serial;
    return wanted ? a->holds->nobody : 0;
}

void cl_aux_holds_answered(struct cl_aux *a, struct aux_hold_request *r, const ProtobufCMessage *reply, bool wanted)
{
    struct aux_holds *t = a->holds;
    uint64_t owner, oldest;
    struct hold *h;

    pthread_mutex_lock(&t->lock);
    owner = owner_for(a, r, wanted);
    if (reply && reply->descriptor == &fp__hold_reply__descriptor) {
        const Fp__HoldReply *m = (const Fp__HoldReply *)reply;

        for (size_t i = 0; i < m->n_ids; i++)
            held(a, r, m->ids[i], i < m->n_chunks ? m->chunks[i] : NULL, owner);
    } else if (reply && reply->descriptor == &fp__notes_reply__descriptor) {
        const Fp__NotesReply *m = (const Fp__NotesReply *)reply;

        for (size_t i = 0; i < m->n_notes; i++)
            held(a, r, m->notes[i]->chunk, m->notes[i], owner);
    }
    TAILQ_REMOVE(&t->requests, r, link);
    oldest = TAILQ_EMPTY(&t->requests) ? UINT64_MAX : TAILQ_FIRST(&t->requests)->seq;
    while ((h = TAILQ_FIRST(&t->gone)) && h->gone_seq <= oldest) {
        TAILQ_REMOVE(&t->gone, h, link);
        forget(t, h);
    }
    unlock(a);
}

bool cl_aux_holds_ref(struct cl_aux *a, uint64_t chunk, struct cl_chunk_ref *out)
{
    struct aux_holds *t = a->holds;
    struct hold *h;
    bool known;

    pthread_mutex_lock(&t->lock);
    h = *find(t, chunk);
    known = h && h->state == HELD && h->ref.len_bytes > 0;
    if (known)
        *out = h->ref;
    pthread_mutex_unlock(&t->lock);
    return known;
}

/* lock held. */
static struct hold *vouched(struct aux_holds *t, uint64_t chunk, uint64_t doubt)
{
    struct hold *h = *find(t, chunk);

    return h && h->state == HELD && h->doubt == doubt ? h : NULL;
}

/* lock held: 0, or as cl_aux_holds_pin. */
static int may_refer(struct aux_holds *t, const struct fp_auxw_piece *p, uint64_t doubt)
{
    const struct hold *h = vouched(t, p->chunk, doubt);

    if (!h)
        return -EAGAIN;
    return p->at <= h->data_bytes && p->len_bytes <= h->data_bytes - p->at ? 0 : -ERANGE;
}

static struct cl_aux_pins *pins_new(uint32_t n)
{
    struct cl_aux_pins *pins = malloc(sizeof(*pins) + n * sizeof(pins->chunk[0]));

    if (pins)
        pins->n = 0;
    return pins;
}

/* lock held: a chunk that is held. */
static void pin_one(struct aux_holds *t, struct cl_aux_pins *pins, uint64_t chunk)
{
    (*find(t, chunk))->pins++;
    pins->chunk[pins->n++] = chunk;
}

int cl_aux_holds_pin(struct cl_aux *a, const struct fp_auxw_piece *pieces, uint32_t n, struct cl_aux_pins **out)
{
    uint64_t doubt = atomic_load(&a->m->doubt);
    struct cl_aux_pins *pins = NULL;
    struct aux_holds *t = a->holds;
    uint32_t stored = 0;
    int rc = 0;

    *out = NULL;
    for (uint32_t i = 0; i < n; i++)
        stored += pieces[i].kind == FP_AUXW_PIECE_STORED;
    if (stored == 0)
        return 0;
    pins = pins_new(stored);
    if (!pins)
        return -ENOMEM;
    pthread_mutex_lock(&t->lock);
    for (uint32_t i = 0; i < n && rc == 0; i++)
        if (pieces[i].kind == FP_AUXW_PIECE_STORED)
            rc = may_refer(t, &pieces[i], doubt);
    for (uint32_t i = 0; i < n && rc == 0; i++)
        if (pieces[i].kind == FP_AUXW_PIECE_STORED && (pins->n == 0 || pins->chunk[pins->n - 1] != pieces[i].chunk))
            pin_one(t, pins, pieces[i].chunk);
    pthread_mutex_unlock(&t->lock);
    if (rc < 0)
        free(pins);
    else
        *out = pins;
    return rc;
}

bool cl_aux_pins_good(struct cl_mount *m, const struct cl_aux_pins *pins)
{
    struct aux_holds *t = m->aux ? m->aux->holds : NULL;
    uint64_t doubt = atomic_load(&m->doubt);
    bool good = true;

    if (!pins || !t)
        return true;
    pthread_mutex_lock(&t->lock);
    for (uint32_t i = 0; i < pins->n && good; i++)
        good = vouched(t, pins->chunk[i], doubt) != NULL;
    pthread_mutex_unlock(&t->lock);
    return good;
}

/* Pins on the same chunks as they are held now: those of a session before count no more. NULL: one is not; no memory. */
static struct cl_aux_pins *pin_anew(struct aux_holds *t, const struct cl_aux_pins *old, uint64_t doubt)
{
    struct cl_aux_pins *pins = pins_new(old->n);
    bool all = pins != NULL;

    pthread_mutex_lock(&t->lock);
    for (uint32_t i = 0; i < old->n && all; i++)
        all = vouched(t, old->chunk[i], doubt) != NULL;
    for (uint32_t i = 0; i < old->n && all; i++)
        pin_one(t, pins, old->chunk[i]);
    pthread_mutex_unlock(&t->lock);
    if (all)
        return pins;
    free(pins);
    return NULL;
}

bool cl_aux_pins_check(struct cl_mount *m, struct cl_aux_pins **pins)
{
    struct cl_aux_pins *old = *pins, *fresh = NULL;
    bool wrong;

    if (cl_aux_pins_good(m, old))
        return true;
    if (cl_aux_holds_ask(m->aux, old->chunk, old->n, 0, &wrong) == 0)
        fresh = pin_anew(m->aux->holds, old, atomic_load(&m->doubt));
    if (!fresh)
        return false;
    cl_aux_pins_put(m, old);
    *pins = fresh;
    return true;
}

void cl_aux_pins_put(struct cl_mount *m, struct cl_aux_pins *pins)
{
    struct cl_aux *a = pins && m->aux && m->aux->holds ? m->aux : NULL;

    if (a)
        pthread_mutex_lock(&a->holds->lock);
    for (uint32_t i = 0; a && i < pins->n; i++) {
        struct hold *h = *find(a->holds, pins->chunk[i]);

        h->pins--; /* it is there: what is pinned stays */
        if (h->pins == 0 && h->state == UNSURE)
            forget(a->holds, h);
        else if (!is_needed(h))
            let_go(a, h);
    }
    if (a)
        unlock(a);
    free(pins);
}

int cl_aux_holds_ask(struct cl_aux *a, const uint64_t *chunks, uint32_t n, uint64_t file_serial, bool *wrong)
{
    Fp__Hold msg = FP__HOLD__INIT;
    Fp__HoldReply *reply = NULL;
    uint8_t *packed = NULL;
    size_t len = 0;
    int rc;

    *wrong = false;
    msg.n_ids = n;
    msg.ids = (uint64_t *)chunks;
    rc = cl_aux_ask_holding(a, FP__MSG_TYPE__MSG_HOLD, &msg.base, file_serial, ASK_MS, &packed, &len);
    if (rc == 0 && (reply = fp__hold_reply__unpack(NULL, len, packed))) {
        pthread_mutex_lock(&a->holds->lock);
        *wrong = reply->n_gone > 0 && file_serial > a->holds->let_go_serial;
        pthread_mutex_unlock(&a->holds->lock);
        fp__hold_reply__free_unpacked(reply, NULL);
    }
    free(packed);
    return rc;
}

/* -------------------------------------------------------------- release */

/* lock held. What is in the table is released with it, some time. */
static void held_still(struct cl_aux *a, const struct aux_hold_request *now, uint64_t chunk)
{
    struct aux_holds *t = a->holds;
    struct hold *h = *find(t, chunk);

    if ((h && h->state != GONE) || !(h = take_in(a, now, chunk)))
        return;
    h->doubt = NOT_VOUCHED;
    h->not_before = now->seq;
    claim(t, h, t->nobody);
}

/* Core loop. A session that is over, as this one soon is when the mount ends, holds nothing. */
static void on_release(void *arg, int status, const ProtobufCMessage *reply)
{
    struct releasing *r = arg;
    struct aux_hold_request now = { 0 };

    (void)reply;
    if (r && status < 0 && status != FP_ESESSION && status != FP_ESTOPPING) {
        FP_DEBUG("holds were not released, once more in a minute: %s", fp_strerror(status));
        pthread_mutex_lock(&r->a->holds->lock);
        now.seq = ++r->a->holds->seq;
        for (uint32_t i = 0; i < r->n; i++)
            held_still(r->a, &now, r->chunk[i]);
        unlock(r->a);
    }
    free(r);
}

static void on_recalled(void *arg, int status, const ProtobufCMessage *reply)
{
    (void)arg;
    (void)reply;
    if (status < 0)
        FP_DEBUG("the manager was not told that all is released: %s", fp_strerror(status)); /* it waits 2 s */
}

void cl_aux_holds_closed(struct cl_aux *a, uint64_t file_serial)
{
    pthread_mutex_lock(&a->holds->lock);
    owner_gone(a, file_serial);
    unlock(a);
}

bool cl_aux_holds_release_all(struct cl_aux *a)
{
    struct aux_holds *t = a->holds;
    struct hold *h, *next;
    bool any = false;

    pthread_mutex_lock(&t->lock);
    for (h = TAILQ_FIRST(&t->held); h; h = next) {
        next = TAILQ_NEXT(h, link);
        if (h->pins > 0)
            continue;
        drop_claims(h);
        let_go(a, h);
        any = true;
    }
    if (any)
        note_let_go(a);
    unlock(a);
    return any;
}

void cl_aux_holds_tick(struct cl_aux *a, uint64_t now_ms)
{
    struct aux_holds *t = a->holds;

    pthread_mutex_lock(&t->lock);
    if (now_ms - t->nobody_ms >= NOBODY_MS) {
        t->nobody = NOBODY_FIRST + (t->nobody == NOBODY_FIRST);
        t->nobody_ms = now_ms;
        owner_gone(a, t->nobody);
    }
    unlock(a);
}

bool cl_aux_release_holds(struct cl_mount *m)
{
    return m->aux && cl_aux_holds_release_all(m->aux);
}

void cl_aux_recall(struct cl_mount *m)
{
    Fp__Hold msg = FP__HOLD__INIT;

    (void)cl_aux_release_holds(m);
    msg.release = true;
    msg.recall = true;
    cl_mgr_call(m, FP__MSG_TYPE__MSG_HOLD, &msg.base, on_recalled, NULL); /* after the releases: that was all */
}

/* -------------------------------------------------------------- a new session */

struct rehold {
    struct cl_aux *a;
    struct aux_hold_request request;
    uint32_t n;
    uint64_t chunk[];
};

static void on_rehold(void *arg, int status, const ProtobufCMessage *reply)
{
    struct rehold *r = arg;

    cl_aux_holds_answered(r->a, &r->request, status == 0 ? reply : NULL, false);
    if (status == -EPROTO)
        cl_aux_holds_not_told(r->a, r->chunk, r->n);
    free(r);
}

/* What is pinned by now is held again, or turns out to be gone: then its pins are of no use, which the commit tells. */
static void ask_again(struct cl_aux *a, uint64_t *ids, uint32_t n)
{
    struct rehold *r = calloc(1, sizeof(*r) + n * sizeof(r->chunk[0]));
    Fp__Hold msg = FP__HOLD__INIT;

    if (!r)
        return;
    r->a = a;
    r->n = n;
    memcpy(r->chunk, ids, n * sizeof(ids[0]));
    cl_aux_holds_begin(a, &r->request);
    msg.ids = ids;
    msg.n_ids = n;
    cl_mgr_call_answered(a->m, FP__MSG_TYPE__MSG_HOLD, &msg.base, on_rehold, r);
}

void cl_aux_session_new(struct cl_mount *m)
{
    struct aux_holds *t = m->aux ? m->aux->holds : NULL;
    uint64_t *ids = NULL;
    uint32_t n = 0;

    if (!t)
        return;
    pthread_mutex_lock(&t->lock);
    t->nout = 0;
    forget_unpinned(t);
    note_let_go(m->aux);
    ids = malloc(t->all * sizeof(*ids) + 1);
    for (uint32_t i = 0; ids && n < t->all; i++)
        for (struct hold *h = t->bucket[i]; h; h = h->next)
            ids[n++] = h->chunk;
    pthread_mutex_unlock(&t->lock);
    for (uint32_t i = 0; i < n; i += RELEASE_MAX)
        ask_again(m->aux, ids + i, n - i < RELEASE_MAX ? n - i : RELEASE_MAX);
    free(ids);
}
