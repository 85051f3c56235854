/*
 * #SBATCH lines (see sbatch.h): as sbatch reads them, up to the first command, each later option in place of an earlier one. Three options are looked
 * for, and what is not understood is Slurm's to refuse.
 */
#include "jobscripts/script/sbatch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The value of option --name=V, --name V, -sV, -s V; NULL: word is another one. */
static const char *value_of(const char *word, const char *next, const char *name, char letter)
{
    size_t n = strlen(name);

    if (strncmp(word, "--", 2) == 0 && strncmp(word + 2, name, n) == 0)
        return word[n + 2] == '=' ? word + n + 3 : word[n + 2] ? NULL : next;
    if (word[0] == '-' && word[1] == letter)
        return word[2] ? word + 2 : next;
    return NULL;
}

static void take(const char *word, const char *next, struct job_sbatch *out)
{
    const char *nodes = value_of(word, next, "nodes", 'N'), *partition = value_of(word, next, "partition", 'p'), *spec = value_of(word, next, "core-spec", 'S');
    unsigned long n = nodes ? strtoul(nodes, NULL, 10) : 0, left_out = spec ? strtoul(spec, NULL, 10) : 0;

    if (n > 0 && n <= UINT32_MAX)
        out->nodes = (uint32_t)n;
    if (spec && left_out < UINT32_MAX)
        out->core_spec = (uint32_t)left_out;
    if (partition)
        snprintf(out->partition, sizeof out->partition, "%.*s", (int)strcspn(partition, ","), partition);
}

static void take_line(const char *line, size_t len, struct job_sbatch *out)
{
    char copy[1024], *save = NULL, *word, *next;

    snprintf(copy, sizeof copy, "%.*s", (int)(len < sizeof copy ? len : sizeof copy - 1), line);
    copy[strcspn(copy, "#")] = '\0';
    for (word = strtok_r(copy, " \t\r", &save); word; word = next) {
        next = strtok_r(NULL, " \t\r", &save);
        take(word, next ? next : "", out);
    }
}

void job_sbatch_read(const char *text, struct job_sbatch *out)
{
    memset(out, 0, sizeof *out);
    while (*text) {
        size_t len = strcspn(text, "\n"), blank = strspn(text, " \t\r");

        if (*text != '#' && blank < len)
            return;
        if (len > 8 && memcmp(text, "#SBATCH", 7) == 0)
            take_line(text + 7, len - 7, out);
        text += len + (text[len] == '\n');
    }
}

void job_sbatch_call(const char *words, struct job_sbatch *out)
{
    char *copy = strdup(words), *save = NULL, *word, *next;

    if (!copy)
        abort();
    for (word = strtok_r(copy, "\n", &save); word; word = next) {
        next = strtok_r(NULL, "\n", &save);
        take(word, next ? next : "", out);
    }
    free(copy);
}
