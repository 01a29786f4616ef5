-- compatible with: 0.2.0
-- Accounts that users link at other services, their providers, and the tokens that wait for their revocation.

-- `document` is JSON without a secret. `sealed` is the client's secret in the vault, empty for a public client.
CREATE TABLE link_providers (
    name       TEXT   NOT NULL PRIMARY KEY,
    document   TEXT   NOT NULL,
    revision   BIGINT NOT NULL,
    updated_ms BIGINT NOT NULL,
    sealed     BLOB   NOT NULL
);

-- `bound` is the session or the token that a link ends with, empty for a lasting one.
-- `version` is random and changes with the tokens. `access_until_ms` is 0 if the access token does not expire. `state` is `live`,
-- `dead` or, inside the transaction that removes it, `gone`. `lease_by` refreshes the tokens until `lease_ms`. `sealed` are the
-- tokens in the vault.
CREATE TABLE linked_accounts (
    link_id         BLOB   NOT NULL PRIMARY KEY,
    org             TEXT   NOT NULL,
    issuer          TEXT   NOT NULL,
    subject         TEXT   NOT NULL,
    provider        TEXT   NOT NULL,
    bound           TEXT   NOT NULL,
    state           TEXT   NOT NULL,
    version         BIGINT NOT NULL,
    scopes          TEXT   NOT NULL,
    renewable       BIGINT NOT NULL,
    access_until_ms BIGINT NOT NULL,
    created_ms      BIGINT NOT NULL,
    used_ms         BIGINT NOT NULL,
    expires_ms      BIGINT NOT NULL,
    lease_by        BLOB,
    lease_ms        BIGINT NOT NULL,
    sealed          BLOB   NOT NULL,
    UNIQUE (org, issuer, subject, provider, bound)
);
CREATE INDEX linked_accounts_bound ON linked_accounts (bound) WHERE bound <> '';
CREATE INDEX linked_accounts_provider ON linked_accounts (provider, org);
CREATE INDEX linked_accounts_expiry ON linked_accounts (expires_ms);
CREATE INDEX linked_accounts_gone ON linked_accounts (link_id) WHERE state = 'gone';

CREATE TABLE link_removals (
    link_id  BLOB   NOT NULL PRIMARY KEY,
    org      TEXT   NOT NULL,
    provider TEXT   NOT NULL,
    since_ms BIGINT NOT NULL,
    due_ms   BIGINT NOT NULL,
    attempts BIGINT NOT NULL,
    claim    BLOB,
    sealed   BLOB   NOT NULL
);
CREATE INDEX link_removals_due ON link_removals (due_ms);

-- States of authorization requests that were used.
CREATE TABLE link_states (
    state_id   BLOB   NOT NULL PRIMARY KEY,
    expires_ms BIGINT NOT NULL
);
CREATE INDEX link_states_expiry ON link_states (expires_ms);
