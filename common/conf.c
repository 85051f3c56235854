/* fp.conf: one file for all programs of a store.
 *
 *     # comment
 *     key = /etc/fpstore/key          common keys (opt_common_names) stand on top
 *     [mount]                         then one section per program
 *     pool = 512MiB                   # comments may follow a value
 *     node = "name with # and \" in"
 *
 * Read by fp_opts_finish() in every program. A program applies the common keys it has and its own section.
 * It checks the form of the other sections, not their keys: it does not know those tables, and knowing
 * them would tie every program to every other. Each program is strict about its own.
 *
 * Strict: unknown section or key, key given twice, text behind a section or a quoted value, a key without
 * a value, a relative path: each ends the program with file:line and what to do. A file that is half
 * understood is a store with the wrong size.
 *
 * No library is used: libinih and libconfig neither give line numbers for values nor refuse duplicates,
 * and the grammar is 100 lines. */
#include "opt_impl.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fp/err.h"

#define FILE_LIMIT_BYTES 65536

static const char *const section_names[] = {"manager", "benefactor", "mount", "ctl", "store", NULL};

struct reader {
    struct fp_opts *o;
    const char *path;
    unsigned line;
    int section;               /* index into section_names; -1 = top of the file */
    unsigned section_lines[8]; /* where each section began; 0 = not seen */
};

#define AT      "%.300s:%u: "
#define HERE(r) (r)->path, (r)->line

static bool is_own_section(const struct reader *r)
{
    return r->section >= 0 && strcmp(section_names[r->section], r->o->table->section) == 0;
}

static char *trim(char *s)
{
    while (isspace((unsigned char)*s))
        s++;
    size_t len = strlen(s);
    while (len > 0 && isspace((unsigned char)s[len - 1]))
        s[--len] = '\0';
    return s;
}

static bool is_comment_or_end(const char *s)
{
    while (isspace((unsigned char)*s))
        s++;
    return *s == '\0' || *s == '#';
}

static int section_line(struct reader *r, char *s)
{
    char hint[OPT_HINT_BUF];
    char *end = strchr(s, ']');
    if (!end || !is_comment_or_end(end + 1))
        return opt_fail(r->o, -EINVAL, AT "not a section: write [name] on a line of its own", HERE(r));
    *end = '\0';
    char *name = trim(s + 1);
    for (int i = 0; section_names[i]; i++) {
        if (strcmp(section_names[i], name) != 0)
            continue;
        if (r->section_lines[i])
            return opt_fail(r->o, -EINVAL, AT "section [%s] was there in line %u already: merge the two",
                            HERE(r), name, r->section_lines[i]);
        r->section_lines[i] = r->line;
        r->section = i;
        return 0;
    }
    return opt_fail(r->o, -EINVAL, AT "unknown section [%.60s]%s", HERE(r), name,
                    *opt_hint(hint, name, section_names)
                        ? hint
                        : ": there are [manager], [benefactor], [mount], [ctl] and [store]");
}

/* Takes quotes and trailing comments off, in place. NULL with the error set when it cannot. */
static char *read_value(struct reader *r, const char *key, char *s)
{
    s = trim(s);
    if (*s != '"') {
        for (char *p = s; *p; p++) {
            if (*p == '#' && (p == s || isspace((unsigned char)p[-1]))) {
                *p = '\0';
                break;
            }
        }
        s = trim(s);
        if (*s == '\0') {
            opt_fail(r->o, -EINVAL, AT "'%s' has no value: write %s = VALUE, or remove the line", HERE(r),
                     key, key);
            return NULL;
        }
        return s;
    }
    char *w = s, *p = s + 1;
    for (; *p && *p != '"'; p++) {
        if (*p == '\\' && (p[1] == '"' || p[1] == '\\'))
            p++;
        *w++ = *p;
    }
    if (*p != '"' || !is_comment_or_end(p + 1)) {
        opt_fail(r->o, -EINVAL, AT "'%s': a value in quotes must end with a quote, and the line with it",
                 HERE(r), key);
        return NULL;
    }
    *w = '\0';
    return s;
}

static int unknown_key(struct reader *r, const char *key)
{
    char hint[OPT_HINT_BUF];
    if (r->section < 0) {
        if (opt_find(r->o->table, key) >= 0)
            return opt_fail(r->o, -EINVAL, AT "'%s' is not a common key: move it below [%s]", HERE(r), key,
                            r->o->table->section);
        opt_hint(hint, key, opt_common_names);
        return opt_fail(r->o, -EINVAL, AT "unknown common key '%.60s'%s", HERE(r), key,
                        *hint ? hint : ": keys of one program go below its [section]");
    }
    opt_hint(hint, key, opt_names(r->o));
    return opt_fail(r->o, -EINVAL, AT "unknown key '%.60s' in [%s]%s", HERE(r), key,
                    section_names[r->section], *hint ? hint : ": see fp.conf(5)");
}

