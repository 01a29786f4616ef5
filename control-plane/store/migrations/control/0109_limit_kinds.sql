-- compatible with: 0.1.0
-- Groups of callers, and limits that count in windows or the calls that run. An earlier version enforces them as token buckets
-- of the stored capacity and refill, for callers of every group.
ALTER TABLE limits ADD COLUMN caller_group TEXT NOT NULL DEFAULT '*';
ALTER TABLE limits ADD COLUMN kind TEXT NOT NULL DEFAULT 'token-bucket';
ALTER TABLE limits ADD COLUMN window_seconds BIGINT NOT NULL DEFAULT 0;
