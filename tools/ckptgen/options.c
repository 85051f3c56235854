/* Options of ckptgen: --name value or --name=value, sizes with k, m, g or KiB, MiB, GiB. */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ckptgen.h"

static const char usage[] =
    "Usage: mpirun -n RANKS ckptgen --dir DIR [OPTIONS]\n"
    "MPI ranks write successive checkpoints of which a set part is as in the checkpoint before.\n"
    "  --dir DIR        where to write, e.g. /AggregateSSDstore/run\n"
    "  --size 64m       of one rank's part of a checkpoint\n"
    "  --steps 5        checkpoints to write\n"
    "  --ratio 0.5      share of each checkpoint that is as in the one before: 0 to 1\n"
    "  --unit 1m        what is new or a duplicate as a whole; a multiple of 8\n"
    "  --transfer 1m    bytes of one write; a multiple of 8\n"
    "  --compute 0      milliseconds of computing between checkpoints\n"
    "  --shared         one file of all ranks instead of one each\n"
    "  --in-place       rewrite the same name at each step, instead of names with the step\n"
    "  --keep 0         delete all but so many checkpoints; 0: none\n"
    "  --fsync          fsync before close\n"
    "  --verify         read each checkpoint back, every part by another rank\n"
    "  --verify-only    write nothing: verify the last checkpoint of an earlier run with the same options\n"
    "  --seed 1         other numbers, other content\n";

static bool number(const char *text, uint64_t *out, bool size)
{
    char *end;
    unsigned shift = 0;

    errno = 0;
    *out = strtoull(text, &end, 10);
    if (end == text || *text == '-' || errno)
        return false;
    if (size && *end) {
        static const char units[] = "kKmMgG";
        const char *unit = strchr(units, *end);

        shift = unit ? 10 * (1 + (unsigned)(unit - units) / 2) : 64;
    }
    if (shift == 64 || (shift && *out > UINT64_MAX >> shift))
        return false;
    *out <<= shift;
    end += shift > 0;
    return *end == '\0' || (shift > 0 && strcmp(end, "iB") == 0);
}

static bool ratio(const char *text, double *out)
{
    char *end;

    *out = strtod(text, &end);
    return end != text && *end == '\0' && *out >= 0 && *out <= 1;
}

static bool whole(const char *text, int *out)
{
    uint64_t n;

    if (!number(text, &n, false) || n > 1000000)
        return false;
    *out = (int)n;
    return true;
}

static bool take(struct options *o, int which, const char *arg)
{
    switch (which) {
    case 'd': o->dir = arg; return *arg != '\0';
    case 's': return number(arg, &o->size_bytes, true) && o->size_bytes > 0;
    case 'n': return whole(arg, &o->steps) && o->steps > 0;
    case 'r': return ratio(arg, &o->ratio);
    case 'u': return number(arg, &o->unit_bytes, true) && o->unit_bytes > 0 && o->unit_bytes % 8 == 0;
    case 't': return number(arg, &o->transfer_bytes, true) && o->transfer_bytes > 0 && o->transfer_bytes % 8 == 0 &&
             o->transfer_bytes <= 1u << 30;
    case 'c': return whole(arg, &o->compute_ms);
    case 'k': return whole(arg, &o->keep);
    case 'e': return number(arg, &o->seed, false);
    case 'S': return o->shared = true;
    case 'I': return o->in_place = true;
    case 'F': return o->fsync = true;
    case 'V': return o->verify = true;
    case 'O': return o->verify_only = true;
    default: return false;
    }
}

bool options_parse(struct options *o, int argc, char **argv, bool print)
{
    static const struct option table[] = {
        { "dir", 1, NULL, 'd' }, { "size", 1, NULL, 's' }, { "steps", 1, NULL, 'n' }, { "ratio", 1, NULL, 'r' },
        { "unit", 1, NULL, 'u' }, { "transfer", 1, NULL, 't' }, { "compute", 1, NULL, 'c' }, { "keep", 1, NULL, 'k' },
        { "seed", 1, NULL, 'e' }, { "shared", 0, NULL, 'S' }, { "in-place", 0, NULL, 'I' }, { "fsync", 0, NULL, 'F' },
        { "verify", 0, NULL, 'V' }, { "verify-only", 0, NULL, 'O' }, { "help", 0, NULL, 'h' }, { NULL, 0, NULL, 0 },
    };
    int which, at = 0;

    *o = (struct options){ .size_bytes = 64 << 20, .unit_bytes = 1 << 20, .transfer_bytes = 1 << 20, .seed = 1, .ratio = 0.5, .steps = 5 };
    opterr = print;
    while ((which = getopt_long(argc, argv, "", table, &at)) != -1) {
        if (which == 'h' && print)
            fputs(usage, stdout);
        if (which == 'h' || which == '?')
            return false;
        if (!take(o, which, optarg)) {
            if (print)
                fprintf(stderr, "ckptgen: --%s does not take '%s'; see --help\n", table[at].name, optarg);
            return false;
        }
    }
    if (o->dir && optind == argc)
        return true;
    if (print)
        fprintf(stderr, o->dir ? "ckptgen: '%s' is no option; see --help\n" : "ckptgen: --dir is missing; see --help\n", argv[optind]);
    return false;
}
