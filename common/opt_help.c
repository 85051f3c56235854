/* --help, --version and the OPTIONS part of the man pages, from the option table.
 *
 * Called from fp_opts_args(); all output goes to stdout. The man pages' own text is written by hand; the
 * build runs `PROGRAM --print-man-options` (and --print-man-conf for fp.conf(5)) and puts the result
 * below .SH OPTIONS, so an option that exists is documented and its default is the true one. The format
 * is man(7) roff: every man program reads it. */
#include "opt_impl.h"

#include <stdio.h>
#include <string.h>

#define HELP_COLUMN 26
#define HELP_WIDTH  80

#ifndef FP_VERSION
#define FP_VERSION "unknown"
#endif

/* Prints words wrapped at HELP_WIDTH, indented. col is where the cursor is. */
static void wrap(const char *text, int col, int indent)
{
    for (const char *p = text; *p;) {
        int len = (int)strcspn(p, " ");
        if (col + 1 + len > HELP_WIDTH && col > indent) {
            printf("\n%*s", indent, "");
            col = indent;
        } else if (col > indent) {
            putchar(' ');
            col++;
        }
        printf("%.*s", len, p);
        col += len;
        p += len;
        p += strspn(p, " ");
    }
    putchar('\n');
}

/* "Default: 512MiB. Range: 64MiB to 1TiB." as far as there is something to say. */
static const char *facts(char *buf, size_t size, const struct fp_opt *opt)
{
    char range[OPT_RANGE_BUF];
    size_t used = 0;
    buf[0] = '\0';
    if (opt->dflt && *opt->dflt && !(opt->type == FP_OPT_TYPE_BOOL && strcmp(opt->dflt, "off") == 0) &&
        !(opt->flags & FP_OPT_NO_FILE))
        used += (size_t)snprintf(buf, size, " Default: %s.", opt->dflt);
    if (*opt_range_text(range, opt) && !(opt->flags & FP_OPT_NO_FILE))
        snprintf(buf + used, size - used, " Range: %s.", range);
    return buf;
}

static void help_line(const char *left, const char *help, const char *more)
{
    char text[2048];
    snprintf(text, sizeof text, "%s%s", help, more);
    int col = printf("  %s", left);
    if (col + 2 > HELP_COLUMN) {
        putchar('\n');
        col = 0;
    }
    printf("%*s", HELP_COLUMN - col, "");
    wrap(text, HELP_COLUMN, HELP_COLUMN);
}

void fp_opt_print_help_line(const char *left, const char *help)
{
    help_line(left, help, "");
}

static void print_usage(struct fp_opts *o)
{
    if (o->table->usage) {
        printf("Usage: %s\n", o->table->usage);
        wrap(o->table->summary, 0, 0);
        putchar('\n');
        return;
    }
    printf("Usage: %s [OPTION]...", o->table->prog);
    for (const struct fp_opt *opt = o->table->opts; opt->name; opt++) {
        bool required = opt->flags & FP_OPT_REQUIRED;
        const char *dots = opt->type == FP_OPT_TYPE_LIST ? "..." : "";
        if (opt->flags & FP_OPT_POSITIONAL)
            printf(required ? " %s%s" : " [%s]%s", opt_placeholder(o, opt), dots);
        else if (required)
            printf(" --%s=%s", opt->name, opt_placeholder(o, opt));
    }
    printf("\n%s\n\n", o->table->summary);
}

