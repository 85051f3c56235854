/*
 * What the nodes send. As fp-mount does it with several mounts there, which tests/sim/scale/check.sh compares with real ones: for a new file of a directory a look-up
 * of the directory and of the name, one MKNOD that opens, at the close a COMMIT for each 512 windows, and releases of whatever was closed within 5 ms. A mount reports
 * every second, a benefactor as often.
 *
 * All ranks do the same thing at the same time, so the first rank of each node comes first, then the second one of each, and so on: what stands together in the
 * database comes from everywhere, which is the worst order. Chunks have the numbers that their session gives them, in turns over its ranks.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "scale.h"

#define MIB        (UINT64_C(1) << 20)
#define BATCH      512u                  /* CL_COMMIT_BUFS_MAX */
#define RECORD     (MIB + 4096)          /* a chunk as it is stored */
#define CAPACITY   (UINT64_C(1) << 40)
#define MSG(x)     FP__MSG_TYPE__MSG_##x
#define NAME_BYTES 32

/* ------------------------------------------------------------------ hello, signs of life */

struct told {
    char node[24], addr[32], path[64];
    uint8_t uuid[16];
};

static void info_of(const struct scale_node *n, struct told *t, Fp__BnfInfo *i)
{
    uint32_t k = n->bnf.node;

    snprintf(t->node, sizeof t->node, "nid%06u", k);
    snprintf(t->addr, sizeof t->addr, "10.%u.%u.%u:7500", k >> 16, k >> 8 & 255, k & 255);
    snprintf(t->path, sizeof t->path, "/run/fpstore/nid%06u/benefactor.sock", k);
    memset(t->uuid, 0x5a, sizeof t->uuid);
    memcpy(t->uuid, &k, sizeof k);
    fp__bnf_info__init(i);
    i->uuid = (ProtobufCBinaryData){sizeof t->uuid, t->uuid};
    i->node = t->node;
    i->addr = t->addr;
    i->local_path = t->path;
    i->backend = (char *)"dir";
    i->capacity_bytes = CAPACITY;
    i->used_bytes = n->stored * RECORD;
    i->free_bytes = CAPACITY - n->stored * RECORD;
    i->chunks = n->stored;
    i->unsynced_life = 1000 + k;
}

static struct scale *the_world; /* of answers: there is one */

static void on_hello_bnf(void *arg, int status, const ProtobufCMessage *reply)
{
    struct scale_node *n = arg;

    shell_must(the_world, status == 0, "hello of a benefactor", status);
    n->bnf_id = status ? 0 : ((const Fp__HelloReply *)reply)->bnf_id;
}

static void on_hello_mount(void *arg, int status, const ProtobufCMessage *reply)
{
    struct scale_node *n = arg;

    shell_must(the_world, status == 0, "hello of a mount", status);
    n->session = status ? 0 : ((const Fp__HelloReply *)reply)->session;
}

void job_hello_bnf(struct scale *w, struct scale_node *n)
{
    Fp__Hello h = FP__HELLO__INIT;
    Fp__BnfInfo i;
    struct told t;

    info_of(n, &t, &i);
    h.protocol = 1;
    h.role = FP__ROLE__ROLE_BENEFACTOR;
    h.node = t.node;
    h.pid = 1000;
    h.software = (char *)"0.1.0";
    h.benefactor = &i;
    shell_connect(w, &n->bnf);
    shell_send(w, &n->bnf, MSG(HELLO), &h, on_hello_bnf, n);
}

void job_hello_mount(struct scale *w, struct scale_node *n)
{
    Fp__Hello h = FP__HELLO__INIT;
    Fp__Place p = FP__PLACE__INIT;
    struct told t;
    Fp__BnfInfo i;

    info_of(n, &t, &i);
    p.machine = 0x9e3779b97f4a7c15u * (n->bnf.node + 1);
    p.boot = p.machine ^ 0x5555;
    p.mount_ns = 4026531840u;
    h.protocol = 1;
    h.role = FP__ROLE__ROLE_CLIENT;
    h.node = t.node;
    h.mountpoint = (char *)"/AggregateSSDstore";
    h.pid = 1001;
    h.software = (char *)"0.1.0";
    h.session = n->session;
    h.open_known = n->session != 0;
    h.place = &p;
    shell_connect(w, &n->mount);
    shell_send(w, &n->mount, MSG(HELLO), &h, on_hello_mount, n);
}

