-- compatible with: 0.2.0
-- Refused calls, which are no use of a primitive. Those that were counted before, and those of gateways of an earlier version,
-- are not known to be refused.
ALTER TABLE usage_rows ADD COLUMN refused BIGINT NOT NULL DEFAULT 0;
