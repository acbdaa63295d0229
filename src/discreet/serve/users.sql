CREATE TABLE IF NOT EXISTS person (
    name TEXT PRIMARY KEY,
    role TEXT NOT NULL CHECK (role IN ('owner', 'analyst', 'officer')),
    account TEXT NOT NULL,                 -- what they spend from, in every source that has such an account
    password TEXT,                         -- argon2id, with its own salt; NULL until the link was followed
    made TEXT NOT NULL,
    active INTEGER NOT NULL DEFAULT 1
);
CREATE TABLE IF NOT EXISTS link (          -- one-time: chooses a password
    hash TEXT PRIMARY KEY,
    person TEXT,                           -- NULL: the first owner, who says a name
    ends REAL NOT NULL
);
CREATE TABLE IF NOT EXISTS visit (         -- of a browser that logged in
    hash TEXT PRIMARY KEY,
    person TEXT NOT NULL,
    proof TEXT NOT NULL,                   -- every form must bring it
    began REAL NOT NULL,
    seen REAL NOT NULL
);
CREATE TABLE IF NOT EXISTS token (         -- of a program
    hash TEXT PRIMARY KEY,
    number INTEGER NOT NULL,
    person TEXT NOT NULL,
    label TEXT NOT NULL,
    made TEXT NOT NULL,
    ends REAL
);
CREATE TABLE IF NOT EXISTS log (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    at TEXT NOT NULL,
    who TEXT NOT NULL,
    what TEXT NOT NULL,
    about TEXT NOT NULL,
    detail TEXT NOT NULL
);
CREATE TRIGGER IF NOT EXISTS log_stays BEFORE UPDATE ON log BEGIN SELECT RAISE(ABORT, 'the log is only added to'); END;
CREATE TRIGGER IF NOT EXISTS log_is_kept BEFORE DELETE ON log BEGIN SELECT RAISE(ABORT, 'the log is only added to'); END;
