/*
 * The input files of a source whose blocks are plain arrays in files (source.h). Called by raw, fortran, npy, npz and group on the engine's one thread; blocks for the disk.
 *
 * Inputs are regular files, opened once and read at any place with pread: nothing is mapped, for a file that somebody cuts while it is read would end the process instead of being said.
 * A set may have more files than a process may have open: the soft limit is raised to the hard one, and where that does not do, the files beyond are opened for each read. Rejected: a cache of open
 * files, which a conversion that goes through its blocks in the order of the result would miss all the time.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "convert/source/source.h"

#define FILES_SPARE 64u           /* of the process, beside inputs: libraries, the result, messages */
#define READ_MAX    (1u << 30)    /* Linux gives no more than 2 GiB at once */

static const char *what_it_is(mode_t mode)
{
    return S_ISDIR(mode) ? "a directory" : S_ISFIFO(mode) ? "a named pipe" : S_ISSOCK(mode) ? "a socket" : "a device";
}

/* The file behind a path, without waiting for the writer of a pipe. */
static int open_one(const char *path, uint64_t *size_bytes, struct cv_fail *why)
{
    int fd, rc;
    struct stat st;

    do
        fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    while (fd < 0 && errno == EINTR);
    if (fd < 0 && (errno == EMFILE || errno == ENFILE))
        return -errno;
    if (fd < 0) {
        rc = -errno;
        return cv_fail(why, rc, path, NULL, CV_NO_OFFSET, "cannot be opened: %s", strerror(-rc));
    }
    if (fstat(fd, &st) != 0)
        rc = cv_fail(why, -errno, path, NULL, CV_NO_OFFSET, "its size cannot be found: %s", strerror(errno));
    else if (!S_ISREG(st.st_mode))
        rc = cv_fail(why, -EINVAL, path, NULL, CV_NO_OFFSET, "is %s; a conversion reads regular files", what_it_is(st.st_mode));
    else {
        *size_bytes = (uint64_t)st.st_size;
        return fd;
    }
    close(fd);
    return rc;
}

size_t cv_files_allowed(size_t count)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return FILES_SPARE / 2;
    if (limit.rlim_cur < count + FILES_SPARE && limit.rlim_cur < limit.rlim_max) {
        rlim_t was = limit.rlim_cur;

        limit.rlim_cur = limit.rlim_max < count + FILES_SPARE ? limit.rlim_max : count + FILES_SPARE;
        if (setrlimit(RLIMIT_NOFILE, &limit) != 0)
            limit.rlim_cur = was;
    }
    return limit.rlim_cur <= 2 * FILES_SPARE ? FILES_SPARE / 2 : limit.rlim_cur - FILES_SPARE;
}

int cv_inputs_open(struct cv_source *s, const struct cv_source_options *o, struct cv_fail *why)
{
    size_t keep;

    s->inputs = NULL;
    s->ninputs = 0;
    if (o->npaths == 0)
        return cv_fail(why, -EINVAL, NULL, NULL, CV_NO_OFFSET, "no input file is given");
    if (o->npaths > CV_FILES_MAX)
        return cv_fail(why, -E2BIG, NULL, NULL, CV_NO_OFFSET, "%zu input files; no more than %u make a set", o->npaths, CV_FILES_MAX);
    s->inputs = calloc(o->npaths, sizeof *s->inputs);
    if (!s->inputs)
        return cv_fail(why, -ENOMEM, NULL, NULL, CV_NO_OFFSET, "out of memory for %zu input files", o->npaths);
    keep = cv_files_allowed(o->npaths);
    for (size_t i = 0; i < o->npaths; i++) {
        struct cv_input *in = &s->inputs[i];
        int fd = open_one(o->paths[i], &in->size_bytes, why);

        *in = (struct cv_input){.path = o->paths[i], .fd = fd, .size_bytes = in->size_bytes};
        s->ninputs = i + 1;
        if (fd == -EMFILE || fd == -ENFILE)
            cv_fail(why, fd, o->paths[i], NULL, CV_NO_OFFSET, "cannot be opened: %s (limits: ulimit -n, fs.file-max)", strerror(-fd));
        if (fd < 0) {
            in->fd = -1;
            cv_inputs_close(s);
            return fd;
        }
        if (i >= keep) {
            close(fd);
            in->fd = -1;
        }
    }
    return 0;
}

void cv_inputs_close(struct cv_source *s)
{
    for (size_t i = 0; i < s->ninputs; i++)
        if (s->inputs[i].fd >= 0)
            close(s->inputs[i].fd);
    free(s->inputs);
    s->inputs = NULL;
    s->ninputs = 0;
}

static int read_all(int fd, const struct cv_input *in, uint64_t off, char *buf, size_t len, struct cv_fail *why)
{
    while (len) {
        ssize_t n = pread(fd, buf, len < READ_MAX ? len : READ_MAX, (off_t)off);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            int rc = -errno;

            return cv_fail(why, rc, in->path, NULL, off, "cannot be read: %s", strerror(-rc));
        }
        if (n == 0)
            return cv_fail(why, -ENODATA, in->path, NULL, off, "the file ends here, and %zu more bytes were to follow (it had %llu bytes when it was opened)", len,
                           (unsigned long long)in->size_bytes);
        off += (uint64_t)n;
        buf += n;
        len -= (size_t)n;
    }
    return 0;
}

int cv_inputs_read(struct cv_source *s, uint32_t input, uint64_t off, void *buf, size_t len, struct cv_fail *why)
{
    const struct cv_input *in;
    uint64_t size_bytes;
    int fd, rc;

    if (input >= s->ninputs)
        return cv_fail(why, -EINVAL, NULL, NULL, CV_NO_OFFSET, "there is no input number %u", input);
    in = &s->inputs[input];
    if (off > in->size_bytes || len > in->size_bytes - off)
        return cv_fail(why, -ENODATA, in->path, NULL, off, "%zu bytes are to be read from here, and the file has %llu", len, (unsigned long long)in->size_bytes);
    if (in->fd >= 0)
        return read_all(in->fd, in, off, buf, len, why);
    fd = open_one(in->path, &size_bytes, why);
    if (fd < 0)
        return cv_fail(why, fd, in->path, NULL, off, "cannot be opened again: %s", strerror(-fd));
    rc = read_all(fd, in, off, buf, len, why);
    close(fd);
    return rc;
}
