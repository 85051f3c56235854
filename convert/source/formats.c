/*
 * The formats that conversions read (source.h). One table: from=, --help and what checks a declaration ask it.
 */
#include <string.h>

#include "convert/source/source.h"

const struct cv_source_ops *const cv_sources[] = {
    &cv_source_raw, &cv_source_fortran, &cv_source_npy, &cv_source_npz, &cv_source_group, &cv_source_hdf5, &cv_source_adios, NULL,
};

const struct cv_source_ops *cv_source_find(const char *name)
{
    for (const struct cv_source_ops *const *s = cv_sources; *s; s++)
        if (strcmp((*s)->name, name) == 0)
            return *s;
    return NULL;
}
