/*
 * The network: TCP connections and Unix sockets of packets (the local link, which passes descriptors), and eventfds.
 *
 * A connection is a stream in each direction: what is sent arrives later, in order, as TCP has it. A segment that is "lost" comes 200 ms later, with all behind it.
 * A direction between two nodes can be blocked: nothing arrives until it is healed. Connections can be reset in the middle of a frame.
 * A node without power is silent; it answers what it no longer knows with a reset once it is up again. On one node nothing is delayed or lost.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "fp/frame.h"
#include "tests/sim/net.h"

#define WINDOW      (1u << 20)
#define BACKLOG_MAX 64
#define RETRANSMIT  (200 * SIM_MS)
#define SYN_AGAIN   SIM_S

struct segment {
    struct segment *next;
    uint64_t at;
    enum { DATA, FIN, RST } kind;
    size_t len;
    uint8_t data[];
};

struct packet { /* of a Unix socket */
    struct packet *next;
    int fds[32];
    unsigned nfds;
    size_t len;
    uint8_t data[];
};

struct sim_sock {
    enum { FRESH, LISTENING, CONNECTING, STREAM, PACKETS, COUNTER } kind;
    bool local, plain, nonblock, eof, shut, closed, up, stalled;
    int error;
    struct sim_proc *proc;
    struct sim_node *node;
    uint16_t port;
    ino_t ino; /* of a Unix listener's name */
    struct sockaddr_in to;
    struct sim_sock *peer, *next;
    struct segment *first, **last; /* on their way to this end */
    uint64_t last_at, count;
    size_t flying, rx_len, rx_cap;
    uint8_t *rx;
    struct sim_sock *backlog[BACKLOG_MAX];
    unsigned nbacklog;
    struct packet *packets, **packets_last;
    struct sim_frames frames; /* as they are sent */
    unsigned refs;
};

uint64_t sim_net_slow_ns;

static struct sim_sock *socks;
static bool blocked[SIM_NODES_MAX][SIM_NODES_MAX];

/* ------------------------------------------------------------------ ends */

static struct sim_sock *sock_new(void)
{
    struct sim_sock *s = calloc(1, sizeof *s);

    s->last = &s->first;
    s->packets_last = &s->packets;
    s->proc = sim_self ? sim_self->proc : NULL;
    s->node = sim_self ? sim_self->node : NULL;
    s->refs = 1;
    s->next = socks;
    socks = s;
    return s;
}

static void put(struct sim_sock *s)
{
    struct sim_sock **p = &socks;

    if (--s->refs)
        return;
    while (*p != s)
        p = &(*p)->next;
    *p = s->next;
    for (struct segment *g = s->first, *n; g; g = n) {
        n = g->next;
        free(g);
    }
    free(s->rx);
    free(s->frames.msg);
    free(s);
}

/* What a call that is not simulated (fchmod) changes is nobody's; not /dev/null, which is everybody's. */
int sim_fd_new(struct sim_sock *s)
{
    static int blank = -1;
    int fd;

    if (blank < 0)
        blank = (int)syscall(SYS_memfd_create, "fp-sim", MFD_CLOEXEC);
    fd = sim_dup_raw(blank);
    sim_fds[fd] = (struct sim_fd){.sock = s, .proc = sim_self ? sim_self->proc : NULL};
    return fd;
}

struct sim_sock *sim_sock_of(int fd)
{
    return fd >= 0 && fd < SIM_FDS_MAX ? sim_fds[fd].sock : NULL;
}

bool sim_sock_readable(const struct sim_sock *s)
{
    return s->rx_len || s->eof || s->error || s->nbacklog || s->packets || s->count;
}

bool sim_sock_writable(const struct sim_sock *s)
{
    if (s->kind == PACKETS || s->kind == COUNTER || s->error)
        return true;
    if (s->kind != STREAM || !s->up)
        return false;
    return !s->peer || s->peer->flying + s->peer->rx_len < WINDOW;
}

/* Whoever polls it looks again. */
static void changed(struct sim_sock *s)
{
    for (struct sim_task *t = sim_tasks(); t; t = t->next)
        for (unsigned i = 0; t->state == SIM_BLOCKED && i < t->nwatch; i++)
            if (t->watch[i] == s)
                sim_wake_task(t);
    sim_wake_all(s);
}

