/* What agents are told (see plan.h). Pure but for memory and the choice of ports. Written by fp-job start, read by each agent. */
#include "jobscripts/launch/plan.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "fp/uuid.h"
#include "jobscripts/jobdir.h"
#include "jobscripts/launch/address.h"

#define PORT_FIRST 20000u
#define PORT_RANGE 12000u /* below 32768, where Linux begins to give ports by itself */
#define JOB_VARIABLES_MAX 1000u

/* By a number that nobody can guess: who binds the ports of a job before its agents do keeps it from starting. */
uint16_t job_plan_port(void)
{
    struct fp_uuid random;
    uint32_t h;

    fp_uuid_generate(&random);
    memcpy(&h, random.b, sizeof h); /* all of its bits are random: those that are not come later */
    return (uint16_t)(PORT_FIRST + h % (PORT_RANGE / JOB_PORTS) * JOB_PORTS);
}

const char *job_plan_strange(const struct job_plan *p)
{
    const char *const paths[] = {p->auxapp_dir, p->cwd, p->naming, p->shared};

    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        json_t *text = json_string(paths[i]);

        json_decref(text);
        if (!text)
            return paths[i];
    }
    return NULL;
}

char *job_plan_write(const struct job_plan *p)
{
    json_t *nodes = p->nodes ? json_array() : json_integer(p->nnodes), *variables = json_array(), *all;
    char *head, *text = NULL;
    size_t n, lines = strlen(p->lines);

    for (uint32_t i = 0; p->nodes && i < p->nnodes; i++)
        json_array_append_new(nodes, json_string(p->nodes[i]));
    for (uint32_t i = 0; i < p->nvariables; i++)
        json_array_append_new(variables, json_string(p->variables[i])); /* one that is no UTF-8 is left out */
    all = json_pack("{s:s, s:s, s:s, s:o, s:i, s:i, s:s, s:b, s:b, s:s, s:s, s:s, s:b, s:o}", "job", p->job, "starter", p->starter, "auxapp_dir", p->auxapp_dir, "nodes", nodes, "fanout",
                    (int)p->fanout, "port", (int)p->port, "key", p->key, "guarded", p->guarded, "tree", p->tree, "cwd", p->cwd, "naming", p->naming, "shared", p->shared, "entered", p->entered, "variables", variables);
    head = all ? json_dumps(all, JSON_COMPACT) : NULL;
    json_decref(all);
    if (!head)
        return NULL;
    n = strlen(head);
    text = malloc(n + lines + 2);
    if (text) {
        memcpy(text, head, n);
        text[n] = '\n';
        memcpy(text + n + 1, p->lines, lines + 1);
    }
    explicit_bzero(head, n);
    free(head);
    return text;
}

static bool is_name(const char *s, size_t max)
{
    size_t n = strspn(s, JOB_DIR_CHARS);

    return n && !s[n] && n <= max && s[0] != '.' && s[0] != '-';
}

bool job_plan_is_node(const char *name)
{
    return is_name(name, JOB_NODE_NAME_MAX) || job_address_is_six(name);
}

static int take_nodes(const json_t *list, struct job_plan *p)
{
    json_int_t n = json_is_integer(list) ? json_integer_value(list) : (json_int_t)json_array_size(list);

    if (n < 1 || n > JOB_NODES_MAX)
        return -EBADMSG;
    if (json_is_integer(list)) {
        p->nnodes = (uint32_t)n;
        return 0;
    }
    p->nodes = calloc((size_t)n, sizeof *p->nodes);
    if (!p->nodes)
        return -ENOMEM;
    for (; p->nnodes < n; p->nnodes++) {
        const char *name = json_string_value(json_array_get(list, p->nnodes));

        if (!name || !job_plan_is_node(name))
            return -EBADMSG;
        p->nodes[p->nnodes] = strdup(name);
        if (!p->nodes[p->nnodes])
            return -ENOMEM;
    }
    return 0;
}

static int take_variables(const json_t *list, struct job_plan *p)
{
    size_t n = json_array_size(list);

    if (n > JOB_VARIABLES_MAX)
        return -EBADMSG;
    p->variables = calloc(n + 1, sizeof *p->variables);
    if (!p->variables)
        return -ENOMEM;
    for (; p->nvariables < n; p->nvariables++) {
        const char *text = json_string_value(json_array_get(list, p->nvariables));

        if (!text || !strchr(text, '=') || text[0] == '=')
            return -EBADMSG;
        p->variables[p->nvariables] = strdup(text);
        if (!p->variables[p->nvariables])
            return -ENOMEM;
    }
    return 0;
}

static int take(json_t *all, struct job_plan *p)
{
    const char *job, *starter, *auxapp_dir, *key, *cwd, *naming, *shared;
    json_t *nodes, *variables;
    int fanout, port, guarded, tree, entered, rc;

    if (json_unpack(all, "{s:s, s:s, s:s, s:o, s:i, s:i, s:s, s:b, s:b, s:s, s:s, s:s, s:b, s:o}", "job", &job, "starter", &starter, "auxapp_dir", &auxapp_dir, "nodes", &nodes, "fanout", &fanout,
                    "port", &port, "key", &key, "guarded", &guarded, "tree", &tree, "cwd", &cwd, "naming", &naming, "shared", &shared, "entered", &entered, "variables", &variables))
        return -EBADMSG;
    if (!is_name(job, 64) || (shared[0] && shared[0] != '/') || !(json_is_array(nodes) || json_is_integer(nodes)) || !json_is_array(variables) || fanout < 1 || fanout > 1024 || port < 1 || port > 65535 - (int)JOB_PORTS || strlen(key) != 64 ||
        strspn(key, "0123456789abcdef") != 64)
        return -EBADMSG;
    memcpy(p->key, key, sizeof p->key);
    p->fanout = (uint32_t)fanout;
    p->port = (uint16_t)port;
    p->guarded = guarded;
    p->tree = tree;
    p->entered = entered;
    p->job = strdup(job);
    p->starter = strdup(starter);
    p->auxapp_dir = strdup(auxapp_dir);
    p->cwd = strdup(cwd);
    p->naming = strdup(naming);
    p->shared = strdup(shared);
    rc = p->job && p->starter && p->auxapp_dir && p->cwd && p->naming && p->shared ? take_nodes(nodes, p) : -ENOMEM;
    return rc ? rc : take_variables(variables, p);
}

int job_plan_read(const char *text, struct job_plan *out)
{
    const char *end = strchr(text, '\n');
    json_t *all = end ? json_loadb(text, (size_t)(end - text), JSON_REJECT_DUPLICATES, NULL) : NULL;
    int rc;

    memset(out, 0, sizeof *out);
    if (!all)
        return -EBADMSG;
    rc = take(all, out);
    json_decref(all);
    if (rc == 0 && !(out->lines = strdup(end + 1)))
        rc = -ENOMEM;
    if (rc)
        job_plan_fini(out);
    return rc;
}

void job_plan_fini(struct job_plan *p)
{
    for (uint32_t i = 0; p->nodes && i < p->nnodes; i++)
        free(p->nodes[i]);
    free(p->nodes);
    for (uint32_t i = 0; i < p->nvariables; i++)
        free(p->variables[i]);
    free(p->variables);
    free(p->job);
    free(p->starter);
    free(p->auxapp_dir);
    free(p->cwd);
    free(p->naming);
    free(p->shared);
    free(p->lines);
    explicit_bzero(p, sizeof *p);
}
