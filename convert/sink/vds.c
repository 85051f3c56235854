/*
 * Virtual datasets: one file that shows the parts of several nodes as whole arrays (sink.h). Called by the command join. One thread; blocks for the disk.
 *
 * Each part has datasets of the whole shape in which only its own blocks are stored, and says which in its attribute fp_boxes; so source and destination of a mapping are the same selection, and nothing has
 * to be moved. Parts are read for these attributes alone. A scalar, and an array of which nothing says where it lies, is copied from the first part that has it.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "convert/sink/h5util.h"
#include "convert/source/source.h"

#define BOXES_MAX        (2u * CV_RANK_MAX * CV_BLOCKS_MAX)
#define COPIED_MAX_BYTES (16u << 20) /* of a dataset that is copied */

struct join {
    const char *const *paths, *const *names;
    size_t nparts;
    hid_t *parts, out;  /* parts: -1 beyond those that may be kept open */
    const char *path;
    struct cv_fail *why;
    struct cv_model *m; /* of the first part: names, dimensions, attributes */
    hid_t *made;
    size_t nmade;
    int rc;
};

/* One that is being joined. */
struct array {
    const char *name;
    unsigned rank;
    hid_t space, type, dcpl;
    hid_t plain; /* without boxes: that of the first part that has values */
    uint64_t have; /* elements in boxes of all parts */
    bool boxes, loose; /* a part has said boxes; gaps and overlaps are allowed */
};

/* What is in the part is where it is in the whole: one selection for both. */
static herr_t select_box(hid_t space, const int64_t *box, const int64_t *stride, unsigned rank)
{
    hsize_t start[CV_RANK_MAX], count[CV_RANK_MAX], step[CV_RANK_MAX];

    for (unsigned i = 0; i < rank; i++) {
        if (box[i] < 0 || box[rank + i] <= 0 || (stride && stride[i] < 1))
            return -1;
        start[i] = (hsize_t)box[i];
        count[i] = (hsize_t)box[rank + i];
        step[i] = stride ? (hsize_t)stride[i] : 1;
    }
    return H5Sselect_hyperslab(space, H5S_SELECT_SET, start, step, count, NULL);
}

/* The part's array is that of the first part, or the boxes would mean something else. */
static bool is_alike(hid_t dataset, hid_t space, hid_t type)
{
    hid_t its_space = H5Dget_space(dataset), its_type = H5Dget_type(dataset);
    hsize_t a[CV_RANK_MAX], b[CV_RANK_MAX];
    int rank = H5Sget_simple_extent_ndims(space);
    bool alike = H5Tequal(type, its_type) > 0 && H5Sget_simple_extent_ndims(its_space) == rank;

    alike = alike && (rank == 0 || (H5Sget_simple_extent_dims(space, a, NULL) == rank && H5Sget_simple_extent_dims(its_space, b, NULL) == rank));
    for (int i = 0; alike && i < rank; i++)
        alike = a[i] == b[i];
    cv_h5_put(its_space);
    cv_h5_put(its_type);
    return alike;
}

static uint64_t box_elements(const int64_t *box, unsigned rank)
{
    uint64_t n = 1;

    for (unsigned i = 0; i < rank; i++)
        n *= (uint64_t)box[rank + i];
    return n;
}

/* Parts of one result have each element once: as many as there are, or one is missing, twice, or of something else. */
static int check_whole(const struct join *j, const struct array *a)
{
    hssize_t total = H5Sget_simple_extent_npoints(a->space);

    if (!a->boxes || a->loose || total < 0 || a->have == (uint64_t)total)
        return 0;
    return cv_fail(j->why, -EINVAL, j->paths[0], a->name, CV_NO_OFFSET, "these parts have %llu elements of it together, and it has %llu: one is missing, given twice, or of another result",
                   (unsigned long long)a->have, (unsigned long long)total);
}

