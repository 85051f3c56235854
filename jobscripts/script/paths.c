/*
 * Paths as they are written in #FP lines (see paths.h). Called when the words of a script are read.
 *
 * No shell has read them: a ~, or a $ that begins no variable, would be part of the name of a directory that nobody meant. What a variable stands for shows on the nodes.
 */
#include "jobscripts/script/paths.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "jobscripts/jobdir.h"

const char *job_path_variables_why(const char *text)
{
    while (*text) {
        size_t n = job_variable(text);

        if (*text == '$' && !n)
            return text[1] == '{' ? "${ begins no variable: write ${NAME}" : "$ begins no variable: write $NAME or ${NAME}";
        text += n ? n : 1;
    }
    return NULL;
}

static bool has_dots(const char *text)
{
    for (; *text; text += strspn(text, "/")) {
        size_t n = strcspn(text, "/");

        if ((n == 1 && text[0] == '.') || (n == 2 && text[0] == '.' && text[1] == '.'))
            return true;
        text += n;
    }
    return false;
}

static const char *home_why(const char *text)
{
    return text[0] == '~' ? "no shell reads it: write $HOME in place of ~" : NULL;
}

const char *job_path_place_why(const char *text)
{
    const char *why = home_why(text);

    if (!why && text[0] != '/' && text[0] != '$')
        why = "write the whole path, from / on, or one that begins with a variable such as $TMPDIR";
    return why ? why : job_path_variables_why(text);
}

const char *job_path_whole_why(const char *text)
{
    const char *why = job_path_place_why(text);

    if (!why && !text[strspn(text, "/")])
        why = "a directory below / is needed";
    return why ? why : has_dots(text) ? "write it without . and .." : NULL;
}

/* What nothing is mounted on, nor below it if `below`. */
static const struct {
    const char *path;
    bool below;
} of_system[] = {{"/proc", true},  {"/sys", true},  {"/dev", true},   {"/usr", true},   {"/etc", true},  {"/bin", true},      {"/sbin", true},
                 {"/lib", true},   {"/lib32", true}, {"/lib64", true}, {"/boot", true},  {"/tmp", false}, {"/var", false},     {"/var/tmp", false},
                 {"/home", false}, {"/root", false}, {"/run", false},  {"/opt", false}};

const char *job_path_mount_why(const char *text)
{
    static const char system_why[] = "the system needs what is there, which the store would hide: give a directory of its own, such as /tmp/$USER-store";
    const char *why = job_path_whole_why(text);
    char path[PATH_MAX];

    snprintf(path, sizeof path, "%s", text);
    job_path_plain(path);
    if (!why && (strcmp(path, "$HOME") == 0 || strcmp(path, "${HOME}") == 0))
        return "the store would hide your home directory: give a directory of its own, such as /tmp/$USER-store";
    for (size_t i = 0; !why && i < sizeof of_system / sizeof of_system[0]; i++) {
        size_t n = strlen(of_system[i].path);

        if (strncmp(path, of_system[i].path, n) == 0 && (!path[n] || (of_system[i].below && path[n] == '/' && strncmp(path, "/dev/shm/", 9) != 0)))
            return system_why;
    }
    return why;
}

const char *job_path_inner_why(const char *text)
{
    const char *why = home_why(text);

    why = why ? why : job_path_variables_why(text);
    if (!why && strncmp(text, "./", 2) == 0)
        text += 2;
    return why ? why : has_dots(text) ? "it is in the store, relative to its top: write it without . and .." : NULL;
}

void job_path_of_pattern(const char *pattern, char out[PATH_MAX])
{
    size_t n = strcspn(pattern, "*?[");
    char *slash;

    snprintf(out, PATH_MAX, "%.*s", (int)(n < PATH_MAX ? n : PATH_MAX - 1), pattern);
    slash = strrchr(out, '/');
    if (slash)
        *slash = '\0';
    if (!out[0])
        strcpy(out, "/");
}
