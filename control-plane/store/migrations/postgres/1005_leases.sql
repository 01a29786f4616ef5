-- Since when a gateway's lease has held without a gap: one that had lapsed itself, as all do while the database is away, is no
-- judge of the others. `held` says whether it had held until its last renewal. A lease of 0 has been given back.
ALTER TABLE gateways ADD COLUMN since_ms BIGINT NOT NULL DEFAULT 0;
ALTER TABLE gateways ADD COLUMN held BOOLEAN NOT NULL DEFAULT TRUE;
-- What each owner runs that another gateway can go on with: owners are few, and are looked through one by one.
CREATE INDEX call_records_of_owner ON call_records (owner, expires_ms, call_id) WHERE owner IS NOT NULL AND resumable;
DROP INDEX call_records_going;
