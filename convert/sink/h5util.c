/*
 * HDF5's errors, types and attributes (h5util.h). Called by the sink, the virtual datasets and the source. One thread.
 *
 * HDF5 keeps a stack of errors, from the call that was made down to the system call that failed; people want the bottom of it. It writes errno as text there and nowhere else, so it is read from the text.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "convert/buffer.h"
#include "convert/sink/h5util.h"
#include "fp/err.h"

#define ATTR_MAX_BYTES 65536u

/* ---------------------------------------------------------------- errors */

struct words {
    char text[256];
    int err;
};

static herr_t take(unsigned n, const H5E_error2_t *e, void *arg)
{
    struct words *w = arg;
    const char *number = e->desc ? strstr(e->desc, "errno = ") : NULL;

    (void)n;
    if (e->desc && *e->desc)
        snprintf(w->text, sizeof w->text, "%s", e->desc); /* the last one is the innermost */
    if (number)
        w->err = atoi(number + 8);
    return 0;
}

int cv_h5_fail(struct cv_fail *why, const char *file, const char *dataset, const char *what)
{
    struct words w = {.text = "HDF5 does not say why"};

    H5Ewalk2(H5E_DEFAULT, H5E_WALK_DOWNWARD, take, &w);
    H5Eclear2(H5E_DEFAULT);
    if (w.err)
        return cv_fail(why, -w.err, file, dataset, CV_NO_OFFSET, "%s: %s", what, fp_strerror(-w.err));
    return cv_fail(why, -EBADMSG, file, dataset, CV_NO_OFFSET, "%s: %s", what, w.text);
}

void cv_h5_put(hid_t id)
{
    if (id > 0)
        H5Idec_ref(id);
}

/* ---------------------------------------------------------------- types */

static hid_t complex_of(hid_t half)
{
    size_t size = H5Tget_size(half);
    hid_t t = H5Tcreate(H5T_COMPOUND, 2 * size);

    if (t >= 0 && (H5Tinsert(t, "r", 0, half) < 0 || H5Tinsert(t, "i", size, half) < 0)) {
        H5Tclose(t);
        return -1;
    }
    return t;
}

hsize_t cv_h5_alignment(const struct cv_model *m, const uint64_t (*chunk)[CV_RANK_MAX], const struct cv_sink_options *o)
{
    bool as_it_is = o->codec == CV_CODEC_NONE && !o->shuffle && !o->fletcher32 && o->align_bytes > CV_BUFFER_ALIGN_BYTES;

    for (size_t k = 0; k < m->ndatasets && as_it_is; k++) {
        uint64_t bytes = m->datasets[k].type.size_bytes;

        for (unsigned i = 0; i < m->datasets[k].rank; i++)
            bytes *= chunk[k][i];
        as_it_is = bytes < CV_LARGE_BYTES || bytes % o->align_bytes == 0;
    }
    return as_it_is ? o->align_bytes : CV_BUFFER_ALIGN_BYTES;
}

hid_t cv_h5_type(struct cv_type t)
{
    switch (t.kind) {
    case CV_INT:
        return H5Tcopy(t.size_bytes == 1 ? H5T_NATIVE_INT8 : t.size_bytes == 2 ? H5T_NATIVE_INT16 : t.size_bytes == 4 ? H5T_NATIVE_INT32 : H5T_NATIVE_INT64);
    case CV_UINT:
        return H5Tcopy(t.size_bytes == 1 ? H5T_NATIVE_UINT8 : t.size_bytes == 2 ? H5T_NATIVE_UINT16 : t.size_bytes == 4 ? H5T_NATIVE_UINT32 : H5T_NATIVE_UINT64);
    case CV_FLOAT:
        return H5Tcopy(t.size_bytes == 4 ? H5T_NATIVE_FLOAT : H5T_NATIVE_DOUBLE);
    case CV_COMPLEX:
        return complex_of(t.size_bytes == 8 ? H5T_NATIVE_FLOAT : H5T_NATIVE_DOUBLE);
    }
    return -1;
}

static bool known_number(hid_t type, struct cv_type *out)
{
    H5T_class_t class = H5Tget_class(type);
    size_t size = H5Tget_size(type);

    if (class != H5T_INTEGER && class != H5T_FLOAT)
        return false;
    if ((size & (size - 1)) || size > 8 || (class == H5T_FLOAT && size < 4))
        return false;
    *out = (struct cv_type){.kind = class == H5T_FLOAT ? CV_FLOAT : H5Tget_sign(type) == H5T_SGN_2 ? CV_INT : CV_UINT,
                            .size_bytes = (uint8_t)size,
                            .big_endian = __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__};
    return true;
}

