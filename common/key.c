/* The store's key: file, memory, name.
 *
 * Loaded once by main() of each program and handed to the TLS layer; made by fp-store. Any thread.
 *
 * A key has a page of its own: mlock() keeps it off the swap device, MADV_DONTDUMP out of core files, and
 * explicit_bzero() before munmap() out of the next owner's memory. The text of the file is read into the
 * same page and wiped after decoding, so no copy is ever on the stack or heap; stdio would keep one in
 * its buffer. prctl(PR_SET_DUMPABLE) was rejected: it takes core files of everything else and debuggers away
 * with it; fp-mount does so once it runs aux-apps (client/aux/spawn.c). Where mlock is not allowed (RLIMIT_MEMLOCK 0) the key is used all the same, with a
 * line in the log: refusing to start would be the worse service.
 *
 * Messages tell what is wrong with a file, never what is in it. */
#include "fp/key.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fp/err.h"
#include "fp/hex.h"
#include "fp/log.h"

#define HEX_DIGITS (2 * FP_KEY_BYTES)

struct fp_key {
    uint8_t bytes[FP_KEY_BYTES];
    char text[HEX_DIGITS + 8]; /* only while reading or writing a file */
};

static struct fp_key *key_alloc(void)
{
    void *page =
        mmap(NULL, sizeof(struct fp_key), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED)
        return NULL;
    if (madvise(page, sizeof(struct fp_key), MADV_DONTDUMP) < 0 || mlock(page, sizeof(struct fp_key)) < 0)
        FP_WARN("the store key could not be locked in memory (%s): raise ulimit -l", fp_strerror(-errno));
    return page;
}

void fp_key_free(struct fp_key *key)
{
    if (!key)
        return;
    explicit_bzero(key, sizeof *key);
    munmap(key, sizeof *key);
}

const uint8_t *fp_key_bytes(const struct fp_key *key)
{
    return key->bytes;
}

__attribute__((format(printf, 3, 4))) static int refuse(char *why, int err, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(why, FP_KEY_WHY_MAX, fmt, ap);
    va_end(ap);
    return err;
}

/* key->text to key->bytes. False unless it is all hexadecimal digits, and not all zero. */
static bool decode(struct fp_key *key)
{
    unsigned any = 0;
    for (int i = 0; i < FP_KEY_BYTES; i++) {
        int byte = fp_hex_byte(key->text + 2 * i);
        if (byte < 0)
            return false;
        key->bytes[i] = (uint8_t)byte;
        any |= key->bytes[i];
    }
    return any != 0;
}

static int check_file(int fd, const char *path, char *why)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return refuse(why, -errno, "cannot read key file %.300s: %s", path, fp_strerror(-errno));
    if (!S_ISREG(st.st_mode))
        return refuse(why, -EINVAL, "key file %.300s is not a regular file", path);
    if (st.st_uid != geteuid() && st.st_uid != 0)
        return refuse(why, -EPERM,
                      "key file %.300s belongs to another user (uid %u): it must be yours or root's", path,
                      (unsigned)st.st_uid);
    if (st.st_mode & 077)
        return refuse(why, -EPERM, "key file %.300s can be read by others (mode %04o): chmod 600 it", path,
                      (unsigned)(st.st_mode & 07777));
    return 0;
}

/* Fills key->text from fd. The length, or negative errno. */
static ssize_t read_text(int fd, struct fp_key *key)
{
    size_t used = 0;
    while (used < sizeof key->text) {
        ssize_t n = read(fd, key->text + used, sizeof key->text - used);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        if (n == 0)
            break;
        used += (size_t)n;
    }
    return (ssize_t)used;
}

/* What to do when a key file cannot be opened. */
static const char *advice(int err)
{
    if (err == ENOENT)
        return ": give --key FILE, or make one with fp-store";
    if (err == EACCES || err == EPERM)
        return ": run this as the owner of the key or as root, or give the --key FILE of yours";
    return "";
}

static int load_from(int fd, const char *path, struct fp_key *key, char *why)
{
    int rc = check_file(fd, path, why);
    if (rc < 0)
        return rc;
    ssize_t len = read_text(fd, key);
    if (len < 0)
        return refuse(why, (int)len, "cannot read key file %.300s: %s", path, fp_strerror((int)len));
    bool newline = len == HEX_DIGITS + 1 && key->text[HEX_DIGITS] == '\n';
    if ((len != HEX_DIGITS && !newline) || !decode(key))
        return refuse(why, -EINVAL,
                      "key file %.300s does not hold a key: it must be 64 hexadecimal digits and a newline",
                      path);
    return 0;
}

int fp_key_load(const char *path, struct fp_key **out, char why[FP_KEY_WHY_MAX])
{
    int fd = -1, rc = 0;
    struct fp_key *key = key_alloc();
    if (!key)
        return refuse(why, -ENOMEM, "out of memory for the store key");
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY); /* a FIFO must not make us wait */
    if (fd < 0) {
        rc = refuse(why, -errno, "cannot open key file %.300s: %s%s", path, fp_strerror(-errno),
                    advice(errno));
        goto out;
    }
    rc = load_from(fd, path, key, why);
out:
    if (fd >= 0)
        close(fd);
    explicit_bzero(key->text, sizeof key->text);
    if (rc < 0)
        fp_key_free(key);
    else
        *out = key;
    return rc;
}

int fp_key_generate(struct fp_key **out)
{
    struct fp_key *key = key_alloc();
    ssize_t n;
    if (!key)
        return -ENOMEM;
    do
        n = getrandom(key->bytes, sizeof key->bytes, 0);
    while (n < 0 && errno == EINTR);
    if (n != (ssize_t)sizeof key->bytes) {
        fp_key_free(key);
        return -ENOSYS;
    }
    *out = key;
    return 0;
}

/* Writes the digits through a scratch page of the same kind, since key is const. */
static int write_text(int fd, const struct fp_key *key)
{
    struct fp_key *scratch = key_alloc();
    int rc = 0;
    if (!scratch)
        return -ENOMEM;
    for (int i = 0; i < FP_KEY_BYTES; i++)
        fp_hex_put(scratch->text + 2 * i, key->bytes[i]);
    scratch->text[HEX_DIGITS] = '\n';
    size_t done = 0;
    while (done < HEX_DIGITS + 1 && rc == 0) {
        ssize_t n = write(fd, scratch->text + done, HEX_DIGITS + 1 - done);
        if (n >= 0)
            done += (size_t)n;
        else if (errno != EINTR)
            rc = -errno;
    }
    if (rc == 0 && (fchmod(fd, 0600) < 0 || fsync(fd) < 0))
        rc = -errno;
    fp_key_free(scratch);
    return rc;
}

int fp_key_write(const struct fp_key *key, const char *path, char why[FP_KEY_WHY_MAX])
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0 && errno == EEXIST)
        return refuse(why, -EEXIST, "key file %.300s is there already: keep it, or remove it first", path);
    if (fd < 0)
        return refuse(why, -errno, "cannot create key file %.300s: %s", path, fp_strerror(-errno));
    int rc = write_text(fd, key);
    if (close(fd) < 0 && rc == 0)
        rc = -errno;
    if (rc < 0) {
        unlink(path);
        return refuse(why, rc, "cannot write key file %.300s: %s", path, fp_strerror(rc));
    }
    return 0;
}
