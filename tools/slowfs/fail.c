/*
 * Operations that fail when told to: a target that gives EIO, is over quota, or is stale.
 *
 * Told by an attribute of the root (pass_attr.c) and asked by each operation, on any thread. Errors come at once, before anything
 * is done below. A hang needs nothing here: stop the process.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/slowfs/slowfs.h"

static const char *const op_names[SLOW_OP_COUNT] = {
#define X(id, name) [SLOW_##id] = #name,
    SLOW_OPS(X)
#undef X
};

static const struct {
    const char *name;
    int code;
} errors[] = {
    {"EIO", EIO},       {"ENOSPC", ENOSPC}, {"EDQUOT", EDQUOT}, {"EROFS", EROFS},   {"ESTALE", ESTALE}, {"EACCES", EACCES},
    {"EPERM", EPERM},   {"ENOENT", ENOENT}, {"EFBIG", EFBIG},   {"EINTR", EINTR},   {"ENOTCONN", ENOTCONN},
    {"EHOSTDOWN", EHOSTDOWN}, {"ETIMEDOUT", ETIMEDOUT}, {"ENOMEM", ENOMEM},
};
#define ERRORS (sizeof(errors) / sizeof(*errors))

static int code_of(const char *name)
{
    for (size_t i = 0; i < ERRORS; i++) {
        if (strcmp(errors[i].name, name) == 0)
            return errors[i].code;
    }
    return 0;
}

static int take_word(char *word, int codes[SLOW_OP_COUNT])
{
    char *value = strchr(word, '=');
    int code;
    bool found = false;

    if (!value)
        return EINVAL;
    *value++ = '\0';
    code = code_of(value);
    if (!code)
        return EINVAL;
    for (int i = 0; i < SLOW_OP_COUNT; i++) {
        if (strcmp(word, "all") != 0 && strcmp(word, op_names[i]) != 0)
            continue;
        codes[i] = code;
        found = true;
    }
    return found ? 0 : EINVAL;
}

int slow_fail_set(struct slow_fs *fs, const char *text)
{
    int codes[SLOW_OP_COUNT] = {0}, rc = 0;
    char *copy = strdup(text), *next = copy, *word;

    if (!copy)
        return ENOMEM;
    while (rc == 0 && *text && (word = strsep(&next, ",")))
        rc = take_word(word, codes);
    for (int i = 0; rc == 0 && i < SLOW_OP_COUNT; i++)
        atomic_store(&fs->fails[i], codes[i]);
    free(copy);
    return rc;
}

size_t slow_fail_text(struct slow_fs *fs, char *buf, size_t size)
{
    size_t len = 0;

    buf[0] = '\0';
    for (int i = 0; i < SLOW_OP_COUNT; i++) {
        int code = atomic_load(&fs->fails[i]);

        for (size_t k = 0; k < ERRORS; k++) {
            if (code == errors[k].code && len < size)
                len += (size_t)snprintf(buf + len, size - len, "%s%s=%s", len ? "," : "", op_names[i], errors[k].name);
        }
    }
    return len;
}
