-- Groups and scopes that machines of an org may have: all of the lists of its rows together. An admin of the platform
-- writes one row; rows of before are what its machines had.
CREATE TABLE machine_bounds (
    org    TEXT NOT NULL,
    -- JSON arrays of texts.
    groups TEXT NOT NULL,
    scopes TEXT NOT NULL,
    PRIMARY KEY (org, groups, scopes)
);
INSERT INTO machine_bounds (org, groups, scopes)
    SELECT org, groups, scopes FROM machine_keys
    UNION SELECT org, groups, scopes FROM machine_certificates;
