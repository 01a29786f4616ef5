-- The gateways that control planes hear: what each of them tells Envoy of. Times are the database's, Unix milliseconds.
CREATE TABLE heard_gateways (
    pool     TEXT   NOT NULL,
    address  TEXT   NOT NULL,
    heard_ms BIGINT NOT NULL,
    -- When it said that it ends; not above 0: it has not.
    left_ms  BIGINT NOT NULL,
    PRIMARY KEY (pool, address)
);