struct sim_sock *sim_eventlike_new(void)
{
    struct sim_sock *s = sock_new();

    s->kind = COUNTER;
    return s;
}

void sim_eventlike_set(struct sim_sock *s, uint64_t count)
{
    s->count = count;
    changed(s);
}

/* ------------------------------------------------------------------ streams */

static bool is_blocked(const struct sim_node *from, const struct sim_node *to)
{
    return !from->up || !to->up || blocked[from->id][to->id];
}

static uint64_t delay(const struct sim_node *a, const struct sim_node *b)
{
    uint64_t ns = 20000 + sim_below(SIM_RNG_NET, 30000);

    if (a == b)
        return ns;
    ns += 30000 + sim_below(SIM_RNG_NET, 400000);
    if (!sim.healed && sim_chance(SIM_RNG_NET, 5000))
        ns += RETRANSMIT;
    if (!sim.healed && sim_net_slow_ns)
        ns += sim_below(SIM_RNG_NET, sim_net_slow_ns);
    return ns;
}

static void append(struct sim_sock *s, const uint8_t *data, size_t len)
{
    if (s->rx_len + len > s->rx_cap) {
        s->rx_cap = 2 * (s->rx_len + len);
        s->rx = realloc(s->rx, s->rx_cap);
    }
    memcpy(s->rx + s->rx_len, data, len);
    s->rx_len += len;
}

static void reset(struct sim_sock *s, int error)
{
    if (s->closed || s->error)
        return;
    s->error = error;
    s->up = false;
    changed(s);
}

/* The next segment has arrived at s. */
static void arrive(void *arg)
{
    struct sim_sock *s = arg;
    struct segment *g = s->first;

    if (g && s->peer && is_blocked(s->peer->node, s->node)) {
        s->stalled = true;
        put(s);
        return;
    }
    if (g) {
        s->first = g->next;
        if (!s->first)
            s->last = &s->first;
        s->flying -= g->len;
        if (g->kind == DATA && !s->closed && !s->error)
            append(s, g->data, g->len);
        else if (g->kind == DATA && s->closed && s->peer)
            reset(s->peer, ECONNRESET);
        else if (g->kind == FIN)
            s->eof = true;
        else if (g->kind == RST)
            reset(s, ECONNRESET);
        free(g);
        changed(s);
        if (s->peer)
            changed(s->peer);
    }
    put(s);
}

static void schedule(struct sim_sock *to, uint64_t at)
{
    to->refs++;
    sim_at(at, arrive, to);
}

static void send_segment(struct sim_sock *from, int kind, const struct iovec *iov, int count, size_t len)
{
    struct sim_sock *to = from->peer;
    struct segment *g;
    size_t at = 0;

    if (!to)
        return;
    g = malloc(sizeof *g + len);
    *g = (struct segment){.kind = kind, .len = len};
    for (int i = 0; i < count && at < len; i++) {
        size_t n = iov[i].iov_len < len - at ? iov[i].iov_len : len - at;

        memcpy(g->data + at, iov[i].iov_base, n);
        at += n;
    }
    g->at = sim.now_ns + delay(from->node, to->node);
    if (g->at <= to->last_at)
        g->at = to->last_at + 1;
    to->last_at = g->at;
    *to->last = g;
    to->last = &g->next;
    to->flying += len;
    schedule(to, g->at);
}

/* Lets go what was held back and is free to go now; what may not waits again. */
void sim_net_go_on(void)
{
    for (struct sim_sock *s = socks; s; s = s->next)
        if (s->stalled) {
            s->stalled = false;
            for (struct segment *g = s->first; g; g = g->next)
                schedule(s, sim.now_ns + SIM_MS);
        }
}

void sim_net_heal(void)
{
    memset(blocked, 0, sizeof blocked);
    sim_net_go_on();
}

void sim_net_block(struct sim_node *from, struct sim_node *to, bool on)
{
    blocked[from->id][to->id] = on;
    if (!on)
        sim_net_go_on();
}

