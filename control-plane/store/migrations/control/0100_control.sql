-- The control plane's durable state. Portable between SQLite and PostgreSQL: BIGINT milliseconds, TEXT and plain constraints only;
-- every statement of the code uses $n parameters.

-- One row: the revision of the last change. Every write bumps it first, which also serialises writers.
CREATE TABLE control_revision (
    id       BIGINT NOT NULL PRIMARY KEY,
    revision BIGINT NOT NULL,
    -- Random, of the write that made the revision: another history has the number, and another stamp.
    stamp    TEXT   NOT NULL DEFAULT ''
);
INSERT INTO control_revision (id, revision) VALUES (1, 0);

-- The revision at which a resource ("server/demo", "exposure/acme", …) last changed: its ETag.
CREATE TABLE resources (
    name     TEXT   NOT NULL PRIMARY KEY,
    revision BIGINT NOT NULL
);

-- === Servers ===

-- A server as its team wrote it: the source files, kept verbatim.
CREATE TABLE servers (
    name         TEXT   NOT NULL PRIMARY KEY,
    sources      TEXT   NOT NULL,
    content_hash TEXT   NOT NULL,
    updated_at   BIGINT NOT NULL
);

-- A server each time it was stored: the version in force, and those before it that can be restored.
CREATE TABLE server_versions (
    name         TEXT   NOT NULL,
    -- That of the write.
    revision     BIGINT NOT NULL,
    sources      TEXT   NOT NULL,
    content_hash TEXT   NOT NULL,
    stored_at    BIGINT NOT NULL,
    -- Who stored it; empty where that was before this table.
    actor        TEXT   NOT NULL,
    -- When the server was deleted; 0 while it is there.
    gone_at      BIGINT NOT NULL,
    PRIMARY KEY (name, revision)
);

-- Servers that may have a primitive under an id: the one that stored it first, and those to which the platform grants it.
CREATE TABLE primitive_servers (
    id     TEXT   NOT NULL,
    server TEXT   NOT NULL,
    -- 1: it stored the id first.
    first  BIGINT NOT NULL,
    PRIMARY KEY (id, server)
);
CREATE INDEX primitive_servers_server ON primitive_servers (server);

-- Orgs to which a server is offered, in addition to those of its server.yaml. Orgs switch on or off what they are offered.
CREATE TABLE offers (
    server TEXT NOT NULL,
    org    TEXT NOT NULL,
    PRIMARY KEY (server, org)
);
CREATE INDEX offers_org ON offers (org);

-- Where an org's exposure differs from the server's default.
CREATE TABLE exposure (
    org      TEXT   NOT NULL,
    server   TEXT   NOT NULL,
    protocol TEXT   NOT NULL,
    enabled  BIGINT NOT NULL,
    PRIMARY KEY (org, server, protocol)
);

-- === Policy ===

-- Who may call what. A binding may have conditions on the arguments of a call, may require a person's approval, may be observed
-- only, and has a name where several have the same target, primitive and protocol.
CREATE TABLE bindings (
    org         TEXT   NOT NULL,
    -- `user`, `machine`, `group` or `wcit`.
    target_type TEXT   NOT NULL,
    target      TEXT   NOT NULL,
    -- An issuer's name; empty for every issuer.
    issuer      TEXT   NOT NULL,
    primitive   TEXT   NOT NULL,
    protocol    TEXT   NOT NULL,
    name        TEXT   NOT NULL,
    allowed     BIGINT NOT NULL,
    observed    BIGINT NOT NULL,
    approval    BIGINT NOT NULL,
    -- JSON, whose form is the control plane's; empty for none.
    conditions  TEXT   NOT NULL,
    PRIMARY KEY (org, target_type, target, issuer, primitive, protocol, name)
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
    -- `*` for every issuer, and for no machine in particular.
    issuer    TEXT   NOT NULL DEFAULT '*',
    machine   TEXT   NOT NULL DEFAULT '*',
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
    until_at    BIGINT NOT NULL,
    -- 1: an admin of the platform made it, and the org cannot take it back.
    by_platform BIGINT NOT NULL DEFAULT 0
);
CREATE INDEX revocations_until ON revocations (until_at);
-- An org's revocations are counted before each new one.
CREATE INDEX revocations_org ON revocations (org);

