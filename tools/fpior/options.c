/*
 * Options of fpior: IOR's letters and directives in one table, from which the command line, -O, --help and the man page are made.
 *
 * What IOR has and we have not is in a table too, and refused with its name: a command line that is not done as it says
 * would measure something else. Not getopt: IOR takes -b=1m as well as -b 1m and -b1m, and -O takes the same names.
 */
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "fpior.h"

enum kind { FLAG, COUNT, NUMBER, SIZE, TEXT };

struct spec {
    char letter;
    const char *name, *arg;
    enum kind kind;
    size_t at;
    int64_t min, max;
    const char *help;
};

#define AT(field) offsetof(struct params, field)
#define BIG INT64_MAX
#define BLANKS " \t\r\n"

static const struct spec table[] = {
    { 'a', "api", "NAME", TEXT, AT(api), 0, 0, "POSIX, MPIIO, HDF5, NCMPI or NETCDF4 (not IOR's: netCDF-4 in parallel)" },
    { 'A', "refNum", "N", NUMBER, AT(ref_num), 0, BIG, "a number of yours, which the summary repeats" },
    { 'b', "blockSize", "SIZE", SIZE, AT(block_size), 1, BIG, "what a task has in one piece in each segment; 1m unless set" },
    { 'c', "collective", NULL, FLAG, AT(collective), 0, 1, "collective calls; not POSIX" },
    { 'C', "reorderTasks", NULL, COUNT, AT(reorder), 0, 1000, "each task reads back what a task of the next node wrote" },
    { 'd', "interTestDelay", "N", NUMBER, AT(delay_s), 0, 100000, "seconds to wait before each write and read phase" },
    { 'D', "deadlineForStonewalling", "N", NUMBER, AT(deadline_s), 0, 1000000, "end each write and read phase after so many seconds" },
    { 'e', "fsync", NULL, FLAG, AT(fsync), 0, 1, "fsync, or what the API has for it, before a written file is closed" },
    { 'E', "useExistingTestFile", NULL, FLAG, AT(use_existing), 0, 1, "write into a file that is there instead of removing it first" },
    { 'f', "scriptFile", "PATH", TEXT, AT(script), 0, 0, "tests one after the other: lines of NAME=VALUE,... and RUN between IOR START and IOR STOP" },
    { 'F', "filePerProc", NULL, FLAG, AT(file_per_proc), 0, 1, "a file for each task" },
    { 'g', "intraTestBarriers", NULL, FLAG, AT(barriers), 0, 1, "barriers between open, transfers and close" },
    { 'G', "setTimeStampSignature", "N", NUMBER, AT(signature), 0, UINT32_MAX, "signature of the data: to verify it in a later run" },
    { 'h', "help", NULL, FLAG, AT(help), 0, 1, "this" },
    { 'H', "showHints", NULL, FLAG, AT(show_hints), 0, 1, "print the MPI-IO hints of each file that is opened" },
    { 'i', "repetitions", "N", NUMBER, AT(repetitions), 1, 1000000, "how often the test is run" },
    { 'j', "outlierThreshold", "N", NUMBER, AT(outlier_s), 0, 1000000, "warn of tasks that are more than so many seconds from the mean" },
    { 'J', "setAlignment", "SIZE", SIZE, AT(alignment), 1, BIG, "HDF5: alignment of objects in the file" },
    { 'k', "keepFile", NULL, FLAG, AT(keep), 0, 1, "leave the test file" },
    { 'K', "keepFileWithError", NULL, FLAG, AT(keep_with_error), 0, 1, "leave it if its data is wrong" },
    { 'l', "dataPacketType", "TYPE", TEXT, AT(packet), 0, 0, "timestamp (t), offset (o), incompressible (i) or random (r): what is written" },
    { 'm', "multiFile", NULL, FLAG, AT(multi_file), 0, 1, "another file for each repetition" },
    { 'M', "memoryPerNode", "SIZE", TEXT, AT(memory_per_node), 0, 0, "memory that the tasks of a node hold meanwhile: a size, or a share such as 75%" },
    { 'n', "noFill", NULL, FLAG, AT(no_fill), 0, 1, "HDF5: no fill values" },
    { 'N', "numTasks", "N", NUMBER, AT(num_tasks), 0, INT32_MAX, "tasks that take part; 0: all" },
    { 'o', "testFile", "PATH", TEXT, AT(test_file), 0, 0, "the file; with -F, A@B@C gives them to the tasks in turn" },
    { 'p', "preallocate", NULL, FLAG, AT(preallocate), 0, 1, "MPIIO: preallocate the file" },
    { 'q', "quitOnError", NULL, FLAG, AT(quit_on_error), 0, 1, "end with the first byte that is wrong" },
    { 'Q', "taskPerNodeOffset", "N", NUMBER, AT(task_offset), 0, INT32_MAX, "-C: nodes to go on; -Z: tasks to go on at least; 1 unless set" },
    { 'r', "readFile", NULL, FLAG, AT(read), 0, 1, "read; -w and -r unless one of -w, -r, -W, -R is given" },
    { 'R', "checkRead", NULL, FLAG, AT(check_read), 0, 1, "compare every byte: with -r, in a second pass; alone, in the timed one" },
    { 's', "segmentCount", "N", NUMBER, AT(segment_count), 1, BIG, "segments: each holds a block of every task" },
    { 't', "transferSize", "SIZE", SIZE, AT(transfer_size), 1, INT32_MAX, "of one call; 256k unless set; blockSize is a multiple of it" },
    { 'T', "maxTimeDuration", "N", NUMBER, AT(max_minutes), 0, 1000000, "begin no phase after so many minutes" },
    { 'u', "uniqueDir", NULL, FLAG, AT(unique_dir), 0, 1, "with -F: a directory for each task's file" },
    { 'U', "hintsFileName", "PATH", TEXT, AT(hints_file), 0, 0, "lines IOR_HINT__MPI__name=value; the environment is looked at too" },
    { 'v', "verbose", NULL, COUNT, AT(verbose), 0, 5, "say more; up to -vvvv: each transfer" },
    { 'V', "useFileView", NULL, FLAG, AT(file_view), 0, 1, "MPIIO: a file view of this task's blocks, and individual file pointers" },
    { 'w', "writeFile", NULL, FLAG, AT(write), 0, 1, "write; an existing file is removed first" },
    { 'W', "checkWrite", NULL, FLAG, AT(check_write), 0, 1, "after writing, read and compare every byte" },
    { 'x', "singleXferAttempt", NULL, FLAG, AT(single_attempt), 0, 1, "POSIX: a transfer that is cut short is an error" },
    { 'X', "reorderTasksRandomSeed", "N", NUMBER, AT(order_seed), INT32_MIN, INT32_MAX, "of -Z; negative: another one for each repetition" },
    { 'Y', "fsyncPerWrite", NULL, FLAG, AT(fsync_per_write), 0, 1, "fsync after each write" },
    { 'z', "randomOffset", NULL, COUNT, AT(random_offset), 0, 2, "transfers in random order, all over the file; twice: blocks drawn at random, some never" },
    { 'Z', "reorderTasksRandom", NULL, COUNT, AT(reorder_random), 0, 2, "each task reads back what a random other one wrote" },
    { 0, "posix.odirect", NULL, FLAG, AT(odirect), 0, 1, "POSIX: O_DIRECT" },
    { 0, "posix.rangelocks", NULL, FLAG, AT(range_locks), 0, 1, "POSIX: an fcntl lock of its range around each transfer" },
    { 0, "random-offset-seed", "N", NUMBER, AT(offset_seed), 0, BIG, "of -z" },
    { 0, "hdf5.collectiveMetadata", NULL, FLAG, AT(collective_metadata), 0, 1, "HDF5: metadata is read and written collectively" },
    { 0, "hdf5.chunkSize", "N", NUMBER, AT(chunk_size), 0, BIG, "HDF5: chunked datasets, elements of a chunk" },
    { 0, "stoneWallingWearOut", NULL, FLAG, AT(wear_out), 0, 1, "with -D: all go on until they have as much as the fastest" },
    { 0, "stoneWallingWearOutIterations", "N", NUMBER, AT(wear_out_transfers), 0, BIG, "each task has so many transfers at most" },
    { 0, "stoneWallingStatusFile", "PATH", TEXT, AT(status_file), 0, 0, "keeps how many transfers were written, for a later run that reads" },
    { 0, "interIODelay", "N", NUMBER, AT(delay_us), 0, BIG, "microseconds to wait after each transfer" },
    { 0, "memoryPerTask", "SIZE", SIZE, AT(memory_per_task), 0, BIG, "memory that each task holds meanwhile" },
    { 0, "saveRankPerformanceDetailsCSV", "PATH", TEXT, AT(ranks_file), 0, 0, "a line for each task and phase" },
    { 0, "summaryFormat", "FORMAT", TEXT, AT(summary_format), 0, 0, "default, JSON or CSV" },
    { 0, "summaryFile", "PATH", TEXT, AT(summary_file), 0, 0, "where results go instead of to the terminal" },
    { 0, "iorData", NULL, FLAG, AT(ior_data), 0, 1, "the bytes that IOR 4 writes (not IOR's): for files of one that the other reads" },
    { 0, "print-man-options", NULL, FLAG, AT(man), 0, 1, NULL },
};

