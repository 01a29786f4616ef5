-- compatible with: 0.1.0
-- Parts of snapshots as they were published last, for control planes that cannot publish what is stored of them. Derived, so that it
-- is in no archive.
CREATE TABLE published_forms (
    -- "server/demo", "org/acme".
    part     TEXT   NOT NULL PRIMARY KEY,
    -- Of a server that of its record, of an org that of the store when the org's policy was read.
    revision BIGINT NOT NULL,
    -- SHA-256 of the form, lower-case hex.
    digest   TEXT   NOT NULL,
    -- Base64.
    form     TEXT   NOT NULL
);
