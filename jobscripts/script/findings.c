/*
 * The mistakes of a batch script (see findings.h). All of them are told at once, in the form that editors jump by, since an author who mends one of
 * five and waits in the queue for the next has lost an hour.
 */
#include "jobscripts/script/findings.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void job_findings_init(struct job_findings *f)
{
    memset(f, 0, sizeof *f);
}

void job_findings_fini(struct job_findings *f)
{
    for (size_t i = 0; i < f->n; i++)
        free(f->list[i].text);
    free(f->list);
    job_findings_init(f);
}

static void add(struct job_findings *f, struct job_place at, enum job_severity severity, const char *fmt, va_list ap)
{
    struct job_finding one = {.at = at, .severity = severity};

    f->errors += severity == JOB_ERROR;
    if (f->n == JOB_FINDINGS_MAX) {
        f->beyond++;
        return;
    }
    if (!f->list)
        f->list = calloc(JOB_FINDINGS_MAX, sizeof *f->list);
    if (!f->list || vasprintf(&one.text, fmt, ap) < 0)
        abort();
    for (char *p = one.text; *p; p++) /* words of the script are in it, and it is to be one line */
        if ((unsigned char)*p < ' ' || *p == 0x7f)
            *p = '?';
    f->list[f->n++] = one;
}

void job_error(struct job_findings *f, struct job_place at, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    add(f, at, JOB_ERROR, fmt, ap);
    va_end(ap);
}

void job_warning(struct job_findings *f, struct job_place at, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    add(f, at, JOB_WARNING, fmt, ap);
    va_end(ap);
}

static int by_place(const void *a, const void *b)
{
    const struct job_place *x = &((const struct job_finding *)a)->at, *y = &((const struct job_finding *)b)->at;

    if (x->line != y->line)
        return x->line < y->line ? -1 : 1;
    return x->column < y->column ? -1 : x->column > y->column;
}

void job_findings_sort(struct job_findings *f)
{
    if (f->n)
        qsort(f->list, f->n, sizeof *f->list, by_place);
}

/* In the order of enum job_directive. */
static const char *const option_names[] = {"--fp-store", "--fp-cores", "--fp-auxapps", "--fp-stage-in", "--fp-stage-out"};

const char *job_line_name(unsigned line, char buf[JOB_LINE_NAME_BYTES])
{
    unsigned i = line - JOB_LINE_OPTION;

    if (line >= JOB_LINE_OPTION)
        return i < sizeof option_names / sizeof option_names[0] ? option_names[i] : "an option of sbatch";
    snprintf(buf, JOB_LINE_NAME_BYTES, "line %u", line);
    return buf;
}

void job_place_write(struct job_place at, const char *script, char *out, size_t size)
{
    char buf[JOB_LINE_NAME_BYTES];

    if (at.line >= JOB_LINE_OPTION) /* columns would be those of the directive that was made of it */
        snprintf(out, size, "%s", job_line_name(at.line, buf));
    else if (at.column)
        snprintf(out, size, "%s:%u:%u", script, at.line, at.column);
    else
        snprintf(out, size, "%s:%u", script, at.line);
}

void job_findings_print(const struct job_findings *f, const char *script)
{
    char where[4200];

    for (size_t i = 0; i < f->n; i++) {
        job_place_write(f->list[i].at, script, where, sizeof where);
        printf("%s: %s: %s\n", where, f->list[i].severity == JOB_ERROR ? "error" : "warning", f->list[i].text);
    }
    if (f->beyond)
        printf("%s: and %zu more\n", script, f->beyond);
}