static void drop_flying(struct sim_sock *s)
{
    for (struct segment *g = s->first, *n; g; g = n) {
        n = g->next;
        free(g);
    }
    s->first = NULL;
    s->last = &s->first;
    s->flying = 0;
}

void sim_net_cut(struct sim_node *a, struct sim_node *b)
{
    for (struct sim_sock *s = socks; s; s = s->next)
        if (s->kind == STREAM && s->peer && !s->closed && ((s->node == a && s->peer->node == b) || (s->node == b && s->peer->node == a))) {
            drop_flying(s);
            reset(s, ECONNRESET);
        }
}

/* Its sockets are gone, without a word. What was sent to it is lost; who sends to it again once it is up is told. */
void sim_net_node_down(struct sim_node *n)
{
    for (struct sim_sock *s = socks; s; s = s->next) {
        if (s->node == n && s->kind != COUNTER)
            drop_flying(s);
        if (s->peer && s->peer->node == n && s->node != n)
            drop_flying(s);
    }
}

/* ------------------------------------------------------------------ connecting */

static struct sim_sock *listener(uint32_t ip, uint16_t port)
{
    for (struct sim_sock *s = socks; s; s = s->next)
        if (s->kind == LISTENING && !s->local && !s->closed && s->port == port && s->node && s->node->id + 1 == (int)(ip & 0xff))
            return s;
    return NULL;
}

static void syn_answered(void *arg)
{
    struct sim_sock *s = arg;

    if (!s->closed && s->kind == CONNECTING) {
        s->kind = STREAM;
        s->up = true;
        changed(s);
    }
    put(s);
}

static void syn_refused(void *arg)
{
    struct sim_sock *s = arg;

    reset(s, ECONNREFUSED);
    put(s);
}

static void syn(void *arg)
{
    struct sim_sock *s = arg, *l, *e;
    uint32_t ip = ntohl(s->to.sin_addr.s_addr);
    struct sim_node *to = (ip & 0xff) >= 1 && (ip & 0xff) <= sim.nnodes ? &sim.nodes[(ip & 0xff) - 1] : NULL;

    if (s->closed || !to) {
        put(s);
        return;
    }
    if (is_blocked(s->node, to) || is_blocked(to, s->node)) {
        sim_at(sim.now_ns + SYN_AGAIN, syn, s);
        return;
    }
    l = listener(ip, ntohs(s->to.sin_port));
    if (!l || l->nbacklog == BACKLOG_MAX) {
        sim_at(sim.now_ns + delay(s->node, to), syn_refused, s);
        return;
    }
    e = sock_new();
    e->kind = STREAM;
    e->up = true;
    e->proc = l->proc;
    e->node = l->node;
    e->to = s->to;
    e->peer = s;
    s->peer = e;
    s->refs++;
    e->refs++;
    l->backlog[l->nbacklog++] = e;
    changed(l);
    sim_at(sim.now_ns + delay(s->node, to), syn_answered, s);
}

static int connect_unix(struct sim_sock *s, const struct sockaddr_un *un)
{
    struct sim_sock *l = socks, *e;
    struct stat st;

    if (stat(un->sun_path, &st))
        return -1;
    while (l && !(l->kind == LISTENING && l->local && !l->closed && l->ino == st.st_ino))
        l = l->next;
    if (!l || l->nbacklog == BACKLOG_MAX) {
        errno = ECONNREFUSED;
        return -1;
    }
    e = sock_new();
    e->kind = s->kind = PACKETS;
    e->local = e->up = s->up = true;
    e->proc = l->proc;
    e->node = l->node;
    e->peer = s;
    s->peer = e;
    s->refs++;
    e->refs++;
    l->backlog[l->nbacklog++] = e;
    changed(l);
    return 0;
}

int sim_net_pair(struct sim_proc *other, int *theirs)
{
    struct sim_sock *a = sock_new(), *b = sock_new();
    int fd = sim_fd_new(a);

    a->kind = b->kind = PACKETS;
    a->local = a->plain = a->up = a->nonblock = true;
    b->local = b->plain = b->up = true;
    b->proc = other;
    b->node = other->node;
    a->peer = b;
    b->peer = a;
    a->refs++;
    b->refs++;
    *theirs = sim_fd_new(b);
    sim_fds[*theirs].proc = other;
    return fd;
}

