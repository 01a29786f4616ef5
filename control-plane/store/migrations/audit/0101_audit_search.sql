-- compatible with: 0.2.0
-- Search of events by time, by org and time, and by trace; and the gateways that write here, so that calls of one that was
-- killed get their last event. An index ends with the number of the row, which is `seq`.
CREATE INDEX events_at ON events (at_ms);
CREATE INDEX events_org_at ON events (org, at_ms);
CREATE INDEX events_trace ON events (CASE WHEN json_valid(event) THEN json_extract(event, '$.trace') END, at_ms);

-- Gateways that run calls. `round` counts the appends for a lost one by others.
CREATE TABLE writers (
    id        TEXT   NOT NULL PRIMARY KEY,
    seen_ms   BIGINT NOT NULL,
    oldest_ms BIGINT NOT NULL,
    round     BIGINT NOT NULL DEFAULT 0
);

-- Arguments and results of calls, redacted, of the servers for which the operator turns that on.
CREATE TABLE bodies (
    seq   INTEGER PRIMARY KEY,
    at_ms BIGINT  NOT NULL,
    org   TEXT    NOT NULL,
    call  TEXT    NOT NULL,
    part  TEXT    NOT NULL,
    body  TEXT    NOT NULL
);
CREATE INDEX bodies_call ON bodies (call);
