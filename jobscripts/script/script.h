/*
 * The #FP lines of a batch script, as words. What they mean is declared.h's.
 *
 *     #FP store    ssd=$TMPDIR size=32GiB mount=/AggregateSSDstore
 *     #FP auxapp   drain to="/lustre/my project" every=4      # a comment
 *
 * A line is one if "#FP" stands at its very beginning, with a blank or nothing behind, and no command stands before it: where sbatch stops to read
 * its own, fp-job does so, too. Words are separated by blanks; "..." and '...' keep blanks, and a # that begins a word begins a comment.
 *
 * What options of sbatch declare (spank/) is put before the script, in lines "#FP+ cores 1": these count as no lines of it, and are none elsewhere.
 */
#ifndef JOB_SCRIPT_H
#define JOB_SCRIPT_H

#include <stddef.h>

#include "jobscripts/script/findings.h"
#include "jobscripts/script/sbatch.h"

#define JOB_SCRIPT_BYTES_MAX (4u << 20) /* as Slurm's max_script_size is by default */
#define JOB_LINE_BYTES_MAX   8192u

struct job_word {
    char *text;           /* without quotes */
    size_t value;         /* of NAME=VALUE: where VALUE begins in text; 0: it is none */
    struct job_place at;  /* where it begins */
    unsigned value_column; /* where VALUE begins in the line, with its quote */
};

struct job_line {
    struct job_word *words; /* the first one names the directive; at least one */
    size_t nwords;
    unsigned line;
};

struct job_script {
    struct job_line *lines;
    size_t nlines;
};

/* The order of option_names in findings.c. */
enum job_directive { JOB_STORE, JOB_CORES, JOB_AUXAPP, JOB_STAGE_IN, JOB_STAGE_OUT, JOB_DIRECTIVES };
extern const char *const job_directive_names[JOB_DIRECTIVES + 1]; /* NULL at the end */

/* NAME=VALUE behind the first word; NULL: it is not given. */
const struct job_word *job_line_word(const struct job_line *l, const char *name);

/* Puts directives ("cores 1", a line each; NULL: none) before the text of a script, in place of *text. */
void job_script_add(char **text, const char *directives);

/* The text again, without all that says nothing here: only the #FP lines are left of it, each with its number. The caller's. */
char *job_script_lines(const char *text);
/* text: NUL-terminated, borrowed. What can't be read is in f, and its line is left out. job_script_fini frees. */
void job_script_parse(const char *text, struct job_script *out, struct job_findings *f);
/* From a file, or standard input ("-"), with its #SBATCH lines and directives before it. 0, or a negative errno of reading it: -EFBIG, -EINVAL (it is no text). */
int job_script_read(const char *path, const char *directives, struct job_script *out, struct job_sbatch *sbatch, struct job_findings *f);
/* The same of a text, which is freed. */
void job_script_make(char *text, const char *directives, struct job_script *out, struct job_sbatch *sbatch, struct job_findings *f);
void job_script_fini(struct job_script *s);
/* The whole text of a file, or of standard input ("-"): NUL-terminated, the caller's. Errors as job_script_read. */
int job_script_text(const char *path, char **out);

#endif
