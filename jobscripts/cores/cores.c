/*
 * The value of #FP cores (see declared.h): FP(X,Y) of the paper, section III.A, with X cores of each node's Y for services.
 *
 * A bare range is a number of cores, 1-3: from one to three, as `cores=` of aux-apps means it; CPUs by their numbers are `list=`. The two look alike, and
 * "2-3" taken for two cores of a node by one and for CPU 2 and CPU 3 by the other would be found on the day that somebody looks at a core map.
 */
#include <stdlib.h>
#include <string.h>

#include "fp/units.h"
#include "jobscripts/script/declared.h"

/* A number from min to max, up to a byte of `ends`. */
static bool take_number(const char **at, const char *ends, uint32_t min, uint32_t max, uint32_t *out)
{
    const char *s = *at;
    uint64_t v = 0;
    size_t n = strspn(s, "0123456789");

    if (!n || n > 9 || !strchr(ends, s[n]))
        return false;
    for (size_t i = 0; i < n; i++)
        v = v * 10 + (uint64_t)(s[i] - '0');
    if (v < min || v > max)
        return false;
    *out = (uint32_t)v;
    *at = s + n;
    return true;
}

static bool take_count(const char *text, struct job_cores *c)
{
    c->kind = JOB_CORES_COUNT;
    if (!take_number(&text, "-", 1, JOB_CORES_MAX, &c->min))
        return false;
    c->max = c->min;
    if (*text == '-' && (text++, !take_number(&text, "", 1, JOB_CORES_MAX, &c->max)))
        return false;
    return !*text && c->min <= c->max;
}

static bool take_share(const char *text, struct job_cores *c)
{
    c->kind = JOB_CORES_SHARE;
    return take_number(&text, "%", 1, 50, &c->percent) && strcmp(text, "%") == 0;
}

static bool take_list(const char *text, struct job_cores *c)
{
    c->kind = JOB_CORES_LIST;
    c->list = text;
    for (;; text++) {
        uint32_t from, to;

        if (!take_number(&text, ",-", 0, 65535, &from))
            return false;
        to = from;
        if (*text == '-' && (text++, !take_number(&text, ",", from, 65535, &to)))
            return false;
        c->highest = to > c->highest ? to : c->highest;
        if (!*text)
            return true;
    }
}

bool job_cores_parse(const char *text, struct job_place at, struct job_cores *out, struct job_findings *f)
{
    static const char *const names[] = {"share", "list", NULL};
    struct job_cores c = {.at = at};
    const char *eq = strchr(text, '='), *near;
    char name[16] = "";

    if (!eq) {
        if (take_count(text, &c)) {
            *out = c;
            return true;
        }
        if (strchr(text, ',') && take_list(text, &c))
            job_error(f, at, "'%s': CPUs by their numbers are list=%s", text, text);
        else if (strchr(text, '%'))
            job_error(f, at, "'%s': a share of the cores is share=%s, from 1%% to 50%%", text, text);
        else
            job_error(f, at, "'%s' is no number of cores: write 1, or 1-3 for one to three (at most %u)", text, JOB_CORES_MAX);
        return false;
    }
    if ((size_t)(eq - text) < sizeof name)
        memcpy(name, text, (size_t)(eq - text));
    if (strcmp(name, "share") == 0 && !take_share(eq + 1, &c))
        job_error(f, at, "share '%s': write a whole number of percent, from 1%% to 50%%", eq + 1);
    else if (strcmp(name, "list") == 0 && !take_list(eq + 1, &c))
        job_error(f, at, "list '%s': write numbers of CPUs as Linux counts them, such as 7,15-17", eq + 1);
    else if (strcmp(name, "share") == 0 || strcmp(name, "list") == 0) {
        *out = c;
        return true;
    } else {
        near = fp_nearest_name(name, names);
        if (near)
            job_error(f, at, "'%s' is not understood: did you mean '%s'?", name, near);
        else
            job_error(f, at, "'%s' is not understood: write 1, 1-3, list=7,15 or share=5%%", text);
    }
    return false;
}
