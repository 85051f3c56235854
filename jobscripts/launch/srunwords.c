/*
 * Words of srun (see srunwords.h). Called by fp-job run, which has to put a program before the command where a store is in a user namespace.
 *
 * Which options take a word of their own is what srun itself says (--help), since versions and a site's plugins differ; a table of ours was rejected. Nothing is guessed:
 * an option that is not told of, and has no "=", ends it with an error that says what to write.
 */
#include "jobscripts/launch/srunwords.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fp/command.h"
#include "fp/err.h"
#include "fp/log.h"

#define HELP_MS    10000u
#define HELP_BYTES (256u << 10)

enum takes { UNKNOWN, NOTHING, ATTACHED, A_WORD };

/* One option of the help, from its "--" on; what stands behind the name says what it takes. */
static enum takes kind_of(const char *option, size_t len)
{
    static const char container[] = "--container"; /* whose value the help of some versions leaves out */

    if (option[len] == '=' || (len == sizeof container - 1 && strncmp(option, container, len) == 0))
        return A_WORD;
    return option[len] == '[' ? ATTACHED : NOTHING;
}

static size_t name_len(const char *option)
{
    return 2 + strcspn(option + 2, "=[ \t\n,");
}

/* The next option of the help: its letter (0: none) and its long name. NULL: no more. A line of one begins with blanks and a dash, and a dash in the text of another is behind words. */
static const char *next_option(const char **line, char *letter)
{
    while (**line) {
        const char *c = *line + strspn(*line, " \t"), *end = *line + strcspn(*line, "\n");

        *line = *end ? end + 1 : end;
        *letter = 0;
        if (c[0] != '-')
            continue;
        if (c[1] != '-' && c[1]) {
            *letter = c[1];
            c += 2;
            c += strspn(c, ", \t");
        }
        if (strncmp(c, "--", 2) == 0)
            return c;
    }
    return NULL;
}

static enum takes of_letter(const char *help, char wanted)
{
    const char *option;
    char letter;

    while ((option = next_option(&help, &letter)))
        if (letter == wanted)
            return kind_of(option, name_len(option));
    return UNKNOWN;
}

/* By its name, or a beginning of it that no other one has. *name: the whole of it. */
static enum takes of_name(const char *help, const char *word, size_t len, const char **name, size_t *name_bytes)
{
    enum takes found = UNKNOWN;
    const char *option;
    unsigned like = 0;
    char letter;

    while ((option = next_option(&help, &letter))) {
        size_t n = name_len(option);

        if (n < len || strncmp(option, word, len) != 0 || (like && n == *name_bytes && strncmp(option, *name, n) == 0))
            continue;
        found = kind_of(option, n);
        *name = option;
        *name_bytes = n;
        if (n == len)
            return found;
        like++;
    }
    return like == 1 ? found : UNKNOWN;
}

/* Of a word such as -lN: of the last letter that matters. *attached: its value is in the word. */
static enum takes of_letters(const char *help, const char *word, bool *attached)
{
    enum takes t = UNKNOWN;

    for (const char *c = word + 1; *c; c++) {
        t = of_letter(help, *c);
        *attached = c[1] != '\0';
        if (t != NOTHING)
            return t;
    }
    return t;
}

static bool is_name(const char *name, size_t len, const char *wanted)
{
    return len == strlen(wanted) && strncmp(name, wanted, len) == 0;
}

/* Whether the word takes the next one, too; negative: it can't be told. */
static int takes_next(const char *help, const char *word, char *why)
{
    bool attached = false;
    size_t len = strcspn(word, "="), bytes = len;
    const char *name = word;
    enum takes t;

    if (word[1] != '-')
        t = of_letters(help, word, &attached);
    else {
        t = of_name(help, word, len, &name, &bytes);
        attached = word[len] == '=';
        t = t == UNKNOWN && attached ? ATTACHED : t;
    }
    if (is_name(name, bytes, "--multi-prog") || is_name(name, bytes, "--bcast")) {
        snprintf(why, JOB_SRUN_WHY_BYTES, "%.*s names its programs itself", (int)(bytes < 60 ? bytes : 60), name);
        return -EINVAL;
    }
    if (t == UNKNOWN) {
        snprintf(why, JOB_SRUN_WHY_BYTES, "srun --help does not tell of %.60s", word);
        return -EINVAL;
    }
    return t == A_WORD && !attached;
}

int job_srun_words(const char *help, char *const argv[], size_t *at, char why[JOB_SRUN_WHY_BYTES])
{
    size_t i = 1;

    for (; argv[i] && argv[i][0] == '-' && argv[i][1] && strcmp(argv[i], "--") != 0; i++) {
        int next = takes_next(help, argv[i], why);

        if (next < 0)
            return next;
        if (next && !argv[++i])
            break;
    }
    if (argv[i] && strcmp(argv[i], "--") == 0)
        i++;
    if (!argv[i] || strcmp(argv[i], ":") == 0) {
        snprintf(why, JOB_SRUN_WHY_BYTES, "there is no command in it");
        return -EINVAL;
    }
    for (size_t k = i; argv[k]; k++)
        if (strcmp(argv[k], ":") == 0) {
            snprintf(why, JOB_SRUN_WHY_BYTES, "it has more than one command (\":\")");
            return -EINVAL;
        }
    *at = i;
    return 0;
}

char **job_srun_wrap(char *const argv[], char *wrapper)
{
    char *const ask[] = {(char *)(uintptr_t)argv[0], (char *)"--help", NULL};
    char *help = malloc(HELP_BYTES), why[JOB_SRUN_WHY_BYTES], **out = NULL;
    size_t n = 0, at = 0;
    int rc = help ? fp_command(ask, HELP_MS, help, HELP_BYTES) : -ENOMEM;

    if (rc)
        snprintf(why, sizeof why, "srun --help: %.100s", rc > 0 ? "it fails" : fp_strerror(rc));
    else
        rc = job_srun_words(help, argv, &at, why);
    free(help);
    while (argv[n])
        n++;
    out = rc ? NULL : calloc(n + 2, sizeof *out);
    if (!out) {
        FP_ERROR("where the command stands in this call of srun can't be told (%s): write srun [OPTION]... %s COMMAND...", rc ? why : "out of memory", wrapper);
        return NULL;
    }
    memcpy(out, argv, at * sizeof *out);
    out[at] = wrapper;
    memcpy(out + at + 1, argv + at, (n - at) * sizeof *out);
    return out;
}
