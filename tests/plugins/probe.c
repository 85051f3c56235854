/* probe: an aux-app for tests, which does to a chunk what the option `do` says. Built under several names (module.mk). */
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "fp/auxapp.h"

#ifndef PROBE_FLAGS
#define PROBE_FLAGS 0
#endif
#ifndef PROBE_ABI
#define PROBE_ABI FP_AUX_ABI
#endif
#ifndef PROBE_SIZE
#define PROBE_SIZE sizeof(struct fp_aux_app)
#endif
#ifndef PROBE_CALLED
#define PROBE_CALLED PROBE_NAME
#endif
#ifndef PROBE_CODES
#define PROBE_CODES FP_AUX_CODES
#endif
#ifndef PROBE_IN
#define PROBE_IN chunk_in
#endif
#define BLOCK 4096u
#define POOL_FD 5

struct state {
    struct fp_aux_host *host;
    _Atomic int chunks, inside, most, asked;
};

static uint64_t now_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static void spin(int64_t us)
{
    uint64_t until = now_ns() + (uint64_t)us * 1000u;

    while (now_ns() < until)
        ;
}

/* -------------------------------------------------------------- misbehaving */

static volatile int zero;
static int *volatile nowhere = (int *)16;  /* not NULL: UBSan would stop that before the signal */

static int overflow(int n)
{
    volatile char fill[8192];

    memset((char *)fill, n, sizeof(fill));
    return n == INT_MAX ? fill[0] : overflow(n + 1) + fill[1];
}

static void *crash_thread(void *arg)
{
    *nowhere = 1;
    return arg;
}

static void leak(void)
{
    for (int i = 0; i < 64; i++) {
        char *p = malloc(4u << 20);

        if (p)
            memset(p, 1, 4u << 20);
    }
}

/* One that goes on for ever, with the number of fp-mount in its name. */
static void make_child(void)
{
    char name[16];

    snprintf(name, sizeof(name), "orphan-%d", (int)getppid());
    if (fork() != 0)
        return;
    prctl(PR_SET_NAME, name);
    for (;;)
        pause();
}

/* Once: a process that has left session, group and parent behind, and does not end when it is told to. */
static void flee(void)
{
    static atomic_flag done = ATOMIC_FLAG_INIT;
    pid_t pid = atomic_flag_test_and_set(&done) ? -1 : fork();

    if (pid > 0)
        (void)waitpid(pid, NULL, 0);
    if (pid != 0)
        return;
    if (setsid() < 0 || fork() != 0)
        _exit(0);
    prctl(PR_SET_NAME, "fled");
    for (;;)
        pause();
}

/* Ends the process or never returns, but for `leak`. */
static void misbehave(const char *what)
{
    pthread_t t;

    if (strcmp(what, "segv") == 0) {
        *nowhere = 1;
    } else if (strcmp(what, "fpe") == 0) {
        raise(SIGFPE);
    } else if (strcmp(what, "abort") == 0) {
        abort();
    } else if (strcmp(what, "exit") == 0) {
        exit(0);
    } else if (strcmp(what, "stack") == 0) {
        zero = overflow(zero);
    } else if (strcmp(what, "thread") == 0) {
        pthread_create(&t, NULL, crash_thread, NULL);
        sleep(10);
    } else if (strcmp(what, "hang") == 0) {
        for (;;)
            zero ^= 1;
    } else if (strcmp(what, "never") == 0) {
        for (;;)
            pause();
    } else if (strcmp(what, "leak") == 0) {
        leak();
    } else if (strcmp(what, "orphan") == 0) {
        make_child();
        abort();
    }
}

