/*
 * fp-auxhost as the mount sees it, for tests of client/aux: this program, started again by the code under test (opt.auxhost) with the descriptors of auxwire.h;
 * AUX_FAKE_HOST in the environment tells it what it is. What it does is said in the declaration of the first aux-app: `crash=5` ends with every fifth chunk,
 * `code` replaces data, `gate` waits with its start while a file has the name that AUX_FAKE_HOST is, and so on; a second one lets everything pass. Included by the
 * programs that are it: their main calls host_main.
 */
#ifndef TESTS_AUX_FAKE_HOST_H
#define TESTS_AUX_FAKE_HOST_H

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fp/auxwire.h"
#include "fp/clock.h"

#define CHUNK      (1u << 20)
#define XOR        0x5a
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define AUX_MEMORY (512u << 20) /* a sanitizer has as much for itself as the host */
#else
#define AUX_MEMORY (128u << 20)
#endif
#define STORED_ID  0x700000001ull

static char words[2048];
static bool left_out; /* the first aux-app is bypassed */
static uint8_t *host_pool, *host_region;
static struct fp_auxw_status *host_status;

static inline unsigned number_of(const char *word)
{
    char *at = strstr(words, word);

    return at ? (unsigned)strtoul(at + strlen(word), NULL, 10) : 0;
}

static inline void say(const void *msg, size_t len)
{
    if (send(FP_AUXW_FD_JOBS, msg, len, 0) < 0)
        _exit(0);
}

static inline void die_of_app_0(void)
{
    atomic_store(&host_status->crashed_signal, SIGSEGV);
    atomic_store(&host_status->crashed_app, 1);
    raise(SIGKILL);
}

static inline void say_ready(const struct fp_auxw_start *s)
{
    struct fp_auxw_ready r = {.h = {.type = FP_AUXW_READY, .len_bytes = sizeof r}, .abi = FP_AUX_ABI, .napps = s->napps};

    host_pool = mmap(NULL, s->pool_bytes, PROT_READ, MAP_SHARED, FP_AUXW_FD_POOL, 0);
    host_region = mmap(NULL, s->region_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, FP_AUXW_FD_REGION, 0);
    host_status = mmap(NULL, sizeof *host_status, PROT_READ | PROT_WRITE, MAP_SHARED, FP_AUXW_FD_STATUS, 0);
    if (host_pool == MAP_FAILED || host_region == MAP_FAILED || host_status == MAP_FAILED)
        _exit(9);
    /* the pool can't be made writable, and nothing of fp-mount's was passed on */
    if (mprotect(host_pool, 4096, PROT_READ | PROT_WRITE) == 0 || fcntl(8, F_GETFD) >= 0 || getenv("FP_KEY"))
        _exit(10);
    atomic_store(&host_status->thread[0].tid, (uint32_t)getpid());
    strcpy(r.app[0].name, "fake");
    r.app[0].has = FP_AUXW_HAS_OUT | FP_AUXW_HAS_STORED;
    if (strstr(words, "inverse"))
        r.app[0].has |= FP_AUXW_HAS_IN;
    r.app[0].required = (strstr(words, "required") ? FP_AUXW_REQUIRED : 0) |
                        (strstr(words, "selfish") ? FP_AUXW_REQUIRED | FP_AUXW_REQUIRED_SELF | FP_AUXW_REQUIRED_CODES : 0);
    if (left_out)
        r.app[0].has = FP_AUXW_HAS_IN;
    strcpy(r.app[1].name, "other");
    r.app[1].has = FP_AUXW_HAS_OUT;
    while (strstr(words, "gate") && access(getenv("AUX_FAKE_HOST"), F_OK) == 0)
        usleep(1000);
    if (s->decode_only || s->napps == 0)
        r.napps = 0;
    say(&r, sizeof r);
    if (strstr(words, "slow"))
        usleep(200000);
}

static inline void say_failed(const char *text)
{
    struct { struct fp_auxw_failed f; char text[100]; } m = {.f = {.h = {.type = FP_AUXW_FAILED}}};

    strcpy(m.text, text);
    m.f.h.len_bytes = (uint32_t)(sizeof m.f + strlen(text));
    say(&m, m.f.h.len_bytes);
}

struct answer {
    struct fp_auxw_out_done d;
    uint8_t body[4096];
};

static inline void add(struct answer *a, const void *p, size_t len)
{
    memcpy((uint8_t *)a + a->d.h.len_bytes, p, len);
    a->d.h.len_bytes += (uint32_t)len;
}

static inline void code(struct answer *a, const struct fp_auxw_chunk_out *c, const uint32_t *page)
{
    struct fp_auxw_stage stage = {.name = "fake", .in_bytes = c->len_bytes, .out_bytes = c->len_bytes};

    for (uint32_t i = 0; i < c->len_bytes; i++)
        host_region[c->out_b + i] = host_pool[(uint64_t)page[i / 65536] * 65536 + i % 65536] ^ XOR;
    a->d.nstages = 1;
    a->d.coded_bytes = c->len_bytes;
    a->d.where = 2;
    add(a, &stage, sizeof stage);
}

static inline void refer(struct answer *a, const struct fp_auxw_chunk_out *c)
{
    struct fp_auxw_piece p[2] = {
        {.kind = FP_AUXW_PIECE_NEW, .off = 0, .len_bytes = 65536, .at = 0},
        {.kind = FP_AUXW_PIECE_STORED, .off = 65536, .len_bytes = c->len_bytes - 65536, .at = 4096, .chunk = STORED_ID}};

    a->d.npieces = 2;
    a->d.new_bytes = 65536;
    a->d.stored_app = 1;
    add(a, p, sizeof p);
}

