/*
 * fpctl convert and fpctl schema: conversions by hand, by fp-convert, which becomes this process.
 *
 * They need no store: fp-convert reads and writes paths, in a mounted store or anywhere else. fpctl links neither HDF5 nor MPI for it, and has none of its options: what follows the word goes to
 * fp-convert as it is, --help too, before anything of it is read here. Called by main, first of all; rejected: a second table of the same options, which would be wrong as soon as fp-convert gets one
 * more.
 */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/ctl/cmd.h"
#include "fp/beside.h"
#include "fp/err.h"
#include "fp/log.h"

static int become(const char *command, int argc, char **argv)
{
    static const char *const tails[] = {"fp-convert", NULL};
    char program[PATH_MAX], **words = calloc((size_t)argc + 2, sizeof *words);

    if (!words)
        return -ENOMEM;
    fp_beside(program, sizeof program, tails);
    words[0] = program;
    words[1] = (char *)(uintptr_t)command;
    for (int i = 2; i < argc; i++)
        words[i] = argv[i];
    execv(program, words);
    FP_ERROR("%s can't be started: %s. It is installed beside fpctl", program, fp_strerror(-errno));
    free(words);
    return -EIO;
}

/* main hands over whatever begins with these words; what comes here has an option of fpctl before them. */
static int misplaced(const struct ctl_options *o, const struct ctl_store *store, struct ctl_link *l)
{
    (void)store;
    (void)l;
    FP_ERROR("%s is the first word of such a call, and all behind it goes to fp-convert: fpctl %s --help", o->cmd->words, o->cmd->words);
    return -EINVAL;
}

int ctl_convert_hand_over(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], ctl_cmd_convert.words) == 0)
        return become("run", argc, argv);
    if (argc > 1 && strcmp(argv[1], ctl_cmd_schema.words) == 0)
        return become("schema", argc, argv);
    return 0;
}

const struct ctl_cmd ctl_cmd_convert = {
    .words = "convert",
    .args = "[ARGUMENT...]",
    .options = "",
    .help = "Convert files: raw dumps, records of Fortran, .npy, .npz, process groups, HDF5 or ADIOS2 to HDF5 or netCDF, or to raw files of ranks. The arguments are those of fp-convert run.",
    .more = "What aux-app convert does by itself, `fpctl conversions` shows.",
    .flags = CTL_NO_STORE,
    .run = misplaced,
};

const struct ctl_cmd ctl_cmd_schema = {
    .words = "schema",
    .args = "[ARGUMENT...]",
    .options = "",
    .help = "Look at the schema of raw dumps: `schema check SCHEMA [FILE...]` says what is wrong with it, and whether files, and the format `--to`, fit it; `schema guess FILE...` prints one that may fit. The arguments are those "
            "of fp-convert schema.",
    .flags = CTL_NO_STORE,
    .run = misplaced,
};
