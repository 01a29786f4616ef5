-- The control plane's durable state. Portable between SQLite and Postgres: BIGINT milliseconds,
-- TEXT and plain constraints only; every statement of the code uses $n parameters.

-- One row: the revision of the last change. Every write bumps it first, which also serialises writers.
CREATE TABLE control_revision (
    id       BIGINT NOT NULL PRIMARY KEY,
    revision BIGINT NOT NULL
);
INSERT INTO control_revision (id, revision) VALUES (1, 0);

-- The revision at which a resource ("server/demo", "exposure/acme", …) last changed: its ETag.
CREATE TABLE resources (
    name     TEXT   NOT NULL PRIMARY KEY,
    revision BIGINT NOT NULL
);

-- A server as its team wrote it: the source files, kept verbatim.
CREATE TABLE servers (
    name         TEXT   NOT NULL PRIMARY KEY,
    sources      TEXT   NOT NULL,
    content_hash TEXT   NOT NULL,
    updated_at   BIGINT NOT NULL
);

-- Where an org's exposure differs from the server's default.
CREATE TABLE exposure (
    org      TEXT   NOT NULL,
    server   TEXT   NOT NULL,
    protocol TEXT   NOT NULL,
    enabled  BIGINT NOT NULL,
    PRIMARY KEY (org, server, protocol)
);

-- Who may call what.
CREATE TABLE bindings (
    org         TEXT   NOT NULL,
    target_type TEXT   NOT NULL,
    target      TEXT   NOT NULL,
    primitive   TEXT   NOT NULL,
    protocol    TEXT   NOT NULL,
    allowed     BIGINT NOT NULL,
    PRIMARY KEY (org, target_type, target, primitive, protocol)
);

-- An org's rate limits, in the order in which they were given.
CREATE TABLE limits (
    org       TEXT   NOT NULL,
    position  BIGINT NOT NULL,
    server    TEXT   NOT NULL,
    primitive TEXT   NOT NULL,
    user_id   TEXT   NOT NULL,
    wcit      TEXT   NOT NULL,
    capacity  BIGINT NOT NULL,
    refill    TEXT   NOT NULL,
    PRIMARY KEY (org, position)
);

-- Kept until no token that old can live.
CREATE TABLE revocations (
    id          TEXT   NOT NULL PRIMARY KEY,
    kind        TEXT   NOT NULL,
    org         TEXT   NOT NULL,
    target      TEXT   NOT NULL,
    issuer      TEXT   NOT NULL,
    reason      TEXT   NOT NULL,
    created_at  BIGINT NOT NULL,
    until_at    BIGINT NOT NULL
);
CREATE INDEX revocations_until ON revocations (until_at);

-- Written in the transaction of the change it tells about.
CREATE TABLE audit (
    revision BIGINT NOT NULL PRIMARY KEY,
    at       BIGINT NOT NULL,
    actor    TEXT   NOT NULL,
    action   TEXT   NOT NULL,
    resource TEXT   NOT NULL,
    org      TEXT   NOT NULL,
    detail   TEXT   NOT NULL
);
CREATE INDEX audit_org ON audit (org, revision);
