/*
 * The central directory of a zip archive (APPNOTE.TXT of PKWARE, 4.3; zip64 in 4.5.3). Called by npz.c; reads by cv_inputs_read.
 *
 *     [local header, name, extra, data] ...  [central header, name, extra, comment] ...  [zip64 end, zip64 locator]  end, comment
 *
 * Sizes come from the central directory: local headers have zeros, where the archive was written to a pipe. Each local header is compared all the same, for its length says where the data begins.
 * Every number is compared with the size of the file before it is used; entries may not lie over each other, which is how small archives become terabytes. Rejected: libzip, one more library for the
 * two hundred lines that np.savez needs.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "convert/source/zip.h"

#define END_BYTES      22u
#define END64_BYTES    56u
#define LOCATOR_BYTES  20u
#define CENTRAL_BYTES  46u
#define LOCAL_BYTES    30u
#define COMMENT_MAX    65535u
#define NAME_MAX_BYTES 4096u
#define DEFLATE_MOST   1040u /* times: no stream of deflate grows more (1032) */

struct reader {
    struct cv_source *s;
    uint32_t input;
    const char *path;
    uint64_t size_bytes;
    struct cv_fail *why;
};

struct directory {
    uint64_t at, bytes, count;
};

static uint16_t le16(const uint8_t *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}

static uint32_t le32(const uint8_t *p)
{
    return (uint32_t)le16(p) | (uint32_t)le16(p + 2) << 16;
}

static uint64_t le64(const uint8_t *p)
{
    return (uint64_t)le32(p) | (uint64_t)le32(p + 4) << 32;
}

static int damaged(struct reader *r, uint64_t at, const char *what)
{
    return cv_fail(r->why, -EINVAL, r->path, NULL, at, "the archive is damaged: %s", what);
}

/* ---------------------------------------------------------------- the end */

/* A 64-bit end before the ordinary one, where that has a number that does not fit into it. */
static int end64(struct reader *r, uint64_t end_at, struct directory *d)
{
    uint8_t b[END64_BYTES];
    uint64_t at;
    int rc;

    if (end_at < LOCATOR_BYTES)
        return damaged(r, end_at, "numbers are said to be in a part that is not there (zip64)");
    rc = cv_inputs_read(r->s, r->input, end_at - LOCATOR_BYTES, b, LOCATOR_BYTES, r->why);
    if (rc)
        return rc;
    at = le64(b + 8);
    if (le32(b) != 0x07064b50 || at > end_at - LOCATOR_BYTES || end_at - LOCATOR_BYTES - at < END64_BYTES)
        return damaged(r, end_at - LOCATOR_BYTES, "the locator of zip64 is missing or says nonsense");
    rc = cv_inputs_read(r->s, r->input, at, b, END64_BYTES, r->why);
    if (rc)
        return rc;
    if (le32(b) != 0x06064b50 || le32(b + 16) != 0 || le32(b + 20) != 0 || le64(b + 24) != le64(b + 32))
        return damaged(r, at, "the end of zip64 is missing, or there is more than one volume");
    *d = (struct directory){.at = le64(b + 48), .bytes = le64(b + 40), .count = le64(b + 32)};
    return d->at > at || d->bytes > at - d->at ? damaged(r, at, "the directory does not lie before its end") : 0;
}

static int directory_of_end(struct reader *r, uint64_t end_at, const uint8_t *b, struct directory *d)
{
    if (le16(b + 10) == 0xffff || le32(b + 12) == UINT32_MAX || le32(b + 16) == UINT32_MAX)
        return end64(r, end_at, d);
    if (le16(b + 4) != 0 || le16(b + 6) != 0 || le16(b + 8) != le16(b + 10))
        return cv_fail(r->why, -ENOTSUP, r->path, NULL, end_at, "a part of an archive of more than one volume");
    *d = (struct directory){.at = le32(b + 16), .bytes = le32(b + 12), .count = le16(b + 10)};
    if (d->at > end_at || d->bytes > end_at - d->at)
        return damaged(r, end_at, "the directory does not lie before its end");
    return 0;
}

