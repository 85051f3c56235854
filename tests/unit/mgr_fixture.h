/* A manager core without a shell: every call is a group of its own. Used by test_mgr_*.c. */
#ifndef TEST_MGR_FIXTURE_H
#define TEST_MGR_FIXTURE_H

#include "fp/drainopt.h"
#include "manager/core_int.h"

#define FIX_OUTS 256

struct fix_out {
    enum mgr_out_kind kind;
    struct mgr_conn *conn;
    uint16_t type;
    bool durable;
    size_t len;
    uint8_t *bytes;
};

struct fix {
    struct mgr_core *core;
    struct mgr_now now;
    struct mgr_conn *conn; /* a client */
    uint64_t session;
    uint64_t seq; /* of slot 1 */
    uint64_t next_chunk;
    uint32_t bnf;
    struct mgr_conn *bnf_conn;
    int status;                    /* of the last call */
    int doom; /* the next group fails with it */
    bool durable; /* the last answer waits for a sync */
    struct fix_out outs[FIX_OUTS]; /* of the last call */
    size_t out_count;
    char path[120];
    void (*sent)(struct fix *f, const struct fix_out *o); /* NULL, or gets each of them when it is sent */
};

extern bool fix_versions; /* cores are opened with versions on */
extern bool fix_appended; /* what is written, is with O_APPEND */

/* A database of this process, on disk. */
const char *fix_path(void);
/* Opens path (":memory:"), with a client and a benefactor of 1 GiB connected unless bare. */
void fix_open(struct fix *f, const char *path, bool bare);
void fix_close(struct fix *f);
/* And the files of the database, if there are any. */
void fix_close_and_remove(struct fix *f);

struct mgr_conn *fix_conn(struct fix *f);
void fix_lost(struct fix *f, struct mgr_conn *conn);
/* One request as a group. Returns its answer, unpacked with malloc (NULL: failed, see f->status), type by
 * out. */
void *fix_call(struct fix *f, struct mgr_conn *conn, uint16_t type, const void *msg,
               const ProtobufCMessageDescriptor *out);
void fix_notice(struct fix *f, struct mgr_conn *conn, uint16_t type, const void *msg);
void fix_notice_failing(struct fix *f, struct mgr_conn *conn, uint16_t type, const void *msg); /* its group: a full disk */
void fix_answer(struct fix *f, struct mgr_conn *conn, uint16_t type, int status, const void *msg);
void fix_tick(struct fix *f, uint64_t ms);
void fix_tick_failing(struct fix *f, uint64_t ms); /* once; with doom */
void fix_clear_outs(struct fix *f);
/* First frame sent to conn of this type; NULL: none. */
const struct fix_out *fix_out_find(struct fix *f, const struct mgr_conn *conn, uint16_t type);
void fix_free(void *msg);

/* Hello; the answer's session or benefactor number. */
uint64_t fix_hello_client(struct fix *f, struct mgr_conn *conn, uint64_t session, bool *is_new);
/* A new connection of fpctl. */
struct mgr_conn *fix_ctl(struct fix *f);
uint32_t fix_hello_bnf(struct fix *f, struct mgr_conn *conn, uint8_t uuid_byte, uint64_t capacity);

/* What the benefactor says of itself each second; as it is, or as the test has changed that. */
Fp__BnfInfo fix_bnf_info(void);
void fix_heard(struct fix *f, Fp__BnfInfo info);
void fix_keepalive(struct fix *f);
/* The benefactor's inventory, in one page: it has what it should, but for one (0: all). */
void fix_inventory(struct fix *f, uint64_t but);

/* Short forms of slot 1 of f->conn: inode number or 0; f->status says why. */
uint64_t fix_mk(struct fix *f, uint64_t parent, const char *name, uint32_t mode);
/* Made and open for writing, as creat(2); and closed. */
uint64_t fix_creat(struct fix *f, struct mgr_conn *conn, uint64_t parent, const char *name);
void fix_release(struct fix *f, struct mgr_conn *conn, uint64_t ino);
int fix_unlink(struct fix *f, uint64_t parent, const char *name, bool dir);
int fix_rename(struct fix *f, uint64_t p1, const char *n1, uint64_t p2, const char *n2, uint32_t flags);
uint64_t fix_lookup(struct fix *f, uint64_t parent, const char *name);
Fp__Attr fix_attr(struct fix *f, uint64_t ino); /* .ino 0: not there */
int fix_truncate(struct fix *f, uint64_t ino, uint64_t size);
/* Commits one new chunk of len bytes at byte pos (inside one window). Returns the chunk's id, 0: failed. */
uint64_t fix_write(struct fix *f, uint64_t ino, uint64_t pos, uint32_t len);
/* From byte 0 of src. Return f->status. */
int fix_clone(struct fix *f, uint64_t src, uint64_t dst, uint64_t dst_off, uint64_t len);
int fix_punch(struct fix *f, uint64_t ino, uint64_t off, uint64_t len);
/* Makes a policy, or (text NULL) removes that one. Why it is refused; without room for that it must not be. Its number. */
uint64_t fix_policy(struct fix *f, struct mgr_conn *ctl, const char *text, uint64_t remove, char why[FP_DRAIN_WHY_MAX]);
/* flags as in MSG_SETXATTR. get: it is what is expected, or there is none. Return f->status. */
int fix_set_xattr(struct fix *f, uint64_t ino, const char *name, const char *value, uint32_t flags);
int fix_get_xattr(struct fix *f, uint64_t ino, const char *name, const char *expect);
/* The file of this name, which has no data, has so many windows of so many slices of one byte each, each of a chunk of its own. The core is loaded anew. */
void fix_fill_map(struct fix *f, const char *name, uint32_t windows, uint32_t slices);
ProtobufCBinaryData fix_bin(const char *s);
/* Integer answer of a query on the core's database, printed as printf does; -1: no row. */
int64_t fix_sql(struct fix *f, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Counters and references agree with the tables. */
void fix_check(struct fix *f);

#endif
