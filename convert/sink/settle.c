/*
 * Attributes that a format can't have as they are (sink.h). Called by the engine before anything is read: fill values are needed for elements that no block has. Pure.
 *
 * netCDF knows one fill value of a variable, its attribute _FillValue, of the variable's own type. So an attribute of that name is the fill value, whatever says it, if it is such a value. What is not
 * (a text, a fraction for integers) keeps its value under another name, and people are told; a schema, which its owner can mend, is refused instead (schema/datakeys.c). Rejected: refusing dumps for it,
 * which nobody can write anew; and leaving the attribute out, by which nobody would find out.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "convert/engine/numbers.h"
#include "convert/sink/h5util.h"
#include "convert/sink/ncutil.h"
#include "convert/sink/sink.h"

struct settling {
    const struct cv_sink_ops *ops;
    void (*say)(void *arg, const char *what);
    void *arg;
};

static bool is_netcdf(const struct settling *s)
{
    return s->ops == &cv_sink_netcdf4 || s->ops == &cv_sink_pnetcdf;
}

/* NULL: the whole. */
static void say_moved(const struct settling *s, const struct cv_dataset *d, const char *from, const char *to)
{
    char line[4 * CV_NAME_MAX + 200];
    bool fill = d && strcmp(from, CV_FILL_NAME) == 0;

    snprintf(line, sizeof line, "%s%sits attribute %s is %s%s: it is written as %s", d ? d->name : "", d ? ": " : "", from, fill ? "not one value of " : "a name that the format keeps for itself",
             fill ? cv_type_name(d->type) : "", to);
    if (s->say)
        s->say(s->arg, line);
}

/* original_FillValue, or original_FillValue_2, … */
static int move(const struct settling *s, const struct cv_dataset *d, struct cv_attrs *all, struct cv_attr *a)
{
    char name[CV_NAME_MAX + 40], *own;
    const char *stem = a->name + (a->name[0] == '_');

    snprintf(name, sizeof name, "original_%s", stem);
    for (unsigned n = 2; cv_attrs_find(all, name); n++)
        snprintf(name, sizeof name, "original_%s_%u", stem, n);
    own = strdup(name);
    if (!own)
        return -ENOMEM;
    say_moved(s, d, a->name, own);
    free(a->name);
    a->name = own;
    return 0;
}

static bool is_reserved(const struct settling *s, const struct cv_dataset *d, const char *name)
{
    if (strcmp(name, CV_FILL_NAME) == 0)
        return is_netcdf(s) && d;
    return is_netcdf(s) ? cv_nc_reserved(name) : cv_h5_reserved(name);
}

/* What HDF5 had as its own fill value may be another; what readers go by is the attribute. */
static bool is_fill(const struct settling *s, struct cv_dataset *d, const struct cv_attr *a)
{
    struct cv_dataset was = *d;
    uint8_t before[16], now[16];
    char line[2 * CV_NAME_MAX];

    if (strcmp(a->name, CV_FILL_NAME) != 0 || !cv_dataset_take_fill(d, a))
        return false;
    cv_numbers_fill_value(before, &was);
    cv_numbers_fill_value(now, d);
    if (was.has_fill && memcmp(before, now, sizeof now) != 0 && s->say) {
        snprintf(line, sizeof line, "%s: its fill value was %.17g, and is now that of its attribute " CV_FILL_NAME ", %.17g", d->name, was.fill, d->fill);
        s->say(s->arg, line);
    }
    return true;
}

static int settle_all(const struct settling *s, struct cv_dataset *d, struct cv_attrs *all)
{
    int rc = 0;

    for (size_t i = 0; i < all->count && rc == 0; i++)
        if (!(d && is_fill(s, d, &all->items[i])) && is_reserved(s, d, all->items[i].name))
            rc = move(s, d, all, &all->items[i]);
    return rc;
}

int cv_sink_settle(const struct cv_sink_ops *ops, struct cv_model *m, void (*say)(void *arg, const char *what), void *arg)
{
    const struct settling s = {ops, say, arg};
    int rc = 0;

    if (ops == &cv_sink_raw) /* it has no attributes */
        return 0;
    rc = settle_all(&s, NULL, &m->attrs);
    for (size_t k = 0; k < m->ndatasets && rc == 0; k++)
        rc = settle_all(&s, &m->datasets[k], &m->datasets[k].attrs);
    return rc;
}
