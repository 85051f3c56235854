/*
 * The table of open files (see files.h), and what follows from the last close: holds are released, and aux-apps are told of a sealed file.
 *
 * cl_aux_file_opened runs on the core loop, cl_aux_file_closed on FUSE or store threads. A file that is opened again while its last close is still being
 * published keeps its serial: it was never closed as far as anybody can tell. But a reader may keep the file open for ever, and an aux-app compares with what
 * was there when it first met the serial. So a cut to 0 renews it all the same, and so does an open for writing while nobody has the file open for that: a
 * version of it begins. (Not the open that follows a cut, whose notes are kept for it.) A file counts as written if the manager's version of its data has
 * changed between; so nothing is paid for in write(2).
 */
#include "client/aux/files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "client/aux/events.h"
#include "client/aux/holds.h"
#include "client/aux/internal.h"
#include "client/data.h"
#include "client/inode.h"

#define BUCKETS 1024u

struct aux_file {
    TAILQ_ENTRY(aux_file) link;    /* by serial */
    struct aux_file *next;         /* hash by inode */
    uint64_t first, serial;        /* at the first open, and now; its handles have any of these */
    uint32_t handles, writers;     /* writers: handles that may write */
    bool was_written;              /* it had one */
    bool fresh;                    /* nobody has had it open for writing with this serial */
    uint64_t version;              /* of its data, at the first open */
    struct aux_file_name name;
    struct aux_packed *notes;
    uint32_t nnotes;
};

TAILQ_HEAD(aux_file_list, aux_file);

struct aux_files {
    pthread_mutex_t lock;          /* below inode->lock and holds */
    struct aux_file_list all;
    struct aux_file *bucket[BUCKETS];
    uint64_t last;
};

static struct aux_file **by_ino(struct aux_files *t, uint64_t ino)
{
    struct aux_file **p = &t->bucket[ino % BUCKETS];

    while (*p && (*p)->name.ino != ino)
        p = &(*p)->next;
    return p;
}

static struct aux_file *by_serial(struct aux_files *t, uint64_t serial)
{
    struct aux_file *f;

    TAILQ_FOREACH_REVERSE(f, &t->all, aux_file_list, link)
        if (f->serial <= serial)
            break;
    return f && f->serial == serial ? f : NULL;
}

int cl_aux_files_new(struct cl_aux *a)
{
    a->files = calloc(1, sizeof(*a->files));
    if (!a->files)
        return -ENOMEM;
    pthread_mutex_init(&a->files->lock, NULL);
    TAILQ_INIT(&a->files->all);
    return 0;
}

void cl_aux_packed_free(struct aux_packed *answers, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        free(answers[i].bytes);
    free(answers);
}

static void file_free(struct aux_file *f)
{
    cl_aux_packed_free(f->notes, f->nnotes);
    free(f);
}

void cl_aux_files_free(struct cl_aux *a)
{
    struct aux_file *f;

    if (!a->files)
        return;
    while ((f = TAILQ_FIRST(&a->files->all))) { /* open when the mount went */
        TAILQ_REMOVE(&a->files->all, f, link);
        file_free(f);
    }
    pthread_mutex_destroy(&a->files->lock);
    free(a->files);
    a->files = NULL;
}

bool cl_aux_files_written(struct cl_aux *a, uint64_t serial)
{
    struct aux_file *f;
    bool written;

    pthread_mutex_lock(&a->files->lock);
    f = by_serial(a->files, serial);
    written = f && f->writers > 0;
    pthread_mutex_unlock(&a->files->lock);
    return written;
}

/* -------------------------------------------------------------- open */

static struct aux_file *file_new(struct aux_files *t, struct aux_file **at, const struct cl_inode *inode)
{
    struct aux_file *f = calloc(1, sizeof(*f));

    if (!f)
        return NULL;
    f->first = f->serial = ++t->last;
    f->fresh = true;
    f->name.ino = inode->ino;
    f->version = inode->attr.data_version;
    *at = f;
    TAILQ_INSERT_TAIL(&t->all, f, link);
    return f;
}

/* lock held: a version of it begins. */
static void renew(struct aux_files *t, struct aux_file *f)
{
    cl_aux_packed_free(f->notes, f->nnotes);
    f->notes = NULL;
    f->nnotes = 0;
    f->serial = ++t->last;
    f->fresh = f->writers == 0;
    TAILQ_REMOVE(&t->all, f, link);
    TAILQ_INSERT_TAIL(&t->all, f, link);
}

static bool writes(const struct cl_handle *h)
{
    return (h->flags & O_ACCMODE) != O_RDONLY;
}

void cl_aux_file_opened(struct cl_mount *m, struct cl_handle *h)
{
    struct aux_files *t = m->aux->files;
    struct cl_inode *inode = h->inode;
    struct aux_file **at, *f;

    pthread_mutex_lock(&inode->lock);
    pthread_mutex_lock(&t->lock);
    at = by_ino(t, inode->ino);
    f = *at ? *at : file_new(t, at, inode);
    if (f && writes(h) && f->writers == 0 && !f->fresh)
        renew(t, f);
    if (f) {
        f->fresh &= !writes(h);
        f->handles++;
        f->writers += writes(h);
        f->was_written |= writes(h);
        h->aux_serial = inode->aux_serial = f->serial;
    }
    pthread_mutex_unlock(&t->lock);
    pthread_mutex_unlock(&inode->lock);
}

