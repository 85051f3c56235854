/*
 * The formats that conversions write (sink.h). One table: to=, --help and what checks a declaration ask it.
 */
#include <string.h>

#include "convert/sink/sink.h"

const struct cv_sink_ops *const cv_sinks[] = {&cv_sink_hdf5, &cv_sink_netcdf4, &cv_sink_pnetcdf, &cv_sink_raw, NULL};

const struct cv_sink_ops *cv_sink_find(const char *name)
{
    for (const struct cv_sink_ops *const *s = cv_sinks; *s; s++)
        if (strcmp((*s)->name, name) == 0)
            return *s;
    return NULL;
}
