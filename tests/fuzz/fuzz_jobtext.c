/*
 * What fp-job reads that other programs have written: the plan that an agent gets by its standard input (jobscripts/launch/plan.h), lists of nodes (hosts.h), what squeue says of times and sinfo
 * of nodes (slurm.h, request.h), variables in paths (jobdir.h), the value of #FP cores; for doctor (doctor/doctor.h), scontrol show config, and what nodes say.
 *
 * Beside what the sanitizers see: a plan that is taken is within its limits, and is the same when it is written and read again; times are sums of their parts;
 * node types count each node once; an expanded path ends where its buffer does; every answer of doctor is one line of ASCII, which says what to change if there is
 * something.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "jobscripts/doctor/doctor.h"
#include "jobscripts/launch/address.h"
#include "jobscripts/launch/hosts.h"
#include "jobscripts/jobdir.h"
#include "jobscripts/launch/plan.h"
#include "jobscripts/launch/queue.h"
#include "jobscripts/script/request.h"
#include "jobscripts/launch/slurm.h"
#include "tests/fuzz/fuzz.h"

#define TEXT_BYTES 8192u
#define KEY        "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

/* Bytes from 0x80 on are words of `often`. A copy of just its size, NUL-terminated, to be freed. */
static char *take_text(struct fuzz_in *in, const char *const *often, size_t noften)
{
    char text[TEXT_BYTES + 1];
    size_t n = 0;

    while (n < TEXT_BYTES && fuzz_left(in) > 0) {
        uint8_t c = fuzz_u8(in);
        const char *word = c >= 0x80 ? often[(c - 0x80u) % noften] : NULL;

        if (word && n + strlen(word) <= TEXT_BYTES) {
            memcpy(text + n, word, strlen(word));
            n += strlen(word);
        } else if (c) {
            text[n++] = (char)c;
        }
    }
    text[n] = '\0';
    return strdup(text);
}

/* ---------------------------------------------------------------- plans */

static bool is_word(const char *s, size_t max)
{
    size_t n = strlen(s);

    return n > 0 && n <= max && !strpbrk(s, "/ \t\n'\"$`\\;&|<>()*?[]") && s[0] != '-' && s[0] != '.';
}

#define REST ",\"guarded\":true,\"tree\":false,\"cwd\":\"/\",\"naming\":\"\",\"shared\":\"\",\"entered\":true,\"variables\":"

static void check_plan(const struct job_plan *p)
{
    FUZZ_CHECK(is_word(p->job, 64) && p->nnodes > 0 && p->nnodes <= JOB_NODES_MAX && p->fanout > 0 && p->fanout <= 1024);
    FUZZ_CHECK(p->port > 0 && p->port + JOB_PORTS <= 65535 && strlen(p->key) == 64 && p->starter && p->auxapp_dir && p->lines && p->cwd && p->naming && p->shared && (!p->shared[0] || p->shared[0] == '/'));
    for (uint32_t i = 0; i < p->nvariables; i++)
        FUZZ_CHECK(strchr(p->variables[i], '=') > p->variables[i]);
    for (uint32_t i = 0; p->nodes && i < p->nnodes; i++)
        FUZZ_CHECK(is_word(p->nodes[i], JOB_NODE_NAME_MAX) || job_address_is_six(p->nodes[i]));
}

/* A list of nodes as Slurm writes it: names, or nothing. */
static void try_list(const char *text)
{
    char **nodes = NULL;
    uint32_t n = 0;
    int rc = job_hostlist(text, &nodes, &n);

    FUZZ_CHECK(rc == 0 || rc == -EINVAL || rc == -E2BIG || rc == -ENOMEM);
    FUZZ_CHECK(rc == 0 ? n > 0 && n <= JOB_NODES_MAX : !nodes && !n);
    for (uint32_t i = 0; i < n; i++) {
        FUZZ_CHECK(is_word(nodes[i], JOB_NODE_NAME_MAX));
        free(nodes[i]);
    }
    free(nodes);
}

