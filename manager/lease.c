/* Leases of files: the right of one mount to answer close(2) before what was closed is published ("behind").
 *
 *             opened for writing, and nobody else has it open
 *   NONE ------------------------------------------------------> HELD --last release, session ends--> NONE
 *                                                                 |
 *                     another session opens or cuts the file      | FP_ERECALL to who wants it, MSG_RECALL to who has it
 *                                                                 v
 *   NONE <--ENDED_MS-- ENDED <--MSG_RECALL done, release, end-- RECALLED --it comes back with it (hello)--> HELD
 *
 * While a session has the lease, no other one has the file open: whoever wants to is refused first. So data, sizes and locks of a file
 * are never looked at behind the back of the holder, and only opening and cutting have to ask here. Names need no lease; but who gives another name to a file that
 * has a holder waits for what was closed, too, so that a name is not given to data that its holder may take to its grave. Holders publish before they do so themselves.
 *
 * Who is refused asks again, every now and then, and at once when it is told that the recall is done. Nothing of it waits here, so that
 * nothing is lost with a connection, and a restart finds nothing to go on with. Rejected: to keep the request, and answer it later. It
 * needs a place for its answer through restarts of both ends, and says no sooner what is to be said.
 * For ENDED_MS nobody gets the lease, so that who waited comes to its turn before one who opens the file over and over again.
 *
 * Who only asks for attributes waits for nothing. The holder says with each close how large the file is by then (MSG_CLOSED), and that is what others are
 * told. It is so much as was promised: if the holder dies, it is what was published again. Rejected: to recall for that, too; `ls -l` would have all
 * files of a directory published, one after the other, each time.
 *
 * Leases are in memory only. Their holder says in its hello what it has. Until all sessions that ask for leases have come back to a new
 * manager, or expired, any of them may have the lease of any file, so nobody else opens one. Which sessions these are is in the table
 * meta. Rejected: a row for each lease, two changes more for each file written.
 * A session that expired has lost its leases, and gets a new lease time, which is in the table, too. What was closed under leases before it comes with the old
 * one, or none, and with the version of the file that it was based on: it is taken if the file is at that version still, and else refused
 * (FP_EOVERTAKEN, commit.c). While such a session may come back, an open for writing changes the version, since what is written then is not known
 * yet. Rejected: to refuse it always. Mostly nobody wants the file in the meantime, and it would be lost for a node that stood still.
 *
 * Called by the core's thread, in a group; the pump after it. But for what a commit covers nothing here has to be undone with a group: a lease that its
 * holder was not told of is recalled like any other, and it answers that it keeps nothing. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "fp/bug.h"
#include "fp/err.h"
#include "fp/grown.h"
#include "fp/log.h"
#include "manager/core_int.h"

#define ENDED_MS     1000u
#define MOVED_MS     3000u /* a holder that has gone forward within this time does so */
#define WAITERS_MAX  16u  /* told at once; others ask again in their own time */
#define BUCKETS_MIN  256u
#define KEY_MAX      32u

struct mgr_lease {
    struct mgr_lease *next; /* of its bucket */
    uint64_t ino;
    struct mgr_session *holder; /* NULL: ended */
    uint64_t since_ms;
    LIST_ENTRY(mgr_lease) of_session;
    TAILQ_ENTRY(mgr_lease) listed; /* to_recall or ended */
    bool in_recalls;
    uint64_t serial;   /* of the recall; 0: not recalled */
    bool told;         /* … and MSG_RECALL is on its way */
    uint64_t until_ms; /* ended: forgotten then */
    uint64_t moved_ms; /* recalled: the holder has last said that it goes forward */
    bool closed;       /* … that it has closed it, and not published all of that */
    uint64_t number;   /* … of the last close that it has told */
    uint64_t published; /* the last close that is: what was said of it may come later */
    uint64_t closed_size; /* … and that it has closed and not published what makes the file so large */
    int64_t closed_mtime; /* … at that time */
    uint32_t nwaiters;
    uint64_t waiters[WAITERS_MAX]; /* sessions */
};

