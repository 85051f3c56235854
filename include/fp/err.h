/* Error codes shared by every program of the store.
 *
 * Functions return 0 or a negative code: either a plain negative errno (-ENOSPC) or one of our own
 * codes below, for failures that errno has no name for. Our codes lie below -5000, clear of errno
 * (down to -4095 in the kernel's convention) and of libuv's own range. They travel in replies between
 * the programs, so a number, once released, keeps its meaning; add new ones at the end.
 *
 * All functions: any thread, never block, return static text nobody frees. */
#ifndef FP_ERR_H
#define FP_ERR_H

/* X(name, code, errno an application is given, what happened and what to do) */
#define FP_ERR_LIST(X)                                                                                       \
    X(FP_EPROTO_VERSION, -5001, EIO,                                                                         \
      "protocol version differs: install the same fpstore release on both ends")                             \
    X(FP_EAUTH, -5002, EIO, "store key wrong or missing: give both ends the same key file")                  \
    X(FP_EUUID, -5003, EIO, "belongs to another store (UUID differs): check --manager and --dir")            \
    X(FP_ECHECKSUM, -5004, EIO, "checksum mismatch: stored data is damaged")                                 \
    X(FP_ENOBENEFACTOR, -5005, EIO, "no benefactor available: start one, or see fpctl benefactors")          \
    X(FP_ESESSION, -5006, EIO, "session expired: the other end has forgotten us")                            \
    X(FP_EBADFRAME, -5007, EIO, "malformed frame: the other end does not speak the fpstore protocol")        \
    X(FP_EBADMSG_TYPE, -5008, EOPNOTSUPP, "message type unknown to the other end")                           \
    X(FP_ECORRUPT, -5009, EIO, "stored record is damaged")                                                   \
    X(FP_EPEER_GONE, -5010, EIO, "connection closed by the other end")                                       \
    X(FP_EDEADLINE, -5011, EIO, "no answer within the deadline")                                             \
    X(FP_ESTOPPING, -5012, EIO, "program is shutting down")                                                  \
    X(FP_ELEASE, -5013, EIO, "lease or grant no longer held")                                                \
    X(FP_ECHUNK_MISSING, -5014, EIO, "chunk is not on the benefactor that should hold it")                   \
    X(FP_EVERSION_DISK, -5015, EIO, "on-disk format is of another release: use the release that wrote it")   \
    X(FP_ECANCELLED, -5016, EIO, "request was cancelled")                                                    \
    X(FP_ENOHOST, -5017, EIO, "host name cannot be resolved: check its spelling, /etc/hosts and DNS")        \
    X(FP_ETWIN, -5018, EIO,                                                                                  \
      "another benefactor of the same identity is connected: --dir was copied, or is in use on two nodes: "  \
      "stop one of them")                                                                                    \
    X(FP_EAUXAPP, -5019, EIO,                                                                                \
      "the aux-app that coded it cannot undo it here: the log names it; its plugin must be in "              \
      "--auxapp-dir, or declare it (--auxapp) with its path and the options it needs")                       \
    X(FP_EAWAY, -5020, EIO,                                                                                  \
      "stored data that is to be referred to is on a benefactor that is away: start it, see fpctl benefactors") \
    X(FP_ERECALL, -5021, EIO,                                                                                \
      "another mount has closed it and not published it yet, and does not do so in time: see fpctl status")        \
    X(FP_EOVERTAKEN, -5022, EIO,                                                                             \
      "the file was written by another mount, or put back to what it was, while this one was cut off: what had been closed or appended here before is not published")  \
    X(FP_EPUBLISHING, -5023, EIO, "another mount has closed it and is publishing it")                            \
    X(FP_EAPPENDING, -5024, EIO,                                                                             \
      "another mount has the right to append to the file, and does not give it back: see fpctl status")

enum fp_err {
#define FP_ERR_ENUM(name, code, err, text) name = (code),
    FP_ERR_LIST(FP_ERR_ENUM)
#undef FP_ERR_ENUM
};

/* Text of a code: ours, an errno or a libuv code. The sign does not matter for errno values.
 * 0 is "success". Never NULL. */
const char *fp_strerror(int err);

/* Symbolic name: "ENOSPC", "FP_EAUTH", "EOF" (libuv); "0" for success, "E?" if unknown. Never NULL. */
const char *fp_err_name(int err);

/* Inverse of fp_err_name for errno and our codes: the negative code, or 0 if the name is unknown. */
int fp_err_from_name(const char *name);

/* The positive errno for fuse_reply_err(): the one place where the sign flips. 0 stays 0. Our codes map
 * as listed above; errors that a file system call cannot give under POSIX (ECONNRESET, ETIMEDOUT and
 * the like, libuv's codes, ESTALE) become EIO, others pass unchanged. */
int fp_err_to_errno(int err);

#endif