/* One mapping for each box: of several in one mapping HDF5 has to keep the union. */
static int map_boxes(struct join *j, size_t p, struct array *a, hid_t dataset)
{
    int64_t *boxes = NULL, *strides = NULL;
    size_t n, m = 0;
    int rc = cv_h5_get_ints(dataset, "fp_boxes", BOXES_MAX, &boxes, &n);

    if (rc == 0 && H5Aexists(dataset, "fp_strides") > 0)
        rc = cv_h5_get_ints(dataset, "fp_strides", BOXES_MAX, &strides, &m);
    if (rc == 0 && (n % (2 * a->rank) || (strides && m != n / 2)))
        rc = -EINVAL;
    for (size_t at = 0; rc == 0 && at < n; at += 2 * a->rank)
        if (select_box(a->space, boxes + at, strides ? strides + at / 2 : NULL, a->rank) < 0 || H5Sselect_valid(a->space) <= 0 ||
            H5Pset_virtual(a->dcpl, a->space, j->names[p], a->name, a->space) < 0)
            rc = -EINVAL;
        else
            a->have += box_elements(boxes + at, a->rank);
    a->boxes = true;
    a->loose |= H5Aexists(dataset, "fp_loose") > 0;
    free(boxes);
    free(strides);
    return rc ? cv_fail(j->why, rc, j->paths[p], a->name, CV_NO_OFFSET, "its attribute fp_boxes is not what fp-convert run --only writes") : 0;
}

static hid_t access_list(void)
{
    hid_t fapl = H5Pcreate(H5P_FILE_ACCESS);

    H5Pset_libver_bounds(fapl, H5F_LIBVER_V110, H5F_LIBVER_V110);
    H5Pset_file_locking(fapl, false, true);
    return fapl;
}

static int part_open(const struct join *j, size_t p, hid_t *part)
{
    hid_t fapl = access_list();
    int rc = 0;

    *part = H5Fopen(j->paths[p], H5F_ACC_RDONLY, fapl);
    if (*part < 0)
        rc = cv_h5_fail(j->why, j->paths[p], NULL, "it is no HDF5 file that can be opened");
    H5Pclose(fapl);
    return rc;
}

static int map_part(struct join *j, size_t p, struct array *a)
{
    hid_t part = j->parts[p], dataset;
    int rc = part < 0 ? part_open(j, p, &part) : 0;

    if (rc)
        return rc;
    dataset = H5Dopen2(part, a->name, H5P_DEFAULT);
    if (dataset < 0)
        rc = cv_h5_fail(j->why, j->paths[p], a->name, "it is not in this part");
    if (part != j->parts[p])
        H5Fclose(part); /* an open dataset keeps it */
    if (rc)
        return rc;
    if (!is_alike(dataset, a->space, a->type))
        rc = cv_fail(j->why, -EINVAL, j->paths[p], a->name, CV_NO_OFFSET, "it has another shape or type than in %s: these are not parts of one result", j->paths[0]);
    else if (a->rank && H5Aexists(dataset, "fp_boxes") > 0)
        rc = map_boxes(j, p, a, dataset);
    else if (a->rank > 0 && H5Sget_simple_extent_npoints(a->space) > 0)
        rc = cv_fail(j->why, -EINVAL, j->paths[p], a->name, CV_NO_OFFSET, "it is no part: fp-convert run --only makes parts");
    else if (a->plain < 0 && H5Dget_storage_size(dataset) > 0) {
        a->plain = dataset;
        return 0;
    }
    H5Dclose(dataset);
    return rc;
}

/* What is in no boxes: its values themselves. */
static int copy_values(struct join *j, const struct array *a, hid_t made)
{
    hssize_t n = H5Sget_simple_extent_npoints(a->space);
    size_t size = H5Tget_size(a->type);
    void *values;
    int rc = 0;

    if (a->plain < 0 || n <= 0)
        return 0;
    if ((uint64_t)n > COPIED_MAX_BYTES / size)
        return cv_fail(j->why, -EINVAL, j->paths[0], a->name, CV_NO_OFFSET, "nothing says which boxes of it a part has: it has no attribute fp_boxes, as fp-convert run --only writes it");
    values = malloc((size_t)n * size);
    if (!values)
        return cv_fail(j->why, -ENOMEM, NULL, NULL, CV_NO_OFFSET, "out of memory");
    if (H5Dread(a->plain, a->type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) < 0)
        rc = cv_h5_fail(j->why, j->paths[0], a->name, "it can't be read");
    else if (H5Dwrite(made, a->type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) < 0)
        rc = cv_h5_fail(j->why, j->path, a->name, "it can't be written");
    free(values);
    return rc;
}

