/*
 * Where a batch script names the directory of mount= (see naming.h). Called by fp-job start and run, before anything is started.
 *
 * On nodes where the store can't be mounted there it is mounted elsewhere, and a script that names the directory would write to another place without a word.
 *
 * The script is read as a shell reads it, as far as that matters here: quotes and backslashes are taken away, comments are passed over, a text in a
 * here-document counts, as it may be the input of the application. What the shell would make of variables and patterns is not known. Where that is in doubt the directory is
 * named: a job that does not start says why, and data in another place is not missed before it is gone. A grep of all lines was rejected, since scripts tell in
 * comments of what they do.
 */
#include "jobscripts/script/naming.h"

#include <ctype.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define HERE_MAX 8u /* here-documents that begin in one line */

struct here {
    const char *word; /* at its end; points into the text, quotes and all */
    size_t len;
    bool tabs; /* <<-: its lines may begin with some */
};

struct reader {
    const char *text, *c; /* c: what comes next */
    char *plain;          /* what the shell sees, without quotes; NUL-terminated at the end */
    uint32_t *from;       /* of each byte of it, where it stands in text */
    char *how;            /* and how: OUTSIDE of quotes, in such as variables are put in, or as it is */
    size_t n;
    char quote; /* ', ", $ for $'...'; NUL: none */
    struct here here[HERE_MAX];
    size_t nhere;
};

enum { OUTSIDE, IN_QUOTES, AS_IT_IS };

static void put(struct reader *r, const char *c)
{
    bool escaped = c > r->text && c[-1] == '\\';

    r->how[r->n] = escaped || r->quote == '\'' || r->quote == '$' ? AS_IT_IS : r->quote ? IN_QUOTES : OUTSIDE;
    r->from[r->n] = (uint32_t)(c - r->text);
    r->plain[r->n++] = *c;
}

/* ---------------------------------------------------------------- here-documents */

static bool is_end(const struct here *h, const char *line, size_t len)
{
    size_t i = 0;

    while (h->tabs && len && *line == '\t') {
        line++;
        len--;
    }
    for (size_t k = 0; k < h->len; k++)
        if (!strchr("'\"\\", h->word[k]) && (i == len || line[i++] != h->word[k]))
            return false;
    return i == len;
}

/* The line that ends it, from c on; NULL: there is none, and it was no here-document but a shift ($((1<<3))). */
static const char *end_of(const struct here *h, const char *c)
{
    for (; *c; c += strcspn(c, "\n"), c += *c == '\n')
        if (is_end(h, c, strcspn(c, "\n")))
            return c;
    return NULL;
}

/* At the beginning of a line: all that the one before has announced. */
static void take_heres(struct reader *r)
{
    for (size_t i = 0; i < r->nhere; i++) {
        const char *end = end_of(&r->here[i], r->c);

        while (end && r->c < end)
            put(r, r->c++);
        if (end)
            r->c += strcspn(r->c, "\n") + (strchr(r->c, '\n') != NULL);
    }
    r->nhere = 0;
}

/* Behind <<. */
static void announce(struct reader *r)
{
    struct here h = {.tabs = *r->c == '-'};
    char quote = '\0';

    r->c += h.tabs;
    while (*r->c == ' ' || *r->c == '\t')
        r->c++;
    h.word = r->c;
    for (; *r->c && *r->c != '\n' && (quote || !strchr(" \t;&|()<>", *r->c)); r->c++)
        if (quote ? *r->c == quote : *r->c == '\'' || *r->c == '"')
            quote = quote ? '\0' : *r->c;
    h.len = (size_t)(r->c - h.word);
    if (h.len && r->nhere < HERE_MAX)
        r->here[r->nhere++] = h;
}

/* ---------------------------------------------------------------- reading */

static void in_quotes(struct reader *r)
{
    if (*r->c == (r->quote == '$' ? '\'' : r->quote)) {
        r->quote = '\0';
        r->c++;
        return;
    }
    if (*r->c == '\\' && r->quote != '\'' && r->c[1])
        r->c++;
    put(r, r->c++);
}

static bool begins_word(const struct reader *r)
{
    return r->c == r->text || strchr(" \t\r\n;&|()`", r->c[-1]);
}

static void outside(struct reader *r)
{
    if (*r->c == '#' && begins_word(r)) {
        r->c += strcspn(r->c, "\n");
    } else if (*r->c == '\\' && r->c[1]) {
        r->c++;
        if (*r->c != '\n') /* else the line goes on */
            put(r, r->c);
        r->c++;
    } else if (*r->c == '$' && (r->c[1] == '\'' || r->c[1] == '"')) {
        r->quote = r->c[1] == '"' ? '"' : '$';
        r->c += 2;
    } else if (*r->c == '\'' || *r->c == '"') {
        r->quote = *r->c++;
    } else if (strncmp(r->c, "<<<", 3) == 0) {
        for (int i = 0; i < 3; i++)
            put(r, r->c++);
    } else if (strncmp(r->c, "<<", 2) == 0) {
        put(r, r->c);
        r->c += 2;
        announce(r);
    } else {
        put(r, r->c);
        if (*r->c++ == '\n')
            take_heres(r);
    }
}

/* ---------------------------------------------------------------- finding */

/* What the name of a file goes on with: it is another one then. */
static bool is_part(char c)
{
    return isalnum((unsigned char)c) || (c && strchr("_.-~@%+", c)) || (unsigned char)c >= 0x80;
}

