/* MSG_BNF_TABLE: what every mount knows of every benefactor.
 *
 * A mount gets the whole table after its hello, and from then on what has changed. Changes of state, and a new number of doubt, go out with the next group;
 * space that changes without a change of state goes out every SPACE_PUSH_MS. Each change is a message to every mount, and space changes everywhere by the
 * second: with N nodes N * N entries a second, which is 10 GB at 10,000. So there are bounds for what goes out at once, over all mounts together; what is
 * left goes with the next group or the next second, in turns. What mounts do with old numbers is to ask a full benefactor for a lease, and then
 * another one: that it is full is a change of state.
 *
 * A message has at most TABLE_MOST entries, so that it fits a frame whatever names nodes have. A mount takes each entry as it comes.
 *
 * Rejected: the whole table at each change (with 4,000 nodes, 97 % of the manager's time in a checkpoint went into it); to let mounts ask for what
 * they need, which would remove the product of mounts and benefactors, but needs another way to choose where to store. */
#include "manager/core_int.h"

#define TABLE_MOST     4096u
#define SPACE_PUSH_MS  1000u
#define SPACE_ENTRIES  250000u  /* in one push, over all mounts: 25 MB */
#define STATE_ENTRIES  1000000u /* in one group */
#define MOUNTS_PER_MS  100u     /* that are told of changes of state */

void mgr_table_space(struct mgr_core *c, struct mgr_bnf *b)
{
    if (!b->news)
        b->news = MGR_NEWS_SPACE;
    c->space_dirty = true;
}

void mgr_table_changed(struct mgr_core *c, struct mgr_bnf *b)
{
    b->news = MGR_NEWS_STATE;
    c->table_dirty = true;
}

static Fp__BnfInfo *info(struct mgr_core *c, const struct mgr_bnf *b)
{
    Fp__BnfInfo *i = MGR_NEW(c, Fp__BnfInfo, fp__bnf_info__init);

    if (!i)
        return NULL;
    i->uuid.data = (uint8_t *)b->uuid;
    i->uuid.len = 16;
    i->id = b->id;
    i->node = mgr_arena_text(&c->arena, b->node);
    i->addr = mgr_arena_text(&c->arena, b->addr);
    i->local_path = mgr_arena_text(&c->arena, b->local_path);
    i->backend = mgr_arena_text(&c->arena, b->backend);
    i->capacity_bytes = b->capacity;
    i->used_bytes = b->conn ? b->used : b->stored + b->garbage_bytes;
    i->free_bytes = b->conn ? b->free : 0;
    i->state = mgr_bnf_state(b);
    i->error = mgr_arena_text(&c->arena, b->conn && b->silent ? "no keep-alive" : b->error);
    i->chunks = b->conn ? b->reported_chunks : b->chunks;
    i->unsynced_life = b->life;
    return i;
}

/* Mounts have no use for them. */
static void add_buffers(struct mgr_core *c, const struct mgr_bnf *b, Fp__BnfInfo *i)
{
    if (!b->conn || !b->nbuffers || !(i->buffers = mgr_arena_alloc(&c->arena, b->nbuffers * sizeof(*i->buffers))))
        return;
    for (; i->n_buffers < b->nbuffers; i->n_buffers++) {
        Fp__BufferState *s = MGR_NEW(c, Fp__BufferState, fp__buffer_state__init);

        if (!s)
            return;
        *s = b->buffers[i->n_buffers];
        i->buffers[i->n_buffers] = s;
    }
}

size_t mgr_bnf_infos(struct mgr_core *c, Fp__BnfInfo ***out)
{
    size_t n = 0;

    *out = mgr_arena_alloc(&c->arena, (c->bnf_count + 1) * sizeof(**out));
    for (size_t i = 0; *out && i < c->bnf_count; i++) {
        if (!((*out)[n] = info(c, c->bnfs[i])))
            continue;
        add_buffers(c, c->bnfs[i], (*out)[n]);
        n++;
    }
    return n;
}

