-- The gateways that live, in a file of its own: no load on the other files delays a renewal.

-- One row for each run of a gateway, renewed every few seconds.
CREATE TABLE owners (
    owner    BLOB   NOT NULL PRIMARY KEY,
    -- 0: the lease was given back.
    lease_ms BIGINT NOT NULL,
    -- Since when the lease has held without a gap: a gateway whose own lease had lapsed cannot judge the others.
    since_ms BIGINT NOT NULL DEFAULT 0
);

-- The public halves of the keys by which gateways sign the platform's tokens. A row outlives its gateway's lease: tokens do.
CREATE TABLE token_keys (
    owner    BLOB   NOT NULL,
    kid      TEXT   NOT NULL,
    jwk      TEXT   NOT NULL,
    until_ms BIGINT NOT NULL,
    PRIMARY KEY (owner, kid)
);
