/*
 * Reads the #FP lines of a batch script (see script.h). Pure but for memory and the reading of the file.
 *
 * Variables are left as they are written: most of them have a value only on the nodes of the job ($TMPDIR), and another one on each (node_store.c expands
 * them there). A #FP line behind the first command is a mistake and not obeyed: sbatch has the same rule for its own lines, a text in a here-document
 * would else become a directive, and one that is silently passed over would be a job without a store. A line of such a text is neither: scripts make others.
 */
#include "jobscripts/script/script.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "jobscripts/script/calls.h"
#include "jobscripts/script/naming.h"

#define NO_BREAK "\xc2\xa0" /* as word processors and web pages have it */

struct reader {
    struct job_findings *f;
    const char *text; /* all of it */
    bool *seen;       /* job_naming_text, once it is needed */
    const char *line; /* the present one */
    size_t len;
    unsigned number;
};

static void *must(void *p)
{
    if (!p)
        abort();
    return p;
}

static struct job_place here(const struct reader *r, size_t at)
{
    return (struct job_place){.line = r->number, .column = (unsigned)at + 1};
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

static size_t skip_blanks(const struct reader *r, size_t at)
{
    while (at < r->len && is_blank(r->line[at]))
        at++;
    return at;
}

const char *const job_directive_names[JOB_DIRECTIVES + 1] = {"store", "cores", "auxapp", "stage-in", "stage-out", NULL};

static void word_free(struct job_word *w)
{
    free(w->text);
}

static void line_free(struct job_line *l)
{
    for (size_t i = 0; i < l->nwords; i++)
        word_free(&l->words[i]);
    free(l->words);
}

/* From *at on, where no blank is. False: it has no end, and f has it. */
static bool take_word(const struct reader *r, size_t *at, struct job_word *w)
{
    size_t i = *at, n = 0, opened = 0;
    char quote = '\0';

    memset(w, 0, sizeof *w);
    w->at = here(r, i);
    w->text = must(malloc(r->len - i + 1));
    for (; i < r->len && (quote || !is_blank(r->line[i])); i++) {
        char c = r->line[i];

        if (quote ? c == quote : c == '"' || c == '\'') {
            quote = quote ? '\0' : c;
            opened = i;
            continue;
        }
        w->text[n++] = c;
        if (c == '=' && !quote && !w->value) {
            w->value = n;
            w->value_column = (unsigned)i + 2;
        }
    }
    w->text[n] = '\0';
    *at = i;
    if (!quote)
        return true;
    job_error(r->f, here(r, opened), "this quote is not closed");
    word_free(w);
    return false;
}

/* What stands behind #FP, or #FP+. False: it is no directive (a mistake, or a comment alone). */
static bool take_line(const struct reader *r, size_t at, struct job_line *l)
{
    memset(l, 0, sizeof *l);
    l->line = r->number;
    for (at = skip_blanks(r, at); at < r->len && r->line[at] != '#'; at = skip_blanks(r, at)) {
        struct job_word w;

        if (!take_word(r, &at, &w)) {
            line_free(l);
            return false;
        }
        l->words = must(reallocarray(l->words, l->nwords + 1, sizeof *l->words));
        l->words[l->nwords++] = w;
    }
    if (!l->nwords)
        job_error(r->f, here(r, 0), "nothing is declared here: write #FP store, cores, auxapp, stage-in or stage-out");
    return l->nwords > 0;
}

static bool is_added(const struct reader *r)
{
    return r->len > 5 && memcmp(r->line, "#FP+ ", 5) == 0;
}

/* For messages: which option of sbatch it was. */
static unsigned option_line(const struct reader *r)
{
    for (unsigned i = 0; i < JOB_DIRECTIVES; i++) {
        size_t n = strlen(job_directive_names[i]);

        if (r->len - 5 >= n && memcmp(r->line + 5, job_directive_names[i], n) == 0 && (r->len - 5 == n || is_blank(r->line[5 + n])))
            return JOB_LINE_OPTION + i;
    }
    return JOB_LINE_OPTION + JOB_DIRECTIVES;
}

static bool is_directive(const struct reader *r)
{
    return r->len >= 3 && memcmp(r->line, "#FP", 3) == 0 && (r->len == 3 || is_blank(r->line[3]));
}

/* What somebody wrote who meant a directive: "# FP", "#fp", " #FP", "#FP:". Nothing of prose about "#FP lines" in a comment is. */
static bool looks_like_one(const struct reader *r)
{
    size_t at = skip_blanks(r, 0);

    if (at >= r->len || r->line[at] != '#')
        return false;
    at = skip_blanks(r, at + 1);
    if (r->len - at < 3 || strncasecmp(r->line + at, "fp", 2) != 0)
        return false;
    at += 2;
    while (at < r->len && (is_blank(r->line[at]) || r->line[at] == ':' || strchr(NO_BREAK, r->line[at])))
        at++;
    for (size_t i = 0; i < JOB_DIRECTIVES; i++) {
        size_t n = strlen(job_directive_names[i]);

        if (r->len - at >= n && strncasecmp(r->line + at, job_directive_names[i], n) == 0 && (r->len - at == n || is_blank(r->line[at + n])))
            return true;
    }
    return false;
}

static bool is_command(const struct reader *r)
{
    size_t at = skip_blanks(r, 0);

    return at < r->len && r->line[at] != '#';
}

static bool has_control(const struct reader *r)
{
    for (size_t i = 0; i < r->len; i++)
        if (iscntrl((unsigned char)r->line[i]) && !is_blank(r->line[i])) {
            job_error(r->f, here(r, i), "there is a control character in this line");
            return true;
        }
    const char *space = memmem(r->line, r->len, NO_BREAK, strlen(NO_BREAK)), *comment = r->len > 3 ? memchr(r->line + 3, '#', r->len - 3) : NULL;

    if (space && (!comment || space < comment)) {
        job_error(r->f, here(r, (size_t)(space - r->line)), "this is a no-break space, which looks like a blank and is none");
        return true;
    }
    return false;
}

static void add_line(const struct reader *r, size_t at, struct job_script *out)
{
    struct job_line l;

    if (r->len > JOB_LINE_BYTES_MAX) {
        job_error(r->f, here(r, JOB_LINE_BYTES_MAX), "this line is longer than %u bytes", JOB_LINE_BYTES_MAX);
        return;
    }
    if (has_control(r) || !take_line(r, at, &l))
        return;
    out->lines = must(reallocarray(out->lines, out->nlines + 1, sizeof *out->lines));
    out->lines[out->nlines++] = l;
}

/* In a here-document or in quotes, where another script may be made of it. */
static bool is_text(struct reader *r)
{
    r->seen = r->seen ? r->seen : job_naming_text(r->text);
    return r->seen[r->line - r->text];
}

static void one_line(struct reader *r, struct job_script *out, bool commands)
{
    if (!is_directive(r)) {
        if (!commands && looks_like_one(r))
            job_warning(r->f, here(r, 0), "this is no directive, only a comment: one begins with #FP and a blank, at the beginning of the line");
        return;
    }
    if (commands && is_text(r))
        return;
    if (commands) {
        job_error(r->f, here(r, 0), "a #FP line behind the first command is not read: write it before, beside the #SBATCH lines");
        return;
    }
    add_line(r, 3, out);
}

void job_script_parse(const char *text, struct job_script *out, struct job_findings *f)
{
    struct reader r = {.f = f};
    bool commands = false;

    text += strncmp(text, JOB_SCRIPT_BOM, strlen(JOB_SCRIPT_BOM)) == 0 ? strlen(JOB_SCRIPT_BOM) : 0;
    r.text = text;

    memset(out, 0, sizeof *out);
    while (*text) {
        r.line = text;
        r.len = strcspn(text, "\n");
        r.number++;
        text += r.len + (text[r.len] == '\n');
        if (r.number == 1 && is_added(&r)) {
            r.number = option_line(&r);
            add_line(&r, 5, out);
            r.number = 0;
            continue;
        }
        one_line(&r, out, commands);
        commands = commands || is_command(&r);
    }
    free(r.seen);
}

const struct job_word *job_line_word(const struct job_line *l, const char *name)
{
    size_t n = strlen(name);

    for (size_t i = 1; i < l->nwords; i++)
        if (l->words[i].value == n + 1 && memcmp(l->words[i].text, name, n) == 0)
            return &l->words[i];
    return NULL;
}

char *job_script_lines(const char *text)
{
    char *out = must(malloc(strlen(text) + 2));
    size_t n = 0, used = 0;
    struct reader r = {0};

    for (bool commands = false; *text && !commands;) {
        r.line = text;
        r.len = strcspn(text, "\n");
        text += r.len + (text[r.len] == '\n');
        commands = is_command(&r);
        if (is_directive(&r) || is_added(&r)) {
            memcpy(out + n, r.line, r.len);
            n += r.len;
            used = n + 1;
        }
        out[n++] = '\n';
    }
    out[used] = '\0';
    return out;
}

void job_script_fini(struct job_script *s)
{
    for (size_t i = 0; i < s->nlines; i++)
        line_free(&s->lines[i]);
    free(s->lines);
    memset(s, 0, sizeof *s);
}

/* All of fd, NUL-terminated, and without a NUL in it. */
static int slurp(int fd, char **out)
{
    size_t n = 0, room = 0;
    char *text = NULL;
    ssize_t got;

    do {
        if (room - n < 65536)
            text = must(realloc(text, room += 1u << 20));
        got = read(fd, text + n, room - n - 1);
        if (got < 0 && errno == EINTR)
            got = 1;
        else if (got > 0)
            n += (size_t)got;
    } while (got > 0 && n <= JOB_SCRIPT_BYTES_MAX);
    int rc = got < 0 ? -errno : n > JOB_SCRIPT_BYTES_MAX ? -EFBIG : memchr(text, 0, n) ? -EINVAL : 0;

    text[n] = '\0';
    if (rc)
        free(text);
    else
        *out = text;
    return rc;
}

int job_script_text(const char *path, char **out)
{
    int fd = strcmp(path, "-") == 0 ? dup(STDIN_FILENO) : open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY), rc;

