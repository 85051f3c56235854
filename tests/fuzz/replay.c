/*
 * Runs a harness without libFuzzer: main() of every fuzz_<name> that is not built with clang.
 *
 * Without arguments: what is stored for it, under tests/fuzz/corpus/<name> and tests/fuzz/regress/<name> (of the folder that FP_FUZZ
 * names), then inputs made by a generator with a fixed seed, for FP_FUZZ_MS milliseconds (500): so that make check tries the harness where
 * nothing is stored, too, and after messages have changed. With arguments: these files. Prints a line per file as cmocka does, so that
 * tests/run-programs.sh counts them. An input that ends the process is kept as crash-<name> in the working directory.
 */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include "tests/fuzz/kinds.h"

#define INPUT_MAX 65536u

int LLVMFuzzerInitialize(int *argc, char ***argv) __attribute__((weak));
void __asan_set_death_callback(void (*cb)(void)) __attribute__((weak));

static uint8_t input[INPUT_MAX];
static size_t input_len;
static char crash_name[128];
static volatile sig_atomic_t running;

/* Async-signal-safe. */
static void keep_input(void)
{
    int fd;

    if (!running)
        return;
    running = 0;
    fd = open(crash_name, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);
    if (fd >= 0 && write(fd, input, input_len) == (ssize_t)input_len)
        (void)!write(2, "the input is kept: ", 19), (void)!write(2, crash_name, strlen(crash_name)), (void)!write(2, "\n", 1);
    if (fd >= 0)
        close(fd);
}

static void on_signal(int sig)
{
    keep_input();
    signal(sig, SIG_DFL);
    raise(sig);
}

static void run(void)
{
    /* A copy of just this size: a read past its end is seen by AddressSanitizer. */
    uint8_t *copy = malloc(input_len ? input_len : 1);

    if (input_len > 0)
        memcpy(copy, input, input_len);
    running = 1;
    LLVMFuzzerTestOneInput(copy, input_len);
    running = 0;
    free(copy);
}

static void run_file(const char *path)
{
    FILE *f = fopen(path, "rb");

    if (!f) {
        perror(path);
        exit(1);
    }
    input_len = fread(input, 1, sizeof input, f);
    fclose(f);
    printf("[ RUN      ] %s\n", path);
    fflush(stdout);
    run();
    printf("[       OK ] %s\n", path);
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static void run_folder(const char *root, const char *sort, const char *name)
{
    struct dirent **list;
    char path[4096];
    int n;

    snprintf(path, sizeof path, "%s/%s/%s", root, sort, name);
    n = scandir(path, &list, NULL, by_name);
    for (int i = 0; i < n; i++) {
        if (list[i]->d_name[0] != '.') {
            snprintf(path, sizeof path, "%s/%s/%s/%s", root, sort, name, list[i]->d_name);
            run_file(path);
        }
        free(list[i]);
    }
    if (n >= 0)
        free(list);
}

/* Not clock_gettime, which wire.c replaces. */
static uint64_t wall_ms(void)
{
    struct timeval tv;

    gettimeofday(&tv, NULL);
    return (uint64_t)tv.tv_sec * 1000 + (uint64_t)tv.tv_usec / 1000;
}

static void run_generated(uint64_t ms)
{
    uint64_t x = 0x9E3779B97F4A7C15, n = 0, end_ms = wall_ms() + ms;

    for (; n < 16 || wall_ms() < end_ms; n++) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        input_len = x >> 8 & (x >> 20 & 1 ? 0xff : 0x7ff);
        for (size_t i = 0; i < input_len; i++) {
            x ^= x << 13, x ^= x >> 7, x ^= x << 17;
            input[i] = x >> 24 & 1 ? (uint8_t)(x >> 32) : (uint8_t)(x >> 32 & 0x3f);
        }
        run();
    }
    printf("[       OK ] %llu generated inputs\n", (unsigned long long)n);
}

int main(int argc, char **argv)
{
    static const int fatal[] = {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGALRM};
    const char *name = strrchr(argv[0], '/') ? strrchr(argv[0], '/') + 1 : argv[0];
    const char *root = getenv("FP_FUZZ") ? getenv("FP_FUZZ") : "tests/fuzz", *ms = getenv("FP_FUZZ_MS");

    fuzz_kinds_check();
    name += strncmp(name, "fuzz_", 5) ? 0 : 5;
    snprintf(crash_name, sizeof crash_name, "crash-%s", name);
    for (size_t i = 0; i < sizeof fatal / sizeof *fatal; i++)
        signal(fatal[i], on_signal);
    atexit(keep_input); /* a check of cmocka ends the process by exit */
    if (__asan_set_death_callback)
        __asan_set_death_callback(keep_input);
    if (LLVMFuzzerInitialize)
        LLVMFuzzerInitialize(&argc, &argv);
    if (argc > 1) {
        for (int i = 1; i < argc; i++)
            run_file(argv[i]);
        return 0;
    }
    run_folder(root, "corpus", name);
    run_folder(root, "regress", name);
    run_generated(ms ? strtoull(ms, NULL, 10) : 500);
    return 0;
}
