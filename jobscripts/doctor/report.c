/*
 * What fp-job doctor says: lines for people, JSON for programs, and the same between nodes (see doctor.h). Called by cmd_doctor.c; one thread.
 *
 * Nodes of which the same is to be said to the letter are told in one line: of a thousand that are alike there is one report, and the one that differs stands out.
 */
#include <inttypes.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "jobscripts/doctor/doctor.h"

#define NAMES_SHOWN 4u

static const char *const words[] = {"ok", "warning", "wrong"};

/* ---------------------------------------------------------------- answers */

static void put(char out[DOCTOR_TEXT_BYTES], const char *fmt, va_list ap)
{
    vsnprintf(out, DOCTOR_TEXT_BYTES, fmt, ap);
    for (char *p = out; *p; p++) /* names of files are in it, and it is to be one line of ASCII */
        if ((unsigned char)*p < ' ' || (unsigned char)*p > '~')
            *p = '?';
}

void doctor_found(struct doctor_answer *a, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    put(a->found, fmt, ap);
    va_end(ap);
}

void doctor_warn(struct doctor_answer *a, const char *fmt, ...)
{
    va_list ap;

    a->status = DOCTOR_WARNING;
    va_start(ap, fmt);
    put(a->change, fmt, ap);
    va_end(ap);
}

void doctor_wrong(struct doctor_answer *a, const char *fmt, ...)
{
    va_list ap;

    a->status = DOCTOR_WRONG;
    va_start(ap, fmt);
    put(a->change, fmt, ap);
    va_end(ap);
}

/* ---------------------------------------------------------------- lines */

static void *must(void *p)
{
    if (!p)
        abort();
    return p;
}

/* Lines of one check stand together, in the order in which the checks came. */
static struct doctor_line *line_for(struct doctor_report *r, const char *check, const struct doctor_answer *a, bool of_node)
{
    size_t at = r->n;

    for (size_t i = 0; i < r->n; i++) {
        struct doctor_line *l = &r->lines[i];

        if (strcmp(l->check, check) != 0 || (l->nnodes > 0) != of_node)
            continue;
        if (of_node && l->answer.status == a->status && strcmp(l->answer.found, a->found) == 0 && strcmp(l->answer.change, a->change) == 0)
            return l;
        at = i + 1;
    }
    r->lines = must(reallocarray(r->lines, r->n + 1, sizeof *r->lines));
    memmove(r->lines + at + 1, r->lines + at, (r->n - at) * sizeof *r->lines);
    r->n++;
    r->lines[at] = (struct doctor_line){.check = check, .answer = *a};
    return &r->lines[at];
}

void doctor_report_add(struct doctor_report *r, const char *check, const struct doctor_answer *a, const char *node)
{
    struct doctor_line *l = line_for(r, check, a, node != NULL);

    if (l->nnodes == 0) { /* it is new */
        r->wrong += a->status == DOCTOR_WRONG;
        r->warnings += a->status == DOCTOR_WARNING;
    }
    if (!node)
        return;
    if ((l->nnodes & (l->nnodes - 1)) == 0)
        l->nodes = must(reallocarray(l->nodes, l->nnodes ? l->nnodes * 2 : 1, sizeof *l->nodes));
    l->nodes[l->nnodes++] = must(strdup(node));
}

static int by_name(const void *a, const void *b)
{
    return strverscmp(*(char *const *)a, *(char *const *)b);
}

void doctor_report_sort(struct doctor_report *r)
{
    for (size_t i = 0; i < r->n; i++)
        if (r->lines[i].nnodes)
            qsort(r->lines[i].nodes, r->lines[i].nnodes, sizeof *r->lines[i].nodes, by_name);
}

void doctor_report_fini(struct doctor_report *r)
{
    for (size_t i = 0; i < r->n; i++) {
        for (size_t k = 0; k < r->lines[i].nnodes; k++)
            free(r->lines[i].nodes[k]);
        free(r->lines[i].nodes);
    }
    free(r->lines);
    memset(r, 0, sizeof *r);
}

/* ---------------------------------------------------------------- for people */

