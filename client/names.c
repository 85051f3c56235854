/*
 * What this mount knows of directories: see names.h.
 *
 * Called by FUSE threads (find, create, remove), and by whoever sends requests to the manager (cl_names_sent, from
 * mgr_call.c, so that no operation can be overlooked). One mutex. A directory has a hash table of its names; files
 * are in a second one by inode number, for the requests that name only that.
 *
 * Names are kept in full: two names with one hash must not be taken for each other when one of them is removed.
 *
 * A directory's attributes are exact or not known at all. They become exact again from a GETATTR during which nothing
 * that changes the directory was under way (busy, changes), or from the answer of the only change that was. Working them
 * out from answers of several was rejected: answers and early changes come in different orders.
 */
#include "client/names.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

#include "client/inode.h"

#define DIR_BITS    6u
#define DIRS        (1u << DIR_BITS)
#define FIRST_CAP   64u
#define INO_BITS    14u
#define INO_BUCKETS (1u << INO_BITS)
#define ENTRIES_MAX (1u << 17) /* of all directories: some 15 MiB */

struct entry {
    struct entry *next;     /* same bucket of the directory */
    struct entry *next_ino; /* same bucket of by_ino; only if ino is not 0 */
    uint64_t dir, hash;
    uint64_t ino; /* 0: unknown */
    int64_t time_ns;
    uint32_t mode, uid, gid, chunk_size_bytes, stripe;
    bool strict;
    bool exact; /* nothing has touched the file since it was made */
    char name[];
};