static int find_directory(struct reader *r, struct directory *d)
{
    size_t len = r->size_bytes < END_BYTES + COMMENT_MAX ? (size_t)r->size_bytes : END_BYTES + COMMENT_MAX;
    uint64_t from = r->size_bytes - len;
    uint8_t *tail = malloc(len ? len : 1);
    int rc;

    if (!tail)
        return cv_fail(r->why, -ENOMEM, r->path, NULL, CV_NO_OFFSET, "out of memory");
    rc = cv_inputs_read(r->s, r->input, from, tail, len, r->why);
    for (size_t i = len < END_BYTES ? 0 : len - END_BYTES + 1; rc == 0 && i-- > 0;)
        if (le32(tail + i) == 0x06054b50 && i + END_BYTES + le16(tail + i + 20) == len) {
            rc = directory_of_end(r, from + i, tail + i, d);
            free(tail);
            return rc;
        }
    if (rc == 0 && len >= 2 && memcmp(tail, "PK", 2) != 0 && from == 0)
        rc = cv_fail(r->why, -EINVAL, r->path, NULL, 0, "is no .npz: not an archive of zip");
    if (rc == 0)
        rc = cv_fail(r->why, -ENODATA, r->path, NULL, r->size_bytes, "the archive has no end: it was cut off, or is not written to its end yet");
    free(tail);
    return rc;
}

/* ---------------------------------------------------------------- entries */

/* Numbers of 64 bits from the extra field, in their fixed order, each only where the 32 bits are all ones. */
static int sizes64(struct reader *r, uint64_t at, const uint8_t *h, const uint8_t *extra, size_t len, struct cv_zip_entry *e, uint64_t *local_at)
{
    size_t part = 0, want = 0, have = 0;
    uint64_t v[3];

    for (; len >= 4; extra += 4 + part, len -= 4 + part) {
        part = le16(extra + 2);
        if (part > len - 4)
            return damaged(r, at, "an extra field is longer than all of them");
        if (le16(extra) != 1)
            continue;
        for (have = 0; have < 3 && 8 * have + 8 <= part; have++)
            v[have] = le64(extra + 4 + 8 * have);
        break;
    }
    e->size_bytes = le32(h + 24);
    e->packed_bytes = le32(h + 20);
    *local_at = le32(h + 42);
    if (e->size_bytes == UINT32_MAX && want < have)
        e->size_bytes = v[want++];
    if (e->packed_bytes == UINT32_MAX && want < have)
        e->packed_bytes = v[want++];
    if (*local_at == UINT32_MAX && want < have)
        *local_at = v[want++];
    return 0;
}

/* Where the data of an entry begins: behind its local header. */
static int find_data(struct reader *r, uint64_t local_at, const uint8_t *central, struct cv_zip_entry *e)
{
    uint8_t h[LOCAL_BYTES];
    uint64_t room;
    int rc;

    if (local_at > r->size_bytes || r->size_bytes - local_at < LOCAL_BYTES)
        return damaged(r, local_at, "the directory names an entry behind the end of the file");
    rc = cv_inputs_read(r->s, r->input, local_at, h, sizeof h, r->why);
    if (rc)
        return rc;
    if (le32(h) != 0x04034b50)
        return damaged(r, local_at, "there is no entry where the directory says one");
    if (le16(h + 8) != le16(central + 10) || le16(h + 26) != le16(central + 28))
        return damaged(r, local_at, "an entry says other things of itself than the directory");
    e->data_at = local_at + LOCAL_BYTES + le16(h + 26) + le16(h + 28);
    room = e->data_at <= r->size_bytes ? r->size_bytes - e->data_at : 0;
    if (e->data_at > r->size_bytes || e->packed_bytes > room)
        return cv_fail(r->why, -ENODATA, r->path, e->name, r->size_bytes, "the file ends within this entry, which has %llu bytes from byte %llu on", (unsigned long long)e->packed_bytes,
                       (unsigned long long)e->data_at);
    return 0;
}

static int check_entry(struct reader *r, uint64_t at, const uint8_t *h, struct cv_zip_entry *e)
{
    unsigned flags = le16(h + 8), method = le16(h + 10);

    if (flags & 0x2041)
        return cv_fail(r->why, -ENOTSUP, r->path, e->name, at, "is encrypted");
    if (method != CV_ZIP_STORED && method != CV_ZIP_DEFLATED)
        return cv_fail(r->why, -ENOTSUP, r->path, e->name, at, "is compressed with method %u of zip; stored and deflated (np.savez, np.savez_compressed) are known", method);
    if (le16(h + 34) != 0)
        return cv_fail(r->why, -ENOTSUP, r->path, e->name, at, "lies in another volume of the archive");
    e->method = (enum cv_zip_method)method;
    e->crc = le32(h + 16);
    if (method == CV_ZIP_STORED && e->packed_bytes != e->size_bytes)
        return damaged(r, at, "an entry that is not compressed has two sizes");
    if (method == CV_ZIP_DEFLATED && e->size_bytes / DEFLATE_MOST > e->packed_bytes)
        return damaged(r, at, "an entry says a size that its compressed bytes can't have");
    return 0;
}

