/* What the two netCDF sinks share: dimensions, which netCDF wants to have names and keeps once for all. */
#ifndef CV_NCUTIL_H
#define CV_NCUTIL_H

#include "convert/model.h"

struct cv_ncdim {
    char name[CV_NAME_MAX + 32], stem[CV_NAME_MAX + 1]; /* NAME_2 of NAME */
    uint64_t size;
    bool steps;
    int id;
};
struct cv_ncdims { const struct cv_model *m; struct cv_ncdim *items; size_t count; }; /* m: whose groups take names too; NULL: none */

/* The dimension that d names (or a made-up name, if it has none), made on first use with id -1: the caller defines it and sets id. NULL: out of memory. */
struct cv_ncdim *cv_ncdims_get(struct cv_ncdims *t, const struct cv_dim *d);
void cv_ncdims_free(struct cv_ncdims *t);
/* Attributes that are the library's own, or have to have the type of their variable: cv_sink_settle has seen to them. */
bool cv_nc_reserved(const char *name);
/* _FillValue belongs to it: it has elements that no block has, or the user named a value. */
bool cv_nc_has_fill(const struct cv_dataset *d);
/* "/fields/a" without groups: "fields_a". Of at most CV_NAME_MAX bytes. */
void cv_nc_flat_name(const char *path, char out[CV_NAME_MAX + 1]);
/* nc_type of it; both libraries number them the same. 0: none. */
int cv_nc_type(struct cv_type t);
/* Its floats as float32, to be freed; NULL: out of memory. Of doubles the libraries refuse FLT_MAX in decimals, which is a bit more than that, and infinities. */
float *cv_nc_floats(const struct cv_attr *a);
/* -errno of a status of netCDF or PnetCDF: positive ones are errno; errno as it was left by the call says whether the disk is full. */
int cv_nc_errno(int status);

#endif
