-- Targets of bindings may name an issuer, and machines are a kind of target of their own, which `user` never is. What was
-- written for users and named a machine names it on: it is stored for both kinds. So is what denies, or asks about
-- arguments, by a pattern: a machine that comes later must not escape it. SQLite cannot change a primary key.
CREATE TABLE targeted_bindings (
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
INSERT INTO targeted_bindings
    (org, target_type, target, issuer, primitive, protocol, name, allowed, observed, approval, conditions)
    SELECT org, target_type, target, '', primitive, protocol, name, allowed, observed, approval, conditions FROM bindings;
INSERT INTO targeted_bindings
    (org, target_type, target, issuer, primitive, protocol, name, allowed, observed, approval, conditions)
    SELECT org, 'machine', target, '', primitive, protocol, name, allowed, observed, approval, conditions FROM bindings b
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
DROP TABLE bindings;
ALTER TABLE targeted_bindings RENAME TO bindings;

-- The same for limits: `*` for every issuer, and for no machine in particular.
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