struct say { /* MSG_RECALL without a lease to it */
    uint64_t session, ino;
    bool done;
};

struct covered { /* by a commit of this group, and what was known before */
    uint64_t session, ino, published;
    bool closed;
};

struct mgr_leases {
    struct mgr_lease **bucket;
    size_t buckets, count;
    TAILQ_HEAD(, mgr_lease) to_recall, ended;
    struct say *says;
    size_t nsays, says_cap;
    struct covered *covered;
    size_t ncovered, covered_cap;
    uint64_t serial;
};

/* ---------------------------------------------------------------- the table */

static struct mgr_lease **place_of(const struct mgr_leases *t, uint64_t ino)
{
    struct mgr_lease **p = &t->bucket[(size_t)((ino * UINT64_C(0x9E3779B97F4A7C15)) >> 20) & (t->buckets - 1)];

    while (*p && (*p)->ino != ino)
        p = &(*p)->next;
    return p;
}

/* A table that can't grow is slower. */
static void grow(struct mgr_leases *t)
{
    struct mgr_leases bigger = {.buckets = t->buckets * 2};

    bigger.bucket = calloc(bigger.buckets, sizeof(struct mgr_lease *));
    if (!bigger.bucket)
        return;
    for (size_t i = 0; i < t->buckets; i++)
        while (t->bucket[i]) {
            struct mgr_lease *l = t->bucket[i], **p;

            t->bucket[i] = l->next;
            l->next = NULL;
            p = place_of(&bigger, l->ino);
            *p = l;
        }
    free(t->bucket);
    t->bucket = bigger.bucket;
    t->buckets = bigger.buckets;
}

static struct mgr_lease *lease_new(struct mgr_leases *t, uint64_t ino)
{
    struct mgr_lease *l = calloc(1, sizeof *l);

    if (!l)
        return NULL;
    if (t->count >= t->buckets)
        grow(t);
    l->ino = ino;
    *place_of(t, ino) = l;
    t->count++;
    return l;
}

static void lease_free(struct mgr_leases *t, struct mgr_lease *l)
{
    *place_of(t, l->ino) = l->next;
    t->count--;
    free(l);
}

/* What can't be said for want of memory is asked for again by who wants it. */
static void say(struct mgr_leases *t, uint64_t session, uint64_t ino, bool done)
{
    struct say *list = fp_grown(t->says, t->nsays, &t->says_cap, sizeof *list);

    if (!list)
        return;
    t->says = list;
    t->says[t->nsays++] = (struct say){.session = session, .ino = ino, .done = done};
}

static void not_to_recall(struct mgr_leases *t, struct mgr_lease *l)
{
    if (l->in_recalls)
        TAILQ_REMOVE(&t->to_recall, l, listed);
    l->in_recalls = false;
}

/* The holder has it no more. */
static void end(struct mgr_core *c, struct mgr_lease *l)
{
    struct mgr_leases *t = c->leases;

    LIST_REMOVE(l, of_session);
    not_to_recall(t, l);
    l->holder = NULL;
    if (!l->serial) {
        lease_free(t, l);
        return;
    }
    for (uint32_t i = 0; i < l->nwaiters; i++)
        say(t, l->waiters[i], l->ino, true);
    l->nwaiters = 0;
    l->until_ms = c->now.ms + ENDED_MS;
    TAILQ_INSERT_TAIL(&t->ended, l, listed);
}

static void begin(struct mgr_core *c, struct mgr_lease *l, struct mgr_session *s)
{
    if (l->until_ms)
        TAILQ_REMOVE(&c->leases->ended, l, listed);
    l->since_ms = c->now.ms;
    l->until_ms = 0;
    l->serial = l->moved_ms = l->closed_size = l->number = l->published = 0;
    l->closed_mtime = 0;
    l->told = l->closed = false;
    l->holder = s;
    LIST_INSERT_HEAD(&s->leases, l, of_session);
}