/* What the array is like, for its dimensions and attributes to be written again. */
static int note(struct join *j, hid_t from, const struct array *a, hid_t made)
{
    struct cv_dataset *d;
    struct cv_attrs *attrs;
    hsize_t dims[CV_RANK_MAX], most[CV_RANK_MAX];
    struct cv_model *all = cv_model_new();
    hid_t *grown = realloc(j->made, (j->nmade + 1) * sizeof *grown);
    int rc = 0;

    j->made = grown ? grown : j->made;
    d = grown && all ? cv_model_add(j->m, a->name) : NULL;
    if (!d || cv_h5_get_dims(from, a->name, a->rank, d) < 0 || cv_h5_get_attrs(from, &all->attrs, NULL) < 0) {
        cv_model_free(all);
        H5Dclose(made);
        return -ENOMEM;
    }
    j->made[j->nmade++] = made;
    d->rank = a->rank;
    if (a->rank)
        H5Sget_simple_extent_dims(a->space, dims, most);
    for (unsigned i = 0; i < a->rank; i++) {
        d->dims[i].size = dims[i];
        d->dims[i].steps = most[i] == H5S_UNLIMITED;
    }
    attrs = &all->attrs; /* but those of the part */
    for (size_t i = 0; i < attrs->count && rc == 0; i++)
        if (strcmp(attrs->items[i].name, "fp_boxes") != 0 && strcmp(attrs->items[i].name, "fp_strides") != 0 && strcmp(attrs->items[i].name, "fp_loose") != 0 &&
            cv_h5_put_attrs(made, &(struct cv_attrs){.items = &attrs->items[i], .count = 1}) < 0)
            rc = cv_h5_fail(j->why, j->path, a->name, "its attributes can't be written");
    cv_model_free(all);
    return rc;
}

static hid_t make(struct join *j, const struct array *a)
{
    hid_t lcpl = H5Pcreate(H5P_LINK_CREATE), made;

    H5Pset_create_intermediate_group(lcpl, 1);
    H5Sselect_all(a->space);
    made = H5Dcreate2(j->out, a->name, a->type, a->space, lcpl, a->dcpl, H5P_DEFAULT);
    if (made < 0)
        (void)cv_h5_fail(j->why, j->path, a->name, "it can't be made");
    H5Pclose(lcpl);
    return made;
}

/* Of a dataset that may grow only the layout of a virtual one, or chunks, are allowed: one without either has the size that it has. */
static void fix_size(struct array *a)
{
    hsize_t dims[CV_RANK_MAX];

    if (a->rank && H5Pget_layout(a->dcpl) != H5D_VIRTUAL && H5Sget_simple_extent_dims(a->space, dims, NULL) >= 0)
        H5Sset_extent_simple(a->space, (int)a->rank, dims, NULL);
}

static int join_dataset(struct join *j, hid_t from, const char *name)
{
    struct array a = {.name = name, .space = H5Dget_space(from), .type = H5Dget_type(from), .dcpl = H5Pcreate(H5P_DATASET_CREATE), .plain = -1};
    hid_t was = H5Dget_create_plist(from), made;
    int rank = H5Sget_simple_extent_ndims(a.space), rc = 0;
    uint8_t fill[16];

    a.rank = rank > 0 ? (unsigned)rank : 0;
    H5Pset_obj_track_times(a.dcpl, false);
    if (rank < 0 || rank > (int)CV_RANK_MAX)
        rc = cv_fail(j->why, -EINVAL, j->paths[0], name, CV_NO_OFFSET, "it has too many dimensions");
    for (size_t p = 0; rc == 0 && p < j->nparts; p++)
        rc = map_part(j, p, &a);
    H5Sselect_all(a.space);
    rc = rc ? rc : check_whole(j, &a);
    if (rc == 0 && H5Tget_size(a.type) <= sizeof fill && H5Pget_fill_value(was, a.type, fill) >= 0)
        H5Pset_fill_value(a.dcpl, a.type, fill);
    if (rc == 0) {
        fix_size(&a);
        made = make(j, &a);
        rc = made < 0 ? -EIO : note(j, from, &a, made); /* who closes it, too */
        rc = rc ? rc : copy_values(j, &a, made);
    }
    cv_h5_put(a.plain);
    cv_h5_put(was);
    cv_h5_put(a.dcpl);
    cv_h5_put(a.type);
    cv_h5_put(a.space);
    return rc;
}

