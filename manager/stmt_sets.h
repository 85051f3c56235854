/* SQL of the checkpoint sets (sets.c, setdirs.c, setmsg.c). Included by stmt.h. */
#ifndef MGR_STMT_SETS_H
#define MGR_STMT_SETS_H

#define MGR_SET_COLS "s.id,s.series,s.step,s.top,s.gen,s.state,s.how,s.told,s.began_ns,s.complete_ns,s.seq,s.files,s.bytes,s.files_before"

#define MGR_STMT_SETS(X)                                                                                     \
    X(SERIES_GET, "SELECT id FROM ckpt_series WHERE parent=?1 AND template=?2")                              \
    X(SERIES_NAME, "SELECT parent,template FROM ckpt_series WHERE id=?1")                                    \
    X(SERIES_NEW, "INSERT INTO ckpt_series(parent,template,seq,files,policy) VALUES(?1,?2,0,0,0)")           \
    X(SERIES_LAST, "SELECT seq,files FROM ckpt_series WHERE id=?1")                                          \
    X(SERIES_DONE, "UPDATE ckpt_series SET seq=?2,files=?3 WHERE id=?1")                                     \
    X(SERIES_DROP, "DELETE FROM ckpt_series WHERE id=?1 AND policy=0 AND NOT EXISTS "                        \
                   "(SELECT 1 FROM ckpt_set WHERE series=?1)")                                               \
    X(SET_COUNT, "SELECT count(*) FROM ckpt_set")                                                            \
    X(SET_FIND, "SELECT id FROM ckpt_set WHERE series=?1 AND step=?2")                                       \
    X(SET_GET, "SELECT " MGR_SET_COLS " FROM ckpt_set s WHERE s.id=?1")                                      \
    X(SET_TOP, "SELECT id FROM ckpt_set WHERE top=?1 AND top<>0")                                            \
    X(SET_LATER, "SELECT 1 FROM ckpt_set WHERE series=?1 AND step>?2 AND state<>4 LIMIT 1")                  \
    X(SET_OPEN_LIST, "SELECT " MGR_SET_COLS " FROM ckpt_set s WHERE s.state=1")                              \
    X(SET_NEW, "INSERT INTO ckpt_set(series,step,top,gen,state,how,told,began_ns,complete_ns,seq,files,bytes) " \
               "VALUES(?1,?2,?3,1,1,?4,0,?5,0,0,0,0)")                                                       \
    X(SET_PUT, "UPDATE ckpt_set SET series=?2,step=?3,top=?4,gen=?5,state=?6,told=?7,complete_ns=?8,seq=?9," \
               "files=?10,bytes=?11,files_before=?12 WHERE id=?1")                                           \
    X(SET_BEFORE, "SELECT files,files_before FROM ckpt_set WHERE series=?1 AND step<?2 AND state=2 ORDER BY step DESC LIMIT 2") \
    X(SET_DROP, "DELETE FROM ckpt_set WHERE id=?1")                                                          \
    X(SET_DAMAGED, "SELECT 1 FROM damage d CROSS JOIN inode i ON i.ino=d.ino WHERE i.ckpt=?1 LIMIT 1")       \
    X(SET_LIST, "SELECT " MGR_SET_COLS ",r.parent,r.template FROM ckpt_set s CROSS JOIN ckpt_series r ON r.id=s.series " \
                "WHERE (s.series=?1 AND s.step<?2) OR s.series>?1 ORDER BY s.series,s.step DESC LIMIT ?3")   \
    X(SET_NEWEST, "SELECT " MGR_SET_COLS ",r.parent FROM ckpt_series r CROSS JOIN ckpt_set s ON s.series=r.id WHERE r.id>?1 AND s.state=2 AND s.files_before=0 " \
                  "AND NOT EXISTS (SELECT 1 FROM ckpt_set n WHERE n.series=s.series AND n.step>s.step AND n.state=2 AND n.files_before=0) ORDER BY r.id LIMIT ?2") \
    X(SET_IN_DIR, "SELECT 1 FROM ckpt_series r CROSS JOIN ckpt_set s ON s.series=r.id WHERE r.parent=?1 AND s.state<>4 LIMIT 1") \
    X(SET_OF_PARENT, "SELECT s.id FROM ckpt_series r CROSS JOIN ckpt_set s ON s.series=r.id WHERE r.parent=?1 AND s.step=?2 LIMIT 2") \
    X(UNIQUE_SLICES, "SELECT s.win,s.off,c.id,c.len,c.bnf,c.refs FROM slice s CROSS JOIN chunk c ON c.id=s.chunk WHERE s.ino=?1 AND (s.win,s.off)>(?2,?3) " \
                     "ORDER BY s.win,s.off LIMIT ?4")                                                        \
    X(UNIQUE_REFS, "SELECT count(*),ifnull(sum(i.ckpt<>?2),0) FROM (SELECT ino FROM slice WHERE chunk=?1 LIMIT ?3) r CROSS JOIN inode i ON i.ino=r.ino") \
    X(MEMBER_SUMS, "SELECT count(*),ifnull(sum(size),0) FROM inode WHERE ckpt=?1 AND ckpt<>0")               \
    X(MEMBER_LIST, "SELECT " MGR_INODE_COLS " FROM inode i WHERE i.ckpt=?1 AND i.ckpt<>0 AND i.ino>?2 ORDER BY i.ino LIMIT ?3") \
    X(MEMBER_DIRS, "SELECT DISTINCT parent FROM inode WHERE ckpt=?1 AND ckpt<>0")                            \
    X(MEMBER_NAMES, "SELECT d.name FROM dirent d CROSS JOIN inode i ON i.ino=d.ino WHERE d.parent=?1 AND d.type=8 AND i.ckpt=?2") \
    X(MEMBER_TORN, "SELECT ino FROM inode INDEXED BY inode_torn WHERE ckpt=?1 AND ckpt<>0 AND flags&1568<>0 AND flags&?2<>0 AND ino>?3 ORDER BY ino LIMIT 1") \
    X(MEMBER_TORN_COUNT, "SELECT count(*) FROM (SELECT 1 FROM inode INDEXED BY inode_torn WHERE ckpt=?1 AND ckpt<>0 AND flags&1568<>0 LIMIT ?2)") \
    X(MEMBER_TEAR, "UPDATE inode SET flags=flags|?2 WHERE ckpt=?1 AND ckpt<>0")                              \
    X(MEMBER_MEND, "UPDATE inode SET flags=flags&~?2 WHERE ckpt=?1 AND ckpt<>0 AND flags&?3=0")              \
    X(FILE_TEAR, "UPDATE inode SET flags=flags|?2 WHERE ino=?1")                                             \
    X(FILE_FOUND, "UPDATE inode SET flags=flags&~?2 WHERE ino=?1 AND flags&?2<>0")                           \
    X(LOST_COUNT, "SELECT count(*) FROM (SELECT 1 FROM inode WHERE flags&512<>0 AND nlink>0 LIMIT ?1)")   \
    X(LOST_LIST, "SELECT ino FROM inode WHERE flags&512<>0 AND nlink>0 LIMIT ?1") /* MGR_LOST_CLOSE; inode_lost */           \
    X(MEMBER_MOVE, "UPDATE inode SET ckpt=?2 WHERE ckpt=?1 AND ckpt<>0")                                     \
    X(DIR_NAME, "SELECT name FROM dirent WHERE parent=?1 AND cookie>0 AND ino=?2 ORDER BY cookie DESC LIMIT 1") \
    X(SET_GROWN, "SELECT s.state FROM ckpt_series r CROSS JOIN ckpt_set s ON s.series=r.id WHERE r.parent=?1 AND r.template=?2 AND s.how=?3 ORDER BY s.step DESC LIMIT 1") \
    X(DIR_NEWEST, "SELECT cookie,ino,type,name FROM dirent WHERE parent=?1 AND cookie<?2 ORDER BY cookie DESC LIMIT ?3") \
    X(CONVERT_LIST, "SELECT ino,value FROM xattr WHERE name=x'757365722e66702e636f6e76657274' AND ino>?1 ORDER BY ino LIMIT ?2") \
    X(CONVERT_MEMBER, "SELECT x.value FROM (SELECT ino FROM inode WHERE ckpt=?1 AND ckpt<>0 ORDER BY ino LIMIT ?2) m CROSS JOIN xattr x ON x.ino=m.ino AND x.name=?3 ORDER BY m.ino LIMIT 1") \
    X(DIR_LIST, "SELECT cookie,ino,type,name FROM dirent WHERE parent=?1 AND cookie>?2 ORDER BY cookie LIMIT ?3")

#endif