/* ---------------------------------------------------------------- opening */

/* A session that has not come back to this manager may hold any file. */
static bool unknown(const struct mgr_core *c, const struct mgr_session *me)
{
    return c->behind_away > mgr_lease_is_away(me);
}

/* Is what is waited for since then on its way to its end? Who waits counts its time from the last such answer. */
static int refusal(const struct mgr_core *c, uint64_t since_ms)
{
    return since_ms && c->now.ms - since_ms < MOVED_MS ? FP_EPUBLISHING : FP_ERECALL;
}

static void wait_for(struct mgr_lease *l, uint64_t session)
{
    for (uint32_t i = 0; i < l->nwaiters; i++)
        if (l->waiters[i] == session)
            return;
    if (l->nwaiters < WAITERS_MAX)
        l->waiters[l->nwaiters++] = session;
}

static void recall(struct mgr_leases *t, struct mgr_lease *l)
{
    if (!l->serial)
        l->serial = ++t->serial;
    if (l->told || l->in_recalls)
        return;
    l->in_recalls = true;
    TAILQ_INSERT_TAIL(&t->to_recall, l, listed);
}

static int ask_back(struct mgr_core *c, const struct mgr_session *s, struct mgr_lease *l)
{
    recall(c->leases, l);
    wait_for(l, s->id);
    if (!l->holder->conn) /* the time of its session counts from when it was lost */
        return refusal(c, l->holder->seen_ms);
    return refusal(c, l->moved_ms);
}

int mgr_lease_check_known(struct mgr_core *c, const struct mgr_session *s, uint64_t ino)
{
    struct mgr_lease *l = *place_of(c->leases, ino);

    return l && l->holder && l->holder != s && !FP_BUG("mgr-forgets-a-recall") ? ask_back(c, s, l) : 0;
}

struct below {
    uint64_t dir, parent; /* parent: of the file before, mostly of the next one, too */
    bool is;
};

/* By where the file's name was last seen: one of several names counts. */
static int find_below(struct mgr_core *c, uint64_t ino, struct below *b)
{
    struct mgr_inode in;
    int rc = mgr_inode_get(c, ino, &in);
    uint64_t up;

    if (rc || in.parent == b->parent)
        return rc;
    up = in.parent;
    b->parent = up;
    b->is = false;
    while (!rc && up && up != MGR_ROOT_INO && up != b->dir) {
        rc = mgr_inode_get(c, up, &in);
        up = in.parent;
    }
    b->is = !rc && up == b->dir;
    return rc;
}

int mgr_lease_check_below(struct mgr_core *c, const struct mgr_session *s, uint64_t dir)
{
    struct below b = {.dir = dir};
    struct mgr_lease *l;
    int rc = 0;

    for (size_t i = 0; i < c->session_count; i++) {
        if (c->sessions[i] == s)
            continue;
        LIST_FOREACH(l, &c->sessions[i]->leases, of_session) {
            int one = find_below(c, l->ino, &b);

            if (one && one != -ENOENT) /* that it has no name any more, or its directory has none */
                return one;
            if (!one && b.is)
                one = ask_back(c, s, l);
            rc = rc == FP_EPUBLISHING || one == -ENOENT || !one ? rc : one; /* as long as any of them goes forward, all do */
        }
    }
    return rc;
}

int mgr_lease_check(struct mgr_core *c, const struct mgr_session *s, uint64_t ino)
{
    int rc = mgr_lease_check_known(c, s, ino);

    return rc == 0 && unknown(c, s) ? refusal(c, c->loaded_ms) : rc;
}

static bool open_elsewhere(const struct mgr_core *c, const struct mgr_session *s, uint64_t ino)
{
    return mgr_map_get(&c->holders, ino) != mgr_map_get(&s->opens, ino);
}