/* IOR's, and not ours. */
static const struct {
    char letter;
    const char *name;
} foreign[] = {
    { 'I', "individualDataSets" }, { 'P', "useSharedFilePointer" }, { 'S', "useStridedDatatype" }, { 'y', "dualMount" },
    { 0, "platform" }, { 0, "dryRun" }, { 0, "randomPrefill" }, { 0, "warningAsErrors" }, { 0, "minTimeDuration" },
    { 0, "gpuDirect" }, { 0, "allocateBufferOnGPU" }, { 0, "summaryAlways" }, { 0, "savePerOpDataCSV" }, { 0, "numNodes" },
    { 0, "numTasksOnNode0" }, { 0, "storeFileOffset" },
};

#define COUNT_OF(a) (sizeof(a) / sizeof((a)[0]))

/* mpiio.useFileView is useFileView, and so on; what has no plain name is found as it is. */
static const char *plain(const char *name)
{
    static const char *const prefixes[] = { "mpiio.", "ncmpi.", "hdf5.", "posix." };

    for (size_t i = 0; i < COUNT_OF(prefixes); i++)
        if (strncasecmp(name, prefixes[i], strlen(prefixes[i])) == 0)
            return name + strlen(prefixes[i]);
    return name;
}

static const struct spec *by_name(const char *name)
{
    for (size_t i = 0; i < COUNT_OF(table); i++)
        if (strcasecmp(plain(table[i].name), plain(name)) == 0)
            return &table[i];
    if (strcasecmp(name, "useO_DIRECT") == 0)
        return by_name("odirect");
    return strcasecmp(name, "reorderTasksConstant") == 0 ? by_name("reorderTasks") : NULL;
}

