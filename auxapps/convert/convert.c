/*
 * Aux-app convert: dumps become HDF5 or netCDF files while they are near.
 *
 *     convert from=raw to=hdf5 schema=/home/me/run.yaml pattern=run/dump_N/rank_*.raw
 *
 * No chunk passes it, so it costs a write nothing. What it does itself is little: it says to a program of its own, `fp-convert watch`, which files were closed and which sets are complete, and passes on what that says to
 * the log and the counters of `fpctl auxapps`. fp-convert looks for work, has each conversion done by a process, and survives what libraries do with poisoned files; it links HDF5 and MPI, which nothing here
 * may (convert/watch/). It is started beside this host's program, ends with the host, and is started again when it dies.
 *
 * Threads: one, the keeper, starts that program, reads what it says, and waits for its end. Callbacks write a line to a pipe that never blocks; a line that finds no room is replaced by the word to look
 * at everything, which the keeper says later. So a conversion can take as long as it likes, and no deadline of the host runs.
 *
 * Gauge "backlog" says how much the program has been told and has not marked in the store yet: who waits for conversions (fpctl conversions --wait) has to wait for that first.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "fp/auxapp.h"

extern char **environ;

#define WORD_BYTES   4400
#define WORDS_MAX    40
#define LINE_BYTES   4600
#define AGAIN_MS     1000   /* it has died: started again, later and later */
#define AGAIN_MAX_MS 60000
#define LIVED_MS     60000  /* then the next pause is the short one again */
#define LOOK_MS      500
#define END_MS       5000   /* it has so long to end */
#define CHECK_S      30     /* for what fp-convert is asked before the mount is there */
#define SAID_BYTES   600u   /* of what it says then */
#define EXIT_USAGE   2      /* its exit code for options that it does not take */

struct convert {
    struct fp_aux_host *host;
    char program[4096];
    char *words[WORDS_MAX + 1];
    pthread_t keeper;
    bool kept;
    _Atomic bool stopping;
    _Atomic int to;         /* pipe to the program; -1: it does not run */
    _Atomic bool missed;    /* it was not told of something */
    pthread_mutex_t lock;   /* one line at a time; `to` is closed under it */
    long long told, heard;  /* lock: lines, since the program was started; that it looks at everything then is the first */
    pid_t pid;              /* the keeper's */
    char line[LINE_BYTES];  /* that it says, as far as it has come */
    size_t line_bytes;
};

static const char *const formats_in[] = { "raw", "fortran", "npy", "npz", "group", "hdf5", "adios", NULL };
static const char *const formats_out[] = { "hdf5", "netcdf", "netcdf3", NULL };
static const char *const keeps[] = { "raw", "none", NULL };
static const char *const joins[] = { "auto", "one", "vds", NULL };
static const char *const on_off[] = { "off", "on", NULL };
static const char *const shuffles[] = { "auto", "on", "off", NULL };
static const char *const checksums[] = { "none", "fletcher32", NULL };

static const struct fp_aux_option options[] = {
    { .name = "from", .fallback = "raw", .choices = formats_in, .help = "What the dumps are." },
    { .name = "to", .fallback = "hdf5", .choices = formats_out, .help = "What is made of them: netcdf is netCDF-4, netcdf3 the classic format." },
    { .name = "schema", .help = "What raw dumps hold: a file, docs/CONVERT.md. raw and fortran need one." },
    { .name = "pattern", .help = "Which files are dumps, as paths in the store: run/dump_*/rank_*.raw." },
    { .name = "into", .help = "Directory of the store for results. By default beside the dump." },
    { .name = "compress", .fallback = "none", .help = "none, deflate or zstd, with a level: deflate:6." },
    { .name = "shuffle", .fallback = "auto", .choices = shuffles, .help = "Sort the bytes of numbers by significance before compressing." },
    { .name = "checksum", .fallback = "none", .choices = checksums, .help = "A checksum for each chunk of the result." },
    { .name = "chunk", .fallback = "auto", .help = "Shape of the chunks of datasets with as many dimensions: 64x64x64." },
    { .name = "memory", .fallback = "64MiB", .is_size = true, .min = 1 << 20, .max = INT64_C(1) << 40, .help = "For all buffers of one conversion." },
    { .name = "keep", .fallback = "raw", .choices = keeps, .help = "none: the dump is removed when its result is there (not for hdf5 and adios)." },
    { .name = "join", .fallback = "auto", .choices = joins, .help = "Dumps of several nodes: vds, each makes a part; one, one node makes all. auto: vds for hdf5 without xdmf." },
    { .name = "xdmf", .fallback = "off", .choices = on_off, .help = "With hdf5: an XDMF file beside, for ParaView and VisIt." },
    { .name = NULL },
};

