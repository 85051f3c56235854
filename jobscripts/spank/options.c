/*
 * Options of sbatch as the directives that they stand for (see spank_fp.h): --fp-cores=2 is "cores 2".
 *
 * Values are not looked at: what is wrong with them fp-job says, in the same words as of a #FP line. Only the list of aux-apps is taken apart, at commas outside
 * of quotes: each is a directive of its own.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "jobscripts/spank/spank_fp.h"

bool spank_fp_given(const struct spank_fp *s)
{
    for (int i = 0; i < FP_OPTIONS; i++)
        if (s->value[i])
            return true;
    return false;
}

/* One aux-app of the list: to the next comma. */
static size_t length(const char *list)
{
    char quote = '\0';
    size_t n = 0;

    for (; list[n] && (quote || list[n] != ','); n++)
        if (quote ? list[n] == quote : list[n] == '"' || list[n] == '\'')
            quote = quote ? '\0' : list[n];
    return n;
}

static void write_auxapps(FILE *f, const char *list)
{
    for (;;) {
        size_t n = length(list);

        fprintf(f, "auxapp %.*s\n", (int)n, list);
        if (!list[n])
            return;
        list += n + 1;
    }
}

char *spank_fp_directives(const struct spank_fp *s)
{
    static const char *const names[FP_OPTIONS] = {[FP_STORE] = "store", [FP_CORES] = "cores", [FP_STAGE_IN] = "stage-in", [FP_STAGE_OUT] = "stage-out"};
    char *text = NULL;
    size_t size;
    FILE *f = open_memstream(&text, &size);

    if (!f)
        return NULL;
    for (int i = 0; i < FP_OPTIONS; i++)
        if (s->value[i] && names[i])
            fprintf(f, "%s %s\n", names[i], s->value[i]);
        else if (s->value[i] && i == FP_AUXAPPS)
            write_auxapps(f, s->value[i]);
    if (fclose(f)) {
        free(text);
        return NULL;
    }
    return text;
}
