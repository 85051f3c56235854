/* SQL of levels of durability (rounds.c, level.c): a part of the list in stmt.h. */
#ifndef MGR_STMT_LEVEL_H
#define MGR_STMT_LEVEL_H

#define MGR_STMT_LEVEL(X)                                                                                    \
    X(BNF_SYNC_LIST, "SELECT bnf,life,round,synced,last,session,ino FROM bnf_sync")                          \
    X(BNF_SYNC_PUT, "INSERT OR REPLACE INTO bnf_sync(bnf,life,round,synced,last,session,ino) "               \
                    "VALUES(?1,?2,?3,?4,?5,?6,?7)")                                                          \
    X(BNF_LOST_LIST, "SELECT first,last FROM bnf_lost WHERE bnf=?1 ORDER BY first")                          \
    X(BNF_LOST_PUT, "INSERT INTO bnf_lost(bnf,first,last) VALUES(?1,?2,?3)")                                 \
    X(BNF_LOST_DROP, "DELETE FROM bnf_lost WHERE bnf=?1")                                                    \
    X(LEVEL_SLICES, "SELECT s.win,s.off,c.bnf,c.round,EXISTS (SELECT 1 FROM bad_chunk b WHERE b.chunk=c.id) " \
                    "FROM slice s CROSS JOIN chunk c ON c.id=s.chunk WHERE s.ino=?1 AND (s.win,s.off)>(?2,?3) " \
                    "ORDER BY s.win,s.off LIMIT ?4")                                                         \
    X(LEVEL_DRAINED, "SELECT count(*),ifnull(sum(best),0),ifnull(sum(size),0) FROM (SELECT i.size,"           \
                     "(SELECT max(d.verified) FROM drained d CROSS JOIN tfile t ON t.id=d.tfile AND t.gone=0 " \
                     "WHERE d.ino=i.ino AND d.data_version=i.data_version) AS best FROM inode i "             \
                     "WHERE i.ckpt=?1 AND i.ckpt<>0) WHERE best IS NOT NULL")                                 \
    X(LEVEL_DRAINED_AT, "SELECT count(*),ifnull(sum(d.verified),0) FROM inode i CROSS JOIN drained d ON "     \
                        "d.ino=i.ino AND d.target=?2 AND d.data_version=i.data_version CROSS JOIN tfile t ON "   \
                        "t.id=d.tfile AND t.gone=0 WHERE i.ckpt=?1 AND i.ckpt<>0")                             \
    X(LEVEL_ANY_DRAINED, "SELECT 1 FROM drained LIMIT 1")

#endif
