/*
 * #SBATCH lines (see sbatch.h): as sbatch reads them, up to the first command, each later option in place of an earlier one.
 *
 * Values are taken as the sbatch of Slurm 22.05 takes them, with the lists of numbers of nodes that later ones have. 0 nodes it takes, too, and what becomes of
 * that has no node for a store. All options of sbatch in a table were rejected: each release has others, and plugins add some.
 */
#include "jobscripts/script/sbatch.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "jobscripts/script/naming.h"

struct word {
    char *text; /* without quotes */
    struct job_place at;
};

/* ---------------------------------------------------------------- values: NULL, or what would be right */

/* How many digits; their number, at most UINT32_MAX. */
static size_t number(const char *s, uint32_t *out)
{
    size_t n = strspn(s, "0123456789");
    unsigned long long v = n && n < 19 ? strtoull(s, NULL, 10) : n ? UINT32_MAX : 0;

    *out = v < UINT32_MAX ? (uint32_t)v : UINT32_MAX;
    return n;
}

static const char *take_nodes(struct job_sbatch *out, const char *value)
{
    static const char why[] = "give a number of nodes, from 1 on, or 2-4";
    uint32_t from, to;
    size_t n = number(value, &from);
    uint64_t times = strchr("kK", value[n]) && value[n] ? 1024 : strchr("mM", value[n]) && value[n] ? 1048576 : 1;
    const char *rest = value + n + (times > 1);

    if (!n || !from || strspn(rest, "0123456789-,:kKmM") != strlen(rest))
        return why;
    if (*rest == '-' && (!(n = number(rest + 1, &to)) || (!rest[1 + n] && to < from * times)))
        return why;
    out->nodes = from * times > UINT32_MAX ? UINT32_MAX : (uint32_t)(from * times);
    return NULL;
}

static const char *take_count(uint32_t *out, const char *value, uint32_t least)
{
    uint32_t v;
    size_t n = number(value, &v);

    if (!n || value[n] || v < least)
        return least ? "give a number, from 1 on" : "give a number";
    *out = v;
    return NULL;
}

static const char *take_tasks(struct job_sbatch *out, const char *value)
{
    return take_count(&out->node_tasks, value, 1);
}

static const char *take_cpus(struct job_sbatch *out, const char *value)
{
    return take_count(&out->task_cpus, value, 1);
}

static const char *take_spec(struct job_sbatch *out, const char *value)
{
    return take_count(&out->core_spec, value, 0);
}

static const char *take_partition(struct job_sbatch *out, const char *value)
{
    int n = snprintf(out->partition, sizeof out->partition, "%s", value);

    if (n >= (int)sizeof out->partition)
        out->partition[0] = '\0'; /* then all nodes are looked at: a job is not refused that Slurm would run */
    return NULL;
}

/* minutes, minutes:seconds, hours:minutes:seconds, days-hours, days-hours:minutes, days-hours:minutes:seconds. */
static const char *take_time(struct job_sbatch *out, const char *value)
{
    static const char why[] = "write minutes, hours:minutes:seconds or days-hours:minutes:seconds";
    uint32_t v[4] = {0}; /* days, if they are said, and the others as they come */
    unsigned colons = 0, k = 0;
    bool days = false;

    out->time_s = 0;
    if (strcasecmp(value, "infinite") == 0 || strcasecmp(value, "unlimited") == 0 || strcmp(value, "-1") == 0)
        return NULL;
    for (const char *s = value;; s++, k++) {
        size_t n = k < 4 ? number(s, &v[k]) : 0;

        s += n;
        if (!n || (*s && *s != ':' && (*s != '-' || days || colons)))
            return why;
        days = days || *s == '-';
        colons += *s == ':';
        if (!*s)
            break;
    }
    if (colons > 2)
        return why;
    if (days)
        out->time_s = v[0] * 86400ull + v[1] * 3600ull + v[2] * 60ull + v[3];
    else
        out->time_s = colons == 2 ? v[0] * 3600ull + v[1] * 60ull + v[2] : v[0] * 60ull + v[1];
    return NULL;
}

static const struct option {
    const char *name;
    char letter; /* NUL: none */
    const char *(*take)(struct job_sbatch *out, const char *value);
} options[] = {
    {"nodes", 'N', take_nodes},         {"partition", 'p', take_partition}, {"core-spec", 'S', take_spec},
    {"ntasks-per-node", '\0', take_tasks}, {"cpus-per-task", 'c', take_cpus},  {"time", 't', take_time},
};

/* ---------------------------------------------------------------- words */

/* The value of option --name=V, --name V, -sV, -s V, and in *at where it begins. NULL: word is another one; next has no text: it has none. */
static const char *value_of(const struct word *w, const struct word *next, const struct option *o, struct job_place *at)
{
    size_t n = strlen(o->name), skip;

    if (strncmp(w->text, "--", 2) == 0 && strncmp(w->text + 2, o->name, n) == 0 && (!w->text[n + 2] || w->text[n + 2] == '='))
        skip = w->text[n + 2] ? n + 3 : 0;
    else if (o->letter && w->text[0] == '-' && w->text[1] == o->letter)
        skip = w->text[2] ? 2 : 0;
    else
        return NULL;
    *at = skip ? w->at : next->at;
    at->column += (unsigned)skip;
    return skip ? w->text + skip : next->text ? next->text : "";
}

