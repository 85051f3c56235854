/*
 * fp-convert run: one conversion. Called by main; options become a struct cv_job (engine/engine.h).
 *
 * --status-fd is for who started us: a line of JSON now and then, and one with the reason at the end if it failed. SIGTERM ends the work between two tiles, and the temporary file goes; a second signal ends
 * the process as it does others.
 */
#include <errno.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "convert/command.h"
#include "convert/engine/engine.h"
#include "convert/filelist.h"
#include "fp/clock.h"
#include "fp/log.h"
#include "fp/opt.h"

#define TELL_MS   500u

struct words {
    const char *from, *to, *schema, *out, *compress, *shuffle, *chunk, *converted, *of;
    int checksum, shuffle_word;
    uint64_t memory;
    bool xdmf, replace, mpi;
    struct fp_strlist only, inputs, files_from, only_from; /* of lists one each, or none: which of two would count is not for a program to choose */
    struct cv_filelist all_only, all_inputs; /* with those of lists */
    int64_t status_fd;
    enum cv_codec codec;
    int level;
    uint64_t shape[CV_RANK_MAX];
};

static const char *const checksums[] = {"none", "fletcher32", NULL};
static const char *const shuffles[] = {"auto", "on", "off", NULL};
static struct words parsed; /* what the checks of single options have read */

static const char *check_from(const char *text)
{
    return cv_source_find(text) ? NULL : "it is raw, fortran, npy, npz, group, hdf5 or adios";
}

static const char *check_to(const char *text)
{
    return cv_sink_find(text) ? NULL : "it is hdf5, netcdf, netcdf3 or raw";
}

/* none, deflate, deflate:6, zstd:3 */
static const char *check_compress(const char *text)
{
    static const struct { const char *name; enum cv_codec codec; long low, high, usual; } codecs[] = {
        {"none", CV_CODEC_NONE, 0, 0, 0}, {"deflate", CV_CODEC_DEFLATE, 1, 9, 1}, {"zstd", CV_CODEC_ZSTD, 1, 19, 1}};
    size_t len = strcspn(text, ":");
    char *end = (char *)"";

    for (size_t i = 0; i < sizeof codecs / sizeof *codecs; i++) {
        long level = codecs[i].usual;

        if (strlen(codecs[i].name) != len || strncmp(codecs[i].name, text, len) != 0)
            continue;
        if (text[len])
            level = strtol(text + len + 1, &end, 10);
        if ((text[len] && !text[len + 1]) || *end || level < codecs[i].low || level > codecs[i].high)
            return "levels are deflate:1 to deflate:9, zstd:1 to zstd:19";
        parsed.codec = codecs[i].codec;
        parsed.level = (int)level;
        return NULL;
    }
    return "it is none, deflate, deflate:LEVEL, zstd or zstd:LEVEL";
}

/* auto, or 64x64x64 */
static const char *check_chunk(const char *text)
{
    unsigned n = 0;

    memset(parsed.shape, 0, sizeof parsed.shape);
    if (strcmp(text, "auto") == 0)
        return NULL;
    for (const char *at = text;; at++) {
        char *end;
        unsigned long long v;

        errno = 0;
        v = strtoull(at, &end, 10);
        if (n == CV_RANK_MAX || *at < '0' || *at > '9' || errno || v == 0)
            return "it is auto, or the elements in each dimension: 64x64x64";
        parsed.shape[n++] = v;
        if (!*end)
            return NULL;
        at = end;
        if (*at != 'x')
            return "it is auto, or the elements in each dimension: 64x64x64";
    }
}

