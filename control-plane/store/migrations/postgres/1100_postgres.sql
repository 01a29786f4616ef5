-- What gateways share on PostgreSQL, with the tables of the control store in one database: calls (invariant I-6), leases and
-- published keys, the audit of calls, the gateways that control planes hear, and the index of the object store.

-- Unix milliseconds by the database's clock, which alone decides whether a lease holds: gateways' clocks differ.
CREATE FUNCTION now_ms() RETURNS BIGINT LANGUAGE SQL STABLE PARALLEL SAFE
AS $$ SELECT CAST(FLOOR(EXTRACT(EPOCH FROM statement_timestamp()) * 1000) AS BIGINT) $$;

-- Counters of one org or user are spread over this many rows, so that its calls do not wait for each other's commits.
CREATE FUNCTION shard(id BYTEA) RETURNS BIGINT LANGUAGE SQL IMMUTABLE PARALLEL SAFE
AS $$ SELECT CAST(GET_BYTE(id, LENGTH(id) - 1) % 16 AS BIGINT) $$;

-- The gateways that live: one row for each run of a gateway, renewed every few seconds.
CREATE TABLE gateways (
    owner    BYTEA   NOT NULL PRIMARY KEY,
    -- 0: the lease was given back.
    lease_ms BIGINT  NOT NULL,
    -- Since when the lease has held without a gap: a gateway whose own lease had lapsed, as all do while the database is away,
    -- cannot judge the others.
    since_ms BIGINT  NOT NULL DEFAULT 0,
    -- Whether it had held until its last renewal.
    held     BOOLEAN NOT NULL DEFAULT TRUE
);
CREATE INDEX gateways_lease ON gateways (lease_ms);

-- The public halves of the keys by which gateways sign the platform's tokens. A row outlives its gateway's lease: tokens do.
CREATE TABLE token_keys (
    owner    BYTEA  NOT NULL,
    kid      TEXT   NOT NULL,
    jwk      TEXT   NOT NULL,
    until_ms BIGINT NOT NULL,
    PRIMARY KEY (owner, kid)
);

-- Work that one process does for all: until when it is done.
CREATE TABLE turns (
    name     TEXT   NOT NULL PRIMARY KEY,
    until_ms BIGINT NOT NULL
);

-- === The ledger of mutating calls: one execution per key, and its answer until expires_ms ===

-- state 0: running until its lease ends at expires_ms; 1: answered. A key is completed and released by its holder and by
-- no other: a call on the gateway that runs it. `org` is a digest of the org's id.
CREATE TABLE ledger (
    claim_key  BYTEA  NOT NULL PRIMARY KEY,
    hash       BYTEA  NOT NULL,
    call_id    BYTEA  NOT NULL,
    owner      BYTEA  NOT NULL,
    org        BYTEA  NOT NULL,
    state      BIGINT NOT NULL,
    expires_ms BIGINT NOT NULL,
    answer     BYTEA
);
CREATE INDEX ledger_expires ON ledger (expires_ms);
CREATE TABLE ledger_usage (
    org        BYTEA  NOT NULL,
    shard      BIGINT NOT NULL,
    claim_keys BIGINT NOT NULL,
    bytes      BIGINT NOT NULL,
    PRIMARY KEY (org, shard)
);

CREATE FUNCTION ledger_claimed() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO ledger_usage (org, shard, claim_keys, bytes)
    VALUES (NEW.org, shard(NEW.claim_key), 1, COALESCE(LENGTH(NEW.answer), 0))
    ON CONFLICT (org, shard) DO UPDATE
    SET claim_keys = ledger_usage.claim_keys + 1, bytes = ledger_usage.bytes + excluded.bytes;
    RETURN NULL;
END $$;
CREATE TRIGGER ledger_claimed AFTER INSERT ON ledger FOR EACH ROW EXECUTE FUNCTION ledger_claimed();

CREATE FUNCTION ledger_answered() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
    UPDATE ledger_usage
    SET bytes = bytes + COALESCE(LENGTH(NEW.answer), 0) - COALESCE(LENGTH(OLD.answer), 0)
    WHERE org = NEW.org AND shard = shard(NEW.claim_key);
    RETURN NULL;
END $$;
CREATE TRIGGER ledger_answered AFTER UPDATE OF answer ON ledger FOR EACH ROW EXECUTE FUNCTION ledger_answered();