static const struct spec *by_letter(char letter)
{
    for (size_t i = 0; i < COUNT_OF(table); i++)
        if (letter && table[i].letter == letter)
            return &table[i];
    return NULL;
}

static bool unknown(char letter, const char *name, bool print)
{
    char given[3] = { '-', letter, '\0' };

    for (size_t i = 0; i < COUNT_OF(foreign); i++)
        if (letter ? foreign[i].letter == letter : strcasecmp(plain(foreign[i].name), plain(name)) == 0) {
            if (print)
                fprintf(stderr, "fpior: %s%s%s is an option of IOR that fpior does not have\n", letter ? given : "",
                    letter ? " " : "", foreign[i].name);
            return false;
        }
    if (print)
        fprintf(stderr, "fpior: '%s' is no option; see --help\n", letter ? given : name);
    return false;
}

static bool number(const char *text, int64_t *out, bool size)
{
    static const char units[] = "kKmMgGtTpP";
    char *end;
    const char *unit;
    unsigned shift = 0;

    errno = 0;
    *out = strtoll(text, &end, 10);
    if (end == text || errno)
        return false;
    if (size && *end) {
        unit = strchr(units, *end);
        shift = unit ? 10 * (1 + (unsigned)(unit - units) / 2) : 0;
        if (!unit || *out < 0 || *out > INT64_MAX >> shift)
            return false;
        *out <<= shift;
        end++;
    }
    return *end == '\0' || (shift > 0 && strcasecmp(end, "iB") == 0);
}

bool params_memory(const char *text, int64_t *bytes)
{
    char *end;
    double share = strtod(text, &end);

    if (strcmp(end, "%") != 0)
        return number(text, bytes, true) && *bytes >= 0;
    *bytes = (int64_t)(share / 100 * (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE));
    return share >= 0 && share <= 100;
}

static bool set(struct params *p, const struct spec *s, const char *value, bool print)
{
    void *at = (char *)p + s->at;
    int64_t n = 0;

    if (s->kind == TEXT && *value) {
        *(const char **)at = value;
        return true;
    }
    if (s->kind != TEXT && number(value, &n, s->kind == SIZE || s->kind == NUMBER) && n >= s->min && n <= s->max) {
        *(int64_t *)at = n;
        return true;
    }
    if (print)
        fprintf(stderr, "fpior: %s does not take '%s'; see --help\n", s->name, value);
    return false;
}

static bool raise_flag(struct params *p, const struct spec *s)
{
    int64_t *at = (int64_t *)((char *)p + s->at);

    *at = s->kind == COUNT && *at < s->max ? *at + 1 : 1 > *at ? 1 : *at;
    return true;
}

static bool takes_value(const struct spec *s)
{
    return s->kind != FLAG && s->kind != COUNT;
}

static char *trim(char *text)
{
    char *end;

    text += strspn(text, BLANKS);
    for (end = text + strlen(text); end > text && strchr(BLANKS, end[-1]); end--)
        end[-1] = '\0';
    return text;
}

