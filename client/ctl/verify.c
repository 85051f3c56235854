/* fpctl verify: does a file still have the bytes that the aux-app checksum has digested?
 *
 * The digest is in the xattr user.fp.checksum, with the size and the version of the data that it is of (auxapps/checksum). The manager
 * knows the file's version now: a file that was changed afterwards, by a mount without that aux-app, is not wrong but unknown, and is
 * told apart. The bytes are read through the mount, so everything that a restart would read is tried. Below a directory, every file.
 *
 * The digest is of all bytes in order, by one thread: files are read one after the other. To compare what benefactors have with
 * their own sums was rejected: those are verified by every read anyway; this is for what happened before them. */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>
#include <xxhash.h>

#include "client/ctl/cmd.h"
#include "fp/err.h"
#include "fp/table.h"

#define XATTR "user.fp.checksum"
#define READ_BYTES (1u << 20)
#define HEX_MAX 129

enum verdict { VERIFIED, WRONG, CHANGED, NO_DIGEST, BAD_DIGEST, UNREADABLE, VERDICTS };
static const char *const verdict_words[VERDICTS] = {"verified", "WRONG", "changed since", "no digest", "bad digest", "unreadable"};

struct digest { /* as the xattr says */
    char kind[16];
    char hex[HEX_MAX];
    unsigned long long size, version;
};

/* nftw has no argument for its callback. Main thread only. */
static struct {
    const struct ctl_options *o;
    const struct ctl_store *store;
    struct ctl_link *link;
    json_t *list;
    uint64_t count[VERDICTS], bytes;
    int rc; /* asking the manager failed */
} v;

static int read_digest(const char *path, struct digest *d)
{
    char text[256];
    ssize_t n = getxattr(path, XATTR, text, sizeof text - 1);
    if (n < 0)
        return -errno;
    text[n] = '\0';
    if (sscanf(text, "%15[a-z0-9]:%128[0-9a-f] size=%llu version=%llu", d->kind, d->hex, &d->size, &d->version) != 4)
        return -EBADMSG;
    return 0;
}

static bool is_known(const struct digest *d)
{
    size_t n = strlen(d->hex);
    return (strcmp(d->kind, "sha256") == 0 && n == 64) || (strcmp(d->kind, "xxh128") == 0 && n == 32);
}

/* Size and version of the data as the manager has it now. */
static int ask_version(const char *path, uint64_t *size, uint64_t *version)
{
    char inner[PATH_MAX];
    const char *rest = path + strlen(v.o->path);
    Fp__CtlLayout q = FP__CTL_LAYOUT__INIT;
    ProtobufCMessage *reply = NULL;
    while (*rest == '/')
        rest++;
    int n = snprintf(inner, sizeof inner, "%s%s%s", v.store->inner, *v.store->inner && *rest ? "/" : "", rest);
    if (n < 0 || (size_t)n >= sizeof inner)
        return -ENAMETOOLONG;
    q.path.data = (uint8_t *)inner;
    q.path.len = (size_t)n;
    q.max_slices = 1;
    int rc = ctl_link_call(v.link, FP__MSG_TYPE__MSG_CTL_LAYOUT, &q.base, &fp__ctl_layout_reply__descriptor, &reply);
    if (rc < 0)
        return rc == -ENOENT ? rc : ctl_link_failed(v.link, rc, "verify");
    const Fp__CtlLayoutReply *r = (const Fp__CtlLayoutReply *)reply;
    if (r->attr) {
        *size = r->attr->size_bytes;
        *version = r->attr->data_version;
    }
    rc = r->attr ? 0 : FP_EBADFRAME;
    protobuf_c_message_free_unpacked(reply, NULL);
    return rc;
}

static void hex(char *out, const uint8_t *bytes, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        snprintf(out + 2 * (size_t)i, 3, "%02x", bytes[i]);
}

/* Digest of the file's bytes. The clock starts anew with each piece: a large file may take its time, a read may not. */
static int digest_file(const char *path, const char *kind, char out[HEX_MAX])
{
    bool sha = strcmp(kind, "sha256") == 0;
    EVP_MD_CTX *ctx = sha ? EVP_MD_CTX_new() : NULL;
    XXH3_state_t *xxh = sha ? NULL : XXH3_createState();
    uint8_t *buf = malloc(READ_BYTES), sum[32];
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW), rc = fd < 0 ? -errno : 0;
    if (rc == 0 && (!buf || (sha ? !ctx || EVP_DigestInit_ex(ctx, EVP_sha256(), NULL) != 1 : !xxh)))
        rc = -ENOMEM;
    if (rc == 0 && xxh)
        XXH3_128bits_reset(xxh);
    for (ssize_t n = 1; rc == 0 && n > 0;) {
        ctl_watch(v.o->timeout_ms + 70000); /* a read gives up by itself before */
        n = read(fd, buf, READ_BYTES);
        if (n < 0)
            rc = -errno;
        else if (sha)
            rc = EVP_DigestUpdate(ctx, buf, (size_t)n) == 1 ? 0 : -EIO;
        else
            XXH3_128bits_update(xxh, buf, (size_t)n);
        v.bytes += n > 0 ? (uint64_t)n : 0;
    }
    if (rc == 0 && sha)
        rc = EVP_DigestFinal_ex(ctx, sum, NULL) == 1 ? 0 : -EIO;
    else if (rc == 0)
        XXH128_canonicalFromHash((XXH128_canonical_t *)sum, XXH3_128bits_digest(xxh));
    if (rc == 0)
        hex(out, sum, sha ? 32 : 16);
    if (fd >= 0)
        close(fd);
    EVP_MD_CTX_free(ctx);
    XXH3_freeState(xxh);
    free(buf);
    return rc;
}