/* What stands before it is a path that it is a part of ($HOME/store for /store), and no option (-o/store). */
static bool is_below(const char *all, const char *at)
{
    size_t n = (size_t)(at - all);

    if (n >= 2 && at[-2] == '-' && isalpha((unsigned char)at[-1]) && (n == 2 || isspace((unsigned char)at[-3])))
        return false;
    return n && (isalnum((unsigned char)at[-1]) || strchr("_.~}*?])", at[-1]) || (unsigned char)at[-1] >= 0x80);
}

/* $NAME or ${NAME} at text. Returns the length of NAME, which begins at *name, and where it goes on; 0: it is none. */
static size_t variable(const char *text, const char **name, const char **next)
{
    bool brace = text[0] == '$' && text[1] == '{';
    size_t n = 0;

    *name = text + 1 + brace;
    while (text[0] == '$' && (isalnum((unsigned char)(*name)[n]) || (*name)[n] == '_'))
        n++;
    if (brace && (*name)[n] != '}')
        n = 0;
    *next = *name + n + brace;
    return n;
}

/* dir stands at text, however many slashes are between its parts and however its variables are written. */
static bool stands(const char *text, const char *dir)
{
    while (*dir) {
        const char *a, *b, *behind_a, *behind_b;
        size_t n = variable(dir, &a, &behind_a);

        if (n && (variable(text, &b, &behind_b) != n || memcmp(a, b, n) != 0))
            return false;
        if (!n && *text != *dir)
            return false;
        if (!n && *dir == '/')
            text += strspn(text, "/") - 1;
        text = n ? behind_b : text + 1;
        dir = n ? behind_a : dir + 1;
    }
    return !is_part(*text);
}

/* ${FP_MOUNT:- and its like, before it. */
static bool is_default(const char *all, const char *at)
{
    static const char *const before[] = {"${FP_MOUNT:-", "${FP_MOUNT-", "${FP_MOUNT:=", "${FP_MOUNT="};

    for (size_t i = 0; i < sizeof before / sizeof before[0]; i++) {
        size_t n = strlen(before[i]);

        if ((size_t)(at - all) >= n && memcmp(at - n, before[i], n) == 0)
            return true;
    }
    return false;
}

/* Where, in what a shell has read; NULL: nowhere. */
static const char *find(const char *all, const char *dir)
{
    if (strcmp(dir, "/") == 0 || !*dir)
        return NULL; /* each path would be below it */
    for (const char *at = all; (at = strchr(at, *dir)); at += *at == '/' ? strspn(at, "/") : 1)
        if (!is_below(all, at) && !is_default(all, at) && stands(at, dir))
            return at;
    return NULL;
}

static struct job_place place(const char *text, const char *at)
{
    struct job_place p = {.line = 1, .column = 1};

    for (; text < at; text++) {
        p.column = *text == '\n' ? 1 : p.column + 1;
        p.line += *text == '\n';
    }
    return p;
}

static void read_all(struct reader *r, const char *text)
{
    size_t size = strlen(text) + 1;

    *r = (struct reader){.text = text, .c = text, .plain = malloc(size), .from = malloc(size * sizeof *r->from), .how = malloc(size)};
    if (!r->plain || !r->from || !r->how)
        abort();
    while (*r->c)
        r->quote ? in_quotes(r) : outside(r);
    r->plain[r->n] = '\0';
}

static void reader_fini(struct reader *r)
{
    free(r->plain);
    free(r->from);
    free(r->how);
}

bool *job_naming_text(const char *text)
{
    bool *is = calloc(strlen(text) + 1, sizeof *is);
    struct reader r;

    if (!is)
        abort();
    read_all(&r, text);
    for (size_t i = 0; i < r.n; i++)
        is[r.from[i]] = true;
    reader_fini(&r);
    return is;
}

bool job_naming_find(const char *text, const char *dir, struct job_place *at)
{
    struct reader r;
    const char *found;

    while (strncmp(text, "#FP+ ", 5) == 0 && strchr(text, '\n')) /* of options of sbatch: no lines of the script */
        text = strchr(text, '\n') + 1;
    read_all(&r, text);
    found = find(r.plain, dir);
    if (found)
        *at = place(text, text + r.from[found - r.plain]);
    reader_fini(&r);
    return found != NULL;
}

/* Behind "fp-job run ", wherever a command may begin. NULL: there is none any more. */
static const char *next_run(const char *c)
{
    static const char run[] = "fp-job run ";

    for (; (c = strstr(c, run)); c++)
        if (c[sizeof run - 1])
            return c + sizeof run - 1;
    return NULL;
}

/* $FP_MOUNT or ${FP_MOUNT}, and not what is taken if it is not set. */
static bool is_mount(const char *c)
{
    const char *name, *next;

    return *c == '$' && variable(c, &name, &next) == strlen("FP_MOUNT") && memcmp(name, "FP_MOUNT", strlen("FP_MOUNT")) == 0;
}

bool job_naming_early(const char *text, struct job_place *at)
{
    const char *found = NULL;
    struct reader r;

    read_all(&r, text);
    if (!strstr(r.plain, "FP_MOUNT=") && !strstr(r.plain, "fp-job start"))
        for (const char *c = r.plain; !found && (c = next_run(c));)
            for (; *c && !found && !(r.how[c - r.plain] == OUTSIDE && strchr("\n;&|", *c)); c++)
                found = r.how[c - r.plain] != AS_IT_IS && is_mount(c) ? c : NULL;
    if (found)
        *at = place(text, text + r.from[found - r.plain]);
    reader_fini(&r);
    return found != NULL;
}

bool job_naming_word(const char *word, const char *dir)
{
    return find(word, dir) != NULL;
}