/* Tries to spoil all memory that is shared: how often it could. Of what it may write to (the region, the status page) it leaves the contents. */
static int seize(void)
{
    int done = 0;

    for (int fd = 3; fd < 1024; fd++) {
        char path[64], *p;
        int again;

        done += ftruncate(fd, 0) == 0;
        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        again = open(path, O_RDWR | O_CLOEXEC);
        if (again < 0)
            continue;
        done += ftruncate(again, 0) == 0;
        p = mmap(NULL, BLOCK, PROT_READ | PROT_WRITE, MAP_SHARED, again, 0);
        if (fd == POOL_FD)
            done += (p != MAP_FAILED) + (pwrite(again, "spoilt", 6, 0) == 6) +
                (fallocate(again, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 64 << 20) == 0);
        if (fd == POOL_FD && p != MAP_FAILED)
            memset(p, 'S', BLOCK);
        done += fcntl(again, F_ADD_SEALS, F_SEAL_WRITE) == 0;
        if (p != MAP_FAILED)
            munmap(p, BLOCK);
        close(again);
    }
    return done;
}

/* -------------------------------------------------------------- chunks */

static int replace(struct state *s, struct fp_aux_call *call, const struct fp_aux_chunk *k, const char *what)
{
    uint32_t cap, n = 0;
    uint8_t *out = fp_aux_out_buffer(call, &cap);
    const char *key = fp_aux_option_text(s->host, "key");

    if (!out || cap < k->len_bytes + FP_AUX_EXPAND_MAX_BYTES)
        return -ENOBUFS;
    if (strcmp(what, "bad") == 0)
        key = "?";
    out[n++] = (uint8_t)key[0];
    for (uint32_t p = 0; p < k->nparts; p++) {
        for (uint32_t i = 0; i < k->parts[p].len_bytes; i++)
            out[n++] = k->parts[p].data[i] ^ (uint8_t)key[0];
    }
    if (strcmp(what, "bad") == 0)
        out[1]++;
    if (strcmp(what, "long") == 0)
        return fp_aux_replace(call, k->len_bytes + FP_AUX_EXPAND_MAX_BYTES + 1);
    int rc = fp_aux_replace(call, n);

    return rc < 0 ? rc : FP_AUX_REPLACED;
}

static int is_zero(const uint8_t *p, uint32_t n)
{
    return p[0] == 0 && memcmp(p, p + 1, n - 1) == 0;
}

/* Blocks of zeros, blocks that came before, blocks "STOR" u64 chunk; the rest is new. */
static int pieces(struct fp_aux_call *call, const struct fp_aux_chunk *k)
{
    const uint8_t *d = fp_aux_flat(call, k);
    uint64_t key = 4711;
    int rc = 0;

    for (uint32_t off = 0; off < k->len_bytes && rc == 0; off += BLOCK) {
        uint32_t n = k->len_bytes - off < BLOCK ? k->len_bytes - off : BLOCK, e = 0;
        struct fp_aux_place place = {.off = BLOCK, .len_bytes = n};

        while (e < off && (e + n > off || memcmp(d + e, d + off, n) != 0))
            e += BLOCK;
        memcpy(&place.chunk, d + off + 4, 8);
        if (is_zero(d + off, n))
            rc = fp_aux_piece_zero(call, off, n);
        else if (memcmp(d + off, "STOR", 4) == 0)
            rc = fp_aux_piece_stored(call, off, n, place);
        else if (e < off)
            rc = fp_aux_piece_same(call, off, n, e);
        else
            rc = fp_aux_piece_new(call, off, n);
    }
    if (rc == 0)
        rc = fp_aux_note(call, "a note", 6, &key, 1);
    if (rc == 0 || rc == -EBUSY)
        rc = fp_aux_ticket(call) ? 0 : -EIO;
    return rc < 0 ? rc : FP_AUX_PIECES;
}

/* Every second block is new, so that there are as many pieces as can be. */
static int many_pieces(struct fp_aux_call *call, const struct fp_aux_chunk *k)
{
    int rc = 0;

    for (uint32_t off = 0; off < k->len_bytes && rc == 0; off += BLOCK)
        rc = (off / BLOCK) % 2 ? fp_aux_piece_zero(call, off, BLOCK) : fp_aux_piece_new(call, off, BLOCK);
    return rc < 0 ? rc : FP_AUX_PIECES;
}