/* Options that go to the program as they are. */
static const char *const passed_on[] = { "from", "to", "schema", "pattern", "into", "compress", "shuffle", "checksum", "chunk", "memory", "keep", "join", "xdmf", NULL };

static void say(struct convert *c, enum fp_aux_level level, const char *text)
{
    fp_aux_log(c->host, level, text);
}

/* lock held. What it was not told of counts as one. */
static void say_backlog(struct convert *c)
{
    fp_aux_gauge(c->host, "backlog", c->told - c->heard + c->missed);
}

static void miss(struct convert *c)
{
    pthread_mutex_lock(&c->lock);
    c->missed = true;
    say_backlog(c);
    pthread_mutex_unlock(&c->lock);
}

static void begin_backlog(struct convert *c)
{
    pthread_mutex_lock(&c->lock);
    c->told = 1;
    c->heard = 0;
    say_backlog(c);
    pthread_mutex_unlock(&c->lock);
}

static void has_heard(struct convert *c, long long lines)
{
    pthread_mutex_lock(&c->lock);
    c->heard = lines;
    say_backlog(c);
    pthread_mutex_unlock(&c->lock);
}

/* -------------------------------------------------------------- the program and its words */

/* Beside fp-auxhost, or where installations have programs. */
static bool find_program(struct convert *c)
{
    static const char *const tails[] = { "/fp-convert", "/../bin/fp-convert", "/../../bin/fp-convert", NULL };
    char here[4000];
    ssize_t n = readlink("/proc/self/exe", here, sizeof(here) - 1);

    if (n <= 0)
        return false;
    here[n] = '\0';
    *strrchr(here, '/') = '\0';
    for (const char *const *t = tails; *t; t++) {
        snprintf(c->program, sizeof(c->program), "%s%s", here, *t);
        if (access(c->program, X_OK) == 0)
            return true;
    }
    return false;
}

static int add_word(struct convert *c, const char *word)
{
    size_t n = 0;

    while (n < WORDS_MAX && c->words[n])
        n++;
    if (n == WORDS_MAX)
        return -ENOSPC;
    c->words[n] = strdup(word);
    return c->words[n] ? 0 : -ENOMEM;
}

static int add_option(struct convert *c, const char *name, const char *value)
{
    char word[WORD_BYTES];

    if (snprintf(word, sizeof(word), "--%s=%s", name, value) >= (int)sizeof(word))
        return -ENAMETOOLONG;
    return add_word(c, word);
}

static int fill_words(struct convert *c)
{
    int rc = add_word(c, c->program);

    rc = rc ? rc : add_word(c, "watch");
    rc = rc ? rc : add_option(c, "mount", fp_aux_mountpoint(c->host));
    rc = rc ? rc : add_option(c, "node", fp_aux_node(c->host));
    rc = rc ? rc : add_option(c, "cores", fp_aux_cores(c->host));
    for (const char *const *o = passed_on; *o && rc == 0; o++) {
        const char *value = fp_aux_option_text(c->host, *o);

        if (value)
            rc = add_option(c, *o, value);
    }
    return rc;
}

static void free_words(struct convert *c)
{
    for (size_t i = 0; c->words[i]; i++)
        free(c->words[i]);
}

/* -------------------------------------------------------------- the keeper */

static void pause_ms(struct convert *c, long ms)
{
    struct timespec t = { 0, 50000000 };

    for (; ms > 0 && !c->stopping; ms -= 50)
        nanosleep(&t, NULL);
}

static int64_t now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* Its standard input and output are pipes; where it may run it inherits from this thread, and then chooses by --cores. */
static int start_program(struct convert *c, int *from)
{
    int in[2] = { -1, -1 }, out[2] = { -1, -1 }, rc;
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attr;

    if (pipe2(in, O_CLOEXEC) < 0 || pipe2(out, O_CLOEXEC) < 0) {
        rc = errno;
        goto fail;
    }
    (void)fcntl(in[1], F_SETFL, O_NONBLOCK);
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, in[0], 0);
    posix_spawn_file_actions_adddup2(&files, out[1], 1);
    posix_spawnattr_init(&attr);
    posix_spawnattr_setpgroup(&attr, 0);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETPGROUP);
    rc = posix_spawn(&c->pid, c->program, &files, &attr, c->words, environ);
    posix_spawnattr_destroy(&attr);
    posix_spawn_file_actions_destroy(&files);
    if (rc)
        goto fail;
    close(in[0]);
    close(out[1]);
    *from = out[0];
    c->line_bytes = 0;
    atomic_store(&c->to, in[1]);
    return 0;
