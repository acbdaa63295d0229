-- Amounts are whole numbers: divergence in 1e-15, epsilon in 1e-9, failure probability in 1e-18. 4611686018427387903 is
-- 2^62 - 1, so that the sum of two amounts always fits 64 bits. Of the sums of divergences and of epsilons one may pass its
-- limit as long as the other has not: docs/theory/accounting-filter.md.

CREATE TABLE entry (
    number   INTEGER PRIMARY KEY CHECK (number >= 1),
    at       TEXT NOT NULL,
    kind     TEXT NOT NULL CHECK (kind IN ('open', 'share', 'reserve', 'settle', 'cancel', 'refuse', 'raise', 'renew')),
    source   TEXT NOT NULL,
    about    INTEGER REFERENCES entry (number),
    body     TEXT NOT NULL,
    previous TEXT NOT NULL,
    hash     TEXT NOT NULL
) STRICT;

-- A reservation ends once: settled or cancelled, never both, never twice.
CREATE UNIQUE INDEX entry_ends_once ON entry (about) WHERE kind IN ('settle', 'cancel');

CREATE TABLE head (
    only   INTEGER PRIMARY KEY CHECK (only = 1),
    number INTEGER NOT NULL,
    hash   TEXT NOT NULL
) STRICT;

INSERT INTO head (only, number, hash) VALUES (1, 0, '');

CREATE TRIGGER entry_is_never_changed BEFORE UPDATE ON entry
BEGIN SELECT RAISE (ABORT, 'an entry is never changed'); END;

CREATE TRIGGER entry_is_never_removed BEFORE DELETE ON entry
BEGIN SELECT RAISE (ABORT, 'an entry is never removed'); END;

CREATE TRIGGER entry_follows_the_last BEFORE INSERT ON entry
WHEN NOT EXISTS (SELECT 1 FROM head WHERE number = NEW.number - 1 AND hash = NEW.previous)
BEGIN SELECT RAISE (ABORT, 'an entry follows the last one'); END;

CREATE TRIGGER entry_becomes_the_last AFTER INSERT ON entry
BEGIN UPDATE head SET number = NEW.number, hash = NEW.hash WHERE only = 1; END;

CREATE TABLE source (
    name             TEXT PRIMARY KEY,
    unit             TEXT NOT NULL,
    fingerprint      TEXT UNIQUE,
    epsilon          REAL NOT NULL,
    delta            REAL NOT NULL,
    failure          REAL NOT NULL,
    renyi_order      REAL NOT NULL,
    by_period        INTEGER NOT NULL CHECK (by_period IN (0, 1)), -- 1: it has no budget itself, each of its periods has
    divergence_limit INTEGER NOT NULL CHECK (divergence_limit BETWEEN 0 AND 4611686018427387903),
    divergence_spent INTEGER NOT NULL CHECK (divergence_spent BETWEEN 0 AND 4611686018427387903),
    epsilon_limit    INTEGER NOT NULL CHECK (epsilon_limit BETWEEN 0 AND 4611686018427387903),
    epsilon_spent    INTEGER NOT NULL CHECK (epsilon_spent BETWEEN 0 AND 4611686018427387903),
    failure_limit    INTEGER NOT NULL CHECK (failure_limit BETWEEN 0 AND 4611686018427387903),
    failure_spent    INTEGER NOT NULL CHECK (failure_spent BETWEEN 0 AND failure_limit),
    CHECK (divergence_spent <= divergence_limit OR epsilon_spent <= epsilon_limit)
) STRICT;

CREATE TABLE account (
    source           TEXT NOT NULL REFERENCES source (name),
    name             TEXT NOT NULL,
    divergence_limit INTEGER NOT NULL CHECK (divergence_limit BETWEEN 0 AND 4611686018427387903),
    divergence_spent INTEGER NOT NULL CHECK (divergence_spent BETWEEN 0 AND 4611686018427387903),
    epsilon_limit    INTEGER NOT NULL CHECK (epsilon_limit BETWEEN 0 AND 4611686018427387903),
    epsilon_spent    INTEGER NOT NULL CHECK (epsilon_spent BETWEEN 0 AND 4611686018427387903),
    failure_limit    INTEGER NOT NULL CHECK (failure_limit BETWEEN 0 AND 4611686018427387903),
    failure_spent    INTEGER NOT NULL CHECK (failure_spent BETWEEN 0 AND failure_limit),
    CHECK (divergence_spent <= divergence_limit OR epsilon_spent <= epsilon_limit),
    PRIMARY KEY (source, name)
) STRICT;

CREATE TRIGGER shares_fit_when_given AFTER INSERT ON account
WHEN EXISTS (
    SELECT 1 FROM source WHERE name = NEW.source AND (
        divergence_limit < (SELECT sum(divergence_limit) FROM account WHERE source = NEW.source)
        OR epsilon_limit < (SELECT sum(epsilon_limit) FROM account WHERE source = NEW.source)
        OR failure_limit < (SELECT sum(failure_limit) FROM account WHERE source = NEW.source)))
BEGIN SELECT RAISE (ABORT, 'shares never exceed the budget of their source'); END;

CREATE TRIGGER shares_fit_when_moved AFTER UPDATE OF divergence_limit, epsilon_limit, failure_limit ON account
WHEN EXISTS (
    SELECT 1 FROM source WHERE name = NEW.source AND (
        divergence_limit < (SELECT sum(divergence_limit) FROM account WHERE source = NEW.source)
        OR epsilon_limit < (SELECT sum(epsilon_limit) FROM account WHERE source = NEW.source)
        OR failure_limit < (SELECT sum(failure_limit) FROM account WHERE source = NEW.source)))
BEGIN SELECT RAISE (ABORT, 'shares never exceed the budget of their source'); END;

-- The first settled answer to a question, to be given again free.
CREATE TABLE answer (
    source TEXT NOT NULL,
    key    TEXT NOT NULL,
    entry  INTEGER NOT NULL REFERENCES entry (number),
    PRIMARY KEY (source, key)
) STRICT;