void opt_print_help(struct fp_opts *o)
{
    char left[128], more[512];
    print_usage(o);
    if (o->table->print_more)
        o->table->print_more();
    for (const struct fp_opt *opt = o->table->opts; opt->name; opt++) {
        if (opt->flags & FP_OPT_HIDDEN)
            continue;
        if (opt->flags & FP_OPT_POSITIONAL)
            snprintf(left, sizeof left, "%s", opt_placeholder(o, opt));
        else if (opt->type == FP_OPT_TYPE_BOOL)
            snprintf(left, sizeof left, "--%s[=on|off]", opt->name);
        else
            snprintf(left, sizeof left, "--%s=%s", opt->name, opt_placeholder(o, opt));
        help_line(left, opt->help, facts(more, sizeof more, opt));
    }
    if (o->table->mount_helper)
        help_line("-o NAME=VALUE,...", "The same options, as mount(8) gives them.", "");
    if (o->table->section)
        help_line("--config=FILE", "Read options from FILE.", " Default: " FP_CONF_DEFAULT ", where it exists.");
    help_line("--help, --version", "Print this, or the version, and exit.", "");
    if (!o->table->section)
        return;
    printf("\nOptions with a default can also be set in fp.conf, section [%s], or by the\n"
           "environment (FP_ and its name, such as FP_LOG_LEVEL); of the others the man page\n"
           "says which can. The command line wins, then the environment, then the file.\n"
           "Sizes: 512MiB, 3.5TB; times: 500ms, 2s, 1h.\n",
           o->table->section);
}

void opt_print_version(const struct fp_opt_table *table)
{
    printf("%s (fpstore) %s\n", table->prog, FP_VERSION);
}

/* Text for roff: no line may begin with a dot or quote, backslash and dash are escaped. */
static void roff(const char *text)
{
    if (*text == '.' || *text == '\'')
        fputs("\\&", stdout);
    for (const char *p = text; *p; p++) {
        if (*p == '\\')
            fputs("\\e", stdout);
        else if (*p == '-')
            fputs("\\-", stdout);
        else
            putchar(*p);
    }
}

void fp_opt_print_roff(const char *text)
{
    roff(text);
}

static void roff_body(const char *help, const char *more)
{
    roff(help);
    roff(more);
    putchar('\n');
}

static void roff_tag(const char *dashes, const char *name, const char *joint, const char *arg)
{
    fputs(".TP\n\\fB", stdout);
    roff(dashes);
    roff(name);
    fputs("\\fR", stdout);
    if (arg) {
        roff(joint);
        fputs("\\fI", stdout);
        roff(arg);
        fputs("\\fR", stdout);
    }
    putchar('\n');
}

void opt_print_man_options(struct fp_opts *o)
{
    char more[512], env[OPT_ENV_BUF];
    for (const struct fp_opt *opt = o->table->opts; opt->name; opt++) {
        size_t used;
        if (opt->flags & FP_OPT_HIDDEN)
            continue;
        if (opt->flags & FP_OPT_POSITIONAL)
            roff_tag("", opt_placeholder(o, opt), "", NULL);
        else if (opt->type == FP_OPT_TYPE_BOOL)
            roff_tag(o->table->words ? "" : "--", opt->name, o->table->words ? "=" : "", o->table->words ? "on|off" : "[=on|off]");
        else
            roff_tag(o->table->words ? "" : "--", opt->name, "=", opt_placeholder(o, opt));
        facts(more, sizeof more, opt);
        used = strlen(more);
        opt_env_name(env, opt->name);
        if (!(opt->flags & FP_OPT_NO_FILE) && !o->table->words)
            snprintf(more + used, sizeof more - used, " Environment: %s.", env);
        roff_body(opt->help, more);
    }
    if (o->table->mount_helper) {
        roff_tag("-", "o", " ", "NAME=VALUE,...");
        roff_body("The same options, as mount(8) and fstab(5) give them; its own flags are accepted as well.",
                  "");
    }
    if (o->table->section) {
        roff_tag("--", "config", "=", "FILE");
        roff_body("Read options from FILE, see fp.conf(5); an empty name reads none.",
                  " Default: " FP_CONF_DEFAULT ", where it exists. Environment: FP_CONFIG.");
    }
    if (o->table->words)
        return;
    roff_tag("--", "help", "", NULL);
    roff_body("Print a summary of the options and exit.", "");
    roff_tag("--", "version", "", NULL);
    roff_body("Print the version and exit.", "");
}

void opt_print_man_conf(struct fp_opts *o)
{
    char more[512];
    for (const struct fp_opt *opt = o->table->opts; opt->name; opt++) {
        if (opt->flags & (FP_OPT_HIDDEN | FP_OPT_NO_FILE))
            continue;
        roff_tag("", opt->name, " = ", opt_placeholder(o, opt));
        roff_body(opt->help, facts(more, sizeof more, opt));
    }
}
