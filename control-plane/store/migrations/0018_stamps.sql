-- What tells a revision from one of the same number in another history: random, of the write that made it. A failover that
-- loses commits lets others have their revisions.
ALTER TABLE control_revision ADD COLUMN stamp TEXT NOT NULL DEFAULT '';
ALTER TABLE audit ADD COLUMN stamp TEXT NOT NULL DEFAULT '';
