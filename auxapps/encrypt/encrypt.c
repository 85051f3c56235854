/*
 * Aux-app encrypt: chunks are stored encrypted and authenticated with AES-256-GCM through OpenSSL. The key comes from a file.
 *
 * It declares itself required: what can't be encrypted is not stored, whatever fails and whatever the declaration says.
 * Runs in fp-auxhost, any number of workers at once. Names, sizes and times of files stay readable: they are the manager's.
 *
 * Plain GCM with random 96-bit nonces must not be used for more than some 2^32 chunks under one key, and two chunks with the same nonce give the key
 * away. A store can live for years on many nodes that know nothing of each other, so each chunk gets a key and a nonce of its own, derived
 * from 192 random bits as in XAES-256-GCM (C2SP): no count is kept anywhere. A chunk can belong to several files (copy_file_range,
 * de-duplication), so what is authenticated with it is its length and the key's number, not the file's name.
 *
 * Coded bytes: u32 magic 'FPC1', u32 bytes of data (little-endian), u8[8] number of the key, u8[24] random, ciphertext, u8[16] tag. The number of a
 * key is the first 8 bytes of SHA-256("fpstore encrypt key number" || key); it tells which key is missing.
 */
#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/rand.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fp/auxapp.h"

#define KEY_BYTES 32u
#define KEY_NUMBER_BYTES 8u
#define RANDOM_BYTES 24u
#define TAG_BYTES 16u
#define HEADER_BYTES (8u + KEY_NUMBER_BYTES + RANDOM_BYTES)
#define MAGIC 0x31435046u

struct encrypt {                       /* one locked page: the key is never swapped out */
    struct fp_aux_host *host;
    uint8_t key[KEY_BYTES];
    uint8_t number[KEY_NUMBER_BYTES];
};

static void put_u32(uint8_t *p, uint32_t v)
{
    for (unsigned i = 0; i < 4; i++)
        p[i] = (uint8_t)(v >> 8 * i);
}