-- Counters are locked in one order, whatever was deleted: no two deletions wait for each other.
CREATE FUNCTION ledger_forgotten() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
    PERFORM 1 FROM ledger_usage u WHERE (u.org, u.shard) IN (SELECT org, shard(claim_key) FROM gone)
    ORDER BY u.org, u.shard FOR UPDATE;
    UPDATE ledger_usage u SET claim_keys = u.claim_keys - g.claim_keys, bytes = u.bytes - g.bytes
    FROM (SELECT org, shard(claim_key) AS shard, COUNT(*) AS claim_keys, SUM(COALESCE(LENGTH(answer), 0)) AS bytes
          FROM gone GROUP BY 1, 2) g
    WHERE u.org = g.org AND u.shard = g.shard;
    DELETE FROM ledger_usage u
    WHERE u.claim_keys <= 0 AND (u.org, u.shard) IN (SELECT org, shard(claim_key) FROM gone);
    RETURN NULL;
END $$;
CREATE TRIGGER ledger_forgotten AFTER DELETE ON ledger REFERENCING OLD TABLE AS gone
FOR EACH STATEMENT EXECUTE FUNCTION ledger_forgotten();

-- === The records of calls ===

-- A record of a running call has an owner, one of an ended call has none. `resumable` is false for what tells of a call and
-- is not enough to go on with it; `bytes` are those of record and outcome of an ended call. What is BYTEA but an id arrives
-- sealed by the gateway.
CREATE TABLE call_records (
    call_id     BYTEA   NOT NULL PRIMARY KEY,
    org         TEXT    NOT NULL,
    principal   BYTEA   NOT NULL,
    user_digest BYTEA   NOT NULL,
    server      TEXT    NOT NULL,
    plugin      TEXT    NOT NULL,
    context     TEXT    NOT NULL,
    state       TEXT    NOT NULL,
    created_ms  BIGINT  NOT NULL,
    updated_ms  BIGINT  NOT NULL,
    expires_ms  BIGINT  NOT NULL,
    resumable   BOOLEAN NOT NULL,
    seq         BIGINT  NOT NULL,
    bytes       BIGINT  NOT NULL,
    owner       BYTEA,
    record      BYTEA   NOT NULL,
    capsule     BYTEA,
    memory      BYTEA,
    outcome     BYTEA
);
-- What is sealed cannot be compressed. (The answers of the ledger are sealed by nobody.)
ALTER TABLE call_records ALTER COLUMN record SET STORAGE EXTERNAL, ALTER COLUMN capsule SET STORAGE EXTERNAL,
    ALTER COLUMN memory SET STORAGE EXTERNAL, ALTER COLUMN outcome SET STORAGE EXTERNAL;
CREATE INDEX call_records_expires ON call_records (expires_ms);
CREATE INDEX call_records_listed ON call_records (principal, server, created_ms, call_id);
-- Calls of each owner that another gateway can continue: owners are few, and are looked through one by one.
CREATE INDEX call_records_of_owner ON call_records (owner, expires_ms, call_id) WHERE owner IS NOT NULL AND resumable;
CREATE INDEX call_records_ended_of_user ON call_records (user_digest, updated_ms, call_id) INCLUDE (bytes) WHERE owner IS NULL;
CREATE INDEX call_records_ended_of_org ON call_records (org, updated_ms, call_id) INCLUDE (bytes) WHERE owner IS NULL;

-- What each user and each org keeps of calls that have ended. `holder` begins with `o` for an org's id, with `u` for a
-- user's digest, so that neither is ever the other.
CREATE TABLE record_usage (
    holder  BYTEA  NOT NULL,
    shard   BIGINT NOT NULL,
    records BIGINT NOT NULL,
    bytes   BIGINT NOT NULL,
    PRIMARY KEY (holder, shard)
);
CREATE FUNCTION of_org(org TEXT) RETURNS BYTEA LANGUAGE SQL IMMUTABLE PARALLEL SAFE
AS $$ SELECT CONVERT_TO('o' || org, 'UTF8') $$;
CREATE FUNCTION of_user(user_digest BYTEA) RETURNS BYTEA LANGUAGE SQL IMMUTABLE PARALLEL SAFE
AS $$ SELECT CONVERT_TO('u', 'UTF8') || user_digest $$;

CREATE FUNCTION record_ended() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO record_usage (holder, shard, records, bytes)
    VALUES (of_org(NEW.org), shard(NEW.call_id), 1, NEW.bytes), (of_user(NEW.user_digest), shard(NEW.call_id), 1, NEW.bytes)
    ON CONFLICT (holder, shard) DO UPDATE
    SET records = record_usage.records + 1, bytes = record_usage.bytes + excluded.bytes;
    RETURN NULL;