/* ------------------------------------------------------------------ closing */

static void packets_free(struct sim_sock *s)
{
    while (s->packets) {
        struct packet *p = s->packets;

        s->packets = p->next;
        for (unsigned i = 0; i < p->nfds; i++) {
            sim_fds[p->fds[i]] = (struct sim_fd){0};
            sim_close_raw(p->fds[i]);
        }
        free(p);
    }
    s->packets_last = &s->packets;
}

void sim_sock_close(struct sim_sock *s, bool silent)
{
    if (s->closed)
        return;
    s->closed = true;
    for (unsigned i = 0; i < s->nbacklog; i++)
        sim_sock_close(s->backlog[i], silent);
    s->nbacklog = 0;
    if (s->kind == PACKETS && s->peer) {
        s->peer->eof = true;
        changed(s->peer);
    } else if (s->kind == STREAM && !silent && !s->error && !s->shut) {
        send_segment(s, s->rx_len ? RST : FIN, NULL, 0, 0);
    } else if (s->kind == STREAM && !silent && !s->error && s->rx_len) {
        send_segment(s, RST, NULL, 0, 0);
    }
    packets_free(s);
    changed(s);
    put(s);
}

void sim_fds_close_all(struct sim_proc *p, bool silent)
{
    for (int fd = 3; fd < SIM_FDS_MAX; fd++) {
        struct sim_fd f = sim_fds[fd];

        if (f.proc != p || (!f.sock && !f.file))
            continue;
        sim_fds[fd] = (struct sim_fd){0};
        sim_close_raw(fd);
        if (f.sock)
            sim_sock_close(f.sock, silent);
    }
}

void sim_sock_sends(struct sim_sock *s, const uint8_t *p, size_t len)
{
    sim_frames_send(&s->frames, s->proc, s->peer ? s->peer->proc : NULL, p, len);
}

/* ------------------------------------------------------------------ functions of the C library */

static int fails(int err)
{
    errno = err;
    return -1;
}

int socket(int domain, int type, int protocol)
{
    struct sim_sock *s;

    (void)protocol;
    s = sock_new();
    s->local = domain == AF_UNIX;
    s->nonblock = type & SOCK_NONBLOCK;
    return sim_fd_new(s);
}

int bind(int fd, const struct sockaddr *addr, socklen_t len)
{
    struct sim_sock *s = sim_sock_of(fd);
    static uint16_t any = 40000;
    struct stat st;

    (void)len;
    if (s->local) {
        const char *path = ((const struct sockaddr_un *)(const void *)addr)->sun_path;

        if (syscall(SYS_mknodat, AT_FDCWD, path, S_IFSOCK | 0600, 0))
            return fails(errno == EEXIST ? EADDRINUSE : errno);
        if (stat(path, &st) == 0)
            s->ino = st.st_ino;
        return 0;
    }
    s->port = ntohs(((const struct sockaddr_in *)(const void *)addr)->sin_port);
    for (struct sim_sock *o = socks; o && s->port; o = o->next)
        if (o->kind == LISTENING && !o->closed && !o->local && o->node == s->node && o->port == s->port)
            return fails(EADDRINUSE);
    if (!s->port)
        s->port = ++any;
    return 0;
}

int listen(int fd, int backlog)
{
    (void)backlog;
    sim_sock_of(fd)->kind = LISTENING;
    return 0;
}

int connect(int fd, const struct sockaddr *addr, socklen_t len)
{
    struct sim_sock *s = sim_sock_of(fd);

    (void)len;
    if (s->local)
        return connect_unix(s, (const struct sockaddr_un *)(const void *)addr);
    s->to = *(const struct sockaddr_in *)(const void *)addr;
    s->kind = CONNECTING;
    s->refs++;
    sim_at(sim.now_ns + 50000, syn, s);
    return fails(EINPROGRESS);
}

