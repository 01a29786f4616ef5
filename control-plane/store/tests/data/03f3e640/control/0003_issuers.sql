-- Issuers that admins of the platform manage, as they wrote them.
CREATE TABLE issuers (
    -- 'clients' or 'admins'
    side       TEXT   NOT NULL,
    name       TEXT   NOT NULL,
    document   TEXT   NOT NULL,
    updated_at BIGINT NOT NULL,
    PRIMARY KEY (side, name)
);

-- What was fetched from an issuer, those of the operator's file among them.
CREATE TABLE issuer_keys (
    side       TEXT   NOT NULL,
    name       TEXT   NOT NULL,
    -- Where it was fetched: what comes from elsewhere counts no more.
    source     TEXT   NOT NULL,
    -- JSON: the key set, and what discovery said.
    content    TEXT   NOT NULL,
    -- When it was seen last.
    fetched_at BIGINT NOT NULL,
    PRIMARY KEY (side, name)
);
