/*
 * Dimensions and types of netCDF (ncutil.h). Called by netcdf4.c and pnetcdf.c. Pure, but for errno.
 *
 * A dimension of netCDF has one size in the whole file. Where datasets give one name to different sizes, the second gets a number behind its name; rejected: refusing such dumps, in which "x" of one
 * field often has a cell more than that of another. Dimensions without a name are called after their size, so that arrays of one shape share them.
 */
#include <errno.h>
#include <netcdf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "convert/sink/ncutil.h"

/* Groups are beside dimensions in the file. */
static bool is_group(const struct cv_model *m, const char *name)
{
    size_t n = strlen(name);

    for (size_t k = 0; m && k < m->ndatasets; k++)
        if (strncmp(m->datasets[k].name + 1, name, n) == 0 && m->datasets[k].name[n + 1] == '/')
            return true;
    return false;
}

static bool is_taken(const struct cv_ncdims *t, const char *name)
{
    for (size_t i = 0; i < t->count; i++)
        if (strcmp(t->items[i].name, name) == 0)
            return true;
    return is_group(t->m, name);
}

struct cv_ncdim *cv_ncdims_get(struct cv_ncdims *t, const struct cv_dim *d)
{
    char stem[CV_NAME_MAX + 1], name[CV_NAME_MAX + 32];
    struct cv_ncdim *grown;

    if (d->name)
        snprintf(stem, sizeof stem, "%s", d->name);
    else if (d->steps)
        snprintf(stem, sizeof stem, "step");
    else
        snprintf(stem, sizeof stem, "dim_%llu", (unsigned long long)d->size);
    for (size_t i = 0; i < t->count; i++)
        if (t->items[i].size == d->size && t->items[i].steps == d->steps && strcmp(t->items[i].stem, stem) == 0)
            return &t->items[i];
    snprintf(name, sizeof name, "%s", stem);
    for (unsigned n = 2; is_taken(t, name); n++)
        snprintf(name, sizeof name, "%s_%u", stem, n);
    grown = realloc(t->items, (t->count + 1) * sizeof *grown);
    if (!grown)
        return NULL;
    t->items = grown;
    grown += t->count++;
    *grown = (struct cv_ncdim){.size = d->size, .steps = d->steps, .id = -1};
    strcpy(grown->name, name);
    strcpy(grown->stem, stem);
    return grown;
}

void cv_ncdims_free(struct cv_ncdims *t)
{
    free(t->items);
    *t = (struct cv_ncdims){NULL, NULL, 0};
}

bool cv_nc_reserved(const char *name)
{
    static const char *const all[] = {"_FillValue", "CLASS", "NAME", "DIMENSION_LIST", "REFERENCE_LIST", "_NCProperties", "_Netcdf4Dimid", "_Netcdf4Coordinates", "_nc3_strict",
                                      "_IsNetcdf4", "_SuperblockVersion", "_Format", "_ARRAY_DIMENSIONS", "_Codecs", "_NCZARR_ARRAY", "_NCZARR_ATTR", "_NCZARR_GROUP", "_NCZARR_SUPERBLOCK", NULL};

    for (const char *const *a = all; *a; a++)
        if (strcmp(*a, name) == 0)
            return true;
    return false;
}

void cv_nc_flat_name(const char *path, char out[CV_NAME_MAX + 1])
{
    snprintf(out, CV_NAME_MAX + 1, "%s", path + 1);
    for (char *c = out; *c; c++)
        *c = *c == '/' ? '_' : *c;
}

bool cv_nc_has_fill(const struct cv_dataset *d)
{
    return d->has_fill || d->gaps == CV_GAPS_FILL;
}

int cv_nc_type(struct cv_type t)
{
    switch (t.kind) {
    case CV_INT:
        return t.size_bytes == 1 ? NC_BYTE : t.size_bytes == 2 ? NC_SHORT : t.size_bytes == 4 ? NC_INT : NC_INT64;
    case CV_UINT:
        return t.size_bytes == 1 ? NC_UBYTE : t.size_bytes == 2 ? NC_USHORT : t.size_bytes == 4 ? NC_UINT : NC_UINT64;
    case CV_FLOAT:
        return t.size_bytes == 4 ? NC_FLOAT : NC_DOUBLE;
    case CV_COMPLEX:
        break;
    }
    return NC_NAT;
}

float *cv_nc_floats(const struct cv_attr *a)
{
    float *floats = malloc((a->count + 1) * sizeof *floats);

    for (size_t i = 0; floats && i < a->count; i++)
        floats[i] = (float)a->floats[i];
    return floats;
}

int cv_nc_errno(int status)
{
    if (status > 0)
        return -status;
    if (status == NC_ERANGE)
        return -ERANGE; /* it is so the next time, too */
    return errno == ENOSPC || errno == EDQUOT || errno == EFBIG ? -errno : status == NC_ENOMEM ? -ENOMEM : status == NC_ENAMEINUSE ? -EEXIST : -EIO;
}
