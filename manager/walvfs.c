/* One write per commit.
 *
 * SQLite appends to the WAL by two writes per page: a frame header of 24 bytes, and the page. A creation changes six
 * pages, and its twelve system calls were a fifth of the time it holds up the next one. This VFS hands all files to
 * SQLite's own, and of the WAL of this connection keeps what is appended in memory until the page whose header
 * says that it ends a transaction; then everything goes by one write, whose result is that page's result. So
 * nothing is kept back across a commit, a full disk is told where SQLite looks for it, and the order in which
 * others see things is the same: SQLite makes a commit visible (in the shared-memory index) after that write.
 *
 * What is not an append goes through, after what is kept: SQLite writes older frames anew when it had to spill pages of a
 * large transaction, reads them back, and begins the file anew after a checkpoint, with a header of 32 bytes.
 *
 *   WAL: | header 32 | frame: pgno 4, pages after commit or 0: 4, salts 8, checksums 8 | page | frame | page | ...
 *
 * Only the connection of the loop uses it. Collecting in xShmBarrier, which comes later, was rejected: it cannot fail. */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <sqlite3.h>

#include "manager/walvfs.h"

#define FRAME_HEADER_BYTES 24
#define WAL_HEADER_BYTES   32
#define KEEP_BYTES         (120 << 10) /* SQLite's write takes 17 bits of a length: 128 KiB would be "disk full" */

struct wal_file {
    sqlite3_file base;
    sqlite3_file *real;
    sqlite3_int64 off; /* of what is kept */
    sqlite3_int64 tail; /* end of all that was ever appended since the file was begun anew */
    int len;
    bool commit_next; /* the last header kept says that its page ends a transaction */
    bool page_next;   /* the last thing kept is a header */
    unsigned char *kept;
};

static sqlite3_vfs vfs; /* written once, by mgr_walvfs_name */
static sqlite3_vfs *below;

static struct wal_file *wal_of(sqlite3_file *f)
{
    return (struct wal_file *)f;
}

static int write_kept(struct wal_file *w)
{
    int len = w->len, rc;

    w->len = 0;
    w->page_next = w->commit_next = false;
    if (!len)
        return SQLITE_OK;
    rc = w->real->pMethods->xWrite(w->real, w->kept, len, w->off);
    if (rc != SQLITE_OK)
        w->tail = w->off; /* SQLite will write there again */
    return rc;
}

static void keep(struct wal_file *w, const void *buf, int len, sqlite3_int64 off)
{
    const unsigned char *h = buf;

    if (!w->len)
        w->off = off;
    memcpy(w->kept + w->len, buf, (size_t)len);
    w->len += len;
    w->tail = off + len;
    w->commit_next = w->page_next ? w->commit_next : (h[4] | h[5] | h[6] | h[7]) != 0;
    w->page_next = !w->page_next;
}

/* A header at the end, or the page that belongs to the header kept last. */
static bool is_append(const struct wal_file *w, int len, sqlite3_int64 off)
{
    if (w->len + len > KEEP_BYTES || (w->len && off != w->off + w->len))
        return false;
    return w->page_next ? len != FRAME_HEADER_BYTES : len == FRAME_HEADER_BYTES && off >= w->tail;
}

static int wal_write(sqlite3_file *f, const void *buf, int len, sqlite3_int64 off)
{
    struct wal_file *w = wal_of(f);
    bool ends;
    int rc = SQLITE_OK;

    if (!is_append(w, len, off))
        rc = write_kept(w);
    if (rc != SQLITE_OK)
        return rc;
    if (is_append(w, len, off)) {
        keep(w, buf, len, off);
        ends = !w->page_next && w->commit_next;
        return ends ? write_kept(w) : SQLITE_OK;
    }
    if (off == 0 && len == WAL_HEADER_BYTES)
        w->tail = len;
    else if (off + len > w->tail)
        w->tail = off + len;
    return w->real->pMethods->xWrite(w->real, buf, len, off);
}

