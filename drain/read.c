/*
 * READ: bytes of a file of the target, into memory that the benefactor has too.
 *
 * On a reader's thread. What comes back is of the file that was meant, or nothing: inode, size and time are compared before and after reading, and the sum of the
 * bytes, where one is known. The device's number is not: it differs from node to node, and from mount to mount. What target it is says the marker (marker.c).
 *
 * Past the page cache where the target can (the memory of the node is the application's), else its pages are dropped afterwards. The benefactor's disk threads write
 * from where it was read to: no byte is copied between the two, whatever the back end.
 *
 * The file stays open from one READ to the next, until this thread has nothing to do: a file of many chunks is opened once, and a target that is idle can be
 * unmounted. Each READ looks at the file anew.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "drain/drain.h"
#include "fp/checksum.h"
#include "fp/err.h"
#include "fp/fault.h"
#include "fp/zeros.h"

#define PAGE FP_RECORD_ALIGN_BYTES

void dr_read_close(struct dr_thread *th)
{
    if (th->file >= 0) {
        dr_enter(th);
        close(th->file);
        dr_leave(th, 0);
    }
    free(th->file_path);
    th->file = -1;
    th->file_path = NULL;
}

/* -ENOENT: the marker is right, and there is no such file. */
static int open_file(struct dr_thread *th, const struct fp_dw_read *m)
{
    const char *path = (const char *)(m + 1);
    const int flags = O_RDONLY | O_NONBLOCK; /* which a FIFO of somebody else would wait for */
    int root, rc;

    if (th->file >= 0 && th->file_ino == m->tino && th->file_path_bytes == m->path_bytes && memcmp(th->file_path, path, m->path_bytes) == 0)
        return 0;
    dr_read_close(th);
    rc = dr_root(th, false, &root);
    if (rc)
        return rc;
    rc = dr_open(th, root, path, m->path_bytes, flags | O_DIRECT, 0, &th->file);
    th->file_direct = rc == 0;
    if (rc == -EINVAL)
        rc = dr_open(th, root, path, m->path_bytes, flags, 0, &th->file);
    dr_enter(th);
    close(root);
    dr_leave(th, 0);
    if (rc)
        return rc == -ENOTDIR ? dr_failed_call(th, -ENOENT, "open", path) : dr_failed_call(th, rc, "open", path);
    th->file_path = strndup(path, m->path_bytes);
    th->file_path_bytes = m->path_bytes;
    th->file_ino = m->tino;
    return th->file_path ? 0 : dr_fail(th, FP_DW_SCOPE_TARGET, -ENOMEM, "out of memory on this node");
}

static int check_file(struct dr_thread *th, const struct fp_dw_read *m)
{
    struct stat st;
    int rc;

    dr_enter(th);
    rc = fstat(th->file, &st) ? -errno : 0;
    dr_leave(th, 0);
    if (rc)
        return dr_failed_call(th, rc, "look at", th->file_path);
    dr_seen(&th->r, &st);
    if (S_ISREG(st.st_mode) && th->r.tino == m->tino && th->r.size == m->size && th->r.mtime_ns == m->mtime_ns)
        return 0;
    return dr_fail(th, FP_DW_SCOPE_FILE, -ESTALE, "%.160s was changed or replaced by somebody else", th->file_path);
}

/* Past the page cache only from a multiple of 4 KiB on; what is asked for there may be more than there is. */
static int read_all(struct dr_thread *th, const struct fp_dw_read *m, bool direct)
{
    uint32_t want = direct ? (m->len + PAGE - 1) / PAGE * PAGE : m->len, done = 0;

    if (th->file_direct != direct) {
        int flags = fcntl(th->file, F_GETFL);

        if (flags < 0 || fcntl(th->file, F_SETFL, direct ? flags | O_DIRECT : flags & ~O_DIRECT))
            return -errno;
        th->file_direct = direct;
    }
    while (done < m->len) {
        ssize_t n;
        int rc;

        dr_enter(th);
        rc = FP_FAULT_POINT("drain.target_pread");
        n = rc ? 0 : pread(th->file, th->w->memory + m->to + done, want - done, (off_t)(m->off + done));
        dr_leave(th, n > 0 ? (uint64_t)n : 0);
        if (rc)
            return rc;
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno == ESTALE ? -EIO : -errno; /* what we have open is stale, which says nothing of what has the name */
        if (n == 0)
            return -ESTALE;
        done += (uint32_t)n;
        if (direct && done % PAGE)
            direct = false;
        if (!direct && th->file_direct && done < m->len)
            return -EINVAL; /* the rest from here on not so */
    }
    if (!th->file_direct)
        (void)posix_fadvise(th->file, (off_t)m->off, m->len, POSIX_FADV_DONTNEED);
    return 0;
}

static int read_file(struct dr_thread *th, const struct fp_dw_read *m)
{
    bool direct = th->file_direct && m->off % PAGE == 0;
    int rc = read_all(th, m, direct);

    if (rc == -EINVAL && direct) /* the file system wants something else of O_DIRECT */
        rc = read_all(th, m, false);
    if (rc == -ESTALE)
        return dr_fail(th, FP_DW_SCOPE_FILE, rc, "%.160s was cut by somebody else", th->file_path);
    if (rc) /* a place that can't be read is no reason to write nothing more to this target */
        return dr_fail(th, FP_DW_SCOPE_FILE, rc, "read %.160s: %s", th->file_path, fp_strerror(rc));
    return 0;
}

static bool is_zeros(const uint8_t *p, uint32_t len)
{
    return p[0] == 0 && memcmp(p, p + 1, len - 1) == 0;
}

static int check_bytes(struct dr_thread *th, const struct fp_dw_read *m)
{
    const uint8_t *data = th->w->memory + m->to;
    uint32_t blocks = fp_sum_nblocks(m->len);

    fp_sum_blocks(data, m->len, th->r.sums);
    if (m->sum && fp_sum_chunk(th->r.sums, blocks, m->len) != m->sum)
        return dr_fail(th, FP_DW_SCOPE_FILE, FP_ECHECKSUM, "%.160s: bytes %llu to %llu are not what was drained", th->file_path,
                       (unsigned long long)m->off, (unsigned long long)m->off + m->len);
    th->r.nsums = blocks;
    th->r.note = is_zeros(data, m->len);
    th->r.bytes = m->len;
    atomic_fetch_add(&th->w->status->read_bytes, m->len);
    return 0;
}

int dr_read(struct dr_thread *th)
{
    const struct fp_dw_read *m = (const struct fp_dw_read *)th->task->msg;
    uint64_t room = ((uint64_t)m->len + PAGE - 1) / PAGE * PAGE;
    int rc;

    if (m->to > th->w->memory_bytes || room > th->w->memory_bytes - m->to)
        return dr_fail(th, FP_DW_SCOPE_FILE, -EPROTO, "memory that is not there");
    rc = open_file(th, m);
    if (rc == 0)
        rc = check_file(th, m);
    if (rc == 0)
        rc = read_file(th, m);
    if (rc == 0)
        rc = check_file(th, m);
    if (rc == 0)
        rc = check_bytes(th, m);
    if (rc)
        dr_read_close(th); /* the next one looks by its name again */
    return rc;
}
