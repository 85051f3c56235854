/* A mount as fp-auxhost sees one: see aux_mount.h. */
#include "aux_mount.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "fp/clock.h"
#include "fp/memfd.h"

/* Programs are in tests/unit or apps of it. */
const char *am_dir(void)
{
    static char dir[4096];
    char host[4200];

    if (!dir[0]) {
        ssize_t n = readlink("/proc/self/exe", dir, sizeof(dir) - 1);

        assert_true(n > 0);
        dir[n] = '\0';
        do {
            assert_non_null(strrchr(dir, '/'));
            *strrchr(dir, '/') = '\0';
            snprintf(host, sizeof(host), "%s/bin/fp-auxhost", dir);
        } while (access(host, X_OK) != 0);
    }
    return dir;
}

/* -------------------------------------------------------------- start and end */

static _Noreturn void become_host(int jobs, int services, int pool, int region, int status)
{
    int fd[] = {jobs, services, pool, region, status};
    char path[4200];

    for (int i = 0; i < 5; i++)
        fd[i] = fcntl(fd[i], F_DUPFD, 20);
    for (int i = 0; i < 5; i++)
        dup2(fd[i], FP_AUXW_FD_JOBS + i);
    snprintf(path, sizeof(path), "%s/bin/fp-auxhost", am_dir());
    execl(path, "fp-auxhost", (char *)NULL);
    _exit(127);
}

static int memory(const char *name, size_t bytes, void *map)
{
    int fd = fp_memfd_new(name, bytes);

    assert_true(fd >= 0);
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    assert_true(p != MAP_FAILED);
    memcpy(map, &p, sizeof(p));
    return fd;
}

static void spawn(struct am *m)
{
    int jobs[2], services[2], pool, region, status, pool_ro;
    char path[64];

    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, jobs), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, services), 0);
    pool = memory("pool", AM_POOL_PAGES * AM_PAGE, &m->pool);
    region = memory("region", AM_SLOTS * AM_SLOT, &m->region);
    status = memory("status", sizeof(*m->status), &m->status);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", pool);
    pool_ro = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(pool_ro >= 0);
    am_dir();
    m->pid = fork();
    assert_true(m->pid >= 0);
    if (m->pid == 0)
        become_host(jobs[1], services[1], pool_ro, region, status);
    close(jobs[1]);
    close(services[1]);
    close(pool);
    close(pool_ro);
    close(region);
    close(status);
    m->fd_jobs = jobs[0];
    m->fd_services = services[0];
    m->next_id = 1;
}

int am_start(struct am *m, const char *plugin_dir, const char *cores, const char *const *declared)
{
    struct fp_auxw_start start = {.pool_bytes = AM_POOL_PAGES * AM_PAGE, .region_bytes = AM_SLOTS * AM_SLOT, .decode_only = declared == NULL,
        .memory_bytes = m->memory_bytes};
    struct fp_auxw_config config = {.index = 0};

    memset(m, 0, offsetof(struct am, service));
    spawn(m);
    for (; declared && declared[config.index]; config.index++) {
        const char *text = declared[config.index];

        config.required = (m->bypassed >> config.index & 1) * FP_AUXW_CONFIG_BYPASSED;
        am_send(m, &config, FP_AUXW_CONFIG, 0, sizeof(config), text, (uint32_t)strlen(text), NULL, 0);
    }
    start.napps = config.index;
    snprintf(start.cores, sizeof(start.cores), "%s", cores);
    snprintf(start.node, sizeof(start.node), "node7");
    if (plugin_dir)
        snprintf(start.plugin_dir, sizeof(start.plugin_dir), "%s", plugin_dir);
    else
        snprintf(start.plugin_dir, sizeof(start.plugin_dir), "%.200s/tests/plugins", am_dir());
    am_send(m, &start, FP_AUXW_START, 0, sizeof(start), NULL, 0, NULL, 0);
    for (uint64_t until = fp_now_ms() + AM_WAIT_MS; m->ready.h.type == 0 && !m->failed[0] && !m->reaped;) {
        am_run(m, 1);
        assert_true(fp_now_ms() < until);
    }
    return m->ready.h.type ? 0 : -1;
}

static void reap(struct am *m, int ms)
{
    for (uint64_t until = fp_now_ms() + (uint64_t)ms; !m->reaped; usleep(500)) {
        m->reaped = waitpid(m->pid, &m->wait_status, WNOHANG) == m->pid;
        assert_true(fp_now_ms() < until);
    }
}

