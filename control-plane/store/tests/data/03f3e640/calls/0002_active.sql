-- Running calls that another worker could take over: the last checkpoint and the answers given, sealed by the
-- gateway. A row ends with its call, at the latest at expires_ms.
CREATE TABLE active_calls (
    call_id    BLOB   NOT NULL PRIMARY KEY,
    org        TEXT   NOT NULL,
    plugin     TEXT   NOT NULL,
    seq        BIGINT NOT NULL,
    capsule    BLOB,
    answers    BLOB,
    expires_ms BIGINT NOT NULL
);
CREATE INDEX active_calls_expires ON active_calls (expires_ms);