/* The central header at *at, and *at moves behind it. e->name stays NULL for a folder. */
static int read_entry(struct reader *r, uint64_t *at, uint64_t end, struct cv_zip_entry *e)
{
    uint8_t h[CENTRAL_BYTES], *more;
    uint64_t local_at = 0, here = *at;
    size_t name, extra, comment;
    int rc;

    if (end - here < CENTRAL_BYTES)
        return damaged(r, here, "the directory ends within an entry");
    rc = cv_inputs_read(r->s, r->input, here, h, sizeof h, r->why);
    if (rc)
        return rc;
    name = le16(h + 28);
    extra = le16(h + 30);
    comment = le16(h + 32);
    if (le32(h) != 0x02014b50 || end - here - CENTRAL_BYTES < name + extra + comment || name == 0 || name > NAME_MAX_BYTES)
        return damaged(r, here, "the directory has an entry that is none");
    *at = here + CENTRAL_BYTES + name + extra + comment;
    more = malloc(name + extra);
    e->name = calloc(1, name + 1);
    rc = more && e->name ? cv_inputs_read(r->s, r->input, here + CENTRAL_BYTES, more, name + extra, r->why) : cv_fail(r->why, -ENOMEM, r->path, NULL, CV_NO_OFFSET, "out of memory");
    if (rc == 0) {
        memcpy(e->name, more, name);
        rc = strlen(e->name) == name ? sizes64(r, here, h, more + name, extra, e, &local_at) : damaged(r, here, "a name has a zero byte in it");
    }
    free(more);
    if (rc == 0 && e->name[name - 1] == '/' && e->size_bytes == 0) {
        free(e->name);
        e->name = NULL;
        return 0;
    }
    if (rc == 0)
        rc = check_entry(r, here, h, e);
    return rc ? rc : find_data(r, local_at, h, e);
}

static int by_place(const void *a, const void *b)
{
    const struct cv_zip_entry *x = a, *y = b;

    return x->data_at < y->data_at ? -1 : x->data_at > y->data_at;
}

static int check_places(struct reader *r, struct cv_zip_entry *e, size_t n)
{
    qsort(e, n, sizeof *e, by_place);
    for (size_t i = 1; i < n; i++)
        if (e[i].data_at - e[i - 1].data_at < e[i - 1].packed_bytes + LOCAL_BYTES)
            return damaged(r, e[i].data_at, "entries lie over each other");
    return 0;
}

int cv_zip_list(struct cv_source *s, uint32_t input, struct cv_zip_entry **out, size_t *count, struct cv_fail *why)
{
    struct reader r = {.s = s, .input = input, .path = s->inputs[input].path, .size_bytes = s->inputs[input].size_bytes, .why = why};
    struct directory d = {0};
    struct cv_zip_entry *list;
    size_t n = 0;
    int rc = find_directory(&r, &d);

    if (rc)
        return rc;
    if (d.count > CV_DATASETS_MAX)
        return cv_fail(why, -E2BIG, r.path, NULL, CV_NO_OFFSET, "%llu entries; no more than %u arrays are converted at a time", (unsigned long long)d.count, CV_DATASETS_MAX);
    list = calloc(d.count ? d.count : 1, sizeof *list);
    if (!list)
        return cv_fail(why, -ENOMEM, r.path, NULL, CV_NO_OFFSET, "out of memory");
    for (uint64_t i = 0, at = d.at; rc == 0 && i < d.count; i++) {
        rc = read_entry(&r, &at, d.at + d.bytes, &list[n]);
        n += list[n].name ? 1 : 0;
    }
    if (rc == 0)
        rc = check_places(&r, list, n);
    if (rc) {
        cv_zip_free(list, n);
        return rc;
    }
    *out = list;
    *count = n;
    return 0;
}

void cv_zip_free(struct cv_zip_entry *entries, size_t count)
{
    for (size_t i = 0; i < count; i++)
        free(entries[i].name);
    free(entries);
}
