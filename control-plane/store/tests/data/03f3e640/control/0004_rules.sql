-- Bindings may ask about the arguments of a call, may ask for a person's approval, may be observed only, and have names
-- where several are about the same target, primitive and protocol. SQLite cannot change a primary key.
CREATE TABLE named_bindings (
    org         TEXT   NOT NULL,
    target_type TEXT   NOT NULL,
    target      TEXT   NOT NULL,
    primitive   TEXT   NOT NULL,
    protocol    TEXT   NOT NULL,
    name        TEXT   NOT NULL,
    allowed     BIGINT NOT NULL,
    observed    BIGINT NOT NULL,
    approval    BIGINT NOT NULL,
    -- JSON, whose form is the control plane's; empty for none.
    conditions  TEXT   NOT NULL,
    PRIMARY KEY (org, target_type, target, primitive, protocol, name)
);
INSERT INTO named_bindings (org, target_type, target, primitive, protocol, name, allowed, observed, approval, conditions)
SELECT org, target_type, target, primitive, protocol, '', allowed, 0, 0, '' FROM bindings;
DROP TABLE bindings;
ALTER TABLE named_bindings RENAME TO bindings;