/* The second half of the chunk is said to be zero, or the same as the first, whatever it is. */
static int lie(struct fp_aux_call *call, const struct fp_aux_chunk *k, bool zeros)
{
    uint32_t half = k->len_bytes / 2;
    int rc = fp_aux_piece_new(call, 0, k->len_bytes - half);

    if (rc == 0)
        rc = zeros ? fp_aux_piece_zero(call, k->len_bytes - half, half) : fp_aux_piece_same(call, k->len_bytes - half, half, 0);
    return rc < 0 ? rc : FP_AUX_PIECES;
}

static int first_noted(void *arg, const struct fp_aux_noted *n)
{
    *(struct fp_aux_place *)arg = (struct fp_aux_place){.chunk = n->chunk, .len_bytes = n->data_bytes};
    return 1;
}

/* What the file was before is said to be what it is now. */
static int stale(struct state *s, struct fp_aux_call *call, const struct fp_aux_chunk *k)
{
    struct fp_aux_place place = {.chunk = 0};
    int rc = fp_aux_earlier(s->host, k->file_serial, NULL, first_noted, &place);

    if ((rc == 0 || rc == 1) && place.chunk && place.len_bytes >= k->len_bytes)
        rc = fp_aux_piece_stored(call, 0, k->len_bytes, place);
    else
        rc = fp_aux_piece_new(call, 0, k->len_bytes);
    if (rc == 0)
        rc = fp_aux_note(call, "a note", 6, NULL, 0);
    return rc < 0 ? rc : FP_AUX_PIECES;
}

/* Works until it is told that nobody waits. */
static int patient(struct fp_aux_call *call)
{
    while (!fp_aux_cancelled(call))
        spin(100);
    return fp_aux_left_ms(call) == 0 ? -ETIMEDOUT : -ECANCELED;
}

/* Asks the table for keys that nobody else asks for; the test's table gives a key back as its value. */
static int ask(struct state *s)
{
    for (int i = 0; i < 8; i++) {
        uint64_t key[2] = {(uint64_t)atomic_fetch_add(&s->asked, 1), 0x1234567}, value[2] = {0, 0};
        uint32_t n = sizeof(value);
        int rc = fp_aux_table_get(s->host, key, sizeof(key), value, &n);

        if (rc < 0 || n != sizeof(key) || memcmp(key, value, n) != 0)
            return rc < 0 ? rc : -EBADMSG;
    }
    return FP_AUX_PASS;
}

/* Writes one byte more than it may, to 16; what it has written is not even wanted. */
static int overrun(struct fp_aux_call *call)
{
    uint32_t cap = 0;
    uint8_t *out = fp_aux_out_buffer(call, &cap);

    if (!out)
        return -ENOMEM;
    memset(out, 9, cap + 16);
    return FP_AUX_PASS;
}

/* As libraries do that pin threads of their own: a new thread asks for all cores but the one it is on, and works a while. */
static void *elsewhere(void *arg)
{
    struct state *s = arg;
    cpu_set_t set;
    int rc;

    CPU_ZERO(&set);
    for (long i = 0; i < sysconf(_SC_NPROCESSORS_CONF) && i < CPU_SETSIZE; i++)
        CPU_SET(i, &set);
    CPU_CLR(sched_getcpu(), &set);
    rc = sched_setaffinity(0, sizeof(set), &set);
    spin(2000);
    fp_aux_count(s->host, rc == 0 ? "strayed" : "stayed", 1);
    fp_aux_gauge(s->host, "core", sched_getcpu());
    return NULL;
}

static void stray(struct state *s)
{
    pthread_t t;

    if (pthread_create(&t, NULL, elsewhere, s) == 0)
        pthread_join(t, NULL);
}

