/* Fault points: rules from FP_FAULTS, counted hits, actions.
 *
 * FP_FAULT_POINT() calls are spread over all programs, on any thread. Rules are parsed once, before threads
 * start (fp_fault_init), into a fixed array; afterwards only the counters change, atomically, so a point
 * needs no lock and may stand in any context. A program without rules pays one load per point, and the
 * installed build does not even have the call.
 *
 * No probabilities: a fault that fires on the 11th hit does so again in the next run, and a test that
 * fails can be repeated. Chance belongs to the simulator, which has seeds. */
#include "fp/fault.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "fp/err.h"
#include "fp/log.h"
#include "fp/units.h"

#define RULES_MAX      32
#define NAME_MAX_BYTES 48

enum action { ACT_ERROR, ACT_DELAY, ACT_HANG, ACT_KILL, ACT_ABORT };

struct rule {
    char name[NAME_MAX_BYTES];
    enum action action;
    int err; /* ACT_ERROR */
    int64_t delay_ms, after, count, every;
    _Atomic int64_t hits;  /* how often the point was passed */
    _Atomic int64_t tried; /* how often it was due; fires while below count */
    _Atomic unsigned long fired;
};

static struct rule rules[RULES_MAX];
static atomic_uint nrules; /* a test may set rules while threads pass points: they see the rules that it counts, or none */

static int parse_action(struct rule *r, const char *word)
{
    static const struct {
        const char *word;
        enum action action;
    } words[] = {{"delay", ACT_DELAY}, {"hang", ACT_HANG}, {"kill", ACT_KILL}, {"abort", ACT_ABORT}};
    for (unsigned i = 0; i < sizeof words / sizeof *words; i++) {
        if (strcmp(words[i].word, word) == 0) {
            r->action = words[i].action;
            return 0;
        }
    }
    r->action = ACT_ERROR;
    r->err = fp_err_from_name(word);
    return r->err < 0 ? 0 : -EINVAL;
}

static int parse_setting(struct rule *r, char *word)
{
    int64_t value;
    char *eq = strchr(word, '=');
    if (!eq || fp_parse_int(eq + 1, &value, NULL) < 0 || value < 0)
        return -EINVAL;
    *eq = '\0';
    if (strcmp(word, "after") == 0)
        r->after = value;
    else if (strcmp(word, "count") == 0)
        r->count = value;
    else if (strcmp(word, "every") == 0 && value > 0)
        r->every = value;
    else if (strcmp(word, "ms") == 0 && r->action == ACT_DELAY)
        r->delay_ms = value;
    else
        return -EINVAL;
    return 0;
}

/* name=action[:key=value]... */
static int parse_rule(struct rule *r, char *text)
{
    char *save = NULL;
    char *eq = strchr(text, '=');
    if (!eq || eq == text || (size_t)(eq - text) >= sizeof r->name)
        return -EINVAL;
    *eq = '\0';
    memset(r, 0, sizeof *r);
    memcpy(r->name, text, (size_t)(eq - text));
    r->count = INT64_MAX;
    r->every = 1;
    char *word = strtok_r(eq + 1, ":", &save);
    if (!word || parse_action(r, word) < 0)
        return -EINVAL;
    while ((word = strtok_r(NULL, ":", &save)) != NULL) {
        if (parse_setting(r, word) < 0)
            return -EINVAL;
    }
    return r->action == ACT_DELAY && r->delay_ms == 0 ? -EINVAL : 0;
}

int fp_fault_set(const char *spec)
{
    char *save = NULL;
    int rc = 0;
    nrules = 0;
    if (!spec || !*spec)
        return 0;
    char *copy = strdup(spec);
    if (!copy)
        return -ENOMEM;
    unsigned n = 0;
    for (char *word = strtok_r(copy, ",", &save); word && rc == 0; word = strtok_r(NULL, ",", &save))
        rc = n < RULES_MAX ? parse_rule(&rules[n++], word) : -EINVAL;
    free(copy);
    if (rc == 0)
        nrules = n;
    return rc;
}

void fp_fault_init(void)
{
    const char *spec = getenv("FP_FAULTS");
    if (!spec || !*spec)
        return;
#ifdef FP_FAULT
    if (fp_fault_set(spec) == 0)
        return;
    FP_ERROR("FP_FAULTS '%s' is not understood: write point=EIO:after=10:count=1,point=kill", spec);
#else
    FP_ERROR("FP_FAULTS is set, but this build has no fault points: build with make FAULT=1, or unset it");
#endif
    exit(2);
}

/* stderr whatever the log level: tests wait for this line. */
static void announce(const char *name)
{
    char line[NAME_MAX_BYTES + 128];
    int n = snprintf(line, sizeof line, "%.64s: INFO: fault fired: %s\n", fp_log_progname(), name);
    (void)!write(STDERR_FILENO, line, (size_t)n);
}

static int fire(struct rule *r)
{
    struct timespec ts = {.tv_sec = r->delay_ms / 1000, .tv_nsec = r->delay_ms % 1000 * 1000000};
    atomic_fetch_add(&r->fired, 1);
    announce(r->name);
    switch (r->action) {
    case ACT_ERROR:
        return r->err;
    case ACT_DELAY:
        while (nanosleep(&ts, &ts) < 0 && errno == EINTR)
            ;
        return 0;
    case ACT_HANG:
        for (;;)
            pause();
    case ACT_KILL:
        kill(getpid(), SIGKILL);
        for (;;)
            pause();
    case ACT_ABORT:
        abort();
    }
    return 0;
}

static bool due(struct rule *r)
{
    int64_t hit = atomic_fetch_add(&r->hits, 1);
    if (hit < r->after || (hit - r->after + 1) % r->every != 0)
        return false;
    return atomic_fetch_add(&r->tried, 1) < r->count;
}

int fp_fault_hit(const char *name)
{
    struct rule *chosen = NULL;
    for (unsigned i = 0; i < nrules; i++) {
        /* All rules of the point count this hit, though only the first that is due fires. */
        if (strcmp(rules[i].name, name) == 0 && due(&rules[i]) && !chosen)
            chosen = &rules[i];
    }
    return chosen ? fire(chosen) : 0;
}

unsigned long fp_fault_fired(const char *name)
{
    unsigned long n = 0;
    for (unsigned i = 0; i < nrules; i++) {
        if (strcmp(rules[i].name, name) == 0)
            n += atomic_load(&rules[i].fired);
    }
    return n;
}
