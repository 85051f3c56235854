/*
 * Loading a plugin: dlopen, the exported function, and all that can be checked about what it returns.
 *
 * Called at the start of the host and, for a coded chunk of an aux-app that nobody declared, when one is read; by fp-auxtest; by `fp-job check`. Any
 * thread, one at a time (dlopen has its own lock). RTLD_NOW, so that a missing symbol is found here and not in the middle of a
 * checkpoint; RTLD_LOCAL, so that two plugins may have functions of the same name. The plugin's table is copied: what a plugin of an
 * older header does not have reads as NULL, and nothing can change under the host. Not RTLD_DEEPBIND: it breaks the sanitizers, and an allocator of the plugin's own.
 */
#include "auxapps/host/load.h"

#include <ctype.h>
#include <dirent.h>
#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fp/opt.h"

#define NEAR_MAX 64

bool aux_name_ok(const char *name)
{
    size_t n = strlen(name);

    if (n < 1 || n > FP_AUX_NAME_MAX || name[0] < 'a' || name[0] > 'z')
        return false;
    return strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_-") == n;
}

/* "did you mean" for a name that is not in the plugin directory. */
static void not_found(const char *word, const char *dir, char *why)
{
    char *names[NEAR_MAX + 1] = {NULL};
    size_t n = 0;
    DIR *d = opendir(dir);
    struct dirent *e;

    while (d && n < NEAR_MAX && (e = readdir(d))) {
        size_t len = strlen(e->d_name);

        if (len > 3 && strcmp(e->d_name + len - 3, ".so") == 0) {
            names[n] = strndup(e->d_name, len - 3);
            n += names[n] != NULL;
        }
    }
    if (d)
        closedir(d);
    const char *near = fp_nearest_name(word, (const char *const *)names);

    if (near)
        snprintf(why, AUX_WHY_BYTES, "there is no aux-app '%s' in %s: did you mean '%s'?", word, dir, near);
    else
        snprintf(why, AUX_WHY_BYTES, "there is no aux-app '%s' in %s: name one that is there, or the path of a plugin, with a slash in it",
             word, dir);
    for (size_t i = 0; i < n; i++)
        free(names[i]);
}

static int find(struct aux_plugin *p, const char *word, const char *dir, char *why)
{
    char path[PATH_MAX];
    char real[PATH_MAX];

    p->from_dir = strchr(word, '/') == NULL;
    if (p->from_dir && !aux_name_ok(word)) {
        snprintf(why, AUX_WHY_BYTES, "'%s' is no name of an aux-app: small letters, digits, - and _, at most %u", word, FP_AUX_NAME_MAX);
        return -EINVAL;
    }
    int n = p->from_dir ? snprintf(path, sizeof(path), "%s/%s.so", dir, word) : snprintf(path, sizeof(path), "%s", word);

    if (n < 0 || (size_t)n >= sizeof(path) || !realpath(path, real)) {
        int rc = errno == ENOENT ? -ENOENT : -errno;

        if (p->from_dir && rc == -ENOENT)
            not_found(word, dir, why);
        else
            snprintf(why, AUX_WHY_BYTES, "%.500s: %s", path, strerror(-rc));
        return rc;
    }
    if (strlen(real) >= sizeof(p->path)) {
        snprintf(why, AUX_WHY_BYTES, "%.500s: the path is longer than %zu bytes", real, sizeof(p->path) - 1);
        return -ENAMETOOLONG;
    }
    memcpy(p->path, real, strlen(real) + 1);
    return 0;
}

static int note_text(struct dl_phdr_info *info, size_t size, void *arg)
{
    struct aux_plugin *p = arg;

    (void)size;
    if (strcmp(info->dlpi_name, p->path) != 0)
        return 0;
    for (size_t i = 0; i < info->dlpi_phnum && p->nranges < AUX_TEXT_RANGES; i++) {
        const ElfW(Phdr) *h = &info->dlpi_phdr[i];

        if (h->p_type == PT_LOAD && (h->p_flags & PF_X)) {
            p->range[p->nranges].from = info->dlpi_addr + h->p_vaddr;
            p->range[p->nranges].to = info->dlpi_addr + h->p_vaddr + h->p_memsz;
            p->nranges++;
        }
    }
    return 1;
}

static const char *check_options(struct aux_plugin *p, char *buf, size_t buf_bytes)
{
    const struct fp_aux_option *o = p->app.options;

    for (; o && o->name; o++) {
        if (!aux_name_ok(o->name) || ++p->noptions > 64) {
            snprintf(buf, buf_bytes, "has an option '%.40s': names are small letters, digits, - and _, and there are at most 64", o->name);
            return buf;
        }
        /* who takes no chunks has nothing that the host could verify */
        if (aux_word_is_own(o->name) && (strcmp(o->name, "verify") != 0 || p->app.chunk_out || p->app.write)) {
            snprintf(buf, buf_bytes, "has an option '%s', which is a word of the host", o->name);
            return buf;
        }
        for (const struct fp_aux_option *e = p->app.options; e < o; e++) {
            if (strcmp(e->name, o->name) == 0) {
                snprintf(buf, buf_bytes, "has two options '%s'", o->name);
                return buf;
            }
        }
        if (o->min > o->max) {
            snprintf(buf, buf_bytes, "has an option '%s' whose least value is above its greatest", o->name);
            return buf;
        }
    }
    return NULL;
}

