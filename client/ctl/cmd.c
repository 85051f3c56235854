/*
 * fpctl's table of commands: which one is meant, what its words are, and what it says of itself.
 *
 * main() only, before anything is asked. What a command takes is read from the line that people see (NAME OPTION=VALUE [PATH]), so the two cannot
 * differ. A command is one to three words, found by the longest that fits: `auxapps set cores=2` is not `auxapps` with the path "set".
 *
 * Rejected: an option table per command, which getopt-like programs have: fp.conf and the environment would then be right or wrong depending on the command. There is
 * one table (main.c), and each command names what it knows of it.
 */
#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/ctl/cmd.h"
#include "fp/err.h"

#define WORDS_MAX 3u

/* -------------------------------------------------------------- which command */

/* How many words of the name c are the first of these; 0: they differ. */
static size_t words_of(const struct ctl_cmd *c, const struct fp_strlist *words)
{
    const char *p = c->words;
    size_t n = 0;

    while (*p) {
        size_t len = strcspn(p, " ");

        if (n == words->count || strlen(words->items[n]) != len || memcmp(words->items[n], p, len) != 0)
            return 0;
        n++;
        p += len;
        p += *p == ' ';
    }
    return n;
}

/* "checkpoint" alone: the commands that begin with it. */
static bool list_beginning(const struct ctl_cmd *const *list, const char *word, char *why, size_t size)
{
    size_t len = strlen(word), used = 0;

    for (; *list; list++) {
        if (strncmp((*list)->words, word, len) != 0 || (*list)->words[len] != ' ')
            continue;
        if (used < size)
            used += (size_t)snprintf(why + used, size - used, "%sfpctl %s%s%s", used ? ", " : "there is: ", (*list)->words, *(*list)->args ? " " : "", (*list)->args);
    }
    return used > 0;
}

static void unknown(const struct ctl_cmd *const *list, const struct fp_strlist *words, char *why, size_t size)
{
    const char *names[128], *near;
    char said[256];
    size_t n = 0;

    if (list_beginning(list, words->items[0], why, size))
        return;
    for (; list[n] && n + 1 < sizeof names / sizeof *names; n++)
        names[n] = list[n]->words;
    names[n] = NULL;
    near = fp_nearest_name(words->items[0], names);
    if (!near && words->count > 1) {
        snprintf(said, sizeof said, "%.100s %.100s", words->items[0], words->items[1]);
        near = fp_nearest_name(said, names);
    }
    snprintf(why, size, near ? "there is no command '%.100s': did you mean '%s'?" : "there is no command '%.100s': see fpctl --help", words->items[0], near);
}

const struct ctl_cmd *ctl_cmd_find(const struct ctl_cmd *const *list, const struct fp_strlist *words, size_t *used, char *why, size_t size)
{
    const struct ctl_cmd *best = NULL;

    *used = 0;
    if (words->count == 0) {
        snprintf(why, size, "say what to do: fpctl --help lists the commands");
        return NULL;
    }
    for (const struct ctl_cmd *const *c = list; *c; c++) {
        size_t n = words_of(*c, words);

        if (n <= *used)
            continue;
        best = *c;
        *used = n;
    }
    if (!best)
        unknown(list, words, why, size);
    return best;
}

bool ctl_cmd_knows(const struct ctl_cmd *c, const char *option)
{
    size_t len = strlen(option);

    for (const char *p = c->options; (p = strstr(p, option)) != NULL; p += len)
        if ((p == c->options || p[-1] == ' ') && (p[len] == '\0' || p[len] == ' '))
            return true;
    return false;
}

/* -------------------------------------------------------------- what follows */

/* One word of the synopsis. */
struct arg { char name[64]; bool optional, repeated, path, version; };

static bool next_arg(const char **at, struct arg *a)
{
    const char *p = *at + strspn(*at, " ");
    size_t len = strcspn(p, " "), n = 0;

    if (len == 0)
        return false;
    *a = (struct arg){.optional = *p == '['};
    a->repeated = memmem(p, len, "...", 3) != NULL;
    a->version = memmem(p, len, "[@N]", 4) != NULL;
    for (const char *c = p + a->optional; c < p + len && *c != '.' && *c != ']' && *c != '[' && n + 1 < sizeof a->name; c++)
        a->name[n++] = *c;
    a->path = strncmp(a->name, "PATH", 4) == 0;
    *at = p + len;
    return true;
}