bool mgr_lease_open(struct mgr_core *c, struct mgr_session *s, uint64_t ino, bool wanted)
{
    struct mgr_lease *l = *place_of(c->leases, ino);

    if (l)
        return l->holder == s && !l->serial;
    if (!wanted || mgr_unsettled(c) || open_elsewhere(c, s, ino))
        return false;
    l = lease_new(c->leases, ino);
    if (l)
        begin(c, l, s);
    return l != NULL;
}

/* ---------------------------------------------------------------- ends */

void mgr_lease_released(struct mgr_core *c, const struct mgr_session *s, uint64_t ino)
{
    struct mgr_lease *l = *place_of(c->leases, ino);

    if (l && l->holder == s)
        end(c, l);
}

void mgr_leases_drop(struct mgr_core *c, struct mgr_session *s)
{
    while (!LIST_EMPTY(&s->leases))
        end(c, LIST_FIRST(&s->leases));
}

MGR_HANDLER(recall)
{
    const Fp__Recall *m = msg;
    struct mgr_lease *l = *place_of(c->leases, m->ino);

    if (!m->serial || !l || l->holder != rq->sess || l->serial != m->serial)
        return 0;
    if (m->done)
        end(c, l);
    else
        l->moved_ms = c->now.ms;
    return 0;
}

/* Without the lease: it is back after its session had expired. */
static int closed_before(struct mgr_core *c, const struct mgr_session *s, const Fp__Closed *m)
{
    if (m->lost) /* its release may have been heard first */
        return mgr_lost_close(c, s, m->ino, UINT64_MAX);
    if (!mgr_map_get(&s->opens, m->ino))
        return 0;
    return m->size_bytes || m->mtime_ns ? 0 : mgr_lost_found(c, m->ino);
}

MGR_HANDLER(closed)
{
    const Fp__Closed *m = msg;
    struct mgr_lease *l = *place_of(c->leases, m->ino);
    uint64_t was; /* the size that is lost, if it is */

    if (!rq->sess || m->size_bytes > INT64_MAX)
        return 0;
    rq->durable = m->lost; /* it is not said again, once this is answered */
    if (!l || l->holder != rq->sess)
        return closed_before(c, rq->sess, m);
    was = l->closed ? l->closed_size : UINT64_MAX;
    l->closed = (m->size_bytes || m->mtime_ns) && m->number > l->published;
    l->number = m->number > l->number ? m->number : l->number;
    l->closed_size = m->size_bytes;
    l->closed_mtime = m->mtime_ns;
    return m->lost ? mgr_lost_close(c, rq->sess, m->ino, was) : 0;
}

static struct covered *new_covered(struct mgr_leases *t)
{
    struct covered *list = fp_grown(t->covered, t->ncovered, &t->covered_cap, sizeof *list);

    if (!list)
        return NULL;
    t->covered = list;
    return &t->covered[t->ncovered++];
}

int mgr_lease_published(struct mgr_core *c, const struct mgr_session *s, uint64_t ino, uint64_t closed_upto)
{
    struct mgr_lease *l = *place_of(c->leases, ino);
    struct covered *was;

    if (!l || l->holder != s || closed_upto <= l->published)
        return 0;
    was = new_covered(c->leases);
    if (!was)
        return mgr_doom(c, -ENOMEM);
    *was = (struct covered){s->id, ino, l->published, l->closed};
    l->published = closed_upto;
    if (closed_upto >= l->number)
        l->closed = false;
    return 0;
}

void mgr_leases_group_over(struct mgr_core *c, bool committed)
{
    struct mgr_leases *t = c->leases;

    for (size_t i = t->ncovered; i-- > 0 && !committed;) {
        const struct covered *was = &t->covered[i];
        struct mgr_lease *l = *place_of(t, was->ino);

        if (l && l->holder && l->holder->id == was->session) {
            l->published = was->published;
            l->closed |= was->closed;
        }
    }
    t->ncovered = 0;
}