/* What is wrong with the table, or NULL. */
static const char *check_table(struct aux_plugin *p, char *buf, size_t buf_bytes)
{
    const struct fp_aux_app *a = &p->app;

    if (!a->name || !aux_name_ok(a->name)) {
        snprintf(buf, buf_bytes, "calls itself '%.60s': a name is small letters, digits, - and _, at most %u", a->name ? a->name : "",
             FP_AUX_NAME_MAX);
        return buf;
    }
    if (!a->version || strlen(a->version) > FP_AUX_NAME_MAX)
        return "has no version, or a longer one than 23 bytes";
    if (!a->summary)
        return "has no summary";
    if (a->reserved != 0)
        return "has not left `reserved` at 0";
    if (a->flags & ~(FP_AUX_PARALLEL | FP_AUX_CODES | FP_AUX_REQUIRED | FP_AUX_HIDES))
        return "has a flag that this host does not know: it was built for a newer fpstore";
    if (a->chunk_out && a->write)
        return "has chunk_out and write: one of them";
    if ((a->flags & FP_AUX_HIDES) && !(a->flags & FP_AUX_CODES))
        return "says FP_AUX_HIDES and not FP_AUX_CODES: it can't replace what it is to hide";
    if ((a->flags & FP_AUX_CODES) && !a->chunk_in)
        return "says FP_AUX_CODES and has no chunk_in: nobody could read what it wrote";
    for (int i = 0; i < FP_AUX_OP_COUNT; i++) {
        if (a->io[i].flags & ~(FP_AUX_WAIT | FP_AUX_WANT_DATA))
            return "has a flag of a FUSE call that this host does not know: it was built for a newer fpstore";
        if (!a->io[i].fn && a->io[i].flags)
            return "has flags of a FUSE call without a function";
    }
    return check_options(p, buf, buf_bytes);
}

/* The exported table, copied. */
static int take_table(struct aux_plugin *p, const char *word, char *why)
{
    void *sym = dlsym(p->dl, FP_AUX_ENTRY);
    fp_aux_app_fn *entry;
    char buf[256];

    if (!sym) {
        snprintf(why, AUX_WHY_BYTES, "%s is not an aux-app: it exports no '%s' (macro FP_AUX_APP of fp/auxapp.h)", p->path, FP_AUX_ENTRY);
        return -ELIBBAD;
    }
    memcpy(&entry, &sym, sizeof(entry));
    const struct fp_aux_app *a = entry(FP_AUX_ABI);

    if (!a || a->abi != FP_AUX_ABI) {
        snprintf(why, AUX_WHY_BYTES, "%s was not built for ABI %u of aux-apps%s: build it again with this fpstore's fp/auxapp.h", p->path,
             FP_AUX_ABI, a ? " (but for another)" : "");
        return -ENOTSUP;
    }
    uint32_t n = a->size_bytes;

    if (n < offsetof(struct fp_aux_app, chunk_out) || n > (1u << 20)) {
        snprintf(why, AUX_WHY_BYTES, "%s: its size_bytes is %u: set it to sizeof(struct fp_aux_app)", p->path, n);
        return -ELIBBAD;
    }
    memcpy(&p->app, a, n < sizeof(p->app) ? n : sizeof(p->app));
    const char *wrong = check_table(p, buf, sizeof(buf));

    if (!wrong && p->from_dir && strcmp(p->app.name, word) != 0) {
        snprintf(buf, sizeof(buf), "calls itself '%s': its file must be %s.so, since coded chunks name it", p->app.name, p->app.name);
        wrong = buf;
    }
    if (!wrong)
        return 0;
    snprintf(why, AUX_WHY_BYTES, "%s %s", p->path, wrong);
    return -ELIBBAD;
}

int aux_plugin_load(const char *word, const char *plugin_dir, struct aux_plugin **out, char why[AUX_WHY_BYTES])
{
    struct aux_plugin *p = calloc(1, sizeof(*p));
    int rc;

    if (!p) {
        snprintf(why, AUX_WHY_BYTES, "out of memory");
        return -ENOMEM;
    }
    rc = find(p, word, plugin_dir, why);
    if (rc < 0)
        goto out;
    p->dl = dlopen(p->path, RTLD_NOW | RTLD_LOCAL);
    if (!p->dl) {
        const char *e = dlerror();

        snprintf(why, AUX_WHY_BYTES, "%s", e ? e : "dlopen failed");
        rc = -ELIBBAD;
        goto out;
    }
    rc = take_table(p, word, why);
    if (rc == 0)
        dl_iterate_phdr(note_text, p);
out:
    if (rc < 0)
        aux_plugin_free(p);
    else
        *out = p;
    return rc;
}

void aux_plugin_free(struct aux_plugin *p)
{
    if (!p)
        return;
    if (p->dl)
        dlclose(p->dl);
    free(p);
}
