-- compatible with: 0.1.0
-- The audit log of calls in partitions. Only new tables: `call_events` and `call_log` stay as they are for processes of the
-- version before, which go on writing there; newer ones read both and write only here.
--
-- Appends take no lock that another append waits for. Numbers come from a sequence, and every append publishes by an advisory
-- lock below which number it will not write; a reader stops at the lowest such number (`call_audit_horizon`).

-- Numbers of a partition. The sequence jumps to the first number of a partition that is there already, so that a partition ends
-- when it is large or old enough and not after so many events.
CREATE FUNCTION call_audit_width() RETURNS BIGINT LANGUAGE SQL IMMUTABLE PARALLEL SAFE
AS $$ SELECT CAST(268435456 AS BIGINT) $$;

-- From 2^44 on, beyond all numbers of `call_events`. No cache: a session with numbers in store would write them to a former
-- partition.
CREATE SEQUENCE call_audit_seq AS BIGINT START WITH 17592186044416 CACHE 1;

-- Without a default partition: to attach another one beside it would wait for all readers.
CREATE TABLE call_audit (
    seq   BIGINT NOT NULL PRIMARY KEY,
    at_ms BIGINT NOT NULL,
    org   TEXT   NOT NULL,
    event TEXT   NOT NULL
) PARTITION BY RANGE (seq);
CREATE INDEX call_audit_org ON call_audit (org, seq);
CREATE TABLE call_audit_65536 PARTITION OF call_audit FOR VALUES FROM (17592186044416) TO (17592454479872);

-- Since when each partition has been there, by the database's clock. Partition N has the numbers from N * call_audit_width() on.
CREATE TABLE call_audit_partitions (
    number   BIGINT NOT NULL PRIMARY KEY,
    since_ms BIGINT NOT NULL
);
INSERT INTO call_audit_partitions (number, since_ms) VALUES (65536, now_ms());

CREATE VIEW all_call_events AS
SELECT seq, at_ms, org, event FROM call_events UNION ALL SELECT seq, at_ms, org, event FROM call_audit;

-- Lowest number that the sequence has not given to anybody.
CREATE FUNCTION call_audit_next() RETURNS BIGINT LANGUAGE SQL VOLATILE
AS $$ SELECT last_value + CAST(is_called AS INT) FROM call_audit_seq $$;

-- One transaction by itself, so that its lock never waits for a client. The lock has two keys of 32 bits: 341 * 2^21 plus the
-- high bits of the number, and its low bits.
CREATE FUNCTION append_call_audit(times BIGINT[], orgs TEXT[], events TEXT[]) RETURNS VOID LANGUAGE plpgsql AS $$
DECLARE
    mark BIGINT;
BEGIN
    mark := call_audit_next();
    PERFORM pg_advisory_xact_lock_shared(CAST(715128832 + (mark >> 32) AS INT), CAST(CAST(mark AS BIT(32)) AS INT));
    INSERT INTO call_audit (seq, at_ms, org, event)
    SELECT nextval('call_audit_seq'), came.at_ms, came.org, came.event
    FROM (SELECT c.at_ms, c.org, c.event
          FROM UNNEST(times, orgs, events) WITH ORDINALITY AS c (at_ms, org, event, place)
          ORDER BY c.place) AS came;
END $$;

-- The number below which the log is complete: nobody will write a lower one. To be asked in a statement before the one that
-- reads, because an append that ends between the two must be seen. Sequence before locks: whoever takes its mark after the
-- locks were read draws its numbers after the sequence was.
CREATE FUNCTION call_audit_horizon() RETURNS BIGINT LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    undrawn BIGINT;
    pending BIGINT;
BEGIN
    undrawn := call_audit_next();
    SELECT MIN(((CAST(l.classid AS BIGINT) - 715128832) << 32) | CAST(l.objid AS BIGINT)) INTO pending
    FROM pg_locks l
    WHERE l.locktype = 'advisory' AND l.objsubid = 2 AND CAST(l.classid AS BIGINT) BETWEEN 715128832 AND 717225983
    AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database());
    RETURN LEAST(undrawn, pending);
END $$;

-- Adds a partition unless it is there. Waits for no reader and no append, and neither waits for it.
CREATE FUNCTION add_call_audit_partition(added BIGINT) RETURNS VOID LANGUAGE plpgsql AS $$
DECLARE
    partition_name TEXT := 'call_audit_' || added;
BEGIN
    PERFORM pg_advisory_xact_lock(717225984, 0);
    IF TO_REGCLASS(partition_name) IS NULL THEN
        EXECUTE FORMAT('CREATE TABLE %I (LIKE call_audit)', partition_name);
        EXECUTE FORMAT('ALTER TABLE call_audit ATTACH PARTITION %I FOR VALUES FROM (%s) TO (%s)',
            partition_name, added * call_audit_width(), (added + 1) * call_audit_width());
        INSERT INTO call_audit_partitions (number, since_ms) VALUES (added, now_ms())
        ON CONFLICT (number) DO UPDATE SET since_ms = excluded.since_ms;
    END IF;
END $$;

-- Has appends write to a partition that was added by a transaction before this one. Never back to a former one: its numbers
-- would be given twice.
CREATE FUNCTION enter_call_audit_partition(entered BIGINT) RETURNS BIGINT LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(717225984, 0);
    PERFORM setval('call_audit_seq', entered * call_audit_width(), FALSE)
    FROM call_audit_seq WHERE last_value < entered * call_audit_width();
    RETURN call_audit_next();
END $$;

-- Appends queue behind this while it waits for a reader, so it waits hardly at all; who wants it gone tries again.
CREATE FUNCTION drop_call_audit_partition(dropped BIGINT) RETURNS VOID LANGUAGE plpgsql SET lock_timeout = '50ms' AS $$
BEGIN
    EXECUTE FORMAT('DROP TABLE IF EXISTS %I', 'call_audit_' || dropped);
    DELETE FROM call_audit_partitions WHERE number = dropped;
END $$;
