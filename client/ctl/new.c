/* fpctl auxapp new: the skeleton of an aux-app: a source that builds and does something, its Makefile, its test.
 *
 * Needs no store. The skeleton is text in here rather than files to be installed and found: it belongs to the version of
 * fpctl that writes it, as does the API it is for. What it does by itself, counting bytes, is little enough to be deleted and
 * enough to be seen in fpctl auxapps. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/ctl/cmd.h"
#include "fp/auxapp.h"
#include "fp/err.h"

/* @ stands for the name. */
static const char source[] =
    "/* @: what it is for.\n"
    " *\n"
    " * Runs on the service cores, on the data as it passes. The contract is in fp/auxapp.h. */\n"
    "#include <stdlib.h>\n"
    "\n"
    "#include <fp/auxapp.h>\n"
    "\n"
    "struct state {\n"
    "    struct fp_aux_host *host;\n"
    "    int64_t level;\n"
    "};\n"
    "\n"
    "static int start(struct fp_aux_host *host, void **state)\n"
    "{\n"
    "    struct state *s = calloc(1, sizeof *s);\n"
    "    if (!s)\n"
    "        return -ENOMEM;\n"
    "    s->host = host;\n"
    "    s->level = fp_aux_option_number(host, \"level\");\n"
    "    *state = s;\n"
    "    return 0;\n"
    "}\n"
    "\n"
    "static void stop(void *state)\n"
    "{\n"
    "    free(state);\n"
    "}\n"
    "\n"
    "/* A chunk on its way to the store. FP_AUX_PASS lets it go as it is; a negative errno refuses the write. */\n"
    "static int chunk_out(void *state, struct fp_aux_call *call, const struct fp_aux_chunk *chunk)\n"
    "{\n"
    "    struct state *s = state;\n"
    "    for (uint32_t i = 0; i < chunk->nparts; i++) {\n"
    "        if (fp_aux_cancelled(call))\n"
    "            return -ECANCELED;\n"
    "        /* look at chunk->parts[i].data, of chunk->parts[i].len_bytes */\n"
    "    }\n"
    "    fp_aux_count(s->host, \"bytes\", chunk->len_bytes);\n"
    "    return FP_AUX_PASS;\n"
    "}\n"
    "\n"
    "static const struct fp_aux_option options[] = {\n"
    "    {.name = \"level\", .fallback = \"1\", .min = 1, .max = 9, .help = \"An option: @ level=3\"},\n"
    "    {.name = NULL},\n"
    "};\n"
    "\n"
    "static const struct fp_aux_app app = {\n"
    "    .abi = FP_AUX_ABI,\n"
    "    .size_bytes = sizeof app,\n"
    "    .name = \"@\",\n"
    "    .version = \"0.1\",\n"
    "    .summary = \"what it is for, in one line\",\n"
    "    .options = options,\n"
    "    .start = start,\n"
    "    .stop = stop,\n"
    "    .chunk_out = chunk_out,\n"
    "};\n"
    "FP_AUX_APP(app)\n";

static const char makefile[] =
    "# make: @.so. make check: the conformance kit. Where fpstore is not installed: make CFLAGS=-I/path/to/fpstore/include\n"
    "CFLAGS ?= -O2 -g -Wall -Wextra\n"
    "AUX    := $(shell pkg-config --cflags fp-auxapp 2>/dev/null)\n"
    "AUXTEST ?= fp-auxtest\n"
    "\n"
    "@.so: @.c\n"
    "\t$(CC) $(CFLAGS) $(AUX) -std=gnu11 -fPIC -fvisibility=hidden -shared -o $@ $<\n"
    "\n"
    "check: @.so\n"
    "\t$(AUXTEST) ./@.so\n"
    "\tsh test.sh\n"
    "\n"
    "clean:\n"
    "\trm -f @.so\n"
    "\n"
    ".PHONY: check clean\n";

