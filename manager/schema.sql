-- The manager's database, DIR/store.db. It may be looked at with sqlite3 while the manager runs:
--     sqlite3 -readonly DIR/store.db 'SELECT * FROM benefactor'
-- Times are nanoseconds since the epoch, sizes and offsets bytes. Only fp-manager writes here, in one
-- transaction per batch of requests (manager/core.c). WITHOUT ROWID tables are one B-tree ordered by their
-- primary key: what is read together lies together, and a row costs no second key.
--
-- user_version of the database is the version of this schema; application_id is 'FPST'.

-- Values that exist once: 'store_uuid' (16 bytes), 'created_ns', 'chunk_size' and 'stripe' (defaults of the store).
CREATE TABLE meta (
    key   TEXT PRIMARY KEY,
    value
) WITHOUT ROWID;

-- One row of counters, rewritten with every transaction that changes one. Totals live here because a
-- manager with a million files must be up at once: nothing is ever counted by a scan.
CREATE TABLE counters (
    one            INTEGER PRIMARY KEY CHECK (one = 1),
    next_ino       INTEGER NOT NULL, -- inode numbers are never used twice
    next_cookie    INTEGER NOT NULL, -- of directory entries
    next_session   INTEGER NOT NULL, -- never used twice: chunk ids begin with it
    next_bnf       INTEGER NOT NULL,
    inodes         INTEGER NOT NULL, -- rows of inode, those without a name too
    chunks         INTEGER NOT NULL,
    slices         INTEGER NOT NULL
);

-- A file, directory, symbolic link, device, FIFO or socket.
CREATE TABLE inode (
    ino          INTEGER PRIMARY KEY, -- 1 is the root
    mode         INTEGER NOT NULL,    -- st_mode, type included
    nlink        INTEGER NOT NULL,    -- 0: unlinked, kept while a session holds it (see orphan)
    uid          INTEGER NOT NULL,
    gid          INTEGER NOT NULL,
    rdev         INTEGER NOT NULL,
    size         INTEGER NOT NULL,    -- directories: number of entries
    mapped       INTEGER NOT NULL,    -- bytes that slices cover
    atime        INTEGER NOT NULL,
    mtime        INTEGER NOT NULL,
    ctime        INTEGER NOT NULL,
    btime        INTEGER NOT NULL,
    chunk_size   INTEGER NOT NULL,    -- fixed once a file has data; of a directory: for what is made in it
    stripe       INTEGER NOT NULL,
    data_version INTEGER NOT NULL,    -- grows with every change of slices or size
    parent       INTEGER NOT NULL,    -- of a directory; of others: where the name was last seen (a hint)
    target       BLOB                 -- of a symbolic link
);

-- Names. The cookie is the position in readdir: given in order of creation, never changed, never used
-- again, so a position stays good whatever happens to other entries.
CREATE TABLE dirent (
    parent INTEGER NOT NULL,
    name   BLOB NOT NULL,
    ino    INTEGER NOT NULL,
    type   INTEGER NOT NULL,          -- mode >> 12
    cookie INTEGER NOT NULL,
    PRIMARY KEY (parent, name)
) WITHOUT ROWID;
-- Covers readdir without attributes: the primary key (name) is in it anyway.
CREATE INDEX dirent_cookie ON dirent (parent, cookie, ino, type);

CREATE TABLE xattr (
    ino   INTEGER NOT NULL,
    name  BLOB NOT NULL,
    value BLOB NOT NULL,
    PRIMARY KEY (ino, name)
) WITHOUT ROWID;

-- Inodes without a name that may be held open; emptied step by step when nobody holds them any more.
-- Here so that a restarted manager finds them without a scan.
CREATE TABLE orphan (
    ino  INTEGER PRIMARY KEY,
    gone INTEGER NOT NULL             -- 1: its slices are being removed, it can't be had back
);

-- Bytes [off, off+len) of window `win` of a file are bytes [chunk_off, chunk_off+len) of a chunk. The slices of a window
-- are disjoint. What no slice covers reads as zeros. A window is chunk_size bytes of the file.
CREATE TABLE slice (
    ino       INTEGER NOT NULL,
    win       INTEGER NOT NULL,
    off       INTEGER NOT NULL,
    len       INTEGER NOT NULL,
    chunk     INTEGER NOT NULL,
    chunk_off INTEGER NOT NULL,
    PRIMARY KEY (ino, win, off)
) WITHOUT ROWID;

-- Which files a chunk belongs to, when it is lost.
CREATE INDEX slice_chunk ON slice (chunk);

-- Chunks that slices refer to. refs = number of slices that name it; at 0 the row moves to garbage.
CREATE TABLE chunk (
    id     INTEGER PRIMARY KEY,       -- session << 32 | counter of the client
    len    INTEGER NOT NULL,          -- bytes of data
    stored INTEGER NOT NULL,          -- bytes it takes on the benefactor
    sum    INTEGER NOT NULL,          -- XXH3 over the block sums, as a signed integer
    refs   INTEGER NOT NULL,
    bnf    INTEGER NOT NULL
);
-- For the comparison with a benefactor's inventory.
CREATE INDEX chunk_bnf ON chunk (bnf);

-- Chunks to be deleted: the row goes when the benefactor has confirmed.
CREATE TABLE garbage (
    bnf    INTEGER NOT NULL,
    chunk  INTEGER NOT NULL,
    stored INTEGER NOT NULL,          -- 0: not known (found by an inventory)
    PRIMARY KEY (bnf, chunk)
) WITHOUT ROWID;

-- Benefactors that were ever part of the store. What changes by the second is in memory only.
CREATE TABLE benefactor (
    id            INTEGER PRIMARY KEY,
    uuid          BLOB NOT NULL UNIQUE,
    node          TEXT NOT NULL,
    addr          TEXT NOT NULL,
    local_path    TEXT NOT NULL,
    backend       TEXT NOT NULL,
    capacity      INTEGER NOT NULL,
    seen_ns       INTEGER NOT NULL,   -- last time it said hello
    chunks        INTEGER NOT NULL,   -- totals of the tables above, for this benefactor
    stored        INTEGER NOT NULL,
    garbage       INTEGER NOT NULL,
    garbage_bytes INTEGER NOT NULL
);

-- Mounts. A session outlives its connection, and a restart of the manager.
CREATE TABLE session (
    id         INTEGER PRIMARY KEY,
    node       TEXT NOT NULL,
    mountpoint TEXT NOT NULL,
    pid        INTEGER NOT NULL,
    software   TEXT NOT NULL,
    started_ns INTEGER NOT NULL
);

-- The last answer of each slot of a session, written with the change itself: a request that comes again
-- after a lost connection gets this answer and is not executed twice.
CREATE TABLE reply (
    session INTEGER NOT NULL,
    slot    INTEGER NOT NULL,
    seq     INTEGER NOT NULL,
    type    INTEGER NOT NULL,
    body    BLOB NOT NULL,            -- the reply message; only successes are kept
    PRIMARY KEY (session, slot)
) WITHOUT ROWID;

-- What is known to be lost or wrong, for fpctl status. Rows go when the chunk goes.
CREATE TABLE damage (
    chunk   INTEGER NOT NULL,
    ino     INTEGER NOT NULL,
    off     INTEGER NOT NULL,
    len     INTEGER NOT NULL,
    bnf     INTEGER NOT NULL,
    missing INTEGER NOT NULL,         -- 1: an inventory did not have it; 0: a reader found it wrong
    reason  TEXT NOT NULL,
    seen_ns INTEGER NOT NULL,
    PRIMARY KEY (chunk, ino, off)
) WITHOUT ROWID;
