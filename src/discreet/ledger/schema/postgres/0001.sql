-- As sqlite/0001.sql, in PostgreSQL's words. Amounts are whole numbers: divergence in 1e-15, epsilon in 1e-9, failure
-- probability in 1e-18; 4611686018427387903 is 2^62 - 1, so that the sum of two amounts always fits 64 bits.

CREATE TABLE discreet.entry (
    number   BIGINT PRIMARY KEY CHECK (number >= 1),
    at       TEXT NOT NULL,
    kind     TEXT NOT NULL CHECK (kind IN ('open', 'share', 'reserve', 'settle', 'cancel', 'refuse', 'raise', 'renew')),
    source   TEXT NOT NULL,
    about    BIGINT REFERENCES discreet.entry (number),
    body     TEXT NOT NULL,
    previous TEXT NOT NULL,
    hash     TEXT NOT NULL
);

-- A reservation ends once: settled or cancelled, never both, never twice.
CREATE UNIQUE INDEX entry_ends_once ON discreet.entry (about) WHERE kind IN ('settle', 'cancel');

CREATE TABLE discreet.head (
    single INTEGER PRIMARY KEY CHECK (single = 1),
    number BIGINT NOT NULL,
    hash   TEXT NOT NULL
);

INSERT INTO discreet.head (single, number, hash) VALUES (1, 0, '');

CREATE FUNCTION discreet.entry_is_never_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'an entry is never changed or removed' USING ERRCODE = 'integrity_constraint_violation';
END $$;

CREATE TRIGGER entry_is_never_changed BEFORE UPDATE OR DELETE OR TRUNCATE ON discreet.entry
FOR EACH STATEMENT EXECUTE FUNCTION discreet.entry_is_never_changed();

CREATE FUNCTION discreet.entry_follows_the_last() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE discreet.head SET number = NEW.number, hash = NEW.hash WHERE number = NEW.number - 1 AND hash = NEW.previous;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'an entry follows the last one' USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER entry_follows_the_last BEFORE INSERT ON discreet.entry
FOR EACH ROW EXECUTE FUNCTION discreet.entry_follows_the_last();

CREATE TABLE discreet.source (
    name             TEXT PRIMARY KEY,
    unit             TEXT NOT NULL,
    fingerprint      TEXT UNIQUE,
    epsilon          DOUBLE PRECISION NOT NULL,
    delta            DOUBLE PRECISION NOT NULL,
    failure          DOUBLE PRECISION NOT NULL,
    renyi_order      DOUBLE PRECISION NOT NULL,
    by_period        INTEGER NOT NULL CHECK (by_period IN (0, 1)), -- 1: it has no budget itself, each of its periods has
    divergence_limit BIGINT NOT NULL CHECK (divergence_limit BETWEEN 0 AND 4611686018427387903),
    divergence_spent BIGINT NOT NULL CHECK (divergence_spent BETWEEN 0 AND 4611686018427387903),
    epsilon_limit    BIGINT NOT NULL CHECK (epsilon_limit BETWEEN 0 AND 4611686018427387903),
    epsilon_spent    BIGINT NOT NULL CHECK (epsilon_spent BETWEEN 0 AND 4611686018427387903),
    failure_limit    BIGINT NOT NULL CHECK (failure_limit BETWEEN 0 AND 4611686018427387903),
    failure_spent    BIGINT NOT NULL CHECK (failure_spent BETWEEN 0 AND failure_limit),
    CHECK (divergence_spent <= divergence_limit OR epsilon_spent <= epsilon_limit)
);

CREATE TABLE discreet.account (
    source           TEXT NOT NULL REFERENCES discreet.source (name),
    name             TEXT NOT NULL,
    divergence_limit BIGINT NOT NULL CHECK (divergence_limit BETWEEN 0 AND 4611686018427387903),
    divergence_spent BIGINT NOT NULL CHECK (divergence_spent BETWEEN 0 AND 4611686018427387903),
    epsilon_limit    BIGINT NOT NULL CHECK (epsilon_limit BETWEEN 0 AND 4611686018427387903),
    epsilon_spent    BIGINT NOT NULL CHECK (epsilon_spent BETWEEN 0 AND 4611686018427387903),
    failure_limit    BIGINT NOT NULL CHECK (failure_limit BETWEEN 0 AND 4611686018427387903),
    failure_spent    BIGINT NOT NULL CHECK (failure_spent BETWEEN 0 AND failure_limit),
    CHECK (divergence_spent <= divergence_limit OR epsilon_spent <= epsilon_limit),
    PRIMARY KEY (source, name)
);

CREATE FUNCTION discreet.shares_fit() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (
        SELECT 1 FROM discreet.source WHERE name = NEW.source AND (
            divergence_limit < (SELECT sum(divergence_limit) FROM discreet.account WHERE source = NEW.source)
            OR epsilon_limit < (SELECT sum(epsilon_limit) FROM discreet.account WHERE source = NEW.source)
            OR failure_limit < (SELECT sum(failure_limit) FROM discreet.account WHERE source = NEW.source)))
    THEN
        RAISE EXCEPTION 'shares never exceed the budget of their source' USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER shares_fit AFTER INSERT OR UPDATE OF divergence_limit, epsilon_limit, failure_limit ON discreet.account
FOR EACH ROW EXECUTE FUNCTION discreet.shares_fit();

-- The first settled answer to a question, to be given again free.
CREATE TABLE discreet.answer (
    source TEXT NOT NULL,
    key    TEXT NOT NULL,
    entry  BIGINT NOT NULL REFERENCES discreet.entry (number),
    PRIMARY KEY (source, key)
);
