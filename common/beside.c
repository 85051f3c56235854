/*
 * Where our other programs and the plugins are (see fp/beside.h).
 *
 * Called when a program starts another one. A path compiled in was rejected as the first choice: the build folder, an installation with another prefix and
 * a copy on a node's own disk would each need a build of their own.
 */
#include "fp/beside.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

bool fp_beside(char *out, size_t size, const char *const *tails)
{
    char self[4096];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    char *slash;

    self[n > 0 ? n : 0] = '\0';
    slash = strrchr(self, '/');
    if (slash)
        *slash = '\0';
    for (const char *const *t = tails; *t; t++)
        if (snprintf(out, size, "%s/%s", self, *t) < (int)size && access(out, R_OK) == 0)
            return true;
    snprintf(out, size, "%s/%s", self, tails[0]);
    return false;
}

const char *fp_beside_plugins(char *out, size_t size)
{
    static const char *const dirs[] = {"../lib/fpstore/auxapps", "../lib64/fpstore/auxapps", "../lib/auxapps", NULL};

    if (!fp_beside(out, size, dirs))
        snprintf(out, size, "/usr/local/lib/fpstore/auxapps");
    return out;
}