static uint32_t get_u32(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

/* -------------------------------------------------------------- key of a chunk */

static int aes_block(EVP_CIPHER_CTX *x, const uint8_t in[16], uint8_t out[16])
{
    int n = 0;

    return EVP_EncryptUpdate(x, out, &n, in, 16) == 1 && n == 16 ? 0 : -EIO;
}

/* XAES-256-GCM: two CMAC blocks over the first 12 random bytes give the chunk's key; the other 12 are its nonce. */
static int derive(const uint8_t key[KEY_BYTES], const uint8_t random[RANDOM_BYTES], uint8_t out[KEY_BYTES])
{
    EVP_CIPHER_CTX *x = EVP_CIPHER_CTX_new();
    uint8_t k1[16] = { 0 }, block[16];
    int rc = x && EVP_EncryptInit_ex(x, EVP_aes_256_ecb(), NULL, key, NULL) == 1 ? 0 : -EIO;
    uint8_t carry;

    if (rc == 0)
        rc = aes_block(x, k1, k1);
    carry = k1[0] >> 7;
    for (unsigned i = 0; i < 16; i++)
        k1[i] = (uint8_t)(k1[i] << 1 | (i < 15 ? k1[i + 1] >> 7 : 0));
    if (carry)
        k1[15] ^= 0x87;
    for (uint8_t half = 0; half < 2 && rc == 0; half++) {
        block[0] = 0;
        block[1] = half + 1;
        block[2] = 'X';
        block[3] = 0;
        memcpy(block + 4, random, 12);
        for (unsigned i = 0; i < 16; i++)
            block[i] ^= k1[i];
        rc = aes_block(x, block, out + 16 * half);
    }
    EVP_CIPHER_CTX_free(x); /* clears what it knew */
    OPENSSL_cleanse(k1, sizeof(k1));
    OPENSSL_cleanse(block, sizeof(block));
    return rc;
}

static EVP_CIPHER_CTX *gcm(const struct encrypt *e, const uint8_t *header, bool encrypting)
{
    const uint8_t *random = header + 8 + KEY_NUMBER_BYTES;
    EVP_CIPHER_CTX *x = EVP_CIPHER_CTX_new();
    uint8_t key[KEY_BYTES];
    int n;

    if (!x || derive(e->key, random, key) < 0 || EVP_CipherInit_ex(x, EVP_aes_256_gcm(), NULL, key, random + 12, encrypting) != 1 ||
        EVP_CipherUpdate(x, NULL, &n, header, 8 + KEY_NUMBER_BYTES) != 1) {
        EVP_CIPHER_CTX_free(x);
        x = NULL;
    }
    OPENSSL_cleanse(key, sizeof(key));
    return x;
}

/* -------------------------------------------------------------- chunks */

static int seal_parts(EVP_CIPHER_CTX *x, const struct fp_aux_chunk *k, uint8_t *out)
{
    int n;

    for (uint32_t i = 0; i < k->nparts; i++) {
        if (EVP_EncryptUpdate(x, out, &n, k->parts[i].data, (int)k->parts[i].len_bytes) != 1)
            return -EIO;
        out += n;
    }
    if (EVP_EncryptFinal_ex(x, out, &n) != 1 || EVP_CIPHER_CTX_ctrl(x, EVP_CTRL_GCM_GET_TAG, TAG_BYTES, out) != 1)
        return -EIO;
    return 0;
}

static int encrypt_out(void *state, struct fp_aux_call *call, const struct fp_aux_chunk *k)
{
    const struct encrypt *e = state;
    uint32_t cap = 0;
    uint8_t *out = fp_aux_out_buffer(call, &cap);
    EVP_CIPHER_CTX *x;
    int rc;

    if (!out || cap < HEADER_BYTES + k->len_bytes + TAG_BYTES)
        return -ENOMEM;
    put_u32(out, MAGIC);
    put_u32(out + 4, k->len_bytes);
    memcpy(out + 8, e->number, KEY_NUMBER_BYTES);
    if (RAND_bytes(out + 8 + KEY_NUMBER_BYTES, RANDOM_BYTES) != 1)
        return -EIO;
    x = gcm(e, out, true);
    if (!x)
        return -ENOMEM;
    rc = seal_parts(x, k, out + HEADER_BYTES);
    EVP_CIPHER_CTX_free(x);
    if (rc == 0)
        rc = fp_aux_replace(call, HEADER_BYTES + k->len_bytes + TAG_BYTES);
    return rc < 0 ? rc : FP_AUX_REPLACED;
}

static int encrypt_in(void *state, struct fp_aux_call *call, const uint8_t *in, uint32_t in_bytes, uint8_t *out, uint32_t out_bytes)
{
    const struct encrypt *e = state;
    EVP_CIPHER_CTX *x;
    uint8_t tag[TAG_BYTES];
    int n, rc = -EILSEQ;

    (void)call;
    if (in_bytes != HEADER_BYTES + out_bytes + TAG_BYTES || get_u32(in) != MAGIC || get_u32(in + 4) != out_bytes)
        return -EILSEQ;
    if (memcmp(in + 8, e->number, KEY_NUMBER_BYTES) != 0) {
        fp_aux_log(e->host, FP_AUX_ERROR, "a chunk was encrypted with another key: declare encrypt with the key file that wrote it");
        return -ENOKEY;
    }
    x = gcm(e, in, false);
    if (!x)
        return -ENOMEM;
    memcpy(tag, in + HEADER_BYTES + out_bytes, TAG_BYTES);
    if (EVP_DecryptUpdate(x, out, &n, in + HEADER_BYTES, (int)out_bytes) == 1 &&
        EVP_CIPHER_CTX_ctrl(x, EVP_CTRL_GCM_SET_TAG, TAG_BYTES, tag) == 1 && EVP_DecryptFinal_ex(x, out + n, &n) == 1)
        rc = 0;
    else
        memset(out, 0, out_bytes);
    EVP_CIPHER_CTX_free(x);
    return rc;
}

/* -------------------------------------------------------------- the key file */

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* 64 hexadecimal digits, a newline after them or none. */
static int parse_key(const char *text, ssize_t bytes, uint8_t key[KEY_BYTES])
{
    if (bytes == 2 * KEY_BYTES + 1 && text[2 * KEY_BYTES] == '\n')
        bytes--;
    if (bytes != 2 * KEY_BYTES)
        return -EINVAL;
    for (unsigned i = 0; i < KEY_BYTES; i++) {
        int hi = hex_digit(text[2 * i]), lo = hex_digit(text[2 * i + 1]);

        if (hi < 0 || lo < 0)
            return -EINVAL;
        key[i] = (uint8_t)(hi << 4 | lo);
    }
    return 0;
}

static int refuse(struct encrypt *e, const char *path, const char *why, int rc)
{
    char line[512];

    snprintf(line, sizeof(line), "key=%s: %s", path, why);
    fp_aux_log(e->host, FP_AUX_ERROR, line);
    return rc;
}

static int read_key(struct encrypt *e)
{
    const char *path = fp_aux_option_text(e->host, "key");
    char text[2 * KEY_BYTES + 2];
    struct stat st;
    ssize_t n;
    int fd, rc;

    if (!path)
        return refuse(e, "", "a key file is needed. Make one: (umask 077; openssl rand -hex 32 > FILE)", -EINVAL);
    if (path[0] != '/')
        return refuse(e, path, "give the whole path", -EINVAL);
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (fd < 0)
        return refuse(e, path, strerror(errno), -errno);
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || (st.st_mode & 077) != 0) {
        close(fd);
        return refuse(e, path, "must be a file that only its owner can read: chmod 600", -EPERM);
    }
    n = read(fd, text, sizeof(text));
    close(fd);
    rc = n < 0 ? -EIO : parse_key(text, n, e->key);
    OPENSSL_cleanse(text, sizeof(text));
    if (rc < 0)
        return refuse(e, path, "must hold 64 hexadecimal digits, as openssl rand -hex 32 prints them", rc);
    return 0;
}

