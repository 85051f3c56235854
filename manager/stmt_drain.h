/* SQL of draining: a part of the list in stmt.h. */
#ifndef MGR_STMT_DRAIN_H
#define MGR_STMT_DRAIN_H

#define MGR_DJOB_COLS                                                                                        \
    "id,kind,policy,target,ckpt,gen,dest,urgent,verify,state,files,bytes,files_done,bytes_done,made_ns,"     \
    "done_ns,error,why,first,layout,overwrite,again,replaced"
#define MGR_DFILE_COLS "id,job,ino,gen,state,data_version,size,lead,tfile,dev,tino,tries,kind,parent"

#define MGR_STMT_DRAIN(X)                                                                                    \
    X(POLICY_LIST, "SELECT id,text,made_ns,seen,taken,mount,every,load_ms,load_bytes,load_weight,load_ns FROM policy ORDER BY id")                                         \
    X(POLICY_OF, "SELECT id FROM policy WHERE text=?1")                                                      \
    X(POLICY_PUT, "INSERT INTO policy(text,made_ns,mount,seen,taken) VALUES(?1,?2,?3,0,0)")                  \
    X(POLICY_COUNT, "UPDATE policy SET seen=?2,taken=?3,every=?4,load_ms=?5,load_bytes=?6,load_weight=?7,load_ns=?8 WHERE id=?1")                                        \
    X(POLICY_HAND, "UPDATE policy SET mount=0 WHERE id=?1 AND mount<>0")                                     \
    X(POLICY_DELETE, "DELETE FROM policy WHERE id=?1")                                                       \
    X(TAKEN_LAST, "SELECT seq FROM drain_taken WHERE series=?1 AND policy=?2 AND seq<?3 ORDER BY seq DESC LIMIT 1") \
    X(TAKEN_IS, "SELECT 1 FROM drain_taken WHERE series=?1 AND policy=?2 AND seq=?3")                        \
    X(TAKEN_PUT, "INSERT OR IGNORE INTO drain_taken(series,policy,seq) VALUES(?1,?2,?3)")                    \
    X(TAKEN_PRUNE, "DELETE FROM drain_taken WHERE series=?1 AND policy=?2 AND seq<?3")                       \
    X(TAKEN_FORGET, "DELETE FROM drain_taken WHERE policy=?1")                                               \
    X(TAKEN_DROP, "DELETE FROM drain_taken WHERE series=?1 AND NOT EXISTS (SELECT 1 FROM ckpt_series WHERE id=?1)") \
    X(DUE_LIST, "SELECT ino FROM drain_due")                                                                 \
    X(DUE_PUT, "INSERT OR IGNORE INTO drain_due(ino) VALUES(?1)")                                            \
    X(DUE_DELETE, "DELETE FROM drain_due WHERE ino=?1")                                                      \
    X(DUE_CLEAR, "DELETE FROM drain_due")                                                                    \
    X(DFILE_WAITS, "SELECT 1 FROM drain_file WHERE ino=?1 AND job=?2 AND state=1 LIMIT 1")                   \
    X(TARGET_LIST, "SELECT id,root,uuid,needs FROM target ORDER BY id")                                      \
    X(TARGET_PUT, "INSERT INTO target(id,root,uuid) VALUES(?1,?2,?3) ON CONFLICT(id) DO UPDATE SET uuid=?3") \
    X(TARGET_NEEDS, "UPDATE target SET needs=?2 WHERE id=?1")                                                \
    X(DJOB_ACTIVE, "SELECT " MGR_DJOB_COLS " FROM drain_job WHERE state<4 ORDER BY id")                      \
    X(DJOB_LIST, "SELECT " MGR_DJOB_COLS " FROM drain_job WHERE id>=?1 AND id<?2 "                    \
                 "ORDER BY state>=4,CASE WHEN state<4 THEN id ELSE -id END LIMIT ?3")                        \
    X(DJOB_LAST, "SELECT ifnull(max(id),0) FROM drain_job")                                                  \
    X(DJOB_PUT, "INSERT OR REPLACE INTO drain_job(" MGR_DJOB_COLS ") "                                       \
                "VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13,?14,?15,?16,?17,?18,?19,?20,?21,?22,?23)")        \
    X(DJOB_OLD, "SELECT id FROM drain_job WHERE state>=4 AND done_ns<?2 AND id<=(SELECT max(id) FROM drain_job)-?1 " \
                "AND NOT (state=5 AND policy<>0 AND EXISTS(SELECT 1 FROM ckpt_set s WHERE s.id=ckpt AND s.gen=drain_job.gen)) " \
                "ORDER BY id LIMIT 1")                                                                      \
    X(DJOB_FAILED, "SELECT max(j.id),j.ckpt,j.target,j.policy FROM drain_job j CROSS JOIN ckpt_set s ON s.id=j.ckpt " \
                   "WHERE j.state=5 AND j.kind=1 AND s.state=2 AND s.gen=j.gen AND EXISTS(SELECT 1 FROM policy p WHERE p.id=j.policy) " \
                   "AND NOT EXISTS(SELECT 1 FROM drain_job n WHERE n.ckpt=j.ckpt AND n.target=j.target AND n.kind=1 AND " \
                   "n.gen=j.gen AND n.id>j.id AND n.state<5) GROUP BY j.ckpt,j.target ORDER BY 1 LIMIT ?1")  \
    X(DJOB_DELETE, "DELETE FROM drain_job WHERE id=?1")                                                      \
    X(DFILE_PRUNE, "DELETE FROM drain_file WHERE id IN (SELECT id FROM drain_file WHERE job=?1 LIMIT ?2)")   \
    X(DFILE_NEW, "INSERT INTO drain_file(job,ino,path,gen,state,data_version,size,lead,tfile,dev,tino,"      \
                 "tries,error,why,kind) VALUES(?1,?2,?3,0,1,?6,?4,0,0,0,0,0,0,'',?5)")                       \
    X(DFILE_SET, "UPDATE drain_file SET gen=?2,state=?3,data_version=?4,size=?5,lead=?6,tfile=?7,dev=?8,"    \
                 "tino=?9,tries=?10,error=?11,why=?12 WHERE id=?1")                                          \
    X(DFILE_FIRST, "SELECT ino,path FROM drain_file WHERE id>=?1 ORDER BY id LIMIT ?2")                      \
    X(DFILE_BEGUN, "SELECT 1 FROM drain_file WHERE ino=?1 AND job=?2 AND id>=?3 AND id<?4 LIMIT 1")         \
    X(DFILE_MEMBER, "SELECT 1 FROM inode i CROSS JOIN drain_file f ON f.ino=i.ino "                         \
                    "WHERE i.ckpt=?1 AND i.ckpt<>0 AND f.job=?2 LIMIT 1")                                   \
    X(DFILE_PATH, "SELECT path FROM drain_file WHERE id=?1")                                                 \
    X(DFILE_NEXT, "SELECT " MGR_DFILE_COLS " FROM drain_file WHERE job=?1 AND state=1 AND id>?2 "            \
                  "ORDER BY id LIMIT ?3")                                                                    \
    X(DFILE_ACTIVE, "SELECT " MGR_DFILE_COLS " FROM drain_file WHERE job=?1 AND state BETWEEN 2 AND 5")      \
    X(DFILE_DIRS, "SELECT " MGR_DFILE_COLS " FROM drain_file WHERE job=?1 AND state=9 LIMIT ?2")             \
    X(DFILE_LEFT, "SELECT 1 FROM drain_file WHERE job=?1 AND state<6 LIMIT 1")                               \
    X(DFILE_FAILED, "SELECT path,error,why FROM drain_file WHERE job=?1 AND state=7 LIMIT 1")                \
    X(DFILE_COUNT, "SELECT count(*) FROM drain_file WHERE job=?1 AND state=?2")                              \
    X(DFILE_OF_SET, "SELECT ifnull(sum(f.size),0),ifnull(sum(CASE WHEN f.state=6 THEN f.size ELSE 0 END),0) FROM inode i "   \
                    "CROSS JOIN drain_file f ON f.ino=i.ino WHERE i.ckpt=?1 AND i.ckpt<>0 AND f.job=?2 AND f.kind=0 AND f.state<>8") \
    X(DFILE_IN, "SELECT f.state,f.error,f.why,j.state FROM drain_file f CROSS JOIN drain_job j ON j.id=f.job "  \
                "WHERE f.ino=?1 AND j.kind=3 AND j.ckpt=?2 ORDER BY f.id DESC LIMIT 1")                       \
    X(DPART_SLICES, "SELECT s.win,s.len,c.bnf FROM slice s CROSS JOIN chunk c ON c.id=s.chunk "              \
                    "WHERE s.ino=?1 AND s.win>=?2 ORDER BY s.win,s.off")                                     \
    X(DPART_PUT, "INSERT INTO drain_part(file,first,bnf,count,gen,state,bytes) "                             \
                 "VALUES(?1,?2,?3,?4,?5,?6,?7)")                                                             \
    X(DPART_GET, "SELECT count,state,bytes FROM drain_part WHERE file=?1 AND first=?2 AND bnf=?3")           \
    X(DPART_SET, "UPDATE drain_part SET state=?4,sums=?5 WHERE file=?1 AND first=?2 AND bnf=?3")             \
    X(DPART_STATE, "UPDATE drain_part SET state=?4 WHERE file=?1 AND first=?2 AND bnf=?3")                   \
    X(DPART_TODO, "SELECT file,first,count,gen FROM drain_part WHERE bnf=?1 AND state=1 AND "                    \
                  "(file,first)>(?2,?3) ORDER BY file,first LIMIT ?4")                                       \
    X(DPART_LOW, "SELECT first FROM drain_part WHERE file=?1 AND first>=?2 AND state<?3 "                    \
                 "ORDER BY first LIMIT 1")                                                                   \
    X(DPART_NEXT, "SELECT first,bnf,count,state,sums FROM drain_part WHERE file=?1 AND first>=?2 "           \
                  "ORDER BY first,bnf LIMIT ?3")                                                             \
    X(DPART_SUMS, "SELECT first,bnf,sums FROM drain_part WHERE file=?1 AND (first,bnf)>(?2,?3) "             \
                  "ORDER BY first,bnf LIMIT ?4")                                                             \
    X(DPART_END, "SELECT first+count FROM drain_part WHERE file=?1 ORDER BY first DESC LIMIT 1")             \
    X(DPART_DONE, "SELECT ifnull(sum(bytes),0) FROM drain_part WHERE file=?1 AND state>=3")                  \
    X(DPART_DROP, "DELETE FROM drain_part WHERE file=?1 AND (first,bnf) IN "                                 \
                  "(SELECT first,bnf FROM drain_part WHERE file=?1 LIMIT ?2)")                               \
    X(DPART_FILE, "SELECT file FROM drain_part WHERE file>?1 ORDER BY file LIMIT 1")                         \
    X(FOREIGN_NEW, "INSERT INTO drain_file(job,ino,path,gen,state,data_version,size,lead,tfile,dev,tino,"    \
                   "tries,error,why,kind,parent) VALUES(?1,0,?2,0,1,0,?3,0,0,0,0,0,0,'',?4,?5)")              \
    X(FOREIGN_LEFT, "INSERT INTO drain_file(job,ino,path,gen,state,data_version,size,lead,tfile,dev,tino,"   \
                    "tries,error,why,kind) VALUES(?1,0,?2,0,10,0,0,0,0,0,0,0,?3,'',1)")                      \
    X(FOREIGN_LEFTS, "SELECT error,count(DISTINCT path),min(path) FROM drain_file WHERE job=?1 AND state=10 " \
                     "GROUP BY error ORDER BY error")                                                        \
    X(EVICT_LEFTS, "SELECT why,count(*),min(path) FROM drain_file WHERE job=?1 AND state=10 GROUP BY why "   \
                   "ORDER BY count(*) DESC,why LIMIT ?2")                                                    \
    X(FOREIGN_IS, "UPDATE drain_file SET kind=?2,ino=?3 WHERE id=?1")                                        \
    X(FOREIGN_AFTER, "SELECT after FROM drain_file WHERE id=?1")                                             \
    X(FOREIGN_UP_TO, "UPDATE drain_file SET after=?2 WHERE id=?1")                                           \
    X(FOREIGN_FIRST, "SELECT path,parent FROM drain_file WHERE id>=?1 ORDER BY id LIMIT ?2")                 \
    X(MERGE_NEW, "INSERT INTO drain_file(job,ino,path,gen,state,data_version,size,lead,tfile,dev,tino,"      \
                 "tries,error,why,kind,parent,after) VALUES(?1,0,?2,0,1,0,0,0,0,0,0,0,0,'',0,?3,?4)")        \
    X(MERGE_FIRST, "SELECT path,parent,after FROM drain_file WHERE id>=?1 ORDER BY id LIMIT ?2")             \
    X(FPART_PUT, "INSERT INTO drain_part(file,first,bnf,count,gen,state,bytes,ids) "                         \
                 "VALUES(?1,?2,?3,?4,?5,1,?6,?7)")                                                           \
    X(FPART_GET, "SELECT count,state,bytes,gen,ids FROM drain_part WHERE file=?1 AND first=?2 AND bnf=?3")   \
    X(FPART_AGAIN, "UPDATE drain_part SET bnf=?4,gen=?5,ids=?6 WHERE file=?1 AND first=?2 AND bnf=?3")       \
    X(FPART_OPEN, "SELECT file,first,bnf,bytes,count FROM drain_part INDEXED BY drain_part_ids WHERE "       \
                  "ids<>0 AND state=1")                                                                      \
    X(FPART_KEPT, "SELECT 1 FROM drain_part INDEXED BY drain_part_ids WHERE ids<>0 AND state=1 AND "         \
                  "ids<=?1 AND ids+count>?1 LIMIT 1")                                                        \
    X(TFILE_NEW, "INSERT INTO tfile(target,path,dev,tino,size,mtime,refs,gone) "                             \
                 "VALUES(?1,?2,?3,?4,?5,?6,1,0)")                                                            \
    X(TFILE_OWN, "SELECT tino FROM tfile WHERE target=?1 AND path=?2 AND gone=0 ORDER BY id DESC LIMIT 1")   \
    X(EXT_AT, "SELECT 1 FROM ext e CROSS JOIN tfile t ON t.id=e.tfile WHERE t.target=?1 LIMIT 1")            \
    X(EXT_AT_PATH, "SELECT 1 FROM tfile t CROSS JOIN ext e ON e.tfile=t.id WHERE t.target=?1 AND t.path=?2 LIMIT 1")   \
    X(TFILE_REF, "UPDATE tfile SET refs=refs+?2 WHERE id=?1")                                                \
    X(TFILE_UNUSED, "DELETE FROM tfile WHERE id=?1 AND refs<=0")                                             \
    X(DRAINED_PUT, "INSERT OR REPLACE INTO drained(ino,target,tfile,data_version,verified,at_ns,sums) "      \
                   "VALUES(?1,?2,?3,?4,?5,?6,?7)")                                                           \
    X(DRAINED_BEST, "SELECT ifnull(max(d.verified),-1) FROM drained d CROSS JOIN tfile t ON t.id=d.tfile "              \
                    "WHERE d.ino=?1 AND d.data_version=?2 AND t.gone=0")                                     \
    X(DRAINED_COPIES, "SELECT d.tfile,d.target,d.verified FROM drained d CROSS JOIN tfile t ON t.id=d.tfile " \
                      "WHERE d.ino=?1 AND d.data_version=?2 AND t.gone=0 ORDER BY d.target")                 \
    X(DRAINED_ROW, "SELECT tfile,target FROM drained WHERE ino=?1 AND target BETWEEN ?2 AND ?3 LIMIT 1")     \
    X(DRAINED_LAST, "SELECT d.at_ns,d.ino,d.tfile,d.target FROM drained d CROSS JOIN tfile t ON t.id="       \
                    "d.tfile WHERE (d.at_ns,d.ino)<(?1,?2) AND t.gone=0 ORDER BY d.at_ns DESC,d.ino DESC "   \
                    "LIMIT ?3")                                                                              \
    X(DRAINED_GONE, "SELECT d.target FROM drained d CROSS JOIN tfile t ON t.id=d.tfile WHERE d.ino=?1 AND "  \
                    "d.data_version=?2 AND t.gone<>0 LIMIT 1")                                               \
    X(SET_GONE, "SELECT d.target FROM inode i CROSS JOIN drained d ON d.ino=i.ino AND d.data_version="       \
                "i.data_version CROSS JOIN tfile t ON t.id=d.tfile WHERE i.ckpt=?1 AND i.ckpt<>0 AND "       \
                "t.gone<>0 LIMIT 1")                                                                         \
    X(TFILE_GET, "SELECT tino,size,mtime FROM tfile WHERE id=?1")                                            \
    X(DRAINED_AT, "SELECT d.verified,t.path,t.id FROM drained d CROSS JOIN tfile t ON t.id=d.tfile "         \
                  "WHERE d.ino=?1 AND d.target=?2 AND d.data_version=?3 AND t.gone=0")                       \
    X(DRAINED_FOLDED, "UPDATE drained SET data_version=?3 WHERE ino=?1 AND data_version=?2")                  \
    X(DRAINED_DELETE, "DELETE FROM drained WHERE ino=?1 AND target=?2")                                      \
    X(TFILE_FILE, "SELECT target,path,dev,tino,size,mtime,gone FROM tfile WHERE id=?1")                      \
    X(TFILE_GONE, "UPDATE tfile SET gone=max(gone,1) WHERE id=?1")                                           \
    X(TFILE_BACK, "UPDATE tfile SET gone=0 WHERE id=?1 AND gone=1")                                          \
    X(TFILE_BAD, "UPDATE tfile SET gone=2 WHERE id=?1")                                                      \
    X(EXT_GONE, "SELECT t.id FROM ext e CROSS JOIN tfile t ON t.id=e.tfile WHERE e.chunk=?1 AND t.gone=1")   \
    X(TFILE_REPLACED, "UPDATE tfile SET gone=1 WHERE target=?1 AND path=?2 AND id<>?3")                      \
    X(EXT_SOME, "SELECT 1 FROM ext LIMIT 1")                                                                 \
    X(EXT_GET, "SELECT tfile,off FROM ext WHERE chunk=?1")                                                   \
    X(EXT_PUT, "INSERT OR REPLACE INTO ext(chunk,tfile,off) VALUES(?1,?2,?3)")                               \
    X(EXT_DELETE, "DELETE FROM ext WHERE chunk=?1")                                                          \
    X(EXT_ONLY_AT, "SELECT DISTINCT c.bnf,c.round FROM tfile t CROSS JOIN ext e ON e.tfile=t.id CROSS JOIN " \
                   "chunk c ON c.id=e.chunk WHERE t.target=?1 AND t.path=?2 AND (c.bnf=0 OR NOT EXISTS("     \
                   "SELECT 1 FROM slice s WHERE s.chunk=c.id AND s.ino=?3)) ORDER BY c.bnf")                 \
    X(EXT_ONLY_IN, "SELECT e.chunk FROM ext e CROSS JOIN chunk c ON c.id=e.chunk WHERE e.tfile=?1 AND c.bnf=0") \
    X(EXT_BEFORE, "SELECT e.chunk,s.win,s.off FROM tfile t CROSS JOIN ext e ON e.tfile=t.id CROSS JOIN "     \
                  "slice s ON s.chunk=e.chunk CROSS JOIN chunk c ON c.id=e.chunk WHERE t.target=?1 AND "     \
                  "t.path=?2 AND t.id<>?3 AND s.ino=?4 AND s.chunk_off=0 AND s.len=c.len AND c.data=0")      \
    X(EXT_OF, "SELECT 1 FROM slice s CROSS JOIN ext e ON e.chunk=s.chunk WHERE s.ino=?1 LIMIT 1")               \
    X(EXT_ONLY_OF, "SELECT 1 FROM slice s CROSS JOIN chunk c ON c.id=s.chunk CROSS JOIN ext e ON "           \
                   "e.chunk=c.id WHERE s.ino=?1 AND c.bnf=0 LIMIT 1")                                        \
    X(RESCUE_SLICES, "SELECT ino,win,off FROM slice WHERE chunk=?1 AND chunk_off=0 AND len=?2 LIMIT ?3")     \
    X(RESCUE_LOOKS, "SELECT DISTINCT e.tfile FROM bad_chunk b CROSS JOIN ext e ON e.chunk=b.chunk WHERE b.missing=2") \
    X(RESCUE_OF, "SELECT e.chunk,b.bnf FROM ext e CROSS JOIN bad_chunk b ON b.chunk=e.chunk WHERE e.tfile=?1 AND b.missing=2 LIMIT ?2") \
    X(RESCUE_FILE, "SELECT s.win,s.off,s.chunk,c.bnf,ifnull(b.missing,-1),CASE WHEN c.bnf=0 THEN EXISTS("    \
                   "SELECT 1 FROM ext e WHERE e.chunk=c.id) ELSE 0 END FROM slice s CROSS JOIN chunk c ON "  \
                   "c.id=s.chunk LEFT JOIN bad_chunk b ON b.chunk=c.id WHERE s.ino=?1 AND (s.win,s.off)>="   \
                   "(?2,?3) ORDER BY s.win,s.off LIMIT ?4")                                                  \
    X(RESCUE_VERSION, "SELECT kind,state FROM version WHERE shadow=?1")                                      \
    X(RESCUE_WINS, "SELECT DISTINCT ino,win FROM slice WHERE chunk=?1 LIMIT ?2")                             \
    X(RESCUE_WIN_HAS, "SELECT s.len,c.id,c.bnf,ifnull(b.missing,-1) FROM slice s CROSS JOIN chunk c ON "     \
                      "c.id=s.chunk LEFT JOIN bad_chunk b ON b.chunk=c.id WHERE s.ino=?1 AND s.win=?2")      \
    X(RESCUE_WIN_PUT, "INSERT OR REPLACE INTO rescue_win(ino,win,tfile) VALUES(?1,?2,?3)")                   \
    X(RESCUE_WIN_DROP, "DELETE FROM rescue_win WHERE ino=?1 AND win=?2")                                     \
    X(RESCUE_WIN_FORGET, "DELETE FROM rescue_win WHERE ino=?1")                                              \
    X(RESCUE_WIN_AT, "SELECT 1 FROM rescue_win WHERE ino=?1 AND win>=?2 AND win<?3 LIMIT 1")                 \
    X(RESCUE_WIN_OF, "SELECT ino,win FROM rescue_win WHERE tfile=?1 ORDER BY ino,win LIMIT ?2")              \
    X(RESCUE_WIN_ONLY_AT, "SELECT 1 FROM tfile t CROSS JOIN rescue_win r ON r.tfile=t.id WHERE t.target=?1 AND t.path=?2 AND r.ino<>?3 LIMIT 1") \
    X(RESCUE_WIN_FILES, "SELECT DISTINCT tfile FROM rescue_win")                                             \
    X(PRESS_NEXT, "SELECT at_ns,ino FROM drained WHERE (at_ns,ino)>(?1,?2) ORDER BY at_ns,ino LIMIT ?3")     \
    X(PRESS_HERE, "SELECT 1 FROM (SELECT chunk,chunk_off,len FROM slice WHERE ino=?1 ORDER BY win DESC,off DESC LIMIT "    \
                  "4096) s CROSS JOIN chunk c ON c.id=s.chunk WHERE c.bnf<>0 LIMIT 1")             \
    X(VERSION_HERE, "SELECT EXISTS(SELECT 1 FROM (SELECT chunk FROM slice WHERE ino=?1 LIMIT ?2) s CROSS JOIN chunk c ON c.id=s.chunk WHERE c.bnf<>0) "    \
                    "OR EXISTS(SELECT 1 FROM slice WHERE ino=?1 LIMIT 1 OFFSET ?2)")                         \
    X(STAGE_NEXT, "SELECT s.win,e.tfile,e.off,c.id,c.len,c.sum FROM slice s CROSS JOIN chunk c ON "          \
                  "c.id=s.chunk CROSS JOIN ext e ON e.chunk=c.id WHERE s.ino=?1 AND s.win>=?2 AND c.bnf=0 "  \
                  "ORDER BY s.win,s.off LIMIT ?3")                                                           \
    X(EVICT_NEXT, "SELECT s.win,s.off,s.len,s.chunk_off,c.id,c.len,c.refs,c.bnf,c.data FROM slice s "        \
                  "CROSS JOIN chunk c ON c.id=s.chunk WHERE s.ino=?1 AND s.win>=?2 ORDER BY s.win,s.off")    \
    X(EVICT_CHUNKS, "SELECT DISTINCT chunk FROM slice WHERE ino=?1 AND win=?2")                               \
    X(EVICT_HELD, "SELECT 1 FROM (SELECT DISTINCT chunk FROM slice WHERE ino=?1 AND win=?2) s CROSS JOIN "    \
                  "chunk c ON c.id=s.chunk WHERE c.refs>1000 OR c.refs<>(SELECT count(*) FROM slice WHERE chunk=s.chunk) LIMIT 1")  \
    X(EVICT_OTHERS, "SELECT DISTINCT o.ino FROM (SELECT DISTINCT chunk FROM slice WHERE ino=?1 AND win=?2) "  \
                    "s CROSS JOIN slice o ON o.chunk=s.chunk WHERE o.ino<>?1 LIMIT ?3")                       \
    X(DRAINED_SUMS, "SELECT sums FROM drained WHERE ino=?1 AND tfile=?2")                                     \
    X(EVICT_SET, "SELECT s.state,CASE WHEN s.above<?2 THEN s.above ELSE (SELECT count(*) FROM (SELECT 1 FROM ckpt_set o "    \
                 "WHERE o.series=s.series AND o.state=2 AND o.seq>s.seq AND o.files_before=0 ORDER BY o.step DESC LIMIT ?2)) END FROM "          \
                 "(SELECT s.*,(SELECT count(*) FROM (SELECT 1 FROM ckpt_set o WHERE o.series=s.series AND o.state=2 AND "   \
                 "o.step>s.step AND o.files_before=0 LIMIT ?2)) AS above FROM ckpt_set s WHERE s.id=?1) s")

#endif