static char *absolute(const char *path)
{
    char cwd[PATH_MAX], *out = NULL;

    while (strncmp(path, "./", 2) == 0)
        path += 2;
    if (*path == '/')
        return strdup(path);
    if (!getcwd(cwd, sizeof cwd))
        return NULL;
    if (*path == '\0' || strcmp(path, ".") == 0)
        return strdup(cwd);
    return asprintf(&out, "%s/%s", strcmp(cwd, "/") == 0 ? "" : cwd, path) < 0 ? NULL : out;
}

/* PATH@3, if no file is called so. */
static void take_version(char *path, uint32_t *version)
{
    char *at = strrchr(path, '@'), *end;
    unsigned long n = at ? strtoul(at + 1, &end, 10) : 0;

    if (!at || at == path || at[1] < '0' || at[1] > '9' || *end != '\0' || n == 0 || n > UINT32_MAX || access(path, F_OK) == 0)
        return;
    *at = '\0';
    *version = (uint32_t)n;
}

static int put_path(struct ctl_options *o, const struct arg *a, const char *word, char *why, size_t size)
{
    char *path;

    if (*word == '\0' || strlen(word) >= PATH_MAX) {
        snprintf(why, size, *word ? "a path is too long" : "a path must not be empty");
        return -EINVAL;
    }
    if (o->npaths == CTL_PATHS_MAX) {
        snprintf(why, size, "more than %u paths in one call", CTL_PATHS_MAX);
        return -EINVAL;
    }
    path = absolute(word);
    if (!path) {
        snprintf(why, size, "cannot tell the current directory (%s): write an absolute path", fp_strerror(-errno));
        return -EINVAL;
    }
    if (a->version)
        take_version(path, &o->version);
    o->paths[o->npaths++] = path;
    o->path = o->paths[0];
    return 0;
}

static int put_name(struct ctl_options *o, const struct arg *a, size_t *n, const char *word, char *why, size_t size)
{
    if (strchr(a->name, '=') && (!strchr(word, '=') || *word == '=')) {
        snprintf(why, size, "'%.100s' is not %s", word, a->name);
        return -EINVAL;
    }
    if (*n == CTL_NAMES_MAX) {
        snprintf(why, size, "more words than fpctl takes");
        return -EINVAL;
    }
    o->names[(*n)++] = word;
    return 0;
}

int ctl_cmd_args(const struct ctl_cmd *c, const char *const *words, size_t n, struct ctl_options *o, char *why, size_t size)
{
    const char *synopsis = c->args;
    size_t i = 0, names = 0;
    struct arg a;
    int rc = 0;

    while (rc == 0 && next_arg(&synopsis, &a)) {
        if (i == n && !a.optional) {
            snprintf(why, size, "%s is missing: fpctl %s %s", a.name, c->words, c->args);
            return -EINVAL;
        }
        do {
            if (i < n)
                rc = a.path ? put_path(o, &a, words[i], why, size) : put_name(o, &a, &names, words[i], why, size);
        } while (++i < n && a.repeated && rc == 0);
        i = i < n ? i : n;
    }
    if (rc == 0 && i < n) {
        snprintf(why, size, "unexpected argument '%.100s': fpctl %s%s%s", words[i], c->words, *c->args ? " " : "", c->args);
        rc = -EINVAL;
    }
    return rc;
}

/* -------------------------------------------------------------- what they say of themselves */

void ctl_cmd_print_list(const struct ctl_cmd *const *list)
{
    char left[128];

    printf("Commands (fpctl COMMAND --help says more):\n");
    for (; *list; list++) {
        snprintf(left, sizeof left, "%s%s%s", (*list)->words, *(*list)->args ? " " : "", (*list)->args);
        fp_opt_print_help_line(left, (*list)->help);
    }
    printf("\nOptions:\n");
}

/* "all watch" as "--all, --watch". */
static void print_options(const char *names)
{
    printf("Options:");
    for (const char *p = names; *p;) {
        int len = (int)strcspn(p, " ");

        printf(" \\fB\\-\\-%.*s\\fR%s", len, p, p[len] ? "," : ".\n");
        p += len + (p[len] == ' ');
    }
}

static void print_roff_line(const char *text)
{
    fp_opt_print_roff(text);
    putchar('\n');
}

void ctl_cmd_print_man(const struct ctl_cmd *const *list)
{
    for (; *list; list++) {
        const struct ctl_cmd *c = *list;

        printf(".TP\n\\fB%s\\fR", c->words);
        if (*c->args) {
            fputs(" \\fI", stdout);
            fp_opt_print_roff(c->args);
            fputs("\\fR", stdout);
        }
        putchar('\n');
        print_roff_line(c->help);
        if (c->more)
            print_roff_line(c->more);
        if (*c->options)
            print_options(c->options);
        if (c->exits)
            print_roff_line(c->exits);
    }
}