int accept4(int fd, struct sockaddr *addr, socklen_t *len, int flags)
{
    struct sim_sock *l = sim_sock_of(fd), *s;

    if (!l->nbacklog)
        return fails(EAGAIN);
    s = l->backlog[0];
    memmove(l->backlog, l->backlog + 1, --l->nbacklog * sizeof *l->backlog);
    s->nonblock = flags & SOCK_NONBLOCK;
    if (addr) {
        struct sockaddr_in from = {.sin_family = AF_INET, .sin_port = htons(50000), .sin_addr = {htonl(0x0a000001u + (uint32_t)(s->peer && s->peer->node ? s->peer->node->id : 0))}};

        memcpy(addr, &from, *len < sizeof from ? *len : sizeof from);
        *len = sizeof from;
    }
    return sim_fd_new(s);
}

int getsockname(int fd, struct sockaddr *addr, socklen_t *len)
{
    struct sim_sock *s = sim_sock_of(fd);
    struct sockaddr_in me = {.sin_family = AF_INET, .sin_port = htons(s->port), .sin_addr = {htonl(0x0a000001u + (uint32_t)s->node->id)}};

    memcpy(addr, &me, *len < sizeof me ? *len : sizeof me);
    *len = sizeof me;
    return 0;
}

int setsockopt(int fd, int level, int name, const void *value, socklen_t len)
{
    (void)fd;
    (void)level;
    (void)name;
    (void)value;
    (void)len;
    return 0;
}

int getsockopt(int fd, int level, int name, void *value, socklen_t *len)
{
    struct sim_sock *s = sim_sock_of(fd);

    (void)level;
    if (name == SO_ERROR && *len >= sizeof(int)) {
        *(int *)value = s->error;
    } else if (name == SO_PEERCRED && *len >= sizeof(struct ucred)) {
        *(struct ucred *)value = (struct ucred){.pid = s->peer && s->peer->proc ? 1000 + s->peer->proc->id : 0, .uid = geteuid(), .gid = getegid()};
    } else {
        return fails(ENOPROTOOPT);
    }
    return 0;
}

int shutdown(int fd, int how)
{
    struct sim_sock *s = sim_sock_of(fd);

    if (s->kind == PACKETS) {
        s->eof = true;
        s->shut = true;
        if (s->peer) {
            s->peer->eof = true;
            changed(s->peer);
        }
        changed(s);
    } else if (s->kind == STREAM && how != SHUT_RD && !s->shut && !s->error) {
        s->shut = true;
        send_segment(s, FIN, NULL, 0, 0);
    }
    return 0;
}

static ssize_t send_packet(struct sim_sock *s, const struct msghdr *mh)
{
    struct packet *p;
    size_t len = 0;

    if (!s->peer || s->peer->closed || s->peer->shut || s->shut)
        return fails(EPIPE);
    for (size_t i = 0; i < mh->msg_iovlen; i++)
        len += mh->msg_iov[i].iov_len;
    p = calloc(1, sizeof *p + len);
    for (size_t i = 0; i < mh->msg_iovlen; i++) {
        memcpy(p->data + p->len, mh->msg_iov[i].iov_base, mh->msg_iov[i].iov_len);
        p->len += mh->msg_iov[i].iov_len;
    }
    for (struct cmsghdr *c = mh->msg_controllen ? CMSG_FIRSTHDR(mh) : NULL; c; c = CMSG_NXTHDR((struct msghdr *)(uintptr_t)mh, c)) {
        size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);

        for (size_t i = 0; i < n; i++) {
            int fd;

            memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
            p->fds[p->nfds] = sim_dup_raw(fd);
            sim_fds[p->fds[p->nfds]] = (struct sim_fd){.file = sim_fds[fd].file};
            p->nfds++;
        }
    }
    if (s->plain)
        sim_packet_sends(s->proc, s->peer->proc, p->data, p->len);
    else
        sim_sock_sends(s, p->data, p->len);
    if (s->closed || s->peer->closed) { /* killed by what this message set off */
        free(p);
        return fails(EPIPE);
    }
    *s->peer->packets_last = p;
    s->peer->packets_last = &p->next;
    changed(s->peer);
    return (ssize_t)len;
}