bool cv_h5_known(hid_t type, struct cv_type *out)
{
    struct cv_type half;
    char *name[2];
    hid_t member;
    bool yes;

    if (H5Tget_class(type) == H5T_ENUM) { /* truth values of h5py, and flags */
        member = H5Tget_super(type);
        yes = member >= 0 && known_number(member, out);
        if (member >= 0)
            H5Tclose(member);
        return yes;
    }
    if (H5Tget_class(type) != H5T_COMPOUND)
        return known_number(type, out);
    if (H5Tget_nmembers(type) != 2)
        return false;
    name[0] = H5Tget_member_name(type, 0);
    name[1] = H5Tget_member_name(type, 1);
    member = H5Tget_member_type(type, 0);
    yes = name[0] && name[1] && strcmp(name[0], "r") == 0 && strcmp(name[1], "i") == 0 && known_number(member, &half) && half.kind == CV_FLOAT && H5Tget_size(type) >= 2u * half.size_bytes;
    if (yes)
        *out = (struct cv_type){.kind = CV_COMPLEX, .size_bytes = (uint8_t)(2 * half.size_bytes), .big_endian = half.big_endian};
    H5Tclose(member);
    H5free_memory(name[0]);
    H5free_memory(name[1]);
    return yes;
}

/* ---------------------------------------------------------------- attributes */

bool cv_h5_reserved(const char *name)
{
    static const char *const own[] = {"CLASS", "NAME", "DIMENSION_LIST", "REFERENCE_LIST", "DIMENSION_LABELS", "_Netcdf4Dimid", "_Netcdf4Coordinates", "_NCProperties", "_nc3_strict", NULL};

    for (const char *const *o = own; *o; o++)
        if (strcmp(*o, name) == 0)
            return true;
    return false;
}

static hid_t attr_type(const struct cv_attr *a, hid_t of_dataset)
{
    struct cv_type its;
    hid_t type;

    if (of_dataset >= 0 && cv_h5_known(of_dataset, &its) && cv_attr_is_value(a, its))
        return H5Tcopy(of_dataset);
    if (a->kind != CV_ATTR_TEXT)
        return H5Tcopy(a->kind == CV_ATTR_INTS ? H5T_NATIVE_INT64 : H5T_NATIVE_DOUBLE);
    type = H5Tcopy(H5T_C_S1); /* of any length, which h5py gives as str */
    H5Tset_size(type, H5T_VARIABLE);
    H5Tset_cset(type, H5T_CSET_UTF8);
    return type;
}

static hid_t attr_space(const struct cv_attr *a)
{
    hsize_t n = a->count;

    if (a->kind != CV_ATTR_TEXT && n == 0)
        return H5Screate(H5S_NULL);
    if (a->kind == CV_ATTR_TEXT || (n == 1 && strcmp(a->name, "_FillValue") != 0)) /* which netCDF has as an array of one */
        return H5Screate(H5S_SCALAR);
    return H5Screate_simple(1, &n, NULL);
}

/* HDF5's words of a failure are there still when it returns. */
static int put_attr(hid_t object, hid_t of_dataset, const struct cv_attr *a)
{
    const char *text = a->text;
    const void *value = a->kind == CV_ATTR_TEXT ? (const void *)&text : a->kind == CV_ATTR_INTS ? (const void *)a->ints : a->floats;
    hid_t type = attr_type(a, of_dataset), space = attr_space(a), attr;

    attr = H5Acreate2(object, a->name, type, space, H5P_DEFAULT, H5P_DEFAULT);
    if (attr < 0)
        return -EIO;
    if ((a->kind == CV_ATTR_TEXT || a->count) && H5Awrite(attr, a->kind == CV_ATTR_TEXT ? type : a->kind == CV_ATTR_INTS ? H5T_NATIVE_INT64 : H5T_NATIVE_DOUBLE, value) < 0)
        return -EIO;
    cv_h5_put(attr);
    cv_h5_put(space);
    cv_h5_put(type);
    return 0;
}

int cv_h5_put_attrs(hid_t object, const struct cv_attrs *a)
{
    hid_t type = H5Iget_type(object) == H5I_DATASET ? H5Dget_type(object) : -1;

    for (size_t i = 0; i < a->count; i++)
        if (!cv_h5_reserved(a->items[i].name) && put_attr(object, type, &a->items[i]) < 0)
            return -EIO;
    cv_h5_put(type);
    return 0;
}

