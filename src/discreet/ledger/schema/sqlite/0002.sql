-- Charges that were asked for as an (epsilon, delta) pair: epsilon in 1e-9, delta in 1e-18. `own_epsilon` and `own_failure` are what
-- their amounts add to the plain sums of their source, so that a total of pairs is those sums, less these, and the pairs instead.
-- 4611686018427387903 is 2^62 - 1.

CREATE TABLE asked (
    entry       INTEGER PRIMARY KEY REFERENCES entry (number),
    source      TEXT NOT NULL,
    account     TEXT NOT NULL,
    epsilon     INTEGER NOT NULL CHECK (epsilon BETWEEN 0 AND 4611686018427387903),
    delta       INTEGER NOT NULL CHECK (delta BETWEEN 0 AND 4611686018427387903),
    own_epsilon INTEGER NOT NULL CHECK (own_epsilon BETWEEN 0 AND 4611686018427387903),
    own_failure INTEGER NOT NULL CHECK (own_failure BETWEEN 0 AND 4611686018427387903)
) STRICT;

CREATE INDEX asked_of_source ON asked (source);

CREATE TRIGGER asked_is_never_changed BEFORE UPDATE ON asked
BEGIN SELECT RAISE (ABORT, 'what was asked for is never changed'); END;

CREATE TRIGGER asked_is_never_removed BEFORE DELETE ON asked
BEGIN SELECT RAISE (ABORT, 'what was asked for is never removed'); END;
