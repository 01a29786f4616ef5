-- Keys with which machines of an org call (`psk`). The secret itself is shown once and kept nowhere.
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
