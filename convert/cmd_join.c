/*
 * fp-convert join: one HDF5 file of parts that several nodes have made (run --only), as a virtual dataset. Called by main.
 *
 * The result holds no data: it names the parts, relative to itself, so that all of them can be copied to another directory together.
 */
#include <errno.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "convert/command.h"
#include "convert/engine/result.h"
#include "convert/filelist.h"
#include "convert/model.h"
#include "convert/sink/sink.h"
#include "fp/opt.h"

struct words {
    const char *out, *converted, *of;
    struct fp_strlist parts, files_from; /* one list, or none */
    struct cv_filelist all; /* with those of the list */
    bool replace;
    int64_t status_fd;
};

static const struct fp_opt options[] = {
    FP_OPT_LIST(struct words, parts, "part", NULL, CV_FILES_MAX, "Files that fp-convert run --only has made, in the directory of the result.", .flags = FP_OPT_POSITIONAL | FP_OPT_NO_FILE | FP_OPT_WHOLE, .arg = "PART"),
    FP_OPT_LIST(struct words, files_from, "files0-from", NULL, 1, "Parts are in FILE, too, behind those that are words. A NUL byte ends each name, as find -print0 writes them; - is standard input.",
                  .flags = FP_OPT_NO_FILE | FP_OPT_WHOLE, .arg = "FILE"),
    FP_OPT_PATH(struct words, out, "out", NULL, "The result.", .flags = FP_OPT_REQUIRED | FP_OPT_NO_FILE, .arg = "FILE"),
    FP_OPT_BOOL(struct words, replace, "replace", "off", "Replace what is there under the name of the result.", .flags = FP_OPT_NO_FILE),
    FP_OPT_STRING(struct words, converted, "converted", NULL, "Value of the result's attribute user.fp.converted.", .flags = FP_OPT_NO_FILE | FP_OPT_HIDDEN, .arg = "NAME"),
    FP_OPT_STRING(struct words, of, "of", NULL, "Value of the result's attribute user.fp.convert_of.", .flags = FP_OPT_NO_FILE | FP_OPT_HIDDEN, .arg = "TEXT"),
    FP_OPT_INT(struct words, status_fd, "status-fd", "-1", -1, 1 << 20, "Write a line of JSON to this descriptor that says why it failed.", .flags = FP_OPT_NO_FILE, .arg = "N"),
    FP_OPT_END,
};

static const struct fp_opt_table table = {
    .prog = "fp-convert",
    .section = NULL,
    .usage = "fp-convert join --out=FILE [OPTION]... PART...",
    .summary = "Make an HDF5 file that shows the parts, each of some blocks, as whole arrays.",
    .opts = options,
};

/* The real directory of a path. */
static bool directory_of(const char *path, char dir[PATH_MAX])
{
    char copy[PATH_MAX];

    snprintf(copy, sizeof copy, "%s", path);
    return realpath(dirname(copy), dir) != NULL;
}

/* Whose elements would be counted twice. */
static int look_for_twins(const char *const *names, size_t n, struct cv_fail *why)
{
    const char **sorted = malloc((n + 1) * sizeof *sorted);
    int rc = sorted ? 0 : cv_fail(why, -ENOMEM, NULL, NULL, CV_NO_OFFSET, "out of memory");

    if (sorted && n) {
        memcpy(sorted, names, n * sizeof *sorted);
        qsort(sorted, n, sizeof *sorted, cv_filelist_order);
    }
    for (size_t i = 1; rc == 0 && i < n; i++)
        if (strcmp(sorted[i], sorted[i - 1]) == 0)
            rc = cv_fail(why, -EINVAL, sorted[i], NULL, CV_NO_OFFSET, "it is given twice");
    free(sorted);
    return rc;
}

/* Names of the parts as the result says them: they lie beside it. */
static int names_of(const struct words *w, const char **names, struct cv_fail *why)
{
    char dir[PATH_MAX], other[PATH_MAX];

    if (!directory_of(w->out, dir))
        return cv_fail(why, -EINVAL, w->out, NULL, CV_NO_OFFSET, "its directory is not there");
    for (size_t i = 0; i < w->all.count; i++) {
        const char *slash = strrchr(w->all.items[i], '/');

        if (!directory_of(w->all.items[i], other) || strcmp(other, dir) != 0)
            return cv_fail(why, -EINVAL, w->all.items[i], NULL, CV_NO_OFFSET, "it is not in the directory of the result, %s", dir);
        names[i] = slash ? slash + 1 : w->all.items[i];
    }
    return look_for_twins(names, w->all.count, why);
}

static int join(const struct words *w, struct cv_fail *why)
{
    struct cv_result result = {.temporary = ""};
    const char **names = calloc(w->all.count + 1, sizeof *names);
    int rc = names ? names_of(w, names, why) : cv_fail(why, -ENOMEM, NULL, NULL, CV_NO_OFFSET, "out of memory");

    for (size_t i = 0; rc == 0 && i < w->all.count; i++)
        rc = cv_result_spares(w->out, w->all.items[i], why);
    rc = rc ? rc : cv_result_spares(w->out, w->files_from.count ? w->files_from.items[0] : NULL, why);
    rc = rc ? rc : cv_result_begin(&result, w->out, why);
    rc = rc ? rc : cv_vds_write(result.temporary, w->all.items, names, w->all.count, why);
    if (rc == 0)
        cv_result_made(&result);
    rc = rc ? rc : cv_result_name(&result, w->converted, w->of, w->replace, why);
    if (rc)
        cv_result_remove(&result);
    cv_result_fini(&result);
    free(names);
    return rc;
}

int cv_join_command(int argc, char **argv)
{
    static struct words w;
    static struct cv_fail why;
    struct fp_opts *opts = fp_opt_parse_or_exit(&table, &w, argc, argv);
    int rc;

    if (!w.parts.count && !w.files_from.count)
        return cv_command_mistake("PART is missing (or --files0-from)", "join");
    rc = cv_filelist_fill(&w.all, &w.parts, w.files_from.count ? w.files_from.items[0] : NULL, &why);
    if (rc == -EINVAL) {
        rc = cv_command_bad_list(&why, "join");
    } else {
        rc = rc ? rc : join(&w, &why);
        rc = rc ? cv_command_failed(rc, &why, (int)w.status_fd) : 0;
    }
    cv_filelist_free(&w.all);
    fp_opts_free(opts);
    return rc;
}
