-- compatible with: 0.2.0
-- Keys and values that plugins store, for each org.

-- `plugin` is the id of a primitive. `holder` is the digest of the user whose key it is; zeros: the org's. `bytes` are those of
-- the key and of the value, which the gateway seals. `version` is random, so that one of a former value fits no later one.
CREATE TABLE plugin_storage (
    org        TEXT   NOT NULL,
    plugin     TEXT   NOT NULL,
    holder     BYTEA  NOT NULL,
    entry_key  TEXT   COLLATE "C" NOT NULL,
    version    BIGINT NOT NULL,
    expires_ms BIGINT NOT NULL,
    bytes      BIGINT NOT NULL,
    sealed     BYTEA  NOT NULL,
    PRIMARY KEY (org, plugin, holder, entry_key)
);
CREATE INDEX plugin_storage_usage ON plugin_storage (org, plugin, expires_ms, bytes);
CREATE INDEX plugin_storage_expiry ON plugin_storage (expires_ms);
