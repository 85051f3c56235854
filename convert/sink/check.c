/*
 * What a format can't hold, said before anything is written (sink.h). Called by the engine. Pure.
 *
 * Libraries find the same out one by one, in the midst of a file and in their own words. Rules are those of the formats' documents: names of HDF5's links, netCDF's naming rules, and types of the classic
 * model.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "convert/sink/ncutil.h"
#include "convert/sink/sink.h"

static bool is_netcdf(const struct cv_sink_ops *ops)
{
    return strncmp(ops->name, "netcdf", strlen("netcdf")) == 0;
}

/* NULL, or what is wrong with a component of a path. */
static const char *wrong_component(const char *at, size_t len, bool netcdf)
{
    if (len == 0)
        return "a component of its path is empty";
    if (strncmp(at, ".", len) == 0 || (len == 2 && strncmp(at, "..", 2) == 0))
        return "a component of its path is . or ..";
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)at[i] < 0x20 || at[i] == 0x7f)
            return "its name has control characters";
    if (netcdf && !((*at >= 'a' && *at <= 'z') || (*at >= 'A' && *at <= 'Z') || (*at >= '0' && *at <= '9') || *at == '_' || (unsigned char)*at >= 0x80))
        return "netCDF wants names to begin with a letter, a digit or _";
    if (netcdf && at[len - 1] == ' ')
        return "netCDF wants no blank at the end of a name";
    return NULL;
}

static const char *wrong_name(const char *name, bool netcdf)
{
    const char *at = name;

    if (*at != '/')
        return "its name is no path that begins with /";
    while (*at) {
        size_t len = strcspn(++at, "/");
        const char *wrong = wrong_component(at, len, netcdf);

        if (wrong)
            return wrong;
        at += len;
    }
    return strlen(name) > CV_NAME_MAX ? "its name is too long" : NULL;
}

static const char *wrong_type(const struct cv_sink_ops *ops, const struct cv_dataset *d)
{
    if (is_netcdf(ops) && d->type.kind == CV_COMPLEX)
        return "netCDF has no complex numbers: write two datasets, or to=hdf5";
    for (unsigned i = 0; ops == &cv_sink_pnetcdf && i < d->rank; i++)
        if (d->dims[i].size == 0 && !(i == 0 && d->dims[i].steps))
            return "netcdf3 has no arrays of size 0: use --to=netcdf";
    if (d->rank > CV_RANK_MAX)
        return "it has too many dimensions";
    return NULL;
}

static int by_name(const void *pa, const void *pb)
{
    const struct cv_dataset *const *a = pa, *const *b = pb;

    return strcmp((*a)->name, (*b)->name);
}

/* For the caller to free. NULL: out of memory, as why says. */
static const struct cv_dataset **sorted_by(const struct cv_model *m, int (*order)(const void *, const void *), struct cv_fail *why)
{
    const struct cv_dataset **sorted = calloc(m->ndatasets + 1, sizeof *sorted);

    if (!sorted) {
        (void)cv_fail(why, -ENOMEM, NULL, NULL, CV_NO_OFFSET, "out of memory");
        return NULL;
    }
    for (size_t i = 0; i < m->ndatasets; i++)
        sorted[i] = &m->datasets[i];
    qsort(sorted, m->ndatasets, sizeof *sorted, order);
    return sorted;
}