static bool is_common_name(const char *key)
{
    for (const char *const *c = opt_common_names; *c; c++) {
        if (strcmp(*c, key) == 0)
            return true;
    }
    return false;
}

static int set_key(struct reader *r, const char *key, const char *value)
{
    struct fp_opts *o = r->o;
    char where[512];
    bool top = r->section < 0;
    int i = opt_find(o->table, key);
    if (top && is_common_name(key) && i < 0)
        return 0; /* for other programs */
    if (i < 0 || (top && !is_common_name(key)))
        return unknown_key(r, key);
    const struct fp_opt *opt = &o->table->opts[i];
    if (opt->flags & FP_OPT_NO_FILE)
        return opt_fail(o, -EINVAL, AT "'%s' cannot be set in a file: give --%s on the command line", HERE(r),
                        key, key);

    unsigned *seen = top ? &o->slots[i].top_line : &o->slots[i].own_line;
    if (*seen && opt->type != FP_OPT_TYPE_LIST)
        return opt_fail(o, -EINVAL, AT "'%s' was given in line %u already: remove one", HERE(r), key, *seen);
    *seen = r->line;
    snprintf(where, sizeof where, AT "%s", HERE(r), key);
    return opt_apply(o, (unsigned)i, top ? OPT_SRC_FILE_TOP : OPT_SRC_FILE_OWN, where, value);
}

static int key_line(struct reader *r, char *s)
{
    char *eq = strchr(s, '=');
    if (!eq)
        return opt_fail(r->o, -EINVAL, AT "not understood: write KEY = VALUE, [section] or # comment",
                        HERE(r));
    *eq = '\0';
    char *key = trim(s);
    if (*key == '\0')
        return opt_fail(r->o, -EINVAL, AT "no key before '=': write KEY = VALUE", HERE(r));
    for (const char *p = key; *p; p++) {
        if (!islower((unsigned char)*p) && !isdigit((unsigned char)*p) && *p != '-')
            return opt_fail(r->o, -EINVAL, AT "bad key '%.60s': keys are lower-case letters, digits and '-'",
                            HERE(r), key);
    }
    char *value = read_value(r, key, eq + 1);
    if (!value)
        return -EINVAL;
    if (r->section >= 0 && !is_own_section(r))
        return 0;
    return set_key(r, key, value);
}

static int read_lines(struct reader *r, char *text)
{
    for (char *next = text; next;) {
        char *s = next;
        next = strchr(s, '\n');
        if (next)
            *next++ = '\0';
        r->line++;
        s = trim(s);
        int rc = 0;
        if (*s == '[')
            rc = section_line(r, s);
        else if (*s != '\0' && *s != '#')
            rc = key_line(r, s);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* Reads the whole file into memory owned by o. */
static int slurp(struct fp_opts *o, const char *path, char **text)
{
    size_t used = 0;
    struct stat st;
    int rc = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &st) < 0) {
        rc = opt_fail(o, -errno, "cannot read config file %.300s: %s", path, fp_strerror(errno));
        goto out;
    }
    if (!S_ISREG(st.st_mode) || st.st_size > FILE_LIMIT_BYTES) {
        rc = opt_fail(o, -EINVAL, "config file %.300s: not a regular file of at most 64 KiB", path);
        goto out;
    }
    *text = opt_alloc(o, FILE_LIMIT_BYTES + 1);
    while (used < FILE_LIMIT_BYTES) {
        ssize_t n = read(fd, *text + used, FILE_LIMIT_BYTES - used);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            rc = opt_fail(o, -errno, "cannot read config file %.300s: %s", path, fp_strerror(errno));
        if (n <= 0)
            break;
        used += (size_t)n;
    }
    if (rc == 0 && memchr(*text, '\0', used))
        rc = opt_fail(o, -EINVAL, "config file %.300s: holds NUL bytes: it is not a text file", path);
out:
    if (fd >= 0)
        close(fd);
    return rc;
}

int fp_opts_file(struct fp_opts *o, const char *path)
{
    char *text = NULL;
    struct reader r = {.o = o, .path = path, .section = -1};
    int rc = slurp(o, path, &text);
    return rc < 0 ? rc : read_lines(&r, text);
}