static inline void hang(void)
{
    atomic_store(&host_status->thread[0].deadline_ms, 200);
    atomic_store(&host_status->thread[0].since_ns, fp_now_ns());
    atomic_store(&host_status->thread[0].in_call, 1);
    pause();
}

static inline void leak(void)
{
    static void *volatile lost; /* else the compiler sees that nobody looks */

    lost = malloc(AUX_MEMORY + (72u << 20));
    memset(lost, 1, AUX_MEMORY + (72u << 20));
}

/* Waits in the kernel, as far as fp-mount can see; and when nobody hears it any more, it writes to all that it can. */
static inline void haunt(void)
{
    uint8_t nothing;

    atomic_store(&host_status->thread[0].deadline_ms, 200);
    atomic_store(&host_status->thread[0].since_ns, fp_now_ns());
    atomic_store(&host_status->thread[0].in_call, 1);
    while (recv(FP_AUXW_FD_JOBS, &nothing, 1, 0) > 0)
        ;
    for (;; usleep(5000))
        memset(host_region, 'Z', 36u << 20);
}

static inline bool every(const char *word, unsigned n)
{
    unsigned k = number_of(word);

    return k != 0 && n % k == 0;
}

/* It has nothing to do for so many MiB. */
static inline void rest(unsigned mib)
{
    struct fp_auxw_skip s = {.h = {.type = FP_AUXW_SKIP, .len_bytes = sizeof s}, .bytes = (uint64_t)mib << 20};

    say(&s, sizeof s);
}

static inline void chunk(const struct fp_auxw_chunk_out *c)
{
    static unsigned n;
    struct answer a = {.d = {.h = {.type = FP_AUXW_CHUNK_OUT_DONE, .len_bytes = sizeof a.d, .id = c->h.id}, .new_bytes = c->len_bytes}};

    a.d.ran = left_out || strstr(words, "skip") ? 2 : 3;

    n++;
    atomic_fetch_add(&host_status->stats[0].chunks, !(c->skip & 1));
    if (c->skip & 1)
        a.d.ran &= ~1u;
    if (number_of("rest="))
        rest(number_of("rest="));
    if (every("crash=", n))
        die_of_app_0();
    if (every("killed=", n))
        raise(SIGKILL);
    if (every("hang=", n))
        hang();
    if (every("leak=", n))
        leak();
    if (every("haunt=", n))
        haunt();
    if (strstr(words, "refer") && (!(c->flags & FP_AUXW_OUT_NO_STORED) || strstr(words, "stubborn")))
        refer(&a, c);
    else if (strstr(words, "code") && !left_out)
        code(&a, c, (const uint32_t *)(c + 1));
    if (every("refuse=", n))
        a.d.status = -EILSEQ;
    if (every("interrupt=", n))
        a.d.status = -EINTR;
    if (every("nonsense=", n))
        a.d.new_bytes++;
    say(&a, a.d.h.len_bytes);
}

static inline void decode(const struct fp_auxw_chunk_in *c)
{
    struct fp_auxw_done d = {.h = {.type = FP_AUXW_DONE, .len_bytes = sizeof d, .id = c->h.id}, .where = 2};

    if (strcmp(c->stage[0].name, "fake") != 0)
        d.status = strcmp(c->stage[0].name, "killer") == 0 ? (die_of_app_0(), 0) : -ENOPKG;
    for (uint32_t i = 0; i < c->coded_bytes; i++)
        host_region[c->b + i] = host_region[c->a + i] ^ XOR;
    say(&d, sizeof d);
}

static inline void configure(const struct fp_auxw_config *c, int len)
{
    if (c->index != 0)
        return;
    snprintf(words, sizeof words, "%.*s", len, (const char *)(c + 1));
    left_out = c->required & FP_AUXW_CONFIG_BYPASSED;
}

static inline int host_main(void)
{
    static union { struct fp_auxw_head h; uint8_t bytes[FP_AUXW_MESSAGE_MAX_BYTES]; } m;

    for (;;) {
        ssize_t n = recv(FP_AUXW_FD_JOBS, &m, sizeof m, 0);

        if (n <= 0)
            return 0;
        if (m.h.type == FP_AUXW_CONFIG)
            configure((const struct fp_auxw_config *)&m, (int)(n - (ssize_t)sizeof(struct fp_auxw_config)));
        if (m.h.type == FP_AUXW_CHANGE)
            atomic_fetch_add(&host_status->stats[0].events, 1);
        if (m.h.type == FP_AUXW_START && strstr(words, "unwilling"))
            say_failed("aux-app fake: option 'colour' is unknown");
        else if (m.h.type == FP_AUXW_START && strstr(words, "stillborn"))
            return 3;
        else if (m.h.type == FP_AUXW_START)
            say_ready((const struct fp_auxw_start *)&m);
        else if (m.h.type == FP_AUXW_CHUNK_OUT)
            chunk((const struct fp_auxw_chunk_out *)&m);
        else if (m.h.type == FP_AUXW_CHUNK_IN)
            decode((const struct fp_auxw_chunk_in *)&m);
        else if (m.h.type == FP_AUXW_STOP)
            return 0;
    }
}

#endif