static int wal_read(sqlite3_file *f, void *buf, int len, sqlite3_int64 off)
{
    int rc = write_kept(wal_of(f));

    return rc == SQLITE_OK ? wal_of(f)->real->pMethods->xRead(wal_of(f)->real, buf, len, off) : rc;
}

static int wal_truncate(sqlite3_file *f, sqlite3_int64 size)
{
    int rc = write_kept(wal_of(f));

    return rc == SQLITE_OK ? wal_of(f)->real->pMethods->xTruncate(wal_of(f)->real, size) : rc;
}

static int wal_sync(sqlite3_file *f, int flags)
{
    int rc = write_kept(wal_of(f));

    return rc == SQLITE_OK ? wal_of(f)->real->pMethods->xSync(wal_of(f)->real, flags) : rc;
}

static int wal_size(sqlite3_file *f, sqlite3_int64 *size)
{
    int rc = write_kept(wal_of(f));

    return rc == SQLITE_OK ? wal_of(f)->real->pMethods->xFileSize(wal_of(f)->real, size) : rc;
}

static int wal_close(sqlite3_file *f)
{
    struct wal_file *w = wal_of(f);
    int kept = write_kept(w), rc = w->real->pMethods->xClose(w->real);

    free(w->kept);
    return kept != SQLITE_OK ? kept : rc;
}

static int wal_lock(sqlite3_file *f, int level)
{
    return wal_of(f)->real->pMethods->xLock(wal_of(f)->real, level);
}

static int wal_unlock(sqlite3_file *f, int level)
{
    return wal_of(f)->real->pMethods->xUnlock(wal_of(f)->real, level);
}

static int wal_check_lock(sqlite3_file *f, int *held)
{
    return wal_of(f)->real->pMethods->xCheckReservedLock(wal_of(f)->real, held);
}

static int wal_control(sqlite3_file *f, int op, void *arg)
{
    return wal_of(f)->real->pMethods->xFileControl(wal_of(f)->real, op, arg);
}

static int wal_sector(sqlite3_file *f)
{
    return wal_of(f)->real->pMethods->xSectorSize(wal_of(f)->real);
}

static int wal_device(sqlite3_file *f)
{
    return wal_of(f)->real->pMethods->xDeviceCharacteristics(wal_of(f)->real);
}

static const sqlite3_io_methods wal_methods = {
    .iVersion = 1,
    .xClose = wal_close,
    .xRead = wal_read,
    .xWrite = wal_write,
    .xTruncate = wal_truncate,
    .xSync = wal_sync,
    .xFileSize = wal_size,
    .xLock = wal_lock,
    .xUnlock = wal_unlock,
    .xCheckReservedLock = wal_check_lock,
    .xFileControl = wal_control,
    .xSectorSize = wal_sector,
    .xDeviceCharacteristics = wal_device,
};

static int open_file(sqlite3_vfs *v, const char *name, sqlite3_file *f, int flags, int *out_flags)
{
    struct wal_file *w = wal_of(f);
    int rc;

    (void)v;
    if (!(flags & SQLITE_OPEN_WAL))
        return below->xOpen(below, name, f, flags, out_flags);
    memset(w, 0, sizeof *w);
    w->real = (sqlite3_file *)(w + 1);
    w->kept = malloc(KEEP_BYTES);
    if (!w->kept)
        return SQLITE_NOMEM;
    rc = below->xOpen(below, name, w->real, flags, out_flags);
    if (rc == SQLITE_OK)
        w->base.pMethods = &wal_methods;
    else
        free(w->kept);
    return rc;
}

const char *mgr_walvfs_name(void)
{
    if (vfs.zName)
        return vfs.zName;
    below = sqlite3_vfs_find(NULL);
    if (!below)
        return NULL;
    vfs = *below;
    vfs.pNext = NULL;
    vfs.zName = "fpstore-wal";
    vfs.szOsFile = below->szOsFile + (int)sizeof(struct wal_file);
    vfs.xOpen = open_file;
    if (sqlite3_vfs_register(&vfs, 0) != SQLITE_OK)
        vfs.zName = NULL;
    return vfs.zName;
}
