/*
 * Aux-app convert in a batch script (convertcheck.h). Called by check.c.
 *
 * The schema is read by fp-convert itself, in a process of its own, with a limit: what it says of line and column there is what it would say when the mount starts, hours later on another node. That drain
 * carries the dump too is no mistake, but mostly not what was meant, so it is a warning.
 */
#include "jobscripts/script/convertcheck.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "fp/beside.h"
#include "fp/command.h"
#include "fp/err.h"

static struct job_place place(const struct job_line *l, const char *option)
{
    const struct job_word *w = job_line_word(l, option);

    return w ? w->at : l->words[1].at;
}

static const char *value(const struct job_line *l, const char *option, const char *otherwise)
{
    const struct job_word *w = job_line_word(l, option);

    return w ? w->text + w->value : otherwise;
}

/* One line of what fp-convert says; its own name before it is left out. */
static void check_schema(const struct job_line *l, const char *schema, const char *from, struct job_findings *f)
{
    static const char *const tails[] = {"fp-convert", NULL};
    char program[PATH_MAX], kind[40], said[1024] = "";
    char *argv[] = {(char *)"/bin/sh", (char *)"-c", (char *)"exec \"$0\" \"$@\" 2>&1 >/dev/null", program, (char *)"schema", (char *)"check", kind, (char *)(uintptr_t)schema, NULL};
    const char *text = said;
    int rc;

    fp_beside(program, sizeof program, tails);
    snprintf(kind, sizeof kind, "--from=%s", strcmp(from, "fortran") == 0 ? "fortran" : "raw");
    rc = fp_command(argv, JOB_ANSWER_MS, said, sizeof said);
    said[strcspn(said, "\n")] = '\0';
    if (strncmp(text, "fp-convert: ", 12) == 0)
        text += 12;
    if (rc == -ETIMEDOUT)
        job_error(f, place(l, "schema"), "%s: its file system does not answer", schema);
    else if (rc)
        job_error(f, place(l, "schema"), "%s", *text ? text : "the schema can't be checked: fp-convert is not beside fp-job");
}

/* Options that only fp-convert knows, of a conversion that there is no input for: it ends with 2 where it does not take one. */
static void check_codec(const struct job_line *l, struct job_findings *f)
{
    static const char *const tails[] = {"fp-convert", NULL};
    char program[PATH_MAX], compress[200], chunk[200], said[1024] = "";
    char *argv[] = {(char *)"/bin/sh", (char *)"-c", (char *)"exec \"$0\" \"$@\" 2>&1 >/dev/null", program, (char *)"run", (char *)"--from=npy", (char *)"--to=hdf5", compress, chunk,
                    (char *)"--out=/dev/null/none.h5", (char *)"/dev/null/none.npy", NULL};
    const char *text = said;

    if ((!job_line_word(l, "compress") && !job_line_word(l, "chunk")) || strchr(value(l, "compress", ""), '$') || strchr(value(l, "chunk", ""), '$'))
        return; /* variables have their values on the nodes */
    fp_beside(program, sizeof program, tails);
    snprintf(compress, sizeof compress, "--compress=%s", value(l, "compress", "none"));
    snprintf(chunk, sizeof chunk, "--chunk=%s", value(l, "chunk", "auto"));
    if (fp_command(argv, JOB_ANSWER_MS, said, sizeof said) != 2)
        return;
    said[strcspn(said, "\n")] = '\0';
    text += strncmp(text, "fp-convert: ERROR: ", 19) == 0 ? 19 : 0;
    job_error(f, place(l, strstr(text, "--chunk") ? "chunk" : "compress"), "%s", text);
}

static bool leads_up(const char *path)
{
    for (; *path; path += strcspn(path, "/"), path += *path == '/')
        if (strncmp(path, "..", 2) == 0 && (path[2] == '/' || !path[2]))
            return true;
    return false;
}

/* As the aux-app says it when the mount starts (auxapps/convert). */
static void check_together(const struct job_line *l, const char *from, const char *to, struct job_findings *f)
{
    const char *into = value(l, "into", ""), *pattern = value(l, "pattern", "");

    if (into[0] == '/' || leads_up(into))
        job_error(f, place(l, "into"), "'%s': a directory of the store, without a slash before it and without ..", into);
    if (leads_up(pattern) || strstr(pattern, "//"))
        job_error(f, place(l, "pattern"), "'%s': no file has .. or two slashes side by side in its path", pattern);
    if (strcmp(value(l, "join", "auto"), "vds") == 0 && strcmp(value(l, "xdmf", "off"), "on") == 0)
        job_error(f, place(l, "join"), "xdmf=on has one node make the whole result: it does not go with join=vds");
    if (strcmp(value(l, "keep", "raw"), "none") == 0 && (strcmp(from, "hdf5") == 0 || strcmp(from, "adios") == 0))
        job_error(f, place(l, "keep"), "keep=none is not for from=hdf5 and from=adios: what is no array of numbers in them does not get into the result");
    for (const char *const *o = (const char *const[]){"compress", "checksum", "chunk", NULL}; *o && strcmp(to, "netcdf3") == 0; o++)
        if (job_line_word(l, *o) && strcmp(value(l, *o, ""), strcmp(*o, "chunk") == 0 ? "auto" : "none") != 0)
            job_error(f, place(l, *o), "%s= is for to=hdf5 and to=netcdf", *o);
}

static void check_words(const struct job_line *l, const struct job_site *site, struct job_findings *f)
{
    const char *from = value(l, "from", "raw"), *to = value(l, "to", "hdf5"), *schema = value(l, "schema", NULL), *pattern = value(l, "pattern", NULL);

    if (!pattern || !*pattern)
        job_error(f, pattern ? place(l, "pattern") : l->words[1].at, "convert does not say which files are dumps: pattern=run/dump_*/rank_*.raw");
    else if (pattern[0] == '/')
        job_error(f, place(l, "pattern"), "'%s': a path in the store, without a slash before it", pattern);
    if (!schema && (strcmp(from, "raw") == 0 || strcmp(from, "fortran") == 0))
        job_error(f, l->words[1].at, "convert from=%s needs schema=FILE, which says what is in the dumps: fpctl schema guess makes a draft", from);
    else if (schema && schema[0] != '/' && schema[0] != '$')
        job_error(f, place(l, "schema"), "'%s': an absolute path, since it is read on the nodes", schema);
    else if (schema && schema[0] == '/' && !strchr(schema, '$') && !site->words)
        check_schema(l, schema, from, f);
    if (strcmp(to, "hdf5") != 0 && strcmp(value(l, "xdmf", "off"), "on") == 0)
        job_error(f, place(l, "xdmf"), "xdmf=on is for to=hdf5");
    if (strcmp(to, "hdf5") != 0 && strcmp(value(l, "join", "auto"), "vds") == 0)
        job_error(f, place(l, "join"), "join=vds is for to=hdf5");
    check_together(l, from, to, f);
    if (!site->words)
        check_codec(l, f);
}

void job_check_convert(const struct job_declared *d, const struct job_site *site, struct job_findings *f)
{
    const struct job_auxapp *convert = job_declared_auxapp(d, "convert"), *drain = job_declared_drain(d);

    if (!convert)
        return;
    check_words(convert->line, site, f);
    if (drain && !job_line_word(drain->line, "pattern") && !job_line_word(drain->line, "results") && strcmp(value(convert->line, "keep", "raw"), "raw") == 0)
        job_warning(f, drain->line->words[1].at, "drain carries the dumps that convert reads, too: pattern=run/dump_{step}.h5 has the results drained alone");
}