END $$;
CREATE TRIGGER record_made AFTER INSERT ON call_records FOR EACH ROW
WHEN (NEW.owner IS NULL) EXECUTE FUNCTION record_ended();
CREATE TRIGGER record_ended AFTER UPDATE OF owner ON call_records FOR EACH ROW
WHEN (OLD.owner IS NOT NULL AND NEW.owner IS NULL) EXECUTE FUNCTION record_ended();

CREATE FUNCTION record_forgotten() RETURNS TRIGGER LANGUAGE plpgsql AS $$
DECLARE
    holders RECORD;
BEGIN
    FOR holders IN
        SELECT h.holder, shard(g.call_id) AS shard, COUNT(*) AS records, SUM(g.bytes) AS bytes
        FROM gone g CROSS JOIN LATERAL (VALUES (of_org(g.org)), (of_user(g.user_digest))) AS h (holder)
        WHERE g.owner IS NULL GROUP BY 1, 2 ORDER BY 1, 2
    LOOP
        UPDATE record_usage u SET records = u.records - holders.records, bytes = u.bytes - holders.bytes
        WHERE u.holder = holders.holder AND u.shard = holders.shard;
        DELETE FROM record_usage u
        WHERE u.holder = holders.holder AND u.shard = holders.shard AND u.records <= 0;
    END LOOP;
    RETURN NULL;
END $$;
CREATE TRIGGER record_forgotten AFTER DELETE ON call_records REFERENCING OLD TABLE AS gone
FOR EACH STATEMENT EXECUTE FUNCTION record_forgotten();

-- === The audit log of calls ===

-- Start and finish of every call, as JSON, in the order of `seq`.
CREATE TABLE call_events (
    seq   BIGINT NOT NULL PRIMARY KEY,
    at_ms BIGINT NOT NULL,
    org   TEXT   NOT NULL,
    event TEXT   NOT NULL
);
CREATE INDEX call_events_org ON call_events (org, seq);
-- One row. Whoever appends locks it first, so that events are seen in the order of their numbers.
CREATE TABLE call_log (
    id    BIGINT NOT NULL PRIMARY KEY,
    last  BIGINT NOT NULL,
    bytes BIGINT NOT NULL
);
INSERT INTO call_log (id, last, bytes) VALUES (1, 0, 0);

-- === The gateways that control planes hear ===

-- Each control plane reports them to Envoy. Times are the database's, Unix milliseconds.
CREATE TABLE heard_gateways (
    pool     TEXT   NOT NULL,
    address  TEXT   NOT NULL,
    heard_ms BIGINT NOT NULL,
    -- When it said that it ends; not above 0: it has not.
    left_ms  BIGINT NOT NULL,
    PRIMARY KEY (pool, address)
);

-- === The object store ===

-- The bytes are in the object store; here are their names, and their sizes for each holder, so that a quota is one for all
-- gateways and control planes. Times are the database's, Unix milliseconds.

-- kind 1: artifacts of calls, of orgs; 2: packages of plugins, of orgs or of the platform, whose holder is empty.
-- state 0: being written; 1: there, under its name; 2: being deleted, and its bytes may still be there. A row past `until_ms` is
-- deleted, or was being deleted by a process that is gone.
CREATE TABLE objects (
    object      BYTEA  NOT NULL PRIMARY KEY,
    kind        BIGINT NOT NULL,
    holder      TEXT   NOT NULL,
    state       BIGINT NOT NULL,
    counted     BIGINT NOT NULL,
    until_ms    BIGINT NOT NULL,
    name        TEXT   NOT NULL DEFAULT '',
    size        BIGINT NOT NULL DEFAULT 0,
    sha256      BYTEA,
    description TEXT   NOT NULL DEFAULT ''
);
-- Of two that are written under one name, one is the first.
CREATE UNIQUE INDEX objects_there ON objects (kind, name, holder) WHERE state = 1;
CREATE INDEX objects_past ON objects (kind, until_ms);

-- Objects and bytes of each holder, with those that are being written or deleted.
CREATE TABLE object_usage (
    kind    BIGINT NOT NULL,
    holder  TEXT   NOT NULL,
    objects BIGINT NOT NULL,
    bytes   BIGINT NOT NULL,
    PRIMARY KEY (kind, holder)
);
