/*
 * from=raw: dumps of bare arrays, which a schema describes (schema/schema.h). Called by the engine on its one thread; blocks for the disk.
 *
 * All is in the model that the schema makes of names and sizes of the files: offset_bytes of a block is the place in the file, so that a read is a pread. Sizes have been compared before anything
 * is read: a dump that a schema does not fit is said at once, not when its last block comes.
 */
#include <errno.h>
#include <stdlib.h>

#include "convert/schema/schema.h"
#include "convert/source/source.h"

static void raw_close(struct cv_source *s)
{
    cv_inputs_close(s);
    cv_model_free(s->model);
    free(s);
}

static int model_of_schema(struct cv_source *s, const char *path, struct cv_fail *why)
{
    struct cv_schema *schema = NULL;
    struct cv_schema_file *files = calloc(s->ninputs, sizeof *files);
    int rc;

    if (!files)
        return cv_fail(why, -ENOMEM, NULL, NULL, CV_NO_OFFSET, "out of memory for %zu input files", s->ninputs);
    for (size_t i = 0; i < s->ninputs; i++)
        files[i] = (struct cv_schema_file){.path = s->inputs[i].path, .size_bytes = s->inputs[i].size_bytes};
    rc = cv_schema_read(path, &schema, why);
    if (rc == 0) {
        rc = cv_schema_model(schema, files, s->ninputs, true, &s->model, why);
        cv_schema_free(schema);
    }
    free(files);
    return rc;
}

static int raw_open(const struct cv_source_options *o, struct cv_source **out, struct cv_fail *why)
{
    struct cv_source *s;
    int rc;

    if (!o->schema)
        return cv_fail(why, -EINVAL, NULL, NULL, CV_NO_OFFSET, "raw files do not say what is in them: give a schema (fp-convert schema guess writes one to begin with)");
    s = calloc(1, sizeof *s);
    if (!s)
        return cv_fail(why, -ENOMEM, NULL, NULL, CV_NO_OFFSET, "out of memory");
    s->ops = &cv_source_raw;
    rc = cv_inputs_open(s, o, why);
    if (rc == 0)
        rc = model_of_schema(s, o->schema, why);
    if (rc) {
        raw_close(s);
        return rc;
    }
    *out = s;
    return 0;
}

const struct cv_source_ops cv_source_raw = {
    .name = "raw",
    .summary = "bare arrays, one file for each rank or one for all, that a schema describes",
    .needs_schema = true,
    .open = raw_open,
    .read_bytes = cv_inputs_read,
    .close = raw_close,
};
