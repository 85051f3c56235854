/*
 * What the kernel is told without having asked.
 *
 * Called on FUSE threads, on the core loop, which is there before the session and after it, and on threads for locks (lockwork.h). None of them takes the
 * session from struct cl_mount, which is main()'s: the kernel could be told something by a session that is half made, or freed meanwhile. So it is here
 * between FUSE_INIT and the end of the loop alone, and whoever uses it holds the lock, for reading.
 *
 * One of them may wait for pages (cl_notify_inode), and the FUSE thread that is to bring these may tell the kernel something itself: a mutex would hold it up,
 * and a lock that lets no reader pass a waiting writer, too. The lock is one that prefers readers, which is what there is by default. Its writers come
 * when nothing waits for pages: before the first request, and after the threads for locks have ended.
 */
#include "client/notify.h"

#define FUSE_USE_VERSION 317
#include <errno.h>
#include <fuse_lowlevel.h>
#include <pthread.h>
#include <stddef.h>

struct notice {
    uint64_t ino; /* 0: all names */
    int64_t off_bytes, len_bytes;
};

static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static struct fuse_session *session; /* lock */

static void set_session(struct fuse_session *se)
{
    pthread_rwlock_wrlock(&lock);
    session = se;
    pthread_rwlock_unlock(&lock);
}

void cl_notify_start(struct fuse_session *se)
{
    set_session(se);
}

void cl_notify_stop(void)
{
    set_session(NULL);
}

/* A name has the epoch in which it was asked for. */
static int next_epoch(struct fuse_session *se)
{
#if FUSE_VERSION >= FUSE_MAKE_VERSION(3, 18)
    return fuse_lowlevel_notify_increment_epoch(se);
#else
    (void)se;
    return -ENOSYS;
#endif
}

/* The only one that uses the session beside main() and shutdown.c. */
static int tell(const struct notice *n)
{
    pthread_rwlock_rdlock(&lock);
    int rc = !session  ? -ENOTCONN
             : !n->ino ? next_epoch(session)
                       : fuse_lowlevel_notify_inval_inode(session, n->ino, n->off_bytes, n->len_bytes);
    pthread_rwlock_unlock(&lock);
    return rc;
}

int cl_notify_inode(uint64_t ino, int64_t off_bytes, int64_t len_bytes)
{
    return tell(&(struct notice){.ino = ino, .off_bytes = off_bytes, .len_bytes = len_bytes});
}

int cl_notify_names(void)
{
    return tell(&(struct notice){0});
}
