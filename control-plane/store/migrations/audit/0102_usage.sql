-- compatible with: 0.2.0
-- Calls by org, day (since 1970-01-01, UTC), caller, server and primitive. `*` in place of a caller, server or primitive stands
-- for those beyond the bound of an org and day. `l0` and following count calls by latency (`usage.rs`, LATENCY_MS).
CREATE TABLE usage_rows (
    org         TEXT   NOT NULL,
    day         BIGINT NOT NULL,
    user_name   TEXT   NOT NULL,
    issuer      TEXT   NOT NULL,
    server      TEXT   NOT NULL,
    primitive   TEXT   NOT NULL,
    calls       BIGINT NOT NULL,
    errors      BIGINT NOT NULL,
    limited     BIGINT NOT NULL,
    latency_us  BIGINT NOT NULL,
    cpu_us      BIGINT NOT NULL,
    tokens_in   BIGINT NOT NULL,
    tokens_out  BIGINT NOT NULL,
    cost_micros BIGINT NOT NULL,
    l0  BIGINT NOT NULL,
    l1  BIGINT NOT NULL,
    l2  BIGINT NOT NULL,
    l3  BIGINT NOT NULL,
    l4  BIGINT NOT NULL,
    l5  BIGINT NOT NULL,
    l6  BIGINT NOT NULL,
    l7  BIGINT NOT NULL,
    l8  BIGINT NOT NULL,
    l9  BIGINT NOT NULL,
    l10 BIGINT NOT NULL,
    l11 BIGINT NOT NULL,
    l12 BIGINT NOT NULL,
    l13 BIGINT NOT NULL,
    l14 BIGINT NOT NULL,
    l15 BIGINT NOT NULL,
    PRIMARY KEY (org, day, user_name, issuer, server, primitive)
);
CREATE INDEX usage_rows_day ON usage_rows (day);

-- Number of rows of an org and day.
CREATE TABLE usage_days (
    day     BIGINT NOT NULL,
    org     TEXT   NOT NULL,
    entries BIGINT NOT NULL,
    PRIMARY KEY (day, org)
);

-- Last batch of each run of a gateway: a batch that is sent again is not added again.
CREATE TABLE usage_writers (
    writer BLOB NOT NULL PRIMARY KEY,
    batch  BIGINT NOT NULL,
    at_ms  BIGINT NOT NULL
);

-- Calls that gateways run and the sessions that they serve, as they last reported; and requests to end one. `kind` is `call` or
-- `session`.
CREATE TABLE live_work (
    writer     BLOB NOT NULL,
    kind       TEXT   NOT NULL,
    id         TEXT   NOT NULL,
    org        TEXT   NOT NULL,
    user_name  TEXT   NOT NULL,
    issuer     TEXT   NOT NULL,
    server     TEXT   NOT NULL,
    primitive  TEXT   NOT NULL,
    protocol   TEXT   NOT NULL,
    state      TEXT   NOT NULL,
    since_ms   BIGINT NOT NULL,
    expires_ms BIGINT NOT NULL,
    PRIMARY KEY (writer, kind, id)
);
CREATE INDEX live_work_org ON live_work (org, kind, since_ms);
CREATE INDEX live_work_id ON live_work (kind, id);
CREATE TABLE stop_requests (
    kind       TEXT   NOT NULL,
    id         TEXT   NOT NULL,
    org        TEXT   NOT NULL,
    at_ms      BIGINT NOT NULL,
    expires_ms BIGINT NOT NULL,
    PRIMARY KEY (org, kind, id)
);
CREATE INDEX stop_requests_at ON stop_requests (at_ms);