    if (fd < 0)
        return -errno;
    rc = slurp(fd, out);
    close(fd);
    return rc;
}

void job_script_add(char **text, const char *directives)
{
    size_t lines = 1, n = 0;
    char *all;

    if (!directives || !*directives)
        return;
    for (const char *c = directives; *c; c++)
        lines += *c == '\n';
    all = must(malloc(strlen(directives) + lines * 6 + strlen(*text) + 1));
    while (*directives) {
        size_t len = strcspn(directives, "\n");

        n += (size_t)sprintf(all + n, "#FP+ %.*s\n", (int)len, directives);
        directives += len + (directives[len] == '\n');
    }
    strcpy(all + n, *text);
    free(*text);
    *text = all;
}

/* With --fp of sbatch, by which fp-job run is around the script, it is in time. */
static void check_early(const char *text, const char *directives, struct job_findings *f)
{
    struct job_place at;

    if (!directives && !strstr(text, "\n#SBATCH --fp") && job_naming_early(text, &at))
        job_error(f, at, JOB_NAMING_EARLY);
}

void job_script_make(char *text, const char *directives, struct job_script *out, struct job_sbatch *sbatch, struct job_findings *f)
{
    check_early(text, directives, f);
    job_sbatch_read(text, sbatch, f); /* its lines have the numbers that they have in the file */
    job_script_add(&text, directives);
    job_script_parse(text, out, f);
    if (!directives)
        job_calls_check(text, out, f);
    free(text);
}

int job_script_read(const char *path, const char *directives, struct job_script *out, struct job_sbatch *sbatch, struct job_findings *f)
{
    char *text;
    int rc = job_script_text(path, &text);

    memset(out, 0, sizeof *out);
    if (rc)
        return rc;
    job_script_make(text, directives, out, sbatch, f);
    return 0;
}
