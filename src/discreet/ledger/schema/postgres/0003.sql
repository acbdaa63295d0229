-- As sqlite/0003.sql, in PostgreSQL's words.

CREATE TABLE discreet.started (
    entry BIGINT PRIMARY KEY REFERENCES discreet.entry (number)
);

INSERT INTO discreet.started (entry)
SELECT number FROM discreet.entry AS began WHERE kind = 'reserve'
AND NOT EXISTS (SELECT 1 FROM discreet.entry WHERE about = began.number AND kind IN ('settle', 'cancel'));

CREATE FUNCTION discreet.start_is_never_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'a start is never changed or removed' USING ERRCODE = 'integrity_constraint_violation';
END $$;

CREATE TRIGGER start_is_never_changed BEFORE UPDATE OR DELETE OR TRUNCATE ON discreet.started
FOR EACH STATEMENT EXECUTE FUNCTION discreet.start_is_never_changed();

CREATE FUNCTION discreet.start_comes_before_the_end() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT 1 FROM discreet.entry WHERE number = NEW.entry AND kind = 'reserve')
        OR EXISTS (SELECT 1 FROM discreet.entry WHERE about = NEW.entry AND kind IN ('settle', 'cancel'))
    THEN
        RAISE EXCEPTION 'only a reservation that has not ended can start' USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER start_comes_before_the_end BEFORE INSERT ON discreet.started
FOR EACH ROW EXECUTE FUNCTION discreet.start_comes_before_the_end();

CREATE FUNCTION discreet.started_is_never_cancelled() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT 1 FROM discreet.started WHERE entry = NEW.about) THEN
        RAISE EXCEPTION 'what started is never cancelled' USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER started_is_never_cancelled BEFORE INSERT ON discreet.entry
FOR EACH ROW WHEN (NEW.kind = 'cancel') EXECUTE FUNCTION discreet.started_is_never_cancelled();
