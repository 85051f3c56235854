/*
 * from=npy: arrays of NumPy, one in a file (docs of numpy.lib.format; header in npyhead.c, model in arrays.c). Called by the engine on its one thread; blocks for the disk.
 *
 * A file that has bytes behind its array is refused: np.save may be called more than once on an open file, and to convert the first array alone would lose the others without a word.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "convert/source/npy.h"

static void npy_close(struct cv_source *s)
{
    cv_inputs_close(s);
    cv_model_free(s->model);
    free(s);
}

static int array_read(struct cv_source *s, uint32_t i, bool named, struct cv_array *a, struct cv_fail *why)
{
    const struct cv_input *in = &s->inputs[i];
    uint8_t head[CV_NPY_HEAD_MAX];
    char name[CV_NAME_MAX + 1] = "/";
    size_t len = in->size_bytes < sizeof head ? (size_t)in->size_bytes : sizeof head;
    uint64_t end;
    int rc;

    rc = named ? cv_name_of_file(in->path, ".npy", NULL, name, why) : 0;
    if (rc == 0)
        rc = cv_inputs_read(s, i, 0, head, len, why);
    if (rc == 0)
        rc = cv_npy_head_parse(head, len, in->path, NULL, 0, &a->head, why);
    if (rc)
        return rc;
    end = a->head.head_bytes + a->head.data_bytes;
    if (in->size_bytes < end)
        return cv_fail(why, -ENODATA, in->path, NULL, in->size_bytes, "the file ends here, and its array at byte %llu", (unsigned long long)end);
    if (in->size_bytes > end)
        return cv_fail(why, -EINVAL, in->path, NULL, end, "%llu bytes stand behind the array: store each array in a file of its own, or all in one .npz",
                       (unsigned long long)(in->size_bytes - end));
    a->input = i;
    a->base = a->head.head_bytes;
    a->name = strdup(name);
    return a->name ? 0 : cv_fail(why, -ENOMEM, in->path, NULL, CV_NO_OFFSET, "out of memory");
}

static int arrays_read(struct cv_source *s, const char *schema, struct cv_fail *why)
{
    struct cv_array *arrays = calloc(s->ninputs, sizeof *arrays);
    int rc = arrays ? 0 : cv_fail(why, -ENOMEM, NULL, NULL, CV_NO_OFFSET, "out of memory for %zu arrays", s->ninputs);

    for (size_t i = 0; rc == 0 && i < s->ninputs; i++)
        rc = array_read(s, (uint32_t)i, !schema, &arrays[i], why);
    if (rc == 0)
        rc = cv_arrays_model(s, arrays, s->ninputs, schema, false, why);
    for (size_t i = 0; arrays && i < s->ninputs; i++)
        free(arrays[i].name);
    free(arrays);
    return rc;
}

static int npy_open(const struct cv_source_options *o, struct cv_source **out, struct cv_fail *why)
{
    struct cv_source *s = calloc(1, sizeof *s);
    int rc;

    if (!s)
        return cv_fail(why, -ENOMEM, NULL, NULL, CV_NO_OFFSET, "out of memory");
    s->ops = &cv_source_npy;
    rc = cv_inputs_open(s, o, why);
    if (rc == 0)
        rc = arrays_read(s, o->schema, why);
    if (rc) {
        npy_close(s);
        return rc;
    }
    *out = s;
    return 0;
}

const struct cv_source_ops cv_source_npy = {
    .name = "npy",
    .summary = "arrays of NumPy, a file each; with a schema, the blocks of ranks",
    .open = npy_open,
    .read_bytes = cv_inputs_read,
    .close = npy_close,
};
