-- Since when a gateway's lease has held without a gap: one that had lapsed itself is no judge of the others. A lease of 0 has
-- been given back.
ALTER TABLE owners ADD COLUMN since_ms BIGINT NOT NULL DEFAULT 0;