fail:
    for (int i = 0; i < 2; i++) {
        if (in[i] >= 0)
            close(in[i]);
        if (out[i] >= 0)
            close(out[i]);
    }
    return -rc;
}

/* What the program says: "log LEVEL TEXT", "count NAME N", "gauge NAME N", names with blanks as _; "heard N", which is how many lines are in the store. */
static void hear(struct convert *c, char *line)
{
    char name[64];
    long long n;
    int level;

    if (sscanf(line, "log %d", &level) == 1 && level >= FP_AUX_ERROR && level <= FP_AUX_DEBUG && strlen(line) > 6) {
        say(c, (enum fp_aux_level)level, line + 6);
        return;
    }
    if (sscanf(line, "heard %lld", &n) == 1) {
        has_heard(c, n);
        return;
    }
    if (sscanf(line, "%*s %63s %lld", name, &n) != 2)
        return;
    for (char *at = name; *at; at++)
        if (*at == '_')
            *at = ' ';
    if (strncmp(line, "count ", 6) == 0)
        fp_aux_count(c->host, name, n);
    else if (strncmp(line, "gauge ", 6) == 0)
        fp_aux_gauge(c->host, name, n);
}

/* False: it has closed its end. */
static bool read_some(struct convert *c, int from)
{
    ssize_t n = read(from, c->line + c->line_bytes, sizeof(c->line) - 1 - c->line_bytes);
    char *start = c->line, *end;

    if (n <= 0)
        return n < 0 && (errno == EINTR || errno == EAGAIN);
    c->line_bytes += (size_t)n;
    c->line[c->line_bytes] = '\0';
    while ((end = strchr(start, '\n'))) {
        *end = '\0';
        hear(c, start);
        start = end + 1;
    }
    c->line_bytes -= (size_t)(start - c->line);
    memmove(c->line, start, c->line_bytes);
    if (c->line_bytes == sizeof(c->line) - 1)
        c->line_bytes = 0; /* a line that has no end is none of ours */
    return true;
}

/* False: there is no room for it, or nobody to say it to. */
static bool tell(struct convert *c, const char *line, size_t len)
{
    bool told = false;

    pthread_mutex_lock(&c->lock);
    if (c->to >= 0)
        told = write(c->to, line, len) == (ssize_t)len; /* at most PIPE_BUF: whole or not at all */
    c->told += told;
    c->missed |= !told;
    say_backlog(c);
    pthread_mutex_unlock(&c->lock);
    return told;
}

static void close_to(struct convert *c)
{
    pthread_mutex_lock(&c->lock);
    if (c->to >= 0)
        close(c->to);
    atomic_store(&c->to, -1);
    pthread_mutex_unlock(&c->lock);
}

