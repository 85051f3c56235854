/*
 * #FP and #SBATCH lines of batch scripts (jobscripts/script/declared.h).
 *
 * Scripts are what users write, by hand and by programs. Beside what the sanitizers see: each mistake has a place in the script and is one printable line; each
 * word stands where it is said to stand; what is declared without a mistake is within its limits, and a declaration of an aux-app is split by the host
 * into the words that were written; where a directory is named is a place of the script.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "auxapps/host/load.h"
#include "jobscripts/script/declared.h"
#include "jobscripts/script/naming.h"
#include "jobscripts/script/sbatch.h"
#include "tests/fuzz/fuzz.h"

#define SCRIPT_BYTES 4096u

/* Bytes from 0x80 on are words that scripts are made of. */
static char *take_script(struct fuzz_in *in)
{
    static const char *const often[] = {
        "#FP ", "#FP store ", "#FP cores ", "#FP auxapp ", "#FP stage-in ", "#FP stage-out ", "\n", "\n", " ", "ssd=", "size=", "mount=", "1GiB", "$TMPDIR", "/x", "\"", "'", "=", "#",
        "list=", "share=", "5%", "1-3", ",", "dedup", "hash=sha1", "drain to=/t every=4", "to=", "on=success", "pool=64MiB", "persistent=", "ready=90s", "backend=memory", "close=behind", "# FP store\n",
        "#SBATCH -N 4\n", "#SBATCH --nodes=2-3 -p a,b\n", "srun ./app\n", "\r\n", "\t", "nodes=2", "9", "stripe=", "/AggregateSSDstore", "${FP_MOUNT:-", "}", "<<EOF\n", "EOF\n", "$'", "\\",
    };
    char text[SCRIPT_BYTES + 1];
    size_t n = 0;

    while (n < SCRIPT_BYTES && fuzz_left(in) > 0) {
        uint8_t c = fuzz_u8(in);
        const char *word = c >= 0x80 ? often[(c - 0x80u) % (sizeof often / sizeof *often)] : NULL;

        if (word && n + strlen(word) <= SCRIPT_BYTES) {
            memcpy(text + n, word, strlen(word));
            n += strlen(word);
        } else if (c) {
            text[n++] = (char)c;
        }
    }
    text[n] = '\0';
    char *exact = malloc(n + 1);
    memcpy(exact, text, n + 1);
    return exact;
}

/* Line `number` of the script, behind those of options. NULL: there is none. */
static const char *line_of(const char *text, unsigned number, size_t *len)
{
    while (strncmp(text, "#FP+ ", 5) == 0 && text[5] && text[5] != '\n' && strchr(text, '\n'))
        text = strchr(text, '\n') + 1;
    for (unsigned i = 1; i < number; i++) {
        text = strchr(text, '\n');
        if (!text)
            return NULL;
        text++;
    }
    *len = strcspn(text, "\n");
    return text;
}

static void check_findings(const struct job_findings *f, const char *text)
{
    FUZZ_CHECK(f->n <= JOB_FINDINGS_MAX && f->errors <= f->n + f->beyond);
    for (size_t i = 0; i < f->n; i++) {
        const struct job_finding *one = &f->list[i];
        size_t len;

        if (one->at.line < JOB_LINE_OPTION)
            FUZZ_CHECK(one->at.line > 0 && line_of(text, one->at.line, &len) && one->at.column <= len + 1);
        FUZZ_CHECK(one->text[0]);
        for (const char *p = one->text; *p; p++)
            FUZZ_CHECK(!iscntrl((unsigned char)*p));
    }
}

static void check_words(const struct job_script *s, const char *text)
{
    for (size_t i = 0; i < s->nlines; i++) {
        const struct job_line *l = &s->lines[i];
        size_t len;

        if (l->line >= JOB_LINE_OPTION)
            continue;
        const char *line = line_of(text, l->line, &len);

        FUZZ_CHECK(line && l->nwords > 0 && memcmp(line, "#FP", 3) == 0);
        for (size_t k = 0; k < l->nwords; k++) {
            const struct job_word *w = &l->words[k];
            const char *at = line + w->at.column - 1;

            FUZZ_CHECK(w->at.line == l->line && w->at.column >= 5 && w->at.column <= len);
            FUZZ_CHECK(*at == w->text[0] || *at == '"' || *at == '\'');
            FUZZ_CHECK(w->value <= strlen(w->text) && (!w->value || w->text[w->value - 1] == '='));
            FUZZ_CHECK(!w->value || (w->value_column > w->at.column && line[w->value_column - 2] == '='));
        }
    }
}

static void check_declared(const struct job_declared *d)
{
    const struct job_store *s = &d->store;

    FUZZ_CHECK((s->ssd[0] == '/' || s->ssd[0] == '$') && (s->mount[0] == '/' || s->mount[0] == '$') && s->stripe >= 0 && s->stripe <= 64 && s->close >= 0 && s->close <= 2);
    FUZZ_CHECK((!s->size_bytes || s->size_bytes >= FP_MIB(64)) && s->pool_bytes >= FP_MIB(16) && s->ready_ms >= 1000);
    FUZZ_CHECK(d->cores.kind != JOB_CORES_COUNT || (d->cores.min >= 1 && d->cores.min <= d->cores.max && d->cores.max <= JOB_CORES_MAX));
    FUZZ_CHECK(d->cores.kind != JOB_CORES_SHARE || (d->cores.percent >= 1 && d->cores.percent <= 50));
    FUZZ_CHECK(d->cores.kind != JOB_CORES_LIST || d->cores.highest <= 65535);
    for (size_t i = 0; i < d->nauxapps; i++) {
        char word[JOB_AUXAPP_BYTES];

        FUZZ_CHECK(strlen(d->auxapps[i].text) < JOB_AUXAPP_BYTES);
        if (d->auxapps[i].name[0])
            FUZZ_CHECK(aux_declared_word(d->auxapps[i].text, word, sizeof word) == 0 && strcmp(word, d->auxapps[i].name) == 0);
    }
    for (size_t i = 0; i < d->nin + d->nout; i++) {
        const struct job_stage *stage = i < d->nin ? &d->in[i] : &d->out[i - d->nin];

        FUZZ_CHECK(stage->paths.count < stage->line->nwords && stage->when >= 0 && stage->when <= JOB_ALWAYS);
    }
}

static void check_naming(const char *text)
{
    struct job_place at;
    size_t len;

    if (job_naming_find(text, "/AggregateSSDstore", &at))
        FUZZ_CHECK(line_of(text, at.line, &len) && at.column > 0 && at.column <= len && line_of(text, at.line, &len)[at.column - 1] == '/');
    if (!strstr(text, "//") && !strpbrk(text, "'\"\\") && !strstr(text, "/x"))
        FUZZ_CHECK(!job_naming_find(text, "/x", &at));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct fuzz_in in = {data, data + len};
    char *text = take_script(&in);
    struct job_script script;
    struct job_declared d;
    struct job_findings f;
    struct job_sbatch sb;

    job_findings_init(&f);
    job_script_parse(text, &script, &f);
    check_words(&script, text);
    job_declared_make(&script, &d, &f);
    check_declared(&d);
    job_findings_sort(&f);
    check_findings(&f, text);
    check_naming(text);
    job_sbatch_read(text, &sb, &f);
    FUZZ_CHECK(memchr(sb.partition, 0, sizeof sb.partition));
    job_declared_fini(&d);
    job_findings_fini(&f);
    free(text);
    return 0;
}