void mgr_lease_attr(const struct mgr_core *c, const struct mgr_session *s, Fp__Attr *a)
{
    const struct mgr_lease *l = c->leases->count ? *place_of(c->leases, a->ino) : NULL;

    if (!l || !l->holder || l->holder == s)
        return;
    if (l->closed_size > a->size_bytes)
        a->size_bytes = l->closed_size;
    if (l->closed_mtime > a->mtime_ns)
        a->mtime_ns = l->closed_mtime;
    if (l->closed_mtime > a->ctime_ns)
        a->ctime_ns = l->closed_mtime;
}

bool mgr_lease_is_behind(const struct mgr_core *c, uint64_t ino)
{
    const struct mgr_lease *l = *place_of(c->leases, ino);

    return l && l->holder && l->closed;
}

void mgr_leases_each_written(const struct mgr_session *s, void (*fn)(void *arg, uint64_t ino), void *arg)
{
    const struct mgr_lease *l;

    LIST_FOREACH(l, &s->leases, of_session)
        if (mgr_map_get(&s->writes, l->ino))
            fn(arg, l->ino);
}

bool mgr_leases_any_closed(const struct mgr_session *s)
{
    const struct mgr_lease *l;

    LIST_FOREACH(l, &s->leases, of_session)
        if (l->closed)
            return true;
    return false;
}

void mgr_leases_take_closed(struct mgr_session *s, void (*fn)(void *arg, uint64_t ino, uint64_t size), void *arg)
{
    struct mgr_lease *l;

    LIST_FOREACH(l, &s->leases, of_session)
        if (l->closed) {
            l->closed = false;
            fn(arg, l->ino, l->closed_size);
        }
}

void mgr_lease_was_set(struct mgr_core *c, uint64_t ino, bool size)
{
    struct mgr_lease *l = *place_of(c->leases, ino);

    if (!l)
        return;
    l->closed_mtime = 0;
    if (size)
        l->closed_size = 0;
}

void mgr_leases_tick(struct mgr_core *c)
{
    struct mgr_leases *t = c->leases;
    struct mgr_lease *l;

    while ((l = TAILQ_FIRST(&t->ended)) && l->until_ms <= c->now.ms) {
        TAILQ_REMOVE(&t->ended, l, listed);
        lease_free(t, l);
    }
}

/* ---------------------------------------------------------------- sessions */

static const char *key_of(const struct mgr_session *s, char key[KEY_MAX])
{
    snprintf(key, KEY_MAX, "behind:%llu", (unsigned long long)s->id);
    return key;
}

int mgr_leases_session_new(struct mgr_core *c, struct mgr_session *s, bool behind)
{
    char key[KEY_MAX];

    s->behind = behind;
    s->lease_time = s->id << 24 | 1;
    return behind ? mgr_db_exec(&c->db, META_PUT, DBT(key_of(s, key)), DBI(s->lease_time)) : 0;
}

int mgr_leases_expire(struct mgr_core *c, struct mgr_session *s)
{
    char key[KEY_MAX];

    s->lease_time++;
    return s->behind ? mgr_db_exec(&c->db, META_PUT, DBT(key_of(s, key)), DBI(s->lease_time)) : 0;
}

bool mgr_leases_may_return(const struct mgr_core *c)
{
    return c->behind_expired > 0;
}

int mgr_leases_session_load(struct mgr_core *c, struct mgr_session *s)
{
    char key[KEY_MAX];
    int rc = mgr_db_one(&c->db, META_GET, DBT(key_of(s, key)));

    s->behind = rc > 0;
    s->lease_time = rc > 0 ? (uint64_t)mgr_col(&c->db, MGR_ST_META_GET, 0) : s->id << 24 | 1;
    c->behind_away += mgr_lease_is_away(s);
    mgr_db_reset(&c->db, MGR_ST_META_GET);
    return rc < 0 ? rc : 0;
}

