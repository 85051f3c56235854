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
static int add(char out[FP_DRAIN_TEXT_MAX], size_t *n, const char *word)
{
    size_t name = strcspn(word, "="), room = FP_DRAIN_TEXT_MAX - *n;
    bool quote = word[name] && (!word[name + 1] || strpbrk(word + name, " \t\n"));
    int k;

    if (strchr(word, '"'))
        return -EINVAL;
    if (quote)
        k = snprintf(out + *n, room, "%s%.*s=\"%s\"", *n ? " " : "", (int)name, word, word + name + 1);
    else
        k = snprintf(out + *n, room, "%s%s", *n ? " " : "", word);
    if ((size_t)k >= room)
        return -ENAMETOOLONG;
    *n += (size_t)k;
    return 0;
}

int job_drain_words(const struct job_line *l, int (*expand)(char out[PATH_MAX], const char *word), char out[FP_DRAIN_TEXT_MAX])
{
    size_t n = 0;

    out[0] = '\0';
    for (size_t i = 2; i < l->nwords; i++) {
        char word[PATH_MAX];
        int rc = expand(word, l->words[i].text);

        if (rc) {
            snprintf(out, FP_DRAIN_TEXT_MAX, "%.200s", rc == -ENOENT ? word : "");
            return rc;
        }
        rc = add(out, &n, word);
        if (rc)
            return rc;
    }
    return 0;
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
