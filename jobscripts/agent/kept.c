/*
 * What stays of stores on this node (see kept.h). Called by the agent of a job that begins, which tells the user of what earlier ones have left, and by fp-job clean.
 *
 * They are found by their names in the directory of ssd=, as no list of them is kept anywhere: it would say that a store is there which a site has cleared away.
 * How large one is is what its files take on the disk, and these are counted up to a limit, since a job's start waits for it.
 */
#include "jobscripts/agent/kept.h"

#include <dirent.h>
#include <fts.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "fp/log.h"
#include "fp/units.h"
#include "jobscripts/jobdir.h"

#define FILES_MAX 20000u
#define SHOWN_MAX 4u

static uint64_t bytes_in(const char *path)
{
    char *const paths[] = {(char *)(uintptr_t)path, NULL};
    FTS *t = fts_open(paths, FTS_PHYSICAL | FTS_NOCHDIR | FTS_XDEV, NULL);
    uint64_t bytes = 0;
    FTSENT *e;

    for (unsigned n = 0; t && n < FILES_MAX && (e = fts_read(t)); n++)
        if (e->fts_info == FTS_F)
            bytes += (uint64_t)e->fts_statp->st_blocks * 512;
    if (t)
        fts_close(t);
    return bytes;
}

static bool look_at(const char *path, const char *name, struct job_kept *out)
{
    memset(out, 0, sizeof *out);
    if (strlen(name) >= sizeof out->name || !job_dir_is_ours(path) || job_named_in_use(path))
        return false;
    strcpy(out->name, name);
    job_named_tell(path, &out->nodes, out->first, sizeof out->first, &out->when_s);
    out->bytes = bytes_in(path);
    return true;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct job_kept *)a)->name, ((const struct job_kept *)b)->name);
}

size_t job_kept_look(const char *ssd, const char *but, struct job_kept *out)
{
    char start[PATH_MAX], path[PATH_MAX];
    const char *begin;
    size_t n = 0, len;
    DIR *d;

    if (job_named_path(start, ssd, "") || !(d = opendir(ssd)))
        return 0;
    begin = strrchr(start, '/') + 1;
    len = strlen(begin);
    for (struct dirent *e; n < JOB_KEPT_MAX && (e = readdir(d));)
        if (strncmp(e->d_name, begin, len) == 0 && !job_dir_is_removed(e->d_name) && job_dir_file(path, ssd, e->d_name) == 0 &&
            !(but && strcmp(but, e->d_name + len) == 0) && look_at(path, e->d_name + len, &out[n]))
            n++;
    closedir(d);
    qsort(out, n, sizeof *out, by_name);
    return n;
}

char *job_kept_text(const struct job_kept *k, char out[JOB_KEPT_TEXT])
{
    char size[FP_UNITS_BUF], age[FP_UNITS_BUF];
    int64_t old = time(NULL) - k->when_s;

    snprintf(out, JOB_KEPT_TEXT, "%s, %s old", fp_format_size(size, k->bytes), fp_format_duration(age, old > 0 ? (uint64_t)old * 1000 : 0));
    return out;
}

void job_kept_write(const struct job_kept *list, size_t n, char *out, size_t size)
{
    size_t used = 0;

    out[0] = '\0';
    for (size_t i = 0; i < n; i++) {
        char one[JOB_NAME_BYTES + 48];
        size_t len = (size_t)snprintf(one, sizeof one, "%s%s:%llu:%lld", used ? "," : "", list[i].name, (unsigned long long)list[i].bytes, (long long)list[i].when_s);

        if (used + len >= size)
            return;
        memcpy(out + used, one, len + 1);
        used += len;
    }
}

void job_kept_with_hint(char *out, size_t size, const char *kept, const char *hint)
{
    snprintf(out, size, "%s%s%s", kept, hint[0] ? "\n" : "", hint);
}

const char *job_kept_hint(const char *text)
{
    const char *end = text ? strchr(text, '\n') : NULL;

    return end ? end + 1 : "";
}

/* The next of it; *text goes behind it. */
static bool read_one(const char **text, struct job_kept *out)
{
    unsigned long long bytes;
    long long when_s;
    bool ok;

    memset(out, 0, sizeof *out);
    ok = sscanf(*text, "%63[^:,]:%llu:%lld", out->name, &bytes, &when_s) == 3;
    *text += strcspn(*text, ",\n");
    *text += **text == ',';
    if (ok) {
        out->bytes = bytes;
        out->when_s = when_s;
        out->nodes = 1;
    }
    return ok;
}

/* One of them on all nodes: what it takes there, and how old it is where it is youngest. */
static void add(struct job_kept *all, size_t *n, const struct job_kept *one)
{
    size_t i = 0;

    while (i < *n && strcmp(all[i].name, one->name) != 0)
        i++;
    if (i == JOB_KEPT_MAX)
        return;
    if (i == *n) {
        all[(*n)++] = *one;
        return;
    }
    all[i].nodes++;
    all[i].bytes += one->bytes;
    all[i].when_s = one->when_s > all[i].when_s ? one->when_s : all[i].when_s;
}

void job_kept_tell(const struct job_states *s, const char *ssd)
{
    struct job_kept *all = calloc(JOB_KEPT_MAX, sizeof *all), one;
    char text[JOB_KEPT_TEXT];
    size_t n = 0;

    for (uint32_t i = 0; all && i < s->n; i++)
        for (const char *c = s->nodes[i].text ? s->nodes[i].text : ""; *c && *c != '\n' && read_one(&c, &one);)
            add(all, &n, &one);
    for (size_t i = 0; i < n && i < SHOWN_MAX; i++)
        FP_INFO("an earlier job of yours has left the store %s on %u of this job's nodes (%s): #FP store ssd=%s persistent=%s finds it, fp-job clean --named=%s --ssd=%s on each of them removes it",
                all[i].name, all[i].nodes, job_kept_text(&all[i], text), ssd, all[i].name, all[i].name, ssd);
    if (n > SHOWN_MAX)
        FP_INFO("and %zu others: fp-job clean --kept --ssd=%s names those of a node", n - SHOWN_MAX, ssd);
    free(all);
}
