-- compatible with: 0.1.0
-- Linked accounts that end with a revocation or a block, until the database of calls has ended them. An earlier version leaves
-- them to be ended later.
CREATE TABLE link_endings (
    -- That of the revocation.
    id         TEXT   NOT NULL PRIMARY KEY,
    -- Each part is empty if it matches every link.
    org        TEXT   NOT NULL,
    subject    TEXT   NOT NULL,
    provider   TEXT   NOT NULL,
    -- Token to which links are bound.
    token      TEXT   NOT NULL,
    created_at BIGINT NOT NULL
);
CREATE INDEX link_endings_created ON link_endings (created_at, id);
