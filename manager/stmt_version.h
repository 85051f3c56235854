/* Statements of versions (version.c, epoch.c, return.c); part of the list in stmt.h. */
#ifndef MGR_STMT_VERSION_H
#define MGR_STMT_VERSION_H

/* X(name, text) */
#define MGR_STMT_VERSION(X)                                                                                  \
    X(VERSION_PUT, "INSERT INTO version(ino,n,shadow,kind,state,writer,torn_session,cursor) "                \
                   "VALUES(?1,?2,?3,?4,?5,?6,0,0)")                                                          \
    X(VERSION_SET, "UPDATE version SET kind=?3,state=?4,writer=?5,torn_session=?6,cursor=?7 "                \
                   "WHERE ino=?1 AND n=?2")                                                                  \
    X(VERSION_RENUMBER, "UPDATE version SET n=?3 WHERE ino=?1 AND n=?2")                                      \
    X(VERSION_DELETE, "DELETE FROM version WHERE ino=?1 AND n=?2")                                           \
    X(VERSION_ALL, "SELECT v.ino,v.n,v.shadow,v.kind,v.state,v.writer,v.torn_session,v.cursor,"              \
                   "(i.size+i.chunk_size-1)/i.chunk_size FROM version v CROSS JOIN inode i ON i.ino=v.shadow") \
    X(VERSION_SUMS, "SELECT ifnull(sum(i.mapped),0) FROM (SELECT shadow FROM version LIMIT ?1) v "            \
                    "CROSS JOIN inode i ON i.ino=v.shadow")                                                  \
    X(VERSION_WIN_PUT, "INSERT OR IGNORE INTO version_win(shadow,win) VALUES(?1,?2)")                        \
    X(VERSION_WIN_ALL, "INSERT OR IGNORE INTO version_win SELECT DISTINCT ino,win FROM slice WHERE ino=?1")  \
    X(VERSION_WIN_NEXT, "SELECT ifnull(min(win),-1) FROM version_win WHERE shadow=?1 AND win>=?2")                      \
    X(VERSION_WIN_DROP, "DELETE FROM version_win WHERE shadow=?1 AND win IN "                                \
                        "(SELECT win FROM version_win WHERE shadow=?1 LIMIT ?2)")                            \
    X(SLICE_WIN_NEXT, "SELECT ifnull(min(w),-1) FROM (SELECT min(win) AS w FROM slice WHERE ino=?1 AND win>=?3 "        \
                      "UNION ALL SELECT min(win) FROM slice WHERE ino=?2 AND win>=?3)")                      \
    X(SLICE_MOVE, "UPDATE slice SET ino=?2 WHERE ino=?1 AND win=?3 RETURNING len")                           \
    X(SLICE_COPY, "INSERT INTO slice SELECT ?2,win,off,len,chunk,chunk_off FROM slice "                      \
                  "WHERE ino=?1 AND win=?3 RETURNING len,chunk")                                             \
    /* those of windows that the version has not yet */                                                      \
    X(SLICE_REST_BYTES, "SELECT ifnull(sum(len),0) FROM slice WHERE ino=?1 AND win>=?3 AND win<?4 AND win NOT IN " \
                        "(SELECT win FROM version_win WHERE shadow=?2)")                                     \
    X(SLICE_REST_MOVE, "UPDATE slice SET ino=?2 WHERE ino=?1 AND win>=?3 AND win<?4 AND win NOT IN "         \
                       "(SELECT win FROM version_win WHERE shadow=?2)")                                      \
    X(SLICE_REST_COPY, "INSERT INTO slice SELECT ?2,win,off,len,chunk,chunk_off FROM slice WHERE ino=?1 AND " \
                       "win>=?3 AND win<?4 AND win NOT IN (SELECT win FROM version_win WHERE shadow=?2) RETURNING len,chunk") \
    X(INODE_MAPPED, "UPDATE inode SET mapped=mapped+?2 WHERE ino=?1")                                        \
    X(SLICE_OF_VERSIONS, "SELECT count(*) FROM slice WHERE chunk=?1 AND ino IN (?2,?3,?4)")                  \
    /* is any of the first so many lost? 1: one is; 2: some are in a target that has to be looked at */       \
    X(VERSION_LOST, "SELECT ifnull(min(CASE WHEN b.missing=2 THEN 2 ELSE 1 END),0) FROM (SELECT chunk FROM "  \
                    "slice WHERE ino=?1 LIMIT ?2) s CROSS JOIN bad_chunk b ON b.chunk=s.chunk")              \
    X(OVERTAKEN_PUT, "INSERT OR IGNORE INTO overtaken(session,ino) VALUES(?1,?2)")                           \
    X(OVERTAKEN_HAS, "SELECT 1 FROM overtaken WHERE session=?1 AND ino=?2")                                  \
    X(OVERTAKEN_DROP, "DELETE FROM overtaken WHERE session=?1 AND ino=?2")                                   \
    X(OVERTAKEN_END, "DELETE FROM overtaken WHERE session=?1")                                               \
    X(OVERTAKEN_COUNT, "SELECT count(*) FROM overtaken")                                                     \
    X(VERSION_GOING, "SELECT 1 FROM orphan o CROSS JOIN inode i ON i.ino=o.ino WHERE o.gone=1 AND i.parent=?1 AND (i.flags&?2)<>0 LIMIT 1") \
    X(GIVEN_UP_PUT, "INSERT OR REPLACE INTO given_up(ino,n,size,mtime,at_ns) VALUES(?1,?2,?3,?4,?5)")        \
    X(GIVEN_UP_GET, "SELECT n,size,mtime,at_ns FROM given_up WHERE ino=?1")                                  \
    X(GIVEN_UP_DROP, "DELETE FROM given_up WHERE ino=?1")                                                    \
    X(GIVEN_UP_COUNT, "SELECT count(*) FROM given_up")

#endif
