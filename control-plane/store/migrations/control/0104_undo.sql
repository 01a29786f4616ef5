-- compatible with: 0.1.0
-- What a change removed and stored, as JSON, for its undo; empty if it cannot be undone. An earlier version leaves it empty.
ALTER TABLE audit ADD COLUMN undo TEXT NOT NULL DEFAULT '';
