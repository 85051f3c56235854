/* The table of fp-manager's options: command line, fp.conf [manager], environment and man page come from it.
 */
#include <string.h>

#include "fp/record.h"
#include "manager/options.h"

static const char *check_chunk_size(const char *text)
{
    uint64_t n;

    if (fp_parse_size(text, &n, NULL) == 0 && n && (n & (n - 1) || n < FP_CHUNK_MIN_BYTES))
        return "must be a power of two from 64KiB to 16MiB";
    return NULL;
}

static const struct fp_opt opts[] = {
    FP_OPT_PATH(struct mgr_options, dir, "dir", NULL,
                "Directory of the database; made if missing. It has to be on a disk of this node.",
                .flags = FP_OPT_REQUIRED, .arg = "DIR"),
    FP_OPT_ADDR(struct mgr_options, listen, "listen", "0.0.0.0:7420", 0,
                "Address to listen on. Port 0 is any free one.", .arg = "ADDR:PORT"),
    FP_OPT_KEY(struct mgr_options, key),
    FP_OPT_BOOL(struct mgr_options, create_key, "create-key", "off",
                "Make the key file, with mode 0600, if it does not exist."),
    FP_OPT_SIZE(
        struct mgr_options, chunk_size_bytes, "chunk-size", "0", 0, FP_CHUNK_MAX_BYTES,
        "Default chunk size of the store, a power of two from 64KiB to 16MiB. 0: as the store has it, 1MiB "
        "for a new one. Directories may have their own: the attribute user.fp.chunk_size.",
        .check = check_chunk_size),
    FP_OPT_INT(
        struct mgr_options, stripe, "stripe", "0", 0, 64,
        "Default number of benefactors a file is spread over. 0: as the store has it, 1 for a new one."),
    FP_OPT_SIZE(struct mgr_options, cache_bytes, "cache", "64MiB", FP_MIB(1), FP_GIB(256),
                "Memory for pages of the database."),
    FP_OPT_DURATION(struct mgr_options, session_timeout_ms, "session-timeout", "60s", 1000, FP_HOUR_MS(24),
                    "How long the open files of a mount that is not heard of are kept."),
    FP_OPT_DURATION(struct mgr_options, orphan_grace_ms, "orphan-grace", "60s", 100, FP_HOUR_MS(24),
                    "How much longer chunks that such a mount wrote, but never committed, are kept."),
    FP_OPT_DURATION(struct mgr_options, bnf_timeout_ms, "benefactor-timeout", "3s", 500, FP_HOUR_MS(1),
                    "A benefactor that is not heard of for so long is taken for down."),
    FP_OPT_INT(struct mgr_options, inodes_max, "max-inodes", "4294967296", 1, INT64_MAX,
               "Most files, directories and other inodes."),
    FP_OPT_SIZE(struct mgr_options, aux_table_bytes, "aux-table-max", "1GiB", FP_MIB(1), FP_GIB(1024),
                "Most bytes of keys and values in the table of one aux-app."),
    FP_OPT_BOOL(struct mgr_options, versions, "versions", "on",
                "While a file is rewritten, keep what it was: if the mount of a writer dies, the file is that again (fpctl versions, fpctl restore). "
                "It takes the space of what is replaced until the file is closed, and gives way when the store is full."),
    FP_OPT_BOOL(struct mgr_options, checkpoints, "checkpoints", "on", "Recognise the files of one time step as a checkpoint set (fpctl checkpoints)."),
    FP_OPT_DURATION(struct mgr_options, ckpt_quiet_ms, "ckpt-quiet", "2s", 100, FP_HOUR_MS(24),
                    "How long after its last change, with all of its files closed, a checkpoint set is taken for complete if nobody has said so."),
    FP_OPT_DURATION(struct mgr_options, ckpt_late_ms, "ckpt-late", "60s", 100, FP_HOUR_MS(24),
                    "The same for a set that has fewer files than the one before."),
    FP_OPT_READY_FD(struct mgr_options, ready_fd),
    FP_OPT_IGNORE_TERM(struct mgr_options, ignore_term),
    FP_OPT_LOG_LEVEL(struct mgr_options, log_level),
    FP_OPT_END,
};

static const struct fp_opt_table table = {
    .prog = "fp-manager",
    .section = "manager",
    .summary = "Keeps the names, maps and state of an fpstore.",
    .opts = opts,
};

void mgr_options_parse(struct mgr_options *o, int argc, char **argv)
{
    memset(o, 0, sizeof *o);
    fp_opt_parse_or_exit(&table, o, argc, argv);
}
