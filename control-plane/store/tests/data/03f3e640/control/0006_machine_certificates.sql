-- Certificates with which machines of an org call (`mtls`): which machine of which org each is.
CREATE TABLE machine_certificates (
    id         TEXT   NOT NULL PRIMARY KEY,
    org        TEXT   NOT NULL,
    machine    TEXT   NOT NULL,
    -- `fingerprint` (lower-case hex SHA-256 of the certificate) or `uri`, and what it is.
    kind       TEXT   NOT NULL,
    name       TEXT   NOT NULL,
    -- JSON arrays of texts.
    groups     TEXT   NOT NULL,
    scopes     TEXT   NOT NULL,
    created_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    -- A certificate is one machine's.
    UNIQUE (kind, name)
);
CREATE INDEX machine_certificates_org ON machine_certificates (org, created_at, id);