static void try_plan(struct fuzz_in *in)
{
    static const char *const often[] = {
        "{\"job\":\"7\",\"starter\":\"a:1\",\"auxapp_dir\":\"/l\",\"nodes\":", "[\"n1\",\"n2\"]", ",\"fanout\":32", ",\"port\":20000", ",\"key\":\"" KEY "\"" REST "[]}\n", "#FP store\n", "\"n3\"", "\"../x\"",
        "\"n[1-4]\"", "\"[fd00::7]\"", "\"[fe80::7]\"", "\"n[001-120,130]-ib\"", "[", "]", "-", ",", "\"", "{", "}", "\n", "null", "-1", "99999999999", "1e99", "\"\\u0000\"", "\"job\":\"7\"", "\"key\":\"" KEY "\"", "65535", "0", "1",
        ",\"key\":\"" KEY "\"" REST, "\"A=b\"", "\"=\"", "true", "\"variables\":[]"};
    char *text = take_text(in, often, sizeof often / sizeof *often), *again;
    struct job_plan p, q;
    int rc = job_plan_read(text, &p);

    try_list(text);
    FUZZ_CHECK(rc == 0 || rc == -EBADMSG || rc == -ENOMEM);
    if (rc == 0) {
        check_plan(&p);
        again = job_plan_write(&p);
        FUZZ_CHECK(again && strlen(again) < JOB_PLAN_BYTES_MAX && job_plan_read(again, &q) == 0);
        check_plan(&q);
        FUZZ_CHECK(strcmp(p.job, q.job) == 0 && p.nnodes == q.nnodes && p.fanout == q.fanout && p.port == q.port && strcmp(p.key, q.key) == 0);
        FUZZ_CHECK(strcmp(p.starter, q.starter) == 0 && strcmp(p.auxapp_dir, q.auxapp_dir) == 0 && strcmp(p.lines, q.lines) == 0);
        FUZZ_CHECK(!p.nodes == !q.nodes);
        for (uint32_t i = 0; p.nodes && i < p.nnodes; i++)
            FUZZ_CHECK(strcmp(p.nodes[i], q.nodes[i]) == 0);
        FUZZ_CHECK(p.guarded == q.guarded && p.tree == q.tree && strcmp(p.cwd, q.cwd) == 0 && strcmp(p.naming, q.naming) == 0 && strcmp(p.shared, q.shared) == 0 && p.entered == q.entered && p.nvariables == q.nvariables);
        for (uint32_t i = 0; i < p.nvariables; i++)
            FUZZ_CHECK(strcmp(p.variables[i], q.variables[i]) == 0);
        free(again);
        job_plan_fini(&q);
        job_plan_fini(&p);
    }
    free(text);
}

/* ---------------------------------------------------------------- what Slurm prints */

static void try_time(struct fuzz_in *in)
{
    static const char *const often[] = {"1-", "2:", "03:", "59", "00", "\n", "UNLIMITED", "INVALID", "-", ":", "99999999999999999999", " "};
    char *text = take_text(in, often, sizeof often / sizeof *often);
    uint64_t ms = job_slurm_time(text);
    unsigned long days = 0, part[3] = {0};

    FUZZ_CHECK(ms == UINT64_MAX || ms % 1000 == 0);
    if (ms != UINT64_MAX) {
        const char *p = strchr(text, '-') ? strchr(text, '-') + 1 : text;
        int n = sscanf(p, "%lu:%lu:%lu", &part[0], &part[1], &part[2]);

        days = p == text ? 0 : strtoul(text, NULL, 10);
        FUZZ_CHECK(n >= 1);
        if (n == 2 && !days && p == text)
            FUZZ_CHECK(ms == (part[0] * 60 + part[1]) * 1000);
        else
            FUZZ_CHECK(ms == (days * 86400 + part[0] * 3600 + part[1] * 60 + part[2]) * 1000);
    }
    free(text);
}

