/* One value of an option: checked against its line of the table and stored in the program's struct.
 *
 * Called by the three sources of values (command line, environment, fp.conf) and for defaults, through
 * opt_apply() alone, so that a value means the same wherever it stands. A value is first parsed into a
 * union and stored only when it is good and no stronger source has spoken: a failed parse never leaves a
 * half-written struct. */
#include "opt_impl.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "fp/addr.h"
#include "fp/err.h"
#include "fp/key.h"

union value {
    const char *text;
    uint64_t u64;
    int64_t i64;
    bool flag;
    int index;
    struct fp_addr addr;
};

const char *opt_placeholder(struct fp_opts *o, const struct fp_opt *opt)
{
    char buf[256] = "";
    static const char *const by_type[] = {"TEXT", "PATH",   "SIZE", "TIME",      "RATE",
                                          "N",    "on|off", NULL,   "ADDR:PORT", "LIST"};
    if (opt->arg)
        return opt->arg;
    if (opt->type != FP_OPT_TYPE_ENUM)
        return by_type[opt->type];
    for (const char *const *c = opt->choices; *c; c++) {
        size_t used = strlen(buf);
        snprintf(buf + used, sizeof buf - used, "%s%s", used ? "|" : "", *c);
    }
    return opt_strndup(o, buf, strlen(buf));
}

static void format_bound(char *buf, enum fp_opt_type type, uint64_t v)
{
    if (type == FP_OPT_TYPE_SIZE)
        fp_format_size_exact(buf, v);
    else if (type == FP_OPT_TYPE_DURATION)
        fp_format_duration_exact(buf, v);
    else if (type == FP_OPT_TYPE_RATE)
        fp_format_rate_exact(buf, v);
    else
        snprintf(buf, FP_UNITS_BUF, "%" PRIu64, v);
}

static uint64_t upper_bound(const struct fp_opt *opt)
{
    return opt->max ? opt->max : UINT64_MAX;
}

const char *opt_range_text(char buf[OPT_RANGE_BUF], const struct fp_opt *opt)
{
    char lo[FP_UNITS_BUF], hi[FP_UNITS_BUF];
    buf[0] = '\0';
    switch (opt->type) {
    case FP_OPT_TYPE_INT:
        if (opt->imin != opt->imax)
            snprintf(buf, OPT_RANGE_BUF, "%" PRId64 " to %" PRId64, opt->imin, opt->imax);
        break;
    case FP_OPT_TYPE_SIZE:
    case FP_OPT_TYPE_DURATION:
    case FP_OPT_TYPE_RATE:
        format_bound(lo, opt->type, opt->min);
        format_bound(hi, opt->type, upper_bound(opt));
        if (upper_bound(opt) != UINT64_MAX)
            snprintf(buf, OPT_RANGE_BUF, "%s to %s", lo, hi);
        else if (opt->min > 0)
            snprintf(buf, OPT_RANGE_BUF, "at least %s", lo);
        break;
    default:
        break;
    }
    return buf;
}

/* True for something that could be (part of) a key: never to be printed. */
static bool looks_like_secret(const char *text)
{
    size_t hex = 0;
    for (const char *p = text; *p; p++) {
        hex = isxdigit((unsigned char)*p) ? hex + 1 : 0;
        if (hex >= FP_KEY_BYTES)
            return true;
    }
    return false;
}

static int bad_value(struct fp_opts *o, const char *where, const char *text, const char *why)
{
    return opt_fail(o, -EINVAL, "%s '%.200s': %s", where, text, why);
}

static int in_range(struct fp_opts *o, const struct fp_opt *opt, const char *where, const char *text,
                    bool below, bool above)
{
    char range[OPT_RANGE_BUF];
    if (!below && !above)
        return 0;
    return opt_fail(o, -ERANGE, "%s '%.200s': too %s: allowed is %s", where, text, below ? "small" : "large",
                    opt_range_text(range, opt));
}

static int parse_quantity(struct fp_opts *o, const struct fp_opt *opt, const char *where, const char *text,
                          uint64_t *v)
{
    const char *why = NULL;
    int rc;
    if (opt->type == FP_OPT_TYPE_SIZE)
        rc = fp_parse_size(text, v, &why);
    else if (opt->type == FP_OPT_TYPE_DURATION)
        rc = fp_parse_duration(text, v, &why);
    else
        rc = fp_parse_rate(text, v, &why);
    if (rc < 0)
        return bad_value(o, where, text, why);
    return in_range(o, opt, where, text, *v<opt->min, *v> upper_bound(opt));
}

