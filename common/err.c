/* Error codes: texts, names and what an application gets to see.
 *
 * Every module of every program calls this, from any thread. All tables are constant, so there is no
 * state and no lock. glibc's strerrordesc_np()/strerrorname_np() are used rather than strerror(),
 * which may return a per-thread buffer and translates: a log line should read the same everywhere.
 * libuv's codes that are no errno (UV_EOF, UV_EAI_*) are resolved through the X-macro of its header,
 * so this file needs <uv.h> to compile but no libuv to link.
 *
 * Applications see few errors on purpose: a solver that gets ECONNRESET from write() has no idea what
 * to do, and some MPI-IO layers abort on numbers they do not know. What they cannot expect becomes EIO;
 * the log holds the precise cause. */
#include "fp/err.h"

#include <errno.h>
#include <string.h>
#include <uv.h>

#define ERRNO_MAX 4095 /* the kernel's MAX_ERRNO */

static int magnitude(int err)
{
    if (err >= 0)
        return err;
    return err < -ERRNO_MAX ? 0 : -err;
}

const char *fp_strerror(int err)
{
    if (err == 0)
        return "success";
    switch (err) {
#define FP_ERR_CASE(name, code, eno, text)                                                                   \
    case name:                                                                                               \
        return text;
        FP_ERR_LIST(FP_ERR_CASE)
#undef FP_ERR_CASE
    default:
        break;
    }
    const char *text = strerrordesc_np(magnitude(err));
    if (text && magnitude(err) != 0)
        return text;
    switch (err) {
#define UV_CASE(name, uv_text)                                                                               \
    case UV_##name:                                                                                          \
        return uv_text;
        UV_ERRNO_MAP(UV_CASE)
#undef UV_CASE
    default:
        return "unknown error";
    }
}

const char *fp_err_name(int err)
{
    if (err == 0)
        return "0";
    switch (err) {
#define FP_ERR_CASE(name, code, eno, text)                                                                   \
    case name:                                                                                               \
        return #name;
        FP_ERR_LIST(FP_ERR_CASE)
#undef FP_ERR_CASE
    default:
        break;
    }
    const char *name = strerrorname_np(magnitude(err));
    if (name && magnitude(err) != 0)
        return name;
    switch (err) {
#define UV_CASE(uv_name, uv_text)                                                                            \
    case UV_##uv_name:                                                                                       \
        return #uv_name;
        UV_ERRNO_MAP(UV_CASE)
#undef UV_CASE
    default:
        return "E?";
    }
}

int fp_err_from_name(const char *name)
{
#define FP_ERR_MATCH(own, code, eno, text)                                                                   \
    if (strcmp(name, #own) == 0)                                                                             \
        return own;
    FP_ERR_LIST(FP_ERR_MATCH)
#undef FP_ERR_MATCH
    for (int e = 1; e <= ERRNO_MAX; e++) {
        const char *candidate = strerrorname_np(e);
        if (candidate && strcmp(name, candidate) == 0)
            return -e;
    }
    return 0;
}

int fp_err_to_errno(int err)
{
    switch (err) {
    case 0:
        return 0;
#define FP_ERR_CASE(name, code, eno, text)                                                                   \
    case name:                                                                                               \
        return eno;
        FP_ERR_LIST(FP_ERR_CASE)
#undef FP_ERR_CASE
    default:
        break;
    }
    int e = magnitude(err);
    switch (e) {
    case ECONNRESET:
    case ECONNREFUSED:
    case ECONNABORTED:
    case ENOTCONN:
    case ETIMEDOUT:
    case EPIPE:
    case EHOSTUNREACH:
    case EHOSTDOWN:
    case ENETUNREACH:
    case ENETDOWN:
    case ENETRESET:
    case ECANCELED:
    case ESTALE:
    case EPROTO:
    case EBADMSG:
    case 0:
        return EIO;
    default:
        return strerrorname_np(e) ? e : EIO;
    }
}
