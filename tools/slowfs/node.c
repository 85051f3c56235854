/*
 * What the kernel knows of the directory below: one O_PATH descriptor for each inode, found by (device, number).
 *
 * Called by all operations, on any thread. A node lives as long as the kernel may name it; its descriptor keeps the inode, so that
 * a number is not used again meanwhile. Paths are not kept: what others rename below is found all the same.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/slowfs/slowfs.h"

struct slow_fs *slow_of(fuse_req_t req)
{
    return fuse_req_userdata(req);
}

struct slow_node *slow_node(struct slow_fs *fs, fuse_ino_t ino)
{
    return ino == FUSE_ROOT_ID ? &fs->root : (struct slow_node *)(uintptr_t)ino;
}

const char *slow_path(const struct slow_node *n, char buf[SLOW_PATH_BUF])
{
    snprintf(buf, SLOW_PATH_BUF, "/proc/self/fd/%d", n->fd);
    return buf;
}

static struct slow_node **bucket(struct slow_fs *fs, dev_t dev, ino_t ino)
{
    return &fs->buckets[((uint64_t)ino * 0x9e3779b97f4a7c15u + dev) >> 52];
}

_Static_assert(SLOW_BUCKETS == 1u << 12, "12 bits are left by the shift");

/* Takes fd. */
static struct slow_node *node_for(struct slow_fs *fs, int fd, const struct stat *st)
{
    struct slow_node **at = bucket(fs, st->st_dev, st->st_ino), *n;

    pthread_mutex_lock(&fs->lock);
    for (n = *at; n && (n->ino != st->st_ino || n->dev != st->st_dev); n = n->next) {
    }
    if (n) {
        close(fd);
    } else if ((n = calloc(1, sizeof(*n)))) {
        *n = (struct slow_node){.next = *at, .dev = st->st_dev, .ino = st->st_ino, .fd = fd};
        *at = n;
    } else {
        close(fd);
    }
    if (n)
        n->lookups++;
    pthread_mutex_unlock(&fs->lock);
    return n;
}

int slow_find(struct slow_fs *fs, const struct slow_node *parent, const char *name, struct fuse_entry_param *e)
{
    int fd = openat(parent->fd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    struct slow_node *n;

    *e = (struct fuse_entry_param){0}; /* no time-outs: others may change what is below */
    if (fd < 0)
        return errno;
    if (fstatat(fd, "", &e->attr, AT_EMPTY_PATH) < 0) {
        int rc = errno;
        close(fd);
        return rc;
    }
    if (e->attr.st_dev == fs->root.dev && e->attr.st_ino == fs->root.ino) {
        close(fd);
        return ELOOP; /* a directory below itself: mounted there by others */
    }
    n = node_for(fs, fd, &e->attr);
    e->ino = (uintptr_t)n;
    return n ? 0 : ENOMEM;
}

int slow_found(struct slow_fs *fs, struct slow_node *n, struct fuse_entry_param *e)
{
    *e = (struct fuse_entry_param){.ino = (uintptr_t)n};
    if (fstatat(n->fd, "", &e->attr, AT_EMPTY_PATH) < 0)
        return errno;
    pthread_mutex_lock(&fs->lock);
    n->lookups++;
    pthread_mutex_unlock(&fs->lock);
    return 0;
}

void slow_forget(struct slow_fs *fs, fuse_ino_t ino, uint64_t lookups)
{
    struct slow_node *n = slow_node(fs, ino), **at, *gone = NULL;

    if (n == &fs->root)
        return;
    pthread_mutex_lock(&fs->lock);
    n->lookups -= lookups;
    if (n->lookups == 0) {
        for (at = bucket(fs, n->dev, n->ino); *at != n; at = &(*at)->next) {
        }
        *at = n->next;
        gone = n;
    }
    pthread_mutex_unlock(&fs->lock);
    if (gone)
        close(gone->fd);
    free(gone);
}

void slow_nodes_free(struct slow_fs *fs)
{
    for (unsigned i = 0; i < SLOW_BUCKETS; i++) {
        for (struct slow_node *n = fs->buckets[i], *next; n; n = next) {
            next = n->next;
            close(n->fd);
            free(n);
        }
    }
}