/* -O name=value,name=value; in scripts with blanks around them. */
bool params_directives(struct params *p, const char *text, bool print)
{
    char *state = NULL, *list = strdup(text); /* values point into it */

    for (char *one = list ? strtok_r(list, ",", &state) : NULL; one; one = strtok_r(NULL, ",", &state)) {
        char *value = strchr(one, '=');
        const struct spec *s;

        if (!value) {
            if (print)
                fprintf(stderr, "fpior: -O takes name=value, not '%s'\n", one);
            return false;
        }
        *value++ = '\0';
        s = by_name(trim(one));
        if (!s)
            return unknown(0, trim(one), print);
        if (!set(p, s, trim(value), print))
            return false;
    }
    return true;
}

/* --name, --name=value, --name value */
static bool long_option(struct params *p, char **argv, int *i, bool print)
{
    char *value = strchr(argv[*i], '='), name[64];
    const struct spec *s;

    snprintf(name, sizeof name, "%.*s", value ? (int)(value - argv[*i] - 2) : 63, argv[*i] + 2);
    value += value != NULL;
    s = by_name(name);
    if (!s)
        return unknown(0, name, print);
    if (!value && !takes_value(s))
        return raise_flag(p, s);
    if (!value && !(value = argv[++*i])) {
        if (print)
            fprintf(stderr, "fpior: --%s wants a value\n", name);
        return false;
    }
    return set(p, s, value, print);
}

/* -wWr, -b 1m, -b1m, -b=1m, -k=0 */
static bool short_options(struct params *p, char **argv, int *i, bool print)
{
    for (char *at = argv[*i] + 1; *at; at++) {
        const struct spec *s = by_letter(*at);
        char *value;

        if (!s && *at != 'O')
            return unknown(*at, NULL, print);
        if (s && !takes_value(s) && at[1] != '=') {
            raise_flag(p, s);
            continue;
        }
        value = at[1] == '=' ? at + 2 : at[1] ? at + 1 : argv[++*i];
        if (!value) {
            if (print)
                fprintf(stderr, "fpior: -%c wants a value\n", *at);
            return false;
        }
        return s ? set(p, s, value, print) : params_directives(p, value, print);
    }
    return true;
}

bool params_parse(struct params *p, int argc, char **argv, bool print)
{
    *p = (struct params){ .api = "POSIX", .test_file = "testFile", .packet = "timestamp", .summary_format = "default",
                  .block_size = 1 << 20, .transfer_size = 256 << 10, .segment_count = 1, .repetitions = 1, .alignment = 1,
                  .task_offset = 1 };
    for (int i = 1; i < argc && !p->help; i++) {
        bool good;

        if (strncmp(argv[i], "--", 2) == 0 && argv[i][2])
            good = long_option(p, argv, &i, print);
        else if (argv[i][0] == '-' && argv[i][1] && argv[i][1] != '-')
            good = short_options(p, argv, &i, print);
        else
            good = unknown(0, argv[i], print);
        if (!good)
            return false;
    }
    return true;
}

void params_help(FILE *out)
{
    fputs("Usage: mpirun -n TASKS fpior [OPTIONS]\n"
          "Parallel I/O as IOR does it, with IOR's options: each task writes and reads its blocks of a file, by calls of transferSize.\n"
          "SIZE is bytes, or a number with k, m, g or t.\n", out);
    for (size_t i = 0; i < COUNT_OF(table); i++) {
        char left[64];

        if (!table[i].help)
            continue;
        if (table[i].letter)
            snprintf(left, sizeof left, "  -%c %-6s %s", table[i].letter, table[i].arg ? table[i].arg : "", table[i].name);
        else
            snprintf(left, sizeof left, "  --%s%s%s", table[i].name, table[i].arg ? "=" : "", table[i].arg ? table[i].arg : "");
        fprintf(out, "%-36s %s\n", left, table[i].help);
    }
    fputs("  -O NAME=VALUE,...                  any of them by name\n", out);
}

static void man_text(FILE *out, const char *text)
{
    for (; *text; text++)
        fprintf(out, *text == '-' ? "\\-" : "%c", *text);
}

void params_man(FILE *out)
{
    for (size_t i = 0; i < COUNT_OF(table); i++) {
        if (!table[i].help)
            continue;
        fputs(table[i].arg ? ".TP\n.BI \"" : ".TP\n.B \"", out);
        if (table[i].letter)
            fprintf(out, "\\-%c\\fR, \\fB", table[i].letter);
        fputs("\\-\\-", out);
        man_text(out, table[i].name);
        fprintf(out, table[i].arg ? "=\" %s\n" : "\"\n", table[i].arg);
        man_text(out, table[i].help);
        fputs(".\n", out);
    }
}
