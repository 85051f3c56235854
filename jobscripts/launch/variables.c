/*
 * Which variables agents need (see variables.h). Called by who launches them.
 *
 * srun brings the whole environment to the nodes, ssh and mpirun none of it. All of it in the plan was rejected: what else is in there may be secret.
 */
#include "jobscripts/launch/variables.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME_MAX_BYTES 127u

static void take(const char *name, size_t len, char ***list, uint32_t *n)
{
    char word[NAME_MAX_BYTES + 1];
    const char *value;
    char **more;

    if (!len || len > NAME_MAX_BYTES)
        return;
    snprintf(word, sizeof word, "%.*s", (int)len, name);
    value = getenv(word);
    for (uint32_t i = 0; i < *n && value; i++)
        if (strncmp((*list)[i], word, len) == 0 && (*list)[i][len] == '=')
            return;
    if (!value || *n == 256)
        return;
    more = reallocarray(*list, *n + 1, sizeof *more);
    if (!more || asprintf(&more[*n], "%s=%s", word, value) < 0)
        abort();
    *list = more;
    (*n)++;
}

static size_t name_len(const char *s)
{
    size_t n = 0;

    while (s[n] == '_' || isalpha((unsigned char)s[n]) || (n && isdigit((unsigned char)s[n])))
        n++;
    return n;
}

void job_variables_of(const char *script, char ***list, uint32_t *n)
{
    *list = NULL;
    *n = 0;
    take("TMPDIR", 6, list, n);
    take("SLURM_RESTART_COUNT", 19, list, n); /* by which a store that is kept is named, also where agents come by ssh */
    for (const char *line = script, *end; *line; line = *end ? end + 1 : end) {
        end = line + strcspn(line, "\n");
        if (strncmp(line, "#FP", 3) != 0)
            continue;
        for (const char *c = line; c < end; c++)
            if (*c == '$') {
                c += c[1] == '{';
                take(c + 1, name_len(c + 1), list, n);
            }
    }
}