static void take(const struct word *w, const struct word *next, struct job_sbatch *out, struct job_findings *f)
{
    out->overcommit = out->overcommit || strcmp(w->text, "-O") == 0 || strcmp(w->text, "--overcommit") == 0;
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) {
        const struct option *o = &options[i];
        struct job_place at;
        const char *value = value_of(w, next, o, &at), *why = value ? o->take(out, value) : NULL;

        if (value && !*value && f)
            job_error(f, w->at, "#SBATCH --%s has no value", o->name);
        else if (value && why && f)
            job_error(f, at, "#SBATCH --%s: '%s': %s", o->name, value, why);
        else if (value && o->take == take_tasks)
            out->node_tasks_at = at;
        else if (value && o->take == take_cpus)
            out->task_cpus_at = at;
    }
}

/* The next word of the line, from *at on; its text is put into buf. False: there is none. */
static bool next_word(const char *line, size_t len, size_t *at, char *buf, struct word *w, unsigned number)
{
    size_t i = *at, n = 0;
    char quote = '\0';

    while (i < len && strchr(" \t\r", line[i]))
        i++;
    if (i == len || line[i] == '#')
        return false;
    w->at = (struct job_place){.line = number, .column = (unsigned)i + 1};
    for (; i < len && (quote || !strchr(" \t\r", line[i])); i++)
        if (quote ? line[i] == quote : line[i] == '"' || line[i] == '\'')
            quote = quote ? '\0' : line[i];
        else
            buf[n++] = line[i];
    buf[n] = '\0';
    w->text = buf;
    *at = i;
    return true;
}

static void take_line(const char *line, size_t len, unsigned number, struct job_sbatch *out, struct job_findings *f)
{
    char *texts = malloc(2 * (len + 1)), *other = texts + len + 1;
    size_t at = strlen("#SBATCH");
    struct word w, next;
    bool more;

    if (!texts)
        abort();
    for (more = next_word(line, len, &at, texts, &w, number); more; w = next) {
        next = (struct word){.at = w.at};
        more = next_word(line, len, &at, w.text == texts ? other : texts, &next, number);
        take(&w, &next, out, f);
    }
    free(texts);
}

/* #SBATCH hetjob, between the options of two components. */
static bool is_het(const char *line, size_t len)
{
    size_t at = strlen("#SBATCH"), blank = strspn(line + at, " \t");

    return blank && len >= at + blank + 6 && memcmp(line + at + blank, "hetjob", 6) == 0;
}

static bool is_command(const char *line, size_t len)
{
    size_t blank = strspn(line, " \t\r");

    return blank < len && line[blank] != '#';
}

/* What sbatch refuses the whole script for. Returns where it begins. */
static const char *check_bytes(const char *text, struct job_findings *f)
{
    const char *cr = strstr(text, "\r\n");
    unsigned line = 1;

    for (const char *c = text; cr && c < cr; c++)
        line += *c == '\n';
    if (cr && f)
        job_error(f, (struct job_place){.line = line}, "lines end with CR LF, as Windows writes them, and sbatch refuses the script: dos2unix mends it");
    if (strncmp(text, JOB_SCRIPT_BOM, strlen(JOB_SCRIPT_BOM)) != 0)
        return text;
    if (f)
        job_error(f, (struct job_place){.line = 1, .column = 1}, "a byte order mark stands here, and sbatch refuses the script: save it as UTF-8 without BOM");
    return text + strlen(JOB_SCRIPT_BOM);
}

void job_sbatch_read(const char *text, struct job_sbatch *out, struct job_findings *f)
{
    bool commands = false, *seen = NULL;
    const char *line = text = check_bytes(text, f);

    memset(out, 0, sizeof *out);
    for (unsigned number = 1; *line; number++) {
        size_t len = strcspn(line, "\n");
        bool is = len >= 7 && memcmp(line, "#SBATCH", 7) == 0;

        if (is && !commands && f && is_het(line, len))
            job_error(f, (struct job_place){.line = number, .column = 1}, "a heterogeneous job: no step of one component reaches nodes of another, so there would be a store on the nodes of the first one alone");
        if (is && !commands)
            take_line(line, len, number, out, f);
        else if (is && f && len > 8 && strchr(" \t-", line[7]) && !(seen = seen ? seen : job_naming_text(text))[line - text])
            job_warning(f, (struct job_place){.line = number, .column = 1}, "Slurm does not read a #SBATCH line behind the first command: write it before");
        commands = commands || is_command(line, len);
        if (commands && !f)
            return;
        line += len + (line[len] == '\n');
    }
    free(seen);
}

void job_sbatch_call(const char *words, struct job_sbatch *out)
{
    char *copy = strdup(words), *save = NULL;
    struct word w = {0}, next;

    if (!copy)
        abort();
    for (w.text = strtok_r(copy, "\n", &save); w.text; w = next) {
        next = (struct word){.text = strtok_r(NULL, "\n", &save)};
        take(&w, &next, out, NULL);
    }
    free(copy);
}
