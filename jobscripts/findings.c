/*
 * The mistakes of a batch script (see findings.h). All of them are told at once, in the form that editors jump by, since an author who mends one of
 * five and waits in the queue for the next has lost an hour.
 */
#include "jobscripts/findings.h"

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

void job_findings_print(const struct job_findings *f, const char *script)
{
    for (size_t i = 0; i < f->n; i++) {
        const struct job_finding *one = &f->list[i];

        printf("%s:%u:", script, one->at.line);
        if (one->at.column)
            printf("%u:", one->at.column);
        printf(" %s: %s\n", one->severity == JOB_ERROR ? "error" : "warning", one->text);
    }
    if (f->beyond)
        printf("%s: and %zu more\n", script, f->beyond);
}
