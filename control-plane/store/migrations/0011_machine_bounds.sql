-- Groups and scopes that machines of an org may have: the union of its rows. An admin of the platform replaces them by one
-- row; the first rows are what its machines had. The lists are too long for an index of PostgreSQL.
CREATE TABLE machine_bounds (
    org    TEXT NOT NULL,
    -- JSON arrays of texts.
    groups TEXT NOT NULL,
    scopes TEXT NOT NULL
);
CREATE INDEX machine_bounds_org ON machine_bounds (org);
INSERT INTO machine_bounds (org, groups, scopes)
    SELECT org, groups, scopes FROM machine_keys
    UNION SELECT org, groups, scopes FROM machine_certificates;