uint64_t cl_aux_files_renew(struct cl_aux *a, struct cl_inode *inode)
{
    struct aux_file *f;
    uint64_t serial = 0;

    pthread_mutex_lock(&inode->lock);
    pthread_mutex_lock(&a->files->lock);
    f = *by_ino(a->files, inode->ino);
    if (f) {
        renew(a->files, f);
        serial = inode->aux_serial = f->serial;
    }
    pthread_mutex_unlock(&a->files->lock);
    pthread_mutex_unlock(&inode->lock);
    return serial;
}

void cl_aux_files_named(struct cl_aux *a, uint64_t ino, uint64_t parent, const char *name)
{
    struct aux_file *f;

    pthread_mutex_lock(&a->files->lock);
    f = *by_ino(a->files, ino);
    if (f && strlen(name) < sizeof(f->name.name)) {
        f->name.parent = parent;
        strcpy(f->name.name, name);
    }
    pthread_mutex_unlock(&a->files->lock);
}

uint64_t cl_aux_files_last_serial(struct cl_aux *a)
{
    struct aux_files *t = a->files;
    uint64_t last;

    pthread_mutex_lock(&t->lock);
    last = t->last;
    pthread_mutex_unlock(&t->lock);
    return last;
}

bool cl_aux_files_find(struct cl_aux *a, uint64_t serial, struct aux_file_name *out)
{
    struct aux_file *f;

    pthread_mutex_lock(&a->files->lock);
    f = by_serial(a->files, serial);
    if (f)
        *out = f->name;
    pthread_mutex_unlock(&a->files->lock);
    return f != NULL;
}

void cl_aux_files_keep_notes(struct cl_aux *a, uint64_t serial, struct aux_packed *answers, uint32_t n)
{
    struct aux_file *f;

    pthread_mutex_lock(&a->files->lock);
    f = by_serial(a->files, serial);
    if (f && f->nnotes == 0) {
        f->notes = answers;
        f->nnotes = n;
        answers = NULL;
    }
    pthread_mutex_unlock(&a->files->lock);
    if (answers)
        cl_aux_packed_free(answers, n);
}

struct aux_packed *cl_aux_files_take_notes(struct cl_aux *a, uint64_t serial, uint32_t *n)
{
    struct aux_packed *notes = NULL;
    struct aux_file *f;

    *n = 0;
    pthread_mutex_lock(&a->files->lock);
    f = by_serial(a->files, serial);
    if (f) {
        notes = f->notes;
        *n = f->nnotes;
        f->notes = NULL;
        f->nnotes = 0;
    }
    pthread_mutex_unlock(&a->files->lock);
    return notes;
}

/* -------------------------------------------------------------- close */

/* The file's last handle is gone: out of the table, if so. *serial: now. *last_writer: nobody may write to it any more. */
static struct aux_file *last_close(struct aux_files *t, const struct cl_handle *h, uint64_t *serial, bool *last_writer)
{
    struct aux_file **at, *f;

    pthread_mutex_lock(&t->lock);
    at = by_ino(t, h->inode->ino);
    f = *at;
    if (f && (h->aux_serial < f->first || h->aux_serial > f->serial))
        f = NULL;
    *serial = f ? f->serial : h->aux_serial;
    *last_writer = f && writes(h) && --f->writers == 0;
    if (f && --f->handles == 0) {
        *at = f->next;
        TAILQ_REMOVE(&t->all, f, link);
    } else {
        f = NULL;
    }
    pthread_mutex_unlock(&t->lock);
    return f;
}

void cl_aux_file_closed(struct cl_mount *m, struct cl_handle *h)
{
    struct cl_aux *a = m->aux;
    struct cl_inode *inode = h->inode;
    bool written, unlinked, last_writer = false;
    struct fp_aux_file file = { .size_bytes = sizeof(file), .ino = inode->ino };
    struct aux_file *f = h->aux_serial ? last_close(a->files, h, &file.file_serial, &last_writer) : NULL;

    if (last_writer)
        cl_aux_holds_closed(a, file.file_serial);
    if (!f)
        return;
    pthread_mutex_lock(&inode->lock);
    /* One that was made here has got its version with the manager's answer, perhaps after it was opened. */
    written = f->was_written && inode->attr.data_version != f->version && (inode->attr.size_bytes > 0 || !f->name.parent);
    unlinked = inode->attr.nlink == 0;
    file.uid = inode->attr.uid;
    file.gid = inode->attr.gid;
    file.mode = inode->attr.mode;
    file.len_bytes = inode->attr.size_bytes;
    file.mtime_ns = inode->attr.mtime_ns;
    file.data_version = inode->attr.data_version;
    pthread_mutex_unlock(&inode->lock);
    if (written && !unlinked && atomic_load(&a->wants_files))
        cl_aux_events_sealed(a, &file);
    file_free(f);
}