ssize_t sendmsg(int fd, const struct msghdr *mh, int flags)
{
    struct sim_sock *s = sim_sock_of(fd);
    size_t len = 0, room;

    (void)flags;
    sim_proc_check_dying();
    sim_maybe_yield();
    if (s->kind == PACKETS)
        return send_packet(s, mh);
    if (s->error)
        return fails(s->error);
    if (s->kind != STREAM || !s->up || s->shut)
        return fails(s->shut ? EPIPE : EAGAIN);
    for (size_t i = 0; i < mh->msg_iovlen; i++)
        len += mh->msg_iov[i].iov_len;
    room = s->peer->flying + s->peer->rx_len < WINDOW ? WINDOW - s->peer->flying - s->peer->rx_len : 0;
    if (!room)
        return fails(EAGAIN);
    len = len < room ? len : room;
    send_segment(s, DATA, mh->msg_iov, (int)mh->msg_iovlen, len);
    for (size_t i = 0, left = len; i < mh->msg_iovlen && left; i++) {
        size_t n = mh->msg_iov[i].iov_len < left ? mh->msg_iov[i].iov_len : left;

        sim_sock_sends(s, mh->msg_iov[i].iov_base, n);
        left -= n;
    }
    return (ssize_t)len;
}

static ssize_t receive_packet(struct sim_sock *s, struct msghdr *mh)
{
    struct packet *p = s->packets;
    size_t at = 0;

    if (!p) {
        mh->msg_controllen = 0;
        return 0;
    }
    for (size_t i = 0; i < mh->msg_iovlen && at < p->len; i++) {
        size_t n = mh->msg_iov[i].iov_len < p->len - at ? mh->msg_iov[i].iov_len : p->len - at;

        memcpy(mh->msg_iov[i].iov_base, p->data + at, n);
        at += n;
    }
    mh->msg_flags = at < p->len ? MSG_TRUNC : 0;
    if (p->nfds) {
        struct cmsghdr *c = CMSG_FIRSTHDR(mh);

        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof(int) * p->nfds);
        memcpy(CMSG_DATA(c), p->fds, sizeof(int) * p->nfds);
        mh->msg_controllen = CMSG_SPACE(sizeof(int) * p->nfds);
        for (unsigned i = 0; i < p->nfds; i++)
            sim_fds[p->fds[i]].proc = sim_self->proc;
    } else {
        mh->msg_controllen = 0;
    }
    s->packets = p->next;
    if (!s->packets)
        s->packets_last = &s->packets;
    free(p);
    return (ssize_t)at;
}

ssize_t recvmsg(int fd, struct msghdr *mh, int flags)
{
    struct sim_sock *s = sim_sock_of(fd);
    size_t at = 0;

    sim_proc_check_dying();
    while (!sim_sock_readable(s)) {
        if (s->nonblock || (flags & MSG_DONTWAIT))
            return fails(EAGAIN);
        sim_block(s, SIM_NEVER);
    }
    if (s->kind == PACKETS)
        return receive_packet(s, mh);
    for (size_t i = 0; i < mh->msg_iovlen && at < s->rx_len; i++) {
        size_t n = mh->msg_iov[i].iov_len < s->rx_len - at ? mh->msg_iov[i].iov_len : s->rx_len - at;

        memcpy(mh->msg_iov[i].iov_base, s->rx + at, n);
        at += n;
    }
    if (at) {
        memmove(s->rx, s->rx + at, s->rx_len - at);
        s->rx_len -= at;
        if (s->peer)
            changed(s->peer);
        return (ssize_t)at;
    }
    if (s->error)
        return fails(s->error);
    return 0;
}

int eventfd(unsigned count, int flags)
{
    struct sim_sock *s = sim_eventlike_new();

    s->nonblock = flags & EFD_NONBLOCK;
    s->count = count;
    return sim_fd_new(s);
}

ssize_t sim_eventfd_read(struct sim_sock *s, uint64_t *out)
{
    if (!s->count)
        return fails(EAGAIN);
    *out = s->count;
    s->count = 0;
    return sizeof *out;
}

ssize_t sim_eventfd_write(struct sim_sock *s, uint64_t add)
{
    s->count += add;
    changed(s);
    return sizeof add;
}