/* Until it has ended, or is to end. It hears of that by the end of its input; who does not is killed. */
static void attend(struct convert *c, int from)
{
    struct pollfd p = { .fd = from, .events = POLLIN };
    int64_t until = INT64_MAX;
    int status = 0;

    for (;;) {
        if (poll(&p, 1, LOOK_MS) > 0 && !read_some(c, from))
            break;
        if (atomic_exchange(&c->missed, false))
            (void)tell(c, "look\n", 5);
        if (c->stopping && until == INT64_MAX) {
            close_to(c);
            until = now_ms() + END_MS;
        }
        if (now_ms() > until)
            (void)kill(-c->pid, SIGKILL);
    }
    close_to(c);
    for (int64_t end = now_ms() + END_MS; waitpid(c->pid, &status, WNOHANG) == 0;) {
        struct timespec t = { 0, 20000000 };

        if (now_ms() > end)
            (void)kill(-c->pid, SIGKILL);
        nanosleep(&t, NULL);
    }
    (void)kill(-c->pid, SIGKILL); /* what it may have left of its group */
    if (!c->stopping) {
        char line[120];

        snprintf(line, sizeof(line), "fp-convert watch has ended (%s %d): started again", WIFSIGNALED(status) ? "signal" : "exit code",
                 WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
        say(c, FP_AUX_WARN, line);
    }
}

static void *keep(void *arg)
{
    struct convert *c = arg;
    long again = AGAIN_MS;

    while (!c->stopping) {
        int64_t began = now_ms();
        int from = -1, rc;

        begin_backlog(c);
        rc = start_program(c, &from);
        if (rc == 0) {
            attend(c, from);
            close(from);
        } else {
            say(c, FP_AUX_ERROR, "fp-convert can't be started: tried again");
        }
        again = now_ms() - began > LIVED_MS ? AGAIN_MS : 2 * again < AGAIN_MAX_MS ? 2 * again : AGAIN_MAX_MS;
        pause_ms(c, again);
    }
    return NULL;
}

/* -------------------------------------------------------------- callbacks */

/* fp-convert with these words, within CHECK_S: its exit code, -1 where it has none, and the first line that it says. */
static int ask(const char *const *words, char said[SAID_BYTES])
{
    posix_spawn_file_actions_t files;
    int out[2], status = 0, rc;
    struct pollfd p;
    size_t n = 0;
    pid_t pid;

    memset(said, 0, SAID_BYTES);
    if (pipe2(out, O_CLOEXEC) < 0)
        return -1;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, 1, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_adddup2(&files, out[1], 2);
    rc = posix_spawn(&pid, words[0], &files, NULL, (char *const *)(uintptr_t)words, environ);
    posix_spawn_file_actions_destroy(&files);
    close(out[1]);
    p = (struct pollfd){ .fd = out[0], .events = POLLIN };
    for (int64_t until = now_ms() + CHECK_S * 1000; rc == 0 && n < SAID_BYTES - 1;) {
        ssize_t got = poll(&p, 1, 1000) > 0 ? read(out[0], said + n, SAID_BYTES - 1 - n) : 1;

        if (got <= 0)
            break;
        n += p.revents ? (size_t)got : 0;
        if (now_ms() > until) {
            (void)kill(pid, SIGKILL);
            snprintf(said, SAID_BYTES, "it can't be read: its file system does not answer");
            break;
        }
    }
    close(out[0]);
    said[strcspn(said, "\n")] = '\0';
    for (const char *const *prefix = (const char *const[]){ "fp-convert: ", "ERROR: ", NULL }; *prefix; prefix++)
        if (strncmp(said, *prefix, strlen(*prefix)) == 0)
            memmove(said, said + strlen(*prefix), strlen(said + strlen(*prefix)) + 1);
    return rc == 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* 0, or what is wrong is said. */
static int check_schema(struct convert *c, const char *schema)
{
    char from[40], to[40], said[SAID_BYTES];
    const char *const words[] = { c->program, "schema", "check", from, to, schema, NULL };

    snprintf(from, sizeof(from), "--from=%s", fp_aux_option_text(c->host, "from"));
    snprintf(to, sizeof(to), "--to=%s", fp_aux_option_text(c->host, "to"));
    if (ask(words, said) == 0)
        return 0;
    say(c, FP_AUX_ERROR, said[0] ? said : "the schema can't be checked");
    return -EINVAL;
}

/* Words that only fp-convert knows: it says what is wrong with them before it looks for the input, which there is none of. */
static int check_words(struct convert *c)
{
    char compress[200], chunk[200], said[SAID_BYTES];
    const char *const words[] = { c->program, "run", "--from=npy", "--to=hdf5", compress, chunk, "--out=/dev/null/none.h5", "/dev/null/none.npy", NULL };

    snprintf(compress, sizeof(compress), "--compress=%s", fp_aux_option_text(c->host, "compress"));
    snprintf(chunk, sizeof(chunk), "--chunk=%s", fp_aux_option_text(c->host, "chunk"));
    if ((strcmp(compress, "--compress=none") == 0 && strcmp(chunk, "--chunk=auto") == 0) || ask(words, said) != EXIT_USAGE)
        return 0;
    say(c, FP_AUX_ERROR, said);
    return -EINVAL;
}

static bool leads_up(const char *path)
{
    for (; path && *path; path += strcspn(path, "/"), path += *path == '/')
        if (strncmp(path, "..", 2) == 0 && (path[2] == '/' || !path[2]))
            return true;
    return false;
}

static int check_options(struct convert *c)
{
    const char *from = fp_aux_option_text(c->host, "from"), *to = fp_aux_option_text(c->host, "to"), *schema = fp_aux_option_text(c->host, "schema"), *pattern = fp_aux_option_text(c->host, "pattern"),
               *into = fp_aux_option_text(c->host, "into"), *wrong = NULL;
    bool hdf5 = strcmp(to, "hdf5") == 0;

    if (!pattern || !*pattern)
        wrong = "it does not say which files are dumps: pattern=run/dump_*/rank_*.raw";
    else if (strstr(pattern, "//"))
        wrong = "no file has two slashes side by side in its path: pattern=";
    else if (pattern[0] == '/' || (into && into[0] == '/'))
        wrong = "pattern= and into= are paths in the store, without a slash before them";
    else if (leads_up(pattern) || leads_up(into))
        wrong = "pattern= and into= are paths in the store: without .. in them";
    else if (!schema && (strcmp(from, "raw") == 0 || strcmp(from, "fortran") == 0))
        wrong = "from=raw and from=fortran need schema=FILE (fpctl schema guess makes a draft)";
    else if (schema && (strcmp(from, "group") == 0 || strcmp(from, "adios") == 0))
        wrong = "from=group and from=adios say themselves what is in them: no schema=";
    else if (schema && schema[0] != '/')
        wrong = "schema= is an absolute path";
    else if (!hdf5 && strcmp(fp_aux_option_text(c->host, "join"), "vds") == 0)
        wrong = "join=vds is for to=hdf5";
    else if (!hdf5 && strcmp(fp_aux_option_text(c->host, "xdmf"), "on") == 0)
        wrong = "xdmf=on is for to=hdf5";
    else if (strcmp(fp_aux_option_text(c->host, "join"), "vds") == 0 && strcmp(fp_aux_option_text(c->host, "xdmf"), "on") == 0)
        wrong = "xdmf=on has one node make the whole result: it does not go with join=vds";
    else if (strcmp(fp_aux_option_text(c->host, "keep"), "none") == 0 && (strcmp(from, "hdf5") == 0 || strcmp(from, "adios") == 0))
        wrong = "keep=none is not for from=hdf5 and from=adios: what is no array of numbers in them does not get into the result";
    else if (strcmp(to, "netcdf3") == 0 && (strcmp(fp_aux_option_text(c->host, "compress"), "none") != 0 || strcmp(fp_aux_option_text(c->host, "checksum"), "none") != 0 || strcmp(fp_aux_option_text(c->host, "chunk"), "auto") != 0))
        wrong = "compress=, checksum= and chunk= are for to=hdf5 and to=netcdf";
    if (wrong) {
        say(c, FP_AUX_ERROR, wrong);
        return -EINVAL;
    }
    if (c->program[0] && check_words(c))
        return -EINVAL;
    return schema && c->program[0] ? check_schema(c, schema) : 0;
}

static void convert_free(struct convert *c)
{
    free_words(c);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

static int convert_start(struct fp_aux_host *host, void **state)
{
    struct convert *c = calloc(1, sizeof(*c));
    int rc;

    if (!c)
        return -ENOMEM;
    c->host = host;
    atomic_store(&c->to, -1);
    pthread_mutex_init(&c->lock, NULL);
    if (!find_program(c))
        c->program[0] = '\0';
    rc = check_options(c);
    if (rc == 0 && fp_aux_mountpoint(host)[0]) { /* else it is being tried out: there is nothing to convert */
        if (!c->program[0]) {
            say(c, FP_AUX_ERROR, "fp-convert is not there: it is installed beside fp-auxhost");
            rc = -ENOENT;
        }
        rc = rc ? rc : fill_words(c);
        if (rc == 0 && (rc = -pthread_create(&c->keeper, NULL, keep, c)) == 0)
            c->kept = true;
    }
    if (rc < 0)
        convert_free(c);
    else
        *state = c;
    return rc;
}

static void convert_stop(void *state)
{
    struct convert *c = state;

    atomic_store(&c->stopping, true);
    if (c->kept)
        pthread_join(c->keeper, NULL);
    convert_free(c);
}

static int pass_on(struct convert *c, const char *word, const char *path)
{
    char line[LINE_BYTES];
    int n = snprintf(line, sizeof(line), "%s %s\n", word, path);

    if (!path[0] || strchr(path, '\n') || n >= 4096)
        miss(c);
    else
        (void)tell(c, line, (size_t)n);
    return 0;
}

static int convert_sealed(void *state, struct fp_aux_call *call, const struct fp_aux_file *file)
{
    char word[40];

    (void)call;
    snprintf(word, sizeof(word), "file %" PRIu64, file->data_version);
    return pass_on(state, word, file->path);
}

static int convert_complete(void *state, struct fp_aux_call *call, const struct fp_aux_set *set)
{
    (void)call;
    return pass_on(state, "set", set->name);
}

static const struct fp_aux_app app = {
    .abi = FP_AUX_ABI,
    .size_bytes = sizeof(app),
    .name = "convert",
    .version = "1",
    .summary = "dumps become HDF5 or netCDF files while they are near",
    .options = options,
    .start = convert_start,
    .stop = convert_stop,
    .file_sealed = convert_sealed,
    .set_complete = convert_complete,
};

FP_AUX_APP(app)