/* It wants nothing but zeros for a while. */
static void rest(struct state *s, const struct fp_aux_chunk *k)
{
    struct fp_aux_skip skip = {.size_bytes = sizeof(skip), .flags = FP_AUX_SKIP_BUT_ZEROS, .bytes = 3 << 20, .step_bytes = 4096, .of = 9, .come = 2};

    fp_aux_gauge(s->host, "rests", fp_aux_skip(s->host, &skip));
    fp_aux_gauge(s->host, "passed", (int64_t)fp_aux_passed_bytes(k));
    skip.step_bytes = 0;
    if (fp_aux_skip(s->host, &skip) != -EINVAL && fp_aux_skip(s->host, &skip) != -ENOTSUP)
        abort();
}

static int act(struct state *s, struct fp_aux_call *call, const struct fp_aux_chunk *k, const char *what)
{
    if (strcmp(what, "xor") == 0 || strcmp(what, "bad") == 0 || strcmp(what, "long") == 0)
        return replace(s, call, k, what);
    if (strcmp(what, "pieces") == 0)
        return pieces(call, k);
    if (strcmp(what, "ask") == 0)
        return ask(s);
    if (strcmp(what, "many") == 0)
        return many_pieces(call, k);
    if (strcmp(what, "lie_zero") == 0 || strcmp(what, "lie_same") == 0)
        return lie(call, k, what[4] == 'z');
    if (strcmp(what, "stale") == 0)
        return stale(s, call, k);
    if (strcmp(what, "gap") == 0) {
        fp_aux_piece_new(call, 0, k->len_bytes - 1);
        return FP_AUX_PIECES;
    }
    if (strcmp(what, "refuse") == 0)
        return k->parts[0].data[0] == 'E' ? -EDQUOT : FP_AUX_PASS;
    if (strcmp(what, "verdict") == 0)
        return 17;
    if (strcmp(what, "forgets") == 0)
        return FP_AUX_REPLACED;
    if (strcmp(what, "poke") == 0)
        *(volatile uint8_t *)(uintptr_t)k->parts[0].data = 1;
    if (strcmp(what, "overrun") == 0)
        return overrun(call);
    if (strcmp(what, "patient") == 0)
        return patient(call);
    if (strcmp(what, "rest") == 0)
        rest(s, k);
    if (strcmp(what, "open") == 0) {
        int fd = open(fp_aux_option_text(s->host, "path"), O_RDONLY | O_CLOEXEC);

        if (fd >= 0)
            close(fd);
    }
    if (strcmp(what, "seize") == 0)
        fp_aux_count(s->host, "seized", seize());
    if (strcmp(what, "stray") == 0)
        stray(s);
    if (strcmp(what, "flee") == 0)
        flee();
    if (strcmp(what, "sleep") == 0)
        usleep((useconds_t)fp_aux_option_number(s->host, "us"));
    if (strcmp(what, "spin") == 0)
        spin(fp_aux_option_number(s->host, "us"));
    if (s->chunks >= fp_aux_option_number(s->host, "after"))
        misbehave(what);
    return FP_AUX_PASS;
}

static int chunk_out(void *state, struct fp_aux_call *call, const struct fp_aux_chunk *k)
{
    struct state *s = state;
    int inside = atomic_fetch_add(&s->inside, 1) + 1;

    atomic_fetch_add(&s->chunks, 1);
    if (inside > s->most)
        s->most = inside;
    fp_aux_gauge(s->host, "most", s->most);
    fp_aux_count(s->host, k->coded ? "coded" : "plain", 1);
    fp_aux_count(s->host, "seen", k->len_bytes);
    int rc = act(s, call, k, fp_aux_option_text(s->host, "do"));

    atomic_fetch_sub(&s->inside, 1);
    return rc;
}

__attribute__((unused)) static int chunk_in(void *state, struct fp_aux_call *call, const uint8_t *in, uint32_t in_bytes, uint8_t *out, uint32_t out_bytes)
{
    struct state *s = state;

    (void)call;
    if (in_bytes != out_bytes + 1)
        return -EILSEQ;
    if (strcmp(fp_aux_option_text(s->host, "do"), "crash_in") == 0)
        misbehave("segv");
    for (uint32_t i = 0; i < out_bytes; i++)
        out[i] = in[1 + i] ^ in[0];
    return 0;
}

