"""Fills a manager's database with many files, each with one chunk, for up-1m-files.

Rows as the manager would have written them, counters and totals included (manager/schema.sql says
what belongs together), by SQLite itself from one recursive query per table: seconds instead of the
minutes that a million creations through a mount would take. The manager must not be running.
"""

import os
import sqlite3

PER_DIR = 10000
CHUNK = 1 << 20

# A number per file, 0 .. files-1, and one per directory.
FILES = "WITH RECURSIVE f(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM f WHERE i + 1 < :files) "
DIRS = "WITH RECURSIVE d(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM d WHERE i + 1 < :dirs) "


def statements():
    yield DIRS + """INSERT INTO inode(ino, mode, nlink, uid, gid, rdev, size, mapped, atime, mtime, ctime, btime,
        chunk_size, stripe, data_version, parent, target)
        SELECT :ino + i, 16877, 2, 0, 0, 0, :per_dir, 0, :now, :now, :now, :now, :chunk, 1, 0, 1, NULL FROM d"""
    yield DIRS + """INSERT INTO dirent(parent, name, ino, type, cookie)
        SELECT 1, CAST(printf('dir%04d', i) AS BLOB), :ino + i, 4, :cookie + i FROM d"""
    yield FILES + """INSERT INTO inode(ino, mode, nlink, uid, gid, rdev, size, mapped, atime, mtime, ctime, btime,
        chunk_size, stripe, data_version, parent, target)
        SELECT :file_ino + i, 33188, 1, 0, 0, 0, :chunk, :chunk, :now, :now, :now, :now, :chunk, 1, 1,
        :ino + i / :per_dir, NULL FROM f"""
    yield FILES + """INSERT INTO dirent(parent, name, ino, type, cookie)
        SELECT :ino + i / :per_dir, CAST(printf('file%07d', i) AS BLOB), :file_ino + i, 8, :file_cookie + i FROM f"""
    yield FILES + """INSERT INTO slice(ino, win, off, len, chunk, chunk_off)
        SELECT :file_ino + i, 0, 0, :chunk, (:session << 32) + 1 + i, 0 FROM f"""
    yield FILES + """INSERT INTO chunk(id, len, stored, sum, refs, bnf)
        SELECT (:session << 32) + 1 + i, :chunk, :chunk + 4096, i, 1, :bnf FROM f"""
    yield """UPDATE counters SET next_ino = :file_ino + :files, next_cookie = :file_cookie + :files,
        next_session = :session + 1, inodes = inodes + :files + :dirs, chunks = chunks + :files,
        slices = slices + :files"""
    yield "UPDATE inode SET nlink = nlink + :dirs, size = size + :dirs WHERE ino = 1"
    yield """UPDATE benefactor SET chunks = chunks + :files, stored = stored + :files * (:chunk + 4096)
        WHERE id = :bnf"""


def fill(path, files):
    """path: store.db of a manager that has known one benefactor. Names: dir0000/file0000000 and on."""
    if not os.path.exists(path):
        raise FileNotFoundError(path)
    db = sqlite3.connect(path, isolation_level=None)
    try:
        ino, cookie, session = db.execute("SELECT next_ino, next_cookie, next_session FROM counters").fetchone()
        (bnf,) = db.execute("SELECT min(id) FROM benefactor").fetchone()
        dirs = (files + PER_DIR - 1) // PER_DIR
        values = {
            "files": files, "dirs": dirs, "per_dir": PER_DIR, "chunk": CHUNK, "ino": ino, "file_ino": ino + dirs,
            "cookie": cookie, "file_cookie": cookie + dirs, "session": session, "bnf": bnf,
            "now": 1_750_000_000_000_000_000,
        }
        db.execute("PRAGMA synchronous = OFF")
        db.execute("PRAGMA cache_size = -262144")
        db.execute("BEGIN")
        for text in statements():
            db.execute(text, {k: v for k, v in values.items() if f":{k}" in text})
        db.execute("COMMIT")
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    finally:
        db.close()
