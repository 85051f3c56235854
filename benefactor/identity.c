/*
 * DIR/benefactor.json and DIR/lock (identity.h).
 *
 * Called by main. The identity is what makes a directory part of one store: it is written when the manager
 * has accepted the benefactor, by rename after fsync, before the first segment. It carries a sum, so that a
 * damaged digit is not taken for another store, and a whole file is believed whatever the segments say.
 *
 * Each segment names its store and benefactor, too. Where the file is damaged or lost, and all segments whose
 * headers are whole say the same, that is who we are, and the file is written anew. So it is with a file of a
 * release that wrote no sum, if they say something else. If they don't agree, or there is none to ask, the
 * directory is refused: claiming it anew would set all its data aside.
 *
 * The lock is a flock on DIR/lock: it goes with the process however that ends, so there is nothing to clean.
 */
#include "benefactor/identity.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jansson.h>
#include <xxhash.h>

#include "benefactor/backend.h"
#include "fp/err.h"
#include "fp/le.h"
#include "fp/log.h"
#include "fp/record.h"

#define FILE_NAME "benefactor.json"
#define FORMAT    1
#define SUM_BUF   17 /* 16 hex digits */

/* What DIR/benefactor.json is, and what the headers of the segments say. */
enum file_state { FILE_WHOLE, FILE_WITHOUT_SUM, FILE_DAMAGED, FILE_NEWER, FILE_MISSING };
enum segments_say { SEGMENTS_NONE, SEGMENTS_AGREE, SEGMENTS_DIFFER };

struct identity {
    struct fp_uuid store, bnf;
};

static int make_dir(const char *path, bool *made)
{
    *made = mkdir(path, 0700) == 0;
    if (*made || errno == EEXIST)
        return 0;
    if (errno == ENOENT)
        FP_ERROR("--dir %s: its parent directory does not exist: make it first", path);
    else
        FP_ERROR("--dir %s can't be made: %s", path, strerror(errno));
    return -errno;
}

