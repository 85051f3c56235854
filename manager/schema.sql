-- The manager's database, DIR/store.db. It may be looked at with sqlite3 while the manager runs:
--     sqlite3 -readonly DIR/store.db 'SELECT * FROM benefactor'
-- Times are nanoseconds since the epoch, sizes and offsets bytes. Only fp-manager writes here, in one
-- transaction per batch of requests (manager/core.c). WITHOUT ROWID tables are one B-tree ordered by their
-- primary key: what is read together lies together, and a row costs no second key.
--
-- user_version of the database is the version of this schema; application_id is 'FPST'. An older database is
-- brought up to this version when it is opened: columns are added (db.c), and then this file is run, which makes
-- the tables that it lacks. It can't be opened by the older release afterwards. What a version added:
--     2  chunk.data, chunk.noted, note, note_key, hold, aux_table, aux_entry
--     3  session.machine, session.boot, session.mount_ns
--     4  bad_chunk
--     5  lock
--     6  inode.flags
--     7  chunk.round, bnf_sync, bnf_lost, inode.ckpt, ckpt_series, ckpt_set, version, version_win, given_up, overtaken, policy, target, tfile, ext, drained, drain_job, drain_file, drain_part
--     8  index xattr_convert
--     9  index inode_lost
--    10  index inode_torn

-- Values that exist once: 'store_uuid' (16 bytes), 'created_ns', 'chunk_size' and 'stripe' (defaults of the store);
-- 'behind:<session>' for each session that asks for leases of files (lease.c).
CREATE TABLE IF NOT EXISTS meta (
    key   TEXT PRIMARY KEY,
    value
) WITHOUT ROWID;