/* Those of whom there is news, at most `most`, in memory of the group. NULL: out of memory. *more: there are others. */
static struct mgr_bnf **pick(struct mgr_core *c, enum mgr_news least, size_t most, size_t *n, bool *more)
{
    struct mgr_bnf **list = mgr_arena_alloc(&c->arena, (c->bnf_count + 1) * sizeof(*list));

    *n = 0;
    *more = false;
    for (size_t i = 0; list && i < c->bnf_count; i++) {
        size_t at = (c->news_next + i) % c->bnf_count;

        if (c->bnfs[at]->news < least)
            continue;
        if (*n == most) {
            *more = true;
            c->news_next = at;
            break;
        }
        list[(*n)++] = c->bnfs[at];
    }
    return list;
}

/* The messages that tell of n benefactors, in memory of the group; one without entries tells of a new number of doubt. NULL: out of memory. */
static Fp__BnfTable **make_tables(struct mgr_core *c, struct mgr_bnf *const *bnfs, size_t n, size_t *count)
{
    Fp__BnfTable **list = mgr_arena_alloc(&c->arena, (n / TABLE_MOST + 1) * sizeof(*list));

    if (!c->doubt)
        mgr_doubt(c);
    *count = 0;
    for (size_t i = 0; list && (i < n || !*count); i += TABLE_MOST) {
        Fp__BnfTable *t = MGR_NEW(c, Fp__BnfTable, fp__bnf_table__init);
        size_t len = n - i < TABLE_MOST ? n - i : TABLE_MOST;

        if (!t || !(t->benefactors = mgr_arena_alloc(&c->arena, (len + 1) * sizeof(*t->benefactors))))
            return NULL;
        t->doubt = c->doubt;
        for (; t->n_benefactors < len; t->n_benefactors++)
            if (!(t->benefactors[t->n_benefactors] = info(c, bnfs[i + t->n_benefactors])))
                return NULL;
        list[(*count)++] = t;
    }
    return list;
}

/* To the mounts that have had the whole table, or to those that have not, at most `most` of them. False: that many were told. */
static bool send(struct mgr_core *c, bool have, uint64_t most, Fp__BnfTable *const *list, size_t count)
{
    for (struct mgr_conn *conn = c->conns; conn; conn = conn->next) {
        if (!conn->sess || conn->closing || conn->table_sent != have)
            continue;
        if (!most--)
            return false;
        conn->table_sent = true;
        for (size_t i = 0; i < count; i++)
            mgr_out(c, MGR_OUT_SEND, conn, FP__MSG_TYPE__MSG_BNF_TABLE, &list[i]->base);
    }
    return true;
}

/* True: there is more to tell. */
static bool tell_news(struct mgr_core *c, enum mgr_news least, uint64_t entries)
{
    size_t n, count, mounts = c->session_count ? c->session_count : 1;
    bool more;
    struct mgr_bnf **bnfs = pick(c, least, entries / mounts + 1, &n, &more);
    Fp__BnfTable **list;

    if (bnfs && !n && least == MGR_NEWS_SPACE)
        return false;
    if (!bnfs || !(list = make_tables(c, bnfs, n, &count)))
        return true;
    send(c, true, UINT64_MAX, list, count);
    for (size_t i = 0; i < n; i++)
        bnfs[i]->news = MGR_NEWS_NONE;
    return more;
}

void mgr_table_pump(struct mgr_core *c)
{
    Fp__BnfTable **list;
    size_t count;

    if (c->table_dirty && c->now.ms >= c->table_at_ms) {
        c->table_dirty = tell_news(c, MGR_NEWS_STATE, STATE_ENTRIES);
        c->table_at_ms = c->now.ms + c->session_count / MOUNTS_PER_MS;
    }
    if (c->space_dirty && c->now.ms >= c->space_at_ms) {
        c->space_dirty = tell_news(c, MGR_NEWS_SPACE, SPACE_ENTRIES);
        c->space_at_ms = c->now.ms + SPACE_PUSH_MS;
    }
    if (!c->table_owed || !(list = make_tables(c, c->bnfs, c->bnf_count, &count)))
        return;
    c->table_owed = !send(c, false, STATE_ENTRIES / (c->bnf_count + 1) + 1, list, count);
    c->busy |= c->table_owed;
}
