/*
 * Why a conversion failed (fail.h). Any thread; no I/O.
 *
 * One struct for all layers, filled where the reason is known and passed up unchanged. Rejected: log lines where it happens, which the user of `fpctl checkpoints` never sees, and errno alone, which
 * names neither file nor place.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "convert/fail.h"

int cv_fail(struct cv_fail *f, int rc, const char *file, const char *dataset, uint64_t offset_bytes, const char *format, ...)
{
    va_list args;

    if (!f || f->text[0])
        return rc;
    snprintf(f->file, sizeof f->file, "%s", file ? file : "");
    snprintf(f->dataset, sizeof f->dataset, "%s", dataset ? dataset : "");
    f->offset_bytes = offset_bytes;
    va_start(args, format);
    vsnprintf(f->text, sizeof f->text, format, args);
    va_end(args);
    return rc;
}

void cv_fail_line(const struct cv_fail *f, char *out, size_t cap_bytes)
{
    char byte[40] = "";

    if (f->offset_bytes != CV_NO_OFFSET)
        snprintf(byte, sizeof byte, "byte %llu: ", (unsigned long long)f->offset_bytes);
    snprintf(out, cap_bytes, "%s%s%s%s%s%s%s", f->file, f->file[0] ? ": " : "", f->dataset[0] ? "dataset " : "", f->dataset, f->dataset[0] ? ": " : "", byte, f->text);
}