-- One row of counters, rewritten with every transaction that changes one. Totals live here because a
-- manager with a million files must be up at once: nothing is ever counted by a scan.
CREATE TABLE IF NOT EXISTS counters (
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
CREATE TABLE IF NOT EXISTS inode (
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
    target       BLOB,                -- of a symbolic link
    flags        INTEGER NOT NULL DEFAULT 0, -- MGR_STRICT and others (core_int.h); of a directory: for what is made in it
    ckpt         INTEGER NOT NULL DEFAULT 0  -- the checkpoint set that it is a member of
);
-- Members of a set.
CREATE INDEX IF NOT EXISTS inode_ckpt ON inode (ckpt) WHERE ckpt<>0;
-- MGR_LOST_CLOSE: what was closed of it is lost.
CREATE INDEX IF NOT EXISTS inode_lost ON inode (ino) WHERE flags&512<>0;
-- MGR_TORN_MARKS: members that tear their set; with their marks, so that none is looked up for these.
CREATE INDEX IF NOT EXISTS inode_torn ON inode (ckpt, ino, flags) WHERE ckpt<>0 AND flags&1568<>0;

-- Names. The cookie is the position in readdir: given in order of creation, never changed, never used
-- again, so a position stays good whatever happens to other entries.
CREATE TABLE IF NOT EXISTS dirent (
    parent INTEGER NOT NULL,
    name   BLOB NOT NULL,
    ino    INTEGER NOT NULL,
    type   INTEGER NOT NULL,          -- mode >> 12
    cookie INTEGER NOT NULL,
    PRIMARY KEY (parent, name)
) WITHOUT ROWID;
-- Covers readdir without attributes: the primary key (name) is in it anyway.
CREATE INDEX IF NOT EXISTS dirent_cookie ON dirent (parent, cookie, ino, type);

CREATE TABLE IF NOT EXISTS xattr (
    ino   INTEGER NOT NULL,
    name  BLOB NOT NULL,
    value BLOB NOT NULL,
    PRIMARY KEY (ino, name)
) WITHOUT ROWID;
-- Which conversions there are: user.fp.convert, as bytes.
CREATE INDEX IF NOT EXISTS xattr_convert ON xattr (ino) WHERE name=x'757365722e66702e636f6e76657274';

-- Inodes without a name that may be held open; emptied step by step when nobody holds them any more.
-- Here so that a restarted manager finds them without a scan.
CREATE TABLE IF NOT EXISTS orphan (
    ino  INTEGER PRIMARY KEY,
    gone INTEGER NOT NULL             -- 1: its slices are being removed, it can't be had back
);

-- Bytes [off, off+len) of window `win` of a file are bytes [chunk_off, chunk_off+len) of a chunk. The slices of a window
-- are disjoint. What no slice covers reads as zeros. A window is chunk_size bytes of the file.
CREATE TABLE IF NOT EXISTS slice (
    ino       INTEGER NOT NULL,
    win       INTEGER NOT NULL,
    off       INTEGER NOT NULL,
    len       INTEGER NOT NULL,
    chunk     INTEGER NOT NULL,
    chunk_off INTEGER NOT NULL,
    PRIMARY KEY (ino, win, off)
) WITHOUT ROWID;

-- Which files a chunk belongs to, when it is lost.
CREATE INDEX IF NOT EXISTS slice_chunk ON slice (chunk);

-- Chunks that slices refer to. refs = number of slices that name it, and of holds; at 0 the row moves to garbage.
CREATE TABLE IF NOT EXISTS chunk (
    id     INTEGER PRIMARY KEY,       -- session << 32 | counter of the client
    len    INTEGER NOT NULL,          -- bytes as stored: of data, or of the coded form with its envelope
    stored INTEGER NOT NULL,          -- bytes it takes on the benefactor
    sum    INTEGER NOT NULL,          -- XXH3 over the block sums, as a signed integer
    refs   INTEGER NOT NULL,
    bnf    INTEGER NOT NULL,          -- 0: lost; if there is a row in ext: it is in a target only
    data   INTEGER NOT NULL DEFAULT 0, -- coded: bytes of data, in which slices count; 0: not coded, len is
    noted  INTEGER NOT NULL DEFAULT 0, -- 1: there is a row in note
    round  INTEGER NOT NULL DEFAULT 0  -- bnf_sync.round when it was committed; -1: it may have been stored before that benefactor lost data
);
-- For the comparison with a benefactor's inventory.
CREATE INDEX IF NOT EXISTS chunk_bnf ON chunk (bnf);

-- What an aux-app noted about a chunk. Gone with the chunk.
CREATE TABLE IF NOT EXISTS note (
    chunk INTEGER PRIMARY KEY,
    note  BLOB NOT NULL,
    keys  BLOB NOT NULL               -- its rows in note_key: 8 bytes each, little-endian
);

-- By which keys the note of a chunk is found.
CREATE TABLE IF NOT EXISTS note_key (
    key   INTEGER NOT NULL,           -- 64 bits of an aux-app, as a signed integer
    chunk INTEGER NOT NULL,
    PRIMARY KEY (key, chunk)
) WITHOUT ROWID;

-- Chunks that a session may still refer to: each row is one of the chunk's refs.
CREATE TABLE IF NOT EXISTS hold (
    session INTEGER NOT NULL,
    chunk   INTEGER NOT NULL,
    PRIMARY KEY (session, chunk)
) WITHOUT ROWID;
-- What of a chunk's refs are holds (fpctl stat).
CREATE INDEX IF NOT EXISTS hold_chunk ON hold (chunk);

-- Tables of aux-apps, one per name, and their entries.
CREATE TABLE IF NOT EXISTS aux_table (
    id      INTEGER PRIMARY KEY,
    app     TEXT NOT NULL UNIQUE,
    entries INTEGER NOT NULL,
    bytes   INTEGER NOT NULL          -- of keys and values
);
CREATE TABLE IF NOT EXISTS aux_entry (
    app   INTEGER NOT NULL,           -- id of aux_table
    key   BLOB NOT NULL,
    value BLOB NOT NULL,
    PRIMARY KEY (app, key)
) WITHOUT ROWID;

-- Chunks to be deleted: the row goes when the benefactor has confirmed.
CREATE TABLE IF NOT EXISTS garbage (
    bnf    INTEGER NOT NULL,
    chunk  INTEGER NOT NULL,
    stored INTEGER NOT NULL,          -- 0: not known (found by an inventory)
    PRIMARY KEY (bnf, chunk)
) WITHOUT ROWID;

-- Benefactors that were ever part of the store. What changes by the second is in memory only.
CREATE TABLE IF NOT EXISTS benefactor (
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

-- What of a benefactor's chunks is on its device (rounds.c): those of rounds below `synced`, but for the ranges in bnf_lost.
CREATE TABLE IF NOT EXISTS bnf_sync (
    bnf     INTEGER PRIMARY KEY,
    life    INTEGER NOT NULL,         -- BnfInfo.unsynced_life as last heard, as a signed integer
    round   INTEGER NOT NULL,         -- that new chunks get
    synced  INTEGER NOT NULL,
    last    INTEGER NOT NULL,         -- the highest that a chunk has got
    session INTEGER NOT NULL,         -- when the life changed last: numbers of sessions and inodes from then on
    ino     INTEGER NOT NULL
);
-- Rounds of which chunks were not synced when the life of their benefactor changed: they may be damaged.
CREATE TABLE IF NOT EXISTS bnf_lost (
    bnf   INTEGER NOT NULL,
    first INTEGER NOT NULL,
    last  INTEGER NOT NULL,
    PRIMARY KEY (bnf, first)
) WITHOUT ROWID;

-- Mounts. A session outlives its connection, and a restart of the manager.
CREATE TABLE IF NOT EXISTS session (
    id         INTEGER PRIMARY KEY,
    node       TEXT NOT NULL,
    mountpoint TEXT NOT NULL,
    pid        INTEGER NOT NULL,
    software   TEXT NOT NULL,
    started_ns INTEGER NOT NULL,
    machine    INTEGER NOT NULL DEFAULT 0, -- where its process runs: Hello.place
    boot       INTEGER NOT NULL DEFAULT 0,
    mount_ns   INTEGER NOT NULL DEFAULT 0
);

-- The last answer of each slot of a session, written with the change itself: a request that comes again
-- after a lost connection gets this answer and is not executed twice.
CREATE TABLE IF NOT EXISTS reply (
    session INTEGER NOT NULL,
    slot    INTEGER NOT NULL,
    seq     INTEGER NOT NULL,
    type    INTEGER NOT NULL,
    body    BLOB NOT NULL,            -- the reply message; only successes are kept
    PRIMARY KEY (session, slot)
) WITHOUT ROWID;

-- Chunks known to be lost or wrong: nobody may refer to them anew. All of them, with or without a file, and however many;
-- a store that is well has no row. A row goes with its chunk, or when an inventory has a missing one again.
CREATE TABLE IF NOT EXISTS bad_chunk (
    chunk   INTEGER PRIMARY KEY,
    missing INTEGER NOT NULL,         -- 1: an inventory did not have it; 0: a reader found it wrong; 2: it is in a target, in a file that has not been looked at since
    bnf     INTEGER NOT NULL DEFAULT 0 -- what this benefactor has of it was read wrong; 0: of none that is known
);

-- Where in files the data of these chunks is, for fpctl status: not of all, if there are very many. Rows go when that of
-- bad_chunk goes.
CREATE TABLE IF NOT EXISTS damage (
    chunk   INTEGER NOT NULL,
    ino     INTEGER NOT NULL,
    off     INTEGER NOT NULL,
    len     INTEGER NOT NULL,
    bnf     INTEGER NOT NULL,
    missing INTEGER NOT NULL,         -- as in bad_chunk
    reason  TEXT NOT NULL,
    seen_ns INTEGER NOT NULL,
    PRIMARY KEY (chunk, ino, off)
) WITHOUT ROWID;

-- Ranges of files that are locked. Those of one owner are disjoint. Here so that they outlast a restart of the manager;
-- who waits for one asks again.
CREATE TABLE IF NOT EXISTS lock (
    ino       INTEGER NOT NULL,
    kind      INTEGER NOT NULL,       -- 0: fcntl, 1: flock, 2: the right to append
    session   INTEGER NOT NULL,
    owner     INTEGER NOT NULL,       -- as its mount names it, as a signed integer
    start     INTEGER NOT NULL,
    last      INTEGER NOT NULL,       -- the last byte; 2^63 - 1: to the end, wherever that is
    exclusive INTEGER NOT NULL,
    pid       INTEGER NOT NULL,       -- of the process, on its node
    PRIMARY KEY (ino, kind, session, owner, start)
) WITHOUT ROWID;

-- ---------------------------------------------------------------- the life of a checkpoint

-- Directory and names in which a number grows from one checkpoint to the next.
CREATE TABLE IF NOT EXISTS ckpt_series (
    id       INTEGER PRIMARY KEY,
    parent   INTEGER NOT NULL,        -- directory in which the component with the number lies
    template BLOB NOT NULL,           -- that component, the number as '#' (stepname.c)
    seq      INTEGER NOT NULL,        -- sets that have become complete so far
    files    INTEGER NOT NULL,        -- of the newest complete set
    policy   INTEGER NOT NULL,        -- that drains it; 0: none
    UNIQUE (parent, template)
);

-- The files of one time step.
CREATE TABLE IF NOT EXISTS ckpt_set (
    id           INTEGER PRIMARY KEY,
    series       INTEGER NOT NULL,
    step         INTEGER NOT NULL,
    top          INTEGER NOT NULL,    -- inode of the directory that is the set; 0: its files lie side by side
    gen          INTEGER NOT NULL,    -- one more each time that it is open again
    state        INTEGER NOT NULL,    -- 1 open, 2 complete, 3 torn, 4 forgotten
    how          INTEGER NOT NULL,    -- found by 1 pattern, 2 word, 3 growth, 4 telling, 5 being the result of a conversion
    told         INTEGER NOT NULL,    -- 1: somebody said that it is complete
    began_ns     INTEGER NOT NULL,
    complete_ns  INTEGER NOT NULL,
    seq          INTEGER NOT NULL,    -- its number in the series, since it was complete; 0: not yet, or it is being written anew
    files        INTEGER NOT NULL,    -- these two as of complete_ns
    bytes        INTEGER NOT NULL,
    files_before INTEGER NOT NULL DEFAULT 0, -- files of those before it, if it has fewer and nobody said that it is complete (sethalf.c); 0: not so
    UNIQUE (series, step)
);
CREATE INDEX IF NOT EXISTS ckpt_set_top ON ckpt_set (top) WHERE top<>0;
-- At start.
CREATE INDEX IF NOT EXISTS ckpt_set_open ON ckpt_set (state) WHERE state=1;

-- Versions of a file that are not the present one.
CREATE TABLE IF NOT EXISTS version (
    ino          INTEGER NOT NULL,
    n            INTEGER NOT NULL,    -- grows, never used again for this inode
    shadow       INTEGER NOT NULL UNIQUE, -- inode without a name that has its slices, size, times, mode and owner
    kind         INTEGER NOT NULL,    -- 1: the windows in version_win, the rest is in the next newer one; 2: full; 3: full, and renamed over
    state        INTEGER NOT NULL,    -- 1 guard, 2 waits for the level of what came after it, 4 torn (given up), 5 being put back, 7 guard and one of several writers has synced, 8 guard of a torn file, 9 guard and a program that wrote was killed, 10 likewise and nobody writes, 11 waits and is put back after the one that is being put back
    writer       INTEGER NOT NULL,    -- session that made the first change it guards against; 0: several
    torn_session INTEGER NOT NULL,    -- guard of a torn file: the highest session number then; 0: not torn
    cursor       INTEGER NOT NULL,    -- state 5: windows below are done; 9 and 10: session of the mount of that program
    PRIMARY KEY (ino, n)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS version_win (
    shadow INTEGER NOT NULL,
    win    INTEGER NOT NULL,
    PRIMARY KEY (shadow, win)
) WITHOUT ROWID;
-- Of files that were rewritten, and not to the end since: the version before, if it was given up for want of space.
CREATE TABLE IF NOT EXISTS given_up (
    ino   INTEGER PRIMARY KEY,
    n     INTEGER NOT NULL,
    size  INTEGER NOT NULL,
    mtime INTEGER NOT NULL,
    at_ns INTEGER NOT NULL
);
-- Sessions whose unpublished data of a file must not reach it any more: it was put back.
CREATE TABLE IF NOT EXISTS overtaken (
    session INTEGER NOT NULL,
    ino     INTEGER NOT NULL,
    PRIMARY KEY (session, ino)
) WITHOUT ROWID;

-- What is drained, where and how (common/drainopt.c); kept by its text, so that all mounts of a job make one row.
CREATE TABLE IF NOT EXISTS policy (
    id      INTEGER PRIMARY KEY,
    text    TEXT NOT NULL UNIQUE,
    made_ns INTEGER NOT NULL,
    mount   INTEGER NOT NULL,         -- 1: made by mounts; of these there is one for each target
    seen    INTEGER NOT NULL,         -- sets that have become complete since
    taken   INTEGER NOT NULL,         -- of these, chosen
    every   INTEGER NOT NULL DEFAULT 0,     -- what every=auto has chosen; 0: nothing yet
    load_ms INTEGER NOT NULL DEFAULT 0,     -- how often sets come (struct mgr_load)
    load_bytes  INTEGER NOT NULL DEFAULT 0,
    load_weight INTEGER NOT NULL DEFAULT 0,
    load_ns INTEGER NOT NULL DEFAULT 0
);
-- Sets that policies with every=auto have chosen, by their numbers in their series; the last ones.
CREATE TABLE IF NOT EXISTS drain_taken (
    series INTEGER NOT NULL,
    policy INTEGER NOT NULL,
    seq    INTEGER NOT NULL,
    PRIMARY KEY (series, policy, seq)
) WITHOUT ROWID;
-- Files whose data, or name, has changed since a policy with results= or all= was there, and that it has not been looked at since they were left alone.
CREATE TABLE IF NOT EXISTS drain_due (
    ino INTEGER PRIMARY KEY
);
-- Directories of file systems that are not ours.
CREATE TABLE IF NOT EXISTS target (
    id   INTEGER PRIMARY KEY,
    root TEXT NOT NULL UNIQUE,
    uuid BLOB NOT NULL,               -- as in ROOT/.fp-target; empty: not seen yet; "unmarked…": there is none, since nothing can be written there
    needs INTEGER NOT NULL DEFAULT 0  -- number by which it is said there that files of it are relied on (needs.c); 0: none is
);
-- A file (or log) in a target that external chunks or levels refer to.
CREATE TABLE IF NOT EXISTS tfile (
    id      INTEGER PRIMARY KEY,
    target  INTEGER NOT NULL,
    path    BLOB NOT NULL,
    dev     INTEGER NOT NULL,
    tino    INTEGER NOT NULL,
    size    INTEGER NOT NULL,
    mtime   INTEGER NOT NULL,
    refs    INTEGER NOT NULL,         -- rows of ext and drained that name it
    gone    INTEGER NOT NULL          -- 1: it was not; 2: it has other bytes than were drained
);
-- Who is at a place where a file is to be renamed to.
CREATE INDEX IF NOT EXISTS tfile_path ON tfile (target, path);
-- Chunks of which the bytes are in a target. One that has no benefactor (chunk.bnf = 0) is there only, its chunk.stored is 0.
CREATE TABLE IF NOT EXISTS ext (
    chunk INTEGER PRIMARY KEY,
    tfile INTEGER NOT NULL,
    off   INTEGER NOT NULL
);
CREATE INDEX IF NOT EXISTS ext_tfile ON ext (tfile);
-- Windows that have lost some of their data here, and are had from a file of a target as a whole when that has been looked at (rescue_win.c).
CREATE TABLE IF NOT EXISTS rescue_win (
    ino   INTEGER NOT NULL,
    win   INTEGER NOT NULL,
    tfile INTEGER NOT NULL,
    PRIMARY KEY (ino, win)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS rescue_win_tfile ON rescue_win (tfile);
-- The copy of a file in each target to which it was drained.
CREATE TABLE IF NOT EXISTS drained (
    ino          INTEGER NOT NULL,
    target       INTEGER NOT NULL,
    tfile        INTEGER NOT NULL,
    data_version INTEGER NOT NULL,    -- of the data that it has: of an earlier one it says nothing
    verified     INTEGER NOT NULL,
    at_ns        INTEGER NOT NULL,
    sums         BLOB NOT NULL,       -- chunk sum of each window, 8 bytes, little-endian
    PRIMARY KEY (ino, target)
);
-- What gives way first.
CREATE INDEX IF NOT EXISTS drained_at ON drained (at_ns, ino);
CREATE TABLE IF NOT EXISTS drain_job (
    id         INTEGER PRIMARY KEY,
    kind       INTEGER NOT NULL,      -- JobKind of life.proto
    policy     INTEGER NOT NULL,
    target     INTEGER NOT NULL,
    ckpt       INTEGER NOT NULL,      -- JOB_SET: the set, and its gen; JOB_FILES: 0, and how many paths it was given; JOB_STAGE_IN: the job that is to drain it
    gen        INTEGER NOT NULL,
    dest       BLOB NOT NULL,         -- directory, from the target's root
    urgent     INTEGER NOT NULL,
    verify     INTEGER NOT NULL,
    state      INTEGER NOT NULL,      -- DrainState of life.proto
    files      INTEGER NOT NULL,
    bytes      INTEGER NOT NULL,
    files_done INTEGER NOT NULL,
    bytes_done INTEGER NOT NULL,
    made_ns    INTEGER NOT NULL,
    done_ns    INTEGER NOT NULL,
    error      INTEGER NOT NULL,
    why        TEXT NOT NULL,
    first      INTEGER NOT NULL,      -- drain_file with which it began
    layout     INTEGER NOT NULL,      -- of its files in the target: 0 files, 1 logs
    overwrite  INTEGER NOT NULL DEFAULT 0, -- 1: also what other stores need there is replaced
    again      INTEGER NOT NULL DEFAULT 0, -- 1: also what is there already is copied
    replaced   INTEGER NOT NULL DEFAULT 0 -- files that another store had drained, and that have given way
);
CREATE TABLE IF NOT EXISTS drain_file (
    id           INTEGER PRIMARY KEY,
    job          INTEGER NOT NULL,
    ino          INTEGER NOT NULL,
    path         BLOB NOT NULL,
    gen          INTEGER NOT NULL,    -- attempt; never used twice
    kind         INTEGER NOT NULL,    -- 0 regular file, 1 directory (or the members of a set), 2 symbolic link
    state        INTEGER NOT NULL,    -- 1 wait, 2 prepare, 3 parts, 4 finish, 5 verify, 6 done, 7 failed, 8 cancelled, 9 directory that is made, 10 left out, by error (enum mgr_left); of a job that evicts: stays here, as why says
    data_version INTEGER NOT NULL,    -- of a log that is merged: sum of its index
    size         INTEGER NOT NULL,
    lead         INTEGER NOT NULL,    -- benefactor that makes and renames it
    tfile        INTEGER NOT NULL,
    dev          INTEGER NOT NULL,    -- of a log that is merged: its records
    tino         INTEGER NOT NULL,    -- of the temporary file
    tries        INTEGER NOT NULL,
    error        INTEGER NOT NULL,
    why          TEXT NOT NULL,
    parent       INTEGER NOT NULL DEFAULT 0, -- staged in from others: directory of the store that it is to be in; ino: its inode, path: from the target's root. A log that is merged: 1 if what is there is replaced
    after        BLOB NOT NULL DEFAULT x''   -- likewise, of a directory: the last name in it that has a row. Of a log: the file that it becomes, from the target's root
);
CREATE INDEX IF NOT EXISTS drain_file_job ON drain_file (job, state);
CREATE INDEX IF NOT EXISTS drain_file_ino ON drain_file (ino);
CREATE TABLE IF NOT EXISTS drain_part (
    file  INTEGER NOT NULL,
    first INTEGER NOT NULL,           -- window. Of a log that is merged: record; to be compared: record, counted on from the last one
    bnf   INTEGER NOT NULL,
    count INTEGER NOT NULL,           -- windows from first on, of which those of this benefactor
    gen   INTEGER NOT NULL,
    state INTEGER NOT NULL,           -- 1 todo, 2 given, 3 done, 4 verified
    bytes INTEGER NOT NULL,
    sums  BLOB,
    ids   INTEGER NOT NULL DEFAULT 0, -- staged in from others: number of the chunk of its first window, the others follow
    PRIMARY KEY (file, first, bnf)
) WITHOUT ROWID;
-- What is under way of it.
CREATE INDEX IF NOT EXISTS drain_part_ids ON drain_part (ids) WHERE ids<>0 AND state=1;
CREATE INDEX IF NOT EXISTS drain_part_bnf ON drain_part (bnf, state);