static const struct fp_opt options[] = {
    FP_OPT_LIST(struct words, inputs, "input", NULL, CV_FILES_MAX, "Files of one set.", .flags = FP_OPT_POSITIONAL | FP_OPT_NO_FILE | FP_OPT_WHOLE, .arg = "INPUT"),
    FP_OPT_LIST(struct words, files_from, "files0-from", NULL, 1,
                  "Inputs are in FILE, too, behind those that are words: more than a command line holds. A NUL byte ends each name, as find -print0 writes them; - is standard input.",
                  .flags = FP_OPT_NO_FILE | FP_OPT_WHOLE, .arg = "FILE"),
    FP_OPT_STRING(struct words, from, "from", NULL, "What they are: raw, fortran, npy, npz, group, hdf5 or adios.", .flags = FP_OPT_REQUIRED | FP_OPT_NO_FILE, .arg = "FORMAT", .check = check_from),
    FP_OPT_STRING(struct words, to, "to", "hdf5", "What is made of them: hdf5, netcdf (netCDF-4), netcdf3 (classic, 64-bit), or raw, files of ranks as the schema has them, in a directory.",
                  .flags = FP_OPT_NO_FILE, .arg = "FORMAT", .check = check_to),
    FP_OPT_PATH(struct words, schema, "schema", NULL, "What raw files hold, those that are read or those that are written.", .flags = FP_OPT_NO_FILE, .arg = "FILE"),
    FP_OPT_PATH(struct words, out, "out", NULL, "The result. It appears whole, or not at all.", .flags = FP_OPT_REQUIRED | FP_OPT_NO_FILE, .arg = "FILE"),
    FP_OPT_STRING(struct words, compress, "compress", "none", "none, deflate or zstd, with a level: deflate:6.", .flags = FP_OPT_NO_FILE, .arg = "CODEC[:LEVEL]", .check = check_compress),
    FP_OPT_ENUM(struct words, shuffle_word, "shuffle", "auto", shuffles, "Sort the bytes of numbers by significance before compressing. auto: if anything is compressed.", .flags = FP_OPT_NO_FILE),
    FP_OPT_ENUM(struct words, checksum, "checksum", "none", checksums, "A checksum for each chunk, which HDF5 compares when it reads.", .flags = FP_OPT_NO_FILE),
    FP_OPT_STRING(struct words, chunk, "chunk", "auto", "Shape of the chunks of datasets with as many dimensions: 64x64x64. auto, and all others: pieces of the ranks' blocks, of at most 4 MiB. A shape of more than a quarter of the memory, or of a twelfth where chunks are shuffled and compressed, is cut, and a line says so.", .flags = FP_OPT_NO_FILE, .arg = "SHAPE",
                  .check = check_chunk),
    FP_OPT_SIZE(struct words, memory, "memory", "64MiB", 1u << 20, UINT64_C(1) << 40, "For all buffers together, however large the dump is.", .flags = FP_OPT_NO_FILE),
    FP_OPT_BOOL(struct words, xdmf, "xdmf", "off", "With --to=hdf5: an XDMF file, NAME.xmf beside NAME.h5, by which ParaView and VisIt open it.", .flags = FP_OPT_NO_FILE),
    FP_OPT_LIST(struct words, only, "only", NULL, CV_FILES_MAX, "Only the blocks of this input; given again for each. The result is a part, which fp-convert join puts together with others.",
                .flags = FP_OPT_NO_FILE | FP_OPT_WHOLE, .arg = "INPUT"),
    FP_OPT_LIST(struct words, only_from, "only0-from", NULL, 1, "As --only, of all inputs that are in FILE, as --files0-from has them: named as they are there.", .flags = FP_OPT_NO_FILE | FP_OPT_WHOLE, .arg = "FILE"),
    FP_OPT_BOOL(struct words, replace, "replace", "off", "Replace what is there under the name of the result.", .flags = FP_OPT_NO_FILE),
    FP_OPT_BOOL(struct words, mpi, "mpi", "off", "All ranks that mpirun or srun has started make one result together.", .flags = FP_OPT_NO_FILE),
    FP_OPT_STRING(struct words, converted, "converted", NULL, "Value of the result's attribute user.fp.converted.", .flags = FP_OPT_NO_FILE | FP_OPT_HIDDEN, .arg = "NAME"),
    FP_OPT_STRING(struct words, of, "of", NULL, "Value of the result's attribute user.fp.convert_of.", .flags = FP_OPT_NO_FILE | FP_OPT_HIDDEN, .arg = "TEXT"),
    FP_OPT_INT(struct words, status_fd, "status-fd", "-1", -1, 1 << 20, "Write lines of JSON to this descriptor: how far it is, and why it failed.", .flags = FP_OPT_NO_FILE, .arg = "N"),
    FP_OPT_END,
};

static const struct fp_opt_table table = {
    .prog = "fp-convert",
    .section = NULL,
    .usage = "fp-convert run --from=FORMAT --out=FILE [OPTION]... INPUT...",
    .summary = "Convert dumps to HDF5 or netCDF, or HDF5 to raw files of ranks.",
    .opts = options,
};

/* ---------------------------------------------------------------- telling */

struct telling {
    int fd;
    uint64_t next_ms;
};

/* Paths are bytes, and may be cut: JSON has UTF-8 alone, so that each byte which is none becomes '?'. */
static json_t *words_of(const char *text)
{
    json_t *whole = json_string(text);
    char copy[PATH_MAX + 1024];

    if (whole)
        return whole;
    snprintf(copy, sizeof copy, "%s", text);
    for (char *at = copy; *at;) {
        unsigned char lead = (unsigned char)*at;
        size_t n = strnlen(at, lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4);
        json_t *one = json_stringn(at, n);

        if (!one)
            *at = '?';
        at += one ? n : 1;
        json_decref(one);
    }
    return json_string(copy);
}