-- === Issuers ===

-- Issuers that admins of the platform manage, as they wrote them.
CREATE TABLE issuers (
    -- 'clients' or 'admins'
    side       TEXT   NOT NULL,
    name       TEXT   NOT NULL,
    document   TEXT   NOT NULL,
    updated_at BIGINT NOT NULL,
    PRIMARY KEY (side, name)
);

-- What was fetched from an issuer, also from those of the operator's file.
CREATE TABLE issuer_keys (
    side       TEXT   NOT NULL,
    name       TEXT   NOT NULL,
    -- Where it was fetched: what has another source does not count any more.
    source     TEXT   NOT NULL,
    -- JSON: the key set, and the result of discovery.
    content    TEXT   NOT NULL,
    -- When it was seen last.
    fetched_at BIGINT NOT NULL,
    PRIMARY KEY (side, name)
);

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

-- === Machines ===

-- Keys with which machines of an org call (`psk`). The secret itself is shown once and stored nowhere.
CREATE TABLE machine_keys (
    id         TEXT   NOT NULL PRIMARY KEY,
    org        TEXT   NOT NULL,
    machine    TEXT   NOT NULL,
    -- SHA-256 of the whole key, lower-case hex.
    hash       TEXT   NOT NULL,
    -- JSON arrays of texts.
    groups     TEXT   NOT NULL,
    scopes     TEXT   NOT NULL,
    created_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL
);
CREATE INDEX machine_keys_org ON machine_keys (org, created_at, id);

-- Certificates with which machines of an org call (`mtls`): the machine and org of each.
CREATE TABLE machine_certificates (
    id         TEXT   NOT NULL PRIMARY KEY,
    org        TEXT   NOT NULL,
    machine    TEXT   NOT NULL,
    -- `fingerprint` (lower-case hex SHA-256 of the certificate) or `uri`, and its value.
    kind       TEXT   NOT NULL,
    name       TEXT   NOT NULL,
    -- JSON arrays of texts.
    groups     TEXT   NOT NULL,
    scopes     TEXT   NOT NULL,
    created_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    -- 1: a fingerprint was registered with a proof of the certificate's key; 1 for every URI, whose org the platform decides.
    proved     BIGINT NOT NULL DEFAULT 0,
    -- A certificate is one machine's.
    UNIQUE (kind, name)
);
CREATE INDEX machine_certificates_org ON machine_certificates (org, created_at, id);

-- Groups and scopes that machines of an org may have: the union of its rows. An admin of the platform replaces them by one
-- row. The lists are too long for an index of PostgreSQL.
CREATE TABLE machine_bounds (
    org    TEXT NOT NULL,
    -- JSON arrays of texts.
    groups TEXT NOT NULL,
    scopes TEXT NOT NULL
);
CREATE INDEX machine_bounds_org ON machine_bounds (org);

-- === Placement ===

-- The gateway pool for a kind of request.
CREATE TABLE routes (
    server    TEXT NOT NULL,
    method    TEXT NOT NULL,
    -- Primitive id: exact, `prefix*` or `*`.
    primitive TEXT NOT NULL,
    pool      TEXT NOT NULL,
    PRIMARY KEY (server, method, primitive)
);

-- Regions that this one knows.
CREATE TABLE regions (
    name    TEXT NOT NULL PRIMARY KEY,
    -- Envoy's cluster that leads there; empty: it is this one.
    cluster TEXT NOT NULL
);

-- Where orgs are at home.
CREATE TABLE homes (
    -- Exact, `prefix*` or `*`.
    org    TEXT NOT NULL PRIMARY KEY,
    -- It need not be a region that this one knows.
    region TEXT NOT NULL
);

-- Written in the transaction of the change that it reports.
CREATE TABLE audit (
    revision BIGINT NOT NULL PRIMARY KEY,
    at       BIGINT NOT NULL,
    actor    TEXT   NOT NULL,
    action   TEXT   NOT NULL,
    resource TEXT   NOT NULL,
    org      TEXT   NOT NULL,
    detail   TEXT   NOT NULL,
    -- As of control_revision.
    stamp    TEXT   NOT NULL DEFAULT ''
);
CREATE INDEX audit_org ON audit (org, revision);
