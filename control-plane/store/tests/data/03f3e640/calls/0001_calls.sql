-- What a gateway must not forget about calls (invariant I-6). Portable between SQLite and Postgres.

-- The ledger of mutating calls: one execution per key, and its answer until expires_ms.
-- state 0: running until its lease ends at expires_ms; 1: answered.
CREATE TABLE ledger (
    claim_key  BLOB   NOT NULL PRIMARY KEY,
    hash       BLOB   NOT NULL,
    state      BIGINT NOT NULL,
    answer     BLOB,
    expires_ms BIGINT NOT NULL
);
CREATE INDEX ledger_expires ON ledger (expires_ms);

-- Start and finish of every call, as JSON. at_ms orders and bounds them.
CREATE TABLE call_events (
    seq   INTEGER PRIMARY KEY,
    at_ms BIGINT  NOT NULL,
    org   TEXT    NOT NULL,
    event TEXT    NOT NULL
);
CREATE INDEX call_events_at ON call_events (at_ms);