static int get_text(hid_t attr, hid_t type, const char *name, struct cv_attrs *a)
{
    char *text = NULL;
    int rc = 0;

    if (H5Tis_variable_str(type) > 0) {
        hid_t memory = H5Tcopy(H5T_C_S1);

        H5Tset_size(memory, H5T_VARIABLE);
        H5Tset_cset(memory, H5Tget_cset(type));
        if (H5Aread(attr, memory, &text) >= 0 && text)
            rc = cv_attrs_text(a, name, text);
        H5free_memory(text);
        H5Tclose(memory);
        return rc;
    }
    text = calloc(1, H5Tget_size(type) + 1);
    if (!text)
        return -ENOMEM;
    if (H5Aread(attr, type, text) >= 0)
        rc = cv_attrs_text(a, name, text);
    free(text);
    return rc;
}

/* Unsigned ones of 64 bits, of which some are more than an int64_t holds: HDF5 would make the greatest of these of them, and a double is near. */
static bool is_beyond(hid_t attr, hid_t type, size_t n, uint64_t *room)
{
    bool beyond = false;

    if (H5Tget_class(type) != H5T_INTEGER || H5Tget_size(type) < 8 || H5Tget_sign(type) != H5T_SGN_NONE || H5Aread(attr, H5T_NATIVE_UINT64, room) < 0)
        return false;
    for (size_t i = 0; i < n; i++)
        beyond |= room[i] > INT64_MAX;
    return beyond;
}

static int get_numbers(hid_t attr, hid_t type, const char *name, size_t n, struct cv_attrs *a)
{
    void *values = calloc(n ? n : 1, 8);
    H5T_class_t class = values && is_beyond(attr, type, n, values) ? H5T_FLOAT : H5Tget_class(type);
    int rc = values ? 0 : -ENOMEM;

    if (rc == 0 && H5Aread(attr, class == H5T_INTEGER ? H5T_NATIVE_INT64 : H5T_NATIVE_DOUBLE, values) >= 0)
        rc = class == H5T_INTEGER ? cv_attrs_ints(a, name, values, n) : cv_attrs_floats(a, name, values, n);
    free(values);
    return rc;
}

struct getting { struct cv_attrs *a; struct cv_h5_left *left; };

static void leave_out(const struct getting *g, const char *name)
{
    if (g->left && g->left->count++ == 0)
        snprintf(g->left->first, sizeof g->left->first, "%s", name);
}

static herr_t get_attr(hid_t object, const char *name, const H5A_info_t *info, void *arg)
{
    const struct getting *g = arg;
    hid_t attr, type, space;
    H5T_class_t class = H5T_NO_CLASS;
    hssize_t n;
    herr_t rc = 0;

    (void)info;
    if (cv_h5_reserved(name))
        return 0;
    if (strlen(name) > CV_NAME_MAX || (attr = H5Aopen(object, name, H5P_DEFAULT)) < 0) {
        leave_out(g, name);
        return 0;
    }
    type = H5Aget_type(attr);
    space = H5Aget_space(attr);
    n = H5Sget_simple_extent_npoints(space);
    if (n >= 0 && H5Sget_simple_extent_ndims(space) <= 1 && H5Aget_storage_size(attr) <= ATTR_MAX_BYTES)
        class = H5Tget_class(type);
    if (class == H5T_STRING && n == 1)
        rc = get_text(attr, type, name, g->a);
    else if (class == H5T_INTEGER || class == H5T_FLOAT)
        rc = get_numbers(attr, type, name, (size_t)n, g->a);
    else
        leave_out(g, name);
    H5Sclose(space);
    H5Tclose(type);
    H5Aclose(attr);
    return rc;
}

int cv_h5_get_attrs(hid_t object, struct cv_attrs *a, struct cv_h5_left *left)
{
    struct getting g = {a, left};

    return H5Aiterate2(object, H5_INDEX_NAME, H5_ITER_INC, NULL, get_attr, &g) < 0 ? -ENOMEM : 0;
}

int cv_h5_get_ints(hid_t object, const char *name, size_t most, int64_t **values, size_t *n)
{
    hid_t attr = -1, space = -1, type = -1;
    hssize_t count;
    int rc = 0;

    *values = NULL;
    *n = 0;
    if (H5Aexists(object, name) <= 0 || (attr = H5Aopen(object, name, H5P_DEFAULT)) < 0)
        return -ENOENT;
    type = H5Aget_type(attr);
    space = H5Aget_space(attr);
    count = space < 0 ? -1 : H5Sget_simple_extent_npoints(space);
    if (count < 0 || (uint64_t)count > most || H5Tget_class(type) != H5T_INTEGER)
        rc = -EINVAL;
    else if (!(*values = malloc(((size_t)count + 1) * sizeof **values)))
        rc = -ENOMEM;
    else if (count && H5Aread(attr, H5T_NATIVE_INT64, *values) < 0)
        rc = -EIO;
    else
        *n = (size_t)count;
    if (rc) {
        free(*values);
        *values = NULL;
    }
    cv_h5_put(type);
    cv_h5_put(space);
    cv_h5_put(attr);
    return rc;
}