static int open_dirs(struct bnf_dir *d)
{
    d->fd = open(d->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (d->fd < 0) {
        FP_ERROR("--dir %s can't be opened: %s", d->path, strerror(errno));
        return -errno;
    }
    bool writable = faccessat(d->fd, ".", W_OK | X_OK, AT_EACCESS) == 0;

    d->made_segments = writable && mkdirat(d->fd, "segments", 0700) == 0;
    if (!writable || (!d->made_segments && errno != EEXIST)) {
        FP_ERROR("--dir %s can't be written: %s; give it to this user, or choose another directory", d->path,
                 strerror(errno));
        return -errno;
    }
    d->segments_fd = openat(d->fd, "segments", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (d->segments_fd < 0) {
        FP_ERROR("%s/segments can't be opened: %s", d->path, strerror(errno));
        return -errno;
    }
    return 0;
}

static int lock_dir(struct bnf_dir *d)
{
    d->lock_fd = openat(d->fd, "lock", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    d->made_lock = d->lock_fd >= 0;
    if (d->lock_fd < 0 && errno == EEXIST)
        d->lock_fd = openat(d->fd, "lock", O_RDWR | O_CLOEXEC);
    if (d->lock_fd < 0) {
        FP_ERROR("--dir %s can't be written: %s; give it to this user, or choose another directory", d->path,
                 strerror(errno));
        return -errno;
    }
    if (flock(d->lock_fd, LOCK_EX | LOCK_NB)) {
        int rc = -errno;

        FP_ERROR("--dir %s is in use by another fp-benefactor: stop that one, or choose another directory",
                 d->path);
        return rc;
    }
    return 0;
}

/* ---------------------------------------------------------------- the file */

static const char *sum_text(char out[SUM_BUF], const struct identity *id)
{
    uint8_t of[36];

    fp_put32(of, FORMAT);
    memcpy(of + 4, id->store.b, 16);
    memcpy(of + 20, id->bnf.b, 16);
    snprintf(out, SUM_BUF, "%016" PRIx64, XXH3_64bits(of, sizeof(of)));
    return out;
}

static enum file_state parse_file(const json_t *j, struct identity *id)
{
    const char *store = json_string_value(json_object_get(j, "store"));
    const char *bnf = json_string_value(json_object_get(j, "benefactor"));
    const json_t *sum = json_object_get(j, "sum");
    json_int_t format = json_integer_value(json_object_get(j, "format"));
    bool named = store && bnf && fp_uuid_parse(store, &id->store) == 0 && fp_uuid_parse(bnf, &id->bnf) == 0;
    char want[SUM_BUF];

    if (named && json_is_string(sum) && strcmp(json_string_value(sum), sum_text(want, id)) == 0)
        return FILE_WHOLE; /* the format is in the sum */
    if (format > FORMAT)
        return FILE_NEWER;
    return named && !sum && format == FORMAT ? FILE_WITHOUT_SUM : FILE_DAMAGED;
}

/* *state stays as it is if there is no file. */
static int read_file(const struct bnf_dir *d, enum file_state *state, struct identity *id)
{
    int fd = openat(d->fd, FILE_NAME, O_RDONLY | O_CLOEXEC);
    json_error_t why;
    json_t *j;

    if (fd < 0 && errno != ENOENT) {
        int rc = -errno;

        FP_ERROR("%s/" FILE_NAME " can't be read: %s", d->path, fp_strerror(rc));
        return rc;
    }
    if (fd < 0)
        return 0;
    j = json_loadfd(fd, JSON_REJECT_DUPLICATES, &why);
    *state = parse_file(j, id);
    json_decref(j);
    close(fd);
    return 0;
}

static int write_whole(int fd, const char *text)
{
    size_t len = strlen(text);

    if (write(fd, text, len) != (ssize_t)len)
        return errno ? -errno : -EIO;
    return fsync(fd) ? -errno : 0;
}

static int write_file(const struct bnf_dir *d)
{
    struct identity id = {d->store, d->bnf};
    char text[256], store[FP_UUID_BUF], bnf[FP_UUID_BUF], sum[SUM_BUF];
    int fd, rc;

    snprintf(text, sizeof(text), "{\"format\": %d, \"store\": \"%s\", \"benefactor\": \"%s\", \"sum\": \"%s\"}\n", FORMAT,
             fp_uuid_format(store, &id.store), fp_uuid_format(bnf, &id.bnf), sum_text(sum, &id));
    fd = openat(d->fd, FILE_NAME ".new", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    rc = fd >= 0 ? write_whole(fd, text) : -errno;
    if (fd >= 0)
        close(fd);
    if (rc == 0 && (renameat(d->fd, FILE_NAME ".new", d->fd, FILE_NAME) || fsync(d->fd)))
        rc = -errno;
    return rc;
}

/* ---------------------------------------------------------------- the segments */

/* Does the header of this segment say whose it is? */
static bool read_header(int segments_fd, const char *name, struct identity *id)
{
    uint8_t buf[FP_SEGMENT_HEADER_BYTES];
    struct fp_segment_header h;
    int fd = openat(segments_fd, name, O_RDONLY | O_CLOEXEC);
    bool whole = fd >= 0 && pread(fd, buf, sizeof(buf), 0) == (ssize_t)sizeof(buf) &&
                 fp_segment_header_decode(buf, &h) == 0 && h.id == strtoull(name + 4, NULL, 16);

    if (fd >= 0)
        close(fd);
    if (whole) {
        memcpy(id->store.b, h.store_uuid, 16);
        memcpy(id->bnf.b, h.bnf_uuid, 16);
    }
    return whole;
}

/* *any: there are segments, whole or not. A directory that can't be listed counts as having some. */
static enum segments_say ask_segments(const struct bnf_dir *d, struct identity *id, bool *any)
{
    int fd = openat(d->segments_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    enum segments_say say = SEGMENTS_NONE;
    struct identity one;
    struct dirent *e;

    *any = !dir;
    if (!dir)
        return say;
    while (say != SEGMENTS_DIFFER && (e = readdir(dir))) {
        if (!bnf_backend_dir_is_segment(e->d_name))
            continue;
        *any = true;
        if (!read_header(d->segments_fd, e->d_name, &one))
            continue;
        if (say == SEGMENTS_NONE) {
            say = SEGMENTS_AGREE;
            *id = one;
        } else if (memcmp(id, &one, sizeof(one))) {
            say = SEGMENTS_DIFFER;
        }
    }
    closedir(dir);
    return say;
}

/* ---------------------------------------------------------------- who we are */

static void take(struct bnf_dir *d, const struct identity *id)
{
    d->store = id->store;
    d->bnf = id->bnf;
    d->known = true;
}

/* Written with its sum: a directory that can't take it is used as it is, and asked again at the next start. */
static void renew_file(const struct bnf_dir *d)
{
    int rc = write_file(d);

    if (rc)
        FP_WARN("%s/" FILE_NAME " can't be written: %s", d->path, fp_strerror(rc));
}

static void take_segments(struct bnf_dir *d, const struct identity *id, const char *what)
{
    char store[FP_UUID_BUF], bnf[FP_UUID_BUF];

    take(d, id);
    FP_WARN("%s/" FILE_NAME " %s: written anew; its segments say that it belongs to benefactor %s of store %s", d->path,
            what, fp_uuid_format(bnf, &id->bnf), fp_uuid_format(store, &id->store));
    renew_file(d);
}

static int refuse(const struct bnf_dir *d, enum file_state state, enum segments_say say)
{
    const char *and_they = say == SEGMENTS_DIFFER ? ", and its segments belong to more than one" : "";

    if (state == FILE_MISSING)
        FP_ERROR("--dir %s has segments but no " FILE_NAME "%s: restore that file, or empty the directory if its data is "
                 "not needed",
                 d->path, and_they);
    else
        FP_ERROR("%s/" FILE_NAME " is damaged%s: restore it, or empty the directory if its data is not needed", d->path,
                 and_they);
    return -EINVAL;
}

static int read_identity(struct bnf_dir *d)
{
    struct identity in_file, in_segments;
    enum segments_say say;
    enum file_state state = FILE_MISSING;
    bool any;
    int rc = read_file(d, &state, &in_file);

    if (rc)
        return rc;
    if (state == FILE_NEWER) {
        FP_ERROR("%s/" FILE_NAME " is of a newer release: use that release", d->path);
        return FP_EVERSION_DISK;
    }
    if (state == FILE_WHOLE) {
        take(d, &in_file);
        return 0;
    }
    say = ask_segments(d, &in_segments, &any);
    if (state == FILE_WITHOUT_SUM && (say != SEGMENTS_AGREE || memcmp(&in_file, &in_segments, sizeof(in_file)) == 0)) {
        take(d, &in_file);
        if (say != SEGMENTS_DIFFER)
            renew_file(d);
        return 0;
    }
    if (say == SEGMENTS_AGREE) {
        take_segments(d, &in_segments,
                      state == FILE_MISSING   ? "is missing"
                      : state == FILE_DAMAGED ? "is damaged"
                                              : "says something else than its segments");
        return 0;
    }
    if (state == FILE_MISSING && !any) {
        fp_uuid_generate(&d->bnf);
        return 0;
    }
    return refuse(d, state, say);
}

/* ---------------------------------------------------------------- for main */

int bnf_dir_open(const char *path, struct bnf_dir *d)
{
    int rc;

    *d = (struct bnf_dir){.path = path, .fd = -1, .lock_fd = -1, .segments_fd = -1};
    rc = make_dir(path, &d->made);
    if (rc == 0)
        rc = open_dirs(d);
    if (rc == 0)
        rc = lock_dir(d);
    if (rc == 0)
        rc = read_identity(d);
    if (rc) {
        bnf_dir_undo(d);
        bnf_dir_close(d);
    }
    return rc;
}

int bnf_dir_claim(struct bnf_dir *d, const uint8_t store_uuid[16])
{
    int rc;

    memcpy(d->store.b, store_uuid, 16);
    rc = write_file(d);
    if (rc)
        FP_ERROR("%s/" FILE_NAME " can't be written: %s", d->path, fp_strerror(rc));
    d->known = rc == 0;
    return rc;
}

void bnf_dir_undo(const struct bnf_dir *d)
{
    if (d->known || d->fd < 0)
        return;
    if (d->made_segments)
        unlinkat(d->fd, "segments", AT_REMOVEDIR);
    unlinkat(d->fd, FILE_NAME ".new", 0);
    if (d->made_lock)
        unlinkat(d->fd, "lock", 0);
    if (d->made)
        rmdir(d->path);
}

void bnf_dir_close(struct bnf_dir *d)
{
    if (d->segments_fd >= 0)
        close(d->segments_fd);
    if (d->lock_fd >= 0)
        close(d->lock_fd);
    if (d->fd >= 0)
        close(d->fd);
    d->fd = d->lock_fd = d->segments_fd = -1;
}
