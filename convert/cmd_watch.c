/*
 * fp-convert watch: what aux-app convert starts (watch/watch.h). Called by main. Its options are those of the aux-app, and where it is.
 *
 * Not for people: standard input and output are pipes to the plugin. It stays on the service cores, and so do the conversions that it starts, which inherit that. They also inherit that the mount goes
 * first there: a program that dumps waits for the mount, and nobody for the conversion of the dump before. So do drains (fp-drain).
 */
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "convert/command.h"
#include "convert/engine/team.h"
#include "convert/sink/sink.h"
#include "convert/watch/watch.h"
#include "fp/auxapp.h"
#include "fp/opt.h"

#define CORES_MAX   4096
#define WORKERS_MAX 16u
#define NICE        10

struct words {
    const char *mount, *node, *cores, *from, *to, *schema, *pattern, *into, *compress, *chunk, *shuffle, *checksum, *memory;
    int keep, join;
    bool xdmf;
};

static const char *const keeps[] = {"raw", "none", NULL};
static const char *const joins[] = {"auto", "one", "vds", NULL}; /* enum cw_join */

#define WORD(name_) FP_OPT_STRING(struct words, name_, #name_, NULL, "As the aux-app has it.", .flags = FP_OPT_NO_FILE)
static const struct fp_opt options[] = {
    FP_OPT_STRING(struct words, mount, "mount", NULL, "Where the store is mounted.", .flags = FP_OPT_REQUIRED | FP_OPT_NO_FILE),
    FP_OPT_STRING(struct words, node, "node", NULL, "This node.", .flags = FP_OPT_REQUIRED | FP_OPT_NO_FILE),
    FP_OPT_STRING(struct words, cores, "cores", NULL, "Service cores.", .flags = FP_OPT_NO_FILE),
    FP_OPT_STRING(struct words, pattern, "pattern", NULL, "Which files are dumps.", .flags = FP_OPT_REQUIRED | FP_OPT_NO_FILE),
    WORD(from),
    WORD(to),
    WORD(schema),
    WORD(into),
    WORD(compress),
    WORD(chunk),
    WORD(shuffle),
    WORD(checksum),
    WORD(memory),
    FP_OPT_ENUM(struct words, keep, "keep", "raw", keeps, "As the aux-app has it.", .flags = FP_OPT_NO_FILE),
    FP_OPT_ENUM(struct words, join, "join", "auto", joins, "As the aux-app has it.", .flags = FP_OPT_NO_FILE),
    FP_OPT_BOOL(struct words, xdmf, "xdmf", "off", "As the aux-app has it.", .flags = FP_OPT_NO_FILE),
    FP_OPT_END,
};

static const struct fp_opt_table table = {
    .prog = "fp-convert",
    .section = NULL,
    .usage = "fp-convert watch [OPTION]...",
    .summary = "Convert what is dumped into a mounted store. Is started by aux-app convert.",
    .opts = options,
};

/* "1,3-5" into a mask; how many. */
static unsigned parse_cores(const char *list, cpu_set_t *set)
{
    unsigned n = 0;

    CPU_ZERO(set);
    while (list && *list >= '0' && *list <= '9') {
        char *end;
        unsigned long from = strtoul(list, &end, 10), to = *end == '-' ? strtoul(end + 1, &end, 10) : from;

        for (unsigned long i = from; i <= to && i < CPU_SETSIZE && i < CORES_MAX; i++, n++)
            CPU_SET(i, set);
        list = *end == ',' ? end + 1 : "";
    }
    return n;
}

/* Where there are service cores, nothing of ours is on others. How many conversions go at a time: one for each. */
static unsigned stay_on(const char *cores)
{
    cpu_set_t set;
    unsigned n = parse_cores(cores, &set);

    if (n && sched_setaffinity(0, sizeof set, &set) < 0)
        n = 1; /* a cpuset knows better */
    return n == 0 ? 1 : n < WORKERS_MAX ? n : WORKERS_MAX;
}

