-- A charge goes one way: reserved, then started, then settled; or reserved, then cancelled. A row here says that rows may have
-- been read, so nothing can be given back any more. `place` grows with every start, for the one who syncs.

CREATE TABLE started (
    place INTEGER PRIMARY KEY,
    entry INTEGER NOT NULL UNIQUE REFERENCES entry (number)
) STRICT;

-- Nothing noted so far which of the open reservations had begun: each of them may have.
INSERT INTO started (entry)
SELECT number FROM entry AS began WHERE kind = 'reserve'
AND NOT EXISTS (SELECT 1 FROM entry WHERE about = began.number AND kind IN ('settle', 'cancel')) ORDER BY number;

CREATE TRIGGER start_is_never_changed BEFORE UPDATE ON started
BEGIN SELECT RAISE (ABORT, 'a start is never changed'); END;

CREATE TRIGGER start_is_never_removed BEFORE DELETE ON started
BEGIN SELECT RAISE (ABORT, 'a start is never removed'); END;

CREATE TRIGGER start_comes_before_the_end BEFORE INSERT ON started
WHEN NOT EXISTS (SELECT 1 FROM entry WHERE number = NEW.entry AND kind = 'reserve')
    OR EXISTS (SELECT 1 FROM entry WHERE about = NEW.entry AND kind IN ('settle', 'cancel'))
BEGIN SELECT RAISE (ABORT, 'only a reservation that has not ended can start'); END;

CREATE TRIGGER started_is_never_cancelled BEFORE INSERT ON entry
WHEN NEW.kind = 'cancel' AND EXISTS (SELECT 1 FROM started WHERE entry = NEW.about)
BEGIN SELECT RAISE (ABORT, 'what started is never cancelled'); END;