/* otherwise: the line when memory is out (NULL: none), for who removes dumps relies on it. */
static void put_line(int fd, json_t *o, const char *otherwise)
{
    char *text = o ? json_dumps(o, JSON_COMPACT) : NULL;
    const char *line = text ? text : otherwise;

    if (line && dprintf(fd, "%s\n", line) < 0)
        (void)0; /* nobody listens any more: the work is the same */
    free(text);
    json_decref(o);
}

static int progress(void *arg, uint64_t done, uint64_t of)
{
    struct telling *t = arg;
    uint64_t now = fp_now_ms();

    if (t->fd >= 0 && now >= t->next_ms) {
        t->next_ms = now + TELL_MS;
        put_line(t->fd, json_pack("{sIsI}", "done", (json_int_t)done, "of", (json_int_t)of), NULL);
    }
    return cv_command_interrupted() ? -EINTR : 0;
}

static void left_out(void *arg, const char *what)
{
    const struct telling *t = arg;

    fprintf(stderr, "fp-convert: WARN: left out: %s\n", what);
    if (t->fd >= 0)
        put_line(t->fd, json_pack("{so}", "left_out", words_of(what)), "{\"left_out\":\"?\"}");
}

static void note(void *arg, const char *what)
{
    (void)arg;
    FP_WARN("%s", what);
}

int cv_command_failed(int rc, const struct cv_fail *why, int status_fd)
{
    char line[PATH_MAX + 1024];

    cv_fail_line(why, line, sizeof line);
    fprintf(stderr, "fp-convert: ERROR: %s\n", line);
    if (status_fd >= 0) {
        json_t *o = json_pack("{sisososo}", "errno", rc, "failed", words_of(why->text), "file", words_of(why->file), "dataset", words_of(why->dataset));

        snprintf(line, sizeof line, "{\"errno\":%d,\"failed\":\"?\"}", rc);
        if (o && why->offset_bytes != CV_NO_OFFSET)
            json_object_set_new(o, "offset", json_integer((json_int_t)why->offset_bytes));
        put_line(status_fd, o, line);
    }
    return 1;
}

int cv_command_mistake(const char *text, const char *command)
{
    FP_ERROR("%s: fp-convert %s --help", text, command);
    return 2;
}

int cv_command_bad_list(const struct cv_fail *why, const char *command)
{
    char line[PATH_MAX + 1024];

    cv_fail_line(why, line, sizeof line);
    return cv_command_mistake(line, command);
}

static volatile sig_atomic_t interrupted;

static void on_signal(int sig)
{
    interrupted = sig;
}

void cv_command_signals(void)
{
    struct sigaction a = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND};

    sigaction(SIGTERM, &a, NULL);
    sigaction(SIGINT, &a, NULL);
    sigaction(SIGHUP, &a, NULL);
    signal(SIGPIPE, SIG_IGN);
}

int cv_command_interrupted(void)
{
    return interrupted;
}

/* ---------------------------------------------------------------- the job */

static int mistake(const char *text)
{
    return cv_command_mistake(text, "run");
}

static bool is_part(const struct words *w)
{
    return w->only.count || w->only_from.count;
}

static const char *one(const struct fp_strlist *l)
{
    return l->count ? l->items[0] : NULL;
}

static bool is_standard_input(const struct fp_strlist *from)
{
    return from->count && strcmp(one(from), "-") == 0;
}

/* The same of lists. */
static const char *bad_lists(const struct words *w)
{
    if (!w->inputs.count && !w->files_from.count)
        return "INPUT is missing (or --files0-from)";
    if (is_standard_input(&w->files_from) && is_standard_input(&w->only_from))
        return "--files0-from and --only0-from can't both read standard input: write one of the lists to a file";
    if (w->mpi && is_standard_input(&w->files_from))
        return "--files0-from=- is not for --mpi: only the first rank has that standard input; write the list to a file";
    return NULL;
}