struct dir {
    uint64_t ino; /* 0: unused */
    uint64_t changes;
    uint32_t busy; /* requests under way that may change its attributes */
    bool shown;       /* the kernel keeps attributes, or will when it has read the answer */
    int64_t told_ns;  /* time of the last change that was told early */
    bool exact;    /* attr is what the manager will have executed all that was sent has */
    uint32_t count, cap;
    struct entry **buckets;
    Fp__Attr attr;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct dir dirs[DIRS];              /* lock */
static struct entry *by_ino[INO_BUCKETS];  /* lock */
static uint32_t total;                     /* lock: entries */
static uint64_t stamps;                    /* lock: changes of all directories, so that no stamp comes twice */
static atomic_uint known;                  /* directories */

static struct dir *place_of(uint64_t ino)
{
    return &dirs[cl_ino_slot(ino, DIR_BITS)];
}

static struct dir *dir_of(uint64_t ino)
{
    struct dir *d = place_of(ino);
    return ino != 0 && d->ino == ino ? d : NULL;
}

static struct entry **ino_bucket(uint64_t ino)
{
    return &by_ino[cl_ino_slot(ino, INO_BITS)];
}

static uint64_t hash_of(const char *name)
{
    return XXH3_64bits(name, strlen(name));
}

/* -------------------------------------------------------------- entries */

static struct entry *by_number(uint64_t ino)
{
    struct entry *e = ino ? *ino_bucket(ino) : NULL;
    while (e && e->ino != ino)
        e = e->next_ino;
    return e;
}

/* From file to unknown. */
static void lose_number(struct entry *e)
{
    if (e->ino == 0)
        return;
    struct entry **p = ino_bucket(e->ino);
    while (*p != e)
        p = &(*p)->next_ino;
    *p = e->next_ino;
    e->ino = 0;
    e->exact = false;
}

static struct entry **find(struct dir *d, const char *name, uint64_t hash)
{
    struct entry **p = &d->buckets[hash & (d->cap - 1)];
    while (*p && ((*p)->hash != hash || strcmp((*p)->name, name) != 0))
        p = &(*p)->next;
    return p;
}

static void forget(struct dir *d)
{
    for (uint32_t i = 0; i < d->cap; i++) {
        for (struct entry *e = d->buckets[i], *next; e; e = next) {
            next = e->next;
            lose_number(e);
            free(e);
        }
    }
    total -= d->count;
    atomic_fetch_sub(&known, d->ino != 0);
    free(d->buckets);
    *d = (struct dir){0};
}

static bool grow(struct dir *d)
{
    uint32_t cap = d->cap * 2;
    struct entry **bigger = calloc(cap, sizeof(struct entry *));
    if (!bigger)
        return false;
    for (uint32_t i = 0; i < d->cap; i++) {
        for (struct entry *e = d->buckets[i], *next; e; e = next) {
            struct entry **to = &bigger[e->hash & (cap - 1)];
            next = e->next;
            e->next = *to;
            *to = e;
        }
    }
    free(d->buckets);
    d->buckets = bigger;
    d->cap = cap;
    return true;
}

/* NULL: there is no room, and the directory must be forgotten. */
static struct entry *add(struct dir *d, const char *name, uint64_t hash)
{
    size_t len = strlen(name);
    if (total >= ENTRIES_MAX || (d->count >= d->cap && !grow(d)))
        return NULL;
    struct entry *e = calloc(1, sizeof *e + len + 1);
    if (!e)
        return NULL;
    memcpy(e->name, name, len + 1);
    e->dir = d->ino;
    e->hash = hash;
    struct entry **b = &d->buckets[hash & (d->cap - 1)];
    e->next = *b;
    *b = e;
    d->count++;
    total++;
    return e;
}

static void drop(struct dir *d, struct entry **p)
{
    struct entry *e = *p;
    lose_number(e);
    *p = e->next;
    free(e);
    d->count--;
    total--;
}

/* -------------------------------------------------------------- looking */

static void fill(const struct entry *e, Fp__Attr *a)
{
    fp__attr__init(a);
    a->ino = e->ino;
    a->mode = e->mode;
    a->nlink = 1;
    a->uid = e->uid;
    a->gid = e->gid;
    a->atime_ns = a->mtime_ns = a->ctime_ns = a->btime_ns = e->time_ns;
    a->chunk_size_bytes = e->chunk_size_bytes;
    a->stripe = e->stripe;
    a->strict = e->strict;
    a->data_version = a->generation = 1;
}

static bool is_dots(const char *name)
{
    return name[0] == '.' && (name[1] == '\0' || (name[1] == '.' && name[2] == '\0'));
}

bool cl_names_none(void)
{
    return atomic_load_explicit(&known, memory_order_relaxed) == 0;
}

bool cl_names_known(uint64_t dir)
{
    if (cl_names_none())
        return false;
    pthread_mutex_lock(&lock);
    bool is = dir_of(dir) != NULL;
    pthread_mutex_unlock(&lock);
    return is;
}

enum cl_name_state cl_names_find(uint64_t dir, const char *name, Fp__Attr *a)
{
    enum cl_name_state state = CL_NAME_UNKNOWN;
    if (cl_names_none() || is_dots(name))
        return state;
    uint64_t hash = hash_of(name);
    pthread_mutex_lock(&lock);
    struct dir *d = dir_of(dir);
    if (d) {
        const struct entry *e = *find(d, name, hash);
        state = !e ? CL_NAME_ABSENT : e->exact ? CL_NAME_FILE : CL_NAME_UNKNOWN;
        if (e && e->exact)
            fill(e, a);
    }
    pthread_mutex_unlock(&lock);
    return state;
}

bool cl_names_attr(uint64_t ino, Fp__Attr *a)
{
    if (cl_names_none())
        return false;
    pthread_mutex_lock(&lock);
    const struct dir *d = dir_of(ino);
    const struct entry *e = d ? NULL : by_number(ino);
    bool found = d ? d->exact : e && e->exact;
    if (found && d)
        *a = d->attr;
    else if (found)
        fill(e, a);
    pthread_mutex_unlock(&lock);
    return found;
}

/* -------------------------------------------------------------- changing */

void cl_names_made(const Fp__Attr *a)
{
    struct dir *d = place_of(a->ino);
    pthread_mutex_lock(&lock);
    forget(d); /* the one that was here before */
    d->buckets = calloc(FIRST_CAP, sizeof(struct entry *));
    if (d->buckets) {
        d->cap = FIRST_CAP;
        d->ino = a->ino;
        d->attr = *a; /* has no pointers */
        d->exact = true;
        d->changes = ++stamps;
        atomic_fetch_add(&known, 1);
    }
    pthread_mutex_unlock(&lock);
}

static void touch(struct dir *d)
{
    d->changes = ++stamps;
    d->exact = false;
}

/* A change whose time is known. Times of one directory do not go back, whatever the clocks do. */
static int64_t change(struct dir *d, int64_t now_ns)
{
    d->changes = ++stamps;
    if (d->exact) {
        if (now_ns < d->attr.ctime_ns)
            now_ns = d->attr.ctime_ns;
        d->attr.mtime_ns = d->attr.ctime_ns = now_ns;
    }
    d->told_ns = now_ns;
    return now_ns;
}

bool cl_names_can_create(uint64_t dir, const char *name)
{
    if (cl_names_none() || is_dots(name))
        return false;
    uint64_t hash = hash_of(name);
    pthread_mutex_lock(&lock);
    struct dir *d = dir_of(dir);
    bool can = d && d->exact && !*find(d, name, hash);
    pthread_mutex_unlock(&lock);
    return can;
}

/* As manager/ns_create.c does it. */
static void become_file(struct entry *e, const struct cl_name_new *n, const Fp__Attr *dir)
{
    struct entry **b = ino_bucket(n->ino);
    e->ino = n->ino;
    e->next_ino = *b;
    *b = e;
    e->mode = S_IFREG | (n->mode & 07777);
    e->uid = n->uid;
    e->gid = dir->mode & S_ISGID ? dir->gid : n->gid;
    e->chunk_size_bytes = dir->chunk_size_bytes;
    e->stripe = dir->stripe;
    e->strict = dir->strict;
    e->exact = true;
}

bool cl_names_create(uint64_t dir, const char *name, const struct cl_name_new *n, Fp__Attr *a, int64_t *time_ns)
{
    uint64_t hash = hash_of(name);
    bool made = false;
    pthread_mutex_lock(&lock);
    struct dir *d = dir_of(dir);
    if (d && d->exact && !*find(d, name, hash)) {
        struct entry *e = add(d, name, hash);
        if (e) {
            become_file(e, n, &d->attr);
            e->time_ns = *time_ns = change(d, n->now_ns);
            d->busy++;
            fill(e, a);
            made = true;
        } else {
            forget(d);
        }
    }
    pthread_mutex_unlock(&lock);
    return made;
}

bool cl_names_remove(uint64_t dir, const char *name, int64_t now_ns, uint64_t *ino, int64_t *time_ns)
{
    if (cl_names_none())
        return false;
    uint64_t hash = hash_of(name);
    pthread_mutex_lock(&lock);
    struct dir *d = dir_of(dir);
    struct entry **p = d ? find(d, name, hash) : NULL;
    bool removed = p && *p && (*p)->ino != 0;
    if (removed) {
        *ino = (*p)->ino;
        *time_ns = change(d, now_ns);
        d->busy++;
        drop(d, p);
    }
    pthread_mutex_unlock(&lock);
    return removed;
}

void cl_names_queued(uint64_t dir)
{
    pthread_mutex_lock(&lock);
    struct dir *d = dir_of(dir);
    if (d)
        d->busy -= d->busy > 0;
    pthread_mutex_unlock(&lock);
}

/* -------------------------------------------------------------- requests */

/* Their directories and names, by what the messages have in common. */
struct named {
    uint64_t dir;
    const ProtobufCBinaryData *name;
};

static struct dir *begin(uint64_t ino, struct cl_names_mark *mark)
{
    struct dir *d = dir_of(ino);
    if (d) {
        touch(d);
        d->busy++;
        unsigned i = mark->dir[0] != 0;
        mark->dir[i] = ino;
        mark->stamp[i] = d->busy == 1 ? d->changes : 0;
    }
    return d;
}

static void name_unknown(struct named n, struct cl_names_mark *mark)
{
    struct dir *d = begin(n.dir, mark);
    char name[256];
    if (!d || n.name->len >= sizeof name)
        return;
    memcpy(name, n.name->data, n.name->len);
    name[n.name->len] = '\0';
    uint64_t hash = hash_of(name);
    struct entry *e = *find(d, name, hash);
    if (e)
        lose_number(e);
    else if (!add(d, name, hash))
        forget(d);
}

static void file_touched(uint64_t ino, struct cl_names_mark *mark)
{
    struct entry *e = by_number(ino);
    if (e)
        e->exact = false;
    (void)begin(ino, mark);
}

static void all_touched(void)
{
    for (uint32_t i = 0; i < DIRS; i++) {
        if (dirs[i].ino)
            touch(&dirs[i]);
    }
}

static void link_sent(const Fp__Link *m, struct cl_names_mark *mark)
{
    struct entry *e = by_number(m->ino);
    if (e)
        lose_number(e); /* it has more than one name now */
    name_unknown((struct named){m->parent, &m->name}, mark);
}

/* A directory that is moved changes too, and we may not know which. */
static void rename_sent(const Fp__Rename *m, struct cl_names_mark *mark)
{
    name_unknown((struct named){m->parent, &m->name}, mark);
    name_unknown((struct named){m->new_parent, &m->new_name}, mark);
    mark->all = true;
    all_touched();
}

static void sent(uint32_t type, const ProtobufCMessage *msg, struct cl_names_mark *mark)
{
    const Fp__MkNod *mk = (const Fp__MkNod *)msg;
    const Fp__Unlink *un = (const Fp__Unlink *)msg;
    switch (type) {
    case FP__MSG_TYPE__MSG_MKNOD:
        if (mk->ino == 0 && !mk->tmpfile) /* with a number: cl_names_create knows of it */
            name_unknown((struct named){mk->parent, &mk->name}, mark);
        break;
    case FP__MSG_TYPE__MSG_UNLINK:
        if (un->ino == 0)
            name_unknown((struct named){un->parent, &un->name}, mark);
        break;
    case FP__MSG_TYPE__MSG_RENAME:
        rename_sent((const Fp__Rename *)msg, mark);
        break;
    case FP__MSG_TYPE__MSG_LINK:
        link_sent((const Fp__Link *)msg, mark);
        break;
    case FP__MSG_TYPE__MSG_SETATTR:
        file_touched(((const Fp__SetAttr *)msg)->ino, mark);
        break;
    case FP__MSG_TYPE__MSG_SETXATTR:
        file_touched(((const Fp__SetXattr *)msg)->ino, mark);
        break;
    case FP__MSG_TYPE__MSG_REMOVEXATTR:
        file_touched(((const Fp__RemoveXattr *)msg)->ino, mark);
        break;
    case FP__MSG_TYPE__MSG_COMMIT:
        file_touched(((const Fp__Commit *)msg)->ino, mark);
        break;
    case FP__MSG_TYPE__MSG_PUNCH:
        file_touched(((const Fp__Punch *)msg)->ino, mark);
        break;
    case FP__MSG_TYPE__MSG_CLONE:
        file_touched(((const Fp__Clone *)msg)->dst_ino, mark);
        break;
    default:
        break; /* changes nothing that is known here */
    }
}

void cl_names_sent(uint32_t type, const ProtobufCMessage *msg, struct cl_names_mark *mark)
{
    *mark = (struct cl_names_mark){0};
    if (cl_names_none())
        return;
    pthread_mutex_lock(&lock);
    sent(type, msg, mark);
    pthread_mutex_unlock(&lock);
}

static void end(uint64_t ino, uint64_t stamp, bool certain, const Fp__Attr *after)
{
    struct dir *d = dir_of(ino);
    if (!d)
        return;
    bool only = stamp != 0 && d->changes == stamp && d->busy == 1;
    touch(d);
    d->busy -= d->busy > 0;
    if (!certain) {
        forget(d);
    } else if (only && after && after->ino == ino) {
        d->attr = *after;
        d->exact = true;
    }
}

void cl_names_answered(const struct cl_names_mark *mark, bool certain, const Fp__Attr *after)
{
    if (!mark->all && mark->dir[0] == 0)
        return;
    pthread_mutex_lock(&lock);
    for (unsigned i = 0; i < 2; i++)
        end(mark->dir[i], mark->stamp[i], certain, after);
    if (mark->all)
        all_touched();
    pthread_mutex_unlock(&lock);
}

uint64_t cl_names_stamp(uint64_t dir)
{
    if (cl_names_none())
        return 0;
    pthread_mutex_lock(&lock);
    const struct dir *d = dir_of(dir);
    uint64_t stamp = d && !d->exact && d->busy == 0 ? d->changes : 0;
    pthread_mutex_unlock(&lock);
    return stamp;
}

void cl_names_learn(uint64_t stamp, const Fp__Attr *a)
{
    if (stamp == 0)
        return;
    pthread_mutex_lock(&lock);
    struct dir *d = dir_of(a->ino);
    if (d && d->changes == stamp && d->busy == 0) {
        d->attr = *a;
        d->exact = true;
    }
    pthread_mutex_unlock(&lock);
}

/* -------------------------------------------------------------- the kernel's copy */

bool cl_names_show(uint64_t dir, int64_t ctime_ns)
{
    if (cl_names_none())
        return true;
    pthread_mutex_lock(&lock);
    struct dir *d = dir_of(dir);
    bool newest = !d || ctime_ns >= d->told_ns;
    if (d && newest)
        d->shown = true;
    pthread_mutex_unlock(&lock);
    return newest;
}

bool cl_names_hide(uint64_t dir)
{
    pthread_mutex_lock(&lock);
    struct dir *d = dir_of(dir);
    bool shown = d && d->shown;
    if (shown)
        d->shown = false;
    pthread_mutex_unlock(&lock);
    return shown;
}

void cl_names_forget(uint64_t dir)
{
    pthread_mutex_lock(&lock);
    struct dir *d = dir_of(dir);
    if (d)
        forget(d);
    pthread_mutex_unlock(&lock);
}

void cl_names_clear(void)
{
    pthread_mutex_lock(&lock);
    for (uint32_t i = 0; i < DIRS; i++)
        forget(&dirs[i]);
    pthread_mutex_unlock(&lock);
}
