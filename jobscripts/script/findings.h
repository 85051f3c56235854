/* What is wrong with a batch script: lines for its author, each with the place in the script. One thread. */
#ifndef JOB_FINDINGS_H
#define JOB_FINDINGS_H

#include <stdbool.h>
#include <stddef.h>

#define JOB_FINDINGS_MAX 100 /* of one script: what comes after is counted */

enum job_severity {
    JOB_ERROR,   /* the job would not do what is written */
    JOB_WARNING, /* it would, and that is hardly what is meant */
};

struct job_place {
    unsigned line, column; /* from 1 on; column 0: the whole line. In bytes, as compilers count */
};

/* Lines from here on are none of the script: options of sbatch that stand for a directive (script.h). */
#define JOB_LINE_OPTION 0x40000000u
#define JOB_LINE_NAME_BYTES 32u
/* "line 12", or the option: "--fp-cores". In buf, or constant. */
const char *job_line_name(unsigned line, char buf[JOB_LINE_NAME_BYTES]);

struct job_finding {
    struct job_place at;
    enum job_severity severity;
    char *text; /* without newline */
};

struct job_findings {
    struct job_finding *list; /* by place after job_findings_sort */
    size_t n, errors;         /* errors: of all, also of those beyond JOB_FINDINGS_MAX */
    size_t beyond;            /* not in the list */
};

void job_findings_init(struct job_findings *f);
void job_findings_fini(struct job_findings *f);

/* Out of memory aborts: called at the start of a command alone. */
void job_error(struct job_findings *f, struct job_place at, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
void job_warning(struct job_findings *f, struct job_place at, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

void job_findings_sort(struct job_findings *f);

/* "job.sh:12:5: error: ...", or "--fp-cores: error: ...", a line each, to stdout. */
/* Where it is, as in these lines: "job.sh:12:5" or "--fp-cores". */
void job_place_write(struct job_place at, const char *script, char *out, size_t size);
void job_findings_print(const struct job_findings *f, const char *script);

#endif
