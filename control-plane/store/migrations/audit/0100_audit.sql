-- Start and finish of every call, as JSON, in the order of `seq`. Events from the file of the ledger have numbers below zero. The
-- one index finds an org's events in that order.
CREATE TABLE events (
    seq   INTEGER PRIMARY KEY,
    at_ms BIGINT  NOT NULL,
    org   TEXT    NOT NULL,
    event TEXT    NOT NULL
);
CREATE INDEX events_org ON events (org, seq);

-- SHA-256 of each event of the last batch that was moved from the file of the ledger: after a crash, one that is still there and
-- also here is known by it.
CREATE TABLE moved (
    digest BLOB NOT NULL PRIMARY KEY
);
