-- The `iss` of issuers that were deleted: users are known by the issuer's name, so another provider under one name would take
-- over its users.
CREATE TABLE former_issuers (
    -- 'clients' or 'admins'
    side       TEXT   NOT NULL,
    name       TEXT   NOT NULL,
    iss        TEXT   NOT NULL,
    deleted_at BIGINT NOT NULL,
    PRIMARY KEY (side, name)
);
