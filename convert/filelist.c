/*
 * Names of files out of a file (filelist.h). Called by the commands run and join; blocks for the disk, or for who writes the pipe.
 *
 * A command line holds some ten thousand names, a set has more. The list is that of du, sort and wc: names end with NUL, for any other byte may be in one. A list that was cut off must not look like a shorter
 * one, or a part of the dump would be missing in the result; so the last name, too, needs its NUL. Rejected: names in lines, which are right until a name has a line feed in it, and @FILE words, which a file
 * can be called.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "convert/filelist.h"
#include "convert/model.h"
#include "fp/err.h"

#define READ_BYTES 65536u

struct list {
    const char *path;      /* as messages have it */
    char *text;
    size_t len, cap;
    size_t begin, names;   /* of the name that is not ended yet, how many are */
};

static int no_memory(const struct list *l, struct cv_fail *why)
{
    return cv_fail(why, -ENOMEM, l->path, NULL, CV_NO_OFFSET, "out of memory for the list of files");
}

/* Looks at what was read last. */
static int check(struct list *l, size_t from, struct cv_fail *why)
{
    for (const char *end; (end = memchr(l->text + from, '\0', l->len - from)); l->begin = from) {
        from = (size_t)(end - l->text) + 1;
        if (from - l->begin == 1)
            return cv_fail(why, -EINVAL, l->path, NULL, l->begin, "the name here is empty: each name is followed by one NUL byte, as find -print0 writes it");
        if (++l->names > CV_FILES_MAX)
            return cv_fail(why, -EINVAL, l->path, NULL, l->begin, "more than %u names, which is as many as a set has", CV_FILES_MAX);
    }
    if (l->len - l->begin >= PATH_MAX)
        return cv_fail(why, -EINVAL, l->path, NULL, l->begin, "no NUL byte ends the name that begins here: write the list with find -print0; names in lines become one by tr '\\n' '\\0'");
    return 0;
}

static int read_all(struct list *l, int fd, struct cv_fail *why)
{
    for (;;) {
        ssize_t n;
        size_t before = l->len;
        int rc;

        if (l->cap - l->len < READ_BYTES) {
            char *more = realloc(l->text, l->cap = 2 * l->cap + READ_BYTES);

            if (!more)
                return no_memory(l, why);
            l->text = more;
        }
        n = read(fd, l->text + l->len, READ_BYTES);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return cv_fail(why, -EINVAL, l->path, NULL, CV_NO_OFFSET, "the list of files can't be read: %s", fp_strerror(-errno));
        if (n == 0)
            return 0;
        l->len += (size_t)n;
        rc = check(l, before, why);
        if (rc)
            return rc;
    }
}

static int read_list(struct list *l, struct cv_fail *why)
{
    bool input = strcmp(l->path, "-") == 0;
    int fd = input ? STDIN_FILENO : open(l->path, O_RDONLY | O_CLOEXEC), rc;

    l->path = input ? "standard input" : l->path;
    if (fd < 0)
        return cv_fail(why, -EINVAL, l->path, NULL, CV_NO_OFFSET, "the list of files can't be opened: %s", fp_strerror(-errno));
    rc = read_all(l, fd, why);
    if (!input)
        close(fd);
    if (rc == 0 && l->begin < l->len)
        rc = cv_fail(why, -EINVAL, l->path, NULL, l->begin, "no NUL byte ends the last name, which begins here: the list was cut off, or its names are in lines (tr '\\n' '\\0')");
    if (rc == 0 && !l->names)
        rc = cv_fail(why, -EINVAL, l->path, NULL, CV_NO_OFFSET, "no file is in the list: did what wrote it find any?");
    return rc;
}

int cv_filelist_fill(struct cv_filelist *l, const struct fp_strlist *words, const char *from, struct cv_fail *why)
{
    struct list list = {.path = from};
    int rc = from ? read_list(&list, why) : 0;

    *l = (struct cv_filelist){.text = list.text};
    if (rc)
        return rc;
    l->items = calloc(words->count + list.names + 1, sizeof *l->items);
    if (!l->items)
        return no_memory(&list, why);
    if (words->count)
        memcpy(l->items, words->items, words->count * sizeof *l->items);
    l->count = words->count;
    for (size_t at = 0; at < list.len; at += strlen(list.text + at) + 1)
        l->items[l->count++] = list.text + at;
    return 0;
}

void cv_filelist_free(struct cv_filelist *l)
{
    free(l->items);
    free(l->text);
}

int cv_filelist_order(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}
