-- What a gateway must not forget about calls (invariant I-6), on SQLite.

-- === The ledger of mutating calls ===

-- One execution per key, and its answer until expires_ms. state 0: running until its lease ends at expires_ms; 1: answered.
-- A key is completed and released by its holder alone: a call (its id, 16 bytes) on the gateway that runs it. Another gateway that
-- takes the call over takes over its key. `org` is a digest of the org's id; rows without one are not counted.
CREATE TABLE ledger (
    claim_key  BLOB   NOT NULL PRIMARY KEY,
    hash       BLOB   NOT NULL,
    state      BIGINT NOT NULL,
    answer     BLOB,
    expires_ms BIGINT NOT NULL,
    call_id    BLOB,
    owner      BLOB,
    org        BLOB
);
CREATE INDEX ledger_expires ON ledger (expires_ms);

-- Keys and bytes of answers of each org, counted by the rows themselves, whoever writes or deletes them.
CREATE TABLE ledger_usage (
    org        BLOB   NOT NULL PRIMARY KEY,
    claim_keys BIGINT NOT NULL,
    bytes      BIGINT NOT NULL
);
CREATE TRIGGER ledger_claimed AFTER INSERT ON ledger WHEN NEW.org IS NOT NULL
BEGIN
    INSERT INTO ledger_usage (org, claim_keys, bytes) VALUES (NEW.org, 1, COALESCE(LENGTH(NEW.answer), 0))
    ON CONFLICT (org) DO UPDATE SET claim_keys = claim_keys + 1, bytes = bytes + excluded.bytes;
END;
CREATE TRIGGER ledger_answered AFTER UPDATE OF answer ON ledger WHEN NEW.org IS NOT NULL
BEGIN
    UPDATE ledger_usage
    SET bytes = bytes + COALESCE(LENGTH(NEW.answer), 0) - COALESCE(LENGTH(OLD.answer), 0)
    WHERE org = NEW.org;
END;
CREATE TRIGGER ledger_forgotten AFTER DELETE ON ledger WHEN OLD.org IS NOT NULL
BEGIN
    UPDATE ledger_usage
    SET claim_keys = claim_keys - 1, bytes = bytes - COALESCE(LENGTH(OLD.answer), 0)
    WHERE org = OLD.org;
    DELETE FROM ledger_usage WHERE org = OLD.org AND claim_keys <= 0;
END;

-- === The records of calls ===

-- The row of a call stays as its record when the call has ended, until expires_ms. A record of a running call has an owner, one
-- run of one gateway, and another gateway takes it over when the owner's lease has ended. One of an ended call has no owner.
-- `record` is the request of the call, `capsule` its last checkpoint, `answers` what it was answered and `outcome` how it ended, each
-- sealed by the gateway. `resumable` is 0 for a record that is not enough to continue the call; `bytes` are those of record and
-- outcome of an ended call. `outcome` may be large, and stands behind whatever is read without it.
CREATE TABLE active_calls (
    call_id     BLOB   NOT NULL PRIMARY KEY,
    org         TEXT   NOT NULL,
    plugin      TEXT   NOT NULL,
    seq         BIGINT NOT NULL,
    capsule     BLOB,
    answers     BLOB,
    expires_ms  BIGINT NOT NULL,
    owner       BLOB,
    record      BLOB,
    principal   BLOB,
    user_digest BLOB,
    server      TEXT,
    context     TEXT,
    state       TEXT,
    created_ms  BIGINT,
    updated_ms  BIGINT,
    bytes       BIGINT NOT NULL DEFAULT 0,
    resumable   BIGINT NOT NULL DEFAULT 1,
    outcome     BLOB
);
CREATE INDEX active_calls_expires ON active_calls (expires_ms);
-- The calls of a principal at a server are listed in the order of time. Ids do not have it: a client may choose what its call's
-- id is made from.
CREATE INDEX active_calls_listed ON active_calls (principal, server, created_ms, call_id);
-- Calls of each owner that another gateway can continue: owners are few, and are looked through one by one.
CREATE INDEX active_calls_of_owner ON active_calls (owner, expires_ms, call_id, resumable) WHERE owner IS NOT NULL AND resumable = 1;
-- Which ended first. `owner` stands there so that no row is read.
CREATE INDEX active_calls_ended_of_user ON active_calls (user_digest, updated_ms, call_id, bytes, owner) WHERE owner IS NULL;
CREATE INDEX active_calls_ended_of_org ON active_calls (org, updated_ms, call_id, bytes, owner) WHERE owner IS NULL;

-- Records of ended calls of each user and each org, counted by the rows themselves, whoever writes or deletes them. A user's
-- digest is a BLOB and an org's id a TEXT, so that neither is ever the other.
CREATE TABLE record_usage (
    holder  BLOB   NOT NULL PRIMARY KEY,
    records BIGINT NOT NULL,
    bytes   BIGINT NOT NULL
);
CREATE TRIGGER record_made AFTER INSERT ON active_calls WHEN NEW.owner IS NULL AND NEW.user_digest IS NOT NULL
BEGIN
    INSERT INTO record_usage (holder, records, bytes) VALUES (NEW.org, 1, NEW.bytes), (NEW.user_digest, 1, NEW.bytes)
    ON CONFLICT (holder) DO UPDATE SET records = records + 1, bytes = bytes + excluded.bytes;
END;
CREATE TRIGGER record_ended AFTER UPDATE OF owner ON active_calls
WHEN OLD.owner IS NOT NULL AND NEW.owner IS NULL AND NEW.user_digest IS NOT NULL
BEGIN
    INSERT INTO record_usage (holder, records, bytes) VALUES (NEW.org, 1, NEW.bytes), (NEW.user_digest, 1, NEW.bytes)
    ON CONFLICT (holder) DO UPDATE SET records = records + 1, bytes = bytes + excluded.bytes;
END;
CREATE TRIGGER record_forgotten AFTER DELETE ON active_calls WHEN OLD.owner IS NULL AND OLD.user_digest IS NOT NULL
BEGIN
    UPDATE record_usage SET records = records - 1, bytes = bytes - OLD.bytes
    WHERE holder IN (OLD.org, OLD.user_digest);
    DELETE FROM record_usage WHERE holder IN (OLD.org, OLD.user_digest) AND records <= 0;
END;

-- === What earlier versions kept here ===

-- The audit log of calls, now in a file of its own. What is left of it is moved there.
CREATE TABLE call_events (
    seq   INTEGER PRIMARY KEY,
    at_ms BIGINT  NOT NULL,
    org   TEXT    NOT NULL,
    event TEXT    NOT NULL
);
CREATE INDEX call_events_at ON call_events (at_ms);

-- The leases of gateways, now in a file of their own.
CREATE TABLE active_owners (
    owner    BLOB   NOT NULL PRIMARY KEY,
    lease_ms BIGINT NOT NULL
);
