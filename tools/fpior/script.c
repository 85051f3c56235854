/*
 * -f: the tests of a script, as IOR takes them. Between the lines "IOR START" and "IOR STOP", which may stand in a text that says more:
 * NAME=VALUE,... sets options, RUN ends a test, # begins a comment. A test has what the command line said and what the script said so far;
 * what follows the last RUN is a test, too. Called by main.c on every rank, which reads the script for itself, as in IOR.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "fpior.h"

#define BLANKS " \t\r\n"

struct tests {
    struct params *all;
    int count;
    bool ran;                      /* the last line was RUN: what follows is of another test */
};

/* like may be one of them. */
static bool more(struct tests *t, const struct params *like)
{
    struct params copy = *like, *grown = realloc(t->all, (size_t)(t->count + 1) * sizeof *grown);

    if (!grown)
        return false;
    t->all = grown;
    t->all[t->count++] = copy;
    return true;
}

static bool failed(const char *path, const char *what, bool print)
{
    if (print)
        fprintf(stderr, "fpior: script %s: %s\n", path, what);
    return false;
}

/* One line, without blanks around it and comment. */
static bool take(struct tests *t, const char *line, bool print)
{
    if (t->ran && !more(t, &t->all[t->count - 1]))
        return failed(t->all[0].script, "no memory", print);
    t->ran = strcasecmp(line, "run") == 0;
    return t->ran || params_directives(&t->all[t->count - 1], line, print);
}

static char *bare(char *line)
{
    size_t len;

    line[strcspn(line, "#")] = '\0';
    line += strspn(line, BLANKS);
    for (len = strlen(line); len > 0 && strchr(BLANKS, line[len - 1]); len--)
        line[len - 1] = '\0';
    return line;
}

static bool read_script(struct tests *t, FILE *in, bool print)
{
    char *line = NULL;
    size_t size = 0;
    bool begun = false, good = true;

    while (good && getline(&line, &size, in) >= 0) {
        char *text = bare(line);

        if (strcasecmp(text, "ior stop") == 0 && begun)
            break;
        if (!begun)
            begun = strcasecmp(text, "ior start") == 0;
        else if (*text)
            good = take(t, text, print);
    }
    free(line);
    return good && (begun || failed(t->all[0].script, "no line IOR START", print));
}

static void default_phases(struct params *p)
{
    if (!p->write && !p->read && !p->check_write && !p->check_read)
        p->write = p->read = 1;
}

struct params *params_tests(const struct params *p, int *count, bool print)
{
    struct tests t = { 0 };
    FILE *in = p->script ? fopen(p->script, "r") : NULL;
    bool good = more(&t, p);

    if (good && p->script)
        good = in ? read_script(&t, in, print) : failed(p->script, strerror(errno), print);
    if (in)
        fclose(in);
    for (int i = 0; i < t.count; i++)
        default_phases(&t.all[i]);
    if (!good)
        free(t.all);
    *count = good ? t.count : 0;
    return good ? t.all : NULL;
}
