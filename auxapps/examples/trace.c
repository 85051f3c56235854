/* trace: writes a line for every call that applications make on the mount.
 *
 * Shows how to ask for all calls, without making anybody wait: the op is called after the call, with its result. With a file (file=/tmp/calls.txt)
 * all lines are kept; the mount's log takes what its limit of lines lets through.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fp/auxapp.h"

struct trace { struct fp_aux_host *host; FILE *file; };

static const char *const names[FP_AUX_OP_COUNT] = {
    "lookup", "getattr", "setattr", "truncate", "readlink", "mknod", "mkdir", "unlink", "rmdir", "symlink", "rename", "link", "open",
    "create", "read", "write", "flush", "release", "fsync", "opendir", "readdir", "releasedir", "fsyncdir", "statfs", "setxattr",
    "getxattr", "listxattr", "removexattr", "fallocate", "lseek", "copy_file_range", "ioctl",
};

static int call(void *state, struct fp_aux_call *c, const struct fp_aux_io *io)
{
    struct trace *t = state;
    char line[700];

    (void)c;
    snprintf(line, sizeof(line), "%s pid=%u ino=%llu parent=%llu name=%.255s off=%llu len=%llu result=%d", names[io->op], io->pid,
         (unsigned long long)io->ino, (unsigned long long)io->parent, io->name ? io->name : "-", (unsigned long long)io->off,
         (unsigned long long)io->len_bytes, io->result);
    if (t->file)
        fprintf(t->file, "%s\n", line);
    else
        fp_aux_log(t->host, FP_AUX_INFO, line);
    fp_aux_count(t->host, "calls", 1);
    return 0;
}

static void stop(void *state)
{
    struct trace *t = state;

    if (t->file)
        fclose(t->file);
    free(t);
}

static int start(struct fp_aux_host *host, void **state)
{
    const char *path = fp_aux_option_text(host, "file");
    struct trace *t = calloc(1, sizeof(*t));

    if (!t)
        return -ENOMEM;
    t->host = host;
    if (path && !(t->file = fopen(path, "ae"))) {
        int rc = -errno;

        fp_aux_log(host, FP_AUX_ERROR, "file: can't be opened for appending");
        free(t);
        return rc;
    }
    if (t->file)
        setlinebuf(t->file);
    *state = t;
    return 0;
}

static const struct fp_aux_option options[] = {
    { .name = "file", .help = "File of this node to append lines to; default: the log of the mount." },
    { .name = NULL },
};

static const struct fp_aux_app app = {
    .abi = FP_AUX_ABI, .size_bytes = sizeof(app), .name = "trace", .version = "1", .summary = "a line for every call on the mount",
    .options = options, .start = start, .stop = stop,
    .io = { [0 ... FP_AUX_OP_COUNT - 1] = { .fn = call } },
};
FP_AUX_APP(app)
