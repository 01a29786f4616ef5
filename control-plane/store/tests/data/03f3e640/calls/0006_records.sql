-- The row of a call stays as its record when the call has ended, until expires_ms: whose it was, how it ended (sealed by
-- the gateway). A record of a running call has an owner, one of an ended call has none: an earlier version's gateway
-- takes over and reads only what has one. `resumable` is 0 for what tells of a call and is not enough to go on with it;
-- `bytes` are those of record and outcome of an ended call. `outcome` may be large, and stands behind whatever is read
-- without it.
ALTER TABLE active_calls ADD COLUMN principal BLOB;
ALTER TABLE active_calls ADD COLUMN user_digest BLOB;
ALTER TABLE active_calls ADD COLUMN server TEXT;
ALTER TABLE active_calls ADD COLUMN context TEXT;
ALTER TABLE active_calls ADD COLUMN state TEXT;
ALTER TABLE active_calls ADD COLUMN created_ms BIGINT;
ALTER TABLE active_calls ADD COLUMN updated_ms BIGINT;
ALTER TABLE active_calls ADD COLUMN bytes BIGINT NOT NULL DEFAULT 0;
ALTER TABLE active_calls ADD COLUMN resumable BIGINT NOT NULL DEFAULT 1;
ALTER TABLE active_calls ADD COLUMN outcome BLOB;
CREATE INDEX active_calls_principal ON active_calls (principal, server, call_id);
-- What another gateway may go on with, apart from the many that have ended.
CREATE INDEX active_calls_going ON active_calls (expires_ms, owner, call_id) WHERE owner IS NOT NULL AND resumable = 1;
-- Which ended first. `owner` stands there so that no row is read.
CREATE INDEX active_calls_ended_of_user ON active_calls (user_digest, updated_ms, call_id, bytes, owner) WHERE owner IS NULL;
CREATE INDEX active_calls_ended_of_org ON active_calls (org, updated_ms, call_id, bytes, owner) WHERE owner IS NULL;
-- What each user and each org keeps of calls that have ended, counted by the rows themselves, whoever writes or deletes
-- them. A user's digest is a BLOB and an org's id a TEXT, so that neither is ever the other.
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
