/*
 * Complete checkpoint sets, told to aux-apps (set_complete).
 *
 * A set is complete when somebody says so: the xattr user.fp.checkpoint of its directory (or of its only file) is set to "complete". Programs know when their last
 * rank has closed its file, and every language can set an xattr; the manager keeps it as any other, so that it is still known later which sets are
 * whole. To guess it from names and silence was rejected for this: a guess that comes too early would have half a set copied as a whole.
 *
 * cl_aux_set_complete runs on the core loop, where the xattr was set; what it takes (a path, directories) is asked for by a service thread. All of
 * one set goes into one message, so it has a greatest size; a larger set is told to nobody, and the log says so: a part of it would be taken for the whole.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "client/aux/earlier.h"
#include "client/aux/event.h"
#include "client/aux/internal.h"
#include "client/aux/services.h"

#define ASK_MS     4000u
#define PAGE_NAMES 4096u
#define DEPTH_MAX  16u
#define TEXT_MAX   (FP_AUXW_MESSAGE_MAX_BYTES - sizeof(struct fp_auxw_set))

struct set {
    struct aux_task task;          /* first */
    uint64_t ino;
    uint32_t nfiles, len_bytes;
    char text[TEXT_MAX];           /* name NUL path NUL ... */
};

static int add_path(struct set *s, const char *path)
{
    size_t n = strlen(path) + 1;

    if (n > sizeof(s->text) - s->len_bytes)
        return -EMSGSIZE;
    memcpy(s->text + s->len_bytes, path, n);
    s->len_bytes += (uint32_t)n;
    return 0;
}

static int add_files(struct cl_aux *a, struct set *s, uint64_t dir, const char *path, unsigned depth);

static int add_entry(struct cl_aux *a, struct set *s, const Fp__DirEntry *e, const char *dir, unsigned depth)
{
    size_t at = strlen(dir);
    char path[4096];
    int rc = 0;

    if (!S_ISREG(e->mode) && !S_ISDIR(e->mode))
        return 0;
    if (at + 1 + e->name.len >= sizeof(path))
        return -ENAMETOOLONG;
    memcpy(path, dir, at);
    if (at > 0)
        path[at++] = '/';
    memcpy(path + at, e->name.data, e->name.len);
    path[at + e->name.len] = '\0';
    if (S_ISDIR(e->mode))
        return depth < DEPTH_MAX ? add_files(a, s, e->ino, path, depth + 1) : -ELOOP;
    rc = add_path(s, path);
    s->nfiles += rc == 0;
    return rc;
}

/* The regular files in a directory and below it, in the order in which they were made. */
static int add_files(struct cl_aux *a, struct set *s, uint64_t dir, const char *path, unsigned depth)
{
    Fp__ReadDir msg = FP__READ_DIR__INIT;
    bool eof = false;
    int rc = 0;

    msg.ino = dir;
    msg.max_entries = PAGE_NAMES;
    while (!eof && rc == 0) {
        Fp__ReadDirReply *r = NULL;
        uint8_t *packed;
        size_t len;

        rc = cl_aux_ask(a, FP__MSG_TYPE__MSG_READDIR, &msg.base, ASK_MS, &packed, &len);
        if (rc == 0 && !(r = fp__read_dir_reply__unpack(NULL, len, packed)))
            rc = -EPROTO;
        free(packed);
        if (!r)
            return rc;
        for (size_t i = 0; i < r->n_entries && rc == 0; i++) {
            rc = add_entry(a, s, r->entries[i], path, depth);
            msg.cookie = r->entries[i]->cookie;
        }
        eof = r->eof || r->n_entries == 0;
        fp__read_dir_reply__free_unpacked(r, NULL);
    }
    return rc;
}

/* The last number in a path. 0: it has none. */
static uint64_t step_of(const char *path)
{
    const char *end = path + strlen(path), *from;

    while (end > path && (end[-1] < '0' || end[-1] > '9'))
        end--;
    for (from = end; from > path && from[-1] >= '0' && from[-1] <= '9';)
        from--;
    return strtoull(from, NULL, 10);
}

static void tell_set(struct cl_aux *a, struct aux_task *t)
{
    struct set *s = (struct set *)t;
    struct aux_event *e = NULL;
    char name[4096] = "";
    int rc = cl_aux_path_of(a, s->ino, name, sizeof(name));

    if (rc == 0)
        rc = add_path(s, name);
    if (rc == 0)
        rc = add_files(a, s, s->ino, name, 0);
    if (rc == -ENOTDIR && (rc = add_path(s, name)) == 0)
        s->nfiles = 1;
    if (rc == 0 && s->nfiles == 0)
        rc = -ENOENT;
    if (rc == 0) {
        e = cl_aux_event_new(FP_AUXW_SET, (uint32_t)sizeof(struct fp_auxw_set) + s->len_bytes, 0);
        rc = e ? 0 : -ENOMEM;
    }
    if (e) {
        struct fp_auxw_set *m = (struct fp_auxw_set *)(void *)e->msg;

        m->step = step_of(name);
        m->nfiles = s->nfiles;
        memcpy(m + 1, s->text, s->len_bytes);
        cl_aux_call_submit(a, &e->call);
    } else {
        FP_WARN("no aux-app was told that checkpoint %s is complete: %s", name, rc == -EMSGSIZE ? "it has too many files"
             : rc == -ENOENT ? "it has no file" : fp_strerror(rc));
    }
    free(s);
}

void cl_aux_set_complete(struct cl_mount *m, uint64_t ino)
{
    struct cl_aux *a = m->aux;
    struct set *s = a && atomic_load(&a->wants_sets) ? calloc(1, sizeof(*s)) : NULL;

    if (!s)
        return;
    s->task.run = tell_set;
    s->ino = ino;
    cl_aux_task_post(a, &s->task);
}