static void try_types(struct fuzz_in *in)
{
    static const char *const often[] = {"n1", "n2", "|", "2|", "8|", "1\n", "|2|8|1\n", "|1|64|2\n", "\n", "65537", "4294967295", "-1", "+", " "};
    char *text = take_text(in, often, sizeof often / sizeof *often);
    static struct job_request r;
    uint64_t lines = 0, nodes = 0;

    memset(&r, 0, sizeof r);
    job_request_types(text, &r);
    for (const char *p = text; *p; p += strcspn(p, "\n"), p += *p == '\n')
        lines++;
    FUZZ_CHECK(r.ntypes <= JOB_NODETYPES_MAX);
    for (size_t i = 0; i < r.ntypes; i++) {
        const struct job_nodetype *t = &r.types[i];

        FUZZ_CHECK(t->nodes > 0 && t->sockets > 0 && t->sockets <= 512 && t->cores > 0 && t->cores <= 65536 && t->threads > 0 && t->threads <= 64 && memchr(t->first, 0, sizeof t->first));
        FUZZ_CHECK(r.least_cores > 0 && r.least_cores <= (uint64_t)t->sockets * t->cores && r.least_cpus >= r.least_cores && r.least_cpus <= (uint64_t)t->sockets * t->cores * t->threads);
        nodes += t->nodes;
    }
    FUZZ_CHECK(nodes + r.more_types <= lines && (r.ntypes > 0) == (r.least_cores > 0));
    free(text);
}

static void try_queue(struct fuzz_in *in)
{
    static const char *const often[] = {"12|12|5001|ada|RUNNING|n1|T|n[1-4]|None\n", "12_3|", "|", "12|5001|ada|", "PENDING", "RUNNING", "TIMEOUT", "|n/a|N/A||Resources\n", "\n", "n[1-", "squeue: error\n"};
    char *text = take_text(in, often, sizeof often / sizeof *often), why[JOB_QUEUE_WHY_BYTES] = "";
    struct job_queued q;
    int rc = job_queue_choose(text, "12", &q, why);

    FUZZ_CHECK((rc == 0 || rc == -ENOENT || rc == -EINVAL) && (rc == 0) == !why[0] && memchr(why, 0, sizeof why));
    if (rc == 0)
        FUZZ_CHECK((q.phase == JOB_WAITS || !q.reason[0]) && (q.phase == JOB_RUNS || (!q.first[0] && !q.outside)));
    free(text);
}

/* ---------------------------------------------------------------- words of scripts */

static void try_path(struct fuzz_in *in)
{
    static char huge[PATH_MAX - 100], out[PATH_MAX + 8];
    static const char *const often[] = {"$A", "${A}", "$HUGE", "${HUGE}", "$NONE", "${A", "$", "${", "}", "/", "$A_", "$1", "${EMPTY}"};
    char *text = take_text(in, often, sizeof often / sizeof *often);
    int rc;

    if (!huge[0]) {
        memset(huge, 'h', sizeof huge - 1);
        setenv("A", "/ssd", 1);
        setenv("HUGE", huge, 1);
        setenv("EMPTY", "", 1);
        unsetenv("NONE");
    }
    memset(out, 0x55, sizeof out);
    rc = job_expand(out, text);
    FUZZ_CHECK(rc == 0 || rc == -ENOENT || rc == -ENAMETOOLONG);
    FUZZ_CHECK(out[PATH_MAX] == 0x55 && (rc == -ENAMETOOLONG || memchr(out, 0, PATH_MAX)));
    if (rc == 0 && !strchr(text, '$'))
        FUZZ_CHECK(strcmp(out, text) == 0);
    free(text);
}