static enum verdict verify(const char *path, const char **why)
{
    char now[HEX_MAX];
    struct digest d;
    uint64_t size = 0, version = 0;
    int rc = read_digest(path, &d);
    if (rc == -ENODATA)
        return NO_DIGEST;
    if (rc == -EBADMSG || rc == -ERANGE || (rc == 0 && !is_known(&d))) {
        *why = XATTR " holds something else than the aux-app checksum writes";
        return BAD_DIGEST;
    }
    if (rc == 0)
        rc = v.rc = ask_version(path, &size, &version);
    if (rc == 0 && (size != d.size || version != d.version))
        return CHANGED;
    if (rc == 0)
        rc = digest_file(path, d.kind, now);
    if (rc < 0) {
        *why = fp_strerror(rc);
        return UNREADABLE;
    }
    if (strcmp(now, d.hex) == 0)
        return VERIFIED;
    v.rc = ask_version(path, &size, &version); /* written while we read? */
    return v.rc == 0 && version != d.version ? CHANGED : WRONG;
}

static bool is_alarm(enum verdict what)
{
    return what == WRONG || what == BAD_DIGEST || what == UNREADABLE;
}

static void tell(const char *path, enum verdict what, const char *why)
{
    char word[16];
    v.count[what]++;
    if (v.list)
        json_array_append_new(v.list, json_pack("{s:o, s:s, s:s}", "path", ctl_json_bytes(path, strlen(path)), "verdict",
                                                verdict_words[what], "why", why));
    else {
        snprintf(word, sizeof word, "%-14s", verdict_words[what]);
        (is_alarm(what) ? ctl_print_alarm : ctl_print_line)(word, "%s%s%s", path, *why ? ": " : "", why);
    }
}

static int visit(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
    const char *why = "";
    (void)ftw;
    if (flag == FTW_DNR || flag == FTW_NS)
        tell(path, UNREADABLE, "no permission");
    else if (flag == FTW_F && S_ISREG(st->st_mode)) {
        enum verdict what = verify(path, &why);
        tell(path, what, why);
    }
    return v.rc == -ENOENT ? v.rc = 0 : v.rc; /* deleted meanwhile */
}

static uint64_t alarms(void)
{
    return v.count[WRONG] + v.count[BAD_DIGEST] + v.count[UNREADABLE];
}

static int print_end(void)
{
    char size[FP_UNITS_BUF];
    if (v.list)
        return ctl_json_print(json_pack("{s:o, s:I, s:I, s:I, s:I, s:I, s:I}", "files", v.list, "verified",
                                        (json_int_t)v.count[VERIFIED], "wrong", (json_int_t)v.count[WRONG], "changed",
                                        (json_int_t)v.count[CHANGED], "no_digest", (json_int_t)v.count[NO_DIGEST], "bad_digest",
                                        (json_int_t)v.count[BAD_DIGEST], "unreadable", (json_int_t)v.count[UNREADABLE]));
    (alarms() > 0 ? ctl_print_alarm : ctl_print_line)(
        "total", "%llu verified (%s read), %llu wrong, %llu changed since, %llu without digest, %llu with a bad digest, %llu unreadable",
        (unsigned long long)v.count[VERIFIED], fp_format_size(size, v.bytes), (unsigned long long)v.count[WRONG],
        (unsigned long long)v.count[CHANGED], (unsigned long long)v.count[NO_DIGEST], (unsigned long long)v.count[BAD_DIGEST],
        (unsigned long long)v.count[UNREADABLE]);
    if (v.count[CHANGED] > 0)
        ctl_print_line("changed", "by a mount without checksum, by truncate(2) by name, or open for writing: the next close of a writer makes a new digest");
    return ctl_flush();
}

static int run(const struct ctl_options *o, const struct ctl_store *store, struct ctl_link *l)
{
    memset(&v, 0, sizeof v);
    v.o = o;
    v.store = store;
    v.link = l;
    v.list = o->json ? json_array() : NULL;
    if (store->mountpoint[0] == '\0' && access(o->path, F_OK) != 0) {
        FP_ERROR("%s: verify reads through a mount of the store: give a path in it", o->path);
        return -ENOENT;
    }
    int rc = nftw(o->path, visit, 32, FTW_PHYS | FTW_MOUNT);
    if (rc != 0 || v.rc < 0) {
        if (v.rc == 0)
            FP_ERROR("%s: %s", o->path, fp_strerror(-errno));
        json_decref(v.list);
        return v.rc < 0 ? v.rc : -EIO;
    }
    rc = print_end();
    if (rc == 0 && v.count[VERIFIED] == 0 && alarms() == 0) {
        FP_ERROR("%s: nothing to verify: no file has a digest that is of its data: fp-mount --auxapp checksum makes them", o->path);
        return -ENODATA;
    }
    if (rc == 0 && alarms() > 0)
        rc = -EIO; /* told above, file by file */
    return rc;
}

const struct ctl_cmd ctl_cmd_verify = {
    .words = "verify",
    .args = "PATH",
    .options = "",
    .help = "Reads a file, or all files below a directory, and compares the bytes with the digests that the aux-app checksum has noted.",
    .more = "Files that were changed after their digest are told apart from files that are wrong: by a mount without checksum, or by truncate(2) by name. The next close of "
            "a writer, on a mount with checksum, makes a new digest.",
    .exits = "Exits with 1 when a file is wrong or can't be read, when a digest is none that checksum writes, and when no file has a digest to compare with.",
    .run = run,
};
