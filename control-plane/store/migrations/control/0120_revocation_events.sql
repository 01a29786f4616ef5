-- compatible with: 0.1.0
-- Events of a topic that became revocations, so that a repeated one changes nothing. An earlier version reads no topic.
CREATE TABLE revocation_events (
    id       TEXT   NOT NULL PRIMARY KEY,
    -- After it a repeated event is too old to revoke anything.
    until_at BIGINT NOT NULL
);
CREATE INDEX revocation_events_until ON revocation_events (until_at);
-- Messages of a topic that became no revocation, for admins.
CREATE TABLE parked_events (
    -- topic:partition:offset
    id        TEXT   NOT NULL PRIMARY KEY,
    parked_at BIGINT NOT NULL,
    fault     TEXT   NOT NULL,
    payload   TEXT   NOT NULL
);
CREATE INDEX parked_events_at ON parked_events (parked_at, id);
