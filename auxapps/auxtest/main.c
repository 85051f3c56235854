/*
 * fp-auxtest: is this plugin fit for fp-auxhost? Needs no store.
 *
 *     fp-auxtest PLUGIN [--seed N] [--rounds N] [--seconds N] [--only CHECK] [--verbose] [OPTION=VALUE ...]
 *
 * The plugin is loaded as the host loads it (library auxhost), then each check runs in a child: a crash or a hang is that check's failure, told with the
 * seed that does it again. Options are by hand, since everything with = belongs to the plugin.
 *
 * Exit: 0 all passed; 1 a check failed; 2 a mistake in the call, or the plugin can't be loaded.
 */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "auxapps/auxtest/auxtest.h"
#include "fp/beside.h"

#define FAILED_STATUS 10

static const char usage[] =
    "Usage: fp-auxtest PLUGIN [--seed N] [--rounds N] [--seconds N] [--only CHECK] [--verbose] [OPTION=VALUE ...]\n"
    "Tries out an aux-app without a store. PLUGIN: a .so with a slash in its path, or the name of a shipped aux-app.\n"
    "  --seed N      random sequences of this number (1)\n"
    "  --rounds N    chunks of each check (60)\n"
    "  --seconds N   that a check may take (60)\n"
    "  --only CHECK  this check alone\n"
    "  --verbose     all that the aux-app logs\n"
    "  OPTION=VALUE  options of the aux-app, as behind fp-mount --auxapp\n";

void auxtest_fail(const char *fmt, ...)
{
    va_list ap;

    fflush(stdout);
    printf("        ");
    va_start(ap, fmt);
    vprintf(fmt, ap);
    va_end(ap);
    printf("\n");
    fflush(stdout);
    _exit(FAILED_STATUS);
}

static bool always(const struct fp_aux_app *a) { (void)a; return true; }
static bool has_out(const struct fp_aux_app *a) { return a->chunk_out || a->write; }
static bool codes(const struct fp_aux_app *a) { return a->chunk_out && a->chunk_in; }
static bool parallel(const struct fp_aux_app *a) { return has_out(a) && (a->flags & FP_AUX_PARALLEL); }
static bool has_options(const struct fp_aux_app *a) { return a->options != NULL; }

const struct check auxtest_checks[] = {
    { "start", "starts and stops, 20 times", check_start, always },
    { "chunks", "data comes back exactly, within its buffers", check_chunks, has_out },
    { "damage", "damaged data is refused or harmless", check_damage, codes },
    { "errors", "services that fail do no harm", check_errors, has_out },
    { "cancel", "ends soon when nobody waits any more", check_cancel, has_out },
    { "threads", "several workers at once", check_threads, parallel },
    { "calls", "calls, sealed files, sets, messages in any order", check_calls, always },
    { "change", "options that change while it runs", check_change, has_options },
    { "leaks", "the same life again needs no more memory", check_leaks, always },
    { NULL, NULL, NULL, NULL },
};

/* -------------------------------------------------------------- one check */

static void child(const struct subject *s, const struct check *c)
{
    struct rlimit none = { 0, 0 };

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setrlimit(RLIMIT_CORE, &none);
    alarm(s->seconds);
    c->fn(s);
    fflush(stdout);
    _exit(0);
}

static void tell(const struct subject *s, const struct check *c, int status)
{
    int sig = WIFSIGNALED(status) ? WTERMSIG(status) : 0;

    if (sig == SIGALRM)
        printf("        it was not over after %u s\n", s->seconds);
    else if (sig == SIGSEGV || sig == SIGBUS)
        printf("        crashed (%s): wrote to its input, or read or wrote behind a buffer, or used a wrong pointer\n", strsignal(sig));
    else if (sig)
        printf("        crashed: %s\n", strsignal(sig));
    else if (WEXITSTATUS(status) != FAILED_STATUS)
        printf("        ended the process with status %d%s\n", WEXITSTATUS(status), WEXITSTATUS(status) == 66 ? " (a sanitizer's report)" : "");
    printf("        again: fp-auxtest %s --seed %llu --rounds %u --only %s%s%s\n", s->path, (unsigned long long)s->seed, s->rounds, c->name,
           strchr(s->declaration, ' ') ? strchr(s->declaration, ' ') : "", "");
}