static int parse_int(struct fp_opts *o, const struct fp_opt *opt, const char *where, const char *text,
                     int64_t *v)
{
    const char *why = NULL;
    if (fp_parse_int(text, v, &why) < 0)
        return bad_value(o, where, text, why);
    if (opt->imin == opt->imax)
        return 0;
    return in_range(o, opt, where, text, *v<opt->imin, *v> opt->imax);
}

static int parse_bool(struct fp_opts *o, const char *where, const char *text, bool *flag)
{
    static const char *const words[] = {"off", "on", "no", "yes", "false", "true", NULL};
    for (int i = 0; words[i]; i++) {
        if (strcmp(words[i], text) == 0) {
            *flag = i % 2;
            return 0;
        }
    }
    return bad_value(o, where, text, "must be on or off");
}

static int parse_enum(struct fp_opts *o, const struct fp_opt *opt, const char *where, const char *text,
                      int *index)
{
    char choices[256] = "", hint[OPT_HINT_BUF];
    for (int i = 0; opt->choices[i]; i++) {
        if (strcmp(opt->choices[i], text) == 0) {
            *index = i;
            return 0;
        }
        size_t used = strlen(choices);
        snprintf(choices + used, sizeof choices - used, "%s%s",
                 i == 0                ? ""
                 : opt->choices[i + 1] ? ", "
                                       : " or ",
                 opt->choices[i]);
    }
    return opt_fail(o, -EINVAL, "%s '%.200s': must be %s%s", where, text, choices,
                    opt_hint(hint, text, opt->choices));
}

/* Relative paths count from the directory the command was given in; daemons may change theirs. In a file
 * there is no such directory, so there they are refused. */
static int parse_path(struct fp_opts *o, const struct fp_opt *opt, enum opt_source source, const char *where,
                      const char *text, const char **path)
{
    char cwd[4096], joined[8192];
    if ((opt->flags & FP_OPT_SECRET) && looks_like_secret(text) && source != OPT_SRC_DEFAULT)
        return opt_fail(o, -EINVAL,
                        "%s: this looks like the key itself: give the name of a file that holds it", where);
    if (*text == '\0')
        return bad_value(o, where, text, "must not be empty");
    if (strlen(text) >= 4096)
        return bad_value(o, where, text, "path too long");
    if (*text == '/') {
        *path = opt_strndup(o, text, strlen(text));
        return 0;
    }
    if (source == OPT_SRC_FILE_TOP || source == OPT_SRC_FILE_OWN)
        return bad_value(o, where, text, "write an absolute path, beginning with /");
    if (!getcwd(cwd, sizeof cwd))
        return opt_fail(o, -errno,
                        "%s '%.200s': cannot tell the current directory (%s): write an absolute path", where,
                        text, fp_strerror(errno));
    while (strncmp(text, "./", 2) == 0)
        text += 2;
    bool here = *text == '\0' || strcmp(text, ".") == 0;
    bool at_root = strcmp(cwd, "/") == 0;
    snprintf(joined, sizeof joined, "%s%s%s", cwd, here || at_root ? "" : "/", here ? "" : text);
    *path = opt_strndup(o, joined, strlen(joined));
    return 0;
}

int fp_parse_addr(const char *text, int64_t min_port, struct fp_addr *out, const char **why)
{
    struct fp_addr addr = {.text = ""};
    *why = "not an address: write HOST:PORT or [IPV6]:PORT, such as 192.0.2.1:7420";
    if (strlen(text) >= sizeof addr.text || fp_addr_split(text, addr.host, &addr.port) < 0)
        return -EINVAL;
    if (!addr.host[0] && min_port > 0)
        return -EINVAL; /* ":7420", all addresses, is for listening only */
    for (const char *p = addr.host; *p; p++) {
        if (!isgraph((unsigned char)*p) || *p == '/')
            return -EINVAL;
    }
    *why = "the port must be 1 to 65535";
    if (addr.port < min_port)
        return -EINVAL;
    memcpy(addr.text, text, strlen(text));
    *out = addr;
    return 0;
}