static void print_nodes(const struct doctor_line *l)
{
    for (size_t i = 0; i < l->nnodes && i < NAMES_SHOWN; i++)
        printf("%s%s", i ? "," : "", l->nodes[i]);
    if (l->nnodes > NAMES_SHOWN)
        printf(" and %zu more", l->nnodes - NAMES_SHOWN);
    if (l->nnodes)
        fputs(": ", stdout);
}

void doctor_report_print(const struct doctor_report *r)
{
    for (size_t i = 0; i < r->n; i++) {
        const struct doctor_line *l = &r->lines[i];

        printf("%-7s  %-16s  ", words[l->answer.status], l->check);
        print_nodes(l);
        puts(l->answer.found);
        if (l->answer.change[0])
            printf("%-27schange: %s\n", "", l->answer.change);
    }
    printf("%zu wrong, %zu warning%s\n", r->wrong, r->warnings, r->warnings == 1 ? "" : "s");
}

/* ---------------------------------------------------------------- for programs */

static json_t *answer_json(const char *check, const struct doctor_answer *a)
{
    return must(json_pack("{s:s, s:s, s:s, s:s}", "check", check, "status", words[a->status], "found", a->found, "change", a->change));
}

static void print_json(json_t *j, size_t flags)
{
    char *text = must(json_dumps(j, flags));

    puts(text);
    free(text);
    json_decref(j);
}

void doctor_report_json(const struct doctor_report *r)
{
    json_t *checks = must(json_array());

    for (size_t i = 0; i < r->n; i++) {
        const struct doctor_line *l = &r->lines[i];
        json_t *one = answer_json(l->check, &l->answer), *nodes = must(json_array());

        for (size_t k = 0; k < l->nnodes; k++)
            json_array_append_new(nodes, json_string(l->nodes[k]));
        json_object_set_new(one, "nodes", nodes);
        json_array_append_new(checks, one);
    }
    print_json(must(json_pack("{s:I, s:I, s:o}", "wrong", (json_int_t)r->wrong, "warnings", (json_int_t)r->warnings, "checks", checks)), JSON_INDENT(1));
}

/* ---------------------------------------------------------------- between nodes */

void doctor_say(const char *node, const char *check, const struct doctor_answer *a)
{
    json_t *j = answer_json(check, a);

    json_object_set_new(j, "node", json_string(node));
    print_json(j, JSON_COMPACT);
}

void doctor_say_end(const char *node, const char *version, int64_t clock_ms, unsigned lines)
{
    print_json(must(json_pack("{s:s, s:s, s:I, s:I}", "node", node, "version", version, "clock", (json_int_t)clock_ms, "lines", (json_int_t)lines)), JSON_COMPACT);
}

static const char *known_check(const char *name)
{
    for (const struct doctor_node_check *c = doctor_node_checks; c->name; c++)
        if (strcmp(c->name, name) == 0)
            return c->name;
    return NULL;
}

static bool hear_answer(json_t *j, struct doctor_said *out)
{
    const char *check, *status, *found, *change;

    if (json_unpack(j, "{s:s, s:s, s:s, s:s}", "check", &check, "status", &status, "found", &found, "change", &change))
        return false;
    out->check = known_check(check);
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strcmp(words[i], status) == 0 && out->check) {
            doctor_found(&out->answer, "%s", found);
            if (i == DOCTOR_WARNING)
                doctor_warn(&out->answer, "%s", change);
            else if (i == DOCTOR_WRONG)
                doctor_wrong(&out->answer, "%s", change);
            return true;
        }
    return false;
}

bool doctor_hear(const char *line, struct doctor_said *out)
{
    json_t *j = json_loadb(line, strcspn(line, "\n"), 0, NULL);
    const char *node, *version;
    json_int_t clock, lines;
    bool ok = false;

    memset(out, 0, sizeof *out);
    if (j && json_unpack(j, "{s:s}", "node", &node) == 0 && *node) {
        snprintf(out->node, sizeof out->node, "%s", node);
        if (json_object_get(j, "check"))
            ok = hear_answer(j, out);
        else if (json_unpack(j, "{s:s, s:I, s:I}", "version", &version, "clock", &clock, "lines", &lines) == 0) {
            snprintf(out->version, sizeof out->version, "%s", version);
            out->clock_ms = clock;
            out->lines = (unsigned)lines;
            ok = true;
        }
    }
    json_decref(j);
    return ok;
}