void job_sign_of_life(struct scale *w, struct scale_node *n)
{
    static const char *const features[] = {"max-write", "parallel-direct-writes", "no-open-dir", "atomic-truncate", "splice", "expire-only", "passthrough", "io-uring"};
    Fp__Feature f[8], *list[8];
    Fp__ClientStats s = FP__CLIENT_STATS__INIT;
    Fp__KeepAlive k = FP__KEEP_ALIVE__INIT;
    Fp__BnfInfo i;
    struct told t;

    for (unsigned j = 0; j < 8; j++) {
        fp__feature__init(&f[j]);
        f[j].name = (char *)features[j];
        f[j].in_use = j < 4;
        f[j].why_not = (char *)(j < 4 ? "" : "this kernel does not offer it");
        list[j] = &f[j];
    }
    s.pool_bytes = 4096 * MIB;
    s.pool_used_bytes = 512 * MIB;
    s.open_files = w->o.ranks;
    s.written_bytes = n->stored * MIB;
    s.features = list;
    s.n_features = 8;
    if (n->mount.conn)
        shell_notice(w, &n->mount, MSG(CLIENT_STATS), &s);
    info_of(n, &t, &i);
    k.info = &i;
    if (n->bnf.conn)
        shell_notice(w, &n->bnf, MSG(KEEPALIVE), &k);
}

void job_nodes_begin(struct scale *w)
{
    the_world = w;
    w->nodes = calloc(w->o.nodes, sizeof *w->nodes);
    w->inos = calloc((size_t)w->o.nodes * w->o.ranks, sizeof *w->inos);
    for (uint32_t k = 0; k < w->o.nodes; k++) {
        w->nodes[k].mount = (struct scale_peer){.node = k, .is_mount = true};
        w->nodes[k].bnf = (struct scale_peer){.node = k};
    }
}

/* ------------------------------------------------------------------ files */

static void slot_of(struct scale_node *n, uint32_t rank, uint32_t *slot, uint64_t *seq)
{
    *slot = rank % MGR_SLOTS_MAX + 1;
    *seq = ++n->seq[*slot];
}

static void on_ino(void *arg, int status, const ProtobufCMessage *reply)
{
    uint64_t *ino = arg;

    shell_must(the_world, status == 0, "a file cannot be made or opened", status);
    *ino = status ? 0 : ((const Fp__AttrReply *)reply)->attr->ino;
}

static void on_not_there(void *arg, int status, const ProtobufCMessage *reply)
{
    (void)arg;
    (void)reply;
    shell_must(the_world, status == -ENOENT, "a name is there before it is made", status);
}

static ProtobufCBinaryData name_of(const struct scale *w, uint32_t node, uint32_t rank, char name[NAME_BYTES])
{
    if (w->o.shared)
        snprintf(name, NAME_BYTES, "all");
    else
        snprintf(name, NAME_BYTES, "rank.%06u", rank * w->o.nodes + node);
    return (ProtobufCBinaryData){strlen(name), (uint8_t *)name};
}

static void make(struct scale *w, struct scale_node *n, uint32_t rank, uint64_t parent, ProtobufCBinaryData name, uint32_t mode, uint64_t *ino)
{
    Fp__MkNod m = FP__MK_NOD__INIT;

    slot_of(n, rank, &m.slot, &m.slot_seq);
    m.parent = parent;
    m.name = name;
    m.mode = mode;
    m.uid = m.gid = 1000;
    m.open = S_ISREG(mode);
    shell_send(w, &n->mount, MSG(MKNOD), &m, on_ino, ino);
}

void job_make_dir(struct scale *w)
{
    ProtobufCBinaryData name = {2, (uint8_t *)"ck"};

    make(w, &w->nodes[0], 0, MGR_ROOT_INO, name, S_IFDIR | 0777, &w->dir_ino);
    shell_flush(w);
}

static void look_up(struct scale *w, struct scale_node *n, uint64_t parent, ProtobufCBinaryData name, scale_reply_fn fn)
{
    Fp__Lookup m = FP__LOOKUP__INIT;

    m.parent = parent;
    m.name = name;
    shell_send(w, &n->mount, MSG(LOOKUP), &m, fn, NULL);
}

/* Calls fn for each rank, those of the same number of all nodes together. */
static void each_rank(struct scale *w, void (*fn)(struct scale *, struct scale_node *, uint32_t))
{
    for (uint32_t r = 0; r < w->o.ranks; r++)
        for (uint32_t k = 0; k < w->o.nodes; k++)
            fn(w, &w->nodes[k], r);
    shell_flush(w);
}

static void look_up_dir(struct scale *w, struct scale_node *n, uint32_t rank)
{
    (void)rank;
    look_up(w, n, MGR_ROOT_INO, (ProtobufCBinaryData){2, (uint8_t *)"ck"}, NULL);
}

static bool makes(const struct scale *w, const struct scale_node *n, uint32_t rank)
{
    return !w->o.shared || (rank == 0 && n == w->nodes);
}

static void look_up_file(struct scale *w, struct scale_node *n, uint32_t rank)
{
    char name[NAME_BYTES];

    look_up(w, n, w->dir_ino, name_of(w, n->mount.node, rank, name), makes(w, n, rank) ? on_not_there : NULL);
}