int am_wait_death(struct am *m)
{
    reap(m, AM_WAIT_MS);
    return m->wait_status;
}

int am_stop(struct am *m)
{
    struct fp_auxw_head stop;

    if (!m->reaped)
        am_send(m, &stop, FP_AUXW_STOP, 0, sizeof(stop), NULL, 0, NULL, 0);
    for (uint64_t until = fp_now_ms() + AM_WAIT_MS; !m->reaped && fp_now_ms() < until;)
        am_run(m, 2);
    reap(m, 1);
    am_run(m, 0);
    close(m->fd_jobs);
    close(m->fd_services);
    munmap(m->pool, AM_POOL_PAGES * AM_PAGE);
    munmap(m->region, AM_SLOTS * AM_SLOT);
    munmap(m->status, sizeof(*m->status));
    while (m->answers) {
        struct am_answer *a = m->answers;

        m->answers = a->next;
        free(a);
    }
    return m->wait_status;
}

void am_stop_clean(struct am *m)
{
    int status = am_stop(m);

    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* -------------------------------------------------------------- messages */

void am_send(struct am *m, void *head, uint32_t type, uint64_t id, uint32_t len, const void *a, uint32_t alen, const void *b, uint32_t blen)
{
    struct fp_auxw_head *h = head;
    struct iovec iov[3] = {{head, len}, {(void *)(uintptr_t)a, alen}, {(void *)(uintptr_t)b, blen}};
    struct msghdr msg = {.msg_iov = iov, .msg_iovlen = 3};

    *h = (struct fp_auxw_head){.type = type, .id = id, .len_bytes = len + alen + blen};
    ssize_t n = sendmsg(m->fd_jobs, &msg, MSG_NOSIGNAL);

    if (n < 0 && (errno == EPIPE || errno == ECONNRESET))
        return;        /* it has died: the test looks */
    assert_int_equal(n, len + alen + blen);
}

static void on_log(struct am *m, const uint8_t *buf, uint32_t n)
{
    struct fp_auxw_log l;
    size_t used = strlen(m->log);

    memcpy(&l, buf, sizeof(l));
    snprintf(m->log + used, sizeof(m->log) - used, "%d %u %.*s\n", (int)l.app, l.level, (int)(n - sizeof(l)), (const char *)buf + sizeof(l));
}

/* False: there was none. */
static bool on_jobs(struct am *m)
{
    static _Alignas(16) uint8_t buf[FP_AUXW_MESSAGE_MAX_BYTES];
    ssize_t n = recv(m->fd_jobs, buf, sizeof(buf), MSG_DONTWAIT);
    struct fp_auxw_head h;

    if (n < (ssize_t)sizeof(h)) {
        if (n == 0 || errno == ECONNRESET)
            usleep(200);
        return false;
    }
    memcpy(&h, buf, sizeof(h));
    assert_int_equal(h.len_bytes, n);
    if (h.type == FP_AUXW_LOG) {
        on_log(m, buf, (uint32_t)n);
    } else if (h.type == FP_AUXW_SKIP) {
        assert_int_equal(n, sizeof(m->said));
        memcpy(&m->said, buf, sizeof(m->said));
    } else if (h.type == FP_AUXW_READY) {
        assert_int_equal(n, sizeof(m->ready));
        memcpy(&m->ready, buf, sizeof(m->ready));
    } else if (h.type == FP_AUXW_FAILED) {
        snprintf(m->failed, sizeof(m->failed), "%.*s", (int)((size_t)n - sizeof(struct fp_auxw_failed)),
             (const char *)buf + sizeof(struct fp_auxw_failed));
        m->failed_app = ((const struct fp_auxw_failed *)(const void *)buf)->app;
    } else {
        struct am_answer *a = malloc(sizeof(*a) + (size_t)n), **p = &m->answers;

        assert_non_null(a);
        assert_true(h.type == FP_AUXW_DONE || h.type == FP_AUXW_CHUNK_OUT_DONE);
        a->next = NULL;
        a->len = (uint32_t)n;
        memcpy(a->buf, buf, (size_t)n);
        while (*p)
            p = &(*p)->next;
        *p = a;
    }
    return true;
}

static void answer(struct am *m, const uint8_t *buf, size_t n)
{
    static _Alignas(16) uint8_t reply[FP_AUXW_MESSAGE_MAX_BYTES];
    struct fp_auxw_svc q;

    memcpy(&q, buf, sizeof(q));
    for (unsigned call = 0;; call++) {
        struct fp_auxw_svc a = {.h = q.h, .status = -ENOTSUP, .eof = 1};
        uint32_t len = m->service ? m->service(m, &q, buf + sizeof(q), (uint32_t)(n - sizeof(q)), call, &a, reply) : 0;
        struct iovec iov[2] = {{&a, sizeof(a)}, {reply, len}};
        struct msghdr msg = {.msg_iov = iov, .msg_iovlen = 2};

        a.h.len_bytes = (uint32_t)sizeof(a) + len;
        assert_true(sendmsg(m->fd_services, &msg, MSG_NOSIGNAL) >= 0 || errno == EPIPE);
        if (a.eof)
            break;
    }
}

/* All that have come, the last one first: answers must find who asked. */
static void on_service(struct am *m)
{
    static _Alignas(16) uint8_t buf[8][FP_AUXW_MESSAGE_MAX_BYTES];
    ssize_t n[8];
    int count = 0;

    while (count < 8 && (n[count] = recv(m->fd_services, buf[count], sizeof(buf[0]), MSG_DONTWAIT)) >= (ssize_t)sizeof(struct fp_auxw_svc))
        count++;
    while (count-- > 0)
        answer(m, buf[count], (size_t)n[count]);
}

/* One message of either socket, if one comes within ms. True: there may be more. */
static bool step(struct am *m, int ms)
{
    struct pollfd p[2] = {{.fd = m->fd_jobs, .events = POLLIN}, {.fd = m->fd_services, .events = POLLIN}};
    bool more = false;

    if (poll(p, 2, ms) <= 0)
        return false;
    if (p[0].revents & POLLIN)
        more = on_jobs(m);
    if (p[1].revents & POLLIN)
        on_service(m);
    if (!more && !m->reaped && ((p[0].revents | p[1].revents) & POLLHUP))
        m->reaped = waitpid(m->pid, &m->wait_status, WNOHANG) == m->pid;
    return more || !((p[0].revents | p[1].revents) & POLLHUP);
}

void am_run(struct am *m, int ms)
{
    uint64_t until = fp_now_ms() + (uint64_t)ms;

    for (;;) {
        uint64_t now = fp_now_ms();
        bool more = step(m, now < until ? (int)(until - now) : 0);

        if (!more && (fp_now_ms() >= until || m->reaped))
            return;
    }
}

struct am_answer *am_take(struct am *m, uint64_t id, int ms)
{
    uint64_t until = fp_now_ms() + (uint64_t)ms;

    for (;;) {
        for (struct am_answer **p = &m->answers; *p; p = &(*p)->next) {
            struct am_answer *a = *p;
            struct fp_auxw_head h;

            memcpy(&h, a->buf, sizeof(h));
            if (h.id == id) {
                *p = a->next;
                return a;
            }
        }
        if (fp_now_ms() >= until || m->reaped)
            return NULL;
        step(m, 5);
    }
}

/* -------------------------------------------------------------- jobs */

uint8_t *am_slot(struct am *m, uint32_t i)
{
    return m->region + (size_t)i * AM_SLOT;
}

uint64_t am_chunk_out(struct am *m, uint32_t first, uint32_t step_pages, uint32_t len, uint32_t slot)
{
    struct fp_auxw_chunk_out j = {.ino = 17, .file_off = 1u << 20, .file_serial = 5, .len_bytes = len, .whole = 1, .out_cap_bytes = AM_SLOT,
                                  .flags = m->out_flags, .skip = m->skip};
    uint32_t page[256];

    j.npages = (len + AM_PAGE - 1) / AM_PAGE;
    for (uint32_t i = 0; i < j.npages; i++)
        page[i] = first + i * step_pages;
    for (uint32_t i = 0; i < FP_AUXW_APPS_MAX; i++)
        j.passed_bytes[i] = m->passed_bytes;
    j.out_a = (uint64_t)(2 * slot) * AM_SLOT;
    j.out_b = j.out_a + AM_SLOT;
    am_send(m, &j, FP_AUXW_CHUNK_OUT, ++m->next_id, sizeof(j), page, j.npages * 4, NULL, 0);
    return m->next_id;
}

const struct fp_auxw_out_done *am_out_done(struct am *m, uint64_t id)
{
    static struct am_answer *last;
    struct am_answer *a = am_take(m, id, AM_WAIT_MS);

    assert_non_null(a);
    free(last);
    last = a;
    const struct fp_auxw_out_done *d = (const void *)a->buf;

    assert_int_equal(d->h.type, FP_AUXW_CHUNK_OUT_DONE);
    assert_int_equal(a->len, sizeof(*d) + d->npieces * sizeof(struct fp_auxw_piece) + d->nstages * sizeof(struct fp_auxw_stage) +
                 d->nkeys * sizeof(uint64_t) + d->note_bytes);
    return d;
}

const struct fp_auxw_piece *am_pieces(const struct fp_auxw_out_done *d)
{
    return (const void *)(d + 1);
}

const struct fp_auxw_stage *am_stages(const struct fp_auxw_out_done *d)
{
    return (const void *)(am_pieces(d) + d->npieces);
}

const uint64_t *am_keys(const struct fp_auxw_out_done *d)
{
    return (const void *)(am_stages(d) + d->nstages);
}

const uint8_t *am_note(const struct fp_auxw_out_done *d)
{
    return (const void *)(am_keys(d) + d->nkeys);
}

uint64_t am_chunk_in(struct am *m, uint32_t slot, const struct fp_auxw_stage *stages, uint32_t nstages, uint32_t coded_bytes)
{
    struct fp_auxw_chunk_in j = {.cap_bytes = AM_SLOT, .coded_bytes = coded_bytes, .nstages = nstages};

    j.a = (uint64_t)(2 * slot) * AM_SLOT;
    j.b = j.a + AM_SLOT;
    memcpy(j.stage, stages, nstages * sizeof(*stages));
    am_send(m, &j, FP_AUXW_CHUNK_IN, ++m->next_id, sizeof(j), NULL, 0, NULL, 0);
    return m->next_id;
}

int am_done(struct am *m, uint64_t id, uint32_t *where)
{
    struct am_answer *a = am_take(m, id, AM_WAIT_MS);

    assert_non_null(a);
    const struct fp_auxw_done *d = (const void *)a->buf;
    int status = d->status;

    assert_int_equal(d->h.type, FP_AUXW_DONE);
    if (where)
        *where = d->where;
    free(a);
    return status;
}

uint64_t am_change(struct am *m, uint32_t app, const char *text)
{
    struct fp_auxw_change c = {.app = app, .text_bytes = (uint32_t)strlen(text)};

    am_send(m, &c, FP_AUXW_CHANGE, ++m->next_id, sizeof(c), text, c.text_bytes, NULL, 0);
    return m->next_id;
}

void am_wait_log(struct am *m, const char *text)
{
    for (uint64_t until = fp_now_ms() + AM_WAIT_MS; !strstr(m->log, text); am_run(m, 1)) {
        if (fp_now_ms() >= until)
            fail_msg("'%s' does not come; the log has:\n%s", text, m->log);
    }
}

int64_t am_counter(struct am *m, uint32_t app, const char *name)
{
    for (uint32_t i = 0; i < FP_AUXW_COUNTERS_MAX; i++) {
        if (strcmp(m->status->stats[app].counter[i].name, name) == 0)
            return m->status->stats[app].counter[i].value;
    }
    return -1;
}

void am_thread_says(pid_t pid, const char *tid, const char *name, char *out, size_t n)
{
    char path[300], line[512];

    snprintf(path, sizeof(path), "/proc/%d/task/%s/status", pid, tid);
    FILE *f = fopen(path, "r");

    out[0] = '\0';
    while (f && fgets(line, sizeof(line), f)) {
        const char *value = line + strlen(name);

        if (strncmp(line, name, strlen(name)) != 0)
            continue;
        value += strspn(value, " \t");
        snprintf(out, n, "%.*s", (int)strcspn(value, "\n"), value);
    }
    if (f) /* else it has ended */
        fclose(f);
}

uint32_t am_sum_threads(pid_t pid, uint32_t (*fn)(pid_t pid, const char *tid, void *arg), void *arg)
{
    struct dirent *e;
    uint32_t sum = 0;
    char path[64];

    snprintf(path, sizeof(path), "/proc/%d/task", pid);
    DIR *d = opendir(path);

    assert_non_null(d);
    while ((e = readdir(d))) {
        if (e->d_name[0] != '.')
            sum += fn(pid, e->d_name, arg);
    }
    closedir(d);
    return sum;
}