/* What parts of several nodes must have in common: the words, and what the schema says, wherever each node has it. */
static uint64_t digest_of(const char *const *run, const char *schema)
{
    uint64_t h = cw_hash(0, "parts", 6);
    char piece[4096];
    FILE *f = schema ? fopen(schema, "re") : NULL;
    size_t n;

    for (; *run; run++)
        if (strncmp(*run, "--schema=", 9) != 0 && strncmp(*run, "--memory=", 9) != 0)
            h = cw_hash(h, *run, strlen(*run) + 1);
    while (f && (n = fread(piece, 1, sizeof piece, f)) > 0)
        h = cw_hash(h, piece, n);
    if (f)
        fclose(f);
    return h;
}

/* ---------------------------------------------------------------- a conversion */

static struct { char *at; size_t bytes; } title; /* the words of this process, from its command on, as ps shows them */

static size_t put_title(size_t used, const char *word)
{
    size_t left = title.bytes - used, len = strlen(word);

    len = len < left ? len : left;
    memcpy(title.at + used, word, len);
    return used + len + (len < left);
}

/* What it converts to comes first: there may not be room for all. */
static void set_title(int argc, char **argv)
{
    size_t used;

    memset(title.at, 0, title.bytes);
    used = put_title(0, argv[1]);
    for (int pass = 0; pass < 2; pass++)
        for (int i = 2; i < argc; i++)
            if ((strncmp(argv[i], "--out=", 6) == 0) == (pass == 0))
                used = put_title(used, argv[i]);
}

/* In the process of a conversion, which goes on as if it had been started with these words. */
static int convert(int argc, char **argv)
{
    int rc;

    set_title(argc, argv);
    rc = strcmp(argv[1], "join") == 0 ? cv_join_command(argc - 1, argv + 1) : cv_run_command(argc - 1, argv + 1);
    if (rc)
        cv_team_give_up(rc);
    cv_team_leave();
    return rc;
}

/* What a part left out of a stream that was cut off, only the one who made it knows: whoever joins the parts would take the dump for one that can go. */
static bool loses_what_is_left_out(const struct words *w)
{
    return w->keep == 1 && (!w->from || strcmp(w->from, "group") == 0);
}

static const char *make_word(const char *name, const char *value)
{
    char *text = NULL;

    return value && asprintf(&text, "--%s=%s", name, value) >= 0 ? text : NULL;
}

int cv_watch_command(int argc, char **argv)
{
    static struct words w;
    struct fp_opts *opts = fp_opt_parse_or_exit(&table, &w, argc, argv);
    const struct cv_sink_ops *to = cv_sink_find(w.to ? w.to : "hdf5");
    const struct { const char *name, *value; } given[] = {{"from", w.from}, {"to", w.to}, {"schema", w.schema}, {"compress", w.compress}, {"shuffle", w.shuffle}, {"checksum", w.checksum}, {"chunk", w.chunk}, {"memory", w.memory}};
    const char *run[sizeof given / sizeof *given + 1] = {NULL};
    static char program[4096];
    ssize_t len = readlink("/proc/self/exe", program, sizeof program - 1);
    struct cw_options o;
    size_t n = 0;

    if (!to || len <= 0 || prctl(PR_SET_PDEATHSIG, SIGTERM) < 0 || getppid() == 1) {
        fprintf(stderr, "fp-convert: ERROR: watch is started by aux-app convert\n");
        return 2;
    }
    for (size_t i = 0; i < sizeof given / sizeof *given; i++)
        if ((run[n] = make_word(given[i].name, given[i].value)))
            n++;
    o = (struct cw_options){
        .mount = w.mount, .node = w.node, .pattern = w.pattern, .into = w.into, .to = to->name, .ending = to->ending, .run_words = run, .program = program, .convert = convert, .keep_none = w.keep == 1,
        .splits = to == &cv_sink_hdf5 && w.join != CW_JOIN_ONE && !w.xdmf && !loses_what_is_left_out(&w), .xdmf = w.xdmf, .workers = stay_on(w.cores), .digest = digest_of(run, w.schema)};
    title.at = argv[0];
    title.bytes = (size_t)(argv[argc - 1] - argv[0]) + strlen(argv[argc - 1]);
    (void)setpriority(PRIO_PROCESS, 0, getpriority(PRIO_PROCESS, 0) + NICE);
    cv_command_signals();
    n = (size_t)cw_watch(&o);
    fp_opts_free(opts);
    return (int)n;
}
