/*
 * What is done when a job is submitted (see spank_fp.h): fp-job check, on the script that sbatch is about to send.
 *
 * Slurm gives plugins the options, not the script. sbatch stops reading options at the first word that is none, which is the script, and getopt keeps the place
 * of that word. A script that comes by a pipe has been read by sbatch, and can't be read again: its options are checked, and its #FP lines when the job begins.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <slurm/spank.h>

#include "jobscripts/script/checkcode.h"
#include "jobscripts/spank/spank_fp.h"

#define CHECK_MS   60000u
#define WORDS_MAX  4096
#define CALL_BYTES (1u << 20)

extern char **environ;

/* The words that this program was called with, NUL after each. How many there are; 0: they can't be read. */
static int read_call(char **text, char *words[WORDS_MAX])
{
    int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC), n = 0;
    size_t len = 0;
    ssize_t got = 0;

    *text = calloc(1, CALL_BYTES + 1);
    while (*text && fd >= 0 && len < CALL_BYTES && (got = read(fd, *text + len, CALL_BYTES - len)) > 0)
        len += (size_t)got;
    if (fd >= 0)
        close(fd);
    for (size_t i = 0; i < len && n < WORDS_MAX; i += strlen(*text + i) + 1)
        words[n++] = *text + i;
    return got < 0 ? 0 : n;
}

/* sbatch takes nothing else. */
static bool is_script(const char *path)
{
    char head[2];
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    bool is = fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && pread(fd, head, 2, 0) == 2 && memcmp(head, "#!", 2) == 0;

    if (fd >= 0)
        close(fd);
    return is;
}

/* As sbatch looks for it: here, then in PATH. False: it is not found, or can't be read once more. */
static bool find_script(const char *name, char path[PATH_MAX])
{
    const char *dirs = getenv("PATH");

    snprintf(path, PATH_MAX, "%s", name ? name : "/dev/stdin");
    if (is_script(path))
        return true;
    for (; name && !strchr(name, '/') && dirs && *dirs; dirs += strcspn(dirs, ":"), dirs += *dirs == ':') {
        snprintf(path, PATH_MAX, "%.*s/%s", (int)strcspn(dirs, ":"), dirs, name);
        if (is_script(path))
            return true;
    }
    return false;
}

/* "--sbatch=-N\n4": what sbatch was told, for what fp-job check wants to know of the job's nodes. */
static char *told(char *const *words, int n)
{
    const char *partition = getenv("SBATCH_PARTITION");
    char *text = NULL;
    size_t size;
    FILE *f = open_memstream(&text, &size);

    if (!f)
        return NULL;
    fputs("--sbatch=", f);
    if (partition)
        fprintf(f, "--partition=%s\n", partition);
    for (int i = 1; i < n; i++)
        fprintf(f, "%s\n", words[i]);
    return fclose(f) == 0 ? text : NULL;
}

static int check(const struct spank_fp *s, const char *script, char *call, const char *directives)
{
    char *argv[] = {(char *)(uintptr_t)s->fp_job, (char *)"check", (char *)(uintptr_t)(script[0] ? script : "/dev/null"), NULL, call, NULL};
    int rc;

    if (asprintf(&argv[3], "--directives=%s", directives) < 0)
        return -ENOMEM;
    rc = spank_fp_run(argv, environ, strcmp(script, "/dev/stdin") == 0, CHECK_MS);
    free(argv[3]);
    return rc;
}

static bool take(const struct spank_fp *s, int rc, bool *core_spec)
{
    *core_spec = rc == JOB_CHECK_CORE_SPEC;
    if (rc == 1) {
        slurm_error("fpstore: this job can't be as it is declared: it is not submitted");
        return false;
    }
    if (rc && rc != JOB_CHECK_CORE_SPEC)
        slurm_error("fpstore: %s check did not work (%d): what is declared is not checked before the job begins", s->fp_job, rc);
    return true;
}

bool spank_fp_check(const struct spank_fp *s, bool *core_spec)
{
    char *text = NULL, *words[WORDS_MAX + 1] = {NULL}, script[PATH_MAX], *call, *directives = spank_fp_directives(s);
    int n = read_call(&text, words), first = optind > 0 && optind <= n ? optind : n;
    bool found = find_script(words[first], script), ok = true;

    *core_spec = false;
    call = told(words, first);
    if (!found)
        script[0] = '\0';
    if (directives && call)
        ok = take(s, check(s, script, call, directives), core_spec);
    free(call);
    free(directives);
    free(text);
    return ok;
}