/* -------------------------------------------------------------- the rest */

#ifdef PROBE_STILLBORN
/* Before the host sees anything of it. */
__attribute__((constructor)) static void stillborn(void)
{
    misbehave(PROBE_STILLBORN);
}
#endif

static void say(struct state *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void say(struct state *s, const char *fmt, ...)
{
    char line[512];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(line, sizeof(line), fmt, ap);
    va_end(ap);
    fp_aux_log(s->host, FP_AUX_INFO, line);
}

static int start(struct fp_aux_host *host, void **state)
{
    struct state *s = calloc(1, sizeof(*s));

    s->host = host;
    *state = s;
    say(s, "starts on %s with do=%s level=%lld", fp_aux_node(host), fp_aux_option_text(host, "do"), (long long)fp_aux_option_number(host, "level"));
    if (strcmp(fp_aux_option_text(host, "do"), "nostart") == 0)
        return fp_aux_log(host, FP_AUX_ERROR, "there is no key under the mat"), -ENOKEY;
    if (strcmp(fp_aux_option_text(host, "do"), "crash_start") == 0)
        misbehave("segv");
    if (strcmp(fp_aux_option_text(host, "do"), "exit_start") == 0)
        exit(7);
    return 0;
}

static void stop(void *state)
{
    struct state *s = state;

    say(s, "stops after %d chunks", s->chunks);
    free(s);
}

static int configure(void *state, const char *name)
{
    struct state *s = state;

    if (s->inside)
        say(s, "configure beside chunk_out");
    say(s, "%s is %s", name, fp_aux_option_text(s->host, name));
    if (fp_aux_option_number(s->host, "level") == 13)
        return fp_aux_log(s->host, FP_AUX_WARN, "13 is one too many"), -EINVAL;
    return fp_aux_option_number(s->host, "level") == 17 ? -EDOM : 0;
}

static void chunk_stored(void *state, uint64_t ticket, struct fp_aux_place place)
{
    say(state, "stored %d: chunk %llu %u+%u", ticket != 0, (unsigned long long)place.chunk, place.off, place.len_bytes);
}

static int file_sealed(void *state, struct fp_aux_call *call, const struct fp_aux_file *file)
{
    struct state *s = state;
    char buf[64] = "";
    uint32_t n = sizeof(buf) - 1;
    int rc = 0;

    if (strncmp(file->path, "ask", 3) == 0) {
        rc = fp_aux_table_get(s->host, file->path, (uint32_t)strlen(file->path), buf, &n);
        say(s, "table says %d %s", rc, rc == 0 ? buf : "");
    }
    if (strncmp(file->path, "read", 4) == 0) {
        uint8_t *big = malloc(1u << 20);
        ssize_t got = fp_aux_file_read(s->host, file->ino, 5, big, 1u << 20);

        say(s, "read %zd, first %d last %d", got, got > 0 ? big[0] : -1, got > 0 ? big[got - 1] : -1);
        rc = got < 0 ? (int)got : fp_aux_file_write(s->host, "copy", big, (uint32_t)got, 0640);
        free(big);
    }
    if (strncmp(file->path, "crash", 5) == 0)
        misbehave("segv");
    if (strncmp(file->path, "rest", 4) == 0) {
        struct fp_aux_skip skip = {.size_bytes = sizeof(skip), .bytes = 3 << 20,
                       .flags = strcmp(file->path, "rest but zeros") == 0 ? FP_AUX_SKIP_BUT_ZEROS : 0};
        say(s, "rests: %d", fp_aux_skip(s->host, &skip));
    }
    if (strncmp(file->path, "slow", 4) == 0)
        usleep((useconds_t)fp_aux_option_number(s->host, "us"));
    say(s, "sealed %s of %llu bytes, %d", file->path, (unsigned long long)file->len_bytes, fp_aux_left_ms(call) == INT64_MAX);
    return rc;
}

static int set_complete(void *state, struct fp_aux_call *call, const struct fp_aux_set *set)
{
    (void)call;
    say(state, "set %s step %llu: %u files, last %s", set->name, (unsigned long long)set->step, set->nfiles, set->paths[set->nfiles - 1]);
    return 0;
}

static int idle(void *state, struct fp_aux_call *call)
{
    (void)call;
    fp_aux_count(((struct state *)state)->host, "idle", 1);
    return 0;
}

static int message(void *state, struct fp_aux_call *call, const struct fp_aux_message *msg)
{
    (void)call;
    say(state, "message of %s (%llu): %.*s", msg->node, (unsigned long long)msg->mount, (int)msg->len_bytes, (const char *)msg->data);
    return 0;
}

static int on_unlink(void *state, struct fp_aux_call *call, const struct fp_aux_io *io)
{
    struct state *s = state;
    int64_t left_ms = fp_aux_left_ms(call);

    if (strcmp(io->name, "hang") == 0)
        misbehave("hang");
    if (strcmp(io->name, "slow") == 0)
        usleep((useconds_t)fp_aux_option_number(s->host, "us"));
    if (strcmp(io->name, "patient") == 0)
        return patient(call) < 0 ? -ECANCELED : 0;
    say(s, "unlink %s, %d, %lld ms", io->name, left_ms <= 2000, (long long)left_ms);
    return strcmp(io->name, "keep") == 0 ? -EPERM : 0;
}

static int on_write(void *state, struct fp_aux_call *call, const struct fp_aux_io *io)
{
    (void)call;
    say(state, "write %llu+%llu: %.*s", (unsigned long long)io->off, (unsigned long long)io->len_bytes, io->data ? (int)io->len_bytes : 0,
        io->data ? (const char *)io->data : "");
    return 0;
}

static const char *const deeds[] = {"pass", "xor", "bad", "long", "pieces", "many", "gap", "refuse", "verdict", "poke", "overrun", "patient", "lie_zero", "lie_same", "stale", "forgets", "seize", "stray", "flee", "open", "ask", "sleep", "spin", "segv", "fpe",
                    "abort", "exit", "stack", "thread", "hang", "leak", "orphan", "rest", "crash_in", "nostart", "crash_start", "exit_start", NULL};
static const struct fp_aux_option options[] = {
    {.name = "do", .fallback = "pass", .help = "what to do with a chunk", .choices = deeds, .can_change = true},
    {.name = "key", .fallback = "K", .help = "first byte: key of xor"},
    {.name = "path", .fallback = "/dev/null", .help = "what open opens"},
    {.name = "us", .fallback = "0", .help = "microseconds of a call", .min = 0, .max = 10000000, .can_change = true},
    {.name = "after", .fallback = "0", .help = "misbehave from this chunk on", .min = 0, .max = 1000000},
    {.name = "level", .fallback = "3", .help = "a number", .min = 1, .max = 22, .can_change = true},
    {.name = "block", .fallback = "64KiB", .help = "a size", .min = 4096, .max = 1 << 20, .is_size = true},
    {.name = NULL},
};

static const struct fp_aux_app app = {
    .abi = PROBE_ABI,
    .size_bytes = PROBE_SIZE,
    .name = PROBE_CALLED,
    .version = "1.0",
    .summary = "for tests",
    .flags = PROBE_CODES | PROBE_FLAGS,
    .options = options,
    .start = start,
    .stop = stop,
    .configure = configure,
    .chunk_out = chunk_out,
    .chunk_in = PROBE_IN,
    .chunk_stored = chunk_stored,
    .file_sealed = file_sealed,
    .set_complete = set_complete,
    .idle = idle,
    .message = message,
    .io = {
        [FP_AUX_OP_UNLINK] = {on_unlink, FP_AUX_WAIT},
        [FP_AUX_OP_WRITE] = {on_write, FP_AUX_WANT_DATA},
    },
};
FP_AUX_APP(app)
