/*
 * Aux-app checksum: a digest of each file, in its xattr user.fp.checksum. `fpctl verify PATH` checks it.
 *
 * Runs in fp-auxhost: chunks on one worker, calls and sealed files on the event thread; `lock` keeps them apart.
 *
 * A file that is written once from beginning to end, as checkpoints are, is digested as its chunks pass. Anything else (ranks that share a
 * file, rewriting, truncating, holes) would need the order of bytes that only the closed file has: then it is read once more after its last
 * close, from this node's SSD, on the service cores. A digest of pieces that does not depend on their order was rejected: people
 * want to compare with sha256sum.
 *
 * The value: "sha256:HEX size=N version=N", version being that of the file's data: when either differs the file was changed where
 * this aux-app did not see it, and the digest says nothing.
 */
#include <openssl/evp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "fp/auxapp.h"

#define XATTR "user.fp.checksum"
#define FILES_MAX 256u                 /* digested as they pass; of more the oldest is read again */
#define READ_BYTES (1u << 20)

struct digest {
    EVP_MD_CTX *sha;               /* NULL: XXH3 */
    XXH3_state_t *xxh;
};

struct file {
    uint64_t serial, ino;          /* serial 0: free */
    uint64_t next_off;             /* digested so far; UINT64_MAX: must be read again */
    uint64_t used;                 /* when, for the choice of the oldest */
    struct digest d;
};

struct checksum {
    struct fp_aux_host *host;
    bool xxh3;
    pthread_mutex_t lock;
    uint64_t clock;                /* lock */
    struct file file[FILES_MAX];   /* lock */
};

/* -------------------------------------------------------------- digests */

static void digest_fini(struct digest *d)
{
    EVP_MD_CTX_free(d->sha);
    XXH3_freeState(d->xxh);
    d->sha = NULL;
    d->xxh = NULL;
}

static int digest_init(struct digest *d, bool xxh3)
{
    if (xxh3) {
        if (!d->xxh)
            d->xxh = XXH3_createState();
        return d->xxh && XXH3_128bits_reset(d->xxh) == XXH_OK ? 0 : -ENOMEM;
    }
    if (!d->sha)
        d->sha = EVP_MD_CTX_new();
    return d->sha && EVP_DigestInit_ex(d->sha, EVP_sha256(), NULL) == 1 ? 0 : -ENOMEM;
}

static int digest_add(struct digest *d, const void *data, size_t bytes)
{
    if (d->xxh)
        return XXH3_128bits_update(d->xxh, data, bytes) == XXH_OK ? 0 : -EIO;
    return EVP_DigestUpdate(d->sha, data, bytes) == 1 ? 0 : -EIO;
}

/* "sha256:HEX" or "xxh128:HEX" */
static int digest_text(struct digest *d, char *out, size_t cap)
{
    uint8_t bytes[32];
    unsigned n = 32;
    int at;

    if (d->xxh) {
        XXH128_canonicalFromHash((XXH128_canonical_t *)bytes, XXH3_128bits_digest(d->xxh));
        n = 16;
    } else if (EVP_DigestFinal_ex(d->sha, bytes, &n) != 1) {
        return -EIO;
    }
    at = snprintf(out, cap, "%s:", d->xxh ? "xxh128" : "sha256");
    for (unsigned i = 0; i < n; i++)
        at += snprintf(out + at, cap - (size_t)at, "%02x", bytes[i]);
    return 0;
}

/* -------------------------------------------------------------- files on their way; lock held */

static struct file *find(struct checksum *c, uint64_t serial)
{
    for (unsigned i = 0; i < FILES_MAX; i++)
        if (c->file[i].serial == serial)
            return &c->file[i];
    return NULL;
}

static struct file *begin(struct checksum *c, uint64_t serial, uint64_t ino)
{
    struct file *f = &c->file[0];

    for (unsigned i = 0; i < FILES_MAX && f->serial != 0; i++)
        if (c->file[i].serial == 0 || c->file[i].used < f->used)
            f = &c->file[i];
    f->serial = serial;
    f->ino = ino;
    f->next_off = digest_init(&f->d, c->xxh3) == 0 ? 0 : UINT64_MAX;
    return f;
}

static int checksum_out(void *state, struct fp_aux_call *call, const struct fp_aux_chunk *k)
{
    struct checksum *c = state;
    struct file *f;

    (void)call;
    pthread_mutex_lock(&c->lock);
    f = find(c, k->file_serial);
    if (!f)
        f = begin(c, k->file_serial, k->ino);
    f->used = ++c->clock;
    if (k->coded || !k->whole || f->next_off != k->file_off)
        f->next_off = UINT64_MAX;
    for (uint32_t i = 0; i < k->nparts && f->next_off != UINT64_MAX; i++)
        if (digest_add(&f->d, k->parts[i].data, k->parts[i].len_bytes) < 0)
            f->next_off = UINT64_MAX;
    if (f->next_off != UINT64_MAX)
        f->next_off += k->len_bytes;
    pthread_mutex_unlock(&c->lock);
    return FP_AUX_PASS;
}

