/*
 * fp-convert: dumps become HDF5 or netCDF files, and back.
 *
 *     fp-convert run --from=raw --to=hdf5 --schema=heat3d.yaml --out=dump_0040.h5 dump_0040/rank_*.raw
 *
 * One conversion is one process: HDF5 does one thing at a time, keeps its state in globals, and may crash over a file that somebody has damaged. Aux-app convert starts such processes (watch/);
 * people do by `fpctl convert`, or by mpirun for one result of many nodes.
 */
#include <stdio.h>
#include <string.h>

#include "convert/command.h"
#include "convert/engine/team.h"
#include "convert/schema/command.h"
#include "fp/fault.h"
#include "fp/log.h"
#include "fp/opt.h"

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *help;
} commands[] = {
    {"run", cv_run_command, "Convert files: run --help."},
    {"join", cv_join_command, "One HDF5 file that shows several as one: join --help."},
    {"schema", cv_schema_command, "check SCHEMA [FILE...]: what is wrong with it; guess FILE...: one that may fit. schema --help."},
    {"formats", cv_formats_command, "What can be read and written here."},
    {"watch", cv_watch_command, "Is started by aux-app convert."},
};
#define COMMANDS (sizeof commands / sizeof commands[0])

static int help(void)
{
    puts("Usage: fp-convert COMMAND [ARGUMENT]...\n"
         "Convert dumps of parallel programs to HDF5 or netCDF, and back.\n");
    for (size_t i = 0; i < COMMANDS; i++)
        printf("  %-10s %s\n", commands[i].name, commands[i].help);
    puts("\nfpctl convert and fpctl schema are run and schema. See fp-convert(1).");
    return 0;
}

static int unknown(const char *name)
{
    const char *words[COMMANDS + 1] = {NULL}, *near;

    for (size_t i = 0; i < COMMANDS; i++)
        words[i] = commands[i].name;
    near = fp_nearest_name(name, words);
    fprintf(stderr, "fp-convert: ERROR: there is no command %s%s%s%s: fp-convert --help\n", name, near ? " (" : "", near ? near : "", near ? "?)" : "");
    return 2;
}

int main(int argc, char **argv)
{
    fp_log_init("fp-convert", FP_LOG_INFO);
    fp_fault_init();
    if (argc < 2 || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)
        return argc < 2 ? (help(), 2) : help();
    if (strcmp(argv[1], "--version") == 0) {
        puts("fp-convert " FP_VERSION);
        return 0;
    }
    if (strcmp(argv[1], "--print-man-options") == 0) /* the man page lists those of run */
        return cv_run_command(argc, argv);
    for (size_t i = 0; i < COMMANDS; i++)
        if (strcmp(argv[1], commands[i].name) == 0) {
            int rc = commands[i].run(argc - 1, argv + 1);

            if (rc)
                cv_team_give_up(rc);
            cv_team_leave();
            return rc;
        }
    return unknown(argv[1]);
}