static int append_items(struct fp_opts *o, const struct fp_opt *opt, const char *where, const char *text,
                        struct fp_strlist *list)
{
    for (const char *p = text;;) {
        size_t len = strcspn(p, opt->flags & FP_OPT_WHOLE ? "" : ",");
        const char *next = p + len;
        while (len > 0 && *p == ' ')
            p++, len--;
        while (len > 0 && p[len - 1] == ' ')
            len--;
        if (len == 0)
            return bad_value(o, where, text, opt->flags & FP_OPT_WHOLE ? "must not be empty" : "empty item: write a,b,c");
        if (opt->max && list->count >= opt->max)
            return opt_fail(o, -ERANGE, "%s '%.200s': too many: at most %" PRIu64 " allowed", where, text,
                            opt->max);
        opt_list_push(o, list, opt_strndup(o, p, len));
        if (*next == '\0')
            return 0;
        p = next + 1;
    }
}

static int apply_list(struct fp_opts *o, unsigned i, enum opt_source source, const char *where,
                      const char *text)
{
    const struct fp_opt *opt = &o->table->opts[i];
    struct fp_strlist *field = (struct fp_strlist *)(void *)(o->out + opt->offset);
    struct fp_strlist list = {.count = 0};
    if (source == o->slots[i].source)
        list = *field; /* given twice on one level: both count */
    int rc = append_items(o, opt, where, text, &list);
    if (rc < 0 || source < o->slots[i].source)
        return rc;
    *field = list;
    o->slots[i].source = source;
    return 0;
}

static int parse_value(struct fp_opts *o, const struct fp_opt *opt, enum opt_source source, const char *where,
                       const char *text, union value *v)
{
    const char *why = NULL;
    switch (opt->type) {
    case FP_OPT_TYPE_STRING:
        v->text = opt_strndup(o, text, strlen(text));
        return 0;
    case FP_OPT_TYPE_PATH:
        return parse_path(o, opt, source, where, text, &v->text);
    case FP_OPT_TYPE_SIZE:
    case FP_OPT_TYPE_DURATION:
    case FP_OPT_TYPE_RATE:
        return parse_quantity(o, opt, where, text, &v->u64);
    case FP_OPT_TYPE_INT:
        return parse_int(o, opt, where, text, &v->i64);
    case FP_OPT_TYPE_BOOL:
        return parse_bool(o, where, text, &v->flag);
    case FP_OPT_TYPE_ENUM:
        return parse_enum(o, opt, where, text, &v->index);
    case FP_OPT_TYPE_ADDR:
        return fp_parse_addr(text, opt->imin, &v->addr, &why) < 0 ? bad_value(o, where, text, why) : 0;
    case FP_OPT_TYPE_LIST:
        break; /* apply_list */
    }
    return -EINVAL;
}

static void store(const struct fp_opt *opt, void *field, const union value *v)
{
    switch (opt->type) {
    case FP_OPT_TYPE_STRING:
    case FP_OPT_TYPE_PATH:
        *(const char **)field = v->text;
        break;
    case FP_OPT_TYPE_SIZE:
    case FP_OPT_TYPE_DURATION:
    case FP_OPT_TYPE_RATE:
        *(uint64_t *)field = v->u64;
        break;
    case FP_OPT_TYPE_INT:
        *(int64_t *)field = v->i64;
        break;
    case FP_OPT_TYPE_BOOL:
        *(bool *)field = v->flag;
        break;
    case FP_OPT_TYPE_ENUM:
        *(int *)field = v->index;
        break;
    case FP_OPT_TYPE_ADDR:
        *(struct fp_addr *)field = v->addr;
        break;
    case FP_OPT_TYPE_LIST:
        *(struct fp_strlist *)field = (struct fp_strlist){.count = 0};
        break;
    }
}

int opt_apply(struct fp_opts *o, unsigned i, enum opt_source source, const char *where, const char *text)
{
    const struct fp_opt *opt = &o->table->opts[i];
    union value v = {.addr = {.text = ""}};
    if (!text) { /* a default of "unset" */
        v.index = opt->type == FP_OPT_TYPE_ENUM ? -1 : 0;
        store(opt, o->out + opt->offset, &v);
        return 0;
    }
    const char *complaint = opt->check ? opt->check(text) : NULL;
    if (complaint)
        return bad_value(o, where, text, complaint);
    if (opt->type == FP_OPT_TYPE_LIST)
        return apply_list(o, i, source, where, text);
    int rc = parse_value(o, opt, source, where, text, &v);
    if (rc < 0 || source < o->slots[i].source)
        return rc;
    store(opt, o->out + opt->offset, &v);
    o->slots[i].source = source;
    return 0;
}
