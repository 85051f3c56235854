/*
 * How a batch script calls fp-job (see calls.h). Called by fp-job check, before a job is submitted.
 *
 * Line by line and by words alone: what is in doubt is not mentioned, since a script may have functions, other languages, and here-documents. All are warnings for
 * this reason, and each is of a mistake by which a job loses its data, or writes it to another place, and ends with 0.
 */
#include "jobscripts/script/calls.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

struct calls {
    struct job_findings *f;
    bool any, commands;
    struct job_place started; /* line 0: it is not */
    bool stopped;
};

/* In line, which is len bytes long: the place of fp-job and this word behind it; NULL: they are not there. */
static const char *find_call(const char *line, size_t len, const char *command)
{
    static const char name[] = "fp-job";
    size_t clen = strlen(command);

    for (const char *c = line; (c = memmem(c, len - (size_t)(c - line), name, sizeof name - 1)); c++) {
        const char *word = c + sizeof name - 1, *end = line + len;

        if (c > line && (isalnum((unsigned char)c[-1]) || strchr("-_.", c[-1])))
            continue;
        while (word < end && (*word == ' ' || *word == '\t'))
            word++;
        if (word > c + sizeof name - 1 && (size_t)(end - word) >= clen && memcmp(word, command, clen) == 0 && (word + clen == end || !isalnum((unsigned char)word[clen])))
            return c;
    }
    return NULL;
}

static bool has(const char *from, const char *to, const char *chars)
{
    for (; from < to; from++)
        if (strchr(chars, *from))
            return true;
    return false;
}

/* Somebody takes what it says: a file, or another command; || is none. */
static bool goes_elsewhere(const char *from, const char *to)
{
    for (; from < to; from++) {
        if (*from == '>' || (*from == '|' && (from + 1 == to || from[1] != '|')))
            return true;
        from += *from == '|';
    }
    return false;
}

/* The command whose argument stands at c begins with srun or a name of mpirun; *name: which. */
static bool is_below(const char *line, const char *c, const char **name)
{
    static const char *const names[] = {"srun", "mpirun", "mpiexec", NULL};

    for (const char *const *p = names; *p; p++) {
        size_t len = strlen(*p);
        const char *found = memmem(line, (size_t)(c - line), *p, len);

        *name = *p;
        if (found && (found == line || strchr(" \t/;&|(", found[-1])) && strchr(" \t", found[len]) && !has(found, c, ";&|`(") && !memmem(found, (size_t)(c - found), " -c ", 4))
            return true;
    }
    return false;
}

static void look_at_start(struct calls *k, const char *line, size_t len, unsigned number)
{
    const char *c = find_call(line, len, "start"), *end = line + len;
    struct job_place at = {number, c ? (unsigned)(c - line) + 1 : 0};

    if (!c)
        return;
    if (!k->started.line)
        k->started = at;
    if (!has(line, c, "(`") && !goes_elsewhere(c, end))
        job_warning(k->f, at, "what fp-job start says is for the shell, which does not read it here: without $FP_MOUNT the application writes to another place. Write eval \"$(fp-job start || echo false)\" || exit 1");
}

static void look_at_run(struct calls *k, const char *line, size_t len, unsigned number)
{
    const char *c = find_call(line, len, "run"), *name;

    if (c && is_below(line, c, &name))
        job_warning(k->f, (struct job_place){number, (unsigned)(c - line) + 1}, "%s starts fp-job run in each of its tasks, and each would start a store: write fp-job run -- %s ./app", name, name);
}

static void look_at_line(struct calls *k, const char *line, size_t len, unsigned number)
{
    size_t blank = strspn(line, " \t\r");

    if (blank >= len || line[blank] == '#')
        return;
    k->commands = true;
    k->any = k->any || memmem(line, len, "fp-job", 6);
    k->stopped = k->stopped || find_call(line, len, "stop");
    look_at_start(k, line, len, number);
    look_at_run(k, line, len, number);
}

/* Something that is brought out when stop says so. */
static bool brings_out(const struct job_script *s)
{
    for (size_t i = 0; i < s->nlines; i++) {
        const struct job_line *l = &s->lines[i];

        if (strcmp(l->words[0].text, "stage-out") == 0 || (strcmp(l->words[0].text, "auxapp") == 0 && l->nwords > 1 && strcmp(l->words[1].text, "drain") == 0))
            return true;
    }
    return false;
}

void job_calls_check(const char *text, const struct job_script *s, struct job_findings *f)
{
    struct calls k = {.f = f};
    unsigned number = 1;

    if (!s->nlines || strstr(text, "\n#SBATCH --fp"))
        return;
    for (const char *line = text; *line; number++) {
        size_t len = strcspn(line, "\n");

        look_at_line(&k, line, len, number);
        line += len + (line[len] == '\n');
    }
    if (k.commands && !k.any)
        job_warning(f, s->lines[0].words[0].at, "no command of the script is fp-job: #FP lines are obeyed by fp-job run and start, or with --fp of sbatch where a site has the plugin");
    if (k.started.line && !k.stopped && brings_out(s))
        job_warning(f, k.started, "no fp-job stop follows: what is declared to be drained or staged out is brought out by it, and lost without it");
}