int mgr_leases_session_end(struct mgr_core *c, const struct mgr_session *s)
{
    char key[KEY_MAX];

    return s->behind ? mgr_db_exec(&c->db, META_DELETE, DBT(key_of(s, key))) : 0;
}

/* What it has lost meanwhile it is told to publish: others may have opened the file, since its session had expired. It keeps saying the old lease time until it
 * has taken the answer. */
void mgr_leases_hello(struct mgr_core *c, struct mgr_session *s, const Fp__Hello *h)
{
    bool lost = h->lease_time != s->lease_time;

    for (size_t i = 0; i < h->n_behind_ino; i++) {
        uint64_t ino = h->behind_ino[i];
        struct mgr_lease *l = ino ? *place_of(c->leases, ino) : NULL;

        if (!ino || (l && l->holder == s))
            continue;
        if (lost) {
            say(c->leases, s->id, ino, false);
            continue;
        }
        if (!l && mgr_map_get(&s->opens, ino) && !open_elsewhere(c, s, ino))
            l = lease_new(c->leases, ino);
        if (!l || l->holder || !mgr_map_get(&s->opens, ino) || open_elsewhere(c, s, ino))
            say(c->leases, s->id, ino, false);
        else
            begin(c, l, s);
    }
}

/* ---------------------------------------------------------------- after the COMMIT */

/* False: it can't be told now. */
static bool tell(struct mgr_core *c, const struct mgr_session *s, uint64_t ino, bool done, uint64_t serial)
{
    Fp__Recall *m = s && s->conn && !s->conn->closing ? MGR_NEW(c, Fp__Recall, fp__recall__init) : NULL;

    if (!m)
        return false;
    m->ino = ino;
    m->done = done;
    m->serial = serial;
    mgr_out(c, MGR_OUT_SEND, s->conn, FP__MSG_TYPE__MSG_RECALL, &m->base);
    return true;
}

void mgr_leases_pump(struct mgr_core *c)
{
    struct mgr_leases *t = c->leases;
    struct mgr_lease *l;

    while ((l = TAILQ_FIRST(&t->to_recall))) {
        not_to_recall(t, l);
        l->told = tell(c, l->holder, l->ino, false, l->serial); /* else who wants it asks again */
    }
    for (size_t i = 0; i < t->nsays; i++) {
        const struct say *s = &t->says[i];

        (void)tell(c, mgr_session_find(c, s->session), s->ino, s->done, 0);
    }
    t->nsays = 0;
}

/* ---------------------------------------------------------------- begin and end */

struct mgr_leases *mgr_leases_new(void)
{
    struct mgr_leases *t = calloc(1, sizeof *t);

    if (!t)
        return NULL;
    t->buckets = BUCKETS_MIN;
    t->bucket = calloc(t->buckets, sizeof(struct mgr_lease *));
    if (!t->bucket) {
        free(t);
        return NULL;
    }
    TAILQ_INIT(&t->to_recall);
    TAILQ_INIT(&t->ended);
    return t;
}

void mgr_leases_free(struct mgr_leases *t)
{
    for (size_t i = 0; t && i < t->buckets; i++)
        while (t->bucket[i]) {
            struct mgr_lease *l = t->bucket[i];

            t->bucket[i] = l->next;
            free(l);
        }
    if (!t)
        return;
    free(t->bucket);
    free(t->covered);
    free(t->says);
    free(t);
}

void mgr_leases_each(const struct mgr_core *c, uint64_t ino, bool (*fn)(void *arg, const struct mgr_session *s, uint64_t ino, uint64_t since_ms, bool recalled), void *arg)
{
    const struct mgr_leases *t = c->leases;

    for (size_t i = 0; i < t->buckets; i++)
        for (const struct mgr_lease *l = t->bucket[i]; l; l = l->next)
            if (l->holder && (!ino || l->ino == ino) && !fn(arg, l->holder, l->ino, l->since_ms, l->serial != 0))
                return;
}
