-- compatible with: 0.2.0
-- Search of events by time, by org and time, and by trace; and the gateways that write here, so that calls of one that was
-- killed get their last event.
--
-- Indexes are built partition by partition, oldest first: only that of the newest one delays appends, and the indexes of the
-- whole then take over those that are there.
DO $$
DECLARE
    part BIGINT;
BEGIN
    FOR part IN SELECT number FROM call_audit_partitions WHERE to_regclass('call_audit_' || number) IS NOT NULL ORDER BY number
    LOOP
        EXECUTE FORMAT('CREATE INDEX ON %I (at_ms, seq)', 'call_audit_' || part);
        EXECUTE FORMAT('CREATE INDEX ON %I (org, at_ms, seq)', 'call_audit_' || part);
        EXECUTE FORMAT($i$CREATE INDEX ON %I (substring(event from '"trace":"([^"]*)"'), at_ms, seq)$i$, 'call_audit_' || part);
    END LOOP;
END $$;
CREATE INDEX call_audit_at ON call_audit (at_ms, seq);
CREATE INDEX call_audit_org_at ON call_audit (org, at_ms, seq);
CREATE INDEX call_audit_trace ON call_audit (substring(event from '"trace":"([^"]*)"'), at_ms, seq);
CREATE INDEX call_events_at ON call_events (at_ms, seq);

-- Gateways that run calls. `round` counts the appends for a lost one by others.
CREATE TABLE call_audit_writers (
    id        TEXT   NOT NULL PRIMARY KEY,
    seen_ms   BIGINT NOT NULL,
    oldest_ms BIGINT NOT NULL,
    round     BIGINT NOT NULL DEFAULT 0
);

-- Arguments and results of calls, redacted, of the servers for which the operator turns that on.
CREATE TABLE call_bodies (
    seq   BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at_ms BIGINT NOT NULL,
    org   TEXT   NOT NULL,
    call  TEXT   NOT NULL,
    part  TEXT   NOT NULL,
    body  TEXT   NOT NULL
);
CREATE INDEX call_bodies_call ON call_bodies (call);
