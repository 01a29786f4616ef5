-- compatible with: 0.2.0
-- Approvals that calls wait for: requests, decisions, and grants that one call uses.

-- `principal` is the digest of issuer, org, user and client of the caller. `arguments` and `policy` are the digests that a grant is
-- bound to. `shown` are the arguments without secrets, as an approver sees them. `machine` is 1 for a machine. `notify_ms` is the
-- time at which the webhook is due, 0 for never.
CREATE TABLE approvals (
    seq             INTEGER PRIMARY KEY AUTOINCREMENT,
    id              BLOB   NOT NULL UNIQUE,
    org             TEXT   NOT NULL,
    principal       BLOB   NOT NULL,
    requester       TEXT   NOT NULL,
    issuer          TEXT   NOT NULL,
    client          TEXT   NOT NULL,
    machine         BIGINT NOT NULL,
    server          TEXT   NOT NULL,
    primitive       TEXT   NOT NULL,
    title           TEXT   NOT NULL,
    protocol        TEXT   NOT NULL,
    approvers       TEXT   NOT NULL,
    approvers_iss   TEXT   NOT NULL,
    rule            TEXT   NOT NULL,
    arguments       BLOB   NOT NULL,
    policy          BLOB   NOT NULL,
    shown           TEXT   NOT NULL,
    call_id         BLOB   NOT NULL,
    state           TEXT   NOT NULL,
    created_ms      BIGINT NOT NULL,
    expires_ms      BIGINT NOT NULL,
    decided_ms      BIGINT NOT NULL DEFAULT 0,
    decided_by      TEXT   NOT NULL DEFAULT '',
    reason          TEXT   NOT NULL DEFAULT '',
    used_ms         BIGINT NOT NULL DEFAULT 0,
    used_by         BLOB,
    notify_ms       BIGINT NOT NULL,
    notify_attempts BIGINT NOT NULL DEFAULT 0,
    notify_claim    BLOB
);
CREATE INDEX approvals_of_org ON approvals (org, seq);
CREATE INDEX approvals_of_principal ON approvals (principal, state);
CREATE INDEX approvals_expiry ON approvals (expires_ms);
CREATE INDEX approvals_decided ON approvals (decided_ms) WHERE decided_ms > 0;
CREATE INDEX approvals_notified ON approvals (notify_ms) WHERE notify_ms > 0;
