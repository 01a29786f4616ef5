-- Start and finish of every call, as JSON, in the order of `seq`. Events that an earlier version kept beside the
-- ledger have numbers below zero. The one index finds an org's events in that order.
CREATE TABLE events (
    seq   INTEGER PRIMARY KEY,
    at_ms BIGINT  NOT NULL,
    org   TEXT    NOT NULL,
    event TEXT    NOT NULL
);
CREATE INDEX events_org ON events (org, seq);
