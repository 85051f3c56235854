/*
 * What `#FP auxapp drain` says, for the parser of policies (see drainwords.h). Called by fp-job check, and by fp-job start when the store is up. Pure.
 *
 * The plugin of the same name was asked at first, as other aux-apps are, and has the same words: but a pattern without {step}, or two words that exclude each other,
 * only the parser of policies knows, and the words that any aux-app may have (nodes=, required) are none of a policy.
 */
#include "jobscripts/script/drainwords.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "jobscripts/jobdir.h"

/* As add_word of declared.c, but what a variable stands for is not known there. */
static int add(char *out, size_t size, size_t *n, const char *word, size_t value)
{
    bool quote = strpbrk(word + value, " \t\n") || (value && !word[value]);
    int k;

    if (strchr(word, '"'))
        return -EINVAL;
    k = snprintf(out + *n, size - *n, "%s%.*s%s%s%s", *n ? " " : "", (int)value, word, quote ? "\"" : "", word + value, quote ? "\"" : "");
    if ((size_t)k >= size - *n)
        return -ENAMETOOLONG;
    *n += (size_t)k;
    return 0;
}

int job_words(const struct job_line *l, size_t from, int (*expand)(char out[PATH_MAX], const char *word), char *out, size_t size)
{
    size_t n = 0;

    out[0] = '\0';
    for (size_t i = from; i < l->nwords; i++) {
        char word[PATH_MAX];
        int rc = expand(word, l->words[i].text);

        if (rc) {
            snprintf(out, size, "%.200s", rc == -ENOENT ? word : "");
            return rc;
        }
        rc = add(out, size, &n, word, memchr(l->words[i].text, '$', l->words[i].value) ? 0 : l->words[i].value);
        if (rc)
            return rc;
    }
    return 0;
}

int job_drain_words(const struct job_line *l, int (*expand)(char out[PATH_MAX], const char *word), char out[FP_DRAIN_TEXT_MAX])
{
    return job_words(l, 2, expand, out, FP_DRAIN_TEXT_MAX);
}

int job_drain_stand_in(char out[PATH_MAX], const char *word)
{
    static const char *const may[] = {"to=", "pattern=", "results=", "marker=", NULL};
    const char *const *m = may;
    size_t n = 0;

    while (*m && strncmp(word, *m, strlen(*m)) != 0)
        m++;
    while (*word && n < PATH_MAX - 2) {
        size_t len = *m ? job_variable(word) : 0;

        if (len && m == may && n == strlen("to="))
            out[n++] = '/';
        out[n++] = len ? 'v' : *word;
        word += len ? len : 1;
    }
    out[n] = '\0';
    return *word ? -ENAMETOOLONG : 0;
}
