/*
 * fusermount3 and /etc/fuse.conf (see fp/fusehelper.h). Called by fp-mount before it mounts, and by fp-job doctor; any thread.
 *
 * Both are looked at before libfuse does, since it says what is missing late, and in the words of another program.
 */
#include "fp/fusehelper.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool fp_fuse_helper(char *out, size_t size)
{
    const char *path = getenv("PATH");
    char *copy = strdup(path ? path : "/usr/bin:/bin"), *save = NULL, full[PATH_MAX];
    bool found = false;

    out[0] = '\0';
    for (char *dir = copy ? strtok_r(copy, ":", &save) : NULL; dir && !found; dir = strtok_r(NULL, ":", &save)) {
        snprintf(full, sizeof full, "%s/fusermount3", dir);
        found = access(full, X_OK) == 0;
    }
    if (found)
        snprintf(out, size, "%s", full);
    free(copy);
    return found;
}

bool fp_fuse_user_allow_other(void)
{
    char line[256];
    bool found = false;
    FILE *f = fopen(FP_FUSE_CONF, "re");

    while (f && !found && fgets(line, sizeof line, f)) {
        line[strcspn(line, " \t\n#")] = '\0';
        found = strcmp(line, "user_allow_other") == 0;
    }
    if (f)
        fclose(f);
    return found;
}