static herr_t visit(hid_t root, const char *name, const H5O_info_t *info, void *arg)
{
    struct join *j = arg;
    char path[CV_NAME_MAX + 2];
    hid_t dataset;

    if (info->type != H5O_TYPE_DATASET)
        return 0;
    if (snprintf(path, sizeof path, "/%s", name) >= (int)sizeof path)
        return 0;
    dataset = H5Dopen2(root, name, H5P_DEFAULT);
    if (dataset < 0)
        j->rc = cv_h5_fail(j->why, j->paths[0], path, "it can't be opened");
    else if (!cv_h5_is_only_scale(dataset)) /* these are made again */
        j->rc = join_dataset(j, dataset, path);
    if (dataset >= 0)
        H5Dclose(dataset);
    return j->rc ? -1 : 0;
}

static int join_all(struct join *j)
{
    struct cv_attrs *attrs = &j->m->attrs;
    hid_t from = H5Gopen2(j->parts[0], "/", H5P_DEFAULT), to = H5Gopen2(j->out, "/", H5P_DEFAULT);
    int rc;

    if (H5Ovisit2(j->parts[0], H5_INDEX_NAME, H5_ITER_INC, visit, j, H5O_INFO_BASIC) < 0)
        rc = j->rc ? j->rc : cv_h5_fail(j->why, j->paths[0], NULL, "it can't be read");
    else
        rc = cv_h5_get_attrs(from, attrs, NULL);
    if (rc == 0 && cv_h5_put_attrs(to, attrs) < 0)
        rc = cv_h5_fail(j->why, j->path, NULL, "its attributes can't be written");
    H5Gclose(from);
    H5Gclose(to);
    return rc;
}

/* There may be more parts than a process may have files open. */
static int open_all(struct join *j)
{
    size_t keep = cv_files_allowed(j->nparts);
    hid_t fapl;
    int rc = 0;

    for (size_t p = 0; p < j->nparts && p < keep && rc == 0; p++)
        rc = part_open(j, p, &j->parts[p]);
    if (rc)
        return rc;
    fapl = access_list();
    if ((j->out = H5Fcreate(j->path, H5F_ACC_TRUNC, H5P_DEFAULT, fapl)) < 0)
        rc = cv_h5_fail(j->why, j->path, NULL, "it can't be made");
    H5Pclose(fapl);
    return rc;
}

int cv_vds_write(const char *path, const char *const *part_paths, const char *const *part_names, size_t nparts, struct cv_fail *why)
{
    struct join j = {.paths = part_paths, .names = part_names, .nparts = nparts, .out = -1, .path = path, .why = why, .m = cv_model_new(), .parts = malloc((nparts + 1) * sizeof *j.parts)};
    int rc = j.m && j.parts && nparts ? 0 : cv_fail(why, -ENOMEM, NULL, NULL, CV_NO_OFFSET, nparts ? "out of memory" : "there are no parts");

    cv_h5_begin();
    for (size_t p = 0; j.parts && p < nparts; p++)
        j.parts[p] = -1;
    rc = rc ? rc : open_all(&j);
    rc = rc ? rc : join_all(&j);
    rc = rc ? rc : cv_h5_dims(j.out, j.m, j.made);
    if (rc == -EIO)
        rc = cv_h5_fail(why, path, NULL, "its dimensions can't be written");
    if (rc == -ENOMEM)
        (void)cv_fail(why, rc, path, NULL, CV_NO_OFFSET, "out of memory");
    for (size_t i = 0; i < j.nmade; i++)
        H5Dclose(j.made[i]);
    for (size_t p = 0; j.parts && p < nparts; p++)
        if (j.parts[p] >= 0)
            H5Fclose(j.parts[p]);
    if (j.out >= 0 && H5Fclose(j.out) < 0 && rc == 0)
        rc = cv_h5_fail(why, path, NULL, "it can't be written to its end");
    free(j.made);
    free(j.parts);
    cv_model_free(j.m);
    return rc;
}
