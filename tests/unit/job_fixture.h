/* Batch scripts for tests of jobscripts/: what is read of them, and the mistakes as text. */
#ifndef JOB_FIXTURE_H
#define JOB_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "jobscripts/script/check.h"

struct jf {
    struct job_declared d;
    struct job_findings f;
    char text[16384]; /* "3:5 error ...\n" each, by place */
};

static inline void jf_tell(struct jf *x)
{
    size_t n = 0;

    job_findings_sort(&x->f);
    x->text[0] = '\0';
    for (size_t i = 0; i < x->f.n && n < sizeof x->text; i++)
        n += (size_t)snprintf(x->text + n, sizeof x->text - n, "%u:%u %s %s\n", x->f.list[i].at.line, x->f.list[i].at.column,
                              x->f.list[i].severity == JOB_ERROR ? "error" : "warning", x->f.list[i].text);
}

/* What the script declares. jf_end frees. */
static inline void jf_read(struct jf *x, const char *script)
{
    struct job_script s;

    memset(x, 0, sizeof *x);
    job_findings_init(&x->f);
    job_script_parse(script, &s, &x->f);
    job_declared_make(&s, &x->d, &x->f);
    jf_tell(x);
}

static inline void jf_end(struct jf *x)
{
    job_declared_fini(&x->d);
    job_findings_fini(&x->f);
}

/* No mistake at all. */
static inline void jf_good(struct jf *x, const char *script)
{
    jf_read(x, script);
    if (x->text[0])
        fail_msg("%s", x->text);
}

/* Exactly one, there, with this in it. */
static inline void jf_one(const struct jf *x, unsigned line, unsigned column, const char *part)
{
    if (x->f.n != 1 || x->f.list[0].at.line != line || x->f.list[0].at.column != column || !strstr(x->f.list[0].text, part))
        fail_msg("not one at %u:%u with '%s', but:\n%s", line, column, part, x->text);
}

static inline void jf_bad(const char *script, unsigned line, unsigned column, const char *part)
{
    struct jf x;

    jf_read(&x, script);
    jf_one(&x, line, column, part);
    jf_end(&x);
}

#endif
