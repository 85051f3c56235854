/* The last line of a log (see fp/logtail.h): why a program that was started has ended. */
#include "fp/logtail.h"

#include <stdio.h>
#include <string.h>

bool fp_log_tail(const char *path, long from, const char *mark, const char *with, char *text, size_t room)
{
    char line[1024];
    bool found = false;
    FILE *f = fopen(path, "re");

    snprintf(text, room, "%s", "");
    if (!f)
        return false;
    fseek(f, from, SEEK_SET);
    while (fgets(line, sizeof line, f)) {
        const char *at = strstr(line, mark);

        line[strcspn(line, "\n")] = '\0';
        if (!at || !line[0] || !strstr(at, with))
            continue;
        snprintf(text, room, "%s", at + strlen(mark));
        found = true;
    }
    fclose(f);
    return found;
}
