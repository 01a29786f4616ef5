-- The row of a call stays as its record when the call has ended, until expires_ms: whose it was, how it ended (sealed by
-- the gateway). A record of a running call has an owner, one of an ended call has none: an earlier version's gateway
-- takes over and reads only what has one. `resumable` is 0 for what tells of a call and is not enough to go on with it;
-- `bytes` are those of record and outcome of an ended call.
ALTER TABLE active_calls ADD COLUMN principal BLOB;
ALTER TABLE active_calls ADD COLUMN server TEXT;
ALTER TABLE active_calls ADD COLUMN context TEXT;
ALTER TABLE active_calls ADD COLUMN state TEXT;
ALTER TABLE active_calls ADD COLUMN created_ms BIGINT;
ALTER TABLE active_calls ADD COLUMN updated_ms BIGINT;
ALTER TABLE active_calls ADD COLUMN outcome BLOB;
ALTER TABLE active_calls ADD COLUMN bytes BIGINT NOT NULL DEFAULT 0;
ALTER TABLE active_calls ADD COLUMN resumable BIGINT NOT NULL DEFAULT 1;
CREATE INDEX active_calls_principal ON active_calls (principal, server, call_id);
