/*
 * Symbolic links, which have names of their own (names.c), and what else there is of names: statfs. A link says for ever what it was made with, whatever it is called.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/app.h"

struct target {
    struct target *next;
    uint64_t ino;
    char text[40];
};

static struct target *targets;
static unsigned made;

static void learn(const struct app *a, uint64_t ino, const char *text)
{
    struct target *t = targets;

    while (t && t->ino != ino)
        t = t->next;
    if (t && strcmp(t->text, text))
        sim_fail("%s: symbolic link %llu says %s; it was made with %s", a->mount->name, (unsigned long long)ino, text, t->text);
    if (t)
        return;
    t = calloc(1, sizeof *t);
    *t = (struct target){.next = targets, .ino = ino};
    snprintf(t->text, sizeof t->text, "%s", text);
    targets = t;
}

static void make(struct app *a, struct name *n)
{
    char text[40];
    uint64_t ino = 0;
    int rc;

    snprintf(text, sizeof text, "../somewhere/%u", ++made);
    rc = vfs_symlink(a->mount, text, name_path(n), &ino);
    sim_trace("symlink %s to %s: %d, inode %llu", name_path(n), text, rc, (unsigned long long)ino);
    if (rc == 0) {
        name_is_new(n, model_file(ino));
        learn(a, ino, text);
    } else if (rc == -EEXIST) {
        name_exists(n);
    } else {
        name_maybe_new(n);
        app_error(a, "symlink", name_path(n), rc);
    }
    name_unlock(n, NULL, a->mount, rc != -EEXIST);
}

void link_look(struct app *a, struct name *n)
{
    char text[40];
    uint64_t ino = 0;
    int rc = vfs_readlink(a->mount, name_path(n), text, sizeof text, &ino);

    sim_trace("readlink %s: %d, inode %llu", name_path(n), rc, (unsigned long long)ino);
    if (rc >= 0) {
        name_is(n, model_file(ino));
        learn(a, ino, text);
    } else if (rc == -ENOENT) {
        name_is(n, NULL);
    } else {
        app_error(a, "readlink", name_path(n), rc);
    }
}

void app_link(struct app *a)
{
    struct name *n;
    struct statvfs fs;
    int rc;

    work_counts.symlinks++;
    if (app_pick(8) == 0) {
        rc = vfs_statfs(a->mount, &fs);
        if (rc == 0 && (fs.f_bfree > fs.f_blocks || fs.f_ffree > fs.f_files))
            sim_fail("%s: statfs tells of more that is free than there is", a->mount->name);
        app_error(a, "statfs", "of the root", rc);
        return;
    }
    n = app_name(NAME_LINK);
    name_lock(n, NULL);
    if (app_pick(2)) {
        make(a, n);
        return;
    }
    link_look(a, n);
    name_unlock(n, NULL, a->mount, false);
}
