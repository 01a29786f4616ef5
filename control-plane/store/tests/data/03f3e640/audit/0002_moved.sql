-- SHA-256 of each event of the last batch that was moved from the file of the ledger: one that is still there, though
-- it is here, is known by it after a crash.
CREATE TABLE moved (
    digest BLOB NOT NULL PRIMARY KEY
);
