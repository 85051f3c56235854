/* Every SQL statement of the manager, by name. They are prepared once, when the database is opened
 * (db.c), so that a mistake in one is found at the first start, and a request costs no parsing.
 * Parameters are numbered in the order in which mgr_db_exec etc. are given them. */
#ifndef MGR_STMT_H
#define MGR_STMT_H

#include "manager/stmt_drain.h"
#include "manager/stmt_level.h"
#include "manager/stmt_sets.h"
#include "manager/stmt_version.h"

#define MGR_INODE_COLS                                                                                       \
    "i.ino,i.mode,i.nlink,i.uid,i.gid,i.rdev,i.size,i.mapped,i.atime,i.mtime,i.ctime,i.btime,i.chunk_size,"  \
    "i.stripe,i.data_version,i.parent,i.flags,i.ckpt"

/* X(name, text) */
#define MGR_STMT_LIST(X)                                                                                     \
    X(BEGIN, "BEGIN")                                                                                        \
    X(COMMIT, "COMMIT")                                                                                      \
    /* meta and counters */                                                                                  \
    X(META_GET, "SELECT value FROM meta WHERE key=?1")                                                       \
    X(META_PUT, "INSERT OR REPLACE INTO meta(key,value) VALUES(?1,?2)")                                      \
    X(META_DELETE, "DELETE FROM meta WHERE key=?1")                                                          \
    X(COUNTERS_GET, "SELECT next_ino,next_cookie,next_session,next_bnf,inodes,chunks,slices FROM counters")  \
    X(COUNTERS_PUT, "INSERT OR REPLACE INTO counters VALUES(1,?1,?2,?3,?4,?5,?6,?7)")                        \
    /* inodes */                                                                                             \
    X(INODE_GET, "SELECT " MGR_INODE_COLS " FROM inode i WHERE i.ino=?1")                                    \
    X(INODE_TARGET, "SELECT mode,target FROM inode WHERE ino=?1")                                            \
    X(INODE_INSERT, "INSERT INTO inode(ino,mode,nlink,uid,gid,rdev,size,mapped,atime,mtime,ctime,btime,"     \
                    "chunk_size,stripe,data_version,parent,target,flags,ckpt) "                              \
                    "VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13,?14,?15,?16,?17,?18,?19)")            \
    X(INODE_UPDATE, "UPDATE inode SET mode=?2,nlink=?3,uid=?4,gid=?5,size=?6,mapped=?7,atime=?8,mtime=?9,"   \
                    "ctime=?10,chunk_size=?11,stripe=?12,data_version=?13,parent=?14,flags=?15,"             \
                    "ckpt=?16 WHERE ino=?1")                                                                 \
    X(INODE_DELETE, "DELETE FROM inode WHERE ino=?1")                                                        \
    /* names */                                                                                              \
    X(DIRENT_GET, "SELECT ino,type,cookie FROM dirent WHERE parent=?1 AND name=?2")                          \
    X(DIRENT_INSERT, "INSERT INTO dirent(parent,name,ino,type,cookie) VALUES(?1,?2,?3,?4,?5)")               \
    X(DIRENT_SET, "UPDATE dirent SET ino=?3,type=?4 WHERE parent=?1 AND name=?2")                            \
    X(DIRENT_DELETE, "DELETE FROM dirent WHERE parent=?1 AND name=?2")                                       \
    X(DIRENT_LIST, "SELECT cookie,ino,type,name FROM dirent WHERE parent=?1 AND cookie>?2 "                  \
                   "ORDER BY cookie LIMIT ?3")                                                               \
    X(DIRENT_LIST_PLUS, "SELECT d.cookie,d.name," MGR_INODE_COLS " FROM dirent d CROSS JOIN inode i "        \
                        "ON i.ino=d.ino WHERE d.parent=?1 AND d.cookie>?2 ORDER BY d.cookie LIMIT ?3")       \
    X(DIRENT_NAME, "SELECT name FROM dirent WHERE parent=?1 AND cookie>0 AND ino=?2 LIMIT 1")                \
    X(DIRENT_FIND, "SELECT parent,name FROM dirent WHERE ino=?1 LIMIT 1")                                    \
    /* extended attributes */                                                                                \
    X(XATTR_GET, "SELECT value FROM xattr WHERE ino=?1 AND name=?2")                                         \
    X(XATTR_PUT, "INSERT OR REPLACE INTO xattr(ino,name,value) VALUES(?1,?2,?3)")                            \
    X(XATTR_DELETE, "DELETE FROM xattr WHERE ino=?1 AND name=?2")                                            \
    X(XATTR_DELETE_ALL, "DELETE FROM xattr WHERE ino=?1")                                                    \
    X(XATTR_LIST, "SELECT name FROM xattr WHERE ino=?1")                                                     \
    /* orphans */                                                                                            \
    X(ORPHAN_PUT, "INSERT OR REPLACE INTO orphan(ino,gone) VALUES(?1,?2)")                                   \
    X(ORPHAN_DELETE, "DELETE FROM orphan WHERE ino=?1")                                                      \
    X(ORPHAN_LIST, "SELECT ino,gone FROM orphan")                                                            \
    /* slices: of one window, of a range of windows, ... */                                                  \
    X(SLICE_BELOW, "SELECT off,len,chunk,chunk_off FROM slice WHERE ino=?1 AND win=?2 AND off<?3 "           \
                   "ORDER BY off DESC")                                                                      \
    X(SLICE_BESIDE, "SELECT count(*) FROM (SELECT 1 FROM slice WHERE ino=?1 AND win=?2 "                     \
                    "AND (off+len<=?3 OR off>=?4) LIMIT ?5)")                                                \
    X(SLICE_INSERT, "INSERT INTO slice(ino,win,off,len,chunk,chunk_off) VALUES(?1,?2,?3,?4,?5,?6)")          \
    X(SLICE_DELETE, "DELETE FROM slice WHERE ino=?1 AND win=?2 AND off=?3")                                  \
    X(SLICE_SET_LEN, "UPDATE slice SET len=?4 WHERE ino=?1 AND win=?2 AND off=?3")                           \
    X(SLICE_FROM, "SELECT win,off,len,chunk,chunk_off FROM slice WHERE ino=?1 AND (win,off)>=(?2,?3) "       \
                  "AND win<?4 ORDER BY win,off LIMIT ?5")                                                    \
    X(SLICE_MAP, "SELECT s.win,s.off,s.len,s.chunk,s.chunk_off,c.len,c.sum,c.bnf,c.data FROM slice s "     \
                 "CROSS JOIN chunk c ON c.id=s.chunk WHERE s.ino=?1 AND s.win>=?2 AND s.win<?3 "             \
                 "ORDER BY s.win,s.off")                                                                     \
    X(SLICE_FOLD, "SELECT s.off,s.len,s.chunk,s.chunk_off,c.stored,c.refs,c.len,c.bnf*(c.data=0) FROM "     \
                  "slice s LEFT JOIN chunk c ON c.id=s.chunk WHERE s.ino=?1 AND s.win=?2 ORDER BY s.off")    \
    X(SLICE_USE, "SELECT chunk_off,len,ino FROM slice WHERE chunk=?1")                                       \
    X(SLICE_OF_CHUNK, "SELECT ino,win,off,len FROM slice WHERE chunk=?1 LIMIT 16")                           \
    /* r: slices of all files that name the chunk; n: those of this file */                                  \
    /* what is lost is not saved: it costs what it was */                                                     \
    X(SLICE_SUMS, "SELECT sum(n),count(*),sum(stored),sum(r>n),sum(bytes),"                                  \
                  "sum(CASE WHEN bnf=0 THEN bytes ELSE stored*n/r END) FROM ("                               \
                  "SELECT m.n,m.bytes,c.bnf,c.stored,CASE WHEN c.refs>m.n THEN "                             \
                  "c.refs-(SELECT count(*) FROM hold WHERE chunk=c.id) ELSE c.refs END AS r FROM "           \
                  "(SELECT chunk,count(*) AS n,sum(len) AS bytes FROM (SELECT chunk,len FROM slice WHERE ino=?1 ORDER BY win,off LIMIT ?2) " \
                  "GROUP BY chunk) m CROSS JOIN chunk c ON c.id=m.chunk)")                                   \
    /* chunks */                                                                                             \
    X(CHUNK_GET, "SELECT len,stored,sum,refs,bnf,data,noted FROM chunk WHERE id=?1")                         \
    X(CHUNK_INSERT, "INSERT INTO chunk(id,len,stored,sum,refs,bnf,data,noted,round) "                        \
                    "VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9)")                                                    \
    X(CHUNK_REF, "UPDATE chunk SET refs=refs+?2 WHERE id=?1")                                                \
    X(CHUNK_INOS, "SELECT DISTINCT ino FROM slice WHERE chunk=?1")                                           \
    X(CHUNK_PLACE, "UPDATE chunk SET bnf=?2,stored=?3,round=?4 WHERE id=?1")                                 \
    X(CHUNK_DELETE, "DELETE FROM chunk WHERE id=?1")                                                         \
    X(CHUNK_LOST, "SELECT ifnull(max(id),0) FROM chunk WHERE id<?1")                                         \
    X(CHUNK_OF_BNF, "SELECT id FROM chunk WHERE bnf=?1 AND id>?2 AND id<=?3 ORDER BY id LIMIT ?4")           \
    /* notes */                                                                                              \
    X(NOTE_PUT, "INSERT INTO note(chunk,note,keys) VALUES(?1,?2,?3)")                                        \
    X(NOTE_GET, "SELECT n.note,c.len,c.data,c.sum,c.bnf FROM note n CROSS JOIN chunk c ON c.id=n.chunk "     \
                "WHERE n.chunk=?1")                                                                          \
    X(NOTE_KEYS, "SELECT keys FROM note WHERE chunk=?1")                                                     \
    X(NOTE_DELETE, "DELETE FROM note WHERE chunk=?1")                                                        \
    X(NOTE_KEY_PUT, "INSERT OR IGNORE INTO note_key(key,chunk) VALUES(?1,?2)")                               \
    X(NOTE_KEY_DELETE, "DELETE FROM note_key WHERE key=?1 AND chunk=?2")                                     \
    X(NOTE_KEY_FIND, "SELECT chunk FROM note_key WHERE key=?1 ORDER BY chunk DESC LIMIT ?2")                 \
    /* holds */                                                                                              \
    X(HOLD_PUT, "INSERT OR IGNORE INTO hold(session,chunk) SELECT ?1,id FROM chunk WHERE id=?2")             \
    X(HOLD_HAS, "SELECT 1 FROM hold WHERE session=?1 AND chunk=?2")                                          \
    X(HOLD_DELETE, "DELETE FROM hold WHERE session=?1 AND chunk=?2")                                         \
    X(HOLD_OF, "SELECT chunk FROM hold WHERE session=?1 LIMIT ?2")                                           \
    X(HOLD_NEXT, "SELECT session FROM hold WHERE session>?1 ORDER BY session LIMIT 1")                       \
    /* tables of aux-apps */                                                                                 \
    X(AUX_TABLE_GET, "SELECT id,entries,bytes FROM aux_table WHERE app=?1")                                  \
    X(AUX_TABLE_COUNT, "SELECT count(*) FROM aux_table")                                                     \
    X(AUX_TABLE_NEW, "INSERT INTO aux_table(app,entries,bytes) VALUES(?1,0,0)")                              \
    X(AUX_TABLE_SET, "UPDATE aux_table SET entries=?2,bytes=?3 WHERE id=?1")                                 \
    X(AUX_ENTRY_GET, "SELECT value FROM aux_entry WHERE app=?1 AND key=?2")                                  \
    X(AUX_ENTRY_PUT, "INSERT OR REPLACE INTO aux_entry(app,key,value) VALUES(?1,?2,?3)")                     \
    X(AUX_ENTRY_DELETE, "DELETE FROM aux_entry WHERE app=?1 AND key=?2")                                     \
    /* garbage */                                                                                            \
    X(GARBAGE_PUT, "INSERT INTO garbage(bnf,chunk,stored) VALUES(?1,?2,?3)")                                 \
    X(GARBAGE_HAS, "SELECT stored FROM garbage WHERE bnf=?1 AND chunk=?2")                                   \
    X(GARBAGE_DELETE, "DELETE FROM garbage WHERE bnf=?1 AND chunk=?2")                                       \
    X(GARBAGE_LIST, "SELECT chunk FROM garbage WHERE bnf=?1 AND chunk>?2 ORDER BY chunk LIMIT ?3")           \
    /* benefactors */                                                                                        \
    X(BNF_LIST, "SELECT id,uuid,node,addr,local_path,backend,capacity,seen_ns,chunks,stored,garbage,"        \
                "garbage_bytes FROM benefactor ORDER BY id")                                                 \
    X(BNF_PUT, "INSERT OR REPLACE INTO benefactor(id,uuid,node,addr,local_path,backend,capacity,seen_ns,"    \
               "chunks,stored,garbage,garbage_bytes) VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12)")        \
    X(BNF_TOTALS, "UPDATE benefactor SET chunks=?2,stored=?3,garbage=?4,garbage_bytes=?5 WHERE id=?1")       \
    /* sessions */                                                                                           \
    X(SESSION_LIST, "SELECT id,node,mountpoint,pid,software,started_ns,machine,boot,mount_ns FROM session "  \
                    "ORDER BY id")                                                                           \
    X(SESSION_PUT, "INSERT OR REPLACE INTO session(id,node,mountpoint,pid,software,started_ns,machine,boot," \
                   "mount_ns) VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9)")                                           \
    X(LOCK_PUT, "INSERT OR REPLACE INTO lock(ino,kind,session,owner,start,last,exclusive,pid) "              \
                "VALUES(?1,?2,?3,?4,?5,?6,?7,?8)")                                                           \
    X(LOCK_DELETE, "DELETE FROM lock WHERE ino=?1 AND kind=?2 AND session=?3 AND owner=?4 AND start=?5")     \
    X(LOCK_LIST, "SELECT ino,kind,session,owner,start,last,exclusive,pid FROM lock")                         \
    X(SESSION_DELETE, "DELETE FROM session WHERE id=?1")                                                     \
    X(REPLY_GET, "SELECT seq,type,body FROM reply WHERE session=?1 AND slot=?2")                             \
    X(REPLY_PUT, "INSERT OR REPLACE INTO reply(session,slot,seq,type,body) VALUES(?1,?2,?3,?4,?5)")          \
    X(REPLY_DELETE, "DELETE FROM reply WHERE session=?1")                                                    \
    /* damage */                                                                                             \
    X(DAMAGE_PUT, "INSERT OR REPLACE INTO damage(chunk,ino,off,len,bnf,missing,reason,seen_ns) "             \
                  "VALUES(?1,?2,?3,?4,?5,?6,?7,?8)")                                                         \
    X(DAMAGE_LIST, "SELECT chunk,ino,off,len,bnf,reason,seen_ns FROM damage LIMIT ?1")                       \
    X(DAMAGE_COUNT, "SELECT count(*) FROM damage")                                                           \
    X(DAMAGE_DROP, "DELETE FROM damage WHERE chunk=?1")                                                      \
    X(BAD_PUT, "INSERT INTO bad_chunk(chunk,missing,bnf) VALUES(?1,?2,?3) ON CONFLICT(chunk) DO UPDATE SET missing=?2,bnf=iif(?3,?3,bnf)") \
    X(BAD_HAS, "SELECT missing,bnf FROM bad_chunk WHERE chunk=?1")                                           \
    X(BAD_COUNT, "SELECT count(*) FROM bad_chunk")                                                           \
    X(BAD_DROP, "DELETE FROM bad_chunk WHERE chunk=?1")                                                      \
    X(BAD_FOUND, "DELETE FROM bad_chunk WHERE chunk=?1 AND missing=1")                                       \
    MGR_STMT_LEVEL(X)                                                                                        \
    MGR_STMT_VERSION(X)                                                                                      \
    MGR_STMT_DRAIN(X)                                                                                        \
    MGR_STMT_SETS(X)

enum mgr_stmt {
#define MGR_STMT_ENUM(name, text) MGR_ST_##name,
    MGR_STMT_LIST(MGR_STMT_ENUM)
#undef MGR_STMT_ENUM
        MGR_ST_COUNT
};

#endif