/* One name twice, or a dataset in a dataset: neighbours in the order of names, but for those between "/a" and "/a/b". */
static int check_clashes(const struct cv_model *m, struct cv_fail *why)
{
    const struct cv_dataset **sorted = sorted_by(m, by_name, why);
    int rc = 0;

    if (!sorted)
        return -ENOMEM;
    for (size_t i = 1; i < m->ndatasets && rc == 0; i++)
        if (strcmp(sorted[i - 1]->name, sorted[i]->name) == 0)
            rc = cv_fail(why, -EEXIST, NULL, sorted[i]->name, CV_NO_OFFSET, "there are two of this name");
    for (size_t i = 0; i < m->ndatasets && rc == 0; i++)
        for (const char *slash = strrchr(m->datasets[i].name, '/'); slash && slash > m->datasets[i].name;) {
            char parent[CV_NAME_MAX + 1];
            const struct cv_dataset key = {.name = parent}, *pkey = &key;

            memcpy(parent, m->datasets[i].name, (size_t)(slash - m->datasets[i].name));
            parent[slash - m->datasets[i].name] = '\0';
            if (bsearch(&pkey, sorted, m->ndatasets, sizeof *sorted, by_name)) {
                rc = cv_fail(why, -EEXIST, NULL, m->datasets[i].name, CV_NO_OFFSET, "%s is a dataset, and can't have others in it", parent);
                break;
            }
            slash = strrchr(parent, '/') ? m->datasets[i].name + (strrchr(parent, '/') - parent) : NULL;
        }
    free(sorted);
    return rc;
}

/* netCDF's rule for names of attributes; the library does not say which one it refuses. */
static int check_attrs(const struct cv_sink_ops *ops, const struct cv_attrs *all, const char *dataset, struct cv_fail *why)
{
    for (size_t i = 0; is_netcdf(ops) && i < all->count; i++) {
        const char *name = all->items[i].name, *wrong = strchr(name, '/') ? "netCDF has no / in it" : wrong_component(name, strlen(name), true);

        if (wrong && !cv_nc_reserved(name))
            return cv_fail(why, -EINVAL, NULL, dataset, CV_NO_OFFSET, "its attribute %s has a name that can't be written: %s", name, wrong);
    }
    return 0;
}

static int by_flat_name(const void *pa, const void *pb)
{
    const struct cv_dataset *const *a = pa, *const *b = pb;
    char flat_a[CV_NAME_MAX + 1], flat_b[CV_NAME_MAX + 1];

    cv_nc_flat_name((*a)->name, flat_a);
    cv_nc_flat_name((*b)->name, flat_b);
    return strcmp(flat_a, flat_b);
}

/* The classic model has no groups: /a/b and /a_b are both a_b. */
static int check_flat(const struct cv_model *m, struct cv_fail *why)
{
    const struct cv_dataset **sorted = sorted_by(m, by_flat_name, why);
    int rc = 0;

    if (!sorted)
        return -ENOMEM;
    for (size_t i = 1; i < m->ndatasets && rc == 0; i++)
        if (by_flat_name(&sorted[i - 1], &sorted[i]) == 0)
            rc = cv_fail(why, -EEXIST, NULL, sorted[i]->name, CV_NO_OFFSET, "netcdf3 has no groups, and with _ for / it has the name of %s: use --to=netcdf", sorted[i - 1]->name);
    free(sorted);
    return rc;
}

int cv_sink_check(const struct cv_sink_ops *ops, const struct cv_model *m, struct cv_fail *why)
{
    int rc;

    for (size_t i = 0; i < m->ndatasets; i++) {
        const struct cv_dataset *d = &m->datasets[i];
        const char *wrong = wrong_name(d->name, is_netcdf(ops));

        wrong = wrong ? wrong : wrong_type(ops, d);
        for (unsigned k = 0; !wrong && k < d->rank; k++)
            if (d->dims[k].name && wrong_component(d->dims[k].name, strcspn(d->dims[k].name, "/"), is_netcdf(ops)))
                wrong = "the name of one of its dimensions is none that the format takes";
        if (wrong)
            return cv_fail(why, -EINVAL, NULL, d->name, CV_NO_OFFSET, "%s", wrong);
        if (check_attrs(ops, &d->attrs, d->name, why))
            return -EINVAL;
    }
    if (check_attrs(ops, &m->attrs, NULL, why))
        return -EINVAL;
    rc = check_clashes(m, why);
    return rc || ops != &cv_sink_pnetcdf ? rc : check_flat(m, why);
}