static uint64_t *ino_of(struct scale *w, const struct scale_node *n, uint32_t rank)
{
    return &w->inos[w->o.shared ? 0 : (size_t)rank * w->o.nodes + n->mount.node];
}

static void open_file(struct scale *w, struct scale_node *n, uint32_t rank)
{
    char name[NAME_BYTES];
    Fp__Open m = FP__OPEN__INIT;
    uint64_t *ino = ino_of(w, n, rank);

    if (!w->o.shared) {
        make(w, n, rank, w->dir_ino, name_of(w, n->mount.node, rank, name), S_IFREG | 0644, ino);
    } else if (!makes(w, n, rank)) {
        m.ino = *ino;
        shell_send(w, &n->mount, MSG(OPEN), &m, on_ino, ino);
    }
}

static uint64_t window_of(const struct scale *w, const struct scale_node *n, uint32_t rank, uint32_t i)
{
    return w->o.shared ? (uint64_t)i * w->o.nodes * w->o.ranks + (uint64_t)rank * w->o.nodes + n->mount.node : i;
}

static void commit_some(struct scale *w, struct scale_node *n, uint32_t rank, uint32_t from, uint32_t count)
{
    static Fp__Chunk chunk[BATCH], *chunks[BATCH];
    static Fp__Slice slice[BATCH], *slices[BATCH];
    Fp__Commit m = FP__COMMIT__INIT;

    for (uint32_t i = 0; i < count; i++) {
        uint64_t id = n->session << 32 | (1 + (uint64_t)(from + i) * w->o.ranks + rank);

        fp__chunk__init(&chunk[i]);
        chunk[i].id = id;
        chunk[i].len = MIB;
        chunk[i].stored_bytes = RECORD;
        chunk[i].sum = id * 0x9e3779b97f4a7c15u;
        chunk[i].bnf = n->bnf_id;
        chunks[i] = &chunk[i];
        fp__slice__init(&slice[i]);
        slice[i].win = window_of(w, n, rank, from + i);
        slice[i].len = MIB;
        slice[i].chunk = id;
        slices[i] = &slice[i];
    }
    slot_of(n, rank, &m.slot, &m.slot_seq);
    m.ino = *ino_of(w, n, rank);
    m.chunks = chunks;
    m.slices = slices;
    m.n_chunks = m.n_slices = count;
    m.size_bytes = (slice[count - 1].win + 1) * MIB;
    m.mtime_ns = INT64_C(1700000000) * 1000000000 + (int64_t)w->now_ns;
    n->stored += count;
    w->phase->chunks += count;
    w->phase->slices += count;
    shell_send(w, &n->mount, MSG(COMMIT), &m, NULL, NULL);
}

static void close_file(struct scale *w, struct scale_node *n, uint32_t rank)
{
    for (uint32_t i = 0; i < w->o.windows; i += BATCH)
        commit_some(w, n, rank, i, w->o.windows - i < BATCH ? w->o.windows - i : BATCH);
}

/* All that a node closes within 5 ms is one message: here, what its ranks have. */
static void release_node(struct scale *w, struct scale_node *n, uint32_t rank)
{
    static uint64_t list[4096];
    Fp__Release m = FP__RELEASE__INIT;

    if (rank)
        return;
    m.write_ino = list;
    for (uint32_t r = 0; r < w->o.ranks && r < 4096; r++)
        list[m.n_write_ino++] = *ino_of(w, n, r);
    w->phase->released += m.n_write_ino;
    shell_notice(w, &n->mount, MSG(RELEASE), &m);
}

void job_checkpoint(struct scale *w)
{
    char name[NAME_BYTES];

    each_rank(w, look_up_dir);
    if (w->o.shared) {
        look_up_file(w, &w->nodes[0], 0);
        make(w, &w->nodes[0], 0, w->dir_ino, name_of(w, 0, 0, name), S_IFREG | 0644, w->inos);
        shell_flush(w);
    }
    for (uint32_t r = 0; r < w->o.ranks; r++)
        for (uint32_t k = 0; k < w->o.nodes; k++)
            if (!w->o.shared || r || k)
                look_up_file(w, &w->nodes[k], r);
    each_rank(w, open_file);
    each_rank(w, close_file);
    each_rank(w, release_node);
}

/* ------------------------------------------------------------------ what a benefactor has */

void job_inventory(const struct scale *w, const struct scale_node *n, const Fp__Inventory *m, Fp__InventoryReply *r, uint64_t *ids)
{
    uint64_t first = n->session << 32 | 1, last = n->session << 32 | n->stored;
    uint64_t at = m->after < first ? first : m->after + 1;

    (void)w;
    if (!n->empty)
        while (at <= last && r->n_ids < m->max)
            ids[r->n_ids++] = at++;
    r->eof = n->empty || at > last;
}
