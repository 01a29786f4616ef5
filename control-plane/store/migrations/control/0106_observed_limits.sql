-- compatible with: 0.1.0
-- Whether a limit refuses nothing and is only counted. An earlier version enforces it, and stores it as enforced.
ALTER TABLE limits ADD COLUMN observe BIGINT NOT NULL DEFAULT 0;
