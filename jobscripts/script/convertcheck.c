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

static void check_words(const struct job_line *l, const struct job_site *site, struct job_findings *f)
{
    const char *from = value(l, "from", "raw"), *to = value(l, "to", "hdf5"), *schema = value(l, "schema", NULL), *pattern = value(l, "pattern", NULL);

    if (!pattern)
        job_error(f, l->words[1].at, "convert does not say which files are dumps: pattern=run/dump_*/rank_*.raw");
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