static const char test[] =
    "# What this aux-app promises, tried on a mount that has declared it:\n"
    "#     fp-store up --auxapp \"$PWD/@.so\"\n"
    "#     MOUNT=/AggregateSSDstore sh test.sh\n"
    "[ -n \"$MOUNT\" ] || { echo \"test.sh: MOUNT is not set: only the conformance kit was run\"; exit 0; }\n"
    "set -e\n"
    "file=$MOUNT/@-test.$$\n"
    "trap 'rm -f \"$file\"' EXIT\n"
    "head -c 3000000 /dev/urandom > \"${TMPDIR:-/tmp}/@-test.$$\"\n"
    "cp \"${TMPDIR:-/tmp}/@-test.$$\" \"$file\"\n"
    "cmp \"${TMPDIR:-/tmp}/@-test.$$\" \"$file\"\n"
    "rm -f \"${TMPDIR:-/tmp}/@-test.$$\"\n"
    "fpctl auxapps \"$MOUNT\" | grep -q @ || { echo \"test.sh: @ is not declared on $MOUNT\"; exit 1; }\n"
    "echo \"test.sh: passed\"\n";

static bool name_is_good(const char *name)
{
    size_t n = strlen(name);
    return n > 0 && n <= FP_AUX_NAME_MAX && name[0] >= 'a' && name[0] <= 'z' &&
           strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_-") == n;
}

/* In a Makefile "$@" is make's, not ours. */
static int write_file(const char *dir, const char *file, const char *text, const char *name)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", dir, file);
    FILE *f = fopen(path, "wxe");
    if (!f) {
        FP_ERROR("%s: %s", path, fp_strerror(-errno));
        return -EIO;
    }
    for (const char *p = text; *p; p++) {
        if (*p == '@' && !(p > text && p[-1] == '$'))
            fputs(name, f);
        else
            fputc(*p, f);
    }
    if (fclose(f) == 0) {
        printf("%s\n", path);
        return 0;
    }
    FP_ERROR("%s: %s", path, fp_strerror(-errno));
    return -EIO;
}

/* These come with fpstore. One of the same name would take their place for every chunk that they have coded. */
static bool is_shipped(const char *name)
{
    static const char *const shipped[] = {"checksum", "compress", "convert", "dedup", "drain", "encrypt", NULL};
    for (const char *const *s = shipped; *s; s++)
        if (strcmp(*s, name) == 0)
            return true;
    return false;
}

static int run(const struct ctl_options *o, const struct ctl_store *store, struct ctl_link *l)
{
    const char *name = o->names[0];
    (void)store;
    (void)l;
    char c_file[64];
    if (!name_is_good(name)) {
        FP_ERROR("'%s' is no name for an aux-app: small letters, digits, _ and -, a letter first, at most %u characters", name,
                 FP_AUX_NAME_MAX);
        return -EINVAL;
    }
    if (is_shipped(name)) {
        FP_ERROR("'%s' is the name of an aux-app that comes with fpstore: chunks name the one that undoes them, so yours needs its own",
                 name);
        return -EEXIST;
    }
    if (mkdir(name, 0777) != 0) {
        FP_ERROR("cannot make the folder %s here: %s", name, fp_strerror(-errno));
        return -errno;
    }
    snprintf(c_file, sizeof c_file, "%s.c", name);
    int rc = write_file(name, c_file, source, name);
    rc = rc ? rc : write_file(name, "Makefile", makefile, name);
    rc = rc ? rc : write_file(name, "test.sh", test, name);
    if (rc == 0)
        printf("Now: cd %s && make check\n", name);
    return rc ? rc : ctl_flush();
}

const struct ctl_cmd ctl_cmd_auxapp_new = {
    .words = "auxapp new",
    .args = "NAME",
    .options = "",
    .help = "Makes a folder with the skeleton of an aux-app of your own: a source that builds, a Makefile and a test. Needs no store.",
    .flags = CTL_NO_STORE,
    .run = run,
};
