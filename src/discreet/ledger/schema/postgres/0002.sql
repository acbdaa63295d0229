-- As sqlite/0002.sql, in PostgreSQL's words: charges that were asked for as an (epsilon, delta) pair.

CREATE TABLE discreet.asked (
    entry       BIGINT PRIMARY KEY REFERENCES discreet.entry (number),
    source      TEXT NOT NULL,
    account     TEXT NOT NULL,
    epsilon     BIGINT NOT NULL CHECK (epsilon BETWEEN 0 AND 4611686018427387903),
    delta       BIGINT NOT NULL CHECK (delta BETWEEN 0 AND 4611686018427387903),
    own_epsilon BIGINT NOT NULL CHECK (own_epsilon BETWEEN 0 AND 4611686018427387903),
    own_failure BIGINT NOT NULL CHECK (own_failure BETWEEN 0 AND 4611686018427387903)
);

CREATE INDEX asked_of_source ON discreet.asked (source);

CREATE FUNCTION discreet.asked_is_never_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'what was asked for is never changed or removed' USING ERRCODE = 'integrity_constraint_violation';
END $$;

CREATE TRIGGER asked_is_never_changed BEFORE UPDATE OR DELETE OR TRUNCATE ON discreet.asked
FOR EACH STATEMENT EXECUTE FUNCTION discreet.asked_is_never_changed();