static int number_key(struct encrypt *e)
{
    static const char label[] = "fpstore encrypt key number";
    EVP_MD_CTX *x = EVP_MD_CTX_new();
    uint8_t digest[32];
    int rc = -EIO;

    if (x && EVP_DigestInit_ex(x, EVP_sha256(), NULL) == 1 && EVP_DigestUpdate(x, label, sizeof(label) - 1) == 1 &&
        EVP_DigestUpdate(x, e->key, KEY_BYTES) == 1 && EVP_DigestFinal_ex(x, digest, NULL) == 1) {
        memcpy(e->number, digest, KEY_NUMBER_BYTES);
        rc = 0;
    }
    EVP_MD_CTX_free(x);
    OPENSSL_cleanse(digest, sizeof(digest));
    return rc;
}

static void encrypt_stop(void *state)
{
    OPENSSL_cleanse(state, sizeof(struct encrypt));
    munmap(state, sizeof(struct encrypt));
}

static int encrypt_start(struct fp_aux_host *host, void **state)
{
    struct encrypt *e = mmap(NULL, sizeof(*e), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int rc;

    if (e == MAP_FAILED)
        return -ENOMEM;
    e->host = host;
    (void)madvise(e, sizeof(*e), MADV_DONTDUMP);
    if (mlock(e, sizeof(*e)) != 0)
        fp_aux_log(host, FP_AUX_WARN, "the key could not be locked in memory (ulimit -l)");
    rc = read_key(e);
    if (rc == 0)
        rc = number_key(e);
    if (rc < 0)
        encrypt_stop(e);
    else
        *state = e;
    return rc;
}

static const struct fp_aux_option options[] = {
    { .name = "key", .help = "File with the key, 64 hexadecimal digits, readable by its owner only. Without it nothing starts." },
    { .name = NULL },
};

static const struct fp_aux_app app = {
    .abi = FP_AUX_ABI,
    .size_bytes = sizeof(app),
    .name = "encrypt",
    .version = "1",
    .summary = "stores chunks encrypted with AES-256-GCM; the key is yours",
    .flags = FP_AUX_PARALLEL | FP_AUX_CODES | FP_AUX_HIDES | FP_AUX_REQUIRED,
    .options = options,
    .start = encrypt_start,
    .stop = encrypt_stop,
    .chunk_out = encrypt_out,
    .chunk_in = encrypt_in,
};

FP_AUX_APP(app)