static bool run_check(const struct subject *s, const struct check *c)
{
    struct timespec a, b;
    int status = 0;
    pid_t pid;

    fflush(NULL);
    clock_gettime(CLOCK_MONOTONIC, &a);
    pid = fork();
    if (pid == 0)
        child(s, c);
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    clock_gettime(CLOCK_MONOTONIC, &b);
    if (pid < 0) {
        printf("FAILED  %-8s cannot fork: %s\n", c->name, strerror(errno));
        return false;
    }
    printf("%s  %-8s %s (%.2f s)\n", status == 0 ? "passed" : "FAILED", c->name, c->what,
           (double)(b.tv_sec - a.tv_sec) + (double)(b.tv_nsec - a.tv_nsec) / 1e9);
    if (status != 0)
        tell(s, c, status);
    return status == 0;
}

static int run(const struct subject *s, const char *only)
{
    unsigned passed = 0, failed = 0, left_out = 0;

    for (const struct check *c = auxtest_checks; c->name; c++) {
        if (only && strcmp(only, c->name) != 0)
            continue;
        if (!c->applies(s->app)) {
            printf("-       %-8s %s: does not apply\n", c->name, c->what);
            left_out++;
        } else if (run_check(s, c)) {
            passed++;
        } else {
            failed++;
            if (c->fn == check_start) {
                printf("        the other checks need it started\n");
                break;
            }
        }
    }
    if (passed + failed + left_out == 0) {
        fprintf(stderr, "fp-auxtest: there is no check '%s'\n", only);
        return 2;
    }
    printf("%s %s: %u passed, %u failed\n", s->app->name, s->app->version ? s->app->version : "", passed, failed);
    return failed ? 1 : 0;
}

/* -------------------------------------------------------------- the command line */

static bool number(const char *text, uint64_t *out)
{
    char *end;

    errno = 0;
    *out = strtoull(text, &end, 10);
    return end != text && *end == '\0' && errno == 0 && *text != '-';
}

static const char *plugin_dir(char *buf, size_t cap)
{
    const char *env = getenv("FP_AUXAPP_DIR");

    return env ? env : fp_beside_plugins(buf, cap);
}

static bool declare(struct subject *s, int argc, char **argv)
{
    size_t at = (size_t)snprintf(s->declaration, sizeof(s->declaration), "%s", s->path);

    for (int i = 0; i < argc && at < sizeof(s->declaration); i++) {
        if (!strchr(argv[i], '=')) {
            fprintf(stderr, "fp-auxtest: '%s' is not OPTION=VALUE\n", argv[i]);
            return false;
        }
        at += (size_t)snprintf(s->declaration + at, sizeof(s->declaration) - at, " %s", argv[i]);
    }
    return at < sizeof(s->declaration);
}

int main(int argc, char **argv)
{
    static const struct option table[] = { { "seed", 1, NULL, 's' }, { "rounds", 1, NULL, 'r' }, { "seconds", 1, NULL, 't' }, { "only", 1, NULL, 'o' },
                           { "verbose", 0, NULL, 'v' }, { "help", 0, NULL, 'h' }, { NULL, 0, NULL, 0 } };
    struct subject s = { .seed = 1, .rounds = 60, .seconds = 60 };
    char dir[4096], why[AUX_WHY_BYTES] = "";
    const char *only = NULL;
    uint64_t n = 0;
    int c;

    while ((c = getopt_long(argc, argv, "", table, NULL)) != -1) {
        if (c == 'h') {
            fputs(usage, stdout);
            return 0;
        }
        if (c == '?' || (strchr("srt", c) && !number(optarg, &n)) || (strchr("rt", c) && (n == 0 || n > 1000000))) {
            fputs(usage, stderr);
            return 2;
        }
        if (c == 's')
            s.seed = n;
        else if (c == 'r')
            s.rounds = (unsigned)n;
        else if (c == 't')
            s.seconds = (unsigned)n;
        else if (c == 'o')
            only = optarg;
        else
            s.verbose = true;
    }
    if (optind == argc) {
        fputs(usage, stderr);
        return 2;
    }
    s.path = argv[optind];
    if (!declare(&s, argc - optind - 1, argv + optind + 1))
        return 2;
    if (aux_plugin_load(s.path, plugin_dir(dir, sizeof(dir)), &s.plugin, why) < 0) {
        fprintf(stderr, "fp-auxtest: %s\n", why);
        return 2;
    }
    s.app = &s.plugin->app;
    printf("passed  abi      ABI %u, table of %u bytes, %u options: %s\n", s.app->abi, s.app->size_bytes, s.plugin->noptions,
           s.app->summary ? s.app->summary : "");
    c = run(&s, only);
    aux_plugin_free(s.plugin);
    return c;
}
