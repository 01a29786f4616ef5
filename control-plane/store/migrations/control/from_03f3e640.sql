-- From the tables of commit 03f3e640 to those of migration 100, in SQLite and PostgreSQL. The migrator stores the row of
-- migration 100 in the same transaction.
DELETE FROM _sqlx_migrations WHERE version < 100;

ALTER TABLE control_revision ADD COLUMN stamp TEXT NOT NULL DEFAULT '';
ALTER TABLE audit ADD COLUMN stamp TEXT NOT NULL DEFAULT '';

CREATE TABLE offers (
    server TEXT NOT NULL,
    org    TEXT NOT NULL,
    PRIMARY KEY (server, org)
);
CREATE INDEX offers_org ON offers (org);

CREATE TABLE primitive_servers (
    id     TEXT   NOT NULL,
    server TEXT   NOT NULL,
    first  BIGINT NOT NULL,
    PRIMARY KEY (id, server)
);
CREATE INDEX primitive_servers_server ON primitive_servers (server);

CREATE TABLE former_issuers (
    side       TEXT   NOT NULL,
    name       TEXT   NOT NULL,
    iss        TEXT   NOT NULL,
    deleted_at BIGINT NOT NULL,
    PRIMARY KEY (side, name)
);

CREATE INDEX revocations_org ON revocations (org);

-- Machines of an org may have what its machines have.
CREATE TABLE machine_bounds (
    org    TEXT NOT NULL,
    groups TEXT NOT NULL,
    scopes TEXT NOT NULL
);
CREATE INDEX machine_bounds_org ON machine_bounds (org);
INSERT INTO machine_bounds (org, groups, scopes)
    SELECT org, groups, scopes FROM machine_keys
    UNION SELECT org, groups, scopes FROM machine_certificates;

-- Fingerprints were registered without a proof.
ALTER TABLE machine_certificates ADD COLUMN proved BIGINT NOT NULL DEFAULT 0;
UPDATE machine_certificates SET proved = 1 WHERE kind = 'uri';

-- A target may name an issuer, and a machine is a target of its own: `user` names none. A binding of users that names a machine
-- of its org is stored for both. So is one by a pattern that denies, or has conditions: a machine that is added later must not
-- escape it. SQLite cannot change a primary key.
ALTER TABLE bindings RENAME TO former_bindings;
CREATE TABLE bindings (
    org         TEXT   NOT NULL,
    target_type TEXT   NOT NULL,
    target      TEXT   NOT NULL,
    issuer      TEXT   NOT NULL,
    primitive   TEXT   NOT NULL,
    protocol    TEXT   NOT NULL,
    name        TEXT   NOT NULL,
    allowed     BIGINT NOT NULL,
    observed    BIGINT NOT NULL,
    approval    BIGINT NOT NULL,
    conditions  TEXT   NOT NULL,
    PRIMARY KEY (org, target_type, target, issuer, primitive, protocol, name)
);
INSERT INTO bindings
    (org, target_type, target, issuer, primitive, protocol, name, allowed, observed, approval, conditions)
    SELECT org, target_type, target, '', primitive, protocol, name, allowed, observed, approval, conditions
    FROM former_bindings;
INSERT INTO bindings
    (org, target_type, target, issuer, primitive, protocol, name, allowed, observed, approval, conditions)
    SELECT org, 'machine', target, '', primitive, protocol, name, allowed, observed, approval, conditions
    FROM former_bindings b
    WHERE target_type = 'user' AND (
        (substr(target, length(target), 1) = '*' AND (allowed = 0 OR conditions <> ''))
        OR EXISTS (
            SELECT 1 FROM (
                SELECT org, machine FROM machine_keys UNION SELECT org, machine FROM machine_certificates
            ) m WHERE m.org = b.org AND (
                m.machine = b.target
                OR (substr(b.target, length(b.target), 1) = '*'
                    AND substr(m.machine, 1, length(b.target) - 1) = substr(b.target, 1, length(b.target) - 1))
            )
        )
    );
DROP TABLE former_bindings;

-- The same for limits, after the org's other ones.
ALTER TABLE limits ADD COLUMN issuer TEXT NOT NULL DEFAULT '*';
ALTER TABLE limits ADD COLUMN machine TEXT NOT NULL DEFAULT '*';
INSERT INTO limits (org, position, server, primitive, user_id, wcit, capacity, refill, issuer, machine)
    SELECT l.org, l.position + 1 + (SELECT MAX(position) FROM limits o WHERE o.org = l.org), l.server, l.primitive, '*',
        l.wcit, l.capacity, l.refill, '*', l.user_id
    FROM limits l WHERE l.user_id = 'each' OR EXISTS (
        SELECT 1 FROM (
            SELECT org, machine FROM machine_keys UNION SELECT org, machine FROM machine_certificates
        ) m WHERE m.org = l.org AND m.machine = l.user_id
    );