static void try_cores(struct fuzz_in *in)
{
    static const char *const often[] = {"1", "1-3", "list=", "7,15-17", "share=", "5%", "-", ",", "4294967296", "1024", "65536", "%", "50%"};
    char *text = take_text(in, often, sizeof often / sizeof *often);
    struct job_findings f;
    struct job_cores c;

    memset(&c, 0, sizeof c);
    job_findings_init(&f);
    if (job_cores_parse(text, (struct job_place){1, 11}, &c, &f)) {
        FUZZ_CHECK(f.errors == 0 && c.kind != JOB_CORES_NONE);
        FUZZ_CHECK(c.kind != JOB_CORES_COUNT || (c.min >= 1 && c.min <= c.max && c.max <= JOB_CORES_MAX));
        FUZZ_CHECK(c.kind != JOB_CORES_SHARE || (c.percent >= 1 && c.percent <= 50));
        FUZZ_CHECK(c.kind != JOB_CORES_LIST || (c.list && c.highest <= 65535));
    } else {
        FUZZ_CHECK(f.errors > 0);
    }
    job_findings_fini(&f);
    free(text);
}

/* ---------------------------------------------------------------- doctor */

static void check_answer(const struct doctor_answer *a)
{
    FUZZ_CHECK(memchr(a->found, 0, sizeof a->found) && memchr(a->change, 0, sizeof a->change));
    for (const char *p = a->found; *p; p++)
        FUZZ_CHECK(*p >= ' ' && *p <= '~');
    for (const char *p = a->change; *p; p++)
        FUZZ_CHECK(*p >= ' ' && *p <= '~');
}

static void try_config(struct fuzz_in *in)
{
    static const char *const often[] = {"TaskPlugin", "SelectType", "SelectTypeParameters", "KillWait", "ConstrainCores", "SLURM_VERSION", "JobAcctGatherParams", "PrologFlags", "Prolog", "PlugStackConfig",
                                        " = ", "\n", "(null)", "task/cgroup", "task/affinity", "select/cons_tres", "CR_CPU", "yes", "5 sec", "22.05.8", ",", "OverMemoryKill", "Alloc", "spank_fp.so", "#"};
    char *config = take_text(in, often, sizeof often / sizeof *often), *plugstack = strdup(config);
    struct doctor_slurm s = {.config = config, .plugstack = plugstack};

    for (const struct doctor_slurm_check *c = doctor_slurm_checks; c->name; c++) {
        struct doctor_answer a = {.status = DOCTOR_OK};

        c->judge(&s, &a);
        check_answer(&a);
        FUZZ_CHECK(a.found[0] && (a.status == DOCTOR_OK) == !a.change[0]);
    }
    free(plugstack);
    free(config);
}

static void try_said(struct fuzz_in *in)
{
    static const char *const often[] = {"{\"node\":\"n1\",\"check\":\"ssd\",\"status\":\"", "ok", "warning", "wrong", "\",\"found\":\"", "\",\"change\":\"", "\"}", "{\"node\":\"n1\",\"version\":\"",
                                        "0.1.0", "\",\"clock\":", "1795448672123", ",\"lines\":", "13", "}", "\n", "\\n", "\\u0000", "\\u00e4", "null", "-1"};
    char *text = take_text(in, often, sizeof often / sizeof *often);
    struct doctor_said said;

    if (doctor_hear(text, &said)) {
        FUZZ_CHECK(memchr(said.node, 0, sizeof said.node) && said.node[0] && memchr(said.version, 0, sizeof said.version));
        check_answer(&said.answer);
        FUZZ_CHECK(said.check || said.answer.status == DOCTOR_OK);
    }
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    static void (*const tries[])(struct fuzz_in *in) = {try_plan, try_time, try_types, try_path, try_cores, try_config, try_said, try_queue};
    struct fuzz_in in = {data, data + len};

    tries[fuzz_below(&in, sizeof tries / sizeof *tries)](&in);
    return 0;
}