/* The file's bytes change in a way that no chunk shows. */
static int changed(void *state, struct fp_aux_call *call, const struct fp_aux_io *io)
{
    struct checksum *c = state;

    (void)call;
    pthread_mutex_lock(&c->lock);
    for (unsigned i = 0; i < FILES_MAX; i++)
        if (c->file[i].serial != 0 && c->file[i].ino == io->ino)
            c->file[i].next_off = UINT64_MAX;
    pthread_mutex_unlock(&c->lock);
    return 0;
}

/* -------------------------------------------------------------- sealed files */

static int read_whole(struct checksum *c, struct fp_aux_call *call, const struct fp_aux_file *file, struct digest *d)
{
    uint8_t *buf = malloc(READ_BYTES);
    uint64_t off = 0;
    int rc = buf ? digest_init(d, c->xxh3) : -ENOMEM;

    while (rc == 0 && off < file->len_bytes) {
        ssize_t n = fp_aux_file_read(c->host, file->ino, off, buf, READ_BYTES);

        if (n <= 0)
            rc = n < 0 ? (int)n : -ESTALE; /* shorter than it was */
        else if (fp_aux_cancelled(call))
            rc = -ECANCELED;
        else
            rc = digest_add(d, buf, (size_t)n);
        off += n > 0 ? (uint64_t)n : 0;
    }
    free(buf);
    fp_aux_count(c->host, "read again", 1);
    return rc;
}

/* Take the digest that was made on the way, if it is of the whole file. */
static bool take(struct checksum *c, const struct fp_aux_file *file, struct digest *d)
{
    struct file *f;
    bool whole = false;

    pthread_mutex_lock(&c->lock);
    f = find(c, file->file_serial);
    if (f) {
        whole = f->next_off == file->len_bytes;
        if (whole) {
            *d = f->d;
            f->d = (struct digest){ 0 };
        }
        f->serial = 0;
    }
    pthread_mutex_unlock(&c->lock);
    return whole;
}

static int checksum_sealed(void *state, struct fp_aux_call *call, const struct fp_aux_file *file)
{
    struct checksum *c = state;
    struct digest d = { 0 };
    char value[200];
    int rc = 0;

    if (!take(c, file, &d))
        rc = read_whole(c, call, file, &d);
    if (rc == 0)
        rc = digest_text(&d, value, sizeof(value));
    digest_fini(&d);
    if (rc == 0) {
        size_t at = strlen(value);

        snprintf(value + at, sizeof(value) - at, " size=%llu version=%llu", (unsigned long long)file->len_bytes,
             (unsigned long long)file->data_version);
        rc = fp_aux_xattr_set(c->host, file->ino, XATTR, value, (uint32_t)strlen(value));
        fp_aux_count(c->host, "files", rc == 0);
    }
    if (rc == -ESTALE) {
        /* Opened again at once and cut: nothing is wrong. Who did that will close it, and it is sealed with its new version. */
        fp_aux_log(c->host, FP_AUX_DEBUG, "a file was written again before it was read; its digest follows with its next close");
        return 0;
    }
    return rc == -ENOENT ? 0 : rc; /* deleted meanwhile */
}

/* -------------------------------------------------------------- start */

static int checksum_start(struct fp_aux_host *host, void **state)
{
    struct checksum *c = calloc(1, sizeof(*c));
    const char *digest = fp_aux_option_text(host, "digest");

    if (!c)
        return -ENOMEM;
    c->host = host;
    c->xxh3 = digest && strcmp(digest, "xxh3") == 0;
    pthread_mutex_init(&c->lock, NULL);
    *state = c;
    return 0;
}

static void checksum_stop(void *state)
{
    struct checksum *c = state;

    for (unsigned i = 0; i < FILES_MAX; i++)
        digest_fini(&c->file[i].d);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

static const char *const digests[] = { "sha256", "xxh3", NULL };

static const struct fp_aux_option options[] = {
    { .name = "digest", .fallback = "sha256", .choices = digests,
      .help = "sha256, as sha256sum prints it; or xxh3 (128 bits, as xxhsum -H2): no protection from malice, ten times as fast." },
    { .name = NULL },
};

static const struct fp_aux_app app = {
    .abi = FP_AUX_ABI,
    .size_bytes = sizeof(app),
    .name = "checksum",
    .version = "1",
    .summary = "a digest of each file in its xattr " XATTR "; fpctl verify checks it",
    .options = options,
    .start = checksum_start,
    .stop = checksum_stop,
    .chunk_out = checksum_out,
    .file_sealed = checksum_sealed,
    .io = {
        [FP_AUX_OP_TRUNCATE] = { .fn = changed },
        [FP_AUX_OP_FALLOCATE] = { .fn = changed },
        [FP_AUX_OP_COPY_FILE_RANGE] = { .fn = changed },
    },
};

FP_AUX_APP(app)