/* NULL, or what does not go together. */
static const char *contradiction(const struct words *w, const struct cv_job *j)
{
    if (j->from->needs_schema && !w->schema)
        return "--from=raw and --from=fortran need --schema";
    if (j->to == &cv_sink_raw && !w->schema)
        return "--to=raw needs --schema: how many ranks, and what their files hold";
    if (w->codec != CV_CODEC_NONE && !j->to->chunked)
        return "--compress is for hdf5 and netcdf";
    if (w->checksum && !j->to->chunked)
        return "--checksum is for hdf5 and netcdf";
    if (w->shape[0] && !j->to->chunked)
        return "--chunk is for hdf5 and netcdf";
    if (w->xdmf && j->to != &cv_sink_hdf5)
        return "--xdmf is for hdf5";
    if (w->xdmf && is_part(w))
        return "--xdmf is for whole results, not for a part (--only)";
    if (is_part(w) && j->to != &cv_sink_hdf5)
        return "--only is for hdf5";
    if (w->mpi && (j->to == &cv_sink_raw || is_part(w)))
        return "--mpi is neither for --to=raw nor with --only";
    return NULL;
}

static int fill_job(const struct words *w, struct cv_job *j)
{
    static char dir[PATH_MAX];
    const char *slash = strrchr(w->out, '/');
    const struct cv_source_ops *from = cv_source_find(w->from);
    bool of_output = cv_sink_find(w->to) == &cv_sink_raw && !from->needs_schema; /* then the schema is of what is written */

    snprintf(dir, sizeof dir, "%.*s", slash ? (int)(slash - w->out) + 1 : 1, slash ? w->out : ".");
    *j = (struct cv_job){
        .from = from,
        .to = cv_sink_find(w->to),
        .in = {.paths = w->all_inputs.items, .npaths = w->all_inputs.count, .schema = of_output ? NULL : w->schema, .spool = dir},
        .out = {.codec = w->codec,
                .level = w->level,
                .shuffle = w->shuffle_word == 1 || (w->shuffle_word == 0 && w->codec != CV_CODEC_NONE),
                .fletcher32 = w->checksum == 1,
                .parallel = w->mpi,
                .schema = w->schema},
        .path = w->out,
        .converted = w->converted,
        .of = w->of,
        .left_out = left_out,
        .note = note,
        .memory_bytes = w->memory,
        .only = w->all_only.items,
        .nonly = w->all_only.count,
        .lists = {one(&w->files_from), one(&w->only_from)},
        .xdmf = w->xdmf,
        .replace = w->replace,
        .progress = progress,
    };
    memcpy(j->chunk, w->shape, sizeof j->chunk);
    return 0;
}

/* A list that is none is a mistake in the call, as it is for other programs that take one. Exit code, or 0. */
static int read_lists(struct words *w, struct cv_fail *why)
{
    int rc = cv_filelist_fill(&w->all_inputs, &w->inputs, one(&w->files_from), why);

    rc = rc ? rc : cv_filelist_fill(&w->all_only, &w->only, one(&w->only_from), why);
    if (rc == -EINVAL)
        return cv_command_bad_list(why, "run");
    return rc ? cv_command_failed(rc, why, (int)w->status_fd) : 0;
}

/* Exit code. */
static int convert(struct words *w, struct cv_job *job, struct cv_fail *why)
{
    struct telling t = {.fd = (int)w->status_fd};
    int rc;

    job->arg = &t;
    cv_command_signals();
    rc = cv_job_run(job, why);
    if (rc == -EINTR && cv_command_interrupted())
        return 128 + cv_command_interrupted();
    if (rc && !why->text[0])
        (void)cv_fail(why, rc, w->out, NULL, CV_NO_OFFSET, "%s", strerror(-rc));
    return rc ? cv_command_failed(rc, why, t.fd) : 0;
}

int cv_run_command(int argc, char **argv)
{
    static struct words w;
    static struct cv_fail why;
    struct cv_job job;
    struct fp_opts *opts = fp_opt_parse_or_exit(&table, &w, argc, argv);
    const char *wrong;
    int rc;

    w.codec = parsed.codec;
    w.level = parsed.level;
    memcpy(w.shape, parsed.shape, sizeof w.shape);
    wrong = bad_lists(&w);
    rc = wrong ? mistake(wrong) : read_lists(&w, &why);
    if (rc)
        goto out;
    (void)fill_job(&w, &job);
    wrong = contradiction(&w, &job);
    rc = wrong ? mistake(wrong) : convert(&w, &job, &why);
out:
    cv_filelist_free(&w.all_inputs);
    cv_filelist_free(&w.all_only);
    fp_opts_free(opts);
    return rc;
}

int cv_formats_command(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    puts("from:");
    for (const struct cv_source_ops *const *s = cv_sources; *s; s++)
        printf("  %-10s %s%s\n", (*s)->name, (*s)->summary, (*s)->needs_schema ? " (with a schema)" : "");
    puts("to:");
    for (const struct cv_sink_ops *const *s = cv_sinks; *s; s++)
        printf("  %-10s %s\n", (*s)->name, (*s)->summary);
    return 0;
}
